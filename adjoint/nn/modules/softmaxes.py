"""Softmax, its logarithm and its reverse as layers."""

from __future__ import annotations

from ...core.errors import ShapeError
from ...tensor import Tensor
from .. import functional as F  # noqa: N812 - the name everyone knows it by
from .module import Module

__all__ = ["LogSoftmax", "Softmax", "Softmax2d", "Softmin"]


class _Along(Module):
    """The base of those that normalise along one dimension."""

    _shown_as = "dim={dim}"

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim


class Softmax(_Along):
    """Softmax: positive numbers along a dimension that sum to one.

        y = exp(x) / sum of exp(x) along `dim`

    Args:
        dim: Dimension along which is summed. Default: None, which warns: 0 for inputs of 0, 1 and 3
            dimensions, else 1.

    Shape: any; the result has the shape of the input.
    Errors: IndexingError for a dim out of range, in the call.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Softmax.html

    >>> ad.nn.Softmax(dim=0)(ad.zeros(1)).tolist()
    [1.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        """The activation, elementwise."""
        return F.softmax(input, self.dim)


class LogSoftmax(_Along):
    """Logarithm of softmax, computed without overflow.

        y = x - log(sum of exp(x) along `dim`)

    Args:
        dim: Dimension along which is summed. Default: None, which warns: 0 for inputs of 0, 1 and 3
            dimensions, else 1.

    Shape: any; the result has the shape of the input.
    Errors: IndexingError for a dim out of range, in the call.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LogSoftmax.html

    >>> ad.nn.LogSoftmax(dim=0)(ad.zeros(1)).tolist()
    [0.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        """The activation, elementwise."""
        return F.log_softmax(input, self.dim)


class Softmin(_Along):
    """Softmax of the negated input.

        y = exp(-x) / sum of exp(-x) along `dim`

    Args:
        dim: Dimension along which is summed. Default: None, which warns: 0 for inputs of 0, 1 and 3
            dimensions, else 1.

    Shape: any; the result has the shape of the input.
    Errors: IndexingError for a dim out of range, in the call.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Softmin.html

    >>> ad.nn.Softmin(dim=0)(ad.zeros(1)).tolist()
    [1.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        """The activation, elementwise."""
        return F.softmin(input, self.dim)


class Softmax2d(Module):
    """Softmax over the channels at each place of images.

        y = exp(x) / sum of exp(x) along dimension -3

    Shapes: (batch, channels, height, width) or without batch; the result has the input's.
    Errors: ShapeError for other ranks.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Softmax2d.html

    >>> ad.nn.Softmax2d()(ad.zeros(1, 2, 1, 1)).reshape(-1).tolist()
    [0.5, 0.5]
    """

    def forward(self, input: Tensor) -> Tensor:
        """Softmax over dimension -3."""
        if input.ndim not in (3, 4):
            raise ShapeError(f"Softmax2d: expected input to be 3D or 4D (got {input.ndim}D)")
        return F.softmax(input, -3)
