"""Tensors from values and sizes; those like another tensor are in `like`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import dtype as dt
from ...core.device import as_device
from ...core.errors import InvalidArgument, InvalidType, ShapeError
from ...core.keywords import concealing, unexpected
from ...core.overrides import ABSENT, FOLLOWED, concerns, overridden, unusual
from ...core.symbolic_scalar import SymbolicNumber
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...runtime.fused import creating
from ...runtime.public import explaining, public
from ..memory_formats import assert_memory_format
from .allocation import (
    _full_of,
    _takes,
    are_numbers,
    assert_strided,
    blank,
    filled_array,
    finish,
    into,
    names_on,
    of_numbers,
    sizes_from,
    strided_array,
)
from .like import empty_like, full_like, ones_like, zeros_like
from .like import new_empty as new_empty
from .like import new_empty_strided as new_empty_strided
from .like import new_full as new_full
from .like import new_ones as new_ones
from .like import new_tensor as new_tensor
from .like import new_zeros as new_zeros
from .values import array_from, convert_number, fill_number, target

if TYPE_CHECKING:
    from ...ops.argument_types import DeviceLike, Dims, DTypeLike, Layout, MemoryFormat, Number

__all__ = [
    "empty", "empty_like", "empty_permuted", "empty_strided", "eye", "full", "full_like",
    "ones", "ones_like", "scalar_tensor", "tensor", "zeros",
    "zeros_like",
]  # fmt: skip

# ---- from values ---------------------------------------------------------------------------------


@concealing
def tensor(
    data: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    **others: object,
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
    if others:
        raise unexpected(tensor, others)
    if FOLLOWED and concerns(None):
        options = unusual(
            dtype=(dtype, None), device=(device, None), requires_grad=(requires_grad, False),
            pin_memory=(pin_memory, False),
        )  # fmt: skip
        said = overridden(tensor, (data,), options, ())  # of modes: data has no say
        if said is not ABSENT:
            return said  # type: ignore[no-any-return]
    if are_numbers(data) and not pin_memory:
        result = of_numbers(data, target(dtype), as_device(device))
        if result is not None:
            return result.requires_grad_() if requires_grad else result
    return finish(array_from(data, target(dtype), copy=True), device, requires_grad, pin_memory)


@explaining
@public(method=False)
def scalar_tensor(
    s: Number,
    *,
    dtype: DTypeLike | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
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


@creating
def zeros(
    *sizes: Dims,
    size: Dims | None = None,
    out: Tensor | None = None,
    dtype: DTypeLike | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
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
    *sizes: Dims,
    size: Dims | None = None,
    out: Tensor | None = None,
    dtype: DTypeLike | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
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
    *sizes: Dims,
    size: Dims | None = None,
    out: Tensor | None = None,
    dtype: DTypeLike | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    memory_format: MemoryFormat | None = None,
) -> Tensor:
    """A tensor whose elements are whatever the memory held.

    Shapes: the sizes given as numbers or as one sequence.
    Errors: ShapeError for a negative size; InvalidType where a size is no int.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.empty.html

    >>> ad.empty(2, 3).shape
    adjoint.Size([2, 3])
    """
    assert_strided("empty", layout)
    assert_memory_format(memory_format, "empty")
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


@creating
def full(
    size: Dims,
    fill_value: Number,
    *,
    out: Tensor | None = None,
    dtype: DTypeLike | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
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
    if type(value) is SymbolicNumber and _takes(d, value):
        return _full_of(value, shape, d, place, requires_grad)
    array = filled_array(shape, value, d, "full", place)
    return finish(array, place, requires_grad, pin_memory)


@explaining
@public(method=False)
def empty_strided(
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: DTypeLike | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
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
    dtype: DTypeLike | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
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


@public(method=False)
@creating
def eye(
    n: int,
    m: int | None = None,
    *,
    out: Tensor | None = None,
    dtype: DTypeLike | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
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
