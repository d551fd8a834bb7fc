"""ASGD."""

from __future__ import annotations

from typing import Any

from .elementwise import ElementwiseOptimizer, new_scalar
from .optimizer import Group, State
from .options import as_float, checked

__all__ = ["ASGD"]


class ASGD(ElementwiseOptimizer):
    """Averaged stochastic gradient descent (Polyak and Juditsky, 1992).

        p = p (1 - lambd eta) - eta g
        ax = ax + mu (p - ax)
        eta = lr / (1 + lambd lr t)^alpha
        mu = 1 / max(1, t - t0)

    Here g is the gradient of p and t the number of the step, from 1. eta starts at lr and mu at 1;
    the last two lines are for the next step. The average is `state[p]["ax"]`; until step t0 it
    equals p.

    Args:
        params: Parameters to change: an iterable of tensors, of pairs (name, tensor), or of dicts
            (groups) that hold `params` and, where a group differs, options.
        lr: Learning rate, a number or a tensor of one element. Default: 0.01.
        lambd: Factor of the decay, of p in each step and of eta over the steps. Default: 0.0001.
        alpha: Exponent of the decay of eta. Default: 0.75.
        t0: Number of the step after which averaging starts. Default: 1e6.
        weight_decay: Factor of the L2 penalty: weight_decay p is added to g before all else.
            Default: 0.
        foreach: Accepted for programs written for PyTorch; changes nothing. Default: None.
        maximize: Take -g instead of g, which goes uphill. Default: False.
        differentiable: Record the step in the graph, so that one can differentiate through it.
            Default: False.
        capturable: Accepted for programs written for PyTorch; changes nothing. Default: False.

    Errors: InvalidArgument for a negative lr or weight_decay; LayoutError for sparse gradients.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.ASGD.html

    >>> p = ad.nn.Parameter(ad.ones(1))
    >>> (2 * p).sum().backward()
    >>> ad.optim.ASGD([p], lr=0.25, lambd=0).step()
    >>> p.item()
    0.5
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        super().__init__(params, checked(locals()))

    zeros = ("ax",)
    scalars = ("step", "eta", "mu")

    def begin(self, p: Any, group: Group) -> State:
        """The rate begins with `lr`, the average's weight with 1."""
        state = super().begin(p, group)
        rate = new_scalar(as_float(group["lr"]))
        return {"step": state.pop("step"), "eta": rate, "mu": new_scalar(1.0), **state}

    def numbers(self, group: Group, state: State, step: float) -> Any:
        """This step's rate and weight in the average; the next step's go to the state."""
        lr, decay = as_float(group["lr"]), group["lambd"]
        later = {
            "eta": lr / (1 + decay * lr * step) ** group["alpha"],
            "mu": 1 / max(1, step - group["t0"]),
        }
        now = []
        for name, value in later.items():
            now.append(state[name].item())
            state[name].fill_(value)
        return now

    def change(self, group: Group, numbers: Any, state: State, p: Any, g: Any) -> None:
        """p = p (1 - lambd eta) - eta g; mean = mean + mu (p - mean)."""
        rate, weight = numbers
        mean = state["ax"]
        p.mul_(1 - group["lambd"] * rate).add_(g, alpha=-rate)
        if weight == 1:
            mean.copy_(p)
        else:
            mean.add_((p - mean) * weight)
