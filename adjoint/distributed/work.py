"""Pending operations, and their results."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

from ..core.argument_repr import argument_repr
from ..core.errors import DistributedError

__all__ = ["Future", "Pending", "Work"]


class Pending(Protocol):
    """An operation that an engine has begun."""

    def test(self) -> bool:
        """Whether it is done; makes progress. Raises what the engine says of a failure."""

    def wait(self, seconds: float) -> bool:
        """Wait for so long at most: whether it is done. Raises likewise."""

    def source(self) -> int:
        """The rank that a message came from."""


class Done:
    """An operation that is done at once."""

    def __init__(self, source: int = 0) -> None:
        self.rank = source

    def test(self) -> bool:
        """True: the operation is done."""
        return True

    def wait(self, seconds: float) -> bool:
        """True: the operation is done."""
        return True

    def source(self) -> int:
        """The rank that the operation was made with."""
        return self.rank


def poll(test: Callable[[], bool], seconds: float) -> bool:
    """Calls `test` until it is true or the time is over; returns whether it was true.

    The first calls come one right after another, since a small message takes some microseconds, and
    those of some milliseconds let others have the core, if they want it (a rank that waits may
    share it with the one that it waits for): MPI goes on only while it is called, and to sleep
    takes longer than a piece of a large message. Later ones sleep in between.
    """
    for _ in range(100):
        if test():
            return True
    begin = time.monotonic()
    pause = 0.0
    while not test():
        passed = time.monotonic() - begin
        if passed > seconds:
            return False
        if passed < _AWAKE:
            _offer_core()
        else:
            time.sleep(pause)
            pause = min(pause + 1e-6, 1e-3)
    return True


_offer_core: Callable[[], None] = getattr(os, "sched_yield", lambda: time.sleep(0.0))
_AWAKE = 0.01  # seconds for which a wait does not sleep
_LOOK = 0.5  # seconds from one look to the next


class Work:
    """A collective or a message that is under way: `wait()` returns when its buffers may be used.

    Every wait has a deadline: `timeout`, or the group's. Where it passes, or another rank has died,
    DistributedError names the ranks that do not answer, and the group is unusable from then on.

    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.Work

    >>> ad.distributed.init_process_group("fake", rank=0, world_size=2)
    >>> work = ad.distributed.all_reduce(x := ad.ones(2), async_op=True)
    >>> work.wait(), x
    (True, tensor([2., 2.]))
    >>> ad.distributed.destroy_process_group()
    """

    __repr__ = argument_repr

    def __init__(
        self,
        group: Any,
        what: str,
        pending: Pending,
        finish: Callable[[], None] | None = None,
        result: Any = None,
    ) -> None:
        self.group = group
        self.what = what
        self.pending = pending
        self._finish = finish  # what is left to do with the buffers; None once that is done
        self._result = result
        self._done = False
        self._error: DistributedError | None = None

    def is_completed(self) -> bool:
        """Whether `wait` would return at once; this makes progress."""
        if self._done or self._error is not None:
            return True
        try:
            done = self.pending.test()
        except Exception as error:  # whatever the engine's library raises
            raise self._failed(str(error)) from error
        if done:
            self._complete()
        return done

    def is_success(self) -> bool:
        """Whether it ended without an error."""
        return self.is_completed() and self._error is None

    def exception(self) -> DistributedError | None:
        """The error that it ended with, if there was one."""
        return self._error

    def wait(self, timeout: timedelta | float | None = None) -> bool:
        """Return True once it is done.

        Errors: DistributedError where that takes longer than `timeout`, or another rank has died.
        """
        if self._done:
            return True
        if self._error is not None:
            raise self._error
        seconds = self.group.seconds if timeout is None else seconds_of(timeout)
        try:
            done = self._waited(seconds)
        except Exception as error:  # whatever the engine's library raises
            raise self._failed(str(error)) from error
        if not done:
            raise self._failed(f"not done; its time-out is {seconds:g} s")
        self._complete()
        return True

    def _waited(self, seconds: float) -> bool:
        """Whether it is done within so long: waited for in parts, with a look at the ranks on this
        machine in between (gloo sees only the connections close that its algorithm waits on).
        """
        end = time.monotonic() + seconds
        while not self.pending.wait(min(_LOOK, max(end - time.monotonic(), 0.0))):
            if time.monotonic() >= end:
                return False
            if self.group.lost():
                return self.pending.wait(_LOOK)  # it may have done its part
        return True

    def result(self) -> Any:
        """The tensors that it fills."""
        return self._result

    def source_rank(self) -> int:
        """The rank that a received message came from."""
        self.wait()
        return int(self.group.ranks[self.pending.source()])

    def get_future(self) -> Future:
        """A Future of the operation's result."""
        return Future(self)

    def _complete(self) -> None:
        self._done = True
        finish, self._finish = self._finish, None
        if finish is not None:
            finish()

    def _failed(self, why: str) -> DistributedError:
        self._error = self.group.failed(self.what, why)
        return self._error


class Future:
    """A value that is there once a `Work` is done, and what follows from it.

    Source: https://docs.pytorch.org/docs/stable/futures.html#torch.futures.Future

    >>> ad.distributed.init_process_group("fake", rank=0, world_size=2)
    >>> future = ad.distributed.all_reduce(ad.ones(2), async_op=True).get_future()
    >>> future.then(lambda done: done.value()[0] / 2).wait()
    tensor([1., 1.])
    >>> ad.distributed.destroy_process_group()
    """

    __repr__ = argument_repr

    def __init__(self, work: Any = None, then: Callable[[Any], Any] | None = None) -> None:
        self._before = work  # a Work or a Future; None: `set_result` says what
        self._then = then
        self._value: Any = None
        self._done = False

    def done(self) -> bool:
        """Whether the value is there; this makes progress."""
        if not self._done and self._before is not None:
            before = self._before
            if before.is_completed() if isinstance(before, Work) else before.done():
                self.wait()
        return self._done

    is_completed = done

    def wait(self) -> Any:
        """The value, when it is there.

        Errors: DistributedError as for `Work.wait`, or where nobody has said what to wait for.
        """
        if not self._done:
            before = self._before
            if before is None:
                raise DistributedError(
                    "Future.wait: nothing is under way that would give it a value; set_result does"
                )
            value = before.wait()
            if isinstance(before, Work):
                value = before.result()
            self._value = value if self._then is None else self._then(before)
            self._done = True
        return self._value

    def value(self) -> Any:
        """The value, which must be there."""
        return self.wait()

    def set_result(self, result: Any) -> None:
        """Give it its value."""
        self._value, self._done = result, True

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """A future of what `callback` makes of this one once it is done."""
        return Future(self, callback)


def seconds_of(timeout: timedelta | float) -> float:
    """A time-out in seconds."""
    return timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
