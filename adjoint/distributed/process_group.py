"""A group of processes, who is in it, and the state of this process."""

from __future__ import annotations

import enum
import os
import socket
import time
from collections.abc import Sequence

import numpy as np

from ..core import debug
from ..core.errors import DistributedError, InvalidArgument
from .protocol import Engine
from .work import Work

__all__ = ["DebugLevel", "ProcessGroup"]


class ProcessGroup:
    """Ranks that communicate, by an engine.

    Source: https://docs.pytorch.org/docs/stable/distributed.html#groups

    >>> ad.distributed.init_process_group("fake", rank=3, world_size=4096)
    >>> world = ad.distributed.group.WORLD
    >>> world.rank(), world.size(), world.name()
    (3, 4096, 'fake')
    >>> ad.distributed.destroy_process_group()
    """

    def __init__(
        self, engine: Engine, ranks: Sequence[int], seconds: float, peers: list[Peer]
    ) -> None:
        self.engine = engine
        self.peers = peers  # where the ranks run
        self.ranks = ranks  # in the world, by the rank in this group
        self.seconds = seconds  # how long a wait may take
        self.failure = ""  # why it is unusable
        self.replaced = False  # the ranks that live have another: what belongs to it rests
        self.calls = 0  # of collectives

    def rank(self) -> int:
        """This process's rank in the group."""
        return self.engine.rank

    def size(self) -> int:
        """Number of ranks in the group."""
        return self.engine.size

    def name(self) -> str:
        """The engine's name."""
        return self.engine.name

    def __repr__(self) -> str:
        return f"<ProcessGroup {self.name()}: rank {self.rank()} of {self.size()}>"

    def place(self, rank: int, name: str) -> int:
        """The rank in this group of one in the world.

        Errors: InvalidArgument where it is none of the group's.
        """
        ranks = self.ranks
        if isinstance(rank, int) and not isinstance(rank, bool):
            if isinstance(ranks, range):
                if rank in ranks:
                    return rank
            elif rank in ranks:
                return list(ranks).index(rank)
        raise InvalidArgument(
            f"{name}: rank {rank!r} is not part of the group; its ranks are {shown(ranks)}"
        )

    def assert_usable(self, what: str) -> None:
        """Refuse an operation of a group that has failed or was destroyed."""
        if self.failure:
            raise DistributedError(f"{what}: the group is unusable: {self.failure}")

    def failed(self, what: str, why: str) -> DistributedError:
        """The error of an operation that did not end; the group is unusable from now on."""
        if not self.failure:
            why = why.strip().partition("\n")[0]
            self.failure = (
                f"{what} (rank {int(self.ranks[self.rank()])} of {self.size()} by "
                f"{self.name()}) did not end: {self._culprits()} ({why})"
            )
            _State.failed = True
        return DistributedError(
            f"{self.failure}. This process must end: its group cannot be used again; "
            "ADJOINT_DEBUG=collectives compares what the ranks do before each operation"
        )

    def _culprits(self) -> str:
        """Names the ranks that keep the others waiting: those dead or stopped on this machine, or,
        if there are none, those that do not answer.
        """
        for _ in range(_LOOKS):
            ill = [
                (self.ranks[i], state)
                for i, peer in enumerate(self.peers)
                if (state := peer.state())
            ]
            if ill:
                return "; ".join(f"rank {rank} {state}" for rank, state in ill[:16])
            time.sleep(0.02)
        try:
            silent = [int(self.ranks[r]) for r in self.engine.silent() if r != self.rank()]
        except DistributedError as error:
            return str(error)
        if silent:
            return f"{named(silent)} not answer"
        return "all ranks answer, so they are in different operations"

    def lost(self) -> bool:
        """Whether a rank on this machine is dead."""
        return any(peer.state().startswith("is dead") for peer in self.peers)

    def compare(self, what: str) -> None:
        """Checks, in debug mode, that all ranks are about to do the same."""
        self.calls += 1
        if _State.level is not DebugLevel.DETAIL or self.size() == 1:
            return
        text = f"{what} (its operation {self.calls})".encode()[:_TEXT].ljust(_TEXT, b"\0")
        mine = np.frombuffer(text, np.uint8).copy()
        everyones = np.zeros(self.size() * _TEXT, np.uint8)
        Work(
            self, f"{what}: the comparison before it", self.engine.all_gather(everyones, mine)
        ).wait()
        said: dict[str, list[int]] = {}
        for i, row in enumerate(everyones.reshape(-1, _TEXT)):
            words = row.tobytes().rstrip(b"\0").decode(errors="replace")
            said.setdefault(words, []).append(int(self.ranks[i]))
        if len(said) > 1:
            sides = "; ".join(f"{named(ranks)} {words}" for words, ranks in said.items())
            self.failure = f"the ranks' operations differ: {sides}"
            raise DistributedError(
                f"{self.failure}. All ranks must call the same operations in the same order with "
                "the same shapes and dtypes"
            )


class Peer:
    """Machine and process in which a rank runs."""

    def __init__(self, text: str) -> None:
        self.machine, _, pid = text.rpartition(" ")
        self.pid = int(pid)
        self.near = bool(self.machine) and self.machine == _machine()

    def state(self) -> str:
        """Reason why the rank does not answer, where that can be seen from here; "" otherwise."""
        if not self.near:
            return ""
        try:
            with open(f"/proc/{self.pid}/stat") as file:
                letter = file.read().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            letter = "X"
        if letter in "ZX":
            return f"is dead (process {self.pid} on this machine)"
        return f"is stopped (process {self.pid} on this machine)" if letter in "Tt" else ""


def _machine() -> str:
    """Identifier of the machine, or container; "" where processes cannot be inspected."""
    try:
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _met(engine: Engine, seconds: float) -> list[Peer]:
    """Exchanges where the ranks run: the first message between them."""
    if engine.name == "fake":
        return []
    text = f"{_machine()} {os.getpid()}".encode()[-_TEXT:].rjust(_TEXT)
    everyones = np.zeros(engine.size * _TEXT, np.uint8)
    if not engine.all_gather(everyones, np.frombuffer(text, np.uint8).copy()).wait(seconds):
        raise DistributedError(
            f"init_process_group: not all of {engine.size} ranks have come within {seconds:g} s"
        )
    return [Peer(row.tobytes().decode().strip()) for row in everyones.reshape(-1, _TEXT)]


_LOOKS = 15  # a process that is being killed is seen to be dead a little after its connections
_TEXT = 192  # bytes in which a rank says what it is about to do


def shown(ranks: Sequence[int]) -> str:
    """Ranks for a message: not all of many."""
    if len(ranks) <= 16:
        return str(list(ranks))
    return f"{list(ranks[:8])} and {len(ranks) - 8} more, up to {max(ranks)}"


def named(ranks: list[int]) -> str:
    """The start of a sentence about ranks."""
    return f"rank {ranks[0]} does" if len(ranks) == 1 else f"ranks {shown(ranks)} do"


class DebugLevel(enum.Enum):
    """Whether collectives are compared before they run (DETAIL).

    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch-distributed-debug

    >>> ad.distributed.get_debug_level()
    <DebugLevel.OFF: 0>
    """

    OFF = 0
    INFO = 1
    DETAIL = 2


class _State:
    """Distributed state of the process, of which there is one."""

    world: ProcessGroup | None = None
    groups: list[ProcessGroup] = []  # noqa: RUF012 - the process's
    ends: list[tuple[Engine, float]] = []  # noqa: RUF012 - likewise; to be ended with the process
    made: int = 0  # groups of some ranks so far: all ranks count alike
    failed: bool = False
    level: DebugLevel = DebugLevel.DETAIL if "collectives" in debug.on else DebugLevel.OFF
    watched: bool = False  # `leave` runs when the process ends
