"""Convolutions of sequences that have time first."""

from __future__ import annotations

from typing import Any

from ...core.errors import InvalidType, ShapeError
from ...ops.nn.convolution import conv1d
from ...runtime.public import explaining
from ...tensor import Tensor

__all__ = ["conv_tbc"]


@explaining
def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """Convolution over time of sequences that have the batch second and the channels last.

        y[t, n] = bias + sum over k of x[t + k - pad, n] weight[k]

    Args:
        input: Values.
        weight: Kernels.
        bias: Number added to each channel of the output.
        pad: Width of the padding with zeros at both ends. Default: 0.

    Shapes: (time, batch, in), weight (kernel, in, out), bias (out,) -> (time', batch, out).
    Errors: ShapeError for others; InvalidType without a bias.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.conv1d.html

    >>> ad.conv_tbc(ad.ones(3, 1, 1), ad.ones(2, 1, 1), ad.zeros(1)).flatten()
    tensor([2., 2.])
    """
    if not isinstance(bias, Tensor):
        raise InvalidType(f"conv_tbc: argument 'bias' must be a tensor, not {type(bias).__name__}")
    if input.ndim != 3 or weight.ndim != 3 or input.shape[2] != weight.shape[1]:
        raise ShapeError(
            "conv_tbc: Input must have 3 dims: time, batch, in_channel, and weight: kernel, "
            f"in_channel, out_channel; got {tuple(input.shape)} and {tuple(weight.shape)}"
        )
    if tuple(bias.shape) != (weight.shape[2],):
        raise ShapeError(
            "conv_tbc: Bias size must equal dim 2 in the weight tensor (output channels), "
            f"{weight.shape[2]}, got {tuple(bias.shape)}"
        )
    found: Any = conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad)
    return found.permute(2, 0, 1)
