"""One chosen rank of a world that is not there; with one rank, the world of a plain program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..group import ReduceOp, Survival
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
        """All there are."""
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
        """What so many equal buffers become."""
        self._reduced(buffer, op)
        return self._count("all_reduce", buffer)

    def reduce(self, buffer: Any, root: int, op: ReduceOp) -> Pending:
        """Likewise, at the root."""
        if root == self.rank:
            self._reduced(buffer, op)
        return self._count("reduce", buffer)

    def broadcast(self, buffer: Any, root: int) -> Pending:
        """The root's buffer is as this one."""
        return self._count("broadcast", buffer)

    def all_gather(self, out: Any, buffer: Any) -> Pending:
        """All are as this one."""
        out.reshape(self.size, -1)[...] = buffer
        return self._count("all_gather", buffer)

    def gather(self, out: Any, buffer: Any, root: int) -> Pending:
        """Likewise, at the root."""
        if out is not None:
            out.reshape(self.size, -1)[...] = buffer
        return self._count("gather", buffer)

    def scatter(self, out: Any, buffer: Any, root: int) -> Pending:
        """This rank's part where it is the root; else nothing is known."""
        if buffer is not None:
            out[...] = buffer.reshape(self.size, -1)[self.rank]
        return self._count("scatter", out)

    def reduce_scatter(self, out: Any, buffer: Any, op: ReduceOp) -> Pending:
        """This rank's part of what equal buffers become."""
        out[...] = buffer.reshape(self.size, -1)[self.rank]
        self._reduced(out, op)
        return self._count("reduce_scatter", buffer)

    def all_to_all(
        self, out: Any, buffer: Any, out_counts: Sequence[int], counts: Sequence[int]
    ) -> Pending:
        """What the others would send is this rank's part for itself, as far as it reaches."""
        start = sum(counts[: self.rank])
        mine = buffer[start : start + counts[self.rank]]
        if len(set(out_counts)) == 1 and out_counts[0] == mine.size:
            out.reshape(self.size, -1)[...] = mine
        elif mine.size:
            out[...] = np.resize(mine, out.size)
        return self._count("all_to_all", buffer)

    def send(self, buffer: Any, to: int, tag: int) -> Pending:
        """Nobody gets it."""
        return self._count("send", buffer)

    def receive(self, buffer: Any, source: int | None, tag: int) -> Pending:
        """The buffer stays as it is."""
        self._count("receive", buffer)
        return Done(0 if source is None else source)

    def barrier(self) -> Pending:
        """Everybody is there."""
        return self._count("barrier", None)

    def part(self, ranks: Sequence[int], number: int, seconds: float) -> Fake | None:
        """Another such world."""
        return Fake(list(ranks).index(self.rank), len(ranks)) if self.rank in ranks else None

    def survival(self) -> Survival | None:
        """Nobody dies."""
        return None

    def silent(self) -> list[int]:
        """Nobody is silent."""
        return []

    def close(self) -> None:
        """Nothing is open."""

    def end(self, seconds: float) -> None:
        """Nothing is open."""
