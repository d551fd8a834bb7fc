"""Comparison beyond relations: selection, the larger and smaller, clamping, closeness."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import dtype as dt
from ...core.argument_errors import assert_tensor
from ...core.errors import DTypeError, InvalidArgument, InvalidType
from ...core.keywords import unexpected
from ...core.op import Sample
from ...core.overrides import ABSENT, FOLLOWED, concerns, leading, overridden, unusual
from ...core.spec import Spec, broadcast_shapes
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply, run_known
from ...runtime.public import explaining, public
from ...runtime.tensors import fresh
from ..samples import FLOATS, INTS, array, binary_samples, strided
from .logic import logical_and, logical_or
from .pointwise import ORDERED, Elementwise, alias, binary, operand, promoted, to_out
from .relational import Eq as Eq
from .relational import Ge as Ge
from .relational import Gt as Gt
from .relational import Isfinite as Isfinite
from .relational import Isinf as Isinf
from .relational import Isnan as Isnan
from .relational import Le as Le
from .relational import Lt as Lt
from .relational import Ne as Ne
from .relational import Signbit as Signbit
from .relational import (
    eq,
    ge,
    greater,
    greater_equal,
    gt,
    isfinite,
    isinf,
    isnan,
    isneginf,
    isposinf,
    le,
    less,
    less_equal,
    lt,
    ne,
    not_equal,
    signbit,
)

if TYPE_CHECKING:
    from ...ops.argument_types import Operand

__all__ = [
    "allclose", "clamp", "clamp_max", "clamp_min", "clip", "eq", "equal", "fmax", "fmin", "ge",
    "greater", "greater_equal", "gt", "isclose", "isfinite", "isinf", "isnan", "isneginf",
    "isposinf", "le", "less", "less_equal", "lt", "maximum", "minimum", "ne", "not_equal",
    "signbit", "where",
]  # fmt: skip


# ---- selection -----------------------------------------------------------------------------------


class Where(Elementwise):
    """The elements of the second input where the first is true, of the third where it is not."""

    numbers_fit = True
    exact = True
    needs = ("", "x1", "x1")

    def infer(self, condition: Spec, *specs: Any) -> Spec:
        """The broadcast shape; the dtype of the values."""
        tensors = [spec for spec in specs if isinstance(spec, Spec)]
        if condition.dtype is not dt.bool_:
            raise DTypeError(
                "where: expected condition to be a boolean tensor, but got a tensor with dtype "
                f"{condition.dtype}; compare it, e.g. condition != 0"
            )
        shape = broadcast_shapes(condition.shape, *(s.shape for s in tensors), op="where")
        return super().infer(*specs).with_(shape=shape)

    def compute(self, xp: Any, condition: Any, x: Any, y: Any) -> Any:
        """The backend's where."""
        return xp.where(condition, x, y)

    def gradient(self, g: Tensor, x1: Tensor) -> tuple[Any, ...]:
        """g where the element was taken, 0 where not."""
        return (None, lambda: where(x1, g, 0), lambda: where(x1, 0, g))

    def reference(self, condition: Any, x: Any, y: Any) -> Any:
        """Element by element."""
        x1, x2, x3 = np.broadcast_arrays(condition, x, y)
        flat = [b if a else c for a, b, c in zip(x1.flat, x2.flat, x3.flat, strict=True)]
        return np.array(flat, x.dtype).reshape(x1.shape)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Every dtype; broadcast; numbers."""
        condition = array((2, 3), dt.bool_, seed=5)
        for dtype in dt.ALL:
            pair = array((2, 3), dtype), array((2, 3), dtype, seed=1)
            yield Sample(cls(), (condition, *pair), dtype.name)
        x = array((2, 3))
        yield Sample(cls(), (condition, x, 1.5), "number")
        yield Sample(cls(), (condition[0], x, array((2, 1))), "broadcast")
        yield Sample(cls(), (condition, array(()), x), "0-d")
        yield Sample(cls(), (np.array(True), array(()), array((), seed=1)), "all-0-d")
        yield Sample(cls(), (np.zeros((0, 3), bool), array((1, 3)), array(())), "empty")
        yield Sample(cls(), (strided(condition), strided(x), x), "strided")


WHERE = Where()


@public(method=False)
def where(
    condition: Any,
    input: Operand | None = None,
    other: Operand | None = None,
    *,
    out: Tensor | None = None,
    **others: Any,
) -> Any:
    """The elements of `input` where `condition` is true, of `other` where it is not.

    With a condition alone: the indices of its true elements, one tensor per dimension.

    Shapes: the three broadcast; `input` and `other` may be Python numbers.
    Dtypes: a bool condition; the result has the promoted dtype of the other two.
    Errors: DTypeError for a condition that is not bool; ShapeError where the shapes do not
        broadcast.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.where.html

    >>> x = ad.tensor([1., -2.])
    >>> ad.where(x > 0, x, 0)
    tensor([1., 0.])
    """
    if others:
        raise unexpected(where, others)
    if FOLLOWED and concerns(condition, input, other, out):
        said = overridden(where, leading(condition, input, other), unusual(out=(out, None)))
        if said is not ABSENT:
            return said
    if input is None and other is None:
        assert_tensor("where", condition, "condition")
        return condition.nonzero(as_tuple=True)
    result = run_known(WHERE, (condition, input, other))
    if result is not None:
        return result if out is None else to_out(result, out, "where")
    if input is None or other is None:
        raise InvalidType("where: needs both `input` and `other`, or neither")
    if not isinstance(condition, TensorBase) or condition.dtype is not dt.bool_:
        condition = _condition(condition)
    if isinstance(other, TensorBase) and not isinstance(input, TensorBase):
        x2, x1 = promoted("where", WHERE, (other, input))  # the tensor first has a shorter way
    else:
        x1, x2 = promoted("where", WHERE, (input, other))
    return to_out(apply(WHERE, condition, x1, x2), out, "where")


def _condition(condition: Any) -> Any:
    """A bool tensor from what `where` takes; uint8 has been used for it."""
    assert_tensor("where", condition, "condition")
    return ne(condition, 0) if condition.dtype is dt.uint8 else WHERE.infer(condition.spec)


@public(method="where", inplace=False)
def _where_method(input: Any, condition: Any, other: Any) -> Any:
    """The elements of this tensor where `condition` is true, of `other` where it is not.

    Errors: those of `where`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.where.html

    >>> ad.tensor([1., 2.]).where(ad.tensor([True, False]), 0)
    tensor([1., 0.])
    """
    return where(condition, input, other)


class _Extremum(Elementwise, abstract=True):
    kinds = ORDERED
    exact = True

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """The usual ones; the special ones hold ties and NaN on each side."""
        usual: Any = binary_samples(dtypes=FLOATS + INTS)
        yield from usual.__func__(cls)
        x1 = np.array([np.nan, 1.0, 1.0, np.inf, np.nan, -np.inf])
        x2 = np.array([1.0, np.nan, 1.0, 1.0, np.nan, 1.0])
        yield Sample(cls(), (x1, x2), "special", gradients=False)


class Maximum(_Extremum):
    """The greater of two elements; NaN where one is NaN. Equal elements share the gradient.

    >>> ad.maximum(ad.tensor([1., 5.]), ad.tensor([3., 2.]))
    tensor([3., 5.])
    """

    ufunc = "maximum"

    def gradient(self, g: Tensor, x1: Any, x2: Any) -> tuple[Any, ...]:
        """g for the greater, half of it each for equal ones."""

        def share(a: Any, b: Any) -> Any:
            return where(lt(a, b), 0, where(eq(a, b), g / 2, g))

        return (lambda: share(*tensors(x1, x2)), lambda: share(*tensors(x2, x1)))


class Minimum(_Extremum):
    """The smaller of two elements; NaN where one is NaN. Equal elements share the gradient.

    >>> ad.minimum(ad.tensor([1., 5.]), ad.tensor([3., 2.]))
    tensor([1., 2.])
    """

    ufunc = "minimum"

    def gradient(self, g: Tensor, x1: Any, x2: Any) -> tuple[Any, ...]:
        """g for the smaller, half of it each for equal ones."""

        def share(a: Any, b: Any) -> Any:
            return where(gt(a, b), 0, where(eq(a, b), g / 2, g))

        return (lambda: share(*tensors(x1, x2)), lambda: share(*tensors(x2, x1)))


class Fmax(_Extremum):
    """The greater of two elements; where one is NaN, the other.

    >>> ad.fmax(ad.tensor([1., float("nan")]), ad.tensor([3., 2.]))
    tensor([3., 2.])
    """

    ufunc = "fmax"

    def gradient(self, g: Tensor, x1: Any, x2: Any) -> tuple[Any, ...]:
        """g for the one that was taken; the first of equal ones."""
        x1, x2 = tensors(x1, x2)
        first = logical_or(ge(x1, x2), isnan(x2))
        return (lambda: where(first, g, 0), lambda: where(first, 0, g))


class Fmin(_Extremum):
    """The smaller of two elements; where one is NaN, the other.

    >>> ad.fmin(ad.tensor([1., float("nan")]), ad.tensor([3., 2.]))
    tensor([1., 2.])
    """

    ufunc = "fmin"

    def gradient(self, g: Tensor, x1: Any, x2: Any) -> tuple[Any, ...]:
        """g for the one that was taken; the first of equal ones."""
        x1, x2 = tensors(x1, x2)
        first = logical_or(le(x1, x2), isnan(x2))
        return (lambda: where(first, g, 0), lambda: where(first, 0, g))


def tensors(x1: Any, x2: Any) -> tuple[Any, Any]:
    """The operands as tensors, where one may be a number."""
    if not isinstance(x1, TensorBase):
        return x2.new_tensor(x1), x2
    return x1, x2 if isinstance(x2, TensorBase) else x1.new_tensor(x2)  # type: ignore[attr-defined]


maximum, minimum = binary(Maximum(), inplace=False), binary(Minimum(), inplace=False)
fmax, fmin = binary(Fmax(), inplace=False), binary(Fmin(), inplace=False)


class ClampMin(Elementwise):
    """The elements, raised to a bound."""

    ufunc = "maximum"
    kinds = ORDERED
    numbers_fit = True
    exact = True
    samples = binary_samples(dtypes=FLOATS + INTS)

    def gradient(self, g: Tensor, x1: Any, x2: Any) -> tuple[Any, ...]:
        """g for the elements at or above the bound, and for the bounds that are above."""
        return (lambda: where(ge(x1, x2), g, 0), lambda: where(lt(x1, x2), g, 0))


class ClampMax(Elementwise):
    """The elements, lowered to a bound."""

    ufunc = "minimum"
    kinds = ORDERED
    numbers_fit = True
    exact = True
    samples = binary_samples(dtypes=FLOATS + INTS)

    def gradient(self, g: Tensor, x1: Any, x2: Any) -> tuple[Any, ...]:
        """g for the elements at or below the bound, and for the bounds that are below."""
        return (lambda: where(le(x1, x2), g, 0), lambda: where(gt(x1, x2), g, 0))


class Clamp(Elementwise):
    """The elements, kept between two bounds; the upper one wins where they cross."""

    kinds = ORDERED
    numbers_fit = True
    exact = True

    def compute(self, xp: Any, x: Any, low: Any, high: Any) -> Any:
        """The maximum with the lower bound, then the minimum with the upper one."""
        return xp.minimum(xp.maximum(x, low), high)

    def gradient(self, g: Tensor, x1: Any, x2: Any, x3: Any) -> tuple[Any, ...]:
        """g where the element, or the bound, was taken; an element at its bound counts as taken."""
        return (
            lambda: where(logical_and(ge(x1, x2), le(x1, x3)), g, 0),
            lambda: where(logical_and(lt(x1, x2), _crossed(x2, x3, lt)), g, 0),
            lambda: where(logical_or(gt(x1, x3), _crossed(x3, x2, lt)), g, 0),
        )

    def reference(self, x: Any, low: Any, high: Any) -> Any:
        """Element by element."""
        arrays = np.broadcast_arrays(x, low, high)
        flat = [min(max(a, b), c) for a, b, c in zip(*(a.flat for a in arrays), strict=True)]
        return np.array(flat, x.dtype).reshape(arrays[0].shape)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Bounds that are numbers and tensors, broadcast, crossed."""
        x = array((3, 4))
        for dtype in FLOATS + INTS:
            bounds = np.array(-1).astype(dtype.numpy), np.array(1).astype(dtype.numpy)
            yield Sample(cls(), (array((3, 4), dtype), *bounds), dtype.name)
        yield Sample(cls(), (x, -0.5, 0.7), "numbers")
        yield Sample(cls(), (x, 0.7, -0.5), "crossed")
        yield Sample(cls(), (x, array((4,), seed=1), array((3, 1), seed=2)), "broadcast")
        yield Sample(cls(), (array(()), -0.5, 0.7), "0-d")
        yield Sample(cls(), (array((0, 3)), -0.5, array((1, 3))), "empty")
        yield Sample(cls(), (strided(x), x - 0.3, 0.7), "strided")


def _crossed(x1: Any, x2: Any, compare: Any) -> Any:
    if isinstance(x1, TensorBase) or isinstance(x2, TensorBase):
        return compare(*tensors(x1, x2))
    return fresh(np.asarray(x1 < x2))


CLAMP, CLAMP_MIN, CLAMP_MAX = Clamp(), ClampMin(), ClampMax()


@public(inplace=True)
def clamp(
    input: Operand,
    min: Operand | None = None,
    max: Operand | None = None,
    *,
    out: Tensor | None = None,
    **others: Any,
) -> Tensor:
    """The elements, kept between `min` and `max`: numbers, tensors, or None for no bound.

    Shapes: input and bounds broadcast.
    Dtypes: the promoted dtype of the input and the bounds; not complex.
    Errors: InvalidArgument where both bounds are None; DTypeError for complex tensors.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.clamp.html

    >>> ad.clamp(ad.tensor([-2., 0.5, 2.]), -1, 1)
    tensor([-1.0000,  0.5000,  1.0000])
    """
    if others:
        raise unexpected(clamp, others)
    if FOLLOWED and concerns(input, min, max, out):
        said = overridden(clamp, leading(input, min, max), unusual(out=(out, None)))
        if said is not ABSENT:
            return said
    if min is None or max is None:
        if min is not None:
            return clamp_min(input, min, out=out)
        if max is not None:
            return clamp_max(input, max, out=out)
        raise InvalidArgument("clamp: At least one of 'min' or 'max' must not be None")
    result: Any = run_known(CLAMP, (input, min, max))
    if result is None:
        if not isinstance(input, TensorBase):
            assert_tensor("clamp", input)
        result = apply(CLAMP, *promoted("clamp", CLAMP, (input, min, max), kinds=ORDERED))
    return result if out is None else to_out(result, out, "clamp")


clip = alias(clamp, "clip")
_clamp_min, _clamp_max = binary(CLAMP_MIN), binary(CLAMP_MAX)


@explaining
@public(inplace=True, plain=True)
def clamp_min(input: Operand, min: Operand, *, out: Tensor | None = None) -> Tensor:
    """The elements, raised to `min` where they are smaller.

    Shapes: input and bound broadcast.
    Dtypes: the promoted dtype of the input and the bound; not complex.
    Errors: DTypeError for complex tensors.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.clamp.html

    >>> ad.clamp_min(ad.tensor([-2., 2.]), 0)
    tensor([0., 2.])
    """
    return _clamp_min(input, min, out=out)


@explaining
@public(inplace=True, plain=True)
def clamp_max(input: Operand, max: Operand, *, out: Tensor | None = None) -> Tensor:
    """The elements, lowered to `max` where they are greater.

    Shapes: input and bound broadcast.
    Dtypes: the promoted dtype of the input and the bound; not complex.
    Errors: DTypeError for complex tensors.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.clamp.html

    >>> ad.clamp_max(ad.tensor([-2., 2.]), 0)
    tensor([-2.,  0.])
    """
    return _clamp_max(input, max, out=out)


# ---- whole tensors compared ----------------------------------------------------------------------


@public()
@explaining
def isclose(
    input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Tensor:
    """Whether |input - other| <= atol + rtol |other|; infinities are close to their equals only.

    Shapes: `input` and `other` broadcast.
    Dtypes: both the same; the result is bool.
    Errors: DTypeError where the dtypes differ; InvalidArgument for a negative tolerance.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.isclose.html

    >>> ad.isclose(ad.tensor([1., 2.]), ad.tensor([1.000001, 2.1]))
    tensor([ True, False])
    """
    input, other = operand(input), operand(other)
    assert_tensor("isclose", input)
    assert_tensor("isclose", other, "other")
    if input.dtype is not other.dtype:
        raise DTypeError(
            f"isclose: {input.dtype} did not match {other.dtype}; convert one with .to()"
        )
    for tolerance, value in (("rtol", rtol), ("atol", atol)):
        if value < 0:
            raise InvalidArgument(
                f"isclose: {tolerance} must be greater than or equal to zero, but got {value}"
            )
    close = eq(input, other)
    if equal_nan and input.dtype.category >= 2:
        close = logical_or(close, logical_and(isnan(input), isnan(other)))
    if rtol == 0 and atol == 0:
        return close
    if input.dtype.category < 2:
        input, other = input.to(dt.float64), other.to(dt.float64)
    difference = (input - other).abs()
    allowed = atol + (rtol * other).abs()
    near = logical_and(isfinite(difference), le(difference, allowed))
    return logical_or(close, near)


@public()
@explaining
def allclose(
    input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> bool:
    """Whether `isclose` holds for all elements.

    Shapes: `input` and `other` broadcast.
    Errors: those of `isclose`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.allclose.html

    >>> ad.allclose(ad.tensor([1., 2.]), ad.tensor([1., 2.0000001]))
    True
    """
    return bool(isclose(input, other, rtol, atol, equal_nan).all())


@public()
@explaining
def equal(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape and equal elements.

    Errors: InvalidType where one is not a tensor.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.equal.html

    >>> ad.equal(ad.tensor([1, 2]), ad.tensor([1, 2])), ad.equal(ad.tensor([1]), ad.tensor([1, 1]))
    (True, False)
    """
    assert_tensor("equal", input)
    assert_tensor("equal", other, "other")
    return input._data.shape == other._data.shape and bool(eq(input, other).all())
