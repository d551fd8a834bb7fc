"""Functions that move, join and repeat elements; sorting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from .array import Array, torch_dtype, unwrap
from .namespace import extra, named

# ---- views ---------------------------------------------------------------------------------------


@extra
def reshape(x: Array, shape: Any) -> Array:
    """The array with other sizes."""
    return x.reshape(shape if isinstance(shape, (tuple, list)) else (shape,))


@extra
def ravel(x: Array, order: str = "C") -> Array:
    """The array as one dimension; with order "K", in the order of memory."""
    if order == "K" and not x.flags.c_contiguous:
        steps = x.tensor.stride()
        return x.transpose(sorted(range(x.ndim), key=lambda axis: -steps[axis])).reshape(-1)
    return x.reshape(-1)


@extra
def permute_dims(x: Array, axes: Sequence[int]) -> Array:
    """The dimensions in another order."""
    return x.view_as(x.tensor.permute(tuple(axes)))


@extra
def transpose(x: Array, axes: Any = None) -> Array:
    """The dimensions in another order, reversed unless given."""
    return x.T if axes is None else permute_dims(x, axes)


@extra
def swapaxes(x: Array, axis1: int, axis2: int) -> Array:
    """Two dimensions exchanged."""
    return x.view_as(x.tensor.transpose(axis1, axis2))


@extra
def moveaxis(x: Array, source: Any, destination: Any) -> Array:
    """Dimensions moved to other places."""
    return x.view_as(torch.movedim(x.tensor, source, destination))


@extra
def expand_dims(x: Array, axis: Any) -> Array:
    """A new dimension of size 1."""
    if isinstance(axis, int):
        return x.view_as(x.tensor.unsqueeze(axis))
    rank = x.ndim + len(axis)
    new = {a % rank for a in axis}
    sizes = iter(x.shape)
    return x.reshape(tuple([1 if a in new else next(sizes) for a in range(rank)]))


@extra
def squeeze(x: Array, axis: Any = None) -> Array:
    """The array without dimensions of size 1."""
    if not x.ndim:
        return x
    return x.squeeze(axis)


@extra
def broadcast_to(x: Any, shape: Sequence[int]) -> Array:
    """Repeated along dimensions of size 1, without copies."""
    try:
        view: Array = x.view_as(x.tensor.expand(tuple(shape)))
    except RuntimeError as error:
        raise ValueError(str(error)) from None
    return view


@extra
def broadcast_arrays(*arrays: Any) -> tuple[Array, ...]:
    """The arrays broadcast to one shape."""
    shape = torch.broadcast_shapes(*(x.shape for x in arrays))
    return tuple(broadcast_to(x, shape) for x in arrays)


@extra
def diagonal(x: Array, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """The diagonal of two dimensions, as the last one."""
    return x.view_as(torch.diagonal(x.tensor, offset, axis1, axis2))


@extra
def as_strided(x: Array, shape: Any = None, strides: Any = None, **_: Any) -> Array:
    """A view with the given steps, in bytes, from where `x` begins."""
    item = x.itemsize
    steps = tuple(s // item for s in strides)
    return x.view_as(x.tensor.as_strided(tuple(shape), steps))


@extra
def may_share_memory(a: Any, b: Any) -> bool:
    """Whether both show one storage."""
    return type(a) is Array and type(b) is Array and a.shares_memory(b)


@extra
def ascontiguousarray(x: Array) -> Array:
    """The array in row-major order without gaps; a copy where it is not."""
    contiguous = x.tensor.contiguous()
    return x if contiguous is x.tensor else Array(contiguous)


@extra
def shape(x: Any) -> tuple[int, ...]:
    """The sizes."""
    return x.shape if type(x) is Array else np.shape(x)


@extra
def ndim(x: Any) -> int:
    """The number of dimensions."""
    return x.ndim if type(x) is Array else np.ndim(x)


@extra
def size(x: Any) -> int:
    """The number of elements."""
    return int(np.size(x)) if type(x) is not Array else x.size


# ---- copies --------------------------------------------------------------------------------------


@extra
def copy(x: Array, order: str = "K", subok: bool = False) -> Array:
    """A copy."""
    return x.copy(order)


@extra
def astype(x: Array, dtype: Any, copy: bool = True) -> Array:
    """The elements converted."""
    return x.astype(dtype, copy=copy)


def _common(arrays: Sequence[Any]) -> list[Any]:
    dtypes = {x.dtype for x in arrays}
    if len(dtypes) == 1:
        return [x.tensor for x in arrays]
    kind = torch_dtype(np.result_type(*dtypes))
    return [x.tensor.to(kind) for x in arrays]


def _assert_arrays(arrays: Sequence[Any]) -> None:
    for x in arrays:
        if type(x) is not Array:
            unwrap(x)  # refuses what is in the host's memory


@extra
def concat(arrays: Any, axis: int = 0) -> Array:
    """Arrays one after another."""
    _assert_arrays(arrays)
    shapes = {x.shape[:axis] + x.shape[axis + 1 :] if x.ndim else None for x in arrays}
    if len(shapes) != 1 or None in shapes or len({x.ndim for x in arrays}) != 1:
        raise ValueError("all the input array dimensions except one must match exactly")
    return Array(torch.cat(_common(arrays), axis))


named("concatenate")(concat)


@extra
def stack(arrays: Any, axis: int = 0) -> Array:
    """Arrays along a new dimension."""
    _assert_arrays(arrays)
    return Array(torch.stack(_common(arrays), axis))


@extra
def flip(x: Array, axis: Any = None) -> Array:
    """The order of elements reversed."""
    axes = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    return Array(torch.flip(x.tensor, tuple(axes)))


@extra
def roll(x: Array, shift: Any, axis: Any = None) -> Array:
    """Elements moved around."""
    return Array(torch.roll(x.tensor, shift, axis))


@extra
def tile(x: Array, reps: Any) -> Array:
    """The whole repeated."""
    return Array(torch.tile(x.tensor, (reps,) if isinstance(reps, int) else tuple(reps)))


@extra
def repeat(x: Array, repeats: Any, axis: Any = None) -> Array:
    """Each element repeated."""
    counts = unwrap(repeats)
    return Array(torch.repeat_interleave(x.tensor, counts, axis))


@extra
def triu(x: Array, k: int = 0) -> Array:
    """The upper triangle, zeros below."""
    return Array(torch.triu(x.tensor, k))


@extra
def tril(x: Array, k: int = 0) -> Array:
    """The lower triangle, zeros above."""
    return Array(torch.tril(x.tensor, k))


@extra
def zeros_like(x: Array, dtype: Any = None, order: str = "K", **_: Any) -> Array:
    """Zeros in the shape of another array."""
    return Array(torch.zeros_like(x.tensor, **_options(dtype, order)))


@extra
def ones_like(x: Array, dtype: Any = None, order: str = "K", **_: Any) -> Array:
    """Ones in the shape of another array."""
    return Array(torch.ones_like(x.tensor, **_options(dtype, order)))


@extra
def empty_like(x: Array, dtype: Any = None, order: str = "K", **_: Any) -> Array:
    """Memory in the shape of another array."""
    return Array(torch.empty_like(x.tensor, **_options(dtype, order)))


@extra
def full_like(x: Array, value: Any, dtype: Any = None, order: str = "K", **_: Any) -> Array:
    """An array of one value, in the shape of another array."""
    return Array(torch.full_like(x.tensor, unwrap(value), **_options(dtype, order)))


def _options(dtype: Any, order: str) -> dict[str, Any]:
    kept = torch.preserve_format if order in ("K", "A") else torch.contiguous_format
    options: dict[str, Any] = {"memory_format": kept}
    if dtype is not None:
        options["dtype"] = torch_dtype(dtype)
    return options


@extra
def pad(x: Array, widths: Any, mode: str = "constant", constant_values: Any = 0) -> Array:
    """Room around the elements, filled with one value."""
    flat = [n for pair in reversed(tuple(widths)) for n in pair]
    return Array(torch.nn.functional.pad(x.tensor, flat, value=constant_values))


# ---- selection along an axis ---------------------------------------------------------------------


@extra
def take(x: Array, index: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Array:
    """The elements at the places `index` along an axis; of the flattened array without one."""
    t = x.tensor.reshape(-1) if axis is None else x.tensor
    if type(index) is not Array:
        places = torch.as_tensor(np.asarray(index), device=t.device)
    else:
        places = index.tensor
    places = places.long() if places.dtype is not torch.int64 else places
    axis = 0 if axis is None else axis % t.ndim
    return Array(t[(slice(None),) * axis + (places,)])


@extra
def take_along_axis(x: Array, index: Array, axis: int) -> Array:
    """The element along the axis that `index` names at each place; both may broadcast."""
    t, places = x.tensor, index.tensor.long()
    dim = axis % t.ndim
    shape = list(torch.broadcast_shapes(
        (*t.shape[:dim], 1, *t.shape[dim + 1 :]), (*places.shape[:dim], 1, *places.shape[dim + 1 :])
    ))  # fmt: skip
    shape[dim] = t.shape[dim]
    t = t.expand(shape)
    shape[dim] = places.shape[dim]
    return Array(torch.gather(t, dim, places.expand(shape)))


# ---- order ---------------------------------------------------------------------------------------


def _sortable(t: Any) -> Any:
    return t.to(torch.uint8) if t.dtype is torch.bool else t


@extra
def argsort(
    x: Array, axis: Any = -1, kind: Any = None, descending: bool = False, **_: Any
) -> Array:
    """The places of the elements in order; equal ones keep theirs."""
    if not x.ndim:
        return Array(torch.zeros((), dtype=torch.int64, device=x.tensor.device))
    ordered = torch.sort(_sortable(x.tensor), dim=axis, descending=descending, stable=True)
    return Array(ordered.indices)


@extra
def sort(x: Array, axis: int = -1, **_: Any) -> Array:
    """The elements in order."""
    return Array(torch.sort(_sortable(x.tensor), dim=axis, stable=True).values.to(x.tensor.dtype))


@extra
def partition(x: Array, kth: int, axis: int = -1) -> Array:
    """The elements in an order in which number `kth` is in place."""
    return sort(x, axis)


@extra
def unique(x: Array, axis: Any = None, **_: Any) -> Any:
    """The distinct elements in order; with the places and counts where `return_inverse` and
    `return_counts` ask for them. Their number is read.
    """
    asked = [name for name in ("return_inverse", "return_counts") if _.get(name)]
    distinct = torch.unique(
        x.tensor, dim=axis, return_inverse="return_inverse" in asked,
        return_counts="return_counts" in asked,
    )  # fmt: skip
    return tuple(map(Array, distinct)) if asked else Array(distinct)


@extra
def argwhere(x: Array) -> Array:
    """The indices of elements that are not zero, one row each; their number is read."""
    return Array(torch.nonzero(x.tensor))


@extra
def unravel_index(places: Array, shape: Sequence[int]) -> tuple[Array, ...]:
    """The index per dimension of flat positions."""
    coordinates = []
    rest = places.tensor
    for n in reversed(shape):
        coordinates.append(Array(rest % n))
        rest = rest // n
    return tuple(reversed(coordinates))


@extra
def append(x: Array, value: Any) -> Array:
    """A vector with one more element."""
    return Array(torch.cat([x.tensor.reshape(-1), x.tensor.new_full((1,), unwrap(value))]))


@extra
def diff(x: Array) -> Array:
    """The differences of neighbours in a vector."""
    return Array(torch.diff(x.tensor))
