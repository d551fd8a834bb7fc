"""Convolution and pooling kernels: windows copied into columns, block by block, and one matmul.

Shapes: x (batch, channels, *size), w (out channels, channels / groups, *kernel), y (batch, out
channels, *count). Per-dimension arguments are tuples; `padding` has a pair (before, after) each.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from .extras import extra

Sizes = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]

BLOCK = 1 << 19  # elements in a buffer of columns: small enough to stay in cache


class Windows:
    """The windows that a kernel visits in a batch of images, as columns of a matrix.

    With stride 1, a shift of the window is a shift of the flattened padded image. Columns then are
    copied in long runs, at the price of columns for windows that wrap around (`flat`).
    """

    def __init__(
        self,
        size: Sizes,
        kernel: Sizes,
        stride: Sizes,
        padding: Pairs,
        dilation: Sizes,
        count: Sizes,
    ) -> None:
        self.kernel, self.stride, self.dilation, self.count = kernel, stride, dilation, count
        self.padded = tuple(
            max(n + lo + max(hi, 0), (c - 1) * s + (k - 1) * d + 1)
            for n, (lo, hi), k, s, d, c in zip(
                size, padding, kernel, stride, dilation, count, strict=True
            )
        )
        self.inside = tuple(slice(lo, lo + n) for n, (lo, _) in zip(size, padding, strict=True))
        steps = [math.prod(self.padded[i + 1 :]) for i in range(len(size))]
        self.shifts = tuple(d * step for d, step in zip(dilation, steps, strict=True))
        self.slack = sum((k - 1) * shift for k, shift in zip(kernel, self.shifts, strict=True))
        area = math.prod(self.padded)
        self.flat = all(s == 1 for s in stride) and area <= 2 * math.prod(count)
        self.positions = area if self.flat else math.prod(count)

    def blocks(self, batch: int, channels: int) -> Iterator[slice]:
        """Parts of the batch whose columns fit in a block."""
        step = max(1, BLOCK // max(1, channels * math.prod(self.kernel) * self.positions))
        return (slice(i, min(i + step, batch)) for i in range(0, batch, step))

    def frame(self, batch: int, channels: int, dtype: Any) -> tuple[Any, Any]:
        """Zeros for padded images, channels first: flat with slack, and as images."""
        length = batch * math.prod(self.padded)
        flat = np.zeros((channels, length + self.slack), dtype)
        return flat, flat[:, :length].reshape(channels, batch, *self.padded)

    def shifted(self, images: Any) -> Iterator[tuple[Sizes, Any]]:
        """For each place in the kernel, what the windows see there: (..., *count)."""
        for place in itertools.product(*map(range, self.kernel)):
            index = tuple(
                slice(p * d, p * d + (c - 1) * s + 1, s)
                for p, d, c, s in zip(place, self.dilation, self.count, self.stride, strict=True)
            )
            yield place, images[(..., *index)]

    def columns(self, x: Any) -> Any:
        """(channels, *kernel, positions of all images) of a block of images."""
        flat, images = self.frame(len(x), x.shape[1], x.dtype)
        images[(slice(None), slice(None), *self.inside)] = x.swapaxes(0, 1)
        item, rank = x.itemsize, len(self.kernel)
        if self.flat:
            length = len(x) * self.positions
            shape = (len(flat), *self.kernel, length)
            strides = (flat.strides[0], *(shift * item for shift in self.shifts), item)
            return np.ascontiguousarray(as_strided(flat, shape, strides))
        shape = (len(flat), *self.kernel, len(x), *self.count)
        steps = images.strides[2:]
        strides = (
            images.strides[0],
            *(step * d for step, d in zip(steps, self.dilation, strict=True)),
            images.strides[1],
            *(step * s for step, s in zip(steps, self.stride, strict=True)),
        )
        windows = as_strided(images, shape, strides)
        return np.ascontiguousarray(windows).reshape(*shape[: rank + 1], -1)

    def gather(self, columns: Any, x: Any) -> None:
        """The transpose of `columns`: add every column to where it came from, into `x`."""
        flat, images = self.frame(len(x), x.shape[1], x.dtype)
        if self.flat:
            length = len(x) * self.positions
            for place in itertools.product(*map(range, self.kernel)):
                start = sum(p * shift for p, shift in zip(place, self.shifts, strict=True))
                part = flat[:, start : start + length]
                part += columns[(slice(None), *place)]
        else:
            shape = (len(flat), *self.kernel, len(x), *self.count)
            columns = columns.reshape(shape)
            for place, part in self.shifted(images):
                part += columns[(slice(None), *place)]
        x[...] = images[(slice(None), slice(None), *self.inside)].swapaxes(0, 1)

    def spread(self, y: Any) -> Any:
        """A block of outputs as rows: (channels, positions of all images)."""
        batch, channels = y.shape[:2]
        if not self.flat:
            return y.swapaxes(0, 1).reshape(channels, -1)
        rows = np.zeros((channels, batch, *self.padded), y.dtype)
        rows[self.used] = y.swapaxes(0, 1)
        return rows.reshape(channels, -1)

    def crop(self, rows: Any, batch: int) -> Any:
        """The transpose of `spread`, channels first."""
        if not self.flat:
            return rows.reshape(-1, batch, *self.count)
        return rows.reshape(-1, batch, *self.padded)[self.used]

    @property
    def used(self) -> tuple[slice, ...]:
        """A mask: where rows hold outputs, not windows that wrap around."""
        return (slice(None), slice(None), *(slice(c) for c in self.count))


def _pointwise(kernel: Sizes, stride: Sizes, padding: Pairs) -> bool:
    return max(kernel) == 1 == max(stride) and not any(lo or hi for lo, hi in padding)


@extra
def conv(
    x: Any,
    w: Any,
    bias: Any,
    stride: Sizes,
    padding: Pairs,
    dilation: Sizes,
    groups: int,
    count: Sizes,
) -> Any:
    """The cross-correlation of x with w, plus bias (or None)."""
    batch, channels = x.shape[:2]
    kernel = w.shape[2:]
    y = np.empty((batch, len(w), *count), x.dtype)
    if not y.size:
        return y
    column: Any = None if bias is None else bias.reshape(-1, *(1,) * (len(count) + 1))
    matrix = w.reshape(groups, len(w) // groups, -1)
    if _pointwise(kernel, stride, padding):
        flat = x.reshape(batch, groups, channels // groups, -1)
        np.matmul(matrix, flat, out=y.reshape(batch, groups, len(w) // groups, -1))
        if bias is not None:
            y += column[:, 0]
        return y
    windows = Windows(x.shape[2:], kernel, stride, padding, dilation, count)
    for part in windows.blocks(batch, channels):
        columns = windows.columns(x[part])
        product = matrix @ columns.reshape(groups, matrix.shape[2], -1)
        del columns
        out = y[part].swapaxes(0, 1)
        cropped = windows.crop(product, out.shape[1])
        if column is None:
            out[...] = cropped
        else:
            np.add(cropped, column, out=out)
    return y


@extra
def conv_input(
    y: Any, w: Any, stride: Sizes, padding: Pairs, dilation: Sizes, groups: int, size: Sizes
) -> Any:
    """The transpose of `conv` in x: images of `size` from values y of conv's output shape."""
    batch, kernel = len(y), w.shape[2:]
    channels = w.shape[1] * groups
    x = np.zeros((batch, channels, *size), y.dtype)
    if not y.size or not x.size:
        return x
    matrix = w.reshape(groups, len(w) // groups, -1).swapaxes(1, 2)
    if _pointwise(kernel, stride, padding):
        flat = y.reshape(batch, groups, len(w) // groups, -1)
        np.matmul(matrix, flat, out=x.reshape(batch, groups, channels // groups, -1))
        return x
    windows = Windows(size, kernel, stride, padding, dilation, y.shape[2:])
    for part in windows.blocks(batch, channels):
        rows = windows.spread(y[part]).reshape(groups, len(w) // groups, -1)
        columns = matrix @ rows
        windows.gather(columns.reshape(channels, *kernel, -1), x[part])
    return x


@extra
def conv_weight(
    x: Any, y: Any, stride: Sizes, padding: Pairs, dilation: Sizes, groups: int, kernel: Sizes
) -> Any:
    """The transpose of `conv` in w: a kernel from images x and values y of conv's output shape."""
    batch, channels = x.shape[:2]
    out = y.shape[1]
    w = np.zeros((groups, out // groups, channels // groups * math.prod(kernel)), x.dtype)
    if x.size and y.size:
        windows = Windows(x.shape[2:], kernel, stride, padding, dilation, y.shape[2:])
        for part in windows.blocks(batch, channels):
            columns = windows.columns(x[part]).reshape(groups, w.shape[2], -1)
            rows = windows.spread(y[part]).reshape(groups, out // groups, -1)
            w += rows @ columns.swapaxes(1, 2)
    return w.reshape(out, channels // groups, *kernel)


# ---- pooling over the last len(kernel) axes ------------------------------------------------------


def _pad(x: Any, padding: Pairs, value: Any) -> Any:
    lead = x.ndim - len(padding)
    if not any(lo or hi for lo, hi in padding):
        return x
    keep = tuple(
        slice(None, n + min(hi, 0)) for n, (_, hi) in zip(x.shape[lead:], padding, strict=True)
    )
    x = x[(..., *keep)]
    widths = ((0, 0),) * lead + tuple((lo, max(hi, 0)) for lo, hi in padding)
    return np.pad(x, widths, constant_values=value)


def _lowest(dtype: Any) -> Any:
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


@extra
def max_pool(
    x: Any, kernel: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes, count: Sizes
) -> Any:
    """The largest element in each window; the maximum is taken along one axis after another."""
    y = _pad(x, padding, _lowest(x.dtype))
    first = x.ndim - len(kernel)
    for i, (k, s, d, c) in enumerate(zip(kernel, stride, dilation, count, strict=True)):
        lead = (slice(None),) * (first + i)
        parts = [y[(*lead, slice(p * d, p * d + (c - 1) * s + 1, s))] for p in range(k)]
        if k == 1:
            y = parts[0]
            continue
        y = np.maximum(parts[0], parts[1])
        for part in parts[2:]:
            np.maximum(y, part, out=y)
    return np.array(y) if y is x or y.base is not None else y


def _winners(x: Any, y: Any, kernel: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes) -> Any:
    """The index within each window of its maximum y: the first of equals, the last of NaNs."""
    floating = x.dtype.kind == "f"
    count = y.shape[y.ndim - len(kernel) :]
    size = x.shape[x.ndim - len(kernel) :]
    windows = Windows(size, kernel, stride, padding, dilation, count)
    places = math.prod(kernel)
    winners = np.zeros(y.shape, np.uint8 if places < 256 else np.int64)
    # NaN is equal to nothing, so a padded place never wins.
    seen = _pad(x, padding, np.nan if floating else _lowest(x.dtype))
    parts = [part for _, part in windows.shifted(seen)]
    for i in reversed(range(places)):
        np.copyto(winners, winners.dtype.type(i), where=parts[i] == y)
    if floating and np.isnan(y).any():
        for i, (_, part) in enumerate(windows.shifted(_pad(np.isnan(x), padding, False))):
            np.copyto(winners, winners.dtype.type(i), where=part)
    return winners


@extra
def max_pool_indices(
    x: Any, y: Any, kernel: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes
) -> Any:
    """Index of each window's maximum in its flattened image."""
    place = np.unravel_index(_winners(x, y, kernel, stride, padding, dilation), kernel)
    rank, flat = len(kernel), 0
    for i in range(rank):
        shape = [1] * rank
        shape[i] = -1
        start = np.arange(y.shape[y.ndim - rank + i]) * stride[i] - padding[i][0]
        position = place[i] * dilation[i] + start.reshape(shape)
        flat = flat * x.shape[x.ndim - rank + i] + position
    return np.asarray(flat, np.int64)


@extra
def max_pool_input(
    x: Any, y: Any, g: Any, kernel: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes
) -> Any:
    """Images like x where each window's g is added to the place of its maximum y."""
    winners = _winners(x, y, kernel, stride, padding, dilation)
    rank = len(kernel)
    size, count = x.shape[x.ndim - rank :], y.shape[y.ndim - rank :]
    windows = Windows(size, kernel, stride, padding, dilation, count)
    frame: Any = np.zeros((*x.shape[: x.ndim - rank], *windows.padded), g.dtype)
    apart = all((k - 1) * d < s for k, d, s in zip(kernel, dilation, stride, strict=True))
    for i, (_, part) in enumerate(windows.shifted(frame)):
        if apart:
            np.copyto(part, g, where=winners == i)
        else:
            np.add(part, g, out=part, where=winners == i)
    if frame.shape == x.shape:
        return frame
    return np.ascontiguousarray(frame[(..., *windows.inside)])


@extra
def max_pool_select(
    x: Any, y: Any, h: Any, kernel: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes
) -> Any:
    """The elements of h at the places where x has its windows' maxima y."""
    winners = _winners(x, y, kernel, stride, padding, dilation)
    rank = len(kernel)
    size, count = x.shape[x.ndim - rank :], y.shape[y.ndim - rank :]
    windows = Windows(size, kernel, stride, padding, dilation, count)
    result = np.empty(y.shape, h.dtype)
    for i, (_, part) in enumerate(windows.shifted(_pad(h, padding, 0))):
        np.copyto(result, part, where=winners == i)
    return result


@extra
def sum_pool(x: Any, kernel: Sizes, stride: Sizes, padding: Pairs, count: Sizes) -> Any:
    """The sum of each window, along one axis after another."""
    y = _pad(x, padding, 0)
    first = x.ndim - len(kernel)
    for i, (k, s, c) in enumerate(zip(kernel, stride, count, strict=True)):
        lead = (slice(None),) * (first + i)
        parts = [y[(*lead, slice(p, p + (c - 1) * s + 1, s))] for p in range(k)]
        y = parts[0] + parts[1] if k > 1 else parts[0]
        for part in parts[2:]:
            y += part
    return np.array(y) if y is x or y.base is not None else y


@extra
def sum_pool_input(
    g: Any, kernel: Sizes, stride: Sizes, padding: Pairs, count: Sizes, size: Sizes
) -> Any:
    """The transpose of `sum_pool`: each value added everywhere in its window."""
    first = g.ndim - len(kernel)
    for i, (k, s, c, n, (lo, hi)) in enumerate(
        zip(kernel, stride, count, size, padding, strict=True)
    ):
        lead = (slice(None),) * (first + i)
        shape = list(g.shape)
        shape[first + i] = max(n + lo + max(hi, 0), (c - 1) * s + k)
        frame = np.zeros(shape, g.dtype)
        for p in range(k):
            frame[(*lead, slice(p, p + (c - 1) * s + 1, s))] += g
        g = frame[(*lead, slice(lo, lo + n))]
    return np.ascontiguousarray(g)


@extra
def im2col(
    x: Any, kernel: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes, count: Sizes
) -> Any:
    """The windows of images, (batch, channels, *kernel, *count)."""
    windows = Windows(x.shape[2:], kernel, stride, padding, dilation, count)
    result: Any = np.empty((*x.shape[:2], *kernel, *count), x.dtype)
    for place, part in windows.shifted(_pad(x, padding, 0)):
        result[(slice(None), slice(None), *place)] = part
    return result


@extra
def col2im(
    columns: Any,
    kernel: Sizes,
    stride: Sizes,
    padding: Pairs,
    dilation: Sizes,
    count: Sizes,
    size: Sizes,
) -> Any:
    """The transpose of `im2col`: every element added to where it came from."""
    windows = Windows(size, kernel, stride, padding, dilation, count)
    frame: Any = np.zeros((*columns.shape[:2], *windows.padded), columns.dtype)
    for place, part in windows.shifted(frame):
        part += columns[(slice(None), slice(None), *place)]
    return np.ascontiguousarray(frame[(..., *windows.inside)])
