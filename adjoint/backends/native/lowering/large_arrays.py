"""The namespace of large NumPy arrays: what libraries compute, and NumPy's backend for the rest."""

from __future__ import annotations

from typing import Any

from ... import numpy as reference
from ..gemm.products import matmul
from ..gemm.triangular import cholesky, cholesky_gradient, solve_triangular
from ..indexing.copies import concat, copied, flip, framed, paired, roll, stack, tile
from ..indexing.movement import accumulate_sum, gather, one_hot, place, take_along
from ..indexing.ranking import ranked
from ..onednn.eager_convolution import conv, conv_input, conv_weight
from ..onednn.pooling_plans import max_pool, max_pool_input, sum_pool, sum_pool_input
from ..random.random_draws import (
    drawn_exponential,
    drawn_integers,
    drawn_mask,
    drawn_normal,
    drawn_permutation,
    drawn_uniform,
)

moves = True  # the functions of `copies` and `movement` are here


def linear(rows: Any, w: Any, bias: Any) -> Any:
    """rows @ w.T, plus bias unless it is None, rounded once."""
    if bias is None:
        return matmul(rows, w.T)
    if bias.shape != w.shape[:1]:  # it broadcasts
        return reference.linear(rows, w, bias)
    return matmul(rows, w.T, None, bias)


def __getattr__(name: str) -> Any:
    function = getattr(reference, name)
    globals()[name] = function
    return function
