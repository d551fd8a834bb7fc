"""Triangular systems by generated code, and what is blocked on them: Cholesky and its gradient.

A unit of work is a group of columns of b, which do not depend on each other. Block by block of the
matrix, what is known is subtracted as one product, and the block itself is solved by substitution:
its diagonal is divided by, nothing is inverted, so that results are as accurate as LAPACK's.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from ... import numpy as reference
from ...codegen.emit import Reg
from ..lowering.machine_routines import NUMBERS, MachineFunction, run
from . import gemm
from .products import matmul

BLOCK = 64  # rows that are solved by substitution
GROUP = 64  # columns of a unit
LANES = (32, 8, 0)  # of vectors of columns: several registers, so that sums do not wait
SPEED = 8  # multiply-adds in the time of moving an element
_SIZES = {"float": 4, "double": 8}


def _write_solve(elem: str, upper: bool, unit: bool) -> MachineFunction:
    """x = a^-1 b, for a group of columns of one matrix of the batch. Strides (in elements) of a are
    those of matrices, rows and columns; of b and x those of matrices and rows.
    """
    f = MachineFunction("a given x", "product n k groups am ar ac bm br xm xr")
    b = f.b
    product = f.word("product", "ptr")
    by_rows = b.compare("eq", f.ac, 1)
    letter = b.select(by_rows, b.const("i8", ord("N")), ord("T"))
    plain = b.const("i8", ord("N"))
    lda = b.select(by_rows, f.ar, f.ac)
    blocks = b.binary("udiv", f.n + (BLOCK - 1), BLOCK)
    with f.parts(f.groups) as (matrix, group):
        low = group * GROUP
        width = b.intrinsic("smin", f.k - low, GROUP)
        a = b.at(f.a, matrix * f.am, elem)
        given = b.at(f.given, matrix * f.bm + low, elem)
        x = b.at(f.x, matrix * f.xm + low, elem)
        with b.when(b.compare("ne", f.given, f.x)), b.loop(0, f.n) as i:
            size = width * _SIZES[elem]
            f.copy(b.at(x, i * f.xr, elem), b.at(given, i * f.br, elem), size)
        with b.loop(0, blocks) as count:
            start = ((blocks - 1 - count) if upper else count) * BLOCK
            end = b.intrinsic("smin", start + BLOCK, f.n)
            rows = b.at(x, start * f.xr, elem)
            known, depth = (end, f.n - end) if upper else (b.const("i64", 0), start)
            with b.when(depth > 0):
                minus, one = b.const(elem, -1.0), b.const(elem, 1.0)
                left = b.at(a, start * f.ar + known * f.ac, elem)
                right = b.at(x, known * f.xr, elem)
                arguments = (
                    letter, plain, end - start, width, depth,
                    minus, left, lda, right, f.xr, one, rows, f.xr,
                )  # fmt: skip
                text = ", ".join(
                    f"{r.elem}{' signext' if r.elem == 'i8' else ''} {r.ref}" for r in arguments
                )
                b.line(f"call i32 {product.ref}({text})")
            diagonal = b.at(a, start * (f.ar + f.ac), elem)
            _substitute(f, diagonal, rows, end - start, width, elem, upper, unit)
    return f


def _substitute(
    f: MachineFunction, a: Reg, x: Reg, n: Reg, width: Reg, elem: str, upper: bool, unit: bool
) -> None:
    """x = a^-1 x, row by row, for as many columns at once as a vector has lanes."""
    b = f.b
    first = b.const("i64", 0)
    for lanes in LANES:
        step = max(lanes, 1)
        last = first + ((width - first) & -step)
        with b.loop(first, last, step) as column, b.loop(0, n) as count:
            i = (n - 1 - count) if upper else count
            place = i * f.xr + column
            rest = b.alloca(elem, lanes, f.load(x, place, elem, lanes))
            known = b.loop(i + 1, n) if upper else b.loop(0, i)
            with known as j:
                scale = -f.load(a, i * f.ar + j * f.ac, elem)
                other = f.load(x, j * f.xr + column, elem, lanes)
                b.put(rest, b.fma(b.like(other, scale), other, b.get(rest)))
            value = b.get(rest)
            if not unit:
                value = value / f.load(a, i * (f.ar + f.ac), elem)
            f.store(x, place, value)
        first = last


def _write_column(elem: str, upper: bool, unit: bool, by_rows: bool) -> MachineFunction:
    """Writes substitution for a single column b, stored without gaps. It takes a row of a times the
    known part of x, or subtracts a known element times a column of a, whichever lies together. A
    unit is a matrix of the batch.
    """
    f = MachineFunction("a given x", "n am ld bm")
    b = f.b
    with b.loop(f.first, f.last) as matrix:
        a, x = b.at(f.a, matrix * f.am, elem), b.at(f.x, matrix * f.n, elem)
        given = b.at(f.given, matrix * f.bm, elem)
        f.copy(x, given, f.n * _SIZES[elem])
        with b.loop(0, f.n) as count:
            i = (f.n - 1 - count) if upper else count
            line = b.at(a, i * f.ld, elem)
            value = f.load(x, i, elem)
            if by_rows:
                low, high = (i + 1, f.n) if upper else (b.const("i64", 0), i)
                value = value - _dot(f, line, x, low, high, elem)
            if not unit:
                value = value / f.load(line, i, elem)
            f.store(x, i, value)
            if not by_rows:
                low, high = (b.const("i64", 0), i) if upper else (i + 1, f.n)
                _add_scaled(f, line, -value, x, low, high, elem)
    return f


def _pieces(f: MachineFunction, low: Reg, high: Reg) -> Iterator[tuple[Reg, int]]:
    """Loops over vectors from `low` to `high`, and over what is left of them."""
    for lanes in LANES:
        step = max(lanes, 1)
        end = low + ((high - low) & -step)
        with f.b.loop(low, end, step) as at:
            yield at, lanes
        low = end


def _dot(f: MachineFunction, x: Reg, y: Reg, low: Reg, high: Reg, elem: str) -> Reg:
    """The sum of products from `low` to `high`."""
    b = f.b
    sums = {lanes: b.alloca(elem, lanes) for lanes in LANES}
    for total in sums.values():
        b.put(total, b.const(elem, 0.0, total.lanes))
    for at, lanes in _pieces(f, low, high):
        one, other = (f.load(v, at, elem, lanes) for v in (x, y))
        b.put(sums[lanes], b.fma(one, other, b.get(sums[lanes])))
    result = b.get(sums[0])
    for lanes in LANES[:-1]:
        total = b.get(sums[lanes])
        while total.lanes > 2:
            first, second = b.halves(total)
            total = first + second
        result = result + (b.lane(total, 0) + b.lane(total, 1))
    return result


def _add_scaled(
    f: MachineFunction, x: Reg, scale: Reg, y: Reg, low: Reg, high: Reg, elem: str
) -> None:
    """y += scale x, from `low` to `high`."""
    for at, lanes in _pieces(f, low, high):
        one, other = (f.load(v, at, elem, lanes) for v in (x, y))
        f.store(y, at, f.b.fma(f.b.like(one, scale), one, other))


def solve_triangular(a: Any, b: Any, upper: bool, unit: bool, out: Any = None) -> Any:
    """x with a @ x = b, where only one triangle of `a` is read; without checks for zeros. `out` has
    the shape of x and contiguous rows; it may be `b`.
    """
    if a.dtype.kind == "c" and a.dtype == b.dtype and out is None:
        return _solve_complex(a, b, upper, unit)
    n, k = b.shape[-2:]
    product = _product(a.dtype) if a.dtype == b.dtype else None
    if product is None or not (a.size and b.size) or a.shape[-2:] != (n, n):
        return reference.solve_triangular(a, b, upper, unit, out)
    batch = a.shape[:-2]
    if b.shape[:-2] != batch:
        batch = np.broadcast_shapes(batch, b.shape[:-2])
    if len(batch) > 1:
        x = solve_triangular(_flat(a, batch), _flat(b, batch), upper, unit)
        return x.reshape(*batch, n, k)
    x = np.empty((*batch, n, k), b.dtype) if out is None else out
    a, b = _laid_out(a, True), _laid_out(b, False)
    (am, ar, ac), (bm, br, _), (xm, xr, _) = map(_steps, (a, b, x))
    elem, count = NUMBERS[a.dtype], math.prod(batch)
    if k == 1 == br and out is None:
        numbers = struct.pack("4q", n, am, ar if ac == 1 else ac, bm)
        routine: tuple[Any, ...] = (_write_column, elem, upper, unit, ac == 1)
        run(routine, (a, b), (x,), numbers, count, n * n // SPEED)
        return x
    groups = -(-k // GROUP)
    numbers = struct.pack("11q", product, n, k, groups, am, ar, ac, bm, br, xm, xr)
    work = n * n * min(k, GROUP) // (2 * SPEED)
    run((_write_solve, elem, upper, unit), (a, b), (x,), numbers, count * groups, work)
    return x


@functools.cache
def _product(dtype: Any) -> int | None:
    """Address of the product of this dtype; None where there is none."""
    return gemm.address(dtype.name)


def _solve_complex(a: Any, b: Any, upper: bool, unit: bool) -> Any:
    """Solves a complex system as a real one of twice the size, in which an element is [[re, -im],
    [im, re]]: triangular, once rows are divided by their diagonal elements.
    """
    n = a.shape[-1]
    if not unit:
        diagonal = np.diagonal(a, 0, -2, -1)[..., None]
        a, b = a / diagonal, b / diagonal
    parts = np.empty((*a.shape[:-1], 2, n, 2), a.real.dtype).swapaxes(-3, -2)
    parts[..., 0, 0] = parts[..., 1, 1] = a.real
    parts[..., 1, 0] = a.imag
    parts[..., 0, 1] = -a.imag
    place = np.arange(n)
    parts[..., place, place, 0, 1] = parts[..., place, place, 1, 0] = 0
    whole = parts.swapaxes(-3, -2).reshape(*a.shape[:-2], 2 * n, 2 * n)
    columns = np.stack([b.real, b.imag], -2).reshape(*b.shape[:-2], 2 * b.shape[-2], b.shape[-1])
    real = solve_triangular(whole, columns, upper, True)
    x = np.empty((*real.shape[:-2], *b.shape[-2:]), b.dtype)
    x.real, x.imag = real[..., ::2, :], real[..., 1::2, :]
    return x


def _flat(x: Any, batch: tuple[int, ...]) -> Any:
    """Matrices in one dimension of the batch; a single one as it is."""
    shape = x.shape[-2:]
    return x if x.ndim == 2 else np.broadcast_to(x, (*batch, *shape)).reshape(-1, *shape)


def _laid_out(x: Any, either: bool) -> Any:
    """The array, or a copy, in which rows (or, where `either`, columns) are contiguous."""
    if x.flags.c_contiguous:
        return x
    (m, n), (rows, columns) = x.shape[-2:], x.strides[-2:]
    item = x.itemsize
    dense = columns == item and rows >= n * item
    turned = either and rows == item and columns >= m * item
    fits = (dense or turned) and not any(s % item for s in x.strides)
    return x if fits else np.ascontiguousarray(x)


def _steps(x: Any) -> tuple[int, int, int]:
    """Strides in elements between matrices, rows and columns."""
    rows, columns = x.strides[-2:]
    matrices = x.strides[0] if x.ndim == 3 and x.shape[0] > 1 else 0
    return matrices // x.itemsize, rows // x.itemsize, columns // x.itemsize


cholesky = functools.partial(reference.cholesky, solve=solve_triangular, product=matmul)
cholesky_gradient = functools.partial(
    reference.cholesky_gradient, solve=solve_triangular, product=matmul
)
