"""ONNX's reductions, scans and sums of rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ....ops.create.creation import full
from ....tensor import Tensor
from .imported_node import TABLE, ImportedNode, ad, axes_of, axis_in, host, operator, t


def _reduction(function: Callable[[Tensor, tuple[int, ...], bool], Any]) -> Callable[..., Any]:
    def run(n: ImportedNode, x: Any, axes: Any = None) -> Any:
        found = axes_of(n, axes, x.ndim)
        if not found:
            if n.get("noop_with_empty_axes", 0):
                return _OF_ONE[n.kind](t(x)) if n.kind in _OF_ONE else x
            found = list(range(x.ndim))
        if not x.ndim:
            return function(t(x).reshape(1), (0,), False)
        return function(t(x), tuple(found), bool(n.get("keepdims", 1)))

    return run


def _product(x: Tensor, axes: tuple[int, ...], keepdim: bool) -> Any:
    for axis in sorted(axes, reverse=True):
        x = x.prod(axis, keepdim=keepdim, dtype=x.dtype)
    return x


def _extreme(x: Tensor, axes: tuple[int, ...], keepdim: bool, largest: bool) -> Any:
    """The maximum or minimum; of nothing, the least or greatest number there is."""
    if all(x.shape[axis] for axis in axes):
        return (x.amax if largest else x.amin)(axes, keepdim=keepdim)
    dtype = x.dtype.numpy
    shape = [size for axis, size in enumerate(x.shape) if axis not in axes]
    if keepdim:
        shape = [1 if axis in axes else size for axis, size in enumerate(x.shape)]
    if dtype.kind in "fV":
        value: Any = -math.inf if largest else math.inf
    elif dtype.kind == "b":
        value = not largest
    else:
        value = np.iinfo(dtype).min if largest else np.iinfo(dtype).max
    return full(shape, value, dtype=x.dtype)


for _kind, _reduce in {
    "ReduceSum": lambda x, axes, keep: x.sum(axes, keepdim=keep, dtype=x.dtype),
    "ReduceMean": lambda x, axes, keep: x.mean(axes, keepdim=keep),
    "ReduceMax": lambda x, axes, keep: _extreme(x, axes, keep, largest=True),
    "ReduceMin": lambda x, axes, keep: _extreme(x, axes, keep, largest=False),
    "ReduceProd": _product,
    "ReduceL1": lambda x, axes, keep: x.abs().sum(axes, keepdim=keep),
    "ReduceL2": lambda x, axes, keep: (x * x).sum(axes, keepdim=keep).sqrt(),
    "ReduceSumSquare": lambda x, axes, keep: (x * x).sum(axes, keepdim=keep),
    "ReduceLogSum": lambda x, axes, keep: x.sum(axes, keepdim=keep).log(),
    "ReduceLogSumExp": lambda x, axes, keep: x.logsumexp(axes, keepdim=keep),
}.items():
    TABLE[_kind] = _reduction(_reduce)

# Reductions over no axes, where these change the elements: the steps around the sum remain.
_OF_ONE: dict[str, Callable[[Tensor], Tensor]] = {
    "ReduceL1": lambda x: x.abs(),
    "ReduceL2": lambda x: x.abs(),
    "ReduceSumSquare": lambda x: x * x,
    "ReduceLogSum": lambda x: x.log(),
}


@operator("ArgMax", "ArgMin")
def _(n: ImportedNode, x: Any) -> Any:
    function = ad.argmax if n.kind == "ArgMax" else ad.argmin
    axis, keep = axis_in(n.get("axis", 0), x.ndim), bool(n.get("keepdims", 1))
    if n.get("select_last_index", 0):
        return x.shape[axis] - 1 - function(t(x).flip(axis), axis, keepdim=keep)
    return function(t(x), axis, keepdim=keep)


@operator("CumSum", "CumProd", tensors=1)
def _(n: ImportedNode, x: Any, axis: Any) -> Any:
    place = axis_in(int(host(axis).reshape(())), x.ndim)
    source = x.flip(place) if n.get("reverse", 0) else x
    scan = ad.cumsum if n.kind == "CumSum" else ad.cumprod
    total = scan(source, place, dtype=x.dtype)
    if n.get("exclusive", 0):  # the next one's, which begins with the scan of nothing
        start = ad.full_like(total.narrow(place, 0, 1), n.kind == "CumProd")
        total = ad.cat([start, total.narrow(place, 0, max(total.shape[place] - 1, 0))], place)
    return total.flip(place) if n.get("reverse", 0) else total


@operator("Hardmax", tensors=1)
def _(n: ImportedNode, x: Any) -> Any:
    axis = axis_in(n.get("axis", -1 if n.opset >= 13 else 1), x.ndim)
    flat = x if n.opset >= 13 else x.flatten(axis)
    best = ad.argmax(flat, axis, keepdim=True)
    return ad.zeros_like(flat).scatter(axis, best, 1).reshape(x.shape)


operator("Det")(lambda n, x: ad.det(t(x)))
