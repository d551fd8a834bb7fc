"""Pooling layers: maxima, means, powers, random windows, and the reverse of maxima."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...tensor import Tensor
from .. import functional as F  # noqa: N812 - the name everyone knows it by
from .adaptive_pooling import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AdaptiveMaxPool3d,
)
from .conv import per_dimension
from .fractional_pooling import FractionalMaxPool2d, FractionalMaxPool3d
from .module import Module

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d", "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d",
    "FractionalMaxPool2d", "FractionalMaxPool3d", "LPPool1d", "LPPool2d", "LPPool3d", "MaxPool1d",
    "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d",
]  # fmt: skip


class _MaxPool(Module):
    _shown_as = (
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

    def forward(self, input: Tensor) -> Tensor:
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
    _shown_as = "kernel_size={kernel_size}, stride={stride}, padding={padding}"
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

    def forward(self, input: Tensor) -> Tensor:
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


class MaxPool1d(_MaxPool):
    """Largest value of each window of signals.

        y[i] = max over k of x[stride i + dilation k - padding]

    Padding never wins. The number of windows is floor((size + 2 padding - dilation (kernel_size -
    1) - 1) / stride) + 1.

    Args:
        kernel_size: Size of the windows, an int or one per dimension.
        stride: Distance between neighbouring windows, an int or one per dimension. Default: None,
            kernel_size.
        padding: Width of the padding on both sides, an int or one per dimension; at most half of
            the window. Default: 0.
        dilation: Distance between neighbouring elements of a window, an int or one per dimension.
            Default: 1.
        return_indices: Return the places of the maxima, too, as indices into the flattened spatial
            dimensions. Default: False.
        ceil_mode: Round the number of windows up, not down: the last one may reach over the end.
            Default: False.

    Shapes: (batch, channels, length) -> (batch, channels, out), or without batch; with
    `return_indices` a pair of such tensors.
    Errors: ShapeError where no window fits; InvalidArgument for padding of more than half a window,
    in the call.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MaxPool1d.html

    >>> ad.nn.MaxPool1d(2)(ad.zeros(1, 1, 4)).shape
    adjoint.Size([1, 1, 2])
    """

    rank = 1


class MaxPool2d(_MaxPool):
    """Largest value of each window of images.

        y[i] = max over k of x[stride i + dilation k - padding]

    Padding never wins. The number of windows is floor((size + 2 padding - dilation (kernel_size -
    1) - 1) / stride) + 1.

    Args:
        kernel_size: Size of the windows, an int or one per dimension.
        stride: Distance between neighbouring windows, an int or one per dimension. Default: None,
            kernel_size.
        padding: Width of the padding on both sides, an int or one per dimension; at most half of
            the window. Default: 0.
        dilation: Distance between neighbouring elements of a window, an int or one per dimension.
            Default: 1.
        return_indices: Return the places of the maxima, too, as indices into the flattened spatial
            dimensions. Default: False.
        ceil_mode: Round the number of windows up, not down: the last one may reach over the end.
            Default: False.

    Shapes: (batch, channels, height, width) -> (batch, channels, out_height, out_width), or without
    batch; with `return_indices` a pair of such tensors.
    Errors: ShapeError where no window fits; InvalidArgument for padding of more than half a window,
    in the call.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MaxPool2d.html

    >>> ad.nn.MaxPool2d(2)(ad.zeros(1, 1, 4, 4)).shape
    adjoint.Size([1, 1, 2, 2])
    """

    rank = 2


class MaxPool3d(_MaxPool):
    """Largest value of each window of volumes.

        y[i] = max over k of x[stride i + dilation k - padding]

    Padding never wins. The number of windows is floor((size + 2 padding - dilation (kernel_size -
    1) - 1) / stride) + 1.

    Args:
        kernel_size: Size of the windows, an int or one per dimension.
        stride: Distance between neighbouring windows, an int or one per dimension. Default: None,
            kernel_size.
        padding: Width of the padding on both sides, an int or one per dimension; at most half of
            the window. Default: 0.
        dilation: Distance between neighbouring elements of a window, an int or one per dimension.
            Default: 1.
        return_indices: Return the places of the maxima, too, as indices into the flattened spatial
            dimensions. Default: False.
        ceil_mode: Round the number of windows up, not down: the last one may reach over the end.
            Default: False.

    Shapes: (batch, channels, depth, height, width) -> (batch, channels, out_depth, out_height,
    out_width), or without batch; with `return_indices` a pair of such tensors.
    Errors: ShapeError where no window fits; InvalidArgument for padding of more than half a window,
    in the call.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MaxPool3d.html

    >>> ad.nn.MaxPool3d(2)(ad.zeros(1, 1, 4, 4, 4)).shape
    adjoint.Size([1, 1, 2, 2, 2])
    """

    rank = 3


class AvgPool1d(_AvgPool):
    """Mean of each window of signals.

        y[i] = sum over k of x[stride i + k - padding] / number of elements

    Padding counts as zeros. The number of windows is floor((size + 2 padding - kernel_size) /
    stride) + 1.

    Args:
        kernel_size: Size of the windows, an int or one per dimension.
        stride: Distance between neighbouring windows, an int or one per dimension. Default: None,
            kernel_size.
        padding: Width of the padding on both sides, an int or one per dimension; at most half of
            the window. Default: 0.
        ceil_mode: Round the number of windows up, not down: the last one may reach over the end.
            Default: False.
        count_include_pad: Whether the divisor counts the padding in a window. Default: True.
        divisor_override: Divisor of each sum. Default: None, the number of elements in the window.

    Shapes: (batch, channels, length) -> (batch, channels, out), or without batch.
    Errors: ShapeError where no window fits; InvalidArgument for padding of more than half a window,
    in the call.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.AvgPool1d.html

    >>> ad.nn.AvgPool1d(2)(ad.zeros(1, 1, 4)).shape
    adjoint.Size([1, 1, 2])
    """

    rank = 1


class AvgPool2d(_AvgPool):
    """Mean of each window of images.

        y[i] = sum over k of x[stride i + k - padding] / number of elements

    Padding counts as zeros. The number of windows is floor((size + 2 padding - kernel_size) /
    stride) + 1.

    Args:
        kernel_size: Size of the windows, an int or one per dimension.
        stride: Distance between neighbouring windows, an int or one per dimension. Default: None,
            kernel_size.
        padding: Width of the padding on both sides, an int or one per dimension; at most half of
            the window. Default: 0.
        ceil_mode: Round the number of windows up, not down: the last one may reach over the end.
            Default: False.
        count_include_pad: Whether the divisor counts the padding in a window. Default: True.
        divisor_override: Divisor of each sum. Default: None, the number of elements in the window.

    Shapes: (batch, channels, height, width) -> (batch, channels, out_height, out_width), or without
    batch.
    Errors: ShapeError where no window fits; InvalidArgument for a divisor of 0, and for padding of
    more than half a window, in the call.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.AvgPool2d.html

    >>> ad.nn.AvgPool2d(2)(ad.zeros(1, 1, 4, 4)).shape
    adjoint.Size([1, 1, 2, 2])
    """

    rank = 2


class AvgPool3d(_AvgPool):
    """Mean of each window of volumes.

        y[i] = sum over k of x[stride i + k - padding] / number of elements

    Padding counts as zeros. The number of windows is floor((size + 2 padding - kernel_size) /
    stride) + 1.

    Args:
        kernel_size: Size of the windows, an int or one per dimension.
        stride: Distance between neighbouring windows, an int or one per dimension. Default: None,
            kernel_size.
        padding: Width of the padding on both sides, an int or one per dimension; at most half of
            the window. Default: 0.
        ceil_mode: Round the number of windows up, not down: the last one may reach over the end.
            Default: False.
        count_include_pad: Whether the divisor counts the padding in a window. Default: True.
        divisor_override: Divisor of each sum. Default: None, the number of elements in the window.

    Shapes: (batch, channels, depth, height, width) -> (batch, channels, out_depth, out_height,
    out_width), or without batch.
    Errors: ShapeError where no window fits; InvalidArgument for a divisor of 0, and for padding of
    more than half a window, in the call.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.AvgPool3d.html

    >>> ad.nn.AvgPool3d(2)(ad.zeros(1, 1, 4, 4, 4)).shape
    adjoint.Size([1, 1, 2, 2, 2])
    """

    rank = 3


class _LPPool(Module):
    _shown_as = (
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

    def forward(self, input: Tensor) -> Tensor:
        """The roots of the sums of powers."""
        return getattr(F, f"lp_pool{self.rank}d")(
            input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode
        )


class LPPool1d(_LPPool):
    """p-norm of each window of signals.

        y[i] = (sum over k of x[stride i + k]^p)^(1 / p)

    Args:
        norm_type: Exponent p.
        kernel_size: Size of the windows, an int or one per dimension.
        stride: Distance between neighbouring windows, an int or one per dimension. Default: None,
            kernel_size.
        ceil_mode: Round the number of windows up, not down: the last one may reach over the end.
            Default: False.

    Shapes: (batch, channels, length) -> (batch, channels, out), or without batch.
    Errors: ShapeError where no window fits, in the call.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LPPool1d.html

    >>> ad.nn.LPPool1d(2, 2)(ad.tensor([[[3., 4.]]]))
    tensor([[[5.]]])
    """

    rank = 1


class LPPool2d(_LPPool):
    """p-norm of each window of images.

        y[i] = (sum over k of x[stride i + k]^p)^(1 / p)

    Args:
        norm_type: Exponent p.
        kernel_size: Size of the windows, an int or one per dimension.
        stride: Distance between neighbouring windows, an int or one per dimension. Default: None,
            kernel_size.
        ceil_mode: Round the number of windows up, not down: the last one may reach over the end.
            Default: False.

    Shapes: (batch, channels, height, width) -> (batch, channels, out_height, out_width), or without
    batch.
    Errors: ShapeError where no window fits, in the call.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LPPool2d.html

    >>> ad.nn.LPPool2d(2, 2)(ad.ones(1, 1, 2, 2)).item()
    2.0
    """

    rank = 2


class LPPool3d(_LPPool):
    """p-norm of each window of volumes.

        y[i] = (sum over k of x[stride i + k]^p)^(1 / p)

    Args:
        norm_type: Exponent p.
        kernel_size: Size of the windows, an int or one per dimension.
        stride: Distance between neighbouring windows, an int or one per dimension. Default: None,
            kernel_size.
        ceil_mode: Round the number of windows up, not down: the last one may reach over the end.
            Default: False.

    Shapes: (batch, channels, depth, height, width) -> (batch, channels, out_depth, out_height,
    out_width), or without batch.
    Errors: ShapeError where no window fits, in the call.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LPPool3d.html

    >>> ad.nn.LPPool3d(1, 2)(ad.ones(1, 1, 2, 2, 2)).item()
    8.0
    """

    rank = 3


class _MaxUnpool(Module):
    _shown_as = "kernel_size={kernel_size}, stride={stride}, padding={padding}"
    rank: int

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        self.kernel_size = per_dimension(kernel_size, self.rank)
        self.stride = per_dimension(kernel_size if stride is None else stride, self.rank)
        self.padding = per_dimension(padding, self.rank)

    def forward(
        self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None
    ) -> Tensor:
        """Zeros with the input at the indices."""
        return getattr(F, f"max_unpool{self.rank}d")(
            input, indices, self.kernel_size, self.stride, self.padding, output_size
        )


class MaxUnpool1d(_MaxUnpool):
    """Zeros with the results of MaxPool1d back at their indices.

        y[indices[i]] = x[i], zero elsewhere

    The size of the output is (size - 1) stride - 2 padding + kernel_size, or `output_size`, which
    `forward` takes.

    Args:
        kernel_size: Size of the windows that the pooling had.
        stride: Distance of the windows that the pooling had. Default: None, kernel_size.
        padding: Width of the padding that the pooling had. Default: 0.

    Shapes: input and indices (batch, channels, length) or without batch -> the same with the size
    before pooling.
    Errors: InvalidArgument for an index outside of the output.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MaxUnpool1d.html

    >>> y, i = ad.nn.MaxPool1d(2, return_indices=True)(ad.tensor([[1., 2., 4., 3.]]))
    >>> ad.nn.MaxUnpool1d(2)(y, i)
    tensor([[0., 2., 4., 0.]])
    """

    rank = 1


class MaxUnpool2d(_MaxUnpool):
    """Zeros with the results of MaxPool2d back at their indices.

        y[indices[i]] = x[i], zero elsewhere

    The size of the output is (size - 1) stride - 2 padding + kernel_size, or `output_size`, which
    `forward` takes.

    Args:
        kernel_size: Size of the windows that the pooling had.
        stride: Distance of the windows that the pooling had. Default: None, kernel_size.
        padding: Width of the padding that the pooling had. Default: 0.

    Shapes: input and indices (batch, channels, height, width) or without batch -> the same with the
    size before pooling.
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

        y[indices[i]] = x[i], zero elsewhere

    The size of the output is (size - 1) stride - 2 padding + kernel_size, or `output_size`, which
    `forward` takes.

    Args:
        kernel_size: Size of the windows that the pooling had.
        stride: Distance of the windows that the pooling had. Default: None, kernel_size.
        padding: Width of the padding that the pooling had. Default: 0.

    Shapes: input and indices (batch, channels, depth, height, width) or without batch -> the same
    with the size before pooling.
    Errors: InvalidArgument for an index outside of the output.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MaxUnpool3d.html

    >>> y, i = ad.nn.MaxPool3d(2, return_indices=True)(ad.ones(1, 2, 2, 2))
    >>> ad.nn.MaxUnpool3d(2)(y, i).sum().item()
    1.0
    """

    rank = 3


for _kind in (
    AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d, AdaptiveMaxPool1d,
    AdaptiveMaxPool2d, AdaptiveMaxPool3d, FractionalMaxPool2d, FractionalMaxPool3d,
):  # fmt: skip
    _kind.__module__ = __name__  # where PyTorch has them: files name them so
