"""Convolutions, their gradients and pooling against NumPy's reference."""

from __future__ import annotations

import contextlib
import gc

import ml_dtypes
import numpy as np
import pytest

from adjoint.backends.native.onednn import eager_convolution, pooling_plans
from adjoint.backends.native.onednn import plan as onednn_plan
from adjoint.backends.numpy import convolution as reference
from adjoint.core import policy
from adjoint.core.sized_tables import SizedTable
from tests.sweep import few_or_many, swept

from .onednn_cases import assert_near, needs_onednn, workers  # noqa: F401

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def count(size, kernel, stride, padding, dilation):
    return tuple(
        (n + lo + hi - (k - 1) * d - 1) // s + 1
        for n, k, s, (lo, hi), d in zip(size, kernel, stride, padding, dilation, strict=True)
    )


def ints(r, low, high, rank):
    return tuple(int(v) for v in r.integers(low, high, rank))


def geometry(r):
    """A random convolution: shapes of x, w and y, and the options."""
    while True:
        rank, groups = int(r.integers(1, 4)), int(r.choice([1, 1, 2, 3, 4]))
        inputs = groups * int(r.choice([1, 2, 3, 8, 16, 17]))
        outputs = groups * int(r.choice([1, 2, 5, 16, 20, 32]))
        if r.random() < 0.15:
            groups, outputs = inputs, inputs * int(r.integers(1, 3))
        kernel, stride, dilation = ints(r, 1, 4, rank), ints(r, 1, 4, rank), ints(r, 1, 3, rank)
        padding = tuple((int(a), int(b)) for a, b in r.integers(0, 5, (rank, 2)))
        size, batch = ints(r, 1, 14, rank), int(r.integers(1, 9))
        places = count(size, kernel, stride, padding, dilation)
        if min(places) > 0:
            shapes = (
                (batch, inputs, *size),
                (outputs, inputs // groups, *kernel),
                (batch, outputs, *places),
            )
            return shapes, (stride, padding, dilation, groups)


def scattered(x):
    """The same values in memory that is not contiguous."""
    return np.ascontiguousarray(x.swapaxes(0, -1)).swapaxes(0, -1)


def compare(r, shapes, options, dtype, tolerance):
    x, w, y = (r.standard_normal(s).astype(dtype) for s in shapes)
    if r.random() < 0.3:
        x, w, y = map(scattered, (x, w, y))
    bias = r.standard_normal(len(w)).astype(dtype) if r.random() < 0.5 else None
    wide = [None if v is None else v.astype(np.float64) for v in (x, w, bias, y)]
    places, size, kernel = y.shape[2:], x.shape[2:], w.shape[2:]
    pairs = [
        (
            eager_convolution.conv(x, w, bias, *options, places),
            reference.conv(*wide[:3], *options, places),
        ),
        (
            eager_convolution.conv_input(y, w, *options, size),
            reference.conv_input(wide[3], wide[1], *options, size),
        ),
        (
            eager_convolution.conv_weight(x, y, *options, kernel),
            reference.conv_weight(wide[0], wide[3], *options, kernel),
        ),
    ]
    for found, expected in pairs:
        assert found.dtype == dtype
        assert_near(found, expected, tolerance)


@needs_onednn
@pytest.mark.parametrize("grain", [1, 1 << 10, 1 << 21])
@pytest.mark.parametrize("seed", range(2))
@few_or_many("count", 10, 80)
def test_convolutions_fuzzed(workers, grain, seed, count, monkeypatch):  # noqa: F811
    monkeypatch.setattr(policy, "CONVOLUTION_SMALL", 0)
    monkeypatch.setattr(policy, "CONVOLUTION_GRAIN", grain)
    table = SizedTable("plans of oneDNN", onednn_plan._plans.weigh)
    monkeypatch.setattr(onednn_plan, "_plans", table)
    r = np.random.default_rng(seed)
    for _ in range(count):
        compare(r, *geometry(r), np.dtype(np.float32), 2e-5)
    assert sum(plan is None for (plan,) in onednn_plan._plans.values()) < 25


@needs_onednn
def test_bfloat16_convolutions_fuzzed(workers, monkeypatch):  # noqa: F811
    monkeypatch.setattr(policy, "CONVOLUTION_SMALL", 0)
    monkeypatch.setattr(policy, "CONVOLUTION_GRAIN", 1 << 10)
    r = np.random.default_rng(0)
    for _ in range(60):
        compare(r, *geometry(r), BFLOAT16, 2e-2)


@needs_onednn
@pytest.mark.parametrize("batch", [1, swept(2), 9])
@pytest.mark.parametrize(
    ("inputs", "outputs", "kernel", "stride", "padding", "size"),
    [
        (3, 64, 7, 2, 3, 40),
        (64, 64, 3, 1, 1, 20),
        (64, 128, 1, 2, 0, 15),
        (64, 128, 1, 1, 0, 15),
        (512, 512, 3, 1, 1, 7),
        (6, 16, 5, 1, 0, 14),
        (32, 32, 3, 1, 3, 5),
    ],
)
def test_convolutions_of_networks(
    workers,  # noqa: F811
    batch,
    inputs,
    outputs,
    kernel,
    stride,
    padding,
    size,
):
    places = (size + 2 * padding - kernel) // stride + 1
    shapes = (
        (batch, inputs, size, size),
        (outputs, inputs, kernel, kernel),
        (batch, outputs, places, places),
    )
    options = ((stride,) * 2, ((padding, padding),) * 2, (1, 1), 1)
    compare(np.random.default_rng(1), shapes, options, np.dtype(np.float32), 2e-5)


@needs_onednn
def test_the_same_bits_every_time(workers):  # noqa: F811
    r = np.random.default_rng(0)
    x = r.standard_normal((9, 32, 20, 20), np.float32)
    w = r.standard_normal((48, 32, 3, 3), np.float32)
    y = r.standard_normal((9, 48, 20, 20), np.float32)
    options = ((1, 1), ((1, 1), (1, 1)), (1, 1), 1)
    for function in (
        lambda: eager_convolution.conv(x, w, None, *options, (20, 20)),
        lambda: eager_convolution.conv_input(y, w, *options, (20, 20)),
        lambda: eager_convolution.conv_weight(x, y, *options, (3, 3)),
    ):
        first = function()
        assert all(np.array_equal(first, function()) for _ in range(5))


@needs_onednn
@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.complex64])
def test_other_dtypes_are_numpys(dtype):
    x, w = np.ones((2, 8, 9, 9), dtype), np.ones((8, 8, 3, 3), dtype)
    options = ((1, 1), ((0, 0), (0, 0)), (1, 1), 1)
    assert (eager_convolution.conv(x, w, None, *options, (7, 7)) == 72).all()


def test_nothing_in_nothing_out():
    options = ((1, 1), ((1, 1), (1, 1)), (1, 1), 1)
    x, w = np.ones((0, 8, 9, 9), np.float32), np.ones((4, 8, 3, 3), np.float32)
    y = eager_convolution.conv(x, w, None, *options, (9, 9))
    assert y.shape == (0, 4, 9, 9)
    assert eager_convolution.conv_input(y, w, *options, (9, 9)).shape == x.shape
    assert not eager_convolution.conv_weight(x, y, *options, (3, 3)).any()


@needs_onednn
@pytest.mark.parametrize(
    "call",
    [
        lambda x, w, y, o: eager_convolution.conv(x, w[:, 1:], None, *o, (7, 7)),
        lambda x, w, y, o: eager_convolution.conv(x, w, np.ones(7, np.float32), *o, (7, 7)),
        lambda x, w, y, o: eager_convolution.conv(x, w, None, *o, (8, 8)),
        lambda x, w, y, o: eager_convolution.conv_input(y[:, 1:], w, *o, (9, 9)),
        lambda x, w, y, o: eager_convolution.conv_input(y, w, *o, (20, 20)),
        lambda x, w, y, o: eager_convolution.conv_weight(x, y[1:], *o, (3, 3)),
        lambda x, w, y, o: eager_convolution.conv_weight(x, y, *o, (4, 4)),
        lambda x, w, y, o: pooling_plans.max_pool_input(x, y, y[1:], (3, 3), *o[:2], (1, 1)),
        lambda x, w, y, o: pooling_plans.max_pool_input(x, y, y[..., 1:], (3, 3), *o[:2], (1, 1)),
        lambda x, w, y, o: pooling_plans.max_pool(x, (3, 3), *o[:2], (1, 1), (8, 8)),
        lambda x, w, y, o: pooling_plans.sum_pool(x, (3, 3), *o[:2], (8, 8)),
        lambda x, w, y, o: pooling_plans.sum_pool_input(
            y[:, :, 1:], (3, 3), *o[:2], (7, 7), (9, 9)
        ),
    ],
)
def test_what_does_not_fit_never_reaches_the_library(call, monkeypatch):
    x, w = np.ones((2, 8, 9, 9), np.float32), np.ones((8, 8, 3, 3), np.float32)
    y = np.ones((2, 8, 7, 7), np.float32)
    monkeypatch.setattr(onednn_plan.OneDnnPlan, "run", lambda *arguments: pytest.fail("was run"))
    with contextlib.suppress(ValueError, IndexError):  # NumPy's; the ops' `infer` then speaks
        call(x, w, y, ((1, 1), ((0, 0), (0, 0)), (1, 1), 1))


@needs_onednn
def test_dtypes_are_not_mixed():
    x, w = np.ones((2, 8, 9, 9), np.float32), np.ones((8, 8, 3, 3), np.float64)
    y = eager_convolution.conv(x, w, None, (1, 1), ((0, 0), (0, 0)), (1, 1), 1, (7, 7))
    assert (y == 72).all()


@needs_onednn
def test_weights_are_reordered_once_per_token(monkeypatch):
    r = np.random.default_rng(0)
    x = r.standard_normal((2, 64, 9, 9), np.float32)
    w = r.standard_normal((64, 64, 3, 3), np.float32)
    options = ((1, 1), ((1, 1), (1, 1)), (1, 1), 1, (9, 9))
    firsts = []
    run = onednn_plan.OneDnnPlan.run
    monkeypatch.setattr(
        onednn_plan.OneDnnPlan,
        "run",
        lambda self, *arrays, first=0: (firsts.append(first), run(self, *arrays, first=first)),
    )
    expected = eager_convolution.conv(x, w, None, *options)
    for token in (1, 1, 2, 2):
        assert np.array_equal(eager_convolution.conv(x, w, None, *options, token=token), expected)
    assert firsts == [0, 0, 1, 0, 1]
    w += 1
    changed = eager_convolution.conv(x, w, None, *options, token=3)
    assert np.array_equal(changed, eager_convolution.conv(x, w, None, *options))
    other = w.copy()
    eager_convolution.conv(x, other, None, *options, token=3)
    assert len(eager_convolution._kept) == 2
    del w, other
    gc.collect()
    assert not eager_convolution._kept


@needs_onednn
def test_kept_weights_are_bounded(monkeypatch):
    monkeypatch.setattr(policy, "WEIGHT_BYTES", 400_000)
    x = np.ones((1, 64, 9, 9), np.float32)
    many = [np.ones((64, 64, 3, 3), np.float32) for _ in range(5)]
    for w in many:
        eager_convolution.conv(x, w, None, (1, 1), ((1, 1), (1, 1)), (1, 1), 1, (9, 9), token=0)
    assert sum(kept.blocked.size for kept in eager_convolution._kept.values()) <= 400_000


# ---- pooling -------------------------------------------------------------------------------------


@needs_onednn
@pytest.mark.parametrize("grain", [1, 1 << 10])
@pytest.mark.parametrize("seed", [0, swept(1)])
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_pooling_fuzzed(workers, grain, seed, monkeypatch):  # noqa: F811
    monkeypatch.setattr(policy, "POOLING_SMALL", 0)
    monkeypatch.setattr(policy, "POOLING_GRAIN", grain)
    r = np.random.default_rng(seed)
    for _ in range(120):
        rank = int(r.integers(1, 4))
        kernel, stride, size = ints(r, 1, 5, rank), ints(r, 1, 4, rank), ints(r, 1, 14, rank)
        padding = tuple(
            (int(r.integers(0, k // 2 + 1)), int(r.integers(-1, k // 2 + 2))) for k in kernel
        )
        dilation = ints(r, 1, 3, rank) if r.random() < 0.1 else (1,) * rank
        places = count(size, kernel, stride, padding, dilation)
        if min(places) < 1:
            continue
        lead = ints(r, 0 if r.random() < 0.1 else 1, 20, int(r.integers(0, 3)))
        x = r.standard_normal((*lead, *size)).astype(np.float32)
        if r.random() < 0.3:
            x = np.round(x)  # with ties
        if r.random() < 0.2 and x.size:
            x.flat[r.integers(0, x.size)] = r.choice([np.nan, np.inf, -np.inf])
        if r.random() < 0.2:
            x = scattered(x)
        g = r.standard_normal((*lead, *places)).astype(np.float32)
        windows = (kernel, stride, padding)
        expected = reference.max_pool(x, *windows, dilation, places)
        y = pooling_plans.max_pool(x, *windows, dilation, places)
        assert np.array_equal(y, expected, equal_nan=True)
        expected = reference.max_pool_input(x, y, g, *windows, dilation)
        found = pooling_plans.max_pool_input(x, y, g, *windows, dilation)
        assert np.allclose(found, expected, rtol=1e-5, atol=1e-5)
        places = count(size, *windows, (1,) * rank)
        expected = reference.sum_pool(x, *windows, places)
        found = pooling_plans.sum_pool(x, *windows, places)
        assert np.allclose(found, expected, rtol=1e-5, atol=1e-5, equal_nan=True)
        g = r.standard_normal((*lead, *places)).astype(np.float32)
        expected = reference.sum_pool_input(g, *windows, places, size)
        found = pooling_plans.sum_pool_input(g, *windows, places, size)
        assert np.allclose(found, expected, rtol=1e-5, atol=1e-5)
