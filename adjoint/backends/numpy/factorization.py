"""Linear-algebra kernels that NumPy lacks: LU with partial pivoting, triangular systems."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from . import extra

PANEL = 32  # columns worked on one by one; the rest of the matrix gets one product per panel


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


@extra
def pivots_to_rows(pivots: Any, m: int) -> Any:
    """Where each row of the factored matrix came from."""
    flat = pivots.reshape(math.prod(pivots.shape[:-1]), pivots.shape[-1])
    rows = np.tile(np.arange(m), (len(flat), 1))
    each = np.arange(len(flat))
    for i in range(flat.shape[1]):
        at = flat[:, i] - 1
        rows[each, i], rows[each, at] = rows[each, at], rows[each, i]
    return rows.reshape(*pivots.shape[:-1], m)


@extra
def solve_triangular(a: Any, b: Any, upper: bool, unit: bool) -> Any:
    """x with a @ x = b, where only one triangle of `a` is read; without checks for zeros."""
    n = a.shape[-1]
    shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    x = np.array(np.broadcast_to(b, (*shape, *b.shape[-2:])))
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
