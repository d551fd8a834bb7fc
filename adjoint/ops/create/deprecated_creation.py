"""Older methods of tensors: a function of Python for each element, names of memory and devices."""

from __future__ import annotations

import math
import numbers
import os
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from ...core import dtype as dt
from ...core.errors import (
    AutogradError,
    DeviceError,
    IndexingError,
    InvalidArgument,
    InvalidType,
    ShapeError,
    Unsupported,
)
from ...core.spec import broadcast_shapes, normalize_axes
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...runtime.public import METHODS, explaining, public
from ...runtime.writes import values_of
from ..shape.concatenation import cat
from ..shape.sizes import hold_values
from .exchange import from_numpy
from .memory import UntypedStorage

if TYPE_CHECKING:
    from ...ops.argument_types import DeviceLike, Dims, DTypeLike, Layout

# ---- a function for each element -----------------------------------------------------------------


def _called(name: str, x: Any, others: tuple[Any, ...], function: Callable[..., Any]) -> Any:
    if x.requires_grad:
        raise AutogradError(
            f"{name}: Can't call {name}() on a tensor that requires grad. Use "
            f"x.detach().{name}() instead"
        )
    if x.device.type != "cpu":
        raise InvalidType(f"{name}: is only implemented on CPU tensors; use .cpu()")
    shape = tuple(x.shape)
    for each in others:
        if not isinstance(each, TensorBase):
            raise InvalidType(f"{name}: expected a tensor, got {type(each).__name__}: {each!r:.60}")
        if each.dtype is not x.dtype:
            raise InvalidType(
                f"{name}: expected {x.dtype} for the other tensors, got {each.dtype}; convert "
                "with .to()"
            )
        if broadcast_shapes(shape, tuple(each.shape), op=name) != shape:
            raise ShapeError(f"{name}: shape {tuple(each.shape)} does not expand to {shape}")
    kind = x.dtype.numpy
    lines = [y.expand(shape).detach().reshape(-1) for y in (x, *others)]
    arrays = [values_of(y, followed=True) for y in lines]
    columns = [(y.astype(np.float32) if kind.kind == "V" else y).tolist() for y in arrays]
    made = np.empty(x.numel(), kind)
    for place, values in enumerate(zip(*columns, strict=True)):
        found: Any = function(*values)
        if not _is_number(found):
            raise InvalidType(f"{name}: the function gave no number, but {found!r:.60}")
        made[place] = int(found) if kind.kind in "iu" else found
    return x.copy_(hold_values(name, from_numpy(made.reshape(shape)), x, *others))


def _is_number(value: Any) -> bool:
    return isinstance(value, (numbers.Number, np.generic, TensorBase))


@public()
@explaining
def apply_(self: Tensor, callable: Callable[[Any], Any]) -> Tensor:
    """Put what a function of Python gives for each element into its place. It is slow: for a few
    numbers only.

    Errors: AutogradError where the tensor requires grad; InvalidType on other devices.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.apply_.html

    >>> ad.tensor([1., 2.]).apply_(lambda v: v * v)
    tensor([1., 4.])
    """
    return _called("apply_", self, (), callable)


@public()
@explaining
def map_(self: Tensor, tensor: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
    """Put what a function of Python gives for each element, and that of `tensor`, into its place.

    Shapes: `tensor` broadcasts to this one.
    Errors: those of `apply_`; InvalidType for another dtype; ShapeError for shapes that do not fit.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.map_.html

    >>> ad.tensor([1., 2.]).map_(ad.tensor([3.]), lambda a, b: a * b)
    tensor([3., 6.])
    """
    return _called("map_", self, (tensor,), callable)


@public()
@explaining
def map2_(self: Tensor, x: Tensor, y: Tensor, callable: Callable[[Any, Any, Any], Any]) -> Tensor:
    """`map_` with two other tensors.

    Errors: those of `map_`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.map_.html

    >>> ad.ones(1).map2_(ad.ones(1), ad.ones(1), lambda a, b, c: a + b + c)
    tensor([3.])
    """
    return _called("map2_", self, (x, y), callable)


# ---- shapes and memory ---------------------------------------------------------------------------


@public()
@explaining
def resize(self: Tensor, *sizes: int) -> Tensor:
    """The tensor in another shape of as many elements; `reshape` is preferred, and this warns.

    Errors: ShapeError for another number of elements.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.reshape.html

    >>> import warnings; warnings.simplefilter("ignore")
    >>> ad.arange(4).resize(2, 2)
    tensor([[0, 1],
            [2, 3]])
    """
    warnings.warn("non-inplace resize is deprecated", stacklevel=3)
    return _reshaped(self, sizes)


@public()
@explaining
def resize_as(self: Tensor, tensor: Tensor) -> Tensor:
    """The tensor in the shape of another one; `reshape_as` is preferred, and this warns.

    Errors: ShapeError for another number of elements.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.reshape.html

    >>> import warnings; warnings.simplefilter("ignore")
    >>> ad.arange(4).resize_as(ad.ones(2, 2)).shape
    adjoint.Size([2, 2])
    """
    warnings.warn("non-inplace resize_as is deprecated", stacklevel=3)
    return _reshaped(self, tuple(tensor.shape))


def _reshaped(x: Any, sizes: tuple[int, ...]) -> Any:
    if not all(isinstance(n, int) for n in sizes) or math.prod(sizes) != x.numel():
        raise ShapeError(
            f"requested resize to {sizes}, but the given tensor has a size of {tuple(x.shape)} "
            f"({x.numel()} elements): resize keeps the number of elements; use resize_"
        )
    return x.contiguous().view(*sizes)


@public()
def const_data_ptr(self: Tensor) -> int:
    """`data_ptr()`, of memory that is only read.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.data_ptr.html

    >>> x = ad.ones(1)
    >>> x.const_data_ptr() == x.data_ptr()
    True
    """
    return self.data_ptr()  # type: ignore[attr-defined,no-any-return]


@public()
def storage_type(self: Tensor) -> Any:
    """The class of this tensor's storage, such as `FloatStorage`.

    Errors: InvalidArgument for a dtype that has none.
    Source: https://docs.pytorch.org/docs/stable/storage.html

    >>> ad.ones(1).storage_type() is ad.FloatStorage
    True
    """
    from .storages import of

    return of(self.dtype)


@explaining
def from_file(
    filename: Any,
    shared: bool | None = None,
    size: int | None = 0,
    *,
    dtype: DTypeLike | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool | None = False,
    requires_grad: bool | None = False,
) -> Tensor:
    """The first `size` elements of a file as a tensor, which nothing reads before it is used:
    `shared`, writes reach the file, which is made as long as that takes.

    Errors: InvalidArgument for a file that is not there, or too short where not `shared`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.from_file.html

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "bytes")
    >>> _ = path.write_bytes(bytes(4))
    >>> ad.from_file(path, size=1)
    tensor([0.])
    """
    kind = dt.get_default_dtype() if dtype is None else dt.as_dtype(dtype)
    count = (size or 0) * kind.itemsize
    try:
        if shared:
            with open(filename, "ab") as file:
                file.truncate(max(count, os.path.getsize(filename)))
        storage = UntypedStorage.from_file(filename, bool(shared), count)
    except OSError as error:
        raise InvalidArgument(f"from_file: unable to open file <{filename}>: {error}") from None
    found = from_numpy(storage.bytes().view(kind.numpy))
    if device is not None:
        found = found.to(device)
    return found.requires_grad_() if requires_grad else found


# ---- hashes --------------------------------------------------------------------------------------


@public(out=True)
def hash_tensor(input: Tensor, dim: Dims = (), *, keepdim: bool = False, mode: int = 0) -> Tensor:
    """The exclusive or of the 64 bits of all elements, or of those along dimensions: real numbers
    as float64, whole ones as int64.

    Dtypes: any but complex; the result is uint64.
    Errors: InvalidArgument for another mode than 0, or no elements; Unsupported for complex.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.hash_tensor.html

    >>> ad.hash_tensor(ad.tensor([1, 2, 4]))
    tensor(7, dtype=adjoint.uint64)
    """
    if mode != 0:
        raise InvalidArgument(f"hash_tensor: Unknown hash_tensor mode: {mode}; 0 is the one")
    if input.dtype.is_complex:
        raise Unsupported(f"hash_tensor: not implemented for {input.dtype}; use view_as_real()")
    axes = normalize_axes(dim if isinstance(dim, int) or len(dim) else None, input.ndim, "hash")
    empty = [i for i in axes if input.shape[i] == 0]
    if empty and len(axes) < input.ndim:
        raise IndexingError(
            f"hash_tensor: Expected reduction dim {empty[0]} to have non-zero size."
        )
    if empty:
        raise InvalidArgument("hash_tensor: Expected reduction dim with elements, got none")
    x: Any = input.detach()
    real = input.dtype.is_floating_point
    x = x.to(dt.float64).contiguous().view(dt.int64) if real else x.to(dt.int64)
    for axis in axes:
        while x.shape[axis] > 1:
            half = x.shape[axis] // 2
            rest = x.narrow(axis, 2 * half, x.shape[axis] - 2 * half)
            x = x.narrow(axis, 0, half) ^ x.narrow(axis, half, half)
            if rest.shape[axis]:
                x = cat([x, rest], axis)
    if not keepdim:
        x = x.reshape([n for i, n in enumerate(x.shape) if i not in axes])
    return x.contiguous().view(dt.uint64)


# ---- what is refused, as in PyTorch --------------------------------------------------------------


class NoSuchDevice(DeviceError, AssertionError):  # noqa: N818 - reads as what happened
    """PyTorch asserts that it was built for a device."""


def _refusing(name: str, error: type[Exception], why: str) -> None:
    def method(self: Tensor, *args: Any, **kwargs: Any) -> NoReturn:
        raise error(f"{name}: {why}")

    method.__name__ = method.__qualname__ = name
    method.__doc__ = (
        f"Refused, as in PyTorch's builds for CPUs: {why}.\n\n    Errors: {error.__name__}."
    )
    METHODS[name] = explaining(method)


for _device in ("ipu", "mtia", "xpu"):
    _refusing(_device, NoSuchDevice, f"there are no devices of type {_device}; use .cpu()")
_refusing("record_stream", DeviceError, "streams are of accelerators; nothing waits on the CPU")
_refusing("to_padded_tensor", Unsupported, "is for nested tensors; use nn.utils.rnn.pad_sequence")
_refusing("reinforce", InvalidArgument, "was removed; distributions and log_prob do it")
for _old, _new in (
    ("eig", "linalg.eig"), ("lstsq", "linalg.lstsq, whose arguments are the other way round"),
    ("solve", "linalg.solve, whose arguments are the other way round"), ("symeig", "linalg.eigh"),
):  # fmt: skip
    _refusing(_old, InvalidArgument, f"was removed in PyTorch 1.13; use {_new}")
for _name in ("int_repr", "q_per_channel_axis", "q_per_channel_scales",
              "q_per_channel_zero_points", "q_scale", "q_zero_point", "qscheme"):  # fmt: skip
    _refusing(_name, Unsupported, "is for quantized tensors, and there are none here")


@public()
def dequantize(self: Tensor) -> Any:
    """The dense tensor as float32.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.dequantize.html

    >>> ad.tensor([1, 2]).dequantize()
    tensor([1., 2.])
    """
    return self.float()  # type: ignore[attr-defined]
