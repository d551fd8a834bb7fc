"""Buffer bindings of a compiled call: arguments, results, and gradients of leaves.

The functions are loops over lists, which Cython compiles.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends.native.runtime.array_memory import empty
from ...core.arrays import address, copy_memory
from ...core.cython_shim import cython
from ...core.elements import owner
from ...runtime.node import INFERENCE, Leaf, new_node
from ...runtime.tensors import wrap
from ...runtime.writes import announce

if TYPE_CHECKING:
    from ...core.op import Op
    from ...core.tensor_base import TensorBase
    from ...core.tensor_type import Tensor

ndarray = np.ndarray


class BufferBinding:
    """A buffer whose address may change between calls. `move(array)` patches that address into
    every kernel call that uses the buffer.
    """

    __slots__ = ("_at", "_moves")

    def __init__(self, array: Any, calls: Sequence[Any]) -> None:
        self._moves = [call.moving(array) for call in calls]
        self._at = address(array)

    def move(self, array: np.ndarray) -> None:
        """Bind the buffer to the memory of `array`."""
        at = address(array)
        if at != self._at:
            for move in self._moves:
                move(at)
            self._at = at


class InputBinding(BufferBinding):
    """Input binding: kernels read the argument where it is, if they can be patched (`calls`) and it
    is contiguous; otherwise it is copied into a buffer of the program.
    """

    __slots__ = ("array", "given")

    array: Any
    given: Any  # keeps the array that is read alive

    def __init__(self, array: np.ndarray, calls: Sequence[Any]) -> None:
        BufferBinding.__init__(self, array, calls)
        self.array = array
        self.given = None

    def take(self, array: np.ndarray) -> None:
        """Bind the argument `array` of this call."""
        if self._moves and array.flags.c_contiguous:
            self.given = array
            self.move(array)
            return
        if type(array) is not ndarray or not copy_memory(self.array, array):
            self.array[...] = array
        self.move(self.array)


class Bindings:
    """Bindings of all that comes and goes with a call to where the program has it."""

    __slots__ = (
        "arguments", "copies", "cotangents", "movers", "owned", "owning", "results", "tangents",
        "writes",
    )  # fmt: skip

    arguments: list[Any]  # an `InputBinding` each
    cotangents: list[Any]  # likewise, of a later backward
    tangents: list[Any]  # an `OutputBinding` for each gradient that a later backward gives
    owning: list[Any]  # leaves whose gradients are read where they are
    owned: list[Any]  # an `InputBinding` for each of these gradients
    movers: list[Any]  # numbers of leaves whose gradients are written where they lie, with bindings
    copies: list[Any]  # numbers of other leaves, with the arrays of their gradients
    writes: list[Any]  # a tensor, or the number of an argument; whether it is the tensor's gradient
    # that is written; and the array of the new value
    results: list[Any]  # arrays of what is returned

    def __init__(self) -> None:
        self.arguments, self.cotangents, self.tangents = [], [], []
        self.owning, self.owned, self.movers, self.copies = [], [], [], []
        self.writes, self.results = [], []

    def staged(self, arguments: Sequence[Any]) -> list[Any]:
        """Copies of the new values, with the tensors to which they are written."""
        staged: list[Any] = []
        for x, is_gradient, source in self.writes:
            if type(x) is int:
                staged.append((arguments[x], source.copy()))
            else:
                staged.append((x._leaf.grad if is_gradient else x, source.copy()))
        return staged


def take_all(targets: list[Any], tensors: Sequence[Any]) -> None:
    """Bind the arrays of `tensors` to the input bindings `targets`, one by one."""
    for k in range(len(targets)):
        target, x = targets[k], tensors[k]
        target.take(x._data)


class OutputBinding:
    """Output binding: kernels write the result into new memory in each call, if they can be patched
    (`calls`); otherwise it is copied.
    """

    def __init__(self, array: Any, calls: Sequence[Any]) -> None:
        self.array = array
        self.like = array.shape, array.dtype
        self.mover = BufferBinding(array, calls) if calls else None

    def begin(self) -> None:
        """Allocate the output of the coming run."""
        if self.mover is not None:
            self.array = np.empty(*self.like)
            self.mover.move(self.array)

    def taken(self) -> np.ndarray:
        """Hand out the result of the run: an array that nobody else holds, so that leaves keep it
        without a copy.
        """
        if self.mover is None:
            return self.array.copy()
        array, self.array = self.array, None
        return array


def copy_all(pairs: list[Any]) -> None:
    """Copy arrays into others, given as pairs of target and source."""
    for target, source in pairs:
        if not copy_memory(target, source):
            target[...] = source


def write_all(staged: list[Any]) -> None:
    """Write new values into state tensors, given as pairs of tensor and array, and bump their
    versions.
    """
    for x, value in staged:
        watched = announce([x], "step")
        x._data[...] = value
        for version in watched:
            version.bump("step")


def contents_of(tensors: list[Any]) -> list[Any]:
    """The contents of tensors, to find out later whether they have changed: the array of each and
    the count of its version, 0 where none is kept.
    """
    contents: list[Any] = []
    for x in tensors:
        version = x._changes
        count = 0 if version is None or version is INFERENCE else version.count
        contents.append((x._data, count))
    return contents


def tensors_of(arrays: list[Any]) -> list[Any]:
    """Wrap each array in a tensor."""
    tensors: list[Any] = []
    for each in arrays:
        tensors.append(wrap(each))
    return tensors


def end_all(
    tensors: list[Any],
    wanting: list[int],
    ended: Op,
    states: tuple[Any, ...],
    arguments: Sequence[Any],
) -> None:
    """Give results in `wanting` that have no node one with the op `ended`, which passes no gradient
    on. Its parents are the nodes `states` and those of the arguments.
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
    """Bind buffers to the memory of tensors: `movers` are pairs of a tensor's number and a
    binding.
    """
    for each in movers:
        k, mover = each
        x = tensors[k]
        mover.move(x._data)


class GradBuffers:
    """Gradient buffers of some leaves, shared by the programs of one compiled function. A gradient
    that nobody else has seen is overwritten in place; others stay with their holders.
    """

    __slots__ = ("__weakref__", "homes", "leaves", "tensors")

    def __init__(self, leaves: list[Any], homes: list[Any]) -> None:
        """`homes` are placeholder arrays to which programs are bound, and for which the gradients'
        memory is patched in.
        """
        self.leaves, self.homes = leaves, homes
        self.tensors: list[Any] = [None] * len(leaves)

    def prepare(self, stay: list[Any]) -> None:
        """Choose a tensor for each leaf's next gradient. `stay[k]` says that the gradient that the
        leaf has now must not be overwritten meanwhile.
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


def anew(g: TensorBase) -> Tensor:
    """A new tensor around the memory of `g`, which its leaf is about to drop."""
    return wrap(g._data)


def is_like(g: TensorBase | None, data: np.ndarray) -> bool:
    """Whether the memory of a gradient `g` (or None) can hold the next gradient of a leaf with
    `data`.
    """
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


def holders(tensors: list[Any], k: int, leaf: Leaf) -> int:
    """Reference count of `tensors[k]`, excluding the one held by `leaf.grad`. Equals `_ALONE` if
    nobody else can see the gradient.
    """
    g = tensors[k]
    if cython.compiled:
        return Py_REFCNT(g) - (leaf.grad is g)  # type: ignore[name-defined]  # noqa: F821
    return sys.getrefcount(g) - (leaf.grad is g)


def showers(tensors: list[Any], k: int) -> int:
    """Reference count of the array of `tensors[k]`. Equals `_UNSHOWN` if no view of it exists."""
    g = tensors[k]
    data = g._data
    if cython.compiled:
        return Py_REFCNT(data)  # type: ignore[name-defined]  # noqa: F821
    return sys.getrefcount(data)


_ALONE = holders([wrap(np.zeros(1))], 0, _NOWHERE[0])
_UNSHOWN = showers([wrap(np.zeros(1))], 0)


def take_gradients(leaves: list[Any], targets: list[Any], arguments: list[Any]) -> bool:
    """Bind the present gradients of `leaves` to the input bindings `targets`. Returns whether an
    argument may share memory with one of them.
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
    """Assign `gradients` to the leaves' `.grad`, and None to that of leaves in `dropped`."""
    for k in range(len(gradients)):
        x = leaves[k]
        leaf = x._leaf
        leaf.grad = gradients[k]
    for x in dropped:
        leaf = x._leaf
        leaf.grad = None
