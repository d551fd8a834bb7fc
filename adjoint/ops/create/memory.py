"""Memory: storages, tensors that change their memory, that share it or pin it."""

from __future__ import annotations

import mmap
import operator
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import dtype as dt
from ...core.device import CPU, device, device_of, is_device_array
from ...core.device import is_pinned as array_is_pinned
from ...core.errors import AutogradError, DeviceError, InvalidArgument
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...runtime.node import INFERENCE
from ...runtime.public import FUNCTIONS, explaining, public
from ...runtime.tensors import fresh, wrap
from ...runtime.writes import exported
from .allocation import finish, pinned
from .conversion import to
from .exchange import from_dlpack, from_numpy, frombuffer, to_dlpack
from .values import array_from, target

if TYPE_CHECKING:
    from ...ops.argument_types import DeviceLike, DTypeLike

__all__ = [
    "TypedStorage", "UntypedStorage", "as_tensor", "asarray", "from_dlpack", "from_numpy",
    "frombuffer", "is_storage", "to_dlpack",
]  # fmt: skip


@explaining
@public(method=False)
def as_tensor(
    data: Any, dtype: DTypeLike | None = None, device: DeviceLike | None = None
) -> Tensor:
    """`data` as a tensor, sharing memory and keeping history where nothing has to change.

    Errors: those of `tensor`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.as_tensor.html

    >>> x = ad.ones(2)
    >>> ad.as_tensor(x) is x
    True
    """
    if isinstance(data, TensorBase):
        return to(data, device=device, dtype=dtype)  # type: ignore[no-any-return]
    result = finish(array_from(data, target(dtype), copy=False), device)
    return exported(result) if hasattr(data, "__array__") else result


@public(method=False)
@explaining
def asarray(
    obj: Any,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    copy: bool | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """`obj` (tensor, array, DLPack object, buffer, number or sequence) as a tensor.

    `copy` says whether memory must (True), may (None) or must not (False) be copied. With
    `requires_grad` False a tensor loses its history, with True it keeps the one that it has; a leaf
    itself is switched, as in PyTorch.

    Errors: InvalidArgument where a copy is needed and `copy` is False; those of `tensor`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.asarray.html

    >>> ad.asarray([1, 2])
    tensor([1, 2])
    """
    wanted = target(dtype)
    if isinstance(obj, TensorBase):
        if copy is False and wanted not in (None, obj.dtype):
            raise InvalidArgument(
                f"asarray: can't alias tensor of {obj.dtype} as {wanted} without a copy"
            )
        result: Tensor = to(obj, device=device, dtype=wanted, copy=bool(copy))
        if requires_grad is None or result.requires_grad == bool(requires_grad):
            return result
        return result.requires_grad_(requires_grad) if result.is_leaf else result.detach()
    if not hasattr(obj, "__array__") and hasattr(obj, "__dlpack__"):
        source = from_dlpack(obj)._data
    elif isinstance(obj, UntypedStorage):
        source = obj.bytes().view((wanted or dt.get_default_dtype()).numpy)
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
        return finish(array_from(obj, wanted, copy=True), device, bool(requires_grad))
    array = array_from(source, wanted, copy=bool(copy))
    if copy is False and array.dtype != source.dtype:
        raise InvalidArgument(f"asarray: can't alias {source.dtype} as {wanted} without a copy")
    result = finish(array, device, bool(requires_grad))
    return result if copy else exported(result)


# ---- storage -------------------------------------------------------------------------------------


def owner_of(array: Any) -> Any:
    """The array that owns the memory which `array` shows; NumPy's `as_strided` puts an object of
    its own between.
    """
    while True:
        base = array.base
        if not _is_array(base):
            base = getattr(base, "base", None)
        if not _is_array(base):
            return array
        array = base


def copied(
    source: TensorBase, data: Any, memo: dict[Any, Any], make: Callable[[TensorBase], Tensor]
) -> Tensor:
    """A tensor that `make` makes of a copy of `data`, that of `source`.

    Views of one memory, which share a version, become views of one copy of it, by `memo`: where a
    second one comes, the whole memory is copied, and the first one's copy moves there.
    """
    version = source._changes
    lone = type(data) is not np.ndarray or not data.size or version is None or version is INFERENCE
    owner = data if lone else owner_of(data)
    start = 0 if lone else data.ctypes.data - owner.ctypes.data
    dense = lone or owner.flags.c_contiguous or owner.flags.f_contiguous
    if lone or not dense or owner.dtype != data.dtype or not 0 <= start < owner.nbytes:
        return make(wrap(data.copy(order="K")))
    key = ("memory", id(owner), id(version))
    shape = (start // data.itemsize, data.shape, data.strides)
    if key not in memo:  # the originals are kept, so that their numbers stay theirs
        made = make(wrap(data.copy(order="K")))
        memo[key] = [made.detach(), (made, shape), None, owner, version]
        return made
    shared, (first, place), flat, *_ = memo[key]
    if flat is None:
        flat = memo[key][2] = owner.copy(order="K").ravel(order="K")
        first._data = _placed(flat, *place)
    seen = shared.detach()
    seen._data = _placed(flat, *shape)
    return make(seen)


def _placed(flat: Any, start: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    return np.lib.stride_tricks.as_strided(flat[start:], shape, strides)


def _is_array(x: Any) -> bool:
    return isinstance(x, np.ndarray) or is_device_array(x)


class UntypedStorage:
    """The memory behind a tensor, which its views share.

    Source: https://docs.pytorch.org/docs/stable/storage.html

    >>> x = ad.zeros(4)
    >>> storage = x[2:].untyped_storage()
    >>> storage.nbytes(), storage.data_ptr() == x.data_ptr()
    (16, True)
    """

    __slots__ = ("_owner", "_tensor")

    def __init__(self, tensor: Any) -> None:
        data = tensor._data
        if getattr(data, "kept", None) is not None:
            data.realize()  # refused: there are several
        self._owner = owner_of(data)
        base = tensor if tensor._view is None else tensor._view.base
        self._tensor = base.detach()  # one that shows the memory

    @classmethod
    def from_file(cls, filename: Any, shared: bool = False, nbytes: int = 0) -> Any:
        """The first bytes of a file as memory: `shared`, writes reach the file.

        Nothing is read before it is used.

        Errors: InvalidArgument for more bytes than the file has; those of opening it.
        Source: https://docs.pytorch.org/docs/stable/storage.html#torch.UntypedStorage.from_file

        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "bytes")
        >>> _ = path.write_bytes(bytes([1, 2, 3]))
        >>> ad.UntypedStorage.from_file(path, nbytes=2).tolist()
        [1, 2]
        """
        count, there = operator.index(nbytes), os.path.getsize(filename)
        if not 0 <= count <= there:
            raise InvalidArgument(
                f"UntypedStorage.from_file: {nbytes} bytes of {filename}, which has {there}"
            )
        if not count:
            return cls._of(np.empty(0, np.uint8))
        with open(filename, "r+b" if shared else "rb") as file:
            access = mmap.ACCESS_WRITE if shared else mmap.ACCESS_COPY
            return cls._of(np.frombuffer(mmap.mmap(file.fileno(), count, access=access), np.uint8))

    @classmethod
    def _of(cls, array: Any) -> Any:
        """The storage of a NumPy array's bytes, also where they are a part of another's."""
        found = cls.__new__(cls)
        found._owner, found._tensor = array, fresh(array)
        return found

    def bytes(self) -> Any:
        """Array of all bytes, which shows the memory.

        Errors: DeviceError where it is not the host's.
        """
        if is_device_array(self._owner):
            raise DeviceError(f"storage: its bytes are on {self.device}; use those of x.cpu()")
        return self._owner.ravel("K").view(np.uint8)

    def shown(self) -> Any:
        """Array of all elements, in one row."""
        return self._tensor.as_strided((self._owner.size,), (1,), 0)

    def shown_as(self, dtype: dt.dtype) -> Any:
        """Array of all elements; where bytes are counted, of as many of `dtype` as are whole."""
        row = self.shown()
        if type(self) is not UntypedStorage or row.dtype is dtype:
            return row
        row = row.view(dt.uint8)
        return row[: len(row) // dtype.itemsize * dtype.itemsize].view(dtype)

    def fill_(self, value: Any) -> UntypedStorage:
        """Write one number into all bytes."""
        self.shown().view(dt.uint8).fill_(value)
        return self

    def copy_(self, source: UntypedStorage) -> UntypedStorage:
        """Write the bytes of `source` over these.

        Errors: InvalidArgument for another number of bytes.
        """
        if source.nbytes() != self.nbytes():
            raise InvalidArgument(
                f"storage: copy_ of {source.nbytes()} bytes into {self.nbytes()}; both must have "
                "as many"
            )
        self.shown().view(dt.uint8).copy_(source.shown().view(dt.uint8))
        return self

    def untyped(self) -> Any:
        """A storage of the memory, counted in bytes."""
        if type(self) is UntypedStorage:
            return self
        found = UntypedStorage.__new__(UntypedStorage)
        found._owner, found._tensor = self._owner, self._tensor
        return found

    def data_ptr(self) -> int:
        """The address of the first byte."""
        return int(self._owner.ctypes.data)

    def nbytes(self) -> int:
        """The number of bytes."""
        return int(self._owner.nbytes)

    def size(self) -> int:
        """The number of bytes."""
        return self.nbytes()

    def __len__(self) -> int:
        return self.size()

    @property
    def device(self) -> device:
        """Device of the memory."""
        return device_of(self._owner)

    def tolist(self) -> list[int]:
        """The bytes as numbers."""
        return list(self._owner.tobytes("A"))

    def __getitem__(self, place: Any) -> Any:
        """A byte, or the storage that is a part of the memory; of a typed one, elements."""
        if type(self) is UntypedStorage and isinstance(place, slice):
            part = self.bytes()[place]
            if part.size and not part.flags.c_contiguous:
                raise InvalidArgument(
                    f"storage: a part of it has step 1, not {place.step}; take bytes of "
                    "x.view(torch.uint8)"
                )
            # NumPy would pass on the array that `part` is of, and with it all of its memory
            found = self._of(np.frombuffer(memoryview(part), np.uint8))
            found._tensor._changes = self.shown().view(dt.uint8)[place]._changes  # of one memory
            return found
        return self.tolist()[place]

    def __setitem__(self, place: Any, value: Any) -> None:
        """Write bytes; of a typed storage, elements."""
        row = self.shown()
        (row.view(dt.uint8) if type(self) is UntypedStorage else row)[place] = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UntypedStorage) and (
            (self.data_ptr(), self.nbytes()) == (other.data_ptr(), other.nbytes())
        )

    def __hash__(self) -> int:
        return hash((self.data_ptr(), self.nbytes()))

    def is_shared(self) -> bool:
        """Whether other processes may write to the same memory."""
        if is_device_array(self._owner):
            return bool(self._owner.is_shared())
        from .sharing import memory_of

        return memory_of(self._owner) is not None

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


class TypedStorage(UntypedStorage):
    """The memory behind a tensor, counted in elements; `untyped_storage` is preferred.

    Source: https://docs.pytorch.org/docs/stable/storage.html

    >>> ad.zeros(4).storage().size()
    4
    """

    __slots__ = ()

    @property
    def dtype(self) -> dt.dtype:
        """The dtype of the elements."""
        return dt.from_numpy_dtype(self._owner.dtype)

    def size(self) -> int:
        """The number of elements."""
        return int(self._owner.size)

    def fill_(self, value: Any) -> TypedStorage:
        """Write one number into all elements."""
        self.shown().fill_(value)
        return self

    def clone(self) -> TypedStorage:
        """A copy in memory of its own."""
        return TypedStorage(self.shown().clone())

    def tolist(self) -> list[Any]:
        """The elements in memory order."""
        return list(self._owner.ravel("K").tolist())


@public()
def storage(self: Tensor) -> TypedStorage:
    """The memory behind this tensor, counted in elements.

    Source: https://docs.pytorch.org/docs/stable/storage.html

    >>> ad.zeros(2, 3)[1].storage().size()
    6
    """
    return TypedStorage(self)


@public(method=False)
def is_storage(obj: Any) -> bool:
    """Whether `obj` is a storage.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.is_storage.html

    >>> ad.is_storage(ad.zeros(1).untyped_storage())
    True
    """
    return isinstance(obj, UntypedStorage)


@public()
@explaining
def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Whether both show the same memory with the same shape and strides.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.is_set_to.html

    >>> x = ad.zeros(2)
    >>> x.is_set_to(x.detach())
    True
    """
    a, b = self._data, tensor._data
    return bool(a.ctypes.data == b.ctypes.data and a.shape == b.shape and a.strides == b.strides)


@public()
def share_memory_(self: Tensor) -> Tensor:
    """Move this tensor to memory that processes share, those forked from this one and those that
    `multiprocessing` starts or sends it to; on CUDA it stays as it is.

    Errors: AutogradError for a view, or a tensor that has views.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.share_memory_.html

    >>> ad.ones(2).share_memory_().is_shared()
    True
    """
    if is_shared(self):
        return self
    if is_device_array(self._data):
        self._data.share()
        return self
    version = self._changes
    if self._view is not None or (
        version is not None and any(r() is not None for r in version.views or ())
    ):
        raise AutogradError("share_memory_: the tensor is or has a view; clone() it first")
    old = self._data
    from .sharing import shared_memory

    memory = shared_memory(old.nbytes, type(self))
    shared = np.frombuffer(memory, np.uint8, old.nbytes).view(old.dtype).reshape(old.shape)
    shared[...] = old
    self._data = shared
    return self


@public()
def is_shared(self: Tensor) -> bool:
    """Whether other processes may write to the same memory.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.is_shared.html

    >>> ad.ones(2).is_shared()
    False
    """
    return UntypedStorage(self).is_shared()


@public(plain=True)
def pin_memory(self: Tensor, device: DeviceLike | None = None) -> Tensor:
    """A copy in page-locked memory, from which CUDA copies while the program goes on; itself where
    it is there already.

    Errors: DeviceError without a CUDA device, or for a tensor that is not in the host's memory.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.pin_memory.html

    >>> ad.ones(1).is_pinned()
    False
    """
    data = self._data
    if pinned_already(data):
        return self
    return finish(pinned(FUNCTIONS["clone"](self)._data), CPU)


@public(plain=True)
def is_pinned(self: Tensor, device: DeviceLike | None = None) -> bool:
    """Whether the memory is page-locked.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.is_pinned.html

    >>> ad.ones(1).is_pinned()
    False
    """
    return pinned_already(self._data)


def pinned_already(data: Any) -> bool:
    """Whether an array of the host is in page-locked memory."""
    return type(data) is np.ndarray and array_is_pinned(data)
