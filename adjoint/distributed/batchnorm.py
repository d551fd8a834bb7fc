"""SyncBatchNorm: batch normalization by the statistics of all ranks' batches."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..autograd.modes import no_grad
from ..core.errors import InvalidArgument, ShapeError
from ..nn.modules.batchnorm import _BatchNorm
from ..nn.modules.module import Module
from ..ops.shape.concatenation import cat
from ..runtime.tensors import wrap
from .functional import all_reduce
from .group import group_of, is_initialized
from .transfer_buffers import assert_eager

__all__ = ["SyncBatchNorm"]

_NAME = "SyncBatchNorm"


class SyncBatchNorm(_BatchNorm):
    """Batch normalization in training by mean and variance of all ranks' batches together.

    Ranks may have batches of different sizes. In evaluation, and with one rank, it is BatchNorm.

    Shapes: (N, C, ...); the result has the input's shape.
    Errors: ShapeError for fewer than two dimensions; InvalidArgument for one value a channel on all
        ranks together.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.SyncBatchNorm.html

    >>> ad.distributed.init_process_group()
    >>> model = ad.nn.SyncBatchNorm.convert_sync_batchnorm(ad.nn.Sequential(ad.nn.BatchNorm1d(2)))
    >>> model(ad.tensor([[1.0, 2.0], [3.0, 6.0]])).round()
    tensor([[-1., -1.],
            [ 1.,  1.]], grad_fn=<RoundBackward0>)
    >>> ad.distributed.destroy_process_group()
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )
        self.process_group = process_group

    def _check_input_dim(self, input: Any) -> None:
        if input.ndim < 2:
            raise ShapeError(
                f"{_NAME}: expected at least 2D input (got {input.ndim}D input of shape "
                f"{tuple(input.shape)})"
            )

    def forward(self, input: Any) -> Any:
        """The normalized input; training updates the running statistics."""
        self._check_input_dim(input)
        uses_batch = self.training or self.running_mean is None
        if not uses_batch or (self.process_group is None and not is_initialized()):
            return super().forward(input)
        group = group_of(self.process_group, _NAME)
        if group.size() == 1:
            return super().forward(input)
        assert_eager(_NAME)
        x = input.float() if input.dtype.itemsize < 4 else input
        dims = [d for d in range(x.ndim) if d != 1]
        shape = [1, -1] + [1] * (x.ndim - 2)
        own = wrap(np.full(1, x.numel() // max(x.shape[1], 1), x._data.dtype))
        sums = all_reduce(cat([x.sum(dims), own]), group=group)
        count = float(sums[-1].item())
        if count < 2:
            raise InvalidArgument(
                f"{_NAME}: Expected more than 1 value per channel when training, got "
                f"{count:g} on all ranks together"
            )
        mean = sums[:-1] / count
        centered = x - mean.reshape(shape)
        var = all_reduce(centered.square().sum(dims), group=group) / count
        if self.training and self.track_running_stats:
            factor = self._update_factor()
            with no_grad():
                unbiased = var.detach() * (count / (count - 1))
                self.running_mean.lerp_(mean.detach().to(self.running_mean.dtype), factor)
                self.running_var.lerp_(unbiased.to(self.running_var.dtype), factor)
        y = centered * (var + self.eps).rsqrt().reshape(shape)
        if self.weight is not None:
            y = y * self.weight.reshape(shape)
        if self.bias is not None:
            y = y + self.bias.reshape(shape)
        return y.to(input.dtype)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Any:
        """`module` with a SyncBatchNorm, of the same parameters, for each BatchNorm in it.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.SyncBatchNorm.html#torch.nn.SyncBatchNorm.convert_sync_batchnorm
        """
        if isinstance(module, _BatchNorm) and not isinstance(module, SyncBatchNorm):
            made = cls(
                module.num_features, module.eps, module.momentum, module.affine,
                module.track_running_stats, process_group,
            )  # fmt: skip
            for name, p in module._parameters.items():
                made._parameters[name] = p
            for name, buffer in module._buffers.items():
                made._buffers[name] = buffer
            made.training = module.training
            return made
        for name, child in list(module._modules.items()):
            if child is not None:
                changed = cls.convert_sync_batchnorm(child, process_group)
                if changed is not child:
                    module._modules[name] = changed
        return module
