"""RMSprop."""

from __future__ import annotations

from typing import Any

from ..ops.create.like import zeros_like
from .elementwise import ElementwiseOptimizer
from .optimizer import Group, State
from .options import as_float, assert_not_negative, checked

__all__ = ["RMSprop"]


class RMSprop(ElementwiseOptimizer):
    """RMSprop: gradients divided by the root of their running mean square (Hinton, 2012).

        v = alpha v + (1 - alpha) g^2
        d = g / (sqrt(v) + eps)
        p = p - lr d                                          without momentum
        b = momentum b + d, p = p - lr b                      with it

    Here g is the gradient of p. v and b start at zero.

    Args:
        params: Parameters to change: an iterable of tensors, of pairs (name, tensor), or of dicts
            (groups) that hold `params` and, where a group differs, options.
        lr: Learning rate, a number or a tensor of one element. Default: 0.01.
        alpha: Decay rate of the running means. Default: 0.99.
        eps: Number added to the denominator, so that nothing is divided by zero. Default: 1e-8.
        weight_decay: Factor of the L2 penalty: weight_decay p is added to g before all else.
            Default: 0.
        momentum: Decay rate of the velocity b; 0 for none. Default: 0.
        centered: Divide by the root of the variance, v - (running mean of g)^2, instead of v
            (Graves, 2013). Default: False.
        capturable: Accepted for programs written for PyTorch; changes nothing. Default: False.
        foreach: Accepted for programs written for PyTorch; changes nothing. Default: None.
        maximize: Take -g instead of g, which goes uphill. Default: False.
        differentiable: Record the step in the graph, so that one can differentiate through it.
            Default: False.

    Errors: InvalidArgument for a negative lr, alpha, eps, weight_decay or momentum; LayoutError for
    sparse gradients.
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
        """Make the mean square, and the velocity and the mean where options ask for them."""
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
