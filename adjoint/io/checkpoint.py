"""`save` and `load`: one safetensors file whose metadata holds the structure around the tensors.

The file's tensors are readable by any safetensors reader, under their paths ("model.fc.weight").
Its metadata holds `adjoint_version` and `adjoint`: JSON of the structure (see structure.py), where
a tensor is an object with the fields

- `data`: the stored array's name;
- `id`: tensors with equal ids are one object;
- `kind`: "tensor", "parameter" or "buffer"; `requires_grad`; `persistent` for buffers;
- `dtype`: where it is not the stored array's: complex numbers are stored as pairs of floats;
- `view`: [offset, shape, strides] in elements, where several tensors share one storage.

safetensors and tempfile are imported on first use: they would be a tenth of the import time.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..core.dtype import BY_NAME, from_numpy_dtype
from ..core.errors import CheckpointError, DTypeError, InvalidArgument, InvalidType
from ..nn.parameter import Buffer, Parameter
from ..ops.memory import from_numpy
from ..tensor import Tensor
from .structure import decode, encode

__all__ = ["load", "save"]

VERSION = 1
MAX_STRUCTURE = 64 << 20  # bytes of JSON; safetensors itself refuses headers above 100 MB


# ---- writing -------------------------------------------------------------------------------------


class _Writer:
    """Collects the arrays of a checkpoint; views of one storage are stored as that storage."""

    def __init__(self) -> None:
        self.arrays: dict[str, Any] = {}  # by name, contiguous, with shapes and dtypes as stored
        self.entries: dict[int, dict[str, Any]] = {}  # by id of the tensor
        self.tensors: list[tuple[Any, str]] = []  # in order of appearance; keeps ids alive

    def see(self, tensor: Any, path: str) -> dict[str, Any]:
        """What stands for `tensor`; the data fields are filled in by `finish`."""
        entry = self.entries.get(id(tensor))
        if entry is None:
            entry = {"id": len(self.entries), "kind": _kind_of(tensor)}
            if tensor.requires_grad:
                entry["requires_grad"] = True
            if entry["kind"] == "buffer" and not tensor.persistent:
                entry["persistent"] = False
            self.entries[id(tensor)] = entry
            self.tensors.append((tensor, path or "tensor"))
        return entry

    def finish(self) -> None:
        """Choose what is stored under which name."""
        groups: dict[int, list[tuple[Any, str]]] = {}
        for tensor, path in self.tensors:
            groups.setdefault(_storage(tensor._data), []).append((tensor, path))
        for members in groups.values():
            if len(members) == 1:
                tensor, path = members[0]
                self._store(self.entries[id(tensor)], path, tensor._data)
            else:
                self._store_shared(members)

    def _store(self, entry: dict[str, Any], path: str, array: Any) -> str:
        name = path
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
        return name

    def _store_shared(self, members: list[tuple[Any, str]]) -> None:
        arrays = [tensor._data for tensor, _ in members]
        spans = [np.lib.array_utils.byte_bounds(a) for a in arrays]
        start, end = min(low for low, _ in spans), max(high for _, high in spans)
        dtypes = {a.dtype for a in arrays}
        if len(dtypes) != 1:
            raise DTypeError(
                f"save: {members[0][1]!r} and {members[1][1]!r} share memory under different "
                "dtypes; clone() one of them"
            )
        dtype = dtypes.pop()
        owner = next(a for a, (low, _) in zip(arrays, spans, strict=True) if low == start)
        count = (end - start) // dtype.itemsize
        first = _first_element(owner)
        storage = np.lib.stride_tricks.as_strided(first, (count,), (dtype.itemsize,))
        stored = self._store({}, members[0][1], storage)
        complex_name = dtype.name if dtype.kind == "c" else None
        checksum = _checksum(self.arrays[stored])
        for (tensor, _), array in zip(members, arrays, strict=True):
            entry = self.entries[id(tensor)]
            offset = (array.__array_interface__["data"][0] - start) // dtype.itemsize
            strides = [s // dtype.itemsize for s in array.strides]
            entry.update(data=stored, view=[offset, list(array.shape), strides], crc32=checksum)
            if complex_name:
                entry["dtype"] = complex_name


def _kind_of(tensor: Any) -> str:
    if isinstance(tensor, Parameter):
        return "parameter"
    return "buffer" if isinstance(tensor, Buffer) else "tensor"


def _storage(array: Any) -> int:
    """An id of the memory that `array` shows: equal for all views of one storage."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return id(array) if array.base is None or not array.size else id(array.base)


def _first_element(array: Any) -> Any:
    """A view of one element of `array`, the one at the lowest address."""
    index = tuple(slice(-1, None) if s < 0 else slice(0, 1) for s in array.strides)
    return array[index].reshape(-1)


def _checksum(data: Any) -> int:
    return zlib.crc32(data.reshape(-1).view(np.uint8)) if data.size else 0


def save(obj: Any, f: Any) -> None:
    """Write tensors and the containers around them to one file, never by pickle.

    Takes nested dicts, lists and tuples of tensors, None, bool, int, float, complex, str and bytes.
    Tensors that share memory still share it when loaded. The file is a safetensors file; it is
    written to a temporary file first and then renamed, so that a crash leaves the old one whole.

    Dtypes: all.
    Errors: InvalidType for other values (with their path), OSError where the file cannot be
    written.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.save.html

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "x.safetensors")
    >>> ad.save({"w": ad.ones(2), "step": 3}, path)
    >>> ad.load(path)
    {'w': tensor([1., 1.]), 'step': 3}
    """
    import safetensors.numpy

    writer = _Writer()
    structure = encode(obj, writer.see)
    writer.finish()
    text = json.dumps(structure, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    if len(text) > MAX_STRUCTURE:
        raise InvalidArgument(
            f"save: the structure around the tensors takes {len(text)} bytes of JSON, more than "
            f"{MAX_STRUCTURE}; store numbers as tensors"
        )
    metadata = {"adjoint_version": str(VERSION), "adjoint": text}
    if hasattr(f, "write"):
        f.write(safetensors.numpy.save(writer.arrays, metadata))
    elif isinstance(f, (str, os.PathLike)):
        with _replacing(os.fspath(f)) as temporary:
            safetensors.numpy.save_file(writer.arrays, temporary, metadata)
    else:
        raise InvalidType(f"save: expected a path or a file object, got {type(f).__name__}")


@contextlib.contextmanager
def _replacing(path: Any) -> Iterator[str]:
    """A temporary file in the same directory that takes the place of `path` at the end."""
    import tempfile

    path = os.path.realpath(os.fsdecode(path))
    directory = os.path.dirname(path)
    handle, temporary = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=directory)
    os.close(handle)
    try:
        yield temporary
        with open(temporary, "rb+") as written:
            os.fsync(written.fileno())
        os.chmod(temporary, _permissions(path))
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_directory(directory)


def _permissions(path: str) -> int:
    """Those of the file that is replaced, otherwise those of any new file."""
    try:
        return os.stat(path).st_mode & 0o777
    except OSError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


def _sync_directory(directory: str) -> None:
    """Make the rename itself durable, where the system can."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    with contextlib.suppress(OSError):
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# ---- reading -------------------------------------------------------------------------------------


def load(f: Any, map_location: Any = None, *, weights_only: bool = True) -> Any:
    """Read what `save` wrote; the safetensors files of other tools give a dict of tensors.

    Loading runs no code from the file, whatever `weights_only` says. `map_location` is a device.

    Errors: CheckpointError for a file that is truncated, corrupt, or of a newer version;
    FileNotFoundError where there is none.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.load.html

    >>> import io
    >>> file = io.BytesIO()
    >>> ad.save([ad.zeros(1), "text"], file)
    >>> _ = file.seek(0)
    >>> ad.load(file)
    [tensor([0.]), 'text']
    """
    name = repr(f) if not isinstance(f, (str, os.PathLike)) else repr(os.fspath(f))
    try:
        arrays, metadata = _read(f)
    except (OSError, InvalidType):
        raise
    except Exception as error:
        raise CheckpointError(
            f"load: {name} is not a whole safetensors file ({error}); was it cut short, or "
            "written by another program?"
        ) from error
    if "adjoint" not in metadata:
        return _place({key: from_numpy(a) for key, a in arrays.items()}, map_location)
    structure = _structure(name, metadata)
    reader = _Reader(name, arrays)
    try:
        value = decode(structure, reader.tensor)
    except RecursionError:
        raise CheckpointError(f"load: {name} holds containers nested too deeply") from None
    return _place(value, map_location)


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
    try:
        return json.loads(metadata["adjoint"])
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"load: the structure in {name} is not JSON: {error}") from error


class _Reader:
    """Makes each tensor of a checkpoint once."""

    def __init__(self, name: str, arrays: dict[str, Any]) -> None:
        self.name = name
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


def _place(value: Any, map_location: Any) -> Any:
    """`value` with its tensors on the wanted device (all are on the CPU so far)."""
    if map_location is not None:
        from ..core.device import as_device

        as_device(map_location if not isinstance(map_location, Tensor) else map_location.device)
    return value
