"""Rounding, signs, parts and tests of each element."""

from __future__ import annotations

import math
from typing import Any

from ...core.errors import DTypeError
from . import functions as ad
from .contract import unary
from .data_types import (
    BOOLEAN,
    COMPLEX,
    INTEGRAL,
    NUMERIC,
    REAL,
    REAL_FLOATING,
    Array,
    checked,
    operands,
)

__all__ = [
    "bitwise_invert", "ceil", "clip", "conj", "floor", "imag", "isfinite", "isinf", "isnan",
    "logical_not", "negative", "positive", "real", "round", "sign", "signbit", "square", "trunc",
]  # fmt: skip


@unary(INTEGRAL | BOOLEAN, ad.bitwise_not)
def bitwise_invert(x: Array, /) -> Array:
    """Each element with all bits flipped.

    >>> xp = ad.array_api
    >>> xp.bitwise_invert(xp.asarray([0, 1]))
    tensor([-1, -2])
    """


@unary(REAL, ad.ceil)
def ceil(x: Array, /) -> Array:
    """The smallest integers that are not less than the elements.

    >>> xp = ad.array_api
    >>> xp.ceil(xp.asarray([1.5, -1.5]))
    tensor([ 2., -1.])
    """


@unary(NUMERIC, ad.conj_physical)
def conj(x: Array, /) -> Array:
    """The complex conjugate of each element; a real one is its own.

    >>> xp = ad.array_api
    >>> xp.conj(xp.asarray([1 - 2j]))
    tensor([1.+2.j])
    """


@unary(REAL, ad.floor)
def floor(x: Array, /) -> Array:
    """The greatest integers that are not greater than the elements.

    >>> xp = ad.array_api
    >>> xp.floor(xp.asarray([1.5, -1.5]))
    tensor([ 1., -2.])
    """


@unary(COMPLEX, ad.imag)
def imag(x: Array, /) -> Array:
    """The imaginary part of each element.

    >>> xp = ad.array_api
    >>> xp.imag(xp.asarray([1 - 2j]))
    tensor([-2.])
    """


@unary(NUMERIC, ad.isfinite)
def isfinite(x: Array, /) -> Array:
    """Whether each element is neither infinite nor NaN.

    >>> xp = ad.array_api
    >>> xp.isfinite(xp.asarray([1.0, xp.inf]))
    tensor([ True, False])
    """


@unary(NUMERIC, ad.isinf)
def isinf(x: Array, /) -> Array:
    """Whether each element is infinite.

    >>> xp = ad.array_api
    >>> xp.isinf(xp.asarray([1.0, xp.inf]))
    tensor([False,  True])
    """


@unary(NUMERIC, ad.isnan)
def isnan(x: Array, /) -> Array:
    """Whether each element is NaN.

    >>> xp = ad.array_api
    >>> xp.isnan(xp.asarray([1.0, xp.nan]))
    tensor([False,  True])
    """


@unary(BOOLEAN, ad.logical_not)
def logical_not(x: Array, /) -> Array:
    """Whether each element is False.

    >>> xp = ad.array_api
    >>> xp.logical_not(xp.asarray([True, False]))
    tensor([False,  True])
    """


@unary(NUMERIC, ad.neg)
def negative(x: Array, /) -> Array:
    """-x for each element.

    >>> xp = ad.array_api
    >>> xp.negative(xp.asarray([1, -2]))
    tensor([-1,  2])
    """


@unary(NUMERIC, ad.positive)
def positive(x: Array, /) -> Array:
    """The elements as they are.

    >>> xp = ad.array_api
    >>> xp.positive(xp.asarray([1, -2]))
    tensor([ 1, -2])
    """


@unary(NUMERIC, ad.real)
def real(x: Array, /) -> Array:
    """The real part of each element.

    >>> xp = ad.array_api
    >>> xp.real(xp.asarray([1 - 2j]))
    tensor([1.])
    """


@unary(NUMERIC)
def round(x: Array, /) -> Array:
    """The nearest integers, the even ones halfway between two.

    >>> xp = ad.array_api
    >>> xp.round(xp.asarray([0.5, 1.5]))
    tensor([0., 2.])
    """
    if x.dtype.is_complex:
        return ad.complex(ad.round(x.real), ad.round(x.imag))
    return ad.round(x)


@unary(NUMERIC)
def sign(x: Array, /) -> Array:
    """-1, 0 or 1, by the sign of each element; x / abs(x) for complex ones.

    >>> xp = ad.array_api
    >>> xp.sign(xp.asarray([-3, 0, 5]))
    tensor([-1,  0,  1])
    """
    if x.dtype.category < 2:
        return ad.sgn(x)
    nan = complex(math.nan, math.nan) if x.dtype.is_complex else math.nan
    return ad.where(ad.isnan(x), nan, ad.sgn(x))  # PyTorch gives 0 for NaN


@unary(REAL_FLOATING, ad.signbit)
def signbit(x: Array, /) -> Array:
    """Whether the sign bit of each element is set, as it is for -0.0.

    >>> xp = ad.array_api
    >>> xp.signbit(xp.asarray([-0.0, 1.0]))
    tensor([ True, False])
    """


@unary(NUMERIC, ad.square)
def square(x: Array, /) -> Array:
    """x * x for each element.

    >>> xp = ad.array_api
    >>> xp.square(xp.asarray([2, -3]))
    tensor([4, 9])
    """


@unary(REAL, ad.trunc)
def trunc(x: Array, /) -> Array:
    """The elements without their fractions.

    >>> xp = ad.array_api
    >>> xp.trunc(xp.asarray([1.5, -1.5]))
    tensor([ 1., -1.])
    """


def clip(x: Array, /, min: Any = None, max: Any = None) -> Array:
    """The elements, raised to `min` and lowered to `max`; None stands for no bound.

    Shapes: x and the bounds broadcast.
    Dtypes: real, that of x; NaN in any of the three gives NaN.
    Errors: DTypeError where the bounds do not promote to the dtype of x.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.clip.html

    >>> xp = ad.array_api
    >>> xp.clip(xp.asarray([-2, 0, 7]), min=-1, max=5)
    tensor([-1,  0,  5])
    """
    checked("clip", x, REAL)
    bounds = [
        None if bound is None else operands("clip", REAL, x[()], bound)[1] for bound in (min, max)
    ]
    for bound in bounds:
        if bound is not None and bound.dtype is not x.dtype:
            raise DTypeError(f"clip: a bound of {bound.dtype} does not fit {x.dtype}; use astype()")
    if bounds == [None, None]:
        return ad.positive(x)
    return ad.clamp(x, *bounds)
