"""PixelShuffle and PixelUnshuffle."""

from __future__ import annotations

from ...tensor import Tensor
from .. import functional as F  # noqa: N812 - the name everyone knows it by
from .module import Module

__all__ = ["PixelShuffle", "PixelUnshuffle"]


class PixelShuffle(Module):
    """Groups of r^2 channels as the pixels of a larger image (Shi et al., 2016).

        y[c, h r + i, w r + j] = x[c r^2 + i r + j, h, w]

    Args:
        upscale_factor: Factor r by which height and width grow.

    Shapes: (..., C r r, H, W) -> (..., C, H r, W r).
    Errors: ShapeError for less than three dimensions, and where the channels are no multiple of
    r^2; InvalidArgument for a factor that is not positive.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.PixelShuffle.html

    >>> ad.nn.PixelShuffle(3)(ad.zeros(1, 9, 4, 4)).shape
    adjoint.Size([1, 1, 12, 12])
    """

    _shown_as = "upscale_factor={upscale_factor}"

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        """The larger image."""
        return F.pixel_shuffle(input, self.upscale_factor)


class PixelUnshuffle(Module):
    """Blocks of r^2 pixels as channels of a smaller image.

        y[c r^2 + i r + j, h, w] = x[c, h r + i, w r + j]

    Args:
        downscale_factor: Factor r by which height and width shrink.

    Shapes: (..., C, H r, W r) -> (..., C r r, H, W).
    Errors: ShapeError for less than three dimensions, and where height or width is no multiple of
    r; InvalidArgument for a factor that is not positive.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.PixelUnshuffle.html

    >>> ad.nn.PixelUnshuffle(3)(ad.zeros(1, 1, 12, 12)).shape
    adjoint.Size([1, 9, 4, 4])
    """

    _shown_as = "downscale_factor={downscale_factor}"

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        """The smaller image."""
        return F.pixel_unshuffle(input, self.downscale_factor)
