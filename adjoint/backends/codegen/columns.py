"""Reductions along other axes than the vector one, which makes vectors of results.

`blocks` keeps the results of a few vectors in registers while all the rows are gone through: right
where these are few, or lie together. `tiles` keeps those of a whole tile of columns in memory and
goes through it a few rows at a time: every row is read in one piece, as far as the tile goes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from . import ir
from .emit import LLVM_TYPES, Reg
from .reduce import Accumulator, fold
from .schedule import TALL, WIDE

if TYPE_CHECKING:
    from .ir import KernelValue
    from .lower import Lowering

FOLD = 32  # rows that are summed plainly
TOGETHER = 4  # vectors of narrow rows that are done together, whatever else a kernel computes

SAME = ("const", "scalar", "size")  # the same for all columns
Known = dict[int, Reg]


@contextlib.contextmanager
def nest(
    w: Lowering, pointers: list[Reg], loops: Sequence[str]
) -> Iterator[tuple[list[Reg], dict[str, Reg]]]:
    """Loops, outermost first; gives the pointers inside and the position of each loop."""
    where: dict[str, Reg] = {}
    with contextlib.ExitStack() as stack:
        for name in loops:
            where[name] = stack.enter_context(w.b.loop(*w.limits(name)))
            pointers = moved(w, pointers, name, where[name])
        yield pointers, where


def moved(w: Lowering, pointers: list[Reg], loop: str, i: Reg) -> list[Reg]:
    """The pointers at a position of a loop."""
    return [w.b.at(p, i * w.words[f"s{k}.{loop}"]) for k, p in enumerate(pointers)]


def blocks(w: Lowering, pointers: list[Reg]) -> None:
    """The columns of a unit, a few vectors after the others."""
    b, lanes = w.b, w.lanes
    copies = 2 * min(w.copies(stage) for stage in range(len(w.stages)))
    low, high = w.limits("v")
    if w.layout.narrow and w.layout.narrow % lanes == 0:
        vectors = w.layout.narrow // lanes
        _block(w, pointers, low, vectors, None, max(1, TOGETHER // vectors))
        return
    step = lanes * copies
    whole = low + ((high - low) & -step)
    with b.loop(low, whole, step) as i:
        _block(w, pointers, i, copies, None)
    with b.loop(whole, high, lanes) as i:
        _block(w, pointers, i, 1, w.mask(high - i))


def _block(
    w: Lowering, pointers: list[Reg], i: Reg, copies: int, mask: Reg | None, rows: int = 1
) -> None:
    """Writes the code for some vectors of results, for so many `rows` at a time."""
    b = w.b
    at = [i + copy * w.lanes if copy else i for copy in range(copies)]
    known: list[Known] = [{} for _ in range(copies)]
    for stage, (reductions, _) in enumerate(w.stages):
        for env, j in zip(known, at, strict=True):
            _per_column(w, env, pointers, stage, j, mask)
        sums = w.accumulators(reductions, copies, columns=True, together=rows)
        count = b.alloca("i64", 0, 0)
        *around, last = w.inner
        with nest(w, pointers, around) as (inside, where):
            low, high = w.limits(last)
            whole = low + b.binary("udiv", high - low, rows) * rows if rows > 1 else low
            parts = ((low, whole, rows), (whole, high, 1))
            for start, end, number in parts[rows == 1 :]:
                with b.loop(start, end, number) as k:
                    for row in range(number):
                        place = k + row if row else k
                        there = {**where, last: place}
                        given = moved(w, inside, last, place)
                        _rows(w, stage, known, given, there, at, mask, sums, row)
                    if any(accumulator.blocks for accumulator in sums):
                        w.fold_after(count, b.const("i64", number), FOLD * rows, sums)
        for v, accumulator in zip(reductions, sums, strict=True):
            for env, result in zip(known, accumulator.finish(), strict=True):
                env[v.number] = result
    for env, j in zip(known, at, strict=True):
        _per_column(w, env, pointers, len(w.stages), j, mask)


def _rows(
    w: Lowering, stage: int, known: list[Known], pointers: list[Reg], where: dict[str, Reg],
    at: list[Reg], mask: Reg | None, sums: list[Accumulator], row: int = 0,
) -> None:  # fmt: skip
    """Writes the code for one row of some vectors, among those that are done together."""
    for copy, j in enumerate(at):
        env = w.instance(stage, known[copy], pointers, where, j, mask)
        for v, accumulator in zip(w.stages[stage][0], sums, strict=True):
            accumulator.step(row * len(at) + copy, w.value(v.inputs[0], env), None)


def _per_column(
    w: Lowering, env: Known, pointers: list[Reg], stage: int, at: Reg, mask: Reg | None
) -> None:
    """Computes the values of the columns alone that are known after so many loops, and stores
    those which are outputs.
    """
    for v in w.live:
        if w.full[v.number] or v.op in ir.REDUCTIONS or v.number in env:
            continue
        if w.depth[v.number] == stage:
            env[v.number] = w.emit(v, env, pointers, {}, at, mask)
    for k, output in enumerate(w.kernel.outputs):
        if not w.full_output(k) and w.depth[output.value.number] == stage:
            w.store(len(w.kernel.inputs) + k, pointers, w.value(output.value, env), at, mask)


# Tiles -------------------------------------------------------------------------------------------


class _Arrays:
    """Vectors of a tile's columns in memory, by key."""

    def __init__(self, w: Lowering, low: Reg) -> None:
        self.w, self.low = w, low
        self.names: dict[object, str] = {}

    def slot(self, key: object, elem: str, lanes: int, at: Reg) -> Reg:
        """The variable of the columns from `at` on."""
        b = self.w.b
        if key not in self.names:
            name = self.names[key] = b.name()
            b.allocas.append(f"{name} = alloca [{WIDE} x {elem}], align 128")
        place = b.at(Reg(b, "ptr", 0, self.names[key]), at - self.low, elem)
        return Reg(b, elem, lanes, place.ref)


def tiles(w: Lowering, pointers: list[Reg]) -> None:
    """The columns of a unit, which are at most WIDE."""
    low, high = w.limits("v")
    arrays = _Arrays(w, low)
    kept = _kept(w)
    before: Sequence[KernelValue] = ()
    for stage, (reductions, _) in enumerate([*w.stages, ([], [])]):
        _between(w, pointers, stage, arrays, kept, before, reductions, low, high)
        if stage < len(w.stages):
            _stage(w, pointers, stage, arrays, kept, low, high)
        before = reductions


def _kept(w: Lowering) -> list[KernelValue]:
    """The values of columns alone that others need, in a loop over rows or after one."""
    wanted: set[int] = set()
    for v in w.live:
        full = w.full[v.number] or v.op in ir.REDUCTIONS
        later = [x.number for x in v.inputs if full or w.depth[x.number] < w.depth[v.number]]
        wanted.update(later)
    for k, output in enumerate(w.kernel.outputs):
        if w.full_output(k):
            wanted.add(output.value.number)
    return [v for v in w.live if v.number in wanted and not w.full[v.number] and v.op not in SAME]


def _loaded(
    w: Lowering, pointers: list[Reg], arrays: _Arrays, kept: list[KernelValue], stage: int, at: Reg
) -> Known:
    """Loads the values that earlier loops kept, at the columns from `at` on."""
    env: Known = {}
    for v in w.live:
        if v.op in SAME:
            env[v.number] = w.emit(v, env, pointers, {}, at, None)
    for v in kept:
        if w.depth[v.number] <= stage:
            env[v.number] = w.b.get(arrays.slot(v.number, LLVM_TYPES[v.dtype], w.lanes, at))
    return env


def _between(
    w: Lowering, pointers: list[Reg], stage: int, arrays: _Arrays, kept: list[KernelValue],
    before: Sequence[KernelValue], after: Sequence[KernelValue], low: Reg, high: Reg,
) -> None:  # fmt: skip
    """Ends reductions, computes what is known of the columns then, and begins other reductions."""
    b, lanes = w.b, w.lanes
    ending = w.accumulators(before, 1, columns=True)
    beginning = w.accumulators(after, 1, columns=True)
    with b.loop(low, high, lanes) as i:
        env = _loaded(w, pointers, arrays, kept, stage - 1, i)
        for v, accumulator in zip(before, ending, strict=True):
            accumulator.reset()
            for number, slot in enumerate(accumulator.state):
                b.put(slot, b.get(arrays.slot((v.number, number), slot.elem, lanes, i)))
            (env[v.number],) = accumulator.finish()
        _per_column(w, env, pointers, stage, i, w.mask(high - i))
        for v in kept:
            if w.depth[v.number] == stage:
                b.put(arrays.slot(v.number, LLVM_TYPES[v.dtype], lanes, i), env[v.number])
        for v, accumulator in zip(after, beginning, strict=True):
            accumulator.reset()
            for number, slot in enumerate(accumulator.state):
                b.put(arrays.slot((v.number, number), slot.elem, lanes, i), b.get(slot))


def _stage(
    w: Lowering, pointers: list[Reg], stage: int, arrays: _Arrays, kept: list[KernelValue],
    low: Reg, high: Reg,
) -> None:  # fmt: skip
    """Writes one loop over everything. With stores, a row is done at a time, since a load may have
    to wait for an earlier store whose address is the same modulo 4096, as those of rows often are.
    """
    b, lanes = w.b, w.lanes
    reductions = w.stages[stage][0]
    copies = w.copies(stage)
    step = lanes * copies
    whole = low + ((high - low) & -step)
    *outer, last = w.inner
    start, end = w.limits(last)
    height = 1 if w.stores(stage) else TALL
    with nest(w, pointers, outer) as (outside, where), b.loop(start, end, height) as row:
        stop = b.intrinsic("smin", row + height, end)

        def vectors(i: Reg, copies: int, mask: Reg | None) -> None:
            at = [i + copy * lanes if copy else i for copy in range(copies)]
            known = [_loaded(w, pointers, arrays, kept, stage, j) for j in at]
            sums = w.accumulators(reductions, copies, columns=True)
            places = [
                (slot, arrays.slot((v.number, k // copies), slot.elem, lanes, at[k % copies]))
                for v, accumulator in zip(reductions, sums, strict=True)
                for k, slot in enumerate(accumulator.state)
            ]
            for slot, place in places:
                b.put(slot, b.get(place))
            with b.loop(row, stop) as r:
                inside = moved(w, outside, last, r)
                _rows(w, stage, known, inside, where | {last: r}, at, mask, sums)
            fold(sums)
            for slot, place in places:
                b.put(place, b.get(slot))

        with b.loop(low, whole, step) as i:
            vectors(i, copies, None)
        with b.loop(whole, high, lanes) as i:
            vectors(i, 1, w.mask(high - i))
