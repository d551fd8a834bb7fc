"""Passes over programs of a PyTorch device, before their ops become Triton kernels."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ...backends.codegen.triton import OFFSETS
from ...core import policy
from ...core.device import CPU, device
from ...core.dtype import bfloat16, float16, float32, int64, uint8
from ...core.op import Op
from ...core.spec import Spec, prod
from ...core.tensor_type import Tensor
from ...ir.program import Node, Program, Value, make
from ...ir.rewriting import rewriting
from ...ops.nn.convolution import Convolution, ConvolutionInput, ConvolutionWeight
from ...ops.nn.pooling import MaxPool, MaxPoolInput, Pool
from ...ops.promotion import Cast
from ...runtime.dispatch import apply
from ..capture.routine_ops import RoutineBackward, RoutineForward
from .decompose import opened, written_as

if TYPE_CHECKING:
    from ...autograd.fusion import HandWritten
    from ...autograd.protocols import BackendArray


@rewriting
def inline_host_numbers(graph: Program) -> int:
    """Inline 0-d constants of the host, which are scalars beside tensors of a device; returns how
    many.
    """
    count = 0
    for node in graph.nodes:
        if all(x.spec.device == CPU for x in node.values):
            continue
        inputs = [
            x.array.item() if type(x) is Value and x.array is not None and _is_host_number(x) else x
            for x in node.inputs
        ]
        count += sum(x is not y for x, y in zip(inputs, node.inputs, strict=True))
        node.inputs = tuple(inputs)
    return count


def _is_host_number(x: Value) -> bool:
    return x.spec.device == CPU and not x.shape and x.spec.dtype.category < 3


@rewriting
def read_narrow(graph: Program) -> int:
    """Drop casts around routines that compute in float32 anyway: they read narrow inputs and give
    the narrow gradient themselves. Returns how many casts were dropped.
    """
    users = graph.users()
    outputs = set(graph.outputs)
    changes: dict[Value, Value] = {}
    count = 0
    for node in graph.nodes:
        op: Any = node.op
        if not isinstance(op, (RoutineForward, RoutineBackward)) or not getattr(
            op.written.routine, "widens", False
        ):
            continue
        wide = node.inputs[0]
        if wide.node is None or not _narrows(wide.node.inputs[0], wide.node):
            continue
        narrow = wide.node.inputs[0]
        if isinstance(op, RoutineBackward):
            y = node.output
            casts = [u for u in users.get(y, ()) if _is_cast(u, narrow)]
            if y in outputs or len(casts) < len(users.get(y, ())):
                continue
            y.spec = Spec(y.shape, narrow.spec.dtype, y.spec.device)
            changes.update((u.output, y) for u in casts)
        node.inputs = (narrow, *node.inputs[1:])
        count += 1
    graph.nodes = [node for node in graph.nodes if node.outputs[0] not in changes]
    graph.replace(changes)
    return count + len(changes)


@dataclass(eq=False, repr=False)
class PoolWithPlaces(Pool, abstract=True):
    """Max pooling that also gives the index of each maximum: within its image, or, for our own
    kernels, within its window, as a byte.
    """

    in_window: bool
    n_outputs = 2

    def infer(self, x: Spec, *rest: Spec) -> Any:
        """Specs of the maxima and of their indices."""
        maxima = Pool.infer(self, x)
        return maxima, maxima.with_(dtype=uint8 if self.in_window else int64)

    def compute(self, xp: Any, x: BackendArray) -> tuple[BackendArray, BackendArray]:
        """Run the device's pooling."""
        run = xp.max_pool_with_numbers if self.in_window else xp.max_pool_with_places
        return run(x, *self.options, self.count(x))


@dataclass(eq=False, repr=False)
class SpreadFromPlaces(Pool, abstract=True):
    """Gradient of max pooling: zeros like the first input, with the third's elements added at the
    second's indices.
    """

    in_window: bool

    def infer(self, x: Spec, *rest: Spec) -> Spec:
        """Spec of the first input."""
        return x

    def compute(
        self, xp: Any, x: BackendArray, where: BackendArray, g: BackendArray
    ) -> BackendArray:
        """Run the device's scatter."""
        run = xp.spread_from_numbers if self.in_window else xp.spread_from_places
        return run(x, where, g, *self.options)


@rewriting
def keep_places(graph: Program) -> int:
    """Let max pooling keep the indices of the maxima for its gradient, which would search for them
    again. Returns how many gradients read them.
    """
    from ...backends.torch.max_pooling import has_kernels

    here = set(graph.nodes)
    kept: dict[Value, Value] = {}
    count = 0
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
        count += 1
    return count


@dataclass(eq=False, repr=False)
class Moments(Op, abstract=True):
    """Mean and biased variance of each channel, and the square root by which its deviation is
    divided.
    """

    eps: float
    n_outputs = 3

    def infer(self, x: Spec) -> tuple[Spec, ...]:
        """Specs of the three results, in float32."""
        return (Spec(x.shape[1:2], float32, x.device),) * 3

    def compute(self, xp: Any, x: BackendArray) -> tuple[BackendArray, ...]:
        """Run the device's reduction."""
        return xp.moments_of_channels(x, self.eps)


@rewriting
def open_batch_norms(graph: Program) -> int:
    """Decompose batch norm and its gradient into moments and elementwise ops, which fuse with the
    activation and the residual sum around them; a library reads and writes images for each. Returns
    how often.
    """
    backward: dict[Value, list[Node]] = {}  # the gradients, by their kept values
    forward = []
    for node in graph.nodes:
        op: Any = node.op
        if isinstance(op, (RoutineForward, RoutineBackward)) and op.name.startswith(
            "_standardize_channels"
        ):
            number = len(op.written.specs) + len(op.written.outputs)
            if isinstance(op, RoutineForward):
                forward.append(node)
            elif op.written.routine.kept:
                backward.setdefault(node.inputs[number], []).append(node)
    users = graph.users()
    chosen: set[Node] = set()
    for node in forward:
        if not _may_open(node):
            continue
        kept = node.outputs[len(node.op.written.outputs) :]  # type: ignore[attr-defined]
        own = [each for y in kept for each in backward.get(y, ())]
        if all(y not in graph.outputs and {*users[y]} <= {*own} for y in kept):
            chosen.update((node, *own))

    def made(node: Node) -> Program | None:
        op: Any = node.op
        if node not in chosen:
            return None
        write = _batch_norm if isinstance(op, RoutineForward) else _batch_norm_gradient
        return written_as(partial(write, op.written), *node.values)

    return opened(graph, made)


def _may_open(node: Node) -> bool:
    """Whether a batch norm is decomposed: its images are large, but within the kernels' index
    range, and it returns its moments.
    """
    written: Any = node.op.written  # type: ignore[attr-defined]
    x = node.values[0].spec
    tells = written.function.__name__ == "_standardize_channels" and written.statics[-1]
    fits = policy.OPENED_NORM <= prod(x.shape) < OFFSETS
    return bool(tells and fits and x.dtype is float32 and len(x.shape) > 2)


def _batch_norm(written: HandWritten, *inputs: Any) -> list[Any]:
    x, weight, bias, eps, _ = written.filled(inputs)
    mean, variance, root = apply(Moments(eps), x)
    y = (x - _beside(mean, x)) * _beside(root, x)
    if weight is not None:
        y = y * _beside(weight, x)
    if bias is not None:
        y = y + _beside(bias, x)
    return [y, mean, variance, *(root for _ in written.routine.kept)]


def _batch_norm_gradient(written: HandWritten, *inputs: Any) -> list[Any]:
    count = len(written.specs)
    x, weight, *_ = written.filled(inputs[:count])
    _, mean, _, root, g = inputs[count:]
    mean, root = _beside(mean, x), _beside(root, x)
    axes = (0, *range(2, x.ndim))
    size = x.numel() // x.shape[1]
    apart = x - mean
    total = g.sum(axes, keepdim=True)
    along = (g * apart).sum(axes, keepdim=True) * root
    each = (g - total / size - apart * (along * root / size)) * root
    if weight is not None:
        each = each * _beside(weight, x)
    gradients = [each, along.reshape(-1), total.reshape(-1)]
    if weight is None:
        del gradients[1]
    return [y for y, wants in zip(gradients, written.wants, strict=False) if wants]


def _beside(x: Tensor, image: Tensor) -> Tensor:
    """Reshape one number per channel so that it broadcasts to images."""
    return x.reshape(1, -1, *(1,) * (image.ndim - 2))


class ChannelsLast(Op, abstract=True):
    """Copy of an image in channels-last memory order."""

    def infer(self, spec: Spec) -> Spec:
        """Spec of the image, unchanged."""
        return spec

    def compute(self, xp: Any, x: BackendArray) -> BackendArray:
        """Run the device's copy."""
        return xp.with_channels_last(x)


def has_matrix_units(device: device) -> bool:
    """Whether a device has matrix units, as GPUs have."""
    return bool(device.type == "cuda")


@rewriting
def lay_channels_last(graph: Program) -> int:
    """Give 2-d convolutions on a GPU's matrix units weights in channels-last order. Their results,
    and what is computed from these, have that order too, so that libraries need not convert for
    each. Images from outside are converted once, if several convolutions read them. Returns how
    many values are converted.
    """
    laid: dict[Value, Value] = {}
    nodes = []
    numbers_of = {node: _places_to_lay(node) for node in graph.nodes}
    often = Counter(node.inputs[n] for node, each in numbers_of.items() for n in each)
    for node in graph.nodes:
        inputs = list(node.inputs)
        for number in numbers_of[node]:
            x = inputs[number]
            if number == 0 and often[x] < 2:  # an image
                continue
            if x not in laid:
                nodes.append(make(ChannelsLast(), x))
                laid[x] = nodes[-1].output
            inputs[number] = laid[x]
        node.inputs = tuple(inputs)
        nodes.append(node)
    graph.nodes = nodes
    return len(laid)


def _places_to_lay(node: Node) -> list[int]:
    """Numbers of a convolution's inputs that are to be in channels-last order."""
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
    from ...backends import cudnn

    dtype = node.values[1].spec.dtype
    narrow = dtype in (bfloat16, float16) or (dtype is float32 and cudnn.allow_tf32)
    return narrow and op.groups == 1


def _narrows(narrow: Value, cast: Node) -> bool:
    return isinstance(cast.op, Cast) and narrow.spec.dtype in (bfloat16, float16)


def _is_cast(node: Node, like: Value) -> bool:
    return isinstance(node.op, Cast) and node.output.spec.dtype is like.spec.dtype
