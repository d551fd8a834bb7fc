"""Bessel and Airy functions."""

from __future__ import annotations

from typing import Any

from ...core import dtype as dt
from ...core.tensor_type import Tensor
from ...runtime.public import explaining, with_out
from ..argument_dtypes import REALS, assert_dtypes
from ..elementwise.comparison import where
from ..elementwise.functions import sgn
from ..elementwise.pointwise import Floating, unary, widen
from ..elementwise.relational import eq, isinf
from ..elementwise.trigonometry import sin
from ..promotion import cast
from ..samples import unary_samples
from .special import i0, i1

__all__ = [
    "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "i0e", "i1e",
    "modified_bessel_i0", "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1",
    "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "spherical_bessel_j0",
]  # fmt: skip


class I0e(Floating):
    """exp(-|x|) i0(x) of each element x.

    >>> ad.special.i0e(ad.tensor([0., 100.]))
    tensor([1.0000, 0.0399])
    """

    ufunc = scipy = "i0e"
    samples = unary_samples(-9, 9)

    def gradient(self, g: Tensor, x: Tensor, y: Tensor) -> tuple[Any, ...]:
        """g (i1e(x) - sgn(x) i0e(x))."""
        return (g * (i1e(x) - sgn(x) * y),)


class I1e(Floating):
    """exp(-|x|) i1(x) of each element x.

    >>> ad.special.i1e(ad.tensor([0., 100.]))
    tensor([0.0000, 0.0397])
    """

    ufunc = scipy = "i1e"
    samples = unary_samples(-9, 9)

    def gradient(self, g: Tensor, x: Tensor, y: Tensor) -> tuple[Any, ...]:
        """g (i0e(x) - i1e(x) (sgn(x) + 1/x)), whose limit at 0 is g / 2."""
        zero = eq(x, 0)
        slope = i0e(x) - y * (sgn(x) + 1 / where(zero, 1, x))
        return (g * where(zero, 0.5, slope),)


class BesselJ0(Floating):
    """The Bessel function of the first kind, of order 0, of each element.

    >>> ad.special.bessel_j0(ad.tensor([0., 1.]))
    tensor([1.0000, 0.7652])
    """

    ufunc, scipy = "bessel_j0", "j0"
    samples = unary_samples(-12, 12, special=False)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """-g j1(x)."""
        return (-g * bessel_j1(x),)


class BesselJ1(Floating):
    """The Bessel function of the first kind, of order 1, of each element.

    >>> ad.special.bessel_j1(ad.tensor([0., 1.]))
    tensor([0.0000, 0.4401])
    """

    ufunc, scipy = "bessel_j1", "j1"
    samples = unary_samples(-12, 12, special=False)

    def gradient(self, g: Tensor, x: Tensor, y: Tensor) -> tuple[Any, ...]:
        """g (j0(x) - j1(x) / x), whose limit at 0 is g / 2."""
        zero = eq(x, 0)
        return (g * where(zero, 0.5, bessel_j0(x) - y / where(zero, 1, x)),)


class BesselY0(Floating):
    """The Bessel function of the second kind, of order 0, of each element.

    >>> ad.special.bessel_y0(ad.tensor([1., 2.]))
    tensor([0.0883, 0.5104])
    """

    ufunc, scipy = "bessel_y0", "y0"
    samples = unary_samples(0.3, 12, special=False)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """-g y1(x)."""
        return (-g * bessel_y1(x),)


class BesselY1(Floating):
    """The Bessel function of the second kind, of order 1, of each element.

    >>> ad.special.bessel_y1(ad.tensor([1., 2.]))
    tensor([-0.7812, -0.1070])
    """

    ufunc, scipy = "bessel_y1", "y1"
    samples = unary_samples(0.3, 12, special=False)

    def gradient(self, g: Tensor, x: Tensor, y: Tensor) -> tuple[Any, ...]:
        """g (y0(x) - y1(x) / x)."""
        return (g * (bessel_y0(x) - y / x),)


class ModifiedBesselK0(Floating):
    """The modified Bessel function of the second kind, of order 0, of each element.

    >>> ad.special.modified_bessel_k0(ad.tensor([1., 2.]))
    tensor([0.4210, 0.1139])
    """

    ufunc, scipy = "bessel_k0", "k0"
    samples = unary_samples(0.3, 5)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """-g k1(x)."""
        return (-g * modified_bessel_k1(x),)


class ModifiedBesselK1(Floating):
    """The modified Bessel function of the second kind, of order 1, of each element.

    >>> ad.special.modified_bessel_k1(ad.tensor([1., 2.]))
    tensor([0.6019, 0.1399])
    """

    ufunc, scipy = "bessel_k1", "k1"
    samples = unary_samples(0.3, 5)

    def gradient(self, g: Tensor, x: Tensor, y: Tensor) -> tuple[Any, ...]:
        """-g (k0(x) + k1(x) / x)."""
        return (-g * (modified_bessel_k0(x) + y / x),)


class ScaledModifiedBesselK0(Floating):
    """exp(x) modified_bessel_k0(x) of each element x.

    >>> ad.special.scaled_modified_bessel_k0(ad.tensor([1., 200.]))
    tensor([1.1445, 0.0886])
    """

    ufunc, scipy = "bessel_k0e", "k0e"
    samples = unary_samples(0.3, 5)

    def gradient(self, g: Tensor, x: Tensor, y: Tensor) -> tuple[Any, ...]:
        """g (y - k1e(x))."""
        return (g * (y - scaled_modified_bessel_k1(x)),)


class ScaledModifiedBesselK1(Floating):
    """exp(x) modified_bessel_k1(x) of each element x.

    >>> ad.special.scaled_modified_bessel_k1(ad.tensor([1., 200.]))
    tensor([1.6362, 0.0888])
    """

    ufunc, scipy = "bessel_k1e", "k1e"
    samples = unary_samples(0.3, 5)

    def gradient(self, g: Tensor, x: Tensor, y: Tensor) -> tuple[Any, ...]:
        """g (y - k0e(x) - y / x)."""
        return (g * (y - scaled_modified_bessel_k0(x) - y / x),)


class AiryAi(Floating):
    """The Airy function Ai of each element; as in PyTorch, without a gradient.

    >>> ad.special.airy_ai(ad.tensor([0., 1.]))
    tensor([0.3550, 0.1353])
    """

    ufunc = "airy_ai"
    samples = unary_samples(-12, 8, special=False)

    def reference(self, x: Any) -> Any:
        """SciPy's."""
        from scipy import special

        return special.airy(widen(x))[0]


i0e, i1e = unary(I0e(), method=False, name="i0e"), unary(I1e(), method=False, name="i1e")
bessel_j0 = unary(BesselJ0(), method=False, name="bessel_j0")
bessel_j1 = unary(BesselJ1(), method=False, name="bessel_j1")
bessel_y0 = unary(BesselY0(), method=False, name="bessel_y0")
bessel_y1 = unary(BesselY1(), method=False, name="bessel_y1")
modified_bessel_k0 = unary(ModifiedBesselK0(), method=False, name="modified_bessel_k0")
modified_bessel_k1 = unary(ModifiedBesselK1(), method=False, name="modified_bessel_k1")
scaled_modified_bessel_k0 = unary(
    ScaledModifiedBesselK0(), method=False, name="scaled_modified_bessel_k0"
)
scaled_modified_bessel_k1 = unary(
    ScaledModifiedBesselK1(), method=False, name="scaled_modified_bessel_k1"
)
airy_ai = unary(AiryAi(), method=False, name="airy_ai")
modified_bessel_i0, modified_bessel_i1 = i0, i1


@explaining
@with_out
def spherical_bessel_j0(input: Tensor) -> Tensor:
    """sin(x) / x of each element x, and 1 for 0.

    Source: https://docs.pytorch.org/docs/stable/special.html#torch.special.spherical_bessel_j0

    >>> ad.special.spherical_bessel_j0(ad.tensor([0., 1.]))
    tensor([1.0000, 0.8415])
    """
    assert_dtypes("spherical_bessel_j0", REALS, input=input)
    if input.dtype.category < 2:
        input = cast(input, dt.get_default_dtype())
    zero = eq(input, 0)
    ratio = where(zero, 1.0, sin(input) / where(zero, 1, input))
    return where(isinf(input), 0.0, ratio)
