"""Objects in PyTorch's files: modules, instances of any class, and classes and functions by name.

An object is written as Python's pickle writes it, by what its own `__reduce_ex__` says; what is
ours goes under PyTorch's path of it, with the state that PyTorch's class has.
"""

from __future__ import annotations

import copyreg
import functools
import pickle
import sys
import types
from _compat_pickle import REVERSE_IMPORT_MAPPING, REVERSE_NAME_MAPPING  # protocol 2: Python 2's
from typing import Any

from ..core.errors import InvalidType
from ..nn.modules.module import Module
from .class_paths import is_ours, pytorch_path
from .module_state import REGISTRIES, around, has_state_hooks, pytorch_state

# Types of values that have a name, but no type of theirs has one.
_TYPES_OF = {type(each): each for each in (None, ..., NotImplemented)}
# Objects that PyTorch makes by functions of its C++ alone.
_MADE_BY_PYTORCH = [("torch", name) for name in ("Generator", "finfo", "iinfo", "memory_format")]


def write_object(writer: Any, value: Any) -> None:
    """Write an object that is not plain data to `writer`, a PickleWriter.

    Errors: InvalidType, with the path inside of the object, for what has no name to be found by
    (functions in functions), for what Python cannot pickle (files, generators, locks), and for
    modules with hooks that have none, or that are of its state dict.
    """
    if _is_named(value):
        _write_name(writer, value)
        return
    if is_ours(type(value)) and pytorch_path(type(value)) in _MADE_BY_PYTORCH:
        raise InvalidType(
            f"save: cannot store {_kind(value)} at {writer._where()}: PyTorch's files have none; "
            "store what it is made of, such as generator.get_state()"
        )
    reduced = _reduced(writer, value)
    if isinstance(reduced, str):
        writer._name(*_found(writer, value, _home(value), reduced))
        writer._remember(value)
        return
    function, arguments, state, items, pairs, *more = (*reduced, None, None, None, None)[:6]
    if any(each is not None for each in more):
        raise InvalidType(f"save: {_kind(value)} at {writer._where()} sets its state by a function")
    with writer._within(value):
        _write_made(writer, function, arguments)
        writer._remember(value)
        if items is not None:
            writer._emit(pickle.MARK)
            writer._parts_of(items, ((i, (part,)) for i, part in enumerate(items)))
            writer._emit(pickle.APPENDS)
        if pairs is not None:
            writer._emit(pickle.MARK)
            writer._parts_of(pairs, ((key, (key, part)) for key, part in pairs))
            writer._emit(pickle.SETITEMS)
        if state is not None:
            _write_state(writer, value, state)
            writer._emit(pickle.BUILD)


def _is_named(value: Any) -> bool:
    """Whether files hold its name: classes and functions, not methods of an object."""
    owner = getattr(value, "__self__", None)
    of_object = owner is not None and not isinstance(owner, types.ModuleType)
    is_compiled = type(value).__name__ == "cython_function_or_method"
    named = (type, types.FunctionType, types.BuiltinFunctionType)
    return (isinstance(value, named) or is_compiled) and not of_object


def _reduced(writer: Any, value: Any) -> Any:
    own = copyreg.dispatch_table.get(type(value))
    try:
        return own(value) if own is not None else value.__reduce_ex__(2)
    except (TypeError, pickle.PicklingError) as error:
        raise InvalidType(
            f"save: cannot store {_kind(value)} at {writer._where()}: {error}; take it out of the "
            "object before saving, or leave it out by a __getstate__ of its class"
        ) from error


def _home(value: Any) -> str | None:
    return getattr(value, "__module__", None)


def _kind(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _write_made(writer: Any, function: Any, arguments: Any) -> None:
    """Writes the construction of the object: a class without its constructor, or a call."""
    if function is copyreg.__newobj__:  # type: ignore[attr-defined]
        kind, *arguments = arguments
        writer._write(kind)
        writer._tuple(tuple(arguments))
        writer._emit(pickle.NEWOBJ)
        return
    if function is copyreg.__newobj_ex__:  # type: ignore[attr-defined]
        kind, given, named = arguments
        function, arguments = functools.partial(kind.__new__, kind, *given, **named), ()
    writer._write(function)
    writer._tuple(tuple(arguments))
    writer._emit(pickle.REDUCE)


def _write_state(writer: Any, value: Any, state: Any) -> None:
    if not isinstance(value, Module) or type(state) is not dict or "_parameters" not in state:
        writer._write(state)
        return
    hooks = "hooks of its state dict" if has_state_hooks(state) else ""
    if not all(map(_is_named, around(state))):
        hooks = "hooks around its forward or backward that are no functions with a name"
    if hooks:
        raise InvalidType(
            f"save: the {type(value).__name__} at {writer._where()} has {hooks}; remove them "
            "before saving"
        )
    writer._emit(pickle.EMPTY_DICT + pickle.MARK)
    for name, part in pytorch_state(value, state).items():
        writer._write(name)
        if name in REGISTRIES:  # what they hold is called by its own name
            writer._write(part)
        else:
            writer._write_called(name, part)
    writer._emit(pickle.SETITEMS)


# ---- names ---------------------------------------------------------------------------------------


def _write_name(writer: Any, value: Any) -> None:
    if isinstance(value, type) and value in _TYPES_OF:
        writer._call("__builtin__", "type", lambda: writer._tuple_of(_TYPES_OF[value]))
        return
    module, name = getattr(value, "__module__", None), value.__qualname__
    path = pytorch_path(value) if is_ours(value) else _found(writer, value, module, name)
    if path is None:
        raise InvalidType(
            f"save: {module}.{name} at {writer._where()} is adjoint's own, which PyTorch has not; "
            "leave it out, or save with adjoint.save in a file that is not called .pt"
        )
    holder, _, last = path[1].rpartition(".")
    if holder:  # a class in a class: protocol 2 has no other way
        writer._name("__builtin__", "getattr")
        writer._emit(pickle.MARK)
        writer._write(functools.reduce(getattr, holder.split("."), sys.modules[path[0]]))
        writer._write(last)
        writer._emit(pickle.TUPLE + pickle.REDUCE)
    else:
        writer._name(*REVERSE_NAME_MAPPING.get(path, (_old(path[0]), path[1])))
    writer._remember(value)


def _old(module: str) -> str:
    return REVERSE_IMPORT_MAPPING.get(module, module)


def _found(writer: Any, value: Any, module: str | None, name: str) -> tuple[str, str]:
    """Module and name under which a reader finds `value`, after a check that it does."""
    module = module or "builtins"
    found = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not value:
        why = "a lambda" if "<lambda>" in name else "made inside of a function"
        why = why if "<" in name else f"not what {module}.{name} is now"
        raise InvalidType(
            f"save: {module}.{name} at {writer._where()} is {why}: files hold functions and "
            "classes by name, so define it at the top of a module that can be imported"
        )
    return module, name
