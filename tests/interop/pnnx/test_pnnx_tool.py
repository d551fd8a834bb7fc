"""What the pnnx tool makes of PyTorch's functions and layers, group by group."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import adjoint as ad
import adjoint.pnnx
from tests.interop.pnnx.pnnx_files import convert

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

F = nn.functional
IMAGE, ROWS, PAIR = (2, 6, 8, 8), (2, 6, 10), (3, 4)


def copied(x):
    y = x.clone()
    y[:, 1:3] = 0.5
    y[:, 0] = x[:, 1]
    y[..., ::2] = x[..., ::2] * 2
    z = torch.zeros_like(x)
    z[:, 2:4] = x[:, 0:2]
    w = x.clone()
    w[:, torch.tensor([0, 2])] = 1.0
    return y, z, w, x.clone().fill_(3.0)


FUNCTIONS = {  # of one input, or of two of the same shape
    "elementwise": (PAIR, lambda x: [
        getattr(torch, name)(x) for name in (
            "abs", "acos", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf", "exp",
            "expm1", "floor", "frac", "isfinite", "isnan", "lgamma", "log", "log10", "log1p",
            "log2", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh",
            "sqrt", "square", "tan", "tanh", "trunc",
        )
    ]),
    "pairs": (PAIR, lambda x, y: [
        *(getattr(torch, name)(x, y) for name in (
            "add", "atan2", "div", "eq", "floor_divide", "fmod", "ge", "gt", "le", "logaddexp",
            "lt", "max", "maximum", "min", "minimum", "mul", "ne", "pow", "remainder", "sub",
        )),
        2 - x, 2 / x, x**2, 2**x, x // 0.3, x % 0.3, torch.sub(x, y, alpha=2), torch.rsub(x, 1),
        1 + x * y - (x / y) * 3, (x > y) & (x > 0.5), (x > y) | (x > 0.2), ~(x > y),
        (x > y) ^ (x < 0.3), (x * 10).long() % 3, (x * 10).long() // 3, (x * 10).int() << 1,
        torch.logical_and(x > 0.5, y > 0.5), torch.clamp(x, 0.2, 0.5), x.clamp(min=0.4),
    ]),
    "activations": (IMAGE, lambda x: [
        *(getattr(F, name)(x - 0.5) for name in (
            "celu", "elu", "gelu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh",
            "leaky_relu", "logsigmoid", "mish", "relu", "relu6", "selu", "silu", "softplus",
            "softshrink", "softsign", "tanhshrink",
        )),
        F.softmax(x, 1), F.softmin(x, 1), F.log_softmax(x, -1), F.glu(x, 1),
        F.threshold(x, 0.5, 0.2), F.gelu(x, approximate="tanh"), F.normalize(x, dim=1),
        F.prelu(x - 0.5, torch.tensor([0.25])),
    ]),
    "reductions": (ROWS, lambda x: [
        *(getattr(torch, name)(x, dim=1) for name in (
            "amax", "amin", "argmax", "argmin", "cumprod", "cumsum", "logsumexp", "mean", "norm",
            "prod", "softmax", "std", "sum", "var",
        )),
        *(getattr(torch, name)(x) for name in ("max", "mean", "min", "prod", "std", "sum", "var")),
        *torch.max(x, 1), *torch.topk(x, 3, -1), *torch.sort(x, -1), x.sum((1, 2), keepdim=True),
        (x > 0.5).any(1), (x > 0.5).all(1), *x.median(1),
    ]),
    "shapes": (ROWS, lambda x: [
        x.view(2, 60), x.reshape(2, 3, 2, 10), x.flatten(1), x.view(-1, 10), x.mT,
        x.unflatten(1, (2, 3)), x.permute(0, 2, 1), x.transpose(1, 2), x.unsqueeze(1),
        x[:, :1].squeeze(1), x[:, :1].expand(2, 6, 10), x.repeat(1, 2, 3), x.tile((2, 1)),
        x.repeat_interleave(2, 1), torch.roll(x, (1, 2), (1, 2)), torch.flip(x, (1,)),
        x.narrow(1, 1, 3), torch.tril(x), torch.triu(x, 1), x.to(torch.float64), x.long(),
        (x > 0.5).float(), torch.cat([x, x + 1], -1), torch.stack([x, x], 1),
    ]),
    "places": (ROWS, lambda x: [
        x[:, 1:4], x[:, ::2], x[..., -3:], x[:, 0], x[:, :, 1], x[:, 1:3, 2:8:2], x[:, -1],
        x[:, None], x[..., :-2], x.select(1, 2), x[:, torch.tensor([0, 2, 1])],
        x[:, :, torch.tensor([0, 2])], torch.index_select(x, 1, torch.tensor([0, 3])),
        *torch.split(x, 2, 1), *torch.split(x, [1, 5], 1), *torch.chunk(x, 3, 1), *x.unbind(1),
        *torch.tensor_split(x, 4, 2), torch.gather(x, 1, torch.zeros(2, 1, 10, dtype=torch.long)),
        x.masked_fill(x > 0.5, float("-inf")), torch.where(x > 0.5, x, x * 2), *copied(x),
        torch.scatter_add(x, 1, torch.zeros(2, 6, 10, dtype=torch.long), x * 2),
    ]),
    "products": (ROWS, lambda x: [
        x @ x.mT, torch.bmm(x, x.mT), torch.mm(x[0], x[1].t()), torch.mv(x[0], x[0, 0]),
        torch.baddbmm(x @ x.mT, x, x.mT, beta=0.5, alpha=2), torch.einsum("bij,bkj->bik", x, x),
        torch.addmm(x[0] @ x[0].t(), x[0], x[1].t(), beta=0.5), F.linear(x, torch.ones(4, 10)),
        torch.cross(x[..., :3], x[..., 3:6], -1), F.cosine_similarity(x, x + 1, 2),
        F.scaled_dot_product_attention(x, x, x, is_causal=True),
        F.scaled_dot_product_attention(x, x, x, attn_mask=torch.zeros(6, 6)),
    ]),
    "normalization": (ROWS, lambda x: [
        F.layer_norm(x, (10,)), F.layer_norm(x, (10,), torch.ones(10) * 2, torch.ones(10)),
        F.group_norm(x, 2), F.instance_norm(x), F.rms_norm(x, (10,)), F.local_response_norm(x, 2),
        F.batch_norm(x, torch.zeros(6), torch.ones(6)), F.pairwise_distance(x, x * 2),
        F.embedding(torch.tensor([[0, 1]]), torch.ones(3, 4)) + x[:, :1, :1],
    ]),
    "images": (IMAGE, lambda x: [
        F.max_pool2d(x, 3, 2, 1, ceil_mode=True), F.avg_pool2d(x, 3, 2, 1), F.lp_pool2d(x, 2, 2),
        F.avg_pool2d(x, 2, padding=1, count_include_pad=False), F.adaptive_avg_pool2d(x, (None, 3)),
        F.adaptive_max_pool2d(x, (2, 3)), *F.max_pool2d(x, 2, return_indices=True),
        F.interpolate(x, scale_factor=2), F.interpolate(x, size=(12, 9), mode="bilinear"),
        F.interpolate(x, scale_factor=(1.5, 2.0), mode="bicubic"), F.unfold(x, 3, padding=1),
        F.pad(x, (1, 2, 1, 2), mode="reflect"), F.pad(x, (1, 2, 3, 4), value=2.0),
        F.pixel_unshuffle(x, 2), F.pixel_shuffle(x[:, :4], 2), F.conv2d(x, torch.ones(4, 6, 3, 3)),
        F.conv_transpose2d(x, torch.ones(6, 2, 2, 2), stride=2),
        F.fold(F.unfold(x, 2, stride=2), (8, 8), 2, stride=2),
        F.grid_sample(x, torch.zeros(2, 3, 3, 2), align_corners=False),
    ]),
    "spectra": (ROWS, lambda x: [
        torch.fft.irfft(torch.fft.rfft(x)), torch.view_as_real(torch.fft.fft(x)),
        torch.fft.rfft2(x).abs(), torch.view_as_real(torch.complex(x, x * 2)),
        torch.stft(x[:, 0], 4, return_complex=True, window=torch.ones(4)).real,
    ]),
}  # fmt: skip

LAYERS = {
    "one dimension": (ROWS, [
        nn.Conv1d(6, 6, 3, padding="same"), nn.ReLU(), nn.BatchNorm1d(6), nn.MaxPool1d(3, 1, 1),
        nn.AvgPool1d(3, 1, 1), nn.ReflectionPad1d(1), nn.ReplicationPad1d(1), nn.LPPool1d(2, 2),
        nn.ConstantPad1d(1, 0.5), nn.ConvTranspose1d(6, 4, 3, 2, output_padding=1),
        nn.InstanceNorm1d(4), nn.AdaptiveAvgPool1d(5), nn.AdaptiveMaxPool1d(3),
    ]),
    "two dimensions": (IMAGE, [
        nn.Conv2d(6, 6, 3, padding=1, groups=2, padding_mode="reflect"), nn.InstanceNorm2d(6),
        nn.GroupNorm(2, 6), nn.LayerNorm((8, 8)), nn.RMSNorm(8), nn.LocalResponseNorm(3),
        nn.ChannelShuffle(3), nn.PixelUnshuffle(2), nn.PixelShuffle(2), nn.Unfold(2, stride=2),
        nn.Fold((8, 8), 2, stride=2), nn.ZeroPad2d(1), nn.ReplicationPad2d((1, 2, 1, 2)),
        nn.LPPool2d(2, 2), nn.Upsample(scale_factor=2), nn.UpsamplingBilinear2d(size=9),
        nn.AdaptiveAvgPool2d((5, None)), nn.AdaptiveMaxPool2d(3),
    ]),
    "three dimensions": ((2, 4, 6, 6, 6), [
        nn.Conv3d(4, 4, 3, groups=2), nn.ReLU(), nn.BatchNorm3d(4), nn.MaxPool3d(3, 1, 1),
        nn.AvgPool3d(3, 1, 1), nn.ReplicationPad3d(1), nn.ConvTranspose3d(4, 4, 3),
        nn.InstanceNorm3d(4), nn.AdaptiveAvgPool3d(3), nn.AdaptiveMaxPool3d(2),
    ]),
    "activations": (IMAGE, [
        nn.ELU(), nn.CELU(), nn.SELU(), nn.GELU(), nn.SiLU(), nn.Mish(), nn.Hardswish(),
        nn.Hardsigmoid(), nn.Hardtanh(), nn.LeakyReLU(0.2), nn.PReLU(6), nn.RReLU(), nn.Softplus(),
        nn.Softsign(), nn.Tanhshrink(), nn.Hardshrink(0.1), nn.Softshrink(0.1), nn.Sigmoid(),
        nn.Tanh(), nn.LogSigmoid(), nn.Threshold(0.1, 0.2), nn.Softmax(1), nn.LogSoftmax(1),
        nn.Softmin(1), nn.Softmax2d(), nn.GLU(1),
    ]),
    "bags": ((2, 3), [nn.EmbeddingBag(10, 4, mode="max", padding_idx=1)]),
    "recurrence": (ROWS, [nn.LSTM(10, 5, 2, bidirectional=True, batch_first=True)]),
    "attention": (ROWS, [nn.TransformerEncoderLayer(10, 2, 16, batch_first=True)]),
}  # fmt: skip


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return tuple(self.function(*inputs))


def flat(found):
    return [t for x in found for t in flat(x)] if isinstance(found, (tuple, list)) else [found]


def compare(directory, model, *inputs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, of constants that a trace keeps
        module = ad.pnnx.load(convert(directory, model, inputs))
    with torch.no_grad(), ad.no_grad():
        wanted = flat(model(*inputs))
        found = flat(module(*(ad.tensor(x.numpy()) for x in inputs)))
    for a, b in zip(found, wanted, strict=True):
        assert tuple(a.shape) == tuple(b.shape) and str(a.dtype)[8:] == str(b.dtype)[6:]
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("group", FUNCTIONS)
def test_functions(tmp_path, group):
    shape, function = FUNCTIONS[group]
    torch.manual_seed(0)
    count = function.__code__.co_argcount
    compare(tmp_path, Function(function), *(torch.rand(shape) * 0.8 + 0.1 for _ in range(count)))


@pytest.mark.parametrize("group", LAYERS)
def test_layers(tmp_path, group):
    shape, layers = LAYERS[group]
    torch.manual_seed(0)
    model = nn.Sequential(*layers).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.rand_like(parameter) - 0.3)
    compare(tmp_path, model, torch.rand(shape) if group != "bags" else torch.arange(6).view(shape))


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell])
def test_cells(tmp_path, kind):
    torch.manual_seed(0)
    cell = kind(3, 4)
    states = torch.rand(2 if kind is nn.LSTMCell else 1, 5, 4)

    class Step(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = cell

        def forward(self, x, *h):
            return self.cell(x, h if len(h) > 1 else h[0])

    compare(tmp_path, Step(), torch.rand(5, 3), *states)
