"""Indices of sparse matrices in one form made of those in another, as packages of graphs ask for
them.
"""

from __future__ import annotations

from ...core import dtype as dt
from ...core.errors import InvalidArgument
from ...ops.argument_dtypes import INTEGERS, assert_dtypes
from ...ops.create.ranges import arange
from ...ops.reduce.sort import searchsorted
from ...ops.shape.concatenation import stack
from ...runtime.public import explaining
from ...tensor import Tensor


@explaining
def _convert_indices_from_coo_to_csr(
    input: Tensor, size: int, *, out_int32: bool = False
) -> Tensor:
    """Where each of `size` rows begins among sorted indices of rows, and where the last one ends.

    Shapes: (n,) -> (size + 1,).
    Dtypes: integers; the result is int64, or int32 with `out_int32`.
    Errors: InvalidArgument for a negative size or indices that are not one-dimensional.

    >>> ad._convert_indices_from_coo_to_csr(ad.tensor([0, 0, 1, 3]), 4)
    tensor([0, 2, 3, 3, 4])
    """
    name = "_convert_indices_from_coo_to_csr"
    assert_dtypes(name, INTEGERS, input=input)
    if input.ndim != 1 or size < 0:
        raise InvalidArgument(
            f"{name}: expected one-dimensional indices and a size of at least 0, got shape "
            f"{tuple(input.shape)} and {size}"
        )
    rows = arange(size + 1, dtype=input.dtype, device=input.device)
    return searchsorted(input, rows).to(dt.int32 if out_int32 else dt.int64)


@explaining
def _convert_indices_from_csr_to_coo(
    crow_indices: Tensor, col_indices: Tensor, *, out_int32: bool = False, transpose: bool = False
) -> Tensor:
    """The index of the row above that of the column for each element of a compressed matrix; the
    column's above the row's with `transpose`.

    Shapes: (rows + 1,) and (n,) -> (2, n).
    Dtypes: integers; the result is int64, or int32 with `out_int32`.
    Errors: InvalidArgument where the places do not end at n.

    >>> ad._convert_indices_from_csr_to_coo(ad.tensor([0, 2, 3]), ad.tensor([0, 1, 1]))
    tensor([[0, 0, 1],
            [0, 1, 1]])
    """
    name = "_convert_indices_from_csr_to_coo"
    assert_dtypes(name, INTEGERS, crow_indices=crow_indices, col_indices=col_indices)
    if crow_indices.ndim != 1 or col_indices.ndim != 1 or not len(crow_indices):
        raise InvalidArgument(
            f"{name}: expected one-dimensional indices, got shapes {tuple(crow_indices.shape)} and "
            f"{tuple(col_indices.shape)}; convert each matrix of a batch"
        )
    counts = crow_indices.diff()
    if int(crow_indices[-1]) != len(col_indices) or bool((counts < 0).any()):
        raise InvalidArgument(
            f"{name}: crow_indices must rise from 0 to {len(col_indices)}, the number of columns' "
            f"indices, got {crow_indices.tolist() if len(crow_indices) < 9 else 'others'}"
        )
    rows = arange(len(counts), device=counts.device).repeat_interleave(counts.long())
    d = dt.int32 if out_int32 else dt.int64
    pair = [rows.to(d), col_indices.to(d)]
    return stack(pair[::-1] if transpose else pair)
