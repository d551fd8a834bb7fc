"""The name `Tensor`, for annotations in the rooms below `tensor.py`.

While a program runs it is what every tensor is; for type checkers, `types.pyi` beside this says
that it is `adjoint.Tensor`, so that no file here imports a higher one.
"""

from __future__ import annotations

from .tensor_base import TensorBase

Tensor = TensorBase
