"""The elementary functions: greatest errors in units in the last place, and special values."""

import functools

import numpy as np
import pytest
import scipy.special

from adjoint.backends.codegen import maths

from ...sweep import swept
from .ulps import UNARY, compiled, errors, errors64, truth

SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0]


@functools.cache
def samples32() -> np.ndarray:
    """Four million float32: all exponents, and where the functions are hard."""
    rng = np.random.default_rng(0)
    return np.concatenate(
        [
            rng.integers(0, 1 << 32, 2_500_000, dtype=np.uint32).view(np.float32),
            *(rng.uniform(-r, r, 400_000).astype(np.float32) for r in (1, 2, 12, 110)),
            np.float32([*SPECIAL, 1e-45, -1e-45, 3.4e38, -3.4e38]),
        ]
    )


@functools.cache
def samples64() -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.concatenate(
        [
            rng.integers(0, 1 << 64, 150, dtype=np.uint64).view(np.float64),
            *(rng.uniform(-r, r, 250) for r in (1, 2, 12, 750)),
            rng.uniform(0.9, 1.1, 100),
            10 ** rng.uniform(-8, 8, 100),
            np.array([*SPECIAL, 5e-324, -5e-324, 1.7e308, -1.7e308]),
        ]
    )


@pytest.mark.parametrize("every", [20, swept(1)])
@pytest.mark.parametrize("name", UNARY)
def test_float32_is_within_two_units(name, every):
    x = np.concatenate([samples32()[::every], samples32()[-20:]])  # which are special
    assert errors(compiled(name, "float32")(x), truth(name, x)).max() <= 2


@pytest.mark.parametrize(("name", "end"), [("erf", 3.93), ("tanh", 9.02)])
def test_get_to_one_and_no_further(name, end):
    x = np.linspace(0, end, 1_000_000, dtype=np.float32)
    y = compiled(name, "float32")(np.concatenate([x, np.float32([end, 50, 3e38, np.inf])]))
    assert y.max() == 1 and (y[-4:] == 1).all()
    np.testing.assert_array_equal(compiled(name, "float32")(-x), -y[:-4])


def test_square_roots_are_correctly_rounded():
    mantissas = np.arange(0x3F800000, 0x40800000, dtype=np.uint32).view(np.float32)  # 1 to 4
    numbers = np.abs(samples32()[~np.isnan(samples32())])
    for x in (mantissas, mantissas * np.float32(2.0**-101), numbers):
        assert compiled("sqrt", "float32")(x).tobytes() == np.sqrt(x).tobytes()
    assert np.isnan(compiled("sqrt", "float32")(np.float32([-1, -1e-45, -np.inf]))).all()


@pytest.mark.parametrize("every", [4, swept(1)])
@pytest.mark.parametrize("name", UNARY)
def test_float64_is_within_four_units(name, every):
    x = np.concatenate([samples64()[::every], samples64()[-15:]])  # which are special
    y = compiled(name, "float64")(x)
    inside = np.isfinite(x)
    if name in ("log", "log2", "log10", "rsqrt", "reciprocal", "log1p", "atanh"):
        inside &= (x != 0) & (np.abs(x) != 1)  # poles, which mpmath refuses
    if name == "erfc":
        inside &= x < 1e3  # mpmath's asymptotic series does not end
    assert errors64(name, y[inside], x[inside]).max() <= 4
    with np.errstate(all="ignore"):
        wanted = truth(name, x[~inside])
    np.testing.assert_array_equal(y[~inside], wanted)
    np.testing.assert_array_equal(np.signbit(y[x == 0]), np.signbit(truth(name, x[x == 0])))


def grid(dtype: str, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Random pairs, and all pairs of special values."""
    edges = np.array([*SPECIAL, 3, -3, 4, 1e30, -1e30, 2.0**24 - 1, 2.0**24, 0.75, 1e-30], dtype)
    x, y = (a.ravel() for a in np.meshgrid(edges, edges))
    spread = np.exp(rng.uniform(-60, 60, n)) * rng.choice([-1, 1], n)
    first = [x, np.abs(rng.normal(1, 0.5, n)), spread, rng.normal(0, 3, n)]
    second = [y, rng.uniform(-80, 80, n), rng.normal(0, 1, n), rng.integers(-9, 9, n)]
    return np.concatenate(first).astype(dtype), np.concatenate(second).astype(dtype)


@pytest.mark.parametrize(("name", "f"), [("pow", np.power), ("atan2", np.arctan2)])
def test_two_arguments(name, f):
    x, y = grid("float32", np.random.default_rng(0), 400_000)
    got = compiled(name, "float32")(x, y)
    with np.errstate(all="ignore"):
        wanted = f(x.astype(np.float64), y.astype(np.float64))
    assert errors(got, wanted).max() <= (4 if name == "pow" else 2)
    x, y = grid("float64", np.random.default_rng(0), 20_000)
    got = compiled(name, "float64")(x, y)
    with np.errstate(all="ignore"):
        wanted = f(x.astype(np.longdouble), y.astype(np.longdouble)).astype(np.float64)
        finite = np.isfinite(wanted) & (wanted != 0)
        np.testing.assert_array_equal(got[~finite], wanted[~finite])
        assert (np.abs(got - wanted)[finite] <= 4 * np.spacing(np.abs(wanted[finite]))).all()


def test_every_float32_that_matters_to_the_reduction_of_angles():
    """Multiples of a quarter turn, where most digits cancel."""
    turns = np.arange(1, 300_000, dtype=np.float64)
    x = np.concatenate([(turns * np.pi / 2).astype(np.float32), np.float32(turns * 1e33)])
    for name in ("sin", "cos", "tan"):
        assert errors(compiled(name, "float32")(x), truth(name, x)).max() <= 2


def test_the_measure_notices_a_wrong_function():
    x = np.linspace(-3, 3, 1000, dtype=np.float32)
    good = scipy.special.erf(x.astype(np.float64))
    assert errors(good.astype(np.float32), good).max() <= 0.5
    assert errors((good * (1 + 1e-6)).astype(np.float32), good).max() > 4
    assert errors(np.full(1000, np.nan, np.float32), good).max() == np.inf
    assert errors64("exp", np.exp(np.array([1.0])) * (1 + 4e-15), np.array([1.0])).max() > 4


def test_the_table_says_how_each_function_is_computed():
    assert maths.HOW["exp", "float32"] == "here"
    assert maths.HOW["asinh", "float32"] == "float64"
    assert maths.HOW["erfc", "float64"] == "libm"
    assert set(maths.HOW.values()) == {"here", "float64", "libm"}
