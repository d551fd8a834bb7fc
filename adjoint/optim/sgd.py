"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Any

from ..core.errors import InvalidArgument
from ..ops.create.like import zeros_like
from .elementwise import ElementwiseOptimizer
from .optimizer import Group, State
from .options import as_float, checked

__all__ = ["SGD"]


class SGD(ElementwiseOptimizer):
    """Stochastic gradient descent, with momentum if wanted (Sutskever et al., 2013).

        p = p - lr g                                          without momentum
        v = momentum v + (1 - dampening) g, p = p - lr v      with it; v = g in the first step
        p = p - lr (g + momentum v)                           with `nesterov`

    Here g is the gradient of p. Of a sparse gradient only the elements that it has change p.

    Args:
        params: Parameters to change: an iterable of tensors, of pairs (name, tensor), or of dicts
            (groups) that hold `params` and, where a group differs, options.
        lr: Learning rate, a number or a tensor of one element. Default: 0.001.
        momentum: Decay rate of the velocity v; 0 for none. Default: 0.
        dampening: How much of the gradient does not enter the velocity. Default: 0.
        weight_decay: Factor of the L2 penalty: weight_decay p is added to g before all else.
            Default: 0.
        nesterov: Look ahead by the velocity; needs momentum and no dampening. Default: False.
        maximize: Take -g instead of g, which goes uphill. Default: False.
        foreach: Accepted for programs written for PyTorch; changes nothing. Default: None.
        differentiable: Record the step in the graph, so that one can differentiate through it.
            Default: False.
        fused: Accepted for programs written for PyTorch; changes nothing. Default: None.

    Errors: InvalidArgument for a negative lr, momentum or weight_decay, `nesterov` without momentum
    or with dampening, or `fused` together with `foreach` or `differentiable`; LayoutError for
    sparse gradients with weight_decay.
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
        options = checked(locals())
        if nesterov and (momentum <= 0 or dampening != 0):
            raise InvalidArgument("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(params, options)

    takes_sparse = True

    def update_sparse(self, group: Group, p: Any) -> None:
        """Change the elements that a sparse gradient has; the velocity is as sparse."""
        from ..ops.sparse.public_functions import add_at

        g = -p.grad if group["maximize"] else p.grad
        momentum = group["momentum"]
        if momentum:
            state = self.state[p]
            velocity = state.get("momentum_buffer")
            if velocity is None:
                velocity = g.detach().clone()
            else:
                velocity = (velocity * momentum).add(g, alpha=1 - group["dampening"])
            state["momentum_buffer"] = velocity
            g = g.add(velocity, alpha=momentum) if group["nesterov"] else velocity
        if g.is_sparse:
            add_at(p, g, -as_float(group["lr"]))
        else:
            p.add_(g, alpha=-as_float(group["lr"]))

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for each in self.state.values():  # older versions save a missing velocity as None
            if each.get("momentum_buffer", each) is None:
                del each["momentum_buffer"]

    def state_names(self, group: Group) -> tuple[str, ...]:
        """The buffer, where there is momentum."""
        return ("momentum_buffer",) if group["momentum"] else ()

    def begin(self, p: Any, group: Group) -> State:
        """The velocity, where there is momentum."""
        return {"momentum_buffer": zeros_like(p)} if group["momentum"] else {}

    def begins_alike(self, group: Group, state: State) -> bool:
        """Without dampening: a velocity of zeros becomes the gradient. Subclasses may differ."""
        own = (getattr(type(self), x) is getattr(SGD, x) for x in ("begin", "change", "numbers"))
        return group["dampening"] == 0 and all(own)

    def numbers(self, group: Group, state: State, step: float) -> Any:
        """Rate, momentum, and the gradient's share in the velocity: all of it in the beginning."""
        share = 1.0 if step == 1 else 1 - group["dampening"]
        return as_float(group["lr"]), group["momentum"], share, step == 1

    def change(self, group: Group, numbers: Any, state: State, p: Any, g: Any) -> None:
        """v = momentum v + (1 - dampening) g; p = p - lr v."""
        lr, momentum, share, is_first = numbers
        if momentum:
            velocity = state["momentum_buffer"]
            if is_first:
                velocity.copy_(g.detach())
            else:
                velocity.mul_(momentum).add_(g, alpha=share)
            g = g.add(velocity, alpha=momentum) if group["nesterov"] else velocity
        p.add_(g, alpha=-lr)
