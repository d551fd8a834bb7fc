"""Changes of a static graph that keep what it computes: each a function that says how many it made.

They work with the registry's own ops, so the graph can be exported after them; what the executing
code can do beyond those is in `epilogues` and `kernels`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.compute import spec_of
from ..core.op import Op
from ..core.spec import Spec, prod
from ..graph.recorded import run
from ..ops.activation import Elu, Gelu, Relu, Silu
from ..ops.arithmetic import Add, Mul, Sub, TrueDivide
from ..ops.comparison import Clamp, ClampMax, ClampMin
from ..ops.convolution import Convolution
from ..ops.functions import Sigmoid, Tanh
from ..ops.matmul import Linear, MatMul
from ..ops.movement import Expand, Permute, Reshape
from ..ops.promotion import Cast
from .graph import Node, StaticGraph, Value, make

FOLDED_ELEMENTS = 1 << 26  # of all constants that are computed while freezing
EXACT = ("float32", "float64")  # dtypes of layers into whose weights scales are multiplied


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
            if self.elements + size > FOLDED_ELEMENTS:
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


def fold_constants(graph: StaticGraph, folds: Folds) -> int:
    """Compute what depends on constants only."""
    changes: dict[Value, Value] = {}
    kept = []
    for node in graph.nodes:
        inputs = tuple(changes.get(x, x) if isinstance(x, Value) else x for x in node.inputs)
        found = folds.of(node.op, *inputs) if all(map(is_constant, inputs)) else None
        if found is None:
            kept.append(node)
        else:
            changes.update(zip(node.outputs, found, strict=True))
    graph.nodes = kept
    graph.replace(changes)
    return len(changes)


def drop_dead(graph: StaticGraph) -> int:
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


def merge_equal(graph: StaticGraph) -> int:
    """Compute only once what has equal ops and the same inputs (common subexpressions)."""
    changes: dict[Value, Value] = {}
    seen: dict[Any, Node] = {}
    kept = []
    for node in graph.nodes:
        inputs = tuple(changes.get(x, x) if isinstance(x, Value) else x for x in node.inputs)
        node.inputs = inputs
        key = (_identity_of(node.op), *map(_key, inputs))
        first = seen.setdefault(key, node)
        if first is node:
            kept.append(node)
        else:
            changes.update(zip(node.outputs, first.outputs, strict=True))
    graph.nodes = kept
    graph.replace(changes)
    return len(changes)


def _key(x: Any) -> Any:
    return id(x) if isinstance(x, Value) else (type(x), repr(x))  # repr: 0.0 is not -0.0


def _identity_of(op: Op) -> Any:
    """What equal ops have in common, hashable: some have slices as fields."""
    try:
        hash(op)
    except TypeError:
        return type(op), repr(op)
    return op


def drop_identities(graph: StaticGraph) -> int:
    """Drop ops that give their input: casts to the same dtype, reshapes to the same shape,
    permutations that change nothing, products and quotients with 1; join reshapes of reshapes and
    permutations of permutations.
    """
    changes: dict[Value, Value] = {}
    joined = 0
    for node in graph.nodes:
        node.inputs = tuple(changes.get(x, x) if isinstance(x, Value) else x for x in node.inputs)
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


# ---- numbers -----------------------------------------------------------------------------------


def inline_numbers(graph: StaticGraph) -> int:
    """Write constants without dimensions as numbers, where the other operand has their dtype."""
    found = 0
    for node in graph.nodes:
        if not isinstance(node.op, (*_RULES, Clamp, ClampMin, ClampMax)):
            continue
        values = [x for x in node.values if x.array is None]
        numbers = [x for x in node.values if x.array is not None and not x.shape]
        if not values or any(x.spec.dtype.name not in EXACT for x in node.values):
            continue
        if any(x.spec.dtype is not values[0].spec.dtype for x in node.values):
            continue
        known = set(numbers)
        node.inputs = tuple(
            float(x.array) if isinstance(x, Value) and x in known else x for x in node.inputs
        )
        found += len(numbers)
    for node in graph.nodes:  # numbers come second, where the order does not matter
        if isinstance(node.op, (Add, Mul)) and not isinstance(node.inputs[0], Value):
            node.inputs = node.inputs[::-1]
    return found


def hoist_through_views(graph: StaticGraph) -> int:
    """Compute with a layer's output before it is reshaped or permuted, instead of afterwards: there
    the layer can take factors, biases, activations and additions along.
    """
    users = graph.users()
    outputs = set(graph.outputs)
    found = 0
    nodes: list[Node] = []
    changes: dict[Value, Value] = {}
    for node in graph.nodes:
        node.inputs = tuple(changes.get(x, x) if isinstance(x, Value) else x for x in node.inputs)
        match = _hoisted(node, users, outputs)
        if match is None:
            nodes.append(node)
            continue
        view, before, operation = match
        nodes = [n for n in nodes if n is not view]
        again = make(view.op, operation.output)
        users[operation.output] = [again]
        users[again.output] = users.get(node.output, [])
        for each in before:
            users[each.output] = [operation]
            users.setdefault(each.inputs[0], []).append(each)
        nodes += [*before, operation, again]
        if node.output in outputs:
            outputs.add(again.output)
        changes[node.output] = again.output
        found += 1
    graph.nodes = nodes
    graph.replace(changes)
    return found


def _hoisted(
    node: Node, users: dict[Value, list[Node]], outputs: set[Value]
) -> tuple[Node, list[Node], Node] | None:
    """A view of a layer's output that `node` reads, what must be computed before, and the operation
    on the output itself.
    """
    count = len(node.inputs)
    if not (isinstance(node.op, _UNARY) or (isinstance(node.op, tuple(_RULES)) and count == 2)):
        return None
    places = range(2) if isinstance(node.op, (Add, Mul)) else range(1)
    for place in places[:count]:
        x = node.inputs[place]
        view = x.node if isinstance(x, Value) else None
        if view is None or not isinstance(view.op, (Reshape, Permute)) or x in outputs:
            continue
        if node.output.spec != x.spec or len(users.get(x, ())) != 1:
            continue
        if not _leads_to_layer(view, users, outputs):
            continue
        inner = view.inputs[0]
        if count == 1:
            return view, [], make(node.op, inner)
        other = node.inputs[1 - place]
        before: list[Node] = []
        if isinstance(other, Value):
            if not isinstance(view.op, Reshape) or other.spec.dtype is not x.spec.dtype:
                continue
            rows = len(inner.shape) > 1 and inner.shape[-1] == x.shape[-1]
            vector = other.array is not None and other.shape == x.shape[-1:]
            if other.shape == x.shape and other.array is None and _is_free(other):
                before = [make(Reshape(inner.shape), other)]
                other = before[0].output
            elif not (rows and vector):
                continue
        inputs = (inner, other) if place == 0 else (other, inner)
        return view, before, make(node.op, *inputs)
    return None


def _is_free(x: Value) -> bool:
    """Whether a reshape of the value is a view: it is computed, and lies in order."""
    return x.node is None or not x.node.op.view or isinstance(x.node.op, Reshape)


def _leads_to_layer(view: Node, users: dict[Value, list[Node]], outputs: set[Value]) -> bool:
    """Whether the view shows a layer's output that nothing else reads."""
    x = view.inputs[0]
    while isinstance(x, Value) and x.node is not None and len(users.get(x, ())) == 1:
        if x in outputs:
            return False
        if isinstance(x.node.op, (Convolution, Linear)):
            return all(v.array is not None for v in x.node.values[1:])
        if not isinstance(x.node.op, (Reshape, Permute)):
            return False
        x = x.node.inputs[0]
    return False


# ---- affine operations with constants ------------------------------------------------------------


def flatten_products(graph: StaticGraph, folds: Folds) -> int:
    """Let products with a constant matrix work on rows in any number of dimensions: as Linear,
    without the reshapes around them.
    """
    users = graph.users()
    outputs = set(graph.outputs)
    found = 0
    nodes: list[Node] = []
    changes: dict[Value, Value] = {}
    for node in graph.nodes:
        node.inputs = tuple(changes.get(x, x) if isinstance(x, Value) else x for x in node.inputs)
        nodes.append(node)
        if isinstance(node.op, MatMul):
            x, w = node.inputs
            if not (isinstance(w, Value) and w.array is not None and len(w.shape) == 2):
                continue
            if len(x.shape) < 2 or x.spec.dtype is not w.spec.dtype:
                continue
            weight = folds.one(Permute((1, 0)), w)
            if weight is None:
                continue
            inputs: tuple[Any, ...] = (x, weight)
        elif isinstance(node.op, Linear):
            inputs = node.inputs
        else:
            continue
        x = inputs[0]
        if isinstance(x.op, Reshape) and x.node is not None:
            whole = x.node.inputs[0]
            if len(whole.shape) > 1 and whole.shape[-1] == x.shape[-1]:
                made = make(Linear(), whole, *inputs[1:])
                after = users.get(node.output, [])
                back = [u for u in after if isinstance(u.op, Reshape)
                        and u.output.shape == made.output.shape]  # fmt: skip
                if len(back) == len(after) and back and node.output not in outputs:
                    nodes[-1] = made
                    changes.update((u.output, made.output) for u in back)
                    found += 1
                    continue
        if isinstance(node.op, MatMul):
            nodes[-1] = made = make(Linear(), *inputs)
            changes[node.output] = made.output
            found += 1
    graph.nodes = [n for n in nodes if n.outputs[0] not in changes]
    graph.replace(changes)
    return found


def fold_affine(graph: StaticGraph, folds: Folds) -> int:
    """Multiply scales and shifts of channels into the convolution or the linear layer before them:
    batch normalization in eval mode, biases that are added apart, factors.
    """
    users = graph.users()
    outputs = set(graph.outputs)
    changes: dict[Value, Value] = {}
    nodes: list[Node] = []
    found = 0
    for node in graph.nodes:
        node.inputs = tuple(changes.get(x, x) if isinstance(x, Value) else x for x in node.inputs)
        made = _absorbed(node, folds)
        if made is not None:
            layer, x = made
            alone = len(users.get(x, ())) == 1 and x not in outputs
            if alone:
                nodes = [n for n in nodes if n is not x.node]
                nodes.append(layer)
                changes[node.output] = layer.output
                users[layer.output] = users.get(node.output, [])
                if node.output in outputs:
                    outputs.add(layer.output)
                found += 1
                continue
        nodes.append(node)
    graph.nodes = nodes
    graph.replace(changes)
    return found


def _absorbed(node: Node, folds: Folds) -> tuple[Node, Value] | None:
    """The layer that does what `node` does to another layer's output, and that output."""
    rule = _RULES.get(type(node.op))
    if rule is None or len(node.inputs) != 2:
        return None
    for place, (x, other) in enumerate((node.inputs, node.inputs[::-1])):
        if not isinstance(x, Value) or x.node is None or not is_constant(other):
            continue
        if x.node.op.__class__ not in (Convolution, Linear) or node.output.spec != x.spec:
            continue
        w, *bias = x.node.inputs[1:]
        if not all(map(is_constant, (w, *bias))) or w.spec.dtype.name not in EXACT:
            continue
        along = _channels(x, other)
        if along is None or (bias and bias[0].shape != w.shape[:1]):
            continue
        parts = rule(folds, w, bias[0] if bias else None, along, place)
        if parts is None or any(p is not None and p.spec.dtype != w.spec.dtype for p in parts):
            continue
        return make(x.node.op, x.node.inputs[0], *(p for p in parts if p is not None)), x
    return None


def _channels(x: Value, other: Any) -> Any:
    """`other` as a vector over the output channels of the layer that computes x, or as a number;
    None where it varies over anything else.
    """
    if not isinstance(other, Value):
        return other if type(other) in (int, float) else None
    assert x.node is not None
    axis = 1 if isinstance(x.node.op, Convolution) else len(x.shape) - 1
    sizes = (1,) * (len(x.shape) - len(other.shape)) + other.shape
    if len(sizes) != len(x.shape) or other.spec.dtype != x.spec.dtype:
        return None
    if any(n != 1 for i, n in enumerate(sizes) if i != axis):
        return None
    vector = np.broadcast_to(other.array.reshape(-1), (x.shape[axis],))
    return Value(other.spec.with_(shape=vector.shape), array=vector)


Parts = tuple[Value, "Value | None"]


def _memo(folds: Folds, key: Any, name: str, make_array: Callable[[], Any]) -> Value:
    """A constant that is computed once for all graphs of a program."""
    found = folds.values.get(key)
    if found is None:
        array = np.ascontiguousarray(make_array())
        found = folds.values[key] = (Value(spec_of(array), array=array, name=name),)
    return found[0]


def _identity(x: Any) -> Any:
    """What tells a constant from others: vectors, which are made anew for each graph, by value."""
    if isinstance(x, Value):
        return x.array.tobytes() if x.array.ndim <= 1 else id(x)
    return x


def _scaled(folds: Folds, w: Value, bias: Value | None, by: Any, divide: bool) -> Parts:
    """Weights and bias of a layer whose output is multiplied (or divided) by channels."""
    factor = by.array if isinstance(by, Value) else np.asarray(by, w.spec.dtype.numpy)
    if divide:
        factor = 1 / factor
    lifted = factor.reshape(-1, *[1] * (len(w.shape) - 1)) if factor.ndim else factor
    key = ("scale", id(w), _identity(by), divide)
    weight = _memo(folds, key, w.name, lambda: w.array * lifted)
    if bias is None:
        return weight, None
    key = ("scaled bias", _identity(bias), _identity(by), divide)
    return weight, _memo(folds, key, bias.name, lambda: bias.array * factor)


def _shifted(folds: Folds, w: Value, bias: Value | None, by: Any, sign: int) -> Parts:
    """Weights and bias of a layer to whose output channels are added."""
    shift = by.array if isinstance(by, Value) else np.full(w.shape[:1], by, w.spec.dtype.numpy)
    key = ("shift", None if bias is None else _identity(bias), _identity(by), sign, w.shape[0],
           w.spec.dtype.name)  # fmt: skip
    start = 0 if bias is None else bias.array
    name = w.name.removesuffix("weight") + "bias" if w.name.endswith("weight") else ""
    if bias is not None and bias.name:
        name = bias.name
    return w, _memo(folds, key, name, lambda: start + sign * shift)


def _by_mul(folds: Folds, w: Value, bias: Value | None, by: Any, place: int) -> Parts | None:
    return _scaled(folds, w, bias, by, False)


def _by_divide(folds: Folds, w: Value, bias: Value | None, by: Any, place: int) -> Parts | None:
    return None if place else _scaled(folds, w, bias, by, True)


def _by_add(folds: Folds, w: Value, bias: Value | None, by: Any, place: int) -> Parts | None:
    return _shifted(folds, w, bias, by, 1)


def _by_sub(folds: Folds, w: Value, bias: Value | None, by: Any, place: int) -> Parts | None:
    if not place:
        return _shifted(folds, w, bias, by, -1)
    weight, moved = _scaled(folds, w, bias, -1, False)
    return _shifted(folds, weight, moved, by, 1)


_UNARY = (Relu, Gelu, Silu, Sigmoid, Tanh, Elu)
_RULES: dict[type[Op], Callable[..., Parts | None]] = {
    Mul: _by_mul, TrueDivide: _by_divide, Add: _by_add, Sub: _by_sub
}  # fmt: skip


def simplify(graph: StaticGraph, folds: Folds) -> StaticGraph:
    """All passes of this file, until none of them changes anything."""
    while True:
        changed = fold_constants(graph, folds)
        changed += drop_identities(graph)
        changed += inline_numbers(graph)
        changed += hoist_through_views(graph)
        changed += merge_equal(graph)
        changed += flatten_products(graph, folds)
        changed += fold_affine(graph, folds)
        changed += drop_dead(graph)
        if not changed:
            return graph
