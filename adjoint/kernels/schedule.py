"""How a kernel runs over arrays of given sizes and strides: loop order, vector axis, chunks.

Axes of size 1 are dropped, axes that every operand steps through as one are merged, and the rest
are ordered by stride. What changes the code is in `Layout`; what does not is in the words passed to
it.

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

from ..core import policy
from .ir import ITEMSIZE, Kernel

__all__ = ["SHARE", "WIDE", "Layout", "Plan", "in_blocks", "plan"]

SHARE = policy.REDUCTION_SHARE
WIDE = 1024  # columns of a tile whose partial results are in memory, at most
TALL = 8  # rows of it that are read together
NARROW = (8, 16)  # columns of which several rows are done together: blocks of channels

Group = list[int]  # axes that are one loop, outermost first


@dataclass(frozen=True)
class Layout:
    """What of the arrays' layout the code depends on."""

    columns: bool
    outer: int  # number of outer loops
    inner: int  # number of inner loops
    classes: str  # for each operand along the vector axis: contiguous, broadcast, strided
    index: tuple[str, ...]  # for each axis of the kernel whose index is used, its loop, or ""
    split: bool  # a reduction whose parts are outputs
    tall: bool = False  # columns: by tiles with partial results in memory
    narrow: int = 0  # columns: how many there are, where rows of so few are done several at a time


@dataclass(frozen=True)
class Plan:
    """A layout and the words that go with it (all but pointers and scalars), by name."""

    layout: Layout
    chunks: int
    units: int
    parts: int  # of a split reduction
    words: dict[str, int]
    spans: list[tuple[int, int]]  # where each operand begins and ends, in bytes from its pointer


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
        """Greater for axes that belong outside."""
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
        """How well vectors run along a loop, for the operands `among` (for all, if empty)."""
        operands = among or range(len(self.strides))
        steps = [self.step(k, group) for k in operands]
        sizes = [self.itemsizes[k] for k in operands]
        contiguous = sum(s == size for s, size in zip(steps, sizes, strict=True))
        long = self.count(group) >= 8
        return (contiguous > 0) + (contiguous > 0 and long), contiguous, contiguous + steps.count(0)


def plan(
    kernel: Kernel,
    sizes: Sequence[int],
    strides: Sequence[Sequence[int]],
    dtypes: Sequence[str],
    cost: float = 1.0,
    split: bool = False,
) -> Plan:
    """Plans a kernel over a space of these sizes; operands are the inputs and then the outputs.

    `cost` is the work of one element in additions; `split` says that the outputs are partial
    results, one set after another for each part.
    """
    space = _Space(kernel, sizes, strides, dtypes)
    many = [a for a in range(kernel.rank) if sizes[a] != 1]
    kept = space.loops([a for a in many if a not in kernel.reduced])
    over = space.loops([a for a in many if a in kernel.reduced])
    # What has an element per result, or per place that is summed, is read and written once: those
    # that span the whole space decide.
    whole = [k for k, s in enumerate(strides) if all(s[a] for a in many)]
    large = whole or [k for k, s in enumerate(strides) if any(s[a] for g in over for a in g)]
    columns = bool(
        kept and over and space.fitness(kept[-1], large) > space.fitness(over[-1], large)
    )
    if columns:
        vector, inner = kept.pop(), over
    elif kernel.reduced:
        vector, inner = over.pop() if over else [], over
    else:
        best = max(range(len(kept)), key=lambda k: (space.fitness(kept[k], whole), k), default=None)
        vector, inner = [] if best is None else kept.pop(best), []
    named = {f"o{k}": group for k, group in enumerate(kept)}
    named |= {f"i{k}": group for k, group in enumerate(inner)} | {"v": vector}

    operands = range(len(strides))
    classes = ""
    for k in operands:
        step = space.step(k, vector)
        classes += "b" if step == 0 else "c" if step == space.itemsizes[k] else "s"
    loop_of = {axis: name for name, group in named.items() for axis in group}
    index = tuple(loop_of.get(a, "") if a in space.indexed else "" for a in range(kernel.rank))
    tall = (
        columns
        and space.count(vector) > policy.REDUCTION_NARROW
        and space.count(inner[-1]) >= 2 * TALL
    )
    narrow = space.count(vector) if columns and space.count(vector) in NARROW else 0
    layout = Layout(columns, len(kept), len(inner), classes, index, split, tall, narrow)

    rows, along = space.count(*kept), space.count(vector)
    depth = space.count(*inner)
    total = rows * along * depth
    grain = max(int(policy.LOOP_GRAIN / cost) // 256, 1) * 256  # whole vectors and cache lines
    length = reach = max(along if columns or not inner else space.count(inner[0]), 1)
    if not kernel.reduced:
        length = min(
            along, policy.LOOP_TILE if "s" in classes and "c" in classes and kept else grain
        )
    elif columns:
        length = min(along, max(grain // max(depth, 1) // 64 * 64, policy.LOOP_TILE))
        if tall:
            enough = split or rows * (along // WIDE) >= policy.REDUCTION_TILES
            length = min(along if enough else length, WIDE)
        reach = space.count(inner[0])
    pieces = 1
    if split:
        units = rows * (-(-along // length) if columns else 1)
        depth = space.count(*over, vector) if not columns else space.count(*inner)
        most = min(total // policy.REDUCTION_PIECE, depth // SHARE, reach)
        pieces = max(1, min(policy.REDUCTION_PIECES // max(units, 1), most))
        reach = -(-reach // pieces)
        if not inner:
            reach = -(-reach // 64) * 64
        pieces = -(-(space.count(inner[0]) if inner else along) // reach)
        length = length if columns else reach
    parts = pieces if split and not columns else 1
    if columns or not kernel.reduced:
        parts = -(-along // max(length, 1))
    units = rows * parts * (pieces if columns else 1)
    group = max(1, grain // max(total // max(units, 1), 1))

    words = {name: space.count(axes) for name, axes in named.items()}
    words |= {
        "rows": rows, "parts2": pieces if columns else 1, "length": max(length, 1),
        "length2": max(reach, 1), "units": units, "group": group,
    }  # fmt: skip
    spans = []
    for k in operands:
        words |= {f"s{k}.{name}": space.step(k, axes) for name, axes in named.items()}
        if split and k >= len(kernel.inputs):
            words[f"s{k}.p"] = rows * (along if columns else 1) * space.itemsizes[k]
        ends = [s * (n - 1) for s, n in zip(strides[k], sizes, strict=True)]
        empty = total == 0
        low, high = sum(e for e in ends if e < 0), sum(e for e in ends if e > 0)
        spans.append((0, 0) if empty else (low, high + space.itemsizes[k]))
    for value in kernel.values:
        if value.op == "size":
            words[f"z{value.number}"] = math.prod(sizes[a] for a in value.attr)
    return Plan(layout, -(-units // group), units, pieces, words, spans)


def in_blocks(
    kernel: Kernel, layout: Layout, words: dict[str, int], units: int, rows: int, size: int
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
