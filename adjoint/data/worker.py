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

from ..core.errors import AdjointError
from ..ops.random import manual_seed
from ..threads import set_num_threads
from .fetch import Exhausted

__all__ = ["WorkerInfo", "get_worker_info"]


class WorkerInfo(NamedTuple):
    """What a worker process knows of itself; see `get_worker_info`."""

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
        try:
            error = self.kind(self.text)
        except Exception:
            raise RuntimeError(self.text) from None
        raise error


class End(NamedTuple):
    """The worker's share of an IterableDataset is used up."""


class Setup(NamedTuple):
    """What a worker needs to begin."""

    make_fetcher: Callable[[], Any]
    dataset: Any
    id: int
    workers: int
    seed: int
    init: Callable[[int], None] | None


RESTART = "restart"

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
        fetcher = setup.make_fetcher()
    except Exception as error:
        broken = Failure.of(error, where)
    ended = False
    while True:
        try:
            message = connection.recv()
        except (EOFError, OSError):
            break
        if message == RESTART:
            ended = False
            if broken is None:
                fetcher = setup.make_fetcher()
            continue
        number, indices = message
        if broken is not None:
            outbox.put((number, broken))
            continue
        if ended:
            outbox.put((number, End()))
            continue
        try:
            answer = fetcher.fetch(indices)
        except Exhausted:
            answer, ended = End(), True
        except Exception as error:
            answer = Failure.of(error, where)
        outbox.put((number, answer))
    outbox.put(None)
    sender.join()


def _send(connection: Any, outbox: queue.SimpleQueue[Any]) -> None:
    """Send what is put into `outbox`, so that the worker goes on computing meanwhile."""
    while (message := outbox.get()) is not None:
        try:
            connection.send(message)
        except (BrokenPipeError, ConnectionError):
            os._exit(0)  # nobody reads any more
        except Exception as error:
            failure = Failure.of(error, "while sending a batch from a DataLoader worker")
            connection.send((message[0], failure))


def _seed_everything(seed: int) -> None:
    random.seed(seed)
    manual_seed(seed)
    np.random.seed(seed % 2**32)


class WorkerDiedError(AdjointError, RuntimeError):
    """A worker process ended before it had answered."""
