"""Tensors from values, sizes and ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import dtype as dt
from ..core.handle import Handle
from ..core.op import public

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["from_numpy", "tensor"]

wrap: Any = None  # makes a Tensor from an array; set by adjoint/tensor.py


def tensor(
    data: Any, *, dtype: dt.dtype | None = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A new tensor that copies `data`: numbers, nested sequences, arrays or tensors.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.tensor.html

    >>> ad.tensor([1, 2])
    tensor([1, 2])
    """
    if isinstance(data, Handle):
        data = data._data
    if isinstance(data, (np.ndarray, np.generic)):
        array = np.array(data)
    else:
        array = np.array(data)
        if array.dtype.kind == "f":
            array = array.astype(dt.get_default_dtype().numpy)
        elif array.dtype.kind == "c":
            array = array.astype(dt.get_default_dtype().to_complex().numpy)
    if dtype is not None:
        array = array.astype(dtype.numpy)
    result: Tensor = wrap(array)
    return result.requires_grad_() if requires_grad else result


@public(method=False)
def from_numpy(ndarray: Any) -> Tensor:
    """A tensor that shares the memory of a NumPy array.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.from_numpy.html

    >>> ad.from_numpy(np.array([1, 2]))
    tensor([1, 2])
    """
    result: Tensor = wrap(ndarray)
    return result
