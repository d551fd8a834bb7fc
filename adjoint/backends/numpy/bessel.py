"""Bessel and Airy functions in NumPy, by the method of special_functions.py.

Near zeros of the oscillating functions the error is a few units of 1e-16 itself, not relative to
the value.
"""

from __future__ import annotations

import math
from typing import Any

from .blocks import blocked, on
from .coefficients import fitted
from .extras import extra
from .special_functions import bessel

_ROOT_HALF = math.sqrt(0.5)
_TWO_OVER_PI = 2 / math.pi


@extra
@blocked
def i0e(xp: Any, x: Any) -> Any:
    """exp(-|x|) I0(x)."""
    return bessel(xp, x, 0)


@extra
@blocked
def i1e(xp: Any, x: Any) -> Any:
    """exp(-|x|) I1(x)."""
    return xp.copysign(bessel(xp, x, 1), x)


# ---- first and second kind -----------------------------------------------------------------------


def _small(xp: Any, name: str, x: Any) -> Any:
    return xp.horner(fitted(name), on(x * x, 0.0, 64.0))


def _wave(xp: Any, x: Any, order: int, second: bool) -> Any:
    """J (or Y, where `second`) of an order for x >= 8."""
    inverse = 1 / x
    t = on(64 * inverse * inverse, 0.0, 1.0)
    even = xp.horner(fitted(f"p{order}"), t)
    odd = xp.horner(fitted(f"q{order}"), t) * inverse
    s, c = xp.sin(x), xp.cos(x)
    cosine, sine = (c + s, s - c) if order == 0 else (s - c, -s - c)
    value = even * sine + odd * cosine if second else even * cosine - odd * sine
    # The amplitude sqrt(2 / (pi x)) and the sqrt(1/2) of the phase.
    return xp.where(xp.isinf(x), 0.0, value * xp.sqrt(inverse / math.pi))


@extra
@blocked
def bessel_j0(xp: Any, x: Any) -> Any:
    """The Bessel function of the first kind, order 0."""
    size = xp.abs(x)
    return xp.split(size > 8, lambda s: _wave(xp, s, 0, False), lambda s: _small(xp, "j0", s), size)


@extra
@blocked
def bessel_j1(xp: Any, x: Any) -> Any:
    """The Bessel function of the first kind, order 1."""
    size = xp.abs(x)
    value = xp.split(
        size > 8, lambda s: _wave(xp, s, 1, False), lambda s: s * _small(xp, "j1", s), size
    )
    return xp.where(x < 0, -value, value)


def _y0_near(xp: Any, x: Any) -> Any:
    return _small(xp, "y0", x) + _TWO_OVER_PI * xp.log(x) * _small(xp, "j0", x)


def _y1_near(xp: Any, x: Any) -> Any:
    part = x * (_small(xp, "y1", x) + _TWO_OVER_PI * xp.log(x) * _small(xp, "j1", x))
    return xp.where(x == 0, -math.inf, part - _TWO_OVER_PI / x)


@extra
@blocked
def bessel_y0(xp: Any, x: Any) -> Any:
    """The Bessel function of the second kind, order 0; NaN for negative numbers."""
    return xp.split(x > 8, lambda s: _wave(xp, s, 0, True), lambda s: _y0_near(xp, s), x)


@extra
@blocked
def bessel_y1(xp: Any, x: Any) -> Any:
    """The Bessel function of the second kind, order 1; NaN for negative numbers."""
    return xp.split(x > 8, lambda s: _wave(xp, s, 1, True), lambda s: _y1_near(xp, s), x)


# ---- modified, second kind -----------------------------------------------------------------------


def _k0_near(xp: Any, x: Any) -> Any:
    """K0(x) for x <= 2."""
    first = bessel(xp, x, 0) * xp.exp(x)
    return xp.horner(fitted("k0"), on(x * x, 0.0, 4.0)) - xp.log(x) * first


def _k1_near(xp: Any, x: Any) -> Any:
    """K1(x) for x <= 2."""
    first = bessel(xp, x, 1) * xp.exp(x)
    value = xp.log(x) * first + xp.horner(fitted("k1"), on(x * x, 0.0, 4.0)) / x
    return xp.where(x == 0, math.inf, value)


def _k_far(xp: Any, x: Any, order: int) -> Any:
    """exp(x) K(x) for x >= 2."""
    inverse = 1 / x
    return xp.horner(fitted(f"k{order}_large"), on(2 * inverse, 0.0, 1.0)) * xp.sqrt(inverse)


@extra
@blocked
def bessel_k0(xp: Any, x: Any) -> Any:
    """The modified Bessel function of the second kind, order 0; NaN for negative numbers."""
    return xp.split(x > 2, lambda s: _k_far(xp, s, 0) * xp.exp(-s), lambda s: _k0_near(xp, s), x)


@extra
@blocked
def bessel_k1(xp: Any, x: Any) -> Any:
    """The modified Bessel function of the second kind, order 1; NaN for negative numbers."""
    return xp.split(x > 2, lambda s: _k_far(xp, s, 1) * xp.exp(-s), lambda s: _k1_near(xp, s), x)


@extra
@blocked
def bessel_k0e(xp: Any, x: Any) -> Any:
    """exp(x) K0(x)."""
    return xp.split(x > 2, lambda s: _k_far(xp, s, 0), lambda s: _k0_near(xp, s) * xp.exp(s), x)


@extra
@blocked
def bessel_k1e(xp: Any, x: Any) -> Any:
    """exp(x) K1(x)."""
    return xp.split(x > 2, lambda s: _k_far(xp, s, 1), lambda s: _k1_near(xp, s) * xp.exp(s), x)


# ---- Airy ----------------------------------------------------------------------------------------

_Z_TWO, _Z_FOUR = 2 / 3 * 2**1.5, 16 / 3


def _airy_far(xp: Any, x: Any) -> Any:
    """Ai(x) for x >= 2."""
    root = xp.sqrt(x)
    z = 2 / 3 * x * root
    return xp.horner(fitted("ai_large"), on(_Z_TWO / z, 0.0, 1.0)) * xp.exp(-z) / xp.sqrt(root)


def _airy_wave(xp: Any, x: Any) -> Any:
    """Ai(-x) for x >= 4."""
    root = xp.sqrt(x)
    z = 2 / 3 * x * root
    ratio = _Z_FOUR / z
    t = on(ratio * ratio, 0.0, 1.0)
    s, c = xp.sin(z), xp.cos(z)
    value = xp.horner(fitted("ai_p"), t) * (s + c) - xp.horner(fitted("ai_q"), t) / z * (c - s)
    value = value * (_ROOT_HALF / math.sqrt(math.pi))
    return xp.where(xp.isinf(x), 0.0, value / xp.sqrt(root))


@extra
@blocked
def airy_ai(xp: Any, x: Any) -> Any:
    """The Airy function Ai."""

    def inside(s: Any) -> Any:
        return xp.split(
            s > 2,
            lambda t: _airy_far(xp, t),
            lambda t: xp.horner(fitted("ai"), on(t, -4.0, 2.0)),
            s,
        )

    return xp.split(x < -4, lambda s: _airy_wave(xp, -s), inside, x)
