"""The one partition: which steps of a program share a kernel, and why others do not.

A program becomes **regions**, and a region kernels. A region is steps over one index space, which
can be written down together; a composite is one by declaration, of a frozen module `regions` finds
them. A kernel reduces over one set of axes, so `kernels` cuts a region at its reductions: what
passes from one kernel to the next is only what reductions have made small, a row's mean and
deviation, say. What is as large as the inputs is computed again where it is needed, in registers;
that costs arithmetic, where memory would cost more.

That is not true of what is costly, an exponential or more: a region that has computed something
costly takes no reduction after it, which would be further loops and kernels that compute it again.
Measured with and without this cut: softmax(tanh(x)) is 1.1 to 1.4 times as fast with it, the mean
square of gelu(x) about its mean 1.8 to 3.3 times (256 x 512 floats and 2048 x 1024), what is
normalized over two sets of axes 1.2 to 3.8 times; layer_norm(gelu(x)), whose kernel keeps the
costly values where its output will be, 0.8 to 1.1 times. A composite's author draws the line by
what is declared.

Every cut has a reason, which `ADJOINT_DEBUG=dispatch` shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from ..core import policy
from ..core.spec import broadcast, broadcast_shapes
from ..core.symbolic_sizes import shown
from .program import Node, Program, Value

Axes = tuple[int, ...]


# ---- regions -------------------------------------------------------------------------------------


class Role(NamedTuple):
    """How a step may be part of a kernel."""

    reduces: bool
    costly: bool  # rather stored than computed again


class Regions(NamedTuple):
    """The steps of each region, in order; and for each step outside the region of an input, the
    reason.
    """

    groups: list[list[Node]]
    cuts: list[tuple[Node, str]]


def regions(
    program: Program,
    role: Callable[[Node], Role | str],
    sums: Mapping[Node, int] = MappingProxyType({}),
) -> Regions:
    """Partition a program into regions. `role` returns how a step may be part of a kernel, or why
    it cannot; `sums` maps additions that are made as soon as their terms exist to the index of the
    input that is the running sum.
    """
    partition = _Regions()
    for node in program.nodes:
        partition.add(node, role(node), node.inputs[sums[node]] if node in sums else None)
        partition.computed += node.nbytes
        partition.done[node] = partition.computed
    place = {node: i for i, node in enumerate(program.nodes)}
    groups = [sorted(region.nodes, key=place.__getitem__) for region in partition.regions.values()]
    return Regions(groups, partition.cuts)


class _Region:
    """Steps over one index space."""

    def __init__(self, space: Axes) -> None:
        self.nodes: list[Node] = []
        self.space = space
        self.reduces = self.costly = False
        self.used = math.inf  # bytes computed when a step outside it first read it

    def refuses(self, later: _Region) -> str:
        """The reason why steps of `later`, which read this region, cannot join it; "" if they can
        (their index space apart).
        """
        if len(self.nodes) + len(later.nodes) > policy.PROGRAM_OPS:
            return f"{policy.PROGRAM_OPS} steps are enough for one kernel"
        if self.costly and later.reduces:
            return "what is costly would be computed again for a reduction"
        return ""

    def holds(self, space: Axes) -> bool:
        """Whether an index space equals this region's or broadcasts to it."""
        if space == self.space:
            return True
        sizes, conflict = broadcast((space, self.space))
        return conflict is None and tuple(sizes) == self.space

    def take(self, later: _Region) -> None:
        """Add the steps of another region."""
        self.nodes += later.nodes
        self.reduces |= later.reduces
        self.costly |= later.costly
        self.used = min(self.used, later.used)


class _Regions:
    """Greedy construction of regions: each step joins the regions of its inputs, where that makes
    no cycle.

    Regions and single steps are numbers; `above` says what each depends on directly, `before` (one
    bit a number) on what at all.
    """

    def __init__(self) -> None:
        self.merged: list[int] = []  # union-find: the number into which each was merged, or itself
        self.above: list[set[int]] = []
        self.before: list[int] = []
        self.needed: set[int] = set()  # numbers on which others depend
        self.home: dict[Node, int] = {}
        self.regions: dict[int, _Region] = {}
        self.cuts: list[tuple[Node, str]] = []
        self.computed = 0  # bytes so far
        self.done: dict[Node, int] = {}  # the bytes that were computed when a step was over

    def find(self, number: int) -> int:
        """The representative of a number (union-find)."""
        while self.merged[number] != number:
            number = self.merged[number]
        return number

    def new(self, above: set[int]) -> int:
        """A new number that depends on `above`."""
        self.merged.append(len(self.merged))
        self.above.append(above)
        self.before.append(self._with_before(above))
        self.needed |= above
        return len(self.merged) - 1

    def _with_before(self, numbers: set[int]) -> int:
        """Bit set of these numbers and all that they depend on."""
        bits = 0
        for n in numbers:
            bits |= self.before[n] | 1 << n
        return bits

    def depend(self, number: int, above: set[int]) -> None:
        """Make a number, and all that depends on it, depend on `above`."""
        self.above[number] |= above
        self.needed |= above
        gained = self._with_before(above) & ~self.before[number]
        if gained:
            before = self.before
            before[number] |= gained
            if number in self.needed:
                for n in [n for n, bits in enumerate(before) if bits >> number & 1]:
                    before[n] |= gained

    def reaches(self, start: set[int], target: int) -> bool:
        """Whether one of `start` is the target or depends on it."""
        return any(n == target or self.before[n] >> target & 1 for n in start)

    def add(self, node: Node, role: Role | str, apart: Value | None = None) -> None:
        """Place the next step, in another region than the input `apart`."""
        parents = {self.find(self.home[x.node]) for x in node.values if x.node is not None}
        if isinstance(role, str):
            self.cuts.append((node, role))
            self.home[node] = self.new(parents)
            self._use(parents)
            return
        shapes = [x.shape for x in node.values]
        if not role.reduces:  # which may span more than its inputs, as what is placed does
            shapes += [y.shape for y in node.outputs]
        step = _Region(broadcast_shapes(*shapes))
        step.nodes, (step.reduces, step.costly) = [node], role
        chosen: int | None = None
        joining = parents & self.regions.keys()
        if apart is not None and apart.node is not None:
            joining.discard(self.find(self.home[apart.node]))
            self.cuts.append((node, "a term of a long sum is added, and freed, when it is there"))
        for parent in sorted(joining, reverse=True):
            region = self.regions[parent]
            if region.refuses(step) or not region.holds(step.space):
                continue
            if not (self.reaches(parents - {parent}, parent) or self._waits(region, step, parent)):
                region.take(step)
                chosen = parent
                break
        if chosen is None:
            chosen = self.new(set(parents))
            self.regions[chosen] = step
        else:
            self.depend(chosen, parents - {chosen})
        self.home[node] = chosen
        for other in sorted(joining - {chosen}, reverse=True):
            reason = self.merge(chosen, other)
            if reason:
                self.cuts.append((node, reason))
        self._use({self.find(n) for n in parents} - {self.find(chosen)})

    def _waits(self, region: _Region, later: _Region, *within: int) -> bool:
        """Whether merging `later` into `region` would delay the first reader of `region` behind
        much work (`policy.APART` bytes) that this reader does not need.
        """
        stack = [x.node for node in later.nodes for x in node.values]
        seen: set[Node] = set()
        total = 0
        while stack and total <= policy.APART:
            node = stack.pop()
            if node is None or node in seen or self.done[node] <= region.used:
                continue
            seen.add(node)
            if self.find(self.home[node]) not in within:
                total += node.nbytes
                stack += [x.node for x in node.values]
        return total > policy.APART

    def _use(self, numbers: set[int]) -> None:
        """Note that a step outside these regions reads them now."""
        for n in numbers & self.regions.keys():
            self.regions[n].used = min(self.regions[n].used, self.computed)

    def merge(self, into: int, other: int) -> str:
        """Merge two regions, of which the first reads the second; returns the reason if they do not
        fit, else "".
        """
        first, second = self.regions[into], self.regions[other]
        reason = second.refuses(first)
        if not reason and first.space != second.space:
            reason = f"{shown(first.space)} is not the index space {shown(second.space)}"
        outside = {self.find(n) for n in self.above[into]} - {other, into}
        if not reason and self.reaches(outside, other):
            reason = "a step that is no kernel's lies between"
        if not reason and self._waits(second, first, into, other):
            reason = "what reads the first results would wait for much that lies between"
        if not reason:
            second.take(first)
            self.regions[into] = second
            self.merged[other] = into
            above = {self.find(n) for n in self.above[other]} - {into}
            self.above[into] = outside
            self.depend(into, above)
            self.needed.add(into)
            for n, bits in enumerate(self.before):  # what has read one of them depends on both
                if bits >> other & 1 and n != into:
                    self.before[n] = bits | self.before[into] | 1 << into
            del self.regions[other]
        return reason


# ---- kernels -------------------------------------------------------------------------------------


class Traced(Protocol):
    """A value of a region in the form from which kernels are generated."""

    number: int  # greater than those of its inputs
    op: str
    inputs: tuple[Any, ...]
    axes: Axes  # that it varies over
    dtype: str
    attr: Any  # of an input its position and dtype, of a reduction its axes


class KernelOutput(NamedTuple):
    """An output of a region: its value, and the axes along which it has more than one element."""

    value: Any
    axes: Axes
    dtype: str
    shape: Axes


class PlannedKernel:
    """A planned kernel: its reduced axes, results, loads, and the reason why it is a kernel of its
    own.
    """

    def __init__(self, axes: Axes, reason: str) -> None:
        self.axes = axes
        self.reason = reason
        self.results: list[
            tuple[int, KernelOutput]
        ] = []  # outputs of the region, with their numbers
        self.outputs: list[Any] = []  # values that later kernels load
        # ("input", position), or of an earlier kernel ("value", number) or ("output", number).
        self.loads: list[tuple[str, int]] = []
        self.known: dict[
            int, tuple[int, KernelOutput]
        ] = {}  # value -> the earlier output that has it
        self.values: list[Any] = []  # in order, loaded ones included


class Device(NamedTuple):
    """Properties of a GPU that guide the partition: there memory costs more than arithmetic.
    Kernels load a large output written by an earlier kernel where they would otherwise load more
    bytes, and reduce separately where their programs share columns.
    """

    itemsize: Mapping[str, int]  # of dtypes
    shares: Callable[[Axes, Axes], bool]  # for an index space, and axes that are reduced


def kernels(
    wanted: Sequence[KernelOutput], space: Axes, reductions: Collection[str],
    device: Device | None = None,
) -> list[PlannedKernel]:  # fmt: skip
    """The kernels that compute `wanted`, each value as early as possible; `reductions` are the
    names of reducing ops.
    """

    def is_shared(axes: Axes) -> bool:
        return device is not None and device.shares(space, axes)

    values = cone(w.value for w in wanted)
    needs: dict[int, frozenset[int]] = {}  # reductions that a value depends on, itself among them
    for v in values:
        own = {v.number} if v.op in reductions else ()
        needs[v.number] = frozenset(own).union(*(needs[x.number] for x in v.inputs))
    parts: list[PlannedKernel] = []
    stage_of: dict[int, int] = {}
    remaining = [v for v in values if v.op in reductions]
    while remaining:
        axes, group = _next_group(remaining, needs, set(stage_of))
        if is_shared(axes):  # one after another
            group = {n for n in group if needs[n] & group == {n}}
        stage_of |= dict.fromkeys(group, len(parts))
        parts.append(PlannedKernel(axes, f"reductions over axes {axes} of {shown(space)}"))
        remaining = [v for v in remaining if v.number not in group]
    home = {n: max((stage_of[r] for r in needs[n]), default=-1) for n in needs}
    whole = tuple(d for d, n in enumerate(space) if n != 1)
    simple: dict[Axes, PlannedKernel] = {}  # kernels without reductions, by their axes
    for j, w in enumerate(wanted):
        stage = home[w.value.number]
        if stage >= 0 and not (w.axes == whole and is_shared(parts[stage].axes)):
            part = parts[stage]
        elif stage >= 0:
            reason = f"programs share what is reduced of {shown(space)}"
            part = simple.setdefault(w.axes, PlannedKernel((), reason))
        elif parts and w.axes == whole:
            part = parts[0]
        else:
            reason = f"a result along axes {w.axes} of {shown(space)}, before any reduction"
            part = simple.setdefault(w.axes, PlannedKernel((), reason))
        part.results.append((j, w))
    last = [(part, -1) for part in simple.values()]
    numbered = [(part, i) for i, part in enumerate(parts)]
    # Those that run last are the first to say what they load.
    for part, i in [*last, *reversed(numbered)]:
        if device is not None:
            before = [
                each for earlier in parts[: i if i >= 0 else None] for each in earlier.results
            ]
            outputs = {w.value.number: (j, w) for j, w in before if w.axes == whole}
            part.known = _cheaper(part, i, parts, home, outputs, device.itemsize)
        _fill(part, i, parts, home)
    return [*parts, *simple.values()]


def _next_group(
    remaining: Sequence[Traced], needs: dict[int, frozenset[int]], done: set[int]
) -> tuple[Axes, set[int]]:
    """The reductions over one set of axes to compute next: preferably all over those axes."""
    choices = []
    for axes in dict.fromkeys(v.attr for v in remaining):
        group: set[int] = set()
        same = [v.number for v in remaining if v.attr == axes]
        for n in same:
            if needs[n] <= done | group | {n}:
                group.add(n)
        if group:
            choices.append((len(group) < len(same), min(group), axes, group))
    _, _, axes, group = min(choices, key=lambda choice: choice[:2])
    return axes, group


def _is_loaded(
    v: Traced, part: PlannedKernel, i: int, parts: Sequence[PlannedKernel], home: dict[int, int]
) -> bool:
    """Whether kernel number `i` loads the value `v` rather than computing it."""
    if v.op == "input" or v.number in part.known:
        return True
    earlier = home[v.number]
    return earlier >= 0 and earlier != i and not set(v.axes) & set(parts[earlier].axes)


def _fill(
    part: PlannedKernel, i: int, parts: Sequence[PlannedKernel], home: dict[int, int]
) -> None:
    """Fill in the values that kernel number `i` computes and loads; the latter become outputs of
    earlier kernels.
    """

    def is_loaded(v: Traced) -> bool:
        return _is_loaded(v, part, i, parts, home)

    for v in cone([*(w.value for _, w in part.results), *part.outputs], is_loaded):
        part.values.append(v)
        if v.op == "input":
            part.loads.append(("input", v.attr[0]))
        elif v.number in part.known:
            part.loads.append(("output", part.known[v.number][0]))
        elif is_loaded(v):
            part.loads.append(("value", v.number))
            outputs = parts[home[v.number]].outputs
            if v not in outputs:
                outputs.append(v)


def _cheaper(
    part: PlannedKernel, i: int, parts: Sequence[PlannedKernel], home: dict[int, int],
    outputs: Mapping[int, tuple[int, KernelOutput]], itemsize: Mapping[str, int],
) -> dict[int, tuple[int, KernelOutput]]:  # fmt: skip
    """Outputs of earlier kernels, by their values, whose use lets kernel number `i` load the fewest
    bytes.
    """
    roots = [*(w.value for _, w in part.results), *part.outputs]
    most = max((len(w.axes) for _, w in outputs.values()), default=0)

    def loaded(known: dict[int, tuple[int, KernelOutput]]) -> tuple[int, set[int]]:
        """Bytes loaded per element of large values, and the numbers of the values involved."""
        part.known = known
        reached = cone(roots, lambda v: _is_loaded(v, part, i, parts, home))
        large = [v for v in reached if len(v.axes) == most]
        dtypes = [v.attr[1] for v in large if v.op == "input"]
        dtypes += [known[v.number][1].dtype for v in large if v.number in known]
        return sum(itemsize[dtype] for dtype in dtypes), {v.number for v in reached}

    chosen: dict[int, tuple[int, KernelOutput]] = {}
    least, reached = loaded(chosen)
    for number in sorted(outputs, reverse=True):
        _, w = outputs[number]
        exact = w.dtype == w.value.dtype or (w.value.op, w.value.attr) == ("cast", (w.dtype,))
        if number in reached and exact:
            each = {**chosen, number: outputs[number]}
            now, within = loaded(each)
            if now < least:
                chosen, least, reached = each, now, within
    return chosen


def cone(values: Iterable[Any], is_end: Callable[[Any], bool] | None = None) -> list[Any]:
    """`values` and all values that they are computed from, in order; values for which `is_end` is
    true are not followed.
    """
    members: dict[int, Any] = {}
    stack = list(values)
    while stack:
        v = stack.pop()
        if v.number not in members:
            members[v.number] = v
            if is_end is None or not is_end(v):
                stack.extend(v.inputs)
    return [members[n] for n in sorted(members)]
