"""Local response normalization."""

from __future__ import annotations

from typing import Any

from ...core.errors import ShapeError
from .. import functional as F  # noqa: N812 - the name everyone knows it by
from .module import Module

__all__ = ["CrossMapLRN2d", "LocalResponseNorm"]


class LocalResponseNorm(Module):
    """x / (k + alpha * mean of x^2 over `size` neighbouring channels) ** beta.

    Shapes: (batch, channels, ...), at least three dimensions.
    Errors: ShapeError for fewer.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LocalResponseNorm.html

    >>> ad.nn.LocalResponseNorm(2)(ad.zeros(1, 5, 7)).shape
    adjoint.Size([1, 5, 7])
    """

    _repr = "{size}, alpha={alpha}, beta={beta}, k={k}"

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Any) -> Any:
        """The normalized input."""
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)


class CrossMapLRN2d(LocalResponseNorm):
    """LocalResponseNorm for images only, under its name in older models.

    Shapes: (batch, channels, height, width).
    Errors: ShapeError for other ranks.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LocalResponseNorm.html

    >>> ad.nn.CrossMapLRN2d(3)(ad.zeros(1, 5, 2, 2)).shape
    adjoint.Size([1, 5, 2, 2])
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__(size, alpha, beta, k)

    def forward(self, input: Any) -> Any:
        """The normalized input."""
        if input.ndim != 4:
            raise ShapeError(f"CrossMapLRN2d: Expected input to be 4D, got {input.ndim}D instead.")
        return super().forward(input)
