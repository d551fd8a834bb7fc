"""What a guarded place of Python state holds now, whether that is the same, and putting it back."""

from __future__ import annotations

import contextlib
import operator
import types
from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

from .code_names import is_implied
from .code_observer import is_known
from .identity_guards import version_of
from .known_types import HEAP, Held, InContext, Writeable, is_library_class, module_of
from .slots import ABSENT, PLAIN, GuardSource, is_kind


def now(slot: GuardSource) -> Any:
    """The present value of a slot."""
    kind, holder, key = slot[:3]
    if kind in ("dict", "import"):
        of_dict = type(holder) is dict or is_kind(holder, dict)
        return dict.get(holder, key, ABSENT) if of_dict else holder.get(key, ABSENT)
    if kind == "kind":
        return type(holder)
    if kind in ("call", "kept"):
        return holder()
    if kind == "item":
        if is_kind(holder, dict):
            return dict.get(holder, key, ABSENT)
        return holder[key] if key < len(holder) else ABSENT
    if kind == "class":
        return holder.__dict__.get(key, ABSENT)
    if kind == "cell":
        try:
            return holder.cell_contents
        except ValueError:
            return ABSENT
    return getattr(holder, key, ABSENT)


CONTAINERS = (dict, list, tuple, set, frozenset, deque)


def held_by(x: Any) -> tuple[object, ...]:
    """Contents of a container, keys of a dict first; by no method that a class of the user's may
    have put in the place of its own, which would run here.
    """
    if type(x) is dict:  # nearly all
        return (*x, *x.values())
    if is_kind(x, np.ndarray):
        return tuple(x.ravel().tolist())
    if is_kind(x, OrderedDict):  # which has an order of its own
        return (*OrderedDict.keys(x), *OrderedDict.values(x))
    if is_kind(x, dict):
        return (*dict.keys(x), *dict.values(x))
    base: Any
    for base in CONTAINERS:
        if is_kind(x, base):
            return tuple(base.__iter__(x))
    raise TypeError(f"{type(x).__name__} is no container")


def pairs_of(x: dict[Any, Any]) -> Iterable[tuple[Any, Any]]:
    """Keys and values of a dict, in its order."""
    return OrderedDict.items(x) if is_kind(x, OrderedDict) else dict.items(x)


def is_same(slot: GuardSource) -> bool:
    """Whether a slot has the value that it had at capture."""
    kind, holder, _, value = slot[:4]
    if kind in ("root", "iterator", "large", "opaque"):
        return True
    if kind == "import" and value is ABSENT:  # once, as eagerly
        return True
    if kind == "items":
        if type(holder) is dict or is_kind(holder, dict):
            if 2 * dict.__len__(holder) != len(value):
                return False
            present: Sequence[object] = held_by(holder)
        else:
            if len(holder) != len(value):
                return False
            present = held_by(holder)
        return are_same(present, value)
    if kind == "others":
        return are_same(others(holder, slot.key), value)
    if kind == "names":
        if value[2] and version_of(holder) == value[2]:
            return True
        names, values = names_in(holder, slot.key)
        return bool(names == value[0]) and all(map(operator.is_, values, value[1]))
    if kind in ("keys", "members"):
        return len(holder) == len(value) and all(map(operator.is_, holder, value))
    if kind == "array":
        return bool(holder.dtype == value.dtype and holder.shape == value.shape) and (
            holder.tobytes() == value.tobytes()
        )
    present = now(slot)
    return present is value or equal(present, value)


def version_given(kind: type) -> int:
    """The version of a class, which Python gives it when a name is looked up in it, as one is that
    its own class does not have.
    """
    with contextlib.suppress(AttributeError):
        type.__getattribute__(kind, "a name of nothing")
    return version_of(kind)


def names_now(kind: type, names: frozenset[str] | None) -> tuple[Any, ...]:
    """Names of a class, as `names_in` has them, and its version, by which it is seen at once that
    they are the same; 0 where it has none.
    """
    version = version_given(kind)
    return (*names_in(kind, names), version)


def names_in(
    kind: type, names: frozenset[str] | None
) -> tuple[tuple[tuple[type, str], ...], tuple[object, ...]]:
    """Which names a class and those that it is derived from have, of some or of all and of the
    methods that Python looks up; of a library's class, what they are, too, since what they hold is
    not looked into.
    """
    held: list[tuple[type, str]] = []
    values: list[object] = []
    for each in kind.__mro__:
        if not each.__flags__ & HEAP:
            continue
        library = is_known(module_of(each)) or is_library_class(each)
        for name, value in each.__dict__.items():
            if (
                (callable(value) or hasattr(value, "__get__"))
                if is_implied(name)
                else (names is None or name in names)
            ):
                held.append((each, name))
                values.append(value if library else None)
    return tuple(held), tuple(values)


def _put_back_names(kind: type, names: frozenset[str] | None, value: Any) -> None:
    """Take away what classes have got since, and put back what a library's had."""
    before = dict(zip(*value[:2], strict=True))
    for pair, x in zip(*names_in(kind, names), strict=True):
        if pair not in before:
            delattr(pair[0], pair[1])
        elif before[pair] is not x:
            setattr(pair[0], pair[1], before[pair])
    for pair, x in before.items():
        if x is not None and pair[1] not in pair[0].__dict__:
            setattr(pair[0], pair[1], x)


def others(holder: Any, keys: Collection[Any]) -> tuple[Any, ...]:
    """The contents of a dict or list, except at some keys."""
    if is_kind(holder, dict):
        rest = {key: x for key, x in pairs_of(holder) if key not in keys}
        return (*rest, *rest.values())
    return (len(holder), *(x for key, x in enumerate(holder) if key not in keys))


def equal(now: Any, value: Any) -> bool:
    """Whether two distinct objects are interchangeable as guarded values."""
    kind = type(now)
    if kind is not type(value):
        return False
    if kind in PLAIN:
        return repr(now) == repr(value)
    if kind is types.MethodType:  # made each time that it is read
        return now.__func__ is value.__func__ and now.__self__ is value.__self__
    return kind is tuple and are_same(now, value)


def are_same(before: Sequence[object], after: Sequence[object]) -> bool:
    """Whether two moments' contents are the same objects, or interchangeable as guarded values."""
    same = len(before) == len(after)
    for x, y in zip(before, after, strict=False):
        same = same and (x is y or equal(x, y))
    return same


def put_back(slot: GuardSource) -> None:
    """Restore a slot to its value at capture."""
    kind, holder, _, value = slot[:4]
    if kind == "items":
        if is_kind(holder, dict):  # by no method of a class of the user's, such as Counter's
            own = OrderedDict if is_kind(holder, OrderedDict) else dict
            half = len(value) // 2
            own.clear(holder)
            for each, x in zip(value[:half], value[half:], strict=True):
                own.__setitem__(holder, each, x)
        elif is_kind(holder, list):
            list.__setitem__(holder, slice(None), value)
        elif is_kind(holder, set):
            set.clear(holder)
            set.update(holder, value)
        elif is_kind(holder, deque):
            deque.clear(holder)
            deque.extend(holder, value)
        elif is_kind(holder, np.ndarray):
            holder.flat[:] = value
    elif kind == "members":
        holder[:] = value
    elif kind == "names":
        _put_back_names(holder, slot.key, value)
    elif kind == "keys":
        for name in [name for name in holder if name not in value]:
            del holder[name]
    elif kind == "call" and is_kind(holder, (Held, InContext, Writeable)):
        holder.put_back(value)
    elif kind == "array":
        if holder.shape != value.shape:
            holder.shape = value.shape
        holder[...] = value
    else:
        put(slot, value)


def put(slot: GuardSource, value: object) -> None:
    """Set a single-valued slot."""
    kind, holder, key = slot[:3]
    if kind == "item" and is_kind(holder, list):
        list.__setitem__(
            holder, slice(key, None if value is ABSENT else key + 1),
            () if value is ABSENT else (value,),
        )  # fmt: skip
    elif kind in ("dict", "item", "import"):
        own = OrderedDict if is_kind(holder, OrderedDict) else dict
        if not is_kind(holder, dict):
            own = type(holder)
        if value is ABSENT:
            own.pop(holder, key, None)
        else:
            own.__setitem__(holder, key, value)
    elif kind == "cell":
        if value is not ABSENT:
            holder.cell_contents = value
        else:
            del holder.cell_contents
    elif kind in ("attr", "class", "kind"):
        if value is not ABSENT:
            setattr(holder, key, value)
        elif hasattr(holder, key):
            delattr(holder, key)
