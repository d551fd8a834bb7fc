"""A second, slow account of a reactive graph: what each read must give, and exactly what it runs.

It keeps its own list of nodes and edges. Values are computed eagerly, from nothing, each time they
are asked for. What runs follows from the definition alone: a node that a read asks for asks its
inputs first, all of them, and runs if it never ran or has seen other versions of its inputs; a
value that was released is computed when a node that runs needs it. No staleness is kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import adjoint as ad

SEED = 7


@dataclass(frozen=True)
class Function:
    """What a node computes, and the primitives it is recorded as: (op, inputs) each, where an
    input is the number of an argument, or ~i for the result of step i.
    """

    compute: Callable[..., Any]
    steps: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def arity(self) -> int:
        """How many arguments it takes."""
        return 1 + max(i for _, inputs in self.steps for i in inputs)


def _one(op: str, compute: Callable[..., Any], arity: int = 1) -> Function:
    return Function(compute, ((op, tuple(range(arity))),))


FUNCTIONS = {
    "tanh": _one("Tanh", ad.tanh),
    "sin": _one("Sin", ad.sin),
    "relu": _one("Relu", ad.relu),
    "softmax": _one("Softmax", lambda x: x.softmax(1)),
    "double": _one("Mul", lambda x: x * 2.0),
    "plus_one": _one("Add", lambda x: x + 1.0),
    "add": _one("Add", lambda x, y: x + y, 2),
    "sub": _one("Sub", lambda x, y: x - y, 2),
    "mul": _one("Mul", lambda x, y: x * y, 2),
    "maximum": _one("Maximum", ad.maximum, 2),
    "matmul": _one("MatMul", lambda x, y: x @ y, 2),
    "sum": _one("Sum", lambda x: x.sum(dim=0, keepdim=True)),
    "total": _one("Sum", lambda x: x.sum(dim=(0, 1), keepdim=True)),
    "amax": _one("Amax", lambda x: x.amax(dim=1, keepdim=True)),
    "cumsum": _one("CumSum", lambda x: x.cumsum(1)),
    "transpose": _one("Permute", lambda x: x.transpose(0, 1)),
    "first_row": _one("BasicIndex", lambda x: x[0:1]),
    "clone": _one("Clone", lambda x: x.clone()),
    "sort": Function(lambda x: x.sort(dim=1)[0], (("ArgSort", (0,)), ("Gather", (0, ~0)))),
    "max": Function(
        lambda x: x.max(dim=1, keepdim=True)[0], (("Argmax", (0,)), ("Gather", (0, ~0)))
    ),
    "where": Function(lambda x, y: ad.where(x > 0, x, y), (("Gt", (0,)), ("Where", (~0, 0, 1)))),
    "split": Function(lambda x: x.split([1, 1], 0)[0], (("Split", (0,)), ("Item", (~0,)))),
    "std": Function(lambda x: x.std(1, keepdim=True), (("VarMean", (0,)), ("Item", (~0,)))),
}
VIEWS = frozenset(("Permute", "BasicIndex", "Split"))
_stamp = itertools.count(1).__next__


@dataclass(eq=False)
class Step:
    """One primitive: what the graph keeps as one cell."""

    op: str
    inputs: list[Step]
    cell: Any
    cutoff: bool = False
    version: int = field(default_factory=_stamp)
    seen: list[int] | None = None
    has_value: bool = False
    before: tuple[Any, bytes] | None = None  # the array it ran to last, and its bytes then

    def up_to_date(self) -> bool:
        """Whether no step above it would run, were its value there."""
        if self.op == "source":
            return True
        fresh = all(x.up_to_date() for x in self.inputs)
        return fresh and self.seen == [x.version for x in self.inputs]


@dataclass(eq=False)
class Node:
    """What a user has in hand: a source, or the value of a function."""

    kind: str  # "input", "parameter", "outside", "draw", or a function
    inputs: list[tuple[Node, bool]]  # and whether it is used detached
    tensor: Any  # None once the user's tensor has become another node (in-place)
    steps: list[Step]
    recorded: bool = True  # not under no_grad
    value: Any = None  # of sources
    draw: int = -1  # which of the graph's draws
    grad: Any = None  # what `.grad` must be
    wants: bool = False  # requires grad
    name: str = ""

    @property
    def step(self) -> Step:
        """The step whose value is this node's."""
        return self.steps[-1]

    @property
    def is_source(self) -> bool:
        """Whether it is assigned, not computed."""
        return self.kind in ("input", "parameter", "outside")

    def above(self) -> list[Node]:
        """Itself and all that it depends on."""
        found = {self: None}
        for node in (stack := [self]):
            for x, _ in node.inputs:
                if x not in found:
                    found[x] = None
                    stack.append(x)
        return list(found)

    def __repr__(self) -> str:
        inputs = ", ".join(x.name + (".detach()" if cut else "") for x, cut in self.inputs)
        return f"{self.name} = {self.kind}({inputs})"


class Oracle:
    """All nodes of one graph."""

    def __init__(self, cutoff: bool) -> None:
        self.nodes: list[Node] = []
        self.draws: list[tuple[int, ...]] = []  # the shapes drawn so far
        self.cutoff = cutoff

    def add(self, node: Node) -> Node:
        """Keep a new node."""
        node.name = f"n{len(self.nodes)}"
        self.nodes.append(node)
        return node

    def source(self, kind: str, tensor: Any, cell: Any, value: Any, wants: bool) -> Node:
        """A node that is assigned."""
        step = Step("source", [], cell, has_value=True)
        return self.add(Node(kind, [], tensor, [step], value=value, wants=wants))

    def draw(self, tensor: Any, shape: tuple[int, ...]) -> Node:
        """A node of random numbers."""
        step = Step("Uniform", [], tensor.node, self.cutoff)
        self.draws.append(shape)
        return self.add(Node("draw", [], tensor, [step], draw=len(self.draws) - 1))

    def call(self, kind: str, inputs: list[tuple[Node, bool]], tensor: Any, recorded: bool) -> Node:
        """A node that computes a function; checks how the graph has recorded it."""
        function = FUNCTIONS[kind]
        steps = self._steps(function, [x.step for x, _ in inputs], tensor.node)
        return self.add(Node(kind, inputs, tensor, steps, recorded))

    def _steps(self, function: Function, inputs: Sequence[Step], cell: Any) -> list[Step]:
        found: dict[int, Any] = {len(function.steps) - 1: cell}
        for i in reversed(range(len(function.steps))):  # from the result up to its hidden inputs
            op, places = function.steps[i]
            recorded = type(found[i].op).__name__
            assert recorded.replace("Reindex", "BasicIndex") == op  # of a tensor without rows
            assert len(found[i].cells) == len(places)
            for place, x in zip(places, found[i].cells, strict=True):
                if place < 0:
                    found[~place] = x
                else:
                    assert x is inputs[place].cell
        steps: list[Step] = []
        for i, (op, places) in enumerate(function.steps):
            above = [steps[~p] if p < 0 else inputs[p] for p in places]
            steps.append(Step(op, above, found[i], self.cutoff))
        return steps

    def copied(self, twin: Callable[[Any], Any], cell_of: Callable[[Any], Any]) -> Oracle:
        """The same of a copy of the graph: `twin` gives the copies of tensors."""
        other = Oracle(self.cutoff)
        other.draws = list(self.draws)
        steps: dict[Step, Step] = {}
        nodes: dict[Node, Node] = {}
        for node in self.nodes:
            for s in node.steps:
                steps[s] = Step(
                    s.op,
                    [],
                    cell_of(s.cell),
                    s.cutoff,
                    s.version,
                    None if s.seen is None else list(s.seen),
                    s.has_value,
                    s.before,
                )
            new = nodes[node] = Node(
                node.kind,
                [],
                None if node.tensor is None else twin(node),
                [steps[s] for s in node.steps],
                node.recorded,
                node.value,
                node.draw,
                node.grad if node.kind == "outside" else None,
                node.wants,
                node.name,
            )
            other.nodes.append(new)
        for old, new_step in steps.items():
            new_step.inputs = [steps[x] for x in old.inputs]
        for old_node, new_node in nodes.items():
            new_node.inputs = [(nodes[x], cut) for x, cut in old_node.inputs]
        return other

    # ---- values ----------------------------------------------------------------------------------

    def evaluate(self, targets: Iterable[Node]) -> dict[Node, Any]:
        """Eager tensors of `targets` and all above, computed from the sources' values."""
        generator = ad.Generator().manual_seed(SEED)
        with ad.no_grad():
            numbers = [
                ad.rand(shape, generator=generator, dtype=ad.float64) for shape in self.draws
            ]
        values: dict[Node, Any] = {}
        for start in targets:
            stack = [start]
            while stack:
                node = stack[-1]
                if node in values:
                    stack.pop()
                    continue
                waiting = [x for x, _ in node.inputs if x not in values]
                if waiting:
                    stack.extend(waiting)
                    continue
                stack.pop()
                if node.is_source:
                    values[node] = ad.tensor(node.value.copy(), requires_grad=node.wants)
                elif node.kind == "draw":
                    values[node] = numbers[node.draw]
                else:
                    inputs = [values[x].detach() if cut else values[x] for x, cut in node.inputs]
                    with ad.set_grad_enabled(node.recorded):
                        values[node] = FUNCTIONS[node.kind].compute(*inputs)
        return values

    def is_below(self, node: Node, other: Node) -> bool:
        """Whether `node` depends on `other`, or is it."""
        return other in node.above()

    # ---- what runs -------------------------------------------------------------------------------

    def read(self, target: Step) -> set[Any]:
        """The cells that a read of `target` runs; called after the read, whose values decide what
        was cut off.
        """
        ran: dict[Step, None] = {}
        self._ask(target, ran, {})
        self._need(target, ran)
        return {step.cell for step in ran}

    def _ask(self, step: Step, ran: dict[Step, None], asked: dict[Step, None]) -> None:
        if step in asked or step.op == "source":
            return
        asked[step] = None
        for x in step.inputs:
            self._ask(x, ran, asked)
        if step.seen != [x.version for x in step.inputs]:
            self._run(step, ran)

    def _need(self, step: Step, ran: dict[Step, None]) -> None:
        if not step.has_value:
            for x in step.inputs:
                self._need(x, ran)
            ran[step] = None
            self._take(step)

    def _run(self, step: Step, ran: dict[Step, None]) -> None:
        for x in step.inputs:
            self._need(x, ran)
        ran[step] = None
        self.has_run(step)

    def has_run(self, step: Step) -> None:
        """`step` was computed from its inputs as they are."""
        before = step.before if step.has_value else None
        self._take(step)
        step.seen = [x.version for x in step.inputs]
        if not (step.cutoff and step.op not in VIEWS and before and _same(before, step.before)):
            step.version = _stamp()

    def _take(self, step: Step) -> None:
        array = step.cell.array
        step.has_value = True
        plain = isinstance(array, np.ndarray)
        step.before = (array, array.tobytes() + str(array.shape).encode()) if plain else None


def _same(before: Any, now: Any) -> bool:
    return now is not None and before[1] == now[1] and not np.may_share_memory(before[0], now[0])
