"""Methods of a graph's tensors: setting values, editing inputs."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from ..autograd.modes import no_grad
from ..autograd.recording import is_detached, record_cell, source_of
from ..autograd.refreshing import DetachNode, is_of_graph
from ..core.device import device_of, transfer
from ..core.errors import AdjointError, DTypeError, GraphError, InvalidArgument, ShapeError
from ..core.mode import as_set
from ..core.tensor_base import TensorBase
from ..ops.create.memory import as_tensor
from ..runtime.cells import Cell, SourceCell
from ..runtime.editing import resize, rewire, transaction
from ..runtime.lazy import concrete
from ..runtime.node import Version
from ..runtime.tensors import wrap
from ..tensor import Tensor


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
    """A new array of the cell's dtype with `value`."""
    if isinstance(value, TensorBase):
        array = concrete(value)
    elif type(value) is np.ndarray and value.dtype == cell.dtype:
        array = value
    else:
        try:
            array = as_tensor(value)._data
        except AdjointError as error:
            raise type(error)(
                f"set: {cell.label!r} of shape {tuple(cell.shape)} and {cell.dtype} cannot be set "
                f"to that: {error}"
            ) from None
    if array.dtype != cell.dtype:
        kinds = "biufc"
        kind, expected = (
            "f" if d.kind == "V" else "i" if d.kind == "u" else d.kind
            for d in (array.dtype, cell.dtype)
        )
        if kinds.index(kind) > kinds.index(expected):
            raise DTypeError(
                f"set: {cell.label!r} holds {cell.dtype}, the value is {array.dtype}; convert it "
                "first"
            )
    if device_of(array) != cell.device:
        array = transfer(array, cell.device)
    return array.astype(cell.dtype)


def set_value(self: Any, value: Any) -> Tensor:
    """Assign `value`; tensors that depend on this one become stale and are recomputed when read.

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
    if isinstance(cell, SourceCell):
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
    if isinstance(value, TensorBase) and value._data.shape != self._data.shape:
        raise ShapeError(
            f"set: the tensor has shape {tuple(self.shape)}, the value "
            f"{tuple(value._data.shape)}; reshape the value"
        )
    _copy_into(self, value)
    for reference in (self._changes.watchers or ()) if self._changes is not None else ():
        source = reference()
        if isinstance(source, SourceCell):
            source.state.set_last = source.version  # which was asked for: no warning
    return self


@as_set
def _copy_into(tensor: Tensor, value: object) -> None:
    with no_grad():
        tensor.copy_(as_tensor(value))


def set_input(self: Any, index: int, other: Any) -> Tensor:
    """Replace input number `index` of this node by `other`.

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


def add_input(self: Any, other: Any, index: int | None = None) -> Tensor:
    """Add `other` as an input of this node (a `cat` or `stack`, which join any number of tensors),
    before its input number `index`, or after all.

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


def remove_input(self: Any, index: int) -> Tensor:
    """Remove input number `index` of this node (a `cat` or `stack`).

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
    """Edit the inputs of a node by `change`, which modifies a list of pairs (input, whether it is
    detached).
    """
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
    """`other` as a replacement of the input `old` of `cell`, and whether it is detached."""
    if isinstance(other, str):
        other = cell.state.owner()[other]
    return input_cell(cell, other, old), is_detached(other)


def input_cell(cell: Cell, other: Any, old: Any) -> Any:
    """`other` as a replacement of the input `old` of `cell`: a cell of its graph, or a number where
    `old` is one. A number that replaces a tensor becomes a constant of its dtype.
    """
    if not isinstance(other, TensorBase):
        if isinstance(other, (int, float, complex)) and not isinstance(old, Cell):
            return other
        array = value_for(old, other) if isinstance(old, Cell) else as_tensor(other)._data.copy()
        return SourceCell(cell.state, array.shape, array.dtype, array)
    if isinstance(other._data, Cell):
        return other._data
    return source_of(cell.state, other)


def detach_node(self: Any) -> Tensor:
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
    """A plain tensor with the current value of this one; later changes do not reach it.

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
    """A new tensor of class `kind` for the cell, which becomes its leaf if it requires grad."""
    tensor: Any = TensorBase.__new__(kind)
    tensor._data = cell
    tensor._node = tensor._leaf = tensor._view = None
    tensor._changes = Version()
    if isinstance(cell, SourceCell):
        tensor._changes.watch(cell)
    cell.handle = weakref.ref(tensor)
    return tensor


def node_of(self: Any) -> Cell | None:
    """The node of this tensor in its Graph; for a tensor outside, such as a Module's parameter, the
    node that follows it in the last graph that used it. None for a tensor of no Graph.

    A node has `value`, `version`, `seen` (the versions of its inputs that the value was computed
    from), `stale`, `inputs` and `op`.
    """
    if isinstance(self._data, Cell):
        return self._data
    for reference in reversed((self._changes and self._changes.watchers) or ()):
        watcher = reference()
        if isinstance(watcher, SourceCell) and watcher.follows is self:
            return watcher
    return None


def attach() -> None:
    """Add these functions to Tensor as methods."""
    for name, method in {
        "set": set_value, "set_input": set_input, "add_input": add_input,
        "remove_input": remove_input, "detach_node": detach_node,
        "snapshot": snapshot,
    }.items():  # fmt: skip
        setattr(Tensor, name, method)
    Tensor.node = property(node_of)  # type: ignore[attr-defined]


attach()

__all__ = ["cell_of", "input_cell", "is_of_graph", "place_of"]
