"""Changes of a static graph that keep what it computes: each a function that says how many it made.

They work with the registry's own ops, so the graph can be exported after them; what the executing
code can do beyond those is in `layers`, `patterns` and `kernels`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..core import policy
from ..core.op import Op
from ..core.spec import Spec, prod
from ..graph.lazy import run
from ..ops.elementwise.arithmetic import Add, Mul, Sub, TrueDivide
from ..ops.elementwise.comparison import Clamp, ClampMax, ClampMin
from ..ops.elementwise.pointwise import Elementwise
from ..ops.promotion import Cast
from ..ops.shape.movement import Expand, Permute, Reshape
from ..program.compute import spec_of
from ..program.program import Node, Program, Value
from ..program.rewriting import rewriting

PRODUCTS = ("product", "linear", "linear_input", "linear_weight")  # `Op.library`
EXACT = ("float32", "float64")  # dtypes of layers into whose weights scales are multiplied


class Same(Op, abstract=True):
    """The value of its input, elsewhere in memory."""

    def infer(self, x: Any) -> Any:
        """The same."""
        return x

    def compute(self, xp: Any, x: Any) -> Any:
        """A copy."""
        return x.copy()

    @property
    def name(self) -> str:
        """As listings show it."""
        return "copy"


SAME = Same()


class Folds:
    """Constants that were computed, by op and constants, so that graphs for other shapes share
    them; and how many elements they have together.
    """

    def __init__(self) -> None:
        self.values: dict[Any, tuple[Value, ...]] = {}
        self.elements = 0
        self._alive: list[Any] = []  # what the keys' ids are of

    def of(self, op: Op, *inputs: Any) -> tuple[Value, ...] | None:
        """What `op` gives for constants and numbers; None where that would be too much memory."""
        key = (_identity_of(op), *map(_key, inputs))
        found = self.values.get(key)
        if found is None:
            specs = _specs(op, inputs)
            size = 0 if op.view else sum(prod(spec.shape) for spec in specs)
            if self.elements + size > policy.FOLDED_ELEMENTS:
                return None
            arrays = run(op, [x.array if isinstance(x, Value) else x for x in inputs])
            arrays = arrays if type(arrays) is tuple else (arrays,)
            name = inputs[0].name if op.view and isinstance(inputs[0], Value) else ""
            found = tuple(Value(spec_of(a), array=a, name=name) for a in arrays)
            self.values[key] = found
            self._alive.append(inputs)
            self.elements += size
        return found

    def one(self, op: Op, *inputs: Any) -> Value | None:
        """What an op of one output gives for constants."""
        found = self.of(op, *inputs)
        return None if found is None else found[0]


def _specs(op: Op, inputs: tuple[Any, ...]) -> tuple[Spec, ...]:
    found = op.infer(*(x.spec if isinstance(x, Value) else x for x in inputs))
    return (found,) if isinstance(found, Spec) else tuple(found)


def is_constant(x: Any) -> bool:
    """Whether `x` is a number or a constant value."""
    return not isinstance(x, Value) or x.array is not None


@rewriting
def fold_constants(graph: Program, folds: Folds) -> int:
    """Compute what depends on constants only."""
    changes: dict[Value, Value] = {}
    kept = []
    for node in graph.renewed(changes):
        inputs = node.inputs
        folded = not node.op.drawn and all(map(is_constant, inputs))
        found = folds.of(node.op, *inputs) if folded else None
        if found is None:
            kept.append(node)
        else:
            changes.update(zip(node.outputs, found, strict=True))
    graph.nodes = kept
    graph.replace(changes)
    return len(changes)


@rewriting
def drop_dead(graph: Program) -> int:
    """Drop nodes that no output needs."""
    needed = set(graph.outputs)
    kept = []
    for node in reversed(graph.nodes):
        if not needed.isdisjoint(node.outputs):
            needed.update(node.values)
            kept.append(node)
    dropped = len(graph.nodes) - len(kept)
    graph.nodes = kept[::-1]
    return dropped


def sort(graph: Program) -> None:
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


@rewriting
def merge_equal(graph: Program) -> int:
    """Compute only once what has equal ops and the same inputs (common subexpressions), in another
    order too where that gives the same.
    """
    changes: dict[Value, Value] = {}
    seen: dict[Any, Node] = {}
    kept = []
    for node in graph.renewed(changes):
        first = seen.setdefault(form_of(node.op, map(_key, node.inputs)), node)
        if first is node:
            kept.append(node)
        else:
            changes.update(zip(node.outputs, first.outputs, strict=True))
    graph.nodes = kept
    graph.replace(changes)
    return len(changes)


def form_of(op: Op, inputs: Iterable[Any]) -> Any:
    """What ops that give the same have in common, where these are the keys of their inputs."""
    keys = list(inputs)
    if isinstance(op, (Add, Mul)):  # whose operands may change places
        keys.sort(key=repr)
    return (_identity_of(op), *keys)


def expression_of(y: Any, x: Value, depth: int) -> Any:
    """How a value is computed from another one, so many ops up; equal for equal computations."""
    if y is x:
        return "x"
    if not isinstance(y, Value) or y.node is None or not depth:
        return _key(y)
    inputs = [expression_of(each, x, depth - 1) for each in y.node.inputs]
    return form_of(y.node.op, inputs)


def _key(x: Any) -> Any:
    return id(x) if isinstance(x, Value) else (type(x), repr(x))  # repr: 0.0 is not -0.0


def _identity_of(op: Op) -> Any:
    """What equal ops have in common, hashable: some have slices as fields."""
    try:
        hash(op)
    except TypeError:
        return type(op), repr(op)
    return op


@rewriting
def drop_identities(graph: Program) -> int:
    """Drop ops that give their input: casts to the same dtype, reshapes to the same shape,
    permutations that change nothing, products and quotients with 1; join reshapes of reshapes and
    permutations of permutations.
    """
    changes: dict[Value, Value] = {}
    joined = 0
    for node in graph.renewed(changes):
        x = node.inputs[0] if node.inputs else None
        if not isinstance(x, Value):
            continue
        before = x.node
        if before is not None and type(before.op) is type(node.op):
            if isinstance(node.op, Reshape):
                node.inputs = before.inputs
                joined += 1
            elif isinstance(node.op, Permute) and isinstance(before.op, Permute):
                node.op = Permute(tuple(before.op.axes[a] for a in node.op.axes))
                node.inputs = before.inputs
                joined += 1
            x = node.inputs[0]
        if _is_identity(node) and node.output.spec == x.spec:
            changes[node.output] = x
    graph.nodes = [node for node in graph.nodes if node.outputs[0] not in changes]
    graph.replace(changes)
    return len(changes) + joined


def _is_identity(node: Node) -> bool:
    op = node.op
    if isinstance(op, (Cast, Reshape, Expand)):
        return True  # where the spec is that of the input
    if isinstance(op, Permute):
        return list(op.axes) == sorted(op.axes)
    if isinstance(op, (Mul, TrueDivide)):
        return type(node.inputs[1]) in (int, float) and node.inputs[1] == 1
    return False


@rewriting
def drop_expansions(graph: Program) -> int:
    """Let elementwise ops broadcast what was expanded for them, where results are large."""
    found = 0
    for node in graph.nodes:
        if not isinstance(node.op, Elementwise) or len(node.values) < 2:
            continue
        if prod(node.output.shape) < policy.EXPANDED:
            continue
        for i, x in enumerate(node.inputs):
            if isinstance(x, Value) and x.node is not None and isinstance(x.node.op, Expand):
                inputs = (*node.inputs[:i], x.node.inputs[0], *node.inputs[i + 1 :])
                if _specs(node.op, inputs) == tuple(y.spec for y in node.outputs):
                    node.inputs = inputs
                    found += 1
    return found


@rewriting
def inline_numbers(graph: Program) -> int:
    """Write constants without dimensions as numbers, where the other operand has their dtype."""
    found = 0
    for node in graph.nodes:
        if not isinstance(node.op, (Add, Sub, Mul, TrueDivide, Clamp, ClampMin, ClampMax)):
            continue
        values = [x for x in node.values if x.array is None]
        numbers = [x for x in node.values if x.array is not None and not x.shape]
        if not values or any(x.spec.dtype.name not in EXACT for x in node.values):
            continue
        if any(x.spec.dtype is not values[0].spec.dtype for x in node.values):
            continue
        if all(x.spec.device != node.output.spec.device for x in values):
            continue  # a number says of no device
        known = set(numbers)
        node.inputs = tuple(
            float(x.array) if isinstance(x, Value) and x in known else x for x in node.inputs
        )
        found += len(numbers)
    for node in graph.nodes:  # numbers come second, where the order does not matter
        if isinstance(node.op, (Add, Mul)) and not isinstance(node.inputs[0], Value):
            node.inputs = node.inputs[::-1]
    return found
