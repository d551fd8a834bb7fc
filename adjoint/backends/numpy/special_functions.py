"""Special functions in NumPy, accurate to a few units in the last place.

Each is cut into intervals where it is a short polynomial, which coefficients.json has, times
something simple.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from .blocks import BLOCK, NAMES, blocked, on
from .coefficients import fitted
from .extras import extra

_BLOCK = 16384


@extra
def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    if not np.ndim(x):
        return np.asarray(1 / (1 + np.exp(-x)))
    value = np.negative(x)
    np.exp(value, out=value)
    value += 1
    return np.reciprocal(value, out=value)


# ---- error functions -----------------------------------------------------------------------------


def _erf_centre(xp: Any, x: Any) -> Any:
    return x * xp.horner(fitted("erf"), on(x * x, 0.0, 1.0))


def _short(x: Any) -> Any:
    """x with so few digits that its square is exact."""
    return x.astype(np.float32).astype(np.float64)


def _erfc_tail(xp: Any, x: Any) -> Any:
    """erfc(x) for x >= 1/2."""
    scaled = xp.horner(fitted("erfcx"), on((x - 3.75) / (x + 3.75), -0.765, 0.7638)) / (1 + 2 * x)
    high = _short(x)  # exp(-x^2) loses the digits that x^2 has before the point
    return scaled * xp.exp(-high * high) * xp.exp((high - x) * (high + x))


def _erf_positive(xp: Any, x: Any) -> Any:
    x = xp.minimum(x, 28.0)
    return xp.split(x > 1, lambda s: 1 - _erfc_tail(xp, s), lambda s: _erf_centre(xp, s), x)


def _erfc_positive(xp: Any, x: Any) -> Any:
    x = xp.minimum(x, 28.0)
    return xp.split(x > 0.5, lambda s: _erfc_tail(xp, s), lambda s: 1 - _erf_centre(xp, s), x)


@blocked
def _erf(xp: Any, x: Any) -> Any:
    return xp.copysign(_erf_positive(xp, xp.abs(x)), x)


@extra
def erf(x: Any) -> Any:
    """The error function."""
    if x.dtype != np.float32:
        return _erf(x)
    flat = np.ascontiguousarray(x).reshape(-1)
    result = np.empty_like(flat)
    for i in range(0, flat.size, _BLOCK):
        part = np.clip(flat[i : i + _BLOCK], -4, 4)
        t = np.square(part * np.float32(0.25))
        part *= NAMES.horner(fitted("erf32_p"), t)
        part /= NAMES.horner(fitted("erf32_q"), t)
        part[np.abs(part) > 1 - 1e-7] *= np.float32(2)  # what rounds to 1 becomes exactly 1
        np.clip(part, -1, 1, out=result[i : i + _BLOCK])
    return result.reshape(x.shape)


def _erfc(xp: Any, x: Any) -> Any:
    value = _erfc_positive(xp, xp.abs(x))
    return xp.where(x < 0, 2 - value, value)


@extra
@blocked
def erfc(xp: Any, x: Any) -> Any:
    """1 - erf(x)."""
    return _erfc(xp, x)


def _erfinv_near(xp: Any, x: Any, rest: Any) -> Any:
    """erfinv(x) to 3e-9 for x from 0 to 1; `rest` is 1 - x."""
    w = xp.sqrt(-xp.log(rest))
    centre = x * xp.horner(fitted("erfinv_centre"), on(x * x, 0.0, 0.64))
    tail = w * xp.horner(fitted("erfinv_tail"), on((w - 2) / (w + 2), -0.227, 0.678))
    return xp.where(x < 0.8, centre, tail)


def _with_ends(xp: Any, y: Any, x: Any) -> Any:
    """y where |x| < 1, infinity of x's sign at 1, NaN beyond."""
    size = xp.abs(x)
    return xp.where(size < 1, y, xp.where(size == 1, math.inf * x, math.nan * x))


def _erfinv(xp: Any, x: Any) -> Any:
    size = xp.abs(x)
    rest = 1 - size  # exact where it is used
    y = _erfinv_near(xp, size, rest)  # Halley's method triples the digits
    erf, erfc = _erf_positive(xp, y), _erfc_positive(xp, y)
    error = xp.where(size < 0.5, erf - size, rest - erfc)
    step = error * xp.exp(y * y) * (math.sqrt(math.pi) / 2)
    return _with_ends(xp, xp.copysign(y - step / (1 + y * step), x), x)


def _erfinv_single(xp: Any, x: Any) -> Any:
    w = -xp.log((1 - x) * (1 + x))
    near = xp.horner(fitted("erfinv32_near"), w)
    far = xp.horner(fitted("erfinv32_far"), on(xp.sqrt(w), 2.236, 3.994))
    return _with_ends(xp, x * xp.where(w < 5, near, far), x)


@extra
@blocked(single=_erfinv_single)
def erfinv(xp: Any, x: Any) -> Any:
    """The inverse of the error function."""
    return _erfinv(xp, x)


# ---- gamma functions -----------------------------------------------------------------------------


_ROOT, _ROOT_REST = 1.4616321449683622, 9.549995429965697e-17  # of digamma, in two parts
_HALF_LOG_TWO_PI = 0.9189385332046727
_BERNOULLI = (
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798,
    -174611 / 330, 854513 / 138, -236364091 / 2730,
)  # fmt: skip
_STIRLING = tuple(b / (2 * k * (2 * k - 1)) for k, b in enumerate(_BERNOULLI[:9], 1))
_DIGAMMA_SERIES = tuple(b / (2 * k) for k, b in enumerate(_BERNOULLI[:9], 1))


def _lgamma_large(xp: Any, x: Any) -> Any:
    """lgamma(x) for x >= 10, by Stirling's series."""
    inverse = 1 / x
    value = (x - 0.5) * xp.log(x) - x + _HALF_LOG_TWO_PI
    return value + inverse * xp.horner(_STIRLING, inverse * inverse)


def _lgamma_middle(xp: Any, x: Any) -> Any:
    """lgamma(x) for 0 < x < 10, from its values between 1 and 3."""
    small = x < 1
    below = xp.where(small, x, 1.0)
    minus_one, minus_two = xp.where(small, x, x - 1), xp.where(small, x - 1, x - 2)  # exact
    x = xp.where(small, x + 1, x)
    factor = xp.where(small, 1.0, x * 0 + 1)
    for _ in range(7):
        large = x >= 3
        x = xp.where(large, x - 1, x)
        factor = xp.where(large, factor * x, factor)
        minus_one = xp.where(large, minus_one - 1, minus_one)
        minus_two = xp.where(large, minus_two - 1, minus_two)
    value = minus_one * minus_two * xp.horner(fitted("lgamma"), on(x, 1.0, 3.0))
    return value + xp.log(factor) - xp.log(below)


def _lgamma_positive(xp: Any, x: Any) -> Any:
    value = xp.split(x < 10, lambda s: _lgamma_middle(xp, s), lambda s: _lgamma_large(xp, s), x)
    return xp.where((x == math.inf) | (x == 0), math.inf, value)


@extra
@blocked
def lgamma(xp: Any, x: Any) -> Any:
    """The logarithm of the absolute value of the gamma function."""
    negative = x < 0
    value = _lgamma_positive(xp, xp.where(negative, 1 - x, x))
    if xp.some(negative):  # by reflection, with the sine of what is left after the whole part
        sine = xp.abs(xp.sin(math.pi * (x - xp.rint(x))))
        reflected = xp.where(xp.isinf(x) | (sine == 0), math.inf, xp.log(math.pi / sine) - value)
        value = xp.where(negative, reflected, value)
    return value


def _digamma_large(xp: Any, x: Any) -> Any:
    """digamma(x) for x >= 10, by its asymptotic series."""
    inverse = 1 / x
    square = inverse * inverse
    return xp.log(x) - 0.5 * inverse - square * xp.horner(_DIGAMMA_SERIES, square)


def _digamma_middle(xp: Any, x: Any) -> Any:
    """digamma(x) for 0 < x < 10, from its values between 1 and 2."""
    small = x < 1
    terms = xp.where(small, -1 / x, 0.0)
    x = xp.where(small, x + 1, x)
    for _ in range(8):
        large = x >= 2
        x = xp.where(large, x - 1, x)
        terms = xp.where(large, terms + 1 / x, terms)
    return (x - _ROOT - _ROOT_REST) * xp.horner(fitted("digamma"), on(x, 1.0, 2.0)) + terms


def _digamma_positive(xp: Any, x: Any) -> Any:
    value = xp.split(x < 10, lambda s: _digamma_middle(xp, s), lambda s: _digamma_large(xp, s), x)
    pole = xp.copysign(x * 0 + math.inf, -x)
    return xp.where(x == math.inf, math.inf, xp.where(x == 0, pole, value))


@extra
@blocked
def digamma(xp: Any, x: Any) -> Any:
    """The derivative of lgamma."""
    negative = x < 0
    value = _digamma_positive(xp, xp.where(negative, 1 - x, x))
    if xp.some(negative):
        rest = x - xp.rint(x)
        reflected = value - math.pi / xp.tan(math.pi * rest)
        reflected = xp.where(xp.isinf(x) | (rest == 0), math.nan, reflected)
        value = xp.where(negative, reflected, value)
    return value


def _power(x: Any, n: int) -> Any:
    """x^n for n >= 1, by squares."""
    result = None
    while n:
        if n & 1:
            result = x if result is None else result * x
        x, n = x * x, n >> 1
    return result


def _zeta(xp: Any, s: int, x: Any, steps: int, terms: int) -> Any:
    """Hurwitz's zeta function for x > 0, by the formula of Euler and Maclaurin."""
    total = 1 / _power(x, s)
    for k in range(1, steps):
        total = total + 1 / _power(x + k, s)
    end = x + steps
    inverse = 1 / end
    series = []
    for j, b in enumerate(_BERNOULLI[:terms], 1):
        rising = math.prod(range(s, s + 2 * j - 1))
        series.append(b * rising / math.factorial(2 * j))
    last = _power(inverse, s)
    rest = inverse * xp.horner(tuple(series), inverse * inverse)
    total = total + last * (end / (s - 1) + 0.5 + rest)
    return xp.where(x == math.inf, 0.0, total)


@functools.lru_cache(maxsize=64)
def _cotangent_derivative(n: int) -> tuple[float, ...]:
    """The polynomial in cot(pi x) that is the derivative of order n of pi cot(pi x)."""
    polynomial = np.polynomial.Polynomial([0.0, math.pi])
    rate = np.polynomial.Polynomial([-math.pi, 0.0, -math.pi])
    for _ in range(n):
        polynomial = polynomial.deriv() * rate
    return tuple(polynomial.coef.tolist())


@functools.lru_cache(maxsize=64)
def polygamma_kernels(n: int) -> tuple[Any, Any]:
    """The kernels of polygamma of order n, as `blocks` has them: for float64 and for float32."""
    sign = float((-1) ** (n + 1))
    factor = sign * math.gamma(n + 1)

    def kernel(xp: Any, x: Any, steps: int = 11 + n, terms: int = 12) -> Any:
        below = x < 0
        value = factor * _zeta(xp, n + 1, xp.where(below, 1 - x, x), steps, terms)
        if xp.some(below):
            rest = x - xp.rint(x)
            reflected = -sign * value - xp.horner(
                _cotangent_derivative(n), 1 / xp.tan(math.pi * rest)
            )
            reflected = xp.where(rest == 0, sign * math.inf, reflected)
            value = xp.where(below, xp.where(xp.isinf(x), math.nan, reflected), value)
        return value

    return kernel, functools.partial(kernel, steps=4 + n, terms=6)


@extra
def polygamma(n: int, x: Any) -> Any:
    """The derivative of order n >= 1 of the digamma function."""
    kernel, short = polygamma_kernels(n)
    return blocked(short=short)(kernel)(x)


# ---- Bessel functions ----------------------------------------------------------------------------


def bessel(xp: Any, x: Any, order: int) -> Any:
    """exp(-|x|) times I0 or I1 of the absolute value of x."""
    size = xp.abs(x)
    near = xp.minimum(size, 8.0)
    centre = xp.horner(fitted(f"i{order}_small"), on(near, 0.0, 8.0)) * (near if order else 1.0)
    far = xp.maximum(size, 8.0)
    tail = xp.horner(fitted(f"i{order}_large"), on(1 / far, 0.0, 0.125)) / xp.sqrt(far)
    return xp.where(size <= 8, centre, tail)


@extra
@blocked
def i0(xp: Any, x: Any) -> Any:
    """The modified Bessel function of the first kind, order 0."""
    return bessel(xp, x, 0) * xp.exp(xp.abs(x))


@extra
@blocked
def i1(xp: Any, x: Any) -> Any:
    """The modified Bessel function of the first kind, order 1."""
    return xp.copysign(bessel(xp, x, 1) * xp.exp(xp.abs(x)), x)


# ---- the normal distribution ---------------------------------------------------------------------


def _erfcx(xp: Any, x: Any) -> Any:
    def below(s: Any) -> Any:
        return 2 * _exp_square(xp, s) - _erfcx_positive(xp, -s)

    return xp.split(x < -0.5, below, lambda s: _erfcx_positive(xp, xp.maximum(s, -0.5)), x)


@extra
@blocked
def erfcx(xp: Any, x: Any) -> Any:
    """exp(x^2) erfc(x)."""
    return _erfcx(xp, x)


def _erfcx_far(xp: Any, x: Any) -> Any:
    """exp(x^2) erfc(x) for x >= 1/2."""
    ratio = xp.where(xp.isinf(x), 1.0, (x - 3.75) / (x + 3.75))
    value = xp.horner(fitted("erfcx"), on(xp.minimum(ratio, 1.0), -0.765, 0.7638)) / (1 + 2 * x)
    # The polynomial ends where erfc(x) does; from there on, the asymptotic series.
    inverse = 1 / (x * x)
    series = 1 - 5.5 * inverse
    for k in (4.5, 3.5, 2.5, 1.5, 0.5):
        series = 1 - k * inverse * series
    return xp.where(x < 28, value, series / (x * math.sqrt(math.pi)))


def _erfcx_positive(xp: Any, x: Any) -> Any:
    """exp(x^2) erfc(x) for x >= -1/2; NaN passes."""
    near = xp.minimum(x, 0.5)
    centre = xp.exp(near * near) * (1 - _erf_centre(xp, near))
    return xp.where(x > 0.5, _erfcx_far(xp, xp.maximum(x, 0.5)), centre)


def _exp_square(xp: Any, x: Any) -> Any:
    """exp(x^2), with the digits that x^2 loses before the point."""
    x = xp.minimum(xp.maximum(x, -30.0), 30.0)
    high = _short(x)
    return xp.exp(high * high) * xp.exp((x - high) * (x + high))


_ROOT_HALF = math.sqrt(0.5)


@extra
@blocked
def log_ndtr(xp: Any, x: Any) -> Any:
    """The logarithm of the area under the standard normal density up to x."""

    def low(s: Any) -> Any:
        return xp.log(_erfcx(xp, -s * _ROOT_HALF) / 2) - s * s / 2

    return xp.split(x < -1, low, lambda s: xp.log1p(-_erfc(xp, s * _ROOT_HALF) / 2), x)


def _ndtri_tail(xp: Any, p: Any) -> Any:
    """ndtri(p) for 0 < p <= 1/10, by Newton's method on the logarithms: it is concave there, and
    the start lies on the side from which the steps only approach.
    """
    logarithm = xp.log(p)
    y = -xp.sqrt(-2 * logarithm)
    for _ in range(6):
        scaled = _erfcx_far(xp, -y * _ROOT_HALF)
        y = y - (xp.log(scaled / 2) - y * y / 2 - logarithm) * scaled * math.sqrt(math.pi / 2)
    return y


def _ndtri_short(xp: Any, p: Any) -> Any:
    high = p >= 0.5  # 0 and not -0 for 1/2
    twice = 2 * xp.where(high, 1 - p, p)
    y = _erfinv_near(xp, 1 - twice, twice) / _ROOT_HALF
    y = xp.where(high, y, -y)
    edge = xp.where(p == 0, -math.inf, xp.where(p == 1, math.inf, math.nan * p))
    return xp.where((p > 0) & (p < 1), y, edge)


@extra
@blocked(short=_ndtri_short)
def ndtri(xp: Any, p: Any) -> Any:
    """The number up to which the standard normal density has the area p."""

    def outside(p: Any) -> Any:
        high = p > 0.5
        y = _ndtri_tail(xp, xp.where(high, 1 - p, p))
        y = xp.where(high, -y, y)
        edge = xp.where(p == 0, -math.inf, xp.where(p == 1, math.inf, math.nan * p))
        return xp.where((p > 0) & (p < 1), y, edge)

    middle = (p >= 0.1) & (p <= 0.9)
    return xp.split(middle, lambda s: _erfinv(xp, 2 * s - 1) / _ROOT_HALF, outside, p)


# ---- zeta ----------------------------------------------------------------------------------------


def zeta_kernel(xp: Any, s: Any, q: Any, short: bool) -> Any:
    """Hurwitz's zeta function in float64; `short`: to float32's digits."""
    whole, below = q == xp.floor(q), q <= 0
    # Only a whole exponent has real powers of negative numbers.
    real = (s > 1) & ~(below & (whole | (s != xp.floor(s)))) & (q == q)
    if xp.some(real):
        value = _hurwitz(xp, s, xp.where(below, 1 - q, q), short)
        if xp.some(below & real):  # a sum over all whole numbers, less what does not belong
            right, left = (_hurwitz(xp, s, d, short) for d in (q - xp.floor(q), xp.ceil(q) - q))
            even = xp.rint(s * 0.5) == s * 0.5
            value = xp.where(below, right + xp.where(even, left - value, value - left), value)
        value = xp.where(real, value, math.nan)
    else:
        value = math.nan * q
    return xp.where((s == 1) | ((s > 1) & below & whole), math.inf, value)


def _hurwitz(xp: Any, s: Any, q: Any, short: bool) -> Any:
    """The first terms one by one, the rest by the formula of Euler and Maclaurin, for q > 0."""

    def power(x: Any) -> Any:
        return xp.exp(-s * xp.log(x)) if short else xp.power(x, -s)

    steps = 6 if short else 12
    total = power(q)
    for k in range(1, steps):
        total = total + power(q + k)
    x = q + steps
    inverse = 1 / x
    last = power(x)
    total = total + last * (x / (s - 1) + 0.5)
    factor = last * s * inverse
    for j, b in enumerate(_BERNOULLI[: 6 if short else 12], 1):
        total = total + b / math.factorial(2 * j) * factor
        factor = factor * ((s + (2 * j - 1)) * (s + 2 * j)) * (inverse * inverse)
    endless = xp.where(q > 1, 0.0, xp.where(q == 1, 1.0, math.inf + 0 * q))
    return xp.where(s == math.inf, endless, xp.where(q == math.inf, 0.0, total))


@extra
def zeta(s: Any, q: Any) -> Any:
    """Hurwitz's zeta function: the sum of (q + k)^-s over all k >= 0."""
    dtype: Any = np.dtype(float)
    if hasattr(s, "dtype") or hasattr(q, "dtype"):
        dtype = np.result_type(s, q)
    s, q = np.broadcast_arrays(np.asarray(s, np.float64), np.asarray(q, np.float64))
    result = np.empty(s.shape, dtype)
    flat, short = result.reshape(-1), dtype.itemsize < 8
    s, q = s.reshape(-1), q.reshape(-1)
    for i in range(0, flat.size, BLOCK):
        flat[i : i + BLOCK] = zeta_kernel(NAMES, s[i : i + BLOCK], q[i : i + BLOCK], short)
    return result
