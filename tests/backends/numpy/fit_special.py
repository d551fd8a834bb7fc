"""How adjoint/backends/numpy/coefficients.json was made:
`python -m tests.backends.numpy.fit_special` writes it.

Each polynomial is the beginning of a function's Chebyshev series, from its values in 60 digits at
128 places, brought to powers of the interval's own variable in [-1, 1] and rounded. Those for
float32, and those of erfinv, which only begin what Halley's method finishes, were found otherwise;
they are taken over as they stand.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import mpmath as mp

from adjoint.backends.numpy.coefficients import FILE

mp.mp.dps = 60
Function = Callable[[Any], Any]
PLACES = 128
FITS: dict[str, tuple[Function, Any, Any, int]] = {}


def fit(name: str, low: Any, high: Any, terms: int) -> Callable[[Function], Function]:
    """Register a function of a variable between `low` and `high`."""

    def register(f: Function) -> Function:
        FITS[name] = f, mp.mpf(low), mp.mpf(high), terms
        return f

    return register


def of_root(f: Function) -> Function:
    """f as a function of its argument's square."""
    return lambda z: f(mp.sqrt(z))


# ---- error functions -----------------------------------------------------------------------------

fit("erf", 0, 1, 13)(of_root(lambda x: mp.erf(x) / x))


@fit("erfcx", "-0.765", "0.7638", 23)
def _(u: Any) -> Any:
    x = mp.mpf("3.75") * (1 + u) / (1 - u)
    return mp.exp(x * x) * mp.erfc(x) * (1 + 2 * x)


# ---- gamma functions -----------------------------------------------------------------------------

fit("lgamma", 1, 3, 30)(lambda x: mp.loggamma(x) / ((x - 1) * (x - 2)))


@functools.cache
def root_of_digamma() -> Any:
    return mp.findroot(mp.digamma, mp.mpf("1.46163214496836234126"))


fit("digamma", 1, 2, 24)(lambda x: mp.digamma(x) / (x - root_of_digamma()))


# ---- Bessel functions ----------------------------------------------------------------------------

fit("i0_small", 0, 8, 31)(lambda x: mp.exp(-x) * mp.besseli(0, x))
fit("i1_small", 0, 8, 30)(lambda x: mp.exp(-x) * mp.besseli(1, x) / x)
for order in (0, 1):
    fit(f"i{order}_large", 0, "0.125", 27)(
        lambda i, n=order: mp.exp(-1 / i) * mp.sqrt(1 / i) * mp.besseli(n, 1 / i)
    )
    fit(f"k{order}_large", 0, 1, 24)(
        lambda i, n=order: mp.exp(2 / i) * mp.sqrt(2 / i) * mp.besselk(n, 2 / i)
    )
fit("j0", 0, 64, 17)(of_root(lambda x: mp.besselj(0, x)))
fit("j1", 0, 64, 16)(of_root(lambda x: mp.besselj(1, x) / x))
fit("y0", 0, 64, 17)(of_root(lambda x: mp.bessely(0, x) - 2 / mp.pi * mp.log(x) * mp.besselj(0, x)))
fit("y1", 0, 64, 16)(
    of_root(lambda x: (mp.bessely(1, x) - 2 / mp.pi * (mp.log(x) * mp.besselj(1, x) - 1 / x)) / x)
)
fit("k0", 0, 4, 10)(of_root(lambda x: mp.besselk(0, x) + mp.log(x) * mp.besseli(0, x)))
fit("k1", 0, 4, 10)(of_root(lambda x: x * (mp.besselk(1, x) - mp.log(x) * mp.besseli(1, x))))


def wave(order: int, odd: bool) -> Function:
    """A part of J and Y for x >= 8, as a function of (8 / x)^2: the even one, or x times the
    odd.
    """

    def part(t: Any) -> Any:
        x = 8 / mp.sqrt(t)
        j, y = (f(order, x) * mp.sqrt(mp.pi * x / 2) for f in (mp.besselj, mp.bessely))
        c, s = (f(x - (2 * order + 1) * mp.pi / 4) for f in (mp.cos, mp.sin))
        return (y * c - j * s) * x if odd else j * c + y * s

    return part


for order in (0, 1):
    fit(f"p{order}", 0, 1, 13)(wave(order, False))
    fit(f"q{order}", 0, 1, 15)(wave(order, True))


# ---- Airy ----------------------------------------------------------------------------------------

fit("ai", -4, 2, 31)(mp.airyai)


@fit("ai_large", 0, 1, 24)
def _(u: Any) -> Any:
    z = mp.mpf(2) / 3 * mp.mpf(2) ** 1.5 / u
    x = (3 * z / 2) ** (mp.mpf(2) / 3)
    return mp.airyai(x) * mp.exp(z) * mp.root(x, 4)


def airy_wave(odd: bool) -> Function:
    """A part of Ai(-x) and Bi(-x) for x >= 4, as a function of (z(4) / z)^2: the even one, or z
    times the odd.
    """

    def part(t: Any) -> Any:
        z = mp.mpf(16) / 3 / mp.sqrt(t)
        x = (3 * z / 2) ** (mp.mpf(2) / 3)
        a, b = (f(-x) * mp.sqrt(mp.pi) * mp.root(x, 4) for f in (mp.airyai, mp.airybi))
        c, s = mp.cos(z + mp.pi / 4), mp.sin(z + mp.pi / 4)
        return (b * s - a * c) * z if odd else a * s + b * c

    return part


fit("ai_p", 0, 1, 17)(airy_wave(False))
fit("ai_q", 0, 1, 21)(airy_wave(True))


# ---- the series ----------------------------------------------------------------------------------


def coefficients(f: Function, low: Any, high: Any, terms: int) -> list[float]:
    """The beginning of f's Chebyshev series between `low` and `high`, in powers."""
    half, middle = (high - low) / 2, (high + low) / 2
    angles = [mp.pi * (k + mp.mpf(1) / 2) / PLACES for k in range(PLACES)]
    values = [f(half * mp.cos(angle) + middle) for angle in angles]
    powers = [mp.mpf(0)] * terms
    last, chebyshev = [mp.mpf(0)] * terms, [mp.mpf(1)] + [mp.mpf(0)] * (terms - 1)
    for n in range(terms):
        share = 2 * mp.fsum(y * mp.cos(n * angle) for y, angle in zip(values, angles, strict=True))
        share /= PLACES * (1 if n else 2)
        powers = [p + share * c for p, c in zip(powers, chebyshev, strict=True)]
        raised = [mp.mpf(0), *((2 if n else 1) * c for c in chebyshev[:-1])]
        last, chebyshev = chebyshev, [r - p for r, p in zip(raised, last, strict=True)]
    return [float(p) for p in powers]


def main() -> None:
    entries: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
    for name, how in FITS.items():
        entries[name]["numbers"] = coefficients(*how)
    lines = (f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in entries.items())
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
