"""Pooling over parts of the planes: sums by oneDNN, maxima by generated code; else NumPy's.

Names and arguments are those of `backends/numpy/convolution.py`.
"""

from __future__ import annotations

import math
import struct
import weakref
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ....core import policy
from ....core.arrays import addresses
from ....core.errors import Unsupported
from ...numpy import convolution as reference
from ..gemm.products import FLOAT32, pieces
from ..runtime.launch_list import Launch
from ..runtime.pool import default_pool
from . import api as onednn
from . import pooling_code
from .api import DIFF_DST, DIFF_SRC, DST, SRC, Descriptor, Primitive
from .plan import SCRATCH, OneDnnPlan, PlanArgument, PrimitiveStep, planned, threads

Sizes = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]

BLOCK = 16  # planes that oneDNN computes at once
X, Y = range(2)  # slots


@dataclass(frozen=True)
class PoolingGeometry:
    """Windows over `planes` images of `size`."""

    planes: int
    size: Sizes
    kernel: Sizes
    stride: Sizes
    padding: Pairs
    count: Sizes

    def __str__(self) -> str:
        return (
            f"pooling of {self.planes} planes of {self.size}, kernel {self.kernel}, stride "
            f"{self.stride}, padding {self.padding}"
        )

    @property
    def inside(self) -> bool:
        """Whether each window has a place in its image."""
        return all(
            lo < k and (c - 1) * s - lo < n
            for n, k, s, (lo, _), c in zip(
                self.size, self.kernel, self.stride, self.padding, self.count, strict=True
            )
        )

    def arguments(self) -> tuple[Any, ...]:
        """Strides, kernel, dilation and paddings as oneDNN takes them."""
        ends = [
            (c - 1) * s + k - n - lo
            for n, c, s, k, (lo, _) in zip(
                self.size, self.count, self.stride, self.kernel, self.padding, strict=True
            )
        ]
        places = zip(ends, self.stride, self.padding, strict=True)
        if any(lo < 0 or not 0 <= hi - end < s or end <= -s for end, s, (lo, hi) in places):
            raise Unsupported(f"{self}: {self.count} windows are not what oneDNN has")
        before = [lo for lo, _ in self.padding]
        sizes = (self.stride, self.kernel, (0,) * len(self.size), before, ends)
        return tuple(map(onednn.dims, sizes))


class _PoolingBuilder:
    """The steps of sums for parts of the planes; equal parts share their primitives."""

    def __init__(self, geometry: PoolingGeometry, backward: bool) -> None:
        g = geometry
        few = g.planes * math.prod(g.size) <= max(1, policy.POOLING_SMALL)
        if few or len(g.size) > 3 or not math.prod(g.count):
            raise Unsupported(f"{g}: left to NumPy")
        self.geometry, self.backward = g, backward
        self.arguments = g.arguments()
        self.scratch = 0
        self.known: dict[int, tuple[Primitive, ...]] = {}

    def plan(self) -> OneDnnPlan:
        """The plan: all parts as one phase."""
        g = self.geometry
        parts = min(4 * threads(), max(1, g.planes * math.prod(g.size) // policy.POOLING_GRAIN))
        chunks = [self.chunk(start, length) for start, length in pieces(g.planes, parts, BLOCK)]
        return OneDnnPlan(str(g), [chunks], 2, scratch=self.scratch)

    def chunk(self, start: int, planes: int) -> list[PrimitiveStep]:
        """The steps for some planes."""
        g = self.geometry
        images = onednn.contiguous((1, planes, *g.size), FLOAT32)
        values = onednn.contiguous((1, planes, *g.count), FLOAT32)
        x = PlanArgument(images, X, 4 * start * math.prod(g.size))
        y = PlanArgument(values, Y, 4 * start * math.prod(g.count))
        if planes not in self.known:
            self.known[planes] = self.primitives(images, values)
        forward, *rest = self.known[planes]
        if not self.backward:
            return [PrimitiveStep(forward, {SRC: x, DST: y})]
        scaled = PlanArgument(values, SCRATCH, 0)
        self.scratch = max(self.scratch, values.size)
        scale, back = rest
        return [
            PrimitiveStep(scale, {SRC: y, DST: scaled}),
            PrimitiveStep(back, {DIFF_DST: scaled, DIFF_SRC: x}),
        ]

    def primitives(self, images: Descriptor, values: Descriptor) -> tuple[Primitive, ...]:
        """Forward; then what scales the cotangent, and backward, where they are wanted."""
        g, engine = self.geometry, onednn.library().engine
        what, area = str(g), float(math.prod(g.kernel))
        forward = onednn.primitive(
            "pooling_forward", what, engine, onednn.TRAINING, onednn.POOL_AVERAGE, images, values,
            *self.arguments, activation=None if self.backward else (onednn.LINEAR, area, 0.0),
        )  # fmt: skip
        if not self.backward:
            return (forward,)
        back = onednn.primitive(
            "pooling_backward", what, engine, onednn.POOL_AVERAGE, images, values, *self.arguments,
            forward.description,
        )  # fmt: skip
        scale = onednn.primitive(
            "eltwise_forward", what, engine, onednn.INFERENCE, onednn.LINEAR, values, values, area,
            0.0,
        )  # fmt: skip
        return forward, scale, back


def _build_sums(backward: bool, lead: Sizes, size: Sizes, *geometry: Any) -> OneDnnPlan:
    return _PoolingBuilder(PoolingGeometry(math.prod(lead), size, *geometry), backward).plan()


def sums(backward: bool, lead: Sizes, size: Sizes, dtype: Any, *geometry: Any) -> OneDnnPlan | None:
    """The plan of sums of windows over images of shape (*lead, *size), or None."""
    if dtype != FLOAT32:
        return None
    key = ("pool", backward, lead, size, geometry, threads())
    return planned(key, _build_sums, backward, lead, size, *geometry)


def max_pool(
    x: Any, kernel: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes, count: Sizes
) -> Any:
    """The largest element in each window.

    >>> max_pool(np.ones((1, 4), np.float32), (2,), (2,), ((0, 0),), (1,), (2,))
    array([[1., 1.]], dtype=float32)
    """
    code = windows(x, kernel, stride, padding, dilation, count)
    if code is None:
        return reference.max_pool(x, kernel, stride, padding, dilation, count)
    y, places = code.forward(x)
    _keep(y, places, code)
    return y


def max_pool_input(
    x: Any, y: Any, g: Any, kernel: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes
) -> Any:
    """Images like x where each window's g is added to the place of its maximum y.

    The places are what forward has kept for as long as y lives, or they are found again.
    """
    lead = x.ndim - len(kernel)
    code = None
    if x.dtype == g.dtype and x.shape[:lead] == g.shape[:lead] and y.shape == g.shape:
        code = windows(x, kernel, stride, padding, dilation, g.shape[lead:])
    if code is None:
        return reference.max_pool_input(x, y, g, kernel, stride, padding, dilation)
    kept = _places.get(id(y))
    if kept is not None and kept.result() is y and kept.windows is code:
        return code.backward(x.shape, g, kept.places)
    return code.backward(x.shape, g, code.forward(x)[1])


class _Kept(NamedTuple):
    """Values kept for backward; an array that is written again was refused by autograd before."""

    result: Any  # a weak reference
    places: Any
    windows: Windows


_places: dict[int, _Kept] = {}  # by the id of a result of `max_pool`


def _keep(y: Any, places: Any, windows: Windows) -> None:
    name = id(y)

    def forget(dead: Any) -> None:
        kept = _places.get(name)
        if kept is not None and kept.result is dead:
            del _places[name]

    _places[name] = _Kept(weakref.ref(y, forget), places, windows)


class Windows:
    """The kernels for images of one shape."""

    def __init__(
        self, code: pooling_code.PoolingCode, lead: Sizes, geometry: pooling_code.MaxPoolGeometry
    ):
        g = geometry
        self.shape = lead
        self.chunks = -(-g.planes // g.in_chunk)
        self.words = struct.pack(f"{len(g.words)}q", *g.words)
        square = (*g.kernel[1:], *g.stride[1:]) == (2, 2, 2, 2)
        covered = 2 * g.result.height <= g.size.height and 2 * g.result.width <= g.size.width
        fits = g.padding[1:] == (0, 0) and covered
        plain = g.size.depth == 1 == g.kernel.depth and g.dilation[1:] == (1, 1)
        halving = square and fits and plain
        narrow = lead[-1] < policy.POOLING_NARROW
        self.forward_code = code.forward_across if narrow else code.forward
        self.backward_code = code.backward_halving if halving else code.backward

    def run(self, kernel: int, *arrays: Any) -> None:
        """Run a kernel on contiguous arrays."""
        default_pool().run(kernel, addresses(arrays) + self.words, self.chunks)

    def forward(self, x: Any) -> tuple[Any, Any]:
        """The largest elements, and which places of their windows they come from."""
        y, places = np.empty(self.shape, FLOAT32), np.empty(self.shape, np.uint8)
        self.run(self.forward_code, np.ascontiguousarray(x), y, places)
        return y, places

    def forward_call(self, x: Any, y: Any, places: Any) -> Launch:
        """A reusable call of `forward` for contiguous arrays that keep their addresses."""
        return self._call(self.forward_code, x, y, places)

    def backward(self, shape: Sizes, g: Any, places: Any) -> Any:
        """Images with g at the places."""
        x = np.empty(shape, FLOAT32)
        self.run(self.backward_code, np.ascontiguousarray(g), places, x)
        return x

    def backward_call(self, g: Any, places: Any, x: Any) -> Launch:
        """A reusable call of `backward` for contiguous arrays that keep their addresses."""
        return self._call(self.backward_code, g, places, x)

    def _call(self, kernel: int, *arrays: Any) -> Launch:
        words = addresses(arrays) + self.words
        pointers = range(len(arrays))
        return Launch(kernel, self.chunks, words, pointers, self.chunks > 1, False, (self, arrays))


def windows(
    x: Any, kernel: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes, count: Sizes
) -> Windows | None:
    """The kernels for these windows, or None where NumPy's function is to be used."""
    if x.dtype != FLOAT32:
        return None
    key = ("windows", x.shape, kernel, stride, padding, dilation, tuple(count), threads())
    return planned(key, _build, x.shape, kernel, stride, padding, dilation, tuple(count))


def _build(
    shape: Sizes, kernel: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes, count: Sizes
) -> Windows:
    rank = len(kernel)
    lead, size = shape[: len(shape) - rank], shape[len(shape) - rank :]
    planes = math.prod(lead)
    code = pooling_code.code()
    many = math.prod(kernel) > 255 or max(*shape, *kernel, *stride, *dilation) >= 1 << 24
    if code is None or rank > 3 or planes * math.prod(size) * math.prod(count) == 0 or many:
        raise Unsupported(f"pooling of {shape}: left to NumPy")
    for n, k, s, d, (lo, _), c in zip(size, kernel, stride, dilation, padding, count, strict=True):
        first = [i * s - lo for i in range(c)]
        if lo < 0 or any(all(not 0 <= f + j * d < n for j in range(k)) for f in first):
            raise Unsupported(f"pooling of {shape}: a window with nothing in it")
    work = math.prod(size) + math.prod(count) * math.prod(kernel)
    groups = (size, count, kernel, stride, [lo for lo, _ in padding], dilation)
    extents = [
        pooling_code.Extent._make([alone] * (3 - rank) + list(values))
        for values, alone in zip(groups, (1, 1, 1, 1, 0, 1), strict=True)
    ]
    in_chunk = max(1, policy.POOLING_GRAIN // work)
    if in_chunk > BLOCK:
        in_chunk -= in_chunk % BLOCK  # whole vectors of planes
    geometry = pooling_code.MaxPoolGeometry._make([*extents, planes, in_chunk])
    return Windows(code, (*lead, *count), geometry)


def sum_pool(x: Any, kernel: Sizes, stride: Sizes, padding: Pairs, count: Sizes) -> Any:
    """The sum of each window."""
    lead = x.ndim - len(kernel)
    shape = x.shape
    plan = sums(False, shape[:lead], shape[lead:], x.dtype, kernel, stride, padding, count)
    if plan is None:
        return reference.sum_pool(x, kernel, stride, padding, count)
    y = np.empty((*x.shape[:lead], *count), FLOAT32)
    plan.run(np.ascontiguousarray(x), y)
    return y


def sum_pool_input(
    g: Any, kernel: Sizes, stride: Sizes, padding: Pairs, count: Sizes, size: Sizes
) -> Any:
    """The transpose of `sum_pool`: each value added everywhere in its window."""
    lead = g.ndim - len(kernel)
    plan = None
    if g.shape[lead:] == tuple(count):
        plan = sums(True, g.shape[:lead], tuple(size), g.dtype, kernel, stride, padding, count)
    if plan is None:
        return reference.sum_pool_input(g, kernel, stride, padding, count, size)
    x = np.empty((*g.shape[:lead], *size), FLOAT32)
    plan.run(x, np.ascontiguousarray(g))
    return x
