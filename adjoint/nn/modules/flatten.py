"""Flatten and Unflatten."""

from __future__ import annotations

from typing import Any

from ...core.errors import InvalidType
from ...tensor import Tensor
from .module import Module

__all__ = ["Flatten", "Unflatten"]


class Flatten(Module):
    """Dimensions from start_dim to end_dim as one, whose size is their product.

        y = x.flatten(start_dim, end_dim)

    Args:
        start_dim: First of the dimensions. Default: 1.
        end_dim: Last of them. Default: -1.

    Shapes: (batch, a, b, ...) -> (batch, a b ...) with the defaults.
    Errors: IndexingError for a dimension out of range, in the call.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Flatten.html

    >>> ad.nn.Flatten()(ad.zeros(2, 3, 4)).shape
    adjoint.Size([2, 12])
    """

    _shown_as = "start_dim={start_dim}, end_dim={end_dim}"

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Tensor) -> Tensor:
        """The flattened input."""
        return input.flatten(self.start_dim, self.end_dim)


class Unflatten(Module):
    """One dimension as several, the reverse of Flatten.

        y = x.unflatten(dim, unflattened_size)

    Args:
        dim: Dimension that becomes several.
        unflattened_size: Their sizes, a tuple of ints; one may be -1, what is left.

    Shapes: dimension `dim` becomes `unflattened_size`.
    Errors: InvalidType where the dimension is no int or the size no tuple of ints; ShapeError, in
    the call, where the sizes do not fit.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Unflatten.html

    >>> ad.nn.Unflatten(1, (3, 4))(ad.zeros(2, 12)).shape
    adjoint.Size([2, 3, 4])
    """

    _shown_as = "dim={dim}, unflattened_size={unflattened_size}"

    def __init__(self, dim: int, unflattened_size: Any) -> None:
        super().__init__()
        if not isinstance(dim, int):
            raise InvalidType(f"Unflatten: expected int for dim, got {type(dim).__name__}")
        if not isinstance(unflattened_size, (tuple, list)) or not all(
            isinstance(size, int) for size in unflattened_size
        ):
            raise InvalidType(
                f"Unflatten: unflattened_size must be tuple of ints, but found {unflattened_size!r}"
            )
        self.dim = dim
        self.unflattened_size = unflattened_size

    def forward(self, input: Tensor) -> Tensor:
        """The input with the dimension split."""
        return input.unflatten(self.dim, self.unflattened_size)
