"""Allocation: the arrays that creation fills, with their sizes, layouts, memory and devices."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.device import CPU, as_device, device_of, pin, space, transfer
from ...core.device import device as Device  # noqa: N812 - the parameters here are called device
from ...core.errors import DeviceError, DTypeError, InvalidType, LayoutError, ShapeError
from ...core.spec import assert_possible
from ...core.symbolic_scalar import SymbolicNumber
from ...core.symbolic_sizes import all_known, as_size, is_size
from ...core.tensor_type import Tensor
from ...runtime.public import FUNCTIONS
from ...runtime.tensors import fresh
from .values import convert_number, target

__all__: list[str] = []


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


def sizes_from(sizes: tuple[Any, ...], size: Any, name: str) -> tuple[int, ...]:
    """Sizes given as `f(2, 3)`, `f((2, 3))` or `f(size=(2, 3))`; all at least 0."""
    if size is not None:
        sizes = tuple(size) if isinstance(size, (tuple, list)) else (size,)
    elif len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = tuple(sizes[0])
    elif not sizes:
        raise InvalidType(f'{name}: missing 1 required positional argument: "size"')
    try:
        known = SymbolicNumber not in map(type, sizes)
        shape = tuple(map(operator.index if known else as_size, sizes))
    except TypeError:
        raise InvalidType(
            f"{name}: argument 'size' must be tuple of ints, got {sizes!r:.60}"
        ) from None
    if (shape and min(shape) < 0) if known else any(n < 0 for n in shape):
        raise ShapeError(f"{name}: Dimension size must be non-negative, got {shape}")
    if known and shape and max(shape) > 1 << 20:
        assert_possible(shape, name)
    return shape


def blank(name: str, shape: tuple[int, ...], dtype: dt.dtype, place: Device) -> Any:
    """An array of `name` ("zeros", "ones", "empty") on a device that exists; one that is recorded,
    where sizes are numbers that are not known yet.
    """
    if SymbolicNumber not in map(type, shape):
        return getattr(names_on(place), name)(shape, dtype.numpy)
    value = fresh(np.array(name == "ones", dtype.numpy))
    return _spread(value, shape, place)._data  # type: ignore[no-any-return]


def names_on(place: Device) -> Any:
    """The namespace that makes arrays on a device."""
    return np if place is CPU else space(place)


def into(array: Any, out: Any, dtype: Any, name: str) -> Tensor:
    """`array` written into `out`, whose dtype decides; a `dtype` that differs is refused."""
    from ...runtime import public

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


def _takes(d: dt.dtype, value: SymbolicNumber) -> bool:
    """Whether a number that is yet to come, and is of a kind that is known, will fit a dtype."""
    return d.is_floating_point or (d is dt.int64 and isinstance(value, int))


def _full_of(
    value: SymbolicNumber, shape: Sequence[int], d: dt.dtype, place: Device, requires_grad: bool
) -> Tensor:
    """A tensor filled with a number that comes with each run of a program."""
    result = _spread(value.operand(d), shape, place)
    return result.requires_grad_() if requires_grad else result


def are_numbers(data: object) -> bool:
    """Whether a number, or one in a list or tuple, comes with each run of a program."""
    if type(data) is SymbolicNumber:
        return not is_size(data)
    if not isinstance(data, (list, tuple)) or SymbolicNumber not in map(type, data):
        return False
    return not any(map(is_size, data))


def of_numbers(data: Any, d: dt.dtype | None, place: Device) -> Tensor | None:
    """A tensor of a number that comes with each run, or of a list or tuple with such numbers; None
    where their kinds differ, or may not fit a dtype.
    """
    numbers = data if isinstance(data, (list, tuple)) else (data,)
    kinds = {x.__class__ for x in numbers}
    if not (kinds <= {int} or kinds <= {float}):
        return None
    d = d or dt.of_scalar(kinds.pop()(1))
    if not all(_takes(d, x) for x in numbers):
        return None
    if numbers is not data:
        return _full_of(data, (), d, place, False)
    parts: list[Any] = []
    for x in numbers:
        if type(x) is SymbolicNumber:
            parts.append(_full_of(x, (1,), d, place, False))
        else:
            array = np.array([convert_number(x, d, "tensor")], d.numpy)
            parts.append(finish(array, place))
    result: Tensor = FUNCTIONS["cat"](parts)
    return result


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
