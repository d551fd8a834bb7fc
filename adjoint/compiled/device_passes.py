"""Passes over programs of a device of PyTorch's, before their ops become Triton kernels."""

from __future__ import annotations

from typing import Any

from ..core.device import CPU
from ..core.dtype import bfloat16, float16, float32, int64
from ..core.op import Op
from ..core.spec import Spec
from ..ops.nn.convolution import Convolution, ConvolutionInput
from ..ops.nn.pooling import MaxPool, MaxPoolInput, Pool
from ..ops.promotion import Cast
from ..program.program import Node, Program, Value, make
from ..program.rewriting import rewriting
from .routines import Ahead, Behind


@rewriting
def inline_host_numbers(graph: Program) -> int:
    """Write constants of the host without dimensions, which stand for numbers beside tensors of a
    device, as numbers; returns how many there were.
    """
    found = 0
    for node in graph.nodes:
        if all(x.spec.device == CPU for x in node.values):
            continue
        inputs = [
            x.array.item() if type(x) is Value and x.array is not None and _is_host_number(x) else x
            for x in node.inputs
        ]
        found += sum(x is not y for x, y in zip(inputs, node.inputs, strict=True))
        node.inputs = tuple(inputs)
    return found


def _is_host_number(x: Value) -> bool:
    return x.spec.device == CPU and not x.shape and x.spec.dtype.category < 3


@rewriting
def read_narrow(graph: Program) -> int:
    """Let routines that compute in float32 anyway read what was widened for them, and give the
    gradient that is narrowed at once; returns how many casts they do without.
    """
    users = graph.users()
    outputs = set(graph.outputs)
    changes: dict[Value, Value] = {}
    found = 0
    for node in graph.nodes:
        op: Any = node.op
        if not isinstance(op, (Ahead, Behind)) or not getattr(op.written.routine, "widens", False):
            continue
        wide = node.inputs[0]
        if wide.node is None or not _narrows(wide.node.inputs[0], wide.node):
            continue
        narrow = wide.node.inputs[0]
        if isinstance(op, Behind):
            y = node.output
            casts = [u for u in users.get(y, ()) if _is_cast(u, narrow)]
            if y in outputs or len(casts) < len(users.get(y, ())):
                continue
            y.spec = Spec(y.shape, narrow.spec.dtype, y.spec.device)
            changes.update((u.output, y) for u in casts)
        node.inputs = (narrow, *node.inputs[1:])
        found += 1
    graph.nodes = [node for node in graph.nodes if node.outputs[0] not in changes]
    graph.replace(changes)
    return found + len(changes)


class PoolWithPlaces(Pool, abstract=True):
    """The largest element of each window, and where it is."""

    n_outputs = 2

    def infer(self, x: Spec, *rest: Spec) -> Any:
        """One of each per window."""
        found = Pool.infer(self, x)
        return found, found.with_(dtype=int64)

    def compute(self, xp: Any, x: Any) -> Any:
        """By the device."""
        return xp.max_pool_with_places(x, *self.options, self.count(x))


class SpreadFromPlaces(Pool, abstract=True):
    """Zeros like the first input with the third's elements added at the second's places."""

    def infer(self, x: Spec, *rest: Spec) -> Spec:
        """Of the first."""
        return x

    def compute(self, xp: Any, x: Any, where: Any, g: Any) -> Any:
        """By the device."""
        return xp.spread_from_places(x, where, g, *self.options)


@rewriting
def keep_places(graph: Program) -> int:
    """Let what pools keep where the windows' maxima are, for its gradient, which would look for
    them again.
    """
    here = set(graph.nodes)
    kept: dict[Value, Value] = {}
    found = 0
    for node in graph.nodes:
        if not isinstance(node.op, MaxPoolInput):
            continue
        x, y, g = node.inputs
        pool = y.node
        if y not in kept:
            if pool not in here or not isinstance(pool.op, MaxPool) or pool.inputs[0] is not x:
                continue
            pool.op = PoolWithPlaces(*pool.op.options)
            where = Value(y.spec.with_(dtype=int64), pool, 1)
            pool.outputs = (y, where)
            kept[y] = where
        node.op = SpreadFromPlaces(*node.op.options)
        node.inputs = (x, kept[y], g)
        found += 1
    return found


class ChannelsLast(Op, abstract=True):
    """An image with its channels side by side in memory."""

    def infer(self, spec: Spec) -> Spec:
        """The same."""
        return spec

    def compute(self, xp: Any, x: Any) -> Any:
        """By the device."""
        return xp.with_channels_last(x)


def has_matrix_units(place: Any) -> bool:
    """Whether a device is a GPU."""
    return bool(place.type == "cuda")


@rewriting
def lay_channels_last(graph: Program) -> int:
    """Give convolutions in two dimensions, which compute with the matrix units of a GPU, weights
    whose channels lie side by side: results do so then, and what is computed from them, so that
    libraries need not lay them so and back for each.
    """
    laid: dict[Value, Value] = {}
    nodes = []
    for node in graph.nodes:
        weight = node.inputs[1] if isinstance(node.op, (Convolution, ConvolutionInput)) else None
        if weight is not None and len(weight.shape) == 4 and _by_matrix_units(node.op, weight):
            if weight not in laid:
                nodes.append(make(ChannelsLast(), weight))
                laid[weight] = nodes[-1].output
            node.inputs = (node.inputs[0], laid[weight], *node.inputs[2:])
        nodes.append(node)
    graph.nodes = nodes
    return len(laid)


def _by_matrix_units(op: Any, weight: Value) -> bool:
    from ..backends import cudnn

    dtype = weight.spec.dtype
    narrow = dtype in (bfloat16, float16) or (dtype is float32 and cudnn.allow_tf32)
    return narrow and op.groups == 1


def _narrows(narrow: Any, cast: Node) -> bool:
    return isinstance(cast.op, Cast) and narrow.spec.dtype in (bfloat16, float16)


def _is_cast(node: Node, like: Value) -> bool:
    return isinstance(node.op, Cast) and node.output.spec.dtype is like.spec.dtype
