"""Upsample."""

from __future__ import annotations

from typing import Any

from .. import functional as F  # noqa: N812 - the name everyone knows it by
from .module import Module

__all__ = ["Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d"]


class Upsample(Module):
    """The input resized to `size`, or by `scale_factor`, as `functional.interpolate` does.

    Shapes: (batch, channels, length), (..., height, width) or (..., depth, height, width).
    Errors: those of `functional.interpolate`.
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

    def forward(self, input: Any) -> Any:
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
    """Images resized; each pixel takes its nearest neighbour's value.

    Shapes: (batch, channels, height, width).
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.UpsamplingNearest2d.html

    >>> ad.nn.UpsamplingNearest2d(scale_factor=2)(ad.zeros(1, 1, 2, 2)).shape
    adjoint.Size([1, 1, 4, 4])
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """Images resized by bilinear interpolation; the corner pixels stay in the corners.

    Shapes: (batch, channels, height, width).
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.UpsamplingBilinear2d.html

    >>> ad.nn.UpsamplingBilinear2d(size=3)(ad.tensor([[[[0., 2.], [4., 6.]]]]))[0, 0, 1]
    tensor([2., 3., 4.])
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)
