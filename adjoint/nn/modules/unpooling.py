"""Pooling layers beyond those of `pooling`: powers, random windows, and the reverse of maxima."""

from __future__ import annotations

from typing import Any

from ...core.errors import InvalidArgument
from .. import functional as F  # noqa: N812 - the name everyone knows it by
from .conv import per_dimension
from .module import Module

__all__ = [
    "FractionalMaxPool2d", "FractionalMaxPool3d", "LPPool1d", "LPPool2d", "LPPool3d",
    "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d",
]  # fmt: skip


class _LPPool(Module):
    _repr = (
        "norm_type={norm_type}, kernel_size={kernel_size}, stride={stride}, ceil_mode={ceil_mode}"
    )
    rank: int

    def __init__(
        self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def forward(self, input: Any) -> Any:
        """The roots of the sums of powers."""
        return getattr(F, f"lp_pool{self.rank}d")(
            input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode
        )


class LPPool1d(_LPPool):
    """The p-th root of the sum of the p-th powers in each window.

    Shapes: (batch, channels, length) or without batch.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LPPool1d.html

    >>> ad.nn.LPPool1d(2, 2)(ad.tensor([[[3., 4.]]]))
    tensor([[[5.]]])
    """

    rank = 1


class LPPool2d(_LPPool):
    """The p-th root of the sum of the p-th powers in each window.

    Shapes: (batch, channels, height, width) or without batch.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LPPool2d.html

    >>> ad.nn.LPPool2d(2, 2)(ad.ones(1, 1, 2, 2)).item()
    2.0
    """

    rank = 2


class LPPool3d(_LPPool):
    """The p-th root of the sum of the p-th powers in each window.

    Shapes: (batch, channels, depth, height, width) or without batch.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LPPool3d.html

    >>> ad.nn.LPPool3d(1, 2)(ad.ones(1, 1, 2, 2, 2)).item()
    8.0
    """

    rank = 3


class _MaxUnpool(Module):
    _repr = "kernel_size={kernel_size}, stride={stride}, padding={padding}"
    rank: int

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        self.kernel_size = per_dimension(kernel_size, self.rank)
        self.stride = per_dimension(kernel_size if stride is None else stride, self.rank)
        self.padding = per_dimension(padding, self.rank)

    def forward(self, input: Any, indices: Any, output_size: Any = None) -> Any:
        """Zeros with the input at the indices."""
        return getattr(F, f"max_unpool{self.rank}d")(
            input, indices, self.kernel_size, self.stride, self.padding, output_size
        )


class MaxUnpool1d(_MaxUnpool):
    """Zeros with the results of MaxPool1d back at their indices.

    Shapes: (batch, channels, length) or without batch.
    Errors: InvalidArgument for an index outside of the output.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MaxUnpool1d.html

    >>> y, i = ad.nn.MaxPool1d(2, return_indices=True)(ad.tensor([[1., 2., 4., 3.]]))
    >>> ad.nn.MaxUnpool1d(2)(y, i)
    tensor([[0., 2., 4., 0.]])
    """

    rank = 1


class MaxUnpool2d(_MaxUnpool):
    """Zeros with the results of MaxPool2d back at their indices.

    Shapes: (batch, channels, height, width) or without batch.
    Errors: InvalidArgument for an index outside of the output.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MaxUnpool2d.html

    >>> y, i = ad.nn.MaxPool2d(2, return_indices=True)(ad.tensor([[[1., 2.], [4., 3.]]]))
    >>> ad.nn.MaxUnpool2d(2)(y, i)
    tensor([[[0., 0.],
             [4., 0.]]])
    """

    rank = 2


class MaxUnpool3d(_MaxUnpool):
    """Zeros with the results of MaxPool3d back at their indices.

    Shapes: (batch, channels, depth, height, width) or without batch.
    Errors: InvalidArgument for an index outside of the output.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MaxUnpool3d.html

    >>> y, i = ad.nn.MaxPool3d(2, return_indices=True)(ad.ones(1, 2, 2, 2))
    >>> ad.nn.MaxUnpool3d(2)(y, i).sum().item()
    1.0
    """

    rank = 3


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

    def forward(self, input: Any) -> Any:
        """The maxima."""
        return getattr(F, f"fractional_max_pool{self.rank}d")(
            input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices,
            _random_samples=self._random_samples,
        )  # fmt: skip


class FractionalMaxPool2d(_FractionalMaxPool):
    """The maxima of windows at random steps (Graham, 2014).

    Shapes: (batch, channels, height, width) or without batch.
    Errors: InvalidArgument unless exactly one of size and ratio is given.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.FractionalMaxPool2d.html

    >>> ad.nn.FractionalMaxPool2d(2, output_ratio=0.5)(ad.zeros(1, 1, 6, 6)).shape
    adjoint.Size([1, 1, 3, 3])
    """

    rank = 2


class FractionalMaxPool3d(_FractionalMaxPool):
    """The maxima of windows at random steps (Graham, 2014).

    Shapes: (batch, channels, depth, height, width) or without batch.
    Errors: InvalidArgument unless exactly one of size and ratio is given.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.FractionalMaxPool3d.html

    >>> ad.nn.FractionalMaxPool3d(2, output_size=3)(ad.zeros(1, 1, 6, 6, 6)).shape
    adjoint.Size([1, 1, 3, 3, 3])
    """

    rank = 3
