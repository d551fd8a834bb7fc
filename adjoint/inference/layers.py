"""Ops that only static graphs have: activations by name, and layers with what follows them.

Passes here make them out of the registry's ops. Each still says in `compute` what it means, so it
runs anywhere; where oneDNN is there, `execution` gives it to oneDNN as one primitive.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..backends import native
from ..core.device import namespace_of
from ..core.op import Op
from ..core.spec import Spec
from ..ops.elementwise.arithmetic import Add, Mul, TrueDivide
from ..ops.elementwise.functions import Sigmoid, Tanh
from ..ops.linalg.matmul import Linear
from ..ops.nn.activation import Elu, Gelu, Relu, Silu
from ..ops.nn.averaging import SumPool
from ..ops.nn.convolution import Convolution, ConvolutionInput
from ..ops.nn.pooling import MaxPool
from ..program.program import Node, Program, Value, make
from ..program.rewriting import rewriting
from .passes import EXACT, PRODUCTS
from .sums import running_sums

ADD = "add"  # among what follows a layer: an operand
BIAS = "bias"  # first among what follows a transposed convolution: an operand, of channels


@dataclass(eq=False, repr=False)
class Activation(Op, abstract=True):
    """A function of each element that programs write in several ops."""

    kind: str  # clip, leaky, hardsigmoid, hardswish
    first: float = 0.0
    second: float = 0.0

    @property
    def name(self) -> str:
        """Its kind."""
        return self.kind

    def infer(self, x: Spec) -> Spec:
        """That of the input."""
        return x

    def compute(self, xp: Any, x: Any) -> Any:
        """As the ops that it stands for."""
        if self.kind == "clip":
            return xp.where(x >= self.second, self.second, xp.where(x <= self.first, self.first, x))
        if self.kind == "leaky":
            return xp.where(x > 0, x, x * self.first)
        y = x + 3
        y = xp.where(y >= 6.0, 6.0, xp.where(y <= 0.0, 0.0, y))
        return y / 6 if self.kind == "hardsigmoid" else x * y / 6


# ---- layers with what follows --------------------------------------------------------------------

Followed = tuple[str, float, float]  # an activation and its numbers, or ADD


@dataclass(eq=False, repr=False)
class Layer(Op, abstract=True):
    """A convolution, a product with constants or pooling, then what follows it.

    Inputs: those of `base`, then one for each ADD.
    """

    base: Op
    own: int  # inputs of `base`
    following: tuple[Followed, ...]
    library = "always"

    @property
    def name(self) -> str:
        """The base's, and what follows."""
        return "_".join([self.base.name, *(kind for kind, *_ in self.following)])

    def infer(self, *specs: Spec) -> Spec:
        """That of the base."""
        return self.base.infer(*specs[: self.own])

    def compute(self, xp: Any, *arrays: Any) -> Any:
        """One after another."""
        y = self.base.compute(xp, *arrays[: self.own])
        operands = iter(arrays[self.own :])
        for kind, first, second in self.following:
            if kind == BIAS:
                y = y + next(operands).reshape(-1, *[1] * (y.ndim - 2))
            else:
                y = y + next(operands) if kind == ADD else _followed(y, kind, first, second)
        return y


def _followed(y: Any, kind: str, first: float, second: float) -> Any:
    """An activation of an array, by NumPy."""
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
    """How an op is called where it follows a layer."""
    if isinstance(op, Activation):
        return op.kind, float(op.first), float(op.second)
    kinds = [kind for kind, each in _OPS.items() if type(each) is type(op) and each == op]
    return (kinds[0], 0.0, 0.0) if kinds else None


def _start(node: Node) -> Layer | None:
    """A node as a layer that nothing follows yet."""
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
    """Let activations, and additions of values of the same shape, follow the layer that they are
    computed from, where nothing else reads that.
    """
    return _let_follow(graph, _merged)


RECTIFIED: tuple[Followed, ...] = (("relu", 0.0, 0.0),)
ADDED: tuple[Followed, ...] = ((ADD, 0.0, 0.0),)


@rewriting
def rectify_products(graph: Program) -> int:
    """Let ReLU follow the product that it is computed from, where nothing else reads that and
    generated code computes it: its tiles have the elements at hand.
    """
    return _let_follow(graph, _rectified)


@rewriting
def accumulate_products(graph: Program) -> int:
    """Let products that are terms of a sum be added to it as they are computed, in its memory:
    those of generated code, which gives the bits of an addition that follows.
    """
    sums = running_sums(graph)
    return _let_follow(graph, lambda node, users, outputs: _added(node, sums)) if sums else 0


Users = dict[Value, list[Node]]
Merge = Callable[[Node, Users, set[Value]], tuple[Node, Node] | None]


def _let_follow(graph: Program, merge: Merge) -> int:
    """Put what `merge` makes of a node and one before it in the place of both; how often."""
    users = graph.users()
    outputs = set(graph.outputs)
    changes: dict[Value, Value] = {}
    gone: set[Node] = set()
    nodes: list[Node] = []
    found = 0
    for node in graph.renewed(changes):
        nodes.append(node)
        merged = merge(node, users, outputs)
        if merged is None:
            continue
        layer, before = merged
        gone.add(before)
        nodes[-1] = layer
        changes[node.output] = layer.output
        users[layer.output] = users.get(node.output, [])
        if node.output in outputs:
            outputs.add(layer.output)
        found += 1
    graph.nodes = [node for node in nodes if node not in gone]
    graph.replace(changes)
    return found


def _is_grouped(op: Op) -> bool:
    """Whether it is a convolution of groups, to which oneDNN adds nothing where there is no AVX-512
    (the whole layer would be computed without it).
    """
    return isinstance(op, Convolution) and op.groups > 1


def _rectified(node: Node, users: Users, outputs: set[Value]) -> tuple[Node, Node] | None:
    """A product and its ReLU as one, and the product's node."""
    from ..backends.native.lowering.bound import product_into

    source = node.values[0].node if isinstance(node.op, Relu) else None
    if source is None or not is_product(source):
        return None
    y = source.output
    if y in outputs or len(users[y]) != 1:
        return None
    arrays = [np.empty(x.shape, x.spec.dtype.numpy) for x in (*source.values, y)]
    if product_into(source.op.library, arrays[:-1], arrays[-1], "relu") is None:
        return None
    return make(Layer(source.op, len(source.inputs), RECTIFIED), *source.inputs), source


def _added(node: Node, sums: dict[Node, int]) -> tuple[Node, Node] | None:
    """A product and its addition to a sum as one, and the product's node."""
    from ..backends.native.lowering.bound import product_into

    if node not in sums:
        return None
    before, term = node.inputs[sums[node]], node.inputs[1 - sums[node]]
    source = term.node
    if source is None or isinstance(source.op, Layer) or not is_product(source):
        return None
    if len(source.inputs) > 2:  # a bias is added first
        return None
    arrays = [np.empty(x.shape, x.spec.dtype.numpy) for x in (*source.values, term)]
    if product_into(source.op.library, arrays[:-1], arrays[-1], ADD) is None:
        return None
    return make(Layer(source.op, len(source.inputs), ADDED), *source.inputs, before), source


def is_product(node: Node) -> bool:
    """Whether it is a product of matrices that a `ProductStep` computes, with ReLU behind it, added
    to what is there, or alone.
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
    """The layer that does what `node` does too, and the node that it takes the place of."""
    step = _following(node.op)
    if step is None:
        step = _scaling(node)
    if step is None and type(node.op) is not Add:
        return None
    choices = node.inputs if step is None else node.inputs[:1]
    for place in reversed(range(len(choices))):
        x = choices[place]
        if not isinstance(x, Value) or x.node is None or x in outputs:
            continue
        if len(users.get(x, ())) != 1 or x.spec != node.output.spec:
            continue
        layer = _start(x.node)
        if layer is None:
            continue
        bias = _bias(layer, x, node.inputs[1 - place]) if step is None else None
        if bias is not None:
            op = Layer(layer.base, layer.own, ((BIAS, 0.0, 0.0),))
            return make(op, *x.node.inputs, bias), x.node
        operand = () if step is not None else (node.inputs[1 - place],)
        if operand and not (isinstance(operand[0], Value) and operand[0].spec == x.spec):
            continue
        if operand and (isinstance(layer.base, (SumPool, MaxPool)) or _is_grouped(layer.base)):
            continue
        following = (*layer.following, step if step is not None else (ADD, 0.0, 0.0))
        op = Layer(layer.base, layer.own, following)
        return make(op, *x.node.inputs, *operand), x.node
    return None


def _bias(layer: Layer, x: Value, other: Any) -> Value | None:
    """A constant that is added to the channels of a transposed convolution, as a vector."""
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
    """A number that multiplies or divides what already follows a layer, or the sums of pooling."""
    if not isinstance(node.op, (Mul, TrueDivide)):
        return None
    x, by = node.inputs
    if not isinstance(x, Value) or type(by) not in (int, float) or not by:
        return None
    takes = isinstance(x.op, Layer) and bool(x.op.following)
    if not takes and not isinstance(x.op, SumPool):
        return None
    return "linear", 1 / by if isinstance(node.op, TrueDivide) else float(by), 0.0


def as_epilogue(layer: Layer) -> Any:
    """What follows a product as `panels` computes it: perhaps an addition, then perhaps an
    activation; None where it is more.
    """
    from ..backends.native.gemm.panels import CLIP, KINDS, Epilogue

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
    """What follows a layer as oneDNN takes it, whose pooling gives means instead of sums; None
    where oneDNN has no such thing.
    """
    from ..backends.native.onednn.api import ACTIVATIONS
    from ..backends.native.onednn.layers import ADDED

    found: list[Any] = []
    following = list(layer.following)
    if isinstance(layer.base, SumPool):
        area = math.prod(layer.base.kernel)
        scale = float(area)
        if following and following[0][0] == "linear":
            scale = area * following.pop(0)[1]
        if not math.isclose(scale, 1, rel_tol=1e-12):
            found.append((0x26, float(scale), 0.0))
    for kind, first, second in following:
        if kind == BIAS:
            continue
        if kind == ADD:
            found.append(ADDED)
        elif kind in ACTIVATIONS:
            found.append(ACTIVATIONS[kind])
        elif kind == "clip":
            found.append((0x2E, first, second))
        elif kind == "leaky":
            found.append((0x20, first, 0.0))
        elif kind in ("hardsigmoid", "hardswish"):
            found.append((0x28 if kind == "hardsigmoid" else 0x34, 1 / 6, 0.5))
        elif kind == "linear":
            found.append((0x26, first, 0.0))
        else:
            return None
    return found
