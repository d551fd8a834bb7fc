"""Adadelta."""

from __future__ import annotations

from typing import Any

from ..core.errors import InvalidArgument
from .elementwise import ElementwiseOptimizer
from .optimizer import Group, State
from .options import as_float, checked

__all__ = ["Adadelta"]


class Adadelta(ElementwiseOptimizer):
    """Adadelta: steps in the ratio of past steps to past gradients (Zeiler, 2012).

        v = rho v + (1 - rho) g^2
        d = sqrt(u + eps) / sqrt(v + eps) g
        u = rho u + (1 - rho) d^2
        p = p - lr d

    Here g is the gradient of p. u and v start at zero.

    Args:
        params: Parameters to change: an iterable of tensors, of pairs (name, tensor), or of dicts
            (groups) that hold `params` and, where a group differs, options.
        lr: Factor of each step, a number or a tensor of one element. Default: 1.0.
        rho: Decay rate of the two running means, u and v, in [0, 1]. Default: 0.9.
        eps: Number added under both roots; it decides how long the first steps are. Default: 1e-6.
        weight_decay: Factor of the L2 penalty: weight_decay p is added to g before all else.
            Default: 0.
        foreach: Accepted for programs written for PyTorch; changes nothing. Default: None.
        capturable: Accepted for programs written for PyTorch; changes nothing. Default: False.
        maximize: Take -g instead of g, which goes uphill. Default: False.
        differentiable: Record the step in the graph, so that one can differentiate through it.
            Default: False.

    Errors: InvalidArgument for a negative lr, eps or weight_decay, or rho outside [0, 1];
    LayoutError for sparse gradients.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.Adadelta.html

    >>> p = ad.nn.Parameter(ad.ones(1))
    >>> (2 * p).sum().backward()
    >>> ad.optim.Adadelta([p]).step()
    >>> round(p.item(), 4)
    0.9968
    """

    zeros = ("square_avg", "acc_delta")

    def __init__(
        self,
        params: Any,
        lr: Any = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        options = checked(locals())
        if not 0.0 <= rho <= 1.0:
            raise InvalidArgument(f"Invalid rho value: {rho}; it must be between 0 and 1")
        super().__init__(params, options)

    def change(self, group: Group, numbers: Any, state: State, p: Any, g: Any) -> None:
        """d = sqrt(past d^2 + eps) / sqrt(past g^2 + eps) g; p = p - lr d."""
        rho, eps = group["rho"], group["eps"]
        square, past = state["square_avg"], state["acc_delta"]
        square.mul_(rho).addcmul_(g, g, value=1 - rho)
        delta = (past + eps).sqrt() / (square + eps).sqrt() * g
        past.mul_(rho).addcmul_(delta, delta, value=1 - rho)
        p.add_(delta, alpha=-as_float(group["lr"]))
