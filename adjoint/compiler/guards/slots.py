"""A guarded place of Python state."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard, TypeVar, overload

T = TypeVar("T")


@overload
def is_kind(x: object, kinds: type[T]) -> TypeGuard[T]: ...
@overload
def is_kind(x: object, kinds: tuple[type, ...]) -> bool: ...
def is_kind(x: object, kinds: type | tuple[type, ...]) -> bool:
    """Whether an object is of one of these types. The type alone is asked: `isinstance` reads
    `__class__`, by the `__getattribute__` of a user's class.
    """
    return issubclass(type(x), kinds)


ABSENT: Any = type("Absent", (), {"__repr__": lambda self: "nothing"})()


PLAIN: frozenset[Any] = frozenset(
    (int, float, complex, bool, str, bytes, type(None), type(Ellipsis), range, slice)
)


REGISTRIES = frozenset(("_parameters", "_buffers", "_modules"))
CONTENT = ("items", "others", "members", "names")
_HIDDEN = frozenset(("__func__", "__self__", "__wrapped__", "__code__"))


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


def contents_in(slots: Sequence[GuardSource], x: dict[Any, Any]) -> dict[Any, Any] | None:
    """The contents of a dict at capture; None if it is not guarded."""
    for slot in slots:
        if slot.kind == "items" and slot.holder is x:
            half = len(slot.value) // 2
            return dict(zip(slot.value[:half], slot.value[half:], strict=True))
    return None


def path_of(slots: Sequence[GuardSource], slot: GuardSource) -> str:
    """The expression by which a user would write one of the slots."""
    words: list[str] = []
    asked = slot
    while True:
        if slot.kind == "root" or slot.parent < 0:
            words.append(str(slot.key))
            break
        holder = slots[slot.parent]
        is_variable = is_kind(slot.needs, types.CodeType)
        registry = holder.parent >= 0 and slots[holder.parent].key in REGISTRIES
        if slot.kind == "cell" or (slot.kind == "dict" and is_variable):
            words.append(str(slot.key))
            break
        if slot.kind == "item":
            words.append(f".{slot.key}" if registry else f"[{slot.key!r}]")
        elif slot.kind in CONTENT or slot.key in REGISTRIES or slot.key in _HIDDEN:
            pass
        elif slot.key is not None and (slot.kind != "kind" or slot is asked):  # by its object
            words.append(f".{slot.key}")
        if holder.kind == "items" and slot.kind != "item":
            words.append(_place_in(slots, holder, slot.holder))
        slot = holder
    return "".join(reversed(words)).lstrip(".")


def _place_in(slots: Sequence[GuardSource], holder: GuardSource, x: object) -> str:
    """The subscript of the container's item that is `x`, or whose `__dict__` is `x`."""
    container = holder.holder
    for i, each in enumerate(holder.value):
        if each is x or getattr(each, "__dict__", ABSENT) is x:
            if not is_kind(container, dict):
                return f"[{i}]"
            key = holder.value[i - len(holder.value) // 2]
            hidden = holder.parent >= 0 and holder.key is None
            parent = slots[holder.parent] if hidden else holder
            return f".{key}" if parent.key in REGISTRIES else f"[{key!r}]"
    return "[...]"


def reached_of(
    slots: Sequence[GuardSource],
    all_ways: Mapping[int, Sequence[int]],
    reads: Callable[[GuardSource], bool],
) -> list[bool]:
    """For each slot whether it is read: `reads` says so of the slot itself, and a slot that is
    read leads to its holder. `all_ways` are the slots that lead to the holder of a slot, besides
    the first.
    """
    is_read = [False] * len(slots)
    waiting = [n for n, slot in enumerate(slots) if reads(slot)]
    while True:
        rest = []
        for n in waiting:
            parent = slots[n].parent
            ways = all_ways.get(parent, ())
            if parent < 0 or is_read[parent] or any(is_read[k] for k in ways):
                is_read[n] = True
            else:
                rest.append(n)
        if len(rest) == len(waiting):
            return is_read
        waiting = rest
