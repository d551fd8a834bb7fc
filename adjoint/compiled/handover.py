"""What is handed over in each call of a program: arguments, results, gradients of leaves.

All of these are loops over lists, which Cython compiles.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..backends.native.runtime.sequence import Sequence as Calls
from ..core.interpreted import cython
from ..eager.arrays import address, copy_memory
from ..eager.tensors import wrap
from ..eager.writes import announce
from ..graph.node import Leaf, new_node

ndarray = np.ndarray


class Argument:
    """Where an argument is read: in memory of its own, or, by `calls`, where it is."""

    __slots__ = ("_at", "_moves", "_own", "array", "given")

    array: Any
    given: Any  # keeps what is read

    def __init__(self, array: Any, calls: Sequence[Any]) -> None:
        self.array = array
        self._moves = [call.moving(array) for call in calls if type(call) is Calls]
        self._at = self._own = address(array)
        self.given = None

    def take(self, array: Any) -> None:
        """Let the calls read this one."""
        at = self._own
        if self._moves and array.flags.c_contiguous:
            at = address(array)
            self.given = array
        elif type(array) is not ndarray or not copy_memory(self.array, array):
            self.array[...] = array
        if at != self._at:
            for move in self._moves:
                move(at)
            self._at = at


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
        self.moves = [call.moving(array) for call in calls if type(call) is Calls]

    def begin(self) -> None:
        """It is about to be computed."""
        if self.moves:
            self.array = np.empty(*self.like)
            at = address(self.array)
            for move in self.moves:
                move(at)

    def taken(self) -> Any:
        """Its array, which is the caller's alone: leaves keep such without a copy."""
        if not self.moves:
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


def holders(leaves: list[Any], gradients: list[Any], known: list[int]) -> bool:
    """Whether the references to each gradient, but its leaf's, and to its array are as many as is
    `known`; where nothing is, they are noted: who holds the last ones?
    """
    first = not known
    for k in range(len(gradients)):
        x, g = leaves[k], gradients[k]
        leaf = x._leaf
        data = g._data
        if cython.compiled:
            count = Py_REFCNT(g) - (leaf.grad is g)  # type: ignore[name-defined]  # noqa: F821
            more = Py_REFCNT(data)  # type: ignore[name-defined]  # noqa: F821
        else:
            count, more = sys.getrefcount(g) - (leaf.grad is g), sys.getrefcount(data)
        if first:
            known += (count, more)
        elif count != known[2 * k] or more != known[2 * k + 1]:
            return False
    return True


def give(leaves: list[Any], gradients: list[Any], dropped: list[Any]) -> None:
    """Let leaves have these gradients, and others none."""
    for k in range(len(gradients)):
        x = leaves[k]
        leaf = x._leaf
        leaf.grad = gradients[k]
    for x in dropped:
        leaf = x._leaf
        leaf.grad = None
