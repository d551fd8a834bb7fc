"""Spectral normalization by a hook, as in older programs."""

from __future__ import annotations

from typing import Any

from ...autograd.modes import no_grad
from ...core.errors import InvalidArgument
from ...ops.random.random import randn
from ...runtime.public import naming
from ..functional.activation import normalize
from ..modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from ..modules.module import Module
from ..parameter import Parameter

__all__ = ["SpectralNorm", "remove_spectral_norm", "spectral_norm"]


class SpectralNorm:
    """The forward pre-hook that divides a weight by its largest singular value; each forward in
    training goes on with the power iteration that finds it.
    """

    def __init__(self, name: str, n_power_iterations: int, dim: int, eps: float) -> None:
        if n_power_iterations <= 0:
            raise InvalidArgument(
                "Expected n_power_iterations to be positive, but got n_power_iterations="
                f"{n_power_iterations}"
            )
        self.name = name
        self.n_power_iterations = n_power_iterations
        self.dim = dim
        self.eps = eps
        self.handle: Any = None

    def matrix(self, weight: Any) -> Any:
        """The weight with `dim` first and the others as one."""
        return weight.movedim(self.dim, 0).flatten(1)

    def compute_weight(self, module: Any, do_power_iteration: bool) -> Any:
        """The weight over u^T W v."""
        weight = getattr(module, f"{self.name}_orig")
        u, v = getattr(module, f"{self.name}_u"), getattr(module, f"{self.name}_v")
        matrix = self.matrix(weight)
        if do_power_iteration:
            with no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(normalize(matrix.T @ u, dim=0, eps=self.eps))
                    u.copy_(normalize(matrix @ v, dim=0, eps=self.eps))
            u, v = u.clone(), v.clone()  # the next step changes them in place
        return weight / (u * (matrix @ v)).sum()

    def __call__(self, module: Any, inputs: Any) -> None:
        """Put the normalized weight in its place."""
        setattr(module, self.name, self.compute_weight(module, module.training))


@naming
def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """Divide a weight by its largest singular value, by a hook (Miyato et al., 2018).

        weight = W / (u^T W v)

    W is the parameter `name_orig`. PyTorch recommends `parametrizations.spectral_norm`, which does
    the same.

    Args:
        module: Module to change; it is returned.
        name: Name of its parameter. Default: "weight".
        n_power_iterations: Number of power iterations in each forward in training. Default: 1.
        eps: Least norm by which u and v are divided. Default: 1e-12.
        dim: Dimension of the rows of W as a matrix. Default: None, 0, or 1 for transposed
            convolutions.

    Errors: InvalidArgument where the module has it already or has no such parameter, and for a
    number of iterations that is not positive.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.spectral_norm.html

    >>> list(ad.nn.utils.spectral_norm(ad.nn.Linear(2, 3)).state_dict())
    ['bias', 'weight_orig', 'weight_u', 'weight_v']
    """
    hooks = module.__dict__.setdefault("_spectral_norms", {})
    if name in hooks:
        raise InvalidArgument(
            f"Cannot register two spectral_norm hooks on the same parameter {name}"
        )
    if dim is None:
        transposed = isinstance(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d))
        dim = 1 if transposed else 0
    hook = SpectralNorm(name, n_power_iterations, dim, eps)
    weight = module._parameters.get(name)
    if weight is None:
        raise InvalidArgument(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
    delattr(module, name)
    module.register_parameter(f"{name}_orig", weight)
    for letter, size in zip("uv", hook.matrix(weight).shape, strict=True):
        start = randn(size, dtype=weight.dtype, device=weight.device)
        module.register_buffer(f"{name}_{letter}", normalize(start, dim=0, eps=eps))
    setattr(module, name, weight.detach())
    hook.handle = module.register_forward_pre_hook(hook)
    hooks[name] = hook
    return module


@naming
def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Make a weight a plain parameter again, as the last forward used it.

        weight = W / (u^T W v)

    Args:
        module: Module to change; it is returned.
        name: Name of its parameter. Default: "weight".

    Errors: InvalidArgument where it was not normalised.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.remove_spectral_norm.html

    >>> layer = ad.nn.utils.spectral_norm(ad.nn.Linear(2, 3))
    >>> list(ad.nn.utils.remove_spectral_norm(layer).state_dict())
    ['bias', 'weight']
    """
    hook = module.__dict__.get("_spectral_norms", {}).pop(name, None)
    if hook is None:
        raise InvalidArgument(f"spectral_norm of '{name}' not found in {module}")
    with no_grad():
        weight = hook.compute_weight(module, False)
    hook.handle.remove()
    for attribute in (name, f"{name}_orig", f"{name}_u", f"{name}_v"):
        delattr(module, attribute)
    setattr(module, name, Parameter(weight.detach()))
    return module
