"""TensorBoard's event files: protocol buffers in checksummed records, written without either
library.
"""

from __future__ import annotations

import itertools
import os
import socket
import struct
import time
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from ...core import fork_safety

# ---- protocol buffers ----------------------------------------------------------------------------


def varint(value: int) -> bytes:
    """A whole number, seven bits to a byte; negative ones as 64 bits."""
    value &= 2**64 - 1
    result = bytearray()
    while value > 127:
        result.append(value & 127 | 128)
        value >>= 7
    result.append(value)
    return bytes(result)


def field_int(number: int, value: int) -> bytes:
    """A whole-number field."""
    return varint(number << 3) + varint(value)


def field_double(number: int, value: float) -> bytes:
    """A field of 64 bits."""
    return varint(number << 3 | 1) + struct.pack("<d", value)


def field_float(number: int, value: float) -> bytes:
    """A field of a 32-bit float; numbers too large become infinite."""
    with np.errstate(over="ignore"):
        return varint(number << 3 | 5) + np.float32(value).tobytes()


def field_bytes(number: int, value: bytes | str) -> bytes:
    """A field of bytes, text or an encoded message."""
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def field_doubles(number: int, values: Iterable[float]) -> bytes:
    """A repeated field of doubles, packed."""
    return field_bytes(number, np.asarray(values, "<f8").tobytes())


# ---- records -------------------------------------------------------------------------------------


def _table() -> list[int]:
    result = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        result.append(byte)
    return result


_TABLE = _table()


def crc32c(data: bytes) -> int:
    """The Castagnoli checksum of `data`.

    >>> from adjoint.utils.event_file import crc32c
    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    crc, table = 0xFFFFFFFF, _TABLE
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def _masked(data: bytes) -> bytes:
    """The checksum as records store it: turned, so that it does not check itself."""
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def record(data: bytes) -> bytes:
    """`data` with its length and both checksums."""
    length = struct.pack("<Q", len(data))
    return length + _masked(length) + data + _masked(data)


class EventFile:
    """A file of events in a directory, made when it is opened."""

    _counter = itertools.count()

    def __init__(self, directory: str, suffix: str, flush_secs: float) -> None:
        os.makedirs(directory, exist_ok=True)
        name = (
            f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}."
            f"{next(self._counter)}{suffix}"
        )
        self._lock = fork_safety.lock()
        self._flush_secs, self._flushed = flush_secs, time.monotonic()
        self._file = open(os.path.join(directory, name), "wb")  # noqa: SIM115 - closed by close()
        self.write(field_bytes(3, "brain.Event:2"), None, None)
        self.flush()

    def write(self, content: bytes, step: int | None, walltime: float | None) -> None:
        """Append an event with that content."""
        event = field_double(1, time.time() if walltime is None else walltime)
        if step is not None:
            event += field_int(2, int(step))
        data = record(event + content)
        with self._lock:
            self._file.write(data)
            if time.monotonic() - self._flushed >= self._flush_secs:
                self._flush()

    def flush(self) -> None:
        """Hand what was written to the operating system."""
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        self._file.flush()
        self._flushed = time.monotonic()

    def close(self) -> None:
        """Flush and close."""
        with self._lock:
            self._file.close()


# ---- images --------------------------------------------------------------------------------------


def png(pixels: Any) -> bytes:
    """An array of bytes, (height, width, 1 to 4 channels), as a PNG file."""
    height, width, channels = pixels.shape
    kind = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    rows = np.zeros((height, 1 + width * channels), np.uint8)  # each begins with its filter: none
    rows[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
    parts = [b"\x89PNG\r\n\x1a\n"]
    for name, data in chunks:
        parts += [struct.pack(">I", len(data)), name, data]
        parts.append(struct.pack(">I", zlib.crc32(name + data)))
    return b"".join(parts)
