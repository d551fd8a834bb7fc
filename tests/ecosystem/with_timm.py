"""timm: ten kinds of models, small, forward and trained; optimizers and schedules of its own."""

from __future__ import annotations

import functools

import timm
import timm.loss
import timm.optim
import timm.scheduler
import torch
import torch.nn.functional as F
from common import data, fill, labels, told, train
from timm.data import Mixup


def _model(name, size=64, dtype=torch.float32, **options):
    make = functools.partial(timm.create_model, name) if isinstance(name, str) else name
    model = fill(make(num_classes=5, **options)).eval().to(dtype)
    x, y = data(4, 3, size, size).to(dtype), labels(5, 4)
    with torch.no_grad():
        before = told(model(x))
        features = told(model.forward_features(x))
    return before, features, train(model.train(), lambda: F.cross_entropy(model(x), y), lr=1e-4)


VIT = {"embed_dim": 32, "depth": 2, "num_heads": 2, "img_size": 64}


def case_resnet18():
    return _model("resnet18")


def case_resnetv2_50():
    return _model("resnetv2_50", layers=[1, 1, 1, 1], channels=[32, 32, 64, 64])


def case_efficientnet_b0():
    return _model("efficientnet_b0", drop_path_rate=0.0, dtype=torch.float64)


def case_mobilenetv3():
    return _model("mobilenetv3_small_050", drop_rate=0.0, dtype=torch.float64)


def case_convnext():
    return _model("convnext_atto", depths=(1, 1, 1, 1), dims=(16, 32, 32, 64))


def case_vit():
    return _model("vit_tiny_patch16_224", **VIT)


def case_deit_distilled():
    model = fill(timm.create_model("deit_tiny_distilled_patch16_224", num_classes=5, **VIT)).eval()
    return model(data(2, 3, 64, 64))


def case_swin():
    return _model(
        "swin_tiny_patch4_window7_224",
        img_size=64,
        window_size=4,
        embed_dim=16,
        depths=(1, 1, 1),
        num_heads=(1, 2, 4),
        drop_path_rate=0.0,
    )


def case_mixer():
    kind = timm.models.mlp_mixer.MlpMixer
    return _model(kind, img_size=64, num_blocks=2, embed_dim=32, patch_size=16)


def case_regnet():
    return _model("regnetx_002", dtype=torch.float64)


def case_densenet():
    return _model("densenet121", growth_rate=8, block_config=(2, 2, 2, 2))


def case_eva():
    return _model(
        "eva02_tiny_patch14_224", img_size=56, size=56, embed_dim=48, depth=2, num_heads=2
    )


def case_mobilevit():
    return _model("mobilevit_xxs", dtype=torch.float64)


def case_features():
    model = fill(timm.create_model("resnet18", features_only=True, out_indices=(1, 3))).eval()
    return [model(data(2, 3, 64, 64)), model.feature_info.channels()]


def case_optimizers():
    found = {}
    for name in (
        "sgd",
        "adamw",
        "lamb",
        "adafactor",
        "rmsproptf",
        "lion",
        "nadamw",
        "adopt",
        "muon",
    ):
        model = fill(timm.create_model("vit_tiny_patch16_224", num_classes=5, **VIT))
        x, y = data(2, 3, 64, 64), labels(5, 2)
        optimizer = timm.optim.create_optimizer_v2(model, opt=name, lr=1e-3, weight_decay=0.05)
        loss = lambda: F.cross_entropy(model(x), y)  # noqa: E731, B023
        found[name] = train(model, loss, optimizer=optimizer)["losses"]
    return found


def case_schedules():
    p = torch.nn.Parameter(torch.zeros(1))
    found = []
    for kind in (timm.scheduler.CosineLRScheduler, timm.scheduler.TanhLRScheduler):
        optimizer = torch.optim.SGD([p], lr=1.0)
        schedule = kind(optimizer, t_initial=10, warmup_t=3, warmup_lr_init=0.01)
        for epoch in range(12):
            schedule.step(epoch)
            found.append(optimizer.param_groups[0]["lr"])
    return found


def case_losses():
    x, y = data(4, 5), labels(5, 4)
    soft = F.one_hot(y, 5).float() * 0.8 + 0.04
    model = timm.create_model("resnet18", num_classes=2)
    ema = timm.utils.ModelEmaV3(fill(model), decay=0.9)
    fill(model, 1)
    ema.update(model)
    mixed = Mixup(mixup_alpha=0.0, cutmix_alpha=0.0, prob=0.0, num_classes=5)
    return [
        timm.loss.LabelSmoothingCrossEntropy(0.1)(x, y),
        timm.loss.SoftTargetCrossEntropy()(x, soft),
        timm.loss.AsymmetricLossMultiLabel()(x, soft),
        ema.module.conv1.weight,
        timm.utils.accuracy(x, y, topk=(1, 3)),
        mixed(data(4, 3, 4, 4), y)[1],
    ]
