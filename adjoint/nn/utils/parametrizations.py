"""Weight and spectral normalization as parametrizations.

Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.parametrizations.weight_norm.html
"""

from __future__ import annotations

from typing import Any

from ...autograd.modes import no_grad
from ...core.errors import IndexingError, InvalidArgument
from ...runtime.public import naming
from ...tensor import Tensor
from ..functional.activation import normalize
from ..modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from ..modules.module import Module
from .parametrize import register_parametrization

__all__ = ["spectral_norm", "weight_norm"]


def norm_except_dim(v: Any, dim: int) -> Any:
    """The 2-norms over all dimensions but `dim`, which broadcast; over all for dim -1."""
    if dim == -1:
        return v.norm()
    axes = tuple(i for i in range(v.ndim) if i != dim)
    return (v * v).sum(axes, keepdim=True).sqrt() if axes else v.abs()


class _WeightNorm(Module):
    def __init__(self, dim: int | None) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Any, weight_v: Any) -> Any:
        """g v / |v|."""
        return weight_v * (weight_g / norm_except_dim(weight_v, self.dim))

    def right_inverse(self, weight: Any) -> Any:
        """(|weight|, weight)."""
        return norm_except_dim(weight, self.dim), weight


@naming
def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Learn a weight's length and its direction apart (Salimans and Kingma, 2016).

        weight = g v / |v|

    g and v are the originals of the parametrization; g has a length for each slice along `dim`.

    Args:
        module: Module to change; it is returned.
        name: Name of its parameter. Default: "weight".
        dim: Dimension of the slices; None for one length of the whole. Default: 0.

    Errors: InvalidArgument where the module has no such parameter.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.parametrizations.weight_norm.html

    >>> layer = ad.nn.utils.parametrizations.weight_norm(ad.nn.Linear(2, 3))
    >>> layer.parametrizations.weight.original0.shape
    adjoint.Size([3, 1])
    """

    def from_hooks(
        module: Any, state: Any, prefix: str, *rest: Any
    ) -> None:  # a state that nn.utils.weight_norm made
        for i, part in enumerate("gv"):
            key = f"{prefix}{name}_{part}"
            if key in state:
                state[f"{prefix}parametrizations.{name}.original{i}"] = state.pop(key)

    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)
    module.register_load_state_dict_pre_hook(from_hooks)
    return module


class _SpectralNorm(Module):
    _u: Any
    _v: Any

    def __init__(self, weight: Any, n_power_iterations: int, dim: int, eps: float) -> None:
        super().__init__()
        if not -weight.ndim <= dim < weight.ndim:
            raise IndexingError(
                f"Dimension out of range (expected to be in range of [-{weight.ndim}, "
                f"{weight.ndim - 1}] but got {dim})"
            )
        if n_power_iterations <= 0:
            raise InvalidArgument(
                f"Expected n_power_iterations to be positive, but got {n_power_iterations}"
            )
        self.dim = dim % weight.ndim
        self.eps = eps
        self.n_power_iterations = n_power_iterations
        if weight.ndim > 1:
            matrix = self._matrix(weight.detach())
            for name, size in zip(("_u", "_v"), matrix.shape, strict=True):
                start = matrix.new_empty(size).normal_()
                self.register_buffer(name, normalize(start, dim=0, eps=eps))
            self._iterate(matrix, 15)

    def _matrix(self, weight: Any) -> Any:
        return weight.movedim(self.dim, 0).flatten(1)

    def _iterate(self, matrix: Any, count: int) -> None:
        with no_grad():
            for _ in range(count):
                self._u.copy_(normalize(matrix @ self._v, dim=0, eps=self.eps))
                self._v.copy_(normalize(matrix.T @ self._u, dim=0, eps=self.eps))

    def forward(self, weight: Any) -> Any:
        """The weight divided by its largest singular value."""
        if weight.ndim == 1:
            return normalize(weight, dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            self._iterate(matrix.detach(), self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()  # the next step changes them in place
        return weight / (u * (matrix @ v)).sum()

    def right_inverse(self, value: Any) -> Any:
        """The value itself: it may have a norm below 1."""
        return value


@naming
def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """Divide a weight by its largest singular value (Miyato et al., 2018).

        weight = W / (u^T W v)

    u and v are found by power iteration, which each forward in training goes on with. W is taken as
    a matrix whose rows are the slices along `dim`; a vector is divided by its norm.

    Args:
        module: Module to change; it is returned.
        name: Name of its parameter. Default: "weight".
        n_power_iterations: Number of iterations in each forward. Default: 1.
        eps: Least norm by which u and v are divided. Default: 1e-12.
        dim: Dimension of the rows. Default: None, 0, or 1 for transposed convolutions.

    Errors: InvalidArgument where the module has no such tensor, and for a number of iterations that
    is not positive; IndexingError for a dim out of range.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.parametrizations.spectral_norm.html

    >>> layer = ad.nn.utils.parametrizations.spectral_norm(ad.nn.Linear(4, 3))
    >>> abs(ad.linalg.matrix_norm(layer.weight, 2).item() - 1) < 0.1
    True
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise InvalidArgument(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if dim is None:
        transposed = isinstance(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d))
        dim = 1 if transposed else 0
    made = _SpectralNorm(weight, n_power_iterations, dim, eps)
    return register_parametrization(module, name, made)
