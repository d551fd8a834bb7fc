"""Matrices that decompositions take: how they are checked, which samples there are, their parts."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.argument_errors import assert_tensor
from ...core.errors import DTypeError, ShapeError
from ...core.tensor_type import Tensor
from ..samples import array
from .matrix_product import conj_transposed

NUMERIC = (dt.float64, dt.float32, dt.complex128, dt.complex64)


def assert_matrices(name: str, x: Any, square: bool = False) -> None:
    """Refuse arguments other than (square) matrices, or batches of them, of a dtype that LAPACK
    knows.
    """
    assert_tensor(name, x)
    shape = x._data.shape
    if len(shape) < 2:
        raise ShapeError(
            f"{name}: The input tensor A must have at least 2 dimensions, got shape {shape}"
        )
    if square and shape[-1] != shape[-2]:
        raise ShapeError(
            f"{name}: A must be batches of square matrices, but they are {shape[-2]} by "
            f"{shape[-1]} matrices"
        )
    dtype = x.dtype
    if dtype.category < 2:
        raise DTypeError(
            f"{name}: Expected a floating point or complex tensor as input. Got {dtype}; convert "
            "with .float()"
        )
    if dtype in dt.LOW_PRECISION:
        raise DTypeError(
            f"{name}: Low precision dtypes not supported. Got {dtype}; convert with .float()"
        )


def where_it_fails(function: Callable[[Any], Any], x: Any) -> tuple[str, Any]:
    """A message part that names the first matrix of a batch on which `function` fails, and it."""
    for i, matrix in enumerate(x.reshape(-1, *x.shape[-2:])):
        try:
            function(matrix)
        except np.linalg.LinAlgError:
            return ("" if x.ndim == 2 else f"(Batch element {i}): "), matrix
    return "", x


def indefinite_minor(matrix: Any) -> int:
    """The order of the first leading minor that is not positive definite; 0 where all are."""

    def fails(order: int) -> bool:
        try:
            np.linalg.cholesky(matrix[:order, :order])
        except np.linalg.LinAlgError:
            return True
        return False

    orders = range(len(matrix) + 1)
    found = bisect.bisect_left(orders, True, key=fails)
    return found if found < len(orders) else 0


def hermitian_samples(shape: tuple[int, ...], dtype: dt.dtype = dt.float64) -> Any:
    """Positive definite matrices with well separated eigenvalues."""
    x = array(shape, dtype)
    n = shape[-1]
    product = x @ np.conj(np.swapaxes(x, -1, -2))
    return (product + np.diag(np.arange(1.0, n + 1))).astype(dtype.numpy)


def general_samples(shape: tuple[int, ...], dtype: dt.dtype = dt.float64) -> Any:
    """Matrices that are far from singular."""
    x = array(shape, dtype)
    return (x + 3 * np.eye(shape[-2], shape[-1]) * np.arange(1.0, shape[-1] + 1)).astype(
        dtype.numpy
    )


def square_shapes() -> Iterable[tuple[str, tuple[int, ...]]]:
    """One matrix, a batch, 1 by 1, empty ones."""
    yield "one", (3, 3)
    yield "batch", (2, 2, 2)
    yield "1x1", (1, 1)
    yield "0x0", (0, 0)
    yield "empty-batch", (0, 2, 2)


def _diagonal(x: Tensor) -> Any:
    return x.diagonal(0, -2, -1)


def _embed(x: Any) -> Any:
    return x.diag_embed()


def _skew(x: Any) -> Any:
    return x - conj_transposed(x)


def _unless_diagonal(x: Any, values: Any) -> Any:
    """x / values off the diagonal, 0 on it."""
    n = x.shape[-1]
    diagonal = x.new_ones((n,)).diag() if n else x.new_ones((0, 0))
    return x * (1 - diagonal) / (values + diagonal)


def _real(x: Any) -> Any:
    """The real part, in the same dtype."""
    return x.real.to(x.dtype) if x.dtype.is_complex else x
