"""Basic passes over static graphs: each is a function that changes a graph, keeps what it computes,
and returns how many changes it made.

They work with the registry's own ops, so the graph can be exported after them; passes to ops that
only the executing code has are in `layers`, `patterns` and `kernels`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any

from ...core import policy
from ...core.errors import Unsupported
from ...core.op import Op
from ...core.spec import Spec, prod
from ...core.symbolic_sizes import all_known, is_size
from ...ir.compute import spec_of
from ...ir.program import Node, Program, Value
from ...ir.rewriting import rewriting
from ...ops.elementwise.arithmetic import Add, Mul, Sub, TrueDivide
from ...ops.elementwise.comparison import Clamp, ClampMax, ClampMin
from ...ops.elementwise.pointwise import Elementwise
from ...ops.promotion import Cast
from ...ops.shape.movement import Expand, Permute, Reshape
from ...runtime.lazy import run

if TYPE_CHECKING:
    from ...autograd.protocols import BackendArray

PRODUCTS = ("product", "linear", "linear_input", "linear_weight")  # `Op.library`
EXACT = ("float32", "float64")  # dtypes of layers into whose weights scales are multiplied


class Same(Op, abstract=True):
    """Copy: the value of its input in other memory."""

    def infer(self, x: Spec) -> Spec:
        """Spec of the input."""
        return x

    def compute(self, xp: Any, x: BackendArray) -> BackendArray:
        """Copy the array."""
        return x.copy()

    @property
    def name(self) -> str:
        """Name in listings."""
        return "copy"


SAME = Same()


class Folds:
    """Cache of folded constants, by op and inputs, shared by graphs for several shapes; bounded by
    its number of elements.
    """

    def __init__(self) -> None:
        self.values: dict[Any, tuple[Value, ...]] = {}
        self.elements = 0
        self._alive: list[Any] = []  # objects whose ids are in keys

    def of(self, op: Op, *inputs: Any) -> tuple[Value, ...] | None:
        """Results of `op` for constants and numbers; None where that would take too much memory."""
        key = (_identity_of(op), *map(_key, inputs))
        constants = self.values.get(key)
        if constants is None:
            specs = _specs(op, inputs)
            if not all(all_known(spec.shape) for spec in specs):
                if op.view:
                    return None
                raise Unsupported(f"compile: {op.name} is a constant for each size")
            size = 0 if op.view else sum(prod(spec.shape) for spec in specs)
            if self.elements + size > policy.FOLDED_ELEMENTS:
                return None
            arrays = run(op, [x.array if isinstance(x, Value) else x for x in inputs])
            arrays = arrays if type(arrays) is tuple else (arrays,)
            name = inputs[0].name if op.view and isinstance(inputs[0], Value) else ""
            constants = tuple(Value(spec_of(a), array=a, name=name) for a in arrays)
            self.values[key] = constants
            self._alive.append(inputs)
            self.elements += size
        return constants

    def one(self, op: Op, *inputs: Any) -> Value | None:
        """Result of an op of one output for constants."""
        constants = self.of(op, *inputs)
        return None if constants is None else constants[0]


def _specs(op: Op, inputs: tuple[Any, ...]) -> tuple[Spec, ...]:
    inferred_specs = op.infer(*(x.spec if isinstance(x, Value) else x for x in inputs))
    return (inferred_specs,) if isinstance(inferred_specs, Spec) else tuple(inferred_specs)


def is_constant(x: object) -> bool:
    """Whether `x` is a number or a constant value."""
    return not isinstance(x, Value) or x.array is not None


@rewriting
def fold_constants(graph: Program, folds: Folds) -> int:
    """Compute nodes that depend on constants only; returns how many values."""
    changes: dict[Value, Value] = {}
    kept = []
    for node in graph.renewed(changes):
        inputs = node.inputs
        folded = not node.op.drawn and all(map(is_constant, inputs))
        constants = folds.of(node.op, *inputs) if folded else None
        if constants is None:
            kept.append(node)
        else:
            changes.update(zip(node.outputs, constants, strict=True))
    graph.nodes = kept
    graph.replace(changes)
    return len(changes)


@rewriting
def drop_dead(graph: Program) -> int:
    """Drop nodes that no output depends on; returns how many."""
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
    """Sort the nodes topologically, with as few moves as possible."""
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
    """Common subexpression elimination: compute nodes with equal ops and the same inputs once, also
    where operands that commute are in another order. Returns how many values.
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


def form_of(op: Op, inputs: Iterable[Any]) -> tuple[Any, ...]:
    """Key of an op applied to inputs with these keys; equal for equal results."""
    keys = list(inputs)
    if isinstance(op, (Add, Mul)):  # commutative
        keys.sort(key=repr)
    return (_identity_of(op), *keys)


def expression_of(y: object, x: Value, depth: int) -> Hashable:
    """Key of the expression that computes `y` from `x`, up to a depth of ops; equal for equal
    computations.
    """
    if y is x:
        return "x"
    if not isinstance(y, Value) or y.node is None or not depth:
        return _key(y)
    inputs = [expression_of(each, x, depth - 1) for each in y.node.inputs]
    return form_of(y.node.op, inputs)


def _key(x: object) -> Hashable:
    return id(x) if isinstance(x, Value) else (type(x), repr(x))  # repr: 0.0 is not -0.0


def _identity_of(op: Op) -> Hashable:
    """Hashable key of an op, also if it has slices as fields."""
    try:
        hash(op)
    except TypeError:
        fields = getattr(type(op), "__dataclass_fields__", ())
        return type(op), tuple([_form(getattr(op, name)) for name in fields])
    return op


def _form(x: object) -> Hashable:
    """Hashable key of an op's field, or of a part of one; equal for equal fields."""
    if isinstance(x, (tuple, list)):
        return type(x), tuple(map(_form, x))
    if type(x) is slice:
        return slice, _form(x.start), _form(x.stop), _form(x.step)
    return x if is_size(x) else (type(x), repr(x))


@rewriting
def drop_identities(graph: Program) -> int:
    """Drop ops that give their input: casts to the same dtype, reshapes to the same shape, identity
    permutations, products and quotients with 1. Join reshapes of reshapes and permutations of
    permutations. Returns how many.
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
    """Let elementwise ops broadcast operands that were expanded for them, where results are large;
    returns how many.
    """
    count = 0
    for node in graph.nodes:
        if not isinstance(node.op, Elementwise) or len(node.values) < 2:
            continue
        expanded = [x for x in node.values if x.node is not None and isinstance(x.node.op, Expand)]
        if not expanded or prod(node.output.shape) < policy.EXPANDED:
            continue
        for i, x in enumerate(node.inputs):
            if isinstance(x, Value) and x in expanded and x.node is not None:
                inputs = (*node.inputs[:i], x.node.inputs[0], *node.inputs[i + 1 :])
                if _specs(node.op, inputs) == tuple(y.spec for y in node.outputs):
                    node.inputs = inputs
                    count += 1
    return count


@rewriting
def inline_numbers(graph: Program) -> int:
    """Inline 0-d constants as Python numbers, where the other operand has their dtype; returns how
    many.
    """
    count = 0
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
            continue  # a number has no device
        inlined = set(numbers)
        node.inputs = tuple(
            float(x.array) if isinstance(x, Value) and x in inlined else x for x in node.inputs
        )
        count += len(numbers)
    for node in graph.nodes:  # numbers come second, where the order does not matter
        if isinstance(node.op, (Add, Mul)) and not isinstance(node.inputs[0], Value):
            node.inputs = node.inputs[::-1]
    return count
