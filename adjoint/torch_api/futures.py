"""Futures, under PyTorch's names.

Source: https://docs.pytorch.org/docs/stable/futures.html

>>> f = ad.futures.Future()
>>> g = f.then(lambda done: done.value() + 1)
>>> f.set_result(1)
>>> g.wait()
2
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ..core.argument_repr import argument_repr
from ..core.errors import GraphError

T = TypeVar("T")

__all__ = ["Future", "collect_all", "wait_all"]


class Future(Generic[T]):
    """A value, or an error, that is set later and that others wait for."""

    __repr__ = argument_repr

    def __init__(self, *, devices: Any = None) -> None:
        self._held: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def done(self) -> bool:
        """Whether the value or the error has been set."""
        return self._held.done()

    def wait(self) -> Any:
        """The value, once it has been set; raises the error, if that was set."""
        return self._held.result()

    def value(self) -> Any:
        """The value, which must have been set.

        Errors: GraphError where it is not.
        """
        if not self.done():
            raise GraphError("Future.value: the future is not done; wait() waits for it")
        return self.wait()

    def set_result(self, result: Any) -> None:
        """Set the value, once.

        Errors: GraphError where it is set already.
        """
        self._set(self._held.set_result, result)

    def set_exception(self, result: BaseException) -> None:
        """Set the error that waiting raises, once.

        Errors: GraphError where a value is set already.
        """
        self._set(self._held.set_exception, result)

    def _set(self, set_: Callable[[Any], None], result: Any) -> None:
        try:
            set_(result)
        except concurrent.futures.InvalidStateError:
            raise GraphError("Future: its value can be set once only") from None

    def add_done_callback(self, callback: Callable[[Future], Any]) -> None:
        """Call `callback(self)` once the value has been set."""
        self._held.add_done_callback(lambda _: callback(self))

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """A future of `callback(self)`, which is called once the value has been set."""
        made: Future[Any] = Future()

        def call(_: Future) -> None:
            try:
                made.set_result(callback(self))
            except Exception as error:
                made.set_exception(error)

        self.add_done_callback(call)
        return made


def collect_all(futures: list[Future]) -> Future:
    """A future of the list of futures, done when all are, or with the first error.

    >>> f = ad.futures.Future()
    >>> f.set_result(1)
    >>> ad.futures.collect_all([f]).wait()[0].value()
    1
    """
    import threading

    made: Future[Any] = Future()
    held, lock = list(futures), threading.Lock()
    left = len(held)

    def count(done: Future) -> None:
        nonlocal left
        error = done._held.exception()
        with lock:
            left -= 1
            if made.done():
                return
            if error is not None:
                made.set_exception(error)
            elif not left:
                made.set_result(held)

    for each in held:
        each.add_done_callback(count)
    if not held:
        made.set_result(held)
    return made


def wait_all(futures: list[Future]) -> list[Any]:
    """The values of all; raises the first error.

    >>> ad.futures.wait_all([])
    []
    """
    return [each.wait() for each in collect_all(futures).wait()]
