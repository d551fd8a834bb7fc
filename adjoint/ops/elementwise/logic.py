"""Logic and bits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import dtype as dt
from ...core.op import Sample
from ..samples import COMPLEX, FLOATS, INTS, array, binary_samples, strided, unary_samples
from .pointwise import INTEGERS, INTEGRAL, Comparison, Elementwise, binary, unary

if TYPE_CHECKING:
    pass

__all__ = [
    "bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift",
    "bitwise_xor", "logical_and", "logical_not", "logical_or", "logical_xor",
]  # fmt: skip


def special_samples(dtypes: tuple[dt.dtype, ...]) -> Any:
    """Samples with NaN, infinities and zeros of both signs, in each dtype."""

    def samples(cls: Any) -> Iterable[Sample]:
        special = np.array([[0.0, -0.0, 1.5, -1.5], [np.nan, np.inf, -np.inf, 1.0]])
        for dtype in dtypes:
            x = special if dtype.category >= 2 else array((2, 3), dtype)
            yield Sample(cls(), (x.astype(dtype.numpy),), dtype.name)
        yield Sample(cls(), (strided(special),), "strided")
        yield Sample(cls(), (np.array(np.inf),), "0-d")
        yield Sample(cls(), (np.zeros((0, 3)),), "empty")

    return classmethod(samples)


# ---- logic and bits ------------------------------------------------------------------------------


class LogicalAnd(Comparison):
    """Whether both elements are nonzero.

    >>> ad.logical_and(ad.tensor([True, True]), ad.tensor([True, False]))
    tensor([ True, False])
    """

    ufunc = "logical_and"
    samples = binary_samples(dtypes=(dt.bool_, *INTS, *FLOATS, *COMPLEX))


class LogicalOr(Comparison):
    """Whether one element or both are nonzero.

    >>> ad.logical_or(ad.tensor([True, False]), ad.tensor([False, False]))
    tensor([ True, False])
    """

    ufunc = "logical_or"
    samples = binary_samples(dtypes=(dt.bool_, *INTS, *FLOATS, *COMPLEX))


class LogicalXor(Comparison):
    """Whether exactly one of the two elements is nonzero.

    >>> ad.logical_xor(ad.tensor([True, False]), ad.tensor([True, True]))
    tensor([False,  True])
    """

    ufunc = "logical_xor"
    samples = binary_samples(dtypes=(dt.bool_, *INTS, *FLOATS, *COMPLEX))


class LogicalNot(Comparison):
    """Whether each element is zero.

    >>> ad.logical_not(ad.tensor([0, 3]))
    tensor([ True, False])
    """

    ufunc = "logical_not"
    samples = special_samples((dt.bool_, *INTS, *FLOATS, *COMPLEX))


class _OfBits(Elementwise, abstract=True):
    kinds = INTEGRAL
    samples = binary_samples(dtypes=(*INTS, dt.bool_), low=-100, high=100)


class BitwiseAnd(_OfBits):
    """The bits that both elements have.

    >>> ad.bitwise_and(ad.tensor([6]), 3)
    tensor([2])
    """

    ufunc = "bitwise_and"


class BitwiseOr(_OfBits):
    """The bits that one element has, or both.

    >>> ad.bitwise_or(ad.tensor([6]), 3)
    tensor([7])
    """

    ufunc = "bitwise_or"


class BitwiseXor(_OfBits):
    """The bits that exactly one of the elements has.

    >>> ad.bitwise_xor(ad.tensor([6]), 3)
    tensor([5])
    """

    ufunc = "bitwise_xor"


class BitwiseNot(Elementwise):
    """The bits that an element does not have; `not` for bools.

    >>> ad.bitwise_not(ad.tensor([0, 5]))
    tensor([-1, -6])
    """

    ufunc = "invert"
    kinds = INTEGRAL
    samples = unary_samples(dtypes=(*INTS, dt.bool_), low=-100, high=100)


class BitwiseLeftShift(Elementwise):
    """The bits of `input` moved up by `other` places.

    >>> ad.bitwise_left_shift(ad.tensor([1, 3]), 2)
    tensor([ 4, 12])
    """

    kinds = INTEGERS
    samples = binary_samples(dtypes=INTS, low=-100, high=100, low2=-2, high2=90)

    def compute(self, xp: Any, x1: Any, x2: Any) -> Any:
        """A shift by all bits or more, or by a negative number, leaves nothing."""
        dtype = (x1 if hasattr(x1, "dtype") else x2).dtype
        bits = 8 * dtype.itemsize
        x1, x2 = xp.asarray(x1, dtype=dtype), xp.asarray(x2, dtype=dtype)
        fits = (x2 >= 0) & (x2 < bits)
        return xp.where(fits, xp.left_shift(x1, xp.where(fits, x2, 0)), 0).astype(dtype)

    def reference(self, x1: Any, x2: Any) -> Any:
        """Reference value by products of Python's integers, cut to the dtype."""
        bits = 8 * x1.dtype.itemsize

        def shift(a: int, b: int) -> int:
            return int(a) * 2 ** int(b) % 2**bits if 0 <= b < bits else 0

        values = np.vectorize(shift, otypes=[object])(x1, x2)
        return values.astype(np.uint64).astype(x1.dtype)


class BitwiseRightShift(Elementwise):
    """The bits of `input` moved down by `other` places; the sign stays.

    >>> ad.bitwise_right_shift(ad.tensor([8, -8]), 2)
    tensor([ 2, -2])
    """

    kinds = INTEGERS
    samples = binary_samples(dtypes=INTS, low=-100, high=100, low2=-2, high2=90)

    def compute(self, xp: Any, x1: Any, x2: Any) -> Any:
        """A shift by all bits or more, or by a negative number, leaves the sign."""
        dtype = (x1 if hasattr(x1, "dtype") else x2).dtype
        bits = 8 * dtype.itemsize
        x1, x2 = xp.asarray(x1, dtype=dtype), xp.asarray(x2, dtype=dtype)
        if dtype.kind == "u":
            fits = x2 < bits
            return xp.where(fits, xp.right_shift(x1, xp.where(fits, x2, 0)), 0).astype(dtype)
        return xp.right_shift(x1, xp.where((x2 >= 0) & (x2 < bits), x2, bits - 1)).astype(dtype)

    def reference(self, x1: Any, x2: Any) -> Any:
        """Reference value by quotients of Python's integers."""
        bits = 8 * x1.dtype.itemsize

        def shift(a: int, b: int) -> Any:
            return int(a) // 2 ** (int(b) if 0 <= b < bits else bits)

        return np.vectorize(shift, otypes=[np.int64])(x1, x2)


logical_and = binary(LogicalAnd())
logical_or = binary(LogicalOr())
logical_xor = binary(LogicalXor())
logical_not = unary(LogicalNot(), floating=False)
bitwise_and = binary(BitwiseAnd())
bitwise_or = binary(BitwiseOr())
bitwise_xor = binary(BitwiseXor())
bitwise_not = unary(BitwiseNot(), floating=False)
bitwise_left_shift = binary(BitwiseLeftShift())
bitwise_right_shift = binary(BitwiseRightShift())
