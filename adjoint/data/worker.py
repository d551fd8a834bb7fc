"""A DataLoader's worker process: receives indices over its pipe, sends batches back."""

from __future__ import annotations

import os
import queue
import random
import signal
import threading
import traceback
import warnings
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..backends.threads import set_num_threads
from ..core.errors import AdjointError
from ..ops.random.generators import default_generator, follow_torch, manual_seed
from . import channel
from .fetch import Exhausted
from .position import State, set_state, state_of


class WorkerInfo(NamedTuple):
    """A worker process's description of itself; see `get_worker_info`."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """In a DataLoader's worker: its id, the number of workers, its seed and its dataset copy.

    Source: https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.get_worker_info

    >>> ad.data.get_worker_info() is None
    True
    """
    return _info


class Failure(NamedTuple):
    """An exception that was raised in a worker, with its traceback as text."""

    kind: type[BaseException]
    text: str

    @classmethod
    def of(cls, error: BaseException, where: str) -> Failure:
        """The failure that is being handled."""
        kind = type(error)
        return cls(kind, f"Caught {kind.__name__} {where}.\nOriginal {traceback.format_exc()}")

    def reraise(self) -> None:
        """Raise it again, here, as the same type where that takes one message."""
        if issubclass(self.kind, StopIteration):
            raise RuntimeError(self.text)  # a loop would take it for the end
        if issubclass(self.kind, KeyError):
            raise _WorkerKeyError(self.text)
        try:
            error = self.kind(self.text)
        except Exception:
            raise RuntimeError(self.text) from None
        raise error


class _WorkerKeyError(KeyError):
    """A KeyError that shows its message as it is, with its line breaks."""

    def __str__(self) -> str:
        return str(self.args[0])


class End(NamedTuple):
    """The worker's share of an IterableDataset is used up."""


class Setup(NamedTuple):
    """Arguments with which a worker begins."""

    make_fetcher: Callable[[], Any]
    dataset: Any
    id: int
    workers: int
    seed: int
    init: Callable[[int], None] | None
    follows: bool  # whether random numbers are PyTorch's


class Begin(NamedTuple):
    """A pass over the dataset begins, or goes on where an earlier one was."""

    skip: int = 0  # items of an IterableDataset that were read before
    random_state: State | None = None  # where the default generator goes on


# The loaders' ends of all pipes: a forked worker inherits copies, and a pipe only reports that its
# other end was closed once every copy is.
LOADER_ENDS: weakref.WeakSet[Any] = weakref.WeakSet()


def run(setup: Setup, connection: Any) -> None:
    """The worker process: until the pipe closes, answer each (number, indices)."""
    global _info
    for inherited in list(LOADER_ENDS):
        inherited.close()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a BLAS whose threads cannot be set
        set_num_threads(1)  # the workers share the processors
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that owns the loop
    follow_torch(setup.follows)
    _seed_everything(setup.seed)
    _info = WorkerInfo(setup.id, setup.workers, setup.seed, setup.dataset)
    outbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    sender = threading.Thread(target=_send, args=(connection, outbox), daemon=True)
    sender.start()
    where = f"in DataLoader worker process {setup.id}"
    fetcher: Any = None
    broken: Failure | None = None
    try:
        if setup.init is not None:
            setup.init(setup.id)
    except Exception as error:
        broken = Failure.of(error, where)
    while True:
        try:
            message = connection.recv()
        except (EOFError, OSError):
            break
        if isinstance(message, Begin):
            if broken is None:
                try:
                    fetcher = _begin(setup, message)
                except Exception as error:
                    broken = Failure.of(error, where)
            continue
        number, indices = message
        try:
            answer = broken or (End() if fetcher is None else fetcher.fetch(indices))
        except Exhausted:
            answer, fetcher = End(), None
        except Exception as error:
            answer = Failure.of(error, where)
        outbox.put((number, answer, state_of(default_generator)))
    outbox.put(None)
    sender.join()


def _begin(setup: Setup, message: Begin) -> Any:
    if message.random_state is not None:
        set_state(default_generator, message.random_state)
    fetcher = setup.make_fetcher()
    if message.skip:
        fetcher.skip(message.skip)
    return fetcher


def _send(connection: Any, outbox: queue.SimpleQueue[Any]) -> None:
    """Send what is put into `outbox`, so that the worker goes on computing meanwhile."""
    while (message := outbox.get()) is not None:
        number, answer, state = message
        try:
            try:
                channel.send(connection, message)
            except (BrokenPipeError, ConnectionError):
                raise
            except Exception as error:
                failure = answer  # of a class that has no name to find it by
                if not isinstance(answer, Failure):
                    failure = Failure.of(error, "while sending a batch from a DataLoader worker")
                channel.send(connection, (number, failure._replace(kind=RuntimeError), state))
        except (BrokenPipeError, ConnectionError):
            os._exit(0)  # nobody reads any more


def _seed_everything(seed: int) -> None:
    random.seed(seed)
    manual_seed(seed)
    np.random.seed(seed % 2**32)


class WorkerDiedError(AdjointError, RuntimeError):
    """A worker process ended before it had answered."""
