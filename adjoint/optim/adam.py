"""Adam and AdamW."""

from __future__ import annotations

import math
from typing import Any

from ..core.dtype import float32
from ..ops.comparison import maximum
from ..ops.creation import tensor, zeros_like
from .optimizer import Optimizer, as_float, assert_betas, assert_options

__all__ = ["Adam", "AdamW"]


class Adam(Optimizer):
    """Adam (Kingma and Ba, 2015); with `amsgrad` the variant of Reddi et al. (2018).

    `foreach`, `fused` and `capturable` are accepted and change nothing.

    Errors: InvalidArgument for options out of range.
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
        assert_options(lr=lr, eps=eps, weight_decay=weight_decay)
        assert_betas(betas)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
            "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, defaults)

    def _state_of(self, p: Any, amsgrad: bool) -> dict[str, Any]:
        state: dict[str, Any] = self.state[p]
        if not state:
            state["step"] = tensor(0.0, dtype=float32)
            state["exp_avg"] = zeros_like(p)
            state["exp_avg_sq"] = zeros_like(p)
        if amsgrad and "max_exp_avg_sq" not in state:
            state["max_exp_avg_sq"] = zeros_like(p)
        return state

    def update(self, group: dict[str, Any], parameters: list[Any]) -> None:
        """p = p - lr m / (sqrt(v) + eps), with m and v corrected for their start at zero.

        >>> ad.optim.Adam([ad.nn.Parameter(ad.ones(1))]).step()
        """
        lr, eps, weight_decay = as_float(group["lr"]), group["eps"], group["weight_decay"]
        beta1, beta2 = (as_float(beta) for beta in group["betas"])
        decoupled = group["decoupled_weight_decay"]
        for p in parameters:
            g = -p.grad if group["maximize"] else p.grad
            state = self._state_of(p, group["amsgrad"])
            state["step"].add_(1)
            step = state["step"].item()
            if weight_decay:
                if decoupled:
                    p.mul_(1 - lr * weight_decay)
                else:
                    g = g.add(p, alpha=weight_decay)
            mean, square = state["exp_avg"], state["exp_avg_sq"]
            mean.lerp_(g, 1 - beta1)
            square.mul_(beta2).addcmul_(g, g, value=1 - beta2)
            if group["amsgrad"]:
                largest = state["max_exp_avg_sq"]
                largest.copy_(maximum(largest, square))
                square = largest
            root = square.sqrt().div_(math.sqrt(1 - beta2**step)).add_(eps)
            p.addcdiv_(mean, root, value=-lr / (1 - beta1**step))


class AdamW(Adam):
    """Adam with weight decay apart from the gradient (Loshchilov and Hutter, 2019).

    Errors: InvalidArgument for options out of range.
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
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )
