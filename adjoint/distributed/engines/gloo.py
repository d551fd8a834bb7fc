"""The engine `gloo`: the process group of that name in the user's PyTorch, on our memory."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from ...core.errors import DistributedError, Unsupported
from ..protocol import ReduceOp, Survival
from ..work import Pending

_OPS = {op: op.value for op in ReduceOp if op is not ReduceOp.AVG}
_BITS = frozenset((ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR))


def _torch() -> Any:
    try:
        import torch.distributed as library
    except ImportError as error:
        raise Unsupported(
            f"the engine 'gloo' is PyTorch's, which cannot be imported ({error}): "
            "pip install 'adjoint[torch]'; or run under MPI: pip install 'adjoint[mpi]'"
        ) from error
    return library


def rendezvous(init_method: str | None, seconds: float, size: int, rank: int, store: Any) -> Gloo:
    """The engine of all ranks that meet at a place: PyTorch's `init_method`, or the environment's.

    Errors: DistributedError where they do not come.
    """
    library = _torch()
    limit = timedelta(seconds=seconds)
    end = time.monotonic() + seconds
    try:
        if store is not None:
            return _made(library, store, rank, size, limit)
        place = init_method or "env://"
        own = _own_store(library, place, limit, size, rank)  # which PyTorch's joins
        while True:
            try:
                found, number, count = next(library.rendezvous(place, rank, size, timeout=limit))
                return _made(library, found, number, count, limit)
            except RuntimeError as error:
                if own is not None or not _is_lost(error) or time.monotonic() > end:
                    raise
                time.sleep(0.05)
    except (RuntimeError, ValueError) as error:  # whatever PyTorch says of it
        why = str(error).strip().partition("\n")[0]
        raise DistributedError(
            f"init_process_group: the ranks did not meet ({why}); RANK, WORLD_SIZE, MASTER_ADDR "
            "and MASTER_PORT must be set alike, as `adjoint run --nproc N` and torchrun do"
        ) from error


def _made(library: Any, store: Any, rank: int, size: int, limit: timedelta) -> Gloo:
    """The engine by a store that may have served a group before: names are those of this one."""
    store.set_timeout(limit)
    times = store.add(f"adjoint/groups/{rank}", 1)
    place = library.PrefixStore(f"adjoint/{times}", store)
    return Gloo(place, rank, size, limit.total_seconds())


def _is_lost(error: RuntimeError) -> bool:
    """Whether the store was there and has gone: where a group is made again at the same place, the
    store of the last one may have answered.
    """
    return any(word in str(error) for word in ("reset by peer", "Broken pipe", "likely closed"))


def _own_store(library: Any, place: str, limit: timedelta, size: int, rank: int) -> Any:
    """The store of rank 0 where all ranks are on this machine, which listens to this machine alone:
    PyTorch's own listens on all addresses. None where PyTorch's is to be used.
    """
    url, known = urlsplit(place), os.environ
    if url.scheme == "tcp":
        address, port = url.hostname, url.port
    else:
        address, port = known.get("MASTER_ADDR", ""), _number("MASTER_PORT")
        rank = rank if rank >= 0 else _number("RANK")
        size = size if size > 0 else _number("WORLD_SIZE")
    local = address in ("localhost", "::1") or str(address).startswith("127.")
    plain = url.scheme in ("env", "tcp") and not url.query
    if not (plain and local and rank == 0 and size > 0 and port) or port < 0:
        return None
    if known.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return None
    family = socket.AF_INET6 if address == "::1" else socket.AF_INET
    try:
        listener = socket.create_server((address, port), family=family, backlog=2048)
    except OSError:  # this process has it, or PyTorch says what is wrong
        return None
    return library.TCPStore(
        address, port, size, True, limit, multi_tenant=True, master_listen_fd=listener.detach()
    )


def _number(variable: str) -> int:
    """The number that an environment variable holds; -1 where it holds none."""
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else -1


class _Pending:
    """A `Work` of PyTorch's."""

    def __init__(self, works: list[Any], keep: Any = None) -> None:
        self.works = works
        self.keep = keep  # buffers that must live so long

    def test(self) -> bool:
        """Whether it is done."""
        if not all(work.is_completed() for work in self.works):
            return False
        for work in self.works:
            work.wait()  # raises what has happened
        return True

    def wait(self, seconds: float) -> bool:
        """Wait for so long."""
        end = time.monotonic() + seconds
        for work in self.works:
            left = max(end - time.monotonic(), 1e-3)
            try:
                work.wait(timedelta(seconds=left))
            except RuntimeError:
                if work.is_completed():  # it has failed; else the time is over
                    raise
                return False
        return True

    def source(self) -> int:
        """The rank that a message came from."""
        return int(self.works[0]._source_rank())


class Gloo:
    """Buffers go to PyTorch as tensors of the same memory."""

    name = "gloo"

    def __init__(self, store: Any, rank: int, size: int, seconds: float) -> None:
        self.library = _torch()
        self.store = store
        self.rank = rank
        self.size = size
        limit = timedelta(seconds=seconds)
        try:
            place = self.library.PrefixStore("group", store)
            self.group = self.library.ProcessGroupGloo(place, rank, size, limit)
        except RuntimeError as error:
            why = str(error).strip().partition("\n")[0]
            raise DistributedError(
                f"gloo: not all of {size} ranks have come to make the group ({why})"
            ) from error
        self.ops: dict[ReduceOp, Any] = {
            op: getattr(self.library.ReduceOp, name) for op, name in _OPS.items()
        }

    def reduces(self, dtype: np.dtype, op: ReduceOp) -> bool:
        """Whether gloo reduces this dtype: no 16-bit integers, and 16-bit floats only with sums in
        16 bits.
        """
        if op in _BITS:
            return dtype.kind in "iu" and dtype.name in ("uint8", "int8", "int32", "int64")
        return dtype.name in ("float32", "float64", "uint8", "int8", "int32", "int64")

    def all_reduce(self, buffer: Any, op: ReduceOp) -> Pending:
        """Reduces all buffers, in place."""
        options = self.library.AllreduceOptions()
        options.reduceOp = self.ops[op]
        return _Pending([self.group.allreduce([numbers(buffer)], options)])

    def reduce(self, buffer: Any, root: int, op: ReduceOp) -> Pending:
        """Reduces all buffers to the root, in place."""
        options = self.library.ReduceOptions()
        options.reduceOp, options.rootRank = self.ops[op], root
        return _Pending([self.group.reduce([numbers(buffer)], options)])

    def broadcast(self, buffer: Any, root: int) -> Pending:
        """Copies the root's buffer to all ranks, in place."""
        options = self.library.BroadcastOptions()
        options.rootRank, options.rootTensor = root, 0
        return _Pending([self.group.broadcast([memory(buffer)], options)])

    def all_gather(self, out: Any, buffer: Any) -> Pending:
        """Gathers all buffers into `out`."""
        return _Pending([self.group._allgather_base(memory(out), memory(buffer))])

    def gather(self, out: Any, buffer: Any, root: int) -> Pending:
        """Gathers all buffers into the root's `out`."""
        options = self.library.GatherOptions()
        options.rootRank = root
        outs = [] if out is None else [self._parts(out)]
        return _Pending([self.group.gather(outs, [memory(buffer)], options)])

    def scatter(self, out: Any, buffer: Any, root: int) -> Pending:
        """Sends each rank its part of the root's `buffer`."""
        options = self.library.ScatterOptions()
        options.rootRank = root
        inputs = [] if buffer is None else [self._parts(buffer)]
        return _Pending([self.group.scatter([memory(out)], inputs, options)])

    def _parts(self, buffer: Any) -> list[Any]:
        return [memory(part) for part in buffer.reshape(self.size, -1)]

    def reduce_scatter(self, out: Any, buffer: Any, op: ReduceOp) -> Pending:
        """Reduces all buffers; `out` gets this rank's part."""
        options = self.library.ReduceScatterOptions()
        options.reduceOp = self.ops[op]
        return _Pending([self.group._reduce_scatter_base(numbers(out), numbers(buffer), options)])

    def all_to_all(
        self, out: Any, buffer: Any, out_counts: Sequence[int], counts: Sequence[int]
    ) -> Pending:
        """Exchanges parts with all ranks, into `out`."""
        item = buffer.itemsize
        work = self.group.alltoall_base(
            memory(out), memory(buffer), [n * item for n in out_counts], [n * item for n in counts]
        )
        return _Pending([work])

    def send(self, buffer: Any, to: int, tag: int) -> Pending:
        """Sends to one rank."""
        return _Pending([self.group.send([memory(buffer)], to, tag)])

    def receive(self, buffer: Any, source: int | None, tag: int) -> Pending:
        """Receives from one rank, or any."""
        if source is None:
            return _Pending([self.group.recv_anysource([memory(buffer)], tag)])
        return _Pending([self.group.recv([memory(buffer)], source, tag)])

    def barrier(self) -> Pending:
        """Waits for all ranks."""
        return _Pending([self.group.barrier()])

    def part(self, ranks: Sequence[int], number: int, seconds: float) -> Gloo | None:
        """A process group of some ranks on the same store."""
        if self.rank not in ranks:
            return None
        store = self.library.PrefixStore(f"part{number}", self.store)
        return Gloo(store, list(ranks).index(self.rank), len(ranks), seconds)

    def survival(self) -> Survival | None:
        """None: gloo's connections close with the first rank that dies."""
        return None

    def silent(self) -> list[int]:
        """Ranks that do not sign in the store within a second."""
        answered: set[int] = set()
        gone: list[Exception] = []

        def call() -> None:
            end = time.monotonic() + 1.0
            try:
                self.store.set(f"here{self.rank}", "1")
                while len(answered) < self.size and time.monotonic() < end:
                    for rank in range(self.size):
                        if rank not in answered and self.store.check([f"here{rank}"]):
                            answered.add(rank)
                    time.sleep(0.02)
            except RuntimeError as error:
                gone.append(error)

        thread = threading.Thread(target=call, daemon=True)  # the store may not answer either
        thread.start()
        thread.join(1.5)
        if thread.is_alive() or gone:
            raise DistributedError("the store at MASTER_ADDR, which rank 0 hosts, does not answer")
        return [rank for rank in range(self.size) if rank not in answered]

    def close(self) -> None:
        """Close the connections."""
        self.group = self.store = None

    def end(self, seconds: float) -> None:
        """The connections close with the process: others see at once that it is gone."""


def memory(buffer: Any) -> Any:
    """A tensor of PyTorch's of a buffer's bytes."""
    import torch

    return torch.from_numpy(buffer.view(np.uint8))


def numbers(buffer: Any) -> Any:
    """A tensor of PyTorch's of a buffer's numbers."""
    import torch

    return torch.from_numpy(buffer)
