"""What a function is made of: its code, and what it holds. Two functions that a `def` or a lambda
makes in two calls have the same code, and other variables.

A `FunctionForm` takes a function apart: into a key, by which functions that are alike are equal,
and the tensors that it holds, in place of which others can be put.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ...core import policy
from ...core.device import device
from ...core.dtype import dtype
from ...core.errors import Unsupported
from ...core.spec import Size
from ...core.tensor_base import TensorBase
from ...nn.parameter import Parameter
from ...runtime.tensors import wrap
from ..guards.code_observer import is_users
from ..guards.slots import PLAIN

_BY_VALUE = (PLAIN - {slice, float, complex}) | {Size, dtype, device}


class FunctionForm:
    """A function, taken apart."""

    key: list[object]
    tensors: list[Any]  # that it holds, each once
    objects: list[object]  # known by identity: a module, an array, a function of a library

    def __init__(self, function: Any) -> None:
        """Errors: Unsupported for a function that holds what cannot be followed."""
        self.function = function
        self.key, self.tensors, self.objects = [], [], []
        self._known: dict[int, int] = {}
        self._add(function)

    def _add(self, x: object) -> None:
        """Add something to the key, with what it holds."""
        kind, key = type(x), self.key
        if len(key) > policy.SCAN_HOLDS:
            raise Unsupported(f"its function holds more than {policy.SCAN_HOLDS} things")
        if kind in _BY_VALUE:
            key.append((kind, x))
        elif kind is float or kind is complex or kind is slice:
            key.append((kind, repr(x)))  # 0.0 and -0.0 are equal, NaN is not
        elif isinstance(x, np.generic):
            key.append((kind, x.dtype, x.tobytes()))
        elif isinstance(x, TensorBase) and not isinstance(x, Parameter):
            if self._is_new(x):
                key.append(tensor_key(x))
                self.tensors.append(x)
        elif is_made(x):
            if self._is_new(x):
                self._add_parts(x, kind)
        else:
            key.append((kind, id(x)))
            self.objects.append(x)

    def _add_parts(self, x: Any, kind: type) -> None:
        parts = list(_parts(x))
        own = (id(x.__code__), id(x.__globals__)) if kind is types.FunctionType else ()
        names = tuple(x) if kind is dict else ()
        self.key.append((kind, len(parts), *own, *names))
        if own:
            self.objects += [x.__code__, x.__globals__]
        for each in parts:
            self._add(each)

    def _is_new(self, x: object) -> bool:
        """Whether something is met for the first time; else its number is added to the key."""
        number = self._known.get(id(x))
        if number is None:
            self._known[id(x)] = len(self._known)
            return True
        self.key.append(("again", number))
        return False

    def made(self, tensors: Iterable[object]) -> Any:
        """A function like this one, with other tensors in place of those that it holds. Containers
        and functions that it holds are new ones.
        """
        return _rebuilt(self.function, iter(tensors), {})


@functools.cache
def _plain() -> type:
    """The class of tensors of no subclass."""
    return type(wrap(np.zeros(())))


def tensor_key(x: Any) -> tuple[Any, ...]:
    """Facts of a tensor on which a captured body depends.

    Errors: Unsupported for one that is more than its elements and its history.
    """
    kind = type(x)
    if (kind is not _plain() and kind is not Parameter) or x.__dict__:
        raise Unsupported(f"a tensor is a {kind.__name__} with attributes of its own")
    if type(x._data) is not np.ndarray:
        raise Unsupported("a tensor is not in the host's memory")
    return x._data.shape, x._data.dtype, x._node is None


def is_made(x: object) -> bool:
    """Whether something may be made anew in each call and be the same: a function, or a container,
    which is taken apart.
    """
    if isinstance(x, types.FunctionType):
        return bool(x.__closure__) or is_users(x.__code__)
    return type(x) in (tuple, list, dict, types.MethodType, functools.partial)


def _parts(x: Any) -> Iterator[object]:
    """Things that a function or container holds."""
    kind = type(x)
    if kind is types.FunctionType:
        if x.__dict__.keys() - {"__wrapped__"}:
            raise Unsupported(f"the function {x.__name__} has attributes of its own")
        for cell in x.__closure__ or ():
            yield _held(cell)
        yield x.__defaults__
        yield x.__kwdefaults__
    elif kind is types.MethodType:
        yield x.__func__
        yield x.__self__
    elif kind is functools.partial:
        if x.__dict__:
            raise Unsupported("a partial has attributes of its own")
        yield x.func
        yield x.args
        yield x.keywords
    else:
        yield from x.values() if kind is dict else x


def _held(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        raise Unsupported("its function has a variable without a value") from None


def _rebuilt(x: Any, own: Iterator[object], made: dict[int, Any]) -> Any:
    """A copy, with the next of `own` for each tensor; `made` are those of what was met before."""
    kind = type(x)
    if isinstance(x, TensorBase) and not isinstance(x, Parameter):
        if id(x) not in made:
            made[id(x)] = next(own)
        return made[id(x)]
    if kind in _BY_VALUE or not is_made(x):
        return x
    if id(x) in made:
        return made[id(x)]
    if kind is types.FunctionType:
        return _function(x, own, made)
    if kind is list or kind is dict:
        y: Any = kind()
        made[id(x)] = y
        parts = [_rebuilt(each, own, made) for each in _parts(x)]
        if kind is list:
            y.extend(parts)
        else:
            y.update(zip(x, parts, strict=True))
        return y
    parts = [_rebuilt(each, own, made) for each in _parts(x)]
    if kind is types.MethodType:
        y = types.MethodType(*parts)
    elif kind is functools.partial:
        y = functools.partial(parts[0], *parts[1], **parts[2])
    else:
        y = tuple(parts)
    made[id(x)] = y
    return y


def _function(
    x: types.FunctionType, own: Iterator[object], made: dict[int, Any]
) -> types.FunctionType:
    cells = [_cell(cell, made) for cell in x.__closure__ or ()]
    y = types.FunctionType(x.__code__, x.__globals__, x.__name__, None, tuple(cells) or None)
    made[id(x)] = y
    for cell, each in zip(cells, x.__closure__ or (), strict=True):
        cell.cell_contents = _rebuilt(_held(each), own, made)
    y.__defaults__ = _rebuilt(x.__defaults__, own, made)
    y.__kwdefaults__ = _rebuilt(x.__kwdefaults__, own, made)
    y.__qualname__, y.__module__, y.__doc__ = x.__qualname__, x.__module__, x.__doc__
    return y


def _cell(cell: types.CellType, made: dict[int, Any]) -> types.CellType:
    """A new variable for one, which several functions may have."""
    return made.setdefault(id(cell), types.CellType())
