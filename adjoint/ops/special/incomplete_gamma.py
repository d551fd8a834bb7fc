"""The regularized incomplete gamma functions of single numbers: a series below the shape, a
continued fraction above it (W. Gautschi, 1979), times the density, by Stirling's series.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.cython_shim import cython

if TYPE_CHECKING:
    import cython  # what the compiler sees

if cython.compiled:  # where the functions are the C library's
    import_array()
else:
    from math import exp, isinf, lgamma, log, log1p, nan, pi, sqrt

__all__ = ["tails"]

_LARGEST = 1e6  # the shape up to which these take a few thousand terms
_EPS = 2.0**-53


def tails(shapes: Any, ends: Any, complement: bool) -> Any:
    """The share of the gamma distribution of each shape below each end, or above it where
    `complement`; in float64, from row-major arrays of one shape. NaN also where these series do not
    serve: for shapes beyond a million, and for small ones whose upper share is small below 1.
    """
    result = np.empty(shapes.shape)
    if cython.compiled:
        a = cython.cast(p_double, PyArray_DATA(shapes))
        x = cython.cast(p_double, PyArray_DATA(ends))
        y = cython.cast(p_double, PyArray_DATA(result))
        count = result.size
        for i in range(count):
            y[i] = tail(a[i], x[i], complement)
    else:
        for i, (one, other) in enumerate(zip(shapes.flat, ends.flat, strict=True)):
            result.flat[i] = tail(float(one), float(other), complement)
    return result


def tail(a: float, x: float, complement: bool) -> float:
    """The share of one gamma distribution."""
    low, high = (1.0, 0.0) if complement else (0.0, 1.0)
    if not (a >= 0 and x >= 0):
        return nan
    if isinf(a):
        return nan if isinf(x) else low
    if a == 0:
        return high if x > 0 else nan
    if isinf(x):
        return high
    if x == 0:
        return low
    if a > _LARGEST:
        return nan
    weight = _density(a, x)
    if weight == 0.0 and x > a:
        return high
    if x > a + 1:
        part = weight * _fraction(a, x)
        return part if complement else 1.0 - part
    part = weight * _series(a, x)
    if complement:
        return 1.0 - part if part < 0.9 else nan
    return part


def _density(a: float, x: float) -> float:
    """x^a e^-x / gamma(a)."""
    if a < 10.0:
        return exp(a * log(x) - x - lgamma(a))
    part = (x - a) / a
    if -0.5 < part < 1.0:
        power = log1p(part) - part
    else:
        power = log(x / a) - part
    w = 1.0 / (a * a)
    rest = (1.0 / 12 - w * (1.0 / 360 - w * (1.0 / 1260 - w * (1.0 / 1680 - w / 1188)))) / a
    return sqrt(a / (2 * pi)) * exp(a * power - rest)


def _series(a: float, x: float) -> float:
    """The sum of x^k / (a (a + 1) ... (a + k))."""
    total = term = 1.0 / a
    at = a
    while term > total * _EPS:
        at += 1.0
        term *= x / at
        total += term
    return total


def _fraction(a: float, x: float) -> float:
    """The upper integral of t^(a - 1) e^-t from x on, over x^a e^-x, as the ratio of two sums."""
    z = x + 1.0 - a
    step, value, last = 0.0, 1.0 / z, 0.0
    before, top, low_before, low = 1.0, z, 0.0, 1.0
    while abs(value - last) > 2 * _EPS * value:
        last = value
        step += 1.0
        z += 2.0
        factor = step * (a - step)
        spare = z * top + factor * before
        before, top = top, spare
        spare = z * low + factor * low_before
        low_before, low = low, spare
        value = low / top
        if abs(top) > 1e200:
            before, top = before * 1e-200, top * 1e-200
            low_before, low = low_before * 1e-200, low * 1e-200
    return value
