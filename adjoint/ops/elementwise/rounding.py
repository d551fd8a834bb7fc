"""Rounding, the signs and neighbours of floating-point numbers, and the replacement of NaN."""

from __future__ import annotations

import builtins
import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...core import dtype as dt
from ...core.argument_errors import assert_tensor
from ...core.errors import DTypeError
from ...core.op import Op, Sample
from ...core.spec import Spec
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply, run_known
from ...runtime.fused import checking
from ...runtime.public import explaining, public
from .. import return_types
from ..promotion import cast
from ..samples import ALL_FLOATS, FLOATS, INTS, array, binary_samples, strided, unary_samples
from .comparison import tensors, where
from .functions import exp2
from .pointwise import (
    ANALYTIC,
    FLOATING,
    ORDERED,
    REAL,
    Elementwise,
    Floating,
    alias,
    assert_kind,
    binary,
    unary,
    widen,
)
from .relational import eq, isfinite

__all__ = [
    "ceil", "copysign", "fix", "floor", "frac", "frexp", "heaviside", "nan_to_num",
    "nextafter", "round", "trunc",
]  # fmt: skip


# ---- rounding ------------------------------------------------------------------------------------


class Rounding(Elementwise, abstract=True):
    """Base of the functions that round; their gradient is zero."""

    kinds = REAL
    exact = True

    def compute(self, xp: Any, x: Any) -> Any:
        """Integers are round already."""
        return x.copy() if x.dtype.kind in "iu" else getattr(xp, self.ufunc)(x)

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """Zero: the function is piecewise constant."""
        return (g.new_zeros(g.shape),)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """The usual ones, and halves."""
        usual: Any = unary_samples(-5, 5, dtypes=FLOATS + INTS)
        yield from usual.__func__(cls)
        halves = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5])
        yield Sample(cls(), (halves,), "halves", gradients=False)


class Floor(Rounding):
    """The greatest whole number up to each element.

    >>> ad.floor(ad.tensor([-1.5, 1.5]))
    tensor([-2.,  1.])
    """

    ufunc = "floor"


class Ceil(Rounding):
    """The smallest whole number from each element up.

    >>> ad.ceil(ad.tensor([-1.5, 1.5]))
    tensor([-1.,  2.])
    """

    ufunc = "ceil"


class Trunc(Rounding):
    """The elements without their fractions.

    >>> ad.trunc(ad.tensor([-1.5, 1.5]))
    tensor([-1.,  1.])
    """

    ufunc = "trunc"


class Round(Rounding):
    """The nearest whole number to each element; halves go to the even one."""

    ufunc = "rint"


@dataclass(eq=False, repr=False)
class RoundDecimals(Elementwise):
    """The elements rounded to a number of decimals (before the point where negative)."""

    decimals: int
    kinds: ClassVar[str] = FLOATING

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


@public(inplace=True, out=True, plain=True)
def round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """The elements rounded to a number of decimals; halves go to the even neighbour.

    Dtypes: the dtype of `input`; integers are round already.
    Errors: DTypeError for bool and complex tensors, and for integers with `decimals`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.round.html

    >>> ad.round(ad.tensor([0.5, 1.5, -2.6])), ad.round(ad.tensor([3.14159]), decimals=2)
    (tensor([ 0.,  2., -3.]), tensor([3.1400]))
    """
    if not decimals:
        return _round(input)
    assert_tensor("round", input)
    assert_kind("round", input.dtype, FLOATING)
    return apply(RoundDecimals(decimals), input)


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
    return input - trunc(input)


@dataclass(eq=False, repr=False)
class NanToNum(Elementwise):
    """The elements, with other numbers for NaN and the infinities."""

    nan: float
    posinf: float
    neginf: float
    kinds: ClassVar[str] = ANALYTIC

    def compute(self, xp: Any, x: Any) -> Any:
        """The backend's nan_to_num, on both parts of complex numbers."""
        return xp.nan_to_num(x, nan=self.nan, posinf=self.posinf, neginf=self.neginf)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """g where the element stayed."""
        return (where(isfinite(x), g, 0),)

    @np.errstate(all="ignore")
    def reference(self, x: Any) -> Any:
        """Reference value by masks."""
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


_limits = functools.cache(dt.finfo)


@public(inplace=True, out=True)
@checking
def nan_to_num(
    input: Tensor, nan: float | None = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Any:
    """The elements, with `nan` for NaN and `posinf`, `neginf` for the infinities.

    Dtypes: any; None for an infinity takes the greatest finite number of the dtype.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nan_to_num.html

    >>> ad.nan_to_num(ad.tensor([float("nan"), float("inf"), 1.]), posinf=5.)
    tensor([0., 5., 1.])
    """
    assert_tensor("nan_to_num", input)
    found = input.dtype
    if found.category < 2:
        return input.clone()
    limits = _limits(found)
    op = NanToNum(
        0.0 if nan is None else float(nan),
        limits.max if posinf is None else float(posinf),
        limits.min if neginf is None else float(neginf),
    )
    return op, input


# ---- signs and neighbours ------------------------------------------------------------------------


class Copysign(Floating):
    """The magnitude of `input` with the sign of `other`; integers become floats.

    >>> ad.copysign(ad.tensor([1., -2.]), -1)
    tensor([-1., -2.])
    """

    ufunc = "copysign"
    exact = True
    needs = ("x1 y", "")
    samples = binary_samples()

    def gradient(self, g: Tensor, x1: Any, y: Any) -> tuple[Any, ...]:
        """g where the sign stayed, -g where it changed, 0 at 0; nothing for `other`."""
        return (lambda: g * where(eq(x1, 0), 0, y / x1), lambda: g.new_zeros(g.shape))


class Nextafter(Floating):
    """The next floating-point number after `input` towards `other`.

    >>> ad.nextafter(ad.tensor([1.]), ad.tensor([2.])) > 1
    tensor([True])
    """

    ufunc = "nextafter"
    exact = True
    needs = ("x1 x2", "spec2")
    samples = binary_samples()

    def gradient(self, g: Tensor, x1: Any, x2: Any, spec2: Any) -> tuple[Any, ...]:
        """The first input moves the result, except where both are equal; the second does not."""
        return (lambda: where(eq(*tensors(x1, x2)), 0, g), lambda: g.new_zeros(spec2.shape))

    @np.errstate(all="ignore")
    def reference(self, x1: Any, x2: Any) -> Any:
        """NumPy's own, in the same dtype: a wider one has other neighbours."""
        return np.nextafter(x1, np.asarray(x2, x1.dtype))


class Frexp(Op):
    """Mantissas in [1/2, 1) and exponents of 2 whose products are the elements."""

    n_outputs = 2
    exact = True
    samples = unary_samples(-9, 9)
    core = (0,)

    def infer(self, spec: Spec) -> tuple[Spec, Spec]:
        """The mantissa's dtype is the input's."""
        return spec, spec.with_(dtype=dt.int32)

    def compute(self, xp: Any, x: Any) -> Any:
        """The backend's; narrow floats have no more digits in float32."""
        narrow = x.dtype.kind == "V"
        mantissa, exponent = xp.frexp(x.astype(np.float32) if narrow else x)
        finite = xp.isfinite(mantissa)
        return (
            xp.asarray(mantissa).astype(x.dtype, copy=False),
            xp.asarray(xp.where(finite, exponent, 0)).astype(np.int32),
        )

    def gradient(self, g: Any, y: Any) -> tuple[Any, ...]:
        """The mantissa is the element over a power of 2."""
        if g[0] is None:
            return (None,)
        return (g[0] / exp2(cast(y[1], g[0].dtype)),)

    @np.errstate(all="ignore")
    def reference(self, x: Any) -> Any:
        """Reference value by logarithms."""
        x = np.asarray(x, np.float64)
        usable = np.isfinite(x) & (x != 0)
        exponent = np.floor(np.log2(np.abs(np.where(usable, x, 1)))).astype(int) + 1
        exponent = np.where(usable, exponent, 0)
        return np.where(usable, x / 2.0**exponent, x), exponent


@public(out=True)
def frexp(input: Tensor) -> return_types.frexp:
    """Mantissas (of size 1/2 up to 1) and exponents with input = mantissa * 2**exponent.

    Dtypes: floating point; the exponents are int32.
    Errors: DTypeError for other dtypes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.frexp.html

    >>> ad.frexp(ad.tensor([9., 0.25])).mantissa
    tensor([0.5625, 0.5000])
    """
    assert_tensor("frexp", input)
    assert_kind("frexp", input.dtype, FLOATING)
    return return_types.frexp(*apply(Frexp(), input))


class Heaviside(Elementwise):
    """0 for negative elements, 1 for positive ones, `values` at 0.

    >>> ad.heaviside(ad.tensor([-1., 0., 2.]), ad.tensor(0.5))
    tensor([0.0000, 0.5000, 1.0000])
    """

    kinds = ORDERED
    exact = True
    samples = binary_samples(dtypes=FLOATS + INTS)

    def compute(self, xp: Any, x1: Any, x2: Any) -> Any:
        """Step function by comparison; NaN counts as neither negative nor zero, as in PyTorch."""
        dtype = (x1 if hasattr(x1, "dtype") else x2).dtype
        return xp.where(xp.equal(x1, 0), x2, xp.greater(x1, 0).astype(dtype)).astype(dtype)

    @np.errstate(all="ignore")
    def reference(self, x1: Any, x2: Any) -> Any:
        """NumPy's own."""
        return np.heaviside(np.asarray(x1, np.float64), np.asarray(x2, np.float64))


copysign = binary(Copysign(), floating=True)
nextafter = binary(Nextafter())
_HEAVISIDE = Heaviside()
_heaviside = binary(_HEAVISIDE, name="heaviside")


@public(inplace=True, out=True)
@explaining
def heaviside(input: Tensor, values: Tensor) -> Tensor:
    """0 for negative elements, 1 for positive ones, `values` at 0.

    Shapes: `input` and `values` broadcast.
    Dtypes: both the same, not complex.
    Errors: DTypeError where the dtypes differ.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.heaviside.html

    >>> ad.heaviside(ad.tensor([-1., 0., 2.]), ad.tensor(0.5))
    tensor([0.0000, 0.5000, 1.0000])
    """
    result: Any = run_known(_HEAVISIDE, (input, values))
    if result is not None:
        return result
    assert_tensor("heaviside", input)
    if isinstance(values, TensorBase) and input.dtype is not values.dtype:
        raise DTypeError(
            "heaviside: is not yet implemented for tensors with different dtypes, "
            f"{input.dtype} and {values.dtype}; convert one with .to()"
        )
    return _heaviside(input, values)
