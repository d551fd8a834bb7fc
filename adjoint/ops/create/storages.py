"""Typed storages under PyTorch's older names: a row of elements of one dtype, as memory.

Source: https://docs.pytorch.org/docs/stable/storage.html#legacy-typed-storage

>>> ad.FloatStorage([1, 2, 3]).tolist(), isinstance(ad.ones(2).storage(), ad.FloatStorage)
([1.0, 2.0, 3.0], True)
"""

from __future__ import annotations

from typing import Any

from ...core import dtype as dt
from ...core.errors import InvalidArgument
from .allocation import finish
from .creation import empty
from .memory import TypedStorage, UntypedStorage
from .values import array_from


class _OfDtype(type):
    """Metaclass by which a storage is an instance of the class of its dtype, as in PyTorch."""

    dtype: dt.dtype

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, TypedStorage) and instance.dtype is cls.dtype


def _class(name: str, dtype: dt.dtype) -> Any:
    """The class of storages of `dtype`: made of a size, or of a sequence of numbers."""

    def new(cls: Any, *args: Any, wrap_storage: Any = None) -> TypedStorage:
        if wrap_storage is not None:
            if args or not isinstance(wrap_storage, UntypedStorage):
                raise InvalidArgument(f"{name}: wrap_storage takes an UntypedStorage alone")
            shown = finish(wrap_storage.bytes().view(dtype.numpy))
            return TypedStorage(shown)
        if len(args) > 1:
            raise InvalidArgument(f"{name}: takes a size or a sequence, got {len(args)} arguments")
        if not args or isinstance(args[0], int):
            return TypedStorage(empty(args[0] if args else 0, dtype=dtype))
        array = array_from(args[0], None, copy=True).astype(dtype.numpy)
        return TypedStorage(finish(array.reshape(-1)))

    made = _OfDtype(name, (), {"__new__": new, "dtype": dtype, "__module__": __name__})
    made.__doc__ = f"Memory of {dtype.name} elements.\n\n    Errors: InvalidArgument for others."
    return made


_CLASSES = {
    dtype: _class(f"{name}Storage", dtype)
    for name, dtype in (
        ("BFloat16", dt.bfloat16), ("Bool", dt.bool_), ("Byte", dt.uint8), ("Char", dt.int8),
        ("ComplexDouble", dt.complex128), ("ComplexFloat", dt.complex64), ("Double", dt.float64),
        ("Float", dt.float32), ("Half", dt.float16), ("Int", dt.int32), ("Long", dt.int64),
        ("Short", dt.int16),
    )
}  # fmt: skip
globals().update({each.__name__: each for each in _CLASSES.values()})


def of(dtype: dt.dtype) -> Any:
    """The class of storages of a dtype.

    Errors: InvalidArgument where PyTorch has none, either.
    """
    if dtype not in _CLASSES:
        raise InvalidArgument(f"storage_type: there is no class of storages of {dtype}")
    return _CLASSES[dtype]
