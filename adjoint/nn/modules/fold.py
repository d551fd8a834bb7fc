"""Fold and Unfold."""

from __future__ import annotations

from typing import Any

from ...tensor import Tensor
from .. import functional as F  # noqa: N812 - the name everyone knows it by
from .module import Module

__all__ = ["Fold", "Unfold"]


class Fold(Module):
    """Images from columns (col2im): elements that meet are added.

        y[n, c, stride i + dilation k - padding] += x[n, (c, k), i], for all c, i and k

    Here i and k are pairs, whose numbers are counted in one. It is the transpose of unfolding, not
    its inverse.

    Args:
        output_size: Size of the images, an int or a pair.
        kernel_size: Size of the windows, an int or a pair.
        dilation: Distance between neighbouring elements of a window, an int or a pair. Default: 1.
        padding: Width of the padding on both sides, an int or a pair. Default: 0.
        stride: Distance between neighbouring windows, an int or a pair. Default: 1.

    Shapes: (batch, channels kernel_height kernel_width, windows) -> (batch, channels,
    *output_size), or without batch.
    Errors: ShapeError where the windows are not those of the output size.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Fold.html

    >>> ad.nn.Fold((4, 5), (2, 2))(ad.zeros(1, 12, 12)).shape
    adjoint.Size([1, 3, 4, 5])
    """

    _shown_as = (
        "output_size={output_size}, kernel_size={kernel_size}, dilation={dilation}, "
        "padding={padding}, stride={stride}"
    )

    def __init__(
        self,
        output_size: Any,
        kernel_size: Any,
        dilation: Any = 1,
        padding: Any = 0,
        stride: Any = 1,
    ) -> None:
        super().__init__()
        self.output_size = output_size
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        """The images."""
        return F.fold(
            input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride
        )


class Unfold(Module):
    """Windows of images as columns (im2col).

        y[n, (c, k), i] = x[n, c, stride i + dilation k - padding]

    Here i and k are pairs, whose numbers are counted in one.

    Args:
        kernel_size: Size of the windows, an int or a pair.
        dilation: Distance between neighbouring elements of a window, an int or a pair. Default: 1.
        padding: Width of the padding on both sides, an int or a pair. Default: 0.
        stride: Distance between neighbouring windows, an int or a pair. Default: 1.

    Shapes: (batch, channels, height, width) -> (batch, channels kernel_height kernel_width,
    windows), or without batch.
    Errors: ShapeError where no window fits.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Unfold.html

    >>> ad.nn.Unfold((2, 3))(ad.zeros(2, 5, 3, 4)).shape
    adjoint.Size([2, 30, 4])
    """

    _shown_as = "kernel_size={kernel_size}, dilation={dilation}, padding={padding}, stride={stride}"

    def __init__(
        self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        """The windows."""
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)
