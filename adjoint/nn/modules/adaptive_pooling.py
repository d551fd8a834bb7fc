"""Adaptive pooling: windows as many as the result has elements."""

from __future__ import annotations

from typing import Any

from ...tensor import Tensor
from .. import functional as F  # noqa: N812 - the name everyone knows it by
from .module import Module

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d", "AdaptiveMaxPool3d",
]  # fmt: skip


class _AdaptiveAvgPool(Module):
    _shown_as = "output_size={output_size}"
    rank: int

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        """The means."""
        return getattr(F, f"adaptive_avg_pool{self.rank}d")(input, self.output_size)


class _AdaptiveMaxPool(Module):
    _shown_as = "output_size={output_size}"
    rank: int

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size = output_size
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Tensor:
        """The maxima, and their places where asked."""
        pool = getattr(F, f"adaptive_max_pool{self.rank}d")
        return pool(input, self.output_size, self.return_indices)


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """Mean of each of output_size windows that cover the signals evenly.

        y[i] = mean of x[floor(i size / output_size) : ceil((i + 1) size / output_size)]

    Args:
        output_size: Size of the output, an int or one per dimension; None in it keeps a size.

    Shapes: (batch, channels, length) or without batch -> the same with output_size.
    Errors: ShapeError for other ranks, in the call.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.AdaptiveAvgPool1d.html

    >>> ad.nn.AdaptiveAvgPool1d(2)(ad.zeros(1, 1, 4)).shape
    adjoint.Size([1, 1, 2])
    """

    rank = 1


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """Mean of each of output_size windows that cover the images evenly.

        y[i] = mean of x[floor(i size / output_size) : ceil((i + 1) size / output_size)]

    Args:
        output_size: Size of the output, an int or one per dimension; None in it keeps a size.

    Shapes: (batch, channels, height, width) or without batch -> the same with output_size.
    Errors: ShapeError for other ranks, in the call.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.AdaptiveAvgPool2d.html

    >>> ad.nn.AdaptiveAvgPool2d(2)(ad.zeros(1, 1, 4, 4)).shape
    adjoint.Size([1, 1, 2, 2])
    """

    rank = 2


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """Mean of each of output_size windows that cover the volumes evenly.

        y[i] = mean of x[floor(i size / output_size) : ceil((i + 1) size / output_size)]

    Args:
        output_size: Size of the output, an int or one per dimension; None in it keeps a size.

    Shapes: (batch, channels, depth, height, width) or without batch -> the same with output_size.
    Errors: ShapeError for other ranks, in the call.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.AdaptiveAvgPool3d.html

    >>> ad.nn.AdaptiveAvgPool3d(2)(ad.zeros(1, 1, 4, 4, 4)).shape
    adjoint.Size([1, 1, 2, 2, 2])
    """

    rank = 3


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """Largest value of each of output_size windows that cover the signals evenly.

        y[i] = max of x[floor(i size / output_size) : ceil((i + 1) size / output_size)]

    Args:
        output_size: Size of the output, an int or one per dimension; None in it keeps a size.
        return_indices: Return the places of the maxima, too, as indices into the flattened spatial
            dimensions. Default: False.

    Shapes: (batch, channels, length) or without batch -> the same with output_size; with
    `return_indices` a pair of such tensors.
    Errors: ShapeError for other ranks, in the call.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.AdaptiveMaxPool1d.html

    >>> ad.nn.AdaptiveMaxPool1d(2)(ad.zeros(1, 1, 4)).shape
    adjoint.Size([1, 1, 2])
    """

    rank = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Largest value of each of output_size windows that cover the images evenly.

        y[i] = max of x[floor(i size / output_size) : ceil((i + 1) size / output_size)]

    Args:
        output_size: Size of the output, an int or one per dimension; None in it keeps a size.
        return_indices: Return the places of the maxima, too, as indices into the flattened spatial
            dimensions. Default: False.

    Shapes: (batch, channels, height, width) or without batch -> the same with output_size; with
    `return_indices` a pair of such tensors.
    Errors: ShapeError for other ranks, in the call.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.AdaptiveMaxPool2d.html

    >>> ad.nn.AdaptiveMaxPool2d(2)(ad.zeros(1, 1, 4, 4)).shape
    adjoint.Size([1, 1, 2, 2])
    """

    rank = 2


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """Largest value of each of output_size windows that cover the volumes evenly.

        y[i] = max of x[floor(i size / output_size) : ceil((i + 1) size / output_size)]

    Args:
        output_size: Size of the output, an int or one per dimension; None in it keeps a size.
        return_indices: Return the places of the maxima, too, as indices into the flattened spatial
            dimensions. Default: False.

    Shapes: (batch, channels, depth, height, width) or without batch -> the same with output_size;
    with `return_indices` a pair of such tensors.
    Errors: ShapeError for other ranks, in the call.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.AdaptiveMaxPool3d.html

    >>> ad.nn.AdaptiveMaxPool3d(2)(ad.zeros(1, 1, 4, 4, 4)).shape
    adjoint.Size([1, 1, 2, 2, 2])
    """

    rank = 3
