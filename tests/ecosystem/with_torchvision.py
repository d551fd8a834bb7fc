"""torchvision: classifiers, detectors, operators on boxes, transforms v2."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
import torchvision
from common import data, fill, labels, told, train
from torchvision import models, ops, tv_tensors
from torchvision.transforms import v2


def _classifier(make, dtype=torch.float32):
    model = fill(make(num_classes=5)).eval().to(dtype)
    x, y = data(4, 3, 64, 64).to(dtype), labels(5, 4)
    with torch.no_grad():
        before = told(model(x))
    for each in model.modules():
        if isinstance(each, torch.nn.Dropout):
            each.p = 0.0

    def loss():
        out = model.train()(x)
        return F.cross_entropy(out.logits if hasattr(out, "logits") else out, y)

    return before, train(model, loss, lr=1e-4)


def case_resnet18():
    return _classifier(models.resnet18)


def case_mobilenet_v3_small():
    return _classifier(models.mobilenet_v3_small)


def case_shufflenet():
    return _classifier(
        models.shufflenet_v2_x0_5, torch.float64
    )  # its losses jump from step to step


def case_vit():
    return _classifier(
        lambda num_classes: models.VisionTransformer(
            image_size=64,
            patch_size=16,
            num_layers=2,
            num_heads=2,
            hidden_dim=32,
            mlp_dim=64,
            num_classes=num_classes,
        )
    )


def case_swin():
    return _classifier(
        lambda num_classes: models.SwinTransformer(
            patch_size=[4, 4],
            embed_dim=24,
            depths=[1, 1],
            num_heads=[2, 4],
            window_size=[4, 4],
            stochastic_depth_prob=0.0,
            num_classes=num_classes,
        )
    )


def _boxes(count, size, seed=0):
    r = np.random.default_rng(seed)
    corner = r.uniform(0, size * 0.7, (count, 2))
    extent = r.uniform(size * 0.1, size * 0.6, (count, 2))
    return torch.from_numpy(np.concatenate([corner, corner + extent], 1).astype(np.float32))


def case_boxes():
    boxes = _boxes(40, 50)
    scores = torch.from_numpy(np.random.default_rng(1).permutation(40).astype(np.float32) / 40)
    classes = labels(3, 40)
    return [
        ops.nms(boxes, scores, 0.3).tolist(),
        ops.batched_nms(boxes, scores, classes, 0.3).tolist(),
        ops.nms(boxes[:0], scores[:0], 0.3).tolist(),
        ops.box_iou(boxes[:5], boxes[5:10]),
        ops.generalized_box_iou(boxes[:5], boxes[5:10]),
        ops.masks_to_boxes(data(3, 9, 9) > 1),
    ]


def case_pooling():
    found = []
    for function in (
        lambda x, rois: ops.roi_align(x, rois, (3, 2), 0.5, 2),
        lambda x, rois: ops.roi_align(x, rois, (3, 2), 0.5, -1, aligned=True),
        lambda x, rois: ops.roi_pool(x, rois, (3, 2), 0.5),
        lambda x, rois: ops.ps_roi_align(x, rois, (3, 2), 0.5, 2),
    ):
        x = data(2, 12, 11, 9).requires_grad_()
        rois = [_boxes(4, 24), _boxes(3, 24, 1) - 8]
        y = function(x, rois)
        (y * data(*y.shape, seed=1)).sum().backward()
        found += [y, x.grad]
    return found


def case_deform_conv():
    found = []
    for masked in (False, True):
        layer = fill(ops.DeformConv2d(4, 6, 3, stride=2, padding=1, dilation=1, groups=2))
        x = data(2, 4, 9, 8).requires_grad_()
        offset = data(2, 2 * 2 * 9, 5, 4, seed=1, scale=2).requires_grad_()
        mask = data(2, 2 * 9, 5, 4, seed=2).requires_grad_() if masked else None
        y = layer(x, offset, mask)
        y.square().sum().backward()
        found += [y, x.grad, offset.grad, layer.weight.grad, mask.grad if masked else None]
    return found


def _detector(make):
    model = fill(make())
    images = [data(3, 64, 64).sigmoid(), data(3, 64, 48, seed=1).sigmoid()]
    targets = [{"boxes": _boxes(2, 48, i), "labels": labels(2, 2) + 1} for i in range(2)]

    def loss():
        return sum(model(images, targets).values())

    for each in model.modules():
        if hasattr(each, "fg_bg_sampler"):  # all proposals, so that none is drawn
            each.fg_bg_sampler.batch_size_per_image = 10**6
            each.fg_bg_sampler.positive_fraction = 0.5
    return model, train(model.train(), loss, 2, lr=1e-4), images


def case_faster_rcnn():
    def make():
        backbone = models.resnet18(norm_layer=ops.FrozenBatchNorm2d)
        backbone = models.detection.backbone_utils._resnet_fpn_extractor(backbone, 3)
        return models.detection.FasterRCNN(
            backbone,
            3,
            min_size=64,
            max_size=64,
            rpn_pre_nms_top_n_train=50,
            rpn_post_nms_top_n_train=20,
            rpn_pre_nms_top_n_test=50,
            rpn_post_nms_top_n_test=20,
            box_score_thresh=0.0,
            box_detections_per_img=5,
        )

    model, trained, images = _detector(make)
    with torch.no_grad():
        found = model.eval()(images)
    return trained, [[each["boxes"].shape[0], each["scores"].sum()] for each in found]


def case_retinanet():
    def make():
        backbone = models.resnet18(norm_layer=ops.FrozenBatchNorm2d)
        backbone = models.detection.backbone_utils._resnet_fpn_extractor(
            backbone,
            3,
            returned_layers=[2, 3, 4],
            extra_blocks=ops.feature_pyramid_network.LastLevelP6P7(256, 256),
        )
        return models.detection.RetinaNet(backbone, 3, min_size=64, max_size=64)

    return _detector(make)[1]


def case_segmentation():
    backbone = models.resnet18()
    backbone = models._utils.IntermediateLayerGetter(backbone, {"layer4": "out"})
    head = models.segmentation.fcn.FCNHead(512, 3)
    head[3].p = 0.0
    model = fill(models.segmentation.FCN(backbone, head)).train()
    x, y = data(3, 3, 64, 64), labels(3, 3, 64, 64)
    return train(model, lambda: F.cross_entropy(model(x)["out"], y), lr=1e-4)


def case_transforms():
    image = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (3, 20, 24), dtype=np.uint8))
    steps = v2.Compose(
        [
            v2.Resize(16, antialias=True),
            v2.CenterCrop(14),
            v2.RandomHorizontalFlip(1.0),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize([0.5] * 3, [0.2] * 3),
        ]
    )
    found = [steps(image), v2.functional.rotate(image, 30), v2.functional.adjust_hue(image, 0.1)]
    found += [
        v2.functional.gaussian_blur(image, [3, 3]),
        v2.functional.affine(image, 10, [1, 2], 1.2, [3]),
        v2.functional.perspective(
            image, [[0, 0], [23, 0], [23, 19], [0, 19]], [[1, 2], [20, 1], [22, 18], [2, 17]]
        ),
        v2.functional.equalize(image),
        v2.functional.adjust_sharpness(image, 1.5),
        v2.functional.posterize(image, 3),
        v2.functional.autocontrast(image),
        v2.functional.pil_to_tensor(v2.functional.to_pil_image(image)),
    ]
    return found


def case_boxes_and_images():
    image = tv_tensors.Image(torch.arange(3 * 10 * 12).reshape(3, 10, 12).to(torch.uint8))
    boxes = tv_tensors.BoundingBoxes(
        [[1, 2, 5, 6], [0, 0, 11, 9]], format="XYXY", canvas_size=(10, 12)
    )
    mask = tv_tensors.Mask(image[:1] > 50)
    steps = v2.Compose([v2.RandomHorizontalFlip(1.0), v2.Resize((20, 24)), v2.CenterCrop(16)])
    found = steps({"image": image, "boxes": boxes, "mask": mask, "label": 3})
    return [type(each).__name__ for each in found.values()], list(found.values())


def case_utils():
    grid = torchvision.utils.make_grid(data(4, 3, 5, 5), nrow=2, normalize=True)
    drawn = torchvision.utils.draw_bounding_boxes(
        torch.zeros(3, 20, 20, dtype=torch.uint8), _boxes(2, 20), colors="red"
    )
    return grid, drawn
