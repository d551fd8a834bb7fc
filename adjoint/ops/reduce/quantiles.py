"""Medians, quantiles and the mode."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from ...core import dtype as dt
from ...core.errors import DTypeError, InvalidArgument, ShapeError
from ...core.mode import refuse_where
from ...core.op import Op, Sample
from ...core.spec import Spec, normalize_axis, prod
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply
from ...runtime.public import public
from .. import return_types
from ..samples import FLOATS, array, each_dtype, strided
from ..shape.sizes import hold_sizes
from .extrema import assert_not_empty, share_evenly, value_at
from .sort import OnePlace, assert_sortable, place_along, ranked_places, ranking_samples, sort

if TYPE_CHECKING:
    from ...ops.argument_types import Operand

__all__ = ["median", "mode", "nanmedian", "nanquantile", "quantile"]


@dataclass(eq=False, repr=False)
class Median(Op):
    """Lower median of all elements: NaN where there is one, unless they are ignored."""

    ignore_nan: bool = False

    def infer(self, spec: Spec) -> Spec:
        """A spec of one element."""
        return spec.with_(shape=())

    def compute(self, xp: Any, x: Any) -> Any:
        """Median by a partition; NaN for no elements."""
        flat = x.reshape(-1)
        missing = flat != flat
        if missing.any():
            if not self.ignore_nan:
                return x.dtype.type(np.nan)
            flat = flat[~missing]
        if not flat.size:
            return x.dtype.type(np.nan if x.dtype.kind == "f" else 0)
        k = (flat.size - 1) // 2
        return xp.partition(flat, k)[k]

    def batch(self, size: int, flags: Any, x: Any) -> Any:  # type: ignore[override]
        """Along one axis; NaN for no elements."""
        flat = x.reshape(size, prod(x._data.shape[1:]))
        if not flat._data.shape[1]:
            return flat.new_full((size,), float("nan"))
        places = apply(MedianPlace(1, self.ignore_nan), flat)
        return flat.gather(1, places).squeeze(1)

    def gradient(self, g: Tensor, x: Tensor, y: Tensor) -> tuple[Any, ...]:
        """Equal shares for the elements that equal the median."""
        return (share_evenly(g, x, y, tuple(range(x.ndim))),)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Odd and even numbers of elements, NaN, each dtype."""
        yield from each_dtype(cls(), (*FLOATS, dt.int64, dt.uint8), (3, 4))
        yield Sample(cls(), (array((3, 3)),), "odd")
        yield Sample(cls(), (array(()),), "0-d")
        yield Sample(cls(), (strided(array((3, 4))),), "strided")
        special = np.array([3.0, np.nan, 1.0, 2.0])
        yield Sample(cls(), (special,), "nan", gradients=False)
        yield Sample(cls(True), (special,), "ignore-nan", gradients=False)
        yield Sample(cls(), (array((0,)),), "empty", gradients=False)

    def reference(self, x: Any) -> Any:
        """Reference value by NumPy's quantile."""
        if x.size == 0:
            return np.float64(np.nan)
        function = np.nanquantile if self.ignore_nan else np.quantile
        return function(x.astype(np.float64), 0.5, method="lower")


@dataclass(eq=False, repr=False)
class MedianPlace(OnePlace):
    """Place of the lower median along `axis`, which is kept with size 1."""

    ignore_nan: bool = False

    def compute(self, xp: Any, x: Any) -> Any:
        """Position by rank; the first NaN where there is one, unless they are ignored."""
        middle = (x.shape[self.axis] - 1) // 2
        if x.dtype.kind != "f":
            return xp.take(ranked_places(x, self.axis, kth=middle), [middle], self.axis)
        missing = x != x
        if self.ignore_nan:
            there = x.shape[self.axis] - xp.sum(missing, axis=self.axis, keepdims=True)
            middles = xp.maximum((there - 1) // 2, 0)
            return xp.take_along_axis(ranked_places(x, self.axis), middles, self.axis)
        found = xp.take(ranked_places(x, self.axis, kth=middle), [middle], self.axis)
        first = xp.argmax(missing, axis=self.axis, keepdims=True)
        return xp.where(xp.any(missing, axis=self.axis, keepdims=True), first, found)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """With NaN counted and ignored."""
        for ignore_nan in (False, True):
            for sample in ranking_samples(cls, ignore_nan):
                if sample.label not in ("ties", "bool"):  # any of the equal elements may be chosen
                    yield sample

    def reference(self, x: Any) -> Any:
        """Reference position, where the element equals NumPy's quantile."""
        x = x.astype(np.float64)
        if not x.size:
            return np.zeros(np.take(x, [0], self.axis).shape, np.int64)
        function = np.nanquantile if self.ignore_nan else np.quantile
        value = function(x, 0.5, axis=self.axis, keepdims=True, method="lower")
        equal = (x == value) | ((x != x) & (value != value))
        return np.argmax(equal, axis=self.axis, keepdims=True)


class ModePlace(OnePlace):
    """Last place of the most frequent (of several: the smallest) value along `axis`, which is kept
    with size 1.
    """

    def compute(self, xp: Any, x: Any) -> Any:
        """Position at which the longest run of equal elements ends, once sorted."""
        places = xp.moveaxis(ranked_places(x, self.axis), self.axis, -1)
        values = xp.take_along_axis(xp.moveaxis(x, self.axis, -1), places, -1)
        count = xp.arange(values.shape[-1])
        starts = xp.zeros(values.shape, np.int64)
        starts[..., 1:] = xp.where(values[..., 1:] != values[..., :-1], count[1:], 0)
        length = count - xp.maximum.accumulate(starts, axis=-1)
        end = xp.argmax(length, axis=-1, keepdims=True)
        return xp.moveaxis(xp.take_along_axis(places, end, -1), -1, self.axis)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Few distinct values."""
        for sample in ranking_samples(cls):
            if sample.inputs[0].dtype.kind != "f" or sample.label != "special":
                yield sample
        yield Sample(cls(1), (np.array([[1, 2, 2, 1, 3], [4, 4, 4, 0, 0]]),), "runs")

    def reference(self, x: Any) -> Any:
        """Reference value by counting pairs."""
        if not x.size:
            return np.zeros(np.take(x, [0], self.axis).shape, np.int64)
        rows = np.moveaxis(x.astype(np.float64), self.axis, -1)
        rows = np.where(rows != rows, np.arange(rows.shape[-1]) + 1e9, rows)  # NaN equals no NaN
        pairs = (rows[..., :, None] == rows[..., None, :]).sum(-1)
        best = np.where(pairs == pairs.max(-1, keepdims=True), rows, np.inf).min(-1, keepdims=True)
        last = rows.shape[-1] - 1 - np.argmax(np.flip(rows == best, -1), -1, keepdims=True)
        return np.moveaxis(last, -1, self.axis)


def _by_place(name: str, op: Any, input: Any, dim: int, keepdim: bool) -> Any:
    axis = normalize_axis(dim, input._data.ndim, name)
    assert_not_empty(input.shape or (1,), (axis,), name)
    return value_at(input, place_along(op(axis), input), axis, keepdim, getattr(return_types, name))


@overload
def median(input: Tensor) -> Tensor: ...
@overload
def median(input: Tensor, dim: int, keepdim: bool = False) -> return_types.median: ...
@public(out=True)
def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The median (the lower one of two); with `dim`, the medians along it and where they are.

    NaN where there is one. The gradient goes to the element at the index; without `dim` it is
    shared evenly by the elements that equal the median.

    Errors: DTypeError for complex; IndexingError for a dimension without elements.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.median.html

    >>> ad.median(ad.tensor([4., 1., 3., 2.]))
    tensor(2.)
    """
    assert_sortable(input, "median")
    if dim is None:
        return apply(Median(), input)
    return _by_place("median", MedianPlace, input, dim, keepdim)


@overload
def nanmedian(input: Tensor) -> Tensor: ...
@overload
def nanmedian(input: Tensor, dim: int, keepdim: bool = False) -> return_types.nanmedian: ...
@public(out=True)
def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The median of the elements that are not NaN; see `median`.

    Errors: DTypeError for complex; IndexingError for a dimension without elements.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nanmedian.html

    >>> ad.nanmedian(ad.tensor([4., 1., float("nan")]))
    tensor(1.)
    """
    assert_sortable(input, "nanmedian")
    if dim is None:
        return apply(Median(True), input)
    return _by_place("nanmedian", lambda axis: MedianPlace(axis, True), input, dim, keepdim)


@public(out=True)
def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> return_types.mode:
    """The most frequent value along `dim` (the smallest of several), and where it is last.

    Errors: DTypeError for complex; IndexingError for a dimension without elements.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.mode.html

    >>> value, index = ad.mode(ad.tensor([3, 1, 3, 1, 2]))
    >>> value, index
    (tensor(1), tensor(3))
    """
    assert_sortable(input, "mode")
    return _by_place("mode", ModePlace, input, dim, keepdim)


@public(out=True)
def quantile(
    input: Tensor,
    q: Operand,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor:
    """The `q`-th quantiles along `dim` (of all elements where None).

    Shapes: `q` is a number or a 1-d tensor, whose dimension comes first in the result.
    Dtypes: float32 and float64.
    Errors: InvalidArgument for a `q` outside [0, 1], or another `interpolation` than linear,
    lower, higher, midpoint, nearest; ShapeError for no elements.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.quantile.html

    >>> ad.quantile(ad.tensor([1., 2., 3., 4.]), 0.5)
    tensor(2.5000)
    """
    return _quantile("quantile", input, q, dim, keepdim, interpolation)


@public(out=True)
def nanquantile(
    input: Tensor,
    q: Operand,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor:
    """The `q`-th quantiles of the elements that are not NaN; see `quantile`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nanquantile.html

    >>> ad.nanquantile(ad.tensor([1., float("nan"), 3.]), 0.5)
    tensor(2.)
    """
    return _quantile("nanquantile", input, q, dim, keepdim, interpolation)


def _quantile(name: str, input: Any, q: Any, dim: Any, keepdim: bool, interpolation: str) -> Any:
    if interpolation not in ("linear", "lower", "higher", "midpoint", "nearest"):
        raise InvalidArgument(
            f"{name}() interpolation must be one of linear, lower, higher, midpoint or nearest, "
            f"but got {interpolation!r}"
        )
    if input.dtype not in (dt.float32, dt.float64):
        raise DTypeError(
            f"{name}() input tensor must be either float or double dtype, got {input.dtype}"
        )
    if not input._data.size:
        raise ShapeError(f"{name}() input tensor must be non-empty, got {tuple(input.shape)}")
    if not isinstance(q, TensorBase):
        if not 0 <= q <= 1:
            raise InvalidArgument(f"{name}() q must be in the range [0, 1] but got {q}")
        q = input.new_full((), q)
    elif q._data.ndim > 1 or q.dtype is not input.dtype:
        raise ShapeError(
            f"{name}() q must be a scalar or 1D tensor of the input's dtype {input.dtype}, got "
            f"shape {tuple(q.shape)} of {q.dtype}"
        )
    elif q._data.size:
        asked: Any = q
        refuse_where(
            ((asked < 0) | (asked > 1) | asked.isnan()).any(),
            lambda: InvalidArgument(f"{name}() q values must be in the range [0, 1]"),
        )
    ndim = input._data.ndim
    axis = 0 if dim is None else normalize_axis(dim, ndim, name)
    input = hold_sizes(name, input, dims=None if dim is None else (axis,))
    rows = input.reshape((-1,)) if dim is None or ndim == 0 else input.movedim(axis, -1)
    rows = sort(rows, -1)[0]
    size = rows.shape[-1]
    missing = rows.isnan()
    if name == "quantile":
        ranks = (q.reshape((-1,)) * (size - 1)).expand((*rows.shape[:-1], q._data.size))
        ranks = ranks.masked_fill(missing.narrow(-1, size - 1, 1), size - 1)
    else:
        there = size - missing.sum(-1, True)
        ranks = q.reshape((-1,)) * (there - 1).clamp(min=0).to(rows.dtype)
    found = _at_ranks(rows, ranks, interpolation)
    if keepdim:
        sizes = [1] * ndim if dim is None else list(input.shape)
        if sizes:
            sizes[axis] = 1
        found = found.movedim(-1, 0).reshape((-1, *sizes))
    else:
        found = found.movedim(-1, 0)
    return found.squeeze(0) if q._data.ndim == 0 else found


def _at_ranks(rows: Any, ranks: Any, interpolation: str) -> Any:
    """The values of sorted `rows` at fractional `ranks`."""
    if interpolation == "lower":
        return rows.gather(-1, ranks.floor().long())
    if interpolation == "higher":
        return rows.gather(-1, ranks.ceil().long())
    if interpolation == "nearest":
        return rows.gather(-1, ranks.round().long())
    below = ranks.floor()
    weight = 0.5 * (ranks != below).to(rows.dtype) if interpolation == "midpoint" else ranks - below
    low = rows.gather(-1, below.long())
    return low.lerp(rows.gather(-1, ranks.ceil().long()), weight)
