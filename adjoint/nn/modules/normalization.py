"""Layer, group, RMS and local response normalization."""

from __future__ import annotations

from typing import Any

from ...core.errors import InvalidArgument, ShapeError
from ...tensor import Tensor
from .. import functional as F  # noqa: N812 - the name everyone knows it by
from .. import init
from .module import Module

__all__ = ["CrossMapLRN2d", "GroupNorm", "LayerNorm", "LocalResponseNorm", "RMSNorm"]


def _shape(value: Any) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else tuple(value)


class Affine(Module):
    """The base of layers that scale and shift what they normalized, where they have the weights."""

    def reset_parameters(self) -> None:
        """Scale 1, shift 0.

        >>> ad.nn.LayerNorm(2).reset_parameters()
        """
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)


class LayerNorm(Affine):
    """Layer normalization over the last dimensions (Ba et al., 2016).

        y = (x - mean) / sqrt(var + eps) * weight + bias

    mean and var are over the dimensions of normalized_shape.

    Args:
        normalized_shape: Shape of the last dimensions, over which the statistics are; an int is one
            dimension.
        eps: Number added to the variance, so that nothing is divided by zero. Default: 1e-5.
        elementwise_affine: Whether to have a learned weight (and bias) for each element of
            normalized_shape. Default: True.
        bias: Whether to have a bias, where there is a weight. Default: True.
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.

    Shapes: (..., *normalized_shape); the result has the same.
    Errors: ShapeError where the input does not end in normalized_shape.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LayerNorm.html

    >>> ad.nn.LayerNorm(4)(ad.randn(2, 4)).shape
    adjoint.Size([2, 4])
    """

    _shown_as = (
        "{normalized_shape}, eps={eps}, elementwise_affine={elementwise_affine}, bias={bias}"
    )

    def __init__(
        self,
        normalized_shape: Any,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        shape, shifts = self.normalized_shape, elementwise_affine and bias
        self._new_parameter("weight", shape, device, dtype, elementwise_affine)
        self._new_parameter("bias", shape, device, dtype, shifts)
        self.reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        """The normalized input."""
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(Module):
    """Root mean square normalization over the last dimensions (Zhang and Sennrich, 2019).

        y = x / sqrt(mean of x^2 + eps) * weight

    The mean is over the dimensions of normalized_shape.

    Args:
        normalized_shape: Shape of the last dimensions, over which the statistics are; an int is one
            dimension.
        eps: Number added to the mean of squares. Default: None, the machine epsilon of the input's
            dtype (of float32 for narrower ones).
        elementwise_affine: Whether to have a learned weight for each element of normalized_shape.
            Default: True.
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.

    Shapes: (..., *normalized_shape); the result has the same.
    Errors: ShapeError where the input does not end in normalized_shape.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.RMSNorm.html

    >>> ad.nn.RMSNorm(4)(ad.randn(2, 4)).shape
    adjoint.Size([2, 4])
    """

    _shown_as = "{normalized_shape}, eps={eps}, elementwise_affine={elementwise_affine}"

    def __init__(
        self,
        normalized_shape: Any,
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self._new_parameter("weight", self.normalized_shape, device, dtype, elementwise_affine)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Scale 1.

        >>> ad.nn.RMSNorm(2).reset_parameters()
        """
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """The normalized input."""
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)


class GroupNorm(Affine):
    """Group normalization (Wu and He, 2018).

        y = (x - mean) / sqrt(var + eps) * weight + bias

    mean and var are those of each group of channels of each sample, over all places.

    Args:
        num_groups: Number of groups of channels.
        num_channels: Number of channels.
        eps: Number added to the variance, so that nothing is divided by zero. Default: 1e-5.
        affine: Whether to have a learned weight and bias for each channel. Default: True.
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.
        bias: Whether to have a bias, where there is a weight. Default: True.

    Shapes: (batch, channels, ...); the result has the same.
    Errors: InvalidArgument where num_groups does not divide num_channels.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.GroupNorm.html

    >>> ad.nn.GroupNorm(2, 4)(ad.randn(2, 4, 3)).shape
    adjoint.Size([2, 4, 3])
    """

    _shown_as = "{num_groups}, {num_channels}, eps={eps}, affine={affine}, bias={bias}"

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_channels % num_groups:
            raise InvalidArgument(
                f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})"
            )
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        self._new_parameter("weight", (num_channels,), device, dtype, affine)
        self._new_parameter("bias", (num_channels,), device, dtype, affine and bias)
        self.reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        """The normalized input."""
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)


class LocalResponseNorm(Module):
    """Local response normalization (Krizhevsky et al., 2012).

        y = x / (k + alpha m)^beta

    m is the mean of x^2 over `size` neighbouring channels, with zeros beyond the first and last.

    Args:
        size: Number of channels in each sum.
        alpha: Factor of the mean of squares. Default: 0.0001.
        beta: Exponent. Default: 0.75.
        k: Number added to it. Default: 1.0.

    Shapes: (batch, channels, ...), at least three dimensions.
    Errors: ShapeError for fewer.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LocalResponseNorm.html

    >>> ad.nn.LocalResponseNorm(2)(ad.zeros(1, 5, 7)).shape
    adjoint.Size([1, 5, 7])
    """

    _shown_as = "{size}, alpha={alpha}, beta={beta}, k={k}"

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Tensor) -> Tensor:
        """The normalized input."""
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)


class CrossMapLRN2d(LocalResponseNorm):
    """Local response normalization of images, under its name in older models.

        y = x / (k + alpha m)^beta

    m is the mean of x^2 over `size` neighbouring channels, with zeros beyond the first and last.

    Args:
        size: Number of channels in each sum.
        alpha: Factor of the mean of squares. Default: 0.0001.
        beta: Exponent. Default: 0.75.
        k: Number added to it. Default: 1.

    Shapes: (batch, channels, height, width).
    Errors: ShapeError for other ranks.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LocalResponseNorm.html

    >>> ad.nn.CrossMapLRN2d(3)(ad.zeros(1, 5, 2, 2)).shape
    adjoint.Size([1, 5, 2, 2])
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__(size, alpha, beta, k)

    def forward(self, input: Tensor) -> Tensor:
        """The normalized input."""
        if input.ndim != 4:
            raise ShapeError(f"CrossMapLRN2d: Expected input to be 4D, got {input.ndim}D instead.")
        return super().forward(input)
