"""Adamax."""

from __future__ import annotations

from typing import Any

from ..ops.elementwise.comparison import maximum
from .elementwise import ElementwiseOptimizer
from .optimizer import Group, State
from .options import as_float, checked

__all__ = ["Adamax"]


class Adamax(ElementwiseOptimizer):
    """Adam with the largest past gradient instead of the mean square (Kingma and Ba, 2015).

        m = beta1 m + (1 - beta1) g
        u = max(beta2 u, |g| + eps)
        p = p - lr / (1 - beta1^t) m / u

    Here g is the gradient of p and t the number of the step, from 1. m and u start at zero.

    Args:
        params: Parameters to change: an iterable of tensors, of pairs (name, tensor), or of dicts
            (groups) that hold `params` and, where a group differs, options.
        lr: Learning rate, a number or a tensor of one element. Default: 0.002.
        betas: Decay rates of the mean m and of the maximum u, each in [0, 1). Default: (0.9,
            0.999).
        eps: Number added to |g|, so that nothing is divided by zero. Default: 1e-8.
        weight_decay: Factor of the L2 penalty: weight_decay p is added to g before all else.
            Default: 0.
        foreach: Accepted for programs written for PyTorch; changes nothing. Default: None.
        maximize: Take -g instead of g, which goes uphill. Default: False.
        differentiable: Record the step in the graph, so that one can differentiate through it.
            Default: False.
        capturable: Accepted for programs written for PyTorch; changes nothing. Default: False.

    Errors: InvalidArgument for a negative lr, eps or weight_decay, or a beta outside [0, 1);
    LayoutError for sparse gradients.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.Adamax.html

    >>> p = ad.nn.Parameter(ad.ones(1))
    >>> (2 * p).sum().backward()
    >>> ad.optim.Adamax([p], lr=0.25).step()
    >>> round(p.item(), 4)
    0.75
    """

    zeros = ("exp_avg", "exp_inf")

    def __init__(
        self,
        params: Any,
        lr: Any = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        super().__init__(params, checked(locals()))

    def numbers(self, group: Group, state: State, step: float) -> Any:
        """The rate, corrected for the mean's start at zero."""
        return as_float(group["lr"]) / (1 - group["betas"][0] ** step)

    def change(self, group: Group, numbers: Any, state: State, p: Any, g: Any) -> None:
        """p = p - lr m / max(beta2 u, |g| + eps)."""
        beta1, beta2 = group["betas"]
        mean, largest = state["exp_avg"], state["exp_inf"]
        mean.lerp_(g, 1 - beta1)
        largest.copy_(maximum(largest * beta2, g.abs() + group["eps"]))
        p.addcdiv_(mean, largest, value=-numbers)
