"""Bessel and Airy functions in NumPy, by the method of special.py.

Near zeros of the oscillating functions the error is a few units of 1e-16 itself, not relative to
the value.
"""

from __future__ import annotations

import math
from typing import Any

from . import extra
from .blocks import blocked, on
from .special import _I0_LARGE, _I0_SMALL, _I1_LARGE, _I1_SMALL, bessel

# J0(x) for x <= 8, in x^2
_J0 = (
    0.04582966485981377, 0.9303012472958572, -0.6484692830871837, -0.8080888076696872,
    1.0383794611437211, -0.5074680458471, 0.14598884856759264, -0.028472718610882047,
    0.004058078989140991, -0.0004435459224311503, 3.8473197855944365e-05,
    -2.717749223632098e-06, 1.5956109104549218e-07, -7.91532308295207e-09,
    3.3634475788173604e-10, -1.243301171273326e-11, 4.0037632815796753e-13,
)  # fmt: skip
# J1(x) / x for x <= 8, in x^2
_J1 = (
    -0.05814382795599107, 0.08105866038589796, 0.15151665143806636, -0.2595948652859303,
    0.15858376432721838, -0.05474581821284722, 0.012456814392263375, -0.0020290394945705996,
    0.0002494945813597261, -2.404574865968694e-05, 1.8684526037206013e-06,
    -1.196708186787801e-07, 6.431190177265836e-09, -2.943013798001659e-10,
    1.1658972367678622e-11, -4.0045728425886457e-13,
)  # fmt: skip
# Y0(x) - 2/pi log(x) J0(x) for x <= 8, in x^2
_Y0 = (
    -0.382250654459425, -0.8284358903604587, 1.6470964788745466, 0.14412632369302475,
    -1.0775477338215995, 0.6721770783431679, -0.21895747096171628, 0.046367047681375125,
    -0.00702574105727097, 0.000806158605961636, -7.279541882454115e-05, 5.3213188103997145e-06,
    -3.2185078445935923e-07, 1.6390875014077404e-08, -7.13046146536789e-10,
    2.6926938054524057e-11, -8.840112096073101e-13,
)  # fmt: skip
# (Y1(x) - 2/pi (log(x) J1(x) - 1/x)) / x for x <= 8, in x^2
_Y1 = (
    0.07075985882118005, -0.24337743079193114, 0.02336757172099348, 0.23507209206669755,
    -0.19639839859930203, 0.07854786922242532, -0.01962875683311711, 0.0034224907399188495,
    -0.0004438173434420147, 4.467433012646365e-05, -3.601000022590458e-06,
    2.3804930420514178e-07, -1.3153147367094951e-08, 6.169688029066965e-10,
    -2.499531546171249e-11, 8.760001143977853e-13,
)  # fmt: skip
# J0 and Y0 for x >= 8 are waves of size sqrt(2 / (pi x)): their parts, in (8 / x)^2
_P0 = (
    0.9994572757882519, -0.0005363673192129672, 6.137416080109497e-06, -2.0527448261170675e-07,
    1.280376144080092e-08, -1.2121098178951377e-09, 1.5500565496632596e-10,
    -2.491146535471666e-11, 4.786995821368028e-12, -1.0157485021065676e-12,
    2.4531772967345006e-13, -1.0251790052831013e-13, 3.339452259070809e-14,
)  # fmt: skip
_Q0 = (
    -0.12444091103610815, 0.0005466519279475266, -1.1817110661200976e-05, 5.684971881753781e-07,
    -4.534972837363434e-08, 5.146231602705606e-09, -7.5763304988972e-10, 1.3623497617833053e-10,
    -2.8707211071105146e-11, 6.951785915752245e-12, -1.873640743543296e-12,
    4.605060470396763e-13, -1.3137515498826537e-13, 1.0185094098694355e-13,
    -4.0574096424030336e-14,
)  # fmt: skip
# Likewise J1 and Y1
_P1 = (
    1.0009070262780821, 0.0008988049416705183, -7.9596946984383e-06, 2.453676633366693e-07,
    -1.4708512991275258e-08, 1.3602969253877949e-09, -1.713107485294131e-10,
    2.72345126828134e-11, -5.191158004646548e-12, 1.0954826479277623e-12,
    -2.6335760672461096e-13, 1.0923713653079462e-13, -3.5455617466606254e-14,
)  # fmt: skip
_Q1 = (
    0.3742149922195918, -0.0007697167057643706, 1.4569614809851411e-05, -6.633568561050814e-07,
    5.136105997071193e-08, -5.720890888840857e-09, 8.316077350038262e-10,
    -1.4816588916791194e-10, 3.100364837230575e-11, -7.465104477698295e-12,
    2.002728774766585e-12, -4.91574062967655e-13, 1.3996264453471973e-13,
    -1.0759215471978615e-13, 4.275621822194818e-14,
)  # fmt: skip
# K0(x) + log(x) I0(x) for x <= 2, in x^2
_K0 = (
    0.7819051943679178, 0.7812430851107339, 0.12278562011464675, 0.00777646646981443,
    0.00026585892882551336, 5.6886558483558625e-06, 8.336543759122888e-08,
    8.891855786815677e-10, 7.213074767157564e-12, 4.599367348002837e-14,
)  # fmt: skip
# x (K1(x) - log(x) I1(x)) for x <= 2, in x^2
_K1 = (
    0.003596759534882721, -1.4177669225239864, -0.4642114109164199, -0.0448571051438524,
    -0.002063937303273545, -5.55293647529854e-05, -9.804715715219598e-07,
    -1.2236673026460956e-08, -1.136995749505971e-10, -8.170379013183699e-13,
)  # fmt: skip
# exp(x) sqrt(x) K0(x) for x >= 2, in 2 / x
_K0_LARGE = (
    1.2185953385133905, -0.03107146182488952, 0.0030328918102753206, -0.0004797690567662314,
    9.95605474202942e-05, -2.4735204561466906e-05, 7.002245645755651e-06,
    -2.191177788015528e-06, 7.427801232190096e-07, -2.6890662472901614e-07,
    1.02954317593912e-07, -4.133923052104385e-08, 1.7047535884249698e-08,
    -7.286380907337665e-09, 3.808399859919043e-09, -1.9309444875845705e-09,
    4.757544705776374e-11, 1.7887095838476482e-10, 8.133913205464114e-10,
    -5.541051446065683e-10, -3.119936129682105e-10, 2.213758097591008e-10,
    1.0926983537268735e-10, -6.910453875670571e-11,
)  # fmt: skip
# Likewise K1
_K1_LARGE = (
    1.363151890371342, 0.10334973775386523, -0.005566729880074588, 0.0007357241549081501,
    -0.00013959021956272223, 3.284386555825453e-05, -8.961207387750025e-06,
    2.730041433569803e-06, -9.067087633371393e-07, 3.2298119177151824e-07,
    -1.2203186351938403e-07, 4.8461952200091865e-08, -1.9817577141591116e-08,
    8.40938756536177e-09, -4.331939985658629e-09, 2.1757782025837176e-09,
    -8.336227195991456e-11, -1.7982138496175016e-10, -8.908596710923906e-10,
    6.042482293782838e-10, 3.3867804167808003e-10, -2.399376595899464e-10,
    -1.1931668393112158e-10, 7.52479548635394e-11,
)  # fmt: skip
# Ai(x) for -4 <= x <= 2
_AI = (
    0.5355608832923521, -0.030481701349935518, -2.4100239748155845, 2.45574652684047,
    1.738934153074326, -4.358618303078402, 1.6884916282343785, 2.051875877617018,
    -2.3728414078121514, 0.37669987612774675, 0.8528469041153786, -0.6132456100953199,
    0.01890359448929538, 0.18298768302943746, -0.09191078854232448, -0.005411907421033433,
    0.02403276302266418, -0.008944316566560384, -0.001184352339191269, 0.0021324799755411887,
    -0.000607494333250199, -0.00012151208173716436, 0.00013649715102700242,
    -3.0593233722064465e-05, -8.205752997713773e-06, 6.855006558696347e-06,
    -1.1317719509106102e-06, -5.327418162824017e-07, 2.46564165796707e-07, 9.65803696882359e-09,
    -1.583914458741765e-08,
)  # fmt: skip
# Ai(x) exp(z) x^(1/4) for x >= 2 and z = 2/3 x^(3/2), in z(2) / z
_AI_LARGE = (
    0.2774908024616546, -0.004122380595849492, 0.00039865677489458394, -6.427592277639402e-05,
    1.3671255956557227e-05, -3.48510926832708e-06, 1.0121089942839848e-06,
    -3.2469847170697346e-07, 1.1275577071064085e-07, -4.1784065501727926e-08,
    1.6367236117824575e-08, -6.719726003246205e-09, 2.8166320000272914e-09,
    -1.222777570196559e-09, 6.818549500561053e-10, -3.6072835750548884e-10,
    -2.1434131696095418e-11, 5.675664435142866e-11, 1.749196885799203e-10,
    -1.2269533339116626e-10, -7.049891461629668e-11, 5.0803583637066e-11, 2.375331300539151e-11,
    -1.5345958367818006e-11,
)  # fmt: skip
# Ai(-x) for x >= 4 is a wave of size x^(-1/4) / sqrt(pi): its parts, in (z(4) / z)^2
_AI_P = (
    0.999363720981151, -0.0006209941418019416, 1.4258707704202032e-05, -9.054529720196242e-07,
    1.0042141850557856e-07, -1.5925134157474398e-08, 3.2415457394751385e-09,
    -7.938135001056149e-10, 2.2418198239897425e-10, -6.96436403087975e-11,
    2.3609157642375446e-11, -1.1002442862433134e-11, 5.0070505381947506e-12,
    2.2103630245487498e-13, -4.907191544829305e-13, -1.0992152516140823e-12,
    6.271597555609459e-13,
)  # fmt: skip
_AI_Q = (
    0.0688085741766544, -0.0006071316848869089, 2.6011127080243395e-05, -2.3247007302733242e-06,
    3.229739057938273e-07, -6.030167966064036e-08, 1.3918092556485584e-08,
    -3.768710626282985e-09, 1.1561114150371971e-09, -3.910583782107902e-10,
    1.433534811539447e-10, -5.953716438186271e-11, 2.635734010744309e-11, -5.50298739759466e-12,
    4.37522181117515e-13, -8.065123708443022e-12, 5.8084773400279245e-12, 3.246731273922323e-12,
    -2.5742724427964975e-12, -1.3647556331014607e-12, 9.283456439366537e-13,
)  # fmt: skip


_ROOT_HALF = math.sqrt(0.5)
_TWO_OVER_PI = 2 / math.pi


@extra
@blocked
def i0e(xp: Any, x: Any) -> Any:
    """exp(-|x|) I0(x)."""
    return bessel(xp, x, _I0_SMALL, _I0_LARGE, False)


@extra
@blocked
def i1e(xp: Any, x: Any) -> Any:
    """exp(-|x|) I1(x)."""
    return xp.copysign(bessel(xp, x, _I1_SMALL, _I1_LARGE, True), x)


# ---- first and second kind -----------------------------------------------------------------------


def _small(xp: Any, coefficients: tuple[float, ...], x: Any) -> Any:
    return xp.horner(coefficients, on(x * x, 0.0, 64.0))


def _wave(
    xp: Any, x: Any, p: tuple[float, ...], q: tuple[float, ...], order: int, second: bool
) -> Any:
    """J (or Y, where `second`) of an order for x >= 8."""
    inverse = 1 / x
    t = on(64 * inverse * inverse, 0.0, 1.0)
    even, odd = xp.horner(p, t), xp.horner(q, t) * inverse
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
    return xp.split(
        size > 8,
        lambda s: _wave(xp, s, _P0, _Q0, 0, False),
        lambda s: _small(xp, _J0, s),
        size,
    )


@extra
@blocked
def bessel_j1(xp: Any, x: Any) -> Any:
    """The Bessel function of the first kind, order 1."""
    size = xp.abs(x)
    value = xp.split(
        size > 8,
        lambda s: _wave(xp, s, _P1, _Q1, 1, False),
        lambda s: s * _small(xp, _J1, s),
        size,
    )
    return xp.where(x < 0, -value, value)


def _y0_near(xp: Any, x: Any) -> Any:
    return _small(xp, _Y0, x) + _TWO_OVER_PI * xp.log(x) * _small(xp, _J0, x)


def _y1_near(xp: Any, x: Any) -> Any:
    part = x * (_small(xp, _Y1, x) + _TWO_OVER_PI * xp.log(x) * _small(xp, _J1, x))
    return xp.where(x == 0, -math.inf, part - _TWO_OVER_PI / x)


@extra
@blocked
def bessel_y0(xp: Any, x: Any) -> Any:
    """The Bessel function of the second kind, order 0; NaN for negative numbers."""
    return xp.split(x > 8, lambda s: _wave(xp, s, _P0, _Q0, 0, True), lambda s: _y0_near(xp, s), x)


@extra
@blocked
def bessel_y1(xp: Any, x: Any) -> Any:
    """The Bessel function of the second kind, order 1; NaN for negative numbers."""
    return xp.split(x > 8, lambda s: _wave(xp, s, _P1, _Q1, 1, True), lambda s: _y1_near(xp, s), x)


# ---- modified, second kind -----------------------------------------------------------------------


def _k0_near(xp: Any, x: Any) -> Any:
    """K0(x) for x <= 2."""
    first = bessel(xp, x, _I0_SMALL, _I0_LARGE, False) * xp.exp(x)
    return xp.horner(_K0, on(x * x, 0.0, 4.0)) - xp.log(x) * first


def _k1_near(xp: Any, x: Any) -> Any:
    """K1(x) for x <= 2."""
    first = bessel(xp, x, _I1_SMALL, _I1_LARGE, True) * xp.exp(x)
    value = xp.log(x) * first + xp.horner(_K1, on(x * x, 0.0, 4.0)) / x
    return xp.where(x == 0, math.inf, value)


def _k_far(xp: Any, x: Any, coefficients: tuple[float, ...]) -> Any:
    """exp(x) K(x) for x >= 2."""
    inverse = 1 / x
    return xp.horner(coefficients, on(2 * inverse, 0.0, 1.0)) * xp.sqrt(inverse)


@extra
@blocked
def bessel_k0(xp: Any, x: Any) -> Any:
    """The modified Bessel function of the second kind, order 0; NaN for negative numbers."""
    return xp.split(
        x > 2, lambda s: _k_far(xp, s, _K0_LARGE) * xp.exp(-s), lambda s: _k0_near(xp, s), x
    )


@extra
@blocked
def bessel_k1(xp: Any, x: Any) -> Any:
    """The modified Bessel function of the second kind, order 1; NaN for negative numbers."""
    return xp.split(
        x > 2, lambda s: _k_far(xp, s, _K1_LARGE) * xp.exp(-s), lambda s: _k1_near(xp, s), x
    )


@extra
@blocked
def bessel_k0e(xp: Any, x: Any) -> Any:
    """exp(x) K0(x)."""
    return xp.split(
        x > 2, lambda s: _k_far(xp, s, _K0_LARGE), lambda s: _k0_near(xp, s) * xp.exp(s), x
    )


@extra
@blocked
def bessel_k1e(xp: Any, x: Any) -> Any:
    """exp(x) K1(x)."""
    return xp.split(
        x > 2, lambda s: _k_far(xp, s, _K1_LARGE), lambda s: _k1_near(xp, s) * xp.exp(s), x
    )


# ---- Airy ----------------------------------------------------------------------------------------

_Z_TWO, _Z_FOUR = 2 / 3 * 2**1.5, 16 / 3


def _airy_far(xp: Any, x: Any) -> Any:
    """Ai(x) for x >= 2."""
    root = xp.sqrt(x)
    z = 2 / 3 * x * root
    return xp.horner(_AI_LARGE, on(_Z_TWO / z, 0.0, 1.0)) * xp.exp(-z) / xp.sqrt(root)


def _airy_wave(xp: Any, x: Any) -> Any:
    """Ai(-x) for x >= 4."""
    root = xp.sqrt(x)
    z = 2 / 3 * x * root
    ratio = _Z_FOUR / z
    t = on(ratio * ratio, 0.0, 1.0)
    s, c = xp.sin(z), xp.cos(z)
    value = xp.horner(_AI_P, t) * (s + c) - xp.horner(_AI_Q, t) / z * (c - s)
    value = value * (_ROOT_HALF / math.sqrt(math.pi))
    return xp.where(xp.isinf(x), 0.0, value / xp.sqrt(root))


@extra
@blocked
def airy_ai(xp: Any, x: Any) -> Any:
    """The Airy function Ai."""

    def inside(s: Any) -> Any:
        return xp.split(
            s > 2, lambda t: _airy_far(xp, t), lambda t: xp.horner(_AI, on(t, -4.0, 2.0)), s
        )

    return xp.split(x < -4, lambda s: _airy_wave(xp, -s), inside, x)
