"""Plans of convolutions: oneDNN's primitives over parts of the batch, the rows or the channels.

Images go in and out in plain order. Where oneDNN prefers blocks of channels, each part is copied
into them and back while it is in the cache; weights are copied once for all parts, into a slot of
their own, so that a caller may keep them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ....core import policy
from ....core.errors import Unsupported
from ..gemm.products import BFLOAT16, FLOAT32, pieces
from . import api as onednn
from .api import (
    BIAS,
    DIFF_DST,
    DIFF_SRC,
    DIFF_WEIGHTS,
    DST,
    SRC,
    WEIGHTS,
    Description,
    Descriptor,
    Primitive,
)
from .plan import SCRATCH, SHARED, OneDnnPlan, PlanArgument, PrimitiveStep, aligned, threads

Sizes = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]

BLOCK = 16  # channels in one of oneDNN's blocks


@dataclass(frozen=True)
class ConvolutionGeometry:
    """A convolution of x (batch, inputs, *size) with w (outputs, inputs / groups, *kernel)."""

    batch: int
    inputs: int
    outputs: int
    size: Sizes
    kernel: Sizes
    count: Sizes
    stride: Sizes
    padding: Pairs
    dilation: Sizes
    groups: int
    dtype: Any
    blocks: tuple[int, int] = (0, 0)  # of channels in which images and values lie; 0: plain

    def __str__(self) -> str:
        return (
            f"convolution of {(self.batch, self.inputs, *self.size)} with "
            f"{self.w_shape()}, stride {self.stride}, padding {self.padding}, "
            f"dilation {self.dilation}, groups {self.groups}, {self.dtype.name}"
        )

    def w_shape(self) -> Sizes:
        """The shape of the weights."""
        return (self.outputs, self.inputs // self.groups, *self.kernel)

    @property
    def work(self) -> int:
        """Multiply-adds."""
        return self.batch * math.prod(self.w_shape()) * math.prod(self.count)

    @property
    def axes(self) -> Iterator[tuple[int, int, int, int, int, tuple[int, int]]]:
        """Size, count, stride, kernel, dilation and padding of each dimension."""
        facts = self.size, self.count, self.stride, self.kernel, self.dilation, self.padding
        return zip(*facts, strict=True)  # type: ignore[arg-type]

    @property
    def touched(self) -> bool:
        """Whether each place of the kernel sees a place of the images in some window."""
        return all(
            any(0 <= i * s - lo + j * d < n for i in range(c))
            for n, c, s, k, d, (lo, _) in self.axes
            for j in range(k)
        )

    @property
    def pointwise(self) -> bool:
        """Whether it is a matrix product at every place."""
        plain = all(lo == 0 == hi for lo, hi in self.padding)
        return max(self.kernel) == 1 == max(self.stride) and plain

    def arguments(self) -> tuple[Any, ...]:
        """Strides, dilations and paddings as oneDNN takes them."""
        ends = [(c - 1) * s + (k - 1) * d + 1 - n - lo for n, c, s, k, d, (lo, _) in self.axes]
        return (
            onednn.dims(self.stride),
            onednn.dims([d - 1 for d in self.dilation]),
            onednn.dims([lo for lo, _ in self.padding]),
            onednn.dims(ends),
        )


GEMM = "x64:gemm"  # columns of images and a matrix product, all in plain order


# Places of all results below which a product of matrices is faster: for 512 channels of 5 by 5 in
# a batch of 4, gradients of weights take 4.4 ms and not 12; from 200 places on, both take as long.
_FEW_PLACES = {"forward": 64, "backward_data": 0, "backward_weights": 160}


def _preferred(g: ConvolutionGeometry, kind: str) -> str:
    """The implementation that is faster than oneDNN's own choice, where one was measured."""
    if g.dtype != FLOAT32 or g.groups > 1 or any(g.blocks):
        return ""
    few = g.batch * math.prod(g.count) < _FEW_PLACES[kind]
    if max(g.kernel) == 1 or few or (kind == "backward_data" and g.inputs <= 4):
        return GEMM
    return ""


class _Place(NamedTuple):
    """A part of an array: shape, where it begins, in which slot; of images in blocks, some whole
    ones.
    """

    slot: int
    whole: Sizes
    start: Sizes
    shape: Sizes
    block: int = 0

    def argument(self, dtype: Any) -> PlanArgument:
        """The primitive's argument: description of the memory, and offset."""
        if self.block:
            memory = onednn.in_blocks(self.shape, self.block, dtype)
            return PlanArgument(memory, self.slot, memory.size // self.shape[0] * self.start[0])
        strides = onednn.contiguous_strides(self.whole)
        offset = sum(i * s for i, s in zip(self.start, strides, strict=True)) * dtype.itemsize
        return PlanArgument(onednn.described(self.shape, strides, dtype), self.slot, offset)


class _ConvolutionBuilder:
    """Makes the steps of parts of a convolution; equal parts share their primitives."""

    def __init__(self, geometry: ConvolutionGeometry) -> None:
        self.geometry = self.what = geometry  # what: text in errors only
        self.primitives: dict[Any, Primitive] = {}
        self.scratch = self.taken = 0

    def chunk(self) -> list[PrimitiveStep]:
        """A new chunk, which may use all scratch memory."""
        self.taken = 0
        return []

    def take(self, memory: Descriptor) -> PlanArgument:
        """Scratch memory of this chunk."""
        place = PlanArgument(memory, SCRATCH, self.taken)
        self.taken += aligned(memory.size)
        self.scratch = max(self.scratch, self.taken)
        return place

    def once(self, key: Any, describe: Callable[[], Description]) -> Primitive:
        """The primitive of this key."""
        if key not in self.primitives:
            self.primitives[key] = Primitive(describe())
        return self.primitives[key]

    def copy(self, source: PlanArgument, target: PlanArgument, key: Any) -> PrimitiveStep:
        """A change of layout."""
        mover = self.once(key, lambda: onednn.reorder(source.memory, target.memory, self.what))
        return PrimitiveStep(mover, {SRC: source, DST: target})

    def read(
        self, chunk: list[PrimitiveStep], place: _Place, primitive: Primitive, number: int
    ) -> PlanArgument:
        """The plain part in the layout that a primitive wants."""
        wanted = primitive.memory(number)
        plain = place.argument(self.geometry.dtype)
        if onednn.same_layout(plain.memory, wanted):
            return plain
        staged = self.take(wanted)
        chunk.append(self.copy(plain, staged, (primitive, number)))
        return staged

    def write(
        self, place: _Place, primitive: Primitive, number: int
    ) -> tuple[PlanArgument, list[PrimitiveStep]]:
        """The argument where a primitive puts its result, and the steps that then bring it to its
        place.
        """
        given = primitive.memory(number)
        plain = place.argument(self.geometry.dtype)
        if onednn.same_layout(plain.memory, given):
            return plain, []
        staged = self.take(given)
        return staged, [self.copy(staged, plain, (primitive, number))]


def grouped(g: ConvolutionGeometry, outputs: int, inputs: int) -> Sizes:
    """The shape of weights for oneDNN: with groups first where there are several."""
    if g.groups == 1:
        return (outputs, inputs, *g.kernel)
    return (g.groups, outputs // g.groups, inputs // g.groups, *g.kernel)


class _Weights:
    """Weights in the layout that a primitive wants, in the slot behind the others."""

    def __init__(self, builder: _ConvolutionBuilder, slot: int, blocked: int) -> None:
        self.builder, self.slot, self.blocked = builder, slot, blocked
        self.size = 0
        self.phase: list[list[PrimitiveStep]] = []
        self.known: dict[Any, PlanArgument] = {}

    def get(self, start: Sizes, shape: Sizes, wanted: Descriptor) -> PlanArgument:
        """A part of the weights; the phase then has what copies it."""
        if (start, shape) in self.known:
            return self.known[start, shape]
        g = self.builder.geometry
        whole = grouped(g, g.outputs, g.inputs)
        place = _Place(self.slot, whole, start, shape)
        plain = place.argument(g.dtype)
        if onednn.same_layout(plain.memory, wanted):
            argument = plain
        else:
            argument = PlanArgument(wanted, self.blocked, self.size)
            self.size += aligned(wanted.size)
            self.phase += self._copies(place, argument)
        self.known[start, shape] = argument
        return argument

    def _copies(self, place: _Place, target: PlanArgument) -> list[list[PrimitiveStep]]:
        dtype = self.builder.geometry.dtype
        parts = min(threads(), max(1, math.prod(place.shape) >> 16))
        chunks = []
        try:
            for start, length in pieces(place.shape[0], parts, 4 * BLOCK):
                shape = (length, *place.shape[1:])
                offsets = (start, *(0,) * len(place.shape[1:]))
                memory = target.memory.part(shape, offsets)
                from_ = place._replace(
                    start=(place.start[0] + start, *place.start[1:]), shape=shape
                )
                source = from_.argument(dtype)
                key = ("weights", place.shape, start, length)
                chunks.append([self.builder.copy(source, target._replace(memory=memory), key)])
        except onednn.LibraryError:  # not at the border of a block
            source = place.argument(dtype)
            return [[self.builder.copy(source, target, ("weights", place.start, place.shape))]]
        return chunks


class ConvolutionPlan(NamedTuple):
    """A plan, and how many bytes its reordered weights take (the last slot); 0: none are needed.

    `pointwise`: matrix products at every place do the same without a plan.
    """

    plan: OneDnnPlan
    weights: int
    pointwise: bool = False


class Cut(NamedTuple):
    """Partition of a convolution: numbers of parts."""

    batch: int = 1
    rows: int = 1
    channels: int = 1


def _cut(g: ConvolutionGeometry, channels: int, by_rows: bool) -> Cut:
    """Parts of the batch; where those are too few, of the rows or of the result's `channels`."""
    workers = threads()
    parts = max(1, min(4 * workers, g.work // policy.CONVOLUTION_GRAIN))
    if any(g.blocks):
        return Cut(min(g.batch, parts))
    if parts == 1 or (workers == 1 and g.batch == 1):
        return Cut()
    large = math.prod(g.w_shape()) * g.dtype.itemsize > 1 << 20
    can_split = g.groups == 1 and channels >= 2 * BLOCK
    if large and can_split:
        return Cut(1, 1, min(workers, -(-channels // BLOCK)))
    if g.batch >= workers:
        places = g.inputs * math.prod(g.size) + g.outputs * math.prod(g.count)
        cached = g.batch * places * g.dtype.itemsize // policy.CONVOLUTION_CACHED
        return Cut(min(g.batch, max(parts, min(cached, policy.CONVOLUTION_MOST))))
    wanted = -(-min(parts, workers) // g.batch)
    if by_rows and g.count[0] >= 4 * wanted:
        return Cut(g.batch, wanted)
    if can_split:
        return Cut(g.batch, 1, min(wanted, channels // BLOCK))
    return Cut(g.batch)


def line_parts(
    g: ConvolutionGeometry, parts: int
) -> list[tuple[int, int, int, int, tuple[int, int]]]:
    """Parts of the first spatial dimension: result's start and length, images' ones, padding."""
    if parts == 1:
        return [(0, g.count[0], 0, g.size[0], g.padding[0])]
    n, s, lo = g.size[0], g.stride[0], g.padding[0][0]
    span = (g.kernel[0] - 1) * g.dilation[0] + 1
    lines = []
    for start, length in pieces(g.count[0], parts):
        first = start * s - lo
        last = first + (length - 1) * s + span
        above, below = max(0, -first), max(0, last - n)
        begin, end = max(0, first), min(n, last)
        if end <= begin:
            return line_parts(g, 1)
        if start + length == g.count[0]:
            end = n  # what the last window does not reach counts as oneDNN wants it
        lines.append((start, length, begin, end - begin, (above, below)))
    return lines


X, W, Y, BIAS_SLOT, BLOCKED = 0, 1, 2, 3, 4


def _assert_supported(g: ConvolutionGeometry) -> None:
    """Refuse convolutions that oneDNN does not have, or for which it does not pay."""
    if g.work <= policy.CONVOLUTION_SMALL:
        raise Unsupported(f"{g}: left to NumPy")
    assert_possible(g)


def assert_possible(g: ConvolutionGeometry) -> None:
    """Refuse what oneDNN does not have, and what does not fit."""
    if not g.work or len(g.size) > 3 or g.dtype not in (FLOAT32, BFLOAT16):
        raise Unsupported(f"{g}: left to NumPy")
    for n, c, s, k, d, (lo, hi) in g.axes:
        if (n + lo + hi - (k - 1) * d - 1) // s + 1 != c:
            raise Unsupported(f"{g}: {g.count} is not the number of its windows")
        if lo < 0 or (c - 1) * s + (k - 1) * d + 1 - n - lo <= -s:
            raise Unsupported(f"{g}: oneDNN leaves out fewer places than a stride")


def forward(g: ConvolutionGeometry, bias: bool, cut: Cut | None = None) -> ConvolutionPlan:
    """Values from images; each part reads the lines of images that its windows see."""
    _assert_supported(g)
    builder = _ConvolutionBuilder(g)
    weights = _Weights(builder, W, BLOCKED)
    cut = cut or _cut(g, g.outputs, True)
    x_whole, y_whole = (g.batch, g.inputs, *g.size), (g.batch, g.outputs, *g.count)
    zeros = (0,) * (len(g.size) - 1)
    chunks = []
    for o, outputs in pieces(g.outputs, cut.channels, BLOCK):
        w_shape = grouped(g, outputs, g.inputs)
        w_start = (o, *(0,) * (len(w_shape) - 1)) if g.groups == 1 else (0,) * len(w_shape)
        for n, batch in pieces(g.batch, cut.batch):
            for y0, rows, x0, lines, pads in line_parts(g, cut.rows):
                part = replace(
                    g, batch=batch, outputs=outputs, size=(lines, *g.size[1:]),
                    count=(rows, *g.count[1:]), padding=(pads, *g.padding[1:]),
                )  # fmt: skip
                known = weights.known.get((w_start, w_shape))
                main = builder.once(
                    part, functools.partial(_forward_description, part, w_shape, bias, known)
                )
                chunk = builder.chunk()
                x_part = _Place(
                    X, x_whole, (n, 0, x0, *zeros), (batch, g.inputs, *part.size), g.blocks[0]
                )
                y_part = _Place(
                    Y, y_whole, (n, o, y0, *zeros), (batch, outputs, *part.count), g.blocks[1]
                )
                source = builder.read(chunk, x_part, main, SRC)
                result, after = builder.write(y_part, main, DST)
                w = weights.get(w_start, w_shape, main.memory(WEIGHTS))
                arguments = {SRC: source, WEIGHTS: w, DST: result}
                if bias:
                    memory = onednn.contiguous((outputs,), g.dtype)
                    arguments[BIAS] = PlanArgument(memory, BIAS_SLOT, o * g.dtype.itemsize)
                chunks.append([*chunk, PrimitiveStep(main, arguments), *after])
    return _plan(builder, weights, chunks)


def _plan(
    builder: _ConvolutionBuilder, weights: _Weights, chunks: list[list[PrimitiveStep]]
) -> ConvolutionPlan:
    phases = [weights.phase, chunks] if weights.phase else [chunks]
    plan = OneDnnPlan(builder.what, phases, 5, scratch=builder.scratch)
    g = builder.geometry
    pointwise = g.pointwise and g.groups == 1 and not any(g.blocks)
    return ConvolutionPlan(plan, weights.size, pointwise)


def _described(
    g: ConvolutionGeometry, kind: str, *arguments: Any, hint: Description | None = None
) -> Description:
    """A convolution's description; oneDNN wants the forward one as a hint for the others."""
    given = (onednn.library().engine, *arguments, *g.arguments())
    given += () if hint is None else (hint,)
    prefer = _preferred(g, kind)
    return onednn.described_by(f"convolution_{kind}", g, *given, prefer=prefer)


def _layouts(g: ConvolutionGeometry) -> tuple[Descriptor, Descriptor]:
    """Images and values: in the blocks in which they lie, or laid out as oneDNN likes."""
    shapes = (g.batch, g.inputs, *g.size), (g.batch, g.outputs, *g.count)
    x, y = (
        onednn.in_blocks(shape, block, g.dtype) if block else onednn.any_layout(shape, g.dtype)
        for shape, block in zip(shapes, g.blocks, strict=True)
    )
    return x, y


def _forward_description(
    g: ConvolutionGeometry, w_shape: Sizes, bias: bool = False, weights: PlanArgument | None = None
) -> Description:
    x, y = _layouts(g)
    w = onednn.any_layout(w_shape, g.dtype) if weights is None else weights.memory
    vector = onednn.contiguous((g.outputs,), g.dtype) if bias else None
    return _described(g, "forward", onednn.TRAINING, onednn.CONVOLUTION_DIRECT, x, w, vector, y)


def backward_data(g: ConvolutionGeometry, cut: Cut | None = None) -> ConvolutionPlan:
    """Images from values: the transpose of `forward` in the images."""
    _assert_supported(g)
    builder = _ConvolutionBuilder(g)
    weights = _Weights(builder, W, BLOCKED)
    cut = cut or _cut(g, g.inputs, False)
    x_whole, y_whole = (g.batch, g.inputs, *g.size), (g.batch, g.outputs, *g.count)
    zeros = (0,) * len(g.size)
    chunks = []
    for i, inputs in pieces(g.inputs, cut.channels, BLOCK):
        w_shape = grouped(g, g.outputs, inputs)
        w_start = (0, i, *zeros) if g.groups == 1 else (0,) * len(w_shape)
        for n, batch in pieces(g.batch, cut.batch):
            part = replace(g, batch=batch, inputs=inputs)
            known = weights.known.get((w_start, w_shape))
            main = builder.once(part, functools.partial(_backward_data, part, w_shape, known))
            chunk = builder.chunk()
            y_part = _Place(
                Y, y_whole, (n, 0, *zeros), (batch, g.outputs, *g.count), g.blocks[1]
            )  # fmt: skip
            x_part = _Place(X, x_whole, (n, i, *zeros), (batch, inputs, *g.size), g.blocks[0])
            source = builder.read(chunk, y_part, main, DIFF_DST)
            result, after = builder.write(x_part, main, DIFF_SRC)
            w = weights.get(w_start, w_shape, main.memory(WEIGHTS))
            step = PrimitiveStep(main, {DIFF_DST: source, WEIGHTS: w, DIFF_SRC: result})
            chunks.append([*chunk, step, *after])
    return _plan(builder, weights, chunks)


def _backward_data(
    g: ConvolutionGeometry, w_shape: Sizes, weights: PlanArgument | None
) -> Description:
    x, y = _layouts(g)
    w = onednn.any_layout(w_shape, g.dtype) if weights is None else weights.memory
    hint = _forward_description(g, w_shape)
    return _described(g, "backward_data", onednn.CONVOLUTION_DIRECT, x, w, y, hint=hint)


def backward_weights(g: ConvolutionGeometry) -> ConvolutionPlan:
    """Sums over parts of the batch, then their sum; or parts of the output channels."""
    _assert_supported(g)
    if not g.touched:
        raise Unsupported(
            f"{g}: oneDNN 3.2 with AMX leaves weights undefined that see padding only"
        )
    workers = threads()
    w_size = math.prod(g.w_shape())
    x_size = g.batch * g.inputs * math.prod(g.size)
    parts = max(1, min(workers, g.work // policy.CONVOLUTION_GRAIN))
    can_split = parts > 1 and g.groups == 1 and g.outputs >= 2 * BLOCK and not any(g.blocks)
    if can_split and (g.batch < parts or parts * w_size > x_size):
        return _weights_by_channels(g, min(parts, g.outputs // BLOCK))
    try:
        most = parts if all(g.blocks) else max(parts, _parts_for_memory(g))
        return _weights_by_batch(g, min(most, g.batch))
    except Unsupported:  # the parts' layouts differ
        return _weights_by_batch(g, 1)


def _backward_weights(
    g: ConvolutionGeometry, w_shape: Sizes, result: Descriptor | None = None
) -> Description:
    x, y = _layouts(g)
    w = result or onednn.any_layout(w_shape, FLOAT32)
    hint = _forward_description(g, w_shape)
    return _described(g, "backward_weights", onednn.CONVOLUTION_DIRECT, x, w, None, y, hint=hint)


def _parts_for_memory(g: ConvolutionGeometry) -> int:
    """Parts of the batch of which one's copies in the library's layout take a few MiB; fewer where
    the sums of all parts would take as much.
    """
    places = g.inputs * math.prod(g.size) + g.outputs * math.prod(g.count)
    copies = g.batch * places * g.dtype.itemsize
    sums = math.prod(g.w_shape()) * 4
    return int(max(1, min(copies // (4 << 20), (4 << 20) // sums, policy.CONVOLUTION_MOST)))


def _weights_by_channels(g: ConvolutionGeometry, parts: int) -> ConvolutionPlan:
    builder = _ConvolutionBuilder(g)
    x_whole, y_whole = (g.batch, g.inputs, *g.size), (g.batch, g.outputs, *g.count)
    zeros = (0,) * len(g.size)
    chunks, shared = [], 0
    copies: list[list[PrimitiveStep]] = []
    x_shared: PlanArgument | None = None
    for o, outputs in pieces(g.outputs, parts, BLOCK):
        part = replace(g, outputs=outputs)
        w_shape = grouped(g, outputs, g.inputs)
        main = builder.once(part, functools.partial(_backward_weights, part, w_shape))
        chunk = builder.chunk()
        wanted = main.memory(SRC)
        if x_shared is None or not onednn.same_layout(x_shared.memory, wanted):
            plain = _Place(X, x_whole, (0, 0, *zeros), x_whole)
            if onednn.same_layout(plain.argument(g.dtype).memory, wanted):
                x_shared = plain.argument(g.dtype)
            else:
                x_shared = PlanArgument(wanted, SHARED, shared)
                shared += aligned(wanted.size)
                copies += _image_copies(builder, plain, x_shared)
        y_part = _Place(Y, y_whole, (0, o, *zeros), (g.batch, outputs, *g.count))
        w_part = _Place(W, grouped(g, g.outputs, g.inputs), (o, 0, *zeros), w_shape)
        y = builder.read(chunk, y_part, main, DIFF_DST)
        result, after = builder.write(w_part, main, DIFF_WEIGHTS)
        step = PrimitiveStep(main, {SRC: x_shared, DIFF_DST: y, DIFF_WEIGHTS: result})
        chunks.append([*chunk, step, *after])
    phases = [copies, chunks] if copies else [chunks]
    return ConvolutionPlan(OneDnnPlan(builder.what, phases, 5, shared, builder.scratch), 0)


def _image_copies(
    builder: _ConvolutionBuilder, place: _Place, target: PlanArgument
) -> list[list[PrimitiveStep]]:
    """Images into another layout, in parts of the batch, or of the channels of each image.

    oneDNN's copies go wrong for some channels of several images at once.
    """
    g = builder.geometry
    images, channels = place.shape[:2]
    parts = -(-threads() // images)
    whole = [(0, channels)] if parts == 1 else list(pieces(channels, parts, BLOCK))
    chunks = []
    for n, batch in pieces(images, threads() if parts == 1 else images):
        for first, length in whole:
            shape = (batch, length, *place.shape[2:])
            offsets = (n, first, *(0,) * len(g.size))
            try:
                memory = target.memory.part(shape, offsets)
            except onednn.LibraryError:  # not at the border of a block
                return [[builder.copy(place.argument(g.dtype), target, ("images",))]]
            source = place._replace(start=offsets, shape=shape).argument(g.dtype)
            key = ("images", offsets)
            chunks.append([builder.copy(source, target._replace(memory=memory), key)])
    return chunks


def _weights_by_batch(g: ConvolutionGeometry, parts: int) -> ConvolutionPlan:
    builder = _ConvolutionBuilder(g)
    x_whole, y_whole = (g.batch, g.inputs, *g.size), (g.batch, g.outputs, *g.count)
    zeros = (0,) * (len(g.size) + 1)
    w_shape = grouped(g, g.outputs, g.inputs)
    chunks = []
    w_place = _Place(W, w_shape, (0,) * len(w_shape), w_shape)
    sums: list[PlanArgument] = []
    shared = 0
    for n, batch in pieces(g.batch, parts):
        part = replace(g, batch=batch)
        known = sums[0].memory if sums else None
        main = builder.once(part, functools.partial(_backward_weights, part, w_shape, known))
        chunk = builder.chunk()
        x_part = _Place(X, x_whole, (n, *zeros), (batch, *x_whole[1:]), g.blocks[0])
        y_part = _Place(Y, y_whole, (n, *zeros), (batch, *y_whole[1:]), g.blocks[1])
        x = builder.read(chunk, x_part, main, SRC)
        y = builder.read(chunk, y_part, main, DIFF_DST)
        if parts == 1:
            result, after = builder.write(w_place, main, DIFF_WEIGHTS)
        else:
            result, after = PlanArgument(main.memory(DIFF_WEIGHTS), SHARED, shared), []
            shared += aligned(result.memory.size)
            sums.append(result)
        step = PrimitiveStep(main, {SRC: x, DIFF_DST: y, DIFF_WEIGHTS: result})
        chunks.append([*chunk, step, *after])
    phases = [chunks]
    if sums:
        phases.append([_total(builder, sums, w_place)])
    return ConvolutionPlan(OneDnnPlan(builder.what, phases, 5, shared, builder.scratch), 0)


def _total(
    builder: _ConvolutionBuilder, sums: list[PlanArgument], place: _Place
) -> list[PrimitiveStep]:
    """The sum of the parts' weights, in the order of the parts, brought to its place."""
    steps: list[PrimitiveStep] = builder.chunk()
    first = sums[0].memory
    total = builder.take(first)
    result = onednn.sum_of(first, [s.memory for s in sums], builder.what)
    arguments = {onednn.MULTIPLE + i: s for i, s in enumerate(sums)}
    steps.append(PrimitiveStep(result, {**arguments, DST: total}))
    plain = place.argument(builder.geometry.dtype)
    steps.append(builder.copy(total, plain, ("total",)))
    return steps
