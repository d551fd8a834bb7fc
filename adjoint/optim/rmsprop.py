"""RMSprop."""

from __future__ import annotations

from typing import Any

from ..ops.create.creation import zeros_like
from .elementwise import ElementwiseOptimizer
from .optimizer import Group, State, as_float, assert_not_negative, checked

__all__ = ["RMSprop"]


class RMSprop(ElementwiseOptimizer):
    """RMSprop (Hinton, 2012); with `centered` over the gradients' variance (Graves, 2013).

    `foreach` and `capturable` are accepted and change nothing.

    Errors: InvalidArgument for options out of range.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.RMSprop.html

    >>> p = ad.nn.Parameter(ad.ones(1))
    >>> (2 * p).sum().backward()
    >>> ad.optim.RMSprop([p], lr=0.05).step()
    >>> round(p.item(), 4)
    0.5
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        options = checked(locals())
        assert_not_negative(alpha=alpha)
        super().__init__(params, options)

    zeros = ("square_avg",)

    def begin(self, p: Any, group: Group) -> State:
        """Also the velocity and the gradients' mean, where the options ask for them."""
        state = super().begin(p, group)
        if group["momentum"] > 0:
            state["momentum_buffer"] = zeros_like(p)
        if group["centered"]:
            state["grad_avg"] = zeros_like(p)
        return state

    def change(self, group: Group, numbers: Any, state: State, p: Any, g: Any) -> None:
        """p = p - lr g / (sqrt(v) + eps), by way of a velocity where there is momentum."""
        alpha, lr = group["alpha"], as_float(group["lr"])
        square = state["square_avg"]
        square.mul_(alpha).addcmul_(g, g, value=1 - alpha)
        if group["centered"]:
            mean = state["grad_avg"]
            mean.lerp_(g, 1 - alpha)
            square = square.addcmul(mean, mean, value=-1)
        root = square.sqrt() + group["eps"]
        if group["momentum"] > 0:
            velocity = state["momentum_buffer"]
            velocity.mul_(group["momentum"]).addcdiv_(g, root)
            p.add_(velocity, alpha=-lr)
        else:
            p.addcdiv_(g, root, value=-lr)
