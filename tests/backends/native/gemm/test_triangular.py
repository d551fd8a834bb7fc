"""Triangular systems, Cholesky and its gradient in blocks: layouts, accuracy, special values."""

from __future__ import annotations

import itertools

import mpmath
import numpy as np
import pytest
import scipy.linalg

pytest.importorskip("llvmlite", reason="llvmlite is not installed")

import adjoint as ad
from adjoint.backends import numpy as reference
from adjoint.backends.native.gemm import triangular
from adjoint.backends.native.runtime.pool import default_pool
from tests.native import needs_native

pytestmark = needs_native

DTYPES = (np.float32, np.float64)
SIZES = (1, 2, 15, 63, 64, 65, 130, 200)
SIDES = [*itertools.product((False, True), repeat=2)]  # upper, unit


def well(rng, shape, dtype):
    """Triangles of which the inverse's elements are small."""
    n = shape[-1]
    return (rng.standard_normal(shape) / n + 2 * np.eye(n)).astype(dtype)


def triangle(a, upper, unit):
    """The matrix that is solved with."""
    n = a.shape[-1]
    found = np.triu(a) if upper else np.tril(a)
    return found * (1 - np.eye(n)) + np.eye(n) if unit else found


def lapack(a, b, upper, unit):
    """Matrix by matrix."""
    return scipy.linalg.solve_triangular(
        a, b, lower=not upper, unit_diagonal=unit, check_finite=False
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("upper, unit", SIDES)
def test_layouts_of_matrices(dtype, upper, unit):
    """By rows, by columns, with gaps, turned around, in batches that broadcast; what lies in the
    other triangle is not read.
    """
    rng = np.random.default_rng(3)
    forget = np.tril if upper else np.triu
    tolerance = {"rtol": 200 * np.finfo(dtype).eps, "atol": 200 * np.finfo(dtype).eps}
    for n, k in itertools.product(SIZES, (1, 3, 40, 130)):
        a, b = well(rng, (n, n), dtype), rng.standard_normal((n, k)).astype(dtype)
        expected = lapack(a, b, upper, unit)
        a[forget(np.ones((n, n)), -1 if upper else 1) > 0] = np.nan
        wide = np.full((2 * n, 2 * n + 1), np.nan, dtype)
        wide[:n, 1 : n + 1] = a
        rows = np.full((n, k + 3), np.nan, dtype)
        rows[:, 2 : k + 2] = b
        shapes = (a, np.asfortranarray(a), wide[:n, 1 : n + 1], a[::-1, ::-1].copy()[::-1, ::-1])
        rights = (b, np.asfortranarray(b), rows[:, 2 : k + 2], b[::-1].copy()[::-1])
        for left, right in itertools.product(shapes, rights):
            found = triangular.solve_triangular(left, right, upper, unit)
            np.testing.assert_allclose(found, expected, **tolerance)
        target = rows[:, 2 : k + 2]
        triangular.solve_triangular(a, target, upper, unit, target)
        np.testing.assert_allclose(target, expected, **tolerance)
        assert np.isnan(rows[:, [0, 1, k + 2]]).all()


@pytest.mark.parametrize(
    "batches", [((2,), (2,)), ((2,), ()), ((), (2,)), ((2, 1), (3,)), ((0,), ())]
)
def test_batches(batches):
    rng = np.random.default_rng(4)
    for n, k in ((3, 2), (70, 5)):
        a, b = well(rng, (*batches[0], n, n), "f8"), rng.standard_normal((*batches[1], n, k))
        found = triangular.solve_triangular(a, b, False, False)
        expected = np.linalg.solve(np.tril(a), b)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def backward_error(a, b, x):
    """The largest relative change of an element of a and b for which x would be exact."""
    wide = np.clongdouble if x.dtype.kind == "c" else np.longdouble
    a, b, x = (v.astype(wide) for v in (a, b, x))
    return float((abs(b - a @ x) / (abs(a) @ abs(x) + abs(b))).max())


def ill_conditioned(rng, n, kind, upper):
    """Triangles of which the inverse has elements that are larger by orders of magnitude."""
    if kind == "kahan":
        a = np.eye(n) - 0.9 * np.triu(np.ones((n, n)), 1)
        return a if upper else a.T
    a = rng.standard_normal((n, n))
    grading = np.logspace(0, -6, n)
    return triangle(a * grading[:, None] * grading if kind == "graded" else a, upper, False)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("kind", ["random", "graded", "kahan"])
def test_ill_conditioned_matrices(dtype, upper, kind):
    """Whatever the condition number, as accurate as LAPACK's: the backward error of each element
    stays below the bound for substitution (Higham, 2002, theorem 8.5), and where the solution is
    known, it is missed by as much, in the middle of many draws.
    """
    rng = np.random.default_rng(5)
    eps = float(np.finfo(dtype).eps)
    compared = 0
    for n, k in itertools.product((15, 64, 100, 200), (1, 8)):
        ratios = []
        for _ in range(15):
            a = ill_conditioned(rng, n, kind, upper).astype(dtype)
            truth = rng.standard_normal((n, k)).astype(dtype)
            b = (a.astype(np.longdouble) @ truth.astype(np.longdouble)).astype(dtype)
            found, expected = (
                triangular.solve_triangular(a, b, upper, False),
                lapack(a, b, upper, False),
            )
            if not np.isfinite(expected).all():
                continue
            assert backward_error(a, b, found) <= n * eps
            ours, theirs = (float(abs(x - truth).max()) + eps for x in (found, expected))
            ratios.append(ours / theirs)
        if ratios:
            compared += 1
            assert np.median(ratios) <= 3
    assert compared >= 4


def test_against_many_digits():
    """Of a matrix with a condition number above 1e12, against substitution with 60 digits: in the
    middle of many columns, errors are LAPACK's.
    """
    rng = np.random.default_rng(6)
    n, k = 48, 15
    a, b = np.tril(rng.standard_normal((n, n))), rng.standard_normal((n, k))
    assert np.linalg.cond(a) > 1e12
    exact = np.empty((n, k))
    with mpmath.workdps(60):
        for column in range(k):
            x: list = []
            for i in range(n):
                rest = mpmath.mpf(b[i, column]) - mpmath.fdot(map(mpmath.mpf, a[i, :i]), x)
                x.append(rest / mpmath.mpf(a[i, i]))
            exact[:, column] = [float(v) for v in x]
    found, theirs = triangular.solve_triangular(a, b, False, False), lapack(a, b, False, False)
    errors = [(abs(x - exact) / abs(exact)).max(0) for x in (found, theirs)]
    assert np.median(errors[0] / errors[1]) <= 3


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("value", [0.0, np.inf, np.nan])
def test_special_values_reach_what_depends_on_them(upper, value):
    """As in substitution by hand: rows that do not depend on a special one are left alone."""
    rng = np.random.default_rng(7)
    n = 100
    for place in ((30, 30), (80, 80), (70, 20), (20, 70)):
        a, b = well(rng, (n, n), "f8"), rng.standard_normal((n, 3))
        a[place] = value
        found = triangular.solve_triangular(a, b, upper, False)
        with np.errstate(all="ignore"):
            expected = reference.solve_triangular(a, b, upper, False)
        read = place[0] <= place[1] if upper else place[0] >= place[1]
        first = slice(place[0] + 1, n) if upper else slice(0, place[0])
        assert np.isfinite(found[first]).all()
        np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))
        diagonal = place[0] == place[1]
        spoiled = read and (np.isnan(value) or diagonal == (value == 0))
        assert np.isfinite(found).all() == (not spoiled)
        np.testing.assert_allclose(found[first], expected[first], rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("upper, unit", SIDES)
def test_complex_matrices(dtype, upper, unit):
    """The other triangle is not read; the backward error is that of substitution, whatever the
    condition number.
    """
    rng = np.random.default_rng(11)
    eps = float(np.finfo(dtype).eps)
    forget = np.tril if upper else np.triu
    for n, k in itertools.product((1, 2, 15, 40, 70), (1, 5)):
        a, b = (rng.standard_normal((2, n, m)) for m in (n, k))
        a, b = ((x[0] + 1j * x[1]).astype(dtype) for x in (a, b))
        solved = triangle(a, upper, unit)
        if unit:
            a[np.arange(n), np.arange(n)] = np.nan
        a[forget(np.ones((n, n)), -1 if upper else 1) > 0] = np.nan
        for left in (a, np.asfortranarray(a)):
            found = triangular.solve_triangular(left, b, upper, unit)
            assert found.dtype == dtype
            assert backward_error(solved, b, found) <= 4 * (n + 3) * eps
    batch = triangular.solve_triangular(np.stack([solved, 2 * solved]), b, upper, False)
    np.testing.assert_allclose(batch[0], 2 * batch[1], rtol=100 * eps)
    for shape in ((0, 3), (2, 0, 0), (0, 3, 3)):  # nothing to solve
        square = np.ones((*shape[:-1], shape[-2]), dtype)
        found = triangular.solve_triangular(square, np.ones(shape, dtype), upper, unit)
        assert found.shape == shape


def test_sizes_that_do_not_fit_are_refused():
    for a, b in (
        ((3, 3), (40, 2)),
        ((40, 40), (3, 2)),
        ((40, 3), (40, 2)),
        ((2, 40, 40), (3, 40, 1)),
    ):
        with pytest.raises(ValueError):
            triangular.solve_triangular(np.ones(a), np.ones(b), False, False)


def test_zero_on_the_diagonal_is_infinity():
    a = ad.tensor(np.tril(np.ones((40, 40), np.float32)))
    a[0, 0] = 0
    for _ in range(3):  # also once it is launched
        found = ad.linalg.solve_triangular(a, ad.ones(40, 1), upper=False)
        assert found[0].item() == np.inf
        assert not found[1:].isfinite().any()


def positive(rng, shape, dtype):
    x = rng.standard_normal(shape)
    n = shape[-1]
    return (x @ np.swapaxes(x, -1, -2) / n + 0.1 * np.eye(n)).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape", [(64, 64), (112, 112), (113, 113), (300, 300), (2, 130, 130), (2, 1, 120, 120)]
)
def test_cholesky(dtype, shape):
    rng = np.random.default_rng(8)
    a, n = positive(rng, shape, dtype), shape[-1]
    unread = np.where(np.triu(np.ones((n, n)), 1) > 0, np.nan, a)
    found = triangular.cholesky(unread)
    assert found.shape == shape
    np.testing.assert_array_equal(found, np.tril(found))
    rebuilt = found.astype("f8") @ np.swapaxes(found, -1, -2).astype("f8")
    assert abs(rebuilt - a).max() <= n * np.finfo(dtype).eps * abs(a).max()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape", [(113, 113), (200, 200), (300, 300), (2, 130, 130), (2, 1, 120, 120)]
)
def test_gradient_of_cholesky(dtype, shape):
    """Against the formula for the whole, in double precision; one triangle of each is read."""
    rng = np.random.default_rng(9)
    lower = np.linalg.cholesky(positive(rng, shape, "f8"))
    g, n = rng.standard_normal(shape), shape[-1]
    inner = np.tril(np.swapaxes(lower, -1, -2) @ g)
    inner = (inner + np.swapaxes(np.tril(inner, -1), -1, -2)) / 2
    inverse = np.linalg.inv(lower)
    expected = np.swapaxes(inverse, -1, -2) @ inner @ inverse
    unread = np.where(np.triu(np.ones((n, n)), 1) > 0, np.nan, g)
    found = triangular.cholesky_gradient(lower.astype(dtype), unread.astype(dtype))
    size = abs(expected).max()
    assert abs(found - expected).max() <= 200 * n * np.finfo(dtype).eps * size


def test_a_matrix_that_is_not_positive_definite_is_named():
    a = np.eye(200)
    a[150, 150] = -1
    for upper in (False, True):
        with pytest.raises(ad.linalg.LinAlgError, match="leading minor of order 151 "):
            ad.linalg.cholesky(ad.tensor(a), upper=upper)
        with pytest.raises(ad.linalg.LinAlgError, match=r"\(Batch element 1\).*order 151 "):
            ad.linalg.cholesky(ad.tensor(np.stack([np.eye(200), a])), upper=upper)
    assert ad.linalg.cholesky_ex(ad.tensor(a)).info.item() == 151


def test_threads_do_not_change_bits():
    rng = np.random.default_rng(10)
    a, b = well(rng, (300, 300), "f4"), rng.standard_normal((300, 300)).astype("f4")
    pool, found = default_pool(), []
    before = pool.num_threads
    try:
        for threads in (1, 2, 3):
            pool.set_num_threads(threads)
            found.append(triangular.solve_triangular(a, b, False, False))
    finally:
        pool.set_num_threads(before)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
