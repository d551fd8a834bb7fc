"""Reductions, scans, counts and searches."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from . import moments
from .algebra import has_products
from .array import Array, torch_dtype, unwrap
from .namespace import extra, named

extra(moments.moments_of_channels)


def _axes(x: Array, axis: Any) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(x.ndim))
    return (axis,) if isinstance(axis, int) else tuple(axis)


def _without_axes(x: Array, dtype: Any) -> Array:
    return Array(x.tensor.clone()) if dtype is None else x.astype(dtype)


def _sum(x: Array, axis: Any, dtype: Any, keepdims: bool) -> Array:
    axes = _axes(x, axis)
    if not axes:
        return _without_axes(x, dtype)
    kind = None if dtype is None else torch_dtype(dtype)
    return Array(torch.sum(x.tensor, axes, keepdim=keepdims, dtype=kind))


def _prod(x: Array, axis: Any, dtype: Any, keepdims: bool) -> Array:
    axes = _axes(x, axis)
    t = x.tensor if dtype is None else x.tensor.to(torch_dtype(dtype))
    kind = t.dtype if dtype is not None else None
    for each in sorted((a % x.ndim for a in axes), reverse=True):
        t = torch.prod(t, each, keepdim=keepdims, dtype=kind)
    return Array(t) if axes else _without_axes(x, dtype)


def _extremum(function: Any, name: str) -> Callable[..., Array]:
    def reduce(x: Array, axis: Any, dtype: Any, keepdims: bool) -> Array:
        axes = _axes(x, axis)
        if any(not x.shape[a] for a in axes):
            raise ValueError(f"zero-size array to reduction operation {name} has no identity")
        if not axes:
            return _without_axes(x, dtype)
        return Array(function(x.tensor, axes, keepdim=keepdims))

    return reduce


def _logical(function: Any) -> Callable[..., Array]:
    def reduce(x: Array, axis: Any, dtype: Any, keepdims: bool) -> Array:
        axes = _axes(x, axis)
        t = x.tensor if x.tensor.dtype is torch.bool else x.tensor != 0
        if not axes:
            return Array(t.clone())
        return Array(function(t, axes, keepdim=keepdims))

    return reduce


REDUCE: dict[str, Callable[..., Array]] = {
    "add": _sum,
    "multiply": _prod,
    "maximum": _extremum(torch.amax, "maximum"),
    "minimum": _extremum(torch.amin, "minimum"),
    "logical_and": _logical(torch.all),
    "logical_or": _logical(torch.any),
}


def _running(function: Any) -> Callable[[Any, int], Any]:
    def accumulate(t: Any, axis: int) -> Any:
        if t.dtype is torch.bool:
            return function(t.to(torch.uint8), axis).values.to(torch.bool)
        return function(t, axis).values

    return accumulate


def _same_dtype(function: Any) -> Callable[[Any, int], Any]:
    return lambda t, axis: function(t, axis, dtype=t.dtype)


ACCUMULATE: dict[str, Callable[[Any, int], Any]] = {
    "add": _same_dtype(torch.cumsum),
    "multiply": _same_dtype(torch.cumprod),
    "maximum": _running(torch.cummax),
    "minimum": _running(torch.cummin),
    "logaddexp": torch.logcumsumexp,
}


# ---- functions -----------------------------------------------------------------------------------


@named("sum")
def total(
    x: Array, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False
) -> Array:
    """The sum along axes; small integers are added in int64."""
    return _sum(x, axis, dtype, keepdims)


@extra
def prod(
    x: Array, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False
) -> Array:
    """The product along axes."""
    return _prod(x, axis, dtype, keepdims)


@extra
def mean(x: Array, axis: Any = None, keepdims: bool = False) -> Array:
    """The mean along axes."""
    return Array(torch.mean(x.tensor, _axes(x, axis), keepdim=keepdims))


def _bounded(name: str) -> Callable[..., Array]:
    def function(
        x: Array, axis: Any = None, out: Any = None, keepdims: bool = False, initial: Any = None
    ) -> Array:
        axes = tuple(a % x.ndim for a in _axes(x, axis))
        if initial is None or not any(not x.shape[a] for a in axes):
            result = REDUCE[name](x, axes, None, keepdims)
            if initial is None or math.isinf(initial):
                return result
            clamp = torch.clamp_min if name == "maximum" else torch.clamp_max
            return Array(clamp(result.tensor, initial))
        shape = [1 if a in axes else n for a, n in enumerate(x.shape) if keepdims or a not in axes]
        return Array(x.tensor.new_full(shape, initial))

    return function


named("max")(_bounded("maximum"))
named("min")(_bounded("minimum"))


@named("all")
def all_true(x: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    """Whether all are true."""
    return REDUCE["logical_and"](x, axis, None, keepdims) if type(x) is Array else np.all(x)


@named("any")
def any_true(x: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    """Whether one is true."""
    return REDUCE["logical_or"](x, axis, None, keepdims) if type(x) is Array else np.any(x)


@extra
def argmax(x: Array, axis: Any = None, keepdims: bool = False) -> Array:
    """Index of the first largest element; NaN is the largest."""
    return _place(torch.argmax, x, axis, keepdims)


@extra
def argmin(x: Array, axis: Any = None, keepdims: bool = False) -> Array:
    """Index of the first smallest element; NaN is the smallest."""
    return _place(torch.argmin, x, axis, keepdims)


def _place(function: Any, x: Array, axis: Any, keepdims: bool) -> Array:
    if not (x.size if axis is None else x.shape[axis]):
        raise ValueError("attempt to get argmax of an empty sequence")
    t = x.tensor.to(torch.uint8) if x.tensor.dtype is torch.bool else x.tensor
    if axis is None or not t.ndim:
        positions = function(t.reshape(-1), 0)
        return Array(positions.reshape((1,) * t.ndim) if keepdims else positions)
    return Array(function(t, axis, keepdim=keepdims))


@extra
def cumsum(x: Array, axis: Any = None) -> Array:
    """Running sums."""
    t = x.tensor.reshape(-1) if axis is None else x.tensor
    return Array(torch.cumsum(t, 0 if axis is None else axis))


@extra
def nonzero(x: Array) -> tuple[Array, ...]:
    """The places of elements that are not zero, one array per dimension; their number is read."""
    return tuple(Array(t) for t in torch.nonzero(x.tensor, as_tuple=True))


@extra
def flatnonzero(x: Array) -> Array:
    """The places of elements that are not zero in the flattened array; their number is read."""
    return Array(torch.nonzero(x.tensor.reshape(-1)).reshape(-1))


@extra
def count_nonzero(x: Array, axis: Any = None, keepdims: bool = False) -> Array:
    """Number of elements that are not zero."""
    nonzero: Any = x
    return total(nonzero != 0, axis=axis, keepdims=keepdims)


@extra
def bincount(x: Array, weights: Any = None, minlength: int = 0) -> Array:
    """How often each number occurs, or the sum of its weights."""
    t = x.tensor.long()
    if not t.numel():  # integers, whatever the weights, as in PyTorch
        return Array(torch.zeros(minlength, dtype=torch.int64, device=t.device))
    values = torch.ones_like(t) if weights is None else weights.tensor
    size = minlength if minlength else int(t.max()) + 1
    counts = torch.zeros(size, dtype=values.dtype, device=t.device)
    return Array(counts.index_add_(0, t, values))


@extra
def searchsorted(rows: Array, values: Any, side: str = "left") -> Array:
    """Where values belong among sorted rows, which are of the last dimension."""
    positions = torch.searchsorted(
        rows.tensor.contiguous(), unwrap(values).contiguous(), right=side == "right"
    )
    return Array(positions)


@extra
def isin(x: Array, elements: Array) -> Array:
    """Whether each element is among the others."""
    kind = torch_dtype(np.result_type(x.dtype, elements.dtype))
    return Array(torch.isin(x.tensor.to(kind), elements.tensor.to(kind)))


@extra
def vecdot(x1: Array, x2: Array, axis: int = -1) -> Array:
    """The sum of products along an axis, the first conjugated."""
    a, b = x1.tensor, x2.tensor
    if not has_products(a):
        return Array((a * b).sum(axis, dtype=a.dtype))
    return Array(torch.linalg.vecdot(a, b, dim=axis))
