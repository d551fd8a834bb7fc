"""Adagrad."""

from __future__ import annotations

from typing import Any

from ..autograd.modes import no_grad
from ..ops.create.creation import full_like
from .elementwise import ElementwiseOptimizer, advance, new_scalar
from .optimizer import Group, State, as_float, checked

__all__ = ["Adagrad"]


class Adagrad(ElementwiseOptimizer):
    """Adagrad: rates that fall with the sum of squared gradients (Duchi et al., 2011).

    `foreach` and `fused` are accepted and change nothing.

    Errors: InvalidArgument for options out of range.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.Adagrad.html

    >>> p = ad.nn.Parameter(ad.ones(1))
    >>> (2 * p).sum().backward()
    >>> ad.optim.Adagrad([p], lr=0.25).step()
    >>> p.item()
    0.75
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, checked(locals()))
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p].update(self.begin(p, group))

    def begin(self, p: Any, group: Group) -> State:
        """The sum begins with `initial_accumulator_value`."""
        start = group["initial_accumulator_value"]
        value = complex(start, start) if p.is_complex() else start
        with no_grad():
            return {"step": new_scalar(0.0), "sum": full_like(p, value)}

    def numbers(self, group: Group, state: State, step: float) -> Any:
        """The rate of this step."""
        return as_float(group["lr"]) / (1 + (step - 1) * group["lr_decay"])

    def change(self, group: Group, numbers: Any, state: State, p: Any, g: Any) -> None:
        """p = p - lr g / (sqrt(sum of g^2) + eps)."""
        total = state["sum"]
        total.addcmul_(g, g)
        p.addcdiv_(g, total.sqrt() + group["eps"], value=-numbers)

    takes_sparse = True

    def update_sparse(self, group: Group, p: Any) -> None:
        """The same, for the elements that the gradient has."""
        from ..ops.sparse.public_functions import add_at, read_at

        state = self.state[p]
        rate = self.numbers(group, state, advance(state))
        g = (-p.grad if group["maximize"] else p.grad).coalesce()
        values = g._values()
        add_at(state["sum"], g, 1, values * values)
        add_at(p, g, -rate, values / (read_at(state["sum"], g).sqrt() + group["eps"]))
