"""Where intermediate values lie: offsets in one arena, which values share one after another; and
where they lie before that is known, each at an address of its own, in memory that nobody touches.
"""

from __future__ import annotations

import mmap
from bisect import insort
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..core import policy
from ..core.spec import prod

ALIGNMENT = 64  # bytes: a cache line


class Buffer(NamedTuple):
    """Memory that is needed from one step to another, both included."""

    size: int
    begin: int
    end: int
    rows: int = 0  # in which threads share it, in a stretch; 0: everyone needs all of it


class Layout(NamedTuple):
    """An offset for each buffer, and the size of the arena that holds them."""

    offsets: tuple[int, ...]
    size: int


class Nowhere:
    """Arrays that stand for others, by shape, strides and whose memory they show: all together may
    be many times what the machine has. An allocator would write beside each, or give what it has
    written before.
    """

    def __init__(self, least: int = policy.ADDRESSES) -> None:
        """`least`: bytes of addresses that are taken at once."""
        self._least = least
        self._pages: Any = b""
        self._taken = 0

    def array(self, shape: Sequence[int], dtype: Any) -> Any:
        """A row-major array apart from all others, which owns its memory as far as arrays know.

        >>> Nowhere().array((2, 3), np.dtype(np.float32)).strides
        (12, 4)
        """
        size = prod(shape) * dtype.itemsize
        needed = aligned(max(size, 1))
        if self._taken + needed > len(self._pages):
            self._pages = mmap.mmap(-1, max(needed, self._least), **_PRIVATE)
            self._taken = 0
        found = np.frombuffer(self._pages, np.uint8, size, self._taken)
        self._taken += needed
        return found.view(dtype).reshape(shape)


# Of its own: what processes share would count as memory that is wanted.
_PRIVATE: dict[str, int] = (
    {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
)


def placeholders(like: Iterable[tuple[Sequence[int], Any]]) -> list[Any]:
    """A row-major array of zeros for each shape and dtype, to which calls are bound that are to use
    others: a page of its memory is taken when somebody writes there.

    >>> [x] = placeholders([((2, 3), np.dtype(np.float32))])
    >>> x.any()
    np.False_
    """
    listed = list(like)
    nowhere = Nowhere(sum(aligned(max(1, prod(shape) * dtype.itemsize)) for shape, dtype in listed))
    return [nowhere.array(shape, dtype) for shape, dtype in listed]


def aligned(size: int) -> int:
    """The next multiple of a cache line."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def plan(
    buffers: Sequence[Buffer], stretches: Sequence[range] = (), waves: Sequence[range] = ()
) -> Layout:
    """Offsets, so that buffers which are needed at the same time do not overlap.

    The largest are placed first, each into the smallest gap that holds it. In a stretch or a wave
    of steps threads are not all at the same one (see `rows.py`): what ends in one is needed up to
    its last step, but that another buffer of a stretch with as many bytes and rows may take its
    place.

    Source: https://arxiv.org/abs/2001.03288 (greedy by size)

    >>> from adjoint.inference.buffers import Buffer, plan
    >>> plan([Buffer(64, 0, 1), Buffer(128, 1, 2), Buffer(64, 2, 3)])
    Layout(offsets=(128, 0, 128), size=192)
    >>> plan([Buffer(64, 0, 1, 4), Buffer(128, 1, 2, 4), Buffer(64, 2, 3, 4)], [range(4)])
    Layout(offsets=(128, 0, 128), size=192)
    >>> plan([Buffer(128, 0, 1, 4), Buffer(256, 1, 2, 4), Buffer(64, 2, 3, 4)], [range(4)])
    Layout(offsets=(256, 0, 384), size=448)
    """
    if not (stretches or waves):
        return _plan(buffers)
    of = {step: each for each in (*stretches, *waves) for step in each}
    found: list[Buffer] = []
    free: dict[tuple[Any, ...], list[tuple[int, int]]] = {}  # when something has ended, and where
    places = [0] * len(buffers)  # of each buffer, which of `found` it lies in
    for i in sorted(range(len(buffers)), key=lambda i: buffers[i].begin):
        own = buffers[i]
        begun, ended = of.get(own.begin), of.get(own.end)
        earlier = free.get((own.size, own.rows, begun), [])
        place = next((k for k, (end, _) in enumerate(earlier) if end < own.begin), None)
        last = own.end if ended is None else ended[-1]
        if place is None:
            home = len(found)
            found.append(Buffer(own.size, own.begin, last))
        else:
            home = earlier.pop(place)[1]
            found[home] = found[home]._replace(end=max(found[home].end, last))
        places[i] = home
        if own.rows and ended in stretches:
            free.setdefault((own.size, own.rows, ended), []).append((own.end, home))
    layout = _plan(found)
    return Layout(tuple(layout.offsets[home] for home in places), layout.size)


def _plan(buffers: Sequence[Buffer]) -> Layout:
    offsets = [0] * len(buffers)
    placed: list[tuple[int, int, int, int]] = []  # where they begin and end, and when, in order
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
    return Layout(tuple(offsets), total)
