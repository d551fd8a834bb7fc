"""Chains of elementwise ops and reductions as one kernel each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..backends import native
from ..core import dispatch_log, policy
from ..core.errors import AdjointError, NotTraceable
from ..core.op import Op
from ..core.spec import Spec, broadcast_shapes
from ..program.compute import compute
from ..program.program import Node, Program, Value

COSTLY = {
    "Exp", "Log", "Tanh", "Sigmoid", "Gelu", "Silu", "Erf", "Softplus", "Mish", "Softmax", "Power",
    "Sin", "Cos", "Elu", "LogSoftmax",
}  # fmt: skip
REDUCING = {
    "Sum", "Mean", "Max", "Min", "Amax", "Amin", "Softmax", "LogSoftmax", "LogSumExp", "Prod",
    "Variance", "All", "Some",
}  # fmt: skip


class Kernel(Op, abstract=True):
    """Several ops at once, on the inputs of the group; equal only to itself."""

    library = "always"

    def __init__(self, nodes: Sequence[Node], inputs: Sequence[Value], outputs: Sequence[Value]):
        from ..backends.native.lowering.composite import Composite

        self.name_ = "_".join(node.op.name for node in nodes[:3]) + ("_..." if nodes[3:] else "")
        self.program = Program(inputs, nodes, outputs)
        self.specs = tuple(y.spec for y in outputs)
        self.n_outputs = len(outputs)  # type: ignore[misc]
        self.composite = Composite(self.program)
        if self.composite.guards or self.composite.gathers:
            raise NotTraceable("what an index picks")

    @property
    def name(self) -> str:
        """Its first ops."""
        return self.name_

    def infer(self, *specs: Spec) -> Any:
        """Those of the group's outputs."""
        return self.specs if len(self.specs) > 1 else self.specs[0]

    def compute(self, xp: Any, *arrays: Any) -> Any:
        """One op after another."""
        values = dict(zip(self.program.inputs, arrays, strict=True))
        for node in self.program.nodes:
            args = [values[x] if isinstance(x, Value) else x for x in node.inputs]
            values[node.output] = compute(node.op, args)
        found = tuple(values[y] for y in self.program.outputs)
        return found if len(found) > 1 else found[0]


def _traceable(node: Node) -> bool:
    """Whether kernels compute what the node does, as one of a kind that is worth it."""
    from ..ops.elementwise.namespace import Elementwise

    op = node.op
    if len(node.outputs) != 1 or op.view or op.library or not node.values:
        return False
    kind = type(op).__name__
    if not (isinstance(op, Elementwise) or kind in REDUCING or kind in ("Activation", "Cast",
            "MaskedFill", "BitwiseNot")):  # fmt: skip
        return False
    specs = [x.spec for x in (*node.values, node.output)]
    return all(s.dtype.category != 3 and 0 not in s.shape for s in specs)


def fuse_kernels(graph: Program) -> int:
    """Let groups of elementwise ops and reductions run as kernels; returns how many there are."""
    if not native.load():
        return 0
    groups = _grouped(graph)
    made = 0
    changes: dict[Value, Value] = {}
    places: dict[Node, list[Node]] = {}  # the last node of a group -> what takes its place
    gone: set[Node] = set()
    users = graph.users()
    outputs = set(graph.outputs)
    stack = list(reversed(groups))
    while stack:
        nodes = stack.pop()
        members = set(nodes)
        inputs = list(dict.fromkeys(
            x for node in nodes for x in node.values if x.node not in members))  # fmt: skip
        results = [
            node.output for node in nodes
            if node.output in outputs or any(u not in members for u in users[node.output])
        ]  # fmt: skip
        try:
            op = Kernel(nodes, inputs, results)
        except (NotTraceable, AdjointError) as error:
            if dispatch_log.on:
                names = "_".join(node.op.name for node in nodes)
                what = dispatch_log.named(names, [x.spec for x in inputs])
                dispatch_log.said(what, "several kernels" if nodes[1:] else "its op", error)
            if len(nodes) > 1:
                half = len(nodes) // 2
                stack += [nodes[half:], nodes[:half]]
            continue
        kernel = Node(op, inputs, op.specs)
        changes.update(zip(results, kernel.outputs, strict=True))
        gone |= members
        places[nodes[-1]] = [kernel]
        made += 1
    graph.nodes = [
        n for node in graph.nodes
        for n in (places.get(node, ()) if node in gone else (node,))
    ]  # fmt: skip
    graph.replace(changes)
    _sort(graph)
    return made


class _Group:
    """Nodes that are to be one kernel, over one index space."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.space: tuple[int, ...] = ()
        self.costly = self.reducing = False

    def takes(self, space: tuple[int, ...], reducing: bool) -> bool:
        """Whether ops over this space fit: the group's own, or a part of it."""
        if reducing and self.costly:
            return False  # what is costly would be computed again for each kernel
        if space == self.space:
            return True
        try:
            return broadcast_shapes(space, self.space) == self.space
        except AdjointError:
            return False


class _Grouping:
    """Which nodes go together: each joins the groups of its inputs, where that makes no cycle.

    Groups and single nodes are numbers; `above` says what each depends on directly.
    """

    def __init__(self) -> None:
        self.merged: list[int] = []  # the number that took a number's place, or itself
        self.above: list[set[int]] = []
        self.home: dict[Node, int] = {}
        self.groups: dict[int, _Group] = {}

    def find(self, number: int) -> int:
        """The number that stands for this one now."""
        while self.merged[number] != number:
            number = self.merged[number]
        return number

    def new(self, above: set[int]) -> int:
        """A number of its own."""
        self.merged.append(len(self.merged))
        self.above.append(above)
        return len(self.merged) - 1

    def reaches(self, start: set[int], target: int) -> bool:
        """Whether one of `start` is the target or depends on it."""
        seen = {self.find(n) for n in start}
        stack = list(seen)
        while stack:
            current = stack.pop()
            if current == target:
                return True
            fresh = {self.find(n) for n in self.above[current]} - seen
            seen |= fresh
            stack.extend(fresh)
        return False

    def add(self, node: Node, traceable: bool) -> None:
        """Place the next node."""
        parents = {self.find(self.home[x.node]) for x in node.values if x.node is not None}
        if not traceable:
            self.home[node] = self.new(parents)
            return
        space = broadcast_shapes(*(x.shape for x in node.values))
        kind = type(node.op).__name__
        chosen: int | None = None
        for parent in sorted(parents & self.groups.keys(), reverse=True):
            group = self.groups[parent]
            if len(group.nodes) >= policy.PROGRAM_OPS or not group.takes(space, kind in REDUCING):
                continue
            if not self.reaches(parents - {parent}, parent):
                chosen = parent
                break
        if chosen is None:
            chosen = self.new(set())
            self.groups[chosen] = _Group()
            self.groups[chosen].space = space
        group = self.groups[chosen]
        group.nodes.append(node)
        group.costly |= kind in COSTLY
        group.reducing |= kind in REDUCING
        self.home[node] = chosen
        self.above[chosen] |= parents - {chosen}
        for other in sorted(parents & self.groups.keys() - {chosen}, reverse=True):
            self.merge(chosen, other)

    def merge(self, into: int, other: int) -> None:
        """Join two groups, of which the first depends on the second, if they fit."""
        first, second = self.groups[into], self.groups[other]
        if len(first.nodes) + len(second.nodes) > policy.PROGRAM_OPS or first.space != second.space:
            return
        if first.reducing and second.costly:
            return
        outside = {self.find(n) for n in self.above[into]} - {other, into}
        if self.reaches(outside, other):
            return
        first.nodes = second.nodes + first.nodes
        first.costly |= second.costly
        first.reducing |= second.reducing
        self.merged[other] = into
        self.above[into] = (outside | {self.find(n) for n in self.above[other]}) - {into}
        del self.groups[other]


def _grouped(graph: Program) -> list[list[Node]]:
    """The groups, each in an order in which nodes follow their inputs."""
    grouping = _Grouping()
    for node in graph.nodes:
        grouping.add(node, _traceable(node))
    place = {node: i for i, node in enumerate(graph.nodes)}
    return [sorted(group.nodes, key=place.__getitem__) for group in grouping.groups.values()]


def _sort(graph: Program) -> None:
    """Bring the nodes into an order in which each follows its inputs, changing as little as it
    takes.
    """
    order: list[Node] = []
    placed: set[Node] = set()
    for first in graph.nodes:
        stack = [first]
        while stack:
            node = stack[-1]
            if node in placed:
                stack.pop()
                continue
            waiting = [x.node for x in node.values if x.node is not None and x.node not in placed]
            if waiting:
                stack.extend(reversed(waiting))
                continue
            stack.pop()
            placed.add(node)
            order.append(node)
    graph.nodes = order
