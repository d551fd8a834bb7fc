"""Construction of tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.arrays import new_tensor, usual
from ..core.device import CPU, space
from ..core.mode import MODE
from ..core.tensor_base import TensorBase
from .node import INFERENCE

if TYPE_CHECKING:
    from ..core import tensor_type
    from ..core.device import device
    from .node import Version

ndarray = np.ndarray
get_mode = MODE.get
Tensor: Any = TensorBase  # the user's class, set by `connect`


def connect(tensor_class: type) -> None:
    """Set the class of the tensors that operations return."""
    global Tensor
    Tensor = tensor_class
    usual(tensor_class)


def wrap(data: object, node: object = None, version: Version | None = None) -> tensor_type.Tensor:
    """A tensor around `data`."""
    tensor = new_tensor(Tensor)
    tensor._data = data
    tensor._node = node
    tensor._leaf = None
    tensor._changes = version
    tensor._view = None
    return tensor


def fresh(data: object) -> tensor_type.Tensor:
    """A tensor around an array that no op computed; a capture is told that it is new. NumPy's
    functions give its scalars for arrays without dimensions: they become arrays.
    """
    if isinstance(data, np.generic):
        data = np.asarray(data)
    mode = get_mode()
    tensor = wrap(data, None, INFERENCE if mode.inference else None)
    executor = mode.executor
    if executor is not None and hasattr(executor, "note_fresh"):
        executor.note_fresh(tensor)
    return tensor


def zeros(shape: tuple[int, ...], dtype: np.dtype, place: device) -> tensor_type.Tensor:
    """A tensor of zeros of a NumPy dtype on a device."""
    return wrap((np if place is CPU else space(place)).zeros(shape, dtype))


def spec_of(x: object) -> Any:
    """The Spec of a tensor; a Python number is returned unchanged."""
    return x.spec if isinstance(x, TensorBase) else x


def as_array(result: object) -> Any:
    """NumPy scalars and Python numbers as 0-d arrays; arrays unchanged."""
    return np.asarray(result) if isinstance(result, (np.generic, int, float, complex)) else result
