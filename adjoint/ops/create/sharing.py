"""Memory that processes share, however they were started: a file without a name, whose descriptor
goes to the others in a tensor's place (`share_memory_`).
"""

from __future__ import annotations

import mmap
import os
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.errors import AutogradError
from .memory import owner_of

_sent: set[type] = set()  # the classes of which shared tensors are sent so


class SharedMemory(mmap.mmap):
    """Memory that other processes map, too, by its descriptor."""

    descriptor: int

    def __new__(cls, descriptor: int, size: int) -> SharedMemory:
        """`size` bytes of the file; the descriptor is closed with the memory."""
        memory = super().__new__(cls, descriptor, size)
        memory.descriptor = descriptor
        return memory

    def __del__(self) -> None:
        os.close(self.descriptor)


def shared_memory(nbytes: int, kind: type) -> mmap.mmap:
    """Memory for a tensor of a class. Where files without names are not there (only Linux has
    them), processes that are forked share it, and no others.
    """
    size = max(nbytes, 1)
    if not hasattr(os, "memfd_create"):
        return mmap.mmap(-1, size)
    descriptor = os.memfd_create("adjoint")
    os.ftruncate(descriptor, size)
    _send_memory_of(kind)
    return SharedMemory(descriptor, size)


def memory_of(array: np.ndarray[Any, Any]) -> Any:
    """The shared memory map that holds an array, or None."""
    base = owner_of(array).base
    found = getattr(base, "obj", base)
    return found if isinstance(found, mmap.mmap) else None


def _send_memory_of(kind: type) -> None:
    """Registers how tensors of this class that are shared are sent: by their memory."""
    if kind not in _sent:
        from multiprocessing.reduction import ForkingPickler

        ForkingPickler.register(kind, _reduced)
        _sent.add(kind)


def _reduced(x: Any) -> Any:
    if not x.is_leaf:
        raise AutogradError(
            "pickle: a tensor with history cannot be sent to another process, which backward does "
            "not reach; detach() it first"
        )
    rebuild, (kind, values, *rest) = x.__reduce__()
    data = x._data
    memory = memory_of(data) if type(data) is np.ndarray else None
    if not isinstance(memory, SharedMemory):
        return rebuild, (kind, values, *rest)  # a copy
    from multiprocessing.reduction import DupFd

    begin = data.__array_interface__["data"][0] - np.frombuffer(memory, np.uint8).ctypes.data
    place = (data.shape, begin, data.strides)
    sent: Any = DupFd(memory.descriptor)  # type: ignore[no-untyped-call]
    return _received, (sent, len(memory), x.dtype.name, place, rebuild, kind, rest)


def _received(
    sent: Any, size: int, dtype: str, place: Any, rebuild: Any, kind: type, rest: Any
) -> Any:
    shape, begin, strides = place
    memory = np.frombuffer(SharedMemory(sent.detach(), size), np.uint8)
    _send_memory_of(kind)
    values = np.ndarray(shape, dt.by_name(dtype).numpy, memory, begin, strides)
    return rebuild(kind, values, *rest)
