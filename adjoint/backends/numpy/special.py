"""Special functions in NumPy, accurate to a few units in the last place.

Each is cut into intervals where it is a short polynomial times something simple. The coefficients
(lowest power first) are Chebyshev interpolants of the function to 60 digits, brought to powers of
the interval's own variable in [-1, 1]. NumPy goes over memory once for each operation, so the
functions work through their input in blocks that stay in the cache.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from . import extra

_BLOCK = 8192


def _blocked(kernel: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function of arrays of any shape from one of float64 vectors; float32 is computed so too."""

    @functools.wraps(kernel)
    def function(x: Any) -> Any:
        flat = np.ascontiguousarray(x).reshape(-1)
        result = np.empty_like(flat)
        for i in range(0, flat.size, _BLOCK):
            result[i : i + _BLOCK] = kernel(flat[i : i + _BLOCK].astype(np.float64))
        return result.reshape(np.shape(x))

    return function


def _horner(coefficients: tuple[float, ...], t: Any) -> Any:
    """The polynomial with these coefficients, lowest power first."""
    value = np.full_like(t, coefficients[-1])
    for c in coefficients[-2::-1]:
        value *= t
        value += c
    return value


def _on(x: Any, low: float, high: float) -> Any:
    """The variable of an interval: -1 at `low` and 1 at `high`."""
    return (x - (low + high) / 2) * (2 / (high - low))


def _where(result: Any, mask: Any, kernel: Callable[[Any], Any], x: Any) -> None:
    """Set `result` to `kernel(x)` where `mask` is true, computing nothing elsewhere."""
    if mask.all():
        result[:] = kernel(x)
    elif mask.any():
        result[mask] = kernel(x[mask])


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

# erf(x) / x for |x| <= 1, in x^2
_ERF = (
    0.9654687386698673, -0.1405360890227171, 0.019852496688983708, -0.0022854855611441132,
    0.00021751715604160108, -1.7537169441124826e-05, 1.223382738352401e-06, -7.51156928660089e-08,
    4.11580059766496e-09, -2.035228404899467e-10, 9.167606746069445e-12, -3.8078827395263415e-13,
    1.454817075960679e-14,
)  # fmt: skip
# exp(x^2) erfc(x) (1 + 2x) for x >= 1/2, in (x - 3.75) / (x + 3.75)
_ERFCX = (
    1.2375967764699427, -0.10720313439307824, 0.0020083123914439124, 0.0368652370760325,
    -0.03724195425250078, 0.024144568616917488, -0.011732608675122998, 0.004332134938922094,
    -0.0011372073925357375, 0.0001562717541530282, 2.0135159661297532e-05,
    -1.5125558095467096e-05, 2.0485124778638184e-06, 6.838662574867553e-07,
    -2.659192596615482e-07, -1.7607554319900093e-08, 2.3809809311519135e-08,
    -5.577217496251079e-10, -2.050790205634971e-09, 1.3134928677759447e-10, 1.730529995287862e-10,
    -9.744327992197583e-12, -1.0635288015045474e-11,
)  # fmt: skip

# erf(x) / x for |x| <= 4 in float32: the quotient of two polynomials in (x / 4)^2
_ERF32_P = (
    1.128379225730896, 2.9633114337921143, 13.90524673461914, 15.768623352050781,
    24.87812042236328, 4.912269592285156, -0.22149403393268585,
)  # fmt: skip
_ERF32_Q = (
    1.0, 7.959500789642334, 29.17374038696289, 63.33395767211914, 85.69503021240234,
    66.17559814453125,
)  # fmt: skip


def _erf_centre(x: Any) -> Any:
    return x * _horner(_ERF, _on(x * x, 0.0, 1.0))


def _erfc_tail(x: Any) -> Any:
    """erfc(x) for x >= 1/2."""
    scaled = _horner(_ERFCX, _on((x - 3.75) / (x + 3.75), -0.765, 0.7638)) / (1 + 2 * x)
    # exp(-x^2) loses the digits that x^2 has before the point: square an x of 26 bits exactly.
    high = x.astype(np.float32).astype(np.float64)
    return scaled * np.exp(-high * high) * np.exp((high - x) * (high + x))


@_blocked
def _erf(x: Any) -> Any:
    size = np.minimum(np.abs(x), 28.0)
    result = np.empty_like(x)
    small = ~(size > 1)
    _where(result, small, _erf_centre, x)
    tail = ~small
    _where(result, tail, lambda s: 1 - _erfc_tail(s), size)
    return np.copysign(result, x, out=result)


@extra
def erf(x: Any) -> Any:
    """The error function."""
    if x.dtype != np.float32:
        return _erf(x)
    flat = np.ascontiguousarray(x).reshape(-1)
    result = np.empty_like(flat)
    for i in range(0, flat.size, 2 * _BLOCK):
        part = np.clip(flat[i : i + 2 * _BLOCK], -4, 4)
        t = np.square(part * np.float32(0.25))
        part *= _horner(_ERF32_P, t)
        part /= _horner(_ERF32_Q, t)
        part[np.abs(part) > 1 - 1e-7] *= np.float32(2)  # what rounds to 1 becomes exactly 1
        np.clip(part, -1, 1, out=result[i : i + 2 * _BLOCK])
    return result.reshape(x.shape)


@extra
@_blocked
def erfc(x: Any) -> Any:
    """1 - erf(x)."""
    size = np.minimum(np.abs(x), 28.0)
    result = np.empty_like(x)
    small = ~(size > 0.5)
    _where(result, small, lambda s: 1 - _erf_centre(s), x)
    _where(result, ~small, _erfc_tail, size)
    negative = ~small & (x < 0)
    result[negative] = 2 - result[negative]
    return result


@extra
@_blocked
def erfinv(x: Any) -> Any:
    """The inverse of the error function."""
    size = np.abs(x)
    rest = 1 - size  # exact where it is used
    # Winitzki's approximation, right to 0.2 percent; Halley's method triples the digits.
    logarithm = np.log1p(-size * size)
    a = 2 / (math.pi * 0.147) + logarithm / 2
    y = np.where(
        size < 0.1,
        size * (math.sqrt(math.pi) / 2),
        np.sqrt(np.sqrt(a * a - logarithm / 0.147) - a),
    )
    for _ in range(2):
        error = np.where(size < 0.5, erf(y) - size, rest - erfc(y))
        step = error * np.exp(y * y) * (math.sqrt(math.pi) / 2)
        y = y - step / (1 + y * step)
    y = np.where(size < 1, y, np.where(size == 1, np.inf, np.nan))
    return np.copysign(y, x)


# ---- gamma functions -----------------------------------------------------------------------------

# lgamma(x) / ((x - 1) (x - 2)) for 1 <= x <= 3
_LGAMMA = (
    0.42278433509846713, -0.10031730167435392, 0.03296500062115574, -0.012384192193371025,
    0.004998641164703877, -0.00210813083396774, 0.0009153769220606788, -0.00040570739724578336,
    0.0001825526419770573, -8.309512956943704e-05, 3.816886281372433e-05, -1.7661650808739293e-05,
    8.22234752455359e-06, -3.847458853109349e-06, 1.8074596187759183e-06, -8.524589422854706e-07,
    4.055632887824375e-07, -1.9297722928131087e-07, 8.745972665553556e-08, -4.0989550123056e-08,
    2.6247261052647615e-08, -1.3413634707816507e-08, -7.603161817337265e-10,
    1.0302382218738562e-09, 4.927878685807231e-09, -2.7213519871256995e-09, -1.38994451662441e-09,
    7.781579910182537e-10, 4.2453673576593125e-10, -2.2029817508598198e-10,
)  # fmt: skip

# digamma(x) / (x - root) for 1 <= x <= 2
_DIGAMMA = (
    0.9510558760318328, -0.21181371064073024, 0.06013562106019684, -0.01855061538173984,
    0.005936795278301761, -0.001935066664735652, 0.0006368880303865817, -0.00021074841288961643,
    6.995018825112794e-05, -2.3258232466707952e-05, 7.741234508636364e-06, -2.578134894751126e-06,
    8.589060721930695e-07, -2.8620904099739414e-07, 9.543298288278275e-08, -3.181266980138485e-08,
    1.0527692435026686e-08, -3.5032218996509724e-09, 1.2469984616707403e-09,
    -4.197772636734229e-10, 8.734528429142953e-11, -2.7468150389464952e-11, 2.918622732168261e-11,
    -1.0015117602062808e-11,
)  # fmt: skip

_ROOT, _ROOT_REST = 1.4616321449683622, 9.549995429965697e-17  # of digamma, in two parts
_HALF_LOG_TWO_PI = 0.9189385332046727
_BERNOULLI = (
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798,
    -174611 / 330, 854513 / 138, -236364091 / 2730,
)  # fmt: skip
_STIRLING = tuple(b / (2 * k * (2 * k - 1)) for k, b in enumerate(_BERNOULLI[:9], 1))
_DIGAMMA_SERIES = tuple(b / (2 * k) for k, b in enumerate(_BERNOULLI[:9], 1))


def _lgamma_large(x: Any) -> Any:
    """lgamma(x) for x >= 10, by Stirling's series."""
    inverse = 1 / x
    value = (x - 0.5) * np.log(x) - x + _HALF_LOG_TWO_PI
    return value + inverse * _horner(_STIRLING, inverse * inverse)


def _lgamma_middle(x: Any) -> Any:
    """lgamma(x) for 0 < x < 10, from its values between 1 and 3."""
    small = x < 1
    below = x[small]
    minus_one, minus_two = np.where(small, x, x - 1), np.where(small, x - 1, x - 2)  # exact
    x = np.where(small, x + 1, x)
    factor = np.ones_like(x)
    for _ in range(7):
        large = x >= 3
        if not large.any():
            break
        x[large] -= 1
        factor[large] *= x[large]
        minus_one[large] -= 1
        minus_two[large] -= 1
    value = minus_one * minus_two * _horner(_LGAMMA, _on(x, 1.0, 3.0)) + np.log(factor)
    value[small] -= np.log(below)
    return value


def _lgamma_positive(x: Any) -> Any:
    result = np.empty_like(x)
    large = ~(x < 10)
    _where(result, large, _lgamma_large, x)
    _where(result, ~large, _lgamma_middle, x)
    return np.where(x == np.inf, np.inf, np.where(x == 0, np.inf, result))


def _lgamma_negative(x: Any) -> Any:
    """By reflection, with the sine of what is left of x after its whole part."""
    sine = np.abs(np.sin(np.pi * (x - np.rint(x))))
    value = np.log(np.pi / sine) - _lgamma_positive(1 - x)
    return np.where(np.isinf(x) | (sine == 0), np.inf, value)


@extra
@_blocked
def lgamma(x: Any) -> Any:
    """The logarithm of the absolute value of the gamma function."""
    result = np.empty_like(x)
    negative = x < 0
    _where(result, negative, _lgamma_negative, x)
    _where(result, ~negative, _lgamma_positive, x)
    return result


def _digamma_large(x: Any) -> Any:
    """digamma(x) for x >= 10, by its asymptotic series."""
    inverse = 1 / x
    square = inverse * inverse
    return np.log(x) - 0.5 * inverse - square * _horner(_DIGAMMA_SERIES, square)


def _digamma_middle(x: Any) -> Any:
    """digamma(x) for 0 < x < 10, from its values between 1 and 2."""
    x = x.copy()
    terms = np.zeros_like(x)
    small = x < 1
    terms[small] = -1 / x[small]
    x[small] += 1
    for _ in range(8):
        large = x >= 2
        if not large.any():
            break
        x[large] -= 1
        terms[large] += 1 / x[large]
    return (x - _ROOT - _ROOT_REST) * _horner(_DIGAMMA, _on(x, 1.0, 2.0)) + terms


def _digamma_positive(x: Any) -> Any:
    result = np.empty_like(x)
    large = ~(x < 10)
    _where(result, large, _digamma_large, x)
    _where(result, ~large, _digamma_middle, x)
    return np.where(x == np.inf, np.inf, np.where(x == 0, np.copysign(np.inf, -x), result))


def _digamma_negative(x: Any) -> Any:
    rest = x - np.rint(x)
    value = _digamma_positive(1 - x) - np.pi / np.tan(np.pi * rest)
    return np.where(np.isinf(x) | (rest == 0), np.nan, value)


@extra
@_blocked
def digamma(x: Any) -> Any:
    """The derivative of lgamma."""
    result = np.empty_like(x)
    negative = x < 0
    _where(result, negative, _digamma_negative, x)
    _where(result, ~negative, _digamma_positive, x)
    return result


def _zeta(s: int, x: Any) -> Any:
    """Hurwitz's zeta function for x > 0, by the formula of Euler and Maclaurin."""
    steps = 10 + s
    total = np.zeros_like(x)
    for k in range(steps):
        total += (x + k) ** -s
    end = x + steps
    last = end**-s
    total += last * end / (s - 1) + last / 2
    factor = last * s / end
    for j, b in enumerate(_BERNOULLI, 1):
        total += b / math.factorial(2 * j) * factor
        factor *= (s + 2 * j - 1) * (s + 2 * j) / (end * end)
    return np.where(x == np.inf, 0.0, total)


def _cotangent_derivative(n: int) -> Any:
    """The polynomial in cot(pi x) that is the derivative of order n of pi cot(pi x)."""
    polynomial = np.polynomial.Polynomial([0.0, math.pi])
    rate = np.polynomial.Polynomial([-math.pi, 0.0, -math.pi])
    for _ in range(n):
        polynomial = polynomial.deriv() * rate
    return polynomial


@extra
def polygamma(n: int, x: Any) -> Any:
    """The derivative of order n >= 1 of the digamma function."""
    sign = float((-1) ** (n + 1))
    factor = sign * math.gamma(n + 1)

    def negative(x: Any) -> Any:
        rest = x - np.rint(x)
        reflected = _cotangent_derivative(n)(1 / np.tan(np.pi * rest))
        value = -sign * factor * _zeta(n + 1, 1 - x) - reflected
        return np.where(np.isinf(x), np.nan, np.where(rest == 0, sign * np.inf, value))

    @_blocked
    def kernel(x: Any) -> Any:
        result = np.empty_like(x)
        below = x < 0
        _where(result, below, negative, x)
        _where(result, ~below, lambda part: factor * _zeta(n + 1, part), x)
        return result

    return kernel(x)


# ---- Bessel functions ----------------------------------------------------------------------------

# exp(-x) I0(x) for 0 <= x <= 8; exp(-x) sqrt(x) I0(x) for x >= 8, in 1 / x
_I0_SMALL = (
    0.2070019212239867, -0.11300432688620549, 0.09451562853995128, -0.08904344136075962,
    0.08734341617550408, -0.08496338091616305, 0.07927522590772476, -0.06954119561719381,
    0.056777032011256987, -0.04298594945479612, 0.0301779121034198, -0.01968265469059234,
    0.011960077419502311, -0.0067923998730731695, 0.003617128473996364, -0.001811886793937724,
    0.0008563093345358882, -0.00038290209550065975, 0.00016241792341840366,
    -6.550861389620851e-05, 2.5183377189964778e-05, -9.251680584432654e-06,
    3.2498478284328534e-06, -1.0883393970072518e-06, 3.5212842626130005e-07,
    -1.1384114641747256e-07, 3.39695180931004e-08, -7.723094556846333e-09, 2.1878041523620257e-09,
    -1.1852342482684723e-09, 3.043616766866286e-10,
)  # fmt: skip
_I0_LARGE = (
    0.4021765094450081, 0.0033605519836678865, 0.00013621607439233397, 1.1143033788352455e-05,
    1.4838475432345007e-06, 2.9735993830791437e-07, 8.87226944343699e-08, 3.9324708328742363e-08,
    2.1542697342456025e-08, 7.56377201554603e-09, -6.709029656225637e-09, -1.3453822931523271e-08,
    -5.573331421610012e-09, 7.697662019062485e-09, 7.92317806979789e-09, -3.82099512308995e-09,
    -6.93899627720982e-09, 1.983359036878627e-09, 4.9905012775902334e-09, -1.0267340552488217e-09,
    -2.871865993820918e-09, 4.388861044991905e-10, 1.2061857017231527e-09,
    -1.2429481430536811e-10, -3.210161204221311e-10, 1.6645473602872717e-11,
    4.005227764863093e-11,
)  # fmt: skip
# exp(-x) I1(x) / x for 0 <= x <= 8; exp(-x) sqrt(x) I1(x) for x >= 8, in 1 / x
_I1_SMALL = (
    0.044687709875608835, -0.06112433802966629, 0.0680575999095116, -0.06848260620582547,
    0.06376740371340721, -0.055280039227051464, 0.04467457262125467, -0.03367135551992323,
    0.023686016957729535, -0.015571309256763564, 0.009583962150731578, -0.00553456775924123,
    0.0030057624197775295, -0.0015388749696724586, 0.0007445123445061157, -0.00034117472445271377,
    0.0001484212433475852, -6.142655719704761e-05, 2.4233753149624307e-05, -9.131775730568571e-06,
    3.293899139003749e-06, -1.1381566323785447e-06, 3.759367306404118e-07,
    -1.1993980285486188e-07, 3.802984785138283e-08, -1.1224475126135595e-08,
    2.603206542331157e-09, -7.277033556073836e-10, 3.7284532079392345e-10, -9.506861180736366e-11,
)  # fmt: skip
_I1_LARGE = (
    0.38939845902587233, -0.00974957719323576, -0.00021923576383430914, -1.503854719814553e-05,
    -1.8349101091858603e-06, -3.4838565069237384e-07, -1.0001340021780371e-07,
    -4.312811174972107e-08, -2.3368016560658254e-08, -8.436290430234562e-09,
    6.694265612407784e-09, 1.4076395500755014e-08, 6.14985231157688e-09, -7.778592763970399e-09,
    -8.401102179738338e-09, 3.7219797447255018e-09, 7.268242563538968e-09,
    -1.8736450470066097e-09, -5.2022217601823894e-09, 9.568523624905203e-10,
    2.9887350377570034e-09, -4.086984233473255e-10, -1.2547972491973786e-09,
    1.161813630287145e-10, 3.339867355634982e-10, -1.5626599071977848e-11,
    -4.1681089783384256e-11,
)  # fmt: skip


def _bessel(x: Any, small: tuple[float, ...], large: tuple[float, ...], odd: bool) -> Any:
    """exp(-|x|) times the function, for the absolute value of x."""
    size = np.abs(x)
    near = np.minimum(size, 8.0)
    centre = _horner(small, _on(near, 0.0, 8.0)) * (near if odd else 1)
    far = np.maximum(size, 8.0)
    tail = _horner(large, _on(1 / far, 0.0, 0.125)) / np.sqrt(far)
    return np.where(size <= 8, centre, tail)


@extra
@_blocked
def i0(x: Any) -> Any:
    """The modified Bessel function of the first kind, order 0."""
    return _bessel(x, _I0_SMALL, _I0_LARGE, False) * np.exp(np.abs(x))


@extra
@_blocked
def i1(x: Any) -> Any:
    """The modified Bessel function of the first kind, order 1."""
    return np.copysign(_bessel(x, _I1_SMALL, _I1_LARGE, True) * np.exp(np.abs(x)), x)


# ---- the normal distribution ---------------------------------------------------------------------


@extra
@_blocked
def erfcx(x: Any) -> Any:
    """exp(x^2) erfc(x)."""
    result = np.empty_like(x)
    large, small = x > 0.5, np.abs(x) <= 0.5
    _where(result, large, _erfcx_far, x)
    _where(result, small, lambda s: np.exp(s * s) * (1 - _erf_centre(s)), x)
    _where(result, ~(large | small), lambda s: 2 * _exp_square(s) - _erfcx_any(-s), x)
    return result


def _erfcx_far(x: Any) -> Any:
    """exp(x^2) erfc(x) for x >= 1/2."""
    with np.errstate(all="ignore"):
        ratio = np.where(np.isinf(x), 1.0, (x - 3.75) / (x + 3.75))
    value = _horner(_ERFCX, _on(np.minimum(ratio, 1.0), -0.765, 0.7638)) / (1 + 2 * x)
    # The polynomial ends where erfc(x) does; from there on, the asymptotic series.
    inverse = 1 / (x * x)
    series = np.ones_like(x)
    for k in (5.5, 4.5, 3.5, 2.5, 1.5, 0.5):
        series = 1 - k * inverse * series
    return np.where(x < 28, value, series / (x * math.sqrt(math.pi)))


def _erfcx_any(x: Any) -> Any:
    """exp(x^2) erfc(x) for x >= 0; NaN passes."""
    return np.where(x > 0.5, _erfcx_far(np.maximum(x, 0.5)), np.exp(x * x) * (1 - _erf_centre(x)))


def _exp_square(x: Any) -> Any:
    """exp(x^2), with the digits that x^2 loses before the point."""
    x = np.clip(x, -30, 30)
    high = x.astype(np.float32).astype(np.float64)
    return np.exp(high * high) * np.exp((x - high) * (x + high))


_ROOT_HALF = math.sqrt(0.5)


@extra
@_blocked
def log_ndtr(x: Any) -> Any:
    """The logarithm of the area under the standard normal density up to x."""
    result = np.empty_like(x)
    low = x < -1
    _where(result, low, lambda s: np.log(erfcx(-s * _ROOT_HALF) / 2) - s * s / 2, x)
    _where(result, ~low, lambda s: np.log1p(-erfc(s * _ROOT_HALF) / 2), x)
    return result


def _ndtri_tail(p: Any) -> Any:
    """ndtri(p) for 0 < p <= 1/10, by Newton's method on the logarithms: it is concave there, and
    the start lies on the side from which the steps only approach.
    """
    logarithm = np.log(p)
    y = -np.sqrt(-2 * logarithm)
    for _ in range(6):
        scaled = erfcx(-y * _ROOT_HALF)
        y = y - (np.log(scaled / 2) - y * y / 2 - logarithm) * scaled * math.sqrt(math.pi / 2)
    return y


@extra
@_blocked
def ndtri(p: Any) -> Any:
    """The number up to which the standard normal density has the area p."""
    result = np.full_like(p, np.nan)
    result[p == 0], result[p == 1] = -np.inf, np.inf
    low, high = (p > 0) & (p < 0.1), (p > 0.9) & (p < 1)
    _where(result, low, _ndtri_tail, p)
    _where(result, high, lambda s: -_ndtri_tail(1 - s), p)
    middle = (p >= 0.1) & (p <= 0.9)
    if middle.any():
        result[middle] = erfinv(2 * p[middle] - 1) / _ROOT_HALF
    return result


# ---- zeta ----------------------------------------------------------------------------------------


@extra
def zeta(s: Any, q: Any) -> Any:
    """Hurwitz's zeta function: the sum of (q + k)^-s over all k >= 0."""
    dtype = np.result_type(s, q) if hasattr(s, "dtype") or hasattr(q, "dtype") else np.float64
    s, q = np.broadcast_arrays(np.asarray(s, np.float64), np.asarray(q, np.float64))
    result = np.full(s.shape, np.nan)
    whole, below = q == np.floor(q), q <= 0
    # Only a whole exponent has real powers of negative numbers.
    usable = (s > 1) & ~(below & (whole | (s != np.floor(s)))) & ~np.isnan(q)
    result[(s == 1) | ((s > 1) & below & whole)] = np.inf
    result[usable] = _hurwitz(s[usable], q[usable])
    return result.astype(dtype)


def _hurwitz(s: Any, q: Any) -> Any:
    """Term by term up to where the formula of Euler and Maclaurin converges."""
    total, x = np.zeros_like(s), q.copy()
    end = np.minimum(10 + s, 1000)
    while (more := x < end).any():
        total[more] += x[more] ** -s[more]
        x[more] += 1
    last = x**-s
    total += last * x / (s - 1) + last / 2
    factor = last * s / x
    for j, b in enumerate(_BERNOULLI, 1):
        total += b / math.factorial(2 * j) * factor
        factor *= (s + 2 * j - 1) * (s + 2 * j) / (x * x)
    return np.where(np.isinf(q) | np.isinf(s), np.where(np.isinf(s), _at_infinity(q), 0.0), total)


def _at_infinity(q: Any) -> Any:
    """The limit for s to infinity: 0, 1 or infinity as q is above, at or below 1."""
    return np.where(q > 1, 0.0, np.where(q == 1, 1.0, np.inf))
