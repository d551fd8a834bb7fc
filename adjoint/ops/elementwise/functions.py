"""Functions of one variable: sizes, roots, exponentials, logarithms, hyperbolic functions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.argument_errors import assert_tensor
from ...core.errors import DTypeError
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...runtime.public import public
from ..promotion import cast
from ..samples import ALL_FLOATS, COMPLEX, FLOATS, INTS, unary_samples
from .comparison import where
from .pointwise import NUMBERS, Analytic, Elementwise, alias, conj, unary, widen

__all__ = [
    "abs", "absolute", "acosh", "arccosh", "arcsinh", "arctanh", "asinh", "atanh", "cosh", "exp",
    "exp2", "expm1", "log", "log1p", "log2", "log10", "reciprocal", "rsqrt", "sgn", "sigmoid",
    "sign", "sinh", "sqrt", "square", "tanh",
]  # fmt: skip


# ---- signs ---------------------------------------------------------------------------------------


class Abs(Elementwise):
    """The absolute value of each element; the gradient at 0 is 0.

    >>> ad.abs(ad.tensor([-1., 2.]))
    tensor([1., 2.])
    """

    ufunc = "abs"
    kinds = NUMBERS
    result = "real"
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
    samples = unary_samples(dtypes=(*FLOATS, *INTS, dt.bool_, *COMPLEX))

    def compute(self, xp: Any, x: Any) -> Any:
        """Sign by comparison for real numbers, so that NaN and -0 give 0."""
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
    return sgn(input)


# ---- roots and inverses --------------------------------------------------------------------------


class Square(Elementwise):
    """The square of each element."""

    ufunc = "square"
    kinds = NUMBERS
    samples = unary_samples(dtypes=ALL_FLOATS + INTS)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """2 g x."""
        return (g * conj(x * 2),)


class Sqrt(Analytic):
    """The square root of each element.

    >>> ad.sqrt(ad.tensor([4., 9.]))
    tensor([2., 3.])
    """

    ufunc = "sqrt"
    samples = unary_samples(0.1, 3, ALL_FLOATS)

    def gradient(self, g: Tensor, y: Tensor) -> tuple[Any, ...]:
        """g / 2y."""
        return (g / conj(y * 2),)


class Rsqrt(Analytic):
    """The inverse of the square root of each element.

    >>> ad.rsqrt(ad.tensor([4., 0.25]))
    tensor([0.5000, 2.0000])
    """

    samples = unary_samples(0.1, 3, ALL_FLOATS)

    def compute(self, xp: Any, x: Any) -> Any:
        """1 / sqrt(x)."""
        return 1 / xp.sqrt(x)

    def gradient(self, g: Tensor, y: Tensor) -> tuple[Any, ...]:
        """-g y^3 / 2."""
        return (g * conj(y * y * y * -0.5),)

    @np.errstate(all="ignore")
    def reference(self, x: Any) -> Any:
        """Reference value by the logarithm; 0 and negative numbers apart."""
        x = widen(x)
        value = np.exp(-0.5 * np.log(x))
        return np.where(x == 0, np.copysign(np.inf, x.real), value) if x.dtype != complex else value


class Reciprocal(Analytic):
    """The inverse of each element.

    >>> ad.reciprocal(ad.tensor([2., 4.]))
    tensor([0.5000, 0.2500])
    """

    ufunc = "reciprocal"
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
    if isinstance(input, TensorBase) and input.dtype is dt.bool_:
        input = cast(input, dt.int64)
    return _square(input)


# ---- exponentials and logarithms -----------------------------------------------------------------


class Exp(Analytic):
    """e to the power of each element.

    >>> ad.exp(ad.tensor([0., 1.]))
    tensor([1.0000, 2.7183])
    """

    ufunc = "exp"

    def gradient(self, g: Tensor, y: Tensor) -> tuple[Any, ...]:
        """g y."""
        return (g * conj(y),)


class Exp2(Analytic):
    """2 to the power of each element.

    >>> ad.exp2(ad.tensor([0., 3.]))
    tensor([1., 8.])
    """

    ufunc = "exp2"

    def gradient(self, g: Tensor, y: Tensor) -> tuple[Any, ...]:
        """g y log(2)."""
        return (g * conj(y * math.log(2)),)


class Expm1(Analytic):
    """exp(x) - 1 of each element x, exact where x is small.

    >>> ad.expm1(ad.tensor([0., 1.]))
    tensor([0.0000, 1.7183])
    """

    ufunc = "expm1"

    def gradient(self, g: Tensor, y: Tensor) -> tuple[Any, ...]:
        """g (y + 1)."""
        return (g * conj(y + 1),)


class Log(Analytic):
    """The natural logarithm of each element.

    >>> ad.log(ad.tensor([1., 10.]))
    tensor([0.0000, 2.3026])
    """

    ufunc = "log"
    samples = unary_samples(0.2, 3, ALL_FLOATS)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """g / x."""
        return (g / conj(x),)


class Log2(Analytic):
    """The logarithm to base 2 of each element.

    >>> ad.log2(ad.tensor([1., 8.]))
    tensor([0., 3.])
    """

    ufunc = "log2"
    samples = unary_samples(0.2, 3, ALL_FLOATS)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """g / (x log(2))."""
        return (g / conj(x * math.log(2)),)


class Log10(Analytic):
    """The logarithm to base 10 of each element.

    >>> ad.log10(ad.tensor([1., 10.]))
    tensor([0., 1.])
    """

    ufunc = "log10"
    samples = unary_samples(0.2, 3, ALL_FLOATS)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """g / (x log(10))."""
        return (g / conj(x * math.log(10)),)


class Log1p(Analytic):
    """log(1 + x) of each element x, exact where x is small.

    >>> ad.log1p(ad.tensor([0., 1.]))
    tensor([0.0000, 0.6931])
    """

    ufunc = "log1p"
    samples = unary_samples(-0.8, 3, ALL_FLOATS)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """g / (x + 1)."""
        return (g / conj(x + 1),)


class Sigmoid(Analytic):
    """1 / (1 + exp(-x)) of each element x.

    >>> ad.sigmoid(ad.tensor([0., 2.]))
    tensor([0.5000, 0.8808])
    """

    ufunc = "sigmoid"

    def gradient(self, g: Tensor, y: Tensor) -> tuple[Any, ...]:
        """g y (1 - y)."""
        return (g * conj(y * (1 - y)),)

    @np.errstate(all="ignore")
    def reference(self, x: Any) -> Any:
        """Reference value by the hyperbolic tangent."""
        return (1 + np.tanh(widen(x) / 2)) / 2


exp, exp2, expm1 = unary(Exp()), unary(Exp2()), unary(Expm1())
log, log2, log10, log1p = unary(Log()), unary(Log2()), unary(Log10()), unary(Log1p())
sigmoid = unary(Sigmoid())


# ---- hyperbolic functions ------------------------------------------------------------------------


class Sinh(Analytic):
    """The hyperbolic sine of each element.

    >>> ad.sinh(ad.tensor([0., 1.]))
    tensor([0.0000, 1.1752])
    """

    ufunc = "sinh"

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """g cosh(x)."""
        return (g * conj(cosh(x)),)


class Cosh(Analytic):
    """The hyperbolic cosine of each element.

    >>> ad.cosh(ad.tensor([0., 1.]))
    tensor([1.0000, 1.5431])
    """

    ufunc = "cosh"

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """g sinh(x)."""
        return (g * conj(sinh(x)),)


class Tanh(Analytic):
    """The hyperbolic tangent of each element.

    >>> ad.tanh(ad.tensor([0., 1.]))
    tensor([0.0000, 0.7616])
    """

    ufunc = "tanh"

    def gradient(self, g: Tensor, y: Tensor) -> tuple[Any, ...]:
        """g (1 - y^2)."""
        return (g * conj(1 - y * y),)


class Asinh(Analytic):
    """The number whose hyperbolic sine is each element.

    >>> ad.asinh(ad.tensor([0., 1.]))
    tensor([0.0000, 0.8814])
    """

    ufunc = "arcsinh"
    samples = unary_samples(-0.9, 0.9, ALL_FLOATS)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """g / sqrt(x^2 + 1)."""
        return (g * conj(rsqrt(x * x + 1)),)


class Acosh(Analytic):
    """The number from 0 up whose hyperbolic cosine is each element.

    >>> ad.acosh(ad.tensor([1., 2.]))
    tensor([0.0000, 1.3170])
    """

    ufunc = "arccosh"
    samples = unary_samples(1.2, 4, ALL_FLOATS)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """g / sqrt(x^2 - 1), on the right branch for complex numbers."""
        if x.dtype.is_complex:
            return (g * conj(rsqrt(x + 1) * rsqrt(x - 1)),)
        return (g * rsqrt(x * x - 1),)


class Atanh(Analytic):
    """The number whose hyperbolic tangent is each element.

    >>> ad.atanh(ad.tensor([0., 0.5]))
    tensor([0.0000, 0.5493])
    """

    ufunc = "arctanh"
    samples = unary_samples(-0.9, 0.9, ALL_FLOATS)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """g / (1 - x^2)."""
        return (g / conj(1 - x * x),)


sinh, cosh, tanh = unary(Sinh()), unary(Cosh()), unary(Tanh())
asinh, acosh, atanh = unary(Asinh()), unary(Acosh()), unary(Atanh())
arcsinh, arccosh = alias(asinh, "arcsinh"), alias(acosh, "arccosh")
arctanh = alias(atanh, "arctanh")
