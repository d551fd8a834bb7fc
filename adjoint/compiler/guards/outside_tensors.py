"""What tensors from outside are besides their values: a function is to leave it as it was."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...core.tensor_base import TensorBase
from ...runtime.lazy import LazyValue


class _Before(NamedTuple):
    """A tensor before the function ran: its memory, and how it was computed."""

    tensor: TensorBase
    data: Any
    facts: tuple[Any, Any, Any]  # node, leaf and view


class OutsideTensors:
    """Tensors that a function may reach, as they were before it ran."""

    def __init__(self) -> None:
        self._before: dict[int, _Before] = {}

    def add(self, x: TensorBase) -> None:
        """Write down what a tensor is."""
        if id(x) not in self._before:
            self._before[id(x)] = _Before(x, x._data, (x._node, x._leaf, x._view))

    def ids(self) -> list[int]:
        """The ids of all of them."""
        return list(self._before)

    def changed(self) -> list[TensorBase]:
        """Tensors that have another memory, history or base now."""
        return [each.tensor for each in self._before.values() if _is_other(each)]

    def put_back(self) -> None:
        """Make all that has changed what it was."""
        for each in filter(_is_other, self._before.values()):
            x = each.tensor
            x._node, x._leaf, x._view = each.facts
            if not isinstance(each.data, LazyValue):
                x._data = each.data


def _is_other(before: _Before) -> bool:
    x, data, (node, leaf, view) = before
    if x._node is not node or x._leaf is not leaf or x._view is not view:
        return True
    return x._data is not data and not isinstance(data, LazyValue)  # which may be computed by now
