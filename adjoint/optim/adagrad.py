"""Adagrad."""

from __future__ import annotations

from typing import Any

from ..autograd.modes import no_grad
from ..ops.create.like import full_like
from .elementwise import ElementwiseOptimizer, advance, new_scalar
from .optimizer import Group, State
from .options import as_float, checked

__all__ = ["Adagrad"]


class Adagrad(ElementwiseOptimizer):
    """Adagrad: rates that fall with the sum of squared gradients (Duchi et al., 2011).

        s = s + g^2
        p = p - lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps)

    Here g is the gradient of p and t the number of the step, from 1. Of a sparse gradient only the
    elements that it has change p and s.

    Args:
        params: Parameters to change: an iterable of tensors, of pairs (name, tensor), or of dicts
            (groups) that hold `params` and, where a group differs, options.
        lr: Learning rate, a number or a tensor of one element. Default: 0.01.
        lr_decay: Factor by which the rate falls with the number of the step. Default: 0.
        weight_decay: Factor of the L2 penalty: weight_decay p is added to g before all else.
            Default: 0.
        initial_accumulator_value: Value of s before the first step. Default: 0.
        eps: Number added to the denominator, so that nothing is divided by zero. Default: 1e-10.
        foreach: Accepted for programs written for PyTorch; changes nothing. Default: None.
        maximize: Take -g instead of g, which goes uphill. Default: False.
        differentiable: Record the step in the graph, so that one can differentiate through it.
            Default: False.
        fused: Accepted for programs written for PyTorch; changes nothing. Default: None.

    Errors: InvalidArgument for a negative lr, lr_decay, eps, weight_decay or initial value, or
    `fused` together with `foreach` or `differentiable`; LayoutError for sparse gradients with
    weight_decay.
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

    def state_names(self, group: Group) -> tuple[str, ...]:
        """The sum of squares."""
        return ("sum",)

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
        """Change the elements that the sparse gradient has, by the same formula."""
        from ..ops.sparse.public_functions import add_at, read_at

        state = self.state[p]
        rate = self.numbers(group, state, advance(state))
        g = (-p.grad if group["maximize"] else p.grad).coalesce()
        values = g._values()
        add_at(state["sum"], g, 1, values * values)
        add_at(p, g, -rate, values / (read_at(state["sum"], g).sqrt() + group["eps"]))
