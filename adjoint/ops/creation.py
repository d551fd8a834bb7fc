"""Tensors from values, sizes and ranges."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import dtype as dt
from ..core.device import as_device
from ..core.errors import (
    DTypeError,
    InvalidArgument,
    InvalidType,
    ShapeError,
    Unsupported,
)
from ..core.handle import Handle
from ..core.op import public

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = [
    "arange", "empty", "empty_like", "empty_permuted", "empty_strided", "eye", "full", "full_like",
    "linspace", "logspace", "ones", "ones_like", "range", "scalar_tensor", "tensor", "zeros",
    "zeros_like",
]  # fmt: skip

wrap: Any = None  # makes a new Tensor around an array; set by adjoint/tensor.py


# ---- from values ---------------------------------------------------------------------------------


def tensor(
    data: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A new tensor that copies `data`: numbers, nested sequences, arrays or tensors.

    Shapes: that of the nesting; all sequences of one level must have one length.
    Dtypes: inferred without `dtype`: bool, int64, the default floating-point dtype or its complex
    counterpart for Python numbers; arrays and tensors keep theirs.
    Errors: InvalidArgument for ragged data or a value that `dtype` cannot hold; InvalidType for
    strings; DTypeError for arrays of a dtype that has no counterpart.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.tensor.html

    >>> ad.tensor([[1, 2], [3, 4]])
    tensor([[1, 2],
            [3, 4]])
    >>> ad.tensor([True, 2, 3.5])
    tensor([1.0000, 2.0000, 3.5000])
    """
    return finish(array_from(data, target(dtype), copy=True), device, requires_grad, pin_memory)


def target(dtype: Any) -> dt.dtype | None:
    """The dtype argument of a public function; InvalidType for what is none."""
    if dtype is None or isinstance(dtype, dt.dtype):
        return dtype
    if dtype in (bool, int, float, complex):
        return dt.as_dtype(dtype)
    raise InvalidType(
        f"dtype: argument 'dtype' must be an adjoint dtype such as adjoint.float32, not {dtype!r}"
    )


def finish(
    array: Any, device: Any = None, requires_grad: bool = False, pin_memory: bool = False
) -> Tensor:
    """The tensor around a new array, with the options that every function here has."""
    if device is not None:
        as_device(device)
    if pin_memory:
        raise Unsupported("pin_memory=True: there is no accelerator backend; leave it out")
    result: Tensor = wrap(array)
    return result.requires_grad_() if requires_grad else result


_NUMBERS = frozenset((bool, int, float, complex))
_SEQUENCES = frozenset((list, tuple))


def array_from(data: Any, dtype: dt.dtype | None, copy: bool) -> Any:
    """`data` as an array of `dtype` (inferred where None); of its own memory if `copy`."""
    if isinstance(data, Handle):
        return _converted(data._data, dtype, copy)
    if isinstance(data, np.ndarray):
        return _converted(checked_array(data), dtype, copy)
    if isinstance(data, np.generic):
        return _converted(checked_array(np.asarray(data)), dtype, True)
    if isinstance(data, (str, bytes)):
        raise InvalidType(f"tensor: new(): invalid data type '{type(data).__name__}'")
    shape = _plain_shape(data)
    if shape is not None:
        array = _plain_array(data, dtype)
        if array is not None and array.shape == shape:
            return array
    elif hasattr(data, "__array__") or hasattr(data, "__array_interface__"):
        return _converted(checked_array(np.asarray(data)), dtype, copy)
    return _array_by_hand(data, dtype)


def checked_array(array: Any) -> Any:
    """A plain ndarray that shares `array`; an error where no tensor can show its memory."""
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
    return array if type(array) is np.ndarray else array.view(np.ndarray)


def _converted(array: Any, dtype: dt.dtype | None, copy: bool) -> Any:
    wanted = array.dtype if dtype is None else dtype.numpy
    if array.dtype != wanted:
        with np.errstate(all="ignore"):
            if array.dtype.kind == "c" and wanted.kind != "c":
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
        return array if array.dtype in dt.BY_NUMPY else None
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


def integer_range(dtype: dt.dtype) -> tuple[int, int]:
    """The smallest and largest number that PyTorch converts (unsigned types wrap negatives)."""
    info = dt.iinfo(dtype)
    return (info.min if dtype.is_signed else -info.max, info.max)


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
        if not (low <= value <= high):  # also refuses NaN
            raise InvalidArgument(
                f"{name}: value cannot be converted to type {dtype.name} without overflow: "
                f"{value!r} is outside [{low}, {high}]; use a wider dtype"
            )
        return int(value) & high if value < 0 and not dtype.is_signed else int(value)
    if dtype.category == 0:
        return bool(value)
    try:
        return float(value)
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
    if isinstance(data, (Handle, np.ndarray)):
        return bool(data.ndim)
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
    if isinstance(data, Handle):
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
    raise InvalidType(
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
    if isinstance(data, (Handle, np.ndarray, np.generic)):
        array = data._data if isinstance(data, Handle) else np.asarray(data)
        if array.size != 1:
            raise InvalidArgument(
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


@public(method=False)
def scalar_tensor(
    s: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A 0-d tensor of a number, in the default floating-point dtype.

    Source: https://docs.pytorch.org/docs/stable/torch.html

    >>> ad.scalar_tensor(3)
    tensor(3.)
    """
    d = target(dtype) or dt.get_default_dtype()
    return finish(np.array(convert_number(s, d, "scalar_tensor"), d.numpy), device, requires_grad)


# ---- from sizes ----------------------------------------------------------------------------------


def sizes_from(sizes: tuple[Any, ...], size: Any, name: str) -> tuple[int, ...]:
    """Sizes given as `f(2, 3)`, `f((2, 3))` or `f(size=(2, 3))`; all at least 0."""
    if size is not None:
        sizes = size if isinstance(size, (tuple, list)) else (size,)
    elif len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = tuple(sizes[0])
    elif not sizes:
        raise InvalidType(f'{name}: missing 1 required positional argument: "size"')
    try:
        shape = tuple(operator.index(s) for s in sizes)
    except TypeError:
        raise InvalidType(
            f"{name}: argument 'size' must be tuple of ints, got {sizes!r:.60}"
        ) from None
    if any(s < 0 for s in shape):
        raise ShapeError(f"{name}: Dimension size must be non-negative, got {shape}")
    return shape


def zeros(
    *sizes: Any,
    size: Any = None,
    out: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor of zeros.

    Shapes: the sizes given as numbers or as one sequence.
    Errors: ShapeError for a negative size; InvalidType where a size is no int.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.zeros.html

    >>> ad.zeros(2, 3)
    tensor([[0., 0., 0.],
            [0., 0., 0.]])
    """
    return _filled(np.zeros, "zeros", sizes, size, out, dtype, device, requires_grad, pin_memory)


def ones(
    *sizes: Any,
    size: Any = None,
    out: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor of ones.

    Shapes: the sizes given as numbers or as one sequence.
    Errors: ShapeError for a negative size; InvalidType where a size is no int.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.ones.html

    >>> ad.ones(2, dtype=ad.int64)
    tensor([1, 1])
    """
    return _filled(np.ones, "ones", sizes, size, out, dtype, device, requires_grad, pin_memory)


def empty(
    *sizes: Any,
    size: Any = None,
    out: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """A tensor whose elements are whatever the memory held.

    Shapes: the sizes given as numbers or as one sequence.
    Errors: ShapeError for a negative size; InvalidType where a size is no int.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.empty.html

    >>> ad.empty(2, 3).shape
    adjoint.Size([2, 3])
    """
    assert_row_major(memory_format, "empty")
    return _filled(np.empty, "empty", sizes, size, out, dtype, device, requires_grad, pin_memory)


def _filled(
    make: Callable[..., Any],
    name: str,
    sizes: tuple[Any, ...],
    size: Any,
    out: Any,
    dtype: Any,
    device: Any,
    requires_grad: bool,
    pin_memory: bool,
) -> Tensor:
    shape = sizes_from(sizes, size, name)
    if out is not None:
        return into(make(shape, out.dtype.numpy), out, dtype, name)
    d = target(dtype) or dt.get_default_dtype()
    return finish(make(shape, d.numpy), device, requires_grad, pin_memory)


def into(array: Any, out: Any, dtype: Any, name: str) -> Tensor:
    """`array` written into `out`, whose dtype decides; a `dtype` that differs is refused."""
    from ..core import op

    if dtype is not None and target(dtype) is not out.dtype:
        raise DTypeError(f"{name}: dtype {dtype} does not match dtype of out parameter {out.dtype}")
    result: Tensor = op.write_out(wrap(array), out, name)
    return result


def assert_row_major(memory_format: Any, name: str) -> None:
    """Refuse the memory formats that tensors do not have here."""
    if str(memory_format) not in ("None", "adjoint.contiguous_format", "adjoint.preserve_format"):
        raise Unsupported(
            f"{name}: memory_format {memory_format}; tensors are row-major here: leave it out"
        )


def full(
    size: Any,
    fill_value: Any,
    *,
    out: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor filled with one value.

    Dtypes: that of `fill_value` as `tensor` infers it, without `dtype`.
    Errors: InvalidArgument where the value does not fit the dtype; InvalidType where `size` is no
    sequence.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.full.html

    >>> ad.full((2, 2), 7)
    tensor([[7, 7],
            [7, 7]])
    """
    if not isinstance(size, (tuple, list)):
        raise InvalidType(f"full: argument 'size' must be tuple of ints, got {size!r}")
    shape = sizes_from((size,), None, "full")
    value = fill_number(fill_value, "full")
    if out is not None:
        return into(filled_array(shape, value, out.dtype, "full"), out, dtype, "full")
    d = target(dtype)
    if d is None:
        d = fill_value.dtype if isinstance(fill_value, Handle) else dt.of_scalar(value)
    return finish(filled_array(shape, value, d, "full"), device, requires_grad, pin_memory)


def fill_number(value: Any, name: str) -> Any:
    """A number given as such or as a 0-d tensor."""
    if isinstance(value, Handle):
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


def filled_array(shape: tuple[int, ...], value: Any, dtype: dt.dtype, name: str) -> Any:
    """An array of `value`, which must fit `dtype`."""
    return np.full(shape, convert_number(value, dtype, name), dtype.numpy)


def _array_like(make: Callable[..., Any], input: Any, dtype: Any, format: Any, name: str) -> Any:
    """A new array of `input`'s shape, its dimensions in the same order of memory."""
    if not isinstance(input, Handle):
        raise InvalidType(f"{name}: argument 'input' must be Tensor, not {type(input).__name__}")
    assert_row_major(format, name)
    data = input._data
    d = target(dtype)
    row_major = str(format) == "adjoint.contiguous_format" or 0 in data.strides
    return make(data, data.dtype if d is None else d.numpy, "C" if row_major else "K")


@public(method=False)
def zeros_like(
    input: Tensor,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """Zeros of the shape and dtype of `input`.

    Errors: InvalidType where `input` is no tensor.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.zeros_like.html

    >>> ad.zeros_like(ad.tensor([1, 2]))
    tensor([0, 0])
    """
    array = _array_like(np.zeros_like, input, dtype, memory_format, "zeros_like")
    return finish(array, device, requires_grad)


@public(method=False)
def ones_like(
    input: Tensor,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """Ones of the shape and dtype of `input`.

    Errors: InvalidType where `input` is no tensor.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.ones_like.html

    >>> ad.ones_like(ad.tensor([1, 2]), dtype=ad.float32)
    tensor([1., 1.])
    """
    array = _array_like(np.ones_like, input, dtype, memory_format, "ones_like")
    return finish(array, device, requires_grad)


@public(method=False)
def empty_like(
    input: Tensor,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """Uninitialised memory of the shape and dtype of `input`.

    Errors: InvalidType where `input` is no tensor.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.empty_like.html

    >>> ad.empty_like(ad.ones(2, 3)).shape
    adjoint.Size([2, 3])
    """
    array = _array_like(np.empty_like, input, dtype, memory_format, "empty_like")
    return finish(array, device, requires_grad)


@public(method=False)
def full_like(
    input: Tensor,
    fill_value: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """One value in the shape and dtype of `input`.

    Errors: InvalidType where `input` is no tensor; InvalidArgument where the value does not fit.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.full_like.html

    >>> ad.full_like(ad.tensor([1., 2.]), 7)
    tensor([7., 7.])
    """
    array = _array_like(np.empty_like, input, dtype, memory_format, "full_like")
    d = dt.from_numpy_dtype(array.dtype)
    array[...] = convert_number(fill_number(fill_value, "full_like"), d, "full_like")
    return finish(array, device, requires_grad)


def strided_array(shape: Sequence[int], strides: Sequence[int], dtype: dt.dtype) -> Any:
    """An uninitialised array with these steps in memory, in elements."""
    if len(shape) != len(strides) or any(s < 0 for s in strides):
        raise ShapeError(
            f"empty_strided: needs one stride of at least 0 for each of sizes {tuple(shape)}, "
            f"got {tuple(strides)}"
        )
    count = 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    memory = np.empty(count, dtype.numpy)
    steps = tuple(s * memory.itemsize for s in strides)
    return np.lib.stride_tricks.as_strided(memory, tuple(shape), steps)


@public(method=False)
def empty_strided(
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Uninitialised memory with the given steps, in elements.

    Errors: ShapeError where `stride` does not have one entry per size.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.empty_strided.html

    >>> ad.empty_strided((2, 3), (1, 2)).stride()
    (1, 2)
    """
    d = target(dtype) or dt.get_default_dtype()
    shape = sizes_from((tuple(size),), None, "empty_strided")
    return finish(strided_array(shape, stride, d), device, requires_grad)


@public(method=False)
def empty_permuted(
    size: Sequence[int],
    physical_layout: Sequence[int],
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Uninitialised memory without gaps, dimensions ordered from outermost to innermost as given.

    Errors: ShapeError where `physical_layout` does not name every dimension once.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.empty_permuted.html

    >>> ad.empty_permuted((2, 3), (1, 0)).stride()
    (1, 2)
    """
    d = target(dtype) or dt.get_default_dtype()
    if sorted(physical_layout) != list(np.arange(len(size))):
        raise ShapeError(
            f"empty_permuted: physical_layout {tuple(physical_layout)} must name each of the "
            f"{len(size)} dimensions once"
        )
    array = np.empty([size[axis] for axis in physical_layout], d.numpy)
    return finish(array.transpose(np.argsort(physical_layout)), device, requires_grad)


# ---- methods that take their dtype from a tensor -------------------------------------------------


@public()
def new_tensor(
    self: Tensor, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A new tensor that copies `data`, in this tensor's dtype unless another is given.

    Errors: those of `tensor`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.new_tensor.html

    >>> ad.ones(1).new_tensor([1, 2])
    tensor([1., 2.])
    """
    d = target(dtype) or self.dtype
    if d.category == 1 and not isinstance(data, (Handle, np.ndarray)):
        array = _converted(array_from(data, None, copy=True), d, False)
    else:
        array = array_from(data, d, copy=True)
    return finish(array, device, requires_grad)


@public()
def new_zeros(
    self: Tensor,
    *sizes: Any,
    size: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Zeros in this tensor's dtype.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.new_zeros.html

    >>> ad.tensor([1]).new_zeros(2)
    tensor([0, 0])
    """
    d = target(dtype) or self.dtype
    shape = sizes_from(sizes, size, "new_zeros")
    return finish(np.zeros(shape, d.numpy), device, requires_grad)


@public()
def new_ones(
    self: Tensor,
    *sizes: Any,
    size: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Ones in this tensor's dtype.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.new_ones.html

    >>> ad.tensor([1]).new_ones(2)
    tensor([1, 1])
    """
    d = target(dtype) or self.dtype
    return finish(np.ones(sizes_from(sizes, size, "new_ones"), d.numpy), device, requires_grad)


@public()
def new_empty(
    self: Tensor,
    *sizes: Any,
    size: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Uninitialised memory in this tensor's dtype.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.new_empty.html

    >>> ad.ones(1).new_empty(2, 3).shape
    adjoint.Size([2, 3])
    """
    d = target(dtype) or self.dtype
    shape = sizes_from(sizes, size, "new_empty")
    return finish(np.empty(shape, d.numpy), device, requires_grad)


@public()
def new_full(
    self: Tensor,
    size: Sequence[int],
    fill_value: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """One value in this tensor's dtype.

    Errors: InvalidArgument where the value does not fit.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.new_full.html

    >>> ad.ones(1).new_full((2,), 7)
    tensor([7., 7.])
    """
    shape = sizes_from((tuple(size),), None, "new_full")
    value = fill_number(fill_value, "new_full")
    array = filled_array(shape, value, target(dtype) or self.dtype, "new_full")
    return finish(array, device, requires_grad)


# ---- ranges --------------------------------------------------------------------------------------


def _number(value: Any, name: str) -> Any:
    """A bound given as a number or as a tensor of one element."""
    if isinstance(value, (Handle, np.generic)):
        return value.item()  # type: ignore[union-attr]
    if isinstance(value, (bool, int, float, complex)):
        return value
    raise InvalidType(f"{name}: bounds must be numbers, got {type(value).__name__}: {value!r:.40}")


def _count(start: Any, end: Any, step: Any, name: str) -> float:
    """How many steps lie between start and end, not rounded; checks them."""
    if isinstance(start, complex) or isinstance(end, complex) or isinstance(step, complex):
        raise Unsupported(f"{name}: complex bounds; use linspace")
    if step == 0:
        raise InvalidArgument(f"{name}: step must be nonzero")
    if not (math.isfinite(start) and math.isfinite(end)):
        raise InvalidArgument(f"{name}: unsupported range: {start} -> {end}; bounds must be finite")
    if (end - start) * step < 0:
        raise InvalidArgument(
            f"{name}: upper bound and lower bound inconsistent with step sign: {start} -> {end} by "
            f"{step}; change the sign of step"
        )
    difference = end - start
    return float(difference / step)


def _steps(start: Any, count: int, step: Any, dtype: dt.dtype, name: str) -> Any:
    """start, start + step, ...; `count` of them, rounded to `dtype` once."""
    if dtype is dt.bool_ or dtype.is_complex:
        raise Unsupported(f'{name}: "arange_cpu" not implemented for {dtype}; use another dtype')
    if dtype.category == 1:
        start, step = int(start), int(step)
        return (np.arange(count) * step + start).astype(dtype.numpy)
    return (np.arange(count, dtype=np.float64) * step + start).astype(dtype.numpy)


def _range_dtype(dtype: Any, bounds: Iterable[Any]) -> dt.dtype:
    found = target(dtype)
    if found is not None:
        return found
    return dt.get_default_dtype() if any(isinstance(b, float) for b in bounds) else dt.int64


@public(method=False)
def arange(
    start: Any = 0,
    end: Any = None,
    step: Any = 1,
    *,
    out: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """The numbers from `start` (0 unless given) up to but without `end`, in steps.

    Shapes: 1-d, of size ceil((end - start) / step).
    Dtypes: int64 where all bounds are ints, otherwise the default floating-point dtype.
    Errors: InvalidArgument for a step of 0 or of the wrong sign, and for infinite bounds.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.arange.html

    >>> ad.arange(3), ad.arange(1, 2, 0.5)
    (tensor([0, 1, 2]), tensor([1.0000, 1.5000]))
    """
    if end is None:
        start, end = 0, start
    start, end, step = (_number(v, "arange") for v in (start, end, step))
    d = _range_dtype(dtype, (start, end, step)) if out is None else out.dtype
    bounds = (int(start), int(end), int(step)) if d is dt.int64 else (start, end, step)
    count = math.ceil(_count(*bounds, "arange"))
    if d is dt.int64 and bounds == (start, end, step):
        count = len(np.arange(*bounds)) if abs(count) < 2**53 else count
    array = _steps(start, count, step, d, "arange")
    if out is not None:
        return into(array, out, dtype, "arange")
    return finish(array, device, requires_grad, pin_memory)


@public(method=False)
def range(
    start: Any = 0,
    end: Any = None,
    step: Any = 1,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Like `arange` with `end` included and always floating point; `arange` is preferred.

    Shapes: 1-d, of size floor((end - start) / step) + 1.
    Errors: those of `arange`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.range.html

    >>> ad.range(1, 3)
    tensor([1., 2., 3.])
    """
    if end is None:
        start, end = 0, start
    start, end, step = (_number(v, "range") for v in (start, end, step))
    d = target(dtype) or dt.get_default_dtype()
    count = math.floor(_count(start, end, step, "range")) + 1
    return finish(_steps(start, count, step, d, "range"), device, requires_grad)


def _line(start: Any, end: Any, steps: int, dtype: dt.dtype) -> Any:
    """`steps` numbers from both ends inwards, so that the ends are exact and the middle symmetric."""
    if steps == 0:
        return np.empty(0, np.float64)
    if steps == 1:
        return np.array([start])
    wide = np.complex128 if dtype.is_complex else np.float64
    index = np.arange(steps)
    exact = np.array([start, end], wide)
    step = (exact[1] - exact[0]) / (steps - 1)
    return np.where(
        index < steps // 2, exact[0] + step * index, exact[1] - step * (steps - 1 - index)
    )


def _line_options(start: Any, end: Any, steps: Any, dtype: Any, name: str) -> Any:
    start, end = _number(start, name), _number(end, name)
    try:
        steps = operator.index(steps)
    except TypeError:
        raise InvalidType(f"{name}: steps must be an int, got {steps!r}") from None
    if steps < 0:
        raise InvalidArgument(f"{name}: number of steps must be non-negative, got {steps}")
    has_complex = isinstance(start, complex) or isinstance(end, complex)
    default = dt.get_default_dtype()
    d = target(dtype) or (default.to_complex() if has_complex else default)
    if has_complex and not d.is_complex:
        raise DTypeError(f"{name}: complex bounds {start}, {end} need a complex dtype, got {d}")
    return start, end, steps, d


@public(method=False)
def linspace(
    start: Any,
    end: Any,
    steps: int,
    *,
    out: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """`steps` numbers evenly spaced from `start` to `end`, both included.

    Shapes: 1-d, of size `steps`.
    Errors: InvalidArgument for a negative number of steps.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.linspace.html

    >>> ad.linspace(0, 1, 5)
    tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000])
    """
    kind = out.dtype if out is not None else dtype
    start, end, steps, d = _line_options(start, end, steps, kind, "linspace")
    array = _line(start, end, steps, d).astype(d.numpy)
    if out is not None:
        return into(array, out, dtype, "linspace")
    return finish(array, device, requires_grad)


@public(method=False)
def logspace(
    start: Any,
    end: Any,
    steps: int,
    base: float = 10.0,
    *,
    out: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """`base` to the power of `steps` numbers evenly spaced from `start` to `end`.

    Shapes: 1-d, of size `steps`.
    Errors: InvalidArgument for a negative number of steps.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.logspace.html

    >>> ad.logspace(0, 2, 3)
    tensor([  1.,  10., 100.])
    """
    kind = out.dtype if out is not None else dtype
    start, end, steps, d = _line_options(start, end, steps, kind, "logspace")
    with np.errstate(all="ignore"):
        array = np.power(base, _line(start, end, steps, d)).astype(d.numpy)
    if out is not None:
        return into(array, out, dtype, "logspace")
    return finish(array, device, requires_grad)


@public(method=False)
def eye(
    n: int,
    m: int | None = None,
    *,
    out: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """A matrix with ones on the diagonal and zeros elsewhere.

    Shapes: (n, m); m is n unless given.
    Errors: InvalidArgument for a negative size.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.eye.html

    >>> ad.eye(2, 3)
    tensor([[1., 0., 0.],
            [0., 1., 0.]])
    """
    columns = n if m is None else m
    if n < 0 or columns < 0:
        raise InvalidArgument(f"eye: n must be greater or equal to 0, got {n}, {columns}")
    if out is not None:
        return into(np.eye(n, columns, dtype=out.dtype.numpy), out, dtype, "eye")
    d = target(dtype) or dt.get_default_dtype()
    return finish(np.eye(n, columns, dtype=d.numpy), device, requires_grad)


