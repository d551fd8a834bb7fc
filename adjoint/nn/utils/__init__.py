"""Helpers for parameters and their gradients."""

import warnings
from typing import Any

from . import parametrizations as parametrizations
from . import parametrize as parametrize
from . import prune as prune
from . import rnn as rnn
from . import stateless as stateless
from .clip_grad import clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm
from .convert_parameters import parameters_to_vector, vector_to_parameters
from .fusion import (
    fuse_conv_bn_eval,
    fuse_conv_bn_weights,
    fuse_linear_bn_eval,
    fuse_linear_bn_weights,
)
from .spectral_norm import remove_spectral_norm, spectral_norm
from .weight_norm import remove_weight_norm, weight_norm

__all__ = [
    "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_",
    "fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights",
    "get_total_norm", "parameters_to_vector", "remove_spectral_norm", "remove_weight_norm",
    "spectral_norm", "vector_to_parameters", "weight_norm",
]  # fmt: skip


def clip_grad_norm(
    parameters: Any, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Any:  # fmt: skip
    """`clip_grad_norm_` under its old name."""
    warnings.warn(
        "`torch.nn.utils.clip_grad_norm` is now deprecated in favor of "
        "`torch.nn.utils.clip_grad_norm_`.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def skip_init(module_cls: Any, *args: Any, **kwargs: Any) -> Any:
    """A module whose parameters' values are arbitrary: those that it is made with.

    >>> ad.nn.utils.skip_init(ad.nn.Linear, 2, 3).weight.shape
    adjoint.Size([3, 2])
    """
    return module_cls(*args, **kwargs)


def __getattr__(name: str) -> Any:
    if name in ("convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"):
        from . import memory_format

        return getattr(memory_format, name)
    from ...absent import missing

    raise missing("nn.utils", name)
