"""Threads that run the chunks of a kernel, one loop at a time, without the GIL.

The worker loop is generated machine code (`worker_loop.py`); here are the Python threads that
enter it, and what happens at their start, at a fork and at the end. `docs/threads.md` says why.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

from ....core import fork_safety, policy
from ....core.arrays import call
from ....core.errors import InvalidArgument, InvalidType, Unsupported
from . import object_code, worker_loop
from .cores import default_num_threads

_CHANGES = fork_safety.lock()  # held while threads start or leave, and while the process forks
_POOLS: weakref.WeakSet[Pool] = weakref.WeakSet()
_Work = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
_Ring = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
WORKER = "adjoint-worker-"  # how the names of its threads begin


class Pool:
    """The calling thread and `threads` - 1 workers, which start with the first loop.

    A kernel is a C function `void kernel(int64 begin, int64 end, void *args)` that computes chunks
    begin to end - 1. What it does for a chunk may not depend on which others it is called with.
    It must be safe to call from several threads, and must not fork or raise.

    >>> from adjoint.backends.native.runtime.pool import Pool
    >>> with Pool(2) as pool:
    ...     pool.num_threads
    2
    """

    def __init__(self, threads: int) -> None:
        self.num_threads = _checked(threads)
        """How many threads compute a loop, the calling one among them."""
        self._state = _aligned_state()
        self._address = ctypes.addressof(self._state)
        self._state.spin = int(policy.POOL_SPIN * 1000)
        self._workers: list[threading.Thread] = []
        self._entry: tuple[int, int] | None = None  # where the workers have started
        _POOLS.add(self)

    def run(self, address: int, args: int | bytes, n_chunks: int) -> None:
        """Call a kernel with an address, or with that of a copy of some words, over all chunks;
        return when done.

        Any number of threads may call, kernels too. One caller at a time gets the workers; others
        compute alone, piece by piece, until they are free.
        """
        if type(address) is not int or not address:
            raise InvalidType(f"run expects the address of a kernel, not {address!r}")
        if n_chunks > 0:
            call(address, n_chunks, args, self._entry or self.entry(), False)

    def entry(self) -> tuple[int, int] | None:
        """Addresses of the function that runs loops, and of its first argument; None where there
        are no workers to be had, and loops are serial.

        In C: `void run(void *state, kernel, void *args, int64 n_chunks)`. Both stay as they are
        for this pool's life, in forked children too; there, loops are serial until the next call
        of this method or of `run`.
        """
        return self._entry or self._start()

    def set_num_threads(self, threads: int) -> None:
        """Compute with so many threads from now on; loops that are running end undisturbed.

        Errors: InvalidType unless an int; InvalidArgument unless from 1 to 256.
        """
        threads = _checked(threads)
        with _CHANGES:
            self.num_threads = threads
            started = self._entry is not None
            self._leave(threads)
            self._entry = None
            if started:  # now, for callers that have kept the former entry
                self._start()

    def set_spin(self, microseconds: float) -> None:
        """How long a worker looks out for the next loop before it sleeps.

        Errors: InvalidArgument unless from 0 to a million.
        """
        if not 0 <= microseconds <= 1e6:
            raise InvalidArgument(f"set_spin expects 0 to 1e6 microseconds, but got {microseconds}")
        self._state.spin = int(microseconds * 1000)

    def close(self) -> None:
        """Send the workers home; they come back with the next loop."""
        with _CHANGES:
            self._leave(1)
            self._entry = None

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _start(self) -> tuple[int, int] | None:
        """Starts all workers; returns the new `entry`."""
        with _CHANGES:
            if self._entry is None:
                try:
                    code = worker_loop.code()
                except Unsupported:
                    return None
                self._hire()
                self._entry = code.run, self._address
            return self._entry

    def _hire(self) -> None:
        """Start the workers that are missing, or as many as the system permits."""
        work = _Work(worker_loop.code().work)
        while len(self._workers) + 1 < self.num_threads:
            index = len(self._workers) + 1
            # A worker leaves at once where it is not expected. It keeps the memory.
            self._state.threads = index + 1
            worker = threading.Thread(
                target=_serve,
                args=(work, self._address, index, self._state),
                name=f"{WORKER}{index}",
                daemon=True,
            )
            try:
                worker.start()
            except RuntimeError:  # no more threads, or the interpreter is ending
                self._state.threads = index
                break
            self._workers.append(worker)

    def _leave(self, threads: int, patience: float | None = None) -> None:
        """Stops the workers from number `threads` on, and waits until they have returned."""
        leaving = self._workers[threads - 1 :]
        if leaving:
            del self._workers[threads - 1 :]
            self._state.threads = threads
            _Ring(worker_loop.code().ring)(self._address)
            for worker in leaving:
                worker.join(patience)

    def _forget(self) -> None:
        """Resets the pool in a forked child: there are no workers, and no loop is running."""
        spin = self._state.spin
        ctypes.memset(self._address, 0, ctypes.sizeof(self._state))
        self._state.spin = spin
        self._workers = []
        self._entry = None


def _aligned_state() -> worker_loop.WorkerLoopState:
    """A zeroed state whose fields lie on cache lines as declared."""
    line = ctypes.sizeof(worker_loop.Share)
    room = bytearray(ctypes.sizeof(worker_loop.WorkerLoopState) + line)
    start = ctypes.addressof(ctypes.c_char.from_buffer(room))
    return worker_loop.WorkerLoopState.from_buffer(room, -start % line)


def _serve(work: Callable[..., None], address: int, index: int, memory: Any) -> None:
    """Body of a worker's Python thread: `memory` is held for as long as it runs."""
    work(address, index)


@functools.cache
def default_pool() -> Pool:
    """The pool that eager execution uses, made on first use with `default_num_threads()`.

    >>> from adjoint.backends.native.runtime import pool
    >>> pool.default_pool().num_threads >= 1
    True
    """
    return Pool(min(default_num_threads(), worker_loop.MAX_THREADS))


def run(address: int, args: int | bytes, n_chunks: int) -> None:
    """`default_pool().run`."""
    default_pool().run(address, args, n_chunks)


@functools.cache
def library_loop(function_pointer: int, n_arguments: int) -> int:
    """Address of a kernel that calls a C function once per chunk, with the GIL released.

    Chunk i has a record of `n_arguments` + 1 64-bit words, at args + 8 * (n_arguments + 1) * i: the
    arguments (pointers, and integers of any width), and a word which gets the function's int
    result. The function must be safe to call from several threads at a time.

    Errors: InvalidArgument for a null pointer or a negative number of arguments; Unsupported
    without llvmlite.

    >>> import ctypes
    >>> from adjoint.backends.native.runtime import pool
    >>> absolute = ctypes.cast(ctypes.CDLL(None).abs, ctypes.c_void_p).value
    >>> records = np.array([[-3, 0], [5, 0], [-8, 0]], np.int64)
    >>> pool.run(pool.library_loop(absolute, 1), records.ctypes.data, len(records))
    >>> records[:, 1].tolist()
    [3, 5, 8]
    """
    if not function_pointer or n_arguments < 0:
        raise InvalidArgument(
            f"library_loop: no function at {function_pointer}, or {n_arguments} arguments"
        )
    text = worker_loop.library_call(function_pointer, n_arguments)
    return object_code.of_text(text, ["loop"])[0]


def _checked(threads: int) -> int:
    if not isinstance(threads, int) or isinstance(threads, bool):
        raise InvalidType(f"the number of threads must be an int, not {type(threads).__name__}")
    if not 1 <= threads <= worker_loop.MAX_THREADS:
        raise InvalidArgument(
            f"the number of threads must be from 1 to {worker_loop.MAX_THREADS}, not {threads}"
        )
    return threads


def _after_fork_in_child() -> None:
    for pool in list(_POOLS):
        pool._forget()


def _at_exit() -> None:
    """Workers may not outlive the interpreter's ability to end their threads."""
    with _CHANGES:
        for pool in list(_POOLS):
            pool._leave(1, patience=1.0)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_at_exit)
