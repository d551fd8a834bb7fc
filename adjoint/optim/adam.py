"""Adam and AdamW."""

from __future__ import annotations

import math
from typing import Any

from ..core.errors import InvalidArgument
from ..ops.create.like import zeros_like
from ..ops.elementwise.comparison import maximum
from ..tensor import Tensor
from .elementwise import ElementwiseOptimizer
from .optimizer import Group, State
from .options import as_float, checked

__all__ = ["Adam", "AdamW"]


class Adam(ElementwiseOptimizer):
    """Adam: steps scaled by running means of gradients and of their squares (Kingma and Ba, 2015).

        m = beta1 m + (1 - beta1) g
        v = beta2 v + (1 - beta2) g^2
        p = p - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)

    Here g is the gradient of p and t the number of the step, from 1. m and v start at zero.

    Args:
        params: Parameters to change: an iterable of tensors, of pairs (name, tensor), or of dicts
            (groups) that hold `params` and, where a group differs, options.
        lr: Learning rate, a number or a tensor of one element. Default: 0.001.
        betas: Decay rates of the two running means, m and v, each in [0, 1). Default: (0.9, 0.999).
        eps: Number added to the denominator, so that nothing is divided by zero. Default: 1e-8.
        weight_decay: Factor of the L2 penalty: weight_decay p is added to g before all else.
            Default: 0.
        amsgrad: Use the largest v so far in the place of v (Reddi et al., 2018). Default: False.
        foreach: Accepted for programs written for PyTorch; changes nothing. Default: None.
        maximize: Take -g instead of g, which goes uphill. Default: False.
        capturable: Accepted for programs written for PyTorch; changes nothing. Default: False.
        differentiable: Record the step in the graph, so that one can differentiate through it.
            Default: False.
        fused: Accepted for programs written for PyTorch; changes nothing. Default: None.
        decoupled_weight_decay: Shrink the parameter, p = p (1 - lr weight_decay), instead of adding
            to g. Default: False.

    Errors: InvalidArgument for a negative lr, eps or weight_decay, a beta outside [0, 1), one beta
    as a tensor and one as a number, `fused` together with `foreach` or `differentiable`, or tensors
    as lr or betas with `foreach` and without `capturable`; LayoutError for sparse gradients.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.Adam.html

    >>> p = ad.nn.Parameter(ad.ones(1))
    >>> (2 * p).sum().backward()
    >>> ad.optim.Adam([p], lr=0.25).step()
    >>> round(p.item(), 4)
    0.75
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        options = checked(locals())
        if foreach and not capturable:
            _assert_numbers({"lr": lr, "betas[0]": betas[0], "betas[1]": betas[1]})
        if isinstance(betas[0], Tensor) != isinstance(betas[1], Tensor):
            raise InvalidArgument(f"betas must be either both floats or both Tensors, got {betas}")
        options["betas"] = (as_float(betas[0]), as_float(betas[1]))
        super().__init__(params, options)

    zeros = ("exp_avg", "exp_avg_sq")

    def begin(self, p: Any, group: Group) -> State:
        """Make the two means, and for `amsgrad` the largest mean square."""
        state = super().begin(p, group)
        if group["amsgrad"]:
            state["max_exp_avg_sq"] = zeros_like(p)
        return state

    def complete(self, group: Group, states: list[State]) -> None:
        """The largest mean square, where `amsgrad` was switched on later."""
        if group["amsgrad"]:
            for state in states:
                if "max_exp_avg_sq" not in state:
                    state["max_exp_avg_sq"] = zeros_like(state["exp_avg_sq"])

    def numbers(self, group: Group, state: State, step: float) -> Any:
        """The rate, and the root of the mean square's correction for its start at zero."""
        beta1, beta2 = group["betas"]
        rate = as_float(group["lr"]) / (1 - beta1**step)
        return beta1, beta2, rate, math.sqrt(1 - beta2**step)

    def change(self, group: Group, numbers: Any, state: State, p: Any, g: Any) -> None:
        """p = p - lr m / (sqrt(v) + eps), with m and v corrected for their start at zero."""
        beta1, beta2, rate, correction = numbers
        mean, square = state["exp_avg"], state["exp_avg_sq"]
        mean.lerp_(g, 1 - beta1)
        square.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        if group["amsgrad"]:
            largest = state["max_exp_avg_sq"]
            largest.copy_(maximum(largest.clone(), square))  # which may save what it reads
            square = largest
        p.addcdiv_(mean, square.sqrt() / correction + group["eps"], value=-rate)


def _assert_numbers(options: dict[str, Any]) -> None:
    for name, value in options.items():
        if isinstance(value, Tensor):
            raise InvalidArgument(
                f"{name} as a Tensor is not supported for capturable=False and foreach=True"
            )


class AdamW(Adam):
    """Adam with weight decay that is separate from the gradient (Loshchilov and Hutter, 2019).

        p = p (1 - lr weight_decay)
        m = beta1 m + (1 - beta1) g
        v = beta2 v + (1 - beta2) g^2
        p = p - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)

    Here g is the gradient of p and t the number of the step, from 1. m and v start at zero.

    Args:
        params: Parameters to change: an iterable of tensors, of pairs (name, tensor), or of dicts
            (groups) that hold `params` and, where a group differs, options.
        lr: Learning rate, a number or a tensor of one element. Default: 0.001.
        betas: Decay rates of the two running means, m and v, each in [0, 1). Default: (0.9, 0.999).
        eps: Number added to the denominator, so that nothing is divided by zero. Default: 1e-8.
        weight_decay: Factor by which, times lr, the parameter shrinks in each step. Default: 0.01.
        amsgrad: Use the largest v so far in the place of v (Reddi et al., 2018). Default: False.
        maximize: Take -g instead of g, which goes uphill. Default: False.
        foreach: Accepted for programs written for PyTorch; changes nothing. Default: None.
        capturable: Accepted for programs written for PyTorch; changes nothing. Default: False.
        differentiable: Record the step in the graph, so that one can differentiate through it.
            Default: False.
        fused: Accepted for programs written for PyTorch; changes nothing. Default: None.

    Errors: those of `Adam`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.AdamW.html

    >>> p = ad.nn.Parameter(ad.ones(1))
    >>> (2 * p).sum().backward()
    >>> ad.optim.AdamW([p], lr=0.25, weight_decay=0).step()
    >>> round(p.item(), 4)
    0.75
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, **checked(locals()), decoupled_weight_decay=True)
