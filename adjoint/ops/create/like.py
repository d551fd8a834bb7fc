"""Tensors like another: of its shape, or of its dtype and device alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import dtype as dt
from ...core.argument_errors import assert_tensor
from ...core.device import CPU, as_device
from ...core.device import device as Device  # noqa: N812 - the parameters here are called device
from ...core.keywords import unexpected
from ...core.op import Op
from ...core.spec import Spec
from ...core.symbolic_scalar import SymbolicNumber
from ...core.symbolic_sizes import all_known
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply
from ...runtime.lazy import LazyValue
from ...runtime.public import explaining, public
from ...runtime.views import is_in_order, lies, places
from ..memory_formats import assert_memory_format
from .allocation import (
    _full_of,
    _takes,
    assert_strided,
    blank,
    filled_array,
    finish,
    sizes_from,
    strided_array,
)
from .values import array_from, convert_number, fill_number, target

if TYPE_CHECKING:
    from ...ops.argument_types import DeviceLike, Dims, DTypeLike, Layout, MemoryFormat, Number

__all__ = ["empty_like", "full_like", "ones_like", "zeros_like"]


def _array_like(
    make: Callable[..., Any], input: Any, dtype: Any, format: Any, name: str, device: Any
) -> Any:
    """A new array of `input`'s shape, its dimensions in the same order of memory, where `input` is,
    or, if that has no memory, on the host.
    """
    assert_tensor(name, input)
    assert_memory_format(format, name)
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
    dtype: DTypeLike | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    memory_format: MemoryFormat | None = None,
) -> Tensor:
    """Zeros of the shape and dtype of `input`.

    Errors: InvalidType where `input` is no tensor.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.zeros_like.html

    >>> ad.zeros_like(ad.tensor([1, 2]))
    tensor([0, 0])
    """
    assert_strided("zeros_like", layout)
    array = _array_like(np.zeros_like, input, dtype, memory_format, "zeros_like", device)
    return _finished(input, array, _beside(input, device), requires_grad, pin_memory)


@explaining
@public(method=False)
def ones_like(
    input: Tensor,
    *,
    dtype: DTypeLike | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    memory_format: MemoryFormat | None = None,
) -> Tensor:
    """Ones of the shape and dtype of `input`.

    Errors: InvalidType where `input` is no tensor.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.ones_like.html

    >>> ad.ones_like(ad.tensor([1, 2]), dtype=ad.float32)
    tensor([1., 1.])
    """
    assert_strided("ones_like", layout)
    array = _array_like(np.ones_like, input, dtype, memory_format, "ones_like", device)
    return _finished(input, array, _beside(input, device), requires_grad, pin_memory)


@explaining
@public(method=False)
def empty_like(
    input: Tensor,
    *,
    dtype: DTypeLike | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    memory_format: MemoryFormat | None = None,
) -> Tensor:
    """Uninitialised memory of the shape and dtype of `input`.

    Errors: InvalidType where `input` is no tensor.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.empty_like.html

    >>> ad.empty_like(ad.ones(2, 3)).shape
    adjoint.Size([2, 3])
    """
    assert_strided("empty_like", layout)
    array = _array_like(np.empty_like, input, dtype, memory_format, "empty_like", device)
    return _finished(input, array, _beside(input, device), requires_grad, pin_memory)


@explaining
@public(method=False)
def full_like(
    input: Tensor,
    fill_value: Any,
    *,
    dtype: DTypeLike | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    memory_format: MemoryFormat | None = None,
) -> Tensor:
    """A tensor filled with one value, of the shape and dtype of `input`.

    Errors: InvalidType where `input` is no tensor; InvalidArgument where the value does not fit.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.full_like.html

    >>> ad.full_like(ad.tensor([1., 2.]), 7)
    tensor([7., 7.])
    """
    assert_strided("full_like", layout)
    array = _array_like(np.empty_like, input, dtype, memory_format, "full_like", device)
    d = dt.from_numpy_dtype(array.dtype)
    recorded = type(fill_value) is SymbolicNumber and array.flags.c_contiguous and not pin_memory
    if recorded and _takes(d, fill_value):
        return _full_of(fill_value, array.shape, d, _beside(input, device), requires_grad)
    value = fill_number(fill_value, "full_like")
    if type(array) is LazyValue:
        array = filled_array(array.shape, value, d, "full_like", CPU)
    else:
        array[...] = convert_number(value, d, "full_like")
    return _finished(input, array, _beside(input, device), requires_grad, pin_memory)


@public()
def new_tensor(
    self: Tensor,
    data: Any,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    layout: Layout | None = None,
    pin_memory: bool = False,
    **others: object,
) -> Tensor:
    """A new tensor that copies `data`, in this tensor's dtype unless another is given.

    Errors: those of `tensor`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.new_tensor.html

    >>> ad.ones(1).new_tensor([1, 2])
    tensor([1., 2.])
    """
    if others:
        raise unexpected(new_tensor, others)
    assert_strided("new_tensor", layout)
    d = target(dtype) or self.dtype
    return _finished(self, array_from(data, d, copy=True), _beside(self, device), requires_grad)


class OfEach(Op, abstract=True):
    """The first input, in memory for each entry of a batch that the second one has entries of."""

    differentiable = False

    def infer(self, made: Spec, like: Spec) -> Spec:
        """The first input's spec."""
        return made

    def compute(self, xp: Any, made: Any, like: Any) -> Any:
        """A copy."""
        return made.copy()

    def batch(self, size: int, flags: Any, made: Any, like: Any) -> Any:  # type: ignore[override]
        """A copy for each entry."""
        whole = made if flags[0] else made.expand(size, *made._data.shape)
        found: Any = whole.clone()
        return found


_OF_EACH = OfEach()


def _finished(
    like: Any, array: Any, place: Device, requires_grad: bool, pin_memory: bool = False
) -> Tensor:
    """The tensor around a new array, made beside `like`: inside of `vmap` one per entry, where
    `like` has several.
    """
    if isinstance(like._data, LazyValue) and like._data.rises:
        made: Any = apply(_OF_EACH, finish(array, place, False, pin_memory), like)
        return made.requires_grad_() if requires_grad else made
    return finish(array, place, requires_grad, pin_memory)


def _beside(input: Any, device: Any) -> Device:
    """The device that was asked for, or that of `input`."""
    return input.device if device is None else as_device(device)  # type: ignore[no-any-return]


@public()
def new_zeros(
    self: Tensor,
    *sizes: Dims,
    size: Dims | None = None,
    dtype: DTypeLike | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    **others: object,
) -> Tensor:
    """Zeros in this tensor's dtype.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.new_zeros.html

    >>> ad.tensor([1]).new_zeros(2)
    tensor([0, 0])
    """
    if others:
        raise unexpected(new_zeros, others)
    assert_strided("new_zeros", layout)
    d = target(dtype) or self.dtype
    shape = sizes_from(sizes, size, "new_zeros")
    place = _beside(self, device)
    return _finished(self, blank("zeros", shape, d, place), place, requires_grad)


@public()
def new_ones(
    self: Tensor,
    *sizes: Dims,
    size: Dims | None = None,
    dtype: DTypeLike | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    **others: object,
) -> Tensor:
    """Ones in this tensor's dtype.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.new_ones.html

    >>> ad.tensor([1]).new_ones(2)
    tensor([1, 1])
    """
    if others:
        raise unexpected(new_ones, others)
    assert_strided("new_ones", layout)
    d = target(dtype) or self.dtype
    place = _beside(self, device)
    array = blank("ones", sizes_from(sizes, size, "new_ones"), d, place)
    return _finished(self, array, place, requires_grad)


@public()
def new_empty(
    self: Tensor,
    *sizes: Dims,
    size: Dims | None = None,
    dtype: DTypeLike | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    **others: object,
) -> Tensor:
    """Uninitialised memory in this tensor's dtype.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.new_empty.html

    >>> ad.ones(1).new_empty(2, 3).shape
    adjoint.Size([2, 3])
    """
    if others:
        raise unexpected(new_empty, others)
    assert_strided("new_empty", layout)
    d = target(dtype) or self.dtype
    shape = sizes_from(sizes, size, "new_empty")
    place = _beside(self, device)
    return _finished(self, blank("empty", shape, d, place), place, requires_grad)


@public()
def new_empty_strided(
    self: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    dtype: DTypeLike | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
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
    return _finished(self, strided_array(shape, stride, d), _beside(self, device), requires_grad)


@public()
def new_full(
    self: Tensor,
    size: Sequence[int],
    fill_value: Number,
    *,
    dtype: DTypeLike | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    **others: object,
) -> Tensor:
    """A tensor filled with one value, of this tensor's dtype.

    Errors: InvalidArgument where the value does not fit.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.new_full.html

    >>> ad.ones(1).new_full((2,), 7)
    tensor([7., 7.])
    """
    if others:
        raise unexpected(new_full, others)
    assert_strided("new_full", layout)
    shape = sizes_from((tuple(size),), None, "new_full")
    value = fill_number(fill_value, "new_full")
    place = _beside(self, device)
    d = target(dtype) or self.dtype
    if type(value) is SymbolicNumber and _takes(d, value):
        return _full_of(value, shape, d, place, requires_grad)
    array = filled_array(shape, value, d, "new_full", place)
    return _finished(self, array, place, requires_grad)
