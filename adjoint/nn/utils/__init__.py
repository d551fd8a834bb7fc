"""Helpers for parameters and their gradients."""

import warnings
from typing import TYPE_CHECKING, Any

from . import parametrizations as parametrizations
from . import parametrize as parametrize
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

if TYPE_CHECKING:
    from . import prune as prune

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
    """Old name of `clip_grad_norm_`, which warns.

        g = g min(1, max_norm / (norm + 1e-6))

    Args:
        parameters: Parameters, an iterable of tensors or one tensor.
        max_norm: Largest norm.
        norm_type: Exponent of the norm; inf is the largest absolute value. Default: 2.0.
        error_if_nonfinite: Raise an error where the norm is infinite or not a number. Default:
            False.
        foreach: Accepted for programs written for PyTorch; changes nothing. Default: None.
    """
    warnings.warn(
        "`torch.nn.utils.clip_grad_norm` is now deprecated in favor of "
        "`torch.nn.utils.clip_grad_norm_`.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def skip_init(module_cls: Any, *args: Any, **kwargs: Any) -> Any:
    """Make a module whose parameters need not have initial values.

        module = module_cls(*args, **kwargs)

    Here they have those that the class gives them.

    Args:
        module_cls: Class of the module.
        *args: Arguments of its constructor.
        **kwargs: Keyword arguments of its constructor.

    >>> ad.nn.utils.skip_init(ad.nn.Linear, 2, 3).weight.shape
    adjoint.Size([3, 2])
    """
    return module_cls(*args, **kwargs)


def __getattr__(name: str) -> Any:
    if name in ("convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"):
        from . import memory_format

        return getattr(memory_format, name)
    if name == "prune":
        import importlib

        return importlib.import_module(f"{__name__}.prune")
    from ...core.missing_names import missing

    raise missing("nn.utils", name)
