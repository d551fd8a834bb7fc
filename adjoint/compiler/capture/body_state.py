"""Refuses a body that changes Python state: a list, a counter, an attribute. It is traced once, and
Python would run it in each turn, or in one branch only.

Two kinds of state are compared before and after: what the function around reached before it ran
(the slots of its snapshot), and what the body holds that was made meanwhile (its variables).
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import Unsupported
from ...core.tensor_base import TensorBase
from ..guards.code_observer import is_known
from ..guards.known_types import HEAP, is_iterator
from ..guards.slot_values import CONTAINERS, are_same, held_by, is_same, now
from ..guards.slots import ABSENT, PLAIN, GuardSource, is_kind

if TYPE_CHECKING:
    from ..guards.state_snapshot import StateSnapshot


class BodyState:
    """Python state that a body may not change: `function` is the user's, `reads` the snapshot of
    the function around, if that is captured, too.
    """

    def __init__(
        self, title: str, function: Callable[..., Any], reads: StateSnapshot | None
    ) -> None:
        self._title, self._reads = title, reads
        self._held = [(x, name, _contents(x)) for x, name in self._reached(function)]
        self._changed = self._present()

    def assert_same(self) -> None:
        """Refuse what the body has changed meanwhile.

        Errors: Unsupported.
        """
        for x, name, before in self._held:
            if not _are_same(before, _contents(x)):
                raise self._error(name or f"a {type(x).__name__}")
        present = self._present()
        for place, value in present.items():
            if place not in self._changed or not _are_same(self._changed[place], value):
                assert self._reads is not None
                raise self._error(self._reads.path(self._reads.slots[place]))

    def _error(self, what: str) -> Unsupported:
        return Unsupported(
            f"{self._title}: a function of it changes {what}, which Python would do in each turn, "
            "or in one branch only; carry it as a tensor, or change it outside"
        )

    def _present(self) -> dict[int, tuple[object, ...]]:
        """The slots of the snapshot that have changed by now, and what they hold."""
        slots = () if self._reads is None else self._reads.slots
        return {n: _now(x) for n, x in enumerate(slots) if x.kind != "kept" and not is_same(x)}

    def _reached(self, function: object) -> Iterator[tuple[Any, str]]:
        """Cells, containers, arrays and objects of users' classes that a function holds, and the
        names of variables; those of the snapshot are not among them.

        Errors: Unsupported for an iterator, which a body would advance.
        """
        seen: set[int] = set()
        waiting: list[tuple[Any, str]] = [(function, "")]
        while waiting:
            x, name = waiting.pop()
            if type(x) in PLAIN or id(x) in seen or is_kind(x, TensorBase):
                continue
            seen.add(id(x))
            if self._reads is not None and self._reads.has_met(x):
                continue
            if is_iterator(x):
                raise self._error(f"{name or 'what it holds'} (a {type(x).__name__})")
            if _contents(x) is not None:
                yield x, name
            waiting.extend(_parts(x, name))


def _parts(x: Any, name: str) -> Iterator[tuple[Any, str]]:
    """Objects to which one leads, with the names of variables."""
    if is_kind(x, types.FunctionType):
        yield from zip(x.__closure__ or (), x.__code__.co_freevars, strict=True)
        yield from ((each, "") for each in x.__defaults__ or ())
    elif is_kind(x, types.MethodType):
        yield from ((each, "") for each in (x.__func__, x.__self__))
    elif is_kind(x, functools.partial):
        yield from ((each, "") for each in (x.func, x.args, x.keywords))
    else:
        yield from ((each, name) for each in _contents(x) or ())
        yield type(x), ""


def _contents(x: Any) -> tuple[object, ...] | None:
    """Contents of a cell, a container, an array or an object of a user's class; None for others."""
    if type(x) is types.CellType:
        try:
            return (x.cell_contents,)
        except ValueError:
            return (ABSENT,)
    if is_kind(x, (*CONTAINERS, np.ndarray)):
        return held_by(x)
    if is_kind(x, bytearray):
        return (bytes(x),)
    own = getattr(x, "__dict__", None)
    if own is None or is_kind(x, types.ModuleType):
        return None
    if is_kind(x, type) and not x.__flags__ & HEAP:
        return None
    kind = x if is_kind(x, type) else type(x)
    return None if is_known(str(kind.__module__)) else held_by(dict(own))


def _now(slot: GuardSource) -> tuple[object, ...]:
    """Present contents of a slot, as two moments compare."""
    if is_kind(slot.holder, (*CONTAINERS, np.ndarray)) and slot.kind not in ("dict", "item"):
        return held_by(slot.holder)
    return (now(slot),)


def _are_same(before: tuple[object, ...] | None, after: tuple[object, ...] | None) -> bool:
    if before is None or after is None:
        return before is after
    return are_same(before, after)
