"""Engine of one chosen rank of a world that is not there; with one rank, the world of a plain
program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..protocol import ReduceOp, Survival
from ..work import Done, Pending

DONE = Done()


class Fake:
    """Operations that are done at once, as if all ranks held what this one holds.

    `calls` and `bytes` count, by operation, what this rank would have taken part in.
    """

    name = "fake"

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size
        self.calls: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()

    def _count(self, name: str, buffer: Any) -> Pending:
        self.calls[name] += 1
        self.bytes[name] += 0 if buffer is None else buffer.nbytes
        return DONE

    def reduces(self, dtype: np.dtype, op: ReduceOp) -> bool:
        """True: all dtypes and operations."""
        return True

    def _reduced(self, buffer: Any, op: ReduceOp) -> None:
        n = self.size
        if n == 1:
            return
        if op is ReduceOp.SUM:
            buffer *= buffer.dtype.type(n)
        elif op is ReduceOp.PRODUCT:
            buffer **= buffer.dtype.type(n)
        elif op is ReduceOp.BXOR and n % 2 == 0:
            buffer[...] = 0

    def all_reduce(self, buffer: Any, op: ReduceOp) -> Pending:
        """Reduces `size` buffers that are all equal to this one."""
        self._reduced(buffer, op)
        return self._count("all_reduce", buffer)

    def reduce(self, buffer: Any, root: int, op: ReduceOp) -> Pending:
        """Reduces `size` equal buffers, at the root."""
        if root == self.rank:
            self._reduced(buffer, op)
        return self._count("reduce", buffer)

    def broadcast(self, buffer: Any, root: int) -> Pending:
        """Leaves the buffer as it is: the root's is equal."""
        return self._count("broadcast", buffer)

    def all_gather(self, out: Any, buffer: Any) -> Pending:
        """Fills `out` with copies of this buffer, as all ranks' are equal."""
        out.reshape(self.size, -1)[...] = buffer
        return self._count("all_gather", buffer)

    def gather(self, out: Any, buffer: Any, root: int) -> Pending:
        """Fills `out` with copies of this buffer, at the root."""
        if out is not None:
            out.reshape(self.size, -1)[...] = buffer
        return self._count("gather", buffer)

    def scatter(self, out: Any, buffer: Any, root: int) -> Pending:
        """Copies this rank's part where it is the root; elsewhere `out` stays as it is."""
        if buffer is not None:
            out[...] = buffer.reshape(self.size, -1)[self.rank]
        return self._count("scatter", out)

    def reduce_scatter(self, out: Any, buffer: Any, op: ReduceOp) -> Pending:
        """Reduces equal buffers; `out` gets this rank's part."""
        out[...] = buffer.reshape(self.size, -1)[self.rank]
        self._reduced(out, op)
        return self._count("reduce_scatter", buffer)

    def all_to_all(
        self, out: Any, buffer: Any, out_counts: Sequence[int], counts: Sequence[int]
    ) -> Pending:
        """Fills `out` with this rank's part for itself, as far as that reaches: the others would
        send the same.
        """
        start = sum(counts[: self.rank])
        mine = buffer[start : start + counts[self.rank]]
        if len(set(out_counts)) == 1 and out_counts[0] == mine.size:
            out.reshape(self.size, -1)[...] = mine
        elif mine.size:
            out[...] = np.resize(mine, out.size)
        return self._count("all_to_all", buffer)

    def send(self, buffer: Any, to: int, tag: int) -> Pending:
        """Counts the call; nobody receives the buffer."""
        return self._count("send", buffer)

    def receive(self, buffer: Any, source: int | None, tag: int) -> Pending:
        """Counts the call; the buffer stays as it is."""
        self._count("receive", buffer)
        return Done(0 if source is None else source)

    def barrier(self) -> Pending:
        """Counts the call; there is nobody to wait for."""
        return self._count("barrier", None)

    def part(self, ranks: Sequence[int], number: int, seconds: float) -> Fake | None:
        """A fake world of the given ranks."""
        return Fake(list(ranks).index(self.rank), len(ranks)) if self.rank in ranks else None

    def survival(self) -> Survival | None:
        """None: no rank dies."""
        return None

    def silent(self) -> list[int]:
        """An empty list: no rank is silent."""
        return []

    def close(self) -> None:
        """Nothing to do: no connection is open."""

    def end(self, seconds: float) -> None:
        """Nothing to do: no connection is open."""
