"""Factors and systems of many small matrices, in machine code over threads.

A vector has one element of each of several matrices: what is done for one is done for all of them,
whatever their size. Groups of as many matrices as a vector has lanes are copied so, worked on, and
copied back; the last matrix stands in for those that are missing in the last group. So the bits of
a result depend on its matrix alone. Where a matrix is singular or not positive definite the routine
refuses, and NumPy says what is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....core import policy
from ....core.op import Op
from ...codegen.emit import Reg
from ..lowering.machine_routines import ARRAYS, MachineFunction, compute

MOST = 64  # rows, for which there is room on the stack
_BYTES = 32  # of a vector
_ELEMS = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}
_OPS = frozenset(("cholesky", "inverse", "inverse_or_infinite", "solve"))
_SIZES = {"float": 4, "double": 8}
_STRANDS = 4  # sums that are made at once, so that none waits for another


class _Matrices:
    """The matrices of a group while a routine is written: element (i, j) is a vector at place
    i * columns + j of memory on the stack.
    """

    def __init__(self, f: MachineFunction, elem: str, columns: Reg) -> None:
        self.f, self.b, self.elem, self.columns = f, f.b, elem, columns
        self.lanes = _BYTES // _SIZES[elem]
        self.memory = Reg(f.b, "ptr", 0, f.b.name())
        kind = f"<{self.lanes} x {elem}>"
        f.b.allocas.append(f"{self.memory.ref} = alloca [{MOST * MOST} x {kind}], align 64")

    def at(self, i: Reg, j: Reg) -> Reg:
        """The place of an element, in elements of one matrix."""
        return (i * self.columns + j) * self.lanes

    def get(self, i: Reg, j: Reg) -> Reg:
        """The vector of an element."""
        return self.f.load(self.memory, self.at(i, j), self.elem, self.lanes)

    def put(self, i: Reg, j: Reg, value: Reg) -> None:
        """Set an element."""
        address = self.b.at(self.memory, self.at(i, j), self.elem)
        self.b.line(f"store {value.type} {value.ref}, ptr {address.ref}, align {_BYTES}")

    def take(self, source: Reg, starts: list[Reg], rows: Reg, end: Callable[[Reg], Reg]) -> None:
        """Copy rows of the group's matrices, which start at these elements: of row i as many
        columns as `end(i)` says.
        """
        b = self.b
        with b.loop(0, rows) as i, b.loop(0, end(i)) as j:
            place = i * self.columns + j
            x = Reg(b, self.elem, self.lanes, "poison")
            for lane, start in enumerate(starts):
                one = self.f.load(source, start + place, self.elem)
                x = b.emit(
                    self.elem, self.lanes,
                    f"insertelement {x.type} {x.ref}, {one.type} {one.ref}, i32 {lane}",
                )  # fmt: skip
            self.put(i, j, x)

    def give(self, target: Reg, starts: list[Reg], rows: Reg) -> None:
        """Copy whole rows back."""
        b = self.b
        with b.loop(0, rows) as i, b.loop(0, self.columns) as j:
            place, x = i * self.columns + j, self.get(i, j)
            for lane, start in enumerate(starts):
                self.f.store(target, start + place, b.lane(x, lane))

    def zero(self) -> Reg:
        """A vector of zeros."""
        return self.b.const(self.elem, 0.0, self.lanes)


def _starts(f: MachineFunction, unit: Reg, lanes: int, size: Reg) -> list[Reg]:
    """The first elements of the matrices of a group."""
    last = f.count - 1
    return [f.b.intrinsic("smin", unit * lanes + lane, last) * size for lane in range(lanes)]


def _blocks(f: MachineFunction, first: Reg, end: Reg, step: Callable[[Reg, int], None]) -> None:
    """Call `step(number, count)` for blocks of numbers, then for those that are left over."""
    whole = first + ((end - first) & -_STRANDS)
    with f.b.loop(first, whole, _STRANDS) as i:
        step(i, _STRANDS)
    with f.b.loop(whole, end) as i:
        step(i, 1)


def _write_cholesky(elem: str) -> MachineFunction:
    """out = the lower factors of the matrices x, of which the lower triangle is read."""
    f = MachineFunction("x out", "n count")
    b, n = f.b, f.n
    s = _Matrices(f, elem, n)
    with b.loop(f.first, f.last) as unit:
        starts = _starts(f, unit, s.lanes, n * n)
        s.take(f.x, starts, n, lambda i: i + 1)
        with b.loop(0, n) as j:
            sums = [b.alloca(elem, s.lanes, s.get(j, j))]
            with b.loop(0, j) as k:
                x = s.get(j, k)
                b.put(sums[0], b.fma(-x, x, b.get(sums[0])))
            square = b.get(sums[0])
            f.doubt(b.any(~b.compare("gt", square, 0.0)))
            root = b.intrinsic("sqrt", square)
            s.put(j, j, root)

            def below(i: Reg, count: int, j: Reg = j, root: Reg = root) -> None:
                sums = [b.alloca(elem, s.lanes, s.get(i + t, j)) for t in range(count)]
                with b.loop(0, j) as k:
                    x = -s.get(j, k)
                    for t, total in enumerate(sums):
                        b.put(total, b.fma(s.get(i + t, k), x, b.get(total)))
                for t, total in enumerate(sums):
                    s.put(i + t, j, b.get(total) / root)

            _blocks(f, j + 1, n, below)
            with b.loop(j + 1, n) as i:
                s.put(j, i, s.zero())
        s.give(f.out, starts, n)
    f.decide()
    return f


def _eliminate(f: MachineFunction, a: _Matrices, right: _Matrices, n: Reg) -> None:
    """Turn A into U by row pivoting of each matrix, and the right sides likewise."""
    b, elem, lanes = f.b, a.elem, a.lanes
    kind = f"i{8 * _SIZES[elem]}"
    with b.loop(0, n) as k:
        best = b.alloca(elem, lanes, b.intrinsic("fabs", a.get(k, k)))
        wide = k if kind == "i64" else b.convert("trunc", k, kind)
        pivot = b.alloca(kind, lanes, b.splat(wide, lanes))
        with b.loop(k + 1, n) as i:
            size = b.intrinsic("fabs", a.get(i, k))
            greater = b.compare("gt", size, b.get(best))
            b.put(best, b.select(greater, size, b.get(best)))
            wide = i if kind == "i64" else b.convert("trunc", i, kind)
            b.put(pivot, b.select(greater, b.splat(wide, lanes), b.get(pivot)))
        f.doubt(b.any(~b.compare("gt", b.get(best), 0.0)))
        for lane in range(lanes):
            one = b.lane(b.get(pivot), lane)
            row = one if kind == "i64" else b.convert("sext", one, "i64")
            with b.when(b.compare("ne", row, k)):
                _swap(a, lane, k, row, k, n)
                _swap(right, lane, k, row, b.const("i64", 0), right.columns)
        divisor = a.get(k, k)
        with b.loop(k + 1, n) as i:
            factor = -(a.get(i, k) / divisor)
            for each, first in ((a, k + 1), (right, b.const("i64", 0))):

                def combine(
                    c: Reg, count: int, each: _Matrices = each, i: Reg = i, k: Reg = k,
                    factor: Reg = factor,
                ) -> None:  # fmt: skip
                    for t in range(count):
                        each.put(i, c + t, b.fma(factor, each.get(k, c + t), each.get(i, c + t)))

                _blocks(f, first, each.columns, combine)


def _swap(s: _Matrices, lane: int, one: Reg, other: Reg, first: Reg, end: Reg) -> None:
    """Exchange two rows of one matrix, from a column on."""
    with s.b.loop(first, end) as c:
        places = [s.at(row, c) + lane for row in (one, other)]
        x, y = (s.f.load(s.memory, place, s.elem) for place in places)
        s.f.store(s.memory, places[0], y)
        s.f.store(s.memory, places[1], x)


def _substitute(f: MachineFunction, a: _Matrices, right: _Matrices, n: Reg) -> None:
    """Solve U X = B in the memory of B, from the last row on."""
    b, elem, lanes = f.b, a.elem, a.lanes
    with b.loop(0, n) as t:
        i = n - 1 - t
        divisor = a.get(i, i)

        def columns(c: Reg, count: int, i: Reg = i, divisor: Reg = divisor) -> None:
            sums = [b.alloca(elem, lanes, right.get(i, c + t)) for t in range(count)]
            with b.loop(i + 1, n) as k:
                x = -a.get(i, k)
                for t, total in enumerate(sums):
                    b.put(total, b.fma(x, right.get(k, c + t), b.get(total)))
            for t, total in enumerate(sums):
                right.put(i, c + t, b.get(total) / divisor)

        _blocks(f, b.const("i64", 0), right.columns, columns)


def _write_inverse(elem: str) -> MachineFunction:
    """out = the inverses of the matrices x."""
    f = MachineFunction("x out", "n count")
    b, n = f.b, f.n
    a, right = _Matrices(f, elem, n), _Matrices(f, elem, n)
    with b.loop(f.first, f.last) as unit:
        starts = _starts(f, unit, a.lanes, n * n)
        a.take(f.x, starts, n, lambda i: n)
        with b.loop(0, n) as i:
            with b.loop(0, n) as j:
                right.put(i, j, right.zero())
            right.put(i, i, b.const(elem, 1.0, right.lanes))
        _eliminate(f, a, right, n)
        _substitute(f, a, right, n)
        right.give(f.out, starts, n)
    f.decide()
    return f


def _write_solution(elem: str) -> MachineFunction:
    """out = X with A X = B, of `columns` columns each."""
    f = MachineFunction("x y out", "n width count")
    b, n = f.b, f.n
    a, right = _Matrices(f, elem, n), _Matrices(f, elem, f.width)
    with b.loop(f.first, f.last) as unit:
        a.take(f.x, _starts(f, unit, a.lanes, n * n), n, lambda i: n)
        starts = _starts(f, unit, a.lanes, n * f.width)
        right.take(f.y, starts, n, lambda i: f.width)
        _eliminate(f, a, right, n)
        _substitute(f, a, right, n)
        right.give(f.out, starts, n)
    f.decide()
    return f


def are_many(x: Any) -> bool:
    """Whether an array holds so many small matrices that routines are faster than NumPy."""
    if type(x) not in ARRAYS or x.dtype not in _ELEMS or x.ndim < 3:
        return False
    n, count = x.shape[-1], math.prod(x.shape[:-2])
    if x.shape[-2] != n or not 0 < n <= min(policy.SMALL_ROWS, MOST):
        return False
    return bool(count >= 2 and count * policy.SMALL_ROWS_EACH >= n)


def takes(op: Op, arrays: Sequence[Any]) -> bool:
    """Whether a routine computes an op of such arrays."""
    return op.name in _OPS and are_many(arrays[0])


def stand_ins(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Row-major arrays of the same shapes that hold unit matrices, then zeros."""
    made = [np.empty(x.shape, x.dtype) for x in arrays]
    for k, x in enumerate(made):
        x[...] = 0 if k else np.eye(x.shape[-1], dtype=x.dtype)
    return made


def _row_major(x: Any) -> Any:
    return x if x.flags.c_contiguous else np.ascontiguousarray(x)


def _units(count: Any, dtype: np.dtype[Any]) -> Any:
    lanes = _BYTES // dtype.itemsize
    return (count + lanes - 1) // lanes


def cholesky(x: Any) -> Any:
    """The lower factors of a batch of small matrices; NotImplemented where NumPy is to make them:
    few or large ones, other dtypes, and one that is not positive definite.
    """
    return _of_each(_write_cholesky, x, lambda n: n * n * (8 + n // 4))


def inverse(x: Any) -> Any:
    """The inverses of a batch of small matrices; NotImplemented likewise, where one is singular."""
    return _of_each(_write_inverse, x, lambda n: n * n * (16 + n))


def _of_each(write: Callable[[str], MachineFunction], x: Any, work: Callable[[int], int]) -> Any:
    """A matrix for each of a batch, by a routine that does so much `work` for one of n rows."""
    if not are_many(x):
        return NotImplemented
    a = _row_major(x)
    n, count = a.shape[-1], math.prod(a.shape[:-2])
    routine = (write, _ELEMS[a.dtype])
    return compute(routine, (a,), a.shape, a.dtype, (n, count), _units(count, a.dtype), work(n))


def solution(x: Any, y: Any) -> Any:
    """X with A X = B, for a batch of small matrices A and as many B; NotImplemented likewise."""
    if not are_many(x) or type(y) not in ARRAYS:
        return NotImplemented
    if y.dtype != x.dtype or y.shape[:-1] != x.shape[:-1]:
        return NotImplemented
    a, right = _row_major(x), _row_major(y)
    n, columns, count = a.shape[-1], y.shape[-1], math.prod(a.shape[:-2])
    if not 0 < columns <= MOST:
        return NotImplemented
    routine = (_write_solution, _ELEMS[a.dtype])
    work = n * n * (8 + n // 2) + n * columns * (8 + n)
    numbers = n, columns, count
    units = _units(count, a.dtype)
    return compute(routine, (a, right), right.shape, a.dtype, numbers, units, work)
