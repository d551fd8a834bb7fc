"""Convolution layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...core.errors import InvalidArgument
from ...tensor import Tensor
from .. import functional as F  # noqa: N812 - the name everyone knows it by
from .. import init
from ..parameter import Parameter
from .module import Module

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]


def per_dimension(value: Any, rank: int) -> tuple[int, ...]:
    """An int for each dimension, from one or from several."""
    return (value,) * rank if isinstance(value, int) else tuple(value)


class _ConvNd(Module):
    """Base of convolutions of all ranks, forward and transposed."""

    weight: Parameter
    rank: int
    transposed = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        output_padding: Any,
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any,
        dtype: Any,
    ) -> None:
        super().__init__()
        _assert_options(in_channels, out_channels, groups, padding, stride, padding_mode)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = per_dimension(kernel_size, self.rank)
        self.stride = per_dimension(stride, self.rank)
        self.padding = padding if isinstance(padding, str) else per_dimension(padding, self.rank)
        self.dilation = per_dimension(dilation, self.rank)
        self.output_padding = per_dimension(output_padding, self.rank)
        self.groups = groups
        self.padding_mode = padding_mode
        channels = (out_channels, in_channels // groups)
        if self.transposed:
            channels = (in_channels, out_channels // groups)
        self._new_parameter("weight", (*channels, *self.kernel_size), device, dtype)
        self._new_parameter("bias", (out_channels,), device, dtype, bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values: uniform within 1/sqrt(fan_in).

        >>> ad.nn.Conv2d(1, 1, 3).reset_parameters()
        """
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            init.uniform_bound_(self.bias, self.weight.shape[1] * math.prod(self.kernel_size))

    def extra_repr(self) -> str:
        """The settings that differ from the defaults."""
        none, one = (0,) * self.rank, (1,) * self.rank
        return self._shown(
            "{in_channels}, {out_channels}, kernel_size={kernel_size}, stride={stride}",
            [("padding", none), ("dilation", one), ("output_padding", none), ("groups", 1),
             ("bias", True), ("padding_mode", "zeros")],
        )  # fmt: skip


def _assert_options(
    in_channels: int, out_channels: int, groups: int, padding: Any, stride: Any, mode: str
) -> None:
    if groups <= 0:
        raise InvalidArgument(f"groups must be a positive integer, got {groups}")
    if in_channels % groups:
        raise InvalidArgument(f"in_channels={in_channels} must be divisible by groups={groups}")
    if out_channels % groups:
        raise InvalidArgument(f"out_channels={out_channels} must be divisible by groups={groups}")
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise InvalidArgument(
                f"Invalid padding string {padding!r}, should be one of 'same', 'valid'"
            )
        steps = (stride,) if isinstance(stride, int) else stride
        if padding == "same" and any(s != 1 for s in steps):
            raise InvalidArgument("padding='same' is not supported for strided convolutions")
    modes = ("zeros", "reflect", "replicate", "circular")
    if mode not in modes:
        raise InvalidArgument(f"padding_mode must be one of {modes}, but got padding_mode={mode!r}")


class _Conv(_ConvNd):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, 0, groups, bias,
            padding_mode, device, dtype,
        )  # fmt: skip

    def forward(self, input: Tensor) -> Tensor:
        """The convolution."""
        convolve = getattr(F, f"conv{self.rank}d")
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._both_sides(), mode=self.padding_mode)
            padding = 0
        return convolve(
            input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups
        )

    def _both_sides(self) -> list[int]:
        """The padding as `pad` takes it: pairs from the last dimension to the first."""
        pairs = []
        for i in reversed(range(self.rank)):
            if self.padding == "same":
                total = self.dilation[i] * (self.kernel_size[i] - 1)
                pairs += [total // 2, total - total // 2]
            else:
                before = 0 if self.padding == "valid" else int(self.padding[i])
                pairs += [before, before]
        return pairs


class Conv1d(_Conv):
    """Cross-correlation of signals with learned kernels.

        y[n, o, i] = bias[o] + sum over c, k of weight[o, c, k] x[n, c, p]
        p = stride i + dilation k - padding

    The size of the output is floor((size + 2 padding - dilation (kernel_size - 1) - 1) / stride) +
    1. The parameters start uniform within 1 / sqrt(fan_in), fan_in = in_channels / groups times the
    kernel's size.

    Args:
        in_channels: Number of channels of the input.
        out_channels: Number of channels of the output.
        kernel_size: Size of the kernels, an int or one per dimension.
        stride: Distance between neighbouring windows, an int or one per dimension. Default: 1.
        padding: Width of the padding on both sides, an int or one per dimension; or "valid" for
            none, "same" for an output as large as the input (for stride 1). Default: 0.
        dilation: Distance between neighbouring elements of a window, an int or one per dimension.
            Default: 1.
        groups: Number of groups of channels that are convolved apart; it divides both numbers of
            channels. Default: 1.
        bias: Whether to add a learned bias to each channel of the output. Default: True.
        padding_mode: What the padding holds: "zeros", "reflect", "replicate" or "circular".
            Default: "zeros".
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.

    Shapes: (batch, in_channels, length) -> (batch, out_channels, out), or without batch.
    Errors: InvalidArgument where `groups` does not divide the channels, for an unknown padding or
    padding_mode, and for "same" with strides; ShapeError, in the call, for an input of other
    channels or smaller than the kernel.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Conv1d.html

    >>> ad.nn.Conv1d(16, 33, 3, stride=2)(ad.zeros(20, 16, 50)).shape
    adjoint.Size([20, 33, 24])
    """

    rank = 1


class Conv2d(_Conv):
    """Cross-correlation of images with learned kernels.

        y[n, o, i] = bias[o] + sum over c, k of weight[o, c, k] x[n, c, p]
        p = stride i + dilation k - padding

    The size of the output is floor((size + 2 padding - dilation (kernel_size - 1) - 1) / stride) +
    1. The parameters start uniform within 1 / sqrt(fan_in), fan_in = in_channels / groups times the
    kernel's size.

    Args:
        in_channels: Number of channels of the input.
        out_channels: Number of channels of the output.
        kernel_size: Size of the kernels, an int or one per dimension.
        stride: Distance between neighbouring windows, an int or one per dimension. Default: 1.
        padding: Width of the padding on both sides, an int or one per dimension; or "valid" for
            none, "same" for an output as large as the input (for stride 1). Default: 0.
        dilation: Distance between neighbouring elements of a window, an int or one per dimension.
            Default: 1.
        groups: Number of groups of channels that are convolved apart; it divides both numbers of
            channels. Default: 1.
        bias: Whether to add a learned bias to each channel of the output. Default: True.
        padding_mode: What the padding holds: "zeros", "reflect", "replicate" or "circular".
            Default: "zeros".
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.

    Shapes: (batch, in_channels, height, width) -> (batch, out_channels, out_height, out_width), or
    without batch.
    Errors: InvalidArgument where `groups` does not divide the channels, for an unknown padding or
    padding_mode, and for "same" with strides; ShapeError, in the call, for an input of other
    channels or smaller than the kernel.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Conv2d.html

    >>> ad.nn.Conv2d(1, 8, 3, padding=1)(ad.zeros(2, 1, 8, 8)).shape
    adjoint.Size([2, 8, 8, 8])
    """

    rank = 2


class Conv3d(_Conv):
    """Cross-correlation of volumes with learned kernels.

        y[n, o, i] = bias[o] + sum over c, k of weight[o, c, k] x[n, c, p]
        p = stride i + dilation k - padding

    The size of the output is floor((size + 2 padding - dilation (kernel_size - 1) - 1) / stride) +
    1. The parameters start uniform within 1 / sqrt(fan_in), fan_in = in_channels / groups times the
    kernel's size.

    Args:
        in_channels: Number of channels of the input.
        out_channels: Number of channels of the output.
        kernel_size: Size of the kernels, an int or one per dimension.
        stride: Distance between neighbouring windows, an int or one per dimension. Default: 1.
        padding: Width of the padding on both sides, an int or one per dimension; or "valid" for
            none, "same" for an output as large as the input (for stride 1). Default: 0.
        dilation: Distance between neighbouring elements of a window, an int or one per dimension.
            Default: 1.
        groups: Number of groups of channels that are convolved apart; it divides both numbers of
            channels. Default: 1.
        bias: Whether to add a learned bias to each channel of the output. Default: True.
        padding_mode: What the padding holds: "zeros", "reflect", "replicate" or "circular".
            Default: "zeros".
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.

    Shapes: (batch, in_channels, depth, height, width) -> (batch, out_channels, out_depth,
    out_height, out_width), or without batch.
    Errors: InvalidArgument where `groups` does not divide the channels, for an unknown padding or
    padding_mode, and for "same" with strides; ShapeError, in the call, for an input of other
    channels or smaller than the kernel.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Conv3d.html

    >>> ad.nn.Conv3d(1, 2, 3)(ad.zeros(1, 1, 4, 4, 4)).shape
    adjoint.Size([1, 2, 2, 2, 2])
    """

    rank = 3


class _ConvTranspose(_ConvNd):
    transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if padding_mode != "zeros":
            raise InvalidArgument(
                f'Only "zeros" padding mode is supported for {type(self).__name__}, got '
                f"{padding_mode!r}"
            )
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, output_padding,
            groups, bias, padding_mode, device, dtype,
        )  # fmt: skip

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """The transposed convolution; `output_size` chooses among the sizes that fit."""
        extra = self.output_padding
        if output_size is not None:
            extra = self._padding_for(input, tuple(output_size)[-self.rank :])
        convolve = getattr(F, f"conv_transpose{self.rank}d")
        return convolve(
            input, self.weight, self.bias, self.stride, self.padding, extra, self.groups,
            self.dilation,
        )  # fmt: skip

    def _padding_for(self, input: Any, output_size: tuple[int, ...]) -> tuple[int, ...]:
        found = []
        for i in range(self.rank):
            low = (
                (input.shape[i - self.rank] - 1) * self.stride[i]
                - 2 * int(self.padding[i])
                + self.dilation[i] * (self.kernel_size[i] - 1)
                + 1
            )
            extra = output_size[i] - low
            if not 0 <= extra < max(self.stride[i], self.dilation[i]):
                raise InvalidArgument(
                    f"requested an output size of {output_size}, but dimension {i} can only be "
                    f"from {low} to {low + self.stride[i] - 1} (for an input of "
                    f"{tuple(input.shape)})"
                )
            found.append(extra)
        return tuple(found)


class ConvTranspose1d(_ConvTranspose):
    """Transposed convolution of signals: each element of the input spreads a kernel.

        y[n, o, stride i + dilation k - padding] += weight[c, o, k] x[n, c, i], for all c, i and k

    The bias is added. It is the transpose of Conv1d, not its inverse. `forward` takes an
    `output_size`, too, which chooses among the sizes that fit.

    The size of the output is (size - 1) stride - 2 padding + dilation (kernel_size - 1) +
    output_padding + 1.

    Args:
        in_channels: Number of channels of the input.
        out_channels: Number of channels of the output.
        kernel_size: Size of the kernels, an int or one per dimension.
        stride: Distance between neighbouring windows, an int or one per dimension. Default: 1.
        padding: Width cut from both sides of the output, an int or one per dimension. Default: 0.
        output_padding: Width added to the end of each dimension of the output, an int or one per
            dimension; below the stride or the dilation. Default: 0.
        groups: Number of groups of channels that are convolved apart; it divides both numbers of
            channels. Default: 1.
        bias: Whether to add a learned bias to each channel of the output. Default: True.
        dilation: Distance between neighbouring elements of a window, an int or one per dimension.
            Default: 1.
        padding_mode: "zeros", the only one. Default: "zeros".
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.

    Shapes: (batch, in_channels, length) -> (batch, out_channels, out), or without batch.
    Errors: InvalidArgument where `groups` does not divide the channels, for another padding_mode,
    an output_padding that is too large, and an output_size that does not fit.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ConvTranspose1d.html

    >>> ad.nn.ConvTranspose1d(2, 3, 4, stride=2)(ad.zeros(1, 2, 5)).shape
    adjoint.Size([1, 3, 12])
    """

    rank = 1


class ConvTranspose2d(_ConvTranspose):
    """Transposed convolution of images: each element of the input spreads a kernel.

        y[n, o, stride i + dilation k - padding] += weight[c, o, k] x[n, c, i], for all c, i and k

    The bias is added. It is the transpose of Conv2d, not its inverse. `forward` takes an
    `output_size`, too, which chooses among the sizes that fit.

    The size of the output is (size - 1) stride - 2 padding + dilation (kernel_size - 1) +
    output_padding + 1.

    Args:
        in_channels: Number of channels of the input.
        out_channels: Number of channels of the output.
        kernel_size: Size of the kernels, an int or one per dimension.
        stride: Distance between neighbouring windows, an int or one per dimension. Default: 1.
        padding: Width cut from both sides of the output, an int or one per dimension. Default: 0.
        output_padding: Width added to the end of each dimension of the output, an int or one per
            dimension; below the stride or the dilation. Default: 0.
        groups: Number of groups of channels that are convolved apart; it divides both numbers of
            channels. Default: 1.
        bias: Whether to add a learned bias to each channel of the output. Default: True.
        dilation: Distance between neighbouring elements of a window, an int or one per dimension.
            Default: 1.
        padding_mode: "zeros", the only one. Default: "zeros".
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.

    Shapes: (batch, in_channels, height, width) -> (batch, out_channels, out_height, out_width), or
    without batch.
    Errors: InvalidArgument where `groups` does not divide the channels, for another padding_mode,
    an output_padding that is too large, and an output_size that does not fit.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ConvTranspose2d.html

    >>> ad.nn.ConvTranspose2d(2, 3, 2, stride=2)(ad.zeros(1, 2, 4, 4)).shape
    adjoint.Size([1, 3, 8, 8])
    """

    rank = 2


class ConvTranspose3d(_ConvTranspose):
    """Transposed convolution of volumes: each element of the input spreads a kernel.

        y[n, o, stride i + dilation k - padding] += weight[c, o, k] x[n, c, i], for all c, i and k

    The bias is added. It is the transpose of Conv3d, not its inverse. `forward` takes an
    `output_size`, too, which chooses among the sizes that fit.

    The size of the output is (size - 1) stride - 2 padding + dilation (kernel_size - 1) +
    output_padding + 1.

    Args:
        in_channels: Number of channels of the input.
        out_channels: Number of channels of the output.
        kernel_size: Size of the kernels, an int or one per dimension.
        stride: Distance between neighbouring windows, an int or one per dimension. Default: 1.
        padding: Width cut from both sides of the output, an int or one per dimension. Default: 0.
        output_padding: Width added to the end of each dimension of the output, an int or one per
            dimension; below the stride or the dilation. Default: 0.
        groups: Number of groups of channels that are convolved apart; it divides both numbers of
            channels. Default: 1.
        bias: Whether to add a learned bias to each channel of the output. Default: True.
        dilation: Distance between neighbouring elements of a window, an int or one per dimension.
            Default: 1.
        padding_mode: "zeros", the only one. Default: "zeros".
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.

    Shapes: (batch, in_channels, depth, height, width) -> (batch, out_channels, out_depth,
    out_height, out_width), or without batch.
    Errors: InvalidArgument where `groups` does not divide the channels, for another padding_mode,
    an output_padding that is too large, and an output_size that does not fit.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ConvTranspose3d.html

    >>> ad.nn.ConvTranspose3d(1, 1, 2)(ad.zeros(1, 1, 2, 2, 2)).shape
    adjoint.Size([1, 1, 3, 3, 3])
    """

    rank = 3
