"""RAdam."""

from __future__ import annotations

from typing import Any

from .elementwise import ElementwiseOptimizer
from .optimizer import Group, State
from .options import as_float, checked

__all__ = ["RAdam"]


class RAdam(ElementwiseOptimizer):
    """Adam that adapts only once enough gradients were seen (Liu et al., 2020).

        m = beta1 m + (1 - beta1) g
        v = beta2 v + (1 - beta2) g^2
        R = 2 / (1 - beta2) - 1, n = R - 2 t beta2^t / (1 - beta2^t)
        f = sqrt((n - 4) (n - 2) R / ((R - 4) (R - 2) n))
        p = p - lr / (1 - beta1^t) m                                              where n <= 5
        p = p - lr / (1 - beta1^t) f sqrt(1 - beta2^t) m / (sqrt(v) + eps)        else

    Here g is the gradient of p and t the number of the step, from 1. m and v start at zero.

    Args:
        params: Parameters to change: an iterable of tensors, of pairs (name, tensor), or of dicts
            (groups) that hold `params` and, where a group differs, options.
        lr: Learning rate, a number or a tensor of one element. Default: 0.001.
        betas: Decay rates of the two running means, m and v, each in [0, 1). Default: (0.9, 0.999).
        eps: Number added to the denominator, so that nothing is divided by zero. Default: 1e-8.
        weight_decay: Factor of the L2 penalty: weight_decay p is added to g before all else.
            Default: 0.
        decoupled_weight_decay: Shrink the parameter, p = p (1 - lr weight_decay), instead of adding
            to g. Default: False.
        foreach: Accepted for programs written for PyTorch; changes nothing. Default: None.
        maximize: Take -g instead of g, which goes uphill. Default: False.
        capturable: Accepted for programs written for PyTorch; changes nothing. Default: False.
        differentiable: Record the step in the graph, so that one can differentiate through it.
            Default: False.

    Errors: InvalidArgument for a negative lr, eps or weight_decay, or a beta outside [0, 1);
    LayoutError for sparse gradients.
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
