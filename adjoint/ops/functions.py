"""Functions of one variable (roots, exponentials, logarithms, angles, rounding, signs) and the
functions of two that go with them.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..core import dtype as dt
from ..core.errors import DTypeError
from ..core.handle import Handle
from ..core.op import Sample, apply, public
from .comparison import eq, isfinite, where
from .pointwise import (
    ANALYTIC,
    FLOATING,
    NUMBERS,
    ORDERED,
    REAL,
    Elementwise,
    alias,
    assert_kind,
    assert_tensor,
    binary,
    conj,
    unary,
    widen,
)
from .promotion import cast
from .samples import COMPLEX, FLOATS, INTS, array, binary_samples, strided, unary_samples

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = [
    "abs",
    "absolute",
    "acos",
    "acosh",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "ceil",
    "copysign",
    "cos",
    "cosh",
    "deg2rad",
    "exp",
    "exp2",
    "expm1",
    "fix",
    "floor",
    "frac",
    "heaviside",
    "hypot",
    "log",
    "log1p",
    "log2",
    "log10",
    "nan_to_num",
    "nextafter",
    "rad2deg",
    "reciprocal",
    "round",
    "rsqrt",
    "sgn",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
]  # fmt: skip

ALL_FLOATS = FLOATS + COMPLEX


# ---- signs ---------------------------------------------------------------------------------------


class Abs(Elementwise):
    """The absolute value of each element; the gradient at 0 is 0.

    >>> ad.abs(ad.tensor([-1., 2.]))
    tensor([1., 2.])
    """

    ufunc = "abs"
    kinds = NUMBERS
    result = "real"
    needs = "x"
    samples = unary_samples(dtypes=(*FLOATS, *INTS, *COMPLEX))

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """g sgn(x)."""
        return (g * sgn(x),)


class Sgn(Elementwise):
    """x / |x| for each element x, and 0 for 0; the sign of real numbers.

    >>> ad.sgn(ad.tensor([-3., 0., 2.]))
    tensor([-1.,  0.,  1.])
    """

    exact = True
    needs = "x y"
    samples = unary_samples(dtypes=(*FLOATS, *INTS, dt.bool_, *COMPLEX))

    def compute(self, xp: Any, x: Any) -> Any:
        """By comparison for real numbers, so that NaN and -0 give 0."""
        if x.dtype.kind == "c":
            size = xp.abs(x)
            return xp.where(size == 0, 0, x / xp.where(size == 0, 1, size)).astype(x.dtype)
        if x.dtype.kind in "bu":
            return (x != 0).astype(x.dtype)
        return xp.subtract((x > 0).astype(x.dtype), (x < 0).astype(x.dtype))

    def gradient(self, g: Tensor, x: Tensor, y: Tensor) -> tuple[Any, ...]:
        """Zero for real numbers; the part of g across the direction of x, over |x|, for complex."""
        if not x.dtype.is_complex:
            return (g.new_zeros(g.shape),)
        size = abs(x)
        across = g - (g * conj(y)).real * y
        return (where(size == 0, 0, across / where(size == 0, 1, size)),)

    @np.errstate(all="ignore")
    def reference(self, x: Any) -> Any:
        """NumPy's sign, with its NaN replaced."""
        value = np.sign(widen(x).astype(np.float64 if x.dtype.kind != "c" else np.complex128))
        return np.where(np.isnan(value), 0, value)


abs = unary(Abs(), floating=False)
absolute = alias(abs, "absolute")
sgn = unary(Sgn(), floating=False)


@public(inplace=True, out=True)
def sign(input: Tensor) -> Tensor:
    """The sign of each element: -1, 0 or 1; 0 for NaN.

    Dtypes: any but complex.
    Errors: DTypeError for complex tensors.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.sign.html

    >>> ad.sign(ad.tensor([-3., 0., 2.]))
    tensor([-1.,  0.,  1.])
    """
    assert_tensor("sign", input)
    if input.dtype.is_complex:
        raise DTypeError(
            "sign: Unlike NumPy, sign is not intended to support complex numbers; use ad.sgn"
        )
    result: Tensor = sgn(input)
    return result


class Copysign(Elementwise):
    """The magnitude of `input` with the sign of `other`; integers become floats.

    >>> ad.copysign(ad.tensor([1., -2.]), -1)
    tensor([-1., -2.])
    """

    ufunc = "copysign"
    kinds = FLOATING
    exact = True
    needs = ("x1 y", "")
    samples = binary_samples()

    def gradient(self, g: Tensor, x1: Any, y: Any) -> tuple[Any, ...]:
        """g where the sign stayed, -g where it changed, 0 at 0; nothing for `other`."""
        return (lambda: g * where(eq(x1, 0), 0, y / x1), lambda: g.new_zeros(g.shape))


class Nextafter(Elementwise):
    """The next floating-point number after `input` towards `other`.

    >>> ad.nextafter(ad.tensor([1.]), ad.tensor([2.])) > 1
    tensor([True])
    """

    ufunc = "nextafter"
    kinds = FLOATING
    exact = True
    samples = binary_samples()

    @np.errstate(all="ignore")
    def reference(self, x1: Any, x2: Any) -> Any:
        """NumPy's own, in the same dtype: a wider one has other neighbours."""
        return np.nextafter(x1, np.asarray(x2, x1.dtype))


class Heaviside(Elementwise):
    """0 for negative elements, 1 for positive ones, `values` at 0.

    >>> ad.heaviside(ad.tensor([-1., 0., 2.]), ad.tensor(0.5))
    tensor([0.0000, 0.5000, 1.0000])
    """

    kinds = ORDERED
    exact = True
    samples = binary_samples(dtypes=FLOATS + INTS)

    def compute(self, xp: Any, x1: Any, x2: Any) -> Any:
        """By comparison; NaN counts as neither negative nor zero, as in PyTorch."""
        dtype = (x1 if hasattr(x1, "dtype") else x2).dtype
        return xp.where(xp.equal(x1, 0), x2, xp.greater(x1, 0)).astype(dtype)

    @np.errstate(all="ignore")
    def reference(self, x1: Any, x2: Any) -> Any:
        """NumPy's own."""
        return np.heaviside(np.asarray(x1, np.float64), np.asarray(x2, np.float64))


copysign = binary(Copysign(), floating=True)
nextafter = binary(Nextafter())
_heaviside = binary(Heaviside(), name="heaviside")


@public(inplace=True, out=True)
def heaviside(input: Any, values: Any) -> Tensor:
    """0 for negative elements, 1 for positive ones, `values` at 0.

    Shapes: `input` and `values` broadcast.
    Dtypes: both the same, not complex.
    Errors: DTypeError where the dtypes differ.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.heaviside.html

    >>> ad.heaviside(ad.tensor([-1., 0., 2.]), ad.tensor(0.5))
    tensor([0.0000, 0.5000, 1.0000])
    """
    assert_tensor("heaviside", input)
    if isinstance(values, Handle) and input.dtype is not values.dtype:
        raise DTypeError(
            "heaviside: is not yet implemented for tensors with different dtypes, "
            f"{input.dtype} and {values.dtype}; convert one with .to()"
        )
    result: Tensor = _heaviside(input, values)
    return result


# ---- roots and inverses --------------------------------------------------------------------------


class Square(Elementwise):
    """The square of each element."""

    ufunc = "square"
    kinds = NUMBERS
    needs = "x"
    samples = unary_samples(dtypes=ALL_FLOATS + INTS)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """2 g x."""
        return (g * conj(x * 2),)


class Sqrt(Elementwise):
    """The square root of each element.

    >>> ad.sqrt(ad.tensor([4., 9.]))
    tensor([2., 3.])
    """

    ufunc = "sqrt"
    kinds = ANALYTIC
    needs = "y"
    samples = unary_samples(0.1, 3, ALL_FLOATS)

    def gradient(self, g: Tensor, y: Tensor) -> tuple[Any, ...]:
        """g / 2y."""
        return (g / conj(y * 2),)


class Rsqrt(Elementwise):
    """The inverse of the square root of each element.

    >>> ad.rsqrt(ad.tensor([4., 0.25]))
    tensor([0.5000, 2.0000])
    """

    kinds = ANALYTIC
    needs = "y"
    samples = unary_samples(0.1, 3, ALL_FLOATS)

    def compute(self, xp: Any, x: Any) -> Any:
        """1 / sqrt(x)."""
        return 1 / xp.sqrt(x)

    def gradient(self, g: Tensor, y: Tensor) -> tuple[Any, ...]:
        """-g y^3 / 2."""
        return (g * conj(y * y * y * -0.5),)

    @np.errstate(all="ignore")
    def reference(self, x: Any) -> Any:
        """By the logarithm; 0 and negative numbers apart."""
        x = widen(x)
        value = np.exp(-0.5 * np.log(x))
        return np.where(x == 0, np.copysign(np.inf, x.real), value) if x.dtype != complex else value


class Reciprocal(Elementwise):
    """The inverse of each element.

    >>> ad.reciprocal(ad.tensor([2., 4.]))
    tensor([0.5000, 0.2500])
    """

    ufunc = "reciprocal"
    kinds = ANALYTIC
    needs = "y"
    samples = unary_samples(0.3, 3, ALL_FLOATS)

    def gradient(self, g: Tensor, y: Tensor) -> tuple[Any, ...]:
        """-g y^2."""
        return (-g * conj(y * y),)


SQUARE, SQRT, RSQRT, RECIPROCAL = Square(), Sqrt(), Rsqrt(), Reciprocal()
_square = unary(SQUARE, floating=False, name="square")
sqrt, rsqrt, reciprocal = unary(SQRT), unary(RSQRT), unary(RECIPROCAL)


@public(inplace=True, out=True)
def square(input: Tensor) -> Tensor:
    """The square of each element.

    Dtypes: the result has the dtype of `input`, int64 for bool.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.square.html

    >>> ad.square(ad.tensor([-2., 3.]))
    tensor([4., 9.])
    """
    if isinstance(input, Handle) and input.dtype is dt.bool_:
        input = cast(input, dt.int64)
    result: Tensor = _square(input)
    return result


# ---- exponentials and logarithms -----------------------------------------------------------------


class Exp(Elementwise):
    """e to the power of each element.

    >>> ad.exp(ad.tensor([0., 1.]))
    tensor([1.0000, 2.7183])
    """

    ufunc = "exp"
    kinds = ANALYTIC
    needs = "y"
    samples = unary_samples(dtypes=ALL_FLOATS)

    def gradient(self, g: Tensor, y: Tensor) -> tuple[Any, ...]:
        """g y."""
        return (g * conj(y),)


class Exp2(Elementwise):
    """2 to the power of each element.

    >>> ad.exp2(ad.tensor([0., 3.]))
    tensor([1., 8.])
    """

    ufunc = "exp2"
    kinds = ANALYTIC
    needs = "y"
    samples = unary_samples(dtypes=ALL_FLOATS)

    def gradient(self, g: Tensor, y: Tensor) -> tuple[Any, ...]:
        """g y log(2)."""
        return (g * conj(y * math.log(2)),)


class Expm1(Elementwise):
    """exp(x) - 1 of each element x, exact where x is small.

    >>> ad.expm1(ad.tensor([0., 1.]))
    tensor([0.0000, 1.7183])
    """

    ufunc = "expm1"
    kinds = ANALYTIC
    needs = "y"
    samples = unary_samples(dtypes=ALL_FLOATS)

    def gradient(self, g: Tensor, y: Tensor) -> tuple[Any, ...]:
        """g (y + 1)."""
        return (g * conj(y + 1),)


class Log(Elementwise):
    """The natural logarithm of each element.

    >>> ad.log(ad.tensor([1., 10.]))
    tensor([0.0000, 2.3026])
    """

    ufunc = "log"
    kinds = ANALYTIC
    needs = "x"
    samples = unary_samples(0.2, 3, ALL_FLOATS)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """g / x."""
        return (g / conj(x),)


class Log2(Elementwise):
    """The logarithm to base 2 of each element.

    >>> ad.log2(ad.tensor([1., 8.]))
    tensor([0., 3.])
    """

    ufunc = "log2"
    kinds = ANALYTIC
    needs = "x"
    samples = unary_samples(0.2, 3, ALL_FLOATS)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """g / (x log(2))."""
        return (g / conj(x * math.log(2)),)


class Log10(Elementwise):
    """The logarithm to base 10 of each element.

    >>> ad.log10(ad.tensor([1., 10.]))
    tensor([0., 1.])
    """

    ufunc = "log10"
    kinds = ANALYTIC
    needs = "x"
    samples = unary_samples(0.2, 3, ALL_FLOATS)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """g / (x log(10))."""
        return (g / conj(x * math.log(10)),)


class Log1p(Elementwise):
    """log(1 + x) of each element x, exact where x is small.

    >>> ad.log1p(ad.tensor([0., 1.]))
    tensor([0.0000, 0.6931])
    """

    ufunc = "log1p"
    kinds = ANALYTIC
    needs = "x"
    samples = unary_samples(-0.8, 3, ALL_FLOATS)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """g / (x + 1)."""
        return (g / conj(x + 1),)


class Sigmoid(Elementwise):
    """1 / (1 + exp(-x)) of each element x.

    >>> ad.sigmoid(ad.tensor([0., 2.]))
    tensor([0.5000, 0.8808])
    """

    ufunc = "sigmoid"
    kinds = ANALYTIC
    needs = "y"
    samples = unary_samples(dtypes=ALL_FLOATS)

    def gradient(self, g: Tensor, y: Tensor) -> tuple[Any, ...]:
        """g y (1 - y)."""
        return (g * conj(y * (1 - y)),)

    @np.errstate(all="ignore")
    def reference(self, x: Any) -> Any:
        """By the hyperbolic tangent."""
        return (1 + np.tanh(widen(x) / 2)) / 2


exp, exp2, expm1 = unary(Exp()), unary(Exp2()), unary(Expm1())
log, log2, log10, log1p = unary(Log()), unary(Log2()), unary(Log10()), unary(Log1p())
sigmoid = unary(Sigmoid())


# ---- angles --------------------------------------------------------------------------------------


class Sin(Elementwise):
    """The sine of each element.

    >>> ad.sin(ad.tensor([0., 1.]))
    tensor([0.0000, 0.8415])
    """

    ufunc = "sin"
    kinds = ANALYTIC
    needs = "x"
    samples = unary_samples(dtypes=ALL_FLOATS)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """g cos(x)."""
        return (g * conj(cos(x)),)


class Cos(Elementwise):
    """The cosine of each element.

    >>> ad.cos(ad.tensor([0., 1.]))
    tensor([1.0000, 0.5403])
    """

    ufunc = "cos"
    kinds = ANALYTIC
    needs = "x"
    samples = unary_samples(dtypes=ALL_FLOATS)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """-g sin(x)."""
        return (g * -conj(sin(x)),)


class Tan(Elementwise):
    """The tangent of each element.

    >>> ad.tan(ad.tensor([0., 1.]))
    tensor([0.0000, 1.5574])
    """

    ufunc = "tan"
    kinds = ANALYTIC
    needs = "y"
    samples = unary_samples(-1.2, 1.2, ALL_FLOATS)

    def gradient(self, g: Tensor, y: Tensor) -> tuple[Any, ...]:
        """g (1 + y^2)."""
        return (g * conj(1 + y * y),)


class Asin(Elementwise):
    """The angle between -pi/2 and pi/2 whose sine is each element.

    >>> ad.asin(ad.tensor([0., 1.]))
    tensor([0.0000, 1.5708])
    """

    ufunc = "arcsin"
    kinds = ANALYTIC
    needs = "x"
    samples = unary_samples(-0.9, 0.9, ALL_FLOATS)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """g / sqrt(1 - x^2)."""
        return (g * conj(rsqrt(1 - x * x)),)


class Acos(Elementwise):
    """The angle between 0 and pi whose cosine is each element.

    >>> ad.acos(ad.tensor([0., 1.]))
    tensor([1.5708, 0.0000])
    """

    ufunc = "arccos"
    kinds = ANALYTIC
    needs = "x"
    samples = unary_samples(-0.9, 0.9, ALL_FLOATS)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """-g / sqrt(1 - x^2)."""
        return (g * -conj(rsqrt(1 - x * x)),)


class Atan(Elementwise):
    """The angle between -pi/2 and pi/2 whose tangent is each element.

    >>> ad.atan(ad.tensor([0., 1.]))
    tensor([0.0000, 0.7854])
    """

    ufunc = "arctan"
    kinds = ANALYTIC
    needs = "x"
    samples = unary_samples(-0.9, 0.9, ALL_FLOATS)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """g / (1 + x^2)."""
        return (g / conj(x * x + 1),)


class Atan2(Elementwise):
    """The angle of the point (other, input), between -pi and pi.

    >>> ad.atan2(ad.tensor([1., -1.]), ad.tensor([1., -1.]))
    tensor([ 0.7854, -2.3562])
    """

    ufunc = "arctan2"
    kinds = FLOATING
    needs = "x1 x2"
    samples = binary_samples()

    def gradient(self, g: Tensor, x1: Any, x2: Any) -> tuple[Any, ...]:
        """g x2 / r^2 and -g x1 / r^2; 0 at the origin."""
        square_sum = x1 * x1 + x2 * x2
        inverse = where(eq(square_sum, 0), 0, reciprocal(square_sum))
        return (lambda: g * (inverse * x2), lambda: g * (inverse * -x1))


class Hypot(Elementwise):
    """The length of the hypotenuse of the right triangle with legs `input` and `other`.

    >>> ad.hypot(ad.tensor([3.]), ad.tensor([4.]))
    tensor([5.])
    """

    ufunc = "hypot"
    kinds = FLOATING
    needs = ("x1 y", "x2 y")
    samples = binary_samples()

    def gradient(self, g: Tensor, x1: Any, x2: Any, y: Any) -> tuple[Any, ...]:
        """g x1 / y and g x2 / y."""
        return (lambda: g * (x1 / y), lambda: g * (x2 / y))


sin, cos, tan = unary(Sin()), unary(Cos()), unary(Tan())
asin, acos, atan = unary(Asin()), unary(Acos()), unary(Atan())
atan2 = binary(Atan2(), floating=True)
hypot = binary(Hypot(), floating=True)
arcsin, arccos, arctan = alias(asin, "arcsin"), alias(acos, "arccos"), alias(atan, "arctan")
arctan2 = alias(atan2, "arctan2")


@public(inplace=True, out=True)
def deg2rad(input: Tensor) -> Tensor:
    """Angles in degrees as radians.

    Dtypes: integers become the default floating-point dtype.
    Errors: DTypeError for complex tensors.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.deg2rad.html

    >>> ad.deg2rad(ad.tensor([180., 90.]))
    tensor([3.1416, 1.5708])
    """
    return _scaled("deg2rad", input, math.pi / 180)


@public(inplace=True, out=True)
def rad2deg(input: Tensor) -> Tensor:
    """Angles in radians as degrees.

    Dtypes: integers become the default floating-point dtype.
    Errors: DTypeError for complex tensors.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.rad2deg.html

    >>> ad.rad2deg(ad.tensor([3.14159265, 0.]))
    tensor([180.,   0.])
    """
    return _scaled("rad2deg", input, 180 / math.pi)


def _scaled(name: str, x: Any, factor: float) -> Tensor:
    assert_tensor(name, x)
    assert_kind(name, x.dtype, ORDERED)
    result: Tensor = x * factor
    return result


# ---- hyperbolic functions ------------------------------------------------------------------------


class Sinh(Elementwise):
    """The hyperbolic sine of each element.

    >>> ad.sinh(ad.tensor([0., 1.]))
    tensor([0.0000, 1.1752])
    """

    ufunc = "sinh"
    kinds = ANALYTIC
    needs = "x"
    samples = unary_samples(dtypes=ALL_FLOATS)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """g cosh(x)."""
        return (g * conj(cosh(x)),)


class Cosh(Elementwise):
    """The hyperbolic cosine of each element.

    >>> ad.cosh(ad.tensor([0., 1.]))
    tensor([1.0000, 1.5431])
    """

    ufunc = "cosh"
    kinds = ANALYTIC
    needs = "x"
    samples = unary_samples(dtypes=ALL_FLOATS)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """g sinh(x)."""
        return (g * conj(sinh(x)),)


class Tanh(Elementwise):
    """The hyperbolic tangent of each element.

    >>> ad.tanh(ad.tensor([0., 1.]))
    tensor([0.0000, 0.7616])
    """

    ufunc = "tanh"
    kinds = ANALYTIC
    needs = "y"
    samples = unary_samples(dtypes=ALL_FLOATS)

    def gradient(self, g: Tensor, y: Tensor) -> tuple[Any, ...]:
        """g (1 - y^2)."""
        return (g * conj(1 - y * y),)


class Asinh(Elementwise):
    """The number whose hyperbolic sine is each element.

    >>> ad.asinh(ad.tensor([0., 1.]))
    tensor([0.0000, 0.8814])
    """

    ufunc = "arcsinh"
    kinds = ANALYTIC
    needs = "x"
    samples = unary_samples(-0.9, 0.9, ALL_FLOATS)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """g / sqrt(x^2 + 1)."""
        return (g * conj(rsqrt(x * x + 1)),)


class Acosh(Elementwise):
    """The number from 0 up whose hyperbolic cosine is each element.

    >>> ad.acosh(ad.tensor([1., 2.]))
    tensor([0.0000, 1.3170])
    """

    ufunc = "arccosh"
    kinds = ANALYTIC
    needs = "x"
    samples = unary_samples(1.2, 4, ALL_FLOATS)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """g / sqrt(x^2 - 1), on the right branch for complex numbers."""
        if x.dtype.is_complex:
            return (g * conj(rsqrt(x + 1) * rsqrt(x - 1)),)
        return (g * rsqrt(x * x - 1),)


class Atanh(Elementwise):
    """The number whose hyperbolic tangent is each element.

    >>> ad.atanh(ad.tensor([0., 0.5]))
    tensor([0.0000, 0.5493])
    """

    ufunc = "arctanh"
    kinds = ANALYTIC
    needs = "x"
    samples = unary_samples(-0.9, 0.9, ALL_FLOATS)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """g / (1 - x^2)."""
        return (g / conj(1 - x * x),)


sinh, cosh, tanh = unary(Sinh()), unary(Cosh()), unary(Tanh())
asinh, acosh, atanh = unary(Asinh()), unary(Acosh()), unary(Atanh())
arcsinh, arccosh = alias(asinh, "arcsinh"), alias(acosh, "arccosh")
arctanh = alias(atanh, "arctanh")


# ---- rounding ------------------------------------------------------------------------------------


class Rounding(Elementwise, abstract=True):
    """Base of the functions that round; their gradient is zero."""

    kinds = REAL
    exact = True
    needs = ""

    def compute(self, xp: Any, x: Any) -> Any:
        """Integers are round already."""
        return x.copy() if x.dtype.kind in "iu" else getattr(xp, self.ufunc)(x)

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """Zero: the function is piecewise constant."""
        return (g.new_zeros(g.shape),)


def _rounding_samples() -> Any:
    usual: Any = unary_samples(-5, 5, dtypes=FLOATS + INTS)

    def samples(cls: Any) -> Iterable[Sample]:
        yield from usual.__func__(cls)
        halves = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5])
        yield Sample(cls(), (halves,), "halves", gradients=False)

    return classmethod(samples)


class Floor(Rounding):
    """The greatest whole number up to each element.

    >>> ad.floor(ad.tensor([-1.5, 1.5]))
    tensor([-2.,  1.])
    """

    ufunc = "floor"
    samples = _rounding_samples()


class Ceil(Rounding):
    """The smallest whole number from each element up.

    >>> ad.ceil(ad.tensor([-1.5, 1.5]))
    tensor([-1.,  2.])
    """

    ufunc = "ceil"
    samples = _rounding_samples()


class Trunc(Rounding):
    """Each element without its fraction.

    >>> ad.trunc(ad.tensor([-1.5, 1.5]))
    tensor([-1.,  1.])
    """

    ufunc = "trunc"
    samples = _rounding_samples()


class Round(Rounding):
    """The nearest whole number to each element; halves go to the even one."""

    ufunc = "rint"
    samples = _rounding_samples()


@dataclass(frozen=True)
class RoundDecimals(Elementwise):
    """Each element rounded to a number of decimals (before the point where negative)."""

    decimals: int
    kinds: ClassVar[str] = FLOATING
    needs = ""

    def compute(self, xp: Any, x: Any) -> Any:
        """The rounded multiple, divided again."""
        scale = 10.0 ** math.fabs(self.decimals)
        return xp.rint(x * scale) / scale if self.decimals > 0 else xp.rint(x / scale) * scale

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """Zero: the function is piecewise constant."""
        return (g.new_zeros(g.shape),)

    def reference(self, x: Any) -> Any:
        """Python's own, which rounds the decimal number itself."""
        values = [builtins.round(v, self.decimals) for v in widen(x).ravel().tolist()]
        return np.array(values, np.float64).reshape(x.shape)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Decimals on both sides of the point."""
        for decimals in (1, 2, -1):
            for dtype in FLOATS:
                x = array((2, 3), dtype, -30, 30)
                yield Sample(cls(decimals), (x,), f"{decimals}-{dtype.name}", 2e-2)
        yield Sample(cls(1), (array(()),), "0-d")
        yield Sample(cls(1), (array((0, 3)),), "empty")
        yield Sample(cls(1), (strided(array((3, 4))),), "strided")


floor, ceil, trunc = (unary(op, floating=False) for op in (Floor(), Ceil(), Trunc()))
fix = alias(trunc, "fix")
_round = unary(Round(), floating=False, name="round")


@public(inplace=True, out=True)
def round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """Each element rounded to a number of decimals; halves go to the even neighbour.

    Dtypes: the dtype of `input`; integers are round already.
    Errors: DTypeError for bool and complex tensors, and for integers with `decimals`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.round.html

    >>> ad.round(ad.tensor([0.5, 1.5, -2.6])), ad.round(ad.tensor([3.14159]), decimals=2)
    (tensor([ 0.,  2., -3.]), tensor([3.1400]))
    """
    if not decimals:
        result: Tensor = _round(input)
        return result
    assert_tensor("round", input)
    assert_kind("round", input.dtype, FLOATING)
    return apply(RoundDecimals(decimals), input)  # type: ignore[no-any-return]


@public(inplace=True, out=True)
def frac(input: Tensor) -> Tensor:
    """The fraction of each element: x - trunc(x).

    Dtypes: floating point.
    Errors: DTypeError for any other dtype.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.frac.html

    >>> ad.frac(ad.tensor([1.5, -2.25]))
    tensor([ 0.5000, -0.2500])
    """
    assert_tensor("frac", input)
    assert_kind("frac", input.dtype, FLOATING)
    result: Tensor = input - trunc(input)
    return result


@dataclass(frozen=True)
class NanToNum(Elementwise):
    """Each element, with other numbers for NaN and the infinities."""

    nan: float
    posinf: float
    neginf: float
    kinds: ClassVar[str] = ANALYTIC
    needs = "x"

    def compute(self, xp: Any, x: Any) -> Any:
        """The backend's nan_to_num, on both parts of complex numbers."""
        return xp.nan_to_num(x, nan=self.nan, posinf=self.posinf, neginf=self.neginf)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """g where the element stayed."""
        return (where(isfinite(x), g, 0),)

    @np.errstate(all="ignore")
    def reference(self, x: Any) -> Any:
        """By masks."""
        if x.dtype.kind == "c":
            return self.reference(x.real) + 1j * self.reference(x.imag)
        x = np.where(np.isnan(x), self.nan, x)
        x = np.where(x == np.inf, self.posinf, x)
        return np.where(x == -np.inf, self.neginf, x)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Special values in each dtype."""
        op = cls(0.5, 9.0, -8.0)
        x = np.array([[0.0, np.nan, 1.5], [np.inf, -np.inf, -2.0]])
        for dtype in ALL_FLOATS:
            yield Sample(op, (x.astype(dtype.numpy),), dtype.name, gradients=False)
        yield Sample(op, (array((3, 4)),), "finite")
        yield Sample(op, (strided(x),), "strided", gradients=False)
        yield Sample(op, (np.array(np.nan),), "0-d", gradients=False)
        yield Sample(op, (np.zeros((0, 3)),), "empty")


@public(inplace=True, out=True)
def nan_to_num(
    input: Tensor, nan: float | None = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """Each element, with `nan` for NaN and `posinf`, `neginf` for the infinities.

    Dtypes: any; None for an infinity takes the greatest finite number of the dtype.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nan_to_num.html

    >>> ad.nan_to_num(ad.tensor([float("nan"), float("inf"), 1.]), posinf=5.)
    tensor([0., 5., 1.])
    """
    assert_tensor("nan_to_num", input)
    if input.dtype.category < 2:
        result: Tensor = input.clone()
        return result
    limits = dt.finfo(input.dtype)
    op = NanToNum(
        0.0 if nan is None else float(nan),
        limits.max if posinf is None else float(posinf),
        limits.min if neginf is None else float(neginf),
    )
    return apply(op, input)  # type: ignore[no-any-return]
