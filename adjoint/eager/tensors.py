"""Where tensors are made."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.device import CPU, space
from ..core.mode import MODE
from ..core.tensor_base import TensorBase
from ..graph.node import INFERENCE
from .arrays import new_tensor, usual

ndarray = np.ndarray
get_mode = MODE.get
Tensor: Any = TensorBase  # the user's class, set by `connect`


def connect(tensor_class: type) -> None:
    """Let `tensor_class` be what operations give."""
    global Tensor
    Tensor = tensor_class
    usual(tensor_class)


def wrap(data: Any, node: Any = None, version: Any = None) -> Any:
    """A tensor around `data`."""
    tensor = new_tensor(Tensor)
    tensor._data = data
    tensor._node = node
    tensor._leaf = None
    tensor._changes = version
    tensor._view = None
    return tensor


def fresh(data: Any) -> Any:
    """A tensor around an array that no op gave; a capture is told that it was not there before."""
    mode = get_mode()
    tensor = wrap(data, None, INFERENCE if mode.inference else None)
    executor = mode.executor
    if executor is not None and hasattr(executor, "note_fresh"):
        executor.note_fresh(tensor)
    return tensor


def zeros(shape: tuple[int, ...], dtype: Any, place: Any) -> Any:
    """A tensor of zeros of a NumPy dtype on a device."""
    return wrap((np if place is CPU else space(place)).zeros(shape, dtype))


def spec_of(x: Any) -> Any:
    """A tensor's Spec; a Python number stands for itself."""
    return x.spec if isinstance(x, TensorBase) else x


def as_array(result: Any) -> Any:
    """An array for the number that NumPy gives instead of one without dimensions."""
    return np.asarray(result) if isinstance(result, (np.generic, int, float, complex)) else result
