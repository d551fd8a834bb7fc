"""Tensors from values, sizes and ranges."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import config
from ...core import dtype as dt
from ...core.device import CPU, as_device, device_of, pin, space, transfer
from ...core.device import device as Device  # noqa: N812 - the parameters here are called device
from ...core.errors import (
    DeviceError,
    DTypeError,
    InvalidArgument,
    InvalidType,
    LayoutError,
    ShapeError,
)
from ...core.mistakes import assert_tensor
from ...core.overrides import ABSENT, FOLLOWED, concerns, overridden, unusual
from ...core.scalar import Number
from ...core.sizes import all_known, as_size
from ...core.tensor_base import TensorBase
from ...eager.fused import creating
from ...eager.public import explaining, public
from ...eager.tensors import fresh
from ...eager.views import is_in_order, lies, places
from ...graph.lazy import LazyValue
from .values import array_from, convert_number, converted, fill_number, target

if TYPE_CHECKING:
    from ...tensor import Tensor

__all__ = [
    "empty", "empty_like", "empty_permuted", "empty_strided", "eye", "full", "full_like",
    "ones", "ones_like", "scalar_tensor", "tensor", "zeros",
    "zeros_like",
]  # fmt: skip

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
    if FOLLOWED and concerns(None):
        options = unusual(
            dtype=(dtype, None), device=(device, None), requires_grad=(requires_grad, False),
            pin_memory=(pin_memory, False),
        )  # fmt: skip
        said = overridden(tensor, (data,), options, ())  # of modes: data has no say
        if said is not ABSENT:
            return said  # type: ignore[no-any-return]
    return finish(array_from(data, target(dtype), copy=True), device, requires_grad, pin_memory)


def finish(
    array: Any, device: Any = None, requires_grad: bool = False, pin_memory: bool = False
) -> Tensor:
    """The tensor around a new array, with the options that every function here has."""
    if device is not None or type(array) is np.ndarray:
        place = as_device(device)
        if place is not CPU or type(array) is not np.ndarray:
            array = moved(array, place)
    if pin_memory:
        array = pinned(array)
    result: Tensor = fresh(array)
    return result.requires_grad_() if requires_grad else result


def moved(array: Any, place: Device) -> Any:
    """`array` on a device that exists; itself where it is there already."""
    return array if device_of(array) == place else transfer(array, place)


def pinned(array: Any) -> Any:
    """`array` in memory of the host from which devices copy while the program goes on.

    Errors: DeviceError for an array that is not in the host's memory, or without a CUDA device.
    """
    if type(array) is not np.ndarray:
        raise DeviceError(
            f"pin_memory: cannot pin '{device_of(array)}': only dense CPU tensors can be pinned"
        )
    try:
        as_device("cuda")
    except DeviceError as error:
        raise DeviceError(f"pin_memory: {error}; leave it out") from None
    return pin(array)


@explaining
@public(method=False)
def scalar_tensor(
    s: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """A 0-d tensor of a number, in the default floating-point dtype.

    Source: https://docs.pytorch.org/docs/stable/torch.html

    >>> ad.scalar_tensor(3)
    tensor(3.)
    """
    assert_strided("scalar_tensor", layout)
    d = target(dtype) or dt.get_default_dtype()
    array = np.array(convert_number(s, d, "scalar_tensor"), d.numpy)
    return finish(array, device, requires_grad, pin_memory)


# ---- from sizes ----------------------------------------------------------------------------------


def sizes_from(sizes: tuple[Any, ...], size: Any, name: str) -> tuple[int, ...]:
    """Sizes given as `f(2, 3)`, `f((2, 3))` or `f(size=(2, 3))`; all at least 0."""
    if size is not None:
        sizes = tuple(size) if isinstance(size, (tuple, list)) else (size,)
    elif len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = tuple(sizes[0])
    elif not sizes:
        raise InvalidType(f'{name}: missing 1 required positional argument: "size"')
    try:
        known = Number not in map(type, sizes)
        shape = tuple(map(operator.index if known else as_size, sizes))
    except TypeError:
        raise InvalidType(
            f"{name}: argument 'size' must be tuple of ints, got {sizes!r:.60}"
        ) from None
    if (shape and min(shape) < 0) if known else any(n < 0 for n in shape):
        raise ShapeError(f"{name}: Dimension size must be non-negative, got {shape}")
    return shape


@creating
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
    assert_strided("zeros", layout)
    return _filled("zeros", sizes, size, out, dtype, device, requires_grad, pin_memory)


@creating
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
    assert_strided("ones", layout)
    return _filled("ones", sizes, size, out, dtype, device, requires_grad, pin_memory)


@explaining
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
    assert_strided("empty", layout)
    assert_row_major(memory_format, "empty")
    return _filled("empty", sizes, size, out, dtype, device, requires_grad, pin_memory)


def _filled(
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
        array = blank(name, shape, out.dtype, out.device)
        return into(array, out, dtype, name)
    d = target(dtype) or dt.get_default_dtype()
    place = as_device(device)
    return finish(blank(name, shape, d, place), place, requires_grad, pin_memory)


def blank(name: str, shape: tuple[int, ...], dtype: dt.dtype, place: Device) -> Any:
    """An array of `name` ("zeros", "ones", "empty") on a device that exists; one that is recorded,
    where sizes are numbers that are not known yet.
    """
    if Number not in map(type, shape):
        return getattr(names_on(place), name)(shape, dtype.numpy)
    value = fresh(np.array(name == "ones", dtype.numpy))
    return _spread(value, shape, place)._data  # type: ignore[no-any-return]


def names_on(place: Device) -> Any:
    """What makes arrays on a device that exists."""
    return np if place is CPU else space(place)


def into(array: Any, out: Any, dtype: Any, name: str) -> Tensor:
    """`array` written into `out`, whose dtype decides; a `dtype` that differs is refused."""
    from ...eager import public

    if dtype is not None and target(dtype) is not out.dtype:
        raise DTypeError(f"{name}: dtype {dtype} does not match dtype of out parameter {out.dtype}")
    return public.write_out(fresh(moved(array, out.device)), out, name)


def assert_strided(name: str, layout: Any) -> None:
    """Refuse to make tensors of another layout."""
    if layout is not None and getattr(layout, "name", layout) != "strided":
        raise LayoutError(
            f"{name}: makes dense tensors, not of layout {layout}; use sparse_coo_tensor(size) for "
            "zeros, or to_sparse() on what it gives"
        )


def assert_row_major(memory_format: Any, name: str) -> None:
    """Refuse what is no memory format. Those with channels last are hints: tensors stay row-major,
    as their strides say, and compiled programs lay out as is fastest.
    """
    if memory_format is not None and type(memory_format).__name__ != "memory_format":
        raise InvalidType(
            f"{name}: memory_format must be one such as {config.CALLED}.channels_last, got "
            f"{memory_format!r:.40}; leave it out"
        )


@creating
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
    assert_strided("full", layout)
    if not isinstance(size, (tuple, list)):
        raise InvalidType(f"full: argument 'size' must be tuple of ints, got {size!r}")
    shape = sizes_from((size,), None, "full")
    value = fill_number(fill_value, "full")
    if out is not None:
        array = filled_array(shape, value, out.dtype, "full", out.device)
        return into(array, out, dtype, "full")
    d = target(dtype)
    if d is None:
        d = fill_value.dtype if isinstance(fill_value, TensorBase) else dt.of_scalar(value)
    place = as_device(device)
    if type(value) is Number and _takes(d, value):
        return _full_of(value, shape, d, place, requires_grad)
    array = filled_array(shape, value, d, "full", place)
    return finish(array, place, requires_grad, pin_memory)


def _takes(d: dt.dtype, value: Number) -> bool:
    """Whether a number that is yet to come, and is of a kind that is known, will fit a dtype."""
    return d.is_floating_point or (d is dt.int64 and isinstance(value, int))


def _full_of(
    value: Number, shape: Sequence[int], d: dt.dtype, place: Device, requires_grad: bool
) -> Tensor:
    """What a number fills that comes with each run of a program."""
    result = _spread(value.operand(d), shape, place)
    return result.requires_grad_() if requires_grad else result


def _spread(one: Any, shape: Sequence[int], place: Device) -> Tensor:
    """A tensor of one element, in memory of its own for each of so many: what is recorded."""
    return one.expand(tuple(shape)).clone().to(place)  # type: ignore[no-any-return]


def filled_array(
    shape: tuple[int, ...], value: Any, dtype: dt.dtype, name: str, place: Device
) -> Any:
    """An array of `value`, which must fit `dtype`, on a device that exists."""
    number = convert_number(value, dtype, name)
    if all_known(shape):
        return names_on(place).full(shape, number, dtype.numpy)
    return _spread(fresh(np.array(number, dtype.numpy)), shape, place)._data


def _array_like(
    make: Callable[..., Any], input: Any, dtype: Any, format: Any, name: str, device: Any
) -> Any:
    """A new array of `input`'s shape, its dimensions in the same order of memory, where `input` is,
    or, if that has no memory, on the host.
    """
    assert_tensor(name, input)
    assert_row_major(format, name)
    data = input._data
    d = target(dtype)
    if isinstance(data, LazyValue) and data.device == CPU:
        if not all_known(data.shape) and lies(input, is_in_order):
            dtype = d or input.dtype
            return blank(make.__name__.removesuffix("_like"), data.shape, dtype, CPU)
        data = places(input)[1]
    row_major = str(format) == "adjoint.contiguous_format" or 0 in data.strides
    unknown = getattr(data, "array", data) is None  # recorded, with elements to come
    if unknown or (device is not None and input.is_meta):
        data, row_major = np.broadcast_to(np.zeros((), data.dtype), data.shape), True
    kind = data.dtype if d is None else d.numpy
    plain = type(data) is np.ndarray and (row_major or data.flags.c_contiguous)
    if plain and make is np.zeros_like:
        return np.zeros(data.shape, kind)  # in half of the time
    return make(data, kind, "C" if row_major else "K")


@explaining
@public(method=False)
def zeros_like(
    input: Tensor,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """Zeros of the shape and dtype of `input`.

    Errors: InvalidType where `input` is no tensor.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.zeros_like.html

    >>> ad.zeros_like(ad.tensor([1, 2]))
    tensor([0, 0])
    """
    assert_strided("zeros_like", layout)
    array = _array_like(np.zeros_like, input, dtype, memory_format, "zeros_like", device)
    return finish(array, _beside(input, device), requires_grad, pin_memory)


@explaining
@public(method=False)
def ones_like(
    input: Tensor,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """Ones of the shape and dtype of `input`.

    Errors: InvalidType where `input` is no tensor.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.ones_like.html

    >>> ad.ones_like(ad.tensor([1, 2]), dtype=ad.float32)
    tensor([1., 1.])
    """
    assert_strided("ones_like", layout)
    array = _array_like(np.ones_like, input, dtype, memory_format, "ones_like", device)
    return finish(array, _beside(input, device), requires_grad, pin_memory)


@explaining
@public(method=False)
def empty_like(
    input: Tensor,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """Uninitialised memory of the shape and dtype of `input`.

    Errors: InvalidType where `input` is no tensor.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.empty_like.html

    >>> ad.empty_like(ad.ones(2, 3)).shape
    adjoint.Size([2, 3])
    """
    assert_strided("empty_like", layout)
    array = _array_like(np.empty_like, input, dtype, memory_format, "empty_like", device)
    return finish(array, _beside(input, device), requires_grad, pin_memory)


@explaining
@public(method=False)
def full_like(
    input: Tensor,
    fill_value: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """One value in the shape and dtype of `input`.

    Errors: InvalidType where `input` is no tensor; InvalidArgument where the value does not fit.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.full_like.html

    >>> ad.full_like(ad.tensor([1., 2.]), 7)
    tensor([7., 7.])
    """
    assert_strided("full_like", layout)
    array = _array_like(np.empty_like, input, dtype, memory_format, "full_like", device)
    d = dt.from_numpy_dtype(array.dtype)
    recorded = type(fill_value) is Number and array.flags.c_contiguous and not pin_memory
    if recorded and _takes(d, fill_value):
        return _full_of(fill_value, array.shape, d, _beside(input, device), requires_grad)
    value = fill_number(fill_value, "full_like")
    if type(array) is LazyValue:
        array = filled_array(array.shape, value, d, "full_like", CPU)
    else:
        array[...] = convert_number(value, d, "full_like")
    return finish(array, _beside(input, device), requires_grad, pin_memory)


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


@explaining
@public(method=False)
def empty_strided(
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Uninitialised memory with the given steps, in elements.

    Errors: ShapeError where `stride` does not have one entry per size.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.empty_strided.html

    >>> ad.empty_strided((2, 3), (1, 2)).stride()
    (1, 2)
    """
    assert_strided("empty_strided", layout)
    d = target(dtype) or dt.get_default_dtype()
    shape = sizes_from((tuple(size),), None, "empty_strided")
    return finish(strided_array(shape, stride, d), device, requires_grad)


@explaining
@public(method=False)
def empty_permuted(
    size: Sequence[int],
    physical_layout: Sequence[int],
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Uninitialised memory without gaps, dimensions ordered from outermost to innermost as given.

    Errors: ShapeError where `physical_layout` does not name every dimension once.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.empty_permuted.html

    >>> ad.empty_permuted((2, 3), (1, 0)).stride()
    (1, 2)
    """
    assert_strided("empty_permuted", layout)
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
    self: Tensor,
    data: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    layout: Any = None,
    pin_memory: bool = False,
) -> Tensor:
    """A new tensor that copies `data`, in this tensor's dtype unless another is given.

    Errors: those of `tensor`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.new_tensor.html

    >>> ad.ones(1).new_tensor([1, 2])
    tensor([1., 2.])
    """
    assert_strided("new_tensor", layout)
    d = target(dtype) or self.dtype
    if d.category == 1 and not isinstance(data, (TensorBase, np.ndarray)):
        array = converted(array_from(data, None, copy=True), d, False)
    else:
        array = array_from(data, d, copy=True)
    return finish(array, _beside(self, device), requires_grad)


def _beside(input: Any, device: Any) -> Device:
    """The device that was asked for, or that of `input`."""
    return input.device if device is None else as_device(device)  # type: ignore[no-any-return]


@public()
def new_zeros(
    self: Tensor,
    *sizes: Any,
    size: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Zeros in this tensor's dtype.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.new_zeros.html

    >>> ad.tensor([1]).new_zeros(2)
    tensor([0, 0])
    """
    assert_strided("new_zeros", layout)
    d = target(dtype) or self.dtype
    shape = sizes_from(sizes, size, "new_zeros")
    place = _beside(self, device)
    return finish(blank("zeros", shape, d, place), place, requires_grad)


@public()
def new_ones(
    self: Tensor,
    *sizes: Any,
    size: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Ones in this tensor's dtype.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.new_ones.html

    >>> ad.tensor([1]).new_ones(2)
    tensor([1, 1])
    """
    assert_strided("new_ones", layout)
    d = target(dtype) or self.dtype
    place = _beside(self, device)
    array = blank("ones", sizes_from(sizes, size, "new_ones"), d, place)
    return finish(array, place, requires_grad)


@public()
def new_empty(
    self: Tensor,
    *sizes: Any,
    size: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Uninitialised memory in this tensor's dtype.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.new_empty.html

    >>> ad.ones(1).new_empty(2, 3).shape
    adjoint.Size([2, 3])
    """
    assert_strided("new_empty", layout)
    d = target(dtype) or self.dtype
    shape = sizes_from(sizes, size, "new_empty")
    place = _beside(self, device)
    return finish(blank("empty", shape, d, place), place, requires_grad)


@public()
def new_empty_strided(
    self: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Uninitialised memory in this tensor's dtype with the given steps, in elements.

    Errors: ShapeError where `stride` does not have one entry per size.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.new_empty_strided.html

    >>> ad.ones(1).new_empty_strided((2, 3), (1, 2)).stride()
    (1, 2)
    """
    assert_strided("new_empty_strided", layout)
    d = target(dtype) or self.dtype
    shape = sizes_from((tuple(size),), None, "new_empty_strided")
    return finish(strided_array(shape, stride, d), _beside(self, device), requires_grad)


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
    pin_memory: bool = False,
) -> Tensor:
    """One value in this tensor's dtype.

    Errors: InvalidArgument where the value does not fit.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.new_full.html

    >>> ad.ones(1).new_full((2,), 7)
    tensor([7., 7.])
    """
    assert_strided("new_full", layout)
    shape = sizes_from((tuple(size),), None, "new_full")
    value = fill_number(fill_value, "new_full")
    place = _beside(self, device)
    d = target(dtype) or self.dtype
    if type(value) is Number and _takes(d, value):
        return _full_of(value, shape, d, place, requires_grad)
    array = filled_array(shape, value, d, "new_full", place)
    return finish(array, place, requires_grad)


@public(method=False)
@creating
def eye(
    n: int,
    m: int | None = None,
    *,
    out: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
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
    assert_strided("eye", layout)
    columns = n if m is None else m
    if n < 0 or columns < 0:
        raise InvalidArgument(f"eye: n must be greater or equal to 0, got {n}, {columns}")
    if out is not None:
        return into(np.eye(n, columns, dtype=out.dtype.numpy), out, dtype, "eye")
    d = target(dtype) or dt.get_default_dtype()
    place = as_device(device)
    return finish(names_on(place).eye(n, columns, dtype=d.numpy), place, requires_grad, pin_memory)
