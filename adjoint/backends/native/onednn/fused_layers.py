"""Layers of a frozen network by oneDNN: convolutions, products and pooling with what follows them.

Images lie with their channels last, which is the order that oneDNN's fastest convolutions compute
in, so nothing is copied between layers. Weights never change: they are brought into the order of
their use once (`Packing`). A layer says which memories its primitives read and write; `connect`
puts layers that run one after another into one plan, of which a call is one call of machine code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ....core import policy
from ....core.arrays import address
from ....core.errors import Unsupported
from ..gemm.products import FLOAT32, pieces
from . import api as onednn
from .api import BIAS, DST, SRC, WEIGHTS, Activation, Descriptor, Primitive
from .convolution_plans import ConvolutionGeometry, assert_possible, grouped, line_parts
from .plan import OneDnnPlan, PlanArgument, PrimitiveStep, aligned_bytes, threads
from .pooling_plans import PoolingGeometry as Windows

Sizes = tuple[int, ...]

ADDED = "added"  # among what follows a layer: an operand of the shape of its result


class LayerMemory(NamedTuple):
    """A memory of a primitive: where it is in what plays this role."""

    role: str
    memory: Descriptor
    offset: int = 0


class LayerPart(NamedTuple):
    """One execution of a primitive, and the places of its arguments."""

    primitive: Primitive
    places: dict[int, LayerMemory]


class FusedLayer(NamedTuple):
    """Executions that may run at once, on roles: x, y, bias, added0, ..., and what is packed."""

    what: str
    chunks: list[LayerPart]
    packed: dict[str, Any]


class Packing:
    """Weights in the orders in which primitives want them, each made once."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Any, list[tuple[Any, ...]]]] = {}
        self._made: dict[Any, tuple[Any, Any]] = {}

    def get(self, weights: Any, part: Any, plain: Descriptor, wanted: Descriptor) -> Any:
        """The bytes of a part of the weights (which `plain` describes, from the first element of
        the array `part`), as `wanted` describes it.
        """
        _, packed = self._kept.setdefault(id(weights), (weights, []))
        start = address(part)
        for known, before, after, blocked in packed:
            same = known == start and onednn.same_layout(before, plain)
            if same and onednn.same_layout(after, wanted):
                return blocked
        blocked = aligned_bytes(wanted.size)
        mover = onednn.Primitive(onednn.reorder(plain, wanted, "packing weights"))
        step = PrimitiveStep(mover, {SRC: PlanArgument(plain, 0), DST: PlanArgument(wanted, 1)})
        OneDnnPlan("packing weights", [[[step]]], 2).run(part, blocked)
        packed.append((start, plain, wanted, blocked))
        return blocked

    def once(self, source: Any, key: Any, make: Callable[[Any], Any]) -> Any:
        """The result of `make` for an array, made once for each key."""
        name = (id(source), key)
        if name not in self._made:
            self._made[name] = source, make(source)
        return self._made[name][1]


def connect(
    layers: Sequence[tuple[FusedLayer, Mapping[str, tuple[int, int]]]], slots: int
) -> OneDnnPlan:
    """One plan for layers that run one after another; for each the slot and the offset of what
    plays its roles.
    """
    phases = []
    for layer, where in layers:
        chunks = []
        for part in layer.chunks:
            arguments = {}
            for number, place in part.places.items():
                slot, offset = where[place.role]
                arguments[number] = PlanArgument(place.memory, slot, offset + place.offset)
            chunks.append([PrimitiveStep(part.primitive, arguments)])
        phases.append(chunks)
    return OneDnnPlan(layers[0][0].what, phases, slots)


class PostOps:
    """Post-ops of a layer: activations, and ADDED for each operand."""

    def __init__(self, each: Sequence[Activation | str]) -> None:
        self.each = each

    def described(self, memory: Descriptor) -> list[Activation | Descriptor]:
        """The post-ops as the primitive takes them; operands lie as the result does."""
        return [memory if isinstance(x, str) else x for x in self.each]

    def places(self, memory: Descriptor, offset: int) -> dict[int, LayerMemory]:
        """The operands, by the number of the argument."""
        operands: dict[int, LayerMemory] = {}
        for i, x in enumerate(self.each):
            if isinstance(x, str):
                number = onednn.POST_OPERAND + i * onednn.POST_OPERANDS
                operands[number] = LayerMemory(f"{ADDED}{len(operands)}", memory, offset)
        return operands


def channels_last(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides, in elements, of images (batch, channels, *size) whose channels lie last."""
    n, c, *size = shape
    strides = onednn.contiguous_strides((n, *size, c))
    return (strides[0], strides[-1], *strides[1:-1])


def _images(*shape: int) -> Descriptor:
    """Images without gaps: several whole ones, or lines of one."""
    return onednn.described(shape, channels_last(shape), FLOAT32)


def convolution(
    g: ConvolutionGeometry,
    w: Any,
    bias: bool,
    following: Sequence[Activation | str],
    packing: Packing,
) -> FusedLayer:
    """y: the convolution of x with w, plus bias, then what follows.

    Errors: Unsupported for what oneDNN has no fast primitive for.
    """
    assert_possible(g)
    if g.dtype != FLOAT32:
        raise Unsupported(f"{g}: layers are float32")
    following_ = PostOps(following)
    w_shape = grouped(g, g.outputs, g.inputs)
    plain = onednn.contiguous(w_shape, FLOAT32)
    w = np.ascontiguousarray(w) if not w.flags.c_contiguous else w
    x_steps = channels_last((g.batch, g.inputs, *g.size))
    y_steps = channels_last((g.batch, g.outputs, *g.count))
    batches, rows = _cut(g)
    chunks: list[LayerPart] = []
    known: dict[Any, Primitive] = {}
    packed: dict[str, Any] = {}
    wanted: Descriptor | None = None
    for n, batch in pieces(g.batch, batches):
        for y0, height, x0, lines, pads in line_parts(g, rows):
            part = replace(
                g, batch=batch, size=(lines, *g.size[1:]), count=(height, *g.count[1:]),
                padding=(pads, *g.padding[1:]),
            )  # fmt: skip
            source = _images(batch, g.inputs, *part.size)
            result = _images(batch, g.outputs, *part.count)
            if part not in known:
                known[part] = onednn.primitive(
                    "convolution_forward", str(g), onednn.library().engine, onednn.INFERENCE,
                    onednn.CONVOLUTION_DIRECT, source,
                    onednn.any_layout(w_shape, FLOAT32) if wanted is None else wanted,
                    onednn.contiguous((g.outputs,), FLOAT32) if bias else None, result,
                    *part.arguments(), following=following_.described(result),
                )  # fmt: skip
            main = known[part]
            if wanted is None:
                wanted = main.memory(WEIGHTS)
                packed["w"] = packing.get(w, w, plain, wanted)
            x_offset = 4 * (n * x_steps[0] + x0 * x_steps[2])
            y_offset = 4 * (n * y_steps[0] + y0 * y_steps[2])
            places = {
                SRC: LayerMemory("x", source, x_offset),
                WEIGHTS: LayerMemory("w", wanted),
                DST: LayerMemory("y", result, y_offset),
                **following_.places(result, y_offset),
            }
            if bias:
                places[BIAS] = LayerMemory("bias", onednn.contiguous((g.outputs,), FLOAT32))
            chunks.append(LayerPart(main, places))
    return FusedLayer(str(g), chunks, packed)


def is_dense(g: ConvolutionGeometry) -> bool:
    """Whether a convolution is faster as one product of whole images: those that are hardly larger
    than the kernel, of which most windows lie partly outside. Measured with AVX-512.
    """
    pairs, taps = math.prod(g.size) * math.prod(g.count), math.prod(g.kernel)
    return g.groups == 1 and (pairs <= taps or (pairs <= 2 * taps and g.batch >= 8))


def dense_weights(g: ConvolutionGeometry, w: Any) -> Any:
    """The matrix that maps whole images, channels last, to all their values."""
    dense = np.zeros((*g.size, g.inputs, *g.count, g.outputs), w.dtype)
    places = zip(g.stride, g.padding, g.dilation, strict=True)
    offsets = [(s, lo, d) for s, (lo, _), d in places]
    for at in np.ndindex(*g.count):
        for tap in np.ndindex(*g.kernel):
            spot = tuple(
                i * s - lo + k * d for i, k, (s, lo, d) in zip(at, tap, offsets, strict=True)
            )
            if all(0 <= i < n for i, n in zip(spot, g.size, strict=True)):
                dense[(*spot, slice(None), *at)] = w[(slice(None), slice(None), *tap)].T
    return dense.reshape(g.inputs * math.prod(g.size), -1)


def is_streamed(g: ConvolutionGeometry) -> bool:
    """Whether a convolution is faster as a product of its windows with the weights: where those are
    too large for the cache and there are few windows, oneDNN reads them once for each line.
    """
    weights = 4 * math.prod(g.w_shape())
    few = 1 < g.batch * math.prod(g.count) <= policy.LAYER_STREAMED_WINDOWS and g.count[0] > 1
    return g.groups == 1 and max(g.kernel) > 1 and few and weights >= policy.LAYER_STREAMED_BYTES


def is_pointwise(g: ConvolutionGeometry) -> bool:
    """Whether a convolution is a product of its images, each place a row."""
    alone = all(n == 1 for n in (*g.kernel, *g.stride, g.groups))
    return alone and g.count == g.size and not any(map(any, g.padding))


def window_weights(w: Any) -> Any:
    """Weights as a matrix: a row for each place of a window, channels last, and input channel."""
    order = (*range(2, w.ndim), 1, 0)
    return np.ascontiguousarray(w.transpose(order)).reshape(-1, len(w))


def windows_of(g: ConvolutionGeometry) -> tuple[Any, Any]:
    """Memory for images (a view, channels second, inside zeros), and the view of all windows:
    (batch, *count, *kernel, channels).
    """
    ends = [
        max(lo + n, (c - 1) * s + (k - 1) * d + 1)
        for n, c, s, k, d, (lo, _) in zip(
            g.size, g.count, g.stride, g.kernel, g.dilation, g.padding, strict=True
        )
    ]
    padded = np.zeros((g.batch, *ends, g.inputs), np.float32)
    inside = tuple(slice(lo, lo + n) for n, (lo, _) in zip(g.size, g.padding, strict=True))
    middle = np.moveaxis(padded[(slice(None), *inside)], -1, 1)
    steps = padded.strides
    windows = np.lib.stride_tricks.as_strided(
        padded,
        (g.batch, *g.count, *g.kernel, g.inputs),
        (
            steps[0],
            *(step * s for step, s in zip(steps[1:-1], g.stride, strict=True)),
            *(step * d for step, d in zip(steps[1:-1], g.dilation, strict=True)),
            steps[-1],
        ),
    )
    return middle, windows


def deconvolution(
    g: ConvolutionGeometry,
    w: Any,
    bias: bool,
    following: Sequence[Activation | str],
    packing: Packing,
) -> FusedLayer:
    """The transpose of the convolution `g`, images from its values; plus bias, then what follows.

    What is read plays the role x, what is written y.
    """
    assert_possible(g)
    if g.dtype != FLOAT32:
        raise Unsupported(f"{g}: layers are float32")
    following_ = PostOps(following)
    inner = onednn.contiguous_strides(g.kernel)
    area = math.prod(g.kernel)
    first, second = g.outputs // g.groups, g.inputs // g.groups
    w_shape: Sizes = (second, first, *g.kernel)
    strides: Sizes = (area, second * area, *inner)
    if g.groups > 1:
        w_shape, strides = (g.groups, *w_shape), (first * second * area, *strides)
    plain = onednn.described(w_shape, strides, FLOAT32)
    w = np.ascontiguousarray(w) if not w.flags.c_contiguous else w
    vector = onednn.contiguous((g.inputs,), FLOAT32) if bias else None
    chunks = []
    known: dict[int, Primitive] = {}
    packed: dict[str, Any] = {}
    workers = min(threads(), max(1, g.work // policy.CONVOLUTION_GRAIN))
    for n, batch in pieces(g.batch, workers):
        source = _images(batch, g.outputs, *g.count)
        result = _images(batch, g.inputs, *g.size)
        if batch not in known:
            known[batch] = onednn.primitive(
                "deconvolution_forward", f"transpose of {g}", onednn.library().engine,
                onednn.INFERENCE, onednn.DECONVOLUTION_DIRECT, source,
                onednn.any_layout(w_shape, FLOAT32), vector, result,
                *g.arguments(), following=following_.described(result),
            )  # fmt: skip
        main = known[batch]
        wanted = main.memory(WEIGHTS)
        if f"w{batch}" not in packed:
            packed[f"w{batch}"] = packing.get(w, w, plain, wanted)
        offset = 4 * n * g.inputs * math.prod(g.size)
        places = {
            SRC: LayerMemory("x", source, 4 * n * g.outputs * math.prod(g.count)),
            WEIGHTS: LayerMemory(f"w{batch}", wanted),
            DST: LayerMemory("y", result, offset),
            **following_.places(result, offset),
        }
        if vector is not None:
            places[BIAS] = LayerMemory("bias", vector)
        chunks.append(LayerPart(main, places))
    return FusedLayer(f"transpose of {g}", chunks, packed)


def _cut(g: ConvolutionGeometry) -> tuple[int, int]:
    """Partition of a layer: in how many parts of the batch, and of an image's rows, the threads
    share the work.
    """
    workers = threads()
    parts = max(1, min(2 * workers, g.work // policy.CONVOLUTION_GRAIN))
    if workers == 1 or parts == 1:
        return 1, 1
    if g.batch >= workers:
        return min(g.batch, parts), 1
    return g.batch, max(1, min(-(-workers // g.batch), g.count[0] // 2))


def product(
    m: int, w: Any, bias: bool, following: Sequence[Activation | str], packing: Packing
) -> FusedLayer:
    """y (m, n): the product of x (m, k) with w (k, n), plus bias, then what follows."""
    if w.dtype != FLOAT32:
        raise Unsupported("layers are float32")
    following_ = PostOps(following)
    k, n = w.shape
    what = f"layer ({m}, {k}) @ ({k}, {n})"
    strides = tuple(s // w.itemsize for s in w.strides)
    if 1 not in strides or min(strides) < 0 or not w.size or not m:
        w = np.ascontiguousarray(w)
        strides = (n, 1)
    if not w.size or not m:
        raise Unsupported(f"{what}: left to NumPy")
    workers = min(threads(), max(1, m * k * n // policy.CONVOLUTION_GRAIN))
    by_rows = workers == 1 or m >= policy.LAYER_FEWEST_ROWS * workers
    chunks: list[LayerPart] = []
    known: dict[Any, Primitive] = {}
    packed: dict[str, Any] = {}
    for row, rows in pieces(m, workers if by_rows else 1, 1):
        for column, columns in pieces(n, 1 if by_rows else workers, 16):
            source = onednn.described((rows, k), (k, 1), FLOAT32)
            result = onednn.described((rows, columns), (n, 1), FLOAT32)
            vector = onednn.contiguous((1, columns), FLOAT32) if bias else None
            if (rows, columns) not in known:
                known[rows, columns] = onednn.primitive(
                    "matmul", what, onednn.library().engine, source,
                    onednn.any_layout((k, columns), FLOAT32), vector, result,
                    following=following_.described(result),
                )  # fmt: skip
            main = known[rows, columns]
            wanted = main.memory(WEIGHTS)
            role = f"w{column}.{rows}"
            if role not in packed:
                part = w[:, column : column + columns]
                plain = onednn.described((k, columns), strides, FLOAT32)
                packed[role] = packing.get(w if w.base is None else w.base, part, plain, wanted)
            offset = 4 * (row * n + column)
            places = {
                SRC: LayerMemory("x", source, 4 * row * k),
                WEIGHTS: LayerMemory(role, wanted),
                DST: LayerMemory("y", result, offset),
                **following_.places(result, offset),
            }
            if vector is not None:
                places[BIAS] = LayerMemory("bias", vector, 4 * column)
            chunks.append(LayerPart(main, places))
    return FusedLayer(what, chunks, packed)


def pooling(
    batch: int, channels: int, g: Windows, largest: bool, following: Sequence[Activation | str]
) -> FusedLayer:
    """y: the largest element, or the mean with padding counted, of each window of x."""
    if largest and not g.inside:
        raise Unsupported(f"{g}: oneDNN's maximum of nothing is not -inf")
    if len(g.size) > 3 or not math.prod(g.count) or not g.planes:
        raise Unsupported(f"{g}: left to NumPy")
    arguments = g.arguments()
    algorithm = onednn.POOL_MAX if largest else onednn.POOL_AVERAGE
    following_ = PostOps(following)
    chunks = []
    known: dict[int, Primitive] = {}
    workers = min(threads(), max(1, g.planes * math.prod(g.size) >> 16))
    for n, images in pieces(batch, workers):
        source = _images(images, channels, *g.size)
        result = _images(images, channels, *g.count)
        if images not in known:
            known[images] = onednn.primitive(
                "pooling_forward", str(g), onednn.library().engine, onednn.INFERENCE, algorithm,
                source, result, *arguments, following=following_.described(result),
            )  # fmt: skip
        offset = 4 * n * channels * math.prod(g.count)
        places = {
            SRC: LayerMemory("x", source, 4 * n * channels * math.prod(g.size)),
            DST: LayerMemory("y", result, offset),
            **following_.places(result, offset),
        }
        chunks.append(LayerPart(known[images], places))
    return FusedLayer(str(g), chunks, {})
