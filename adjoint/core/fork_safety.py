"""Locks that a fork does not leave held: in a child only the thread that forked goes on.

A lock that another thread holds at the fork would be held in the child for ever, and what it guards
would be there half changed. So all locks of this package come from `lock()`, and a fork waits until
it has them all: then nothing is in the middle of a change. A thread that holds one for longer than
`policy.FORK_PATIENCE` (a compiled step that waits for a value, say) is not waited for: the child
gets the lock anew, and what that thread was changing is in the child as it was at that moment.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Any

from . import policy
from .signal_deferral import DEFERRED

__all__ = ["gate", "lock"]

_locks: list[weakref.ref[Any]] = []  # some of them dead
_room = [64]  # how many there may be before dead ones are dropped
_forks = threading.RLock()  # one at a time
_taken: list[Any] = []  # the locks that the fork has, in its thread
_pending = False  # a fork is waiting
given_up = [0]  # how many forks went on without a lock that a thread held too long


def lock() -> threading.RLock:
    """Make a reentrant lock that a fork waits for, and that is free, or its own, in the child."""
    made = threading.RLock()
    _locks.append(weakref.ref(made))
    if len(_locks) > _room[0]:
        _locks[:] = [each for each in _locks if each() is not None]
        _room[0] = 2 * len(_locks) + 64
    return made


def gate() -> None:
    """Wait while another thread forks: for who takes one lock again and again, without a pause in
    which the fork could have it.
    """
    if _pending:
        with _forks:
            pass


def _before() -> None:
    """Take all locks, or as many as there are to be had in time; without waiting for one with
    others in hand, as whoever holds that one may wait for these.
    """
    global _pending
    _forks.acquire()
    _pending = True
    deadline = time.monotonic() + policy.FORK_PATIENCE
    missed = None
    while True:
        if missed is not None and missed.acquire(timeout=max(deadline - time.monotonic(), 0)):
            _taken.append(missed)
        live = [made for each in list(_locks) if (made := each()) is not None]
        others = [each for each in live if each is not missed or not _taken]
        _taken.extend(each for each in others if each.acquire(blocking=False))
        if len(_taken) == len(live):
            return
        if time.monotonic() > deadline:
            given_up[0] += 1
            return
        # Threads that take one lock in turn leave it free only while nobody runs who could ask for
        # it: the one that was missed is waited for, alone, before the others.
        had = set(map(id, _taken))
        missed = next(each for each in live if id(each) not in had)
        _release()


def _release() -> None:
    while _taken:
        _taken.pop().release()


def _in_parent() -> None:
    global _pending
    _release()
    _pending = False
    _forks.release()


def _in_child() -> None:
    global _pending
    had = set(map(id, _taken))
    for each in list(_locks):
        made = each()
        if made is not None and id(made) not in had:
            made._at_fork_reinit()  # as the standard library does with its own
    _in_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
    # The last one registered is the first one before a fork, and the last one after it.
    os.register_at_fork(
        before=DEFERRED.begin, after_in_parent=DEFERRED.end, after_in_child=DEFERRED.end
    )
