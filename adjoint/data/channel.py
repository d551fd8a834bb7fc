"""Messages between a DataLoader and a worker: large arrays through memory, the rest pickled.

The bytes of large arrays are written to an anonymous memory file whose descriptor goes over the
pipe. The file has no name, so nothing is left of it whichever process is killed. The receiver's
arrays are the file, mapped; as each mapping holds a descriptor, batches beyond a number that the
program keeps at a time are copied.
"""

from __future__ import annotations

import mmap
import os
import pickle
import weakref
from typing import Any

import numpy as np

SHARED_FROM = 1 << 15  # bytes; smaller arrays go with the message

MOST_MAPPED = 64  # memory files at a time

_ALIGNMENT = 64
_HAS_MEMORY_FILES = hasattr(os, "memfd_create")
_POPULATE = getattr(mmap, "MAP_POPULATE", 0)  # Linux: no page faults later
_mapped: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()


def send(connection: Any, value: Any) -> None:
    """Send any picklable value."""
    buffers: list[Any] = []

    def goes_with_the_message(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < SHARED_FROM or not _HAS_MEMORY_FILES:
            return True
        buffers.append(raw)
        return False

    data = pickle.dumps(value, 5, buffer_callback=goes_with_the_message)
    sizes = [raw.nbytes for raw in buffers]
    connection.send_bytes(pickle.dumps((sizes, data), 5))
    if sizes:
        _send_memory(connection, buffers)


def receive(connection: Any) -> Any:
    """The next object that the other side sends; EOFError or OSError where it has gone."""
    sizes, data = pickle.loads(connection.recv_bytes())
    buffers = _receive_memory(connection, sizes) if sizes else ()
    return pickle.loads(data, buffers=buffers)


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _send_memory(connection: Any, buffers: list[Any]) -> None:
    from multiprocessing.reduction import send_handle

    handle = os.memfd_create("adjoint")
    with open(handle, "wb") as file:
        offset = 0
        for raw in buffers:
            file.seek(offset)
            file.write(raw)
            offset += _padded(raw.nbytes)
        file.truncate(offset)
        file.flush()
        send_handle(connection, handle, None)


def _receive_memory(connection: Any, sizes: list[int]) -> list[Any]:
    from multiprocessing.reduction import recv_handle

    size = sum(map(_padded, sizes))
    memory: Any
    with open(recv_handle(connection), "rb", buffering=0) as file:
        if len(_mapped) < MOST_MAPPED:
            memory = mmap.mmap(file.fileno(), size, flags=mmap.MAP_SHARED | _POPULATE)
            _mapped.add(memory)
        else:
            memory = np.empty(size, np.uint8)
            file.seek(0)  # sender and receiver have one position
            file.readinto(memory.data)
    view, buffers, offset = memoryview(memory), [], 0
    for size in sizes:
        buffers.append(view[offset : offset + size])
        offset += _padded(size)
    return buffers
