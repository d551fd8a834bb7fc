"""Batch normalization, and instance normalization, which shares its statistics."""

from __future__ import annotations

from typing import Any

from ...autograd.modes import no_grad
from ...autograd.recording import is_captured
from ...core.errors import ShapeError
from ...ops.create.creation import empty, tensor
from ...ops.create.like import zeros_like
from ...tensor import Tensor
from .. import functional as F  # noqa: N812 - the name everyone knows it by
from ..parameter import Parameter
from .normalization import Affine

__all__ = [
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "InstanceNorm1d", "InstanceNorm2d",
    "InstanceNorm3d",
]  # fmt: skip


class _NormBase(Affine):
    """Scale, shift and running statistics per channel."""

    _version = 2
    ranks: tuple[int, ...]  # that the input may have

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats

        def fresh() -> Any:
            return empty((num_features,), device=device, dtype=dtype)

        self.register_parameter("weight", Parameter(fresh()) if affine else None)
        self.register_parameter("bias", Parameter(fresh()) if affine and bias else None)
        track = track_running_stats
        self.register_buffer("running_mean", fresh() if track else None)
        self.register_buffer("running_var", fresh() if track else None)
        self.register_buffer("num_batches_tracked", tensor(0, device=device) if track else None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Forget the running statistics: mean 0, variance 1.

        >>> ad.nn.BatchNorm1d(2).reset_running_stats()
        """
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Scale 1, shift 0, fresh running statistics.

        >>> ad.nn.BatchNorm1d(2).reset_parameters()
        """
        self.reset_running_stats()
        super().reset_parameters()

    def _check_input_dim(self, input: Any) -> None:
        if input.ndim not in self.ranks:
            expected = " or ".join(f"{rank}D" for rank in self.ranks)
            raise ShapeError(
                f"{self._get_name()}: expected {expected} input (got {input.ndim}D input of shape "
                f"{tuple(input.shape)})"
            )

    def _update_factor(self) -> float:
        """How far the running statistics move towards this batch's, after counting the batch."""
        if not (self.training and self.track_running_stats):
            return 0.0 if self.momentum is None else self.momentum
        self.num_batches_tracked.add_(1)
        if self.momentum is not None:
            return self.momentum
        return 1.0 / float(self.num_batches_tracked)  # a plain average over all batches

    def extra_repr(self) -> str:
        """The settings."""
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        key = prefix + "num_batches_tracked"
        old = local_metadata.get("version")
        if self.track_running_stats and (old is None or old < 2) and key not in state_dict:
            # Version 1 did not have the counter.
            state_dict[key] = self.num_batches_tracked.detach()
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )


class _BatchNorm(_NormBase):
    def forward(self, input: Tensor) -> Tensor:
        """The normalized input; training updates the running statistics."""
        self._check_input_dim(input)
        averages = self.momentum is None and self.training and self.track_running_stats
        if averages and is_captured(input):
            return self._captured(input)
        factor = self._update_factor()
        use_batch = self.training or self.running_mean is None
        update = not self.training or self.track_running_stats
        return F.batch_norm(
            input,
            self.running_mean if update else None,
            self.running_var if update else None,
            self.weight,
            self.bias,
            use_batch,
            factor,
            self.eps,
        )

    def _captured(self, input: Any) -> Any:
        """Normalize with a plain average, whose factor a captured function knows as a tensor."""
        self.num_batches_tracked.add_(1)
        if not input.numel():  # which has no statistics
            return F.batch_norm(input, None, None, self.weight, self.bias, True, 0.0, self.eps)
        mean, var = zeros_like(self.running_mean), zeros_like(self.running_var)
        y = F.batch_norm(input, mean, var, self.weight, self.bias, True, 1.0, self.eps)
        with no_grad():
            share = self.num_batches_tracked.to(mean.dtype).reciprocal()
            for running, batch in ((self.running_mean, mean), (self.running_var, var)):
                running.add_((batch - running) * share)
        return y


class BatchNorm1d(_BatchNorm):
    """Batch normalization of features, or of the channels of signals (Ioffe and Szegedy, 2015).

        y = (x - mean) / sqrt(var + eps) * weight + bias
        running = (1 - momentum) running + momentum batch's

    mean and var are those of each channel over the batch and all places in training, where the
    running statistics move towards them, too (the variance without bias); in evaluation mode they
    are the running statistics, if there are any.

    Args:
        num_features: Number of channels.
        eps: Number added to the variance, so that nothing is divided by zero. Default: 1e-5.
        momentum: Share of the new statistics in the running ones. None: the plain mean of all
            batches. Default: 0.1.
        affine: Whether to have a learned weight and bias for each channel. Default: True.
        track_running_stats: Whether to keep running statistics, which evaluation mode uses.
            Default: True.
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.
        bias: Whether to have a bias, where `affine`. Default: True.

    Shapes: (batch, features) or (batch, channels, length); the result has the same.
    Errors: ShapeError for other ranks; InvalidArgument where training has one value per channel.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.BatchNorm1d.html

    >>> ad.nn.BatchNorm1d(3)(ad.randn(4, 3)).shape
    adjoint.Size([4, 3])
    """

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalization of the channels of images (Ioffe and Szegedy, 2015).

        y = (x - mean) / sqrt(var + eps) * weight + bias
        running = (1 - momentum) running + momentum batch's

    mean and var are those of each channel over the batch and all places in training, where the
    running statistics move towards them, too (the variance without bias); in evaluation mode they
    are the running statistics, if there are any.

    Args:
        num_features: Number of channels.
        eps: Number added to the variance, so that nothing is divided by zero. Default: 1e-5.
        momentum: Share of the new statistics in the running ones. None: the plain mean of all
            batches. Default: 0.1.
        affine: Whether to have a learned weight and bias for each channel. Default: True.
        track_running_stats: Whether to keep running statistics, which evaluation mode uses.
            Default: True.
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.
        bias: Whether to have a bias, where `affine`. Default: True.

    Shapes: (batch, channels, height, width); the result has the same.
    Errors: ShapeError for other ranks; InvalidArgument where training has one value per channel.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.BatchNorm2d.html

    >>> ad.nn.BatchNorm2d(3)(ad.randn(2, 3, 4, 4)).shape
    adjoint.Size([2, 3, 4, 4])
    """

    ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """Batch normalization of the channels of volumes (Ioffe and Szegedy, 2015).

        y = (x - mean) / sqrt(var + eps) * weight + bias
        running = (1 - momentum) running + momentum batch's

    mean and var are those of each channel over the batch and all places in training, where the
    running statistics move towards them, too (the variance without bias); in evaluation mode they
    are the running statistics, if there are any.

    Args:
        num_features: Number of channels.
        eps: Number added to the variance, so that nothing is divided by zero. Default: 1e-5.
        momentum: Share of the new statistics in the running ones. None: the plain mean of all
            batches. Default: 0.1.
        affine: Whether to have a learned weight and bias for each channel. Default: True.
        track_running_stats: Whether to keep running statistics, which evaluation mode uses.
            Default: True.
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.
        bias: Whether to have a bias, where `affine`. Default: True.

    Shapes: (batch, channels, depth, height, width); the result has the same.
    Errors: ShapeError for other ranks; InvalidArgument where training has one value per channel.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.BatchNorm3d.html

    >>> ad.nn.BatchNorm3d(3)(ad.randn(2, 3, 2, 2, 2)).shape
    adjoint.Size([2, 3, 2, 2, 2])
    """

    ranks = (5,)


class _InstanceNorm(_NormBase):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )

    def forward(self, input: Tensor) -> Tensor:
        """The normalized input."""
        self._check_input_dim(input)
        batched = input if input.ndim == self.ranks[-1] else input.unsqueeze(0)
        result = F.instance_norm(
            batched,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            0.0 if self.momentum is None else self.momentum,
            self.eps,
        )
        return result if batched is input else result.squeeze(0)


class InstanceNorm1d(_InstanceNorm):
    """Instance normalization of the channels of signals (Ulyanov et al., 2016).

        y = (x - mean) / sqrt(var + eps) * weight + bias

    mean and var are those of each channel of each sample over all places; in evaluation mode with
    `track_running_stats` they are the running statistics.

    Args:
        num_features: Number of channels.
        eps: Number added to the variance, so that nothing is divided by zero. Default: 1e-5.
        momentum: Share of the new statistics in the running ones. Default: 0.1.
        affine: Whether to have a learned weight and bias for each channel. Default: False.
        track_running_stats: Whether to keep running statistics, which evaluation mode uses.
            Default: False.
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.
        bias: Whether to have a bias, where `affine`. Default: True.

    Shapes: (batch, channels, length) or without batch; the result has the same.
    Errors: ShapeError for other ranks; InvalidArgument where a channel has one value only.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.InstanceNorm1d.html

    >>> ad.nn.InstanceNorm1d(3)(ad.randn(2, 3, 4)).shape
    adjoint.Size([2, 3, 4])
    """

    ranks = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Instance normalization of the channels of images (Ulyanov et al., 2016).

        y = (x - mean) / sqrt(var + eps) * weight + bias

    mean and var are those of each channel of each sample over all places; in evaluation mode with
    `track_running_stats` they are the running statistics.

    Args:
        num_features: Number of channels.
        eps: Number added to the variance, so that nothing is divided by zero. Default: 1e-5.
        momentum: Share of the new statistics in the running ones. Default: 0.1.
        affine: Whether to have a learned weight and bias for each channel. Default: False.
        track_running_stats: Whether to keep running statistics, which evaluation mode uses.
            Default: False.
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.
        bias: Whether to have a bias, where `affine`. Default: True.

    Shapes: (batch, channels, height, width) or without batch; the result has the same.
    Errors: ShapeError for other ranks; InvalidArgument where a channel has one value only.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.InstanceNorm2d.html

    >>> ad.nn.InstanceNorm2d(3)(ad.randn(2, 3, 4, 4)).shape
    adjoint.Size([2, 3, 4, 4])
    """

    ranks = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Instance normalization of the channels of volumes (Ulyanov et al., 2016).

        y = (x - mean) / sqrt(var + eps) * weight + bias

    mean and var are those of each channel of each sample over all places; in evaluation mode with
    `track_running_stats` they are the running statistics.

    Args:
        num_features: Number of channels.
        eps: Number added to the variance, so that nothing is divided by zero. Default: 1e-5.
        momentum: Share of the new statistics in the running ones. Default: 0.1.
        affine: Whether to have a learned weight and bias for each channel. Default: False.
        track_running_stats: Whether to keep running statistics, which evaluation mode uses.
            Default: False.
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.
        bias: Whether to have a bias, where `affine`. Default: True.

    Shapes: (batch, channels, depth, height, width) or without batch; the result has the same.
    Errors: ShapeError for other ranks; InvalidArgument where a channel has one value only.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.InstanceNorm3d.html

    >>> ad.nn.InstanceNorm3d(3)(ad.randn(2, 3, 2, 2, 2)).shape
    adjoint.Size([2, 3, 2, 2, 2])
    """

    ranks = (4, 5)
