"""Local response normalization (Krizhevsky et al., 2012)."""

from __future__ import annotations

from typing import Any

from ...core.errors import ShapeError
from ...ops.shape.arranging import pad
from ...tensor import Tensor

__all__ = ["local_response_norm"]


def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """x / (k + alpha * mean of x^2 over `size` neighbouring channels) ** beta.

    Shapes: (batch, channels, ...), at least three dimensions.
    Errors: ShapeError for fewer.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.local_response_norm.html

    >>> ad.nn.functional.local_response_norm(ad.zeros(1, 2, 3), 2).shape
    adjoint.Size([1, 2, 3])
    """
    if input.ndim < 3:
        raise ShapeError(
            f"local_response_norm: Expected 3D or higher dimensionality input (got "
            f"{input.ndim} dimensions)"
        )
    if not input.numel():
        return input
    channels = input.shape[1]
    squares: Any = input * input
    squares = pad(squares, (0, 0) * (input.ndim - 2) + (size // 2, (size - 1) // 2))
    total = squares.narrow(1, 0, channels)
    for offset in range(1, size):
        total = total + squares.narrow(1, offset, channels)
    return input / (total * (alpha / size) + k) ** beta  # type: ignore[no-any-return]
