"""Reductions of many rows and columns, whose partial results are in memory."""

import math

import numpy as np
import pytest

from adjoint.backends.codegen import Compiled, Kernel
from adjoint.backends.codegen.analysis import Analysis
from adjoint.backends.codegen.schedule import WIDE, plan

from .test_reductions import threads

SHAPES = [(16, 129), (17, 1000), (40, WIDE), (100, WIDE + 16), (33, 2 * WIDE + 5)]


def normalized(rank=2, axes=(0,)):
    """A batch norm: three loops, outputs of every kind."""
    k = Kernel(rank)
    x = k.input("float32")
    weight = k.input("float32", axes=(rank - 1,))
    mean = k.mean(x, axes)
    moved = x - mean
    scale = k.op("rsqrt", k.mean(moved * moved, axes) + 1e-5)
    k.output(moved * scale * weight)
    k.output(mean)
    k.output(scale)
    return Compiled(k)


def test_which_sizes_are_many():
    k = Kernel(2)
    k.output(k.sum(k.input("float32"), (0,)))
    for rows, columns, many in ((16, 129, True), (15, 2000, False), (9999, 128, False)):
        steps = [(4 * columns, 4), (0, 4)]
        assert plan(k, (rows, columns), steps, ["float32"] * 2).layout.tall == many


@pytest.mark.parametrize("shape", SHAPES)
def test_three_loops_and_outputs_of_every_kind(shape):
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal(shape, np.float32) + 3, rng.standard_normal(shape[1], np.float32)
    y, mean, scale = normalized()(x, w)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(mean, wide.mean(0), rtol=1e-6)
    np.testing.assert_allclose(scale, 1 / np.sqrt(wide.var(0) + 1e-5), rtol=1e-6)
    expected = (wide - wide.mean(0)) / np.sqrt(wide.var(0) + 1e-5) * w
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_same_bits_whoever_runs_the_tiles(shape):
    x = np.random.default_rng(1).standard_normal(shape, np.float32)
    w = np.ones(shape[1], np.float32)
    norm = normalized()
    for alone, shared in zip(norm(x, w), norm(x, w, run=threads), strict=True):
        assert alone.tobytes() == shared.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "bfloat16"])
@pytest.mark.parametrize("op", ["sum", "max", "prod"])
def test_several_reduced_axes_and_kept_ones(op, dtype):
    k = Kernel(4)
    x = k.input(dtype)
    k.output(k.reduce(op, x, (1, 2)), dtype)
    compiled = Compiled(k)
    whole = np.random.default_rng(2).integers(1, 3, (3, 5, 40, 300))
    held = whole.astype(compiled.dtype(0))[:, :, ::2]  # two loops that are not one
    wide = held.astype(np.int64 if dtype == "int32" else np.float64)
    expected = getattr(wide, op)((1, 2))
    got = compiled(held)
    np.testing.assert_array_equal(got, expected.astype(compiled.dtype(0)))


def test_numbers_of_rows_do_not_decide_which_axis_vectors_run_along():
    """However many there are: what spans the whole space would be gathered."""
    k = Kernel(rank=2)
    terms = k.input("float32")
    for _ in range(5):
        terms = terms * k.input("float32", axes=(0,))
    k.output(k.sum(terms, axes=(0,)))
    steps = [(4 * 128, 4), *[(4, 0)] * 5, (0, 4)]
    assert plan(k, (64, 128), steps, ["float32"] * 7).layout.columns


def test_nan_and_infinities_stay_in_their_columns():
    x = np.random.default_rng(3).standard_normal((64, 700)).astype(np.float32)
    x[5, 3], x[63, 3], x[9, 699], x[20, 128] = np.nan, 1, np.inf, -np.inf
    for op, function in (("max", np.max), ("min", np.min), ("sum", np.sum)):
        k = Kernel(2)
        k.output(k.reduce(op, k.input("float32"), (0,)))
        got, expected = Compiled(k)(x), function(x.astype(np.float64), 0)
        np.testing.assert_allclose(got, expected, rtol=2e-6, atol=1e-6)


def test_masks_and_values_of_rows_alone():
    k = Kernel(2)
    x, row = k.input("float32"), k.input("float32", axes=(0,))
    k.output(k.reduce("any", k.op("gt", x * row, 3.9), (0,)))
    k.output(k.sum(k.cast(k.index(0), "float32") * row, (0,)))
    x = np.random.default_rng(4).random((50, 400), np.float32) * 2
    row = np.linspace(0, 2, 50).astype(np.float32)
    some, total = Compiled(k)(x, row)
    np.testing.assert_array_equal(some, (x * row[:, None] > 3.9).any(0))
    assert math.isclose(float(np.ravel(total)[0]), float((np.arange(50) * row).sum()), rel_tol=1e-6)


def test_a_gradient_of_a_normalization_takes_two_loops():
    k = Kernel(2)
    x, g = k.input("float32"), k.input("float32")
    c = k.sum(g * x, (0,))
    y = g * 2.0 + c * x
    k.output(y - k.mean(-y, (0,)))
    compiled = Compiled(k)
    assert len(Analysis(k).stages) == 3
    assert len(Analysis(compiled.kernel).stages) == 2
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((64, 300), np.float32), rng.standard_normal((64, 300), np.float32)
    wide = 2.0 * b + (b.astype(float) * a).sum(0) * a
    np.testing.assert_allclose(compiled(a, b), wide + wide.mean(0), rtol=1e-4, atol=1e-4)


def test_sums_of_products_of_two_full_values_stay():
    k = Kernel(2)
    x = k.input("float32")
    e = k.exp(x - k.max(x, (1,)))
    k.output(k.sum(e, (1,)))
    assert Compiled(k).kernel is k


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 33, 1000])
@pytest.mark.parametrize("columns", [8, 16])
def test_rows_of_few_columns_are_done_together(rows, columns):
    """Several rows at a time, and what is left of them; NaN stays in its column."""
    k = Kernel(2)
    x = k.input("float32")
    for value in (k.sum(x, (0,)), k.max(x, (0,)), k.sum((x - k.mean(x, (0,))) * x, (0,))):
        k.output(value)
    a = np.random.default_rng(rows).standard_normal((rows, columns)).astype(np.float32)
    a[rows // 2, 3] = np.nan
    total, most, spread = Compiled(k)(a)
    wide = a.astype(np.float64)
    np.testing.assert_allclose(total, wide.sum(0), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(most, a.max(0))
    expected = ((wide - wide.mean(0)) * wide).sum(0)
    np.testing.assert_allclose(spread, expected, rtol=1e-4, atol=1e-4)
