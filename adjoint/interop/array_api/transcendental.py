"""Powers, logarithms, trigonometric and hyperbolic functions of each element."""

from __future__ import annotations

from . import functions as ad
from .contract import binary, unary
from .data_types import FLOATING, NUMERIC, REAL_FLOATING, Array

__all__ = [
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "cosh", "exp",
    "expm1", "hypot", "log", "log1p", "log2", "log10", "logaddexp", "pow", "reciprocal", "sin",
    "sinh", "sqrt", "tan", "tanh",
]  # fmt: skip


@unary(NUMERIC, ad.abs)
def abs(x: Array, /) -> Array:
    """The magnitude of each element; real for complex arrays.

    >>> xp = ad.array_api
    >>> xp.abs(xp.asarray([-1, 2]))
    tensor([1, 2])
    """


@unary(FLOATING, ad.acos)
def acos(x: Array, /) -> Array:
    """The angle in [0, pi] whose cosine is each element.

    >>> xp = ad.array_api
    >>> xp.acos(xp.asarray([1.0]))
    tensor([0.])
    """


@unary(FLOATING, ad.acosh)
def acosh(x: Array, /) -> Array:
    """The inverse hyperbolic cosine of each element.

    >>> xp = ad.array_api
    >>> xp.acosh(xp.asarray([1.0]))
    tensor([0.])
    """


@unary(FLOATING, ad.asin)
def asin(x: Array, /) -> Array:
    """The angle in [-pi/2, pi/2] whose sine is each element.

    >>> xp = ad.array_api
    >>> xp.asin(xp.asarray([0.0]))
    tensor([0.])
    """


@unary(FLOATING, ad.asinh)
def asinh(x: Array, /) -> Array:
    """The inverse hyperbolic sine of each element.

    >>> xp = ad.array_api
    >>> xp.asinh(xp.asarray([0.0]))
    tensor([0.])
    """


@unary(FLOATING, ad.atan)
def atan(x: Array, /) -> Array:
    """The angle in [-pi/2, pi/2] whose tangent is each element.

    >>> xp = ad.array_api
    >>> xp.atan(xp.asarray([0.0]))
    tensor([0.])
    """


@unary(FLOATING, ad.atanh)
def atanh(x: Array, /) -> Array:
    """The inverse hyperbolic tangent of each element.

    >>> xp = ad.array_api
    >>> xp.atanh(xp.asarray([0.0]))
    tensor([0.])
    """


@unary(FLOATING, ad.cos)
def cos(x: Array, /) -> Array:
    """The cosine of each element, in radians.

    >>> xp = ad.array_api
    >>> xp.cos(xp.asarray([0.0]))
    tensor([1.])
    """


@unary(FLOATING, ad.cosh)
def cosh(x: Array, /) -> Array:
    """The hyperbolic cosine of each element.

    >>> xp = ad.array_api
    >>> xp.cosh(xp.asarray([0.0]))
    tensor([1.])
    """


@unary(FLOATING, ad.exp)
def exp(x: Array, /) -> Array:
    """e to the power of each element.

    >>> xp = ad.array_api
    >>> xp.exp(xp.asarray([0.0]))
    tensor([1.])
    """


@unary(FLOATING)
def expm1(x: Array, /) -> Array:
    """exp(x) - 1, exact near zero.

    >>> xp = ad.array_api
    >>> xp.expm1(xp.asarray([0.0]))
    tensor([0.])
    """
    result = ad.expm1(x)
    if x.dtype.is_complex:  # NumPy's loses the infinities
        return ad.where(ad.isfinite(x), result, ad.exp(x) - 1)
    return result


@unary(FLOATING, ad.log)
def log(x: Array, /) -> Array:
    """The natural logarithm of each element.

    >>> xp = ad.array_api
    >>> xp.log(xp.asarray([1.0]))
    tensor([0.])
    """


@unary(FLOATING, ad.log10)
def log10(x: Array, /) -> Array:
    """The logarithm to base 10 of each element.

    >>> xp = ad.array_api
    >>> xp.log10(xp.asarray([10.0]))
    tensor([1.])
    """


@unary(FLOATING, ad.log1p)
def log1p(x: Array, /) -> Array:
    """log(1 + x), exact near zero.

    >>> xp = ad.array_api
    >>> xp.log1p(xp.asarray([0.0]))
    tensor([0.])
    """


@unary(FLOATING, ad.log2)
def log2(x: Array, /) -> Array:
    """The logarithm to base 2 of each element.

    >>> xp = ad.array_api
    >>> xp.log2(xp.asarray([8.0]))
    tensor([3.])
    """


@unary(FLOATING, ad.reciprocal)
def reciprocal(x: Array, /) -> Array:
    """1 / x for each element.

    >>> xp = ad.array_api
    >>> xp.reciprocal(xp.asarray([4.0]))
    tensor([0.2500])
    """


@unary(FLOATING, ad.sin)
def sin(x: Array, /) -> Array:
    """The sine of each element, in radians.

    >>> xp = ad.array_api
    >>> xp.sin(xp.asarray([0.0]))
    tensor([0.])
    """


@unary(FLOATING, ad.sinh)
def sinh(x: Array, /) -> Array:
    """The hyperbolic sine of each element.

    >>> xp = ad.array_api
    >>> xp.sinh(xp.asarray([0.0]))
    tensor([0.])
    """


@unary(FLOATING, ad.sqrt)
def sqrt(x: Array, /) -> Array:
    """The principal square root of each element.

    >>> xp = ad.array_api
    >>> xp.sqrt(xp.asarray([9.0]))
    tensor([3.])
    """


@unary(FLOATING, ad.tan)
def tan(x: Array, /) -> Array:
    """The tangent of each element, in radians.

    >>> xp = ad.array_api
    >>> xp.tan(xp.asarray([0.0]))
    tensor([0.])
    """


@unary(FLOATING, ad.tanh)
def tanh(x: Array, /) -> Array:
    """The hyperbolic tangent of each element.

    >>> xp = ad.array_api
    >>> xp.tanh(xp.asarray([0.0]))
    tensor([0.])
    """


@binary(REAL_FLOATING, ad.atan2)
def atan2(x1: Array, x2: Array, /) -> Array:
    """The angle in [-pi, pi] of the point (x2, x1).

    >>> xp = ad.array_api
    >>> xp.atan2(xp.asarray([0.0]), xp.asarray([1.0]))
    tensor([0.])
    """


@binary(REAL_FLOATING, ad.hypot)
def hypot(x1: Array, x2: Array, /) -> Array:
    """sqrt(x1**2 + x2**2), without overflow on the way.

    >>> xp = ad.array_api
    >>> xp.hypot(xp.asarray([3.0]), xp.asarray([4.0]))
    tensor([5.])
    """


@binary(REAL_FLOATING, ad.logaddexp)
def logaddexp(x1: Array, x2: Array, /) -> Array:
    """log(exp(x1) + exp(x2)), without overflow on the way.

    >>> xp = ad.array_api
    >>> xp.logaddexp(xp.asarray([0.0]), xp.asarray([0.0]))
    tensor([0.6931])
    """


@binary(NUMERIC, ad.pow)
def pow(x1: Array, x2: Array, /) -> Array:
    """x1 to the power of x2.

    >>> xp = ad.array_api
    >>> xp.pow(xp.asarray([2, 3]), xp.asarray([3, 2]))
    tensor([8, 9])
    """
