"""Special functions in NumPy, accurate to a few units in the last place.

Each is cut into intervals where it is a short polynomial times something simple. The coefficients
(lowest power first) are Chebyshev interpolants of the function to 60 digits, brought to powers of
the interval's own variable in [-1, 1].
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from . import extra
from .blocks import BLOCK, NAMES, blocked, on

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


def _erf_centre(xp: Any, x: Any) -> Any:
    return x * xp.horner(_ERF, on(x * x, 0.0, 1.0))


def _short(x: Any) -> Any:
    """x with so few digits that its square is exact."""
    return x.astype(np.float32).astype(np.float64)


def _erfc_tail(xp: Any, x: Any) -> Any:
    """erfc(x) for x >= 1/2."""
    scaled = xp.horner(_ERFCX, on((x - 3.75) / (x + 3.75), -0.765, 0.7638)) / (1 + 2 * x)
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
        part *= NAMES.horner(_ERF32_P, t)
        part /= NAMES.horner(_ERF32_Q, t)
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


# erfinv(x) / x for |x| <= 0.8, in x^2; erfinv(x) / w for larger ones, in (w - 2) / (w + 2), where
# w = sqrt(-log(1 - x)) <= 10.4. Right to 3e-9: enough for float32, and one step from float64.
_ERFINV_CENTRE = (
    0.9772873121160265, 0.11287334905229988, 0.028498662851808937, 0.008988664090289648,
    0.003149899975630145, 0.0011741931264400516, 0.0004640880297606151, 0.00018719955429556556,
    6.099000597634597e-05, 2.3590718573325794e-05, 2.3633765950114693e-05,
    1.0666679985746476e-05,
)  # fmt: skip
_ERFINV_TAIL = (
    0.9119918622596525, 0.12202735165402931, -0.060470819329657824, 0.015564345982458356,
    -0.002548404470645072, -0.00026299040004530987, 0.0003477611554901994,
    -0.00015836011105834914, 4.430030778114559e-05, -6.013935762334001e-06,
    -4.691494383692673e-06, 2.094752381159352e-06,
)  # fmt: skip


def _erfinv_near(xp: Any, x: Any, rest: Any) -> Any:
    """erfinv(x) to 3e-9 for x from 0 to 1; `rest` is 1 - x."""
    w = xp.sqrt(-xp.log(rest))
    centre = x * xp.horner(_ERFINV_CENTRE, on(x * x, 0.0, 0.64))
    tail = w * xp.horner(_ERFINV_TAIL, on((w - 2) / (w + 2), -0.227, 0.678))
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


# erfinv(x) / x in float32: for w = -log(1 - x^2) up to 5 in powers of w, and beyond in its root's
_ERFINV32_NEAR = (
    0.8862268924713135, 0.23201382160186768, 0.011548653244972229, -0.0023342957720160484,
    -0.00012748228618875146, 4.456564784049988e-05, 3.983071565016871e-06, -1.976424755412154e-06,
    2.2102629770870408e-07, -8.790816963255565e-09,
)  # fmt: skip
_ERFINV32_FAR = (
    2.9482836723327637, 0.8821434378623962, 0.005570983048528433, -0.0037047641817480326,
    0.0023341516498476267, -0.0013642077101394534, 0.000614372082054615, -0.00012561219045892358,
    -6.584863876923919e-05, 4.068503403686918e-05,
)  # fmt: skip


def _erfinv_single(xp: Any, x: Any) -> Any:
    w = -xp.log((1 - x) * (1 + x))
    near = xp.horner(_ERFINV32_NEAR, w)
    far = xp.horner(_ERFINV32_FAR, on(xp.sqrt(w), 2.236, 3.994))
    return _with_ends(xp, x * xp.where(w < 5, near, far), x)


@extra
@blocked(single=_erfinv_single)
def erfinv(xp: Any, x: Any) -> Any:
    """The inverse of the error function."""
    return _erfinv(xp, x)


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
    value = minus_one * minus_two * xp.horner(_LGAMMA, on(x, 1.0, 3.0))
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
    return (x - _ROOT - _ROOT_REST) * xp.horner(_DIGAMMA, on(x, 1.0, 2.0)) + terms


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


def bessel(xp: Any, x: Any, small: tuple[float, ...], large: tuple[float, ...], odd: bool) -> Any:
    """exp(-|x|) times the function, for the absolute value of x."""
    size = xp.abs(x)
    near = xp.minimum(size, 8.0)
    centre = xp.horner(small, on(near, 0.0, 8.0)) * (near if odd else 1.0)
    far = xp.maximum(size, 8.0)
    tail = xp.horner(large, on(1 / far, 0.0, 0.125)) / xp.sqrt(far)
    return xp.where(size <= 8, centre, tail)


@extra
@blocked
def i0(xp: Any, x: Any) -> Any:
    """The modified Bessel function of the first kind, order 0."""
    return bessel(xp, x, _I0_SMALL, _I0_LARGE, False) * xp.exp(xp.abs(x))


@extra
@blocked
def i1(xp: Any, x: Any) -> Any:
    """The modified Bessel function of the first kind, order 1."""
    return xp.copysign(bessel(xp, x, _I1_SMALL, _I1_LARGE, True) * xp.exp(xp.abs(x)), x)


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
    value = xp.horner(_ERFCX, on(xp.minimum(ratio, 1.0), -0.765, 0.7638)) / (1 + 2 * x)
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
