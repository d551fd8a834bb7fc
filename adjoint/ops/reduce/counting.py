"""Counting: distinct values, bin counts, histograms."""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.device import is_device_array
from ...core.errors import DTypeError, InvalidArgument, ShapeError
from ...core.op import Op, Sample
from ...core.spec import Spec, normalize_axis, prod
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply
from ...runtime.public import FUNCTIONS, explaining, public
from ...runtime.tensors import fresh
from ...runtime.writes import values_of
from .. import return_types
from ..argument_dtypes import FLOATING, REALS, assert_dtypes
from ..create.allocation import names_on
from ..create.ranges import linspace
from ..promotion import cast
from ..samples import array
from ..shape.sizes import hold_sizes, hold_values
from .sort import argsort, assert_sortable, searchsorted

__all__ = ["bincount", "histc", "histogram", "histogramdd", "unique", "unique_consecutive"]


@dataclass(eq=False, repr=False)
class BinCount(Op):
    """How often each of the numbers 0 ... `bins` - 1 occurs, or the sum of its weights."""

    bins: int
    differentiable = False

    def infer(self, x: Spec, weights: Any = None) -> Spec:
        """int64, or float64 where there are weights."""
        return x.with_(shape=(self.bins,), dtype=dt.int64 if weights is None else dt.float64)

    def compute(self, xp: Any, x: Any, weights: Any = None) -> Any:
        """The backend's; numbers outside are left out."""
        x = x.reshape(-1)
        part = max(1 << 18, self.bins)  # numbers at a time: NumPy counts in copies of 8 bytes each
        if weights is None and type(x) is np.ndarray and x.size > part:
            total = np.zeros(self.bins, np.int64)
            for start in range(0, x.size, part):
                total += self.compute(xp, x[start : start + part])
            return total
        inside = (x >= 0) & (x < self.bins)
        if not inside.all():
            x = x[inside]
            weights = None if weights is None else weights.reshape(-1)[inside]
        if weights is None:
            return xp.bincount(x, minlength=self.bins)
        weights = weights.reshape(-1).astype(np.float64, copy=False)
        return xp.bincount(x, weights, minlength=self.bins).astype(np.float64, copy=False)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """With and without weights; none."""
        x = np.array([[0, 3, 1], [3, 3, 7]])
        for bins in (8, 3):
            yield Sample(cls(bins), (x,), f"{bins}")
            yield Sample(cls(bins), (x, array((2, 3))), f"weights-{bins}")
        yield Sample(cls(4), (x, array((2, 3), dt.bfloat16)), "bfloat16")
        yield Sample(cls(2), (np.zeros((0,), np.int64),), "empty")
        yield Sample(cls(2), (np.array(1),), "0-d")
        yield Sample(cls(0), (x,), "no-bins")

    def reference(self, x: Any, weights: Any = None) -> Any:
        """Reference value by comparing all pairs."""
        equal = x.ravel()[None] == np.arange(self.bins)[:, None]
        if weights is None:
            return equal.sum(1)
        return (equal * weights.astype(np.float64).ravel()).sum(1)


@explaining
@public()
def bincount(input: Tensor, weights: Any = None, minlength: int = 0) -> Tensor:
    """How often each number occurs in a tensor of integers from 0, or the sum of its weights.

    Shapes: `input` and `weights` are 1-d and alike; the result has `input.max() + 1` elements, or
    `minlength` where that is more.
    Errors: InvalidArgument for negative numbers; ShapeError, DTypeError for what does not fit.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.bincount.html

    >>> ad.bincount(ad.tensor([0, 2, 2]))
    tensor([1, 0, 2])
    """
    data = values_of(
        input,
        "the size of bincount's result is one more than the largest number; count n numbers with "
        "zeros(n).index_add(0, input, weights or ones)",
        followed=True,
    )
    if data.dtype.kind not in "iu":
        raise DTypeError(
            f"bincount: only supports 1-d non-negative integral inputs, got {input.dtype}"
        )
    if data.ndim != 1 or (data.size and data.min() < 0):
        raise InvalidArgument(
            f"bincount: only supports 1-d non-negative integral inputs, got shape {data.shape} "
            f"with a least element of {data.min() if data.size else None}"
        )
    if minlength < 0:
        raise InvalidArgument(f"bincount: minlength should be >= 0, got {minlength}")
    if weights is not None and weights.shape != input.shape:
        raise ShapeError(
            f"bincount: weights should have the same length as input, got {tuple(weights.shape)} "
            f"and {data.shape}"
        )
    bins = max(int(data.max()) + 1 if data.size else 0, minlength)
    whole = cast(input, dt.int64) if input.dtype is dt.uint64 else input
    counted = hold_values("bincount", whole, input)
    if weights is None:
        return apply(BinCount(bins), counted)
    result = apply(BinCount(bins), counted, weights)
    return cast(result, dt.float32) if weights.dtype is dt.float32 else result


def _range(name: str, low: Any, high: Any, input: Any, margin: float) -> tuple[float, float]:
    """The ends of a histogram: those of the data where both are equal, or `margin` beyond them
    where these are equal, too.
    """
    data = input._data
    if low == high:
        data = values_of(
            input, f"the ends of {name} are those of the data; give it min and max, or range"
        )
    if low > high:
        raise InvalidArgument(f"{name}: max must be larger than min, got min {low} and max {high}")
    if low == high and data.size:
        low, high = float(data.min()), float(data.max())
    if not (np.isfinite(low) and np.isfinite(high)):
        raise InvalidArgument(f"{name}: range of [{low}, {high}] is not finite")
    return (low, high) if low < high else (low - margin, high + margin)


@public(out=True)
def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """Number of elements in each of `bins` equal bins from `min` to `max` (those of the data where
    both are 0); elements outside are left out.

    Dtypes: floating point, also of the result.
    Errors: InvalidArgument for no bins, or a `min` above `max`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.histc.html

    >>> ad.histc(ad.tensor([1., 2., 1.]), bins=4, min=0, max=3)
    tensor([0., 2., 1., 0.])
    """
    if bins <= 0:
        raise InvalidArgument(f"histc: bins must be > 0, got {bins}")
    if not input.dtype.is_floating_point:
        raise DTypeError(f"histc: not implemented for {input.dtype}; convert with .float()")
    low, high = _range("histc", min, max, input, 1)
    x: Any = input.detach()
    place = ((x - low) * (bins / (high - low))).floor()
    place = place.masked_fill(x == high, bins - 1)
    place = place.masked_fill(~((x >= low) & (x <= high)), -1).clamp(max=bins - 1)
    return cast(apply(BinCount(bins), cast(place, dt.int64)), input.dtype)


@public(out=True)
def histogram(
    input: Tensor, bins: Any, *, range: Any = None, weight: Any = None, density: bool = False
) -> return_types.histogram:
    """Number of elements (or their weight) between neighbouring edges, and the edges.

    Shapes: `bins` is a number of equal bins over `range` (that of the data where None), or the
    edges in ascending order; the last bin includes its right edge.
    Errors: InvalidArgument for no bins or an empty range; ShapeError for weights that do not fit.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.histogram.html

    >>> hist, edges = ad.histogram(ad.tensor([1., 2., 1.]), bins=4, range=(0., 3.))
    >>> hist, edges
    (tensor([0., 2., 1., 0.]), tensor([0.0000, 0.7500, 1.5000, 2.2500, 3.0000]))
    """
    if weight is not None and weight.shape != input.shape:
        raise ShapeError(
            f"histogram: weight must have the shape of input, {tuple(input.shape)}, got "
            f"{tuple(weight.shape)}"
        )
    assert_dtypes("histogram", FLOATING, input=input)
    assert_dtypes("histogram", REALS, weight=weight)
    if isinstance(bins, TensorBase):
        edges: Any = bins
    else:
        if bins <= 0:
            raise InvalidArgument(f"histogram: bins must be > 0, got {bins}")
        start, end = range or (0, 0)
        low, high = _range("histogram", start, end, input, 0.5)
        if start == end:
            input = hold_values("histogram", input, input)
        edges = linspace(low, high, bins + 1, dtype=input.dtype, device=input.device)
    edges = hold_sizes("histogram", edges)
    count = edges.shape[0] - 1
    x: Any = input.detach().reshape((-1,))
    place = searchsorted(edges, x, right=True) - 1
    place = place.masked_fill(x == edges[-1], count - 1).masked_fill(x.isnan(), -1)
    if weight is None:
        found: Any = apply(BinCount(count), place)
    else:
        found = apply(BinCount(count), place, weight.detach())
    hist = cast(found, input.dtype)
    if density:
        hist = hist / (hist.sum() * (edges[1:] - edges[:-1]))
    return return_types.histogram(hist, edges)


@public(method=False, out=True)
def histogramdd(
    input: Tensor, bins: Any, *, range: Any = None, weight: Any = None, density: bool = False
) -> return_types.histogramdd:
    """Number of points (or their weight) in each box of a grid, and the grid's edges.

    Shapes: `input` (..., D) holds points of D coordinates; `bins` is one number for all
    dimensions, one for each, or the edges of each; `range` has two numbers for each dimension.
    Errors: ShapeError where bins, range or weights do not fit; InvalidArgument for no bins.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.histogramdd.html

    >>> points = ad.tensor([[0., 1.], [1., 0.], [2., 0.], [2., 2.]])
    >>> ad.histogramdd(points, bins=[3, 3]).hist
    tensor([[0., 1., 0.],
            [1., 0., 0.],
            [1., 0., 1.]])
    """
    if input.ndim < 2:
        raise ShapeError(
            "histogramdd: input tensor should have at least 2 dimensions, got shape "
            f"{tuple(input.shape)}"
        )
    assert_dtypes("histogramdd", FLOATING, input=input)
    assert_dtypes("histogramdd", REALS, weight=weight)
    rank = input.shape[-1]
    points: Any = input.detach().reshape((-1, rank))
    each = [bins] * rank if isinstance(bins, int) else list(bins)
    if len(each) != rank or (range is not None and len(range) != 2 * rank):
        raise ShapeError(
            f"histogramdd: expected bins and range for {rank} dimensions, got {len(each)} bins "
            f"and range {range}"
        )
    if weight is not None and tuple(weight.shape) != tuple(input.shape[:-1]):
        raise ShapeError(
            f"histogramdd: if weight tensor is provided, it should have the shape of input "
            f"without its innermost dimension, {tuple(input.shape[:-1])}, got "
            f"{tuple(weight.shape)}"
        )
    edges, places, shape = [], [], []
    for i, given in enumerate(each):
        column = points[:, i].contiguous()
        if isinstance(given, TensorBase):
            edge: Any = given
        else:
            if given <= 0:
                raise InvalidArgument(f"histogramdd: bins must be > 0, got {given}")
            start, end = range[2 * i : 2 * i + 2] if range is not None else (0, 0)
            low, high = _range("histogramdd", start, end, column, 0.5)
            if start == end:
                column = hold_values("histogramdd", column, column)
            edge = linspace(low, high, given + 1, dtype=input.dtype, device=input.device)
        edge = hold_sizes("histogramdd", edge)
        count = edge.shape[0] - 1
        place = searchsorted(edge, column, right=True) - 1
        places.append(place.masked_fill(column == edge[-1], count - 1))
        edges.append(edge)
        shape.append(count)
    flat: Any = places[0] * 0
    outside: Any = flat != 0
    for place, count in zip(places, shape, strict=True):
        outside = outside | (place < 0) | (place >= count)
        flat = flat * count + place
    flat = flat.masked_fill(outside, -1)
    weights = () if weight is None else (weight.detach().reshape((-1,)),)
    found: Any = apply(BinCount(prod(shape)), flat, *weights)
    hist = cast(found, input.dtype).reshape(tuple(shape))
    if density:
        hist = hist / hist.sum()
        for i, edge in enumerate(edges):
            shape = [-1 if j == i else 1 for j in builtins.range(rank)]
            hist = hist / (edge[1:] - edge[:-1]).reshape(shape)
    return return_types.histogramdd(hist, tuple(edges))


def _tensors(flags: tuple[bool, ...], values: Any, *extras: Any) -> Any:
    """`values`; with those of the `extras` that are wanted, a tuple."""
    found = tuple(fresh(extra) for flag, extra in zip(flags, extras, strict=True) if flag)
    return (values, *found) if found else values


@public()
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The distinct elements in ascending order (with `dim`, the distinct slices along it); and,
    where asked, the place of each element among them, and how often each occurs.

    Shapes: the number of distinct elements depends on the values. The gradient of each goes to the
    first of its equals.
    Errors: DTypeError for complex; IndexingError for a dim out of range.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.unique.html

    >>> ad.unique(ad.tensor([1, 3, 2, 3]), return_counts=True)
    (tensor([1, 2, 3]), tensor([1, 1, 2]))
    """
    assert_sortable(input, "unique")
    data = values_of(
        input,
        "how many elements differ is the size of unique's result; call it outside, or mark those "
        "that differ from their neighbour in sort(input), which has a size",
    )
    axis = None if dim is None else normalize_axis(dim, data.ndim, "unique")
    low = data.dtype.kind == "V" and not is_device_array(data)
    values, inverse, counts = np.unique(
        data.astype(np.float32) if low else data,
        return_inverse=True,
        return_counts=True,
        axis=axis if data.ndim else None,
        equal_nan=False,
    )
    values = values.astype(data.dtype, copy=False)
    found = fresh(values)
    if input.requires_grad:
        order = argsort(fresh(inverse.reshape(-1)), stable=True)
        found = _taken(input, order[fresh(counts.cumsum() - counts)], axis)
    inverse = inverse.reshape(data.shape if dim is None else (-1,))
    return _tensors((return_inverse, return_counts), found, inverse, counts)


def _taken(input: Tensor, places: Tensor, axis: int | None) -> Tensor:
    """The elements, or with an axis the slices, at `places`: values that gradients go through."""
    rows = input if axis is not None and input.ndim else input.reshape(-1)
    return FUNCTIONS["index_select"](rows, axis or 0, places)  # type: ignore[no-any-return]


@public()
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """The elements (with `dim`, the slices along it) that differ from the one before; and, where
    asked, the place of each element among them, and how long each run is.

    Shapes: the number of runs depends on the values. A run's gradient goes to its first element.
    Errors: IndexingError for a dim out of range.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.unique_consecutive.html

    >>> ad.unique_consecutive(ad.tensor([1, 1, 2, 1]), return_counts=True)
    (tensor([1, 2, 1]), tensor([2, 1, 1]))
    """
    data = values_of(
        input,
        "how many runs there are is the size of unique_consecutive's result; call it outside, or "
        "mark the elements that differ from the one before",
    )
    if dim is None or not data.ndim:
        rows = data.reshape(-1)
    else:
        rows = np.moveaxis(data, normalize_axis(dim, data.ndim, "unique_consecutive"), 0)
    first = names_on(input.device).ones(rows.shape[0], bool)
    first[1:] = (rows[1:] != rows[:-1]).any(axis=tuple(range(1, rows.ndim)))
    values = rows[first]
    if dim is not None and data.ndim:
        values = np.ascontiguousarray(np.moveaxis(values, 0, dim))
    found = fresh(values)
    if input.requires_grad:
        axis = None if dim is None else dim % max(data.ndim, 1)
        found = _taken(input, fresh(np.flatnonzero(first)), axis)
    inverse = np.cumsum(first) - 1
    counts = np.diff(np.flatnonzero(np.append(first, True)))
    inverse = inverse.reshape(data.shape) if dim is None else inverse
    return _tensors((return_inverse, return_counts), found, inverse, counts)
