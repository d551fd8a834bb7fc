"""Relations of two elements, and tests of one: whether it is finite, infinite, negative."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.argument_errors import assert_tensor
from ...core.errors import DTypeError
from ...core.op import Sample
from ...core.tensor_type import Tensor
from ...runtime.public import public
from ..samples import COMPLEX, FLOATS, INTS, array, binary_samples
from .logic import special_samples
from .pointwise import ORDERED, Comparison, alias, binary, unary, widen

__all__ = [
    "eq", "ge", "greater", "greater_equal", "gt", "isfinite", "isinf", "isnan", "isneginf",
    "isposinf", "le", "less", "less_equal", "lt", "ne", "not_equal", "signbit",
]  # fmt: skip


# ---- two tensors compared ------------------------------------------------------------------------


def _comparison_samples(dtypes: tuple[dt.dtype, ...]) -> Any:
    """Samples in which about half of the elements are equal, and NaN is among them."""
    usual: Any = binary_samples(dtypes=dtypes)

    def samples(cls: Any) -> Iterable[Sample]:
        yield from usual.__func__(cls)
        for dtype in (dt.int64, dt.bool_):
            yield Sample(cls(), (array((4, 5), dtype), array((4, 5), dtype, seed=1)), dtype.name)
        x1 = np.array([np.nan, 0.0, 1.0, np.inf, np.nan, -np.inf])
        x2 = np.array([np.nan, -0.0, 1.0, np.inf, 1.0, np.inf])
        yield Sample(cls(), (x1, x2), "special")

    return classmethod(samples)


class Eq(Comparison):
    """Whether elements of `input` and `other` are equal.

    >>> ad.eq(ad.tensor([1, 2]), 1)
    tensor([ True, False])
    """

    ufunc = "equal"
    samples = _comparison_samples(FLOATS + INTS + COMPLEX)


class Ne(Comparison):
    """Whether elements of `input` and `other` differ.

    >>> ad.ne(ad.tensor([1, 2]), 1)
    tensor([False,  True])
    """

    ufunc = "not_equal"
    samples = _comparison_samples(FLOATS + INTS + COMPLEX)


class _Order(Comparison, abstract=True):
    kinds = ORDERED
    samples = _comparison_samples(FLOATS + INTS)


class Lt(_Order):
    """Whether elements of `input` are less than those of `other`.

    >>> ad.lt(ad.tensor([1, 2]), 2)
    tensor([ True, False])
    """

    ufunc = "less"


class Le(_Order):
    """Whether elements of `input` are less than or equal to those of `other`.

    >>> ad.le(ad.tensor([1, 2]), 1)
    tensor([ True, False])
    """

    ufunc = "less_equal"


class Gt(_Order):
    """Whether elements of `input` are greater than those of `other`.

    >>> ad.gt(ad.tensor([1, 2]), 1)
    tensor([False,  True])
    """

    ufunc = "greater"


class Ge(_Order):
    """Whether elements of `input` are greater than or equal to those of `other`.

    >>> ad.ge(ad.tensor([1, 2]), 2)
    tensor([False,  True])
    """

    ufunc = "greater_equal"


eq, ne, lt = binary(Eq()), binary(Ne()), binary(Lt())
le, gt, ge = binary(Le()), binary(Gt()), binary(Ge())
not_equal = alias(ne, "not_equal")
less, less_equal = alias(lt, "less"), alias(le, "less_equal")
greater, greater_equal = alias(gt, "greater"), alias(ge, "greater_equal")


# ---- one tensor tested ---------------------------------------------------------------------------


class Isnan(Comparison):
    """Whether each element is NaN.

    >>> ad.isnan(ad.tensor([1., float("nan")]))
    tensor([False,  True])
    """

    ufunc = "isnan"
    samples = special_samples(FLOATS + COMPLEX + INTS)


class Isinf(Comparison):
    """Whether each element is infinite.

    >>> ad.isinf(ad.tensor([1., float("inf")]))
    tensor([False,  True])
    """

    ufunc = "isinf"
    samples = special_samples(FLOATS + COMPLEX + INTS)


class Isfinite(Comparison):
    """Whether each element is neither infinite nor NaN.

    >>> ad.isfinite(ad.tensor([1., float("inf")]))
    tensor([ True, False])
    """

    ufunc = "isfinite"
    samples = special_samples(FLOATS + COMPLEX + INTS)


class Signbit(Comparison):
    """Whether each element's sign bit is set: negative numbers and -0.

    >>> ad.signbit(ad.tensor([-0., 0., -1.]))
    tensor([ True, False,  True])
    """

    kinds = ORDERED
    samples = special_samples(FLOATS + INTS)

    def compute(self, xp: Any, x: Any) -> Any:
        """The backend's signbit; integers have none."""
        return x < 0 if x.dtype.kind in "biu" else xp.signbit(x)

    def reference(self, x: Any) -> Any:
        """NumPy's, in the widest precision."""
        return np.signbit(widen(x))


isnan = unary(Isnan(), floating=False, inplace=False)
isinf = unary(Isinf(), floating=False, inplace=False)
isfinite = unary(Isfinite(), floating=False, inplace=False)
signbit = unary(Signbit(), floating=False, inplace=False)


@public(out=True)
def isposinf(input: Tensor) -> Tensor:
    """Whether each element is positive infinity.

    Dtypes: any but complex; the result is bool.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.isposinf.html

    >>> ad.isposinf(ad.tensor([-float("inf"), float("inf")]))
    tensor([False,  True])
    """
    return _is_infinity("isposinf", input, float("inf"))


@public(out=True)
def isneginf(input: Tensor) -> Tensor:
    """Whether each element is negative infinity.

    Dtypes: any but complex; the result is bool.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.isneginf.html

    >>> ad.isneginf(ad.tensor([-float("inf"), float("inf")]))
    tensor([ True, False])
    """
    return _is_infinity("isneginf", input, -float("inf"))


def _is_infinity(name: str, x: Any, infinity: float) -> Tensor:
    assert_tensor(name, x)
    if x.dtype.is_complex:
        raise DTypeError(f"{name}: does not support complex inputs; use x.real or x.imag")
    return eq(x, infinity)
