"""Data types: kinds, promotion by the standard's tables, limits, conversion."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ...core import dtype as dt
from ...core.dtype import dtype as DType  # noqa: N812 - a class, in spite of PyTorch's name
from ...core.errors import DTypeError, InvalidArgument, InvalidType, ShapeError
from . import functions as ad

__all__ = ["astype", "can_cast", "finfo", "iinfo", "isdtype", "result_type"]

Array: TypeAlias = Any  # an adjoint.Tensor; adjoint's own functions are declared to return Any

# The dtypes of the standard. float16 and bfloat16, which adjoint has too, belong to the kind "real
# floating"; the standard allows more dtypes than it names.
STANDARD = (
    dt.bool_, dt.int8, dt.int16, dt.int32, dt.int64, dt.uint8, dt.uint16, dt.uint32, dt.uint64,
    dt.float32, dt.float64, dt.complex64, dt.complex128,
)  # fmt: skip

# ---- kinds ---------------------------------------------------------------------------------------

_SHORTHANDS = {
    "integral": ("signed integer", "unsigned integer"),
    "numeric": ("signed integer", "unsigned integer", "real floating", "complex floating"),
}
_BY_CATEGORY = ("bool", "signed integer", "real floating", "complex floating")
KINDS = ("bool", "signed integer", "unsigned integer", "real floating", "complex floating")

ANY = frozenset(KINDS)
NUMERIC = frozenset(_SHORTHANDS["numeric"])
INTEGRAL = frozenset(_SHORTHANDS["integral"])
REAL = NUMERIC - {"complex floating"}
FLOATING = NUMERIC - INTEGRAL
REAL_FLOATING = frozenset({"real floating"})
COMPLEX = frozenset({"complex floating"})
BOOLEAN = frozenset({"bool"})


_KIND = {
    d: "unsigned integer" if d.category == 1 and not d.is_signed else _BY_CATEGORY[d.category]
    for d in dt.BY_NUMPY.values()
}


def kind_of(dtype: DType) -> str:
    """The standard's name of the kind to which a dtype belongs."""
    if dtype not in _KIND:
        raise InvalidType(f"expected a dtype such as adjoint.float32, got {dtype!r:.60}")
    return _KIND[dtype]


def assert_kind(name: str, dtype: DType, kinds: frozenset[str]) -> None:
    """Refuse a dtype of another kind than a function takes: it is never converted silently."""
    if kind_of(dtype) not in kinds:
        expected = " or ".join(kind for kind in KINDS if kind in kinds)
        raise DTypeError(f"{name}: needs an array of dtype {expected}, got {dtype}; use astype()")


def is_array(value: Any) -> bool:
    """Whether a value is an array of this namespace."""
    return isinstance(value, ad.Tensor)


def checked(name: str, value: Any, kinds: frozenset[str] = ANY) -> Any:
    """`value`, unless it is no array, or of other kinds: this namespace converts nothing but Python
    scalars beside arrays.
    """
    if not is_array(value):
        raise InvalidType(
            f"{name}: expected an adjoint.Tensor, got {type(value).__name__}: {value!r:.40}; "
            "make one with asarray()"
        )
    assert_kind(name, value.dtype, kinds)
    return value


def matrices(name: str, x: Array, kinds: frozenset[str] = FLOATING) -> Array:
    """The array, which must hold matrices of one of `kinds`."""
    checked(name, x, kinds)
    if x.ndim < 2:
        raise ShapeError(f"{name}: shape {tuple(x.shape)} holds no matrices")
    return x


# ---- promotion -----------------------------------------------------------------------------------


def _promote(name: str, a: DType, b: DType) -> DType:
    """The dtype in which two array dtypes meet, by the standard's tables."""
    if a is b:
        return a
    if min(a.category, 2) != min(b.category, 2):  # real and complex numbers promote together
        raise DTypeError(
            f"{name}: {a} and {b} are of different kinds, which the standard does not mix; "
            "convert one with astype()"
        )
    return ad.promote_types(a, b)


def _beside(name: str, dtype: DType, number: Any) -> DType:
    """The dtype in which an array dtype meets a Python scalar."""
    if isinstance(number, bool):
        fits = dtype.category == 0
    elif isinstance(number, int):
        fits = dtype.category > 0
    elif isinstance(number, (float, complex)):
        fits = dtype.category > 1
    else:
        raise InvalidType(
            f"{name}: expected an array, a dtype or a Python scalar, got {type(number).__name__}: "
            f"{number!r:.40}"
        )
    if not fits:
        raise DTypeError(
            f"{name}: the {type(number).__name__} {number!r} does not promote with {dtype}; "
            "convert the array with astype(), or the scalar"
        )
    return dtype.to_complex() if isinstance(number, complex) else dtype


def common_dtype(name: str, values: Iterable[Any]) -> DType:
    """`result_type` for the messages of function `name`."""
    values = [v.item() if isinstance(v, np.generic) else v for v in values]
    dtypes = [v if isinstance(v, DType) else v.dtype for v in values if _has_dtype(v)]
    if not dtypes:
        raise InvalidType(f"{name}: at least one argument must be an array or a dtype")
    common = dtypes[0]
    for dtype in dtypes[1:]:
        common = _promote(name, common, dtype)
    for value in values:
        if not _has_dtype(value):
            common = _beside(name, common, value)
    return common


def _has_dtype(value: Any) -> bool:
    return isinstance(value, (DType, ad.Tensor))


def operands(name: str, kinds: frozenset[str], *values: Any) -> list[Array]:
    """Arrays and Python scalars in their common dtype, which must be of one of `kinds`."""
    if not any(map(is_array, values)):
        raise InvalidType(f"{name}: at least one operand must be an array, got {values!r:.60}")
    common = common_dtype(name, values)
    assert_kind(name, common, kinds)
    place = next(v.device for v in values if is_array(v))
    return [
        v.to(common) if is_array(v) else ad.tensor(v, dtype=common, device=place) for v in values
    ]


# ---- public functions ----------------------------------------------------------------------------


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype in which arrays, dtypes and Python scalars meet.

    Errors: DTypeError where the standard defines none (kinds differ, or uint64 beside signed).
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.result_type.html

    >>> xp = ad.array_api
    >>> xp.result_type(xp.int8, xp.uint8), xp.result_type(xp.float32, 1j)
    (adjoint.int16, adjoint.complex64)
    """
    return common_dtype("result_type", arrays_and_dtypes)


def can_cast(from_: Any, to: DType, /) -> bool:
    """Whether promotion leads from a dtype (or an array's) to `to`.

    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.can_cast.html

    >>> xp = ad.array_api
    >>> xp.can_cast(xp.int8, xp.int16), xp.can_cast(xp.int8, xp.float32)
    (True, False)
    """
    try:
        return common_dtype("can_cast", (from_, to)) is to
    except DTypeError:
        return False


def isdtype(dtype: DType, kind: Any) -> bool:
    """Whether a dtype is of a kind: a dtype, a name such as "integral", or a tuple of those.

    Errors: InvalidArgument for an unknown name.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.isdtype.html

    >>> xp = ad.array_api
    >>> xp.isdtype(xp.int8, "integral"), xp.isdtype(xp.float32, ("bool", xp.float64))
    (True, False)
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, each) for each in kind)
    if isinstance(kind, DType):
        return dtype is kind
    if kind not in KINDS and kind not in _SHORTHANDS:
        raise InvalidArgument(
            f"isdtype: unknown kind {kind!r}; known: {', '.join((*KINDS, *_SHORTHANDS))}"
        )
    return kind_of(dtype) in _SHORTHANDS.get(kind, (kind,))


def astype(x: Array, dtype: DType, /, *, copy: bool = True, device: Any = None) -> Array:
    """The array in another dtype; with `copy=False` itself where nothing changes.

    Errors: DTypeError from complex to real numbers: take `real` or `imag` first.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.astype.html

    >>> xp = ad.array_api
    >>> xp.astype(xp.asarray([0, 2]), xp.bool)
    tensor([False,  True])
    """
    checked("astype", x)
    if x.dtype.is_complex and dtype.category in (1, 2):
        raise DTypeError(f"astype: {x.dtype} to {dtype} would drop a part; use real() or imag()")
    return x.to(dtype=dtype, device=device, copy=copy)


@dataclass(frozen=True)
class FloatLimits:
    """Result of `finfo`: limits of a floating-point dtype."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True)
class IntegerLimits:
    """Result of `iinfo`: limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: DType


def finfo(type: Any, /) -> FloatLimits:
    """The limits of a floating-point dtype, of the real parts of a complex one, or of an array's.

    Errors: DTypeError for another kind of dtype.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.finfo.html

    >>> ad.array_api.finfo(ad.complex128).dtype, ad.array_api.finfo(ad.float32).bits
    (adjoint.float64, 32)
    """
    dtype = type.dtype if is_array(type) else type
    real = dtype.to_real()
    found = ad.finfo(real)
    return FloatLimits(found.bits, found.eps, found.max, found.min, found.smallest_normal, real)


def iinfo(type: Any, /) -> IntegerLimits:
    """The limits of an integer dtype, or of an array's.

    Errors: DTypeError for another kind of dtype.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.iinfo.html

    >>> ad.array_api.iinfo(ad.uint16).max
    65535
    """
    dtype = type.dtype if is_array(type) else type
    found = ad.iinfo(dtype)
    return IntegerLimits(found.bits, found.max, found.min, dtype)
