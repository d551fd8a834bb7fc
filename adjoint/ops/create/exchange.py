"""Memory that is exchanged with NumPy, and by DLPack with other libraries."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import dtype as dt
from ...core.arrays import capsule_address
from ...core.device import CPU, as_device, device
from ...core.errors import DeviceError, DTypeError, InvalidArgument, InvalidType
from ...core.tensor_type import Tensor
from ...runtime.public import explaining, public
from ...runtime.writes import exported
from .allocation import finish
from .conversion import to
from .values import checked_array

if TYPE_CHECKING:
    from ...ops.argument_types import DTypeLike

__all__ = ["from_dlpack", "from_numpy", "frombuffer", "to_dlpack"]


@public(method=False)
def from_numpy(ndarray: Any) -> Tensor:
    """A tensor that shares the memory of a NumPy array.

    Errors: InvalidType for anything but an array; DTypeError for a dtype without counterpart;
    InvalidArgument for negative strides or a foreign byte order.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.from_numpy.html

    >>> array = np.array([1, 2])
    >>> x = ad.from_numpy(array)
    >>> array[0] = 7
    >>> x
    tensor([7, 2])
    """
    if not isinstance(ndarray, np.ndarray):
        raise InvalidType(f"from_numpy: expected np.ndarray (got {type(ndarray).__name__})")
    return exported(finish(checked_array(ndarray), CPU))  # type: ignore[no-any-return]


@public(method=False)
def frombuffer(
    buffer: Any, *, dtype: DTypeLike, count: int = -1, offset: int = 0, requires_grad: bool = False
) -> Tensor:
    """A 1-d tensor that shares the memory of a Python buffer.

    Errors: InvalidArgument where the buffer is empty or its length does not fit.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.frombuffer.html

    >>> ad.frombuffer(bytearray([1, 0, 2, 0]), dtype=ad.int16)
    tensor([1, 2], dtype=adjoint.int16)
    """
    d = dt.as_dtype(dtype)
    try:
        length = memoryview(buffer).nbytes
    except TypeError:
        raise InvalidArgument(
            f"frombuffer: object does not implement Python buffer protocol: {type(buffer).__name__}"
        ) from None
    if not length or not count:
        raise InvalidArgument(
            f"frombuffer: both buffer length ({length}) and count ({count}) must not be 0"
        )
    if not 0 <= offset < length:
        raise InvalidArgument(
            f"frombuffer: offset ({offset} bytes) must be non-negative and no greater than buffer "
            f"length ({length} bytes) minus 1"
        )
    if count < 0 and (length - offset) % d.itemsize:
        raise InvalidArgument(
            f"frombuffer: buffer length ({length - offset} bytes) after offset ({offset} bytes) "
            f"must be a multiple of element size ({d.itemsize})"
        )
    if count > 0 and offset + count * d.itemsize > length:
        raise InvalidArgument(
            f"frombuffer: requested buffer length ({count} * {d.itemsize} bytes) after offset "
            f"({offset} bytes) must not be greater than actual buffer length ({length} bytes)"
        )
    size = count if count > 0 else (length - offset) // d.itemsize
    memory = np.frombuffer(buffer, np.uint8, size * d.itemsize, offset)
    return exported(finish(memory.view(d.numpy), CPU, requires_grad))  # type: ignore[no-any-return]


class _Writable:
    """An array's memory, offered as writable (a plain DLPack capsule cannot say that it is)."""

    def __init__(self, array: Any) -> None:
        self.array = array  # keeps the memory alive
        interface = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface


@public(method=False)
def from_dlpack(
    ext_tensor: Any, *, device: device | str | None = None, copy: bool | None = None
) -> Tensor:
    """A tensor that shares the memory of any object with `__dlpack__` (NumPy, PyTorch, JAX, ...);
    on another `device`, or with `copy`, one that has a copy. A DLPack capsule serves once.

    Errors: DeviceError where the data is not in the CPU's memory; DTypeError for a dtype that has
    no counterpart here; InvalidArgument for another device without a copy.
    Source: https://docs.pytorch.org/docs/stable/dlpack.html

    >>> ad.from_dlpack(np.array([1., 2.]))
    tensor([1., 2.], dtype=adjoint.float64)
    """
    result = _shared(ext_tensor)
    if device is None and not copy:
        return result
    if device is not None and as_device(device).type != result.device.type and copy is False:
        raise InvalidArgument(f"from_dlpack: data on {result.device} reaches {device} by a copy")
    return to(result, device=device, copy=bool(copy))  # type: ignore[no-any-return]


def _shared(ext_tensor: Any) -> Tensor:
    if type(ext_tensor).__name__ == "PyCapsule":
        ext_tensor = _Exporter(ext_tensor, _device_of(ext_tensor))
    if not hasattr(ext_tensor, "__dlpack__"):
        raise InvalidType(
            f"from_dlpack: {type(ext_tensor).__name__} has no __dlpack__; pass a tensor, an array "
            "or a capsule"
        )
    if ext_tensor.__dlpack_device__()[0] not in (1, 3, 13):  # CPU memory, plain, pinned, managed
        raise DeviceError("from_dlpack: the data is not in CPU memory; move it there first")
    if isinstance(ext_tensor, np.ndarray):
        return from_numpy(ext_tensor)  # type: ignore[no-any-return]
    capsule = ext_tensor.__dlpack__()
    bfloat = _replace_type(capsule, _BFLOAT, _INT)
    try:
        array = np.from_dlpack(_Exporter(capsule, ext_tensor.__dlpack_device__()))
    except (BufferError, RuntimeError) as error:
        raise DTypeError(
            f"from_dlpack: cannot take over this {type(ext_tensor).__name__}: {error}; convert it "
            "to a dtype that NumPy has"
        ) from error
    if not array.flags.writeable:
        array = np.asarray(_Writable(array))
    return from_numpy(array.view(dt.bfloat16.numpy) if bfloat else array)  # type: ignore[no-any-return]


_INT, _BFLOAT = 0, 4  # type codes of the DLPack standard


class _DLTensor(ctypes.Structure):
    """The DLPack standard's, up to the type code."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
    )


def _replace_type(capsule: Any, old: int, new: int) -> bool:
    """Changes a capsule's type code from `old` to `new`: NumPy exchanges no bfloat16."""
    tensor = _DLTensor.from_address(capsule_address(capsule, b"dltensor"))
    if tensor.code != old:
        return False
    tensor.code = new
    return True


def _device_of(capsule: object) -> tuple[int, int]:
    """The device of a capsule that nobody has taken over yet."""
    try:
        address = capsule_address(capsule, b"dltensor")
    except ValueError as error:
        raise InvalidArgument(
            "from_dlpack: this capsule was taken over already (or is of a version with flags); a "
            "capsule serves once: ask for another one"
        ) from error
    kind, number = _DLTensor.from_address(address).device
    return kind, number


class _Exporter:
    """A capsule that was asked for already, as an object to take it from."""

    def __init__(self, capsule: Any, device: Any) -> None:
        self.capsule, self.device = capsule, device

    def __dlpack__(self, **options: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> Any:
        return self.device


def export_dlpack(array: Any, options: dict[str, Any]) -> Any:
    """The DLPack capsule of an array."""
    if array.dtype != dt.bfloat16.numpy:
        return array.__dlpack__(**options)
    bits = array.view(np.int16)
    capsule = (bits.copy() if options["copy"] else bits).__dlpack__()  # of a version without flags
    _replace_type(capsule, _INT, _BFLOAT)
    return capsule


@explaining
@public(method=False)
def to_dlpack(tensor: Tensor) -> Any:
    """A DLPack capsule that shares the tensor's memory.

    Errors: AutogradError for a tensor that requires grad.
    Source: https://docs.pytorch.org/docs/stable/dlpack.html

    >>> type(ad.to_dlpack(ad.ones(2))).__name__
    'PyCapsule'
    """
    return tensor.__dlpack__()
