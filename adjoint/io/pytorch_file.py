"""PyTorch's files, read and written without PyTorch: `.pt` and `.pth`.

A file since PyTorch 1.6 is a zip archive of `<name>/data.pkl`, a pickle of the object in which a
storage is a persistent id `("storage", class, key, location, elements)`, and `<name>/data/<key>`,
each storage's bytes. A file before is five pickles in a row (a magic number, the version, facts
about the machine, the object, the storages' keys), then each storage: its length and its bytes.

Source: https://docs.pytorch.org/docs/stable/notes/serialization.html
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.errors import CheckpointError
from .known_classes import build_class, find_class
from .pickle_writer import PickleWriter
from .pytorch_names import Storage, StorageType, build, find
from .restricted_pickle import MAX_PICKLE, Unpickler, assert_finite, brief
from .source import Source
from .trusted import TrustedUnpickler, build_trusted, find_any, is_trusted
from .zip_archive import Archive, write_archive

_MAGIC = 0x1950A86A20F9469CFC6C
_MAGIC_BYTES = _MAGIC.to_bytes(10, "little") + b"."
_LEGACY_VERSION = 1001


@dataclass(frozen=True)
class Reader:
    """Reader of a file's pickle: what its names stand for, and how objects get their state."""

    find: Callable[[str, str], Any]
    build: Callable[[Any, Any], bool]
    machine: type[Unpickler] = Unpickler
    finite: bool = True  # whether values that contain themselves are refused

    def check(self, value: Any) -> None:
        """Refuse values that contain themselves, and storages, which only stand for tensors'
        memory.
        """
        if self.finite:
            assert_finite(value, (Storage, StorageType))


def reader_for(path: Any, weights_only: bool) -> Reader:
    """The reader by which `load` reads the file at `path`, or a file object."""
    if weights_only:
        return Reader(find, build)
    if is_trusted(path):
        return Reader(find_any, build_trusted, TrustedUnpickler, finite=False)
    return Reader(find_class, build_class)


# ---- zip -----------------------------------------------------------------------------------------


def text_of_archive(archive: Archive) -> tuple[str, bytes]:
    """The folder of a file since PyTorch 1.6, and the pickle in it."""
    archive.assert_stored()
    roots = [name[:-8] for name in archive.members if name.endswith("/data.pkl")]
    if len(roots) != 1 or "/" in roots[0][:-1]:
        raise CheckpointError("the archive has no data.pkl in its one folder")
    root = roots[0]
    if root + "constants.pkl" in archive.members:
        raise CheckpointError(
            "the file is a TorchScript program, not data; save its state_dict() in PyTorch: "
            "torch.save(torch.jit.load(path).state_dict(), path)"
        )
    return root, archive.read(root + "data.pkl", MAX_PICKLE)


def read_pytorch(archive: Archive, reader: Reader) -> Any:
    """The object in a file since PyTorch 1.6; CheckpointError for whatever is wrong with it."""
    root, text = text_of_archive(archive)
    order = "little"
    if root + "byteorder" in archive.members:
        order = archive.read(root + "byteorder", 16).decode("ascii", "replace")
        if order not in ("little", "big"):
            raise CheckpointError(f"the file has byte order {order!r}")
    storages: dict[str, Storage] = {}

    def storage(identity: Any) -> Storage:
        kind, key, count = _identity(identity, 5)
        if key not in storages:
            array = archive.array(f"{root}data/{key}", kind.numpy)
            if array.size != count:
                raise CheckpointError(f"storage {key!r} has {array.size} elements, not {count}")
            storages[key] = Storage(_native(array, order, kind), kind)
        return _same_kind(storages[key], kind, key)

    value = reader.machine(text, reader.find, storage, reader.build).load()
    reader.check(value)
    return value


def _identity(identity: Any, length: int) -> tuple[StorageType, str, int]:
    """Class, key and number of elements of a storage that is kept outside of the pickle."""
    if type(identity) is not tuple or len(identity) != length or identity[0] != "storage":
        raise CheckpointError(f"the pickle refers to {brief(identity)}, which is no storage")
    kind, key, _, count = identity[1:5]
    if type(kind) is not StorageType:
        raise CheckpointError(f"a storage has class {brief(kind)}")
    if type(key) is not str or type(count) is not int or count < 0:
        raise CheckpointError(f"a storage is called {brief(key)} and has {brief(count)} elements")
    return kind, key, count


def _same_kind(storage: Storage, kind: StorageType, key: str) -> Storage:
    if storage.kind.dtype is not kind.dtype:
        raise CheckpointError(f"storage {key!r} is a {storage.kind.name} and a {kind.name}")
    return storage


def _native(array: Any, order: str, kind: StorageType) -> Any:
    """`array`, changed in place to this machine's byte order."""
    if order == sys.byteorder or (array.dtype.itemsize == 1 and kind.dtype is not None):
        return array
    if kind.dtype is None:
        raise CheckpointError(f"a storage without dtype was written on a {order}-endian machine")
    if kind.dtype.name == "bfloat16":  # whose NumPy dtype cannot swap
        return array.view(np.uint16).byteswap(inplace=True).view(array.dtype)
    return array.byteswap(inplace=True)


# ---- before 1.6 ----------------------------------------------------------------------------------


def is_legacy(head: bytes) -> bool:
    """Whether a file that begins so is one from before PyTorch 1.6."""
    return head[:1] == b"\x80" and _MAGIC_BYTES in head


class _Legacy:
    """The storages of a file from before PyTorch 1.6: promised by the pickle, filled behind it."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.storages: dict[str, Storage] = {}
        self.views: dict[str, Storage] = {}
        self.promised = 0  # bytes

    def resolve(self, identity: Any) -> Any:
        """The storage (or class) that a persistent id names."""
        if type(identity) is tuple and len(identity) == 4 and identity[0] == "module":
            return identity[1]  # a class with its source text, which nobody needs
        kind, key, count = _identity(identity, 6)
        if key not in self.storages:
            self.promised += count * kind.numpy.itemsize
            if self.promised > self.source.size:
                raise CheckpointError(
                    f"storages of {self.promised} bytes are promised by a file of "
                    f"{self.source.size}; was it cut short?"
                )
            self.storages[key] = Storage(np.empty(count, kind.numpy), kind)
        whole = _same_kind(self.storages[key], kind, key)
        return whole if identity[5] is None else self._view(whole, identity[5])

    def _view(self, whole: Storage, view: Any) -> Storage:
        """A storage that is a part of another one, as very old files have it."""
        if type(view) is not tuple or len(view) != 3 or type(view[0]) is not str:
            raise CheckpointError(f"a storage is a view {brief(view)}")
        key, offset, count = view
        if any(type(n) is not int or n < 0 for n in (offset, count)):
            raise CheckpointError(f"a storage is a view {brief(view)}")
        if offset + count > whole.array.size:
            raise CheckpointError(f"a storage is the view {brief(view)}, outside its storage")
        if key not in self.views:
            self.views[key] = Storage(whole.array[offset : offset + count], whole.kind, True)
        return self.views[key]

    def fill(self, keys: Any, position: int, order: str) -> None:
        """Read the storages, which follow each other in the order of `keys`."""
        if type(keys) is not list or sorted(map(repr, keys)) != sorted(map(repr, self.storages)):
            raise CheckpointError("the list of storages does not match the object")
        for key in keys:
            target = self.storages[key]
            (count,) = struct.unpack("<q", self.source.read(position, 8))
            if count != target.array.size:
                raise CheckpointError(f"storage {key!r} has {count} elements; {target.array.size}")
            self.source.read_into(target.array, position + 8)
            _native(target.array, order, target.kind)
            position += 8 + target.array.nbytes
        for storage in self.storages.values():
            storage.settle()


def read_legacy(source: Source, reader: Reader) -> Any:
    """The object in a file from before PyTorch 1.6."""
    data = source.head(MAX_PICKLE)
    legacy = _Legacy(source)
    position = 0

    def one() -> Any:
        nonlocal position
        machine = reader.machine(data, reader.find, legacy.resolve, reader.build, position)
        value = machine.load()
        position = machine.position
        return value

    if one() != _MAGIC or one() != _LEGACY_VERSION:
        raise CheckpointError(f"the file is not of PyTorch's version {_LEGACY_VERSION}")
    facts = one()
    if type(facts) is not dict or type(facts.get("little_endian")) is not bool:
        raise CheckpointError("the file does not say which byte order it has")
    value = one()
    reader.check(value)
    legacy.fill(one(), position, "little" if facts["little_endian"] else "big")
    return value


# ---- writing -------------------------------------------------------------------------------------


def write_pytorch(value: Any, file: Any) -> None:
    """Write a file that `torch.load` reads, with `weights_only=True` if it is plain data."""
    writer = PickleWriter()
    text = writer.dump(value)
    members = [("archive/data.pkl", text), ("archive/byteorder", sys.byteorder.encode())]
    members += [(f"archive/data/{key}", _bytes(a)) for key, a in enumerate(writer.arrays)]
    members += [("archive/version", b"3\n")]
    write_archive(file, members)


def _bytes(array: Any) -> Any:
    return array.reshape(-1).view(np.uint8) if math.prod(array.shape) else b""
