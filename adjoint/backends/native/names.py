"""The namespace of large NumPy arrays: what libraries compute, and NumPy's backend for the rest."""

from __future__ import annotations

from typing import Any

from .. import numpy as reference
from .convolution import conv as conv
from .convolution import conv_input as conv_input
from .convolution import conv_weight as conv_weight
from .copies import concat as concat
from .copies import copied as copied
from .copies import flip as flip
from .copies import framed as framed
from .copies import paired as paired
from .copies import roll as roll
from .copies import stack as stack
from .copies import tile as tile
from .draws import drawn_exponential as drawn_exponential
from .draws import drawn_integers as drawn_integers
from .draws import drawn_mask as drawn_mask
from .draws import drawn_normal as drawn_normal
from .draws import drawn_permutation as drawn_permutation
from .draws import drawn_uniform as drawn_uniform
from .movement import accumulate_sum as accumulate_sum
from .movement import gather as gather
from .movement import one_hot as one_hot
from .movement import place as place
from .movement import take_along as take_along
from .pooling import max_pool as max_pool
from .pooling import max_pool_input as max_pool_input
from .pooling import sum_pool as sum_pool
from .pooling import sum_pool_input as sum_pool_input
from .products import matmul as matmul
from .ranking import ranked as ranked
from .triangular import cholesky as cholesky
from .triangular import cholesky_gradient as cholesky_gradient
from .triangular import solve_triangular as solve_triangular

moves = True  # the functions of `copies` and `movement` are here


def linear(rows: Any, w: Any, bias: Any) -> Any:
    """rows @ w.T, plus bias unless it is None, rounded once."""
    if bias is None or bias.ndim != 1:
        return reference.linear(rows, w, bias) if bias is not None else matmul(rows, w.T)
    return matmul(rows, w.T, None, bias)


def __getattr__(name: str) -> Any:
    found = getattr(reference, name)
    globals()[name] = found
    return found
