"""Sorting, selection, searching and counting: side by side with PyTorch, and their errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import adjoint as ad

from .test_reduction import CUBE, NANS, TIES, X, assert_same, function

torch = pytest.importorskip("torch")

NAN, INF = math.nan, math.inf
SPECIAL = np.array([NAN, 1.0, -INF, 0.0, -0.0, INF, NAN, -1.0])
INTS = np.array([[3, 1, 2, 1], [0, -5, 9, 9]])


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("x", [X, TIES, NANS, SPECIAL, INTS], ids=["x", "ties", "nan", "sp", "int"])
def test_sort(x, descending):
    for dim in range(-1, x.ndim):
        assert_same(function("sort", dim, descending), x)
        assert_same(function("sort", dim=dim, descending=descending, stable=True), x)
        assert_same(function("argsort", dim=dim, descending=descending, stable=True), x)
    assert_same(function("msort"), x)


@pytest.mark.parametrize(
    "dtype", [np.bool_, np.uint8, np.int8, np.int16, np.int32, np.float16, np.float32]
)
@pytest.mark.parametrize("descending", [False, True])
def test_sort_of_every_dtype(dtype, descending):
    x = np.random.default_rng(1).integers(-9, 9, (30, 60)).astype(dtype)
    for dim in (0, 1):
        assert_same(
            function("sort", dim=dim, descending=descending, stable=True), x, gradients=False
        )


def test_sort_of_bfloat16():
    values = [3.0, -1.5, NAN, 2.0]
    found = ad.sort(ad.tensor(values, dtype=ad.bfloat16), descending=True)
    expected = torch.sort(torch.tensor(values, dtype=torch.bfloat16), descending=True)
    assert found.indices.tolist() == expected.indices.tolist()
    assert found.values.dtype is ad.bfloat16


def test_scalars():
    for call in (
        function("sort", 0),
        function("topk", 1),
        function("kthvalue", 1, 0),
        function("median", 0),
        function("mode"),
        function("max", 0),
        function("unique"),
        function("quantile", 0.5),
        function("argsort"),
        function("std", correction=0),
    ):
        assert_same(call, np.array(2.0), gradients=False)


@given(
    st.lists(st.floats(width=32, allow_subnormal=False), min_size=1, max_size=40),
    st.booleans(),
    st.data(),
)
@settings(max_examples=60, deadline=None)
def test_sort_and_selection_agree_with_pytorch(values, descending, data):
    for dtype in (ad.float32, ad.float64):
        x = ad.tensor(values, dtype=dtype)
        z = torch.from_numpy(x.numpy().copy())
        ours, theirs = ad.sort(x, descending=descending), torch.sort(z, 0, descending)
        stable = torch.sort(z, stable=True, dim=0, descending=descending)
        assert ours.indices.tolist() == stable.indices.tolist()
        k = data.draw(st.integers(1, len(values)))
        for a, b in (
            (ours.values, theirs.values),
            (x.topk(k, largest=descending).values, z.topk(k, largest=descending).values),
            (x.kthvalue(k).values, z.kthvalue(k).values),
            (x.median(0).values, z.median(0).values),
            (x.median(), z.median()),
            (x.nanmedian(0).values, z.nanmedian(0).values),
        ):
            np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [0, 1, 2, 3])
def test_topk(k, largest):
    assert_same(function("topk", k, 1, largest), X, gradients=k > 0, order=1)
    assert_same(lambda m, x: x.topk(k, 0, largest), X, gradients=k > 0, order=1)
    assert_same(function("topk", k, largest=largest), CUBE, gradients=k > 0, order=1)
    wide = np.random.default_rng(2).normal(size=(3, 500)).astype(np.float32)
    assert_same(function("topk", k, largest=largest), wide, gradients=False)


def test_topk_of_equal_elements_takes_the_first():
    found = ad.topk(ad.ones(2000), 3)
    assert found.indices.tolist() == [0, 1, 2]


def test_kthvalue_and_median():
    for dim in (0, 1):
        assert_same(function("kthvalue", 2, dim), X)
        assert_same(function("kthvalue", 3, dim, True), NANS, gradients=False)
        assert_same(function("median", dim), X)
        assert_same(function("nanmedian", dim), NANS[:2], gradients=False)


@pytest.mark.parametrize("right", [False, True])
def test_searchsorted_and_bucketize(right):
    rows = np.sort(CUBE, -1)
    values = np.concatenate([CUBE[..., :2], rows[..., 1:3]], -1)
    assert_same(lambda m, s, v: m.searchsorted(s, v, right=right), rows, values)
    assert_same(lambda m, s, v: m.searchsorted(s, v, right=right), rows[0, 0].copy(), values)
    assert_same(lambda m, s, v: m.bucketize(v, s, right=right), rows[0, 0].copy(), values)
    assert_same(lambda m, s: m.searchsorted(s, 0.1, right=right), rows[0, 0].copy())
    assert_same(lambda m, s, v: m.searchsorted(s, v, side="right", out_int32=True), rows, values)
    order = np.argsort(CUBE, -1)
    assert_same(lambda m, s, v, o: m.searchsorted(s, v, sorter=o), CUBE, values, order)
    edges = np.array([1, 3, 5])
    assert_same(lambda m, s, v: m.bucketize(v, s), edges, np.array([[0.5, 3.0, NAN, 6.0]]))


@pytest.mark.parametrize("x", [INTS, TIES, SPECIAL, np.array([True, False, True])])
def test_unique(x):
    for inverse in (False, True):
        for counts in (False, True):
            assert_same(
                function("unique", return_inverse=inverse, return_counts=counts), x, gradients=False
            )
            assert_same(
                function("unique_consecutive", return_inverse=inverse, return_counts=counts),
                x,
                gradients=False,
            )


@pytest.mark.parametrize(
    ("name", "dim", "gradient"),
    [
        ("unique", None, [[1, 1, 0], [0, 0, 0]]),
        ("unique", 0, [[1, 1, 1], [0, 0, 0]]),
        ("unique", -1, [[1, 1, 0], [1, 1, 0]]),
        ("unique_consecutive", None, [[1, 1, 1], [0, 1, 1]]),
        ("unique_consecutive", 0, [[1, 1, 1], [0, 0, 0]]),
        ("unique_consecutive", -1, [[1, 1, 1], [1, 1, 1]]),
    ],
)
def test_gradients_of_distinct_values_go_to_the_first(name, dim, gradient):
    call = function(name, dim=dim)
    x = ad.tensor([[1.0, 2.0, 1.0], [1.0, 2.0, 1.0]], requires_grad=True)
    y = call(ad, x)
    assert call(torch, torch.tensor(x.tolist(), requires_grad=True)).requires_grad
    assert ad.equal(y.detach(), call(ad, x.detach()))
    y.sum().backward()
    assert x.grad.tolist() == gradient


def test_unique_slices():
    x = np.array([[1, 2, 1, 1], [0, 3, 0, 0], [1, 2, 1, 1], [1, 2, 1, 1]])
    for dim in (0, 1):
        assert_same(function("unique", True, True, True, dim), x, gradients=False)
        assert_same(function("unique_consecutive", True, True, dim), x, gradients=False)


def test_bincount():
    x = np.array([0, 3, 1, 3])
    assert_same(function("bincount"), x)
    assert_same(function("bincount", minlength=6), x)
    assert_same(function("bincount"), np.zeros(0, np.int64))
    for dtype in (np.float32, np.float64, np.int64):
        weights = np.array([1, 2, 3, 4]).astype(dtype)
        assert_same(lambda m, x, w: m.bincount(x, w), x, weights, gradients=False)


def test_histograms():
    x = np.array([0.0, 1.0, 1.0, 2.0, 3.0, 5.0, -1.0])
    assert_same(function("histc", 4, 0, 3), x, gradients=False)
    assert_same(function("histc", 5), x, gradients=False)
    assert_same(function("histc", 3), np.ones(4), gradients=False)
    assert_same(function("histc", 3, -1, 1), np.array([NAN, 0.0, 2.0]), gradients=False)
    assert_same(function("histogram", 4), x, gradients=False)
    assert_same(lambda m, x: m.histogram(x, 4, range=(0.0, 3.0)), x, gradients=False)
    assert_same(function("histogram", 4, density=True), x, gradients=False)
    assert_same(lambda m, x, w: m.histogram(x, 3, weight=w), x, x + 2, gradients=False)
    edges = np.array([0.0, 1.0, 2.5, 3.0])
    assert_same(lambda m, x, e: m.histogram(x, e), x, edges, gradients=False)


def test_histograms_of_one_value_and_runs_of_none():
    assert_same(function("histogram", 2), np.array([3.0, 3.0]), gradients=False)
    assert_same(function("unique_consecutive", dim=1), np.zeros((2, 0)), gradients=False)


def test_isin():
    assert_same(lambda m, x, y: m.isin(x, y), INTS, np.array([1, 9]))
    assert_same(lambda m, x, y: m.isin(x, y, invert=True), TIES, np.array([2.0, NAN]))
    assert_same(function("isin", 9), INTS)
    assert_same(lambda m, x: m.isin(1, x), INTS)


ERRORS = [
    (lambda: ad.zeros(2, 3).topk(4, 1), RuntimeError, "selected index k out of range: k is 4"),
    (lambda: ad.zeros(2, 3).topk(-1), RuntimeError, "selected index k out of range"),
    (lambda: ad.zeros(2, 3).kthvalue(4, 1), RuntimeError, "selected number k out of range"),
    (lambda: ad.zeros(2, 0).kthvalue(1, 1), IndexError, "Expected reduction dim 1"),
    (lambda: ad.zeros(2, 3).sort(2), IndexError, "sort: Dimension out of range"),
    (lambda: ad.tensor([1j]).sort(), RuntimeError, "Sort does not support complex dtypes"),
    (lambda: ad.bincount(ad.tensor([-1])), RuntimeError, "non-negative integral inputs"),
    (lambda: ad.bincount(ad.tensor([1.0])), RuntimeError, "non-negative integral inputs"),
    (lambda: ad.bincount(ad.tensor([1]), ad.ones(2)), RuntimeError, "same length as input"),
    (lambda: ad.histc(ad.zeros(2), 0), RuntimeError, "bins must be > 0"),
    (lambda: ad.histc(ad.zeros(2), 3, 2, 1), RuntimeError, "max must be larger than min"),
    (lambda: ad.histc(ad.tensor([1, 2])), RuntimeError, "not implemented for"),
    (lambda: ad.bucketize(ad.zeros(2), ad.zeros(2, 2)), RuntimeError, "must be 1 dimension"),
    (lambda: ad.searchsorted(ad.zeros(2, 2), ad.zeros(3, 2)), RuntimeError, "boundaries tensor"),
    (lambda: ad.searchsorted(ad.zeros(2), ad.zeros(2), side="x"), RuntimeError, "side can only be"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), ERRORS)
def test_errors(call, error, message):
    with pytest.raises(error, match=message) as found:
        call()
    assert isinstance(found.value, ad.AdjointError)
