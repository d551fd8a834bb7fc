"""Ops of static graphs alone: named activations, and layers with fused epilogues.

Passes here make them from the registry's ops. Each defines its meaning in `compute`, so it runs
anywhere; where oneDNN is available, `execution` runs it as one oneDNN primitive.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends import native
from ...core.device import namespace_of
from ...core.op import Op
from ...core.spec import Spec
from ...core.symbolic_sizes import ask
from ...ir.program import Node, Program, Value, make
from ...ir.rewriting import rewriting
from ...ops.elementwise.arithmetic import Add, Mul, TrueDivide
from ...ops.elementwise.functions import Sigmoid, Tanh
from ...ops.linalg.matmul import Linear
from ...ops.nn.activation import Elu, Gelu, Relu, Silu
from ...ops.nn.averaging import SumPool
from ...ops.nn.convolution import Convolution, ConvolutionInput
from ...ops.nn.pooling import MaxPool
from .accumulate import running_sums
from .basic_passes import EXACT, PRODUCTS

if TYPE_CHECKING:
    from ...backends.native.gemm.prepacked import Epilogue

ADD = "add"  # epilogue: adds an operand
BIAS = "bias"  # first epilogue of a transposed convolution: adds an operand of channels


@dataclass(eq=False, repr=False)
class Activation(Op, abstract=True):
    """An elementwise function that programs write as several ops."""

    kind: str  # clip, leaky, hardsigmoid, hardswish
    first: float = 0.0
    second: float = 0.0

    @property
    def name(self) -> str:
        """Name of the function."""
        return self.kind

    def infer(self, x: Spec) -> Spec:
        """Spec of the input."""
        return x

    def compute(self, xp: Any, x: Any) -> Any:
        """Compute the ops that it stands for."""
        if self.kind == "clip":
            return xp.where(x >= self.second, self.second, xp.where(x <= self.first, self.first, x))
        if self.kind == "leaky":
            return xp.where(x > 0, x, x * self.first)
        y = x + 3
        y = xp.where(y >= 6.0, 6.0, xp.where(y <= 0.0, 0.0, y))
        return y / 6 if self.kind == "hardsigmoid" else x * y / 6


# ---- layers with epilogues -----------------------------------------------------------------------

Followed = tuple[str, float, float]  # an activation and its numbers, or ADD


@dataclass(eq=False, repr=False)
class Layer(Op, abstract=True):
    """A convolution, a product with constants or a pooling, with its epilogue.

    Inputs: those of `base`, then one for each ADD.
    """

    base: Op
    own: int  # inputs of `base`
    following: tuple[Followed, ...]
    library = "always"

    @property
    def name(self) -> str:
        """Name of the base and of the epilogue's ops."""
        return "_".join([self.base.name, *(kind for kind, *_ in self.following)])

    def infer(self, *specs: Spec) -> Spec:
        """Spec of the base's output."""
        return self.base.infer(*specs[: self.own])

    def compute(self, xp: Any, *arrays: Any) -> Any:
        """Compute the base, then the epilogue's ops."""
        y = self.base.compute(xp, *arrays[: self.own])
        operands = iter(arrays[self.own :])
        for kind, first, second in self.following:
            if kind == BIAS:
                y = y + next(operands).reshape(-1, *[1] * (y.ndim - 2))
            else:
                y = y + next(operands) if kind == ADD else _followed(y, kind, first, second)
        return y


def _followed(y: Any, kind: str, first: float, second: float) -> Any:
    """An epilogue's activation of an array."""
    if kind == "linear":
        return y * np.asarray(first, y.dtype)
    op = _OPS.get(kind)
    if op is None:
        return Activation(kind, first, second).compute(np, y)
    return op.compute(namespace_of(y), y)


_OPS: dict[str, Op] = {
    "relu": Relu(), "sigmoid": Sigmoid(), "tanh": Tanh(), "silu": Silu(), "gelu": Gelu(False),
    "gelu_tanh": Gelu(True), "elu": Elu(1.0, 1.0, 1.0),
}  # fmt: skip


def _following(op: Op | None) -> Followed | None:
    """An op as part of an epilogue; None where it cannot be one."""
    if isinstance(op, Activation):
        return op.kind, float(op.first), float(op.second)
    kinds = [kind for kind, each in _OPS.items() if type(each) is type(op) and each == op]
    return (kinds[0], 0.0, 0.0) if kinds else None


def _start(node: Node) -> Layer | None:
    """A node as a layer with the epilogue that it has so far, which may be empty; None for other
    ops.
    """
    op = node.op
    if isinstance(op, Layer):
        return op
    if type(op) is Linear and not all(x.array is not None for x in node.values[1:]):
        return None
    if type(op) in (Convolution, ConvolutionInput, Linear, SumPool, MaxPool):
        return Layer(op, len(node.inputs), ())
    return None


@rewriting
def fuse_epilogues(graph: Program) -> int:
    """Fuse activations, and additions of values of the same shape, into the layer that computes
    their input, if nothing else reads that. Returns how many.
    """
    return _let_follow(graph, _merged)


RECTIFIED: tuple[Followed, ...] = (("relu", 0.0, 0.0),)
ADDED: tuple[Followed, ...] = ((ADD, 0.0, 0.0),)


@rewriting
def rectify_products(graph: Program) -> int:
    """Fuse ReLU into the matrix product before it, if nothing else reads that and generated code
    computes it, whose tiles have the elements at hand. Returns how many.
    """
    return _let_follow(graph, _rectified)


@rewriting
def accumulate_products(graph: Program) -> int:
    """Let matrix products that are terms of a sum accumulate into it in place: those of generated
    code, which gives the bits of a separate addition. Returns how many.
    """
    sums = running_sums(graph)
    return _let_follow(graph, lambda node, users, outputs: _added(node, sums)) if sums else 0


Users = dict[Value, list[Node]]
Merge = Callable[[Node, Users, set[Value]], tuple[Node, Node] | None]


def _let_follow(graph: Program, merge: Merge) -> int:
    """Replace a node and one before it by the fused node that `merge` makes of them; returns how
    often.
    """
    users = graph.users()
    outputs = set(graph.outputs)
    changes: dict[Value, Value] = {}
    gone: set[Node] = set()
    nodes: list[Node] = []
    count = 0
    for node in graph.renewed(changes):
        nodes.append(node)
        merged = merge(node, users, outputs)
        if merged is None:
            continue
        layer, before = merged
        layer.module = before.module  # the costlier one's
        gone.add(before)
        nodes[-1] = layer
        changes[node.output] = layer.output
        users[layer.output] = users.get(node.output, [])
        if node.output in outputs:
            outputs.add(layer.output)
        count += 1
    graph.nodes = [node for node in nodes if node not in gone]
    graph.replace(changes)
    return count


def _is_grouped(op: Op) -> bool:
    """Whether an op is a grouped convolution. oneDNN cannot fuse an addition into one without
    AVX-512 (the whole layer would be computed without it).
    """
    return isinstance(op, Convolution) and op.groups > 1


def _rectified(node: Node, users: Users, outputs: set[Value]) -> tuple[Node, Node] | None:
    """A product and its ReLU as one node, and the product's node."""
    source = node.values[0].node if isinstance(node.op, Relu) else None
    if source is None or not is_product(source):
        return None
    y = source.output
    if y in outputs or len(users[y]) != 1:
        return None
    if not _is_generated(source, y, "relu"):
        return None
    return make(Layer(source.op, len(source.inputs), RECTIFIED), *source.inputs), source


def _added(node: Node, sums: dict[Node, int]) -> tuple[Node, Node] | None:
    """A product and its addition to a sum as one node, and the product's node."""
    if node not in sums:
        return None
    before, term = node.inputs[sums[node]], node.inputs[1 - sums[node]]
    source = term.node
    if source is None or isinstance(source.op, Layer) or not is_product(source):
        return None
    if len(source.inputs) > 2:  # a bias is added first
        return None
    if not _is_generated(source, term, ADD):
        return None
    return make(Layer(source.op, len(source.inputs), ADDED), *source.inputs, before), source


def _is_generated(node: Node, y: Value, then: str) -> bool:
    """Whether generated code computes a product into `y`, with what follows it: sizes decide."""
    from ...backends.native.lowering.bound import product_into

    values = *node.values, y
    kinds = [x.spec.dtype.numpy for x in values]
    library = node.op.library

    def asked(shapes: list[tuple[int, ...]]) -> bool:
        arrays = [np.empty(shape, kind) for shape, kind in zip(shapes, kinds, strict=True)]
        return product_into(library, arrays[:-1], arrays[-1], then) is not None

    return ask(asked, [x.shape for x in values])


def is_product(node: Node) -> bool:
    """Whether a node is a matrix product that a `ProductStep` computes, with a ReLU or an
    accumulation as epilogue, or without.
    """
    op, y, biases = node.op, node.outputs[0], node.values[2:]
    if isinstance(op, Layer) and op.following in (RECTIFIED, ADDED):
        biases = node.values[2 : op.own]
        op = op.base
    if op.library not in PRODUCTS or not native.load():
        return False
    fits = all(bias.shape == y.shape[-1:] for bias in biases)
    return fits and y.spec.dtype.name in EXACT and 0 not in y.shape


def _merged(node: Node, users: Users, outputs: set[Value]) -> tuple[Node, Node] | None:
    """A layer with `node` fused into it, and the layer's node before."""
    step = _following(node.op)
    if step is None:
        step = _scaling(node)
    if step is None and type(node.op) is not Add:
        return None
    choices = node.inputs if step is None else node.inputs[:1]
    for position in reversed(range(len(choices))):
        x = choices[position]
        if not isinstance(x, Value) or x.node is None or x in outputs:
            continue
        if len(users.get(x, ())) != 1 or x.spec != node.output.spec:
            continue
        layer = _start(x.node)
        if layer is None:
            continue
        bias = _bias(layer, x, node.inputs[1 - position]) if step is None else None
        if bias is not None:
            op = Layer(layer.base, layer.own, ((BIAS, 0.0, 0.0),))
            return make(op, *x.node.inputs, bias), x.node
        operand = () if step is not None else (node.inputs[1 - position],)
        if operand and not (isinstance(operand[0], Value) and operand[0].spec == x.spec):
            continue
        if operand and (isinstance(layer.base, (SumPool, MaxPool)) or _is_grouped(layer.base)):
            continue
        following = (*layer.following, step if step is not None else (ADD, 0.0, 0.0))
        op = Layer(layer.base, layer.own, following)
        return make(op, *x.node.inputs, *operand), x.node
    return None


def _bias(layer: Layer, x: Value, other: object) -> Value | None:
    """A constant that is added to the channels of a transposed convolution, as a vector; None for
    others.
    """
    if not isinstance(layer.base, ConvolutionInput) or layer.following:
        return None
    if not isinstance(other, Value) or other.array is None:
        return None
    rank = len(x.shape)
    sizes = (1,) * (rank - len(other.shape)) + other.shape
    if sizes != (1, x.shape[1], *[1] * (rank - 2)) or other.spec.dtype != x.spec.dtype:
        return None
    vector = np.ascontiguousarray(other.array.reshape(-1))
    return Value(other.spec.with_(shape=vector.shape), array=vector, name=other.name)


def _scaling(node: Node) -> Followed | None:
    """A factor or divisor of a layer with an epilogue, or of the sums of pooling, as part of the
    epilogue.
    """
    if not isinstance(node.op, (Mul, TrueDivide)):
        return None
    x, by = node.inputs
    if not isinstance(x, Value) or type(by) not in (int, float) or not by:
        return None
    takes = isinstance(x.op, Layer) and bool(x.op.following)
    if not takes and not isinstance(x.op, SumPool):
        return None
    return "linear", 1 / by if isinstance(node.op, TrueDivide) else float(by), 0.0


def as_epilogue(layer: Layer) -> Epilogue | None:
    """The epilogue of a product in the form of `panels`: perhaps an addition, then perhaps an
    activation; None where it has more.
    """
    from ...backends.native.gemm.prepacked import CLIP, KINDS, Epilogue

    following = list(layer.following)
    if following and following[0][0] == ADD:
        del following[0]
    if not following:
        return Epilogue("")
    (kind, first, second), *more = following
    if kind == "relu":
        kind, first, second = CLIP, 0.0, math.inf
    return None if more or kind not in (CLIP, *KINDS) else Epilogue(kind, first, second)


def as_library(layer: Layer) -> list[Any] | None:
    """The epilogue of a layer in oneDNN's form, whose pooling gives means instead of sums; None
    where oneDNN cannot do it.
    """
    from ...backends.native.onednn.api import ACTIVATIONS
    from ...backends.native.onednn.fused_layers import ADDED

    post_ops: list[Any] = []
    following = list(layer.following)
    if isinstance(layer.base, SumPool):
        area = math.prod(layer.base.kernel)
        scale = float(area)
        if following and following[0][0] == "linear":
            scale = area * following.pop(0)[1]
        if not math.isclose(scale, 1, rel_tol=1e-12):
            post_ops.append((0x26, float(scale), 0.0))
    for kind, first, second in following:
        if kind == BIAS:
            continue
        if kind == ADD:
            post_ops.append(ADDED)
        elif kind in ACTIVATIONS:
            post_ops.append(ACTIVATIONS[kind])
        elif kind == "clip":
            post_ops.append((0x2E, first, second))
        elif kind == "leaky":
            post_ops.append((0x20, first, 0.0))
        elif kind in ("hardsigmoid", "hardswish"):
            post_ops.append((0x28 if kind == "hardsigmoid" else 0x34, 1 / 6, 0.5))
        elif kind == "linear":
            post_ops.append((0x26, first, 0.0))
        else:
            return None
    return post_ops
