"""Powers of tensors and numbers."""

from __future__ import annotations

import cmath
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import dtype as dt
from ...core.argument_errors import assert_tensor
from ...core.errors import DTypeError, InvalidArgument
from ...core.keywords import unexpected
from ...core.op import Sample
from ...core.overrides import ABSENT, FOLLOWED, concerns, overridden, unusual
from ...core.symbolic_scalar import SymbolicNumber
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply, run_known
from ...runtime.public import explaining, public
from ..promotion import cast, common_dtype, number
from ..samples import COMPLEX, FLOATS, array, strided
from .arithmetic import MUL, mul
from .comparison import where
from .functions import exp2, log, square
from .pointwise import NUMBERS, PLAIN, Elementwise, conj, fitting, operand, promoted, to_out, widen

if TYPE_CHECKING:
    from ...ops.argument_types import Operand

__all__ = ["float_power", "ldexp", "pow"]


class Pow(Elementwise):
    """Power of one tensor to another. Roots and inverses are of this op, too: theirs save their
    results, and PyTorch's power saves its input, so that the result may be changed in place.
    """

    kinds = NUMBERS
    needs = ("x1 x2", "x1 x2 y")

    def compute(self, xp: Any, x1: Any, x2: Any) -> Any:
        """The backend's power; a cube by products, roots and inverses as such; integers to negative
        powers as PyTorch's.
        """
        if isinstance(x2, (int, float)) and hasattr(x1, "dtype"):
            if x2 == 3:
                return x1 * x1 * x1
            if x2 in (0.5, -0.5):
                root = xp.sqrt(x1)
                return root if x2 > 0 else 1 / root
            if x2 == -1:
                return 1 / x1
        integers = hasattr(x2, "dtype") and x2.dtype.kind == "i"
        if integers and bool(xp.any(x2 < 0)):
            # The quotient 1 / x1^n rounded towards zero: 1 and -1 have one, the others give 0.
            x1 = xp.asarray(x1, dtype=x2.dtype)
            inverse = xp.where((x1 == 1) | (x1 == -1), x1, 0)
            return xp.power(xp.where(x2 < 0, inverse, x1), xp.abs(x2)).astype(x2.dtype)
        return xp.power(x1, x2)

    def gradient(self, g: Tensor, x1: Any, x2: Any, y: Any) -> tuple[Any, ...]:
        """g x2 x1^(x2 - 1), which is 0 where x2 is; g y log(x1), which is 0 where x1 is 0 and x2
        not negative.
        """
        return (lambda: g * conj(_slope(x1, x2)), lambda: g * conj(_growth(x1, x2, y)))

    @np.errstate(all="ignore")
    def reference(self, x1: Any, x2: Any) -> Any:
        """NumPy's power in the widest precision."""
        return np.power(widen(x1), widen(x2))

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Positive bases with any exponent, any base with whole ones, numbers on both sides."""
        op = cls()
        for dtype in FLOATS + COMPLEX:
            pair = array((2, 3), dtype, 0.2, 2), array((2, 3), dtype, seed=1)
            yield Sample(op, pair, dtype.name)
        x = array((2, 3), dt.float64, 0.2, 2)
        for label, other in (
            ("broadcast", array((3,))), ("0-d", array(())), ("square", 2.0), ("cube", 3.0),
            ("zero", 0.0), ("one", 1.0), ("inverse", -1.0), ("number", -1.7),
        ):  # fmt: skip
            yield Sample(op, (x, other), label)
        yield Sample(op, (array((2, 3)), 4.0), "negative-base")
        yield Sample(op, (1.5, array((2, 3))), "base-number")
        yield Sample(op, (array(()), 2.0), "0-d-base")
        yield Sample(op, (array((0, 3)), array((1, 3))), "empty")
        yield Sample(op, (strided(array((3, 4), dt.float64, 0.2, 2)), array((3, 4))), "strided")
        yield Sample(op, (array((2, 3), dt.int64, -5, 5), 3), "integer")
        yield Sample(op, (array((2, 3), dt.uint8, 0, 5), array((2, 3), dt.uint8)), "uint8")


def _slope(x: Any, exponent: Any) -> Any:
    """exponent * x^(exponent - 1); 0 where the exponent is 0."""
    if hasattr(exponent, "dtype"):
        return where(exponent == 0, 0, exponent * pow(x, exponent - 1))
    if exponent == 0:
        return x.new_zeros(x.shape)
    return exponent * pow(x, exponent - 1)


def _growth(x: Any, exponent: Any, y: Any) -> Any:
    """y log(x); 0 where x is 0 and the exponent is not negative."""
    positive = (exponent.real if exponent.dtype.is_complex else exponent) >= 0
    if hasattr(x, "dtype"):
        return where((x == 0) & positive, 0, y * log(x))
    if x == 0:
        return where(positive, 0, y * -float("inf"))
    if isinstance(x, complex):
        return y * cmath.log(x)
    return y * (math.log(x) if x > 0 else math.nan)


POW = Pow()


@public(inplace=True)
def pow(input: Operand, exponent: Operand, *, out: Tensor | None = None, **others: Any) -> Tensor:
    """`input` to the power of `exponent`.

    Shapes: `input` and `exponent` broadcast; one of them may be a Python number.
    Dtypes: the promoted dtype of the inputs.
    Errors: InvalidArgument for integers to the power of a negative whole number; DTypeError for
        two bool tensors.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.pow.html

    >>> ad.pow(ad.tensor([1., 2., 3.]), 2)
    tensor([1., 4., 9.])
    """
    if others:
        raise unexpected(pow, others)
    if FOLLOWED and concerns(input, exponent, out):
        said = overridden(pow, (input, exponent), unusual(out=(out, None)))
        if said is not ABSENT:
            return said
    result: Any
    two = type(exponent) in (int, float) and exponent == 2
    if two and isinstance(input, TensorBase) and input._data.dtype in PLAIN:
        result = square(input, out=out)
        return result
    result = run_known(POW, (input, exponent))
    if result is None:
        result = _pow(operand(input), operand(exponent))
    return result if out is None else to_out(result, out, "pow")


def _pow(input: Any, exponent: Any) -> Any:
    if isinstance(exponent, TensorBase):
        base, exponent = promoted("pow", POW, (input, exponent), kinds=NUMBERS)
        return apply(POW, base, exponent)
    assert_tensor("pow", input)
    common = common_dtype((input, exponent), "pow")
    if common is dt.bool_:
        raise DTypeError('pow: "pow" not implemented for bool; convert with .int()')
    if common.category == 1 and exponent < 0:
        raise InvalidArgument(
            f"pow: Integers to negative integer powers are not allowed, got exponent "
            f"{exponent}; convert the tensor with .float()"
        )
    base = cast(input, common)
    if type(exponent) is SymbolicNumber:  # these powers are computed in other ways
        power: Any = exponent
        exponent = next((n for n in (3, 0.5, -0.5, -1) if power == n), power)
    return square(base) if exponent == 2 else apply(POW, base, fitting(exponent, common, "pow"))


@public(inplace=True, out=True)
@explaining
def float_power(input: Operand, exponent: Operand) -> Tensor:
    """`input` to the power of `exponent`, computed in float64 or complex128.

    Shapes: `input` and `exponent` broadcast; one of them may be a Python number.
    Dtypes: float64, or complex128 where an input is complex.
    Errors: ShapeError where the shapes do not broadcast.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.float_power.html

    >>> ad.float_power(ad.tensor([2, 3]), -1)
    tensor([0.5000, 0.3333], dtype=adjoint.float64)
    """
    common = common_dtype((input, exponent), "float_power")
    wide = dt.complex128 if common.is_complex else dt.float64
    values: list[Any] = [operand(input), operand(exponent)]
    return pow(
        *(
            number(v, wide) if isinstance(v, (int, float, complex)) else cast(v, wide)
            for v in values
        )
    )


@public(inplace=True, out=True)
@explaining
def ldexp(input: Operand, other: Operand) -> Tensor:
    """input * 2**other.

    Shapes: `input` and `other` broadcast.
    Dtypes: the promoted dtype of the inputs; integers become the default floating-point dtype.
    Errors: ShapeError where the shapes do not broadcast.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.ldexp.html

    >>> ad.ldexp(ad.tensor([1.]), ad.tensor([1, 2, 3]))
    tensor([2., 4., 8.])
    """
    values = promoted("ldexp", MUL, (input, other), floating=True)
    factor = exp2(values[1]) if isinstance(values[1], TensorBase) else 2.0 ** values[1]
    return mul(values[0], factor)
