"""Schedule of a kernel over arrays of given sizes and strides: loop order, vector axis, chunks.

Axes of size 1 are dropped, axes that every operand steps through as one are merged, and the rest
are ordered by stride. What changes the code is in `LoopLayout`; what does not is in the words
passed to it.

The loops are, from the outside: chunks (for threads) of units; a unit is one position of the outer
loops and a part of a split loop; then

- without reductions, the vector loop;
- reducing along the vector axis ("rows"): the inner loops and the vector loop, all over reduced
  axes;
- reducing along others ("columns"): the vector loop over a kept axis, inside it inner loops over
  reduced ones; of many rows and columns ("tall") the rows are outside, some at a time.

Nothing here depends on the number of threads, so neither do the results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...core import policy
from ...core.symbolic_sizes import least, most
from .ir import ITEMSIZE, Kernel

__all__ = ["SHARE", "WIDE", "LoopLayout", "LoopPlan", "in_blocks", "plan", "spans"]

SHARE = policy.REDUCTION_SHARE
WIDE = 1024  # columns of a tile whose partial results are in memory, at most
TALL = 8  # rows of it that are read together
NARROW = (8, 16)  # columns of which several rows are done together: blocks of channels

Group = list[int]  # axes that are one loop, outermost first


@dataclass(frozen=True)
class LoopLayout:
    """The properties of the arrays' layout on which the code depends."""

    columns: bool
    outer: int  # number of outer loops
    inner: int  # number of inner loops
    classes: str  # for each operand along the vector axis: contiguous, broadcast, strided
    index: tuple[str, ...]  # for each axis of the kernel whose index is used, its loop, or ""
    split: bool  # a reduction whose parts are outputs
    tall: bool = False  # columns: by tiles with partial results in memory
    narrow: int = 0  # columns: how many there are, where rows of so few are done several at a time


@dataclass(frozen=True)
class LoopPlan:
    """A layout and the words that go with it (all but pointers and scalars), by name."""

    layout: LoopLayout
    chunks: int
    units: int
    parts: int  # of a split reduction
    words: dict[str, int]


class _Space:
    """The index space with the operands' strides (bytes; 0 where they broadcast)."""

    def __init__(
        self,
        kernel: Kernel,
        sizes: Sequence[int],
        strides: Sequence[Sequence[int]],
        dtypes: Sequence[str],
    ) -> None:
        self.sizes, self.strides = sizes, strides
        self.itemsizes = [ITEMSIZE[d] for d in dtypes]
        self.indexed = {v.attr[0] for v in kernel.values if v.op == "index"}

    def count(self, *groups: Group) -> int:
        """The number of positions of some loops together."""
        return math.prod(self.sizes[a] for group in groups for a in group)

    def step(self, operand: int, group: Group) -> int:
        """The stride of a loop."""
        return self.strides[operand][group[-1]] if group else 0

    def _weight(self, axis: int) -> tuple[int, int]:
        """Sort key of an axis: greater for axes that belong outside."""
        pairs = zip(self.strides, self.itemsizes, strict=True)
        return (sum(abs(s[axis]) // size for s, size in pairs), -axis)

    def loops(self, axes: list[int]) -> list[Group]:
        """The axes as loops, outermost first, merged where every operand allows it."""
        groups: list[Group] = []
        for axis in sorted(axes, key=self._weight, reverse=True):
            if groups and self._merge(groups[-1][-1], axis):
                groups[-1].append(axis)
            else:
                groups.append([axis])
        return groups

    def _merge(self, outer: int, axis: int) -> bool:
        if {outer, axis} & self.indexed:
            return False
        return all(s[outer] == s[axis] * self.sizes[axis] for s in self.strides)

    def fitness(self, group: Group, among: Sequence[int] = ()) -> tuple[int, int, int]:
        """Score that tells how well vectors run along a loop, for the operands `among` (for all, if
        empty).
        """
        operands = among or range(len(self.strides))
        steps = [self.step(k, group) for k in operands]
        sizes = [self.itemsizes[k] for k in operands]
        contiguous = sum(s == size for s, size in zip(steps, sizes, strict=True))
        long = self.count(group) >= 8
        return (contiguous > 0) + (contiguous > 0 and long), contiguous, contiguous + steps.count(0)


class _Loops(NamedTuple):
    """A kernel's axes as loops, and which of them vectors run along."""

    kept: list[Group]  # the outer loops, outermost first
    inner: list[Group]  # over reduced axes, outermost first
    vector: Group
    columns: bool  # vectors run along a kept axis, the inner loops within

    def by_name(self) -> dict[str, Group]:
        """The loops under their names in a plan's words."""
        named = {f"o{k}": group for k, group in enumerate(self.kept)}
        return named | {f"i{k}": group for k, group in enumerate(self.inner)} | {"v": self.vector}


class _Partition(NamedTuple):
    """Sizes of what the loops are cut into, so that threads and caches get their share."""

    length: int  # of the vector loop in one unit
    reach: int  # of the loop that is split, in one part
    pieces: int  # of a split reduction
    units: int
    group: int  # units of a chunk


def plan(
    kernel: Kernel,
    sizes: Sequence[int],
    strides: Sequence[Sequence[int]],
    dtypes: Sequence[str],
    cost: float = 1.0,
    split: bool = False,
) -> LoopPlan:
    """Plans a kernel over a space of these sizes; operands are the inputs and then the outputs.

    `cost` is the work of one element in additions; `split` says that the outputs are partial
    results, one set after another for each part.

    Sizes and strides may be symbolic (`core.symbolic_sizes`): then words are, too, and what is
    decided here is a guard. A bound is therefore `least` or `most`, which decides nothing.
    """
    space = _Space(kernel, sizes, strides, dtypes)
    loops = _ordered(space, kernel)
    layout = _layout(space, kernel, loops, split)
    cut = _partition(space, kernel, loops, layout, cost)
    words = _words(space, kernel, loops, cut, split)
    chunks = -(-cut.units // cut.group)
    return LoopPlan(layout, chunks, cut.units, cut.pieces, words)


def _ordered(space: _Space, kernel: Kernel) -> _Loops:
    """Order the loops, and choose the one along which most operands' vectors are contiguous."""
    many = [a for a in range(kernel.rank) if space.sizes[a] != 1]
    kept = space.loops([a for a in many if a not in kernel.reduced])
    over = space.loops([a for a in many if a in kernel.reduced])
    # What has an element per result, or per place that is summed, is read and written once: those
    # that span the whole space decide.
    strides = space.strides
    whole = [k for k, s in enumerate(strides) if all(s[a] for a in many)]
    large = whole or [k for k, s in enumerate(strides) if any(s[a] for g in over for a in g)]
    if kept and over and space.fitness(kept[-1], large) > space.fitness(over[-1], large):
        vector = kept.pop()
        return _Loops(kept, over, vector, True)
    if kernel.reduced:
        vector = over.pop() if over else []
        return _Loops(kept, over, vector, False)
    best = max(range(len(kept)), key=lambda k: (space.fitness(kept[k], whole), k), default=None)
    vector = [] if best is None else kept.pop(best)
    return _Loops(kept, [], vector, False)


def _layout(space: _Space, kernel: Kernel, loops: _Loops, split: bool) -> LoopLayout:
    """Describe the loops by what the code for them depends on."""
    kept, inner, vector, columns = loops
    classes = ""
    for k, size in enumerate(space.itemsizes):
        step = space.step(k, vector)
        classes += "b" if step == 0 else "c" if step == size else "s"
    loop_of = {axis: name for name, group in loops.by_name().items() for axis in group}
    index = tuple(loop_of.get(a, "") if a in space.indexed else "" for a in range(kernel.rank))
    tall = (
        columns
        and space.count(vector) > policy.REDUCTION_NARROW
        and space.count(inner[-1]) >= 2 * TALL
    )
    along = space.count(vector) if columns else 0
    narrow = next((n for n in NARROW if along == n), 0)
    return LoopLayout(columns, len(kept), len(inner), classes, index, split, tall, narrow)


def _partition(
    space: _Space, kernel: Kernel, loops: _Loops, layout: LoopLayout, cost: float
) -> _Partition:
    """Cut the loops into units of about the work that a thread should get at a time, and a split
    reduction into parts. No number of threads is asked for.
    """
    kept, inner, vector, columns = loops
    rows, along, depth = space.count(*kept), space.count(vector), space.count(*inner)
    total = rows * along * depth
    grain = max(int(policy.LOOP_GRAIN / cost) // 256, 1) * 256  # whole vectors and cache lines
    length = reach = along if columns or not inner else space.count(inner[0])
    if not kernel.reduced:
        mixed = "s" in layout.classes and "c" in layout.classes and kept
        length = least(along, policy.LOOP_TILE if mixed else grain)
    elif columns:
        length = least(along, most(grain // most(depth, 1) // 64 * 64, policy.LOOP_TILE))
        if layout.tall:
            enough = layout.split or rows * (along // WIDE) >= policy.REDUCTION_TILES
            length = least(along if enough else length, WIDE)
        reach = space.count(inner[0])
    length, reach = most(length, 1), most(reach, 1)
    pieces = 1
    if layout.split:
        units = rows * (-(-along // length) if columns else 1)
        summed = depth if columns else depth * along
        few = least(least(total // policy.REDUCTION_PIECE, summed // SHARE), reach)
        pieces = most(1, least(policy.REDUCTION_PIECES // most(units, 1), few))
        reach = -(-reach // pieces)
        if not inner:
            reach = -(-reach // 64) * 64
        pieces = -(-(space.count(inner[0]) if inner else along) // reach)
        length = length if columns else reach
    parts = 1 if columns else pieces
    if columns or not kernel.reduced:
        parts = -(-along // length)
    units = rows * parts * (pieces if columns else 1)
    group = most(1, grain // most(total // most(units, 1), 1))
    return _Partition(length, reach, pieces, units, group)


def _words(
    space: _Space, kernel: Kernel, loops: _Loops, cut: _Partition, split: bool
) -> dict[str, int]:
    """The numbers that the code reads: sizes of loops and parts, strides, counts that are used."""
    named, columns = loops.by_name(), loops.columns
    rows, along = space.count(*loops.kept), space.count(loops.vector)
    words = {name: space.count(axes) for name, axes in named.items()}
    words |= {
        "rows": rows, "parts2": cut.pieces if columns else 1, "length": cut.length,
        "length2": cut.reach, "units": cut.units, "group": cut.group,
    }  # fmt: skip
    for k, size in enumerate(space.itemsizes):
        words |= {f"s{k}.{name}": space.step(k, axes) for name, axes in named.items()}
        if split and k >= len(kernel.inputs):
            words[f"s{k}.p"] = rows * (along if columns else 1) * size
    for value in kernel.values:
        if value.op == "size":
            words[f"z{value.number}"] = math.prod(space.sizes[a] for a in value.attr)
    return words


def spans(
    sizes: Sequence[int], strides: Sequence[Sequence[int]], dtypes: Sequence[str]
) -> list[tuple[int, int]]:
    """Where each operand begins and ends, in bytes from its pointer."""
    if 0 in sizes:
        return [(0, 0)] * len(strides)
    found = []
    for steps, dtype in zip(strides, dtypes, strict=True):
        ends = [s * (n - 1) for s, n in zip(steps, sizes, strict=True)]
        low, high = sum(e for e in ends if e < 0), sum(e for e in ends if e > 0)
        found.append((low, high + ITEMSIZE[dtype]))
    return found


def in_blocks(
    kernel: Kernel, layout: LoopLayout, words: dict[str, int], units: int, rows: int, size: int
) -> tuple[dict[str, int], list[list[tuple[int, int]]]] | None:
    """A plan's words with chunks of `size` of the `rows` into which the outermost loop falls, and
    of each chunk where what it touches of each operand begins and ends, in bytes from its pointer,
    or a little beyond that; None where no chunk has rows of its own.
    """
    if layout.columns or layout.split or (kernel.reduced and not layout.outer):
        return None
    loop = "o0" if layout.outer else "v"
    steps, left = divmod(words[loop], rows)  # of the loop, for each row
    if left or not steps:
        return None
    if not layout.outer:
        changed = {"length": size * steps, "units": -(-rows // size), "group": 1}
    elif kernel.reduced or units == words["rows"]:
        changed = {"group": size * steps * (words["rows"] // words[loop])}
    elif "s" in layout.classes:
        return None  # whose tiles are short for a reason
    else:
        each = words["rows"] // words[loop]
        changed = {
            "length": max(words["v"], 1), "units": words["rows"], "group": size * steps * each
        }  # fmt: skip
    loops = [*(f"o{k}" for k in range(layout.outer)), *(f"i{k}" for k in range(layout.inner)), "v"]
    operands = [v.attr[1] for v in kernel.inputs] + [o.dtype for o in kernel.outputs]
    spans = []
    for begin in range(0, rows, size):
        reach = {name: (0, words[name] - 1) for name in loops}
        reach[loop] = begin * steps, min(begin + size, rows) * steps - 1
        spans.append([
            (sum(min(words[f"s{k}.{name}"] * at for at in reach[name]) for name in loops),
             sum(max(words[f"s{k}.{name}"] * at for at in reach[name]) for name in loops)
             + ITEMSIZE[dtype])
            for k, dtype in enumerate(operands)
        ])  # fmt: skip
    return {**words, **changed}, spans
