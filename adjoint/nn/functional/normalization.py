"""Normalization: batch, layer, group, instance, RMS; as compositions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...autograd.modes import no_grad
from ...core.dtype import LOW_PRECISION, finfo, float32, int64
from ...core.errors import InvalidArgument, ShapeError
from ...ops.argument_dtypes import FLOATING, assert_dtypes
from ...ops.shape.arranging import pad
from ...ops.shape.sizes import hold_sizes, is_of_graph, over_size
from ...runtime.cells import Cell, warn_of_statistics
from ...runtime.fused import checking, fused
from ...runtime.public import explaining
from ...tensor import Tensor

__all__ = [
    "batch_norm", "group_norm", "instance_norm", "layer_norm", "local_response_norm", "rms_norm",
]  # fmt: skip


def wide(x: Tensor) -> Tensor:
    """float16 and bfloat16 as float32: statistics need the precision."""
    return x.to(float32) if x.dtype in LOW_PRECISION else x


def _standard(
    input: Tensor, weight: Any, bias: Any, axes: tuple[int, ...], eps: float
) -> tuple[Any, Any, Any]:
    """`input` with mean 0 and variance 1 over `axes`, scaled and shifted; both statistics."""
    x = wide(input)
    mean = x.mean(axes, keepdim=True)
    centred = x - mean
    variance = (centred * centred).mean(axes, keepdim=True)
    return _affine(centred, variance, weight, bias, eps).to(input.dtype), mean, variance


def _affine(centred: Any, variance: Any, weight: Any, bias: Any, eps: float) -> Any:
    scale = (variance + eps).rsqrt()
    if weight is not None and weight.shape == scale.shape:  # both are small
        scale, weight = scale * weight, None
    result = centred * scale
    if weight is not None:
        result = result * weight
    return result if bias is None else result + bias


@fused
def _standardize(input: Tensor, weight: Any, bias: Any, axes: tuple[int, ...], eps: float) -> Any:
    return _standard(input, weight, bias, axes, eps)[0]


@fused
def _standardize_channels(input: Tensor, weight: Any, bias: Any, eps: float, tell: bool) -> Any:
    """With `tell`, both statistics too."""
    axes = (0, *range(2, input.ndim))
    weight, bias = _along_channels(input, weight), _along_channels(input, bias)
    result, mean, variance = _standard(input, weight, bias, axes, eps)
    if not tell:
        return result
    return result, mean.detach().reshape(-1), variance.detach().reshape(-1)


@fused
def _standardize_channels_by(
    input: Tensor, mean: Any, variance: Any, weight: Any, bias: Any, eps: float
) -> Any:
    mean, variance, weight, bias = (
        _along_channels(input, x) for x in (mean, variance, weight, bias)
    )
    return _affine(wide(input) - mean, variance, weight, bias, eps).to(input.dtype)


@fused
def _standardize_groups(input: Any, weight: Any, bias: Any, groups: int, eps: float) -> Any:
    batch: int = input.shape[0]
    if is_of_graph(input):
        follows = 0 not in input.shape  # a batch of any size
        input = hold_sizes("group_norm", input, dims=range(int(follows), input.ndim))
        batch = -1 if follows else batch
    grouped = (groups, input.shape[1] // groups)
    x = input.reshape(batch, *grouped, math.prod(input.shape[2:]))
    weight, bias = _reshaped(weight, (*grouped, 1)), _reshaped(bias, (*grouped, 1))
    return _standard(x, weight, bias, (2, 3), eps)[0].reshape(batch, *input.shape[1:])


@fused
def _scale_by_root(input: Tensor, weight: Any, axes: tuple[int, ...], eps: float) -> Any:
    x = wide(input)
    result = x * ((x * x).mean(axes, keepdim=True) + eps).rsqrt()
    return (result if weight is None else result * weight).to(input.dtype)


def _reshaped(x: Any, shape: tuple[int, ...]) -> Any:
    return None if x is None else x.reshape(shape)


def _along_channels(input: Any, x: Any) -> Any:
    """A value of each channel so that it broadcasts."""
    rest = input.ndim - 2
    return _reshaped(x, (-1, *(1,) * rest)) if rest else x


@checking
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-05,
) -> Any:
    """Batch normalization of the channels, dimension 1 (Ioffe and Szegedy, 2015).

        y = (x - mean) / sqrt(var + eps) * weight + bias

    mean and var are those of each channel over the batch and all places in training, else the
    running statistics.

    Args:
        input: Values.
        running_mean: Running means of the channels, or None; training changes them in place.
        running_var: Running variances of the channels, or None; training changes them in place.
        weight: Factors. Default: None, ones.
        bias: Numbers added. Default: None, zeros.
        training: Whether the statistics are those of the batch, towards which the running ones
            move; else they are the running ones. Default: False.
        momentum: Share of the new statistics in the running ones. Default: 0.1.
        eps: Number added to the variance, so that nothing is divided by zero. Default: 1e-5.

    Shapes: (batch, channels, ...); the other tensors (channels,).
    Errors: ShapeError for less than two dimensions; InvalidArgument where training has one value
    per channel, or there are no running statistics without.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.batch_norm.html

    >>> ad.nn.functional.batch_norm(ad.tensor([[1.], [3.]]), None, None, training=True).round()
    tensor([[-1.],
            [ 1.]])
    """
    if input.ndim < 2:
        if input.ndim and not input.numel() and weight is bias is None:
            return input.clone()  # no channels, as PyTorch has it
        raise ShapeError(
            f"batch_norm: expected an input of 2 or more dimensions, got {tuple(input.shape)}"
        )
    assert_dtypes(
        "batch_norm", FLOATING, input=input, running_mean=running_mean, running_var=running_var,
        weight=weight, bias=bias,
    )  # fmt: skip
    _assert_channels(input, running_mean, running_var, weight, bias)
    if not training:
        if running_mean is None or running_var is None:
            raise InvalidArgument(
                "batch_norm: Expected running_mean and running_var to be defined when "
                "training=False"
            )
        return _standardize_channels_by, input, running_mean, running_var, weight, bias, eps
    count: int | None = input.numel() // max(input.shape[1], 1)
    if count == 1:
        raise InvalidArgument(
            "batch_norm: Expected more than 1 value per channel when training, got input size "
            f"{input.shape}"
        )
    if running_mean is None and running_var is None:
        return _standardize_channels, input, weight, bias, eps, False
    result, mean, variance = _standardize_channels(input, weight, bias, eps, True)
    if is_of_graph(input):
        axes = [i for i in range(input.ndim) if i != 1]
        variance, count = over_size(variance, count, input, *axes, bessel=True), None
    _update_running(running_mean, running_var, mean, variance, momentum, count)
    return result


def _assert_channels(input: Tensor, *of_channels: Tensor | None) -> None:
    """Refuse tensors that have another number of elements than `input` has channels."""
    channels = input._data.shape[1]
    for name, each in zip(
        ("running_mean", "running_var", "weight", "bias"), of_channels, strict=True
    ):
        if each is not None and each._data.size != channels:
            raise ShapeError(
                f"batch_norm: {name} should contain {channels} elements, one for each channel of "
                f"the input {tuple(input.shape)}, not {each.numel()}"
            )


def _update_running(
    running_mean: Tensor | None,
    running_var: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    momentum: float,
    count: int | None,
) -> None:
    """Move the running statistics towards this batch's (its unbiased variance), in place.

    `count`: of how many values `variance` is the biased one; None where it is unbiased.
    """
    if count == 0:
        return
    if isinstance(mean._data, Cell) and not is_of_graph(running_mean):
        warn_of_statistics(mean._data)
    with no_grad():
        if running_mean is not None:
            running_mean.mul_(1 - momentum).add_(mean.to(running_mean.dtype), alpha=momentum)
        if running_var is not None:
            unbiased = momentum if count is None else momentum * count / (count - 1)
            running_var.mul_(1 - momentum).add_(variance.to(running_var.dtype), alpha=unbiased)


@checking
def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-05,
) -> Any:
    """Layer normalization over the last dimensions (Ba et al., 2016).

        y = (x - mean) / sqrt(var + eps) * weight + bias

    mean and var are over the dimensions of normalized_shape.

    Args:
        input: Values.
        normalized_shape: Shape of the last dimensions, over which the statistics are; an int is one
            dimension.
        weight: Factors. Default: None, ones.
        bias: Numbers added. Default: None, zeros.
        eps: Number added to the variance, so that nothing is divided by zero. Default: 1e-5.

    Shapes: (..., *normalized_shape); `weight` and `bias` have shape normalized_shape.
    Errors: ShapeError where the input does not end in normalized_shape, or weight or bias has
    another shape.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.layer_norm.html

    >>> ad.nn.functional.layer_norm(ad.tensor([1., 3.]), (2,)).round()
    tensor([-1.,  1.])
    """
    assert_dtypes("layer_norm", FLOATING, input=input, weight=weight, bias=bias)
    axes = _trailing(input, normalized_shape, "layer_norm", weight, bias)
    return _standardize, input, weight, bias, axes, eps


@checking
def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Any:
    """Root mean square normalization over the last dimensions (Zhang and Sennrich, 2019).

        y = x / sqrt(mean of x^2 + eps) * weight

    The mean is over the dimensions of normalized_shape.

    Args:
        input: Values.
        normalized_shape: Shape of the last dimensions, over which the statistics are; an int is one
            dimension.
        weight: Factors. Default: None, ones.
        eps: Number added to the mean of squares. Default: None, the machine epsilon of the input's
            dtype (of float32 for narrower ones).

    Shapes: (..., *normalized_shape); `weight` has shape normalized_shape.
    Errors: ShapeError where the input does not end in normalized_shape, or the weight has another
    shape.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.rms_norm.html

    >>> ad.nn.functional.rms_norm(ad.tensor([3., 3.]), (2,))
    tensor([1., 1.])
    """
    axes = _trailing(input, normalized_shape, "rms_norm", weight, None)
    if eps is None:
        eps = finfo(float32 if input.dtype in LOW_PRECISION else input.dtype).eps
    return _scale_by_root, input, weight, axes, eps


def _trailing(
    input: Tensor, normalized_shape: Sequence[int], name: str, *parameters: Tensor | None
) -> tuple[int, ...]:
    """The axes that `normalized_shape` covers."""
    shape = tuple(normalized_shape)
    if not shape or input._data.shape[-len(shape) :] != shape:
        raise ShapeError(
            f"{name}: Given normalized_shape={list(shape)}, expected input with shape "
            f"[*, {', '.join(map(str, shape))}], but got input of size{list(input.shape)}"
        )
    for parameter in parameters:
        if parameter is not None and parameter._data.shape != shape:
            raise ShapeError(
                f"{name}: Expected weight and bias to be of same shape as normalized_shape, but "
                f"got {tuple(parameter.shape)} and normalized_shape={list(shape)}"
            )
    return tuple(range(input.ndim - len(shape), input.ndim))


@checking
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-05,
) -> Any:
    """Group normalization (Wu and He, 2018).

        y = (x - mean) / sqrt(var + eps) * weight + bias

    mean and var are those of each group of channels of each sample, over all places.

    Args:
        input: Values.
        num_groups: Number of groups of channels.
        weight: Factors. Default: None, ones.
        bias: Numbers added. Default: None, zeros.
        eps: Number added to the variance, so that nothing is divided by zero. Default: 1e-5.

    Shapes: (batch, channels, ...); `weight` and `bias` (channels,).
    Errors: ShapeError where `num_groups` does not divide the channels.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.group_norm.html

    >>> ad.nn.functional.group_norm(ad.tensor([[1., 3.]]), 1).round()
    tensor([[-1.,  1.]])
    """
    if input.ndim < 2:
        raise ShapeError(f"group_norm: Expected at least 2 dimensions, got {tuple(input.shape)}")
    assert_dtypes("group_norm", FLOATING, input=input, weight=weight, bias=bias)
    channels = input.shape[1]
    if num_groups <= 0 or channels % num_groups:
        raise ShapeError(
            f"group_norm: Expected number of channels in input to be divisible by num_groups, but "
            f"got input of shape {list(input.shape)} and num_groups={num_groups}"
        )
    return _standardize_groups, input, weight, bias, num_groups, eps


@explaining
def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-05,
) -> Tensor:
    """Instance normalization: batch normalization of each sample alone (Ulyanov et al., 2016).

        y = (x - mean) / sqrt(var + eps) * weight + bias

    mean and var are those of each channel of each sample over all places, or the running
    statistics.

    Args:
        input: Values.
        running_mean: Running means of the channels, or None; training changes them in place.
            Default: None.
        running_var: Running variances of the channels, or None; training changes them in place.
            Default: None.
        weight: Factors. Default: None, ones.
        bias: Numbers added. Default: None, zeros.
        use_input_stats: Whether the statistics are those of the input, towards which the running
            ones move; else they are the running ones. Default: True.
        momentum: Share of the new statistics in the running ones. Default: 0.1.
        eps: Number added to the variance, so that nothing is divided by zero. Default: 1e-5.

    Shapes: (batch, channels, ...); the other tensors (channels,).
    Errors: InvalidArgument where a channel has one value only.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.instance_norm.html

    >>> ad.nn.functional.instance_norm(ad.tensor([[[1., 3.]]])).round()
    tensor([[[-1.,  1.]]])
    """
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    assert_dtypes(
        "instance_norm", FLOATING, input=input, running_mean=running_mean, running_var=running_var,
        weight=weight, bias=bias,
    )  # fmt: skip
    if input.ndim < 2:
        raise ShapeError(
            f"instance_norm: expected an input of 2 or more dimensions, got {tuple(input.shape)}"
        )
    input = hold_sizes("instance_norm", input, dims=(1,))
    channels = input.shape[1]
    count: int | None = math.prod(input.shape[2:])
    if count == 1:
        raise InvalidArgument(
            "instance_norm: Expected more than 1 spatial element when training, got input size "
            f"{input.shape}"
        )
    if running_mean is not None or running_var is not None:
        axes = tuple(range(2, input.ndim))
        x = wide(input.detach())
        mean = x.mean(axes)
        variance = x.var(axes, correction=0)
        if is_of_graph(input):
            variance, count = over_size(variance, count, input, *axes, bessel=True), None
        _update_running(running_mean, running_var, mean.mean(0), variance.mean(0), momentum, count)
    return group_norm(input, channels, weight, bias, eps)


@explaining
def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """Local response normalization (Krizhevsky et al., 2012).

        y = x / (k + alpha m)^beta

    m is the mean of x^2 over `size` neighbouring channels, with zeros beyond the first and last.

    Args:
        input: Values.
        size: Number of channels in each sum.
        alpha: Factor of the mean of squares. Default: 0.0001.
        beta: Exponent. Default: 0.75.
        k: Number added to it. Default: 1.0.

    Shapes: (batch, channels, ...), at least three dimensions.
    Dtypes: floating point, kept; of int64 the means are integers, and the result is of the default
    dtype.
    Errors: ShapeError for fewer; DTypeError for other dtypes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.local_response_norm.html

    >>> ad.nn.functional.local_response_norm(ad.zeros(1, 2, 3), 2).shape
    adjoint.Size([1, 2, 3])
    """
    if input.ndim < 3:
        raise ShapeError(
            f"local_response_norm: Expected 3D or higher dimensionality input (got "
            f"{input.ndim} dimensions)"
        )
    whole = input.dtype is int64  # of which PyTorch takes means in integers
    if not whole:
        assert_dtypes("local_response_norm", FLOATING, input=input)
    if not input.numel():
        return input
    input = hold_sizes("local_response_norm", input, dims=(1,))
    channels = input.shape[1]
    squares: Any = input * input
    squares = pad(squares, (0, 0) * (input.ndim - 2) + (size // 2, (size - 1) // 2))
    total = squares.narrow(1, 0, channels)
    for offset in range(1, size):
        total = total + squares.narrow(1, offset, channels)
    scaled = total.div(size, rounding_mode="trunc") * alpha if whole else total * (alpha / size)
    return input / (scaled + k) ** beta
