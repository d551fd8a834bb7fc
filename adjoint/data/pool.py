"""The iterator of a DataLoader with workers: hands out tasks, yields the answers in order."""

from __future__ import annotations

import contextlib
import itertools
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from ..core import fork_safety
from ..core.errors import AdjointError, InvalidType
from ..core.mode import observed
from ..ops.random.generators import is_following
from . import channel
from .position import Position
from .worker import LOADER_ENDS, Begin, End, Failure, Setup, WorkerDiedError, run

_PATIENCE = 5.0  # seconds that workers have for finishing what they do, at the end of a pass
_IMPATIENCE = 0.2  # and after an error, which is reported when they have ended


class LoaderTimeoutError(AdjointError, RuntimeError, TimeoutError):
    """Error where no batch came within the loader's timeout."""


class _Worker:
    """One process and this process's end of its pipe."""

    def __init__(self, context: Any, setup: Setup) -> None:
        self.id = setup.id
        self.connection, theirs = context.Pipe()
        LOADER_ENDS.add(self.connection)
        self.process = context.Process(target=run, args=(setup, theirs), daemon=True)
        with warnings.catch_warnings():
            # Workers run Python and NumPy only, which stay usable after a fork beside threads.
            warnings.filterwarnings("ignore", ".*fork.*", DeprecationWarning)
            self.process.start()
        theirs.close()
        self.ended = False  # has said that its share of an IterableDataset is used up


class WorkerIterator:
    """Hands out numbered tasks to the workers in turn, and yields the answers by number."""

    def __init__(
        self,
        make_fetcher: Callable[[], Any],
        dataset: Any,
        count: int,
        seed: int,
        init: Callable[[int], None] | None,
        context: Any,
        ahead: int,
        timeout: float,
        keep: bool,
    ) -> None:
        self._ahead = ahead
        self._timeout = timeout
        self._keep = keep
        self._next_task = 0
        self._new = True
        self._workers: list[_Worker] = []
        self._finalizer = weakref.finalize(self, _shut_down, self._workers, _PATIENCE)
        context = _context(context)
        for i in range(count):
            setup = Setup(make_fetcher, dataset, i, count, seed + i, init, is_following())
            self._workers.append(_Worker(context, setup))

    def begin(
        self, sampler: Any, indices: Iterator[Any], position: Position, read_again: int, seed: int
    ) -> None:
        """Begin a pass, or go on with one: `read_again` items for each batch handed out before.

        What the workers still send of an earlier pass is thrown away.
        """
        self._sampler = sampler
        self._indices = indices
        self._position = position
        self._next_answer = self._next_task
        self._waiting: dict[int, _Worker] = {}  # tasks that were sent and not answered
        self._answers: dict[int, tuple[_Worker, Any, Any]] = {}
        self._turn = itertools.cycle(self._workers)
        if position.workers is None or len(position.workers) != len(self._workers):
            # New workers keep what their start function made of their seeds.
            states = [None if self._new else (seed + w.id, 0) for w in self._workers]
            position.workers = [(0, state) for state in states]
            position.turn = 0
        for worker, (batches, state) in zip(self._workers, position.workers, strict=True):
            worker.ended = False
            self._send(worker, Begin(batches * read_again, state))
        self._new = False
        for _ in range(position.turn):
            next(self._turn)
        for _ in range(self._ahead * len(self._workers)):
            self._send_task()

    @property
    def closed(self) -> bool:
        """Whether the workers have been stopped."""
        return not self._finalizer.alive

    def __iter__(self) -> WorkerIterator:
        return self

    def __len__(self) -> int:
        return len(self._sampler)

    def _send(self, worker: _Worker, message: Any) -> None:
        try:
            worker.connection.send(message)
        except (BrokenPipeError, ConnectionError):
            self._report_dead(worker)

    def _send_task(self) -> None:
        worker = next((w for w in itertools.islice(self._turn, len(self._workers)) if not w.ended),
                      None)  # fmt: skip
        if worker is None:
            return
        try:
            indices = next(self._indices)
        except StopIteration:
            return
        self._send(worker, (self._next_task, indices))
        self._waiting[self._next_task] = worker
        self._next_task += 1

    def __next__(self) -> Any:
        return observed("enumerate(DataLoader)#WorkerIterator.__next__", self._next)

    def _next(self) -> Any:
        while not self.closed:
            number = self._next_answer
            if number == self._next_task:
                self._position.running = False
                if not self._keep:
                    self._finalizer()
                raise StopIteration
            if number not in self._answers:
                self._receive()
                continue
            worker, answer, state = self._answers.pop(number)
            self._next_answer += 1
            if isinstance(answer, End):
                self._send_task()
                continue
            if isinstance(answer, Failure):
                self._stop_now()
                answer.reraise()
            self._send_task()
            self._position.advance(worker.id, state)
            return answer
        raise StopIteration

    def _receive(self) -> None:
        """Wait for answers; take all that have come."""
        from multiprocessing.connection import wait

        by_connection: dict[Any, _Worker] = {w.connection: w for w in self._workers}
        wanted = self._waiting[self._next_answer]
        ready = wait([*by_connection, wanted.process.sentinel], self._timeout or None)
        if not ready:
            self._stop_now()
            raise LoaderTimeoutError(f"DataLoader timed out after {self._timeout} seconds")
        received = False
        for connection in ready:
            worker = by_connection.get(connection)
            if worker is None:
                continue
            try:
                number, answer, state = channel.receive(connection)
            except (EOFError, OSError):
                self._report_dead(worker)
            except BaseException:
                self._stop_now()  # an answer that cannot be read would be waited for in vain
                raise
            received = True
            if self._waiting.pop(number, None) is not None:
                self._answers[number] = worker, answer, state
                if isinstance(answer, End):
                    worker.ended = True
        if not received and not wanted.connection.poll():
            self._report_dead(wanted)

    def _report_dead(self, worker: _Worker) -> NoReturn:
        worker.process.join(1)
        code, pid = worker.process.exitcode, worker.process.pid
        self._stop_now()
        killed = code is not None and code < 0
        reason = f"was killed by signal {-(code or 0)}" if killed else f"ended with code {code}"
        raise WorkerDiedError(
            f"DataLoader worker (pid {pid}) exited unexpectedly: it {reason}. Was it out of "
            "memory, or did the dataset call sys.exit or crash in native code? Try num_workers=0"
        ) from None

    def _stop_now(self) -> None:
        if self._finalizer.detach() is not None:
            _shut_down(self._workers, _IMPATIENCE)


def _context(wanted: Any) -> Any:
    import multiprocessing  # slow to import, and few programs need it

    if wanted is None or isinstance(wanted, str):
        return multiprocessing.get_context(wanted)
    if not hasattr(wanted, "Process"):
        raise InvalidType(
            f"DataLoader: multiprocessing_context should be a context or a start method's "
            f"name, got {wanted!r}"
        )
    return wanted


_closing = fork_safety.lock()  # the garbage collector may close another one meanwhile


def _shut_down(workers: list[_Worker], patience: float) -> None:
    """Close the pipes, which ends the workers; after `patience` seconds stop those that go on."""
    with _closing:
        for worker in workers:
            with contextlib.suppress(OSError):
                worker.connection.close()
        for stop in (None, "terminate", "kill"):
            # What is killed ends, on a busy machine after a while.
            deadline = time.monotonic() + (10 * _PATIENCE if stop == "kill" else patience)
            running = [worker.process for worker in workers if worker.process.is_alive()]
            for process in running:
                if stop is not None:
                    getattr(process, stop)()
            for process in running:
                process.join(max(0.0, deadline - time.monotonic()))
