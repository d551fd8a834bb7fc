"""Guards on Python state: what a captured function reads outside of itself, and whether that has
changed.

A program that was captured from a function holds for as long as its Python would do the same: the
same attributes, variables and containers, read by the same code. Before the function runs, all
that it can reach by the names in its code is written down (`StateSnapshot`); while it runs, which
code does (`CodeObserver`); afterwards, what has a name in code that ran is what the program depends
on (`Guards`). What Python has changed is put back, since a program could not change it again.

Tensors are looked at by identity: what they hold is the program's business. Nothing is known of
code without Python: functions that may have an effect are refused by name.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import operator
import sys
import types
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NoReturn

from ...core.checked_modules import watch_modules
from ...core.errors import Unsupported
from ...core.symbolic_scalar import SymbolicNumber
from ...core.tensor_base import TensorBase
from .code_names import NOTHING, CodeNames, Lookups, writes_text
from .code_observer import CodeObserver, Stopped, is_users, name_of, place_in
from .identity_guards import IdentityGuards, version_of
from .known_types import DecimalContext, decimal_settings, is_iterator, print_settings
from .retraces import RetraceOnCache, RetraceOnRenewal, RetraceToFollow, RetraceToLift
from .running_code import UNFOLLOWED, RunningCode, unknown_code
from .slot_values import equal, is_same, names_now, now, others, pairs_of, put_back, version_given
from .slots import ABSENT, CONTENT, PLAIN, GuardSource, is_kind, place_key
from .state_snapshot import StateSnapshot
from .warned import Warned, WarningLog


class Guards:
    """The slots that a program depends on: see `guards_of`."""

    def __init__(self, reads: StateSnapshot, slots: Sequence[GuardSource]) -> None:
        self._reads = reads
        self._slots = slots
        self.warned: Sequence[Warned] = ()  # what each call warns of
        self.codes: Sequence[types.CodeType] = ()  # of users, which ran at capture
        self._list()

    def __len__(self) -> int:
        return len(self._slots)

    def _list(self) -> None:
        """Sort the slots into those that `IdentityGuards` checks at once by identity, and the
        rest."""
        kinds: dict[str, list[GuardSource]] = {
            "dict": [],
            "attr": [],
            "cell": [],
            "kind": [],
            "class": [],
            "listed": [],
            "": [],
        }
        # The functions of a module read the same variables of it.
        slots = {(s.kind, id(s.holder), s.key): s for s in self._slots if s.kind in _SINGLE}
        more = (s for s in self._slots if s.kind not in _SINGLE)
        for slot in (*slots.values(), *more):
            kind = "dict" if slot.kind == "import" else slot.kind
            if kind == "names" or (slot.key == "__bases__" and kind == "attr"):
                kind = "class"
            if kind == "class" and not version_given(slot.holder):
                kind = ""
            if kind in ("keys", "members") or (kind == "items" and type(slot.holder) in _LISTED):
                kind = "listed"
            if kind not in kinds or (kind == "cell" and slot.value is ABSENT):
                kind = ""
            kinds[kind].append(slot)
        self._held = IdentityGuards(
            [(s.holder, s.key, now(s)) for s in kinds["dict"]],
            list(map(_listed, kinds["listed"])),
            [(s.holder, s.key, now(s)) for s in kinds["attr"]],
            [(s.holder, now(s)) for s in kinds["cell"]],
            ABSENT,
            [(s.holder, now(s)) for s in kinds["kind"]],
            [(x, version_of(x)) for x in {s.holder: None for s in kinds["class"]}],
        )
        self._rest = kinds[""]

    def moved(self) -> list[GuardSource]:
        """The single-valued slots that have changed."""
        slots = self._slots
        return moved(self._reads, [slot for slot in slots if not is_same(slot)]) or []

    def later(self) -> list[GuardSource]:
        """The single-valued slots that deferred calls change after each run, and that the function
        reads.
        """
        slots = []
        for slot in self._slots:
            kind, holder, key = slot[:3]
            names = self._reads.later.get(id(holder), frozenset())
            if kind == "dict" and key in names:
                slots.append(slot)
            elif kind in ("items", "others") and is_kind(holder, dict):
                read = [name for name in holder if name in names and name not in (key or ())]
                parent = slot.parent
                slots += [
                    GuardSource("item", holder, x, holder[x], parent, slot.needs) for x in read
                ]
        return slots

    def hold(self) -> bool:
        """Whether all slots have their values at capture."""
        if self._held.hold() and all(map(is_same, self._rest)):
            return True
        if not all(map(is_same, self._slots)):
            return False
        self._list()  # equal objects
        return True

    def paths(self) -> list[str]:
        """The guarded slots, as expressions of the user."""
        return list(dict.fromkeys(map(self._reads.path, self._slots)))

    def difference(self) -> str:
        """Description of the first slot that has changed; '' if none has."""
        slot = self._changed()
        return "" if slot is None else described(self._reads, slot)

    def _changed(self) -> GuardSource | None:
        """The first slot that has changed."""
        return next((slot for slot in self._slots if not is_same(slot)), None)

    def reader(self) -> tuple[str, str]:
        """Expression of the first slot that has changed, and the line that has read it, as text;
        '' where that is unclear. This looks through code, for messages only.
        """
        slot = self._changed()
        if slot is None:
            return "", ""
        path = self._reads.path(slot)
        name = slot.key if is_kind(slot.key, str) else path.rpartition(".")[2]
        return path, _where(_READING, lambda each: each == name, self.codes)


_LISTED = frozenset((dict, list))
_SINGLE = frozenset(("dict", "attr", "cell", "class", "call"))


def _listed(slot: GuardSource) -> tuple[Any, list[Any], list[Any] | None]:
    """A container, its items or keys, and a dict's values if they are guarded."""
    x = slot.holder
    return x, list(x), list(x.values()) if type(x) is dict and slot.kind == "items" else None


def described(reads: StateSnapshot, slot: GuardSource) -> str:
    """Description of how a slot has changed."""
    path = reads.path(slot)
    if slot.kind == "names":
        return f"attributes of the class {slot.holder.__qualname__} were added, deleted or replaced"
    if slot.kind in CONTENT:
        return f"what {path} contains was changed"
    if slot.kind == "array":
        return f"the array {path} was written"
    if slot.kind == "keys":
        names = sorted(set(slot.holder).symmetric_difference(slot.value))
        return f"attributes of {path} were added or deleted: {', '.join(map(str, names))}"
    present = now(slot)
    if type(present) in PLAIN and (type(slot.value) in PLAIN or slot.value is ABSENT):
        return f"{path} was {slot.value!r} and is {present!r}"
    return f"{path} was replaced"


def is_value(x: object) -> bool:
    """Whether a program may set a slot to `x`: a tensor, a constant or a computed number, or a
    tuple, list or dict of such.
    """
    if is_kind(x, TensorBase) or type(x) in PLAIN or type(x) is SymbolicNumber:
        return True
    if type(x) is dict:
        return all(map(is_value, x.values()))
    return (is_kind(x, list) or is_kind(x, tuple)) and all(map(is_value, x))


def moved(reads: StateSnapshot, changed: Iterable[GuardSource]) -> list[GuardSource] | None:
    """The single-valued slots in which `changed` differ, with their former values; None where that
    does not describe the whole change (containers that have grown, arrays, deletions).
    """
    single: dict[Any, GuardSource] = {}
    for slot in changed:
        kind, holder, _, value = slot[:4]
        parts = [slot]
        if kind in ("call", "names"):
            return None
        if kind in CONTENT or kind == "array" or kind == "large":
            parts = _parts(reads, slot)
        elif kind == "keys":
            if not set(value) <= holder.keys():
                return None
            added = [name for name in holder if name not in value]
            parts = [GuardSource("dict", holder, name, ABSENT, slot.parent, name) for name in added]
        if not parts or any(now(part) is ABSENT for part in parts):
            return None
        for part in parts:
            single.setdefault(place_key(part), part)
    return list(single.values())


def _parts(reads: StateSnapshot, slot: GuardSource) -> list[GuardSource]:
    """The items of a dict or list that differ, as slots; none where that does not describe the
    whole change.
    """
    holder, value = slot.holder, slot.value
    parent = next((n for n, each in enumerate(reads.slots) if each is slot), slot.parent)
    if slot.kind not in ("items", "others"):
        return []
    excluded = slot.key if slot.kind == "others" else ()  # keys of which others ask
    if is_kind(holder, dict):
        half = len(value) // 2
        before = dict(zip(value[:half], value[half:], strict=True))
        now_there = {key: x for key, x in pairs_of(holder) if key not in excluded}
        if not before.keys() <= now_there.keys():
            return []
        pairs = [(key, before.get(key, ABSENT), x) for key, x in now_there.items()]
    elif type(holder) is list and slot.kind == "items" and len(holder) == len(value):
        pairs = [(n, value[n], x) for n, x in enumerate(holder)]
    elif type(holder) is list and slot.kind == "others" and len(holder) == value[0]:
        rest = [(n, x) for n, x in enumerate(holder) if n not in excluded]
        pairs = [(n, was, x) for (n, x), was in zip(rest, value[1:], strict=True)]
    else:
        return []
    return [
        GuardSource("item", holder, key, was, parent, slot.needs)
        for key, was, x in pairs
        if not (x is was or equal(x, was))
    ]


def _put_back_and_refuse(
    reads: StateSnapshot, watch: CodeObserver, changed: Sequence[GuardSource]
) -> NoReturn:
    """Undo what the function has changed, and say so.

    Errors: RetraceToLift where a program could set the slots, if they were declared as its outputs;
    Unsupported for other changes.
    """
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
    raise RetraceToLift(text, slots)


def remedy_of(x: object) -> str:
    """Remedy where a function is refused for an object, in words."""
    if is_kind(x, types.BuiltinFunctionType) and name_of(x) == "_warnings.warn":
        return "call warnings.warn(), as an attribute of the module"
    if callable(x) and not is_iterator(x):
        return "call it outside of the function"
    if is_iterator(x):
        return "give it the items as arguments, and draw by adjoint"
    return "give it what it holds as an argument, or in a list, dict or attribute"


def _assert_guardable(reads: StateSnapshot, watch: CodeObserver, slot: GuardSource) -> None:
    """Check that later calls can tell whether a slot has changed.

    Errors: Unsupported for iterators, sources of random numbers, objects whose state lies in C, and
    large arrays.
    """
    if slot.kind not in UNFOLLOWED:
        return
    x, path, line = slot.holder, reads.path(slot), _where_read(reads, watch, slot)
    if slot.kind == "iterator":
        text = f"read {path}, an iterator or a source of random numbers from outside{line}"
    elif slot.kind == "large":
        raise Unsupported(
            f"compile: the function may read {path}, a NumPy array of {x.nbytes:,} bytes that "
            f"others may write{line}; give it as a tensor"
        )
    elif is_kind(x, types.BuiltinFunctionType):
        name = name_of(x)
        text = f"call {path}, which is {name}(), of which a program knows nothing{line}"
    else:
        text = (
            f"read {path}, of the type {type(x).__qualname__}, whose state lies in C, where it "
            f"cannot be followed{line}"
        )
    raise Unsupported(f"compile: the function may {text}; {remedy_of(x)}")


def _where_read(reads: StateSnapshot, watch: CodeObserver, slot: GuardSource) -> str:
    """The line of users' code that reads a slot, as text, or else the function's."""
    codes = [code for code in watch.codes.values() if is_users(code)]
    place = slot.parent
    while place >= 0:
        key = reads.slots[place].key
        line = _where(_READING, functools.partial(operator.eq, key), codes)
        if line:
            return line
        place = reads.slots[place].parent
    first = getattr(reads.slots[0].value, "__code__", None)  # of the function itself
    return place_in(first, first.co_firstlineno) if is_kind(first, types.CodeType) else ""


def _assert_followed(reads: StateSnapshot, watch: CodeObserver) -> None:
    """Check that the snapshot has what all code that ran may read.

    Errors: RetraceToFollow otherwise.
    """
    imported = [slot.key for slot in reads.slots if slot.kind == "import" and slot.value is ABSENT]
    late = [name for name in imported if name in sys.modules]
    if late:
        raise RetraceToFollow(f"compile: the function imports {late[0]}", late)
    unknown = reads.unknown(watch.codes.values())
    if unknown is not None:
        raise unknown_code(unknown)


# Types in C whose objects never change: they only lead to others.
_UNCHANGING = (tuple, frozenset, types.GenericAlias, types.UnionType)


def guards_of(
    reads: StateSnapshot, watch: CodeObserver, names: CodeNames, places: Sequence[GuardSource] = ()
) -> Guards:
    """The guards of a program: the slots of `reads` that code which ran may have read, except
    `places`.

    Errors: RetraceToLift for places that the function has set, RetraceOnRenewal where it may have
    read what was renewed while it ran, Unsupported for what a program could not do again, with
    everything put back: calls with effects, other changes of what was there before, iterators and
    large arrays from outside.
    """
    changed = list(reads.changed())
    if changed:
        _put_back_and_refuse(reads, watch, changed)
    watch.assert_known()
    _assert_followed(reads, watch)
    if reads.decimals or not names.users.isdisjoint(("decimal", "Decimal", "getcontext")):
        reads.guard_setting(decimal_settings)
    if reads.arrays and any(map(writes_text, names.codes.values())):
        reads.guard_setting(print_settings)
    names.assert_none(reads.renewed.values())
    shown = sorted(reads.of_arguments if names.everything else reads.of_arguments & names.users)
    if shown:
        raise Unsupported(
            f"compile: the function may read {', '.join(shown)}, which Python has put on a tensor "
            "among its arguments; give it as an argument of its own"
        )
    exempt = set(map(place_key, places))
    items: dict[int, set[Any]] = {}
    for place in places:
        items.setdefault(id(place.holder), set()).add(place.key)
    read = reads.reached(lambda slot: names.has(slot) or names.may_compute(slot))
    named = reads.reached(names.has)  # which are read even without reads by computed names
    guarded: list[GuardSource] = []
    for slot, used, by_name in zip(reads.slots, read, named, strict=True):
        if used and id(slot.holder) in reads.renewed:
            raise RetraceOnRenewal(f"compile: {reads.path(slot)} has been renewed")
        if not used or slot.kind == "root" or type(slot.holder) in _UNCHANGING:
            continue
        if place_key(slot) in exempt:
            continue
        later = frozenset() if by_name else reads.later.get(id(slot.holder), frozenset())
        if slot.kind == "dict" and slot.key in later:
            continue
        if slot.kind == "items" and (id(slot.holder) in items or later):
            keys = frozenset(items.get(id(slot.holder), ())) | later
            value = others(slot.holder, keys)
            slot = GuardSource("others", slot.holder, keys, value, slot.parent, slot.needs)
        _assert_guardable(reads, watch, slot)
        if slot.kind == "import" and slot.value is ABSENT:  # it was not found
            slot = slot._replace(kind="dict")
        if slot.kind == "names" and not names.everything:
            ran = frozenset(names.names if slot.key is None else slot.key & names.names)
            slot = slot._replace(key=ran, value=names_now(slot.holder, ran))
        guarded.append(slot)
    return Guards(reads, guarded)


def _where_changed(slot: GuardSource, watch: CodeObserver) -> str:
    """The line of users' code that changes a slot, as text; '' if that is unclear."""
    if slot.kind == "items" and id(slot.holder) in watch.changed:
        return watch.changed[id(slot.holder)]
    opnames: tuple[str, ...] = ("STORE_SUBSCR", "DELETE_SUBSCR")
    if slot.kind in ("dict", "attr", "class", "keys"):
        opnames = ("STORE_ATTR", "STORE_GLOBAL", "DELETE_ATTR", "DELETE_GLOBAL")
    elif slot.kind == "cell":
        opnames = ("STORE_DEREF", "DELETE_DEREF")
    codes = filter(is_users, watch.codes.values())
    return _where(opnames, lambda name: slot.key is None or name == slot.key, codes)


_READING = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL", "LOAD_DEREF", "LOAD_NAME")


def _where(
    opnames: Sequence[str], is_named: Callable[[object], bool], codes: Iterable[types.CodeType]
) -> str:
    """The first line with such an instruction, as text; '' if there is none."""
    for code in codes:
        line, lines = code.co_firstlineno, dict(dis.findlinestarts(code))
        for each in dis.get_instructions(code):
            line = lines.get(each.offset) or line
            if each.opname in opnames and is_named(each.argval):
                return place_in(code, line)
    return ""


def watched(
    function: Callable[..., Any],
    roots: Iterable[tuple[str, Any]],
    run: Callable[[list[GuardSource], StateSnapshot], Any],
    places: Sequence[GuardSource] = (),
    names: Collection[str] = (),
    before: Lookups = NOTHING,
) -> tuple[Any, Guards]:
    """Run `run(present, reads)`, which calls `function`, while observing its Python; returns the
    result and the guards. `present` are those of `places` that are still reachable (`run` handles
    their values), `reads` is the snapshot. `names` are those of earlier RetraceToFollow errors,
    `before` is what an earlier snapshot of the function looked up.

    Errors: those of `guards_of`, and of `run`, after which what Python changed is put back, too.
    """
    name = getattr(function, "__name__", type(function).__name__)
    watch_modules()
    reads = StateSnapshot([(name, function), *roots], names, before)
    running = RunningCode(reads)
    watch = CodeObserver(running.begins, running.reads)
    reads.ran = watch.codes
    reached = {id(slot.holder) for slot in reads.slots}
    present = [place for place in places if id(place.holder) in reached]
    decimals = DecimalContext()
    try:
        with WarningLog() as log, watch:
            result = run(present, reads)
        running.assert_all_followed()
        guards = guards_of(reads, watch, running.names, present)
        if reads.tensors.changed():
            raise Unsupported(
                "compile: a tensor from outside gets other memory, a history, or another "
                "requires_grad; set that outside of the function"
            )
        guards.warned = log.warned
        guards.codes = list(filter(is_users, watch.codes.values()))
        reads.assert_caches_kept()
    except BaseException as error:
        with contextlib.suppress(RetraceOnCache):
            reads.assert_caches_kept()
        reads.tensors.put_back()
        for slot in reads.changed():
            put_back(slot)
        decimals.put_back()
        if is_kind(error, Stopped):
            watch.assert_known()
            if running.refused is not None:
                _assert_guardable(reads, watch, running.refused)
            raise running.unknown or error from None
        raise
    return result, guards
