"""Products of vectors, matrices and arrays of any rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.errors import ShapeError
from . import functions as ad
from .axes import axis_of
from .data_types import ANY, NUMERIC, Array, checked, matrices, operands

__all__ = ["matmul", "matrix_transpose", "tensordot", "vecdot"]


def _numeric(name: str, x1: Array, x2: Array) -> Any:
    """Two arrays, in their common dtype."""
    return operands(name, NUMERIC, checked(name, x1), checked(name, x2))


def matmul(x1: Array, x2: Array, /) -> Array:
    """The product of two matrices, of stacks of them, or of vectors and matrices.

    Shapes: (..., n, k) and (..., k, m) give (..., n, m); (k,) counts as a row or a column, which
    the result does not have.
    Errors: ShapeError where the shapes do not fit, or an operand has no axes.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.matmul.html

    >>> ad.array_api.matmul(ad.tensor([[1, 2], [3, 4]]), ad.tensor([1, 1]))
    tensor([3, 7])
    """
    return ad.matmul(*_numeric("matmul", x1, x2))


def matrix_transpose(x: Array, /) -> Array:
    """The matrices of x transposed.

    Errors: ShapeError for less than two axes.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.matrix_transpose.html

    >>> ad.array_api.matrix_transpose(ad.zeros(2, 3, 4)).shape
    adjoint.Size([2, 4, 3])
    """
    return ad.transpose(matrices("matrix_transpose", x, ANY), -2, -1)


def tensordot(
    x1: Array, x2: Array, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2
) -> Array:
    """The sums of products over axes: the last ones of x1 with the first ones of x2 for a number,
    or those that two sequences name pair by pair.

    Shapes: the other axes of x1, then those of x2.
    Errors: ShapeError where the sizes of a pair differ.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.tensordot.html

    >>> ad.array_api.tensordot(ad.ones(2, 3), ad.ones(3, 4), axes=1).shape
    adjoint.Size([2, 4])
    """
    x1, x2 = _numeric("tensordot", x1, x2)
    if not isinstance(axes, int):
        axes = (list(axes[0]), list(axes[1]))
        for i, j in zip(*axes, strict=False):  # PyTorch broadcasts sizes of 1
            if x1.shape[i] != x2.shape[j]:
                raise ShapeError(
                    f"tensordot: axes {i} and {j} of shapes {tuple(x1.shape)} and "
                    f"{tuple(x2.shape)} have different sizes"
                )
    return ad.tensordot(x1, x2, axes)


def vecdot(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
    """The sum of conj(x1) * x2 along an axis, which is counted from the last.

    Shapes: both have the same size there; the other axes broadcast.
    Errors: ShapeError where the sizes differ.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.vecdot.html

    >>> ad.array_api.vecdot(ad.tensor([1, 2]), ad.tensor([3, 4]))
    tensor(11)
    """
    x1, x2 = _numeric("vecdot", x1, x2)
    x1, x2 = along_common_axis("vecdot", x1, x2, axis)
    return ad.linalg.vecdot(x1, x2).to(x1.dtype)  # PyTorch adds integers up in int64


def along_common_axis(name: str, x1: Array, x2: Array, axis: int) -> tuple[Array, Array]:
    """Both arrays broadcast, with `axis` of each (counted from its last) as the last axis; it must
    have one size and is not broadcast.
    """
    moved = []
    for x in (x1, x2):
        axis_of(axis, x.ndim, name)
        moved.append(ad.movedim(x, axis, -1))
    x1, x2 = moved
    if x1.shape[-1] != x2.shape[-1]:
        raise ShapeError(f"{name}: sizes {x1.shape[-1]} and {x2.shape[-1]} along axis {axis}")
    x1, x2 = ad.broadcast_tensors(x1, x2)
    return x1, x2
