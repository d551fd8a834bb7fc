"""Fractional pooling: maxima of windows whose places are drawn."""

from __future__ import annotations

from typing import Any

from ...core.errors import InvalidArgument
from ...tensor import Tensor
from .. import functional as F  # noqa: N812 - the name everyone knows it by
from .conv import per_dimension
from .module import Module

__all__ = ["FractionalMaxPool2d", "FractionalMaxPool3d"]


class _FractionalMaxPool(Module):
    rank: int

    def __init__(
        self,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Any = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if (output_size is None) == (output_ratio is None):
            raise InvalidArgument(
                f"{name} requires specifying either an output size, or a pooling ratio, and only "
                f"one of output_size and output_ratio may be specified; got {output_size} and "
                f"{output_ratio}"
            )
        self.kernel_size = per_dimension(kernel_size, self.rank)
        if min(self.kernel_size) <= 0:
            raise InvalidArgument(f"kernel_size must be greater than 0, but got {kernel_size}")
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else per_dimension(output_size, self.rank)
        ratios = (output_ratio,) * self.rank if isinstance(output_ratio, float) else output_ratio
        self.output_ratio = ratios
        if ratios is not None and not all(0 < ratio < 1 for ratio in ratios):
            raise InvalidArgument(f"output_ratio must be between 0 and 1 (got {output_ratio})")

    def forward(self, input: Tensor) -> Tensor:
        """The maxima."""
        return getattr(F, f"fractional_max_pool{self.rank}d")(
            input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices,
            _random_samples=self._random_samples,
        )  # fmt: skip


class FractionalMaxPool2d(_FractionalMaxPool):
    """Largest value of windows of images at random steps (Graham, 2014).

        y[i] = max of x[a_i : a_i + kernel_size]

    The windows begin at a_i = floor((i + u) alpha) - floor(u alpha), where u is drawn for each
    channel and alpha is (size - kernel_size) / (output_size - 1); the last one ends at the border.

    Args:
        kernel_size: Size of the windows, an int or one per dimension.
        output_size: Size of the output, an int or one per dimension. Default: None, by
            output_ratio.
        output_ratio: Size of the output as a share of the input's, a float between 0 and 1 or one
            per dimension. Default: None, by output_size.
        return_indices: Return the places of the maxima, too, as indices into the flattened spatial
            dimensions. Default: False.
        _random_samples: Numbers u, (batch, channels, 2), instead of drawn ones. Default: None.

    Shapes: (batch, channels, height, width) -> (batch, channels, out_height, out_width), or without
    batch; with `return_indices` a pair of such tensors.
    Errors: InvalidArgument unless exactly one of output_size and output_ratio is given, for a ratio
    that is not between 0 and 1, and for a kernel_size that is not positive; ShapeError, in the
    call, where the windows do not fit.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.FractionalMaxPool2d.html

    >>> ad.nn.FractionalMaxPool2d(2, output_ratio=0.5)(ad.zeros(1, 1, 6, 6)).shape
    adjoint.Size([1, 1, 3, 3])
    """

    rank = 2


class FractionalMaxPool3d(_FractionalMaxPool):
    """Largest value of windows of volumes at random steps (Graham, 2014).

        y[i] = max of x[a_i : a_i + kernel_size]

    The windows begin at a_i = floor((i + u) alpha) - floor(u alpha), where u is drawn for each
    channel and alpha is (size - kernel_size) / (output_size - 1); the last one ends at the border.

    Args:
        kernel_size: Size of the windows, an int or one per dimension.
        output_size: Size of the output, an int or one per dimension. Default: None, by
            output_ratio.
        output_ratio: Size of the output as a share of the input's, a float between 0 and 1 or one
            per dimension. Default: None, by output_size.
        return_indices: Return the places of the maxima, too, as indices into the flattened spatial
            dimensions. Default: False.
        _random_samples: Numbers u, (batch, channels, 3), instead of drawn ones. Default: None.

    Shapes: (batch, channels, depth, height, width) -> (batch, channels, out_depth, out_height,
    out_width), or without batch; with `return_indices` a pair of such tensors.
    Errors: InvalidArgument unless exactly one of output_size and output_ratio is given, for a ratio
    that is not between 0 and 1, and for a kernel_size that is not positive; ShapeError, in the
    call, where the windows do not fit.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.FractionalMaxPool3d.html

    >>> ad.nn.FractionalMaxPool3d(2, output_size=3)(ad.zeros(1, 1, 6, 6, 6)).shape
    adjoint.Size([1, 1, 3, 3, 3])
    """

    rank = 3
