"""RAdam."""

from __future__ import annotations

from typing import Any

from .elementwise import ElementwiseOptimizer
from .optimizer import Group, State, as_float, checked

__all__ = ["RAdam"]


class RAdam(ElementwiseOptimizer):
    """Adam that adapts only once enough gradients were seen (Liu et al., 2020).

    `foreach` and `capturable` are accepted and change nothing.

    Errors: InvalidArgument for options out of range.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.RAdam.html

    >>> p = ad.nn.Parameter(ad.ones(1))
    >>> (2 * p).sum().backward()
    >>> ad.optim.RAdam([p], lr=0.25).step()
    >>> round(p.item(), 4)
    0.5
    """

    zeros = ("exp_avg", "exp_avg_sq")

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, checked(locals()))

    def numbers(self, group: Group, state: State, step: float) -> Any:
        """The rate, and the factor of the adaptive rate: None while that varies too much."""
        beta1, beta2 = group["betas"]
        correction = 1 - beta2**step
        most = 2 / (1 - beta2) - 1  # length of the mean square's average: in the end, and so far
        length = most - 2 * step * beta2**step / correction
        rate = as_float(group["lr"]) / (1 - beta1**step)
        if length <= 5.0:
            return rate, None
        certainty = (length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length)
        return rate, (certainty * correction) ** 0.5

    def change(self, group: Group, numbers: Any, state: State, p: Any, g: Any) -> None:
        """p = p - lr m, over (sqrt(v) + eps) once that is certain enough."""
        rate, adaptive = numbers
        beta1, beta2 = group["betas"]
        mean, square = state["exp_avg"], state["exp_avg_sq"]
        mean.lerp_(g, 1 - beta1)
        square.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        if adaptive is None:
            p.add_(mean, alpha=-rate)
        else:
            p.addcdiv_(mean, square.sqrt() + group["eps"], value=-rate * adaptive)
