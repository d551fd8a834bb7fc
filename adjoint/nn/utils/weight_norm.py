"""Weight normalization by a hook, as in older programs."""

from __future__ import annotations

import warnings
from typing import Any

from ...core.errors import InvalidArgument
from ...runtime.public import naming
from ..modules.module import Module
from ..parameter import Parameter
from .parametrizations import norm_except_dim

__all__ = ["remove_weight_norm", "weight_norm"]


class WeightNorm:
    """The forward pre-hook that computes a weight from its length and direction."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name = name
        self.dim = -1 if dim is None else dim
        self.handle: Any = None

    def compute_weight(self, module: Any) -> Any:
        """g v / |v|."""
        g, v = getattr(module, self.name + "_g"), getattr(module, self.name + "_v")
        return v * (g / norm_except_dim(v, self.dim))

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


@naming
def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Learn a weight's length and its direction apart, by a hook (Salimans and Kingma, 2016).

        weight = g v / |v|

    g and v are the parameters `name_g` and `name_v`. It warns: PyTorch recommends
    `parametrizations.weight_norm`, which does the same.

    Args:
        module: Module to change; it is returned.
        name: Name of its parameter. Default: "weight".
        dim: Dimension along which each slice has a length; None for one length of the whole.
            Default: 0.

    Errors: InvalidArgument where the module has it already.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.weight_norm.html

    >>> import warnings; warnings.simplefilter("ignore")
    >>> list(ad.nn.utils.weight_norm(ad.nn.Linear(2, 3)).state_dict())
    ['bias', 'weight_g', 'weight_v']
    """
    warnings.warn(
        "`nn.utils.weight_norm` is deprecated in favor of `nn.utils.parametrizations.weight_norm`.",
        FutureWarning,
        stacklevel=2,
    )
    hooks = module.__dict__.setdefault("_weight_norms", {})
    if name in hooks:
        raise InvalidArgument(f"Cannot register two weight_norm hooks on the same parameter {name}")
    weight = getattr(module, name)
    hook = WeightNorm(name, dim)
    delattr(module, name)
    length = norm_except_dim(weight.detach(), hook.dim)
    module.register_parameter(name + "_g", Parameter(length))
    module.register_parameter(name + "_v", Parameter(weight.detach()))
    setattr(module, name, hook.compute_weight(module))
    hook.handle = module.register_forward_pre_hook(hook)
    hooks[name] = hook
    return module


@naming
def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Make a weight a plain parameter again, with its present value.

        weight = g v / |v|

    Args:
        module: Module to change; it is returned.
        name: Name of its parameter. Default: "weight".

    Errors: InvalidArgument where it was not normalised.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.remove_weight_norm.html

    >>> import warnings; warnings.simplefilter("ignore")
    >>> layer = ad.nn.utils.weight_norm(ad.nn.Linear(2, 3))
    >>> list(ad.nn.utils.remove_weight_norm(layer).state_dict())
    ['bias', 'weight']
    """
    hook = module.__dict__.get("_weight_norms", {}).pop(name, None)
    if hook is None:
        raise InvalidArgument(f"weight_norm of '{name}' not found in {module}")
    weight = hook.compute_weight(module).detach()
    hook.handle.remove()
    for attribute in (name, name + "_g", name + "_v"):
        delattr(module, attribute)
    setattr(module, name, Parameter(weight))
    return module
