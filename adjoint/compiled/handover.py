"""What is handed over in each call of a program: arguments, results, gradients of leaves.

All of these are loops over lists, which Cython compiles.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..backends.native.runtime.memory import empty
from ..core.interpreted import cython
from ..eager.arrays import address, copy_memory
from ..eager.elements import owner
from ..eager.tensors import wrap
from ..eager.writes import announce
from ..graph.node import Leaf, new_node

ndarray = np.ndarray


class Mover:
    """Memory that `calls` use, wherever it lies in a call: bound to an array, they are told where
    another one begins.
    """

    __slots__ = ("_at", "_moves")

    def __init__(self, array: Any, calls: Sequence[Any]) -> None:
        self._moves = [call.moving(array) for call in calls]
        self._at = address(array)

    def move(self, array: Any) -> None:
        """Let the calls use this one's."""
        at = address(array)
        if at != self._at:
            for move in self._moves:
                move(at)
            self._at = at


class Argument(Mover):
    """Where an argument is read: in memory of its own, or, by `calls`, where it is."""

    __slots__ = ("array", "given")

    array: Any
    given: Any  # keeps what is read

    def __init__(self, array: Any, calls: Sequence[Any]) -> None:
        Mover.__init__(self, array, calls)
        self.array = array
        self.given = None

    def take(self, array: Any) -> None:
        """Let the calls read this one."""
        if self._moves and array.flags.c_contiguous:
            self.given = array
            self.move(array)
            return
        if type(array) is not ndarray or not copy_memory(self.array, array):
            self.array[...] = array
        self.move(self.array)


def take_all(targets: list[Any], tensors: Sequence[Any]) -> None:
    """Let each of some `Argument`s take the array of a tensor."""
    for k in range(len(targets)):
        target, x = targets[k], tensors[k]
        target.take(x._data)


class Fresh:
    """A result that is handed out: written by `calls` into new memory each time, or copied."""

    def __init__(self, array: Any, calls: Sequence[Any]) -> None:
        self.array = array
        self.like = array.shape, array.dtype
        self.mover = Mover(array, calls) if calls else None

    def begin(self) -> None:
        """It is about to be computed."""
        if self.mover is not None:
            self.array = np.empty(*self.like)
            self.mover.move(self.array)

    def taken(self) -> Any:
        """Its array, which is the caller's alone: leaves keep such without a copy."""
        if self.mover is None:
            return self.array.copy()
        array, self.array = self.array, None
        return array


def copy_all(pairs: list[Any]) -> None:
    """Write the elements of arrays into others: pairs of the other, and the array."""
    for target, source in pairs:
        if not copy_memory(target, source):
            target[...] = source


def write_all(staged: list[Any]) -> None:
    """Write arrays into the tensors of a step's states: pairs of a tensor and what it gets."""
    for x, value in staged:
        watched = announce([x], "step")
        x._data[...] = value
        for version in watched:
            version.bump("step")


def tensors_of(arrays: list[Any]) -> list[Any]:
    """A tensor around each array."""
    found: list[Any] = []
    for each in arrays:
        found.append(wrap(each))
    return found


def end_all(
    tensors: list[Any],
    wanting: list[int],
    ended: Any,
    states: tuple[Any, ...],
    arguments: Sequence[Any],
) -> None:
    """Let results that want gradients and have no node stand behind `states`, which are nodes, and
    the nodes of arguments: the op `ended` gives no gradient.
    """
    parents = states
    for x in arguments:
        node = x._node
        if node is not None:
            parents = (*parents, node)
    if not parents:
        parents = _NOWHERE
    for n in wanting:
        y = tensors[n]
        if y._node is None:
            data = y._data
            y._node = new_node(ended, parents, (), None, data.shape, data.dtype)


_KEPT = wrap(np.zeros(()))
_NOWHERE: tuple[Any, ...] = (Leaf(_KEPT),)


def move_all(movers: list[Any], tensors: list[Any]) -> None:
    """Let calls use the arrays of tensors: pairs of a tensor's number and a `Mover`."""
    for each in movers:
        k, mover = each
        x = tensors[k]
        mover.move(x._data)


class Landing:
    """The gradients that programs give to some leaves, one program after another. A gradient that
    nobody else has seen is written where it is; others stay with who has them.
    """

    __slots__ = ("__weakref__", "homes", "leaves", "tensors")

    def __init__(self, leaves: list[Any], homes: list[Any]) -> None:
        """Programs are bound to the arrays `homes`, in whose place they use the gradients'."""
        self.leaves, self.homes = leaves, homes
        self.tensors: list[Any] = [None] * len(leaves)

    def prepare(self, stay: list[Any]) -> None:
        """Have a tensor for each leaf's next gradient, whose memory is to be written; not that of
        the gradient that the leaf has where this one is to `stay` as it is meanwhile.
        """
        tensors = self.tensors
        for k in range(len(tensors)):
            x = self.leaves[k]
            leaf, data = x._leaf, x._data
            if tensors[k] is not None:
                if stay[k] and leaf.grad is tensors[k]:
                    tensors[k] = None
                elif holders(tensors, k, leaf) == _ALONE and showers(tensors, k) == _UNSHOWN:
                    continue
            tensors[k] = None
            if not stay[k] and is_like(leaf.grad, data):
                tensors[k] = leaf.grad
                if holders(tensors, k, leaf) == _ALONE and showers(tensors, k) == _UNSHOWN:
                    tensors[k] = anew(tensors[k])
                    continue
            tensors[k] = wrap(empty(data.shape, data.dtype))


def anew(g: Any) -> Any:
    """Another tensor around the memory of one, which its leaf is about to let go of."""
    return wrap(g._data)


def is_like(g: Any, data: Any) -> bool:
    """Whether a gradient, if there is one, may be written where it is for one that is as `data`."""
    if g is None or g._view is not None or type(g._data) is not ndarray:
        return False
    array = g._data
    flags = array.flags
    return bool(
        array.shape == data.shape
        and array.dtype == data.dtype
        and flags.c_contiguous
        and flags.writeable
    )


def holders(tensors: list[Any], k: int, leaf: Any) -> int:
    """How many references there are to a tensor of a list, but a leaf's to its gradient."""
    g = tensors[k]
    if cython.compiled:
        return Py_REFCNT(g) - (leaf.grad is g)  # type: ignore[name-defined]  # noqa: F821
    return sys.getrefcount(g) - (leaf.grad is g)


def showers(tensors: list[Any], k: int) -> int:
    """How many references there are to its array, of views, too."""
    g = tensors[k]
    data = g._data
    if cython.compiled:
        return Py_REFCNT(data)  # type: ignore[name-defined]  # noqa: F821
    return sys.getrefcount(data)


_ALONE = holders([wrap(np.zeros(1))], 0, _NOWHERE[0])
_UNSHOWN = showers([wrap(np.zeros(1))], 0)


def take_gradients(leaves: list[Any], targets: list[Any], arguments: list[Any]) -> bool:
    """Let each of some `Argument`s take the gradient of a leaf; whether one of the arguments shows
    memory of these.
    """
    owners: dict[int, bool] = {}
    for k in range(len(targets)):
        x, target = leaves[k], targets[k]
        leaf = x._leaf
        g = leaf.grad
        target.take(g._data)
        owners[id(owner(g._data))] = True
    shown = False
    for x in arguments:
        shown = shown or type(x._data) is not ndarray or id(owner(x._data)) in owners
    return shown


def give(leaves: list[Any], gradients: list[Any], dropped: list[Any]) -> None:
    """Let leaves have these gradients, and others none."""
    for k in range(len(gradients)):
        x = leaves[k]
        leaf = x._leaf
        leaf.grad = gradients[k]
    for x in dropped:
        leaf = x._leaf
        leaf.grad = None
