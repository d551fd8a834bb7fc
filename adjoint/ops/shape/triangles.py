"""Triangles of matrices, and the indices of their elements."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import dtype as dt
from ...core.errors import InvalidArgument, ShapeError
from ...core.op import Sample
from ...core.spec import Spec
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply
from ...runtime.fused import checking
from ...runtime.public import explaining, public
from ...runtime.tensors import fresh
from ..samples import KINDS, array, each_dtype
from .movement import Movement

if TYPE_CHECKING:
    from ...ops.argument_types import DeviceLike, DTypeLike, Layout

__all__ = ["tril", "tril_indices", "triu", "triu_indices"]


@dataclass(eq=False, repr=False)
class Triangle(Movement):
    """The lower or upper triangle of the last two dimensions, zeros elsewhere."""

    upper: bool
    diagonal: int = 0
    core = (2,)
    linear = True

    def infer(self, spec: Spec) -> Spec:
        """The input's spec, of two dimensions or more."""
        if len(spec.shape) < 2:
            raise ShapeError(
                f"{'triu' if self.upper else 'tril'}: input tensor must have at least 2 "
                f"dimensions, got shape {spec.shape}"
            )
        return spec

    def compute(self, xp: Any, x: Any) -> Any:
        """The backend's tril or triu."""
        if x.ndim < 2:
            self.infer(Spec(x.shape, dt.from_numpy_dtype(x.dtype)))
        return xp.triu(x, self.diagonal) if self.upper else xp.tril(x, self.diagonal)

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """The triangle of g."""
        return (apply(self, g),)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Both triangles, offsets, batches, dtypes."""
        yield from each_dtype(cls(True), (*KINDS, dt.bool_), (3, 3))
        yield Sample(cls(False), (array((2, 3, 4)),), "batch")
        yield Sample(cls(False, -1), (array((3, 3)),), "below")
        yield Sample(cls(True, 2), (array((2, 4)),), "above")
        yield Sample(cls(False), (array((0, 3)),), "empty")

    def reference(self, x: Any) -> Any:
        """Reference value by index."""
        rows, columns = np.indices(x.shape[-2:])
        above = columns - rows
        keep = above >= self.diagonal if self.upper else above <= self.diagonal
        return np.where(keep, x, np.zeros((), x.dtype))


@public(inplace=True, out=True)
@checking
def tril(input: Tensor, diagonal: int = 0) -> Any:
    """The lower triangle of the last two dimensions, up to a diagonal; zeros elsewhere.

    Errors: ShapeError for fewer than 2 dimensions.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.tril.html

    >>> ad.tril(ad.tensor([[1, 2], [3, 4]]))
    tensor([[1, 0],
            [3, 4]])
    """
    return Triangle(False, operator.index(diagonal)), input


@public(inplace=True, out=True)
@checking
def triu(input: Tensor, diagonal: int = 0) -> Any:
    """The upper triangle of the last two dimensions, from a diagonal; zeros elsewhere.

    Errors: ShapeError for fewer than 2 dimensions.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.triu.html

    >>> ad.triu(ad.tensor([[1, 2], [3, 4]]))
    tensor([[1, 2],
            [0, 4]])
    """
    return Triangle(True, operator.index(diagonal)), input


def _triangle_indices(row: int, col: int, offset: int, dtype: Any, upper: bool, name: str) -> Any:
    if row < 0 or col < 0:
        raise InvalidArgument(f"{name}: row and col must be non-negative, got {row} and {col}")
    numpy = dt.int64.numpy if dtype is None else dt.as_dtype(dtype).numpy
    found = np.triu_indices(row, offset, col) if upper else np.tril_indices(row, offset, col)
    return fresh(np.stack(found).astype(numpy))


@explaining
@public(method=False)
def tril_indices(
    row: int,
    col: int,
    offset: int = 0,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    layout: Layout | None = None,
) -> Tensor:
    """The row and column numbers of a lower triangle, in row-major order.

    Errors: InvalidArgument for a negative size.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.tril_indices.html

    >>> ad.tril_indices(2, 2)
    tensor([[0, 1, 1],
            [0, 0, 1]])
    """
    return _triangle_indices(row, col, offset, dtype, False, "tril_indices")


@explaining
@public(method=False)
def triu_indices(
    row: int,
    col: int,
    offset: int = 0,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    layout: Layout | None = None,
) -> Tensor:
    """The row and column numbers of an upper triangle, in row-major order.

    Errors: InvalidArgument for a negative size.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.triu_indices.html

    >>> ad.triu_indices(2, 2)
    tensor([[0, 0, 1],
            [0, 1, 1]])
    """
    return _triangle_indices(row, col, offset, dtype, True, "triu_indices")
