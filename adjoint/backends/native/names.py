"""The namespace of large NumPy arrays: what libraries compute, and NumPy's backend for the rest."""

from __future__ import annotations

from typing import Any

from .. import numpy as reference
from .convolution import conv as conv
from .convolution import conv_input as conv_input
from .convolution import conv_weight as conv_weight
from .pooling import max_pool as max_pool
from .pooling import max_pool_input as max_pool_input
from .pooling import sum_pool as sum_pool
from .pooling import sum_pool_input as sum_pool_input
from .products import matmul as matmul


def __getattr__(name: str) -> Any:
    found = getattr(reference, name)
    globals()[name] = found
    return found
