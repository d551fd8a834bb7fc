"""Where intermediate values lie: offsets in one arena, which values share one after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

ALIGNMENT = 64  # bytes: a cache line


class Buffer(NamedTuple):
    """Memory that is needed from one step to another, both included."""

    size: int
    begin: int
    end: int


class Layout(NamedTuple):
    """An offset for each buffer, and the size of the arena that holds them."""

    offsets: tuple[int, ...]
    size: int


def aligned(size: int) -> int:
    """The next multiple of a cache line."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def plan(buffers: Sequence[Buffer]) -> Layout:
    """Offsets, so that buffers which are needed at the same time do not overlap.

    The largest are placed first, each into the smallest gap that holds it.

    Source: https://arxiv.org/abs/2001.03288 (greedy by size)

    >>> from adjoint.inference.buffers import Buffer, plan
    >>> plan([Buffer(64, 0, 1), Buffer(128, 1, 2), Buffer(64, 2, 3)])
    Layout(offsets=(128, 0, 128), size=192)
    """
    offsets = [0] * len(buffers)
    placed: list[int] = []
    total = 0
    for i in sorted(range(len(buffers)), key=lambda i: -buffers[i].size):
        own = buffers[i]
        taken = sorted(
            (offsets[j], offsets[j] + aligned(buffers[j].size))
            for j in placed
            if buffers[j].begin <= own.end and own.begin <= buffers[j].end
        )
        size = aligned(own.size)
        best: tuple[int, int] | None = None  # size of the gap, where it begins
        reached = 0
        for begin, end in taken:
            gap = begin - reached
            if gap >= size and (best is None or gap < best[0]):
                best = gap, reached
            reached = max(reached, end)
        offsets[i] = reached if best is None else best[1]
        placed.append(i)
        total = max(total, offsets[i] + size)
    return Layout(tuple(offsets), total)
