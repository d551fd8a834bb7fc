"""What a program depends on of a call's arguments: their form, and the values of no tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ..core.device import CPU, device
from ..core.dtype import dtype
from ..core.spec import Size
from ..core.tensor_base import TensorBase
from ..eager.elements import order_in_memory
from ..nn.parameter import Parameter
from ..program.reads import PLAIN

BY_VALUE: frozenset[Any] = (PLAIN - {slice, float, complex}) | {Size, dtype, device}
_FEW = 16  # tensors of which each is compared with those before it

ndarray = np.ndarray


class Signature:
    """The signature of some arguments, their tensors, and objects known by identity."""

    __slots__ = ("_known", "host", "key", "leaves", "objects", "tensors")

    leaves: bool  # see `is_input`
    key: list[Any]
    tensors: list[Any]  # each once
    objects: list[Any]  # a parameter, an optimizer, a model: what they hold is followed
    host: bool  # all tensors have arrays of the host's

    def __init__(self, leaves: bool, tensors: Iterable[Any] = ()) -> None:
        """`tensors` were there before, and are signed already."""
        self.leaves = leaves
        self.key = []
        self.tensors = list(tensors)
        self.objects = []
        self.host = True
        self._known: dict[int, int] | None = None  # places of tensors by id, where they are many

    def add_all(self, items: Iterable[Any]) -> None:
        """Sign these, too."""
        for x in items:
            self.add(x)

    def add(self, x: Any) -> None:
        """Sign this, too."""
        kind = type(x)
        key = self.key
        if isinstance(x, TensorBase) and is_input(x, self.leaves):
            self._add_tensor(x)
        elif kind is float or kind is complex or kind is slice:
            key.append((kind, repr(x)))  # 0.0 and -0.0 are equal, NaN is not
        elif kind in BY_VALUE:
            key.append((kind, x))
        elif kind is dict:
            key.append((dict, *x))
            self.add_all(x.values())
        elif kind is list or kind is tuple or (isinstance(x, tuple) and hasattr(kind, "_fields")):
            key.append((kind, len(x)))
            self.add_all(x)
        else:
            key.append((kind, id(x)))
            self.objects.append(x)

    def _add_tensor(self, x: Any) -> None:
        key, tensors = self.key, self.tensors
        key.append(type(x))
        place = len(tensors)
        known = self._known
        if place < _FEW:
            for n in range(place):
                if tensors[n] is x:
                    key.append(n)
                    return
        else:
            if known is None:
                known = self._known = {}
                for n in range(place):
                    known[id(tensors[n])] = n
            n = known.setdefault(id(x), place)
            if n != place:
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
        tensors.append(x)


def is_input(x: Any, leaves: bool) -> bool:
    """Whether an argument is a tensor that a program is given; not so `leaves` whose gradients a
    function sets or may read.
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


def replaced(x: Any, leaves: bool, own: Iterator[Any], known: dict[int, Any]) -> Any:
    """The argument with other tensors, in the order in which `Signature` has them."""
    kind = type(x)
    if is_input(x, leaves):
        if id(x) not in known:
            known[id(x)] = next(own)
        return known[id(x)]
    if kind is dict:
        return {name: replaced(each, leaves, own, known) for name, each in x.items()}
    if kind in (list, tuple):
        return kind([replaced(each, leaves, own, known) for each in x])
    if isinstance(x, tuple) and hasattr(kind, "_fields"):
        return kind(*[replaced(each, leaves, own, known) for each in x])
    return x


def without_sizes(key: Any) -> Any:
    """A signature with numbers of dimensions in place of sizes."""
    parts, *modes = key
    return (*(_rank(x) for x in parts), *modes)


def shapes_of(key: Any) -> list[tuple[int, ...]]:
    """The shapes of a signature's tensors, in order."""
    return [x[0] for x in key[0] if _is_of_tensor(x)]


def _rank(x: Any) -> Any:
    return (len(x[0]), *x[1:]) if _is_of_tensor(x) else x


def _is_of_tensor(x: Any) -> bool:
    return type(x) is tuple and len(x) == 3 and type(x[0]) is tuple and isinstance(x[1], np.dtype)
