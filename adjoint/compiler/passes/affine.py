"""Folding of channel scales and shifts into the layer before them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from ...core.op import Op
from ...ir.compute import spec_of
from ...ir.program import Node, Program, Value, make
from ...ir.rewriting import rewriting
from ...ops.elementwise.arithmetic import Add, Mul, Sub, TrueDivide
from ...ops.linalg.matmul import Linear
from ...ops.nn.convolution import Convolution
from .basic_passes import EXACT, Folds, is_constant


@rewriting
def fold_affine(graph: Program, folds: Folds) -> int:
    """Fold scales and shifts of channels into the convolution or the linear layer before them:
    batch normalization in eval mode, separately added biases, factors. Returns how many.
    """
    users = graph.users()
    outputs = set(graph.outputs)
    changes: dict[Value, Value] = {}
    nodes: list[Node] = []
    count = 0
    for node in graph.renewed(changes):
        made = _absorbed(node, folds)
        if made is None or len(users.get(made[1], ())) != 1 or made[1] in outputs:
            nodes.append(node)
            continue
        layer, x = made
        nodes = [n for n in nodes if n is not x.node]
        nodes.append(layer)
        changes[node.output] = layer.output
        users[layer.output] = users.get(node.output, [])
        if node.output in outputs:
            outputs.add(layer.output)
        count += 1
    graph.nodes = nodes
    graph.replace(changes)
    return count


def _absorbed(node: Node, folds: Folds) -> tuple[Node, Value] | None:
    """The layer that computes `node`, which scales or shifts another layer's output, and that
    output; None where there is none.
    """
    if type(node.op) not in (Add, Sub, Mul, TrueDivide) or len(node.inputs) != 2:
        return None
    for position, (x, other) in enumerate((node.inputs, node.inputs[::-1])):
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
        parts = _combined(node.op, folds, w, bias[0] if bias else None, along, position)
        if parts is None or any(p is not None and p.spec.dtype != w.spec.dtype for p in parts):
            continue
        return make(x.node.op, x.node.inputs[0], *(p for p in parts if p is not None)), x
    return None


def _channels(x: Value, other: Value | float) -> Value | float | None:
    """`other` as a vector over the output channels of the layer that computes `x`, or as a number;
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


def _memo(folds: Folds, key: Hashable, name: str, make_array: Callable[[], Any]) -> Value:
    """A constant that is computed once for all graphs of a program."""
    constants = folds.values.get(key)
    if constants is None:
        array = np.ascontiguousarray(make_array())
        constants = folds.values[key] = (Value(spec_of(array), array=array, name=name),)
    return constants[0]


def _identity(x: Value | float) -> Any:
    """Key of a constant: by value for vectors, which are made anew for each graph, else by id."""
    if isinstance(x, Value):
        return x.array.tobytes() if x.array.ndim <= 1 else id(x)
    return x


def _scaled(folds: Folds, w: Value, bias: Value | None, by: Value | float, divide: bool) -> Parts:
    """Weight and bias of a layer after its output is multiplied (or divided) by channels."""
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


def _shifted(folds: Folds, w: Value, bias: Value | None, by: Value | float, sign: int) -> Parts:
    """Weight and bias of a layer after a shift of its output channels."""
    shift = by.array if isinstance(by, Value) else np.full(w.shape[:1], by, w.spec.dtype.numpy)
    key = ("shift", None if bias is None else _identity(bias), _identity(by), sign, w.shape[0],
           w.spec.dtype.name)  # fmt: skip
    start = 0 if bias is None else bias.array
    name = w.name.removesuffix("weight") + "bias" if w.name.endswith("weight") else ""
    if bias is not None and bias.name:
        name = bias.name
    return w, _memo(folds, key, name, lambda: start + sign * shift)


def _combined(
    op: Op, folds: Folds, w: Value, bias: Value | None, by: Value | float, position: int
) -> Parts | None:
    """Weight and bias of a layer after `op` with `by`; the layer's output is operand number
    `position`.
    """
    if isinstance(op, Mul):
        return _scaled(folds, w, bias, by, False)
    if isinstance(op, TrueDivide):
        return None if position else _scaled(folds, w, bias, by, True)
    if isinstance(op, Sub):
        if not position:
            return _shifted(folds, w, bias, by, -1)
        w, bias = _scaled(folds, w, bias, -1, False)
    return _shifted(folds, w, bias, by, 1)
