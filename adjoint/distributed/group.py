"""Groups of processes: how they are made, which there are, and which engine serves them."""

from __future__ import annotations

import atexit
import os
import sys
import warnings
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar

from ..backends.threads import get_num_threads, set_num_threads
from ..core import config
from ..core.errors import DistributedError, InvalidArgument, Unsupported
from ..runtime.public import naming
from .process_group import DebugLevel, ProcessGroup, _met, _State, shown
from .process_group import Peer as Peer
from .protocol import Agreement as Agreement
from .protocol import Engine as Engine
from .protocol import ReduceOp
from .protocol import Survival as Survival
from .store import Store
from .work import Work, seconds_of

__all__ = [
    "Backend", "DebugLevel", "GroupMember", "ProcessGroup", "ReduceOp", "default_pg_timeout",
    "destroy_process_group", "get_backend", "get_debug_level", "get_global_rank", "get_group_rank",
    "get_node_local_rank", "get_process_group_ranks", "get_rank", "get_world_size", "group",
    "init_process_group", "is_available", "is_gloo_available", "is_initialized",
    "is_mpi_available", "is_nccl_available", "is_torchelastic_launched", "new_group",
    "set_debug_level",
]  # fmt: skip

default_pg_timeout = timedelta(minutes=10)


class _Groups:
    """PyTorch's `group`: where the default one is found."""

    @property
    def WORLD(self) -> ProcessGroup | None:  # noqa: N802 - PyTorch's name
        """The group of all ranks; None before `init_process_group`."""
        return _State.world


group = _Groups()


class GroupMember:
    """Placeholder, under PyTorch's name, for a group that this process is no member of."""

    NON_GROUP_MEMBER = -100


class Backend(str):
    """PyTorch's names of engines.

    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.Backend

    >>> ad.distributed.Backend.GLOO
    'gloo'
    """

    __slots__ = ()
    GLOO = "gloo"
    NCCL = "nccl"
    MPI = "mpi"
    FAKE = "fake"

    default_device_backend_map: ClassVar[dict[str, str]] = {  # which carries a device's tensors
        "cpu": GLOO, "cuda": NCCL, "mps": GLOO,
    }  # fmt: skip
    backend_list: ClassVar[list[str]] = [GLOO, NCCL, MPI, FAKE]


# ---- which group there is ------------------------------------------------------------------------


def is_available() -> bool:
    """Whether this package can be used: True.

    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.is_available

    >>> ad.distributed.is_available()
    True
    """
    return True


def _installed(name: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(name) is not None


def is_gloo_available() -> bool:
    """Whether the engine `gloo` is there: torch is installed, and is PyTorch.

    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.is_gloo_available
    """
    return config.CALLED != "torch" and _installed("torch")


def is_mpi_available() -> bool:
    """Whether the engine `mpi` is there: mpi4py is installed.

    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.is_mpi_available
    """
    return _installed("mpi4py")


def is_nccl_available() -> bool:
    """Whether the engine `nccl` is there: no.

    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.is_nccl_available
    """
    return False


def is_torchelastic_launched() -> bool:
    """Whether torchrun has started this process.

    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.is_torchelastic_launched
    """
    return "TORCHELASTIC_RUN_ID" in os.environ


def is_initialized() -> bool:
    """Whether there is a default group.

    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.is_initialized

    >>> ad.distributed.is_initialized()
    False
    """
    return _State.world is not None


@naming
def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | float | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Any = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
) -> None:
    """Make the group of all ranks.

    Who they are says the environment of `adjoint run`, torchrun or mpiexec; a plain
    `python script.py` is a world of one rank. `backend` is "mpi" (mpi4py), "gloo" (torch) or
    "fake" (one chosen rank of a world that is not there: shapes are right, messages are counted,
    values are what they would be if all ranks were alike); without it, what started this process
    decides. No wait takes longer than `timeout` (10 minutes).

    Each rank gets its share of the machine's cores, unless ADJOINT_NUM_THREADS says how many.

    Errors: Unsupported where the engine is not installed, DistributedError where the other ranks do
        not come, or there is a group already.
    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.init_process_group

    >>> ad.distributed.init_process_group()
    >>> ad.distributed.get_rank(), ad.distributed.get_world_size()
    (0, 1)
    >>> ad.distributed.destroy_process_group()
    """
    if _State.world is not None:
        raise DistributedError(
            "init_process_group: trying to initialize the default process group twice!; "
            "destroy_process_group() ends the one there is"
        )
    seconds = _seconds(timeout, default_pg_timeout.total_seconds())
    name = _chosen(backend, world_size, init_method, store)
    engine = _engine(name, init_method, seconds, world_size, rank, store)
    _State.world = ProcessGroup(engine, range(engine.size), seconds, _met(engine, seconds))
    _State.groups = [_State.world]
    _State.ends.append((engine, seconds))
    _State.made, _State.failed = 0, False
    if not _State.watched:
        _State.watched = True
        atexit.register(_leave)
    _share_cores(engine)


def replace_world(engine: Engine, seconds: float, peers: list[Peer]) -> ProcessGroup:
    """Make the world one of fewer ranks; the groups that there were cannot be used any more."""
    for each in _State.groups:
        each.failure = "its world was shrunk; make what belongs to it anew"
        each.replaced = True
    world = ProcessGroup(engine, range(engine.size), seconds, peers)
    _State.world, _State.groups = world, [world]
    _State.ends.append((engine, seconds))
    _State.made, _State.failed = 0, False
    return world


def _seconds(timeout: Any, otherwise: float) -> float:
    if timeout is None:
        return otherwise
    seconds = seconds_of(timeout)
    if not seconds > 0:
        raise InvalidArgument(f"timeout must be positive, but got {timeout!r}")
    return seconds


def _chosen(backend: str | None, size: int, init_method: str | None, store: Any) -> str:
    """The engine for what was asked, and what has started this process."""
    mpi = any(name in os.environ for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"))
    told = "RANK" in os.environ and "WORLD_SIZE" in os.environ
    by_launcher = config.read("ADJOINT_ENGINE")
    wanted = None if backend is None else _on_cpu(backend)
    if wanted not in (None, "mpi", "gloo", "nccl", "fake", "ucc"):
        raise InvalidArgument(
            f"init_process_group: unknown backend {backend!r}; there are 'mpi', 'gloo' and 'fake'"
        )
    if wanted == "fake":
        return "fake"
    if by_launcher not in ("", "gloo", "mpi"):
        raise InvalidArgument(f"ADJOINT_ENGINE={by_launcher}: there are gloo and mpi")
    if not (mpi or told or size > 0 or init_method or store is not None):
        tasks = os.environ.get("SLURM_STEP_NUM_TASKS", "1")
        if tasks != "1":
            raise DistributedError(
                f"init_process_group: srun has started {tasks} tasks, but nothing says how they "
                "meet; start them by `srun --mpi=pmix` (or pmi2) for the engine 'mpi', or set "
                "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for 'gloo'"
            )
        return "alone"
    if wanted in ("gloo", "nccl") and mpi and not is_gloo_available():
        warnings.warn(
            f"init_process_group: {backend!r} needs torch, which is not installed; mpi4py serves "
            "instead, as mpiexec has started this process",
            stacklevel=4,
        )
        return "mpi"
    if wanted in ("nccl", "ucc"):
        raise Unsupported(
            f"init_process_group: {backend!r} is not served yet; backend='gloo' or 'mpi' carries "
            "tensors of the CPU"
        )
    one = size == 1 or (size < 1 and os.environ.get("WORLD_SIZE") == "1")
    if one and wanted in (None, "gloo") and not (mpi or by_launcher or is_gloo_available()):
        return "alone"  # which nobody has to carry messages for
    if wanted is not None:
        return wanted
    if by_launcher:
        return by_launcher
    return "mpi" if mpi and not (told and is_gloo_available()) else "gloo"


def _engine(
    name: str, init_method: str | None, seconds: float, size: int, rank: int, store: Any
) -> Engine:
    from .engines.fake import Fake

    if name == "alone":
        return Fake(0, 1)
    if name == "fake":
        size = max(size, 1)
        if not 0 <= max(rank, 0) < size:
            raise InvalidArgument(f"init_process_group: rank {rank} of a world of {size}")
        return Fake(max(rank, 0), size)
    if name == "mpi":
        from .engines.mpi import world

        return world(seconds)
    from .engines.gloo import rendezvous

    if isinstance(store, Store):
        raise Unsupported(
            "init_process_group: ranks do not meet by a store of adjoint's, which the engine gloo "
            "does not read; give init_method='tcp://host:port', or a store of PyTorch's"
        )
    return rendezvous(init_method, seconds, size, rank, store)


def _share_cores(engine: Engine) -> None:
    """Threads per rank follow the ranks on the machine."""
    ranks = os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE")
    ranks = ranks or os.environ.get("MPI_LOCALNRANKS")
    if not ranks or engine.size == 1 or config.read("ADJOINT_NUM_THREADS"):
        return
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    wanted = max(1, (usable or 1) // int(ranks))
    if wanted < get_num_threads():
        set_num_threads(wanted)


@naming
def destroy_process_group(group: Any = None) -> None:
    """End a group, or all of them, once all its ranks have come to this.

    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.destroy_process_group

    >>> ad.distributed.init_process_group()
    >>> ad.distributed.destroy_process_group()
    >>> ad.distributed.is_initialized()
    False
    """
    if group is GroupMember.NON_GROUP_MEMBER:
        return
    ending = group_of(group, "destroy_process_group")
    world = ending is _State.world
    for each in list(reversed(_State.groups)) if world else [ending]:
        if not _State.failed:
            Work(each, "destroy_process_group", each.engine.barrier()).wait()
            each.engine.close()
        each.failure = each.failure or "it was destroyed"
        _State.groups.remove(each)
    if world:
        _State.world = None


def _leave() -> None:
    """Leaves all groups as the process ends. After a failure it waits for nobody again."""
    crashed = _State.world is not None and getattr(sys, "last_value", None) is not None
    if not (_State.failed or crashed):
        try:
            for engine, seconds in _State.ends[-1:]:
                engine.end(seconds)
            return
        except DistributedError as error:
            print(f"adjoint: {error}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def group_of(group: Any, name: str) -> ProcessGroup:
    """The group that an argument means.

    Errors: DistributedError where there is none.
    """
    found = _State.world if group is None else group
    if found is None:
        raise DistributedError(
            f"{name}: Default process group has not been initialized, please make sure to call "
            "init_process_group."
        )
    if found is GroupMember.NON_GROUP_MEMBER:
        raise DistributedError(f"{name}: this process is not part of the group")
    if not isinstance(found, ProcessGroup):
        raise InvalidArgument(f"{name}: expected a process group, but got {group!r}")
    return found


@naming
def get_rank(group: Any = None) -> int:
    """This process's rank in a group; -1 outside of it.

    Errors: DistributedError where there is no group.
    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.get_rank
    """
    if group is GroupMember.NON_GROUP_MEMBER:
        return -1
    return group_of(group, "get_rank").rank()


@naming
def get_world_size(group: Any = None) -> int:
    """Number of ranks in a group; -1 outside of it.

    Errors: DistributedError where there is no group.
    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.get_world_size
    """
    if group is GroupMember.NON_GROUP_MEMBER:
        return -1
    return group_of(group, "get_world_size").size()


@naming
def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """This process's number among the ranks of its machine.

    Errors: DistributedError where nothing says so and there is no `fallback_rank`.
    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.get_node_local_rank
    """
    for name in ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"):
        if name in os.environ:
            return int(os.environ[name])
    if fallback_rank is not None:
        return int(fallback_rank)
    raise DistributedError(
        "get_node_local_rank: LOCAL_RANK is not in the environment; start the program by "
        "`adjoint run --nproc N`, or give fallback_rank"
    )


@naming
def get_backend(group: Any = None) -> str:
    """The name of the engine of a group.

    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.get_backend
    """
    return group_of(group, "get_backend").name()


@naming
def get_process_group_ranks(group: Any = None) -> list[int]:
    """The ranks in the world of a group's members.

    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.get_process_group_ranks
    """
    return list(group_of(group, "get_process_group_ranks").ranks)


def get_group_rank(group: Any, global_rank: int) -> int:
    """The rank in a group of one in the world.

    Errors: InvalidArgument where it is none of the group's.
    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.get_group_rank
    """
    return group_of(group, "get_group_rank").place(global_rank, "get_group_rank")


def get_global_rank(group: Any, group_rank: int) -> int:
    """The rank in the world of one in a group.

    Errors: InvalidArgument where the group has no such rank.
    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.get_global_rank
    """
    found = group_of(group, "get_global_rank")
    if not 0 <= group_rank < found.size():
        raise InvalidArgument(f"get_global_rank: the group has no rank {group_rank}: {found!r}")
    return int(found.ranks[group_rank])


@naming
def new_group(
    ranks: Sequence[int] | None = None,
    timeout: timedelta | float | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any = None,
) -> Any:
    """A group of some ranks (None: of all). All ranks of the world call this, members or not.

    Errors: InvalidArgument for ranks that the world does not have, or another engine than its own.
    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.new_group

    >>> ad.distributed.init_process_group("fake", rank=1, world_size=4)
    >>> pair = ad.distributed.new_group([1, 3])
    >>> ad.distributed.get_rank(pair), ad.distributed.get_process_group_ranks(pair)
    (0, [1, 3])
    >>> ad.distributed.destroy_process_group()
    """
    world = group_of(None, "new_group")
    world.assert_usable("new_group")
    if backend is not None and _on_cpu(backend) != world.name():
        raise InvalidArgument(
            f"new_group: backend {backend!r} in a world of {world.name()!r}; leave it out"
        )
    members: Sequence[int] = world.ranks if ranks is None else sorted(ranks)
    if len(set(members)) != len(members) or not members:
        raise InvalidArgument(f"new_group: the ranks must differ, and be some: {shown(members)}")
    for rank in members:
        world.place(rank, "new_group")
    seconds = _seconds(timeout, world.seconds)
    _State.made += 1
    engine = world.engine.part(members, _State.made, seconds)
    if engine is None:
        return GroupMember.NON_GROUP_MEMBER
    peers = [world.peers[rank] for rank in members] if world.peers else []
    made = ProcessGroup(engine, members, seconds, peers)
    _State.groups.append(made)
    return made


def _on_cpu(backend: str) -> str:
    wanted = str(backend).lower()
    if ":" in wanted:  # "cpu:gloo,cuda:nccl": what serves the CPU
        return dict(part.split(":", 1) for part in wanted.split(",")).get("cpu", wanted)
    return wanted


def get_debug_level() -> DebugLevel:
    """Whether collectives are compared before they run.

    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch-distributed-debug
    """
    return _State.level


def set_debug_level(level: DebugLevel) -> None:
    """Compare what the ranks do before each collective (DETAIL), or not; on all ranks alike.

    `ADJOINT_DEBUG=collectives` does it from outside.

    Errors: InvalidArgument unless it is a DebugLevel.

    >>> ad.distributed.set_debug_level(ad.distributed.DebugLevel.OFF)
    """
    if not isinstance(level, DebugLevel):
        raise InvalidArgument(f"set_debug_level: expected a DebugLevel, but got {level!r}")
    _State.level = level


for _kind in (ReduceOp, ProcessGroup, DebugLevel):
    _kind.__module__ = __name__  # where files name them
