"""Linear-algebra kernels that NumPy lacks: LU, triangular systems, Cholesky's gradient."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from ...core.errors import InvalidArgument
from .extras import extra

PANEL = 32  # columns worked on one by one; the rest of the matrix gets one product per panel
# Rows up to which Cholesky's factor and gradient are not cut into blocks. From 128 on, OpenBLAS
# wakes other threads for a factor, whose waiting takes milliseconds where processors are busy.
LEAF = 112


@extra
def lu_factor(a: Any, pivot: bool) -> tuple[Any, Any]:
    """L and U packed into one matrix, and the 1-based row that each row was swapped with."""
    *batch, m, n = a.shape
    k = min(m, n)
    lu = a.reshape(math.prod(batch), m, n).copy()
    pivots = np.empty((len(lu), k), np.int32)
    each = np.arange(len(lu))
    for start in range(0, k, PANEL):
        end = min(start + PANEL, k)
        for j in range(start, end):
            at = np.full(len(lu), j)
            if pivot and m > j:
                column = lu[:, j:, j]
                size = np.abs(column.real) + np.abs(column.imag)  # LAPACK's choice
                at = at + size.argmax(1)
                lu[each, j], lu[each, at] = lu[each, at], lu[each, j]
            pivots[:, j] = at + 1
            divisor = lu[:, j, j, None]
            column = lu[:, j + 1 :, j]
            np.divide(column, divisor, out=column, where=divisor != 0)
            lu[:, j + 1 :, j + 1 : end] -= column[:, :, None] * lu[:, j, None, j + 1 : end]
        panel = lu[:, start:end, start:end]
        right = lu[:, start:end, end:]
        right[...] = solve_triangular(panel, right, False, True)
        lu[:, end:, end:] -= lu[:, end:, start:end] @ right
    return lu.reshape(a.shape), pivots.reshape(*batch, k)


def wrong_pivots(m: int) -> InvalidArgument:
    """The error for pivots of a matrix of `m` rows that `lu_factor` cannot have given."""
    return InvalidArgument(f"pivots must be from 1 to {m}, as linalg.lu_factor gives them")


@extra
def pivots_to_rows(pivots: Any, m: int) -> Any:
    """Where each row of the factored matrix came from.

    Errors: InvalidArgument for a pivot that is the number of no row.
    """
    flat = pivots.reshape(math.prod(pivots.shape[:-1]), pivots.shape[-1])
    if ((flat < 1) | (flat > m)).any():
        raise wrong_pivots(m)
    rows = np.tile(np.arange(m), (len(flat), 1))
    each = np.arange(len(flat))
    for i in range(flat.shape[1]):
        at = flat[:, i] - 1
        rows[each, i], rows[each, at] = rows[each, at], rows[each, i]
    return rows.reshape(*pivots.shape[:-1], m)


@extra
def solve_triangular(a: Any, b: Any, upper: bool, unit: bool, out: Any = None) -> Any:
    """x with a @ x = b, where only one triangle of `a` is read; without checks for zeros. `out` may
    be `b`.
    """
    n = b.shape[-2]
    if a.shape[-2:] != (n, n):
        raise ValueError(f"{a.shape} and {b.shape} do not fit")  # the op says it better
    shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    x = np.empty((*shape, *b.shape[-2:]), b.dtype) if out is None else out
    x[...] = b
    starts = range(0, n, PANEL)
    for start in reversed(starts) if upper else starts:
        end = min(start + PANEL, n)
        rows = range(start, end)
        for i in reversed(rows) if upper else rows:
            known = slice(i + 1, end) if upper else slice(start, i)
            row = x[..., i : i + 1, :]
            row -= a[..., i : i + 1, known] @ x[..., known, :]
            if not unit:
                row /= a[..., i : i + 1, i : i + 1]
        rest = slice(0, start) if upper else slice(end, n)
        x[..., rest, :] -= a[..., rest, start:end] @ x[..., start:end, :]
    return x


@extra
def cholesky(a: Any, solve: Any = solve_triangular, product: Any = np.matmul) -> Any:
    """The lower factor of Hermitian positive definite matrices, of which one triangle is read.

    Errors: LinAlgError where a matrix is not positive definite.
    """
    if a.shape[-1] <= LEAF or a.dtype.kind == "c":
        return np.linalg.cholesky(a)
    upper = np.array(_flat(np.swapaxes(a, -1, -2)), order="C")
    _factor(upper, solve, product)
    return np.swapaxes(upper, -1, -2).reshape(a.shape)


def _factor(u: Any, solve: Any, product: Any) -> None:
    """Turn u, real and symmetric, of which the upper triangle is read, into its factor."""
    if u.shape[-1] <= LEAF:
        u[...] = np.swapaxes(np.linalg.cholesky(np.swapaxes(u, -1, -2)), -1, -2)
        return
    first, right, below, last = _quarters(u)
    _factor(first, solve, product)
    solve(np.swapaxes(first, -1, -2), right, False, False, right)
    last -= product(np.swapaxes(right, -1, -2), right)
    below[...] = 0
    _factor(last, solve, product)


@extra
def cholesky_gradient(
    lower: Any, g: Any, solve: Any = solve_triangular, product: Any = np.matmul
) -> Any:
    """The gradient of A, as a Hermitian matrix, from that of its factor (Murray, 2016).

    It is L^-H S L^-1, where S has half of the lower triangle of L^H g and that mirrored.
    """
    upper, half = _adjoint(lower), _adjoint(g) * 0.5
    if g.shape[-1] <= LEAF or g.dtype.kind == "c":
        return _pulled(upper, half, solve, product)
    half = np.array(_flat(half), order="C")
    _pull(_flat(upper), half, solve, product)
    return half.reshape(g.shape)


def _pull(u: Any, w: Any, solve: Any, product: Any) -> None:
    """Turn w, half of the transposed gradient of the factor, into that of the whole, by quarters:
    what comes of the last one is passed on to those that it was computed from.
    """
    if u.shape[-1] <= LEAF:
        w[...] = _pulled(u, w, solve, product)
        return
    first, right, _, last = _quarters(u)
    w_first, w_right, w_below, w_last = _quarters(w)
    _pull(last, w_last, solve, product)
    w_right -= product(right, w_last)
    solve(first, w_right, True, False, w_right)
    w_below[...] = np.swapaxes(w_right, -1, -2)
    w_first -= product(right, w_below)
    _pull(first, w_first, solve, product)


def _pulled(u: Any, w: Any, solve: Any, product: Any) -> Any:
    """The gradient of the whole by the direct formula, in which gradients need not be Hermitian."""
    lower = _lower(u.shape[-1])
    u, w = (np.where(lower.T, x, 0) for x in (u, w))
    inner = product(u, _adjoint(w))
    inner = solve(u, np.where(lower, inner, _adjoint(inner)), True, False)
    return _adjoint(solve(u, _adjoint(inner), True, False))


@functools.lru_cache(16)
def _lower(n: int) -> Any:
    """Mask of the lower triangle."""
    return np.tri(n, dtype=bool)


def _flat(x: Any) -> Any:
    """Matrices in one dimension of the batch."""
    return x.reshape(math.prod(x.shape[:-2]), *x.shape[-2:])


def _adjoint(x: Any) -> Any:
    return np.conj(np.swapaxes(x, -1, -2))


def _quarters(x: Any) -> tuple[Any, Any, Any, Any]:
    """First, right, below, last; the first has whole blocks."""
    half = -(-x.shape[-1] // (2 * LEAF)) * LEAF
    return x[..., :half, :half], x[..., :half, half:], x[..., half:, :half], x[..., half:, half:]
