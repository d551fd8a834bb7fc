"""ONNX files as PyTorch writes them: read, compared, differentiated, written again."""

from __future__ import annotations

import contextlib
import io
import warnings

import numpy as np
import pytest

import adjoint as ad

pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from ...sweep import one_in  # noqa: E402

ort.set_default_logger_severity(3)
F = nn.functional


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.GroupNorm(2, 8)
        self.deep = nn.Conv2d(8, 16, 3, padding=1)
        self.up = nn.ConvTranspose2d(16, 8, 2, 2)
        self.out = nn.Conv2d(16, 2, 1)

    def forward(self, x):
        a = torch.relu(self.norm(self.down(x)))
        b = torch.relu(self.deep(F.max_pool2d(a, 2)))
        return self.out(torch.cat([a, self.up(b)], 1))


def block(a, b, stride=2):
    return nn.Sequential(nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.SiLU())


class Detector(nn.Module):
    """As YOLOv5: pooled and resized features, boxes decoded on a grid."""

    def __init__(self):
        super().__init__()
        self.first, self.second = block(3, 8), block(8, 16)
        self.pool = nn.MaxPool2d(5, 1, 2)
        self.heads = nn.ModuleList([nn.Conv2d(48, 18, 1), nn.Conv2d(24, 18, 1)])
        self.register_buffer("anchors", torch.rand(1, 3, 1, 1, 2))

    def boxes(self, y, stride):
        b, _, h, w = y.shape
        y = y.view(b, 3, 6, h, w).permute(0, 1, 3, 4, 2).contiguous()
        rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        grid = torch.stack((columns, rows), 2).expand(1, 3, h, w, 2) - 0.5
        place, size, score = y.sigmoid().split((2, 2, 2), 4)
        parts = ((place * 2 + grid) * stride, (size * 2) ** 2 * self.anchors, score)
        return torch.cat(parts, 4).view(b, 3 * h * w, 6)

    def forward(self, x):
        a = self.first(x)
        b = self.second(a)
        p = self.pool(b)
        deep = torch.cat((b, p, self.pool(p)), 1)
        up = F.interpolate(b, scale_factor=2.0, mode="nearest")
        wide = torch.cat((a, up), 1)
        return torch.cat(
            [self.boxes(self.heads[0](deep), 4), self.boxes(self.heads[1](wide), 2)], 1
        )


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, 4 * channels, 1), nn.BatchNorm2d(4 * channels), nn.ReLU6(),
            nn.Conv2d(4 * channels, channels, 3, padding=1, groups=channels), nn.Hardswish(),
        )  # fmt: skip

    def forward(self, x):
        return torch.relu(x + self.body(x))


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.layers = kind(4, 5, num_layers=2, bidirectional=True, batch_first=True)
        self.last = nn.Linear(10, 3)

    def forward(self, x):
        return self.last(self.layers(x)[0])


class First(nn.Module):
    """The first output of a model of transformers."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(ids)[0]


def bert():
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=40,
    )  # fmt: skip
    return First(transformers.BertModel(config))


def gpt2():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=50, n_positions=32, n_embd=16, n_layer=2, n_head=2, use_cache=False,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return First(transformers.GPT2LMHeadModel(config))


def convolutional():
    return nn.Sequential(
        block(3, 8), Residual(8), nn.AvgPool2d(3, 2, 1, ceil_mode=True), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(8, 3),
    )  # fmt: skip


# model, shape of its input (None: token ids), by which of PyTorch's exporters
MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)), (2, 4), (0, 1)),
    "convolutional": (convolutional, (2, 3, 16, 16), (0, 1)),
    "unet": (UNet, (1, 3, 16, 16), (0, 1)),
    "detector": (Detector, (1, 3, 32, 32), (0, 1)),
    "lstm": (lambda: Recurrent(nn.LSTM), (2, 3, 4), (0, 1)),
    "gru": (lambda: Recurrent(nn.GRU), (2, 3, 4), (0, 1)),
    "bert": (bert, None, (0, 1)),
    "gpt2": (gpt2, None, (1,)),  # the other exporter lacks its aten::diff
}


def written(module, x, dynamo):
    """The bytes of the file that PyTorch writes."""
    if dynamo:
        pytest.importorskip("onnxscript")
    file = io.BytesIO()
    options = {} if dynamo else {"opset_version": 17}
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (x,), file, dynamo=bool(dynamo), **options)
    return file.getvalue()


def run(data, x):
    session = ort.InferenceSession(data, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]


@pytest.mark.parametrize(
    ("name", "dynamo"),
    [
        *((name, 0) for name, (_, _, ways) in MODELS.items() if 0 in ways),
        *one_in(3, ((name, 1) for name in reversed(MODELS))),  # slow
    ],
)
def test_models(name, dynamo):
    make, shape, _ = MODELS[name]
    torch.manual_seed(0)
    module = make().eval()
    with torch.no_grad():  # PyTorch writes equal parameters only once
        for parameter in module.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    x = torch.randint(0, 50, (2, 6)) if shape is None else torch.randn(shape)
    data = written(module, x, dynamo)
    loaded = ad.onnx.load(data)
    ours = ad.from_numpy(x.numpy())
    with torch.no_grad():
        expected = module(x).numpy()
    found = loaded(ours)
    near = {"rtol": 1e-5, "atol": 1e-5 * np.abs(expected).max()}
    np.testing.assert_allclose(found.detach().numpy(), expected, **near)
    np.testing.assert_allclose(found.detach().numpy(), run(data, x), **near)

    file = io.BytesIO()
    ad.onnx.export(loaded, ours, file)
    np.testing.assert_allclose(run(file.getvalue(), x), expected, **near)

    if dynamo and any(isinstance(part, nn.BatchNorm2d) for part in module.modules()):
        return  # this exporter folds it into the convolutions, whose weights are others then
    loss = module(x).square().mean()
    gradients = torch.autograd.grad(loss, list(module.parameters()), allow_unused=True)
    (found * found).mean().backward()
    by_name = {
        key.removeprefix("model."): g.numpy()
        for (key, _), g in zip(module.named_parameters(), gradients, strict=True)
        if g is not None
    }
    largest = max(np.abs(g).max() for g in by_name.values())
    compared = 0
    for key, parameter in loaded.named_parameters():
        g = by_name.get(key.removeprefix("model."))
        if g is not None and g.shape == parameter.shape:
            np.testing.assert_allclose(
                parameter.grad.numpy(), g, rtol=1e-3, atol=1e-5 * largest, err_msg=key
            )
            compared += 1
    assert compared
