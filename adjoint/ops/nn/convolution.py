"""Functions that convolve signals, images and volumes, and the transposes of that."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from ...core.errors import InvalidArgument, ShapeError
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply
from ...runtime.public import public
from ..shape.sizes import hold_sizes
from .convolution_ops import Convolution as Convolution
from .convolution_ops import ConvolutionInput as ConvolutionInput
from .convolution_ops import ConvolutionOp as ConvolutionOp
from .convolution_ops import ConvolutionWeight as ConvolutionWeight
from .windows import Pairs, Sizes, batched, hashable, per_dimension

if TYPE_CHECKING:
    from ...ops.argument_types import Dims

__all__ = ["conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"]


def _conv(
    rank: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Tensor:
    name = f"conv{rank}d"
    if weight._data.ndim != rank + 2:
        raise ShapeError(
            f"{name}: expected {rank + 2}D weight (out, in / groups, *kernel), but got weight of "
            f"size: {list(weight.shape)}"
        )
    kernel: Any = ()
    if isinstance(padding, str):
        weight = hold_sizes(name, weight, dims=range(2, rank + 2))
        kernel = weight._data.shape[2:]
    op = convolution_of(rank, kernel, stride, padding, dilation, groups)
    x, has_batch = batched(input, rank, name)
    inputs = (x, weight) if bias is None else (x, weight, bias)
    result: Tensor = apply(op, *inputs)
    return result if has_batch else result.squeeze(0)


def convolution_of(
    rank: int, kernel: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Convolution:
    """The op of a convolution with these arguments; its `kernel` tells where padding is "same"."""
    return _convolution(
        rank, hashable(stride), hashable(padding), hashable(dilation), groups, tuple(kernel)
    )


@functools.lru_cache(maxsize=1024, typed=True)
def _convolution(
    rank: int, stride: Any, padding: Any, dilation: Any, groups: int, kernel: Sizes
) -> Convolution:
    """The op with these arguments, cached: equal calls get the same object."""
    name = f"conv{rank}d"
    if groups < 1:
        raise InvalidArgument(f"{name}: groups must be a positive int, got {groups}")
    strides = per_dimension(stride, rank, name, "stride")
    dilations = per_dimension(dilation, rank, name, "dilation")
    pads: Pairs
    if isinstance(padding, str):
        pads = _named_padding(padding, name, kernel, strides, dilations)
    else:
        given = per_dimension(padding, rank, name, "padding", 0)
        if max(given) >= _WIDEST:
            raise InvalidArgument(
                f"{name}: Given padding={max(given)}, expected padding to be at most {_WIDEST - 1}"
            )
        pads = tuple((p, p) for p in given)
    return Convolution(strides, pads, dilations, groups)


_WIDEST = 1 << 58  # more than memory has addresses for


def _named_padding(name: str, op: str, kernel: Sizes, stride: Sizes, dilation: Sizes) -> Pairs:
    if name == "valid":
        return ((0, 0),) * len(kernel)
    if name != "same":
        raise InvalidArgument(f"{op}: Invalid padding string: {name!r}; use 'valid' or 'same'")
    if max(stride) > 1:
        raise InvalidArgument(
            f"{op}: padding='same' is not supported for strided convolutions, got stride={stride}"
        )
    totals = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    return tuple((total // 2, total - total // 2) for total in totals)


@public(method=False)
def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Dims = 1,
    padding: Dims | str = 0,
    dilation: Dims = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation of signals with kernels.

        y[n, o, i] = bias[o] + sum over c, k of weight[o, c, k] x[n, c, p]
        p = stride i + dilation k - padding

    The size of the output is floor((size + 2 padding - dilation (kernel_size - 1) - 1) / stride) +
    1.

    Args:
        input: Values.
        weight: Kernels.
        bias: Number added to each channel of the output. Default: None.
        stride: Distance between neighbouring windows, an int or one per dimension. Default: 1.
        padding: Width of the padding on both sides, an int or one per dimension; or "valid" for
            none, "same" for an output as large as the input (for stride 1). Default: 0.
        dilation: Distance between neighbouring elements of a window, an int or one per dimension.
            Default: 1.
        groups: Number of groups of channels that are convolved apart; it divides both numbers of
            channels. Default: 1.

    Shapes: (batch, in, length), weight (out, in / groups, *kernel_size), bias (out,) -> (batch,
    out, out); or without batch.
    Dtypes: all of one dtype.
    Errors: ShapeError where channels differ or the kernel is larger than the padded input;
    InvalidArgument for an unknown padding, and for "same" with strides.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.conv1d.html

    >>> ad.conv1d(ad.tensor([[1., 2., 4.]]), ad.tensor([[[-1., 1.]]]))
    tensor([[1., 2.]])
    """
    return _conv(1, input, weight, bias, stride, padding, dilation, groups)


@public(method=False)
def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Dims = 1,
    padding: Dims | str = 0,
    dilation: Dims = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation of images with kernels.

        y[n, o, i] = bias[o] + sum over c, k of weight[o, c, k] x[n, c, p]
        p = stride i + dilation k - padding

    The size of the output is floor((size + 2 padding - dilation (kernel_size - 1) - 1) / stride) +
    1.

    Args:
        input: Values.
        weight: Kernels.
        bias: Number added to each channel of the output. Default: None.
        stride: Distance between neighbouring windows, an int or one per dimension. Default: 1.
        padding: Width of the padding on both sides, an int or one per dimension; or "valid" for
            none, "same" for an output as large as the input (for stride 1). Default: 0.
        dilation: Distance between neighbouring elements of a window, an int or one per dimension.
            Default: 1.
        groups: Number of groups of channels that are convolved apart; it divides both numbers of
            channels. Default: 1.

    Shapes: (batch, in, height, width), weight (out, in / groups, *kernel_size), bias (out,) ->
    (batch, out, out_height, out_width); or without batch.
    Dtypes: all of one dtype.
    Errors: ShapeError where channels differ or the kernel is larger than the padded input;
    InvalidArgument for an unknown padding, and for "same" with strides.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.conv2d.html

    >>> ad.conv2d(ad.ones(1, 1, 3, 3), ad.ones(1, 1, 2, 2), padding='same')
    tensor([[[[4., 4., 2.],
              [4., 4., 2.],
              [2., 2., 1.]]]])
    """
    return _conv(2, input, weight, bias, stride, padding, dilation, groups)


@public(method=False)
def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Dims = 1,
    padding: Dims | str = 0,
    dilation: Dims = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation of volumes with kernels.

        y[n, o, i] = bias[o] + sum over c, k of weight[o, c, k] x[n, c, p]
        p = stride i + dilation k - padding

    The size of the output is floor((size + 2 padding - dilation (kernel_size - 1) - 1) / stride) +
    1.

    Args:
        input: Values.
        weight: Kernels.
        bias: Number added to each channel of the output. Default: None.
        stride: Distance between neighbouring windows, an int or one per dimension. Default: 1.
        padding: Width of the padding on both sides, an int or one per dimension; or "valid" for
            none, "same" for an output as large as the input (for stride 1). Default: 0.
        dilation: Distance between neighbouring elements of a window, an int or one per dimension.
            Default: 1.
        groups: Number of groups of channels that are convolved apart; it divides both numbers of
            channels. Default: 1.

    Shapes: (batch, in, depth, height, width), weight (out, in / groups, *kernel_size), bias (out,)
    -> (batch, out, out_depth, out_height, out_width); or without batch.
    Dtypes: all of one dtype.
    Errors: ShapeError where channels differ or the kernel is larger than the padded input;
    InvalidArgument for an unknown padding, and for "same" with strides.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.conv3d.html

    >>> ad.conv3d(ad.ones(1, 1, 2, 2, 2), ad.ones(1, 1, 2, 2, 2)).item()
    8.0
    """
    return _conv(3, input, weight, bias, stride, padding, dilation, groups)


@functools.lru_cache(maxsize=1024)
def _transposed(
    stride: Sizes, padding: Pairs, dilation: Sizes, groups: int, size: Sizes
) -> ConvolutionInput:
    """The op with these fields; one and the same each time."""
    return ConvolutionInput(stride, padding, dilation, groups, size)


def _conv_transpose(
    rank: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> Tensor:
    name = f"conv_transpose{rank}d"
    if weight._data.ndim != rank + 2:
        raise ShapeError(
            f"{name}: expected {rank + 2}D weight (in, out / groups, *kernel), but got weight of "
            f"size: {list(weight.shape)}"
        )
    strides = per_dimension(stride, rank, name, "stride")
    dilations = per_dimension(dilation, rank, name, "dilation")
    pads = per_dimension(padding, rank, name, "padding", 0)
    extras = per_dimension(output_padding, rank, name, "output_padding", 0)
    for more, s, d in zip(extras, strides, dilations, strict=True):
        if more >= max(s, d):
            raise InvalidArgument(
                f"{name}: output padding must be smaller than either stride or dilation, but got "
                f"output_padding={extras}, stride={strides}, dilation={dilations}"
            )
    x, has_batch = batched(input, rank, name)
    x = hold_sizes(name, x, dims=range(2, rank + 2))
    weight = hold_sizes(name, weight, dims=range(2, rank + 2))
    size = tuple(
        (n - 1) * s - 2 * p + d * (k - 1) + more + 1
        for n, s, p, d, k, more in zip(
            x.shape[2:], strides, pads, dilations, weight.shape[2:], extras, strict=True
        )
    )
    if min(size) < 0:
        raise ShapeError(
            f"{name}: Given input size per channel: {list(x.shape[2:])}. Calculated output size "
            f"per channel: {list(size)}. Output size is too small; use less padding"
        )
    # The window count ignores output padding up to the stride; beyond it, the far padding shrinks.
    pairs = tuple(
        (p, p - more if more >= s else p) for p, more, s in zip(pads, extras, strides, strict=True)
    )
    result: Tensor = apply(_transposed(strides, pairs, dilations, groups, size), x, weight)
    if bias is not None:
        channels = weight.shape[1] * groups
        if bias.shape != (channels,):
            raise ShapeError(
                f"{name}: expected bias to be 1-dimensional with {channels} elements, but got bias "
                f"of size {list(bias.shape)} instead"
            )
        result = result + bias.reshape(-1, *(1,) * rank)
    return result if has_batch else result.squeeze(0)


@public(method=False)
def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Dims = 1,
    padding: Dims | str = 0,
    output_padding: Dims = 0,
    groups: int = 1,
    dilation: Dims = 1,
) -> Tensor:
    """Transposed convolution of signals: each element of the input spreads a kernel.

        y[n, o, stride i + dilation k - padding] += weight[c, o, k] x[n, c, i], for all c, i and k

    The bias is added. It is the transpose of `conv1d`, not its inverse.

    The size of the output is (size - 1) stride - 2 padding + dilation (kernel_size - 1) +
    output_padding + 1.

    Args:
        input: Values.
        weight: Kernels.
        bias: Number added to each channel of the output. Default: None.
        stride: Distance between neighbouring windows, an int or one per dimension. Default: 1.
        padding: Width cut from both sides of the output, an int or one per dimension. Default: 0.
        output_padding: Width added to the end of each dimension of the output, an int or one per
            dimension; below the stride or the dilation. Default: 0.
        groups: Number of groups of channels that are convolved apart; it divides both numbers of
            channels. Default: 1.
        dilation: Distance between neighbouring elements of a window, an int or one per dimension.
            Default: 1.

    Shapes: (batch, in, length) or without batch, weight (in, out / groups, kernel), bias (out,).
    Dtypes: all of one dtype.
    Errors: ShapeError where channels differ; InvalidArgument for an output padding too large.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.conv_transpose1d.html

    >>> ad.conv_transpose1d(ad.tensor([[1., 2.]]), ad.tensor([[[1., 10.]]]), stride=2)
    tensor([[ 1., 10.,  2., 20.]])
    """
    return _conv_transpose(
        1, input, weight, bias, stride, padding, output_padding, groups, dilation
    )


@public(method=False)
def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Dims = 1,
    padding: Dims | str = 0,
    output_padding: Dims = 0,
    groups: int = 1,
    dilation: Dims = 1,
) -> Tensor:
    """Transposed convolution of images: each element of the input spreads a kernel.

        y[n, o, stride i + dilation k - padding] += weight[c, o, k] x[n, c, i], for all c, i and k

    The bias is added. It is the transpose of `conv2d`, not its inverse.

    The size of the output is (size - 1) stride - 2 padding + dilation (kernel_size - 1) +
    output_padding + 1.

    Args:
        input: Values.
        weight: Kernels.
        bias: Number added to each channel of the output. Default: None.
        stride: Distance between neighbouring windows, an int or one per dimension. Default: 1.
        padding: Width cut from both sides of the output, an int or one per dimension. Default: 0.
        output_padding: Width added to the end of each dimension of the output, an int or one per
            dimension; below the stride or the dilation. Default: 0.
        groups: Number of groups of channels that are convolved apart; it divides both numbers of
            channels. Default: 1.
        dilation: Distance between neighbouring elements of a window, an int or one per dimension.
            Default: 1.

    Shapes: (batch, in, height, width) or without batch, weight (in, out / groups, kh, kw).
    Dtypes: all of one dtype.
    Errors: ShapeError where channels differ; InvalidArgument for an output padding too large.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.conv_transpose2d.html

    >>> ad.conv_transpose2d(ad.ones(1, 1, 1, 2), ad.ones(1, 1, 2, 2))
    tensor([[[[1., 2., 1.],
              [1., 2., 1.]]]])
    """
    return _conv_transpose(
        2, input, weight, bias, stride, padding, output_padding, groups, dilation
    )


@public(method=False)
def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Dims = 1,
    padding: Dims | str = 0,
    output_padding: Dims = 0,
    groups: int = 1,
    dilation: Dims = 1,
) -> Tensor:
    """Transposed convolution of volumes: each element of the input spreads a kernel.

        y[n, o, stride i + dilation k - padding] += weight[c, o, k] x[n, c, i], for all c, i and k

    The bias is added. It is the transpose of `conv3d`, not its inverse.

    The size of the output is (size - 1) stride - 2 padding + dilation (kernel_size - 1) +
    output_padding + 1.

    Args:
        input: Values.
        weight: Kernels.
        bias: Number added to each channel of the output. Default: None.
        stride: Distance between neighbouring windows, an int or one per dimension. Default: 1.
        padding: Width cut from both sides of the output, an int or one per dimension. Default: 0.
        output_padding: Width added to the end of each dimension of the output, an int or one per
            dimension; below the stride or the dilation. Default: 0.
        groups: Number of groups of channels that are convolved apart; it divides both numbers of
            channels. Default: 1.
        dilation: Distance between neighbouring elements of a window, an int or one per dimension.
            Default: 1.

    Shapes: (batch, in, depth, height, width) or without batch, weight (in, out / groups, *kernel).
    Dtypes: all of one dtype.
    Errors: ShapeError where channels differ; InvalidArgument for an output padding too large.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.conv_transpose3d.html

    >>> ad.conv_transpose3d(ad.ones(1, 1, 1, 1, 1), ad.ones(1, 2, 2, 2, 2)).shape
    adjoint.Size([1, 2, 2, 2, 2])
    """
    return _conv_transpose(
        3, input, weight, bias, stride, padding, output_padding, groups, dilation
    )
