"""Deferral of signal handlers, where Python code must run to its end or not at all.

Python runs a signal's handler between two bytecodes of the main thread, and what the handler raises
(KeyboardInterrupt) appears there: between taking a lock and the `try` that would give it back, in
the middle of an undo. `with DEFERRED:` holds handlers back: the handler of a signal that arrives
meanwhile runs right behind the block. Native code needs none of this: handlers never run within it.

Compiled by Cython, so that no bytecode of this file runs before handlers are held back, or after
they are back. Interpreted, a signal may still fall between two bytecodes of `begin` and `end`.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the functions without enums
import _thread
import os
import threading
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

from . import policy
from .cython_shim import cython

__all__ = ["DEFERRED", "Deferral", "HandlersReplaced", "complete"]

_NUMBERS = sorted(int(each) for each in _signal.valid_signals())
_identity = threading.get_ident  # of a thread; a C function
_handler_of, _set_handler = _signal.getsignal, _signal.signal  # C functions
_trip = _thread.interrupt_main  # lets a signal's handler run with the next bytecode
_main = [threading.main_thread().ident]  # the thread on which handlers run


class HandlersReplaced:
    """All handlers of signals that are written in Python, with `on_signal` in their place."""

    def __init__(self) -> None:
        self.handlers: dict[int, Any] = {}  # by signal: the handler that was replaced
        self.error: Any = None  # what a handler raised while handlers were being replaced
        self.own: Any = self.on_signal  # one object, by which it is known as a handler

    def replace(self) -> None:
        """Put `on_signal` in the place of each handler; does nothing on other threads than the
        main one. Raises nothing, so that a `finally` that begins so is not skipped.
        """
        if _identity() != _main[0]:
            return
        for number in _NUMBERS:
            handler = _handler_of(number)
            if not callable(handler):  # the system's own, or one of a library in C
                continue
            for _ in range(policy.SIGNAL_ATTEMPTS):
                try:
                    _set_handler(number, self.own)  # which runs handlers that are due, first
                    self.handlers[number] = handler
                    break
                except BaseException as error:
                    self.error = self.error or error

    def put_back(self) -> None:
        """Let signals have the handlers that were replaced, but for those set meanwhile."""
        for number, handler in self.handlers.items():
            for _ in range(policy.SIGNAL_ATTEMPTS):
                try:
                    if _handler_of(number) is self.own:
                        _set_handler(number, handler)
                    break
                except BaseException as error:
                    self.error = self.error or error
        self.handlers = {}

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Do what is to be done about a signal meanwhile. A subclass says what."""
        raise NotImplementedError


class Deferral(HandlersReplaced):
    """A reentrant block in which handlers of signals wait: of other threads than the main one, on
    which no handler ever runs, it asks nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.depth = 0  # of nested blocks
        self.arrived: list[int] = []  # signals whose handlers are due, each once

    def __enter__(self) -> Deferral:
        self.begin()
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()

    def begin(self) -> None:
        """Hold handlers back. Raises nothing."""
        if _identity() == _main[0]:
            self.depth += 1
            if self.depth == 1:
                self.replace()

    def end(self) -> None:
        """Give handlers back; those that are due run with the next bytecode."""
        if _identity() == _main[0] and self.depth:
            self.depth -= 1
            if not self.depth:
                self.deliver()

    def poll(self) -> None:
        """Let handlers run that are due, within a block: between the turns of an endless loop,
        where an exception undoes what the block has done.
        """
        if not self.depth or _identity() != _main[0] or not (self.arrived or self.error):
            return
        depth, self.depth = self.depth, 0
        try:
            self.deliver()
            if cython.compiled:
                PyErr_CheckSignals()  # type: ignore[name-defined]  # noqa: F821
        finally:
            self.replace()
            self.depth = depth

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Remember a signal."""
        if number not in self.arrived:
            self.arrived.append(number)

    def deliver(self) -> None:
        """Put handlers back, and let those that are due run with the next bytecode."""
        self.put_back()
        arrived, self.arrived = self.arrived, []
        error, self.error = self.error, None
        for number in arrived:
            _trip(number)  # type: ignore[arg-type]
        if error is not None:
            raise error

    def follow_fork(self) -> None:
        """In a forked child: the thread that forked is its main thread."""
        if _identity() != _main[0]:
            _main[0] = _identity()
            self.depth = 0  # the block of a thread that is not in the child
            self.put_back()
            self.arrived, self.error = [], None


DEFERRED = Deferral()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=DEFERRED.follow_fork)


def complete(actions: Iterable[Callable[[], Any]]) -> None:
    """Call each action to its end, with handlers deferred; all of them, also where some raise.

    An action that raises is called once more, since an exception may come from outside of it
    (`PyThreadState_SetAsyncExc`, by which timeouts end work); so it must do the same when
    it is called again. The first exception is raised when all have been called.

    >>> from adjoint.core.signal_deferral import complete
    >>> done = []
    >>> try:
    ...     complete([lambda: done.append(1), lambda: 1 / 0, lambda: done.append(2)])
    ... except ZeroDivisionError:
    ...     done
    [1, 2]
    """
    error = None
    DEFERRED.begin()
    try:
        for action in actions:
            for _ in range(2):
                try:
                    action()
                    break
                except BaseException as another:
                    error = error or another
    finally:
        DEFERRED.end()
    if error is not None:
        raise error
