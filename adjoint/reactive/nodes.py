"""What tensors of a graph can do beyond other tensors: be set, have their inputs edited."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from ..autograd.recording import Same, is_detached, record_cell, source_of
from ..autograd.refreshing import is_of_graph
from ..core.device import device_of, transfer
from ..core.errors import DTypeError, GraphError, InvalidArgument, ShapeError
from ..core.tensor_base import TensorBase
from ..eager.tensors import wrap
from ..graph.cells import Cell, Source
from ..graph.editing import rewire
from ..graph.lazy import concrete
from ..graph.node import Version
from ..ops.create.memory import as_tensor
from ..tensor import Tensor

if TYPE_CHECKING:
    pass


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
    return x._data


def value_for(cell: Cell, value: Any) -> Any:
    """An array of the cell's shape and dtype that nobody else holds."""
    if isinstance(value, TensorBase):
        array = concrete(value)
    elif type(value) is np.ndarray and value.dtype == cell.dtype:
        array = value
    else:
        array = as_tensor(value)._data
    if tuple(array.shape) != tuple(cell.shape):
        raise ShapeError(
            f"set: {cell.label!r} has shape {tuple(cell.shape)}, the value {tuple(array.shape)}; "
            "reshape the value, or make another input"
        )
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

    Shapes: exactly that of the tensor.
    Errors: ShapeError, DTypeError where the value does not fit; GraphError for a computed node.

    >>> x = ad.Graph().input(1.0)
    >>> y = x * 2
    >>> x.set(5.0).item(), y.item()
    (5.0, 10.0)
    """
    cell = self._data
    if isinstance(cell, Source):
        cell.assign(value_for(cell, value))
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
    return self


def set_input(self: Any, index: int, other: Any) -> Any:
    """Let this node of a graph compute from `other` in the place of its input number `index`.

    Shapes and dtypes of everything that depends on it are inferred again at once.
    Errors: GraphError for a cycle, a bad index, an input of another graph; the errors of the op.

    >>> graph = ad.Graph()
    >>> a, b = graph.input(1.0), graph.input(10.0)
    >>> y = a + 1
    >>> y.set_input(0, b).item()
    11.0
    """
    cell = cell_of(self, "set_input")
    inputs = cell.inputs
    if not -len(inputs) <= index < len(inputs):
        raise InvalidArgument(
            f"set_input: {cell.label!r} has {len(inputs)} inputs, there is no number {index}"
        )
    place = index % len(inputs)
    with cell.state.lock:
        rewire({cell: (*inputs[:place], input_cell(cell, other), *inputs[place + 1 :])})
        cell.cut = tuple(i for i in cell.cut if i != place)
        if is_detached(other):
            cell.cut = (*cell.cut, place)
    return self


def input_cell(cell: Cell, other: Any) -> Any:
    """`other` as an input of `cell`: a cell of its graph, or a number."""
    if not isinstance(other, TensorBase):
        return other
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
    tensor._version = Version()
    if isinstance(cell, Source):
        tensor._version.watch(cell)
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
    for reference in reversed((self._version and self._version.watchers) or ()):
        watcher = reference()
        if isinstance(watcher, Source) and watcher.follows is self:
            return watcher
    return None


def attach() -> None:
    """Give tensors these methods."""
    for name, method in {
        "set": set_value, "set_input": set_input, "detach_node": detach_node,
        "snapshot": snapshot,
    }.items():  # fmt: skip
        setattr(Tensor, name, method)
    Tensor.node = property(node_of)  # type: ignore[attr-defined]


attach()

__all__ = ["cell_of", "input_cell", "is_of_graph"]
