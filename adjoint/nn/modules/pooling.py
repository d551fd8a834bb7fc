"""Pooling layers."""

from __future__ import annotations

from typing import Any

from .. import functional as F  # noqa: N812 - the name everyone knows it by
from .module import Module
from .unpooling import *  # noqa: F403 - PyTorch has them here too

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d", "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "MaxPool1d",
    "MaxPool2d", "MaxPool3d",
]  # fmt: skip


class _MaxPool(Module):
    _repr = (
        "kernel_size={kernel_size}, stride={stride}, padding={padding}, dilation={dilation}, "
        "ceil_mode={ceil_mode}"
    )
    rank: int

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride if stride is not None else kernel_size
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def forward(self, input: Any) -> Any:
        """The maxima."""
        return getattr(F, f"max_pool{self.rank}d")(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            ceil_mode=self.ceil_mode,
            return_indices=self.return_indices,
        )


class _AvgPool(Module):
    _repr = "kernel_size={kernel_size}, stride={stride}, padding={padding}"
    rank: int

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = (kernel_size,) if self._tuples(kernel_size) else kernel_size
        self.stride = kernel_size if stride is None else stride
        self.stride = (self.stride,) if self._tuples(self.stride) else self.stride
        self.padding = (padding,) if self._tuples(padding) else padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def _tuples(self, value: Any) -> bool:
        """Whether PyTorch shows this size as a tuple of one."""
        return self.rank == 1 and isinstance(value, int)

    def forward(self, input: Any) -> Any:
        """The means."""
        options = () if self.rank == 1 else (self.divisor_override,)
        return getattr(F, f"avg_pool{self.rank}d")(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            *options,
        )


class _AdaptiveAvgPool(Module):
    _repr = "output_size={output_size}"
    rank: int

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Any) -> Any:
        """The means."""
        return getattr(F, f"adaptive_avg_pool{self.rank}d")(input, self.output_size)


class MaxPool1d(_MaxPool):
    """The largest value of each window of kernel_size; with `return_indices` its place too.

    Shapes: (batch, channels, length) or without batch.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MaxPool1d.html

    >>> ad.nn.MaxPool1d(2)(ad.zeros(1, 1, 4)).shape
    adjoint.Size([1, 1, 2])
    """

    rank = 1


class MaxPool2d(_MaxPool):
    """The largest value of each window of kernel_size; with `return_indices` its place too.

    Shapes: (batch, channels, height, width) or without batch.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MaxPool2d.html

    >>> ad.nn.MaxPool2d(2)(ad.zeros(1, 1, 4, 4)).shape
    adjoint.Size([1, 1, 2, 2])
    """

    rank = 2


class MaxPool3d(_MaxPool):
    """The largest value of each window of kernel_size; with `return_indices` its place too.

    Shapes: (batch, channels, depth, height, width) or without batch.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MaxPool3d.html

    >>> ad.nn.MaxPool3d(2)(ad.zeros(1, 1, 4, 4, 4)).shape
    adjoint.Size([1, 1, 2, 2, 2])
    """

    rank = 3


class AvgPool1d(_AvgPool):
    """The mean of each window of kernel_size.

    Shapes: (batch, channels, length) or without batch.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.AvgPool1d.html

    >>> ad.nn.AvgPool1d(2)(ad.zeros(1, 1, 4)).shape
    adjoint.Size([1, 1, 2])
    """

    rank = 1


class AvgPool2d(_AvgPool):
    """The mean of each window of kernel_size.

    Shapes: (batch, channels, height, width) or without batch.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.AvgPool2d.html

    >>> ad.nn.AvgPool2d(2)(ad.zeros(1, 1, 4, 4)).shape
    adjoint.Size([1, 1, 2, 2])
    """

    rank = 2


class AvgPool3d(_AvgPool):
    """The mean of each window of kernel_size.

    Shapes: (batch, channels, depth, height, width) or without batch.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.AvgPool3d.html

    >>> ad.nn.AvgPool3d(2)(ad.zeros(1, 1, 4, 4, 4)).shape
    adjoint.Size([1, 1, 2, 2, 2])
    """

    rank = 3


class _AdaptiveMaxPool(Module):
    _repr = "output_size={output_size}"
    rank: int

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size = output_size
        self.return_indices = return_indices

    def forward(self, input: Any) -> Any:
        """The maxima, and their places where asked."""
        pool = getattr(F, f"adaptive_max_pool{self.rank}d")
        return pool(input, self.output_size, self.return_indices)


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """The mean of each of output_size bins, whatever the input's size.

    Shapes: (batch, channels, length) or without batch -> the same with output_size.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.AdaptiveAvgPool1d.html

    >>> ad.nn.AdaptiveAvgPool1d(2)(ad.zeros(1, 1, 4)).shape
    adjoint.Size([1, 1, 2])
    """

    rank = 1


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """The mean of each of output_size bins, whatever the input's size.

    Shapes: (batch, channels, height, width) or without batch -> the same with output_size.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.AdaptiveAvgPool2d.html

    >>> ad.nn.AdaptiveAvgPool2d(2)(ad.zeros(1, 1, 4, 4)).shape
    adjoint.Size([1, 1, 2, 2])
    """

    rank = 2


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """The mean of each of output_size bins, whatever the input's size.

    Shapes: (batch, channels, depth, height, width) or without batch -> the same with output_size.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.AdaptiveAvgPool3d.html

    >>> ad.nn.AdaptiveAvgPool3d(2)(ad.zeros(1, 1, 4, 4, 4)).shape
    adjoint.Size([1, 1, 2, 2, 2])
    """

    rank = 3


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """The largest value of each of output_size bins, whatever the input's size.

    Shapes: (batch, channels, length) or without batch -> the same with output_size.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.AdaptiveMaxPool1d.html

    >>> ad.nn.AdaptiveMaxPool1d(2)(ad.zeros(1, 1, 4)).shape
    adjoint.Size([1, 1, 2])
    """

    rank = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """The largest value of each of output_size bins, whatever the input's size.

    Shapes: (batch, channels, height, width) or without batch -> the same with output_size.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.AdaptiveMaxPool2d.html

    >>> ad.nn.AdaptiveMaxPool2d(2)(ad.zeros(1, 1, 4, 4)).shape
    adjoint.Size([1, 1, 2, 2])
    """

    rank = 2


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """The largest value of each of output_size bins, whatever the input's size.

    Shapes: (batch, channels, depth, height, width) or without batch -> the same with output_size.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.AdaptiveMaxPool3d.html

    >>> ad.nn.AdaptiveMaxPool3d(2)(ad.zeros(1, 1, 4, 4, 4)).shape
    adjoint.Size([1, 1, 2, 2, 2])
    """

    rank = 3
