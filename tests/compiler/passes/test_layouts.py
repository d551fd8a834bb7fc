"""Images in blocks of channels: what is written on them, where copies are, and equal values."""

import itertools

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.backends import native
from adjoint.compiler.passes.layouts import Blocked, BlockedConvolution, Unblocked, block_layouts
from adjoint.core import policy
from tests.native import needs_native
from tests.sweep import one_in

from ..run.test_step import OPTIMIZERS, Pair
from .test_inference_passes import check, graph_of, names

pytestmark = needs_native
F = nn.functional


def block():
    from adjoint.backends.native.onednn import eager_convolution as convolution

    return convolution.block()


if native.unusable() is None and not block():
    pytestmark = pytest.mark.skip(reason="no oneDNN")

N = 32  # channels: some blocks of 8 or 16


def drawn(*shape, seed=0):
    return ad.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32) / 4)


X = drawn(4, N, 9, 7)
W, V = drawn(N, N, 3, 3, seed=1), drawn(N, N, 3, 3, seed=2)
C, BIAS = drawn(N, 1, 1, seed=3), drawn(N, seed=4)


def kinds(graph):
    return [type(node.op).__name__ for node in graph.nodes]


def test_block_layouts_from_one_convolution_to_the_next():
    def function(x):
        y = F.conv2d(x, W, BIAS, padding=1)
        y = ((y - y.mean((0, 2, 3), keepdim=True)) * C).relu()
        return F.conv2d(F.conv2d(y, V, padding=1).relu(), W, stride=2).sum((2, 3))

    graph = check(
        block_layouts, function, X,
        before=["convolution", "mean", "sub", "mul", *["relu", "convolution"] * 2, "sum"],
        after=[
            "blocked", "convolution", "mean", "sub", "reshape", "mul",
            *["relu", "convolution"] * 2, "sum", "reshape",
        ],
    )  # fmt: skip
    b = block()
    convolutions = [n for n in graph.nodes if isinstance(n.op, BlockedConvolution)]
    assert [n.output.shape for n in convolutions] == [
        (4, N // b, 9, 7, b), (4, N // b, 9, 7, b), (4, N // b, 4, 3, b)
    ]  # fmt: skip


def test_where_copies_at_borders_cost_more_all_stays():
    """Between poolings there is one convolution: as many copies as it makes itself."""

    def function(x):
        return F.max_pool2d(F.conv2d(F.max_pool2d(x, 2), W, padding=1).relu(), 2)

    graph = graph_of(function, drawn(4, N, 16, 16))
    before = names(graph)
    assert block_layouts(graph) == 0 and names(graph) == before


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda x: F.conv2d(x, W, groups=1), drawn(3, N, 9, 7)),  # few images
        (lambda x: F.conv2d(x, W[:, :4], groups=N // 4), X),
        (lambda x: F.conv2d(x, drawn(N + 4, N + 4, 3, 3)), drawn(4, N + 4, 9, 7)),
        (lambda x: F.conv2d(x, W.double()), X.double()),
        (lambda x: F.conv2d(x, W), drawn(0, N, 9, 7)),
        (lambda x: F.conv2d(x, drawn(640, N, 5, 5)), drawn(4, N, 6, 6)),  # many weights
    ],
)
def test_what_stays_plain(function, x):
    graph = graph_of(lambda x: function(function(x.relu()).sum() + x), x)
    assert block_layouts(graph) == 0


AROUND = {
    "channels": lambda y: y * C + BIAS.reshape(1, -1, 1, 1),
    "places": lambda y: y * drawn(9, 7, seed=5) + drawn(4, 1, 9, 7, seed=6) - drawn(7, seed=7),
    "numbers": lambda y: (y * 2 + 1).clamp(-1, 1) / ad.tensor(3.0),
    "all": lambda y: y + drawn(N, 9, 7, seed=8),
    "images": lambda y: y + drawn(1, N, 9, 1, seed=8) * y.amax((2, 3), keepdim=True),
    "norm": lambda y: F.batch_norm(y, None, None, BIAS, BIAS, True),
    "sums": lambda y: y * y.sum((0, 2)).reshape(1, N, 1, 7) + y.mean(0) + y.sum(3)[..., None],
    "whole": lambda y: y / (1 + y.abs().sum()) + y.mean(1, keepdim=True),
    "choices": lambda y: ad.where(y > 0, y, -y) * (y < 1).float(),
    "casts": lambda y: (y.double() * 2).float(),
    "expanded": lambda y: y.amax((2, 3), keepdim=True).expand(4, N, 9, 7) * y,
    "parts": lambda y: ad.cat([y[:, : N // 2], y[:, N // 2 :].flip(1)], 1),
    "softmax": lambda y: y.softmax(1),
    "reshaped": lambda y: y.reshape(4, N, 63).sum(2)[:, :, None, None] * y,
}


@pytest.mark.parametrize("kind", AROUND)
def test_what_lies_between_convolutions(kind, monkeypatch):
    monkeypatch.setattr(policy, "BLOCKED_BORDER", 0)  # whatever it costs

    def function(x):
        y = AROUND[kind](F.conv2d(x, W, padding=1))
        return F.conv2d(y, V, padding=1), y

    graph, plain = graph_of(function, X), graph_of(function, X)
    from .test_inference_passes import values

    expected = values(plain, X)
    assert block_layouts(graph) == 2
    graph.verify()
    assert {"Blocked", "BlockedConvolution", "Unblocked"} <= set(kinds(graph))
    for found, y in zip(values(graph, X), expected, strict=True):
        np.testing.assert_allclose(found, y, rtol=1e-4, atol=1e-5)
    for found, y in zip(ad.compile(function)(X), expected, strict=True):
        np.testing.assert_allclose(found.numpy(), y, rtol=1e-4, atol=1e-4)


def test_the_ops_undo_each_other():
    x = X.numpy()
    y = Blocked(8).compute(np, x)
    assert y.shape == (4, N // 8, 9, 7, 8) and y[1, 2, 3, 4, 5] == x[1, 21, 3, 4]
    assert np.array_equal(Unblocked().compute(np, y), x)
    spec = Blocked(8).infer(X.spec)
    assert spec.shape == y.shape and Unblocked().infer(spec) == X.spec


def smooth(x):
    """`relu` whose slope begins at zero: the last bit of a number near it decides no gradient."""
    y = x.relu()
    return y * y / (1 + y)


class Residual(nn.Module):
    """Blocks around which something is added, of several sizes."""

    def __init__(self, rank=2, first=3):
        super().__init__()
        convolution = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[rank - 1]
        norm = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[rank - 1]
        self.stem = convolution(first, 16, 3, padding=1)
        self.first, self.second = convolution(16, 16, 3, 1, 1), convolution(16, 16, 3, 1, 1)
        self.third = convolution(16, 32, 3, 2, (1,) * rank, bias=False)
        self.around = convolution(16, 32, 1, 2)
        self.norms = nn.ModuleList([norm(n) for n in (16, 16, 16, 32)])
        self.out = nn.Linear(32, 5)

    def forward(self, x):
        x = smooth(self.norms[0](self.stem(x)))
        y = smooth(self.norms[1](self.first(x)))
        x = smooth(self.norms[2](self.second(y)) + x)
        x = smooth(self.norms[3](self.third(x)) + self.around(x))
        return self.out(x.mean(tuple(range(2, x.ndim))))


class Upward(nn.Module):
    """Convolutions and their transposes."""

    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Conv2d(16, 32, 3, 2, 1), nn.ConvTranspose2d(32, 16, 4, 2, 1)
        self.last = nn.Conv2d(16, 3, 3, padding=1)
        self.out = nn.Linear(3, 5)

    def forward(self, x):
        y = smooth(self.up(smooth(self.down(x.repeat(1, 16, 1, 1)[:, :16]))))
        return self.out(self.last(y).mean((2, 3)))


NETS = {
    "1d": (lambda: Residual(1), (3, 21)), "2d": (Residual, (3, 11, 13)),
    "3d": (lambda: Residual(3), (3, 5, 6, 7)), "transposed": (Upward, (3, 12, 8)),
    "one channel": (lambda: Residual(2, 1), (1, 9, 9)),
}  # fmt: skip


@pytest.mark.parametrize(("name", "batch"), one_in(2, itertools.product(NETS, [1, 4, 15])))
def test_networks_train_as_eagerly(name, batch):
    make, size = NETS[name]
    ad.manual_seed(0)
    pair = Pair(make(), OPTIMIZERS["SGD"], nn.CrossEntropyLoss())
    for seed in range(3):
        pair.run(drawn(batch, *size, seed=seed), ad.tensor(np.arange(batch) % 5))
    found = [type(s.op) for part in pair.program.parts for s in part.schedule.steps]
    if name in ("2d", "one channel"):  # of others oneDNN has not all convolutions on blocks
        assert (BlockedConvolution in found) == (batch >= 4)
        assert not {Blocked, Unblocked}.intersection(found)


def test_threads_that_change_and_arguments_elsewhere():
    ad.manual_seed(0)
    pair = Pair(Residual(), OPTIMIZERS["momentum"], nn.CrossEntropyLoss())
    before = ad.get_num_threads()
    try:
        for seed, threads in enumerate((before, before, 1, before + 1)):
            ad.set_num_threads(threads)
            x = drawn(8, 12, 11, 3, seed=seed).permute(0, 3, 1, 2)
            pair.run(x, ad.tensor(np.arange(8) % 5))
    finally:
        ad.set_num_threads(before)


def test_models_compiled_alone_and_in_eval_mode():
    ad.manual_seed(0)
    model = Residual()
    compiled = ad.compile(model)
    x, g = drawn(8, 3, 11, 12), drawn(8, 5)
    for mode in (True, False):
        model.train(mode)
        plain = model(x)
        plain.backward(g)
        expected = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        found = compiled(x)
        found.backward(g)
        np.testing.assert_allclose(found.tolist(), plain.tolist(), rtol=1e-4, atol=1e-5)
        for p, e in zip(model.parameters(), expected, strict=True):
            np.testing.assert_allclose(p.grad.tolist(), e.tolist(), rtol=1e-3, atol=1e-4)
        model.zero_grad()
