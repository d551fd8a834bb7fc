"""Incomplete gamma and beta integrals, differentiable in all their arguments to any order.

Both are computed as a moment integral relative to the integrand at its end point, over the tail
that is the smaller one: no overflow, no cancellation, and a family closed under differentiation.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.device import CPU, is_device_array, namespace_of
from ...core.op import Sample
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply
from ...runtime.public import explaining, public
from ..elementwise.comparison import where
from ..elementwise.functions import exp, log
from ..elementwise.logic import logical_and
from ..elementwise.pointwise import FLOATING, Floating, promoted
from ..elementwise.relational import eq, gt, isinf
from ..promotion import cast
from ..samples import array, strided
from .incomplete_gamma import tails
from .special import digamma, lgamma

__all__ = ["igamma", "igammac"]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)
_NODES, _WEIGHTS = (_NODES + 1) / 2, _WEIGHTS / 2
_DECAY = 40.0  # integrands are followed down to e^-40 of their value at the end point


def _integrate(f: Callable[[Any], Any], end: Any, bend: Any) -> Any:
    """The integral of `f` from 0 to `end`, in panels because its slope changes near `bend`."""
    edges = (0.0, np.clip(bend - 6, 0, end), np.clip(bend + 6, 0, end), end)
    total = np.zeros_like(end)
    for low, high in itertools.pairwise(edges):
        width = high - low
        if is_device_array(width) or width.any():
            values = f((low + width * node) for node in _NODES)
            total += width * sum(w * v for w, v in zip(_WEIGHTS, values, strict=True))
    return total


def _in_blocks(function: Callable[..., Any], *inputs: Any) -> Any:
    """`function` of the broadcast inputs, in pieces whose temporaries stay in the cache."""
    first = next(x for x in inputs if hasattr(x, "dtype"))
    dtype = first.dtype
    if is_device_array(first):
        xp = namespace_of(first)
        wide = xp.broadcast_arrays(*(xp.asarray(x, np.float64) for x in inputs))
        return function(*wide).astype(dtype, copy=False)
    arrays = np.broadcast_arrays(*(np.asarray(x, np.float64) for x in inputs))
    flat = [x.ravel() for x in arrays]
    result = np.empty(arrays[0].size)
    with np.errstate(all="ignore"):
        for i in range(0, result.size, 4096):
            result[i : i + 4096] = function(*(x[i : i + 4096] for x in flat))
    return result.reshape(arrays[0].shape).astype(dtype, copy=False)


def _power(base: Any, n: int) -> Any:
    return base**n if n else 1.0


@dataclass(eq=False, repr=False)
class GammaMoment(Floating):
    """With u = t / x2, the integral of log(u)^n (1 - u)^m u^(x1 - 1) e^(x2 (1 - u)) du.

    It runs over u in (0, 1) where log(x2) <= digamma(x1); elsewhere it is minus the integral over
    u > 1. `n` and `m` count the derivatives in x1 and in x2.
    """

    n: int = 0
    m: int = 0
    needs = ("x1 x2", "x1 x2")

    def compute(self, xp: Any, x1: Any, x2: Any) -> Any:
        """Gauss-Legendre in s = |log u|."""
        return _in_blocks(lambda a, x: self._block(xp, a, x), x1, x2)

    def _block(self, xp: Any, a: Any, x: Any) -> Any:
        location = np.log(x)
        upper = location > xp.digamma(a)
        gap = np.where(upper, x - a, a - x)
        curvature = np.where(upper, x / 2, x / 3)
        end = 2 * _DECAY / (gap + np.sqrt(gap * gap + 4 * curvature * _DECAY))
        below = np.where(end <= 1, end, (_DECAY + x) / a)
        end = np.minimum(end, 750)  # e^750 is above all floats
        for _ in range(4):
            end = np.minimum(end, np.log1p((_DECAY + a * end) / x))
        end = np.where(upper, end, below)
        bend = np.maximum(np.where(upper, -location, location), 0)
        sign = np.where(upper, 1.0, -1.0)

        def integrand(steps: Iterable[Any]) -> Iterable[Any]:
            for s in steps:
                logarithm = sign * s
                change = np.expm1(logarithm)
                factor = _power(logarithm, self.n) * _power(-change, self.m)
                yield factor * np.exp(a * logarithm - x * change)

        return -sign * _integrate(integrand, end, bend)

    def gradient(self, g: Tensor, x1: Any, x2: Any) -> tuple[Any, ...]:
        """The next members of the family."""
        return (
            lambda: g * apply(GammaMoment(self.n + 1, self.m), x1, x2),
            lambda: g * apply(GammaMoment(self.n, self.m + 1), x1, x2),
        )

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Both sides, small and large parameters, both orders."""
        a, x = array((2, 3), low=0.3, high=4), array((2, 3), low=0.2, high=6, seed=1)
        for n, m in ((0, 0), (1, 0), (0, 1), (2, 1)):
            yield Sample(cls(n, m), (a, x), f"order-{n}{m}")
        yield Sample(cls(), (np.array([50.0, 50.0, 0.1]), np.array([40.0, 70.0, 1e-6])), "wide")
        yield Sample(cls(), (a.astype(np.float32), x.astype(np.float32)), "float32")
        yield Sample(cls(), (a[:, :1], strided(x)), "broadcast-strided")
        yield Sample(cls(), (np.array(0.7), np.array(1.3)), "0-d")
        yield Sample(cls(), (np.zeros((0, 3)), np.ones((1, 3))), "empty")

    def reference(self, x1: Any, x2: Any) -> Any:
        """Adaptive quadrature in u."""
        from scipy import integrate, special

        def one(a: float, x: float) -> float:
            def f(u: float) -> float:
                power = u ** (a - 1) * np.exp(x * (1 - u))
                return float(np.log(u) ** self.n * (1 - u) ** self.m * power)

            if np.log(x) <= special.digamma(a):
                return _quad(integrate, f, [0, 0.01, 0.5, 1])
            far = 1 + (60 + a) / x
            return -_quad(integrate, f, [1, 1.1, 1 + (far - 1) / 30, 1 + (far - 1) / 5, far])

        return np.vectorize(one, otypes=[float])(x1, x2)


def _quad(integrate: Any, f: Any, points: list[float]) -> float:
    points = sorted(points)
    return sum(
        float(integrate.quad(f, low, high, epsabs=1e-15, epsrel=1e-12, limit=200)[0])
        for low, high in itertools.pairwise(points)
    )


@dataclass(eq=False, repr=False)
class BetaMoment(Floating):
    """The integral of log(t/x)^n log((1-t)/(1-x))^m (t/x)^a ((1-t)/(1-x))^b dt / (t (1-t)).

    a, b, x are the inputs. It runs over t in (0, x) where log(x) <= digamma(a) - digamma(a + b);
    elsewhere it is minus the integral over (x, 1). `n` and `m` count derivatives in a and in b.
    """

    n: int = 0
    m: int = 0
    needs = ("x1 x2 x3", "x1 x2 x3", "x1 x2 x3 y")

    def compute(self, xp: Any, x1: Any, x2: Any, x3: Any) -> Any:
        """Gauss-Legendre in the logit of t; the upper tail is the lower one of 1 - t."""
        return _in_blocks(lambda a, b, x: self._block(xp, a, b, x), x1, x2, x3)

    def _block(self, xp: Any, a: Any, b: Any, x: Any) -> Any:
        upper = np.log(x) > xp.digamma(a) - xp.digamma(a + b)
        sign = np.where(upper, -1.0, 1.0)
        x, rest = np.where(upper, 1 - x, x), np.where(upper, x, 1 - x)
        a, b = np.where(upper, b, a), np.where(upper, a, b)
        both = a + b
        end = (_DECAY - both * np.log(rest)) / a
        for _ in range(12):  # Newton's method on a convex function, from the right
            left = x * np.exp(-end)
            step = (a * end + both * np.log(rest + left) - _DECAY) / (
                a - both * left / (rest + left)
            )
            end = np.where(step > 0, end - step, end)
        bend = np.maximum(np.log(x) - np.log(rest), 0)
        small = x < 0.5

        def integrand(steps: Iterable[Any]) -> Iterable[Any]:
            for s in steps:
                left = np.exp(-s)
                high = np.log(rest + x * left)
                np.log1p(x * (left - 1), out=high, where=small)  # keeps the digits of small x
                np.negative(high, out=high)
                low = high - s
                first, second = low, high
                if self.n or self.m:
                    first = np.where(upper, high, low)
                    second = np.where(upper, low, high)
                factor = _power(first, self.n) * _power(second, self.m)
                yield factor * np.exp(a * low + b * high)

        return sign * _integrate(integrand, end, bend)

    def gradient(self, g: Tensor, x1: Any, x2: Any, x3: Any, y: Any) -> tuple[Any, ...]:
        """The next members of the family; in x, what the end point and the scaling contribute."""
        n, m = self.n, self.m

        def of_x() -> Any:
            slope = y * (x2 / (1 - x3) - x1 / x3)
            if n:
                slope = slope - n * apply(BetaMoment(n - 1, m), x1, x2, x3) / x3
            if m:
                slope = slope + m * apply(BetaMoment(n, m - 1), x1, x2, x3) / (1 - x3)
            if not n and not m:
                slope = slope + 1 / (x3 * (1 - x3))
            return g * slope

        return (
            lambda: g * apply(BetaMoment(n + 1, m), x1, x2, x3),
            lambda: g * apply(BetaMoment(n, m + 1), x1, x2, x3),
            of_x,
        )

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Both sides, small and large parameters, both orders."""
        a, b = array((2, 3), low=0.3, high=4), array((2, 3), low=0.3, high=4, seed=1)
        x = array((2, 3), low=0.05, high=0.95, seed=2)
        for n, m in ((0, 0), (1, 0), (0, 1), (2, 1)):
            yield Sample(cls(n, m), (a, b, x), f"order-{n}{m}")
        wide = (
            np.array([50.0, 50.0, 0.1]),
            np.array([30.0, 30.0, 0.2]),
            np.array([0.5, 0.7, 0.01]),
        )
        yield Sample(cls(), wide, "wide")
        yield Sample(cls(), tuple(v.astype(np.float32) for v in (a, b, x)), "float32")
        yield Sample(cls(), (a[:, :1], strided(b), x), "broadcast-strided")
        yield Sample(cls(), (np.array(0.7), np.array(1.3), np.array(0.6)), "0-d")
        yield Sample(cls(), (np.zeros((0, 3)), np.full((1, 3), 0.5), np.full((1, 3), 0.5)), "empty")

    def reference(self, x1: Any, x2: Any, x3: Any) -> Any:
        """Adaptive quadrature in t."""
        from scipy import integrate, special

        def one(a: float, b: float, x: float) -> float:
            def f(z: float) -> float:
                low = special.log_expit(z) - np.log(x)
                high = special.log_expit(-z) - np.log1p(-x)
                return float(low**self.n * high**self.m * np.exp(a * low + b * high))

            z = float(special.logit(x))
            if np.log(x) <= special.digamma(a) - special.digamma(a + b):
                far = 50 / a
                return _quad(integrate, f, [z, z - far / 50, z - far / 8, z - far / 2, z - far])
            far = 50 / b
            return -_quad(integrate, f, [z, z + far / 50, z + far / 8, z + far / 2, z + far])

        return np.vectorize(one, otypes=[float])(x1, x2, x3)


# ---- functions -----------------------------------------------------------------------------------


def gamma_shift(alpha: Any, x: Any) -> Any:
    """Implicit derivative of a draw x of the standard gamma distribution by its shape parameter.

    -(dF/dalpha) / (dF/dx) for the cumulative distribution F: x's derivative at a fixed probability.
    """
    a, wide = cast(alpha, dt.float64), cast(x, dt.float64)
    slope = (log(wide) - digamma(a)) * apply(GammaMoment(), a, wide)
    return cast(-wide * (slope + apply(GammaMoment(1), a, wide)), x.dtype)


def beta_shift(alpha: Any, beta: Any, x: Any) -> Any:
    """Implicit derivative of a draw x of the beta distribution by `alpha`, divided by 1 - x."""
    a, b, wide = (cast(v, dt.float64) for v in (alpha, beta, x))
    slope = (log(wide) - digamma(a) + digamma(a + b)) * apply(BetaMoment(), a, b, wide)
    return cast(-wide * (slope + apply(BetaMoment(1), a, b, wide)), x.dtype)


@dataclass(eq=False, repr=False)
class GammaTail(Floating):
    """Share of the gamma distribution of shape x1 that is below x2; above it if `complement`."""

    complement: bool = False
    needs = ("x1 x2", "x1 x2")

    def compute(self, xp: Any, x1: Any, x2: Any) -> Any:
        """Series and continued fractions; by quadrature where these do not serve."""
        if is_device_array(x1) or is_device_array(x2):
            return _in_blocks(lambda a, x: self._on_device(xp, a, x), x1, x2)
        kind = next(x.dtype for x in (x1, x2) if hasattr(x, "dtype"))
        if not all(isinstance(x, np.ndarray) and x.dtype == np.float64 for x in (x1, x2)):
            x1, x2 = (np.asarray(x, np.float64) for x in (x1, x2))
        if x1.shape != x2.shape:
            x1, x2 = np.broadcast_arrays(x1, x2)
        a, x = np.ascontiguousarray(x1), np.ascontiguousarray(x2)
        result = tails(a, x, self.complement).reshape(x1.shape)
        rest = np.isnan(result)
        if rest.any():
            a, x = a.reshape(x1.shape), x.reshape(x1.shape)
            rest &= (a > 0) & (x > 0) & (a < np.inf) & (x < np.inf)
            if rest.any():
                result[rest] = self._by_quadrature(xp, a[rest], x[rest])
        return result.astype(kind, copy=False)

    def _by_quadrature(self, xp: Any, a: Any, x: Any) -> Any:
        with np.errstate(all="ignore"):
            upper = np.log(x) > xp.digamma(a)
            weight = np.exp(a * np.log(x) - x - xp.lgamma(a))
            apart = (x - a) / a  # of a large shape the exponent's terms nearly cancel: Stirling's
            large = np.exp(a * (np.log1p(apart) - apart) - 1 / (12 * a) + 1 / (360 * a * a * a))
            weight = np.where(a > 100, large * np.sqrt(a / (2 * np.pi)), weight)
            part = weight * GammaMoment().compute(xp, a, x)  # negative for the upper tail
            if self.complement:
                return np.where(upper, -part, 1.0 - part)
            return np.where(upper, 1.0 + part, part)

    def _on_device(self, xp: Any, a: Any, x: Any) -> Any:
        inside = (a > 0) & (x > 0) & (a < np.inf) & (x < np.inf)
        value = self._by_quadrature(xp, np.where(inside, a, 1.0), np.where(inside, x, 1.0))
        above = ((x == np.inf) & (a >= 0) & (a < np.inf)) | ((a == 0) & (x > 0))
        below = ((x == 0) & (a > 0)) | ((a == np.inf) & (x >= 0) & (x < np.inf))
        high, low = (0.0, 1.0) if self.complement else (1.0, 0.0)
        edge = np.where(above, high, np.where(below, low, np.nan))
        return np.where(inside, value, edge)

    def gradient(self, g: Tensor, x1: Any, x2: Any) -> tuple[Any, ...]:
        """Moments of the tail for the shape, the density for the end."""
        sign = -1.0 if self.complement else 1.0

        def weighted(of: Callable[[Any, Any, Any], Any]) -> Any:
            a, x = cast(x1, dt.float64), cast(x2, dt.float64)
            inside = logical_and(logical_and(gt(a, 0), gt(x, 0)), logical_and(~isinf(a), ~isinf(x)))
            a, x = where(inside, a, 1.0), where(inside, x, 1.0)
            location = log(x)
            slope = exp(a * location - x - lgamma(a)) * of(a, x, location)
            return sign * g * cast(where(inside, slope, 0.0), g.dtype)

        def of_shape(a: Any, x: Any, location: Any) -> Any:
            zeroth, first = (apply(GammaMoment(n), a, x) for n in (0, 1))
            return (location - digamma(a)) * zeroth + first

        return (lambda: weighted(of_shape), lambda: weighted(lambda a, x, _: 1.0 / x))

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Both tails, both sides, the edges."""
        a, x = array((2, 3), low=0.3, high=4), array((2, 3), low=0.2, high=6, seed=1)
        edges = np.array([0.0, 0.0, 1.0, 1.0, 2e6, 1e-3]), np.array([0.0, 1.0, 0.0, 99.0, 2e6, 0.5])
        for complement in (False, True):
            yield Sample(cls(complement), (a, x), f"{complement}")
            yield Sample(cls(complement), edges, f"edges-{complement}", gradients=False)
        yield Sample(cls(), (a.astype(np.float32), x.astype(np.float32)), "float32")
        yield Sample(cls(), (a[:, :1], strided(x)), "broadcast-strided")
        yield Sample(cls(), (np.array(0.7), np.array(1.3)), "0-d")
        yield Sample(cls(), (np.zeros((0, 3)), np.ones((1, 3))), "empty")

    def reference(self, x1: Any, x2: Any) -> Any:
        """SciPy's."""
        from scipy import special

        return (special.gammaincc if self.complement else special.gammainc)(x1, x2)


def _tails(name: str, input: Any, other: Any, complement: bool) -> Any:
    a, x = promoted(name, GammaMoment(), (input, other), kinds=FLOATING)
    if all(getattr(v, "device", CPU) is CPU for v in (a, x)):
        return apply(GammaTail(complement), a, x)
    a, x = (v if hasattr(v, "dtype") else input.new_tensor(v) for v in (a, x))
    kind = a.dtype
    a, x = cast(a, dt.float64), cast(x, dt.float64)
    inside = logical_and(logical_and(gt(a, 0), gt(x, 0)), logical_and(~isinf(a), ~isinf(x)))
    safe_a, safe_x = where(inside, a, 1.0), where(inside, x, 1.0)
    location = log(safe_x)
    weight = exp(safe_a * location - safe_x - lgamma(safe_a))
    part = weight * apply(GammaMoment(), safe_a, safe_x)  # negative where it is the upper tail
    upper = gt(location, digamma(safe_a))
    value = where(upper, -part, 1.0 - part) if complement else where(upper, 1.0 + part, part)
    at_infinity = logical_and(isinf(x), ~isinf(a))
    one = logical_and(at_infinity | logical_and(eq(a, 0), gt(x, 0)), ~(a < 0))
    zero = (eq(x, 0) & gt(a, 0)) | (isinf(a) & gt(a, 0) & ~isinf(x) & ~(x < 0))
    low, high = (1.0, 0.0) if complement else (0.0, 1.0)
    edge = where(one & gt(x, 0), high, where(zero, low, float("nan")))
    return cast(where(inside, value, edge), kind)


@public(inplace=True, out=True)
@explaining
def igamma(input: Tensor, other: Tensor) -> Tensor:
    """The regularized lower incomplete gamma function of shape `input` up to `other`.

    Shapes: `input` and `other` broadcast.
    Dtypes: floating point; the result has the promoted dtype. Both inputs get gradients.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.igamma.html

    >>> ad.igamma(ad.tensor([1., 2.]), ad.tensor([1., 2.]))
    tensor([0.6321, 0.5940])
    """
    return _tails("igamma", input, other, False)


@public(inplace=True, out=True)
@explaining
def igammac(input: Tensor, other: Tensor) -> Tensor:
    """The regularized upper incomplete gamma function: 1 - igamma, exact where it is small.

    Shapes: `input` and `other` broadcast.
    Dtypes: floating point; the result has the promoted dtype. Both inputs get gradients.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.igammac.html

    >>> ad.igammac(ad.tensor([1., 2.]), ad.tensor([1., 2.]))
    tensor([0.3679, 0.4060])
    """
    return _tails("igammac", input, other, True)
