"""Angles: sines, tangents and their inverses, hypotenuses, degrees."""

from __future__ import annotations

import math
from typing import Any

from ...core.argument_errors import assert_tensor
from ...core.tensor_type import Tensor
from ...runtime.public import public
from ..samples import ALL_FLOATS, binary_samples, unary_samples
from .comparison import where
from .functions import reciprocal, rsqrt
from .pointwise import ORDERED, Analytic, Floating, alias, assert_kind, binary, conj, unary
from .relational import eq

__all__ = [
    "acos", "arccos", "arcsin", "arctan", "arctan2", "asin", "atan", "atan2", "cos", "deg2rad",
    "hypot", "rad2deg", "sin", "tan",
]  # fmt: skip


# ---- angles --------------------------------------------------------------------------------------


class Sin(Analytic):
    """The sine of each element.

    >>> ad.sin(ad.tensor([0., 1.]))
    tensor([0.0000, 0.8415])
    """

    ufunc = "sin"

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """g cos(x)."""
        return (g * conj(cos(x)),)


class Cos(Analytic):
    """The cosine of each element.

    >>> ad.cos(ad.tensor([0., 1.]))
    tensor([1.0000, 0.5403])
    """

    ufunc = "cos"

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """-g sin(x)."""
        return (g * -conj(sin(x)),)


class Tan(Analytic):
    """The tangent of each element.

    >>> ad.tan(ad.tensor([0., 1.]))
    tensor([0.0000, 1.5574])
    """

    ufunc = "tan"
    samples = unary_samples(-1.2, 1.2, ALL_FLOATS)

    def gradient(self, g: Tensor, y: Tensor) -> tuple[Any, ...]:
        """g (1 + y^2)."""
        return (g * conj(1 + y * y),)


class Asin(Analytic):
    """The angle between -pi/2 and pi/2 whose sine is each element.

    >>> ad.asin(ad.tensor([0., 1.]))
    tensor([0.0000, 1.5708])
    """

    ufunc = "arcsin"
    samples = unary_samples(-0.9, 0.9, ALL_FLOATS)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """g / sqrt(1 - x^2)."""
        return (g * conj(rsqrt(1 - x * x)),)


class Acos(Analytic):
    """The angle between 0 and pi whose cosine is each element.

    >>> ad.acos(ad.tensor([0., 1.]))
    tensor([1.5708, 0.0000])
    """

    ufunc = "arccos"
    samples = unary_samples(-0.9, 0.9, ALL_FLOATS)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """-g / sqrt(1 - x^2)."""
        return (g * -conj(rsqrt(1 - x * x)),)


class Atan(Analytic):
    """The angle between -pi/2 and pi/2 whose tangent is each element.

    >>> ad.atan(ad.tensor([0., 1.]))
    tensor([0.0000, 0.7854])
    """

    ufunc = "arctan"
    samples = unary_samples(-0.9, 0.9, ALL_FLOATS)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """g / (1 + x^2)."""
        return (g / conj(x * x + 1),)


class Atan2(Floating):
    """The angle of the point (other, input), between -pi and pi.

    >>> ad.atan2(ad.tensor([1., -1.]), ad.tensor([1., -1.]))
    tensor([ 0.7854, -2.3562])
    """

    ufunc = "arctan2"
    samples = binary_samples()

    def gradient(self, g: Tensor, x1: Any, x2: Any) -> tuple[Any, ...]:
        """g x2 / r^2 and -g x1 / r^2; 0 at the origin."""
        square_sum = x1 * x1 + x2 * x2
        inverse = where(eq(square_sum, 0), 0, reciprocal(square_sum))
        return (lambda: g * (inverse * x2), lambda: g * (inverse * -x1))


class Hypot(Floating):
    """The length of the hypotenuse of the right triangle with legs `input` and `other`.

    >>> ad.hypot(ad.tensor([3.]), ad.tensor([4.]))
    tensor([5.])
    """

    ufunc = "hypot"
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
    return x * factor
