"""ONNX's operators that gather, scatter and choose."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....core.dtype import from_numpy_dtype
from ....ops.index.advanced import Index, IndexPut
from ....ops.index.gather import Gather
from ....ops.index.scatter import Scatter
from ....runtime.dispatch import apply
from ....tensor import Tensor
from .imported_node import ImportedNode, ad, axis_in, host, ints, operator, t


@operator("Gather")
def _(n: ImportedNode, x: Any, index: Any) -> Any:
    axis = axis_in(n.get("axis", 0), x.ndim)
    if isinstance(index, np.ndarray) and index.ndim == 0:
        return t(x).select(axis, int(index))
    return apply(Index((axis,)), t(x), t(index))


@operator("GatherElements")
def _(n: ImportedNode, x: Any, index: Any) -> Any:
    axis = axis_in(n.get("axis", 0), x.ndim)
    return apply(Gather(axis), t(x), _wrapped(t(index), x.shape[axis]))


def _wrapped(index: Any, size: int) -> Any:
    """Negative indices count from the end."""
    return ad.where(index < 0, index + size, index).to(from_numpy_dtype(np.dtype(np.int64)))


def _columns(index: Any) -> tuple[tuple[int, ...], Any]:
    """Indices whose last dimension names the axes, as `Index` takes them."""
    count = index.shape[-1]
    if not 1 <= count <= 16:
        raise ValueError(f"{count} indices for each element")
    index = t(index)
    if count == 1:
        return (0,), index.squeeze(-1)
    return tuple(range(count)), index.permute(index.ndim - 1, *range(index.ndim - 1))


@operator("GatherND")
def _(n: ImportedNode, x: Any, index: Any) -> Any:
    batch = n.get("batch_dims", 0)
    axes, columns = _columns(index)
    if not batch:
        return apply(Index(axes), t(x), columns)
    if not 0 < batch < min(x.ndim, index.ndim):
        raise ValueError(f"batch_dims {batch} of {tuple(x.shape)}")
    sizes = list(x.shape[:batch])  # the positions along the batch's axes are indices as well
    own = [columns] if len(axes) == 1 else list(columns)
    rows = [
        t(np.arange(size).reshape([-1] + [1] * (own[0].ndim - 1 - i))).expand(own[0].shape)
        for i, size in enumerate(sizes)
    ]
    columns = ad.stack([*rows, *(column.long() for column in own)])
    return apply(Index(tuple(range(batch + len(own)))), t(x), columns)


@operator("ScatterND")
def _(n: ImportedNode, x: Any, index: Any, updates: Any) -> Any:
    axes, columns = _columns(index)
    reduction = n.get("reduction", "none")
    if reduction in ("none", "add"):
        return apply(IndexPut(axes, reduction == "add"), t(x), columns, t(updates))
    x, updates = t(x), t(updates)  # as a scatter along the indexed axes as one
    count = len(axes)
    own = [columns] if count == 1 else list(columns)
    place: Any = 0
    for column, size in zip(own, x.shape[:count], strict=True):
        place = place * size + _wrapped(column, size)
    flat = x.reshape(math.prod(x.shape[:count]), -1)
    rows = place.reshape(-1, 1).expand(-1, flat.shape[1])
    found = _scattered(n, flat, 0, rows, updates.reshape(-1, flat.shape[1]), reduction)
    return found.reshape(x.shape)


_REDUCTIONS = {"mul": "prod", "max": "amax", "min": "amin"}


def _scattered(
    n: ImportedNode, x: Tensor, axis: int, places: Any, updates: Tensor, reduction: str
) -> Any:
    """`x` with updates multiplied into it, or where they are larger or smaller."""
    if reduction not in _REDUCTIONS:
        raise n.unsupported(f"reduction {reduction!r}")
    return x.scatter_reduce(axis, places, updates, _REDUCTIONS[reduction])


@operator("ScatterElements", "Scatter")
def _(n: ImportedNode, x: Any, index: Any, updates: Any) -> Any:
    axis = axis_in(n.get("axis", 0), x.ndim)
    places = _wrapped(t(index), x.shape[axis])
    reduction = n.get("reduction", "none")
    if reduction in ("none", "add"):
        return apply(Scatter(axis, reduction == "add"), t(x), places, t(updates))
    return _scattered(n, t(x), axis, places, t(updates), reduction)


@operator("OneHot")
def _(n: ImportedNode, index: Any, depth: Any, values: Any) -> Any:
    count = int(host(depth).reshape(()))
    n.check_size([*index.shape, count])
    axis = axis_in(n.get("axis", -1), index.ndim + 1)
    shape = [1] * (index.ndim + 1)
    shape[axis] = count
    classes = t(np.arange(count).reshape(shape))
    places = _wrapped(t(index), count).unsqueeze(axis)
    off, on = (t(x) for x in host(values))
    return ad.where(places == classes, on, off)


operator("NonZero")(lambda n, x: ad.nonzero(t(x)).permute(1, 0))


@operator("TopK")
def _(n: ImportedNode, x: Any, k: Any = None) -> Any:
    count = n.get("k") if k is None else ints(k)[0]
    axis = axis_in(n.get("axis", -1), x.ndim)
    return tuple(ad.topk(t(x), count, axis, bool(n.get("largest", 1)), bool(n.get("sorted", 1))))


@operator("ReverseSequence")
def _(n: ImportedNode, x: Any, lengths: Any) -> Any:
    time, batch = n.get("time_axis", 0), n.get("batch_axis", 1)
    sizes = ints(lengths)
    if {time, batch} != {0, 1} or len(sizes) != x.shape[batch]:
        raise ValueError(f"axes {time} and {batch}, {len(sizes)} lengths for {tuple(x.shape)}")
    if any(not 0 <= size <= x.shape[time] for size in sizes):
        raise ValueError(f"lengths {sizes[:8]} of {x.shape[time]}")
    at = np.arange(x.shape[time])[:, None]
    ends = np.array(sizes, np.int64)[None]
    places = np.where(at < ends, ends - 1 - at, at)
    places = places if time == 0 else places.T
    shape = [*places.shape, *[1] * (x.ndim - 2)]
    return apply(Gather(time), t(x), t(places.reshape(shape)).expand(x.shape))


@operator("Compress")
def _(n: ImportedNode, x: Any, condition: Any) -> Any:
    chosen = np.flatnonzero(host(condition))
    axis = n.get("axis")
    x = t(x).reshape(-1) if axis is None else t(x)
    return x.index_select(0 if axis is None else axis_in(axis, x.ndim), t(chosen))


@operator("Unique")
def _(n: ImportedNode, x: Any) -> Any:
    array, axis = host(x), n.get("axis")
    if axis is not None:
        axis = axis_in(axis, array.ndim)
    values, first, inverse, counts = np.unique(
        array, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not n.get("sorted", 1):  # in the order in which they come
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        values = np.take(values, order, 0 if axis is None else axis)
        first, inverse, counts = first[order], rank[inverse], counts[order]
    return values, first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)


@operator("TensorScatter", tensors=2)
def _(n: ImportedNode, x: Any, update: Any, starts: Any = None) -> Any:
    axis = axis_in(n.get("axis", -2), x.ndim)
    size, count = x.shape[axis], update.shape[axis]
    begin = np.zeros(x.shape[0], np.int64) if starts is None else host(starts).astype(np.int64)
    at = begin[:, None] + np.arange(count)
    if n.get("mode", "linear") == "circular":
        at %= size
    elif at.size and (at.min() < 0 or at.max() >= size):
        raise IndexError(f"positions {at.min()} to {at.max()} of {size}")
    shape = [1] * x.ndim
    shape[0], shape[axis] = at.shape
    places = t(at.reshape(shape)).expand(update.shape)
    return apply(Scatter(axis, False), x, places, update)
