"""Adamax."""

from __future__ import annotations

from typing import Any

from ..ops.elementwise.comparison import maximum
from .elementwise import ElementwiseOptimizer
from .optimizer import Group, State, as_float, checked

__all__ = ["Adamax"]


class Adamax(ElementwiseOptimizer):
    """Adam with the largest past gradient instead of the mean square (Kingma and Ba, 2015).

    `foreach` and `capturable` are accepted and change nothing.

    Errors: InvalidArgument for options out of range.
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
