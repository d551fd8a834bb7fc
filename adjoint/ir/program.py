"""The IR: a Program of values and the nodes that compute them, and its verifier.

Every capture gives a `Program`; passes change programs or make others of their nodes; kernels are
written from them. A value or a node may stand in several programs: what one computes another may be
given.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ..core.errors import GraphError
from ..core.op import Op
from ..core.spec import Spec, prod


@functools.lru_cache(maxsize=1 << 10)
def _shared(spec: Spec) -> Spec:
    """Intern a spec: equal specs of recent values become one object."""
    return spec


class Value:
    """A value in a program: an output of a node, an input, or a constant."""

    __slots__ = ("array", "index", "name", "node", "spec")

    spec: Spec
    node: Node | None  # computes it, in this program or another; None for inputs and constants
    index: int  # which output of the node
    array: Any  # a constant's; None for everything else
    name: str  # of an input or a parameter; "" for others

    def __init__(
        self, spec: Spec, node: Node | None = None, index: int = 0, array: Any = None,
        name: str = "",
    ) -> None:  # fmt: skip
        try:
            self.spec = _shared(spec)
        except TypeError:  # of sizes that are not known yet
            self.spec = spec
        self.node = node
        self.index = index
        self.array = array
        self.name = name

    @staticmethod
    def like(x: Value, spec: Spec) -> Value:
        """A value of another spec in the place of `x`, which no node computes yet."""
        made = object.__new__(Value)
        made.spec, made.node, made.index, made.array, made.name = spec, None, x.index, None, x.name
        return made

    @property
    def op(self) -> Op | None:
        """The op that computes it; None for inputs and constants."""
        return None if self.node is None else self.node.op

    @property
    def module(self) -> str:
        """The module in whose call it was recorded; see `Node`."""
        return "" if self.node is None else self.node.module

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes."""
        return self.spec.shape

    @property
    def nbytes(self) -> int:
        """The size in bytes of its elements."""
        return prod(self.spec.shape) * self.spec.dtype.itemsize

    def __repr__(self) -> str:
        kind = self.name or ("input" if self.node is None else self.node.op.name)
        return f"<{kind} {self.spec.shape} {self.spec.dtype}>"


class _Passing(threading.local):
    """Per-thread state: the module of the node that a pass is at, which is that of the nodes that
    it makes instead.
    """

    module = ""


_PASSING = _Passing()


class Node:
    """One application of an op to values and Python numbers."""

    __slots__ = ("inputs", "module", "op", "outputs")

    op: Op
    inputs: tuple[Any, ...]
    outputs: tuple[Value, ...]
    module: str  # path of the module in whose call it was recorded, or whose gradient it is of

    def __init__(self, op: Op, inputs: Iterable[Any], specs: Iterable[Spec]) -> None:
        self.op = op
        self.inputs = tuple(inputs)
        self.outputs = tuple(Value(spec, self, i) for i, spec in enumerate(specs))
        self.module = _PASSING.module

    @property
    def output(self) -> Value:
        """The only output."""
        (value,) = self.outputs
        return value

    @property
    def values(self) -> tuple[Value, ...]:
        """The inputs that are values, not Python numbers."""
        return tuple([x for x in self.inputs if type(x) is Value])

    @property
    def nbytes(self) -> int:
        """The size in bytes of all outputs."""
        return sum(y.nbytes for y in self.outputs)

    def __repr__(self) -> str:
        return f"<{self.op!r} of {', '.join(map(repr, self.inputs))}>"


def inferred(op: Op, inputs: Iterable[Any]) -> tuple[Spec, ...]:
    """The specs of the outputs of `op` on values and numbers.

    Errors: those of `op.infer`.
    """
    specs = op.infer(*(x.spec if isinstance(x, Value) else x for x in inputs))
    return (specs,) if isinstance(specs, Spec) else tuple(specs)


def elements(node: Node) -> int:
    """The elements of the largest value of a node: about its operations, where it is pointwise."""
    return max(prod(x.shape) for x in (*node.values, *node.outputs))


def modules_of(nodes: Sequence[Node]) -> str:
    """The module of the costliest of several nodes that become one, and how many others there are:
    "blocks.3.fc, +2".
    """
    paths = {node.module for node in nodes} - {""}
    if len(paths) < 2:
        return "".join(paths)
    first = max((node for node in nodes if node.module), key=elements).module
    return f"{first.partition(', +')[0]}, +{len(paths) - 1}"


def make(op: Op, *inputs: Any) -> Node:
    """A node whose outputs have the specs that the op infers."""
    return Node(op, inputs, inferred(op, inputs))


def take_apart(nodes: Iterable[Node]) -> None:
    """Break the reference cycles between nodes of a discarded program and their outputs, which
    would otherwise stay until the garbage collector runs. The values then are names only.
    """
    for node in nodes:
        for y in node.outputs:
            y.node = None


class Program:
    """A computation without Python: nodes in topological order."""

    __slots__ = ("inputs", "nodes", "outputs", "rows")

    inputs: list[Value]
    nodes: list[Node]
    outputs: list[Value]
    rows: int  # rows of most results, by which threads share its steps; 0: they do not

    def __init__(
        self, inputs: Iterable[Value], nodes: Iterable[Node], outputs: Iterable[Value]
    ) -> None:
        self.inputs = list(inputs)
        self.nodes = list(nodes)
        self.outputs = list(outputs)
        self.rows = 0

    def users(self) -> dict[Value, list[Node]]:
        """The nodes that read each value, once per read."""
        readers: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for x in node.values:
                readers.setdefault(x, []).append(node)
        return readers

    def constants(self) -> Iterator[Value]:
        """The constants that nodes or outputs read, each once."""
        seen = set()
        for x in (*(x for node in self.nodes for x in node.values), *self.outputs):
            if x.array is not None and x not in seen:
                seen.add(x)
                yield x

    def needed(self, values: Iterable[Value]) -> set[Value]:
        """`values` and all that they are computed from, up to the inputs."""
        inputs = set(self.inputs)
        reached: set[Value] = set()
        stack = list(values)
        while stack:
            x = stack.pop()
            if x not in reached:
                reached.add(x)
                if x.node is not None and x not in inputs:
                    stack.extend(x.node.values)
        return reached

    def between(self, inputs: Iterable[Value], outputs: Iterable[Value]) -> Program:
        """The subprogram from `inputs` to `outputs`, which are values of this program."""
        part = Program(inputs, (), outputs)
        needed = part.needed(part.outputs)
        sources = set(part.inputs)
        needed -= sources
        part.nodes = [node for node in self.nodes if not needed.isdisjoint(node.outputs)]
        return part

    def with_inputs(self, further: Iterable[Value], changes: Mapping[Value, Value]) -> Program:
        """A program for an equal computation with additional inputs, which replace values as
        `changes` maps them; nodes that change are copied.
        """
        now = dict(changes)
        nodes = []
        for node in self.nodes:
            inputs = [now.get(x, x) if isinstance(x, Value) else x for x in node.inputs]
            if any(x is not y for x, y in zip(inputs, node.inputs, strict=True)):
                copy = Node(node.op, inputs, [y.spec for y in node.outputs])
                copy.module = node.module
                for y, other in zip(node.outputs, copy.outputs, strict=True):
                    now.setdefault(y, other)
                node = copy
            nodes.append(node)
        outputs = [now.get(y, y) for y in self.outputs]
        inputs = [*self.inputs, *further]
        return Program(inputs, nodes, outputs).between(inputs, outputs)

    def copied(self, given: Mapping[Value, Value] = MappingProxyType({})) -> Program:
        """A copy with nodes of its own, independent of later changes to these. `given` maps inputs
        to the values that replace them.
        """
        now = dict(given)
        nodes = []
        for node in self.nodes:
            inputs = [now.get(x, x) if type(x) is Value else x for x in node.inputs]
            nodes.append(Node(node.op, inputs, [y.spec for y in node.outputs]))
            nodes[-1].module = node.module
            now.update(zip(node.outputs, nodes[-1].outputs, strict=True))
        inputs, outputs = ([now.get(x, x) for x in each] for each in (self.inputs, self.outputs))
        return Program(inputs, nodes, outputs)

    def renewed(self, changes: Mapping[Value, Value]) -> Iterator[Node]:
        """Yield the nodes in order, each after its inputs have been replaced as `changes` maps them
        at that moment.
        """
        try:
            for node in self.nodes:
                node.inputs = tuple(
                    [changes.get(x, x) if type(x) is Value else x for x in node.inputs]
                )
                _PASSING.module = node.module
                yield node
        finally:
            _PASSING.module = ""

    def replace(self, changes: Mapping[Value, Value]) -> None:
        """Replace values by others wherever nodes or outputs read them; chains of replacements are
        followed.
        """
        if not changes:
            return

        def final(x: Any) -> Any:
            while isinstance(x, Value) and x in changes:
                x = changes[x]
            return x

        for node in self.nodes:
            if any(x in changes for x in node.values):
                node.inputs = tuple(map(final, node.inputs))
        self.outputs = list(map(final, self.outputs))

    def verify(self) -> None:
        """Check that each value is computed before it is read, and has the spec that its op infers.

        Errors: GraphError names the node.
        """
        available = set(self.inputs)
        made: set[Value] = set()
        for node in self.nodes:
            for x in node.values:
                if x.array is None and x not in available:
                    raise GraphError(f"{node!r} reads {x!r} before it is computed")
            specs = tuple(y.spec for y in node.outputs)
            if inferred(node.op, node.inputs) != specs:
                raise GraphError(f"{node!r} gives {inferred(node.op, node.inputs)}, not {specs}")
            for i, y in enumerate(node.outputs):
                if y.node is not node or y.index != i or y in made:
                    raise GraphError(f"{node!r}: output {i} is not its own")
            made.update(node.outputs)
            available.update(node.outputs)
        for y in self.outputs:
            if y.array is None and y not in available:
                raise GraphError(f"the output {y!r} is not computed")

    def __repr__(self) -> str:
        counts = f"{len(self.inputs)} inputs, {len(self.nodes)} nodes, {len(self.outputs)} outputs"
        return f"<Program: {counts}>"
