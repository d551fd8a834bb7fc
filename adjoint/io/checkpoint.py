"""`save` and `load`: one safetensors file whose metadata holds the structure around the tensors.

The file's tensors are readable by any safetensors reader, under their paths ("model.fc.weight").
Its metadata holds `adjoint_version`, `adjoint`: JSON of the structure (see structure.py), and
`adjoint_crc32`, that text's checksum. In it a tensor is an object with the fields

- `data`: the stored array's name, and `crc32`, a checksum of its dtype, shape and bytes;
- `id`: tensors with equal ids are one object;
- `kind`: "tensor", "parameter" or "buffer"; `requires_grad`; `persistent` for buffers;
- `device`: where it was, unless in the host's memory;
- `dtype`: where it is not the stored array's: complex numbers are stored as pairs of floats;
- `view`: [offset, shape, strides] in elements, where several tensors share one storage.

Files are read by the safetensors library, imported on first use: it would be a tenth of the import
time. They are written here, because the library would first copy every tensor.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from typing import Any

import numpy as np

from ..core.device import CPU, host_array
from ..core.dtype import BY_NAME, from_numpy_dtype
from ..core.errors import (
    CheckpointError,
    DeviceError,
    DTypeError,
    InvalidArgument,
    InvalidType,
    Unsupported,
)
from ..nn.parameter import Buffer, Parameter
from ..ops.create.exchange import from_numpy
from ..runtime.lazy import concrete
from ..runtime.public import naming
from .atomic import writing
from .placement import Placement, place
from .structure import decode, encode

VERSION = 1
MAX_HEADER = 100_000_000  # bytes of JSON; safetensors reads no larger one


# ---- writing -------------------------------------------------------------------------------------


class _CheckpointWriter:
    """Collects the arrays of a checkpoint; views of one storage are stored as that storage."""

    def __init__(self) -> None:
        self.arrays: dict[str, Any] = {}  # by name, contiguous, with shapes and dtypes as stored
        self.entries: dict[int, dict[str, Any]] = {}  # by id of the tensor
        self.tensors: list[tuple[Any, str]] = []  # in order of appearance; keeps ids alive
        self.hosts: dict[int, Any] = {}  # by id of the tensor: its array in the host's memory
        self.memories: dict[int, Any] = {}  # of devices, in the host's memory

    def see(self, tensor: Any, path: str) -> dict[str, Any]:
        """The JSON entry of `tensor`; the data fields are filled in by `finish`."""
        entry = self.entries.get(id(tensor))
        if entry is None:
            entry = {"id": len(self.entries), "kind": _kind_of(tensor)}
            if tensor.requires_grad:
                entry["requires_grad"] = True
            if tensor.device is not CPU:
                entry["device"] = str(tensor.device)
            if entry["kind"] == "buffer" and not tensor.persistent:
                entry["persistent"] = False
            self.entries[id(tensor)] = entry
            self.tensors.append((tensor, path or "tensor"))
        return entry

    def finish(self) -> None:
        """Chooses the name under which each array is stored."""
        groups: dict[int, list[tuple[Any, str]]] = {}
        self.hosts = {
            id(tensor): host_array(concrete(tensor), self.memories) for tensor, _ in self.tensors
        }
        for tensor, path in self.tensors:
            groups.setdefault(memory_of(self.hosts[id(tensor)]), []).append((tensor, path))
        for members in groups.values():
            if len(members) == 1:
                tensor, path = members[0]
                self._store(self.entries[id(tensor)], path, self.hosts[id(tensor)])
            else:
                self._store_shared(members)

    def _store(self, entry: dict[str, Any], path: str, array: Any) -> None:
        name = path.encode(errors="replace").decode()  # half a surrogate pair is no UTF-8
        while name in self.arrays or name == "__metadata__":
            name += "_"
        entry["data"] = name
        data = np.ascontiguousarray(array).reshape(array.shape)
        if data.dtype.kind == "c":
            entry["dtype"] = data.dtype.name
            pairs = data.reshape(-1).view(f"f{data.dtype.itemsize // 2}")
            data = pairs.reshape(*array.shape, 2)
        self.arrays[name] = data
        entry["crc32"] = _checksum(data)

    def _store_shared(self, members: list[tuple[Any, str]]) -> None:
        arrays = [self.hosts[id(tensor)] for tensor, _ in members]
        if len({a.dtype for a in arrays}) != 1:
            raise DTypeError(
                f"save: {members[0][1]!r} and {members[1][1]!r} share memory under different "
                "dtypes; clone() one of them"
            )
        storage, start = all_memory(arrays)
        stored: dict[str, Any] = {}
        self._store(stored, members[0][1], storage)
        for (tensor, _), array in zip(members, arrays, strict=True):
            entry = self.entries[id(tensor)]
            offset = (array.__array_interface__["data"][0] - start) // array.itemsize
            strides = [s // array.itemsize for s in array.strides]
            entry.update(stored, view=[offset, list(array.shape), strides])


def _kind_of(tensor: Any) -> str:
    if isinstance(tensor, Parameter):
        return "parameter"
    return "buffer" if isinstance(tensor, Buffer) else "tensor"


def memory_of(array: Any) -> int:
    """An id of the memory that `array` shows: equal for all views of one storage."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return id(array) if array.base is None or not array.size else id(array.base)


def all_memory(arrays: list[Any]) -> tuple[Any, int]:
    """One array over all the memory that `arrays`, views of one storage, show; its address."""
    bounds = [np.lib.array_utils.byte_bounds(a) for a in arrays]
    start, end = min(low for low, _ in bounds), max(high for _, high in bounds)
    first = next(a for a, (low, _) in zip(arrays, bounds, strict=True) if low == start)
    index = tuple(slice(-1, None) if s < 0 else slice(0, 1) for s in first.strides)
    size = ((end - start) // first.itemsize,)
    storage = np.lib.stride_tricks.as_strided(first[index].reshape(-1), size, (first.itemsize,))
    return storage, start


_NAMES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32",
    "int32": "I32", "uint64": "U64", "int64": "I64", "float16": "F16", "bfloat16": "BF16",
    "float32": "F32", "float64": "F64",
}  # fmt: skip


def _bytes(data: Any) -> Any:
    return data.reshape(-1).view(np.uint8)


def _checksum(data: Any) -> int:
    kind = zlib.crc32(f"{_NAMES.get(data.dtype.name)} {data.shape}".encode())
    return zlib.crc32(_bytes(data), kind) if data.size else kind


def header(order: list[tuple[str, Any]], metadata: dict[str, str]) -> bytes:
    """The header of a safetensors file, which comes before the data of the arrays."""
    header: dict[str, Any] = {"__metadata__": metadata}
    offset = 0
    for name, data in order:
        end = offset + data.nbytes
        header[name] = {
            "dtype": _NAMES[data.dtype.name], "shape": data.shape, "data_offsets": [offset, end],
        }  # fmt: skip
        offset = end
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    if len(text) > MAX_HEADER:
        raise InvalidArgument(
            f"save: the structure around the tensors takes {len(text)} bytes of JSON, more than "
            f"{MAX_HEADER}; store numbers as tensors"
        )
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def save(obj: Any, f: Any) -> None:
    """Write one safetensors file; see `adjoint.save`."""
    writer = _CheckpointWriter()
    structure = encode(obj, writer.see)
    writer.finish()
    text = json.dumps(structure, allow_nan=False, separators=(",", ":"))
    metadata = {
        "adjoint_version": str(VERSION),
        "adjoint": text,
        "adjoint_crc32": str(zlib.crc32(text.encode())),
    }
    # Widest first, so that every array is aligned.
    order = sorted(writer.arrays.items(), key=lambda item: -item[1].itemsize)
    parts = [header(order, metadata), *(_bytes(data).data for _, data in order if data.size)]
    with writing(f, "save") as file:
        for part in parts:
            file.write(part)


# ---- reading -------------------------------------------------------------------------------------


@naming
def load(f: Any, map_location: Any = None, *, weights_only: bool = True) -> Any:
    """Read a safetensors file, ours or another tool's; see `adjoint.load`."""
    name = repr(f) if not isinstance(f, (str, os.PathLike)) else repr(os.fspath(f))
    try:
        arrays, metadata = _read(f)
    except (OSError, InvalidType, Unsupported):
        raise
    except Exception as error:
        raise CheckpointError(
            f"load: {name} is not a whole safetensors file ({error}); was it cut short, or "
            "written by another program?"
        ) from error
    try:
        value = _decoded(name, arrays, metadata, map_location)
    except (CheckpointError, DeviceError):
        raise
    except RecursionError:
        raise CheckpointError(f"load: {name} holds containers nested too deeply") from None
    except Exception as error:  # what only a file made by hand can provoke
        raise CheckpointError(f"load: {name} cannot be understood: {error}") from error
    return value


def _decoded(name: str, arrays: dict[str, Any], metadata: dict[str, str], map_location: Any) -> Any:
    if not any(key.startswith("adjoint") for key in metadata):  # another tool's file
        return place({key: from_numpy(array) for key, array in arrays.items()}, map_location)
    reader = _CheckpointReader(name, arrays, Placement(map_location))
    return decode(_structure(name, metadata), reader.tensor)


def _read(f: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """The file's arrays and metadata."""
    import tempfile

    import safetensors

    if hasattr(f, "read"):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "copy.safetensors")
            with open(path, "wb") as copy:
                copy.write(f.read())
            return _read(path)
    if not isinstance(f, (str, os.PathLike)):
        raise InvalidType(f"load: expected a path or a file object, got {type(f).__name__}")
    with open(f, "rb"):
        pass  # says what is wrong with a path better than safetensors does
    with safetensors.safe_open(os.fspath(f), framework="numpy") as file:
        arrays = {}
        for key in file.keys():  # noqa: SIM118 - not a dict
            kind = file.get_slice(key).get_dtype()
            if kind.startswith(("F8_", "F4", "F6_")):
                raise Unsupported(
                    f"load: {os.fspath(f)!r} holds {key!r} in the dtype {kind}, which adjoint has "
                    "not; save it as bfloat16 or float32 with the program that wrote it"
                )
            array = file.get_tensor(key)
            arrays[key] = array if array.flags.writeable else array.copy()
        return arrays, file.metadata() or {}


def _structure(name: str, metadata: dict[str, str]) -> Any:
    version = metadata.get("adjoint_version", "")
    if not version.isdecimal() or int(version) != VERSION:
        raise CheckpointError(
            f"load: {name} has checkpoint version {version!r}, this adjoint reads {VERSION}; "
            "install the adjoint that wrote it"
        )
    text = metadata.get("adjoint", "")
    if metadata.get("adjoint_crc32") != str(zlib.crc32(text.encode())):
        raise CheckpointError(
            f"load: the structure in {name} was altered after it was saved (its checksum "
            "differs); restore the file from a copy"
        )
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"load: the structure in {name} is not JSON: {error}") from error


class _CheckpointReader:
    """Makes each tensor of a checkpoint once."""

    def __init__(self, name: str, arrays: dict[str, Any], placement: Placement) -> None:
        self.name = name
        self.placement = placement
        self.arrays = arrays
        self.made: dict[int, Any] = {}  # tensors by id
        self.storages: dict[str, Any] = {}  # tensors by name of the stored array, checked

    def tensor(self, entry: Any) -> Any:
        """The tensor that `entry` describes."""
        number = entry["id"]
        if number not in self.made:
            self.made[number] = self._make(entry)
        return self.made[number]

    def _make(self, entry: dict[str, Any]) -> Any:
        storage = self._storage(entry)
        if "view" in entry:
            offset, shape, strides = entry["view"]
            self._assert_inside(entry, storage, offset, shape, strides)
            data = storage._data
            view = np.lib.stride_tricks.as_strided(
                data[offset:], shape, [s * data.itemsize for s in strides]
            )
            tensor = storage.detach()
            tensor._data = view
        else:
            tensor = storage
        tensor = self.placement.moved(tensor, entry.get("device", "cpu"))
        wants = bool(entry.get("requires_grad", False))
        kind = entry["kind"]
        if kind == "parameter":
            return Parameter(tensor, wants)
        if kind == "buffer":
            tensor = Buffer(tensor, persistent=bool(entry.get("persistent", True)))
        elif kind != "tensor":
            raise CheckpointError(f"load: {self.name} holds an unknown kind of tensor, {kind!r}")
        return tensor.requires_grad_() if wants else tensor

    def _storage(self, entry: dict[str, Any]) -> Any:
        key = entry["data"]
        if key in self.storages:
            return self.storages[key]
        if key not in self.arrays:
            raise CheckpointError(f"load: {self.name} lacks the data of tensor {key!r}")
        array = self.arrays[key]
        if _checksum(array) != entry["crc32"]:
            raise CheckpointError(
                f"load: the data of tensor {key!r} in {self.name} was altered after it was saved "
                "(its checksum differs); restore the file from a copy"
            )
        if "dtype" in entry:
            dtype = BY_NAME[entry["dtype"]]
            if not dtype.is_complex or array.shape[-1:] != (2,):
                raise CheckpointError(f"load: {self.name} holds a malformed complex {key!r}")
            array = array.view(dtype.numpy).reshape(array.shape[:-1])
        from_numpy_dtype(array.dtype)
        self.storages[key] = from_numpy(array)
        return self.storages[key]

    def _assert_inside(
        self, entry: Any, storage: Any, offset: int, shape: list[int], strides: list[int]
    ) -> None:
        """Refuse a view that would show memory outside its storage."""
        ends = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
        low = offset + sum(e for e in ends if e < 0)
        high = offset + sum(e for e in ends if e > 0)
        sound = all(isinstance(v, int) for v in (offset, *shape, *strides)) and all(
            n >= 0 for n in shape
        )
        if not sound or (0 not in shape and not 0 <= low <= high < storage.numel()):
            raise CheckpointError(
                f"load: {self.name} holds a view outside the data of {entry['data']!r}"
            )
