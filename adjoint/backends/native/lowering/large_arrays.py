"""The namespace of large NumPy arrays: what libraries compute, and NumPy's backend for the rest."""

from __future__ import annotations

from typing import Any

from ... import numpy as reference
from ..gemm import small_systems
from ..gemm.products import matmul
from ..gemm.triangular import cholesky as factored
from ..gemm.triangular import cholesky_gradient, solve_triangular
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


def cholesky(a: Any) -> Any:
    """The lower factor of Hermitian positive definite matrices, of which one triangle is read.

    Errors: LinAlgError where a matrix is not positive definite.
    """
    lower = small_systems.cholesky(a)
    return factored(a) if lower is NotImplemented else lower


class _LinearAlgebra:
    """NumPy's linear algebra, in which routines solve many small systems."""

    def inv(self, a: Any) -> Any:
        """The inverses of square matrices.

        Errors: LinAlgError for a singular one.
        """
        found = small_systems.inverse(a)
        return reference.linalg.inv(a) if found is NotImplemented else found

    def solve(self, a: Any, b: Any) -> Any:
        """X with A X = B.

        Errors: LinAlgError for a singular A.
        """
        found = small_systems.solution(a, b)
        return reference.linalg.solve(a, b) if found is NotImplemented else found

    def __getattr__(self, name: str) -> Any:
        return getattr(reference.linalg, name)


linalg = _LinearAlgebra()


def __getattr__(name: str) -> Any:
    function = getattr(reference, name)
    globals()[name] = function
    return function
