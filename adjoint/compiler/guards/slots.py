"""A guarded place of Python state."""

from __future__ import annotations

from typing import Any, NamedTuple

ABSENT: Any = type("Absent", (), {"__repr__": lambda self: "nothing"})()


PLAIN: frozenset[Any] = frozenset(
    (int, float, complex, bool, str, bytes, type(None), type(Ellipsis), range, slice)
)


class GuardSource(NamedTuple):
    """One guarded location of Python state: an attribute, item, variable or container."""

    kind: str  # how it is read: see `now` and `is_same`
    holder: Any
    key: Any
    value: Any  # its value at capture; the items, for containers
    parent: int  # the slot that holds the holder; -1 for none
    needs: Any  # a name or a code object, which must have run for this to be read; None for always


def place_key(slot: GuardSource) -> tuple[Any, ...]:
    """Key that identifies a single-valued slot."""
    return "dict" if slot.kind == "item" else slot.kind, id(slot.holder), slot.key
