"""Products, and systems of few equations, on matrices in registers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ....core.errors import NotTraceable
from ....core.spec import prod
from ...codegen.emit import Reg
from ...codegen.ir import FLOATS, ITEMSIZE, NUMBERS
from ...codegen.vector_instructions import memory_type
from .registers import Array, Moved, Registers, Stored

_LARGEST = 8  # unknowns of a system
_COPIED = 1 << 17  # bytes of a copy on the stack
_STRANDS = 8  # vectors that are summed at once, so that none waits for another


def product(r: Registers, a: Array, b: Array, left: Sequence[int], right: Sequence[int]) -> Array:
    """The product of matrices of shapes `left` and `right`, whose first dimensions broadcast. Terms
    are summed in order, and in up to four parts where there are more than eight.

    Errors: NotTraceable for a dtype without one.
    """
    if a.dtype not in NUMBERS:
        raise NotTraceable(f"a product of {a.dtype}")
    rows = np.arange(a.count).reshape(left)
    columns = np.arange(b.count).reshape(right)
    batch = np.broadcast_shapes(tuple(left[:-2]), tuple(right[:-2]))
    m, k, n = left[-2], left[-1], right[-1]
    shape = (*batch, m, n)
    count = r.chunks_of(prod(shape))
    r.spend(k * count)  # before anything is written
    if n == 1 and m > 1 and len(left) == 2:
        a, rows = _by_columns(r, a, rows)
    if n > 1 and len(right) == 2:
        b, turned = _by_columns(r, b, columns.T)
        columns = turned.T
    parts = 1 if k < 8 or count > _STRANDS // 2 else min(4, _STRANDS // count)
    parts -= parts == 3
    sums: list[Array] = []
    for part in range(parts):
        for term in range(part * k // parts, (part + 1) * k // parts):
            x = r.moved(a, _spread(rows[..., :, term, None], shape))
            y = r.moved(b, _spread(columns[..., term, None, :], shape))
            if len(sums) == part:
                sums.append(r.op("mul", x, y))
            elif a.dtype in FLOATS:
                sums[part] = r.op("fma", x, y, sums[part])
            else:
                sums[part] = r.op("add", sums[part], r.op("mul", x, y))
    while len(sums) > 1:
        sums = [r.op("add", x, y) for x, y in zip(sums[::2], sums[1::2], strict=True)]
    return sums[0] if sums[0].count == prod(shape) else r.moved(sums[0], np.zeros(prod(shape)))


def _spread(index: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """The index broadcast; one element stays one, which is in all lanes."""
    return index if index.size == 1 else np.broadcast_to(index, shape)


def _by_columns(r: Registers, a: Array, rows: np.ndarray) -> tuple[Array, np.ndarray]:
    """A matrix whose columns are contiguous: copied before the loop, if it stays in memory."""
    source = a.source if isinstance(a, Moved) else a
    index = a.index.reshape(rows.shape) if isinstance(a, Moved) else rows
    if not isinstance(source, Stored) or not source.fixed or not r.is_large(source):
        return a, rows
    m, k = rows.shape
    down, across = (int(x[1] - x[0]) if len(x) > 1 else 0 for x in (index[:, 0], index[0, :]))
    expected = index[0, 0] + down * np.arange(m)[:, None] + across * np.arange(k)
    if down == 1 or not np.array_equal(index, expected):
        return a, rows
    if index.size * ITEMSIZE[source.dtype] > _COPIED:
        raise NotTraceable("a large matrix that is read by columns")
    key = "by columns", int(index[0, 0]), down, across, m, k

    def write() -> Stored:
        return r.written(True, lambda: _copied(r, source, index, (down, across)))

    return r.once(key, [source], write), np.arange(m * k).reshape(k, m).T


def _copied(r: Registers, source: Stored, index: np.ndarray, steps: tuple[int, int]) -> Stored:
    """A copy of a matrix, column after column."""
    b, memory, size = r.b, memory_type(source.dtype), ITEMSIZE[source.dtype]
    (m, k), (down, across) = index.shape, steps
    name = b.name()
    b.allocas.append(f"{name} = alloca [{m * k} x {memory}], align 64")
    copy = Reg(b, "ptr", 0, name)
    with b.loop(0, b.const("i64", k)) as column, b.loop(0, b.const("i64", m)) as row:
        place = (column * across + row * down + int(index[0, 0])) * size
        x = b.get(b.place(memory, source.pointer, place))
        b.put(b.place(memory, copy, (column * m + row) * size), x)
    return Stored(source.dtype, m * k, copy, True)


# ---- systems of equations ------------------------------------------------------------------------


class Factored(NamedTuple):
    """A matrix A as rows of U, and the matrix M with M A = U; the sign of the permutation in M; and
    where A is singular.
    """

    upper: list[Array]
    left: Array
    sign: Array
    singular: Array


def factored(r: Registers, a: Array, n: int) -> Factored:
    """A square matrix eliminated with row pivoting, once for all that asks for it.

    Errors: NotTraceable for a large one.
    """
    if n > _LARGEST or a.dtype not in FLOATS:
        raise NotTraceable(f"a system of {n} equations of {a.dtype}")
    a = r.held(a)
    return r.once(("factored", n), [a], lambda: _eliminated(r, a, n))


def _eliminated(r: Registers, a: Array, n: int) -> Factored:
    one = r.constant(np.eye(n), a.dtype)
    rows: list[Array] = []
    for k in range(n):
        span = np.arange(k * n, k * n + n)
        rows.append(r.gathered([a, one], np.repeat([0, 1], n), np.concatenate([span, span])))
    sign: Array = r.number(1, a.dtype)
    singular: Array = r.number(False, "bool")
    for k in range(n):
        best: Array = r.op("abs", _item(r, rows[k], k))
        for j in range(k + 1, n):
            size = r.op("abs", _item(r, rows[j], k))
            greater = r.op("gt", size, best)
            wide = greater  # of one number, which is in all lanes
            rows[k], rows[j] = (
                r.where(wide, rows[j], rows[k]), r.where(wide, rows[k], rows[j])
            )  # fmt: skip
            best = r.where(greater, size, best)
            sign = r.where(greater, r.op("neg", sign), sign)
        pivot = _item(r, rows[k], k)
        singular = r.op("or", singular, r.op("eq", pivot, r.number(0, a.dtype)))
        for j in range(k + 1, n):
            factor = r.op("neg", r.op("div", _item(r, rows[j], k), pivot))
            rows[j] = r.op("fma", factor, rows[k], rows[j])
    left = r.gathered(rows, np.repeat(np.arange(n), n), np.tile(np.arange(n, 2 * n), n))
    return Factored([r.moved(row, np.arange(n)) for row in rows], left, sign, singular)


def _item(r: Registers, x: Array, k: int) -> Array:
    return r.moved(x, np.array([k]))


def solved(r: Registers, of: Factored, b: Array | None, columns: int) -> Array:
    """X with A X = B, a matrix of so many columns; of the identity, if it is None."""
    n = len(of.upper)
    right = of.left if b is None else product(r, of.left, b, (n, n), (n, columns))
    found: list[Array] = []
    for k in reversed(range(n)):
        row: Array = r.moved(right, np.arange(k * columns, (k + 1) * columns))
        for j, x in zip(range(n - 1, k, -1), found, strict=True):
            row = r.op("fma", r.op("neg", _item(r, of.upper[k], j)), x, row)
        found.append(r.op("div", row, _item(r, of.upper[k], k)))
    found.reverse()
    which = np.repeat(np.arange(n), columns)
    return r.gathered(found, which, np.tile(np.arange(columns), n))


def logarithm(r: Registers, of: Factored) -> tuple[Array, Array]:
    """The sign of the determinant, and the logarithm of its absolute value."""
    n = len(of.upper)
    diagonal = r.gathered(of.upper, np.arange(n), np.arange(n))
    negative = r.op("lt", diagonal, r.number(0, diagonal.dtype))
    one = r.number(1, diagonal.dtype)
    signs = r.where(negative, r.op("neg", one), one)
    sign = r.op("mul", of.sign, r.combined("mul", signs, 1))
    return sign, r.combined("add", r.op("log", r.op("abs", diagonal)), 1)
