"""Frames between a store's server and its clients: a few byte strings, with their lengths before
them. Nothing in them is executed or unpickled, and none is longer than `LIMIT`.

    total length | length, bytes | length, bytes | ...
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence

__all__ = ["GREETING", "LIMIT", "receive", "receive_exactly", "send"]

GREETING = b"adjoint store 1\n"  # of a client, before its first frame
LIMIT = 1 << 26  # bytes of a frame: 64 MiB
_LENGTH = struct.Struct("!I")
_PIECE = 1 << 16  # what is read at once: a length alone takes no memory


def send(to: socket.socket, fields: Sequence[bytes]) -> None:
    """Send one frame.

    Errors: ValueError for one that is too long, of which nothing is sent.
    """
    body = b"".join(part for each in fields for part in (_LENGTH.pack(len(each)), each))
    if len(body) > LIMIT:
        raise ValueError(f"{len(body)} bytes are more than the {LIMIT} of a store's message")
    to.sendall(_LENGTH.pack(len(body)) + body)


def receive(source: socket.socket) -> list[bytes]:
    """Receive one frame.

    Errors: ConnectionError where the other side is gone, or sends something else.
    """
    (length,) = _LENGTH.unpack(receive_exactly(source, _LENGTH.size))
    if length > LIMIT:
        raise ConnectionError(f"a message of {length} bytes, which no store sends")
    body = receive_exactly(source, length)
    fields, at = [], 0
    while at < length:
        end = at + _LENGTH.size
        if end <= length:
            (size,) = _LENGTH.unpack_from(body, at)
            at, end = end, end + size
        if end > length:
            raise ConnectionError("a message that is cut short")
        fields.append(body[at:end])
        at = end
    return fields


def receive_exactly(source: socket.socket, count: int) -> bytes:
    """Receive so many bytes.

    Errors: ConnectionError where the other side is gone before.
    """
    found = bytearray()
    while len(found) < count:
        piece = source.recv(min(count - len(found), _PIECE))
        if not piece:
            raise ConnectionError("the connection was closed")
        found += piece
    return bytes(found)
