"""Memory planning: offsets of intermediate values in one arena, by liveness; and placeholder arrays
for values whose memory is not known yet, each at an address that nobody touches.
"""

from __future__ import annotations

import mmap
from bisect import insort
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...core import policy
from ...core.errors import OutOfMemoryError
from ...core.spec import prod

ALIGNMENT = 64  # bytes: a cache line


class Buffer(NamedTuple):
    """A block of memory that is live from step `begin` to step `end`, both included."""

    size: int
    begin: int
    end: int
    rows: int = 0  # by which threads share it in a parallel section; 0: each needs all of it


class ArenaLayout(NamedTuple):
    """An offset for each buffer, and the size of the arena."""

    offsets: tuple[int, ...]
    size: int


class Nowhere:
    """Allocator of placeholder arrays, which stand for others by shape, strides and sharing of
    memory. Together they may be many times larger than the machine's memory, so they are pages that
    are never touched; an ordinary allocator would write beside each, or reuse memory that was
    written.
    """

    def __init__(self, least: int = policy.ADDRESSES) -> None:
        """`least`: bytes of address space that are reserved at once."""
        self._least = least
        self._pages: Any = b""
        self._taken = 0

    def array(self, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
        """A row-major array that shares memory with no other, and that NumPy takes for the owner of
        its memory.

        >>> Nowhere().array((2, 3), np.dtype(np.float32)).strides
        (12, 4)
        """
        size = prod(shape) * dtype.itemsize
        needed = aligned(max(size, 1))
        if self._taken + needed > len(self._pages):
            try:
                self._pages = mmap.mmap(-1, max(needed, self._least), **_PRIVATE)
            except OSError as error:
                raise OutOfMemoryError(f"compile: no address space for {needed} bytes") from error
            self._taken = 0
        raw = np.frombuffer(self._pages, np.uint8, size, self._taken)
        self._taken += needed
        return raw.view(dtype).reshape(shape)


# Private mappings: shared ones would be counted as committed memory.
_PRIVATE: dict[str, int] = (
    {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
)


def placeholders(like: Iterable[tuple[Sequence[int], Any]]) -> list[Any]:
    """Row-major arrays of zeros with these shapes and dtypes, to which calls are bound before their
    buffers are known. They take memory only where somebody writes to them.

    >>> [x] = placeholders([((2, 3), np.dtype(np.float32))])
    >>> x.any()
    np.False_
    """
    listed = list(like)
    nowhere = Nowhere(sum(aligned(max(1, prod(shape) * dtype.itemsize)) for shape, dtype in listed))
    return [nowhere.array(shape, dtype) for shape, dtype in listed]


def aligned(size: int) -> int:
    """A size rounded up to a multiple of a cache line."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def plan(
    buffers: Sequence[Buffer], stretches: Sequence[range] = (), waves: Sequence[range] = ()
) -> ArenaLayout:
    """Assign offsets such that buffers that are live at the same time do not overlap.

    The largest are placed first, each into the smallest gap that holds it. In a stretch or a wave
    of steps threads are not all at the same one (see `barrier_free.py`). A buffer that ends in one
    is live up to its last step; only a buffer of the same stretch, of as many bytes and rows, may
    take its place before that.

    Source: https://arxiv.org/abs/2001.03288 (greedy by size)

    >>> from adjoint.compiler.schedule.buffers import Buffer, plan
    >>> plan([Buffer(64, 0, 1), Buffer(128, 1, 2), Buffer(64, 2, 3)])
    ArenaLayout(offsets=(128, 0, 128), size=192)
    >>> plan([Buffer(64, 0, 1, 4), Buffer(128, 1, 2, 4), Buffer(64, 2, 3, 4)], [range(4)])
    ArenaLayout(offsets=(128, 0, 128), size=192)
    >>> plan([Buffer(128, 0, 1, 4), Buffer(256, 1, 2, 4), Buffer(64, 2, 3, 4)], [range(4)])
    ArenaLayout(offsets=(256, 0, 384), size=448)
    """
    if not (stretches or waves):
        return _plan(buffers)
    of = {step: each for each in (*stretches, *waves) for step in each}
    merged: list[Buffer] = []
    free: dict[tuple[Any, ...], list[tuple[int, int]]] = {}  # end and number of ended buffers
    homes = [0] * len(buffers)  # for each buffer, the number of the one in `merged` it lies in
    for i in sorted(range(len(buffers)), key=lambda i: buffers[i].begin):
        own = buffers[i]
        begun, ended = of.get(own.begin), of.get(own.end)
        earlier = free.get((own.size, own.rows, begun), [])
        reused = next((k for k, (end, _) in enumerate(earlier) if end < own.begin), None)
        last = own.end if ended is None else ended[-1]
        if reused is None:
            home = len(merged)
            merged.append(Buffer(own.size, own.begin, last))
        else:
            home = earlier.pop(reused)[1]
            merged[home] = merged[home]._replace(end=max(merged[home].end, last))
        homes[i] = home
        if own.rows and ended in stretches:
            free.setdefault((own.size, own.rows, ended), []).append((own.end, home))
    layout = _plan(merged)
    return ArenaLayout(tuple(layout.offsets[home] for home in homes), layout.size)


def _plan(buffers: Sequence[Buffer]) -> ArenaLayout:
    offsets = [0] * len(buffers)
    placed: list[tuple[int, int, int, int]] = []  # begin, end, first and last step, sorted
    total = 0
    for i in sorted(range(len(buffers)), key=lambda i: -buffers[i].size):
        own = buffers[i]
        size, first, last = aligned(own.size), own.begin, own.end
        best: tuple[int, int] | None = None  # size of the gap, where it begins
        reached = 0
        for begin, end, since, until in placed:
            if since <= last and first <= until:
                gap = begin - reached
                if gap >= size and (best is None or gap < best[0]):
                    best = gap, reached
                if end > reached:
                    reached = end
        offsets[i] = reached if best is None else best[1]
        insort(placed, (offsets[i], offsets[i] + size, first, last))
        total = max(total, offsets[i] + size)
    return ArenaLayout(tuple(offsets), total)
