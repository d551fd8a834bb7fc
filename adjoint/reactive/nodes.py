"""What tensors of a graph can do beyond other tensors: be set, have their inputs edited."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from ..autograd.recording import Same, is_detached, record_cell, source_of
from ..autograd.refreshing import is_of_graph
from ..core.device import device_of, transfer
from ..core.errors import DTypeError, GraphError, InvalidArgument, ShapeError
from ..core.tensor_base import TensorBase
from ..eager.tensors import wrap
from ..graph.cells import Cell, Source
from ..graph.editing import resize, rewire, transaction
from ..graph.lazy import concrete
from ..graph.node import Version
from ..ops.create.memory import as_tensor
from ..tensor import Tensor


class DetachNode(Same, abstract=True):
    """The value of its input; no gradient passes."""

    differentiable = False


def cell_of(x: Any, name: str) -> Cell:
    """The cell of a graph's tensor; GraphError for any other."""
    if not isinstance(x, TensorBase) or not isinstance(x._data, Cell):
        raise GraphError(
            f"{name}: needs a tensor of a Graph, got {type(x).__name__}; make inputs with "
            "graph.input(...), and compute from them"
        )
    x._data.assert_there(name)
    return x._data


def value_for(cell: Cell, value: Any) -> Any:
    """An array of the cell's dtype that nobody else holds."""
    if isinstance(value, TensorBase):
        array = concrete(value)
    elif type(value) is np.ndarray and value.dtype == cell.dtype:
        array = value
    else:
        array = as_tensor(value)._data
    if array.dtype != cell.dtype:
        kinds = "biufc"
        given, wanted = (
            "f" if d.kind == "V" else "i" if d.kind == "u" else d.kind
            for d in (array.dtype, cell.dtype)
        )
        if kinds.index(given) > kinds.index(wanted):
            raise DTypeError(
                f"set: {cell.label!r} holds {cell.dtype}, the value is {array.dtype}; convert it "
                "first"
            )
    if device_of(array) != cell.device:
        array = transfer(array, cell.device)
    return array.astype(cell.dtype)


def set_value(self: Any, value: Any) -> Any:
    """Assign `value`; what depends on this tensor becomes stale and is recomputed when read.

    Shapes: an input or parameter made by a graph may get another shape. All that depends on it is
    inferred again, at the end of the outermost `graph.batch()` at the latest, and its `.grad` goes.
    Errors: ShapeError, DTypeError where the value does not fit, with the first node that does not;
    GraphError for a computed node. An error changes nothing.

    >>> x = ad.Graph().input(1.0)
    >>> y = x * 2
    >>> x.set(5.0).item(), y.item()
    (5.0, 10.0)
    >>> x.set([1.0, 2.0]).shape, y
    (adjoint.Size([2]), tensor([2., 4.]))
    """
    cell = self._data
    if isinstance(cell, Cell):
        cell.assert_there("set")
    if isinstance(cell, Source):
        array = value_for(cell, value)
        if array.shape == tuple(cell.shape):
            cell.assign(array)
        else:
            resize(cell, array)
        return self
    if isinstance(cell, Cell):
        raise GraphError(
            f"set: node {cell.label!r} is computed; set what it depends on, or replace the node "
            "with graph.replace(node, other)"
        )
    from ..autograd.modes import no_grad

    if isinstance(value, TensorBase) and value._data.shape != self._data.shape:
        raise ShapeError(
            f"set: the tensor has shape {tuple(self.shape)}, the value "
            f"{tuple(value._data.shape)}; reshape the value"
        )
    with no_grad():
        self.copy_(as_tensor(value))
    for reference in (self._changes.watchers or ()) if self._changes is not None else ():
        source = reference()
        if isinstance(source, Source):
            source.state.set_last = source.version  # which was asked for: no warning
    return self


def set_input(self: Any, index: int, other: Any) -> Any:
    """Let this node of a graph compute from `other` in the place of its input number `index`.

    `other` is a tensor, the name of a node, or a number. Shapes and dtypes of everything that
    depends on it are inferred again at once (in a batch: at its end, where they do not agree yet).
    Errors: GraphError for a cycle, a name that no node has, an input of another graph;
    InvalidArgument for a bad index; the errors of the op.

    >>> graph = ad.Graph()
    >>> a, b = graph.input(1.0), graph.input(10.0)
    >>> y = a + 1
    >>> y.set_input(0, b).item()
    11.0
    """

    def change(cell: Cell, pairs: list[Any]) -> None:
        place = place_of(cell, "set_input", index)
        pairs[place] = _input(cell, other, cell.inputs[place])

    return _edit(self, "set_input", change)


def add_input(self: Any, other: Any, index: int | None = None) -> Any:
    """Let this node (a `cat` or `stack`, which join any number of tensors) also compute from
    `other`, before its input number `index`, or after all.

    Errors: GraphError for an op with a fixed number of inputs; otherwise as `set_input`.

    >>> graph = ad.Graph()
    >>> y = ad.stack([graph.input(1.0), graph.input(2.0)])
    >>> y.add_input(graph.input(3.0), 0)
    tensor([3., 1., 2.])
    """

    def change(cell: Cell, pairs: list[Any]) -> None:
        _assert_joins(cell, "add_input")
        count = len(pairs)
        place = count if index in (None, count) else place_of(cell, "add_input", index)
        pairs.insert(place, _input(cell, other, cell.inputs[0]))

    return _edit(self, "add_input", change)


def remove_input(self: Any, index: int) -> Any:
    """Let this node (a `cat` or `stack`) compute without its input number `index`.

    Errors: GraphError for an op with a fixed number of inputs, and for the only input; otherwise as
    `set_input`.

    >>> graph = ad.Graph()
    >>> y = ad.stack([graph.input(1.0), graph.input(2.0)])
    >>> y.remove_input(0)
    tensor([2.])
    """

    def change(cell: Cell, pairs: list[Any]) -> None:
        _assert_joins(cell, "remove_input")
        del pairs[place_of(cell, "remove_input", index)]
        if not pairs:
            raise GraphError(f"remove_input: {cell.label!r} would have no inputs; remove the node")

    return _edit(self, "remove_input", change)


def _edit(self: Any, name: str, change: Callable[[Cell, list[Any]], None]) -> Any:
    """Let `change` change the inputs of a node: pairs of an input, and whether it is detached."""
    cell = cell_of(self, name)
    with transaction(cell.state, single=True):
        pairs = [(x, i in cell.cut) for i, x in enumerate(cell.inputs)]
        change(cell, pairs)
        rewire({cell: tuple([x for x, _ in pairs])})
        cell.cut = tuple([i for i, (_, detached) in enumerate(pairs) if detached])
    return self


def place_of(cell: Cell, name: str, index: Any) -> int:
    """`index` counted from the start; InvalidArgument where the cell has no such input."""
    count = len(cell.inputs)
    if not -count <= index < count:
        raise InvalidArgument(
            f"{name}: {cell.label!r} has {count} inputs, there is no number {index}"
        )
    return int(index) % count


def _assert_joins(cell: Cell, name: str) -> None:
    if cell.op is None or not cell.op.joins:
        raise GraphError(
            f"{name}: {cell.label!r} has a fixed number of inputs ({len(cell.inputs)}); change one "
            "with set_input, or record another node and graph.replace this one"
        )


def _input(cell: Cell, other: Any, old: Any) -> tuple[Any, bool]:
    """`other` in the place of `old` among the inputs of `cell`, and whether it is detached."""
    if isinstance(other, str):
        other = cell.state.owner()[other]
    return input_cell(cell, other, old), is_detached(other)


def input_cell(cell: Cell, other: Any, old: Any) -> Any:
    """`other` as an input of `cell` in the place of `old`: a cell of its graph, or a number where
    `old` is one. A number in the place of a tensor is a constant of its dtype.
    """
    if not isinstance(other, TensorBase):
        if isinstance(other, (int, float, complex)) and not isinstance(old, Cell):
            return other
        array = value_for(old, other) if isinstance(old, Cell) else as_tensor(other)._data.copy()
        return Source(cell.state, array.shape, array.dtype, array)
    if isinstance(other._data, Cell):
        return other._data
    return source_of(cell.state, other)


def detach_node(self: Any) -> Any:
    """A node of the graph with this value, through which no gradient passes.

    `detach()` does the same without a node, by marking the uses of its result.

    >>> x = ad.Graph().input(1.0, requires_grad=True)
    >>> y = (x * x.detach_node()).sum()
    >>> y.backward()
    >>> x.grad
    tensor(1.)
    """
    cell = cell_of(self, "detach_node")
    y = record_cell(cell.state, DetachNode(), (self,))
    y._view = None
    return y


def snapshot(self: Any) -> Any:
    """A plain tensor with the value that this one has now; no later change reaches it.

    Shapes: that of the tensor.
    Errors: GraphError for an input that was never set.

    >>> x = ad.Graph().input(1.0)
    >>> y = x * 2
    >>> before = y.snapshot()
    >>> x.set(5.0).item(), y.item(), before.item()
    (5.0, 10.0, 2.0)
    """
    return wrap(concrete(self).copy())


def showing(cell: Cell, kind: type) -> Any:
    """A new tensor of class `kind` that stands for the cell: its leaf, if it gets one."""
    tensor: Any = TensorBase.__new__(kind)
    tensor._data = cell
    tensor._node = tensor._leaf = tensor._view = None
    tensor._changes = Version()
    if isinstance(cell, Source):
        tensor._changes.watch(cell)
    cell.handle = weakref.ref(tensor)
    return tensor


def node_of(self: Any) -> Cell | None:
    """The node that this tensor is in its Graph; of a tensor outside, a Module's parameter for
    instance, the one that follows it in the last graph that used it. None for a tensor of no Graph.

    A node has `value`, `version`, `seen` (the versions of its inputs that the value was computed
    from), `stale`, `inputs` and `op`.
    """
    if isinstance(self._data, Cell):
        return self._data
    for reference in reversed((self._changes and self._changes.watchers) or ()):
        watcher = reference()
        if isinstance(watcher, Source) and watcher.follows is self:
            return watcher
    return None


def attach() -> None:
    """Give tensors these methods."""
    for name, method in {
        "set": set_value, "set_input": set_input, "add_input": add_input,
        "remove_input": remove_input, "detach_node": detach_node,
        "snapshot": snapshot,
    }.items():  # fmt: skip
        setattr(Tensor, name, method)
    Tensor.node = property(node_of)  # type: ignore[attr-defined]


attach()

__all__ = ["cell_of", "input_cell", "is_of_graph", "place_of"]
