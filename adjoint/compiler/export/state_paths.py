"""Names of a function's state: the paths by which its Python reaches tensors and numbers."""

from __future__ import annotations

import functools
import types
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from ...amp.grad_scaler import GradScaler
from ...core.tensor_base import TensorBase
from ...nn.modules.module import Module
from ...optim.optimizer import Optimizer
from ..guards.slots import GuardSource

_MOST = 100_000  # objects that are visited
_REGISTERED = ("_parameters", "_buffers", "_modules")  # of a module
_NOTHING = (types.ModuleType, type, str, bytes, int, float, complex, Optimizer)


def names_of(function: Callable[..., Any], met: Collection[int]) -> dict[str, Any]:
    """Tensors by name. Tensors of modules that have a tensor whose id is in `met` are named as in
    their `state_dict`; other tensors in `met` by the variables that hold them.

    If there are several such modules, their names are prefixed with the variable.
    """
    modules: dict[int, tuple[str, Module]] = {}
    loose: dict[str, Any] = {}
    for path, x in _reached(function):
        if isinstance(x, Module):
            modules.setdefault(id(x), (path, x))
        elif isinstance(x, TensorBase) and id(x) in met:
            loose.setdefault(path or "state", x)
    within = {id(m) for _, each in modules.values() for m in each.modules() if m is not each}
    states: list[tuple[str, dict[str, Any]]] = []
    for key, (path, module) in modules.items():
        tensors = {
            name: x
            for name, x in module.state_dict(keep_vars=True).items()
            if isinstance(x, TensorBase)
        }
        if key not in within and any(id(x) in met for x in tensors.values()):
            states.append((path, tensors))
    by_name: dict[str, Any] = {}
    for path, tensors in states:
        prefix = f"{path}." if path and len(states) > 1 else ""
        for name, x in tensors.items():
            by_name[_free(prefix + name, by_name)] = x
    named_ids = {id(x) for x in by_name.values()}
    for name, x in loose.items():
        if id(x) not in named_ids:
            by_name[_free(name, by_name)] = x
    return by_name


def scalers_of(function: Callable[..., Any], met: Collection[int]) -> list[GradScaler]:
    """GradScalers whose scale has its id in `met`."""
    reached = (x for _, x in _reached(function) if isinstance(x, GradScaler))
    return [x for x in reached if id(x._scale) in met]


def _free(name: str, taken: Collection[str]) -> str:
    while name in taken:
        name += "_"
    return name


def number_names(function: Callable[..., Any], slots: Sequence[GuardSource]) -> list[str]:
    """Names by which the function's Python reaches the slots of numbers, each unique."""
    holder_ids = {id(slot.holder) for slot in slots}
    paths: dict[int, str] = {}
    for path, x in _reached(function) if slots else ():
        for holder in (x, *_holders(x)):
            if id(holder) in holder_ids:
                paths.setdefault(id(holder), path)
    names: list[str] = []
    for slot in slots:
        path = paths.get(id(slot.holder), "")
        names.append(_free(_joined(path, str(slot.key)), names))
    return names


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path and name else path or name


def _holders(x: object) -> tuple[Any, ...]:
    """Dicts or cells that hold an object's attributes, or the variables of code."""
    if isinstance(x, types.FunctionType):
        return x.__globals__, *(x.__closure__ or ())
    return (vars(x),) if hasattr(x, "__dict__") else ()


def _reached(function: object) -> Iterator[tuple[str, Any]]:
    """Objects that can be reached from a function, breadth first, with their paths of names; not
    those within tensors.
    """
    waiting: deque[tuple[str, Any]] = deque([("", function)])
    seen: set[int] = set()
    while waiting and len(seen) < _MOST:
        path, x = waiting.popleft()
        if id(x) in seen or x is None or isinstance(x, _NOTHING):
            continue
        seen.add(id(x))
        yield path, x
        if isinstance(x, (TensorBase, GradScaler)):
            continue
        for name, value in _parts(x):
            waiting.append((_joined(path, name), value))


def _parts(x: object) -> Iterator[tuple[str, Any]]:
    """Named parts of an object: its attributes or items, or the variables of its code."""
    if isinstance(x, types.MethodType):
        yield "", x.__self__
        yield "", x.__func__
    elif isinstance(x, types.FunctionType):
        for name, cell in zip(x.__code__.co_freevars, x.__closure__ or (), strict=True):
            try:
                yield name, cell.cell_contents
            except ValueError:  # a variable that has no value yet
                continue
        if not (x.__module__ or "").startswith("adjoint."):
            for name in _named(x.__code__):
                if name in x.__globals__:
                    yield name, x.__globals__[name]
        for value in (*(x.__defaults__ or ()), *(x.__kwdefaults__ or {}).values()):
            yield "", value
        if hasattr(x, "__wrapped__"):
            yield "", x.__wrapped__
    elif isinstance(x, functools.partial):
        for value in (x.func, *x.args, *x.keywords.values()):
            yield "", value
    elif isinstance(x, dict):
        for key, value in x.items():
            yield str(key), value
    elif isinstance(x, (list, tuple, set, frozenset)):
        for n, value in enumerate(x):
            yield str(n), value
    elif getattr(type(x), "_unread", None) is not None:  # a compiled function: not its programs
        yield "", vars(x)["function"]
    else:
        if isinstance(x, Module):
            yield from x._modules.items()
        for name, value in getattr(x, "__dict__", {}).items():
            if not (name in _REGISTERED and isinstance(x, Module)):
                yield name, value


def _named(code: types.CodeType) -> Iterator[str]:
    """Names used in code, and in code defined within it."""
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _named(each)
