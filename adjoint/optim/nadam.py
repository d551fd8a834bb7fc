"""NAdam."""

from __future__ import annotations

from typing import Any

from .elementwise import ElementwiseOptimizer, new_scalar
from .optimizer import Group, State
from .options import as_float, checked

__all__ = ["NAdam"]


class NAdam(ElementwiseOptimizer):
    """Adam with Nesterov's momentum (Dozat, 2016).

        b_t = beta1 (1 - 0.5 * 0.96^(t momentum_decay)), B_t = b_1 b_2 ... b_t
        m = beta1 m + (1 - beta1) g
        v = beta2 v + (1 - beta2) g^2
        d = (1 - b_t) g / (1 - B_t) + b_(t+1) m / (1 - B_(t+1))
        p = p - lr d / (sqrt(v / (1 - beta2^t)) + eps)

    Here g is the gradient of p and t the number of the step, from 1. m and v start at zero.

    Args:
        params: Parameters to change: an iterable of tensors, of pairs (name, tensor), or of dicts
            (groups) that hold `params` and, where a group differs, options.
        lr: Learning rate, a number or a tensor of one element. Default: 0.002.
        betas: Decay rates of the two running means, m and v, each in [0, 1). Default: (0.9, 0.999).
        eps: Number added to the denominator, so that nothing is divided by zero. Default: 1e-8.
        weight_decay: Factor of the L2 penalty: weight_decay p is added to g before all else.
            Default: 0.
        momentum_decay: How fast the momentum b_t approaches beta1. Default: 0.004.
        decoupled_weight_decay: Shrink the parameter, p = p (1 - lr weight_decay), instead of adding
            to g. Default: False.
        foreach: Accepted for programs written for PyTorch; changes nothing. Default: None.
        maximize: Take -g instead of g, which goes uphill. Default: False.
        capturable: Accepted for programs written for PyTorch; changes nothing. Default: False.
        differentiable: Record the step in the graph, so that one can differentiate through it.
            Default: False.

    Errors: InvalidArgument for a negative lr, eps, weight_decay or momentum_decay, or a beta
    outside [0, 1); LayoutError for sparse gradients.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.NAdam.html

    >>> p = ad.nn.Parameter(ad.ones(1))
    >>> (2 * p).sum().backward()
    >>> ad.optim.NAdam([p], lr=0.25).step()
    >>> round(p.item(), 4)
    0.7359
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, checked(locals()))

    zeros = ("exp_avg", "exp_avg_sq")
    scalars = ("step", "mu_product")

    def state_names(self, group: Group) -> tuple[str, ...]:
        """The two means, and the product of the first's weights."""
        return (*self.zeros, "mu_product")

    def begin(self, p: Any, group: Group) -> State:
        """The product of the momenta begins with 1."""
        state = super().begin(p, group)
        return {"step": state.pop("step"), "mu_product": new_scalar(1.0), **state}

    def numbers(self, group: Group, state: State, step: float) -> Any:
        """The factors of gradient and mean, and the correction of the mean square."""
        beta1, beta2 = group["betas"]
        lr, decay = as_float(group["lr"]), group["momentum_decay"]
        now, later = (beta1 * (1.0 - 0.5 * 0.96 ** (n * decay)) for n in (step, step + 1))
        so_far = state["mu_product"].mul_(now).item()
        return (
            -lr * (1.0 - now) / (1.0 - so_far),
            -lr * later / (1.0 - so_far * later),
            1 - beta2**step,
        )

    def change(self, group: Group, numbers: Any, state: State, p: Any, g: Any) -> None:
        """p = p - lr (part of g + part of m) / (sqrt(v) + eps)."""
        of_gradient, of_mean, correction = numbers
        beta1, beta2 = group["betas"]
        mean, square = state["exp_avg"], state["exp_avg_sq"]
        mean.lerp_(g, 1 - beta1)
        square.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        root = (square / correction).sqrt() + group["eps"]
        p.addcdiv_(g, root, value=of_gradient)
        p.addcdiv_(mean, root, value=of_mean)
