"""Passes over programs of a device of PyTorch's, before their ops become Triton kernels."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..core import policy
from ..core.device import CPU
from ..core.dtype import bfloat16, float16, float32, int64, uint8
from ..core.op import Op
from ..core.spec import Spec, prod
from ..eager.dispatch import apply
from ..inference.opening import opened, written_as
from ..kernels.triton import OFFSETS
from ..ops.nn.convolution import Convolution, ConvolutionInput, ConvolutionWeight
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


@dataclass(eq=False, repr=False)
class PoolWithPlaces(Pool, abstract=True):
    """The largest element of each window, and where it is: in its image, or, where kernels of ours
    pool, in its window, as a byte.
    """

    in_window: bool
    n_outputs = 2

    def infer(self, x: Spec, *rest: Spec) -> Any:
        """One of each per window."""
        found = Pool.infer(self, x)
        return found, found.with_(dtype=uint8 if self.in_window else int64)

    def compute(self, xp: Any, x: Any) -> Any:
        """By the device."""
        run = xp.max_pool_with_numbers if self.in_window else xp.max_pool_with_places
        return run(x, *self.options, self.count(x))


@dataclass(eq=False, repr=False)
class SpreadFromPlaces(Pool, abstract=True):
    """Zeros like the first input with the third's elements added at the second's places."""

    in_window: bool

    def infer(self, x: Spec, *rest: Spec) -> Spec:
        """Of the first."""
        return x

    def compute(self, xp: Any, x: Any, where: Any, g: Any) -> Any:
        """By the device."""
        run = xp.spread_from_numbers if self.in_window else xp.spread_from_places
        return run(x, where, g, *self.options)


@rewriting
def keep_places(graph: Program) -> int:
    """Let what pools keep where the windows' maxima are, for its gradient, which would look for
    them again.
    """
    from ..backends.torch.pooling import has_kernels

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
            in_window = has_kernels(x.spec, *pool.op.options)
            pool.op = PoolWithPlaces(*pool.op.options, in_window)  # type: ignore[call-arg]
            where = Value(pool.op.infer(x.spec)[1], pool, 1)
            pool.outputs = (y, where)
            kept[y] = where
        node.op = SpreadFromPlaces(*node.op.options, pool.op.in_window)  # type: ignore[call-arg]
        node.inputs = (x, kept[y], g)
        found += 1
    return found


@dataclass(eq=False, repr=False)
class Moments(Op, abstract=True):
    """The mean and the biased variance of each channel, and what its deviation is divided by."""

    eps: float
    n_outputs = 3

    def infer(self, x: Spec) -> Any:
        """In float32."""
        return (Spec(x.shape[1:2], float32, x.device),) * 3

    def compute(self, xp: Any, x: Any) -> Any:
        """By the device."""
        return xp.moments_of_channels(x, self.eps)


@rewriting
def open_batch_norms(graph: Program) -> int:
    """Write batch norm and its gradient as moments and elementwise ops, which become part of the
    kernels of what lies around them, the activation behind and the sum with a shortcut; returns how
    often. A library reads and writes images for each.
    """
    behind: dict[Value, list[Node]] = {}  # the gradients, by what they want kept
    ahead = []
    for node in graph.nodes:
        op: Any = node.op
        if isinstance(op, (Ahead, Behind)) and op.name.startswith("_standardize_channels"):
            place = len(op.written.specs) + len(op.written.outputs)
            if isinstance(op, Ahead):
                ahead.append(node)
            elif op.written.routine.kept:
                behind.setdefault(node.inputs[place], []).append(node)
    users = graph.users()
    chosen: set[Node] = set()
    for node in ahead:
        if not _may_open(node):
            continue
        kept = node.outputs[len(node.op.written.outputs) :]  # type: ignore[attr-defined]
        own = [each for y in kept for each in behind.get(y, ())]
        if all(y not in graph.outputs and {*users[y]} <= {*own} for y in kept):
            chosen.update((node, *own))

    def made(node: Node) -> Program | None:
        op: Any = node.op
        if node not in chosen:
            return None
        write = _batch_norm if isinstance(op, Ahead) else _batch_norm_gradient
        return written_as(partial(write, op.written), *node.values)

    return opened(graph, made)


def _may_open(node: Node) -> bool:
    """Whether a batch norm is of large images, but not of more elements than kernels count, and
    tells its moments.
    """
    written: Any = node.op.written  # type: ignore[attr-defined]
    x = node.values[0].spec
    tells = written.function.__name__ == "_standardize_channels" and written.statics[-1]
    fits = policy.OPENED_NORM <= prod(x.shape) < OFFSETS
    return bool(tells and fits and x.dtype is float32 and len(x.shape) > 2)


def _batch_norm(written: Any, *given: Any) -> list[Any]:
    x, weight, bias, eps, _ = written.filled(given)
    mean, variance, root = apply(Moments(eps), x)
    y = (x - _beside(mean, x)) * _beside(root, x)
    if weight is not None:
        y = y * _beside(weight, x)
    if bias is not None:
        y = y + _beside(bias, x)
    return [y, mean, variance, *(root for _ in written.routine.kept)]


def _batch_norm_gradient(written: Any, *given: Any) -> list[Any]:
    count = len(written.specs)
    x, weight, *_ = written.filled(given[:count])
    _, mean, _, root, g = given[count:]
    mean, root = _beside(mean, x), _beside(root, x)
    axes = (0, *range(2, x.ndim))
    places = x.numel() // x.shape[1]
    apart = x - mean
    total = g.sum(axes, keepdim=True)
    along = (g * apart).sum(axes, keepdim=True) * root
    each = (g - total / places - apart * (along * root / places)) * root
    if weight is not None:
        each = each * _beside(weight, x)
    found = [each, along.reshape(-1), total.reshape(-1)]
    if weight is None:
        del found[1]
    return [y for y, wanted in zip(found, written.wants, strict=False) if wanted]


def _beside(x: Any, image: Any) -> Any:
    """A number for each channel, to broadcast to images."""
    return x.reshape(1, -1, *(1,) * (image.ndim - 2))


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
    libraries need not lay them so and back for each. Images that come from outside are laid so
    once, where several read them.
    """
    laid: dict[Value, Value] = {}
    nodes = []
    places = {node: _places_to_lay(node) for node in graph.nodes}
    often = Counter(node.inputs[n] for node, each in places.items() for n in each)
    for node in graph.nodes:
        inputs = list(node.inputs)
        for place in places[node]:
            x = inputs[place]
            if place == 0 and often[x] < 2:  # an image
                continue
            if x not in laid:
                nodes.append(make(ChannelsLast(), x))
                laid[x] = nodes[-1].output
            inputs[place] = laid[x]
        node.inputs = tuple(inputs)
        nodes.append(node)
    graph.nodes = nodes
    return len(laid)


def _places_to_lay(node: Node) -> list[int]:
    """The inputs of a convolution whose channels are to lie side by side."""
    op = node.op
    if not isinstance(op, (Convolution, ConvolutionInput, ConvolutionWeight)):
        return []
    if not all(len(x.shape) == 4 for x in node.values[:2]) or not _by_matrix_units(op, node):
        return []
    if isinstance(op, ConvolutionInput):
        return [1]
    images = [0] if node.values[0].node is None else []
    return images if isinstance(op, ConvolutionWeight) else [*images, 1]


def _by_matrix_units(op: Any, node: Node) -> bool:
    from ..backends import cudnn

    dtype = node.values[1].spec.dtype
    narrow = dtype in (bfloat16, float16) or (dtype is float32 and cudnn.allow_tf32)
    return narrow and op.groups == 1


def _narrows(narrow: Any, cast: Node) -> bool:
    return isinstance(cast.op, Cast) and narrow.spec.dtype in (bfloat16, float16)


def _is_cast(node: Node, like: Value) -> bool:
    return isinstance(node.op, Cast) and node.output.spec.dtype is like.spec.dtype
