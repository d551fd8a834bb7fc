"""Adafactor."""

from __future__ import annotations

from typing import Any

from ..core.dtype import finfo
from ..core.errors import DTypeError, InvalidArgument
from ..ops.creation import zeros, zeros_like
from ..ops.norms import vector_norm
from .elementwise import advance, new_scalar
from .optimizer import Optimizer, as_float, assert_options

__all__ = ["Adafactor"]


class Adafactor(Optimizer):
    """Adafactor: of a matrix's squared gradients only means of rows and columns are kept
    (Shazeer and Stern, 2018); of PyTorch's variant with a learning rate.

    `foreach` is accepted and changes nothing.

    Errors: InvalidArgument for options out of range; DTypeError for complex parameters.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.Adafactor.html

    >>> p = ad.nn.Parameter(ad.ones(2))
    >>> (2 * p).sum().backward()
    >>> ad.optim.Adafactor([p], lr=0.25).step()
    >>> p.tolist()
    [0.75, 0.75]
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        assert_options(lr=lr, weight_decay=weight_decay)
        if beta2_decay > 0:
            raise InvalidArgument(f"beta2_decay should be <= 0 but is: {beta2_decay}")
        for i, value in enumerate(eps, 1):
            if value is not None and not value >= 0:
                raise InvalidArgument(f"epsilon{i} should be >= 0 but is: {value}")
        if not d >= 1:
            raise InvalidArgument(f"Clipping threshold d should be >= 1 but is: {d}")
        defaults = {
            "lr": lr,
            "beta2_decay": beta2_decay,
            "eps": eps,
            "d": d,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def _begin(self, p: Any) -> dict[str, Any]:
        state = {"step": new_scalar(0.0)}
        if p.ndim < 2:
            return {**state, "variance": zeros_like(p)}
        shape = tuple(p.shape)
        for name, size in (("row_var", (*shape[:-1], 1)), ("col_var", (*shape[:-2], 1, shape[-1]))):
            state[name] = zeros(size, dtype=p.dtype, device=p.device)
        return state

    def update(self, group: dict[str, Any], parameters: list[Any]) -> None:
        """p = p - rate u, where u is g over its root mean square, clipped to a mean square of d.

        >>> optimizer = ad.optim.Adafactor([ad.nn.Parameter(ad.ones(1))])
        >>> optimizer.update(optimizer.param_groups[0], [])
        """
        lr, d = as_float(group["lr"]), group["d"]
        for p in parameters:
            if p.is_complex():
                raise DTypeError(
                    f"Adafactor does not support complex parameters, got {p.dtype}; give their "
                    "real and imaginary parts"
                )
            eps1, eps2 = group["eps"]
            if eps1 is None:
                eps1 = finfo(p.dtype).eps
            g = -p.grad if group["maximize"] else p.grad
            state = self.state[p]
            if not state:
                state.update(self._begin(p))
            step = advance(state)
            share = step ** group["beta2_decay"]
            rate = max(eps2, _root_mean_square(p)) * min(lr, step**-0.5)
            if group["weight_decay"]:
                p.mul_(1 - lr * group["weight_decay"])
            if g.ndim < 2:
                variance = state["variance"]
                variance.lerp_(g * g, share)
            else:
                row, column = state["row_var"], state["col_var"]
                squares = g * g
                row.lerp_(squares.mean(-1, keepdim=True), share)
                column.lerp_(squares.mean(-2, keepdim=True), share)
                variance = (row @ column) / row.mean(-2, keepdim=True).clamp(min=eps1)
            change = variance.clamp(min=eps1 * eps1).rsqrt() * g
            p.add_(change, alpha=-rate / max(1.0, _root_mean_square(change) / d))


def _root_mean_square(x: Any) -> float:
    return float(vector_norm(x).item()) / x.numel() ** 0.5 if x.numel() else 0.0
