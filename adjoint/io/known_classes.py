"""Names that `load(weights_only=False)` takes beyond plain data: modules whose classes are
imported.

Nothing is imported and no code of a class is run: a module is made without its constructor and
given its state by `restore_module`; functions of tensors are values, never called. Names are looked
up in what modules hold, not by their `__getattr__`, which could import.
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import pathlib
import re
import sys
from argparse import Namespace
from collections import defaultdict, deque
from types import SimpleNamespace
from typing import Any

from ..core.errors import CheckpointError
from ..nn.modules.module import Module
from .class_paths import PACKAGE, our_object
from .module_state import has_own_setstate, restore_module
from .pytorch_names import build, find, is_known, modern
from .restricted_pickle import Known, Named, brief

_OPERATIONS = "torch", "torch._C._VariableFunctions", "torch._C._nn", "torch.special"
_HOMES = f"{PACKAGE}.ops.", f"{PACKAGE}.nn.functional", f"{PACKAGE}.special"  # of what computes
_RECORDS = (Namespace, SimpleNamespace)  # any attributes, no methods


def find_class(module: str, name: str) -> Any:
    """The object that a file names: from `find`, a Module class that is imported already, a
    function of tensors, or a record of the standard library's.

    Errors: CheckpointError for any other name.
    """
    module, name = modern(module, name)
    if is_known(module, name):
        return find(module, name)
    full = f"{module}.{name}"
    if full in _PLAIN:
        return _PLAIN[full]
    found = _imported(module, name)
    if isinstance(found, type) and issubclass(found, Module):
        return Known(found, lambda: object.__new__(found))
    if callable(found) and not isinstance(found, type) and _computes(module, found):
        return Known(found)
    try:
        return find(module, name)
    except CheckpointError as error:
        if module in sys.modules:
            raise
        raise CheckpointError(f"{error}; a class of modules: import {module} first") from None


def _imported(module: str, name: str) -> Any:
    """The object of that name in a module that is imported, or ours of PyTorch's."""
    if module == "torch" or module.startswith("torch."):
        return our_object(module, name)
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
    return found


def _computes(module: str, function: Any) -> bool:
    """Whether it is an operation on tensors: it reads no files and runs nothing else."""
    home = getattr(function, "__module__", None) or ""
    return (module in _OPERATIONS or module == "torch.nn.functional") and home.startswith(_HOMES)


def build_class(instance: Any, state: Any) -> bool:
    """Restore `instance` to the `state` in a file; False where its class has none to restore.

    Errors: CheckpointError for modules whose class restores its state by code of its own.
    """
    if isinstance(instance, _RECORDS):
        if type(state) is not dict or any(
            type(key) is not str or key.startswith("__") for key in state
        ):
            raise CheckpointError(f"the attributes of a {type(instance).__name__} are no dict")
        vars(instance).update(state)
        return True
    if build(instance, state):
        return True
    if not isinstance(instance, Module):
        return False
    kind = type(instance)
    if has_own_setstate(kind):
        raise CheckpointError(
            f"{kind.__module__}.{kind.__qualname__} has a __setstate__ of its own, which only "
            "trusted files run: with adjoint.serialization.trust(path) around load"
        )
    restore_module(instance, state)
    return True


# ---- the standard library ------------------------------------------------------------------------


def _defaultdict(factory: Any = None, items: Any = ()) -> Any:
    if isinstance(factory, Named) and factory.name == "builtins.set":
        factory = set
    if factory is not None and factory not in (*_FACTORIES, set):
        raise CheckpointError(f"a defaultdict makes its values by {brief(factory)}")
    if items != ():
        raise CheckpointError("a defaultdict is made of values at once")
    return defaultdict(factory)


def _deque(items: Any = (), size: Any = None) -> Any:
    if type(items) not in (tuple, list) or type(size) not in (int, type(None)):
        raise CheckpointError(f"a deque is made of {brief(items)}")
    return deque(items, size)


def _attribute(holder: Any, name: Any) -> Any:
    """Looks up an attribute, as files of protocol 2 do: a function of PyTorch's, or a class in a
    class.
    """
    if type(name) is not str or name.startswith("_"):
        raise CheckpointError(f"the file looks up the attribute {brief(name)}")
    if holder is _FUNCTIONS:
        return find_class("torch._C._VariableFunctions", name)
    if isinstance(holder, type) and issubclass(holder, Module):
        return find_class(holder.__module__, f"{holder.__qualname__}.{name}")
    raise CheckpointError(f"the file looks up {name:.100} in {brief(holder)}")


def _path(*parts: Any) -> Any:
    if any(type(part) is not str for part in parts):
        raise CheckpointError(f"a path is made of {brief(parts)}")
    return pathlib.Path(*parts)


def _slice(*parts: Any) -> Any:
    if len(parts) != 3 or any(type(part) not in (int, type(None)) for part in parts):
        raise CheckpointError(f"a slice is made of {brief(parts)}")
    return slice(*parts)


def _of(kind: Any, *types: type) -> Any:
    """`kind` of arguments that are of these types alone."""

    def make(*parts: Any) -> Any:
        if any(type(part) not in types for part in parts) or sum(map(_length, parts)) > _LONGEST:
            raise CheckpointError(f"a {kind.__name__} is made of {brief(parts)}")
        try:
            return kind(*parts)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise CheckpointError(f"a {kind.__name__} is made of {brief(parts)}: {error}") from None

    return make


def _fraction(*parts: Any) -> Any:
    """A Fraction of integers, or of their text without an exponent, whose digits all would be
    made.
    """
    text = len(parts) == 1 and type(parts[0]) is str and re.fullmatch(r"-?\d+(/\d+)?", parts[0])
    return _of(fractions.Fraction, str if text else int)(*parts)


def _length(part: Any) -> int:
    return len(part) if type(part) in (str, bytes) else 0


_LONGEST = 4096  # characters of a number's text; a decimal's is worked through digit by digit
_FACTORIES = (dict, list, int, float, str)
_FUNCTIONS = Named("torch._C._VariableFunctionsClass", dict)
_CALLS: dict[str, Any] = {
    "builtins.getattr": _attribute,
    "collections.defaultdict": _defaultdict,
    "collections.deque": _deque,
    "builtins.slice": _slice,
    "builtins.range": _of(range, int),
    "datetime.date": _of(datetime.date, int, bytes),
    "datetime.datetime": _of(datetime.datetime, int, bytes, datetime.timezone),
    "datetime.time": _of(datetime.time, int, bytes, datetime.timezone),
    "datetime.timedelta": _of(datetime.timedelta, int),
    "datetime.timezone": _of(datetime.timezone, datetime.timedelta, str),
    "decimal.Decimal": _of(decimal.Decimal, str),
    "fractions.Fraction": _fraction,
    **{
        f"{module}.{kind}": _path
        for module in ("pathlib", "pathlib._local")
        for kind in ("Path", "PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath")
    },
}
_PLAIN: dict[str, Any] = {
    **{name: Named(name, call) for name, call in _CALLS.items()},
    **{f"builtins.{each.__name__}": Known(each) for each in (*_FACTORIES, tuple, bool)},
    "builtins.Ellipsis": ...,
    "argparse.Namespace": Known(Namespace, Namespace),
    "types.SimpleNamespace": Named("types.SimpleNamespace", lambda: SimpleNamespace()),
    "torch._C._VariableFunctionsClass": _FUNCTIONS,
}
