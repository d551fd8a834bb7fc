"""Zip archives from anywhere: the directory is checked before anything of it is believed.

Nothing is unpacked to disk. Members must not overlap, so that a small file cannot name the same
bytes many times; compressed ones are read only where the caller allows, up to a limit.

Source: https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
"""

from __future__ import annotations

import itertools
import struct
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..core.errors import CheckpointError
from .source import Source

MAX_DIRECTORY = 16 << 20  # bytes of the list of members
STORED, DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
_LOCAL = b"PK\x03\x04"  # begins a member's own header
_UTF8 = 1 << 11  # the flag of names that are not in the code page of old
_ALIGNMENT = 64  # of each member's data, as PyTorch writes them


@dataclass(frozen=True)
class Member:
    """One file in an archive; its bytes are at `start` of the archive."""

    name: str
    method: int
    start: int
    stored: int
    size: int
    crc: int


class _Directory:
    """A source's file as zipfile reads it: no more than a list of members at a time."""

    def __init__(self, source: Source) -> None:
        self.seek, self.tell = source.file.seek, source.file.tell
        self.source = source

    def read(self, count: int = -1) -> bytes:
        """The next `count` bytes, or all that are left."""
        left = max(self.source.size - self.tell(), 0)
        count = left if count < 0 else min(count, left)
        if count > MAX_DIRECTORY:
            raise zipfile.BadZipFile(f"the list of members has {count} bytes")
        return self.source.file.read(count)


class Archive:
    """The members of a zip archive by name, all of them inside the file and apart."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.members: dict[str, Member] = {}
        try:
            directory = zipfile.ZipFile(_Directory(source))  # type: ignore[arg-type]
        except (zipfile.BadZipFile, NotImplementedError, struct.error, ValueError) as error:
            raise CheckpointError(
                f"the archive has no directory to be read ({error}); was the file cut short?"
            ) from error
        spans = [(directory.start_dir, source.size)]
        for info in directory.infolist():
            name = _checked_name(info.orig_filename)
            if info.flag_bits & 1:
                raise CheckpointError(f"member {name!r} is encrypted; decrypt the file first")
            method, stored, size = info.compress_type, info.compress_size, info.file_size
            if method not in (STORED, DEFLATED):
                raise CheckpointError(f"member {name!r} is compressed by unknown method {method}")
            if method == STORED and stored != size:
                raise CheckpointError(f"member {name!r} has two sizes, {stored} and {size}")
            start = self._data_start(info)
            spans.append((info.header_offset, start + stored))
            if name in self.members:
                raise CheckpointError(f"the archive holds {name!r} twice")
            self.members[name] = Member(name, method, start, stored, size, info.CRC)
        for (_, end), (begin, _) in itertools.pairwise(sorted(spans)):
            if end > begin:
                raise CheckpointError("members of the archive overlap")

    def _data_start(self, info: zipfile.ZipInfo) -> int:
        """Offset at which a member's data begin; its own header must agree with the directory."""
        name = info.orig_filename.encode("utf-8" if info.flag_bits & _UTF8 else "cp437")
        header = self.source.read(info.header_offset, 30 + len(name))
        name_size, extra_size = struct.unpack_from("<HH", header, 26)
        if header[:4] != _LOCAL or name_size != len(name) or header[30:] != name:
            raise CheckpointError(f"the archive has no member {name!r} where it says")
        start: int = info.header_offset + 30 + name_size + extra_size
        if start + info.compress_size > self.source.size:
            raise CheckpointError(f"member {name!r} reaches outside the file; was it cut short?")
        return start

    def assert_stored(self) -> None:
        """Refuse compressed members, for which a small file may need much memory."""
        for name, member in self.members.items():
            if member.method != STORED:
                raise CheckpointError(
                    f"member {name!r} is compressed, as neither PyTorch nor adjoint write it; "
                    "unpack the archive and store it again with `zip -0`"
                )

    def array(self, name: str, dtype: Any) -> Any:
        """The bytes of a stored member as a new array of `dtype`."""
        member = self.member(name)
        array = self.source.array(member.start, member.stored, dtype)
        _assert_whole(member, zlib.crc32(array.view("u1")) if array.size else 0)
        return array

    def read(self, name: str, limit: int) -> bytes:
        """The bytes of a member, of which there may be `limit`."""
        member = self.member(name)
        if member.size > limit or member.stored > limit:
            raise CheckpointError(f"member {name!r} has {member.size} bytes; {limit} are read")
        raw = self.source.read(member.start, member.stored)
        if member.method == DEFLATED:
            unpacker = zlib.decompressobj(-15)
            try:
                raw = unpacker.decompress(raw, member.size + 1)
            except zlib.error as error:
                raise CheckpointError(f"member {name!r} is corrupt: {error}") from error
            if len(raw) != member.size or not unpacker.eof:
                raise CheckpointError(f"member {name!r} has not the {member.size} bytes it says")
        _assert_whole(member, zlib.crc32(raw))
        return raw

    def member(self, name: str) -> Member:
        """The member called `name`."""
        if name not in self.members:
            raise CheckpointError(f"the archive has no {name!r}; was it written in full?")
        return self.members[name]


def _assert_whole(member: Member, crc: int) -> None:
    if member.crc not in (0, crc):  # PyTorch writes 0 where checksums are switched off
        raise CheckpointError(
            f"the data of member {member.name!r} were altered after they were saved (the checksum "
            "differs); restore the file from a copy"
        )


def _checked_name(name: str) -> str:
    """A member's name; one that would lead elsewhere if it were unpacked is refused."""
    if not name or ".." in name.split("/") or name[0] == "/" or any(c in name for c in "\\\0:"):
        raise CheckpointError(f"a member of the archive is called {name!r:.80}")
    return name


def write_archive(file: Any, members: Iterable[tuple[str, Any]]) -> None:
    """Write members, (name, bytes-like), uncompressed and aligned; the same every time."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, data in members:
            view = memoryview(data).cast("B")
            info = zipfile.ZipInfo(name)  # its date is 1980-01-01
            large = view.nbytes >= zipfile.ZIP64_LIMIT
            header = 30 + len(name.encode()) + (20 if large else 0) + 4
            padding = -(archive.start_dir + header) % _ALIGNMENT
            info.extra = struct.pack("<2sH", b"FB", padding) + b"Z" * padding
            info.file_size = view.nbytes
            with archive.open(info, "w", force_zip64=large) as target:
                for start in range(0, view.nbytes, 1 << 26):
                    target.write(view[start : start + (1 << 26)])
