"""Errors of the compiled elementary functions, in units in the last place.

`python tests/backends/codegen/ulps.py` measures every float32 argument (half a minute a function);
the tests take samples.
"""

from __future__ import annotations

import sys
import time

import mpmath
import numpy as np
import scipy.special

from adjoint.backends.codegen import Compiled, Kernel
from adjoint.backends.codegen.ir import MATHS

TRUTH = {  # in float64, good to about one unit there
    "sigmoid": scipy.special.expit,
    "erf": scipy.special.erf,
    "erfc": scipy.special.erfc,
    **{
        name: getattr(np, "arc" + name[1:])
        for name in ["asin", "acos", "atan", "asinh", "acosh", "atanh"]
    },
}
UNARY = [*MATHS, "sqrt", "rsqrt", "reciprocal"]
TRUTH |= {"rsqrt": lambda x: 1 / np.sqrt(x), "reciprocal": lambda x: 1 / x}


def compiled(name: str, dtype: str) -> Compiled:
    k = Kernel(rank=1)
    arity = 2 if name in ("pow", "atan2") else 1
    k.output(k.op(name, *(k.input(dtype) for _ in range(arity))))
    return Compiled(k)


def errors(y: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Of float32 results against float64 ones; NaN and infinity must be where they belong."""
    with np.errstate(all="ignore"):
        true = np.where(np.abs(true) < 2.0**-160, np.copysign(0.0, true), true)
        _, exponent = np.frexp(true)
        unit = np.ldexp(1.0, np.maximum(exponent, -125) - 24)
        error = np.abs(y.astype(np.float64) - true) / unit
        nearest = true.astype(np.float32)  # also right where the true value overflows
        error = np.where(
            (y == nearest) | (np.isnan(y) & np.isnan(true)),
            np.minimum(np.nan_to_num(error), 0.5),
            error,
        )
        # infinity for a finite value: as far as the value after the greatest
        top = np.isinf(y) & (np.abs(true) > 3.4028234663852886e38) & (np.sign(y) == np.sign(true))
        error = np.where(top, 0.5, error)
        wrong_sign = (y == 0) & (np.signbit(y) != np.signbit(true))
        return np.where(np.isnan(error) | wrong_sign, np.inf, error)


def truth(name: str, *args: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return TRUTH.get(name, getattr(np, name, None))(*(a.astype(np.float64) for a in args))


MP = {
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "exp2": lambda x: mpmath.power(2, x),
    "log2": lambda x: mpmath.log(x, 2),
    "log10": lambda x: mpmath.log(x, 10),
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "pow": mpmath.power,
}


def errors64(name: str, y: np.ndarray, *args: np.ndarray) -> np.ndarray:
    """Of float64 results against mpmath's."""
    f = MP.get(name) or getattr(mpmath, name)
    result = []
    with mpmath.workdps(60):
        for got, *x in zip(y.tolist(), *(a.tolist() for a in args), strict=True):
            with mpmath.workdps(400 if max(map(abs, x)) > 1e15 or min(map(abs, x)) < 1e-15 else 60):
                true = f(*map(mpmath.mpf, x))
            if isinstance(true, mpmath.mpc) or mpmath.isnan(true):
                result.append(0.0 if np.isnan(got) else np.inf)
            elif mpmath.isinf(true) or abs(true) >= mpmath.mpf(2) ** 1024 * (
                1 - mpmath.mpf(2) ** -54
            ):
                result.append(0.0 if np.isinf(got) and (got > 0) == (true > 0) else np.inf)
            else:
                _, exponent = mpmath.frexp(true)
                unit = mpmath.ldexp(1, max(exponent, -1021) - 53)
                result.append(
                    float(abs(mpmath.mpf(got) - true) / unit) if np.isfinite(got) else np.inf
                )
    return np.array(result)


def suspects(name: str) -> Compiled:
    """A kernel that marks the float32 arguments whose error may be more than a given one.

    Truth is our own float64 function, which the tests hold against mpmath.
    """
    k = Kernel(rank=1)
    x, limit = k.input("float32"), k.scalar("float64")
    y, true = k.op(name, x), k.op(name, k.cast(x, "float64"))
    relative = k.abs(k.cast(y, "float64") - true) / k.maximum(k.abs(true), 2.0**-126)
    same = k.eq(y, k.cast(true, "float32")) | (k.isnan(y) & k.isnan(true))
    k.output(~(same | (relative * 2.0**24 <= limit)))
    return Compiled(k)


def every(name: str) -> tuple[float, float]:
    """The greatest error over all float32 numbers, and where."""
    f, g, marked = compiled(name, "float32"), compiled(name, "float64"), suspects(name)
    worst, where = 0.5, 0.0
    step = 1 << 20
    for start in range(0, 1 << 32, step):
        every_x = np.arange(start, start + step, dtype=np.uint32).view(np.float32)
        x = every_x[marked(every_x, scalars=(worst,))]
        if not x.size:
            continue
        e = errors(f(x), g(x.astype(np.float64)))
        k = int(e.argmax())
        if e[k] > worst:
            worst, where = float(e[k]), float(x[k])
    return worst, where


if __name__ == "__main__":
    for name in sys.argv[1:] or UNARY:
        begun = time.perf_counter()
        worst, where = every(name)
        print(
            f"{name:10} {worst:6.3f} ulp at {where!r}  ({time.perf_counter() - begun:.0f} s)",
            flush=True,
        )
