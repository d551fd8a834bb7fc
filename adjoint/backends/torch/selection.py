"""Indexing with arrays: adding at places, scattering, picking classes."""

from __future__ import annotations

from typing import Any

import torch

from .array import Array, as_tensor, from_host, unwrap
from .namespace import extra


def _add_at(x: Array, index: Any, values: Any) -> None:
    key = index if isinstance(index, tuple) else (index,)
    places = tuple(_places(each, x) for each in key)
    addend = as_tensor(values, x).to(x.tensor.dtype)
    x.tensor.index_put_(places, addend.to(x.tensor.device), accumulate=True)


def _places(index: Any, x: Array) -> Any:
    t = index.tensor if type(index) is Array else from_host(index, x.tensor.device).tensor
    return t if t.dtype is torch.bool else t.long()


def _reduce_at(reduce: str) -> Any:
    def at(x: Array, index: Any, values: Any) -> None:
        places = _places(index, x)
        source = as_tensor(values, x).to(x.tensor.dtype).expand(places.shape)
        x.tensor.scatter_reduce_(0, places, source, reduce)

    return at


AT: dict[str, Any] = {
    "add": _add_at,
    "multiply": _reduce_at("prod"),
    "maximum": _reduce_at("amax"),
    "minimum": _reduce_at("amin"),
}


@extra
def index_add(x: Array, key: tuple[Any, ...], values: Any) -> None:
    """Add to the elements that a NumPy index selects, to repeated ones again and again."""
    places = [each for each in key if type(each) is Array]
    axis = len(key) - 1
    if len(places) == 1 and places[0].ndim == 1 and type(values) is Array:
        expected = (*x.shape[:axis], places[0].size, *x.shape[axis + 1 :])
        rest = all(isinstance(each, slice) for each in key[:-1])
        if rest and type(key[-1]) is Array and values.shape == expected:
            index = _places(places[0], x)
            index = torch.where(index < 0, index + x.shape[axis], index)
            x.tensor.index_add_(axis, index, values.tensor.to(x.tensor.dtype))
            return
    index = tuple(_places(each, x) if type(each) is Array else each for each in key)
    if all(isinstance(each, torch.Tensor) for each in index):
        x.tensor.index_put_(index, as_tensor(values, x).to(x.tensor.dtype), accumulate=True)
        return
    flat = torch.arange(x.size, device=x.tensor.device).reshape(x.shape)[index]
    addend = as_tensor(values, x).to(x.tensor.dtype).expand(flat.shape).reshape(-1)
    part = x.tensor.view(-1)
    part.index_add_(0, flat.reshape(-1), addend)


@extra
def gather(x: Array, axis: int, index: Array) -> Array:
    """The element along the axis that the index names at each place."""
    return Array(torch.gather(x.tensor, axis, index.tensor.long()))


@extra
def scatter(x: Array, axis: int, index: Array, src: Any, accumulate: bool) -> None:
    """Write into `x`, or add to it, along the axis at the places that the index names."""
    places = index.tensor.long()
    t = x.tensor
    if type(src) is not Array:
        value = t.new_full((), unwrap(src)).expand(places.shape)
        src = Array(value)
    if accumulate:
        t.scatter_add_(axis, places, src.tensor.to(t.dtype))
    else:
        t.scatter_(axis, places, src.tensor.to(t.dtype))


@extra
def scatter_reduce(
    x: Array, axis: int, index: Array, src: Array, reduce: str, include_self: bool
) -> Array:
    """`x` with the elements of `src` taken together where the index names one place."""
    result = torch.scatter_reduce(
        x.tensor, axis, index.tensor.long(), src.tensor, reduce, include_self=include_self
    )
    return Array(result)


@extra
def pick(op: Any, x: Array, index: Array) -> Array:
    """The entry of `x` along `op.axis` at each index, 0 where that is `op.ignore`."""
    t, places = x.tensor, index.tensor.long()
    kept = places != op.ignore
    shape = list(places.shape)
    shape[op.axis] = t.shape[op.axis]
    chosen = torch.gather(t.expand(shape), op.axis, torch.where(kept, places, 0))
    return Array(torch.where(kept, chosen, 0))


@extra
def place_at(op: Any, g: Array, index: Array) -> Array:
    """Zeros with `g` at each index along `op.axis`, which then has `op.classes` entries."""
    places = index.tensor.long()
    kept = places != op.ignore
    shape = list(places.shape)
    shape[op.axis] = op.classes
    result = g.tensor.new_zeros(shape)
    values = torch.where(kept, g.tensor, 0).expand(places.shape)
    return Array(result.scatter_add_(op.axis, torch.where(kept, places, 0), values))
