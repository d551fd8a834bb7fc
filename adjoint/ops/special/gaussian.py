"""The normal distribution, zeta, and logarithms with limits, as adjoint.special has them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core.errors import Unsupported
from ...core.tensor_type import Tensor
from ...runtime.public import explaining, with_out
from ..elementwise.comparison import tensors, where
from ..elementwise.functions import exp, log, log1p, square
from ..elementwise.logic import logical_and
from ..elementwise.pointwise import Floating, binary, unary
from ..elementwise.relational import eq, le
from ..samples import binary_samples, unary_samples
from .special import erfc

_ROOT_HALF = math.sqrt(0.5)


class Erfcx(Floating):
    """exp(x^2) erfc(x) of each element x.

    >>> ad.special.erfcx(ad.tensor([0., 30.]))
    tensor([1.0000, 0.0188])
    """

    ufunc = scipy = "erfcx"
    samples = unary_samples(-3, 9)

    def gradient(self, g: Tensor, x: Tensor, y: Tensor) -> tuple[Any, ...]:
        """g (2 x y - 2/sqrt(pi))."""
        return (g * (2 * x * y - 2 / math.sqrt(math.pi)),)


class LogNdtr(Floating):
    """The logarithm of `ndtr` of each element.

    >>> ad.special.log_ndtr(ad.tensor([0., -30.]))
    tensor([  -0.6931, -454.3213])
    """

    ufunc = scipy = "log_ndtr"
    samples = unary_samples(-9, 5)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """g times the density over the area, in the form that neither overflows nor vanishes."""
        return (g * (math.sqrt(2 / math.pi) / erfcx(x * -_ROOT_HALF)),)


class Ndtri(Floating):
    """The number up to which the standard normal density has the area of each element.

    >>> ad.special.ndtri(ad.tensor([0.5, 0.975]))
    tensor([0.0000, 1.9600])
    """

    ufunc = scipy = "ndtri"
    samples = unary_samples(0.02, 0.98)

    def gradient(self, g: Tensor, y: Tensor) -> tuple[Any, ...]:
        """g over the density at y."""
        return (g * (exp(square(y) / 2) * math.sqrt(2 * math.pi)),)


class Zeta(Floating):
    """Hurwitz's zeta function: the sum of (other + k)^-input over k = 0, 1, 2, ...

    >>> ad.special.zeta(ad.tensor([2., 4.]), 1)
    tensor([1.6449, 1.0823])
    """

    ufunc = scipy = "zeta"
    samples = binary_samples(1.5, 6, low2=0.3, high2=5, gradients=False)

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """PyTorch has none either."""
        raise Unsupported("zeta: the derivative for 'zeta' is not implemented; detach() its inputs")


class Entr(Floating):
    """-x log(x) of each element x: 0 for 0, -inf for negative numbers.

    >>> ad.special.entr(ad.tensor([0., 0.5]))
    tensor([0.0000, 0.3466])
    """

    ufunc = scipy = "entr"
    samples = unary_samples(0.1, 3)

    def compute(self, xp: Any, x: Any) -> Any:
        """Entropy by its parts."""
        value = xp.where(x > 0, -x * xp.log(x), xp.where(x < 0, -np.inf, x * x))
        return xp.where(x == np.inf, -np.inf, value).astype(x.dtype)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """-g (log(x) + 1); NaN for negative numbers."""
        return (-g * (log(x) + 1),)


erfcx = unary(Erfcx(), method=False)
log_ndtr = unary(LogNdtr(), method=False)
ndtri = unary(Ndtri(), method=False)
zeta = binary(Zeta(), floating=True, method=False)
entr = unary(Entr(), method=False)


@explaining
@with_out
def ndtr(input: Tensor) -> Tensor:
    """The area under the standard normal density up to each element.

    Dtypes: floating point; integers become the default floating-point dtype.
    Source: https://docs.pytorch.org/docs/stable/special.html#torch.special.ndtr

    >>> ad.special.ndtr(ad.tensor([0., 1.96]))
    tensor([0.5000, 0.9750])
    """
    return erfc(input * -_ROOT_HALF) / 2


class Xlog1py(Floating):
    """input * log1p(other), and 0 where `input` is 0 and `other` is not NaN.

    >>> ad.special.xlog1py(ad.tensor([0., 2.]), ad.tensor([-1., 0.]))
    tensor([0., 0.])
    """

    scipy = "xlog1py"
    needs = ("x1 x2", "x1 x2")
    samples = binary_samples(low2=-0.7, high2=3)

    def compute(self, xp: Any, x1: Any, x2: Any) -> Any:
        """The product, but for its limits."""
        dtype = (x1 if hasattr(x1, "dtype") else x2).dtype
        x1, x2 = xp.asarray(x1, dtype=dtype), xp.asarray(x2, dtype=dtype)
        return xp.where((x1 == 0) & ~xp.isnan(x2), xp.zeros((), dtype=dtype), x1 * xp.log1p(x2))

    def gradient(self, g: Tensor, x1: Any, x2: Any) -> tuple[Any, ...]:
        """g log1p(x2), 0 at the limit; g x1 / (x2 + 1)."""

        def slope() -> Any:
            first, second = tensors(x1, x2)
            limit = logical_and(eq(first, 0), le(second, -1))
            return g * where(limit, 0, log1p(second))

        return (slope, lambda: g * (x1 / (x2 + 1)))


xlog1py = binary(Xlog1py(), floating=True, method=False)
