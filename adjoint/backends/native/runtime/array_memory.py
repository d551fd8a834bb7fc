"""Large arrays get the memory of arrays that were freed lately.

New memory costs a page fault per 4 KiB when it is first written: several times what adding two
numbers into it costs. So a NumPy memory handler (NEP 49) keeps freed blocks of 64 KiB and more,
up to a limit, and hands them out again; `block_cache.py` is its machine code.

The alternative was a function `empty` whose arrays have a base object that returns the block when
the last view dies. It was not taken: it costs 2 us of Python an array, serves only the arrays that
ask for it (no result of a ufunc), and everything that owns memory would have to be written around
it. As a handler, NumPy itself frees each block exactly once, when the last array that shows it is
gone, whether by views, pickling, DLPack, threads, forks or at exit, with no Python code involved.

NumPy takes the handler from the current context (`contextvars`), and each array remembers its own.
So only code that runs in a context prepared by `use_in` is served: the user's own NumPy arrays come
from NumPy's allocator as ever.

Source: https://numpy.org/doc/stable/reference/c-api/data_memory.html
"""

from __future__ import annotations

import contextvars
import ctypes
import functools
import os
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ....core import config
from ....core.arrays import capsule, capsule_address, keep, memory_handler, set_memory_handler
from ....core.errors import InvalidArgument, Unsupported
from . import block_cache


class _Handler(ctypes.Structure):
    """NumPy's PyDataMem_Handler, version 1."""

    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("allocator", block_cache.Allocator),
    )


_CAPSULE = b"mem_handler"  # NumPy asks for this name
_STATE = block_cache.BlockCacheState()


class _Cache(NamedTuple):
    allocator: block_cache.Allocator
    install: Callable[[], object]  # makes the current context allocate through the cache
    trim: Callable[[int], None]  # frees cached blocks until so many bytes are left


@functools.cache
def _cache() -> _Cache | None:
    """The cache, set up on first use; None where it cannot be."""
    default = contextvars.Context().run(memory_handler)
    theirs = _Handler.from_address(capsule_address(default, _CAPSULE))
    if (theirs.name, theirs.version) != (b"default_allocator", 1):
        return None
    small = theirs.allocator
    try:
        code = block_cache.code()
    except Unsupported:
        return None
    _STATE.small = small
    state = ctypes.addressof(_STATE)
    ours = _Handler(b"adjoint", 1, (state, code.malloc, code.calloc, code.realloc, code.free))
    keep(ours)
    keep(_STATE)
    keep(_CAPSULE)  # compared when the last array is freed, too
    handler = capsule(ctypes.addressof(ours), _CAPSULE)
    trim = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(code.trim)
    _STATE.limit = _limit_from_switch()
    return _Cache(
        ours.allocator,
        functools.partial(set_memory_handler, handler),
        functools.partial(trim, state),
    )


def _limit_from_switch() -> int:
    """ADJOINT_MEMORY_CACHE in bytes; where it is empty, an eighth of the machine's memory.

    Errors: InvalidArgument where it is not a number of bytes.
    """
    wish = config.read("ADJOINT_MEMORY_CACHE").strip()
    if not wish:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 8
    if not (wish.isascii() and wish.isdecimal() and int(wish) < 1 << 62):
        raise InvalidArgument(f"ADJOINT_MEMORY_CACHE={wish}: expected a number of bytes")
    return int(wish)


def use_in(run: Callable[..., Any]) -> bool:
    """Serve large arrays made in a context from the cache; `run` is that context's `run`.

    Returns False where this is not possible: no llvmlite, or a system other than Linux.

    >>> import contextvars
    >>> from adjoint.backends.native.runtime import array_memory as memory
    >>> memory.use_in(contextvars.copy_context().run)
    True
    """
    cache = _cache()
    if cache is None:
        return False
    run(cache.install)
    return True


class _Contexts(threading.local):
    """One context per thread, prepared by `use_in`."""

    def __init__(self) -> None:
        self.run = contextvars.Context().run
        use_in(self.run)


_contexts = _Contexts()


def empty(shape: Any, dtype: Any) -> np.ndarray:
    """An array with arbitrary values, from the cache whatever the current context is.

    >>> from adjoint.backends.native.runtime import array_memory as memory
    >>> memory.empty((2, 3), np.float32).shape
    (2, 3)
    """
    try:
        return _contexts.run(np.empty, shape, dtype)
    except RuntimeError:  # a finalizer runs this within this: the context is current
        return np.empty(shape, dtype)


def zeros(size: int) -> np.ndarray:
    """An array of so many zero bytes, whose pages come when they are written to: large ones from
    the cache, which gives pages back, small ones from the C library, which need not clear what is
    new.

    >>> from adjoint.backends.native.runtime import array_memory as memory
    >>> memory.zeros(3)
    array([0, 0, 0], dtype=uint8)
    """
    run: Any = _contexts.run if size >= block_cache.HUGE else contextvars.Context().run
    return run(np.zeros, size, np.uint8)  # type: ignore[no-any-return]


def memory_stats() -> dict[str, int]:
    """Bytes and counts of large blocks (64 KiB and more) since the process began.

    `allocated` bytes are in arrays now, at most `peak` were; `cached` bytes are kept for reuse, at
    most `limit` may be. Of `requests` blocks, `reuses` came from the cache. A block is up to an
    eighth larger than its array.

    >>> from adjoint.backends.native.runtime import array_memory as memory
    >>> sorted(memory.memory_stats())
    ['allocated', 'cached', 'limit', 'peak', 'requests', 'reuses']
    """
    _cache()  # so that the limit is known
    names = ("allocated", "cached", "limit", "peak", "requests", "reuses")
    return {name: getattr(_STATE, name) for name in names}


def reset_peak() -> None:
    """Begin anew with the greatest number of bytes in arrays."""
    _STATE.peak = _STATE.allocated


def release_memory() -> None:
    """Give all cached memory back to the system.

    >>> from adjoint.backends.native.runtime import array_memory as memory
    >>> memory.release_memory()
    >>> memory.memory_stats()["cached"]
    0
    """
    cache = _cache()
    if cache is not None:
        cache.trim(0)
        ctypes.memset(_STATE.given_up, 0, ctypes.sizeof(_STATE.given_up))
        c_library = ctypes.CDLL(None)
        if hasattr(c_library, "malloc_trim"):  # glibc keeps what is freed, too
            c_library.malloc_trim(ctypes.c_size_t(0))


empty_cache = release_memory  # PyTorch's name


def set_memory_limit(limit: int) -> None:
    """Keep at most `limit` bytes for reuse; 0 turns reuse off.

    Errors: InvalidArgument unless from 0 to 2**62.
    """
    if not 0 <= limit <= 1 << 62:
        raise InvalidArgument(f"set_memory_limit expects 0 to 2**62 bytes, but got {limit}")
    cache = _cache()
    if cache is not None:
        _STATE.limit = limit
        cache.trim(limit)
