"""How adjoint/backends/codegen/coefficients.json was made: `python tests/backends/codegen/fit.py`
writes it.

Each polynomial is the best one in the sense of the greatest relative error (Remez's exchange, in 60
digits), after which its coefficients are rounded; those of float32 so that together they are near.
How near is found with NumPy's products, so the last bits of ERF_TABLE_32 differ between machines.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np

from adjoint.backends.codegen.coefficients import FILE

mp.mp.dps = 60
Function = Callable[[Any], Any]


def remez(f: Function, weight: Function, low: Any, high: Any, terms: int) -> tuple[list[Any], Any]:
    """Coefficients c of sum c[k] x**k nearest to f, error times weight; and that error."""
    n = terms + 1
    points = [
        (low + high) / 2 + (high - low) / 2 * mp.cos(mp.pi * (n - 1 - i) / (n - 1))
        for i in range(n)
    ]
    points = [min(max(p, low), high) for p in points]
    grid = [low + (high - low) * (1 - mp.cos(mp.pi * i / 800)) / 2 for i in range(801)]
    floor = (
        max(weight(x) for x in grid) / 1000
    )  # a weight of zero would leave a point without error
    values = [(x, f(x), max(weight(x), floor)) for x in grid]
    for _ in range(12):
        rows = [
            [x**k for k in range(terms)] + [(-1) ** i / max(weight(x), floor)]
            for i, x in enumerate(points)
        ]
        solution = list(mp.lu_solve(mp.matrix(rows), mp.matrix([f(x) for x in points])))
        c, level = solution[:-1], abs(solution[-1])
        errors = [(w * (y - mp.polyval(c[::-1], x)), x) for x, y, w in values]
        best: list[tuple[Any, Any]] = []  # the greatest error of each run of one sign
        for error, x in errors:
            if best and (error > 0) == (best[-1][0] > 0):
                if abs(error) > abs(best[-1][0]):
                    best[-1] = (error, x)
            else:
                best.append((error, x))
        while len(best) > n:
            best.pop(0 if abs(best[0][0]) < abs(best[-1][0]) else -1)
        if len(best) < n:
            break
        points = [x for _, x in best]
        worst = max(abs(e) for e, _ in best)
        if worst < level * mp.mpf("1.01"):
            break
    return c, max(abs(e) for e, _ in errors)


def one(_: Any) -> Any:
    return mp.mpf(1)


def over(f: Function) -> Function:
    """Relative to f."""
    return lambda x: 1 / abs(f(x))


def at_zero(value: Any, f: Function) -> Function:
    """f, with a value near 0, where its formula cancels."""
    return lambda x: mp.mpf(value) if abs(x) < mp.mpf(10) ** -18 else f(x)


H = mp.log(2) / 2
Q2 = (mp.pi / 4) ** 2
R = mp.sqrt


def log_tail(x: Any) -> Any:  # log(1 + x) = x + x**2 tail(x)
    return at_zero("-0.5", lambda x: (mp.log1p(x) - x) / x**2)(x)


def log2_quotient(x: Any) -> Any:  # log2(1 + x) = x quotient(x)
    return at_zero(1 / mp.log(2), lambda x: mp.log1p(x) / x / mp.log(2))(x)


def odd(f: Function, third: Any) -> Function:
    """T with f(x) = x + x**3 T(x**2)."""
    return at_zero(third, lambda z: (f(R(z)) - R(z)) / (z * R(z)))


TINY = mp.mpf(10) ** -12
FITS: list[tuple[str, str, Function, Function, Any, Any, int]] = []


def fit(
    name: str, dtype: str, f: Function, weight: Function, low: Any, high: Any, terms: int
) -> None:
    FITS.append((name, dtype, f, weight, mp.mpf(low), mp.mpf(high), terms))


def exp_tail(x: Any) -> Any:  # exp(x) = 1 + x + x**2 tail(x)
    return at_zero("0.5", lambda x: (mp.expm1(x) - x) / x**2)(x)


for dtype, terms in (("float32", 5), ("float64", 10)):
    fit("EXP", dtype, exp_tail, lambda x: x * x / mp.exp(x), -H, H, terms)
fit(
    "LOG", "float32",
    log_tail,
    lambda x: at_zero(0, lambda x: abs(x**2 / mp.log1p(x)))(x),
    "-0.25", "0.5", 9,
)  # fmt: skip
fit("POW_LOG2", "float64", log2_quotient, over(log2_quotient), "-0.25", "0.5", 13)


def atanh_tail(z: Any) -> Any:  # log((1 + s) / (1 - s)) = 2 s + s z tail(z), z = s**2
    return at_zero(
        "0.66666666666666666666666667", lambda z: (2 * mp.atanh(R(z)) - 2 * R(z)) / (R(z) * z)
    )(z)


fit("LOG", "float64", atanh_tail, lambda z: z / 2, 0, "0.04", 8)
for dtype, terms in (("float32", 3), ("float64", 6)):
    fit("SIN", dtype, odd(mp.sin, -mp.mpf(1) / 6), lambda z: z, 0, Q2, terms)
    fit(
        "COS", dtype,
        at_zero(mp.mpf(1) / 24, lambda z: (mp.cos(R(z)) - 1 + z / 2) / z**2),
        lambda z: z * z, 0, Q2, terms,
    )  # fmt: skip
fit("TAN", "float32", odd(mp.tan, mp.mpf(1) / 3), lambda z: z, 0, Q2, 7)
fit("ATANH", "float32", odd(mp.atanh, mp.mpf(1) / 3), lambda z: z, 0, "0.25", 6)
fit("ATAN", "float32", odd(mp.atan, -mp.mpf(1) / 3), lambda z: z, 0, 1, 9)
fit(
    "ATAN",
    "float64",
    odd(mp.atan, -mp.mpf(1) / 3),
    lambda z: z,
    0,
    mp.tan(mp.pi / 8) ** 2 * mp.mpf("1.001"),
    11,
)
fit("ASIN", "float32", odd(mp.asin, mp.mpf(1) / 6), lambda z: z, 0, "0.361", 7)
fit("ASIN", "float64", odd(mp.asin, mp.mpf(1) / 6), lambda z: z, 0, "0.25", 12)
fit("SINH", "float32", odd(mp.sinh, mp.mpf(1) / 6), lambda z: z, 0, 1, 4)
fit("SINH", "float64", odd(mp.sinh, mp.mpf(1) / 6), lambda z: z, 0, 1, 7)


def exp_of_double_tail(r: Any) -> Any:  # exp(2 r) = 1 + 2 r + r**2 tail(r)
    return 4 * exp_tail(2 * r)


for dtype, near, far in (("float32", 4, 5), ("float64", 11, 10)):
    fit("TANH", dtype, odd(mp.tanh, -mp.mpf(1) / 3), lambda z: z, 0, "0.314", near)
    weight = lambda r: r * r / mp.exp(2 * r)  # noqa: E731 - as in the other fits
    fit("TANH_EXP", dtype, exp_of_double_tail, weight, -H / 2, H / 2, far)
fit(
    "ERF_SMALL", "float32",
    at_zero(2 / R(mp.pi) - 1, lambda z: mp.erf(R(z)) / R(z) - 1),
    lambda z: 1 / (1 + z), 0, "0.87", 6,
)  # fmt: skip
fit(
    "ERF_LARGE",
    "float32",
    lambda x: mp.log(mp.erfc(x), 2),
    lambda x: mp.log(2) * mp.erfc(x) / mp.erf(x),
    "0.92",
    "4",
    7,
)
fit("EXP2", "float32", lambda r: mp.power(2, r), lambda r: mp.power(2, -r), "-0.5", "0.5", 6)


fit("POW_EXP2", "float64", lambda r: mp.power(2, r), lambda r: mp.power(2, -r), "-0.5", "0.5", 7)


def erfc_scaled(t: Any) -> Any:  # t = (x - 2) / (x + 2)
    x = 2 * (1 + t) / (1 - t)
    return (x + 2) * mp.exp(x * x) * mp.erfc(x)


fit(
    "ERFC", "float32",
    erfc_scaled, over(erfc_scaled),
    -1, mp.mpf("8.1") / mp.mpf("12.1"), 11,
)  # fmt: skip


def nearest(c: list[Any], f: Function, weight: Function, low: Any, high: Any) -> tuple[float, ...]:
    """float32 coefficients near c: rounded, then moved by units, alone and in pairs, as long as
    the greatest error gets smaller.
    """
    points = [low + (high - low) * (1 - mp.cos(mp.pi * i / 300)) / 2 for i in range(301)]
    x, y, w = (np.array([float(g(p)) for p in points]) for g in (lambda p: p, f, weight))
    powers = w * x ** np.arange(len(c))[:, None]
    best = np.array([float(v) for v in c], np.float32)

    def error(d: Any) -> float:
        return float(np.abs(d.astype(np.float64) @ powers - w * y).max())

    least = error(best)
    moves = [(i, j) for i in range(len(c)) for j in range(i, len(c))]
    improved = True
    while improved:
        improved = False
        for (i, j), up, down in itertools.product(moves, (-np.inf, np.inf), (-np.inf, np.inf)):
            tried = best.copy()
            tried[i] = np.nextafter(tried[i], np.float32(up))
            if i != j:
                tried[j] = np.nextafter(tried[j], np.float32(down))
            if error(tried) < least:
                best, least, improved = tried, error(tried), True
    return tuple(best.tolist())


def erf_near_eighths() -> list[tuple[float, ...]]:
    """For each eighth below 4 the coefficients of erf around it; less x itself around 0, where
    rounding them would cost most.
    """
    half, end = mp.mpf(1) / 16, mp.mpf("3.93")
    slope = at_zero(2 / R(mp.pi) - 1, lambda t: mp.erf(t) / t - 1)
    weight = lambda t: 1 / (1 + slope(t))  # noqa: E731 - as in the other fits
    c, _ = remez(slope, weight, mp.mpf(0), half, 4)
    rows = [(0.0, *nearest(c, slope, weight, mp.mpf(0), half))]
    for i in range(1, 31):
        near = lambda t, i=i: mp.erf(mp.mpf(i) / 8 + t)  # noqa: E731
        c, _ = remez(near, over(near), -half, half, 5)
        rows.append(nearest(c, near, over(near), -half, half))
    first = 1 - mp.mpf(2) ** -24  # the last one right at its ends, so that erf gets to 1
    ends = [(t, mp.erf(mp.mpf(31) / 8 + t) - first) for t in (-half, end - mp.mpf(31) / 8)]
    c = mp.lu_solve(mp.matrix([[t, t * t] for t, _ in ends]), mp.matrix([y for _, y in ends]))
    rows.append((float(first), *(float(np.float32(float(x))) for x in c), 0.0, 0.0))
    return rows


def quarters() -> list[tuple[Any, Any, Any]]:
    """Start, middle and end of each quarter of an octave from 2**-4 to 2**4. The first is for all
    below it, too, and has 0 for its middle.
    """
    found = []
    for i in range(32):
        width = mp.mpf(2) ** (i // 4 - 6)
        low = (4 + i % 4) * width
        start, middle = (low, low + width / 2) if i else (mp.mpf(0), mp.mpf(0))
        found.append((start, middle, low + width))
    return found


def near_quarters(f: Function) -> list[list[Any]]:
    """The coefficients of f around the middle of each."""
    found = []
    for start, middle, end in quarters():
        near = lambda t, m=middle: f(m + t)  # noqa: E731 - as in the other fits
        weight = over(near) if start else one
        found.append(remez(near, weight, start - middle, end - middle, 6)[0])
    return found


def by_bits(rows: list[list[Any]]) -> list[tuple[float, ...]]:
    """What belongs to quarters, in the order of the bits of a float32 from the 21st on."""
    return [tuple(float(np.float32(float(x))) for x in c) for c in rows[20:] + rows[:20]]


def tanh_near_quarters() -> list[tuple[float, ...]]:
    """Around 0 less x itself; from 8 on it gets to 1."""
    rows = near_quarters(mp.tanh)
    slope = at_zero(0, lambda t: mp.tanh(t) / t - 1)
    c, _ = remez(slope, lambda t: 1 / (1 + slope(t)), mp.mpf(0), mp.mpf("0.078125"), 5)
    rows[0] = [0, *c]
    rows[28][0] = 1
    rows[29:] = [[1, 0, 0, 0, 0, 0]] * 3
    return by_bits(rows)


def found(
    dtype: str, f: Function, weight: Function, low: Any, high: Any, terms: int
) -> tuple[tuple[float, ...], Any]:
    """The rounded coefficients of a fit, and its error before they were rounded."""
    c, error = remez(f, weight, low, high, terms)
    if dtype == "float32":
        return nearest(c, f, weight, low, high), error
    return tuple(map(float, c)), error


def main() -> None:
    entries: dict[str, dict[str, Any]] = {}
    for name, dtype, *how in FITS:
        numbers, error = found(dtype, *how)
        error = f"2**{float(mp.log(error, 2)):.1f}"
        entries[f"{name}_{dtype[-2:]}"] = {"error": error, "numbers": numbers}
    entries["QUARTERS_32"] = {
        "what": "the middles of quarters of an octave, by a float32's bits from the 21st on",
        "numbers": [x for (x,) in by_bits([[middle] for _, middle, _ in quarters()])],
    }
    tables = {
        "ERF": erf_near_eighths(),
        "ERFCX": by_bits(near_quarters(lambda x: mp.exp(x * x) * mp.erfc(x))),
        "TANH": tanh_near_quarters(),
    }
    for name, rows in tables.items():
        entries[f"{name}_TABLE_32"] = {
            "what": "a column for each place that lookup() takes",
            "numbers": list(zip(*rows, strict=True)),
        }
    lines = (f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in entries.items())
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
