"""Sums, products, means, spreads and extremes over axes."""

from __future__ import annotations

from typing import Any

from ...core.dtype import dtype as DType  # noqa: N812 - a class, in spite of PyTorch's name
from ...core.errors import InvalidArgument
from . import functions as ad
from .axes import axis_of, reduced
from .data_types import FLOATING, NUMERIC, REAL, REAL_FLOATING, Array, checked

__all__ = ["cumulative_prod", "cumulative_sum", "max", "mean", "min", "prod", "std", "sum", "var"]

Axis = int | tuple[int, ...] | None


def accumulator(dtype: DType) -> DType:
    """The dtype in which elements are added up where none is named: of 64 bits for integers."""
    if dtype.category != 1:
        return dtype
    return ad.int64 if dtype.is_signed else ad.uint64


def _total(
    name: str, function: Any, x: Array, axis: Axis, dtype: DType | None, keepdims: bool
) -> Array:
    checked(name, x, NUMERIC)
    return reduced(function, x, axis, keepdims, dtype=dtype or accumulator(x.dtype))


def sum(
    x: Array, /, *, axis: Axis = None, dtype: DType | None = None, keepdims: bool = False
) -> Array:
    """The sum over axes; 0 of no elements.

    Dtypes: that of x; integers are added up in int64 or uint64 unless `dtype` says otherwise.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.sum.html

    >>> ad.array_api.sum(ad.tensor([[1, 2], [3, 4]]), axis=0)
    tensor([4, 6])
    """
    return _total("sum", ad.sum, x, axis, dtype, keepdims)


def _product(x: Array, dim: tuple[int, ...], keepdim: bool, *, dtype: DType) -> Array:
    """PyTorch's `prod` takes one axis: several are made one first."""
    if len(dim) == x.ndim:
        result = ad.prod(x, dtype=dtype)
    else:
        last = ad.movedim(x, dim, tuple(range(-len(dim), 0)))
        result = ad.prod(last.flatten(-len(dim)), -1, dtype=dtype)
    if not keepdim:
        return result
    return result.reshape([1 if i in dim else size for i, size in enumerate(x.shape)])


_product.__name__ = "prod"


def prod(
    x: Array, /, *, axis: Axis = None, dtype: DType | None = None, keepdims: bool = False
) -> Array:
    """The product over axes; 1 of no elements.

    Dtypes: that of x; integers are multiplied in int64 or uint64 unless `dtype` says otherwise.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.prod.html

    >>> ad.array_api.prod(ad.tensor([[1, 2], [3, 4]]), axis=0)
    tensor([3, 8])
    """
    return _total("prod", _product, x, axis, dtype, keepdims)


def _extreme(name: str, function: Any, x: Array, axis: Axis, keepdims: bool) -> Array:
    return reduced(function, checked(name, x, REAL), axis, keepdims)


def max(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """The greatest element over axes; NaN where there is one.

    Errors: IndexingError where there is no element.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.max.html

    >>> ad.array_api.max(ad.tensor([[1, 5], [3, 4]]), axis=0)
    tensor([3, 5])
    """
    return _extreme("max", ad.amax, x, axis, keepdims)


def min(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """The smallest element over axes; NaN where there is one.

    Errors: IndexingError where there is no element.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.min.html

    >>> ad.array_api.min(ad.tensor([[1, 5], [3, 4]]), axis=0)
    tensor([1, 4])
    """
    return _extreme("min", ad.amin, x, axis, keepdims)


def mean(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """The arithmetic mean over axes; NaN of no elements.

    Dtypes: floating point; that of x.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.mean.html

    >>> ad.array_api.mean(ad.tensor([1., 2., 6.]))
    tensor(3.)
    """
    return reduced(ad.mean, checked("mean", x, FLOATING), axis, keepdims)


def _spread(
    name: str, function: Any, x: Array, axis: Axis, correction: float, keepdims: bool
) -> Array:
    checked(name, x, REAL_FLOATING)

    def corrected(x: Array, dim: tuple[int, ...], keepdim: bool) -> Array:
        return function(x, dim, keepdim=keepdim, correction=correction)

    corrected.__name__ = name
    return reduced(corrected, x, axis, keepdims)


def std(
    x: Array, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False
) -> Array:
    """The standard deviation over axes: the root of `var`.

    Dtypes: real floating point; that of x.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.std.html

    >>> ad.array_api.std(ad.tensor([1., 3.]))
    tensor(1.)
    """
    return _spread("std", ad.std, x, axis, correction, keepdims)


def var(
    x: Array, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False
) -> Array:
    """The mean squared distance from the mean over axes, with N - `correction` in place of N.

    Dtypes: real floating point; that of x.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.var.html

    >>> ad.array_api.var(ad.tensor([1., 3.]), correction=1)
    tensor(2.)
    """
    return _spread("var", ad.var, x, axis, correction, keepdims)


def _running(
    name: str, x: Array, axis: int | None, dtype: DType | None, include_initial: bool
) -> Array:
    checked(name, x, NUMERIC)
    if axis is None:
        if x.ndim != 1:
            raise InvalidArgument(f"{name}: an array of shape {tuple(x.shape)} needs an axis")
        axis = 0
    axis = axis_of(axis, x.ndim, name)
    function, first = (ad.cumsum, 0) if name == "cumulative_sum" else (ad.cumprod, 1)
    result = function(x, axis, dtype=dtype or accumulator(x.dtype))
    if not include_initial:
        return result
    shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    return ad.cat([result.new_full(shape, first), result], axis)


def cumulative_sum(
    x: Array,
    /,
    *,
    axis: int | None = None,
    dtype: DType | None = None,
    include_initial: bool = False,
) -> Array:
    """The sums of the elements up to each one along an axis, which one-dimensional arrays may omit.

    Shapes: that of x; one more along the axis with `include_initial`, which puts a 0 in front.
    Errors: InvalidArgument without an axis where x has several.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.cumulative_sum.html

    >>> ad.array_api.cumulative_sum(ad.tensor([1, 2, 3]), include_initial=True)
    tensor([0, 1, 3, 6])
    """
    return _running("cumulative_sum", x, axis, dtype, include_initial)


def cumulative_prod(
    x: Array,
    /,
    *,
    axis: int | None = None,
    dtype: DType | None = None,
    include_initial: bool = False,
) -> Array:
    """The products of the elements up to each one along an axis, which one-dimensional arrays may
    omit.

    Shapes: that of x; one more along the axis with `include_initial`, which puts a 1 in front.
    Errors: InvalidArgument without an axis where x has several.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.cumulative_prod.html

    >>> ad.array_api.cumulative_prod(ad.tensor([1, 2, 3]))
    tensor([1, 2, 6])
    """
    return _running("cumulative_prod", x, axis, dtype, include_initial)
