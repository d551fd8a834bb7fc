"""DataLoader: batches of a dataset, made here or in worker processes."""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

from ..core.errors import AdjointError, InvalidArgument, InvalidType
from .collate import default_collate, default_convert
from .dataset import IterableDataset
from .fetch import Exhausted, IterableFetcher, MapFetcher
from .sampler import BatchSampler, RandomSampler, SequentialSampler, draw_seed
from .worker import LOADER_ENDS, RESTART, End, Failure, Setup, WorkerDiedError, run

__all__ = ["DataLoader"]

_FIXED = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")


class DataLoader:
    """Iterates over a dataset in batches.

    With `num_workers` > 0 that many processes make the batches, each up to `prefetch_factor` ahead;
    the batches come in the same order as without. An error in a worker is raised here with its
    traceback; a worker that dies is reported.

    Errors: InvalidArgument for options that exclude each other.
    Source: https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader

    >>> data = ad.data.TensorDataset(ad.arange(5))
    >>> [x.tolist() for (x,) in ad.data.DataLoader(data, batch_size=2)]
    [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        _assert_worker_options(num_workers, timeout, prefetch_factor, persistent_workers)
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = 2 if num_workers and prefetch_factor is None else prefetch_factor
        self.pin_memory = pin_memory
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.generator = generator
        self.persistent_workers = persistent_workers
        self.in_order = in_order
        self._iterable = isinstance(dataset, IterableDataset)
        if self._iterable:
            _assert_unspecified(shuffle=shuffle, sampler=sampler, batch_sampler=batch_sampler)
        if sampler is not None and shuffle:
            raise InvalidArgument("DataLoader: sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise InvalidArgument(
                    "DataLoader: batch_sampler option is mutually exclusive with batch_size, "
                    "shuffle, sampler, and drop_last"
                )
            batch_size = None
        elif batch_size is None and drop_last:
            raise InvalidArgument(
                "DataLoader: batch_size=None option disables auto-batching and is mutually "
                "exclusive with drop_last"
            )
        if sampler is None:
            if self._iterable:
                sampler = _Forever()
            elif shuffle:
                sampler = RandomSampler(dataset, generator=generator)
            else:
                sampler = SequentialSampler(dataset)
        if batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self._batched = batch_sampler is not None
        default = default_collate if self._batched else default_convert
        self.collate_fn = default if collate_fn is None else collate_fn
        self._kept: _WorkerIterator | None = None
        self._initialised = True

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED and self.__dict__.get("_initialised"):
            raise InvalidArgument(
                f"{name} attribute should not be set after DataLoader is initialized; make another"
            )
        object.__setattr__(self, name, value)

    @property
    def _index_sampler(self) -> Any:
        return self.batch_sampler if self._batched else self.sampler

    def _make_fetcher(self) -> Any:
        if self._iterable:
            return IterableFetcher(self.dataset, self._batched, self.collate_fn, self.drop_last)
        return MapFetcher(self.dataset, self._batched, self.collate_fn)

    def __len__(self) -> int:
        if not self._iterable:
            return len(self._index_sampler)
        length = len(self.dataset)
        if self.batch_size is None:
            return length
        return length // self.batch_size if self.drop_last else -(-length // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        seed = draw_seed(self.generator)
        if self.num_workers == 0:
            return _iterate_here(self)
        if not self.persistent_workers:
            return _WorkerIterator(self, seed)
        if self._kept is None or self._kept.closed:
            self._kept = _WorkerIterator(self, seed)
        else:
            self._kept.restart()
        return self._kept


def _assert_worker_options(
    num_workers: int, timeout: float, prefetch_factor: int | None, persistent: bool
) -> None:
    if num_workers < 0:
        raise InvalidArgument(
            f"DataLoader: num_workers option should be non-negative, got {num_workers}; use "
            "num_workers=0 to disable multiprocessing."
        )
    if timeout < 0:
        raise InvalidArgument(f"DataLoader: timeout option should be non-negative, got {timeout}")
    if not num_workers and prefetch_factor is not None:
        raise InvalidArgument(
            "DataLoader: prefetch_factor option could only be specified in multiprocessing. Let "
            "num_workers > 0 to enable multiprocessing, otherwise set prefetch_factor to None."
        )
    if prefetch_factor is not None and prefetch_factor < 1:
        raise InvalidArgument(
            f"DataLoader: prefetch_factor option should be positive, got {prefetch_factor}"
        )
    if persistent and not num_workers:
        raise InvalidArgument("DataLoader: persistent_workers option needs num_workers > 0")


def _assert_unspecified(**options: Any) -> None:
    for name, value in options.items():
        if value is not None and value is not False:
            raise InvalidArgument(
                f"DataLoader with IterableDataset: expected unspecified {name} option, but got "
                f"{name}={value}"
            )


class _Forever:
    """The indices of an IterableDataset: none that mean anything."""

    def __iter__(self) -> Iterator[None]:
        return itertools.repeat(None)


def _iterate_here(loader: DataLoader) -> Iterator[Any]:
    fetcher = loader._make_fetcher()
    for indices in loader._index_sampler:
        try:
            batch = fetcher.fetch(indices)
        except Exhausted:
            return
        yield batch


# ---- worker processes ----------------------------------------------------------------------------


class _Worker:
    """One process and this process's end of its pipe."""

    def __init__(self, context: Any, setup: Setup) -> None:
        self.connection, theirs = context.Pipe()
        LOADER_ENDS.add(self.connection)
        self.process = context.Process(target=run, args=(setup, theirs), daemon=True)
        with warnings.catch_warnings():
            # Workers run Python and NumPy only, which stay usable after a fork beside threads.
            warnings.filterwarnings("ignore", ".*fork.*", DeprecationWarning)
            self.process.start()
        theirs.close()
        self.ended = False  # has said that its share of an IterableDataset is used up


class _WorkerIterator:
    """Hands out numbered tasks to the workers in turn, and yields the answers by number."""

    def __init__(self, loader: DataLoader, seed: int) -> None:
        self._loader = loader
        self._timeout = loader.timeout
        import multiprocessing  # slow to import, and few programs need it

        context = loader.multiprocessing_context
        if context is None or isinstance(context, str):
            context = multiprocessing.get_context(context)
        elif not hasattr(context, "Process"):
            raise InvalidType(
                f"DataLoader: multiprocessing_context should be a context or a start method's "
                f"name, got {context!r}"
            )
        count = loader.num_workers
        make = functools.partial(
            IterableFetcher if loader._iterable else MapFetcher,
            loader.dataset,
            loader._batched,
            loader.collate_fn,
            *((loader.drop_last,) if loader._iterable else ()),
        )
        self._workers: list[_Worker] = []
        self._finalizer = weakref.finalize(self, _shut_down, self._workers)
        for i in range(count):
            setup = Setup(make, loader.dataset, i, count, seed + i, loader.worker_init_fn)
            self._workers.append(_Worker(context, setup))
        self._next_task = 0
        self._begin()

    def _begin(self) -> None:
        self._indices = iter(self._loader._index_sampler)
        self._next_answer = self._next_task
        self._waiting: dict[int, _Worker] = {}  # tasks that were sent and not answered
        self._answers: dict[int, Any] = {}
        self._turn = itertools.cycle(self._workers)
        for _ in range((self._loader.prefetch_factor or 1) * len(self._workers)):
            self._send_task()

    @property
    def closed(self) -> bool:
        """Whether the workers have been stopped."""
        return not self._finalizer.alive

    def restart(self) -> None:
        """Begin another pass with the same workers; what they still send is thrown away."""
        for worker in self._workers:
            worker.ended = False
            worker.connection.send(RESTART)
        self._begin()

    def __iter__(self) -> _WorkerIterator:
        return self

    def __len__(self) -> int:
        return len(self._loader)

    def _send_task(self) -> None:
        worker = next((w for w in itertools.islice(self._turn, len(self._workers)) if not w.ended),
                      None)  # fmt: skip
        if worker is None:
            return
        try:
            indices = next(self._indices)
        except StopIteration:
            return
        try:
            worker.connection.send((self._next_task, indices))
        except (BrokenPipeError, ConnectionError):
            self._report_dead(worker)
        self._waiting[self._next_task] = worker
        self._next_task += 1

    def __next__(self) -> Any:
        while not self.closed:
            number = self._next_answer
            if number == self._next_task:
                self._stop()
                raise StopIteration
            if number not in self._answers:
                self._receive()
                continue
            answer = self._answers.pop(number)
            self._next_answer += 1
            if isinstance(answer, End):
                self._send_task()
                continue
            if isinstance(answer, Failure):
                self._close()
                answer.reraise()
            self._send_task()
            return answer
        raise StopIteration

    def _receive(self) -> None:
        """Wait for answers; take all that have come."""
        from multiprocessing.connection import wait

        by_handle: dict[Any, _Worker] = {w.connection: w for w in self._workers}
        wanted = self._waiting[self._next_answer]
        ready = wait([*by_handle, wanted.process.sentinel], self._timeout or None)
        if not ready:
            self._close()
            raise LoaderTimeoutError(f"DataLoader timed out after {self._timeout} seconds")
        received = False
        for handle in ready:
            worker = by_handle.get(handle)
            if worker is None:
                continue
            try:
                number, answer = worker.connection.recv()
            except (EOFError, OSError):
                self._report_dead(worker)
            received = True
            if self._waiting.pop(number, None) is not None:
                self._answers[number] = answer
                if isinstance(answer, End):
                    worker.ended = True
        if not received and not wanted.connection.poll():
            self._report_dead(wanted)

    def _report_dead(self, worker: _Worker) -> NoReturn:
        worker.process.join(1)
        code, pid = worker.process.exitcode, worker.process.pid
        self._close()
        killed = code is not None and code < 0
        reason = f"was killed by signal {-(code or 0)}" if killed else f"ended with code {code}"
        raise WorkerDiedError(
            f"DataLoader worker (pid {pid}) exited unexpectedly: it {reason}. Was it out of "
            "memory, or did the dataset call sys.exit or crash in native code? Try num_workers=0"
        )

    def _stop(self) -> None:
        """The pass is over: stop the workers, unless they are kept for the next."""
        if not self._loader.persistent_workers:
            self._close()

    def _close(self) -> None:
        self._finalizer()


class LoaderTimeoutError(AdjointError, RuntimeError, TimeoutError):
    """No batch came within the loader's timeout."""


_closing = threading.Lock()


def _shut_down(workers: list[_Worker]) -> None:
    """Close the pipes, which ends the workers; stop those that do not listen."""
    with _closing:
        for worker in workers:
            with contextlib.suppress(OSError):
                worker.connection.close()
        for worker in workers:
            worker.process.join(5)
            if worker.process.is_alive():
                worker.process.terminate()
                worker.process.join(5)
                if worker.process.is_alive():
                    worker.process.kill()
