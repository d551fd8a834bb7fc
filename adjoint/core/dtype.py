"""dtypes and PyTorch's promotion table."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NoReturn

import ml_dtypes
import numpy as np

from . import config
from .errors import DTypeError, InvalidType
from .mode import note_switch

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = [
    "bfloat16", "bool_", "cdouble", "cfloat", "chalf", "complex32", "complex64", "complex128",
    "double", "dtype", "finfo", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2",
    "float8_e5m2fnuz", "float8_e8m0fnu", "float16", "float32", "float64", "float_",
    "get_default_dtype", "half", "iinfo", "int8", "int16", "int32", "int64", "int_", "long",
    "promote_types", "set_default_dtype", "short", "uint8", "uint16", "uint32", "uint64",
]  # fmt: skip


class dtype:  # noqa: N801 - PyTorch's name
    """An element type, such as `adjoint.float32`; one object per type, compared by identity.

    Source: https://docs.pytorch.org/docs/stable/tensor_attributes.html#torch.dtype

    >>> ad.float32.itemsize, ad.float32.is_floating_point
    (4, True)
    """

    __slots__ = (
        "category", "is_complex", "is_floating_point", "is_signed", "itemsize", "name", "numpy",
    )  # fmt: skip

    name: str
    numpy: np.dtype[Any]
    category: int  # 0 bool, 1 integer, 2 floating point, 3 complex

    def __init__(self, name: str, numpy: npt.DTypeLike, category: int) -> None:
        self.name = name
        self.numpy = np.dtype(numpy)
        self.category = category
        self.itemsize = self.numpy.itemsize
        self.is_floating_point = category == 2
        self.is_complex = category == 3
        self.is_signed = self.numpy.kind not in "bu"

    def __repr__(self) -> str:
        return f"{config.CALLED}.{self.name}"

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (by_name, (self.name,))

    def to_real(self) -> dtype:
        """The real dtype of the same precision: float32 for complex64."""
        return {complex64: float32, complex128: float64}.get(self, self)

    def to_complex(self) -> dtype:
        """The complex dtype of this precision, complex64 at least."""
        return complex128 if self is float64 else complex64 if self.category == 2 else self


class NamedOnly(dtype):
    """A dtype that programs may name and ask for its limits; there are no tensors of it.

    >>> ad.float8_e4m3fn.itemsize, ad.finfo(ad.float8_e4m3fn).max
    (1, 448.0)
    """

    __slots__ = ("limits", "signed")

    def __init__(
        self,
        name: str,
        limits: npt.DTypeLike | None = None,
        category: int = 2,
        itemsize: int = 1,
        signed: bool | None = True,
    ) -> None:
        self.name = name
        self.limits = limits  # the dtype whose limits it has; None where `finfo` knows none
        self.category, self.itemsize = category, itemsize
        self.is_floating_point, self.is_complex = category == 2, category == 3
        self.signed = signed

    @property
    def is_signed(self) -> bool:  # type: ignore[override]
        """Whether its numbers may be negative.

        Errors: DTypeError where PyTorch does not say.
        """
        if self.signed is None:
            raise DTypeError(f"{self}.is_signed: is not said of quantized numbers and bits")
        return self.signed

    @property
    def numpy(self) -> NoReturn:  # type: ignore[override]
        """Raises DTypeError: there are no arrays of this dtype.

        Errors: DTypeError.
        """
        raise DTypeError(
            f"dtype: there are no tensors of {self}; float16, bfloat16 and complex64 are the "
            "narrowest"
        )

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (_named_only, (self.name,))


def _named_only(name: str) -> dtype:
    return NAMED_ONLY[name]


float8_e4m3fn = NamedOnly("float8_e4m3fn", ml_dtypes.float8_e4m3fn)
float8_e4m3fnuz = NamedOnly("float8_e4m3fnuz", ml_dtypes.float8_e4m3fnuz)
float8_e5m2 = NamedOnly("float8_e5m2", ml_dtypes.float8_e5m2)
float8_e5m2fnuz = NamedOnly("float8_e5m2fnuz", ml_dtypes.float8_e5m2fnuz)
float8_e8m0fnu = NamedOnly("float8_e8m0fnu", ml_dtypes.float8_e8m0fnu)
complex32 = chalf = NamedOnly("complex32", np.float16, 3, 4)
float4_e2m1fn_x2 = NamedOnly("float4_e2m1fn_x2")
uint1 = bit = NamedOnly("uint1", None, 1, signed=False)
NAMED_ONLY: dict[str, dtype] = {
    each.name: each
    for each in (
        float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz, float8_e8m0fnu, complex32,
        float4_e2m1fn_x2, uint1,
        *(NamedOnly(f"uint{n}", None, 1, signed=False) for n in range(2, 8)),
        *(NamedOnly(f"int{n}", None, 1) for n in range(1, 8)),
        *(NamedOnly(f"bits{n}", None, 1, signed=None) for n in ("1x8", "2x4", "4x2", "8")),
        NamedOnly("bits16", None, 1, 2, None), NamedOnly("qint32", None, 1, 4, None),
        *(NamedOnly(n, None, 1, signed=None) for n in ("qint8", "quint8", "quint4x2", "quint2x4")),
    )
}  # fmt: skip
globals().update(NAMED_ONLY)  # those that have no line above

bool_ = dtype("bool", np.bool_, 0)
uint8 = dtype("uint8", np.uint8, 1)
uint16 = dtype("uint16", np.uint16, 1)
uint32 = dtype("uint32", np.uint32, 1)
uint64 = dtype("uint64", np.uint64, 1)
int8 = dtype("int8", np.int8, 1)
int16 = short = dtype("int16", np.int16, 1)
int32 = int_ = dtype("int32", np.int32, 1)
int64 = long = dtype("int64", np.int64, 1)
float16 = half = dtype("float16", np.float16, 2)
bfloat16 = dtype("bfloat16", ml_dtypes.bfloat16, 2)
float32 = float_ = dtype("float32", np.float32, 2)
float64 = double = dtype("float64", np.float64, 2)
complex64 = cfloat = dtype("complex64", np.complex64, 3)
complex128 = cdouble = dtype("complex128", np.complex128, 3)

ALL = (
    bool_, uint8, int8, int16, int32, int64,
    float16, bfloat16, float32, float64, complex64, complex128,
)  # fmt: skip
WIDE_UNSIGNED = (uint16, uint32, uint64)  # PyTorch has these too, with few operations
BY_NUMPY: dict[Any, dtype] = {d.numpy: d for d in ALL + WIDE_UNSIGNED}
BY_NAME = {d.name: d for d in BY_NUMPY.values()}
_OTHER_NAMES = {  # those that mean the same everywhere: NumPy's "float" is float64, ours float32
    "half": float16, "double": float64, "short": int16, "long": int64, "cfloat": complex64,
    "cdouble": complex128,
}  # fmt: skip
_SPACES = ("", "adjoint", "torch", "numpy", "np")  # before a name, as in "torch.float32"
LOW_PRECISION = frozenset((float16, bfloat16))


def by_name(name: str) -> dtype:
    """The dtype called `name`, such as "float32"."""
    if name not in BY_NAME:
        raise DTypeError(f"dtype: unknown name {name!r}; known: {', '.join(BY_NAME)}")
    return BY_NAME[name]


def named(text: str) -> dtype | None:
    """The dtype that a text such as "float32" or "torch.float32" names, or None."""
    space, _, name = text.rpartition(".")
    return (BY_NAME.get(name) or _OTHER_NAMES.get(name)) if space in _SPACES else None


def from_numpy_dtype(numpy: npt.DTypeLike) -> dtype:
    """The dtype of a NumPy array; raises DTypeError where there is none."""
    ours = BY_NUMPY.get(numpy)
    if ours is None:
        native = np.dtype(numpy).newbyteorder("=")
        ours = BY_NUMPY.get(native)
    if ours is None:
        raise DTypeError(
            f"dtype: NumPy's {numpy} has no counterpart; convert the array, e.g. .astype('float32')"
        )
    return ours


def as_dtype(value: Any) -> dtype:
    """A dtype from a dtype, one of Python's bool/int/float/complex, a NumPy dtype or a name."""
    if isinstance(value, dtype):
        return value
    if value is bool:
        return bool_
    if value is int:
        return int64
    if value is float:
        return float64
    if value is complex:
        return complex128
    if isinstance(value, str):
        return named(value) or by_name(value)
    try:
        return from_numpy_dtype(np.dtype(value))
    except TypeError:
        of_name = named(str(value))  # of another framework
    if of_name is None or isinstance(value, (list, tuple, dict)):
        raise InvalidType(
            f"dtype: expected a dtype such as adjoint.float32, or its name, got {value!r:.60}"
        )
    return of_name


def _promote_signs(signed: dtype, unsigned: dtype) -> dtype:
    """The smallest signed integer dtype that holds both (an extension for all but uint8)."""
    for candidate in (int8, int16, int32, int64):
        if candidate.itemsize >= signed.itemsize and candidate.itemsize > unsigned.itemsize:
            return candidate
    raise DTypeError(
        f"promote_types: no integer dtype holds {signed} and {unsigned}; convert one with .to()"
    )


def promote_types(type1: dtype, type2: dtype) -> dtype:
    """The smallest dtype to which both can be converted, by PyTorch's table.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.promote_types.html

    >>> ad.promote_types(ad.int32, ad.float16)
    adjoint.float16
    """
    a, b = as_dtype(type1), as_dtype(type2)
    if a is b:
        return a
    if isinstance(a, NamedOnly) or isinstance(b, NamedOnly):
        raise DTypeError(f"promote_types: {a} and {b}; convert to float32")
    if a.category > b.category:
        a, b = b, a
    if b is complex64 and a is float64:
        return complex128
    if a.category != b.category:
        return b
    if b.category == 1 and a.is_signed is not b.is_signed:
        return _promote_signs(*((a, b) if a.is_signed else (b, a)))
    if b.category == 1:
        return a if a.itemsize > b.itemsize else b
    if {a, b} == {float16, bfloat16}:
        return float32
    return a if a.itemsize > b.itemsize else b


class _Defaults(threading.local):
    floating = float32


_defaults = _Defaults()


def get_default_dtype() -> dtype:
    """The dtype that floating-point values get when none is named.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.get_default_dtype.html

    >>> ad.get_default_dtype()
    adjoint.float32
    """
    return _defaults.floating


def set_default_dtype(d: dtype) -> None:
    """Set the dtype that floating-point values get when none is named.

    Errors: DTypeError for a dtype that is not floating point.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.set_default_dtype.html

    >>> ad.set_default_dtype(ad.float64)
    >>> ad.tensor(1.0).dtype
    adjoint.float64
    >>> ad.set_default_dtype(ad.float32)
    """
    d = as_dtype(d)
    if not d.is_floating_point:
        raise DTypeError(f"set_default_dtype: needs a floating-point dtype, got {d}")
    assert d.numpy is not None  # there are tensors of it
    note_switch("set_default_dtype")
    _defaults.floating = d


def of_scalar(value: object) -> dtype:
    """The dtype that a Python number alone would get."""
    if isinstance(value, (bool, np.bool_)):
        return bool_
    if isinstance(value, (int, np.integer)):
        return int64
    if isinstance(value, (float, np.floating)):
        return get_default_dtype()
    if isinstance(value, (complex, np.complexfloating)):
        return get_default_dtype().to_complex()
    raise InvalidType(f"expected a tensor or a number, got {type(value).__name__}: {value!r:.60}")


class finfo:  # noqa: N801 - PyTorch's name
    """Numerical limits of a floating-point dtype: bits, eps, max, min, tiny, resolution.

    Source: https://docs.pytorch.org/docs/stable/type_info.html

    >>> ad.finfo(ad.float16).max
    65504.0
    """

    def __init__(self, type: dtype | None = None) -> None:
        d = get_default_dtype() if type is None else as_dtype(type)
        if d.category < 2:
            raise DTypeError(f"finfo: needs a floating-point dtype, got {d}; use iinfo")
        limits = d.limits if isinstance(d, NamedOnly) else None
        kind = d.to_real().numpy if limits is None else limits
        info: Any = ml_dtypes.finfo(kind)
        self.dtype = d.name
        self.bits = int(info.bits)
        self.eps = float(info.eps)
        self.max = float(info.max)
        self.min = float(info.min)
        self.tiny = self.smallest_normal = float(info.smallest_normal)
        self.resolution = float(f"{float(info.resolution):.0e}")  # a power of ten

    def __repr__(self) -> str:
        return f"finfo(resolution={self.resolution}, min={self.min}, max={self.max}, eps={self.eps}, dtype={self.dtype})"  # noqa: E501 - one line, as PyTorch prints it


class iinfo:  # noqa: N801 - PyTorch's name
    """Numerical limits of an integer dtype: bits, max, min.

    Source: https://docs.pytorch.org/docs/stable/type_info.html

    >>> ad.iinfo(ad.int8).max
    127
    """

    def __init__(self, type: dtype) -> None:
        d = as_dtype(type)
        if d.category != 1:
            raise DTypeError(f"iinfo: needs an integer dtype, got {d}; use finfo")
        info = np.iinfo(d.numpy)
        self.dtype, self.bits = d.name, int(info.bits)
        self.max, self.min = int(info.max), int(info.min)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"
