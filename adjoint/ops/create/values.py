"""Values that users hand over (numbers, nested sequences, arrays) as arrays of a dtype."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.errors import DTypeError, InvalidArgument, InvalidType
from ...core.mode import MODE
from ...core.symbolic_scalar import SymbolicFloat
from ...core.tensor_base import TensorBase
from ...runtime.lazy import LazyValue, concrete
from ...runtime.writes import values_of
from ..promotion import assert_number, integer_range


def target(dtype: Any) -> dt.dtype | None:
    """The dtype argument of a public function; InvalidType for what is none."""
    return None if dtype is None else dt.as_dtype(dtype)


_NUMBERS = frozenset((bool, int, float, complex))
_SEQUENCES = frozenset((list, tuple))


def array_from(data: Any, dtype: dt.dtype | None, copy: bool) -> Any:
    """`data` as an array of `dtype` (inferred where None); of its own memory if `copy`."""
    if type(data) in _NUMBERS:
        array = _plain_array(data, dtype)
        return _array_by_hand(data, dtype) if array is None else array
    if isinstance(data, TensorBase):
        meet = getattr(MODE.get().executor, "meet", None)
        if meet is not None:  # a capture's, for which its value is no constant
            meet(data)
        array = data._data  # a lazy value never changes, a graph's does
        return converted(array if type(array) is LazyValue else concrete(data), dtype, copy)
    if isinstance(data, np.ndarray):
        return converted(checked_array(data), dtype, copy)
    if isinstance(data, np.generic):
        return converted(checked_array(np.asarray(data)), dtype, True)
    if isinstance(data, (str, bytes)):
        raise InvalidType(f"tensor: new(): invalid data type '{type(data).__name__}'")
    shape = _plain_shape(data)
    if shape is not None:
        array = _plain_array(data, dtype)
        if array is not None and array.shape == shape:
            return array
    elif hasattr(data, "__array__") or hasattr(data, "__array_interface__"):
        return converted(checked_array(np.asarray(data)), dtype, copy)
    return _array_by_hand(data, dtype)


def checked_array(array: Any) -> Any:
    """A plain ndarray of our own that shares the memory: whoever gives `array` another shape or
    dtype leaves it as it is. An error where no tensor can show that memory.
    """
    numpy = array.dtype
    if numpy not in dt.BY_NUMPY:
        if numpy.newbyteorder("=") in dt.BY_NUMPY:
            raise InvalidArgument(
                f"from_numpy: given numpy array has byte order different from the native byte "
                f"order ({numpy}); convert it with .astype({numpy.newbyteorder('=').name!r})"
            )
        raise DTypeError(
            f"from_numpy: can't convert np.ndarray of type {numpy}; the supported types are "
            f"{', '.join(d.name for d in dt.ALL)}; convert it with .astype()"
        )
    for stride in array.strides:
        if stride < 0:
            raise InvalidArgument(
                f"from_numpy: At least one stride in the given numpy array is negative, and "
                f"tensors with negative strides are not currently supported (strides "
                f"{array.strides}); make a copy of the array with array.copy()"
            )
        if stride % numpy.itemsize:
            raise InvalidArgument(
                f"from_numpy: given numpy array strides {array.strides} are not a multiple of the "
                f"element byte size {numpy.itemsize}; make a copy of the array with array.copy()"
            )
    return array.view(np.ndarray)


def converted(array: Any, dtype: dt.dtype | None, copy: bool) -> Any:
    """`array` in `dtype` (its own where None); of its own memory if `copy`."""
    wanted = array.dtype if dtype is None else dtype.numpy
    if array.dtype != wanted:
        with np.errstate(all="ignore"):
            if array.dtype.kind == "c" and wanted.kind not in "cb":
                array = array.real
            return array.astype(wanted)
    return array.copy(order="K") if copy else array


def _plain_shape(data: Any) -> tuple[int, ...] | None:
    """The shape of lists and tuples that hold Python numbers only; None for anything else."""
    shape: list[int] = []
    level: Any = (data,)
    while True:
        kinds = set(map(type, level))
        if kinds <= _NUMBERS:
            return tuple(shape)
        if not kinds <= _SEQUENCES:
            return None
        shape.append(len(level[0]))
        level = tuple(chain.from_iterable(level))


def _plain_array(data: Any, dtype: dt.dtype | None) -> Any:
    """The array of plain Python numbers; None where a value or the nesting needs a closer look."""
    try:
        array = np.array(data)
    except (ValueError, OverflowError):
        return None
    kind = array.dtype.kind
    if dtype is None:
        if kind == "f" or not array.size:
            return array.astype(dt.get_default_dtype().numpy)
        if kind == "c":
            return array.astype(dt.get_default_dtype().to_complex().numpy)
        return array if kind in "bi" else None
    if kind not in "biufc" or (kind == "c" and dtype.category < 3):
        return None
    if dtype.category == 1:
        if kind == "f":
            return None
        if kind in "iu" and array.size:
            low, high = integer_range(dtype)
            if array.min() < low or array.max() > high:
                return None
    with np.errstate(all="ignore"):
        return array.astype(dtype.numpy)


def convert_number(value: Any, dtype: dt.dtype, name: str) -> Any:
    """A Python number as an element of `dtype`; InvalidArgument where it does not fit."""
    if isinstance(value, complex):
        if dtype.category < 3:
            raise InvalidType(
                f"{name}: must be real number, not complex, for {dtype} (got {value}); "
                "use a complex dtype"
            )
        return value
    if dtype.category == 1:
        low, high = integer_range(dtype)
        if isinstance(value, (float, np.floating)) and not dtype.is_signed:
            low = 0  # only integers wrap
        if not (low <= value <= high):  # also refuses NaN
            raise InvalidArgument(
                f"{name}: value cannot be converted to type {dtype.name} without overflow: "
                f"{value!r} is outside [{low}, {high}]; use a wider dtype"
            )
        return int(value) & high if value < 0 and not dtype.is_signed else int(value)
    if dtype.category == 0:
        if isinstance(value, int):
            assert_number(value, dtype, name, fits=True)
        return bool(value)
    try:
        return value if type(value) is SymbolicFloat else float(value)
    except OverflowError:
        raise InvalidArgument(f"{name}: Overflow: {value} does not fit in {dtype}") from None


def _array_by_hand(data: Any, dtype: dt.dtype | None) -> Any:
    """Sequences of anything: arrays and tensors inside, values to check, errors to name."""
    shape = _shape_of(data)
    inferred = dtype or _infer(data)
    values: list[Any] = []
    _collect(data, shape, 0, values)
    if inferred is None:
        inferred = dt.get_default_dtype()
    with np.errstate(all="ignore"):
        if inferred.category == 1 and dtype is None:
            for value in values:
                if not -(2**63) <= value < 2**63:
                    raise InvalidArgument(
                        f"tensor: Overflow when unpacking long long: {value} does not fit in "
                        "int64; pass a floating-point dtype"
                    )
        numbers = [convert_number(value, inferred, "tensor") for value in values]
        return np.array(numbers, inferred.numpy).reshape(shape)


def _is_sequence(data: Any) -> bool:
    if isinstance(data, np.ndarray):
        return bool(data.ndim)
    if isinstance(data, TensorBase):  # inside a sequence, a tensor stands for one number
        return False
    return hasattr(data, "__len__") and hasattr(data, "__getitem__") and not isinstance(data, dict)


def _shape_of(data: Any) -> tuple[int, ...]:
    shape: list[int] = []
    while _is_sequence(data):
        if isinstance(data, (str, bytes)):
            raise InvalidArgument(
                f"tensor: too many dimensions '{type(data).__name__}': a tensor holds numbers, "
                f"got {data!r:.40}"
            )
        shape.append(len(data))
        if len(shape) > 64:
            raise InvalidArgument("tensor: too many dimensions: the data is nested over 64 deep")
        if not shape[-1]:
            break
        data = data[0]
    return tuple(shape)


def _infer(data: Any) -> dt.dtype | None:
    """The dtype in which all values meet; None for no values."""
    if isinstance(data, TensorBase):
        return data.dtype
    if isinstance(data, (np.ndarray, np.generic)):
        return dt.from_numpy_dtype(data.dtype)
    if type(data) in _NUMBERS:
        return dt.of_scalar(data)
    if _is_sequence(data) and not isinstance(data, (str, bytes)):
        result: dt.dtype | None = None
        for item in data:
            found = _infer(item)
            if found is not None:
                result = found if result is None else dt.promote_types(result, found)
        return result
    if isinstance(data, (bool, int, float, complex)):
        return dt.of_scalar(data)
    raise DTypeError(
        f"tensor: Could not infer dtype of {type(data).__name__}; a tensor is made of numbers, "
        f"sequences, arrays or tensors, got {data!r:.60}"
    )


def _collect(data: Any, shape: tuple[int, ...], dim: int, values: list[Any]) -> None:
    if dim == len(shape):
        values.append(_scalar(data))
        return
    if not _is_sequence(data) or isinstance(data, (str, bytes)):
        raise InvalidType(
            f"tensor: not a sequence: expected one of length {shape[dim]} at dim {dim}, "
            f"got {data!r:.40}"
        )
    if len(data) != shape[dim]:
        raise InvalidArgument(
            f"tensor: expected sequence of length {shape[dim]} at dim {dim} (got {len(data)}); "
            "pad the rows to one length"
        )
    for item in data:
        _collect(item, shape, dim + 1, values)


def _scalar(data: Any) -> Any:
    if isinstance(data, (TensorBase, np.ndarray, np.generic)):
        array = values_of(data) if isinstance(data, TensorBase) else np.asarray(data)
        if array.size != 1:
            raise InvalidType(
                f"tensor: only one element tensors can be converted to Python scalars, got shape "
                f"{tuple(array.shape)} inside a sequence; use stack() to join tensors"
            )
        value = array.item()
        return value if type(value) in _NUMBERS else float(value)
    if isinstance(data, (bool, int, float, complex)):
        return data
    if _is_sequence(data):
        raise InvalidType(
            f"tensor: '{type(data).__name__}' object cannot be interpreted as a number: "
            f"{data!r:.40} is nested deeper than its neighbours"
        )
    raise InvalidType(
        f"tensor: '{type(data).__name__}' object cannot be interpreted as a number: {data!r:.40}"
    )


def fill_number(value: Any, name: str) -> Any:
    """A number that was given as a number or as a 0-d tensor."""
    if isinstance(value, TensorBase):
        if value.ndim:
            raise InvalidType(
                f"{name}: argument 'fill_value' must be Number, not a tensor of shape "
                f"{tuple(value.shape)}"
            )
        return value.item()  # type: ignore[attr-defined]
    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, (bool, int, float, complex)):
        raise InvalidType(
            f"{name}: argument 'fill_value' must be Number, not {type(value).__name__}"
        )
    return value
