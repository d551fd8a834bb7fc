"""Upsample."""

from __future__ import annotations

from typing import Any

from ...tensor import Tensor
from .. import functional as F  # noqa: N812 - the name everyone knows it by
from .module import Module

__all__ = ["Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d"]


class Upsample(Module):
    """Resize of signals, images or volumes to another size.

        y[i] = x at (i + 1/2) size / out - 1/2
        y[i] = x at i (size - 1) / (out - 1)      with `align_corners`
        y[i] = x[floor(i size / out)]             in mode "nearest"

    Between elements it is interpolated as the mode says; "area" takes means as adaptive pooling
    does.

    Args:
        size: Size of the output, an int or one per dimension. Default: None, by scale_factor.
        scale_factor: Factor of each size, a number or one per dimension. Default: None, by size.
        mode: Interpolation: "nearest", "nearest-exact" or "area" for any rank, "linear" for
            signals, "bilinear" or "bicubic" for images, "trilinear" for volumes. Default:
            "nearest".
        align_corners: Whether the first and last elements stay in place; for the interpolating
            modes. Default: None, False.
        recompute_scale_factor: Compute the factor anew from the sizes, which are whole. Default:
            None, False.

    Shapes: (batch, channels, length), (batch, channels, height, width) or (batch, channels, depth,
    height, width) -> the same with other sizes.
    Errors: InvalidArgument for an unknown mode, unless exactly one of size and scale_factor is
    given, and for align_corners in a mode that has none; Unsupported for a mode of another rank or
    dtype; ShapeError for empty sizes; all in the call.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Upsample.html

    >>> ad.nn.Upsample(scale_factor=2)(ad.tensor([[[1., 2.]]]))
    tensor([[[1., 1., 2., 2.]]])
    """

    def __init__(
        self,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        self.name = type(self).__name__
        self.size = size
        if isinstance(scale_factor, tuple):
            self.scale_factor: Any = tuple(float(factor) for factor in scale_factor)
        else:
            self.scale_factor = float(scale_factor) if scale_factor else None
        self.mode = mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        """The resized input."""
        return F.interpolate(
            input, self.size, self.scale_factor, self.mode, self.align_corners,
            self.recompute_scale_factor,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """The size or the factor, and the mode."""
        if self.scale_factor is not None:
            return f"scale_factor={self.scale_factor!r}, mode={self.mode!r}"
        return f"size={self.size!r}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Resize of images; each pixel takes its nearest neighbour's value.

        y[i, j] = x[floor(i height / out_height), floor(j width / out_width)]

    Args:
        size: Size of the output, an int or a pair. Default: None, by scale_factor.
        scale_factor: Factor of both sizes, a number or a pair. Default: None, by size.

    Shapes: (batch, channels, height, width).
    Errors: InvalidArgument, in the call, unless exactly one of size and scale_factor is given.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.UpsamplingNearest2d.html

    >>> ad.nn.UpsamplingNearest2d(scale_factor=2)(ad.zeros(1, 1, 2, 2)).shape
    adjoint.Size([1, 1, 4, 4])
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """Resize of images by bilinear interpolation; the corner pixels stay in the corners.

        y[i, j] = x at (i (height - 1) / (out_height - 1), j (width - 1) / (out_width - 1))

    Args:
        size: Size of the output, an int or a pair. Default: None, by scale_factor.
        scale_factor: Factor of both sizes, a number or a pair. Default: None, by size.

    Shapes: (batch, channels, height, width).
    Errors: InvalidArgument, in the call, unless exactly one of size and scale_factor is given.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.UpsamplingBilinear2d.html

    >>> ad.nn.UpsamplingBilinear2d(size=3)(ad.tensor([[[[0., 2.], [4., 6.]]]]))[0, 0, 1]
    tensor([2., 3., 4.])
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)
