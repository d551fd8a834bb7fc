"""The base class of Tensor: data, spec, and where the gradient goes, for use by every layer.

`Tensor` (adjoint/tensor.py) adds the user's methods. The types of the fields are defined by the
layers that own them: `Node`, `Leaf`, `Version` and `View` in adjoint/runtime/node.py.
"""

from __future__ import annotations

from typing import Any

from .device import device, device_of
from .dtype import BY_NUMPY, dtype, from_numpy_dtype
from .spec import Size, Spec


class TensorBase:
    """The state of a Tensor, without the user's methods."""

    __slots__ = ("__dict__", "__weakref__", "_changes", "_data", "_leaf", "_node", "_view")

    _data: Any  # a backend's array: never a scalar, shared by all views of one storage
    _node: Any  # Node or Leaf through which gradients flow back; None where none does
    _leaf: Any  # Leaf that holds `.grad`; is `_node` for a leaf that requires grad
    _changes: Any  # Version shared by all views of the storage; None stands for version 0
    _view: Any  # View (base tensor, ops that lead from it to here); None for a base

    @property
    def shape(self) -> Size:
        """The sizes of all dimensions."""
        return tuple.__new__(Size, self._data.shape)  # ints, which need no check

    @property
    def dtype(self) -> dtype:
        """The element type."""
        numpy = self._data.dtype
        return BY_NUMPY.get(numpy) or from_numpy_dtype(numpy)

    @property
    def device(self) -> device:
        """The device that holds the data."""
        return device_of(self._data)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return int(self._data.ndim)

    @property
    def spec(self) -> Spec:
        """Shape, dtype and device together."""
        data = self._data
        numpy = data.dtype
        element = BY_NUMPY.get(numpy) or from_numpy_dtype(numpy)
        return Spec(tuple(data.shape), element, device_of(data))
