"""Unpooling: values go back to where the maxima of windows were."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.errors import InvalidArgument
from ...core.mode import refuse_where
from ...core.spec import prod
from ...core.tensor_type import Tensor
from ...runtime.public import explaining
from ..shape.sizes import hold_sizes
from .windows import per_dimension

if TYPE_CHECKING:
    from ...ops.argument_types import Dims

__all__ = ["max_unpool1d", "max_unpool2d", "max_unpool3d"]


def _max_unpool(
    rank: int,
    input: Tensor,
    indices: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    output_size: Any,
) -> Tensor:
    name = f"max_unpool{rank}d"
    kernel = per_dimension(kernel_size, rank, name, "kernel_size")
    strides = kernel if stride is None else per_dimension(stride, rank, name, "stride")
    pads = per_dimension(padding, rank, name, "padding", 0)
    if output_size is None:
        size = tuple(
            (n - 1) * s - 2 * p + k
            for n, s, p, k in zip(input.shape[-rank:], strides, pads, kernel, strict=True)
        )
    else:
        size = tuple(output_size)[-rank:]
    input = hold_sizes(name, input)
    lead = tuple(input.shape[:-rank])
    values, places = (x.reshape(*lead, -1) for x in (input, indices))
    if places._data.size:
        refuse_where(
            ((places < 0) | (places >= prod(size))).any(),
            lambda: InvalidArgument(
                f"{name}: found an invalid max index (output of size {size}); pass the output_size "
                "of the pooled input"
            ),
        )
    zeros = input.new_zeros((*lead, prod(size)))
    return zeros.scatter(-1, places, values).reshape(*lead, *size)


@explaining
def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Dims,
    stride: Dims | None = None,
    padding: Dims = 0,
    output_size: Dims | None = None,
) -> Tensor:
    """Zeros with the results of `max_pool1d` back at their indices.

        y[indices[i]] = x[i], zero elsewhere

    The size of the output is (size - 1) stride - 2 padding + kernel_size, or `output_size`.

    Args:
        input: Values.
        indices: Places, as the pooling returned them with `return_indices`.
        kernel_size: Size of the windows that the pooling had.
        stride: Distance of the windows that the pooling had. Default: None, kernel_size.
        padding: Width of the padding that the pooling had. Default: 0.
        output_size: Size of the output, its last dimensions or the whole shape. Default: None, the
            formula's.

    Shapes: input and indices (batch, channels, length) or without batch -> the same with the size
    before pooling.
    Errors: InvalidArgument for an index outside of the output.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.max_unpool1d.html

    >>> i = ad.zeros(1, 2, dtype=ad.int64)
    >>> from adjoint.ops.nn.averaging import max_unpool1d
    >>> max_unpool1d(ad.ones(1, 2), i, 2).shape
    adjoint.Size([1, 4])
    """
    return _max_unpool(1, input, indices, kernel_size, stride, padding, output_size)


@explaining
def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Dims,
    stride: Dims | None = None,
    padding: Dims = 0,
    output_size: Dims | None = None,
) -> Tensor:
    """Zeros with the results of `max_pool2d` back at their indices.

        y[indices[i]] = x[i], zero elsewhere

    The size of the output is (size - 1) stride - 2 padding + kernel_size, or `output_size`.

    Args:
        input: Values.
        indices: Places, as the pooling returned them with `return_indices`.
        kernel_size: Size of the windows that the pooling had.
        stride: Distance of the windows that the pooling had. Default: None, kernel_size.
        padding: Width of the padding that the pooling had. Default: 0.
        output_size: Size of the output, its last dimensions or the whole shape. Default: None, the
            formula's.

    Shapes: input and indices (batch, channels, height, width) or without batch -> the same with the
    size before pooling.
    Errors: InvalidArgument for an index outside of the output.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.max_unpool2d.html

    >>> i = ad.zeros(1, 2, 2, dtype=ad.int64)
    >>> from adjoint.ops.nn.averaging import max_unpool2d
    >>> max_unpool2d(ad.ones(1, 2, 2), i, 2).shape
    adjoint.Size([1, 4, 4])
    """
    return _max_unpool(2, input, indices, kernel_size, stride, padding, output_size)


@explaining
def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Dims,
    stride: Dims | None = None,
    padding: Dims = 0,
    output_size: Dims | None = None,
) -> Tensor:
    """Zeros with the results of `max_pool3d` back at their indices.

        y[indices[i]] = x[i], zero elsewhere

    The size of the output is (size - 1) stride - 2 padding + kernel_size, or `output_size`.

    Args:
        input: Values.
        indices: Places, as the pooling returned them with `return_indices`.
        kernel_size: Size of the windows that the pooling had.
        stride: Distance of the windows that the pooling had. Default: None, kernel_size.
        padding: Width of the padding that the pooling had. Default: 0.
        output_size: Size of the output, its last dimensions or the whole shape. Default: None, the
            formula's.

    Shapes: input and indices (batch, channels, depth, height, width) or without batch -> the same
    with the size before pooling.
    Errors: InvalidArgument for an index outside of the output.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.max_unpool3d.html

    >>> i = ad.zeros(1, 2, 2, 2, dtype=ad.int64)
    >>> from adjoint.ops.nn.averaging import max_unpool3d
    >>> max_unpool3d(ad.ones(1, 2, 2, 2), i, 2).shape
    adjoint.Size([1, 4, 4, 4])
    """
    return _max_unpool(3, input, indices, kernel_size, stride, padding, output_size)
