"""Arithmetic, bits, comparison and logic of two arrays, or one and a number."""

from __future__ import annotations

from . import functions as ad
from .contract import binary
from .data_types import ANY, BOOLEAN, FLOATING, INTEGRAL, NUMERIC, REAL, REAL_FLOATING, Array

__all__ = [
    "add", "bitwise_and", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor",
    "copysign", "divide", "equal", "floor_divide", "greater", "greater_equal", "less", "less_equal",
    "logical_and", "logical_or", "logical_xor", "maximum", "minimum", "multiply", "nextafter",
    "not_equal", "remainder", "subtract",
]  # fmt: skip


@binary(NUMERIC, ad.add)
def add(x1: Array, x2: Array, /) -> Array:
    """x1 + x2.

    >>> xp = ad.array_api
    >>> xp.add(xp.asarray([1]), xp.asarray([2]))
    tensor([3])
    """


@binary(INTEGRAL | BOOLEAN, ad.bitwise_and)
def bitwise_and(x1: Array, x2: Array, /) -> Array:
    """The bits that are set in both.

    >>> xp = ad.array_api
    >>> xp.bitwise_and(xp.asarray([6]), xp.asarray([3]))
    tensor([2])
    """


@binary(INTEGRAL, ad.bitwise_left_shift)
def bitwise_left_shift(x1: Array, x2: Array, /) -> Array:
    """x1 with its bits moved x2 places up.

    >>> xp = ad.array_api
    >>> xp.bitwise_left_shift(xp.asarray([1]), xp.asarray([3]))
    tensor([8])
    """


@binary(INTEGRAL | BOOLEAN, ad.bitwise_or)
def bitwise_or(x1: Array, x2: Array, /) -> Array:
    """The bits that are set in either.

    >>> xp = ad.array_api
    >>> xp.bitwise_or(xp.asarray([6]), xp.asarray([3]))
    tensor([7])
    """


@binary(INTEGRAL, ad.bitwise_right_shift)
def bitwise_right_shift(x1: Array, x2: Array, /) -> Array:
    """x1 with its bits moved x2 places down, keeping the sign.

    >>> xp = ad.array_api
    >>> xp.bitwise_right_shift(xp.asarray([-8]), xp.asarray([2]))
    tensor([-2])
    """


@binary(INTEGRAL | BOOLEAN, ad.bitwise_xor)
def bitwise_xor(x1: Array, x2: Array, /) -> Array:
    """The bits that are set in one of both.

    >>> xp = ad.array_api
    >>> xp.bitwise_xor(xp.asarray([6]), xp.asarray([3]))
    tensor([5])
    """


@binary(REAL_FLOATING, ad.copysign)
def copysign(x1: Array, x2: Array, /) -> Array:
    """The magnitude of x1 with the sign of x2.

    >>> xp = ad.array_api
    >>> xp.copysign(xp.asarray([1.0]), xp.asarray([-0.0]))
    tensor([-1.])
    """


@binary(FLOATING, ad.div)
def divide(x1: Array, x2: Array, /) -> Array:
    """x1 / x2.

    >>> xp = ad.array_api
    >>> xp.divide(xp.asarray([1.0]), xp.asarray([4.0]))
    tensor([0.2500])
    """


@binary(ANY, ad.eq)
def equal(x1: Array, x2: Array, /) -> Array:
    """Whether x1 == x2.

    >>> xp = ad.array_api
    >>> xp.equal(xp.asarray([1, 2]), xp.asarray([1, 3]))
    tensor([ True, False])
    """


@binary(REAL, ad.floor_divide)
def floor_divide(x1: Array, x2: Array, /) -> Array:
    """The greatest integers that are not greater than x1 / x2.

    >>> xp = ad.array_api
    >>> xp.floor_divide(xp.asarray([7, -7]), xp.asarray([2, 2]))
    tensor([ 3, -4])
    """


@binary(REAL, ad.gt)
def greater(x1: Array, x2: Array, /) -> Array:
    """Whether x1 > x2.

    >>> xp = ad.array_api
    >>> xp.greater(xp.asarray([1, 2]), xp.asarray([2, 1]))
    tensor([False,  True])
    """


@binary(REAL, ad.ge)
def greater_equal(x1: Array, x2: Array, /) -> Array:
    """Whether x1 >= x2.

    >>> xp = ad.array_api
    >>> xp.greater_equal(xp.asarray([1, 2]), xp.asarray([2, 2]))
    tensor([False,  True])
    """


@binary(REAL, ad.lt)
def less(x1: Array, x2: Array, /) -> Array:
    """Whether x1 < x2.

    >>> xp = ad.array_api
    >>> xp.less(xp.asarray([1, 2]), xp.asarray([2, 1]))
    tensor([ True, False])
    """


@binary(REAL, ad.le)
def less_equal(x1: Array, x2: Array, /) -> Array:
    """Whether x1 <= x2.

    >>> xp = ad.array_api
    >>> xp.less_equal(xp.asarray([1, 2]), xp.asarray([1, 1]))
    tensor([ True, False])
    """


@binary(BOOLEAN, ad.logical_and)
def logical_and(x1: Array, x2: Array, /) -> Array:
    """Whether both are True.

    >>> xp = ad.array_api
    >>> xp.logical_and(xp.asarray([True]), xp.asarray([False]))
    tensor([False])
    """


@binary(BOOLEAN, ad.logical_or)
def logical_or(x1: Array, x2: Array, /) -> Array:
    """Whether one or both are True.

    >>> xp = ad.array_api
    >>> xp.logical_or(xp.asarray([True]), xp.asarray([False]))
    tensor([True])
    """


@binary(BOOLEAN, ad.logical_xor)
def logical_xor(x1: Array, x2: Array, /) -> Array:
    """Whether one is True and the other is not.

    >>> xp = ad.array_api
    >>> xp.logical_xor(xp.asarray([True]), xp.asarray([False]))
    tensor([True])
    """


@binary(REAL, ad.maximum)
def maximum(x1: Array, x2: Array, /) -> Array:
    """The greater of both; NaN where one is NaN.

    >>> xp = ad.array_api
    >>> xp.maximum(xp.asarray([1, 5]), xp.asarray([2, 3]))
    tensor([2, 5])
    """


@binary(REAL, ad.minimum)
def minimum(x1: Array, x2: Array, /) -> Array:
    """The smaller of both; NaN where one is NaN.

    >>> xp = ad.array_api
    >>> xp.minimum(xp.asarray([1, 5]), xp.asarray([2, 3]))
    tensor([1, 3])
    """


@binary(NUMERIC, ad.mul)
def multiply(x1: Array, x2: Array, /) -> Array:
    """x1 * x2.

    >>> xp = ad.array_api
    >>> xp.multiply(xp.asarray([2]), xp.asarray([3]))
    tensor([6])
    """


@binary(REAL_FLOATING, ad.nextafter)
def nextafter(x1: Array, x2: Array, /) -> Array:
    """The next floating-point number after x1 towards x2.

    >>> xp = ad.array_api
    >>> xp.nextafter(xp.asarray([0.0]), xp.asarray([1.0]))
    tensor([1.4013e-45])
    """


@binary(ANY, ad.ne)
def not_equal(x1: Array, x2: Array, /) -> Array:
    """Whether x1 != x2.

    >>> xp = ad.array_api
    >>> xp.not_equal(xp.asarray([1, 2]), xp.asarray([1, 3]))
    tensor([False,  True])
    """


@binary(REAL)
def remainder(x1: Array, x2: Array, /) -> Array:
    """x1 - x2 * floor(x1 / x2), with the sign of x2, as Python's %.

    >>> xp = ad.array_api
    >>> xp.remainder(xp.asarray([7, -7]), xp.asarray([3, 3]))
    tensor([1, 2])
    """
    result = ad.remainder(x1, x2)
    if x1.dtype.is_floating_point:  # PyTorch's zeros have the sign of x1
        wrong = ad.logical_and(result == 0, ad.signbit(result) != ad.signbit(x2))
        return ad.where(wrong, ad.copysign(ad.zeros_like(result), x2), result)
    return result


@binary(NUMERIC, ad.sub)
def subtract(x1: Array, x2: Array, /) -> Array:
    """x1 - x2.

    >>> xp = ad.array_api
    >>> xp.subtract(xp.asarray([3]), xp.asarray([2]))
    tensor([1])
    """
