"""Orthogonal polynomials, of an order for each element; as in PyTorch, without gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.tensor_base import TensorBase
from ...runtime.public import explaining
from ..elementwise.pointwise import Floating, binary, widen
from ..promotion import cast
from ..samples import binary_samples

__all__ = [
    "chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v",
    "chebyshev_polynomial_w", "hermite_polynomial_h", "hermite_polynomial_he",
    "laguerre_polynomial_l", "legendre_polynomial_p", "shifted_chebyshev_polynomial_t",
    "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w",
]  # fmt: skip


class _Polynomial(Floating, abstract=True):
    """Base of the families: orders are cut to whole numbers, negative ones give 0.

    p0 = 1, `first(x)` is p1, and `step(k, x, p, q)` the polynomial of order k + 1 from those of
    order k - 1 (p) and k (q).
    """

    samples = binary_samples(-0.9, 0.9, low2=0, high2=12, gradients=False)

    def compute(self, xp: Any, x1: Any, x2: Any) -> Any:
        """Values by the recurrence, all elements together, each up to its order."""
        dtype = (x1 if hasattr(x1, "dtype") else x2).dtype
        x, n = xp.broadcast_arrays(xp.asarray(x1, xp.float64), xp.asarray(x2, xp.float64))
        n = xp.trunc(xp.where(xp.isfinite(n), n, -1))
        p, q = xp.ones_like(x), self.first(x)
        result = xp.where(n < 0, 0.0, xp.where(n == 0, p, q))
        for k in range(1, int(n.max(initial=0))):
            p, q = q, self.step(k, x, p, q)
            result = xp.where(n == k + 1, q, result)
        return xp.where(xp.isnan(x) & (n > 0), xp.nan, result).astype(dtype)

    def first(self, x: Any) -> Any:
        """The polynomial of order 1."""
        raise NotImplementedError

    def step(self, k: int, x: Any, p: Any, q: Any) -> Any:
        """The polynomial of order k + 1."""
        return 2 * x * q - p

    def reference(self, x1: Any, x2: Any) -> Any:
        """SciPy's."""
        from scipy import special

        x, n = widen(x1), np.trunc(np.asarray(widen(x2), np.float64)).astype(int)
        return self.oracle(special, n, x)

    def oracle(self, special: Any, n: Any, x: Any) -> Any:
        """Values from SciPy's functions of (n, x)."""
        return np.where(n < 0, 0.0, getattr(special, self.scipy)(n, x))


class ChebyshevPolynomialT(_Polynomial):
    """The Chebyshev polynomial of the first kind of order `other` of each element.

    >>> ad.special.chebyshev_polynomial_t(ad.tensor([0.5, 2.]), 3)
    tensor([-1., 26.])
    """

    scipy = "eval_chebyt"

    def first(self, x: Any) -> Any:
        """x."""
        return x


class ChebyshevPolynomialU(_Polynomial):
    """The Chebyshev polynomial of the second kind of order `other` of each element.

    >>> ad.special.chebyshev_polynomial_u(ad.tensor([0.5, 2.]), 2)
    tensor([ 0., 15.])
    """

    scipy = "eval_chebyu"

    def first(self, x: Any) -> Any:
        """2x."""
        return 2 * x


class ChebyshevPolynomialV(_Polynomial):
    """The Chebyshev polynomial of the third kind of order `other` of each element.

    >>> ad.special.chebyshev_polynomial_v(ad.tensor([0.5, 2.]), 2)
    tensor([-1., 11.])
    """

    def first(self, x: Any) -> Any:
        """2x - 1."""
        return 2 * x - 1

    def oracle(self, special: Any, n: Any, x: Any) -> Any:
        """Values by the cosine that defines them."""
        angle = np.arccos(x)
        return np.where(n < 0, 0.0, np.cos((n + 0.5) * angle) / np.cos(angle / 2))


class ChebyshevPolynomialW(_Polynomial):
    """The Chebyshev polynomial of the fourth kind of order `other` of each element.

    >>> ad.special.chebyshev_polynomial_w(ad.tensor([0.5, 2.]), 2)
    tensor([ 1., 19.])
    """

    def first(self, x: Any) -> Any:
        """2x + 1."""
        return 2 * x + 1

    def oracle(self, special: Any, n: Any, x: Any) -> Any:
        """Values by the sine that defines them."""
        angle = np.arccos(x)
        return np.where(n < 0, 0.0, np.sin((n + 0.5) * angle) / np.sin(angle / 2))


class HermitePolynomialH(_Polynomial):
    """The physicist's Hermite polynomial of order `other` of each element.

    >>> ad.special.hermite_polynomial_h(ad.tensor([0.5, 2.]), 2)
    tensor([-1., 14.])
    """

    scipy = "eval_hermite"

    def first(self, x: Any) -> Any:
        """2x."""
        return 2 * x

    def step(self, k: int, x: Any, p: Any, q: Any) -> Any:
        """2x q - 2k p."""
        return 2 * x * q - 2 * k * p


class HermitePolynomialHe(_Polynomial):
    """The probabilist's Hermite polynomial of order `other` of each element.

    >>> ad.special.hermite_polynomial_he(ad.tensor([0.5, 2.]), 2)
    tensor([-0.7500,  3.0000])
    """

    scipy = "eval_hermitenorm"

    def first(self, x: Any) -> Any:
        """x."""
        return x

    def step(self, k: int, x: Any, p: Any, q: Any) -> Any:
        """x q - k p."""
        return x * q - k * p


class LaguerrePolynomialL(_Polynomial):
    """The Laguerre polynomial of order `other` of each element.

    >>> ad.special.laguerre_polynomial_l(ad.tensor([0.5, 2.]), 2)
    tensor([ 0.1250, -1.0000])
    """

    scipy = "eval_laguerre"

    def first(self, x: Any) -> Any:
        """1 - x."""
        return 1 - x

    def step(self, k: int, x: Any, p: Any, q: Any) -> Any:
        """((2k + 1 - x) q - k p) / (k + 1)."""
        return ((2 * k + 1 - x) * q - k * p) / (k + 1)


class LegendrePolynomialP(_Polynomial):
    """The Legendre polynomial of order `other` of each element.

    >>> ad.special.legendre_polynomial_p(ad.tensor([0.5, 2.]), 2)
    tensor([-0.1250,  5.5000])
    """

    scipy = "eval_legendre"

    def first(self, x: Any) -> Any:
        """x."""
        return x

    def step(self, k: int, x: Any, p: Any, q: Any) -> Any:
        """((2k + 1) x q - k p) / (k + 1)."""
        return ((2 * k + 1) * x * q - k * p) / (k + 1)


def _function(cls: Any, name: str) -> Any:
    return binary(cls(), floating=True, method=False, name=name)


chebyshev_polynomial_t = _function(ChebyshevPolynomialT, "chebyshev_polynomial_t")
chebyshev_polynomial_u = _function(ChebyshevPolynomialU, "chebyshev_polynomial_u")
chebyshev_polynomial_v = _function(ChebyshevPolynomialV, "chebyshev_polynomial_v")
chebyshev_polynomial_w = _function(ChebyshevPolynomialW, "chebyshev_polynomial_w")
hermite_polynomial_h = _function(HermitePolynomialH, "hermite_polynomial_h")
hermite_polynomial_he = _function(HermitePolynomialHe, "hermite_polynomial_he")
laguerre_polynomial_l = _function(LaguerrePolynomialL, "laguerre_polynomial_l")
legendre_polynomial_p = _function(LegendrePolynomialP, "legendre_polynomial_p")


def _shifted(function: Callable[..., Any], name: str, kind: str) -> Callable[..., Any]:
    def shifted(input: Any, n: Any, *, out: Any = None) -> Any:
        if isinstance(input, TensorBase) and input.dtype.category < 2:
            input = cast(input, dt.get_default_dtype())  # before 2x leaves the dtype's range
        return function(2 * input - 1, n, out=out)

    shifted.__name__ = shifted.__qualname__ = name
    shifted.__doc__ = (
        f"The Chebyshev polynomial of the {kind} kind of 2x - 1, for each element x.\n\n"
        "    Shapes: `input` and `n` broadcast; either may be a Python number.\n"
        f"    Source: https://docs.pytorch.org/docs/stable/special.html#torch.special.{name}\n\n"
        f"    >>> ad.special.{name}(ad.tensor([0.5]), 0)\n"
        "    tensor([1.])\n"
    )
    return explaining(shifted)


shifted_chebyshev_polynomial_t = _shifted(
    chebyshev_polynomial_t, "shifted_chebyshev_polynomial_t", "first"
)
shifted_chebyshev_polynomial_u = _shifted(
    chebyshev_polynomial_u, "shifted_chebyshev_polynomial_u", "second"
)
shifted_chebyshev_polynomial_v = _shifted(
    chebyshev_polynomial_v, "shifted_chebyshev_polynomial_v", "third"
)
shifted_chebyshev_polynomial_w = _shifted(
    chebyshev_polynomial_w, "shifted_chebyshev_polynomial_w", "fourth"
)
