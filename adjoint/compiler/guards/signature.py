"""Signature of a call's arguments: their structure, shapes, dtypes and Python values, by which a
program is found.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from ...core.device import CPU, device
from ...core.dtype import dtype
from ...core.elements import order_in_memory
from ...core.spec import Size
from ...core.tensor_base import TensorBase
from ...nn.parameter import Parameter
from ...ops.create.creation import tensor
from .slots import PLAIN


class NumberMark:
    """What stands in a call's arguments, and in their signature, for a number given apart."""

    __slots__ = ("kind",)

    def __init__(self, kind: type) -> None:
        self.kind = kind

    def __repr__(self) -> str:
        return f"a number ({self.kind.__name__})"


BY_VALUE: frozenset[Any] = (PLAIN - {slice, float, complex}) | {Size, dtype, device, NumberMark}
_FEW = 16  # tensors, or containers, of which each is compared with those before it

ndarray = np.ndarray
R = TypeVar("R")


class Signature:
    """Key of some arguments, their tensors, and the objects among them that are known by
    identity.
    """

    __slots__ = ("_known", "containers", "host", "key", "leaves", "objects", "tensors")

    leaves: bool  # see `is_input`
    key: list[Any]
    tensors: list[Any]  # each once
    containers: list[Any]  # lists and dicts, each once
    objects: list[Any]  # a parameter, an optimizer, a model: what they hold is followed
    host: bool  # all tensors have arrays of the host's

    def __init__(self, leaves: bool, tensors: Iterable[Any] = ()) -> None:
        """`tensors` belong to arguments that were signed before."""
        self.leaves = leaves
        self.key = []
        self.tensors = list(tensors)
        self.objects = []
        self.containers = []
        self.host = True
        self._known: dict[int, int] | None = None  # numbers by id, if there are many

    def add_all(self, items: Iterable[Any]) -> None:
        """Add arguments to the key."""
        for x in items:
            self.add(x)

    def add(self, x: Any) -> None:
        """Add an argument, with all that it contains, to the key."""
        kind = type(x)
        key = self.key
        if isinstance(x, TensorBase) and is_input(x, self.leaves):
            self._add_tensor(x)
        elif kind is float or kind is complex or kind is slice:
            key.append((kind, repr(x)))  # 0.0 and -0.0 are equal, NaN is not
        elif kind in BY_VALUE:
            key.append((kind, x))
        elif kind is dict or kind is list:
            n = self._number(x, self.containers)
            if n >= 0:
                key.append(n)
            elif kind is dict:
                key.append((dict, *x))
                self.add_all(x.values())
            else:
                key.append((list, len(x)))
                self.add_all(x)
        elif kind is tuple:
            key.append((kind, len(x)))
            self.add_all(x)
        elif isinstance(x, tuple) and hasattr(kind, "_fields"):
            key.append((kind, len(x)))
            known = getattr(kind, "_known", ())
            for name, each in zip(kind._fields, x, strict=True):
                self.add(tuple(each.tolist()) if name in known else each)
        else:
            key.append((kind, id(x)))
            self.objects.append(x)

    def _number(self, x: object, among: list[Any]) -> int:
        """The number of an object among those added before; -1 for one that is added now."""
        count = len(among)
        number_of = self._known
        if number_of is None and count < _FEW:
            for n in range(count):
                if among[n] is x:
                    return n
        else:
            if number_of is None:
                number_of = self._known = {}
                for items in (self.tensors, self.containers):
                    for n in range(len(items)):
                        number_of[id(items[n])] = n
            n = number_of.setdefault(id(x), count)
            if n != count:
                return n
        among.append(x)
        return -1

    def _add_tensor(self, x: TensorBase) -> None:
        key = self.key
        key.append(type(x))
        n = self._number(x, self.tensors)
        if n >= 0:
            key.append(n)
            return
        data = x._data
        key.append((data.shape, data.dtype, x._node is None))
        if type(data) is not ndarray:
            self.host = False
            if x.device != CPU:
                key.append(x.device)
        else:
            order = order_in_memory(data)
            if order:
                key.append(order)


def is_input(x: object, leaves: bool) -> bool:
    """Whether an argument is a tensor that becomes an input of the program. With `leaves`, a leaf
    whose gradient the function sets or reads is none.
    """
    if not isinstance(x, TensorBase):
        return False
    handle = x
    leaf = handle._leaf
    return (
        leaf is None
        or handle._node is None
        or not (leaves or leaf.grad is not None or isinstance(x, Parameter))
    )


def replaced(x: Any, leaves: bool, own: Iterator[Any], replacements: dict[int, Any]) -> Any:
    """Copy of an argument with its input tensors replaced by those of `own`, in the order of
    `Signature`. `replacements` gets tensors, lists and dicts by the ids of those in their places.
    """
    kind = type(x)
    if is_input(x, leaves):
        if id(x) not in replacements:
            replacements[id(x)] = next(own)
        return replacements[id(x)]
    if kind is dict or kind is list:
        made: Any = replacements.get(id(x))
        if made is None:
            made = replacements[id(x)] = kind()
            if kind is dict:
                made.update(
                    (name, replaced(each, leaves, own, replacements)) for name, each in x.items()
                )
            else:
                made.extend(replaced(each, leaves, own, replacements) for each in x)
        return made
    if kind is tuple:
        return tuple([replaced(each, leaves, own, replacements) for each in x])
    if isinstance(x, tuple) and hasattr(kind, "_fields"):
        known = getattr(kind, "_known", ())  # tensors by whose numbers Python goes: a constant each
        return kind(
            *[
                tensor(each.tolist())
                if name in known
                else replaced(each, leaves, own, replacements)
                for name, each in zip(kind._fields, x, strict=True)
            ]
        )
    return x


def contents_of(container: object) -> list[object]:
    """What a list or dict contains now."""
    if isinstance(container, dict):
        return [*container, *container.values()]
    assert isinstance(container, list)
    return list(container)


def called(
    function: Callable[..., R], args: Sequence[object], kwargs: Mapping[str, object],
    containers: Sequence[object],
) -> tuple[R, list[int]]:  # fmt: skip
    """Call a function with copies of arguments; returns the result, and which of `containers`, the
    lists and dicts among them, it has written, by number.
    """
    before = [contents_of(x) for x in containers]
    result = function(*args, **kwargs)
    now = [contents_of(x) for x in containers]
    return result, [
        n for n, (xs, ys) in enumerate(zip(before, now, strict=True))
        if len(xs) != len(ys) or not all(map(operator.is_, xs, ys))
    ]  # fmt: skip


def without_sizes(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """The signature with each shape replaced by its number of dimensions."""
    parts, *modes = key
    return (*(_rank(x) for x in parts), *modes)


def shapes_of(key: tuple[Any, ...]) -> list[tuple[int, ...]]:
    """Shapes of the tensors of a signature, in order."""
    return [x[0] for x in key[0] if _is_of_tensor(x)]


def _rank(x: Any) -> Any:
    return (len(x[0]), *x[1:]) if _is_of_tensor(x) else x


def _is_of_tensor(x: object) -> bool:
    return type(x) is tuple and len(x) == 3 and type(x[0]) is tuple and isinstance(x[1], np.dtype)
