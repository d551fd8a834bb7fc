"""Pickles of plain data and tensors, as PyTorch writes them: protocol 2, storages outside.

Every opcode written here is one that `torch.load(weights_only=True)` reads. What is no plain data
goes to `written_objects.py`.
"""

from __future__ import annotations

import contextlib
import pickle
import struct
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from ..core.device import device, host_array
from ..core.dtype import dtype
from ..core.errors import CheckpointError, DTypeError, InvalidType
from ..core.spec import Size
from ..nn.parameter import Buffer, Parameter, UninitializedParameter
from ..nn.state import StateDict
from ..ops.create.conversion import layout, sparse_coo, sparse_parts, strided
from ..runtime.lazy import concrete
from ..tensor import Tensor
from .checkpoint import all_memory, memory_of
from .pytorch_names import STORAGE_NAMES
from .restricted_pickle import MAX_DEPTH, assert_key
from .written_objects import write_object


class _Place:
    """Place to which the numbers of a tensor go, once all tensors of its storage are known."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.written = b""


class PickleWriter:
    """Writes one value; `arrays` are then the storages that it refers to by number.

    Tensors that share memory share a storage, which spans what they show of it.
    """

    def __init__(self) -> None:
        self.arrays: list[Any] = []
        self._parts: list[Any] = []  # bytes, and a _Place for each tensor
        self._memories: dict[int, Any] = {}  # of devices, in the host's memory
        self._memo: dict[int, tuple[int, Any]] = {}  # number and object, which keeps its id
        self._open: set[int] = set()  # containers being written, below the innermost object
        self._tuples: set[int] = set()  # tuples being written
        self._depth = 0  # containers and objects being written
        self._path: list[str] = []

    def dump(self, value: Any) -> bytes:
        """The pickle of `value`.

        Errors: InvalidType for what cannot be stored, with its path; DTypeError for tensors that
        share memory under different dtypes.
        """
        self._emit(pickle.PROTO + b"\x02")
        try:
            self._write(value)
        except RecursionError:
            path = self._where()
            raise InvalidType(f"save: the value nests too deeply, at {path:.200}...") from None
        self._emit(pickle.STOP)
        self._place([part for part in self._parts if isinstance(part, _Place)])
        return b"".join(p.written if isinstance(p, _Place) else p for p in self._parts)

    # ---- values ----------------------------------------------------------------------------------

    def _emit(self, code: bytes) -> None:
        self._parts.append(code)

    def _remember(self, value: Any) -> None:
        number = len(self._memo)
        self._memo[id(value)] = (number, value)
        self._emit(pickle.LONG_BINPUT + struct.pack("<I", number))

    def _write(self, value: Any) -> None:
        if id(value) in self._open:
            raise InvalidType(f"save: the container at {self._where()} contains itself")
        known = self._memo.get(id(value))
        if known is not None:
            self._emit(pickle.LONG_BINGET + struct.pack("<I", known[0]))
            return
        if isinstance(value, np.generic) and value.dtype.kind in "biufc":
            value = value.item()  # PyTorch reads no numbers of NumPy's
        if isinstance(value, Tensor):
            self._write_tensor(value)
        else:
            write: Callable[[PickleWriter, Any], None]
            write = _WRITERS.get(type(value), write_object)
            write(self, value)

    def _array_refusal(self, value: Any) -> str:
        return (
            f"save: cannot store the array at {self._where()}; arrays of numbers, of less than "
            "2 GiB, can be stored: use adjoint.tensor(value), or a list"
        )

    def _where(self) -> str:
        return repr(".".join(self._path) or "the top")

    def _deeper(self) -> None:
        if self._depth >= MAX_DEPTH:
            raise InvalidType(
                f"save: more than {MAX_DEPTH} containers inside one another at {self._where()}"
            )
        self._depth += 1

    @contextlib.contextmanager
    def _within(self, value: Any) -> Iterator[None]:
        """While an object is written, which may hold the containers that it is in."""
        self._deeper()
        outside, self._open = self._open, set()
        yield
        self._open = outside
        self._depth -= 1

    def _parts_of(self, value: Any, items: Iterable[tuple[Any, Iterable[Any]]]) -> None:
        """The parts of container `value`: for each name, the values to write."""
        self._deeper()
        self._open.add(id(value))
        for name, parts in items:
            self._path.append(f"{name}")
            for part in parts:
                self._write(part)
            self._path.pop()
        self._open.discard(id(value))
        self._depth -= 1

    def _write_called(self, name: str, value: Any) -> None:
        """A part whose place in the object is called `name`."""
        self._path.append(name)
        self._write(value)
        self._path.pop()

    def _none(self, value: None) -> None:
        self._emit(pickle.NONE)

    def _bool(self, value: bool) -> None:
        self._emit(pickle.NEWTRUE if value else pickle.NEWFALSE)

    def _int(self, value: int) -> None:
        if -(2**31) <= value < 2**31:
            self._emit(pickle.BININT + struct.pack("<i", value))
            return
        raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
        if len(raw) > 255:
            raise InvalidType(f"save: the integer at {self._where()} has more than 255 bytes")
        self._emit(pickle.LONG1 + bytes([len(raw)]) + raw)

    def _float(self, value: float) -> None:
        self._emit(pickle.BINFLOAT + struct.pack(">d", value))

    def _str(self, value: str) -> None:
        raw = value.encode("utf-8", "surrogatepass")
        self._emit(pickle.BINUNICODE + struct.pack("<I", len(raw)) + raw)
        self._remember(value)

    def _complex(self, value: complex) -> None:
        self._call("__builtin__", "complex", lambda: self._tuple_of(value.real, value.imag))

    def _bytes(self, value: bytes) -> None:
        text = value.decode("latin1")
        self._call("_codecs", "encode", lambda: self._tuple_of(text, "latin1"))

    def _dtype(self, value: dtype) -> None:
        self._name("torch", value.name)

    def _device(self, value: device) -> None:
        where = (value.type,) if value.index is None else (value.type, value.index)
        self._call("torch", "device", lambda: self._tuple_of(*where))

    def _array(self, value: np.ndarray[Any, Any]) -> None:
        """An array of NumPy's, as NumPy itself writes it; whoever reads it needs NumPy."""
        array = np.ascontiguousarray(value)
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        if array.dtype.kind not in "biufc" or array.dtype.itemsize > 16 or array.nbytes >= 2**31:
            raise InvalidType(self._array_refusal(value))
        self._name("numpy._core.multiarray", "_reconstruct")
        self._emit(pickle.MARK)
        self._name("numpy", "ndarray")
        self._write((0,))
        self._bytes(b"b")
        self._emit(pickle.TUPLE + pickle.REDUCE)
        self._remember(value)
        self._emit(pickle.MARK)
        self._int(1)  # of the form
        self._write(value.shape)
        self._call("numpy", "dtype", lambda: self._tuple_of(array.dtype.str[1:], False, True))
        order = "<" if array.dtype.itemsize > 1 else "|"
        self._tuple_of(3, order, None, None, None, -1, -1, 0)
        self._emit(pickle.BUILD)
        self._bool(False)  # row by row
        self._bytes(array.tobytes())
        self._emit(pickle.TUPLE + pickle.BUILD)

    # ---- containers ------------------------------------------------------------------------------

    def _tuple(self, value: tuple[Any, ...]) -> None:
        if not value:
            self._emit(pickle.EMPTY_TUPLE)
            return
        if id(value) in self._tuples:
            raise InvalidType(f"save: the tuple at {self._where()} contains itself; use a list")
        self._tuples.add(id(value))
        self._emit(pickle.MARK)
        self._parts_of(value, ((i, (part,)) for i, part in enumerate(value)))
        self._emit(pickle.TUPLE)
        self._tuples.discard(id(value))
        self._remember(value)

    def _tuple_of(self, *parts: Any) -> None:
        self._emit(pickle.MARK)
        for part in parts:
            self._write(part)
        self._emit(pickle.TUPLE)

    def _layout(self, value: layout) -> None:
        name = f"torch.{value.name}"
        self._call("torch.serialization", "_get_layout", lambda: self._tuple_of(name))

    def _size(self, value: Size) -> None:
        self._call("torch", "Size", lambda: self._tuple_of(tuple(value)))

    def _list(self, value: list[Any]) -> None:
        self._emit(pickle.EMPTY_LIST)
        self._remember(value)
        self._emit(pickle.MARK)
        self._parts_of(value, ((i, (part,)) for i, part in enumerate(value)))
        self._emit(pickle.APPENDS)

    def _check_keys(self, keys: Iterable[Any]) -> None:
        """Refuse keys that no reader takes from a file that may be hostile."""
        try:
            for key in keys:
                assert_key(key)
        except CheckpointError as error:
            message = str(error).replace("the pickle holds", f"save: {self._where()} holds")
            raise InvalidType(f"{message}; use text or numbers") from None

    def _set(self, value: set[Any]) -> None:
        self._check_keys(value)
        self._call("__builtin__", "set", lambda: self._tuple_of(sorted(value, key=repr)))

    def _dict(self, value: dict[Any, Any]) -> None:
        self._emit(pickle.EMPTY_DICT)
        self._items(value)

    def _ordered_dict(self, value: OrderedDict[Any, Any]) -> None:
        self._call("collections", "OrderedDict", lambda: self._emit(pickle.EMPTY_TUPLE))
        self._items(value)
        if value.__dict__:  # the _metadata of a state dict
            self._write(dict(value.__dict__))
            self._emit(pickle.BUILD)

    def _items(self, value: dict[Any, Any]) -> None:
        self._check_keys(value)
        self._remember(value)
        self._emit(pickle.MARK)
        self._parts_of(value, ((key, (key, part)) for key, part in value.items()))
        self._emit(pickle.SETITEMS)

    # ---- names -----------------------------------------------------------------------------------

    def _name(self, module: str, name: str) -> None:
        self._emit(pickle.GLOBAL + f"{module}\n{name}\n".encode())

    def _call(self, module: str, name: str, arguments: Callable[[], None]) -> None:
        self._name(module, name)
        arguments()
        self._emit(pickle.REDUCE)

    # ---- tensors ---------------------------------------------------------------------------------

    def _write_tensor(self, tensor: Any) -> None:
        kind = type(tensor)
        attributes = dict(tensor.__dict__)  # what the user has set
        if kind is Buffer:  # a tensor to PyTorch: the module says what it is
            kind, _ = Tensor, attributes.pop("persistent", None)
        if kind is Parameter and not attributes:
            self._write_parameter(tensor, "_rebuild_parameter")
        elif kind is Parameter:
            self._write_parameter(tensor, "_rebuild_parameter_with_state", attributes)
        elif kind is Tensor and not attributes:
            self._write_plain(tensor, tensor.requires_grad and tensor.is_leaf)
        else:
            self._write_typed(tensor, kind, attributes)
        self._remember(tensor)

    def _write_parameter(
        self, tensor: Any, function: str, attributes: dict[str, Any] | None = None
    ) -> None:
        self._name("torch._utils", function)
        self._emit(pickle.MARK)
        self._write_plain(tensor, False)
        self._bool(tensor.requires_grad)
        self._hooks()
        if attributes is not None:
            self._attributes(attributes)
        self._emit(pickle.TUPLE + pickle.REDUCE)

    def _write_typed(self, tensor: Any, kind: type, attributes: dict[str, Any]) -> None:
        """A tensor of a class of the user's, or one with attributes."""
        if tensor.layout is not strided or issubclass(kind, UninitializedParameter):
            raise InvalidType(
                f"save: cannot store the {kind.__name__} at {self._where()} with its class and "
                "attributes; call the module once if it is lazy, else store a plain tensor"
            )
        self._name("torch._tensor", "_rebuild_from_type_v2")
        self._emit(pickle.MARK)
        self._name("torch._utils", "_rebuild_tensor_v2")
        if kind is Tensor:
            self._name("torch", "Tensor")
        else:
            self._write(kind)
        self._emit(pickle.MARK)
        self._shown(tensor, tensor.requires_grad and tensor.is_leaf)
        self._emit(pickle.TUPLE)
        self._attributes(attributes)
        self._emit(pickle.TUPLE + pickle.REDUCE)

    def _attributes(self, attributes: dict[str, Any]) -> None:
        self._emit(pickle.EMPTY_DICT + pickle.MARK)
        for name, value in attributes.items():
            self._write(name)
            self._write_called(name, value)
        self._emit(pickle.SETITEMS)

    def _write_plain(self, tensor: Any, requires_grad: bool) -> None:
        if tensor.layout is not strided:
            self._write_sparse(tensor)
            return
        self._name("torch._utils", "_rebuild_tensor_v2")
        self._emit(pickle.MARK)
        self._shown(tensor, requires_grad)
        self._emit(pickle.TUPLE + pickle.REDUCE)

    def _shown(self, tensor: Any, requires_grad: bool) -> None:
        """Writes a tensor's place in its storage, whether it requires gradients, and its hooks."""
        self._parts.append(_Place(_array(tensor, self._memories)))
        self._bool(requires_grad)
        self._hooks()

    def _write_sparse(self, tensor: Any) -> None:
        kept, (*tensors, size), is_coalesced = sparse_parts(tensor)
        self._name("torch._utils", "_rebuild_sparse_tensor")
        self._emit(pickle.MARK)
        self._layout(kept)
        self._emit(pickle.MARK)
        for part in tensors:
            self._write_plain(part, False)
        self._size(size)
        if kept is sparse_coo:
            self._bool(is_coalesced)
        self._emit(pickle.TUPLE + pickle.TUPLE + pickle.REDUCE)

    def _hooks(self) -> None:
        self._call("collections", "OrderedDict", lambda: self._emit(pickle.EMPTY_TUPLE))

    def _place(self, places: list[_Place]) -> None:
        """Choose the storages, and write what each tensor shows of its own."""
        groups: dict[int, list[_Place]] = {}
        for place in places:
            owner = memory_of(place.array) if place.array.size else id(place)
            groups.setdefault(owner, []).append(place)
        for members in groups.values():
            storage, start = _span([place.array for place in members])
            number = len(self.arrays)
            self.arrays.append(storage)
            for place in members:
                place.written = _numbers(place.array, storage, number, start)


def _array(tensor: Any, memories: dict[int, Any]) -> Any:
    """A tensor's NumPy array, with strides that PyTorch has too."""
    array = host_array(concrete(tensor), memories)
    return array if all(s >= 0 for s in array.strides) else array.copy()


def _span(arrays: list[Any]) -> tuple[Any, int]:
    """One array over all the memory that `arrays`, views of one storage, show; its address."""
    if not arrays[0].size:
        return np.empty(0, arrays[0].dtype), 0
    names = sorted({a.dtype.name for a in arrays})
    if len(names) > 1:
        raise DTypeError(
            f"save: tensors share memory under different dtypes ({', '.join(names)}); clone() one "
            "of them"
        )
    return all_memory(arrays)


def _numbers(array: Any, storage: Any, number: int, start: int) -> bytes:
    """The storage's persistent id, then offset, size and stride."""
    item = array.dtype.itemsize
    offset = (array.__array_interface__["data"][0] - start) // item if array.size else 0
    strides = tuple(s // item for s in array.strides)
    inner = _Plain()
    inner._emit(pickle.MARK)
    inner._write("storage")
    inner._name("torch", STORAGE_NAMES[array.dtype.name])
    for part in (str(number), "cpu", storage.size):
        inner._write(part)
    inner._emit(pickle.TUPLE + pickle.BINPERSID)
    for part in (offset, tuple(array.shape), strides):
        inner._write(part)
    return b"".join(inner._parts)


class _Plain(PickleWriter):
    """A writer of parts that belong into another pickle, whose memo it leaves alone."""

    def _remember(self, value: Any) -> None:
        self._memo.clear()


_WRITERS: dict[type, Callable[[PickleWriter, Any], None]] = {
    type(None): PickleWriter._none,
    bool: PickleWriter._bool,
    int: PickleWriter._int,
    float: PickleWriter._float,
    complex: PickleWriter._complex,
    str: PickleWriter._str,
    bytes: PickleWriter._bytes,
    np.ndarray: PickleWriter._array,
    dtype: PickleWriter._dtype,
    device: PickleWriter._device,
    layout: PickleWriter._layout,
    tuple: PickleWriter._tuple,
    Size: PickleWriter._size,
    list: PickleWriter._list,
    set: PickleWriter._set,
    dict: PickleWriter._dict,
    OrderedDict: PickleWriter._ordered_dict,
    StateDict: PickleWriter._ordered_dict,
}
