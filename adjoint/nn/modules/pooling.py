"""Pooling layers: maxima, means, powers, random windows, and the reverse of maxima."""

from __future__ import annotations

from typing import Any

from ...core.errors import InvalidArgument
from .. import functional as F  # noqa: N812 - the name everyone knows it by
from .conv import per_dimension
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
    _shown_as = "output_size={output_size}"
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
    _shown_as = "output_size={output_size}"
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
    _shown_as = "kernel_size={kernel_size}, stride={stride}, padding={padding}"
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
