"""Leaves among a graph's tensors: which cell is whose."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from ..core.errors import GraphError
from ..runtime.cells import Cell
from .recording import Same, record_cell

if TYPE_CHECKING:
    from ..core.tensor_type import Tensor


class DetachNode(Same, abstract=True):
    """Identity op that lets no gradient pass."""

    differentiable = False


def own_cell(x: Tensor) -> None:
    """Let gradients of a graph's tensor end at `x`, which becomes a leaf. Where they end at another
    tensor that shows the same cell, or flow on through it, or something was computed from it before
    without a gradient, `x` gets a cell of its own: that of a detached value.
    """
    cell: Cell = x._data
    taken = cell.tracked or cell.leaf is not None or (cell.op is not None and cell.living_users())
    if cell.handle() is not x and taken:
        cell = x._data = record_cell(cell.state, DetachNode(), (x,))._data
    cell.handle = weakref.ref(x)


def assert_writable(x: Tensor) -> None:
    """Refuse a write to a leaf with a cell of its own, which would have to reach the tensor that it
    was detached from.

    Errors: GraphError.
    """
    cell = x._data
    if isinstance(cell, Cell) and type(cell.op) is DetachNode and x._node is not None:
        raise GraphError(
            f"write: a tensor of shape {tuple(x.shape)} that requires grad, and shows the memory "
            "of a node that others use; make the leaf with detach().clone()"
        )
