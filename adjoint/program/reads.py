"""What a function's Python reads outside of itself, and whether that is still what it was.

A program that was captured from a function holds for as long as its Python would do the same: the
same attributes, variables and containers, read by the same code. Before the function runs, all
that it can reach by the names in its code is written down (`Reads`); while it runs, which code does
(`Watch`); afterwards, what has a name in code that ran is what the program depends on (`Guards`).
What Python has changed is put back, since a program could not change it again.

Tensors are looked at by identity: what they hold is the program's business. Nothing is known of
code without Python: functions that may have an effect are refused by name.
"""

from __future__ import annotations

import dis
import functools
import operator
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..core import config, policy
from ..core.errors import Unsupported
from ..core.op import Op
from ..core.scalar import Number
from ..core.tensor_base import TensorBase
from .standing import Held
from .watch import OURS, Watch, is_library, is_users, place_in

ABSENT: Any = type("Absent", (), {"__repr__": lambda self: "nothing"})()
PLAIN: frozenset[Any] = frozenset(
    (int, float, complex, bool, str, bytes, type(None), type(Ellipsis), range, slice)
)
# Names in code by which attributes are read that stand nowhere in it.
_ANY_NAME = frozenset(
    ("getattr", "setattr", "delattr", "hasattr", "vars", "__dict__", "eval", "exec")
)
# What Python calls without naming it.
_METHODS = (
    "call getattr getattribute getitem setitem len iter next contains enter exit bool eq ne lt "
    "le gt ge hash add sub mul truediv matmul pow neg radd rsub rmul rtruediv iadd isub imul "
    "get set "
)
_IMPLIED = frozenset(f"__{name}__" for name in _METHODS.split())


class Slot(NamedTuple):
    """A place where Python finds something."""

    kind: str  # how it is looked at: see `now` and `is_same`
    holder: Any
    key: Any
    value: Any  # what it held; the items, for containers
    parent: int  # the slot that holds the holder; -1 for none
    needs: Any  # a name or a code object, which must have run for this to be read; None for always


class Users(str):
    """A name that counts only in code of users."""

    __slots__ = ()


# ---- what can be reached -------------------------------------------------------------------------


class Reads:
    """All that code can reach from some roots by the names in it, as it is now."""

    def __init__(self, roots: Iterable[tuple[str, Any]]) -> None:
        roots = list(roots)
        self._names: set[str] = set(_IMPLIED)
        self._everything = False
        # Entries of dicts, by their ids, that calls after each run change: who does not name them
        # does not read them.
        self.later: dict[int, frozenset[Any]] = {}
        self.renewed: dict[int, frozenset[str]] = {}  # ids of dicts, and names: see `renew`
        while True:
            known = len(self._names), self._everything
            self.slots: list[Slot] = []
            self._seen: dict[int, int] = {}
            self._waiting: deque[tuple[Any, int]] = deque()
            for name, value in roots:
                self._add("root", None, name, value, -1, None)
            while self._waiting:
                self._visit(*self._waiting.popleft())
                if len(self.slots) > policy.GUARDED_SLOTS:
                    raise Unsupported(
                        f"compile: the function may read more than {policy.GUARDED_SLOTS:,} "
                        f"attributes and items, such as {self.path(self.slots[-1])}; give it what "
                        "it needs in variables of its own"
                    )
            if (len(self._names), self._everything) == known:
                return

    def _add(self, kind: str, holder: Any, key: Any, value: Any, parent: int, needs: Any) -> None:
        self.slots.append(Slot(kind, holder, key, value, parent, needs))
        place = len(self.slots) - 1
        for each in value if kind == "items" else () if kind == "array" else (value,):
            if type(each) not in PLAIN:
                self._waiting.append((each, place))

    def _hold(self, holder: dict[str, Any], key: str, parent: int) -> None:
        """A list that is to contain the same objects, which are not looked at."""
        held = holder[key]
        self.slots.append(Slot("dict", holder, key, held, parent, None))
        self.slots.append(Slot("members", held, None, tuple(held), len(self.slots) - 1, None))

    def _learn(self, code: Any) -> None:
        """Names in code, and in the code of functions that it makes."""
        names = code.co_names
        self._names.update(names)
        if not _ANY_NAME.isdisjoint(names) and is_users(code):
            self._everything = True
        for each in code.co_consts:
            if isinstance(each, types.CodeType):
                self._learn(each)

    def _visit(self, x: Any, place: int) -> None:
        if isinstance(x, TensorBase):  # whose hooks run, too
            extra = None if x._node is None else x._node.extra
            after = None if x._leaf is None else x._leaf.after
            own = () if extra is None else (extra.hooks, extra.prehooks, extra.posthooks)
            for hooks in (*own, after or {}):
                for hook in hooks.values():
                    self._visit(hook, place)
            return
        if id(x) in self._seen or isinstance(x, (Op, np.dtype, np.generic)):
            return
        self._seen[id(x)] = place
        opaque = getattr(type(x), "_read_by_name", None)
        if opaque is not None:  # whose own code looks at what it holds each time
            for name in opaque:
                self._add("dict", x.__dict__, name, x.__dict__[name], place, Users(name))
            for name in getattr(type(x), "_read_always", ()):
                self._add("dict", x.__dict__, name, x.__dict__[name], place, None)
            for holder, key in x._members() if hasattr(x, "_members") else ():
                self._hold(holder, key, place)
        elif isinstance(x, types.FunctionType):
            self._visit_function(x, place)
        elif isinstance(x, types.MethodType):
            self._add("attr", x, "__func__", x.__func__, place, None)
            self._add("attr", x, "__self__", x.__self__, place, None)
        elif isinstance(x, functools.partial):
            for name in ("func", "args", "keywords"):
                self._add("attr", x, name, getattr(x, name), place, None)
        elif isinstance(x, (staticmethod, classmethod)):
            self._add("attr", x, "__func__", x.__func__, place, None)
        elif isinstance(x, property):
            for name in ("fget", "fset"):
                self._add("attr", x, name, getattr(x, name), place, None)
        elif isinstance(x, np.ndarray):
            self._visit_array(x, place)
        elif isinstance(x, type):
            self._visit_class(x, place)
        elif isinstance(x, types.ModuleType):
            if _is_users_module(x):
                self._visit_names(x.__dict__, place, all_of_them=False)
        else:
            self._visit_object(x, place)

    def _visit_function(self, x: Any, place: int) -> None:
        code = x.__code__
        self._learn(code)
        ours = code.co_filename.startswith(OURS)
        if not ours:
            self.slots.append(Slot("attr", x, "__code__", code, place, code))
        for name in ("__defaults__", "__kwdefaults__", "__wrapped__"):
            value = getattr(x, name, None)
            if value is not None and not (ours and name != "__wrapped__"):
                self._add("attr", x, name, value, place, code)
        for name, cell in zip(code.co_freevars, x.__closure__ or (), strict=True):
            try:
                value = cell.cell_contents
            except ValueError:  # empty as yet
                value = ABSENT
            self._add("cell", cell, name, value, place, code)
        if not ours:
            own = x.__globals__
            for name in sorted(_globals_of(code)):
                self._add("dict", own, name, own.get(name, ABSENT), place, code)
            self._visit_names(x.__dict__, place)

    def _visit_array(self, x: Any, place: int) -> None:
        if x.dtype == object:
            self._add("items", x, None, tuple(x.ravel().tolist()), place, None)
        elif x.nbytes <= policy.GUARDED_BYTES:
            self._add("array", x, None, x.copy(), place, None)
        else:
            self._add("large", x, None, None, place, None)

    def _visit_class(self, x: type, place: int) -> None:
        module = _module_of(x)
        if module in ("builtins", "numpy"):
            return
        if module in ("adjoint", config.CALLED):  # does not change; the names in its code matter
            for name, member in x.__dict__.items():
                if name in self._names and isinstance(member, types.FunctionType):
                    self._visit(member, place)
        else:
            self._visit_names(x, place, is_class=True)
            for base in x.__mro__[1:]:  # which stand behind what the class may get
                if _module_of(base) not in ("builtins", "numpy", "adjoint", config.CALLED):
                    for name in sorted((base.__dict__.keys() & self._names) - x.__dict__.keys()):
                        self.slots.append(Slot("class", x, name, ABSENT, place, name))
        for base in x.__mro__[1:]:
            self._visit(base, place)

    def _visit_object(self, x: Any, place: int) -> None:
        if isinstance(x, dict):
            self._add("items", x, None, (*x.keys(), *x.values()), place, None)
        elif isinstance(x, (list, tuple, set, frozenset, deque)):
            self._add("items", x, None, tuple(x), place, None)  # tuples: to visit their items
        elif hasattr(type(x), "__next__") or isinstance(x, _NUMPY_RANDOM):
            self._add("iterator", x, None, None, place, None)
        own = getattr(x, "__dict__", None)
        unread = getattr(type(x), "_unread", None)  # of a compiled function, whose code is ours
        if type(own) is dict:
            self.slots.append(Slot("keys", own, None, tuple(own), place, None))
            self._visit_names(own, place, unread=unread or frozenset())
        if unread is not None:
            self._add("dict", own, "function", x.function, place, None)
            return
        self._visit(type(x), place)
        for kind in type(x).__mro__:
            for name, member in kind.__dict__.items() if kind.__module__ != "builtins" else ():
                if isinstance(member, types.MemberDescriptorType):
                    value = getattr(x, name, ABSENT)
                    self._add("attr", x, name, value, place, name)
                elif (
                    type(own) is dict and name not in own and not callable(member)
                    and not hasattr(member, "__get__") and not name.startswith("__")
                    and name in self._names
                ):  # fmt: skip
                    self._add("dict", own, name, ABSENT, place, name)

    def _visit_names(
        self, own: Any, place: int, is_class: bool = False, all_of_them: bool = True,
        unread: frozenset[str] = frozenset(),
    ) -> None:  # fmt: skip
        names = self._names
        everything = self._everything and all_of_them
        for name, value in (own.__dict__ if is_class else own).items():
            if type(name) is not str or name in unread or (is_class and name in _OF_CLASSES):
                continue
            registry = name in _REGISTRIES
            if registry or everything or name in names:
                needs = None if registry or (everything and not is_class) else name
                self._add("class" if is_class else "dict", own, name, value, place, needs)

    def renew(self, x: dict[Any, Any], names: Iterable[str]) -> None:
        """What a dict contains now is what it contained, though the function has run a while. If
        its code reads it, or names one of these, it is to run again: see `guards_of`.
        """
        self.renewed[id(x)] = frozenset(names)
        for place, slot in enumerate(self.slots):
            if slot.kind == "items" and slot.holder is x:
                self.slots[place] = slot._replace(value=(*x.keys(), *x.values()))
                self._waiting.extend((each, place) for each in x.values())
        while self._waiting:
            self._visit(*self._waiting.popleft())

    def contents(self, x: dict[Any, Any]) -> dict[Any, Any] | None:
        """What a dict contained; None where that is not known."""
        for slot in self.slots:
            if slot.kind == "items" and slot.holder is x:
                half = len(slot.value) // 2
                return dict(zip(slot.value[:half], slot.value[half:], strict=True))
        return None

    def changed(self) -> Iterator[Slot]:
        """What is not as it was."""
        for slot in self.slots:
            if not is_same(slot):
                yield slot

    def path(self, slot: Slot) -> str:
        """How a user would write it."""
        words: list[str] = []
        while True:
            if slot.kind == "root" or slot.parent < 0:
                words.append(str(slot.key))
                break
            holder = self.slots[slot.parent]
            is_variable = isinstance(slot.needs, types.CodeType)
            registry = holder.parent >= 0 and self.slots[holder.parent].key in _REGISTRIES
            if slot.kind == "cell" or (slot.kind == "dict" and is_variable):
                words.append(str(slot.key))
                break
            if slot.kind == "item":
                words.append(f".{slot.key}" if registry else f"[{slot.key!r}]")
            elif slot.kind in _CONTENT or slot.key in _REGISTRIES or slot.key in _HIDDEN:
                pass
            elif slot.key is not None:
                words.append(f".{slot.key}")
            if holder.kind == "items" and slot.kind != "item":
                words.append(self._place_in(holder, slot.holder))
            slot = holder
        return "".join(reversed(words)).lstrip(".")

    def _place_in(self, holder: Slot, x: Any) -> str:
        """Which of a container's items has `x` as its attributes, or is it."""
        container = holder.holder
        for i, each in enumerate(holder.value):
            if each is x or getattr(each, "__dict__", ABSENT) is x:
                if not isinstance(container, dict):
                    return f"[{i}]"
                key = holder.value[i - len(holder.value) // 2]
                hidden = holder.parent >= 0 and holder.key is None
                parent = self.slots[holder.parent] if hidden else holder
                return f".{key}" if parent.key in _REGISTRIES else f"[{key!r}]"
        return "[...]"


def _is_users_module(x: Any) -> bool:
    """Whether a user wrote a module: one without a file was made by hand, or in a session."""
    path = x.__dict__.get("__file__") or ""
    if path:
        return not path.startswith(OURS) and not is_library(path)
    return x.__dict__.get("__spec__") is None and _module_of(type(x)) != "adjoint"


def _module_of(x: type) -> str:
    name: Any = x.__module__
    return name.partition(".")[0] if type(name) is str else ""  # of Cython's, in Python 3.10


_NUMPY_RANDOM = (np.random.Generator, np.random.RandomState)
_REGISTRIES = frozenset(("_parameters", "_buffers", "_modules"))
_CONTENT = ("items", "others", "members")
_HIDDEN = frozenset(("__func__", "__self__", "__wrapped__", "__code__"))
_OF_CLASSES = frozenset(("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__"))


@functools.lru_cache(maxsize=1024)
def _globals_of(code: Any) -> frozenset[str]:
    """Names of variables of the module that code, and code in it, reads or sets."""
    found = {
        each.argval
        for each in dis.get_instructions(code)
        if each.opname in ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL")
    }
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            found |= _globals_of(each)
    return frozenset(found)


# ---- whether it is the same ----------------------------------------------------------------------


def now(slot: Slot) -> Any:
    """What the slot holds now."""
    kind, holder, key = slot[:3]
    if kind == "dict":
        return holder.get(key, ABSENT)
    if kind == "item":
        if isinstance(holder, dict):
            return holder.get(key, ABSENT)
        return holder[key] if key < len(holder) else ABSENT
    if kind == "class":
        return holder.__dict__.get(key, ABSENT)
    if kind == "cell":
        try:
            return holder.cell_contents
        except ValueError:
            return ABSENT
    return getattr(holder, key, ABSENT)


def is_same(slot: Slot) -> bool:
    """Whether what the slot holds is what it held."""
    kind, holder, _, value = slot[:4]
    if kind in ("root", "iterator", "large"):
        return True
    if kind == "items":
        if isinstance(holder, dict):
            if 2 * len(holder) != len(value):
                return False
            found: Iterable[Any] = (*holder.keys(), *holder.values())
        else:
            if len(holder) != len(value):
                return False
            found = holder.ravel().tolist() if isinstance(holder, np.ndarray) else holder
        return all(x is y or _equal(x, y) for x, y in zip(found, value, strict=True))
    if kind == "others":
        others = _others(holder, slot.key)
        return len(others) == len(value) and all(
            x is y or _equal(x, y) for x, y in zip(others, value, strict=True)
        )
    if kind in ("keys", "members"):
        return len(holder) == len(value) and all(map(operator.is_, holder, value))
    if kind == "array":
        return bool(holder.dtype == value.dtype and holder.shape == value.shape) and (
            holder.tobytes() == value.tobytes()
        )
    found = now(slot)
    return found is value or _equal(found, value)


def _others(holder: Any, keys: Any) -> tuple[Any, ...]:
    """What a dict or list contains but at some keys."""
    if isinstance(holder, dict):
        rest = {key: x for key, x in holder.items() if key not in keys}
        return (*rest, *rest.values())
    return (len(holder), *(x for key, x in enumerate(holder) if key not in keys))


def _equal(now: Any, value: Any) -> bool:
    """Whether values that are not the same object are as good as that."""
    kind = type(now)
    if kind is not type(value):
        return False
    if kind in PLAIN:
        return repr(now) == repr(value)
    if kind is types.MethodType:  # made each time that it is read
        return now.__func__ is value.__func__ and now.__self__ is value.__self__
    if kind is tuple:
        return len(now) == len(value) and all(
            x is y or _equal(x, y) for x, y in zip(now, value, strict=True)
        )
    return False


def put_back(slot: Slot) -> None:
    """Let the slot hold what it held."""
    kind, holder, _, value = slot[:4]
    if kind == "items":
        if isinstance(holder, dict):
            half = len(value) // 2
            holder.clear()
            holder.update(zip(value[:half], value[half:], strict=True))
        elif isinstance(holder, list):
            holder[:] = value
        elif isinstance(holder, (set, deque)):
            holder.clear()
            (holder.update if isinstance(holder, set) else holder.extend)(value)
        elif isinstance(holder, np.ndarray):
            holder.flat[:] = value
    elif kind == "members":
        holder[:] = value
    elif kind == "keys":
        for name in [name for name in holder if name not in value]:
            del holder[name]
    elif kind == "array":
        holder[...] = value
    else:
        put(slot, value)


def put(slot: Slot, value: Any) -> None:
    """Let a place of one value hold this one."""
    kind, holder, key = slot[:3]
    if kind in ("dict", "item"):
        if value is ABSENT:
            holder.pop(key, None)
        else:
            holder[key] = value
    elif kind == "cell":
        if value is not ABSENT:
            holder.cell_contents = value
        else:
            del holder.cell_contents
    elif kind in ("attr", "class"):
        setattr(holder, key, value) if value is not ABSENT else delattr(holder, key)


class Guards:
    """What a program depends on: see `reads_of`."""

    def __init__(self, reads: Reads, slots: Sequence[Slot]) -> None:
        self._reads = reads
        self._slots = slots
        self._list()

    def __len__(self) -> int:
        return len(self._slots)

    def _list(self) -> None:
        """What is found by one look; the rest one by one."""
        kinds: dict[str, list[Slot]] = {"dict": [], "attr": [], "cell": [], "listed": [], "": []}
        for slot in self._slots:
            kind = slot.kind
            if kind in ("keys", "members") or (kind == "items" and type(slot.holder) in _LISTED):
                kind = "listed"
            if kind not in kinds or (kind == "cell" and slot.value is ABSENT):
                kind = ""
            kinds[kind].append(slot)
        self._held = Held(
            [(s.holder, s.key, now(s)) for s in kinds["dict"]],
            list(map(_listed, kinds["listed"])),
            [(s.holder, s.key, now(s)) for s in kinds["attr"]],
            [(s.holder, now(s)) for s in kinds["cell"]],
            ABSENT,
        )
        self._rest = kinds[""]

    def moved(self) -> list[Slot]:
        """The places of one value that are not as they were."""
        slots = self._slots
        return moved(self._reads, [slot for slot in slots if not is_same(slot)]) or []

    def later(self) -> list[Slot]:
        """The places of one value that calls after each run change, and that the function reads."""
        found = []
        for slot in self._slots:
            kind, holder, key = slot[:3]
            names = self._reads.later.get(id(holder), frozenset())
            if kind == "dict" and key in names:
                found.append(slot)
            elif kind in ("items", "others") and isinstance(holder, dict):
                read = [name for name in holder if name in names and name not in (key or ())]
                parent = slot.parent
                found += [Slot("item", holder, x, holder[x], parent, slot.needs) for x in read]
        return found

    def hold(self) -> bool:
        """Whether all is as it was."""
        if self._held.hold() and all(map(is_same, self._rest)):
            return True
        if not all(map(is_same, self._slots)):
            return False
        self._list()  # equal objects
        return True

    def paths(self) -> list[str]:
        """What is looked at, as users would write it."""
        return list(dict.fromkeys(map(self._reads.path, self._slots)))

    def difference(self) -> str:
        """What is not as it was, in words; '' if nothing."""
        for slot in self._slots:
            if not is_same(slot):
                return described(self._reads, slot)
        return ""


_LISTED = frozenset((dict, list))


def _listed(slot: Slot) -> tuple[Any, list[Any], list[Any] | None]:
    """A container, its items or keys, and a dict's values where they count."""
    x = slot.holder
    return x, list(x), list(x.values()) if type(x) is dict and slot.kind == "items" else None


def described(reads: Reads, slot: Slot) -> str:
    """How a slot has changed."""
    path = reads.path(slot)
    if slot.kind in _CONTENT:
        return f"what {path} contains was changed"
    if slot.kind == "array":
        return f"the array {path} was written"
    if slot.kind == "keys":
        names = sorted(set(slot.holder).symmetric_difference(slot.value))
        return f"attributes of {path} were added or deleted: {', '.join(map(str, names))}"
    found = now(slot)
    if type(found) in PLAIN and (type(slot.value) in PLAIN or slot.value is ABSENT):
        return f"{path} was {slot.value!r} and is {found!r}"
    return f"{path} was replaced"


def is_value(x: Any) -> bool:
    """Whether a place that holds `x` may be set by a program: a tensor, a constant or a number that
    is computed of others, or tuples, lists and dicts of such.
    """
    if isinstance(x, TensorBase) or type(x) in PLAIN or type(x) is Number:
        return True
    if type(x) is dict:
        return all(map(is_value, x.values()))
    return isinstance(x, (list, tuple)) and all(map(is_value, x))


class Moved(Unsupported):
    """The function sets places that are not known to be set: see `moved`."""

    def __init__(self, message: str, slots: Sequence[Slot]) -> None:
        super().__init__(message)
        self.slots = slots


class Renewed(Unsupported):
    """The function may have read what has been renewed since (`Reads.renew`)."""


def moved(reads: Reads, changed: Iterable[Slot]) -> list[Slot] | None:
    """The places of one value in which changed slots differ, with what they held; None where these
    are not all: containers that have grown, arrays, what was deleted.
    """
    found: dict[Any, Slot] = {}
    for slot in changed:
        kind, holder, _, value = slot[:4]
        parts = [slot]
        if kind in _CONTENT or kind == "array" or kind == "large":
            parts = _parts(reads, slot)
        elif kind == "keys":
            if not set(value) <= holder.keys():
                return None
            added = [name for name in holder if name not in value]
            parts = [Slot("dict", holder, name, ABSENT, slot.parent, name) for name in added]
        if not parts or any(now(part) is ABSENT for part in parts):
            return None
        for part in parts:
            found.setdefault(place_key(part), part)
    return list(found.values())


def _parts(reads: Reads, slot: Slot) -> list[Slot]:
    """The items of a dict or list that differ; none where that is not all."""
    holder, value = slot.holder, slot.value
    parent = next((n for n, each in enumerate(reads.slots) if each is slot), slot.parent)
    if slot.kind not in ("items", "others"):
        return []
    known = slot.key if slot.kind == "others" else ()  # keys of which others ask
    if isinstance(holder, dict):
        half = len(value) // 2
        before = dict(zip(value[:half], value[half:], strict=True))
        now_there = {key: x for key, x in holder.items() if key not in known}
        if not before.keys() <= now_there.keys():
            return []
        pairs = [(key, before.get(key, ABSENT), x) for key, x in now_there.items()]
    elif type(holder) is list and slot.kind == "items" and len(holder) == len(value):
        pairs = [(n, value[n], x) for n, x in enumerate(holder)]
    elif type(holder) is list and slot.kind == "others" and len(holder) == value[0]:
        rest = [(n, x) for n, x in enumerate(holder) if n not in known]
        pairs = [(n, was, x) for (n, x), was in zip(rest, value[1:], strict=True)]
    else:
        return []
    return [
        Slot("item", holder, key, was, parent, slot.needs)
        for key, was, x in pairs
        if not (x is was or _equal(x, was))
    ]


def place_key(slot: Slot) -> Any:
    """By which a place of one value is known."""
    return "dict" if slot.kind == "item" else slot.kind, id(slot.holder), slot.key


def guards_of(reads: Reads, watch: Watch, places: Sequence[Slot] = ()) -> Guards:
    """What code that ran has read of all that it could have, but for `places`.

    Errors: Moved for places that the function has set, Renewed where it may have read what was
    renewed while it ran, Unsupported for what a program could not do again, with everything put
    back: calls with effects, other changes of what was there before, iterators and large arrays
    from outside.
    """
    changed = list(reads.changed())
    if changed:
        told = [described(reads, slot) for slot in changed]
        where = _where_changed(changed[0], watch)
        text = (
            f"compile: the function changes Python's own state: {told[0]}{where}; a program only "
            "changes tensors, and what holds tensors and numbers: do it outside, or keep the "
            "number in a tensor"
        )
        slots = moved(reads, changed)
        values = [] if slots is None else [now(slot) for slot in slots]
        for slot in changed:
            put_back(slot)
        if slots is None or not all(map(is_value, values)):
            raise Unsupported(text)
        raise Moved(text, slots)
    if watch.refused:
        raise Unsupported(
            f"compile: the function calls {watch.refused}; call it outside of the function"
        )
    names: set[str] = set(_IMPLIED)
    users: set[str] = set()
    for code in watch.codes.values():
        names.update(code.co_names)
        if is_users(code):
            users.update(code.co_names)
    everything = not _ANY_NAME.isdisjoint(users)
    for renewed in reads.renewed.values():
        if any(
            not renewed.isdisjoint(code.co_names) and not code.co_filename.startswith(OURS)
            for code in watch.codes.values()
        ):
            raise Renewed(f"compile: the function names {', '.join(sorted(renewed))}")
    known = set(map(place_key, places))
    items: dict[int, set[Any]] = {}
    for place in places:
        items.setdefault(id(place.holder), set()).add(place.key)
    read: list[bool] = []
    named: list[bool] = []  # whether it is read, though no attribute were read by a computed name
    found: list[Slot] = []
    for slot in reads.slots:
        needs = slot.needs
        if needs is None:
            by_name = not everything or slot.kind != "dict" or slot.key in names
        elif type(needs) is Users:
            by_name = needs in users
        else:
            by_name = needs in names if type(needs) is str else id(needs) in watch.codes
        used = by_name or needs is None or (everything and isinstance(needs, str))
        used = used and (slot.parent < 0 or read[slot.parent])
        read.append(used)
        named.append(by_name and (slot.parent < 0 or named[slot.parent]))
        if used and id(slot.holder) in reads.renewed:
            raise Renewed(f"compile: {reads.path(slot)} has been renewed")
        if not used or slot.kind == "root" or type(slot.holder) in (tuple, frozenset):
            continue
        if place_key(slot) in known:
            continue
        later = frozenset() if named[-1] else reads.later.get(id(slot.holder), frozenset())
        if slot.kind == "dict" and slot.key in later:
            continue
        if slot.kind == "items" and (id(slot.holder) in items or later):
            keys = frozenset(items.get(id(slot.holder), ())) | later
            value = _others(slot.holder, keys)
            slot = Slot("others", slot.holder, keys, value, slot.parent, slot.needs)
        if slot.kind == "iterator":
            raise Unsupported(
                f"compile: the function may read {reads.path(slot)}, an iterator or a source of "
                "random numbers from outside; give it the items as arguments, and draw by adjoint"
            )
        if slot.kind == "large":
            raise Unsupported(
                f"compile: the function may read {reads.path(slot)}, a NumPy array of "
                f"{slot.holder.nbytes:,} bytes that others may write; give it as a tensor"
            )
        found.append(slot)
    return Guards(reads, found)


def _where_changed(slot: Slot, watch: Watch) -> str:
    """Where code that ran sets what has changed, if that is clear."""
    if slot.kind == "items" and id(slot.holder) in watch.changed:
        return watch.changed[id(slot.holder)]
    wanted: tuple[str, ...] = ("STORE_SUBSCR", "DELETE_SUBSCR")
    if slot.kind in ("dict", "attr", "class", "keys"):
        wanted = ("STORE_ATTR", "STORE_GLOBAL", "DELETE_ATTR", "DELETE_GLOBAL")
    elif slot.kind == "cell":
        wanted = ("STORE_DEREF", "DELETE_DEREF")
    for code in watch.codes.values():
        if not is_users(code):
            continue
        line, lines = code.co_firstlineno, dict(dis.findlinestarts(code))
        for each in dis.get_instructions(code):
            line = lines.get(each.offset) or line
            if each.opname in wanted and (slot.key is None or each.argval == slot.key):
                return place_in(code, line)
    return ""


def watched(
    function: Callable[..., Any],
    roots: Iterable[tuple[str, Any]],
    run: Callable[[list[Slot], Reads], Any],
    places: Sequence[Slot] = (),
) -> tuple[Any, Guards]:
    """What `run` gives, which calls `function`, and what its Python has read. `run` is given those
    of `places` that can still be reached, whose values are its business, and what was written down.

    Errors: those of `guards_of`, and of `run`, after which what Python changed is put back, too.
    """
    name = getattr(function, "__name__", type(function).__name__)
    reads = Reads([(name, function), *roots])
    watch = Watch()
    reached = {id(slot.holder) for slot in reads.slots}
    present = [place for place in places if id(place.holder) in reached]
    try:
        with watch:
            found = run(present, reads)
    except BaseException:
        for slot in reads.changed():
            put_back(slot)
        raise
    return found, guards_of(reads, watch, present)
