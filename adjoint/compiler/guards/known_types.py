"""Types and functions of which all is known: what they hold does not change, or is looked into.

Objects of any other type in C are refused.
"""

from __future__ import annotations

import contextvars
import dataclasses
import datetime
import decimal
import functools
import gc
import inspect
import io
import operator
import re
import sys
import threading
import types
from collections.abc import Iterable
from typing import Any

import numpy as np

from ...core.package import OURS
from .code_names import ANY_NAME, WHOLE, reads_any_name
from .code_observer import is_installed, is_known, is_library, is_users
from .slots import ABSENT, PLAIN, GuardSource, is_kind


def is_ours(function: object) -> bool:
    """Whether a function in Python is of this package."""
    code = getattr(function, "__code__", None)
    return is_kind(code, types.CodeType) and code.co_filename.startswith(OURS)


def is_of_library(x: object) -> bool:
    """Whether a value in a library's module is a part of it that only replacing it changes."""
    if is_kind(x, types.FunctionType):
        return not is_users(x.__code__)
    if is_kind(x, types.ModuleType):
        return False
    return type(x) in PLAIN or callable(x)


def is_generated(x: types.FunctionType) -> bool:
    """Whether Python has written a function's code for a class of a library, as for dataclasses,
    and it reads what it names only.
    """
    code = x.__code__
    if code.co_filename != "<string>" or reads_any_name(code):
        return False
    module = sys.modules.get(str(x.__globals__.get("__name__")))
    file = getattr(module, "__file__", None)
    return getattr(module, "__dict__", None) is x.__globals__ and is_library(str(file))


def is_named_by_library(slot: GuardSource) -> bool:
    """Whether code of an installed library has a variable's value by a name which tells that it
    reads any attribute: `RunningCode` sees that code run (`reads_whole`).
    """
    code = slot.needs
    if slot.kind != "dict" or not is_kind(code, types.CodeType) or slot.key not in WHOLE:
        return False
    return slot.key in code.co_names and is_installed(code.co_filename)


def members_of(x: type) -> list[tuple[str, object]]:
    """The slots of a class, and those of its attributes that an object's own may hide."""
    return [
        (name, member)
        for kind in x.__mro__
        if kind.__module__ != "builtins"
        for name, member in kind.__dict__.items()
        if not name.endswith("offset__")  # of a type in C, where it shows a pointer
        and (
            is_kind(member, types.MemberDescriptorType)
            or not (callable(member) or hasattr(type(member), "__get__") or name[:2] == "__")
        )
    ]


def is_method_of_library(x: object) -> bool:
    """Whether a class's member is a function of a library, in whatever wrapping."""
    held: Any = x  # a user's object may import or fail where an attribute is asked of it
    wrapped = is_kind(held, (classmethod, staticmethod, types.MethodType))
    function = held.__func__ if wrapped else held
    return is_kind(function, types.FunctionType) and not is_users(function.__code__)


def is_users_module(x: types.ModuleType) -> bool:
    """Whether a module is a user's; one without a file was made by hand, or in a session."""
    path = x.__dict__.get("__file__") or ""
    if path:
        return not path.startswith(OURS) and not is_library(path)
    return x.__dict__.get("__spec__") is None and module_of(type(x)) != "adjoint"


def module_of(x: type) -> str:
    """The package that a class is of."""
    name: Any = x.__module__
    return name.partition(".")[0] if type(name) is str else ""  # of Cython's, in Python 3.10


def is_library_class(x: type) -> bool:
    """Whether a class belongs to Python, or to what was installed."""
    file = getattr(sys.modules.get(str(x.__module__)), "__file__", None)
    return is_kind(file, str) and is_library(file)


# What shows the contents of another container.
VIEWS: tuple[type[Iterable[object]], ...] = (
    types.MappingProxyType,
    type({}.keys()),
    type({}.values()),
    type({}.items()),
)


# Functions that read attributes by names that they are given, whatever they are called.
READ_ANY_NAME = frozenset((
    getattr, setattr, delattr, hasattr, vars, format, operator.attrgetter, operator.methodcaller,
    object.__getattribute__, type.__getattribute__, dataclasses.asdict, dataclasses.astuple,
    inspect.getattr_static, inspect.getmembers, dir,
))  # fmt: skip


FUNCTIONS = frozenset(map(type, READ_ANY_NAME))


LOCK = type(threading.Lock())


def reads_given_names(x: object) -> bool:
    """Whether an object is a function in C that reads attributes by names that it is given, such as
    a bound `__getattribute__`.
    """
    if type(x) in FUNCTIONS and x in READ_ANY_NAME:
        return True
    if is_kind(x, operator.methodcaller):
        return not ANY_NAME.isdisjoint(gotten_by(x))
    if is_kind(x, types.MethodWrapperType) or is_kind(x, types.BuiltinMethodType):  # bound
        return x.__name__ in ANY_NAME
    return False


def facts_of(kind: type[BaseException]) -> set[str]:
    """Names of the attributes that exceptions of a class have in C."""
    in_c = types.MemberDescriptorType, types.GetSetDescriptorType
    built_in = [each for each in kind.__mro__ if each.__module__ == "builtins"]
    names = {name for each in built_in for name, x in vars(each).items() if is_kind(x, in_c)}
    return names - {"__dict__", "__class__", "args"}


def results_kept_by(cache: Any) -> tuple[object, ...]:
    """Marks of the results that an lru_cache has, from those of other times: how many were
    computed, and the objects that hold them.
    """
    info = cache.cache_info()
    kept = [each for each in gc.get_referents(cache) if type(each) is dict]
    own = cache.__dict__
    return info.misses, *(x for each in kept if each is not own for x in each.values())


def count_kept(cache: Any) -> tuple[int, int]:
    """How often an lru_cache has computed a result since it was emptied, and how many it has."""
    info = cache.cache_info()
    return info.misses, info.currsize


def counts_of(cache: Any) -> tuple[Any, ...]:
    """Counts of an lru_cache, of which code may read any."""
    return tuple(cache.cache_info())


NUMPY_RANDOM = (np.random.Generator, np.random.RandomState)


# Types in C of which all is known: what they hold does not change, or is guarded by itself. Those
# that `_visit` sees into come before they are asked for.
_KNOWN_TYPES: frozenset[Any] = PLAIN | {
    object, types.CodeType, types.CellType, types.GetSetDescriptorType,
    types.MemberDescriptorType, types.MethodDescriptorType, types.WrapperDescriptorType,
    types.ClassMethodDescriptorType, types.GenericAlias, types.UnionType, type(NotImplemented),
    functools.partialmethod, super, types.SimpleNamespace, operator.itemgetter,
    type(vars(GuardSource)["kind"]), re.Pattern, re.Match,
    type(threading.Lock()), type(threading.RLock()), type(functools.lru_cache(len)),  # see `caches`
    datetime.date, datetime.datetime, datetime.time, datetime.timedelta, datetime.timezone,
    datetime.tzinfo, decimal.Decimal,
}  # fmt: skip


CACHED = type(functools.lru_cache(len))


HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class that is no static one in C


_IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE: a type in C


def can_change_class(x: object) -> bool:
    """Whether an object's `__class__` can be set: not if it is of a static type in C, but for
    modules.
    """
    return bool(type(x).__flags__ & HEAP) or issubclass(type(x), types.ModuleType)


def gotten_by(getter: object) -> set[str]:
    """Names of the attributes that an attrgetter or a methodcaller reads of what it is given."""
    reduced = getter.__reduce__()
    assert is_kind(reduced, tuple)
    maker, parts = reduced
    if type(getter) is operator.methodcaller:
        parts = (maker.args if is_kind(maker, functools.partial) else parts)[:1]
    return {name for path in parts for name in path.split(".")}


def contents_of(view: Iterable[object]) -> tuple[object, ...]:
    """The present contents of a view of a container."""
    return tuple(view.items()) if is_kind(view, types.MappingProxyType) else tuple(view)


def decimal_settings() -> tuple[object, ...]:
    """Settings on which results of decimal arithmetic depend, besides its operands."""
    context = decimal.getcontext()
    traps = tuple(name.__name__ for name, is_on in context.traps.items() if is_on)
    return context.prec, context.rounding, context.Emin, context.Emax, context.clamp, traps


class DecimalContext:
    """The context of decimal arithmetic, as it is."""

    def __init__(self) -> None:
        self._context = decimal.getcontext()
        self._before = self._context.copy()

    def put_back(self) -> None:
        """Let it be as it was."""
        context, before = self._context, self._before
        if decimal.getcontext() is not context:
            decimal.setcontext(context)
        for name in ("prec", "rounding", "Emin", "Emax", "capitals", "clamp"):
            if getattr(context, name) != getattr(before, name):
                setattr(context, name, getattr(before, name))
        context.flags.update(before.flags)
        context.traps.update(before.traps)


def print_settings() -> str:
    """Settings on which the text of an array depends."""
    return repr(np.get_printoptions())


class Writeable:
    """Whether an array may be written."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __call__(self) -> bool:
        """Whether it may be written now."""
        return self._array.flags.writeable

    def put_back(self, value: bool) -> None:
        """Let it be as it was."""
        self._array.flags.writeable = value


class InContext:
    """The value of a context variable."""

    def __init__(self, variable: contextvars.ContextVar[Any]) -> None:
        self._variable = variable

    def __call__(self) -> object:
        """The value now, or the default."""
        try:
            return self._variable.get()
        except LookupError:
            return ABSENT

    def put_back(self, value: object) -> None:
        """Let it hold what it held."""
        self._variable.set(value)


class Held:
    """Whether a lock is held."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock

    def __call__(self) -> bool:
        """Whether it is held now."""
        return bool(self._lock.locked())

    def put_back(self, value: bool) -> None:
        """Let it be as it was."""
        if value:
            self._lock.acquire(False)
        else:
            self._lock.release()


def is_bound(x: object) -> bool:
    """Whether an object is a method, in Python, of an object, whose attributes it may read."""
    return is_kind(x, types.MethodType) and is_kind(x.__func__, types.FunctionType)


def is_iterator(x: object) -> bool:
    """Whether an object gives its items once, or draws random numbers."""
    gives = hasattr(type(x), "__next__") and not is_kind(x, io.IOBase)
    return gives or is_kind(x, NUMPY_RANDOM)


_OPAQUE: dict[type, bool] = {}  # types, and whether their objects are


def is_opaque(x: object) -> bool:
    """Whether an object has state in C that no guard sees."""
    kind = type(x)
    if kind not in _OPAQUE:
        _OPAQUE[kind] = any(
            base.__flags__ & _IMMUTABLE
            and base not in _KNOWN_TYPES
            and not issubclass(base, BaseException)
            and not is_known(module_of(base))
            for base in kind.__mro__
        )
    return _OPAQUE[kind]
