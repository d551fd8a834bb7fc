"""The engine `mpi`: mpi4py, with whatever MPI it was installed with, on our memory.

Only calls that do not block, tested until the deadline: an MPI that waits for a dead rank waits for
ever. So MPI is not finalized after a failure either.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.errors import DistributedError, Unsupported
from ..protocol import ReduceOp, Survival
from ..work import Pending, poll


def _mpi() -> Any:
    try:
        import mpi4py

        mpi4py.rc.finalize = False  # `close` does, where all is well
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: it finds no MPI library
        raise Unsupported(
            f"the engine 'mpi' needs mpi4py and an MPI library ({error}): "
            "pip install 'adjoint[mpi]'"
        ) from error
    return MPI


def world(seconds: float) -> Mpi:
    """The engine of all ranks that mpiexec has started.

    Errors: DistributedError where they do not come.
    """
    library = _mpi()
    library.COMM_WORLD.Set_errhandler(library.ERRORS_RETURN)
    size = library.COMM_WORLD.size
    for name in ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS"):
        if os.environ.get(name, str(size)) != str(size):
            raise DistributedError(
                f"init_process_group: MPI knows of {size} ranks, but {name}={os.environ[name]}; "
                "the ranks must be started by the mpiexec of the MPI that mpi4py uses "
                f"({library.Get_library_version().splitlines()[0].split(',')[0]}), as "
                "`adjoint run --engine mpi` does; or use the engine 'gloo'"
            )
    return Mpi(library, library.COMM_WORLD, seconds)


class _Pending:
    """A request of MPI's."""

    def __init__(self, library: Any, request: Any) -> None:
        self.request = request
        self.status = library.Status()

    def test(self) -> bool:
        """Whether the operation is done; MPI makes progress only in such calls."""
        return bool(self.request.Test(self.status))

    def wait(self, seconds: float) -> bool:
        """Test for so long."""
        return poll(self.test, seconds)

    def source(self) -> int:
        """The rank that a message came from."""
        return int(self.status.Get_source())


def _deaths(library: Any) -> tuple[int, ...]:
    """The classes of errors that say that a rank has died."""
    return (library.ERR_PROC_FAILED, library.ERR_REVOKED)


def _has_ulfm(library: Any) -> bool:
    """Whether the ranks that live may go on: what Open MPI's launcher has told them."""
    is_on = os.environ.get("OMPI_MCA_mpi_ft_enable") == "1"  # noqa: SIM112 - Open MPI's name
    return is_on and library.Get_library_version().startswith("Open MPI")


class _Agreement(_Pending):
    """A request of ULFM's agreement."""

    def __init__(self, library: Any, request: Any, row: Any) -> None:
        super().__init__(library, request)
        self.library = library
        self.row = row
        self.died = False

    def test(self) -> bool:
        """Whether it is done."""
        try:
            return super().test()
        except self.library.Exception as error:
            if error.Get_error_class() not in _deaths(self.library):
                raise
            self.died = True
            return True

    def answer(self) -> bool | None:
        """The answer; None where a rank has died."""
        return None if self.died else bool(self.row[0])


class Mpi:
    """Buffers go to mpi4py as they are."""

    name = "mpi"

    def __init__(self, library: Any, parent: Any, seconds: float) -> None:
        self.library = library
        self.closed = False
        self.has_lost = False  # a rank has died; then Finalize may wait for ever
        self.comm = self._copy(parent, seconds)
        self.calls = self._copy(parent, seconds)  # where ranks answer after a failure
        self.rank = int(self.comm.rank)
        self.size = int(self.comm.size)
        names = ("SUM", "PROD", "MIN", "MAX", "BAND", "BOR", "BXOR")
        kinds = [op for op in ReduceOp if op is not ReduceOp.AVG]
        self.ops: dict[ReduceOp, Any] = {
            op: getattr(library, name) for op, name in zip(kinds, names, strict=True)
        }

    def _copy(self, parent: Any, seconds: float) -> Any:
        comm, request = parent.Idup()
        if not poll(lambda: bool(request.Test()), seconds):
            raise DistributedError(
                f"init_process_group: the ranks that mpiexec has started did not meet within "
                f"{seconds:g} s; all must call it"
            )
        comm.Set_errhandler(self.library.ERRORS_RETURN)
        return comm

    def _begun(self, request: Any) -> Pending:
        return _Pending(self.library, request)

    def reduces(self, dtype: np.dtype, op: ReduceOp) -> bool:
        """Whether MPI reduces this dtype: all of C's numbers; MPI knows no 16-bit floats."""
        if op in (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR):
            return dtype.kind in "iu"
        return dtype.kind in "iu" or dtype.name in ("float32", "float64")

    def all_reduce(self, buffer: Any, op: ReduceOp) -> Pending:
        """Reduces all buffers, in place."""
        return self._begun(self.comm.Iallreduce(self.library.IN_PLACE, buffer, self.ops[op]))

    def reduce(self, buffer: Any, root: int, op: ReduceOp) -> Pending:
        """Reduces all buffers to the root, in place."""
        source, target = (buffer, None)
        if self.rank == root:
            source, target = (self.library.IN_PLACE, buffer)
        return self._begun(self.comm.Ireduce(source, target, self.ops[op], root))

    def broadcast(self, buffer: Any, root: int) -> Pending:
        """Copies the root's buffer to all ranks, in place."""
        return self._begun(self.comm.Ibcast(_bytes(buffer), root))

    def all_gather(self, out: Any, buffer: Any) -> Pending:
        """Gathers all buffers into `out`."""
        return self._begun(self.comm.Iallgather(_bytes(buffer), _bytes(out)))

    def gather(self, out: Any, buffer: Any, root: int) -> Pending:
        """Gathers all buffers into the root's `out`."""
        target = None if out is None else _bytes(out)
        return self._begun(self.comm.Igather(_bytes(buffer), target, root))

    def scatter(self, out: Any, buffer: Any, root: int) -> Pending:
        """Sends each rank its part of the root's `buffer`."""
        source = None if buffer is None else _bytes(buffer)
        return self._begun(self.comm.Iscatter(source, _bytes(out), root))

    def reduce_scatter(self, out: Any, buffer: Any, op: ReduceOp) -> Pending:
        """Reduces all buffers; `out` gets this rank's part."""
        return self._begun(self.comm.Ireduce_scatter_block(buffer, out, self.ops[op]))

    def all_to_all(
        self, out: Any, buffer: Any, out_counts: Sequence[int], counts: Sequence[int]
    ) -> Pending:
        """Exchanges parts with all ranks, into `out`."""
        item = buffer.itemsize
        source = [_bytes(buffer), [n * item for n in counts]]
        target = [_bytes(out), [n * item for n in out_counts]]
        return self._begun(self.comm.Ialltoallv(source, target))

    def send(self, buffer: Any, to: int, tag: int) -> Pending:
        """Sends to one rank."""
        return self._begun(self.comm.Isend(_bytes(buffer), to, tag))

    def receive(self, buffer: Any, source: int | None, tag: int) -> Pending:
        """Receives from one rank, or any."""
        origin = self.library.ANY_SOURCE if source is None else source
        return self._begun(self.comm.Irecv(_bytes(buffer), origin, tag))

    def barrier(self) -> Pending:
        """Waits for all ranks."""
        return self._begun(self.comm.Ibarrier())

    def part(self, ranks: Sequence[int], number: int, seconds: float) -> Mpi | None:
        """A communicator of some ranks; the one call that may block, where a rank does not come."""
        if self.rank not in ranks:
            return None
        chosen = self.comm.Get_group().Incl(list(ranks))
        comm = self.comm.Create_group(chosen, number)
        comm.Set_errhandler(self.library.ERRORS_RETURN)
        return Mpi(self.library, comm, seconds)

    def survival(self) -> Survival | None:
        """ULFM, where Open MPI's launcher has switched it on (`mpiexec --with-ft ulfm`)."""
        return self if _has_ulfm(self.library) else None

    def agree(self, flag: bool) -> _Agreement:
        """Agreement by ULFM, which a death or a revoked communicator does not disturb."""
        row = np.array([flag], np.int32)
        return _Agreement(self.library, self.calls.Iagree(row), row)

    def shrunk(self, seconds: float) -> tuple[Mpi, list[int]]:
        """A communicator of the ranks that live. Open MPI's call that does not block fails
        (5.0.11), so the one that does is used, once all that live are known to have come.
        """
        error, before = self.library.Exception, self.calls.Get_group()
        comm, end = self.calls, time.monotonic() + seconds
        while True:
            comm.Revoke()
            comm = comm.Shrink()
            comm.Set_errhandler(self.library.ERRORS_RETURN)
            try:
                made = Mpi(self.library, comm, max(end - time.monotonic(), 0.0))
            except error as why:  # one more has died since
                if why.Get_error_class() not in _deaths(self.library):
                    raise DistributedError(f"the ranks that live did not meet ({why})") from why
                continue
            made.has_lost = True
            members = comm.Get_group()
            places = members.Translate_ranks(list(range(members.size)), before)
            return made, [int(place) for place in places]

    def silent(self) -> list[int]:
        """Ranks that send no message within a second."""
        error = self.library.Exception
        with contextlib.suppress(error, NotImplementedError):  # MPI that does not survive failures
            self.comm.Revoke()  # others that wait need not wait for their time-outs
        waiting: dict[int, Any] = {}
        token = np.zeros(1, np.uint8)
        sent = []
        for rank in range(self.size):
            if rank != self.rank:
                waiting[rank] = None
                with contextlib.suppress(error):  # it is dead
                    sent.append(self.calls.Isend(token, rank, 0))
                    waiting[rank] = self.calls.Irecv(np.zeros(1, np.uint8), rank, 0)

        def heard() -> bool:
            for rank, request in list(waiting.items()):
                try:
                    if request is not None and request.Test():
                        del waiting[rank]
                except error:
                    waiting[rank] = None
            return not waiting

        poll(heard, 1.0)
        return sorted(waiting)

    def close(self) -> None:
        """Give the communicators back."""
        self.comm.Free()
        self.calls.Free()
        self.closed = True

    def end(self, seconds: float) -> None:
        """Finalize MPI, which waits for all ranks: so only once they have come here, and not where
        some have died (Open MPI's launcher takes an end without it for a good one under ULFM).
        """
        if not self.closed and not self._begun(self.calls.Ibarrier()).wait(seconds):
            raise DistributedError(
                f"not all ranks have ended within {seconds:g} s of this one; MPI is not finalized"
            )
        if not self.has_lost:
            self.library.Finalize()


def _bytes(buffer: Any) -> Any:
    return buffer.view(np.uint8)
