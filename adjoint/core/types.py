"""The user's Tensor, as annotations of the layers below `tensor.py` name it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..tensor import Tensor as Tensor
else:  # what every tensor is, for those who ask for annotations while a program runs
    from .tensor_base import TensorBase

    Tensor = TensorBase
