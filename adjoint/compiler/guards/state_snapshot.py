"""A snapshot of the Python state that code can reach by the names in it, before it runs."""

from __future__ import annotations

import abc
import contextvars
import copyreg
import decimal
import functools
import logging
import operator
import sys
import types
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, cast

import numpy as np

from ...core import config, policy
from ...core.checked_modules import STATE, WHAT, Watched
from ...core.dtype import dtype
from ...core.errors import Unsupported
from ...core.op import Op
from ...core.package import OURS
from ...core.tensor_base import TensorBase
from ...runtime.tensors import wrap
from .code_names import (
    NOTHING,
    OURS_IMPLIED,
    LibraryModule,
    Lookups,
    UserCodeName,
    catches_errors,
    given_names,
    globals_of,
    imports_of,
    is_implied,
    items_read,
    reads_any_name,
    set_by,
)
from .code_observer import IMPORTS, WITH_EFFECT, has_effect, is_installed, is_known, is_users
from .known_types import (
    CACHED,
    LOCK,
    VIEWS,
    Held,
    InContext,
    Writeable,
    can_change_class,
    contents_of,
    count_kept,
    counts_of,
    facts_of,
    gotten_by,
    is_bound,
    is_generated,
    is_iterator,
    is_method_of_library,
    is_named_by_library,
    is_of_library,
    is_opaque,
    is_ours,
    is_users_module,
    members_of,
    module_of,
    reads_given_names,
    results_kept_by,
)
from .outside_tensors import OutsideTensors
from .retraces import RetraceOnCache
from .slot_values import CONTAINERS, held_by, is_same, names_now
from .slots import ABSENT, PLAIN, REGISTRIES, GuardSource, is_kind, path_of, reached_of

_OF_CLASSES = frozenset(("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__"))
# What functions and classes are besides their code and attributes.
_FACTS = ("__name__", "__qualname__", "__doc__", "__annotations__", "__module__")
_FACTS_OF_CODE = ("__code__", "__defaults__", "__kwdefaults__", "__closure__")


class StateSnapshot:
    """A snapshot of all Python state that code can reach from some roots by the names in it."""

    def __init__(
        self,
        roots: Iterable[tuple[str, object]],
        names: Collection[str] = (),
        before: Lookups = NOTHING,
    ) -> None:
        """`names` of code that ran before are looked up, too, and modules among them, and what a
        snapshot looked up before, which takes fewer rounds.
        """
        self.modules = {name for name in names if type(name) is LibraryModule}
        roots = [*roots, *((name, sys.modules[name]) for name in sorted(self.modules))]
        self._names = {*names, *before.names}
        self._learned: set[int] = set()  # ids of the code whose names are known
        self.generated: dict[int, types.CodeType] = {}  # code of libraries' classes, by its id
        self._everything = before.everything
        self._catches = before.catches  # whether users' code goes on after an AttributeError
        self.of_arguments: set[str] = set()  # names of attributes that argument tensors have
        self.gotten: set[str] = set()  # names of attributes that attrgetters read
        self._set = set(before.set)  # names of attributes that users' code sets
        self.decimals = False  # whether decimal numbers, or their class, can be reached
        self.arrays = False  # whether arrays can be reached
        self.ran: dict[int, Any] = {}  # the code that has run in the capture, by its id
        self.any_name = False  # whether users' code may call `getattr` by a name of its own
        self._users: set[str] = set()  # names in users' code
        self._given: set[str] = set()  # those that it gives to `getattr` and its like
        # Dict ids -> entries that deferred calls change after each run; code that does not name
        # them does not read them.
        self.later: dict[int, frozenset[object]] = {}
        self.renewed: dict[int, frozenset[str]] = {}  # dict ids -> names: see `renew`
        while True:
            begin = self._lookups()
            self.slots: list[GuardSource] = []
            self.passed_over: set[str] = set()  # names that objects have and no code named
            # Names that no code has named yet -> objects to visit once one does, and their slots.
            self._unnamed: dict[str, list[tuple[object, int]]] = {}
            self.of_objects: set[str] = set()  # those that are not of modules
            self._kinds: set[int] = set()  # ids of classes whose names are guarded
            self._members: dict[type, Sequence[tuple[str, object]]] = {}  # see `_members_of`
            self._seen: dict[int, int] = {}  # ids of objects, and the slot that led there first
            self.ways: dict[int, list[int]] = {}  # such slots, and others that lead there
            self._waiting: deque[tuple[object, int]] = deque()
            self.caches: list[tuple[Any, object]] = []  # functions that keep results, and how many
            self.tensors = OutsideTensors()
            for name, value in roots:
                self._add("root", None, name, value, -1, None)
            self._add("dict", STATE, WHAT, STATE[WHAT], -1, None)  # which our own code finds
            self._visit_kind(type(wrap(np.zeros(()))), -1)  # which arguments are of
            while self._waiting:
                self._visit(*self._waiting.popleft())
                if len(self.slots) > policy.GUARDED_SLOTS:
                    raise Unsupported(
                        f"compile: the function may read more than {policy.GUARDED_SLOTS:,} "
                        f"attributes and items, such as {self.path(self.slots[-1])}; give it what "
                        "it needs in variables of its own"
                    )
            self.lookups = self._lookups()
            if self.lookups == begin:
                break
        for n, slot in enumerate(self.slots):
            if slot.kind == "names":
                whole = self._everything or module_of(slot.holder) in ("adjoint", config.CALLED)
                read = None if whole else self.lookups.names  # our own code has others
                self.slots[n] = slot._replace(key=read, value=names_now(slot.holder, read))

    def _lookups(self) -> Lookups:
        return Lookups(
            frozenset(self._names), frozenset(self._set), self._everything, self._catches
        )

    def _add(
        self, kind: str, holder: object, key: object, value: Any, parent: int, needs: object
    ) -> None:
        self.slots.append(GuardSource(kind, holder, key, value, parent, needs))
        place = len(self.slots) - 1
        for each in value if kind == "items" else () if kind == "array" else (value,):
            if type(each) not in PLAIN:
                self._waiting.append((each, place))

    def _hold(self, holder: dict[str, Any], key: str, parent: int) -> None:
        """Guard a list to contain the same objects, without guarding what these contain."""
        held = holder[key]
        self.slots.append(GuardSource("dict", holder, key, held, parent, None))
        self.slots.append(
            GuardSource("members", held, None, tuple(held), len(self.slots) - 1, None)
        )

    def _learn(self, code: types.CodeType, generated: bool = False) -> None:
        """Collect the names in code, and in the code of functions defined in it; `generated`: see
        `is_generated`.
        """
        self._learned.add(id(code))
        self._name(code.co_names)
        self._name(items_read(code).values())
        if "add_note" in code.co_names:
            self._name(("__notes__",))
            self.gotten.add("__notes__")
        if generated:
            self.generated[id(code)] = code
        elif is_users(code):
            self._everything |= reads_any_name(code)
            self._catches = self._catches or catches_errors(code)
            self._set |= set_by(code)
            self._users.update(code.co_names, given_names(code))
            self._given |= given_names(code)
        for each in code.co_consts:
            if is_kind(each, types.CodeType):
                self._learn(each)

    def _name(self, names: Iterable[str]) -> None:
        """Look up some names, also in what was visited without them; another round, which knows
        them from the begin, then guards what they lead to.
        """
        for name in names:
            if name not in self._names:
                self._names.add(name)
                self._waiting.extend(self._unnamed.pop(name, ()))

    def _visit(self, x: Any, place: int) -> None:
        if is_kind(x, TensorBase):
            self._visit_tensor(x, place)
            return
        self.decimals |= is_kind(x, decimal.Decimal) or x is decimal.Decimal
        if reads_given_names(x) and not is_named_by_library(self.slots[place]):
            self._everything = self.any_name = True
        if is_kind(x, np.void) and is_kind(x.base, np.ndarray):  # shows a row of it
            x = x.base
        if is_kind(x, (Op, dtype, np.dtype, np.generic)) or self._is_seen(x, place):
            return
        opaque = getattr(type(x), "_read_by_name", None)
        if opaque is not None:  # whose own code looks at what it holds each time
            for name in opaque:
                self._add("dict", x.__dict__, name, x.__dict__[name], place, UserCodeName(name))
            for name in getattr(type(x), "_read_always", ()):
                self._add("dict", x.__dict__, name, x.__dict__[name], place, None)
            self._visit_facts(x, getattr(type(x), "_facts", ()), place)
            for name in sorted(self._users) if hasattr(x, "__dict__") else ():
                if callable(getattr(type(x), name, None)):  # which a user may replace
                    value = x.__dict__.get(name, ABSENT)
                    self._add("dict", x.__dict__, name, value, place, UserCodeName(name))
            for holder, key in x._members() if hasattr(x, "_members") else ():
                self._hold(holder, key, place)
        elif is_kind(x, types.FunctionType):
            self._visit_function(x, place)
        elif is_kind(x, types.MethodType):
            for name in ("__func__", "__self__"):
                self._add("attr", x, name, getattr(x, name), place, None)
        elif is_kind(x, functools.partial):
            for name in ("func", "args", "keywords"):
                value = getattr(x, name)
                if name != "func" and is_ours(x.func):  # such as a hook with a weak reference
                    self.slots.append(GuardSource("attr", x, name, value, place, None))
                else:
                    self._add("attr", x, name, value, place, None)
            self._visit_own(x, place)
        elif is_kind(x, (staticmethod, classmethod, property)):
            for name in ("fget", "fset") if is_kind(x, property) else ("__func__",):
                self._add("attr", x, name, getattr(x, name), place, None)
        elif is_kind(x, np.ndarray):
            self._visit_array(x, place)
            if not is_known(module_of(type(x))):
                self._visit_own(x, place)
        elif is_kind(x, type):
            self._visit_class(x, place)
        elif is_kind(x, types.ModuleType):
            if is_users_module(x) or x.__name__ in self.modules:
                self._visit_names(x.__dict__, place, all_of_them=False)
                if "__getattr__" in x.__dict__ or self._catches:
                    self._visit_absent(x.__dict__, self._users, place)
            else:
                self._visit_library(x, place)
            self.slots.append(GuardSource("kind", x, "__class__", type(x), place, None))
            if type(x) not in (types.ModuleType, Watched):
                self._visit(type(x), place)
        else:
            self._visit_object(x, place)

    def _visit_tensor(self, x: TensorBase, place: int) -> None:
        """Guard a tensor's attributes and class, and its hooks, which run, too."""
        self.tensors.add(x)
        extra = None if x._node is None else x._node.extra
        after = None if x._leaf is None else x._leaf.after
        own = () if extra is None else (extra.hooks, extra.prehooks, extra.posthooks)
        for hooks in (*own, after or {}):
            for hook in hooks.values():
                self._visit(hook, place)
        self._visit_attributes(x, place)
        self._visit_kind(type(x), place)
        if not is_known(module_of(type(x))):
            self._visit(type(x), place)
        self._visit_facts(x, ("requires_grad",), place)

    def _is_seen(self, x: object, place: int) -> bool:
        """Whether an object was visited before; notes that a slot leads to it."""
        first = self._seen.get(id(x))
        if first is None:
            self._seen[id(x)] = place
            return False
        if first != place:
            self.ways.setdefault(first, []).append(place)
        return True

    def ways_to(self, x: int) -> list[int]:
        """The slots that lead to an object, by its id."""
        first = self._seen.get(x)
        return [] if first is None else [first, *self.ways.get(first, ())]

    def reached(self, reads: Callable[[GuardSource], bool]) -> list[bool]:
        """For each slot whether it is read, as `reads` says, or leads to what is."""
        return reached_of(self.slots, self.ways, reads)

    def assert_caches_kept(self) -> None:
        """Check that no function that keeps its results has computed one of symbols, and empty
        those that have.

        Errors: RetraceOnCache.
        """
        filled = [cache for cache, before in self.caches if count_kept(cache) != before]
        for cache in filled:
            cache.cache_clear()
        if filled:
            raise RetraceOnCache(
                f"compile: the function calls {filled[0].__name__}, which keeps its results "
                "(lru_cache), with other arguments in each call; call its __wrapped__"
            )

    def is_unseen_library(self, code: types.CodeType) -> bool:
        """Whether code is a library's to which nothing led: its names were not looked up."""
        if id(code) in self._learned or is_users(code):
            return False
        return not code.co_filename.startswith((*OURS, IMPORTS))

    def unknown(self, codes: Iterable[types.CodeType]) -> types.CodeType | None:
        """The first of some code of the user's that nothing led to; None if there is none."""
        for x in codes:
            if id(x) not in self._learned and is_users(x) and x.co_name != "<module>":
                return x
        return None

    def _visit_function(self, x: types.FunctionType, place: int) -> None:
        code: Any = x.__code__
        self._learn(code, is_generated(x))
        ours = code.co_filename.startswith(OURS)
        made = str(x.__globals__.get("__name__")).startswith("namedtuple_")
        if not ours:
            self.slots.append(GuardSource("attr", x, "__code__", code, place, code))
        for name in ("__defaults__", "__kwdefaults__", "__wrapped__"):
            value = getattr(x, name, None)
            if value is not None and not (ours and name != "__wrapped__"):
                self._add("attr", x, name, value, place, None if made else code)
        for name, cell in zip(code.co_freevars, x.__closure__ or (), strict=True):
            try:
                value = cell.cell_contents
            except ValueError:  # empty as yet
                value = ABSENT
            self._add("cell", cell, name, value, place, code)
        if not ours:
            for name in imports_of(code, x.__globals__.get("__package__")):
                self._add("import", sys.modules, name, sys.modules.get(name, ABSENT), place, code)
            own = x.__globals__
            for name in sorted(globals_of(code)):
                self._add("dict", own, name, own.get(name, ABSENT), place, code)
                if name not in own and name not in WITH_EFFECT:  # which are replaced meanwhile
                    built_in = cast(Any, x).__builtins__
                    value = built_in.get(name, ABSENT)
                    self.slots.append(GuardSource("dict", built_in, name, value, place, code))
            self._visit_names(x.__dict__, place)
            self._visit_facts(x, (*_FACTS, *_FACTS_OF_CODE), place)
            if "__globals__" in self._users:
                self._add("opaque", x, None, None, place, UserCodeName("__globals__"))

    def _visit_facts(self, x: object, names: Iterable[str], place: int) -> None:
        """Guard what an object is besides what it holds, if users' code names it."""
        for name in names:
            if name in self._users:
                value = getattr(x, name, ABSENT)
                self._add("attr", x, name, value, place, UserCodeName(name))

    def _visit_library(self, x: types.ModuleType, place: int) -> None:
        """Guard what users' code names of a library's module: a user may have replaced it. Only
        what is no part of the library is looked into.
        """
        own = x.__dict__
        self._visit_absent(own, self._set | self._given, place)
        for name in sorted(own.keys() & self._users):
            value = own[name]
            self.slots.append(GuardSource("dict", own, name, value, place, UserCodeName(name)))
            if is_installed(str(own.get("__file__"))):
                self._waiting.append((value, len(self.slots) - 1))
            elif is_kind(value, type):
                self._visit_kind(value, len(self.slots) - 1)
            elif not is_of_library(value) or is_bound(value):
                self._waiting.append((value, len(self.slots) - 1))

    def _visit_absent(self, own: dict[str, Any], names: set[str], place: int) -> None:
        """Guard that a module has none of some names."""
        for name in sorted(names - own.keys()):
            self.slots.append(GuardSource("dict", own, name, ABSENT, place, UserCodeName(name)))

    def _visit_attributes(self, x: Any, place: int) -> None:
        """Guard what Python has put on a tensor; that there is nothing only where a name may be
        read that is not there, or one may be set.
        """
        if self._is_seen(x, place):
            return
        own = x.__dict__
        may_miss = self._everything or self._catches or not is_known(module_of(type(x)))
        if own or may_miss or any(not hasattr(type(x), name) for name in self._set):
            self.slots.append(GuardSource("keys", own, None, tuple(own), place, None))
            self._visit_names(own, place)

    def _visit_array(self, x: np.ndarray, place: int) -> None:
        if x.dtype == object:
            self._add("items", x, None, tuple(x.ravel().tolist()), place, None)
        elif x.nbytes <= policy.GUARDED_BYTES:
            self._add("array", x, None, x.copy(), place, None)
        else:
            self._add("large", x, None, None, place, None)
        self._visit_facts(x, ("base",), place)
        for name in self._users & {"flags", "setflags"}:
            flag = Writeable(x)
            self._add("call", flag, "flags", flag(), place, UserCodeName(name))
        self.arrays = True

    def _visit_kind(self, x: type, place: int) -> None:
        """Guard which of the names that are read a class and those that it is derived from have,
        and what they are.
        """
        if id(x) not in self._kinds:
            self._kinds.update(map(id, x.__mro__))
            self.slots.append(GuardSource("names", x, None, None, place, None))  # filled at the end

    def _visit_class(self, x: type, place: int) -> None:
        module = module_of(x)
        if module in ("builtins", "numpy"):
            return
        self._visit_kind(x, place)
        self._visit_facts(x, _FACTS, place)
        if module in ("adjoint", config.CALLED):  # does not change; the names in its code matter
            for name, member in x.__dict__.items():
                if not is_kind(member, types.FunctionType):
                    continue
                if name in self._names or name in OURS_IMPLIED:
                    self._visit(member, place)
                else:
                    self._unnamed.setdefault(name, []).append((member, place))
        else:
            self._visit_names(x, place, is_class=True)
            self.slots.append(GuardSource("attr", x, "__bases__", x.__bases__, place, None))
        for base in x.__mro__[1:]:
            self._visit(base, place)
        if type(x) is not type:
            self._visit(type(x), place)
        if is_kind(x, abc.ABCMeta) and module not in ("adjoint", config.CALLED):
            read = abc.get_cache_token  # anything may be registered with it
            self._add("call", read, "the classes registered with ABCs", read(), place, None)

    def _visit_cache(self, x: Any, place: int) -> None:
        """Guard a function that keeps its results: it gives what it has until it is cleared, or
        others have it keep more.
        """
        read = functools.partial(results_kept_by, x)
        if "cache_info" in self._users:
            counts = functools.partial(counts_of, x)
            self._add("call", counts, "its counts", counts(), place, None)
        self.caches.append((x, count_kept(x)))
        self._add("attr", x, "__wrapped__", x.__wrapped__, place, None)
        self.slots.append(GuardSource("kept", read, "what it keeps", read(), place, None))

    def _visit_in_c(self, x: Any, place: int) -> bool:
        """Guard an object without attributes of its own; whether it is one."""
        if is_iterator(x):
            self._add("iterator", x, None, None, place, None)
            return False
        if is_kind(x, (types.BuiltinFunctionType, types.MethodWrapperType)):
            if is_kind(x.__self__, types.MemberDescriptorType):  # `__get__` of a slot
                self.gotten.add(x.__self__.__name__)
                self._name((x.__self__.__name__,))
            elif not is_kind(x.__self__, (types.ModuleType, type)):
                self._add("attr", x, "__self__", x.__self__, place, None)
            elif x.__name__ != "__new__" and has_effect(x, x.__self__):
                # It may be called where the interpreter sees no call, as by map().
                self._add("opaque", x, None, None, place, None)
        elif type(x).__name__ == "cython_function_or_method":
            if not is_known(str(x.__module__)):
                self._add("opaque", x, None, None, place, None)
        elif type(x) in (logging.Logger, logging.RootLogger):
            # What it writes to is no state of the function's.
            for name in ("level", "disabled", "parent"):
                self._add("dict", x.__dict__, name, x.__dict__[name], place, None)
            self._visit_facts(x, ("handlers", "filters", "propagate"), place)
            manager = x.manager.__dict__
            self._add("dict", manager, "_disable", manager.get("_disable"), place, None)
        elif type(x) is contextvars.ContextVar and (value := InContext(x)()) is not ABSENT:
            self._add("call", InContext(x), x.name, value, place, None)
        elif is_kind(x, VIEWS):
            read = functools.partial(contents_of, x)
            self._add("call", read, "contents", read(), place, None)
        elif type(x) in (operator.attrgetter, operator.methodcaller):
            names = gotten_by(x)
            self.gotten |= names
            self._name(names)
        elif is_opaque(x):
            self._add("opaque", x, None, None, place, None)
        else:
            return False
        return True

    def _visit_object(self, x: Any, place: int) -> None:
        if x is copyreg.dispatch_table:  # how libraries that are loaded copy their classes
            self.slots.append(GuardSource("items", x, None, (*x.keys(), *x.values()), place, None))
            here = len(self.slots) - 1
            self._waiting.extend((each, here) for each in x.values() if not is_of_library(each))
        elif is_kind(x, CONTAINERS):  # tuples: to visit their items
            self._add("items", x, None, held_by(x), place, None)
        elif self._visit_in_c(x, place):
            return
        if is_kind(x, defaultdict):
            self._add("attr", x, "default_factory", x.default_factory, place, None)
        if type(x) is CACHED:
            self._visit_cache(x, place)
        if is_kind(x, BaseException):
            self._add("attr", x, "args", x.args, place, None)
            self._visit_facts(x, facts_of(type(x)), place)
        if type(x) is types.CellType:
            self._visit_facts(x, ("cell_contents",), place)
        if type(x) is LOCK and not self._users.isdisjoint(("locked", "acquire")):
            self._add("call", Held(x), "whether it is held", x.locked(), place, None)
        self._visit_own(x, place)

    def _visit_own(self, x: Any, place: int) -> None:
        """Guard an object's class, and its own attributes."""
        of_class = place
        if can_change_class(x):
            self.slots.append(GuardSource("kind", x, "__class__", type(x), place, None))
            of_class = len(self.slots) - 1  # other ways to the class are none to the object
        own = getattr(x, "__dict__", None)
        unread = getattr(type(x), "_unread", None)  # of a compiled function, whose code is ours
        if type(own) is dict:
            self.slots.append(GuardSource("attr", x, "__dict__", own, place, None))
            self.slots.append(GuardSource("keys", own, None, tuple(own), place, None))
            self._visit_names(own, place, unread=unread or frozenset())
        if unread is not None:
            self._add("dict", own, "function", x.function, place, None)
            return
        self._visit(type(x), of_class)
        for name, member in self._members_of(type(x)):
            if is_kind(member, types.MemberDescriptorType):
                value = getattr(x, name, ABSENT)
                self._add("attr", x, name, value, place, name)
            elif type(own) is dict and name not in own and name in self._names:
                self._add("dict", own, name, ABSENT, place, name)

    def _members_of(self, x: type) -> Sequence[tuple[str, object]]:
        """The slots of a class, and those of its attributes that an object's own may hide."""
        if x not in self._members:
            self._members[x] = members_of(x)
        return self._members[x]

    def _visit_names(
        self, own: Any, place: int, is_class: bool = False, all_of_them: bool = True,
        unread: frozenset[str] = frozenset(),
    ) -> None:  # fmt: skip
        names = self._names
        everything = self._everything and all_of_them
        left_out = _OF_CLASSES if is_class else unread
        if "__builtins__" not in self._users:  # of a module, whose code finds them by itself
            left_out |= {"__builtins__"}
        for name, value in (own.__dict__ if is_class else own).items():
            if type(name) is not str or name in left_out:
                continue
            registry = name in REGISTRIES
            implied = is_implied(name) if is_class else name == "__getattr__"  # a module's
            if registry or everything or name in names or implied:
                needs = None if registry or (everything and not is_class) else name
                self._add("class" if is_class else "dict", own, name, value, place, needs)
            elif name not in _OF_CLASSES:
                if type(value) not in PLAIN:
                    self._unnamed.setdefault(name, []).append((value, place))
                if not is_method_of_library(value):
                    self.passed_over.add(name)
                    self.of_objects.update((name,) if all_of_them else ())

    def renew(self, x: dict[Any, object], names: Iterable[str]) -> None:
        """Take a dict's present contents as those at capture, though the function has run for a
        while. If its code reads the dict, or names one of `names`, the capture must be repeated:
        see `guards_of`.
        """
        self.renewed[id(x)] = frozenset(names)
        for place, slot in enumerate(self.slots):
            if slot.kind == "items" and slot.holder is x:
                self.slots[place] = slot._replace(value=held_by(x))
                self._waiting.extend((each, place) for each in x.values())
        while self._waiting:
            self._visit(*self._waiting.popleft())

    def guard_setting(self, read: Callable[[], object]) -> None:
        """Guard a setting of this library, which the function has read."""
        self.slots.append(GuardSource("call", read, "a setting", read(), -1, None))

    def passes_over(self, x: object, name: str) -> bool:
        """Whether an object that is read by a name may have been passed over with it."""
        passed = name in self.passed_over or self.has_met(x) or self.has_met(type(x))
        return passed and name not in self._names

    def has_met(self, x: object) -> bool:
        """Whether an object was there before the function ran, and can be reached by its code."""
        return id(x) in self._seen

    def changed(self) -> Iterator[GuardSource]:
        """The slots whose values have changed."""
        slots = (slot for slot in self.slots if slot.kind != "kept")  # see `assert_caches_kept`
        return (slot for slot in slots if not is_same(slot))

    def path(self, slot: GuardSource) -> str:
        """The expression by which a user would write this slot."""
        return path_of(self.slots, slot)
