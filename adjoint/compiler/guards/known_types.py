"""Types and functions of which all is known: what they hold does not change, or is looked into.

Objects of any other type in C are refused.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import functools
import inspect
import operator
import re
import threading
import types
from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np

from ...core.package import OURS
from .code_observer import is_known, is_library, is_users
from .slots import PLAIN, GuardSource


def is_ours(function: object) -> bool:
    """Whether a function in Python is of this package."""
    code = getattr(function, "__code__", None)
    return isinstance(code, types.CodeType) and code.co_filename.startswith(OURS)


def is_of_library(x: object) -> bool:
    """Whether a value in a library's module is a part of it that only replacing it changes."""
    if isinstance(x, types.FunctionType):
        return not is_users(x.__code__)
    if isinstance(x, types.ModuleType):
        return False
    return type(x) in PLAIN or callable(x)


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
    inspect.getattr_static, inspect.getmembers,
))  # fmt: skip


FUNCTIONS = frozenset(map(type, READ_ANY_NAME))


# Types whose objects cannot be given another class.
BUILT_IN = frozenset((dict, list, tuple, set, frozenset, deque))


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


def gotten_by(getter: object) -> set[str]:
    """Names of the attributes that an attrgetter or a methodcaller reads of what it is given."""
    reduced = getter.__reduce__()
    assert isinstance(reduced, tuple)
    maker, parts = reduced
    if type(getter) is operator.methodcaller:
        parts = (maker.args if isinstance(maker, functools.partial) else parts)[:1]
    return {name for path in parts for name in path.split(".")}


def contents_of(view: Iterable[object]) -> tuple[object, ...]:
    """The present contents of a view of a container."""
    return tuple(view.items()) if isinstance(view, types.MappingProxyType) else tuple(view)


def decimal_settings() -> tuple[object, ...]:
    """Settings on which results of decimal arithmetic depend, besides its operands."""
    context = decimal.getcontext()
    return context.prec, context.rounding, context.Emin, context.Emax, context.clamp


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
