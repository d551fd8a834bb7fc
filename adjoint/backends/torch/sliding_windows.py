"""Convolution and pooling by PyTorch's kernels (cuDNN's, on CUDA).

Shapes as in the reference backend: x (batch, channels, *size), w (out channels, channels / groups,
*kernel), y (batch, out channels, *count); `padding` has a pair (before, after) per dimension.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812 - PyTorch's name for it

from . import max_pooling
from .algebra import product
from .array import Array
from .fused import bring
from .namespace import extra

Sizes = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]


# ---- convolution ---------------------------------------------------------------------------------


def _padding(t: Any, padding: Pairs) -> tuple[Any, list[int]]:
    """The images with the padding that PyTorch's convolution cannot add, and the padding that it
    adds.
    """
    if all(lo == hi >= 0 for lo, hi in padding):
        return t, [lo for lo, _ in padding]
    return F.pad(t, _flat(padding)), [0] * len(padding)


def _flat(padding: Pairs) -> list[int]:
    return [n for pair in reversed(padding) for n in pair]


def _zeros(rank: int) -> list[int]:
    return [0] * rank


@extra
def conv(
    x: Array, w: Array, bias: Any, stride: Sizes, padding: Pairs, dilation: Sizes, groups: int,
    count: Sizes,
) -> Array:  # fmt: skip
    """The cross-correlation of x with w, plus bias (or None)."""
    if not _computes(x.tensor):
        return _conv_by_columns(x, w, bias, stride, padding, dilation, groups, count)
    rank = len(count)
    b = None if bias is None else bias.tensor
    if not x.size or not w.size:  # of which PyTorch makes other shapes
        y = x.tensor.new_zeros((x.shape[0], w.shape[0], *count))
        return Array(y if b is None else y + b.reshape(-1, *(1,) * rank))
    t, own = _padding(x.tensor, padding)

    def run(t: Any, w: Any) -> Any:
        return torch.convolution(t, w, None, stride, own, dilation, False, _zeros(rank), groups)

    if t.is_complex():
        y = _by_parts(run, t, w.tensor)
        return Array(y if b is None else y + b.reshape(-1, *(1,) * rank))
    return Array(torch.convolution(
        t, w.tensor, b, stride, own, dilation, False, _zeros(rank), groups
    ))  # fmt: skip


def _by_parts(function: Any, a: Any, b: Any) -> Any:
    """A bilinear function of complex tensors, from real ones."""
    if not a.is_complex():
        return function(a, b)
    real = function(a.real, b.real) - function(a.imag, b.imag)
    return torch.complex(real, function(a.real, b.imag) + function(a.imag, b.real))


@extra
def conv_input(
    y: Array, w: Array, stride: Sizes, padding: Pairs, dilation: Sizes, groups: int, size: Sizes
) -> Array:
    """The transpose of `conv` in x: images of `size` from values y of conv's output shape."""
    if not _computes(y.tensor):
        return _conv_input_by_columns(y, w, stride, padding, dilation, groups, size)
    channels = w.shape[1] * groups
    if not y.size or not w.size:
        return Array(y.tensor.new_zeros((y.shape[0], channels, *size)))
    rank = len(size)
    same = all(lo == hi >= 0 for lo, hi in padding)
    framed = size if same else tuple(n + lo + hi for n, (lo, hi) in zip(size, padding, strict=True))
    own = [lo for lo, _ in padding] if same else _zeros(rank)

    def run(y: Any, w: Any) -> Any:
        like = _empty_like(y, (y.shape[0], channels, *framed))
        return torch.ops.aten.convolution_backward(
            y, like, w, None, stride, own, dilation, False, _zeros(rank), groups,
            (True, False, False),
        )[0]  # fmt: skip

    images = _by_parts(run, y.tensor, w.tensor)
    if not same:
        images = F.pad(images, [-n for n in _flat(padding)])
    return Array(images)


@extra
def conv_weight(
    x: Array, y: Array, stride: Sizes, padding: Pairs, dilation: Sizes, groups: int, kernel: Sizes
) -> Array:
    """The transpose of `conv` in w: a kernel from images x and values y of conv's output shape."""
    shape = (y.shape[1], x.shape[1] // groups, *kernel)
    if not x.size or not y.size:
        return Array(y.tensor.new_zeros(shape))
    t, own = _padding(x.tensor, padding)

    def run(y: Any, t: Any) -> Any:
        like = y.new_empty(1).expand(shape)
        return torch.ops.aten.convolution_backward(
            y, t, like, None, stride, own, dilation, False, _zeros(len(kernel)), groups,
            (False, True, False),
        )[1]  # fmt: skip

    return Array(_by_parts(run, y.tensor, t))


def _empty_like(y: Any, shape: Sizes) -> Any:
    """An array that only carries the shape of a result and its order in memory; nobody reads or
    writes it.
    """
    if Array(y).is_channels_last():
        channels_last = torch.channels_last
        return torch.empty(shape, dtype=y.dtype, device=y.device, memory_format=channels_last)
    return y.new_empty(1).expand(shape)


@extra
def with_channels_last(x: Array) -> Array:
    """The array with its channels side by side."""
    last = torch.channels_last
    if x.tensor.is_contiguous(memory_format=last):
        return x
    made = Array(torch.empty_like(x.tensor, memory_format=last))
    bring(x, made)
    return made


def _computes(t: Any) -> bool:
    """Whether PyTorch has convolutions of that dtype: not of integers."""
    return bool(t.is_floating_point() or t.is_complex())


def _conv_by_columns(
    x: Array, w: Array, bias: Any, stride: Sizes, padding: Pairs, dilation: Sizes, groups: int,
    count: Sizes,
) -> Array:  # fmt: skip
    kernel = w.shape[2:]
    columns = im2col(x, kernel, stride, padding, dilation, count).tensor
    batch, out = x.shape[0], w.shape[0]
    columns = columns.reshape(batch, groups, -1, math.prod(count))
    y = product(w.tensor.reshape(groups, out // groups, -1), columns)
    y = y.reshape(batch, out, *count)
    return Array(y if bias is None else y + bias.tensor.reshape(-1, *(1,) * len(count)))


def _conv_input_by_columns(
    y: Array, w: Array, stride: Sizes, padding: Pairs, dilation: Sizes, groups: int, size: Sizes
) -> Array:
    kernel, count = w.shape[2:], y.shape[2:]
    batch, out = y.shape[:2]
    matrix = w.tensor.reshape(groups, out // groups, -1).mT
    columns = product(matrix, y.tensor.reshape(batch, groups, out // groups, math.prod(count)))
    columns = columns.reshape(batch, w.shape[1] * groups, *kernel, *count)
    return col2im(Array(columns), kernel, stride, padding, dilation, count, size)


# ---- windows -------------------------------------------------------------------------------------


def _frame(
    t: Any, kernel: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes, count: Sizes, value: Any
) -> Any:
    """The images padded, or cut, to exactly what the windows see."""
    needed = [
        (c - 1) * s + (k - 1) * d + 1
        for k, s, d, c in zip(kernel, stride, dilation, count, strict=True)
    ]
    sizes = t.shape[t.ndim - len(kernel) :]
    widths = tuple(
        (lo, need - lo - n) for (lo, _), need, n in zip(padding, needed, sizes, strict=True)
    )
    return t if not any(map(any, widths)) else F.pad(t, _flat(widths), value=value)


@extra
def im2col(
    x: Array, kernel: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes, count: Sizes
) -> Array:
    """The windows of images, (batch, channels, *kernel, *count)."""
    t = _frame(x.tensor, kernel, stride, padding, dilation, count, 0)
    rank = len(kernel)
    for i, (k, s, d) in enumerate(zip(kernel, stride, dilation, strict=True)):
        t = t.unfold(2 + i, (k - 1) * d + 1, s)[..., ::d]
    order = (0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank))
    return Array(t.permute(order).contiguous())


@extra
def col2im(
    columns: Array, kernel: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes, count: Sizes,
    size: Sizes,
) -> Array:  # fmt: skip
    """The transpose of `im2col`: every element added to where it came from."""
    t = columns.tensor
    needed = [
        max((c - 1) * s + (k - 1) * d + 1, n + lo + max(hi, 0))
        for k, s, d, c, n, (lo, hi) in zip(
            kernel, stride, dilation, count, size, padding, strict=True
        )
    ]
    frame = t.new_zeros((*t.shape[:2], *needed))
    for place in itertools.product(*map(range, kernel)):
        part = tuple(
            slice(p * d, p * d + (c - 1) * s + 1, s)
            for p, d, c, s in zip(place, dilation, count, stride, strict=True)
        )
        frame[(slice(None), slice(None), *part)] += t[(slice(None), slice(None), *place)]
    inside = tuple(slice(lo, lo + n) for n, (lo, _) in zip(size, padding, strict=True))
    return Array(frame[(slice(None), slice(None), *inside)].contiguous())


# ---- the largest ---------------------------------------------------------------------------------

_MAX_POOL = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


def _lowest(dtype: torch.dtype) -> Any:
    return -math.inf if dtype.is_floating_point else torch.iinfo(dtype).min


def _largest(
    x: Array, kernel: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes, count: Sizes,
    places: bool,
) -> tuple[Any, Any]:  # fmt: skip
    """The largest element in each window, and where in its flattened image that is."""
    rank = len(kernel)
    lead, size = x.shape[: x.ndim - rank], x.shape[x.ndim - rank :]
    t = x.tensor if len(lead) == 2 else x.tensor.reshape(math.prod(lead), 1, *size)
    if 0 in count or 0 in lead:
        return t.new_empty((*lead, *count)), t.new_empty((*lead, *count), dtype=torch.int64)
    if not x.size or not _computes(t):
        return _largest_of_windows(t, lead, kernel, stride, padding, dilation, count)
    natural = _is_natural(size, kernel, stride, padding, dilation, count)
    own: Any = [lo for lo, _ in padding] if natural else 0
    if not natural:
        t = _frame(t, kernel, stride, padding, dilation, count, _lowest(t.dtype))
    if not places:
        return _MAX_POOL[rank](t, kernel, stride, own, dilation).reshape(*lead, *count), None
    y, where = _MAX_POOL[rank](t, kernel, stride, own, dilation, return_indices=True)
    if not natural:
        where = _moved(where, t.shape[2:], size, padding)
    return y.reshape(*lead, *count), where.reshape(*lead, *count)


def _is_natural(
    size: Sizes, kernel: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes, count: Sizes
) -> bool:
    """Whether PyTorch pools with such windows: what lies after an image never is the largest, so
    that only their number says how far they reach.
    """
    return all(
        0 <= lo <= k // 2 and c == (n + 2 * lo - (k - 1) * d - 1) // s + 1
        for n, k, s, (lo, _), d, c in zip(
            size, kernel, stride, padding, dilation, count, strict=True
        )
    )


def _largest_of_windows(
    t: Any, lead: Sizes, kernel: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes, count: Sizes
) -> tuple[Any, Any]:
    """Largest elements of windows, and their positions, for dtypes that PyTorch does not pool."""
    rank, size = len(kernel), t.shape[2:]
    framed = _frame(t, kernel, stride, padding, dilation, count, _lowest(t.dtype))
    shape = framed.shape[2:]
    places = torch.arange(math.prod(shape), device=t.device).reshape(1, 1, *shape)
    order = (0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank))

    def windows(t: Any) -> Any:
        for i, (k, s, d) in enumerate(zip(kernel, stride, dilation, strict=True)):
            t = t.unfold(2 + i, (k - 1) * d + 1, s)[..., ::d]
        return t.permute(order).flatten(2, 1 + rank)

    seen = windows(framed)
    if not seen.numel():
        return t.new_zeros((*lead, *count)), places.new_zeros((*lead, *count))
    best = seen.argmax(2, keepdim=True)
    where = windows(places).expand(seen.shape).gather(2, best)
    where = _moved(where, shape, size, padding)
    return seen.gather(2, best).reshape(*lead, *count), where.reshape(*lead, *count)


def _moved(where: Any, framed: Sizes, size: Sizes, padding: Pairs) -> Any:
    """Places in the padded image as places in the image."""
    flat: Any = 0
    step = 1
    for f, n, (lo, _) in reversed(list(zip(framed, size, padding, strict=True))):
        flat = flat + (where % f - lo) * step
        where = where // f
        step *= n
    return flat


@extra
def max_pool(
    x: Array, kernel: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes, count: Sizes
) -> Array:
    """The largest element in each window."""
    return Array(_largest(x, kernel, stride, padding, dilation, count, False)[0])


def _winners(x: Array, y: Array, *options: Any) -> Any:
    kernel, stride, padding, dilation = options
    count = y.shape[y.ndim - len(kernel) :]
    return _largest(x, kernel, stride, padding, dilation, count, True)[1]


@extra
def max_pool_indices(x: Array, y: Array, *options: Any) -> Array:
    """Index of each window's maximum in its flattened image."""
    return Array(_winners(x, y, *options))


@extra
def max_pool_with_places(
    x: Array, kernel: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes, count: Sizes
) -> tuple[Array, Array]:
    """The largest element in each window, and where in its flattened image it is."""
    y, where = _largest(x, kernel, stride, padding, dilation, count, True)
    return Array(y), Array(where)


@extra
def max_pool_with_numbers(
    x: Array, kernel: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes, count: Sizes
) -> tuple[Array, Array]:
    """The largest element in each window, and its number there; see `pooling.has_kernels`."""
    return max_pooling.largest(x, kernel, stride, padding, count)


@extra
def spread_from_numbers(
    x: Array, where: Array, g: Array, kernel: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes
) -> Array:
    """Images like x where each window's g is added to the element of that number."""
    return max_pooling.spread(x, where, g, kernel, stride, padding)


@extra
def max_pool_input(x: Array, y: Array, g: Array, *options: Any) -> Array:
    """Images like x where each window's g is added to the place of its maximum y."""
    if not x.size:  # the windows have seen padding only
        return Array(torch.zeros_like(x.tensor))
    return spread_from_places(x, Array(_winners(x, y, *options)), g, *options)


@extra
def spread_from_places(x: Array, where: Array, g: Array, *options: Any) -> Array:
    """Images like x where each window's g is added at the given place."""
    rank = len(options[0])
    lead, size = x.shape[: x.ndim - rank], x.shape[x.ndim - rank :]
    if not x.size:
        return Array(torch.zeros_like(x.tensor))
    kernel, stride, padding, dilation = options
    count = where.shape[x.ndim - rank :]
    natural = _is_natural(size, kernel, stride, padding, dilation, count)
    if rank == len(lead) == 2 and natural and where.size and _computes(x.tensor):
        return Array(torch.ops.aten.max_pool2d_with_indices_backward(
            g.tensor, x.tensor, kernel, stride, [lo for lo, _ in padding], dilation, False,
            where.tensor,
        ))  # fmt: skip
    places = where.tensor.reshape(*lead, math.prod(count))
    frame = g.tensor.new_zeros((*lead, math.prod(size)))
    return Array(frame.scatter_add_(-1, places, g.tensor.reshape(places.shape)).reshape(x.shape))


@extra
def max_pool_select(x: Array, y: Array, h: Array, *options: Any) -> Array:
    """The elements of h at the places where x has its windows' maxima y."""
    rank = len(options[0])
    lead = x.shape[: x.ndim - rank]
    where = _winners(x, y, *options)
    flat = h.tensor.reshape(*lead, math.prod(h.shape[x.ndim - rank :]))
    places = where.reshape(*lead, math.prod(where.shape[x.ndim - rank :]))
    return Array(flat.gather(-1, places).reshape(where.shape))


# ---- sums ----------------------------------------------------------------------------------------


def _rank_two(t: Any, rank: int) -> Any:
    """(images, 1, *size) with at least two dimensions of windows: PyTorch sums those."""
    size = t.shape[t.ndim - rank :]
    ones = (1,) if rank == 1 else ()
    return t.reshape(math.prod(t.shape[: t.ndim - rank]), 1, *ones, *size)


@extra
def sum_pool(x: Array, kernel: Sizes, stride: Sizes, padding: Pairs, count: Sizes) -> Array:
    """The sum of each window."""
    rank = len(kernel)
    t = _frame(x.tensor, kernel, stride, padding, (1,) * rank, count, 0)
    shape = (*x.shape[: x.ndim - rank], *count)
    if 0 in shape:
        return Array(t.new_zeros(shape))
    if not t.is_floating_point():
        for i, (k, s) in enumerate(zip(kernel, stride, strict=True)):
            t = t.unfold(x.ndim - rank + i, k, s).sum(-1)
        return Array(t.reshape(shape))
    pool = F.avg_pool3d if rank == 3 else F.avg_pool2d
    ones = (1,) if rank == 1 else ()
    y = pool(_rank_two(t, rank), (*ones, *kernel), (*ones, *stride), divisor_override=1)
    return Array(y.reshape(shape))


@extra
def sum_pool_input(
    g: Array, kernel: Sizes, stride: Sizes, padding: Pairs, count: Sizes, size: Sizes
) -> Array:
    """The transpose of `sum_pool`: each value added everywhere in its window."""
    t = g.tensor
    rank = len(kernel)
    first = g.ndim - rank
    for i, (k, s, c, n, (lo, hi)) in enumerate(
        zip(kernel, stride, count, size, padding, strict=True)
    ):
        lead = (slice(None),) * (first + i)
        shape = list(t.shape)
        shape[first + i] = max(n + lo + max(hi, 0), (c - 1) * s + k)
        frame = t.new_zeros(shape)
        for p in range(k):
            frame[(*lead, slice(p, p + (c - 1) * s + 1, s))] += t
        t = frame[(*lead, slice(lo, lo + n))]
    return Array(t.contiguous())
