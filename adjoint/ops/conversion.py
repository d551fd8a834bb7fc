"""Conversion of dtype and device, and memory shared with NumPy and other libraries."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import dtype as dt
from ..core.device import as_device, device
from ..core.errors import (
    AutogradError,
    DeviceError,
    DTypeError,
    InvalidArgument,
    InvalidType,
    ShapeError,
    Unsupported,
)
from ..core.handle import Handle
from ..core.op import FUNCTIONS, METHODS, public
from .creation import array_from, assert_row_major, checked_array, finish, sizes_from, target
from .promotion import cast

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = [
    "BFloat16Tensor", "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor",
    "HalfTensor", "IntTensor", "LongTensor", "ShortTensor", "UntypedStorage", "as_tensor",
    "asarray", "channels_last", "channels_last_3d", "contiguous_format", "from_dlpack",
    "from_numpy", "frombuffer", "is_nonzero", "is_storage", "is_tensor", "memory_format", "numel",
    "preserve_format", "strided", "to_dlpack", "typename",
]  # fmt: skip


# ---- dtype and device ----------------------------------------------------------------------------


@public()
def to(
    self: Tensor,
    *args: Any,
    dtype: Any = None,
    device: Any = None,
    other: Any = None,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """This tensor in another dtype or on another device; itself where nothing changes.

    Called as `to(dtype)`, `to(device)`, `to(device, dtype)` or `to(other)`; `copy=True` makes a
    copy in any case. Gradients flow back through it.

    Errors: DeviceError for a device that does not exist here; InvalidType for anything else.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.to.html

    >>> ad.tensor([1.5, -1.5]).to(ad.int32)
    tensor([ 1, -1], dtype=adjoint.int32)
    """
    if len(args) == 1 and type(args[0]) is dt.dtype and not copy:
        return cast(self, args[0])
    rest = list(args)
    if rest and not isinstance(rest[0], bool):
        first = rest.pop(0)
        if isinstance(first, Handle):
            other = first
        elif isinstance(first, (str, _Device, int)):
            device = first
            if rest and not isinstance(rest[0], bool):
                dtype = rest.pop(0)
        elif first is not None:
            dtype = first
        elif rest and not isinstance(rest[0], bool):
            dtype = rest.pop(0)
    if rest:
        non_blocking = rest.pop(0)
    if rest:
        copy = rest.pop(0)
    if rest:
        raise InvalidType(f"to: too many arguments: {args!r}")
    if other is not None:
        if not isinstance(other, Handle):
            raise InvalidType(f"to: other must be a tensor, got {type(other).__name__}")
        device, dtype = other.device, other.dtype
    if device is not None:
        as_device(device)
    assert_row_major(memory_format, "to")
    wanted = target(dtype)
    if wanted is None or wanted is self.dtype:
        return FUNCTIONS["clone"](self) if copy else self  # type: ignore[no-any-return]
    return cast(self, wanted)


_Device = device  # `to` has an argument of this name


@public()
def cpu(self: Tensor, memory_format: Any = None) -> Tensor:
    """This tensor in the CPU's memory; itself where it is there already.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.cpu.html

    >>> ad.ones(1).cpu().device
    device(type='cpu')
    """
    return to(self, "cpu", memory_format=memory_format)  # type: ignore[no-any-return]


@public()
def cuda(
    self: Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None
) -> Tensor:
    """This tensor on a CUDA device.

    Errors: DeviceError where there is none.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.cuda.html

    >>> try:
    ...     ad.ones(1).cuda()
    ... except ad.DeviceError as error:
    ...     print("no CUDA here")
    no CUDA here
    """
    where = "cuda" if device is None else device
    return to(self, where, memory_format=memory_format)  # type: ignore[no-any-return]


_SHORTHANDS = {
    "bool": dt.bool_, "byte": dt.uint8, "char": dt.int8, "short": dt.int16, "int": dt.int32,
    "long": dt.int64, "half": dt.float16, "bfloat16": dt.bfloat16, "float": dt.float32,
    "double": dt.float64, "cfloat": dt.complex64, "cdouble": dt.complex128,
}  # fmt: skip


def _shorthand(name: str, dtype: dt.dtype) -> Any:
    def method(self: Tensor, memory_format: Any = None) -> Tensor:
        assert_row_major(memory_format, name)
        return cast(self, dtype)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = (
        f"This tensor in {dtype}; itself where it has that dtype already.\n\n"
        f"    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.{name}.html\n\n"
        f"    >>> ad.tensor([1]).{name}().dtype\n"
        f"    {dtype!r}\n"
    )
    return method


for _name, _dtype in _SHORTHANDS.items():
    METHODS[_name] = _shorthand(_name, _dtype)


class TensorType:
    """A legacy tensor type such as `FloatTensor`: a constructor, and a name for one dtype.

    Source: https://docs.pytorch.org/docs/stable/tensors.html

    >>> ad.LongTensor([1, 2])
    tensor([1, 2])
    >>> isinstance(ad.ones(1), ad.FloatTensor)
    True
    """

    def __init__(self, name: str, dtype: dt.dtype) -> None:
        self.__name__ = self.__qualname__ = name
        self.dtype = dtype

    def __call__(self, *data: Any, device: Any = None) -> Tensor:
        return legacy_new(self.dtype, data, device)

    def __instancecheck__(self, instance: Any) -> bool:
        return isinstance(instance, Handle) and instance.dtype is self.dtype

    def __repr__(self) -> str:
        return f"<class 'adjoint.{self.__name__}'>"


BoolTensor = TensorType("BoolTensor", dt.bool_)
ByteTensor = TensorType("ByteTensor", dt.uint8)
CharTensor = TensorType("CharTensor", dt.int8)
ShortTensor = TensorType("ShortTensor", dt.int16)
IntTensor = TensorType("IntTensor", dt.int32)
LongTensor = TensorType("LongTensor", dt.int64)
HalfTensor = TensorType("HalfTensor", dt.float16)
BFloat16Tensor = TensorType("BFloat16Tensor", dt.bfloat16)
FloatTensor = TensorType("FloatTensor", dt.float32)
DoubleTensor = TensorType("DoubleTensor", dt.float64)
_COMPLEX_TYPES = (
    TensorType("ComplexFloatTensor", dt.complex64),
    TensorType("ComplexDoubleTensor", dt.complex128),
)
_TYPES = {
    kind.dtype: kind
    for kind in (
        BoolTensor, ByteTensor, CharTensor, ShortTensor, IntTensor, LongTensor, HalfTensor,
        BFloat16Tensor, FloatTensor, DoubleTensor, *_COMPLEX_TYPES,
    )
}  # fmt: skip


def legacy_new(dtype: dt.dtype, data: tuple[Any, ...], device: Any = None) -> Tensor:
    """What `Tensor(...)` and `FloatTensor(...)` make: sizes give memory, a sequence gives values."""
    if len(data) == 1 and not isinstance(data[0], int):
        source = data[0]
        if isinstance(source, Handle):
            return source.detach()  # type: ignore[attr-defined,no-any-return]
        if type(source).__name__ == "Size":
            data = tuple(source)
        elif isinstance(source, UntypedStorage):
            raise Unsupported("Tensor: a storage as data; use frombuffer")
        elif isinstance(source, (float, complex, type(None))):
            raise InvalidType(
                f"Tensor: new(): data must be a sequence (got {type(source).__name__}); use "
                "adjoint.tensor() for a number"
            )
        else:
            array = array_from(source, None, copy=True)
            with np.errstate(all="ignore"):
                return finish(array.astype(dtype.numpy), device)
    return finish(np.empty(sizes_from((data or (0,),), None, "Tensor"), dtype.numpy), device)


@public()
def new(self: Tensor, *data: Any, device: Any = None) -> Tensor:
    """A new tensor of this tensor's dtype from sizes or a sequence; `new_*` are clearer.

    Source: https://docs.pytorch.org/docs/stable/tensors.html

    >>> ad.tensor([1]).new([2.5])
    tensor([2])
    """
    return legacy_new(self.dtype, data, device)


@public(method="type")
def type_(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """The name of this tensor's type, or this tensor in another dtype.

    Errors: InvalidArgument for an unknown type name.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.type.html

    >>> ad.ones(1).type()
    'adjoint.FloatTensor'
    >>> ad.ones(1).type(ad.int64)
    tensor([1])
    """
    if dtype is None:
        return f"adjoint.{_TYPES[self.dtype].__name__}"
    if isinstance(dtype, TensorType):
        return cast(self, dtype.dtype)
    if isinstance(dtype, dt.dtype):
        return cast(self, dtype)
    for kind in _TYPES.values():
        if dtype == f"adjoint.{kind.__name__}":
            return cast(self, kind.dtype)
    raise InvalidArgument(
        f"type: invalid type: {dtype!r}; use a dtype such as adjoint.float32, or a name such as "
        "'adjoint.FloatTensor'"
    )


@public()
def type_as(self: Tensor, other: Tensor) -> Tensor:
    """This tensor in the dtype of `other`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.type_as.html

    >>> ad.ones(2).type_as(ad.tensor([1]))
    tensor([1, 1])
    """
    return cast(self, other.dtype)


# ---- memory shared with others -------------------------------------------------------------------


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
    return finish(checked_array(ndarray))


@public(method=False)
def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """`data` as a tensor, sharing memory and keeping history where nothing has to change.

    Errors: those of `tensor`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.as_tensor.html

    >>> x = ad.ones(2)
    >>> ad.as_tensor(x) is x
    True
    """
    if isinstance(data, Handle):
        return to(data, device=device, dtype=dtype)  # type: ignore[no-any-return]
    return finish(array_from(data, target(dtype), copy=False), device)


@public(method=False)
def asarray(
    obj: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    copy: bool | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """`obj` (tensor, array, DLPack object, buffer, number or sequence) as a tensor.

    `copy` says whether memory must (True), may (None) or must not (False) be copied.

    Errors: InvalidArgument where a copy is needed and `copy` is False; those of `tensor`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.asarray.html

    >>> ad.asarray([1, 2])
    tensor([1, 2])
    """
    wanted = target(dtype)
    if isinstance(obj, Handle):
        if copy is False and wanted not in (None, obj.dtype):
            raise InvalidArgument(
                f"asarray: can't alias tensor of {obj.dtype} as {wanted} without a copy"
            )
        result: Tensor = to(obj, device=device, dtype=wanted, copy=bool(copy))
        if not requires_grad:
            return result.detach() if result.requires_grad else result
        return (result.detach() if result is obj else result).requires_grad_()
    if not hasattr(obj, "__array__") and hasattr(obj, "__dlpack__"):
        source = from_dlpack(obj)._data
    elif isinstance(obj, (bytes, bytearray, memoryview)):
        d = wanted or dt.get_default_dtype()
        source = np.frombuffer(obj, d.numpy)
    elif isinstance(obj, np.ndarray):
        source = obj
    else:
        if copy is False:
            raise InvalidArgument(
                f"asarray: can't alias an arbitrary sequence ({type(obj).__name__}) into a tensor "
                "without a copy"
            )
        return finish(array_from(obj, wanted, copy=True), device, requires_grad)
    array = array_from(source, wanted, copy=bool(copy))
    if copy is False and array.dtype != source.dtype:
        raise InvalidArgument(f"asarray: can't alias {source.dtype} as {wanted} without a copy")
    return finish(array, device, requires_grad)


@public(method=False)
def frombuffer(
    buffer: Any, *, dtype: Any, count: int = -1, offset: int = 0, requires_grad: bool = False
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
    return finish(memory.view(d.numpy), None, requires_grad)


class _Writable:
    """An array's memory, offered as writable (a plain DLPack capsule cannot say that it is)."""

    def __init__(self, array: Any) -> None:
        self.array = array  # keeps the memory alive
        interface = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface


@public(method=False)
def from_dlpack(ext_tensor: Any) -> Tensor:
    """A tensor that shares the memory of any object with `__dlpack__` (NumPy, PyTorch, JAX, ...).

    Errors: DeviceError where the data is not in the CPU's memory; DTypeError for a dtype that the
    exchange cannot carry here (bfloat16).
    Source: https://docs.pytorch.org/docs/stable/dlpack.html

    >>> ad.from_dlpack(np.array([1., 2.]))
    tensor([1., 2.], dtype=adjoint.float64)
    """
    if not hasattr(ext_tensor, "__dlpack__"):
        raise InvalidType(
            f"from_dlpack: {type(ext_tensor).__name__} has no __dlpack__; pass the tensor itself, "
            "not a capsule"
        )
    if ext_tensor.__dlpack_device__()[0] not in (1, 3, 13):  # CPU memory, plain, pinned, managed
        raise DeviceError("from_dlpack: the data is not in CPU memory; move it there first")
    if isinstance(ext_tensor, np.ndarray):
        return finish(checked_array(ext_tensor))
    try:
        array = np.from_dlpack(ext_tensor)
    except (BufferError, RuntimeError, TypeError) as error:
        if isinstance(error, AutogradError):
            raise
        raise DTypeError(
            f"from_dlpack: cannot take over this {type(ext_tensor).__name__}: {error}; for "
            "bfloat16, exchange it viewed as int16"
        ) from error
    if not array.flags.writeable:
        array = np.asarray(_Writable(array))
    return finish(checked_array(array))


@public(method=False)
def to_dlpack(tensor: Tensor) -> Any:
    """A DLPack capsule that shares the tensor's memory.

    Errors: AutogradError for a tensor that requires grad.
    Source: https://docs.pytorch.org/docs/stable/dlpack.html

    >>> type(ad.to_dlpack(ad.ones(2))).__name__
    'PyCapsule'
    """
    return tensor.__dlpack__()


# ---- storage -------------------------------------------------------------------------------------


def owner_of(array: Any) -> Any:
    """The array that owns the memory which `array` shows."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


class UntypedStorage:
    """The memory behind a tensor, which its views share.

    Source: https://docs.pytorch.org/docs/stable/storage.html

    >>> x = ad.zeros(4)
    >>> storage = x[2:].untyped_storage()
    >>> storage.nbytes(), storage.data_ptr() == x.data_ptr()
    (16, True)
    """

    __slots__ = ("_owner",)

    def __init__(self, tensor: Any) -> None:
        self._owner = owner_of(tensor._data)

    def data_ptr(self) -> int:
        """The address of the first byte."""
        return int(self._owner.ctypes.data)

    def nbytes(self) -> int:
        """The number of bytes."""
        return int(self._owner.nbytes)

    size = __len__ = nbytes

    @property
    def device(self) -> device:
        """Where the memory is."""
        return as_device("cpu")

    def tolist(self) -> list[int]:
        """The bytes as numbers."""
        return list(self._owner.tobytes("A"))

    def __getitem__(self, index: Any) -> Any:
        return self.tolist()[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UntypedStorage) and (
            (self.data_ptr(), self.nbytes()) == (other.data_ptr(), other.nbytes())
        )

    def __hash__(self) -> int:
        return hash((self.data_ptr(), self.nbytes()))

    def is_shared(self) -> bool:
        """Whether forked processes write to the same memory."""
        base = self._owner.base
        return isinstance(getattr(base, "obj", base), mmap.mmap)

    def __repr__(self) -> str:
        return f"[adjoint.UntypedStorage(device={self.device}) of size {self.nbytes()}]"


@public()
def untyped_storage(self: Tensor) -> UntypedStorage:
    """The memory behind this tensor.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.untyped_storage.html

    >>> ad.zeros(3).untyped_storage().nbytes()
    12
    """
    return UntypedStorage(self)


@public(method=False)
def is_storage(obj: Any) -> bool:
    """Whether `obj` is a storage.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.is_storage.html

    >>> ad.is_storage(ad.zeros(1).untyped_storage())
    True
    """
    return isinstance(obj, UntypedStorage)


@public()
def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Whether both show the same memory with the same shape and strides.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.is_set_to.html

    >>> x = ad.zeros(2)
    >>> x.is_set_to(x.detach())
    True
    """
    a, b = self._data, tensor._data
    return bool(
        a.ctypes.data == b.ctypes.data and a.shape == b.shape and a.strides == b.strides
    )


def _assert_replaceable(x: Any, name: str) -> None:
    """Refuse to give `x` other memory where autograd or views would lose track of it."""
    if x._node is not None:
        raise AutogradError(f"{name}: the tensor requires grad; detach() it first")
    if x._view is not None:
        raise AutogradError(f"{name}: the tensor is a view; clone() it first")
    version = x._version
    if version is not None and any(r() is not None for r in version.views or ()):
        raise AutogradError(f"{name}: the tensor has views, which would keep the old memory")


@public()
def resize_(self: Tensor, *sizes: Any, memory_format: Any = None) -> Tensor:
    """Change this tensor's shape in place; elements that still fit keep their values.

    Shapes: any; new elements are uninitialised.
    Errors: AutogradError for a tensor that requires grad or has views.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.resize_.html

    >>> ad.tensor([1, 2, 3, 4]).resize_(2, 2)
    tensor([[1, 2],
            [3, 4]])
    """
    shape = sizes_from(sizes, None, "resize_")
    assert_row_major(memory_format, "resize_")
    _assert_replaceable(self, "resize_")
    old = self._data.ravel(order="K")
    count = 1
    for size in shape:
        count *= size
    if count > old.size:
        memory = np.empty(count, old.dtype)
        memory[: old.size] = old
        old = memory
    self._data = old[:count].reshape(shape)
    _bump(self, "resize_")
    return self


@public()
def set_(self: Tensor, source: Any = None) -> Tensor:
    """Make this tensor show the memory of `source`, in place; without it, become empty.

    Errors: AutogradError for a tensor that requires grad or has views; DTypeError where the dtypes
    differ.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.set_.html

    >>> x, y = ad.zeros(1), ad.ones(2)
    >>> x.set_(y).data_ptr() == y.data_ptr()
    True
    """
    _assert_replaceable(self, "set_")
    if source is None:
        self._data = np.empty(0, self._data.dtype)
    else:
        if not isinstance(source, Handle):
            raise Unsupported("set_: needs a tensor as source; make one with frombuffer")
        if source.dtype is not self.dtype:
            raise DTypeError(f"set_: source has {source.dtype}, this tensor {self.dtype}")
        alias: Any = source.detach()  # type: ignore[attr-defined]
        self._data, self._version = alias._data, alias._version
    _bump(self, "set_")
    return self


def _bump(x: Any, name: str) -> None:
    if x._version is not None:
        x._version.bump(name)


@public()
def share_memory_(self: Tensor) -> Tensor:
    """Move this tensor to memory that processes forked from this one share.

    Errors: AutogradError for a view, or a tensor that has views.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.share_memory_.html

    >>> ad.ones(2).share_memory_().is_shared()
    True
    """
    if is_shared(self):
        return self
    version = self._version
    if self._view is not None or (
        version is not None and any(r() is not None for r in version.views or ())
    ):
        raise AutogradError("share_memory_: the tensor is or has a view; clone() it first")
    old = self._data
    memory = mmap.mmap(-1, max(old.nbytes, 1))
    shared = np.frombuffer(memory, np.uint8, old.nbytes).view(old.dtype).reshape(old.shape)
    shared[...] = old
    self._data = shared
    return self


@public()
def is_shared(self: Tensor) -> bool:
    """Whether forked processes write to the same memory.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.is_shared.html

    >>> ad.ones(2).is_shared()
    False
    """
    return UntypedStorage(self).is_shared()


@public()
def pin_memory(self: Tensor, device: Any = None) -> Tensor:
    """Page-locked memory speeds up copies to an accelerator; there is none here.

    Errors: DeviceError always.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.pin_memory.html

    >>> ad.ones(1).is_pinned()
    False
    """
    raise DeviceError(
        "pin_memory: there is no accelerator backend that pinned memory would serve; leave it out"
    )


@public()
def is_pinned(self: Tensor, device: Any = None) -> bool:
    """Whether the memory is page-locked.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.is_pinned.html

    >>> ad.ones(1).is_pinned()
    False
    """
    return False


# ---- questions -----------------------------------------------------------------------------------


@public(method=False)
def is_tensor(obj: Any) -> bool:
    """Whether `obj` is a tensor.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.is_tensor.html

    >>> ad.is_tensor(ad.ones(1)), ad.is_tensor(1)
    (True, False)
    """
    return isinstance(obj, Handle)


@public()
def is_nonzero(input: Tensor) -> bool:
    """Whether the only element is not zero.

    Errors: InvalidArgument for another number of elements.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.is_nonzero.html

    >>> ad.is_nonzero(ad.tensor([1.5]))
    True
    """
    return bool(input)


@public(method=False)
def numel(input: Tensor) -> int:
    """The number of elements.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.numel.html

    >>> ad.numel(ad.zeros(2, 3))
    6
    """
    return int(input._data.size)


@public(method=False)
def typename(obj: Any) -> str:
    """The name of the type of a tensor, or of any object.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.typename.html

    >>> ad.typename(ad.ones(1))
    'adjoint.FloatTensor'
    """
    if isinstance(obj, Handle):
        return str(type_(obj))
    kind = type(obj)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"{module}{kind.__qualname__}"


# ---- layouts -------------------------------------------------------------------------------------


class memory_format:  # noqa: N801 - PyTorch's name
    """How a tensor's dimensions lie in memory; tensors are made row-major here.

    Source: https://docs.pytorch.org/docs/stable/tensor_attributes.html#torch.memory_format

    >>> ad.preserve_format
    adjoint.preserve_format
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"adjoint.{self.name}"


contiguous_format = memory_format("contiguous_format")
preserve_format = memory_format("preserve_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")
strided = "strided"
