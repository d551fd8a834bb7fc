"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Any

from ..core.errors import InvalidArgument
from .optimizer import Optimizer, as_float, assert_options

__all__ = ["SGD"]


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum where asked (Sutskever et al., 2013).

    `foreach` and `fused` are accepted and change nothing.

    Errors: InvalidArgument for options below zero, or Nesterov without momentum.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.SGD.html

    >>> p = ad.nn.Parameter(ad.ones(1))
    >>> (2 * p).sum().backward()
    >>> ad.optim.SGD([p], lr=0.25).step()
    >>> p.item()
    0.5
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: Any = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        assert_options(lr=lr, momentum=momentum, weight_decay=weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise InvalidArgument("Nesterov momentum requires a momentum and zero dampening")
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            "foreach": foreach,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)

    def update(self, group: dict[str, Any], parameters: list[Any]) -> None:
        """v = momentum v + (1 - dampening) g; p = p - lr v.

        >>> ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=0.1).step()
        """
        lr = as_float(group["lr"])
        momentum, dampening = group["momentum"], group["dampening"]
        weight_decay, nesterov = group["weight_decay"], group["nesterov"]
        for p in parameters:
            g = -p.grad if group["maximize"] else p.grad
            if weight_decay:
                g = g.add(p, alpha=weight_decay)
            if momentum:
                state = self.state[p]
                velocity = state.get("momentum_buffer")
                if velocity is None:
                    velocity = state["momentum_buffer"] = g.detach().clone()
                else:
                    velocity.mul_(momentum).add_(g, alpha=1 - dampening)
                g = g.add(velocity, alpha=momentum) if nesterov else velocity
            p.add_(g, alpha=-lr)
