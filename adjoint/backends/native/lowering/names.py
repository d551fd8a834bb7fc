"""The namespace of large NumPy arrays: what libraries compute, and NumPy's backend for the rest."""

from __future__ import annotations

from typing import Any

from ... import numpy as reference
from ..gemm.products import matmul as matmul
from ..gemm.triangular import cholesky as cholesky
from ..gemm.triangular import cholesky_gradient as cholesky_gradient
from ..gemm.triangular import solve_triangular as solve_triangular
from ..indexing.copies import concat as concat
from ..indexing.copies import copied as copied
from ..indexing.copies import flip as flip
from ..indexing.copies import framed as framed
from ..indexing.copies import paired as paired
from ..indexing.copies import roll as roll
from ..indexing.copies import stack as stack
from ..indexing.copies import tile as tile
from ..indexing.movement import accumulate_sum as accumulate_sum
from ..indexing.movement import gather as gather
from ..indexing.movement import one_hot as one_hot
from ..indexing.movement import place as place
from ..indexing.movement import take_along as take_along
from ..indexing.ranking import ranked as ranked
from ..onednn.convolution import conv as conv
from ..onednn.convolution import conv_input as conv_input
from ..onednn.convolution import conv_weight as conv_weight
from ..onednn.pooling import max_pool as max_pool
from ..onednn.pooling import max_pool_input as max_pool_input
from ..onednn.pooling import sum_pool as sum_pool
from ..onednn.pooling import sum_pool_input as sum_pool_input
from ..random.draws import drawn_exponential as drawn_exponential
from ..random.draws import drawn_integers as drawn_integers
from ..random.draws import drawn_mask as drawn_mask
from ..random.draws import drawn_normal as drawn_normal
from ..random.draws import drawn_permutation as drawn_permutation
from ..random.draws import drawn_uniform as drawn_uniform

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
