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

__all__ = ["Archive", "Member", "write_archive"]

MAX_DIRECTORY = 16 << 20  # bytes of the list of members
STORED, DEFLATED = 0, 8
_END, _END64, _LOCATOR64 = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_ENTRY, _LOCAL = b"PK\x01\x02", b"PK\x03\x04"
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


class Archive:
    """The members of a zip archive by name, all of them inside the file and apart."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.members: dict[str, Member] = {}
        try:
            self._read_directory()
        except struct.error as error:
            raise CheckpointError(f"the archive's directory is malformed: {error}") from error

    def _read_directory(self) -> None:
        start, size, count = self._find_directory()
        if size > MAX_DIRECTORY or count * 46 > size:
            raise CheckpointError(f"the archive lists {count} members in {size} bytes")
        data = self.source.read(start, size)
        position, spans = 0, []
        for _ in range(count):
            if data[position : position + 4] != _ENTRY:
                raise CheckpointError("the archive's directory is malformed")
            (flags, method, crc, stored, full, name_size, extra_size, comment_size, offset) = (
                struct.unpack_from("<8xHH4xLLLHHH8xL", data, position)
            )
            position += 46
            raw = data[position : position + name_size]
            extra = data[position + name_size : position + name_size + extra_size]
            position += name_size + extra_size + comment_size
            if position > size:
                raise CheckpointError("the archive's directory is cut short")
            name = _checked_name(raw)
            full, stored, offset = _large(extra, full, stored, offset)
            if flags & 1:
                raise CheckpointError(f"member {name!r} is encrypted; decrypt the file first")
            if method not in (STORED, DEFLATED):
                raise CheckpointError(f"member {name!r} is compressed by unknown method {method}")
            if method == STORED and stored != full:
                raise CheckpointError(f"member {name!r} has two sizes, {stored} and {full}")
            data_start = self._data_start(raw, offset, stored)
            spans.append((offset, data_start + stored))
            if name in self.members:
                raise CheckpointError(f"the archive holds {name!r} twice")
            self.members[name] = Member(name, method, data_start, stored, full, crc)
        spans.sort()
        spans.append((start, start))
        for (_, end), (begin, _) in itertools.pairwise(spans):
            if end > begin:
                raise CheckpointError("members of the archive overlap")

    def _find_directory(self) -> tuple[int, int, int]:
        """Place, size and number of entries of the directory."""
        source = self.source
        tail_size = min(source.size, 65557)  # the end record and the longest comment
        tail_start = source.size - tail_size
        tail = source.read(tail_start, tail_size)
        found = tail.rfind(_END)
        if found < 0 or found + 22 > tail_size:
            raise CheckpointError("the archive has no directory; was the file cut short?")
        count, size, start = struct.unpack_from("<10xHLL", tail, found)
        place = tail_start + found - 20
        if place >= 0 and source.read(place, 4) == _LOCATOR64:
            (at,) = struct.unpack("<8xQ4x", source.read(place, 20))
            record = source.read(at, 56)
            if record[:4] != _END64:
                raise CheckpointError("the archive's directory is malformed")
            count, size, start = struct.unpack("<32xQQQ", record)
        return start, size, count

    def _data_start(self, name: bytes, offset: int, stored: int) -> int:
        """Where a member's data begin; its own header must agree with the directory."""
        header = self.source.read(offset, 30)
        name_size, extra_size = struct.unpack("<26xHH", header)
        if header[:4] != _LOCAL or self.source.read(offset + 30, name_size) != name:
            raise CheckpointError(f"the archive has no member {name!r} where it says")
        start: int = offset + 30 + name_size + extra_size
        if start + stored > self.source.size:
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


def _checked_name(raw: bytes) -> str:
    """A member's name; one that would lead elsewhere if it were unpacked is refused."""
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        raise CheckpointError(f"a member's name is not UTF-8: {raw!r:.80}") from None
    parts = name.split("/")
    if not name or ".." in parts or name[0] == "/" or any(c in name for c in "\\\0:"):
        raise CheckpointError(f"a member of the archive is called {name!r:.80}")
    return name


def _large(extra: bytes, size: int, stored: int, offset: int) -> tuple[int, int, int]:
    """The three numbers, those that take more than 32 bits from the zip64 field."""
    numbers = [size, stored, offset]
    wanted = [i for i, n in enumerate(numbers) if n == 0xFFFFFFFF]
    position = 0
    while wanted and position + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, position)
        if kind == 1:
            for i, place in enumerate(wanted):
                (numbers[place],) = struct.unpack_from("<Q", extra, position + 4 + 8 * i)
            break
        position += 4 + length
    return numbers[0], numbers[1], numbers[2]


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
