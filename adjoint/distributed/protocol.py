"""The protocol that engines of communication serve."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from .work import Pending

__all__ = ["ReduceOp"]


class ReduceOp(enum.Enum):
    """Reduction of the ranks' numbers to one.

    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.ReduceOp

    >>> ad.distributed.ReduceOp.SUM
    <ReduceOp.SUM: 'SUM'>
    """

    SUM = "SUM"
    AVG = "AVG"
    PRODUCT = "PRODUCT"
    MIN = "MIN"
    MAX = "MAX"
    BAND = "BAND"
    BOR = "BOR"
    BXOR = "BXOR"


ReduceOp.RedOpType = ReduceOp  # type: ignore[attr-defined] # PyTorch's name of its values' type


class Agreement(Pending, Protocol):
    """A question to all ranks that is under way."""

    def answer(self) -> bool | None:
        """The answer, equal on all ranks that live: whether all agree; None where one has died."""


class Survival(Protocol):
    """An engine's operations after a rank has died."""

    def agree(self, flag: bool) -> Agreement:
        """Ask all ranks whether all say so."""

    def shrunk(self, seconds: float) -> tuple[Engine, list[int]]:
        """The engine of the ranks that live, which all call this, and their ranks in this one."""


class Engine(Protocol):
    """Transport of buffers between the ranks of one group.

    A buffer is a NumPy array of one dimension without gaps, which must stay as it is until the
    operation is done. All ranks begin the same operations in the same order. `op` is no AVG, and
    of a kind that `reduces` says of the dtype.
    """

    name: str
    rank: int
    size: int

    def reduces(self, dtype: np.dtype, op: ReduceOp) -> bool:
        """Whether numbers of this dtype can be reduced so."""

    def all_reduce(self, buffer: Any, op: ReduceOp) -> Pending:
        """Reduces the buffers of all ranks; each rank gets the result."""

    def reduce(self, buffer: Any, root: int, op: ReduceOp) -> Pending:
        """Reduces the buffers of all ranks; the root gets the result, the other buffers' values are
        undefined.
        """

    def broadcast(self, buffer: Any, root: int) -> Pending:
        """All ranks get the root's buffer."""

    def all_gather(self, out: Any, buffer: Any) -> Pending:
        """All ranks get all buffers, in order."""

    def gather(self, out: Any, buffer: Any, root: int) -> Pending:
        """The root gets them (`out` is None elsewhere)."""

    def scatter(self, out: Any, buffer: Any, root: int) -> Pending:
        """Each rank gets its part of the root's buffer (None elsewhere)."""

    def reduce_scatter(self, out: Any, buffer: Any, op: ReduceOp) -> Pending:
        """Each rank gets its part of what all buffers become."""

    def all_to_all(
        self, out: Any, buffer: Any, out_counts: Sequence[int], counts: Sequence[int]
    ) -> Pending:
        """Each rank gets from each other one its part of that one's buffer."""

    def send(self, buffer: Any, to: int, tag: int) -> Pending:
        """Send to one rank."""

    def receive(self, buffer: Any, source: int | None, tag: int) -> Pending:
        """Receive from one rank, or from any."""

    def barrier(self) -> Pending:
        """Wait for all ranks."""

    def part(self, ranks: Sequence[int], number: int, seconds: float) -> Engine | None:
        """The engine of some ranks, the group's `number`-th; None for a rank outside."""

    def survival(self) -> Survival | None:
        """Operations by which the ranks that live go on without a dead one; None where the engine
        has none.
        """

    def silent(self) -> list[int]:
        """The ranks that, after a failure, do not answer within a second."""

    def close(self) -> None:
        """The group is not needed any more, on any rank."""

    def end(self, seconds: float) -> None:
        """The process ends: leave for good, within this time."""
