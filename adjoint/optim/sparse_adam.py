"""SparseAdam."""

from __future__ import annotations

import math
from typing import Any

from ..core.errors import InvalidArgument, LayoutError
from ..ops.create.like import zeros_like
from .optimizer import Group, Optimizer, is_sparse
from .options import as_float, checked

__all__ = ["SparseAdam"]


class SparseAdam(Optimizer):
    """Adam for sparse gradients: a step changes only the elements that a gradient has.

        m = beta1 m + (1 - beta1) g
        v = beta2 v + (1 - beta2) g^2
        p = p - lr sqrt(1 - beta2^t) / (1 - beta1^t) m / (sqrt(v) + eps)

    Here g is the gradient of p, as an embedding with `sparse=True` gives it, and t the number of
    the step, from 1. m and v start at zero. The three are changed where g has elements and nowhere
    else.

    Args:
        params: Parameters to change, all dense: an iterable of tensors, of pairs (name, tensor), or
            of groups.
        lr: Learning rate above 0, a number or a tensor of one element. Default: 0.001.
        betas: Decay rates of the two running means, m and v, each in [0, 1). Default: (0.9, 0.999).
        eps: Number above 0, added to the denominator. Default: 1e-8.
        maximize: Take -g instead of g, which goes uphill. Default: False.

    Errors: InvalidArgument for lr or eps that is not positive, a beta outside [0, 1), or sparse
    parameters; LayoutError for dense gradients.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.SparseAdam.html

    >>> p = ad.nn.Parameter(ad.ones(3, 1))
    >>> ad.nn.functional.embedding(ad.tensor([2, 0]), p, sparse=True).sum().backward()
    >>> ad.optim.SparseAdam([p], lr=0.25).step()
    >>> [round(x, 4) for x in p.flatten().tolist()]
    [0.75, 1.0, 0.75]
    """

    takes_sparse = True

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        options = checked(locals())
        if not as_float(lr) > 0 or not eps > 0:
            raise InvalidArgument(f"SparseAdam: lr and eps must be greater than 0, got {lr}, {eps}")
        super().__init__(params, options)
        sparse = [
            [i, j]
            for i, group in enumerate(self.param_groups)
            for j, p in enumerate(group["params"])
            if p.is_sparse
        ]
        if sparse:
            raise InvalidArgument(
                f"Sparse params at indices {sparse}: SparseAdam requires dense parameter tensors"
            )

    def update(self, group: Group, parameters: list[Any]) -> None:
        """Refused: these have dense gradients."""
        raise LayoutError(
            "SparseAdam does not support dense gradients, please consider Adam instead"
        )

    def _without_sparse(self, groups: list[tuple[Group, list[Any]]]) -> list[Any]:
        for group, parameters in groups:
            if not all(map(is_sparse, parameters)):
                self.update(group, parameters)
        return super()._without_sparse(groups)

    def update_sparse(self, group: Group, p: Any) -> None:
        """m and v move towards g and g^2 where g is; p = p - lr m / (sqrt(v) + eps) there, with m
        and v corrected for their start at zero.
        """
        from ..ops.sparse.public_functions import add_at, read_at

        state = self.state[p]
        if not state:
            state.update(step=0, exp_avg=zeros_like(p), exp_avg_sq=zeros_like(p))
        state["step"] += 1
        step, (beta1, beta2) = state["step"], group["betas"]
        g = (-p.grad if group["maximize"] else p.grad).coalesce()
        values = g._values()
        mean, square = read_at(state["exp_avg"], g), read_at(state["exp_avg_sq"], g)
        towards = (values - mean) * (1 - beta1), (values * values - square) * (1 - beta2)
        add_at(state["exp_avg"], g, 1, towards[0])
        add_at(state["exp_avg_sq"], g, 1, towards[1])
        rate = as_float(group["lr"]) * math.sqrt(1 - beta2**step) / (1 - beta1**step)
        root = (square + towards[1]).sqrt() + group["eps"]
        add_at(p, g, -rate, (mean + towards[0]) / root)
