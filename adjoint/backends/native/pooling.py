"""Pooling by oneDNN over parts of the planes; NumPy's where it has none.

Names and arguments are those of `backends/numpy/convolution.py`. oneDNN's maximum passes over NaN
and never is below the lowest finite number, so each part is summed too: where a sum is not finite
(NaN, an infinity, or an overflow), NumPy's function, which follows PyTorch there, takes over.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.errors import Unsupported
from ..numpy import convolution as reference
from . import onednn
from .onednn import DIFF_DST, DIFF_SRC, DST, SRC, WORKSPACE, Descriptor, Primitive
from .onednn_plan import SCRATCH, Argument, Plan, Step, aligned, planned, threads
from .products import FLOAT32, pieces

Sizes = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]

SMALL = 1 << 10  # elements of images below which NumPy's function costs less than a plan
GRAIN = 1 << 16  # elements of images in a part
BLOCK = 16  # planes that oneDNN computes at once
X, Y, SUMS = range(3)  # slots


@dataclass(frozen=True)
class Geometry:
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


class _Builder:
    """The steps for parts of the planes; equal parts share their primitives."""

    def __init__(self, geometry: Geometry, algorithm: int, backward: bool) -> None:
        g = geometry
        if (
            g.planes * math.prod(g.size) <= max(1, SMALL)
            or len(g.size) > 3
            or not math.prod(g.count)
        ):
            raise Unsupported(f"{g}: left to NumPy")
        if algorithm == onednn.POOL_MAX and not g.inside:
            raise Unsupported(f"{g}: oneDNN's maximum of nothing is not -inf")
        self.geometry, self.algorithm, self.backward = g, algorithm, backward
        self.arguments = g.arguments()
        self.scratch = 0
        self.known: dict[int, tuple[Primitive, ...]] = {}

    def plan(self) -> Plan:
        """All parts as one phase."""
        g = self.geometry
        parts = min(4 * threads(), max(1, g.planes * math.prod(g.size) // GRAIN))
        chunks = [
            self.chunk(i, start, length)
            for i, (start, length) in enumerate(pieces(g.planes, parts, BLOCK))
        ]
        return Plan(str(g), [chunks], 3, scratch=self.scratch)

    def chunk(self, index: int, start: int, planes: int) -> list[Step]:
        """The steps for some planes."""
        g = self.geometry
        images = onednn.contiguous((1, planes, *g.size), FLOAT32)
        values = onednn.contiguous((1, planes, *g.count), FLOAT32)
        x = Argument(images, X, 4 * start * math.prod(g.size))
        y = Argument(values, Y, 4 * start * math.prod(g.count))
        if planes not in self.known:
            self.known[planes] = self.primitives(planes, images, values)
        forward, *rest = self.known[planes]
        if self.algorithm == onednn.POOL_MAX:
            return self.largest(index, planes, x, y, forward, rest)
        if not self.backward:
            return [Step(forward, {SRC: x, DST: y})]
        scaled = Argument(values, SCRATCH, 0)
        self.scratch = max(self.scratch, values.size)
        scale, back = rest
        return [
            Step(scale, {SRC: y, DST: scaled}),
            Step(back, {DIFF_DST: scaled, DIFF_SRC: x}),
        ]

    def largest(
        self,
        index: int,
        planes: int,
        x: Argument,
        y: Argument,
        forward: Primitive,
        rest: list[Primitive],
    ) -> list[Step]:
        """The maximum and the sum; with `backward`, y is a cotangent and x becomes the images'."""
        workspace = forward.optional(onednn.QUERY_WORKSPACE)
        at = {} if workspace is None else {WORKSPACE: Argument(workspace, SCRATCH, 0)}
        used = aligned(workspace.size if workspace else 0)
        if self.backward:
            self.scratch = max(self.scratch, used + y.memory.size)
            source, result = x._replace(slot=SUMS), Argument(y.memory, SCRATCH, used)
            last = [Step(rest[0], {DIFF_DST: y, DIFF_SRC: x, **at})]
            return [Step(forward, {SRC: source, DST: result, **at}), *last]
        self.scratch = max(self.scratch, used)
        flat = onednn.contiguous((1, planes * math.prod(self.geometry.size)), FLOAT32)
        sums = Argument(onednn.contiguous((1, 1), FLOAT32), SUMS, 4 * index)
        add = Step(rest[0], {SRC: Argument(flat, X, x.offset), DST: sums})
        return [Step(forward, {SRC: x, DST: y, **at}), add]

    def primitives(
        self, planes: int, images: Descriptor, values: Descriptor
    ) -> tuple[Primitive, ...]:
        """Forward; then backward where it is wanted, else the sum that a maximum needs."""
        g, engine = self.geometry, onednn.library().engine
        what, area = str(g), float(math.prod(g.kernel))
        largest = self.algorithm == onednn.POOL_MAX
        kind = onednn.TRAINING if self.backward or not largest else onednn.INFERENCE
        forward = onednn.primitive(
            "pooling_forward", what, engine, kind, self.algorithm, images, values, *self.arguments,
            activation=None if largest or self.backward else (onednn.LINEAR, area, 0.0),
        )  # fmt: skip
        if not self.backward:
            if not largest:
                return (forward,)
            flat = onednn.contiguous((1, planes * math.prod(g.size)), FLOAT32)
            sums = onednn.contiguous((1, 1), FLOAT32)
            add = onednn.primitive(
                "reduction", what, engine, onednn.REDUCTION_SUM, flat, sums, 0.0, 0.0
            )
            return forward, add
        back = onednn.primitive(
            "pooling_backward", what, engine, self.algorithm, images, values, *self.arguments,
            forward.description,
        )  # fmt: skip
        if largest:
            return forward, back
        scale = onednn.primitive(
            "eltwise_forward", what, engine, onednn.INFERENCE, onednn.LINEAR, values, values, area,
            0.0,
        )  # fmt: skip
        return forward, scale, back


def _plan(
    algorithm: int, backward: bool, lead: Sizes, size: Sizes, dtype: Any, *geometry: Any
) -> Plan | None:
    """The plan for windows over images of shape (*lead, *size), or None."""
    if dtype != FLOAT32:
        return None
    key = ("pool", algorithm, backward, lead, size, geometry, threads())
    found: Plan | None = planned(
        key,
        lambda: _Builder(Geometry(math.prod(lead), size, *geometry), algorithm, backward).plan(),
    )
    return found


def max_pool(
    x: Any, kernel: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes, count: Sizes
) -> Any:
    """The largest element in each window.

    >>> max_pool(np.ones((1, 4), np.float32), (2,), (2,), ((0, 0),), (1,), (2,))
    array([[1., 1.]], dtype=float32)
    """
    lead = x.ndim - len(kernel)
    plan = None
    if max(dilation) == 1:
        shape = x.shape
        plan = _plan(
            onednn.POOL_MAX, False, shape[:lead], shape[lead:], x.dtype, kernel, stride, padding,
            count,
        )  # fmt: skip
    if plan is not None:
        y = np.empty((*x.shape[:lead], *count), FLOAT32)
        sums = np.empty(len(plan.phases[0]), FLOAT32)
        plan.run(np.ascontiguousarray(x), y, sums)
        if np.isfinite(sums).all():
            return y
    return reference.max_pool(x, kernel, stride, padding, dilation, count)


def max_pool_input(
    x: Any, y: Any, g: Any, kernel: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes
) -> Any:
    """Images like x where each window's g is added to the place of its maximum y.

    The places are found again, in the cache, rather than kept from the forward pass.
    """
    lead = x.ndim - len(kernel)
    plan = None
    if max(dilation) == 1 and x.dtype == g.dtype and x.shape[:lead] == g.shape[:lead]:
        plan = _plan(
            onednn.POOL_MAX, True, x.shape[:lead], x.shape[lead:], x.dtype, kernel, stride, padding,
            g.shape[lead:],
        )  # fmt: skip
    if plan is None or not np.min(y, initial=np.inf) > np.finfo(FLOAT32).min:  # NaN or -inf
        return reference.max_pool_input(x, y, g, kernel, stride, padding, dilation)
    result = np.empty(x.shape, FLOAT32)
    plan.run(result, np.ascontiguousarray(g), np.ascontiguousarray(x))
    return result


def sum_pool(x: Any, kernel: Sizes, stride: Sizes, padding: Pairs, count: Sizes) -> Any:
    """The sum of each window."""
    lead = x.ndim - len(kernel)
    plan = _plan(
        onednn.POOL_AVERAGE, False, x.shape[:lead], x.shape[lead:], x.dtype, kernel, stride,
        padding, count,
    )  # fmt: skip
    if plan is None:
        return reference.sum_pool(x, kernel, stride, padding, count)
    y = np.empty((*x.shape[:lead], *count), FLOAT32)
    plan.run(np.ascontiguousarray(x), y, y)
    return y


def sum_pool_input(
    g: Any, kernel: Sizes, stride: Sizes, padding: Pairs, count: Sizes, size: Sizes
) -> Any:
    """The transpose of `sum_pool`: each value added everywhere in its window."""
    lead = g.ndim - len(kernel)
    plan = None
    if g.shape[lead:] == tuple(count):
        plan = _plan(
            onednn.POOL_AVERAGE, True, g.shape[:lead], tuple(size), g.dtype, kernel, stride,
            padding, count,
        )  # fmt: skip
    if plan is None:
        return reference.sum_pool_input(g, kernel, stride, padding, count, size)
    x = np.empty((*g.shape[:lead], *size), FLOAT32)
    plan.run(x, np.ascontiguousarray(g), x)
    return x
