"""Special functions: error functions, gamma functions, Bessel functions, and logarithms that keep
their precision.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...core import dtype as dt
from ...core.argument_errors import assert_tensor
from ...core.errors import InvalidArgument
from ...core.op import Sample
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply, run_known
from ...runtime.public import INPLACE, public
from ..elementwise.comparison import tensors, where
from ..elementwise.functions import exp, log, sigmoid, square
from ..elementwise.logic import logical_and, logical_or
from ..elementwise.pointwise import (
    FLOATING,
    Analytic,
    Elementwise,
    Floating,
    assert_kind,
    binary,
    conj,
    unary,
    widen,
)
from ..elementwise.relational import eq, gt, le, lt
from ..elementwise.trigonometry import cos
from ..promotion import cast
from ..samples import COMPLEX, FLOATS, array, binary_samples, strided, unary_samples

__all__ = [
    "digamma", "erf", "erfc", "erfinv", "i0", "lgamma", "logaddexp", "logaddexp2", "logit",
    "mvlgamma", "polygamma", "sinc", "xlogy",
]  # fmt: skip


# ---- error functions -----------------------------------------------------------------------------


class Erf(Floating):
    """The error function of each element: 2/sqrt(pi) times the integral of exp(-t^2) from 0.

    >>> ad.erf(ad.tensor([0., 1.]))
    tensor([0.0000, 0.8427])
    """

    ufunc = scipy = "erf"
    samples = unary_samples(-3, 3)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """2/sqrt(pi) g exp(-x^2)."""
        return (g * (exp(-square(x)) * _TWO_OVER_SQRT_PI),)


class Erfc(Floating):
    """1 - erf(x) of each element x, exact where it is small.

    >>> ad.erfc(ad.tensor([0., 1.]))
    tensor([1.0000, 0.1573])
    """

    ufunc = scipy = "erfc"
    samples = unary_samples(-3, 3)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """-2/sqrt(pi) g exp(-x^2)."""
        return (g * (exp(-square(x)) * -_TWO_OVER_SQRT_PI),)


class Erfinv(Floating):
    """The number whose error function is each element.

    >>> ad.erfinv(ad.tensor([0., 0.5]))
    tensor([0.0000, 0.4769])
    """

    ufunc = scipy = "erfinv"
    samples = unary_samples(-0.95, 0.95)

    def gradient(self, g: Tensor, y: Tensor) -> tuple[Any, ...]:
        """sqrt(pi)/2 g exp(y^2)."""
        return (g * (exp(square(y)) * (1 / _TWO_OVER_SQRT_PI)),)


_TWO_OVER_SQRT_PI = 2 / math.sqrt(math.pi)

erf, erfc, erfinv = unary(Erf()), unary(Erfc()), unary(Erfinv())


# ---- gamma functions -----------------------------------------------------------------------------


class Lgamma(Floating):
    """The logarithm of the absolute value of the gamma function of each element.

    >>> ad.lgamma(ad.tensor([1., 5.]))
    tensor([0.0000, 3.1781])
    """

    ufunc = "lgamma"
    samples = unary_samples(0.2, 9)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """g digamma(x)."""
        return (g * digamma(x),)

    @np.errstate(all="ignore")
    def reference(self, x: Any) -> Any:
        """SciPy's, which has -inf at -inf."""
        from scipy import special

        return np.where(x == -np.inf, np.inf, special.gammaln(widen(x)))


@dataclass(eq=False, repr=False)
class Polygamma(Elementwise):
    """The derivative of order `n` of the digamma function."""

    n: int
    kinds: ClassVar[str] = FLOATING

    def compute(self, xp: Any, x: Any) -> Any:
        """The backend's digamma or polygamma."""
        return xp.polygamma(self.n, x) if self.n else xp.digamma(x)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """g times the next derivative."""
        return (g * apply(Polygamma(self.n + 1), x),)

    @np.errstate(all="ignore")
    def reference(self, x: Any) -> Any:
        """SciPy's."""
        from scipy import special

        return special.polygamma(self.n, widen(x))

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Several orders; both sides of 0."""
        for dtype in FLOATS:
            yield Sample(cls(1), (array((2, 3), dtype, 0.5, 9),), dtype.name)
        for n in range(5):
            yield Sample(cls(n), (array((3, 4), dt.float64, 0.3, 20),), f"order{n}")
            if n < 2:  # SciPy has no others there
                x = array((3, 4), dt.float64, -2.8, -2.2)
                yield Sample(cls(n), (x,), f"negative{n}", reference=n == 0)
        yield Sample(cls(1), (array((), low=0.5),), "0-d")
        yield Sample(cls(1), (array((0, 3)),), "empty")
        yield Sample(cls(0), (strided(array((3, 4), dt.float64, 0.5, 9)),), "strided")


lgamma = unary(Lgamma())
_DIGAMMA = Polygamma(0)


@public(inplace=True, out=True)
def digamma(input: Tensor) -> Tensor:
    """The derivative of lgamma at each element.

    Dtypes: floating point; integers become the default floating-point dtype.
    Errors: DTypeError for complex tensors.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.digamma.html

    >>> ad.digamma(ad.tensor([1., 0.5]))
    tensor([-0.5772, -1.9635])
    """
    return _floating("digamma", _DIGAMMA, input)


def _floating(name: str, op: Elementwise, x: Any) -> Tensor:
    result: Any = run_known(op, (x,))
    if result is None:
        assert_tensor(name, x)
        if x.dtype.category < 2:
            x = cast(x, dt.get_default_dtype())
        assert_kind(name, x.dtype, FLOATING)
        result = apply(op, x)
    return result


@public(method=False, out=True)
def polygamma(n: int, input: Tensor) -> Tensor:
    """The derivative of order `n` of the digamma function at each element.

    Dtypes: floating point; integers become the default floating-point dtype.
    Errors: InvalidArgument for a negative order; DTypeError for complex tensors.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.polygamma.html

    >>> ad.polygamma(1, ad.tensor([1., 0.5]))
    tensor([1.6449, 4.9348])
    """
    if n < 0:
        raise InvalidArgument(f"polygamma: polygamma(n, x) does not support negative n, got {n}")
    return _floating("polygamma", Polygamma(int(n)), input)


@public(method="polygamma", inplace=False)
def _polygamma_method(input: Tensor, n: int) -> Tensor:
    """The derivative of order `n` of the digamma function at each element.

    Errors: those of `polygamma`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.polygamma.html

    >>> ad.tensor([1.]).polygamma(1)
    tensor([1.6449])
    """
    return polygamma(n, input)


INPLACE["polygamma_"] = _polygamma_method


@public(inplace=True, out=True)
def mvlgamma(input: Tensor, p: int) -> Tensor:
    """The logarithm of the multivariate gamma function of dimension `p` at each element.

    Dtypes: floating point; integers become the default floating-point dtype.
    Errors: InvalidArgument for p below 1.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.mvlgamma.html

    >>> ad.mvlgamma(ad.tensor([2.]), 2)
    tensor([0.4516])
    """
    if p < 1:
        raise InvalidArgument(f"mvlgamma: p has to be greater than or equal to 1, got {p}")
    total = lgamma(input)
    for i in range(1, p):
        total = total + lgamma(input - i / 2)
    return total + p * (p - 1) / 4 * math.log(math.pi)


# ---- Bessel functions ----------------------------------------------------------------------------


class I0(Floating):
    """The modified Bessel function of the first kind, of order 0, of each element.

    >>> ad.i0(ad.tensor([0., 1.]))
    tensor([1.0000, 1.2661])
    """

    ufunc = scipy = "i0"
    samples = unary_samples(-9, 9)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """g i1(x)."""
        return (g * i1(x),)


class I1(Floating):
    """The modified Bessel function of the first kind, of order 1, of each element.

    >>> ad.tensor([0., 1.]).i1()
    tensor([0.0000, 0.5652])
    """

    ufunc = scipy = "i1"
    samples = unary_samples(-9, 9)

    def gradient(self, g: Tensor, x: Tensor, y: Tensor) -> tuple[Any, ...]:
        """g (i0(x) - y / x), whose limit at 0 is g / 2."""
        zero = eq(x, 0)
        return (g * where(zero, 0.5, i0(x) - y / where(zero, 1, x)),)


i0 = unary(I0())
i1 = unary(I1())


# ---- logarithms and quotients with limits --------------------------------------------------------


def _share(x: Any, other: Any, rate: float) -> Tensor:
    """The share of `x` in a sum of exponentials, by the difference: the sum itself is rounded."""
    x, other = tensors(x, other)
    return sigmoid(where(eq(x, other), 0, x - other) * rate)


class Logaddexp(Analytic):
    """log(exp(input) + exp(other)), without overflow.

    >>> ad.logaddexp(ad.tensor([0., 1000.]), ad.tensor([0., 1000.]))
    tensor([6.9315e-01, 1.0007e+03])
    """

    ufunc = "logaddexp"
    needs = ("x1 x2", "x1 x2")
    samples = binary_samples(dtypes=FLOATS + COMPLEX)

    def compute(self, xp: Any, x1: Any, x2: Any) -> Any:
        """The backend's function; of complex numbers by the greater real part."""
        if (x1 if hasattr(x1, "dtype") else x2).dtype.kind != "c":
            return xp.logaddexp(x1, x2)
        first = xp.real(x1) >= xp.real(x2)
        return xp.where(first, x1, x2) + xp.log1p(
            xp.exp(xp.where(first, xp.subtract(x2, x1), xp.subtract(x1, x2)))
        )

    def gradient(self, g: Tensor, x1: Any, x2: Any) -> tuple[Any, ...]:
        """g times each input's share in the sum; equal shares of equal infinities."""
        if g.dtype.is_complex:
            y = logaddexp(x1, x2)
            return (lambda: g * conj(exp(x1 - y)), lambda: g * conj(exp(x2 - y)))
        return (lambda: g * _share(x1, x2, 1.0), lambda: g * _share(x2, x1, 1.0))

    @np.errstate(all="ignore")
    def reference(self, *arrays: Any) -> Any:
        """Reference value by the definition."""
        x1, x2 = map(widen, arrays)
        return np.log(np.exp(x1) + np.exp(x2))


class Logaddexp2(Floating):
    """log2(2**input + 2**other), without overflow.

    >>> ad.logaddexp2(ad.tensor([0., 1.]), ad.tensor([0., 1.]))
    tensor([1., 2.])
    """

    ufunc = "logaddexp2"
    needs = ("x1 x2", "x1 x2")
    samples = binary_samples()

    def gradient(self, g: Tensor, x1: Any, x2: Any) -> tuple[Any, ...]:
        """g times each input's share in the sum; equal shares of equal infinities."""
        rate = math.log(2.0)
        return (lambda: g * _share(x1, x2, rate), lambda: g * _share(x2, x1, rate))


class Xlogy(Floating):
    """input * log(other), and 0 where `input` is 0 and `other` is not NaN.

    >>> ad.xlogy(ad.tensor([0., 2.]), ad.tensor([0., 1.]))
    tensor([0., 0.])
    """

    scipy = "xlogy"
    needs = ("x1 x2", "x1 x2")
    samples = binary_samples(low2=0.3, high2=3)

    def compute(self, xp: Any, x1: Any, x2: Any) -> Any:
        """The product, but for its limits."""
        dtype = (x1 if hasattr(x1, "dtype") else x2).dtype
        x1, x2 = xp.asarray(x1, dtype=dtype), xp.asarray(x2, dtype=dtype)
        return xp.where((x1 == 0) & ~xp.isnan(x2), xp.zeros((), dtype=dtype), x1 * xp.log(x2))

    def gradient(self, g: Tensor, x1: Any, x2: Any) -> tuple[Any, ...]:
        """g log(x2), 0 at the limit; g x1 / x2."""

        def slope() -> Any:
            first, second = tensors(x1, x2)
            limit = logical_and(eq(first, 0), le(second, 0))
            return g * where(limit, 0, log(second))

        return (slope, lambda: g * (x1 / x2))


class Sinc(Analytic):
    """sin(pi x) / (pi x) of each element x, and 1 for 0.

    >>> ad.sinc(ad.tensor([0., 0.5]))
    tensor([1.0000, 0.6366])
    """

    samples = unary_samples(0.2, 3, FLOATS + COMPLEX)

    def compute(self, xp: Any, x: Any) -> Any:
        """sin(pi x) / (pi x), and 1 at 0."""
        angle = x * math.pi
        zero = angle == 0
        return xp.where(zero, 1, xp.sin(angle) / xp.where(zero, 1, angle))

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """g (cos(pi x) - sinc(x)) / x, whose limit at 0 is 0."""
        zero = eq(x, 0)
        slope = (cos(x * math.pi) - sinc(x)) / where(zero, 1, x)
        return (g * conj(where(zero, 0, slope)),)

    @np.errstate(all="ignore")
    def reference(self, x: Any) -> Any:
        """Reference value by the definition."""
        angle = np.pi * widen(x)
        return np.where(angle == 0, 1, np.sin(angle) / np.where(angle == 0, 1, angle))


logaddexp = binary(Logaddexp(), floating=True, inplace=False)
logaddexp2 = binary(Logaddexp2(), floating=True, inplace=False)
xlogy = binary(Xlogy(), floating=True)
sinc = unary(Sinc())


@dataclass(eq=False, repr=False)
class Logit(Elementwise):
    """log(x / (1 - x)) of each element x, first kept `eps` away from 0 and 1."""

    eps: float | None = None
    kinds: ClassVar[str] = FLOATING

    def compute(self, xp: Any, x: Any) -> Any:
        """log(x / (1 - x)), x limited by eps where that is given."""
        if self.eps is not None:
            x = xp.minimum(xp.maximum(x, self.eps), 1 - self.eps)
        return xp.log(x / (1 - x))

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """g / (x (1 - x)); outside of the bounds 0, or NaN where there is no eps."""
        low, outside = (0.0, math.nan) if self.eps is None else (self.eps, 0.0)
        beyond = logical_or(lt(x, low), gt(x, 1 - low))
        # Adding 0 makes -0 positive, so that the slope at 0 is +inf for both.
        return (where(beyond, outside, g / ((x + 0) * (1 - x))),)

    @np.errstate(all="ignore")
    def reference(self, x: Any) -> Any:
        """SciPy's."""
        from scipy import special

        x = widen(x)
        return special.logit(x if self.eps is None else np.clip(x, self.eps, 1 - self.eps))

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """With and without eps; special values."""
        for dtype in FLOATS:
            yield Sample(cls(), (array((2, 3), dtype, 0.05, 0.95),), dtype.name)
        yield Sample(cls(0.2), (array((3, 4), dt.float64, -0.5, 1.5),), "eps")
        yield Sample(cls(), (strided(array((3, 4), dt.float64, 0.05, 0.95)),), "strided")
        yield Sample(cls(), (array((), dt.float64, 0.05, 0.95),), "0-d")
        yield Sample(cls(), (np.zeros((0, 3)),), "empty")
        special = np.array([0.0, 1.0, -1.0, 2.0, np.nan])
        yield Sample(cls(), (special,), "special", gradients=False)


@public(inplace=True, out=True, plain=True)
def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)) of each element x, which is first kept `eps` away from 0 and 1.

    Dtypes: floating point; integers become the default floating-point dtype.
    Errors: DTypeError for complex tensors.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.logit.html

    >>> ad.logit(ad.tensor([0.5, 0.8]))
    tensor([0.0000, 1.3863])
    """
    return _floating("logit", Logit(None if eps is None else float(eps)), input)
