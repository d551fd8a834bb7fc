"""Plans of one kernel as functions of sizes and strides.

A plan is worked out once with symbols for these (`core.symbolic_sizes`). What it decided is a
guard; the words that the machine code reads are computed by a function of some dozen lines. So a
size that was never seen costs a call of it. The layout, which names the machine code, is the same
for all sizes for which the guards hold. It is what a plan with known numbers would give: who was
asked first does not matter.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core import policy
from ...core.symbolic_sizes import KernelGraph
from . import split
from .ir import ITEMSIZE, Kernel, Output
from .lower import word_names
from .schedule import SHARE, LoopLayout, LoopPlan, plan

if TYPE_CHECKING:
    from .run import Compiled

Orders = list[list[int]]  # for each output, its axes as they lie in memory, outermost first


class BoundPlan(NamedTuple):
    """A kernel's plan for certain sizes."""

    layout: LoopLayout
    chunks: int
    units: int
    parts: int  # of a split reduction
    rows: int  # that there are for `in_blocks`; 0: any number that divides them
    head: bytes  # the words before pointers
    orders: Orders  # of outputs that are not given
    halves: Halves | None  # of a reduction that runs as two kernels: the plan is the first one's
    in_order: bool  # one kernel, whose outputs are not given, and row-major


class Halves(NamedTuple):
    """A reduction as two kernels: `part` gives results of parts, `whole` combines them."""

    part: Kernel
    whole: Compiled
    positions: list[int]  # of further inputs of the second
    counted: list[tuple[int, ...]]  # axes whose positions together are further scalars of it
    kept: list[int]  # axes that are not reduced


class _Planned(NamedTuple):
    """A plan whose words may be symbolic."""

    loops: LoopPlan
    orders: Orders
    halved: bool


class PlanFamily:
    """The plans of a kernel, for calls with given outputs or for others."""

    __slots__ = ("_asked", "_variants")

    def __init__(self) -> None:
        self._asked = 0
        self._variants: list[Callable[..., BoundPlan | None]] = []

    def plan(self, compiled: Compiled, sizes: Sequence[int], strides: list[list[int]]) -> BoundPlan:
        """The plan of the family's kernel for a space of these sizes, and operands of these
        strides: the inputs, and the outputs where they are given.
        """
        self._asked += 1
        if self._asked <= policy.PLANS_ALONE or 0 in sizes:
            planned = _planned(compiled, sizes, strides)
            return _binder(compiled, planned)(_numbers(compiled, planned))
        flat = [*sizes, *(n for steps in strides for n in steps)]
        for variant in self._variants:
            found = variant(*flat)
            if found is not None:
                return found
        made = _recorded(compiled, sizes, strides)
        if len(self._variants) >= policy.SIZE_VARIANTS:
            self._variants.pop()
        self._variants.insert(0, made)
        found = made(*flat)
        assert found is not None
        return found


class RowMajorPlan:
    """The plan of a kernel for row-major inputs, as a function of sizes alone."""

    __slots__ = ("head", "launchers", "layout", "run")

    # (*sizes of the inputs, *those of the space) -> chunks, elements of the space, words; None
    # where they decide otherwise.
    run: Callable[..., tuple[int, ...] | None]
    layout: LoopLayout | None  # None: outputs are not simply row-major, or there are two kernels
    head: Callable[..., bytes]  # of the words
    launchers: dict[Any, Any]  # one by what it reads: others are copies for other sizes

    def __init__(
        self, compiled: Compiled, shapes: Sequence[Sequence[int]], space: Sequence[int]
    ) -> None:
        kernel = compiled.kernel
        graph = KernelGraph()
        inputs = [graph.sizes(shape) for shape in shapes]
        sizes = graph.sizes(space)
        strides = [
            _row_major(known, v.axes, sizes, ITEMSIZE[v.attr[1]])
            for known, v in zip(inputs, kernel.inputs, strict=True)
        ]
        planned = _planned(compiled, sizes, strides)
        self.launchers = {}
        self.layout = None
        self.head = bytes
        if planned.halved or any(x != sorted(x) for x in planned.orders):
            self.run = graph.function([0, 0])
            return
        self.layout = planned.loops.layout
        self.head = struct.Struct(f"{len(fixed_words(kernel, self.layout))}q").pack
        chunks, _, _, *words = _numbers(compiled, planned)
        self.run = graph.function([chunks, math.prod(sizes), *words])


def _row_major(
    shape: Sequence[Any], axes: Sequence[int], space: Sequence[Any], itemsize: int
) -> list[Any]:
    """The strides of a row-major array along all axes of the space; 0 where it has one position."""
    strides: list[Any] = [0] * len(space)
    step: Any = itemsize
    for size, axis in zip(reversed(shape), reversed(axes), strict=True):
        if size != 1 and size == space[axis]:
            strides[axis] = step
            step = step * space[axis]
    return strides


def _planned(compiled: Compiled, sizes: Sequence[Any], strides: list[list[Any]]) -> _Planned:
    """A plan of the kernel, or of the first of its halves, in sizes that may be symbolic."""
    kernel = compiled.kernel
    strides = list(strides)
    orders: Orders = []
    if len(strides) == len(kernel.inputs):
        inputs = strides[:]
        for output in kernel.outputs:
            orders.append(_order(output, inputs))
            strides.append(_written(output, orders[-1], sizes, kernel.rank))
    dtypes = operand_dtypes(kernel)
    loops = plan(kernel, sizes, strides, dtypes, compiled.cost)
    large = math.prod(sizes) > policy.REDUCTION_SPLIT
    large = large and math.prod(sizes[a] for a in kernel.reduced) >= 2 * SHARE
    if not (large and loops.units < policy.REDUCTION_FEW and split.can_split(kernel)):
        return _Planned(loops, orders, False)
    halves = compiled.halves
    inputs = strides[: len(kernel.inputs)]
    for output in halves.part.outputs:
        order = list(range(len(halves.kept)))
        lying = Output(output.value, output.dtype, tuple(halves.kept))
        inputs.append(_written(lying, order, sizes, kernel.rank))
    dtypes = operand_dtypes(halves.part)
    loops = plan(halves.part, sizes, inputs, dtypes, compiled.cost, split=True)
    return _Planned(loops, orders, True)


def _binder(compiled: Compiled, planned: _Planned) -> Callable[[Sequence[int]], BoundPlan]:
    """A function from the numbers of a plan to the plan."""
    layout, orders = planned.loops.layout, planned.orders
    halves = compiled.halves if planned.halved else None
    kernel = compiled.kernel if halves is None else halves.part
    names = fixed_words(kernel, layout)
    pack = struct.Struct(f"{len(names)}q").pack
    at = names.index("o0") if layout.outer else -1
    in_order = bool(orders) and halves is None and all(x == sorted(x) for x in orders)

    def bind(numbers: Sequence[int]) -> BoundPlan:
        chunks, units, parts, *words = numbers
        rows = words[at] if at >= 0 else 0
        head = pack(*words)
        return BoundPlan(layout, chunks, units, parts, rows, head, orders, halves, in_order)

    return bind


def _recorded(
    compiled: Compiled, sizes: Sequence[int], strides: list[list[int]]
) -> Callable[..., BoundPlan | None]:
    """A function from sizes and strides, in order, to the plan; None where they decide
    otherwise.
    """
    graph = KernelGraph()
    space = graph.sizes(sizes)
    steps = [[graph.scalar(n) for n in each] for each in strides]
    planned = _planned(compiled, space, steps)
    run = graph.function(_numbers(compiled, planned))
    bind = _binder(compiled, planned)

    def variant(*numbers: int) -> BoundPlan | None:
        found = run(*numbers)
        return None if found is None else bind(found)

    return variant


def _numbers(compiled: Compiled, planned: _Planned) -> list[Any]:
    """The numbers of a plan, in the order in which `bind` takes them."""
    loops = planned.loops
    kernel = compiled.halves.part if planned.halved else compiled.kernel
    words = [loops.words[name] for name in fixed_words(kernel, loops.layout)]
    return [loops.chunks, loops.units, loops.parts, *words]


def fixed_words(kernel: Kernel, layout: LoopLayout) -> list[str]:
    """The words before pointers."""
    names = word_names(kernel, layout)
    return names[: names.index("p0")] if "p0" in names else names


def operand_dtypes(kernel: Kernel) -> list[str]:
    """The dtypes of the inputs, then of the outputs."""
    return [v.attr[1] for v in kernel.inputs] + [o.dtype for o in kernel.outputs]


def halves_of(kernel: Kernel, compile: Callable[[Kernel], Compiled]) -> Halves:
    """The two kernels of a reduction that can be split."""
    part = split.partial(kernel)
    whole, positions, numbers = split.combining(kernel)
    kept = [a for a in range(kernel.rank) if a not in kernel.reduced]
    return Halves(part, compile(whole), positions, [kernel.values[n].attr for n in numbers], kept)


def _order(output: Output, strides: Sequence[Sequence[Any]]) -> list[int]:
    """The order of an output's axes in its memory, as NumPy would choose it: as in the inputs that
    step along both of two, and else row-major.
    """
    axes = output.axes
    order: list[int] = []  # from the inside
    for k in reversed(range(len(axes))):
        place = len(order)
        for j in reversed(range(place)):
            steps = [(abs(s[axes[k]]), abs(s[axes[order[j]]])) for s in strides]
            known = [inner <= own for own, inner in steps if own and inner]
            if any(known):
                break
            if known:
                place = j
        order.insert(place, k)
    order.reverse()
    return order


def _written(output: Output, order: Sequence[int], sizes: Sequence[Any], rank: int) -> list[Any]:
    """The strides along all axes of an output whose axes lie in this order."""
    strides: list[Any] = [0] * rank
    step: Any = ITEMSIZE[output.dtype]
    for k in reversed(order):
        axis = output.axes[k]
        if sizes[axis] != 1:
            strides[axis] = step if sizes[axis] else ITEMSIZE[output.dtype]
        step = step * sizes[axis]
    return strides
