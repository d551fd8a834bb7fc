"""By which names a function's Python finds the tensors that are its state."""

from __future__ import annotations

import functools
import types
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from ..amp.grad_scaler import GradScaler
from ..core.tensor_base import TensorBase
from ..nn.modules.module import Module
from ..optim.optimizer import Optimizer
from ..program.reads import Slot

_MOST = 100_000  # objects that are looked at
_REGISTERED = ("_parameters", "_buffers", "_modules")  # of a module
_NOTHING = (types.ModuleType, type, str, bytes, int, float, complex, Optimizer)


def names_of(function: Callable[..., Any], met: Collection[int]) -> dict[str, Any]:
    """Tensors by name: those of modules of which a tensor's id is in `met`, as their `state_dict`
    names them, and others of `met` by the variables that hold them.

    One module's names are its own; where there are several, the variable comes first.
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
    found: dict[str, Any] = {}
    for path, tensors in states:
        prefix = f"{path}." if path and len(states) > 1 else ""
        for name, x in tensors.items():
            found[_free(prefix + name, found)] = x
    known = {id(x) for x in found.values()}
    for name, x in loose.items():
        if id(x) not in known:
            found[_free(name, found)] = x
    return found


def scalers_of(function: Callable[..., Any], met: Collection[int]) -> list[GradScaler]:
    """The scalers whose scale is in `met`, by its id."""
    reached = (x for _, x in _reached(function) if isinstance(x, GradScaler))
    return [x for x in reached if id(x._scale) in met]


def _free(name: str, taken: Collection[str]) -> str:
    while name in taken:
        name += "_"
    return name


def number_names(function: Callable[..., Any], slots: Sequence[Slot]) -> list[str]:
    """The names by which the function's Python finds places that hold numbers, each once."""
    wanted = {id(slot.holder) for slot in slots}
    paths: dict[int, str] = {}
    for path, x in _reached(function) if slots else ():
        for holder in (x, *_holders(x)):
            if id(holder) in wanted:
                paths.setdefault(id(holder), path)
    found: list[str] = []
    for slot in slots:
        path = paths.get(id(slot.holder), "")
        found.append(_free(_joined(path, str(slot.key)), found))
    return found


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path and name else path or name


def _holders(x: Any) -> tuple[Any, ...]:
    """Where an object's attributes, or the variables of code, are."""
    if isinstance(x, types.FunctionType):
        return x.__globals__, *(x.__closure__ or ())
    return (vars(x),) if hasattr(x, "__dict__") else ()


def _reached(function: Any) -> Iterator[tuple[str, Any]]:
    """What can be reached, the nearest first, by paths of names; not what is in tensors."""
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


def _parts(x: Any) -> Iterator[tuple[str, Any]]:
    """What an object holds, or code names, by name."""
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
    else:
        if isinstance(x, Module):
            yield from x._modules.items()
        for name, value in getattr(x, "__dict__", {}).items():
            if not (name in _REGISTERED and isinstance(x, Module)):
                yield name, value


def _named(code: types.CodeType) -> Iterator[str]:
    """The names in code, and in what is defined within it."""
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _named(each)
