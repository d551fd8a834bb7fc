"""Motion of ops through views around layers: an op on a view of a layer's output is applied to the
output itself, and products of rows that were reshaped for them work on the rows as they are.
"""

from __future__ import annotations

from typing import Any

from ...ir.program import Node, Program, Value, make
from ...ir.rewriting import rewriting
from ...ops.elementwise.arithmetic import Add, Mul, Sub, TrueDivide
from ...ops.elementwise.functions import Sigmoid, Tanh
from ...ops.linalg.matmul import Linear, MatMul
from ...ops.nn.activation import Elu, Gelu, Relu, Silu
from ...ops.nn.convolution import Convolution
from ...ops.shape.movement import Permute, Reshape
from .basic_passes import Folds

_UNARY = (Relu, Gelu, Silu, Sigmoid, Tanh, Elu)
_BINARY = (Add, Sub, Mul, TrueDivide)


@rewriting
def hoist_through_views(graph: Program) -> int:
    """Apply ops to a layer's output before it is reshaped or permuted, where the layer can fuse
    them; returns how many.
    """
    users, outputs = graph.users(), set(graph.outputs)
    count = 0
    nodes: list[Node] = []
    changes: dict[Value, Value] = {}
    for node in graph.renewed(changes):
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
        count += 1
    graph.nodes = nodes
    graph.replace(changes)
    return count


def _hoisted(
    node: Node, users: dict[Value, list[Node]], outputs: set[Value]
) -> tuple[Node, list[Node], Node] | None:
    """The view of a layer's output that `node` reads, nodes that must come before, and the
    operation on the output itself; None where it cannot move.
    """
    count = len(node.inputs)
    if not (isinstance(node.op, _UNARY) or (isinstance(node.op, _BINARY) and count == 2)):
        return None
    positions = range(2) if isinstance(node.op, (Add, Mul)) else range(1)
    for position in positions[:count]:
        x = node.inputs[position]
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
        other = node.inputs[1 - position]
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
        inputs = (inner, other) if position == 0 else (other, inner)
        return view, before, make(node.op, *inputs)
    return None


def _is_free(x: Value) -> bool:
    """Whether a reshape of the value needs no copy: it is computed, and contiguous."""
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


@rewriting
def flatten_products(graph: Program, folds: Folds) -> int:
    """Rewrite products with a constant matrix to Linear, which works on rows in any number of
    dimensions, without the reshapes around them. Returns how many.
    """
    users, outputs = graph.users(), set(graph.outputs)
    count = 0
    nodes: list[Node] = []
    changes: dict[Value, Value] = {}
    for node in graph.renewed(changes):
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
                    count += 1
                    continue
        if isinstance(node.op, MatMul):
            nodes[-1] = made = make(Linear(), *inputs)
            changes[node.output] = made.output
            count += 1
    graph.nodes = [n for n in nodes if n.outputs[0] not in changes]
    graph.replace(changes)
    return count
