"""Memory: storages, tensors that change their memory, that share it or pin it."""

from __future__ import annotations

import mmap
import operator
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.argument_errors import assert_tensor
from ...core.device import CPU, device, device_of, is_device_array
from ...core.device import is_pinned as array_is_pinned
from ...core.errors import AutogradError, DeviceError, DTypeError, InvalidArgument, Unsupported
from ...core.spec import prod
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...runtime.lazy import LazyValue
from ...runtime.node import INFERENCE
from ...runtime.public import FUNCTIONS, explaining, public
from ...runtime.tensors import fresh, wrap
from ...runtime.writes import exported
from .allocation import assert_row_major, finish, names_on, pinned, sizes_from
from .conversion import to
from .exchange import from_dlpack, from_numpy, frombuffer, to_dlpack
from .values import array_from, target

__all__ = [
    "TypedStorage", "UntypedStorage", "as_tensor", "asarray", "from_dlpack", "from_numpy",
    "frombuffer", "is_storage", "to_dlpack",
]  # fmt: skip


@explaining
@public(method=False)
def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
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
    dtype: Any = None,
    device: Any = None,
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
            return self._of(self.bytes()[place])
        return self.tolist()[place]

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


def _assert_plain(x: Any, name: str) -> None:
    """Refuse other memory for what has a tangent, or is inside a function transform."""
    if isinstance(x._data, LazyValue) and x._data.rises:
        raise Unsupported(
            f"{name}: cannot resize variables that have a forward grad, or are inside a function "
            "transform; make another tensor"
        )


def _assert_replaceable(x: Any, name: str) -> None:
    """Refuse to give `x` other memory where autograd or views would lose track of it."""
    _assert_plain(x, name)
    if x._node is not None:
        raise AutogradError(f"{name}: the tensor requires grad; detach() it first")
    if x._view is not None:
        raise AutogradError(f"{name}: the tensor is a view; clone() it first")
    version = x._changes
    if version is not None and any(r() is not None for r in version.views or ()):
        raise AutogradError(f"{name}: the tensor has views, which would keep the old memory")


@public()
def resize_(self: Tensor, *sizes: Any, memory_format: Any = None) -> Tensor:
    """Change this tensor's shape in place; elements that still fit keep their values. A view shows
    that much of the memory that it is a part of, from where it begins.

    Shapes: any; new elements are uninitialised.
    Errors: AutogradError for a tensor that requires grad or has views; Unsupported for a view where
    there is not so much memory.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.resize_.html

    >>> ad.tensor([1, 2, 3, 4]).resize_(2, 2)
    tensor([[1, 2],
            [3, 4]])
    """
    shape = sizes_from(sizes, None, "resize_")
    assert_row_major(memory_format, "resize_")
    if self._view is not None and self._node is None:
        _assert_plain(self, "resize_")
        return _resize_view(self, shape)
    _assert_replaceable(self, "resize_")
    old = np.ravel(self._data, "K")
    count = 1
    for size in shape:
        count *= size
    if count > old.size:
        memory = names_on(self.device).empty(count, old.dtype)
        memory[: old.size] = old
        old = memory
    self._data = old[:count].reshape(shape)
    _bump(self, "resize_")
    return self


def _resize_view(x: Any, shape: tuple[int, ...]) -> Any:
    """Points a view to another part of the memory, from where it begins."""
    if shape == tuple(x.shape):
        return x
    base, start, count = x._view.base, x._storage_offset(), prod(shape)
    memory = UntypedStorage(base)._owner.size
    if base._node is not None:
        raise AutogradError("resize_: the tensor is a view of one that requires grad; detach() it")
    if start + count > memory:
        raise Unsupported(
            f"resize_: a view of shape {shape} from element {start} on needs {start + count} "
            f"elements, and the memory has {memory}, which other tensors show; clone() it first"
        )
    steps = [prod(shape[i + 1 :]) for i in range(len(shape))]
    part = base.as_strided(shape, steps, start)
    x._data, x._view, x._changes = part._data, part._view, part._changes
    return x


@public()
@explaining
def resize_as_(self: Tensor, other: Tensor, memory_format: Any = None) -> Tensor:
    """Change this tensor's shape in place to that of `other`.

    Errors: those of `resize_`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.resize_as_.html

    >>> ad.tensor([1, 2, 3, 4]).resize_as_(ad.zeros(2, 2))
    tensor([[1, 2],
            [3, 4]])
    """
    return resize_(self, tuple(other.shape), memory_format=memory_format)  # type: ignore[no-any-return]


@public()
def set_(
    self: Tensor, source: Any = None, storage_offset: int = 0, size: Any = None, stride: Any = None
) -> Tensor:
    """Make this tensor show the memory of `source`, in place; without it, become empty. With
    `size`, and `stride` (row-major unless given), it shows that part, from `storage_offset` on.

    Shapes: `source` is a tensor of this dtype, or the storage of one.
    Errors: AutogradError for a tensor that requires grad or has views; DTypeError where the dtypes
    differ.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.set_.html

    >>> x, y = ad.zeros(1), ad.ones(2)
    >>> x.set_(y).data_ptr() == y.data_ptr()
    True
    >>> x.set_(ad.arange(6.0), 1, (2, 2), (2, 1))
    tensor([[1., 2.],
            [3., 4.]])
    """
    _assert_replaceable(self, "set_")
    if source is None:
        self._data = names_on(self.device).empty(0, self._data.dtype)
    else:
        if isinstance(source, UntypedStorage):
            source = source.shown()
        assert_tensor("set_", source, "source")
        if source.dtype is not self.dtype:
            raise DTypeError(f"set_: source has {source.dtype}, this tensor {self.dtype}")
        alias: Any = source.detach()  # type: ignore[attr-defined]
        if size is not None:
            size = (size,) if isinstance(size, int) else tuple(size)
            steps = [prod(size[i + 1 :]) for i in range(len(size))] if stride is None else stride
            alias = alias.as_strided(size, steps, storage_offset)
        elif storage_offset or stride is not None:
            raise InvalidArgument("set_: storage_offset and stride go with a size; give it, too")
        self._data, self._changes = alias._data, alias._changes
    _bump(self, "set_")
    return self


def _bump(x: Any, name: str) -> None:
    if x._changes is not None:
        x._changes.bump(name)


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


@public()
def pin_memory(self: Tensor, device: Any = None) -> Tensor:
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


@public()
def is_pinned(self: Tensor, device: Any = None) -> bool:
    """Whether the memory is page-locked.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.is_pinned.html

    >>> ad.ones(1).is_pinned()
    False
    """
    return pinned_already(self._data)


def pinned_already(data: Any) -> bool:
    """Whether an array of the host is in page-locked memory."""
    return type(data) is np.ndarray and array_is_pinned(data)
