"""Arithmetic: sums, products, quotients and their roundings, and fused forms."""

from __future__ import annotations

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
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply, run_known
from ...runtime.public import METHODS, explaining, public
from ..promotion import cast, common_dtype, number, promote
from ..samples import COMPLEX, FLOATS, INTS, array, binary_samples, strided, unary_samples
from .pointwise import (
    ANALYTIC,
    BINARY_DOC,
    INTEGERS,
    NUMBERS,
    PLAIN,
    REAL,
    Elementwise,
    alias,
    assert_kind,
    binary,
    conj,
    fitting,
    operand,
    promoted,
    publish,
    to_out,
    unary,
    widen,
)

if TYPE_CHECKING:
    from ...ops.argument_types import Number, Operand

__all__ = [
    "add", "addcdiv", "addcmul", "div", "divide", "floor_divide", "fmod", "gcd", "lcm", "lerp",
    "mul", "multiply", "neg", "negative", "positive", "remainder", "rsub", "sub", "subtract",
    "true_divide",
]  # fmt: skip


# ---- sums and products ---------------------------------------------------------------------------


class Add(Elementwise):
    """The sum of two tensors."""

    ufunc = "add"
    samples = binary_samples(dtypes=FLOATS + INTS + COMPLEX)

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """g for both."""
        return (g, g)


class Sub(Elementwise):
    """The difference of two tensors."""

    ufunc = "subtract"
    kinds = NUMBERS
    samples = binary_samples(dtypes=FLOATS + INTS + COMPLEX)

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """g and -g."""
        return (g, lambda: -g)


class Mul(Elementwise):
    """The product of two tensors.

    >>> ad.mul(ad.tensor([1., 2.]), 3)
    tensor([3., 6.])
    """

    ufunc = "multiply"
    wide_numbers = True
    needs = ("x2", "x1")
    samples = binary_samples(dtypes=FLOATS + INTS + COMPLEX)

    def gradient(self, g: Tensor, x1: Tensor, x2: Tensor) -> tuple[Any, ...]:
        """g times the other input, for each input."""
        return (lambda: g * conj(x2), lambda: g * conj(x1))


class TrueDivide(Elementwise):
    """The quotient of two tensors; integers divide to floats."""

    ufunc = "divide"
    kinds = ANALYTIC
    wide_numbers = True
    needs = ("x2", "x1 x2")
    samples = binary_samples(dtypes=FLOATS + COMPLEX, low2=0.5)

    def gradient(self, g: Tensor, x1: Tensor, x2: Tensor) -> tuple[Any, ...]:
        """g / x2 and -g x1 / x2^2."""
        return (lambda: g / conj(x2), lambda: -g * conj(x1 / x2 / x2))


class Neg(Elementwise):
    """The negative of each element.

    >>> ad.neg(ad.tensor([1., -2.]))
    tensor([-1.,  2.])
    """

    ufunc = "negative"
    kinds = NUMBERS
    samples = unary_samples(dtypes=(*FLOATS, dt.int64, *COMPLEX))

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """-g."""
        return (-g,)


ADD, SUB, MUL, DIV = Add(), Sub(), Mul(), TrueDivide()

neg = unary(Neg(), floating=False)
negative = alias(neg, "negative")
mul = binary(MUL)
multiply = alias(mul, "multiply")
_add = binary(ADD, name="add")
_div = binary(DIV, name="div", floating=True)


def _add_scaled(name: str, input: Any, other: Any, alpha: Any) -> Any:
    """input + alpha * other, rounded once, where alpha fits the dtype of the result."""
    common, values = promote(name, operand(input), operand(other))
    if isinstance(alpha, bool) and common is not dt.bool_:
        raise DTypeError(f"{name}: Boolean alpha only supported for Boolean results, not {common}")
    if common.category < 2 and not isinstance(alpha, int):
        raise DTypeError(
            f"{name}: For integral input tensors, argument alpha must not be a floating point "
            f"number, got {alpha!r}"
        )
    if common is dt.bool_:
        if name == "sub":
            assert_kind(name, common, NUMBERS)
        return add(input, mul(other, bool(alpha)))
    return apply(ADDCMUL, *values, 1, fitting(alpha, common, name))


@public(inplace=True)
def add(
    input: Operand, other: Operand, *, alpha: Number = 1, out: Tensor | None = None, **others: Any
) -> Tensor:
    """input + alpha * other.

    Shapes: `input` and `other` broadcast; either may be a Python number.
    Dtypes: the promoted dtype of the inputs.
    Errors: ShapeError where the shapes do not broadcast.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.add.html

    >>> ad.add(ad.tensor([1., 2.]), ad.tensor([10., 20.]), alpha=2)
    tensor([21., 42.])
    """
    if others:
        raise unexpected(add, others)
    if FOLLOWED and concerns(input, other, out):
        said = overridden(add, (input, other), unusual(alpha=(alpha, 1), out=(out, None)))
        if said is not ABSENT:
            return said
    if alpha != 1:
        return to_out(_add_scaled("add", input, other, alpha), out, "add")
    return _add(input, other) if out is None else _add(input, other, out=out)


def _sub_general(input: Any, other: Any) -> Any:
    if any(
        x.dtype is dt.bool_ if isinstance(x, TensorBase) else isinstance(x, bool)
        for x in (input, other)
    ):
        raise DTypeError(
            "sub: Subtraction, the `-` operator, with a bool tensor is not supported. If you "
            "are trying to invert a mask, use the `~` or `logical_not()` operator instead; for the "
            "difference of two masks, the `^` or `logical_xor()` operator"
        )
    return apply(SUB, *promoted("sub", SUB, (input, other)))


_sub = publish(_sub_general, SUB, "sub", True, BINARY_DOC, 2, True, SUB.kinds)


@public(inplace=True)
def sub(
    input: Operand, other: Operand, *, alpha: Number = 1, out: Tensor | None = None, **others: Any
) -> Tensor:
    """input - alpha * other.

    Shapes: `input` and `other` broadcast; either may be a Python number.
    Dtypes: the promoted dtype of the inputs; bool is refused.
    Errors: ShapeError where the shapes do not broadcast; DTypeError for a bool tensor.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.sub.html

    >>> ad.sub(ad.tensor([1., 2.]), 3)
    tensor([-2., -1.])
    """
    if others:
        raise unexpected(sub, others)
    if FOLLOWED and concerns(input, other, out):
        said = overridden(sub, (input, other), unusual(alpha=(alpha, 1), out=(out, None)))
        if said is not ABSENT:
            return said
    if alpha != 1:
        return to_out(_add_scaled("sub", input, other, -alpha), out, "sub")
    return _sub(input, other) if out is None else _sub(input, other, out=out)


subtract = alias(sub, "subtract")


@explaining
@public(plain=True)
def rsub(input: Operand, other: Operand, *, alpha: Number = 1) -> Tensor:
    """other - alpha * input.

    Shapes: `input` and `other` broadcast; either may be a Python number.
    Dtypes: the promoted dtype of the inputs; bool is refused.
    Errors: ShapeError where the shapes do not broadcast; DTypeError for a bool tensor.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.sub.html

    >>> ad.rsub(ad.tensor([1., 2.]), 3)
    tensor([2., 1.])
    """
    return sub(other, input, alpha=alpha)


@explaining
@public()
def positive(input: Tensor) -> Tensor:
    """The input itself, as `+input`.

    Dtypes: any but bool.
    Errors: DTypeError for a bool tensor.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.positive.html

    >>> ad.positive(ad.tensor([1., -2.]))
    tensor([ 1., -2.])
    """
    assert_tensor("positive", input)
    if input.dtype is dt.bool_:
        raise DTypeError("positive: The `+` operator, on a bool tensor is not supported")
    return input


# ---- quotients, rounded --------------------------------------------------------------------------


def _assert_no_zero(name: str, xp: Any, x1: Any, x2: Any) -> None:
    """Integers cannot be divided by zero (where there are any to divide)."""
    array = x1 if hasattr(x1, "dtype") else x2
    if array.dtype.kind in "iu" and array.size and not bool(xp.all(x2)):
        raise InvalidArgument(
            f"{name}: ZeroDivisionError: an integer divided by zero; divide floats, or replace the "
            "zeros first"
        )


class FloorDivide(Elementwise):
    """The quotient of two tensors, rounded down.

    >>> ad.floor_divide(ad.tensor([7, -7]), 2)
    tensor([ 3, -4])
    """

    kinds = REAL
    wide_numbers = True
    samples = binary_samples(
        dtypes=(*FLOATS[:2], dt.int64, dt.int32), low=-9, high=9, low2=1.2, high2=4, gradients=False
    )

    def compute(self, xp: Any, x1: Any, x2: Any) -> Any:
        """The backend's floor_divide."""
        _assert_no_zero("floor_divide", xp, x1, x2)
        return xp.floor_divide(x1, x2)

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """Zero: the function is piecewise constant."""
        zeros = g.new_zeros(g.shape)
        return (zeros, zeros)

    @np.errstate(all="ignore")
    def reference(self, x1: Any, x2: Any) -> Any:
        """The floor of the exact quotient."""
        return np.floor(np.asarray(x1, np.float64) / np.asarray(x2, np.float64))


class TruncDivide(Elementwise):
    """The quotient of two tensors, rounded towards zero."""

    kinds = REAL
    wide_numbers = True
    samples = binary_samples(
        dtypes=(*FLOATS[:2], dt.int64, dt.int32), low=-9, high=9, low2=1.2, high2=4, gradients=False
    )

    def compute(self, xp: Any, x1: Any, x2: Any) -> Any:
        """Exact for integers: what fmod leaves over is taken off first."""
        _assert_no_zero("div", xp, x1, x2)
        if (x1 if hasattr(x1, "dtype") else x2).dtype.kind == "f":
            return xp.trunc(xp.divide(x1, x2))
        return xp.floor_divide(xp.subtract(x1, xp.fmod(x1, x2)), x2)

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """Zero: the function is piecewise constant."""
        zeros = g.new_zeros(g.shape)
        return (zeros, zeros)

    @np.errstate(all="ignore")
    def reference(self, x1: Any, x2: Any) -> Any:
        """The exact quotient without its fraction."""
        return np.trunc(np.asarray(x1, np.float64) / np.asarray(x2, np.float64))


FLOOR_DIVIDE, TRUNC_DIVIDE = FloorDivide(), TruncDivide()
floor_divide = binary(FLOOR_DIVIDE)
_trunc_divide = binary(TRUNC_DIVIDE, name="div")


@public(inplace=True)
def div(
    input: Operand,
    other: Operand,
    *,
    rounding_mode: str | None = None,
    out: Tensor | None = None,
    **others: Any,
) -> Tensor:
    """input / other, rounded towards zero ("trunc") or down ("floor") where asked.

    Shapes: `input` and `other` broadcast; either may be a Python number.
    Dtypes: integers divide to the default floating-point dtype, unless rounded.
    Errors: ShapeError where the shapes do not broadcast; InvalidArgument for another mode, or
        where integers are rounded and divided by zero.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.div.html

    >>> ad.div(ad.tensor([7, -7]), 2), ad.div(ad.tensor([7, -7]), 2, rounding_mode="trunc")
    (tensor([ 3.5000, -3.5000]), tensor([ 3, -3]))
    """
    if others:
        raise unexpected(div, others)
    if FOLLOWED and concerns(input, other, out):
        said = overridden(
            div, (input, other), unusual(rounding_mode=(rounding_mode, None), out=(out, None))
        )
        if said is not ABSENT:
            return said
    if rounding_mode is None:
        function = _div
    elif rounding_mode == "floor":
        function = floor_divide
    elif rounding_mode == "trunc":
        function = _trunc_divide
    else:
        raise InvalidArgument(
            "div: expected rounding_mode to be one of None, 'trunc', or 'floor' but found "
            f"{rounding_mode!r}"
        )
    return function(input, other, out=out)


divide = alias(div, "divide")


@explaining
@public(inplace=True, plain=True)
def true_divide(input: Operand, other: Operand, *, out: Tensor | None = None) -> Tensor:
    """input / other; integers divide to floats.

    Shapes: `input` and `other` broadcast; either may be a Python number.
    Dtypes: integers divide to the default floating-point dtype.
    Errors: ShapeError where the shapes do not broadcast.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.true_divide.html

    >>> ad.true_divide(ad.tensor([3, 4]), 2)
    tensor([1.5000, 2.0000])
    """
    return _div(input, other, out=out)


class Fmod(Elementwise):
    """Remainder of a division rounded towards zero; it has the sign of `input`.

    >>> ad.fmod(ad.tensor([-3., 3.]), 2)
    tensor([-1.,  1.])
    """

    kinds = REAL
    needs = ("", "x1 x2")
    samples = binary_samples(dtypes=(*FLOATS, dt.int64), low=-9, high=9, low2=2.1, high2=2.9)

    def compute(self, xp: Any, x1: Any, x2: Any) -> Any:
        """The backend's fmod."""
        _assert_no_zero("fmod", xp, x1, x2)
        return xp.fmod(x1, x2)

    def gradient(self, g: Tensor, x1: Tensor, x2: Tensor) -> tuple[Any, ...]:
        """g, and -g times the rounded quotient."""
        return (g, lambda: -g * _trunc_divide(x1, x2))

    @np.errstate(all="ignore")
    def reference(self, x1: Any, x2: Any) -> Any:
        """Reference value by the definition."""
        x1, x2 = np.asarray(widen(x1)), np.asarray(widen(x2))
        return x1 - np.trunc(x1 / x2) * x2


class Remainder(Elementwise):
    """Remainder of a division rounded down; it has the sign of `other`.

    >>> ad.remainder(ad.tensor([-3., 3.]), 2)
    tensor([1., 1.])
    """

    kinds = REAL
    needs = ("", "x1 x2")
    samples = binary_samples(dtypes=(*FLOATS, dt.int64), low=-9, high=9, low2=2.1, high2=2.9)

    def compute(self, xp: Any, x1: Any, x2: Any) -> Any:
        """fmod, moved to the divisor's sign where it is not zero (a zero keeps its own sign)."""
        _assert_no_zero("remainder", xp, x1, x2)
        if (x1 if hasattr(x1, "dtype") else x2).dtype.kind != "f":
            return xp.remainder(x1, x2)
        rest = xp.fmod(x1, x2)
        return xp.where((rest != 0) & ((rest < 0) != xp.less(x2, 0)), rest + x2, rest)

    def gradient(self, g: Tensor, x1: Tensor, x2: Tensor) -> tuple[Any, ...]:
        """g, and -g times the rounded quotient."""
        return (g, lambda: -g * floor_divide(x1, x2))

    @np.errstate(all="ignore")
    def reference(self, x1: Any, x2: Any) -> Any:
        """Reference value by the definition."""
        x1, x2 = np.asarray(widen(x1)), np.asarray(widen(x2))
        return x1 - np.floor(x1 / x2) * x2


fmod = binary(Fmod())
remainder = binary(Remainder())


class Gcd(Elementwise):
    """The greatest common divisor of two integer tensors.

    >>> ad.gcd(ad.tensor([12, -8]), ad.tensor([18, 12]))
    tensor([6, 4])
    """

    ufunc = "gcd"
    kinds = INTEGERS
    samples = binary_samples(dtypes=INTS, low=-50, high=50)

    @np.errstate(all="ignore")
    def reference(self, x1: Any, x2: Any) -> Any:
        """Python's own."""
        return np.vectorize(math.gcd, otypes=[np.int64])(x1, x2)


class Lcm(Elementwise):
    """The least common multiple of two integer tensors.

    >>> ad.lcm(ad.tensor([4, -6]), ad.tensor([6, 4]))
    tensor([12, 12])
    """

    ufunc = "lcm"
    kinds = INTEGERS
    samples = binary_samples(dtypes=INTS, low=-12, high=12)

    @np.errstate(all="ignore")
    def reference(self, x1: Any, x2: Any) -> Any:
        """Python's own."""
        return np.vectorize(math.lcm, otypes=[np.int64])(x1, x2)


gcd = binary(Gcd())
lcm = binary(Lcm())


# ---- fused ---------------------------------------------------------------------------------------


def _three_samples(low3: float, numbers: tuple[float, ...]) -> Any:
    """Samples of an op of three tensors (the last from `low3` up) and one number each."""

    def samples(cls: Any) -> Iterable[Sample]:
        op = cls()

        def three(*shapes: tuple[int, ...], dtype: dt.dtype = dt.float64) -> tuple[Any, ...]:
            lows = (-2.0, -2.0, low3)
            return tuple(
                array(s, dtype, low, 2, seed=i)
                for i, (s, low) in enumerate(zip(shapes, lows, strict=True))
            )

        for dtype in FLOATS + COMPLEX:
            yield Sample(op, (*three((2, 3), (2, 3), (2, 3), dtype=dtype), *numbers), dtype.name)
        yield Sample(op, (*three((2, 1), (3,), (1, 3)), *numbers), "broadcast")
        yield Sample(op, (*three((), (), ()), *numbers), "0-d")
        yield Sample(op, (*three((0, 3), (1, 3), ()), *numbers), "empty")
        x1, x2, x3 = three((3, 4), (3, 4), (3, 4))
        yield Sample(op, (strided(x1), x2, strided(x3), *numbers), "strided")

    return classmethod(samples)


class Addcmul(Elementwise):
    """The first input plus the product of the other two and a number."""

    kinds = NUMBERS
    needs = ("", "x3 x4", "x2 x4", "")
    samples = _three_samples(-2.0, (0.5,))

    def compute(self, xp: Any, x1: Any, x2: Any, x3: Any, value: Any) -> Any:
        """x1 + value * x2 * x3."""
        if not hasattr(x3, "dtype"):
            return xp.add(x1, xp.multiply(x2, x3 * value))
        product = xp.multiply(x2, x3)
        return xp.add(x1, product if value == 1 else product * value)

    def gradient(self, g: Tensor, x2: Any, x3: Any, x4: Any) -> tuple[Any, ...]:
        """g, and g times the number and the other factor."""
        return (g, lambda: g * conj(x3 * x4), lambda: g * conj(x2 * x4), None)

    @np.errstate(all="ignore")
    def reference(self, *arrays: Any) -> Any:
        """Reference value by the definition, in the widest precision."""
        x1, x2, x3, value = map(widen, arrays)
        return x1 + value * x2 * x3


class Addcdiv(Elementwise):
    """The first input plus the quotient of the other two times a number."""

    kinds = ANALYTIC
    needs = ("", "x3 x4", "x2 x3 x4", "")
    samples = _three_samples(0.5, (0.5,))

    def compute(self, xp: Any, x1: Any, x2: Any, x3: Any, value: Any) -> Any:
        """x1 + value * x2 / x3."""
        return xp.add(x1, xp.divide(x2 if value == 1 else x2 * value, x3))

    def gradient(self, g: Tensor, x2: Any, x3: Any, x4: Any) -> tuple[Any, ...]:
        """g, g value / x3 and -g value x2 / x3^2."""
        return (g, lambda: g * conj(x4 / x3), lambda: -g * conj(x2 * x4 / x3 / x3), None)

    @np.errstate(all="ignore")
    def reference(self, *arrays: Any) -> Any:
        """Reference value by the definition, in the widest precision."""
        x1, x2, x3, value = map(widen, arrays)
        return x1 + value * x2 / x3


class Lerp(Elementwise):
    """The point between two tensors that a weight gives."""

    kinds = ANALYTIC
    needs = ("x3", "x3", "x1 x2")
    samples = _three_samples(-2.0, ())

    def compute(self, xp: Any, start: Any, end: Any, weight: Any) -> Any:
        """Interpolation from the nearer end, so that a weight of 0 or 1 gives that end exactly."""
        step = xp.subtract(end, start)
        if not hasattr(weight, "dtype"):
            if abs(weight) < 0.5:
                return start + step * weight
            return end - step * (1 - weight)
        near = xp.abs(weight) < 0.5
        return xp.where(near, start + step * weight, end - step * (1 - weight))

    def gradient(self, g: Tensor, x1: Any, x2: Any, x3: Any) -> tuple[Any, ...]:
        """g (1 - weight), g weight, g (end - start)."""
        return (lambda: g * conj(1 - x3), lambda: g * conj(x3), lambda: g * conj(x2 - x1))

    @np.errstate(all="ignore")
    def reference(self, *arrays: Any) -> Any:
        """Reference value by the definition, in the widest precision."""
        start, end, weight = map(widen, arrays)
        return (1 - weight) * start + weight * end


ADDCMUL, ADDCDIV, LERP = Addcmul(), Addcdiv(), Lerp()


def _as_given(value: Any, to: Any) -> Any:
    """The number that arrays of dtype `to` take; small whole ones stay ints beside usual floats, as
    calls that are known by them have them.
    """
    kept = type(value) is int and value in _SMALL and to.numpy in PLAIN
    return value if kept else number(value, to)


_SMALL = range(-128, 128)


@public(inplace=True, out=True, plain=True)
def addcmul(input: Operand, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
    """input + value * tensor1 * tensor2.

    Shapes: the three broadcast.
    Dtypes: the promoted dtype of the three; a fraction as `value` is cut for integers.
    Errors: ShapeError where the shapes do not broadcast.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.addcmul.html

    >>> ad.addcmul(ad.tensor([1.]), ad.tensor([2.]), ad.tensor([3.]), value=0.5)
    tensor([4.])
    """
    result: Any = run_known(ADDCMUL, (input, tensor1, tensor2, value))
    if result is None:
        common, values = promote("addcmul", input, tensor1, tensor2)
        assert_kind("addcmul", common, NUMBERS)
        result = apply(ADDCMUL, *values, _as_given(value, common))
    return result  # type: ignore[no-any-return]


@public(inplace=True, out=True, plain=True)
def addcdiv(input: Operand, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
    """input + value * tensor1 / tensor2.

    Shapes: the three broadcast.
    Dtypes: the promoted dtype of the three; two integers are not divided.
    Errors: ShapeError where the shapes do not broadcast; DTypeError for two integer tensors.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.addcdiv.html

    >>> ad.addcdiv(ad.tensor([1.]), ad.tensor([2.]), ad.tensor([4.]), value=2)
    tensor([2.])
    """
    result: Any = run_known(ADDCDIV, (input, tensor1, tensor2, value))
    if result is not None:
        return result  # type: ignore[no-any-return]
    if common_dtype((tensor1, tensor2), "addcdiv").category < 2:
        raise DTypeError(
            "addcdiv: Integer division with addcdiv is no longer supported; use "
            "input + value * ad.true_divide(tensor1, tensor2), or rounding_mode='trunc' in ad.div"
        )
    common, values = promote("addcdiv", input, tensor1, tensor2)
    return apply(ADDCDIV, *values, _as_given(value, common))  # type: ignore[no-any-return]


@public(inplace=True, out=True)
def lerp(input: Tensor, end: Tensor, weight: Operand) -> Tensor:
    """input + weight * (end - input); `weight` is a tensor or a number.

    Shapes: the three broadcast.
    Dtypes: floating point or complex, the same for all tensors.
    Errors: DTypeError for integers and for different dtypes; ShapeError where the shapes do not
        broadcast.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.lerp.html

    >>> ad.lerp(ad.tensor([1., 2.]), ad.tensor([3., 4.]), 0.5)
    tensor([2., 3.])
    """
    if FOLLOWED and concerns(end, weight):
        said = overridden(METHODS["lerp"], (input, end, weight), {})
        if said is not ABSENT:
            return said  # type: ignore[no-any-return]
    result: Any = run_known(LERP, (input, end, weight))
    if result is not None:
        return result  # type: ignore[no-any-return]
    assert_tensor("lerp", input)
    assert_tensor("lerp", end, "end")
    found = input.dtype
    assert_kind("lerp", found, ANALYTIC)
    if end.dtype is not found:
        raise DTypeError(
            f"lerp: expected dtype {found} for `end` but got dtype {end.dtype}; convert with .to()"
        )
    if isinstance(weight, TensorBase):
        if weight.dtype is not found:
            if weight._data.ndim:
                raise DTypeError(
                    f"lerp: expected dtype {found} for `weight` but got dtype {weight.dtype}; "
                    "convert it with .to()"
                )
            weight = cast(weight, found)  # type: ignore[arg-type]
    else:
        weight = number(weight, found)
    return apply(LERP, input, end, weight)  # type: ignore[no-any-return]
