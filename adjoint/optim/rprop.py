"""Rprop."""

from __future__ import annotations

from typing import Any

from ..core.errors import InvalidArgument
from ..ops.create.like import full_like
from ..ops.elementwise.comparison import where
from .elementwise import ElementwiseOptimizer
from .optimizer import Group, State
from .options import as_float, checked

__all__ = ["Rprop"]


class Rprop(ElementwiseOptimizer):
    """Resilient backpropagation: steps by the gradients' signs (Riedmiller and Braun, 1993).

        size = clamp(size * etas[1], *step_sizes)             where g has its last sign
        size = clamp(size * etas[0], *step_sizes), g = 0      where the sign has changed
        p = p - size sign(g)

    Here g is the gradient of p. Each element has a size, which starts at lr.

    Args:
        params: Parameters to change: an iterable of tensors, of pairs (name, tensor), or of dicts
            (groups) that hold `params` and, where a group differs, options.
        lr: First size of the steps, a number or a tensor of one element. Default: 0.01.
        etas: Factors by which a step becomes shorter and longer; 0 < etas[0] < 1 < etas[1].
            Default: (0.5, 1.2).
        step_sizes: Least and largest size of a step. Default: (1e-6, 50).
        capturable: Accepted for programs written for PyTorch; changes nothing. Default: False.
        foreach: Accepted for programs written for PyTorch; changes nothing. Default: None.
        maximize: Take -g instead of g, which goes uphill. Default: False.
        differentiable: Record the step in the graph, so that one can differentiate through it.
            Default: False.

    Errors: InvalidArgument for a negative lr, or etas that are not below and above 1; LayoutError
    for sparse gradients.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.Rprop.html

    >>> p = ad.nn.Parameter(ad.ones(1))
    >>> (2 * p).sum().backward()
    >>> ad.optim.Rprop([p], lr=0.25).step()
    >>> p.item()
    0.75
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        options = checked(locals())
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise InvalidArgument(
                f"Invalid eta values: {etas[0]}, {etas[1]}; one below and one above 1 are needed"
            )
        super().__init__(params, options)

    zeros = ("prev",)

    def begin(self, p: Any, group: Group) -> State:
        """The step sizes begin with the learning rate."""
        lr = as_float(group["lr"])
        size = full_like(p.detach(), complex(lr, lr) if p.is_complex() else lr)
        return {**super().begin(p, group), "step_size": size}

    def change(self, group: Group, numbers: Any, state: State, p: Any, g: Any) -> None:
        """Longer steps where the gradient keeps its sign; where it changes, shorter, none now."""
        (shorter, longer), (smallest, largest) = group["etas"], group["step_sizes"]
        before, size = state["prev"], state["step_size"]
        agreement = (g * before).detach().sign()
        factor = where(agreement == 0, 1.0, agreement)  # NaN stays
        factor = where(agreement > 0, longer, where(agreement < 0, shorter, factor))
        size.copy_((size * factor).clamp(smallest, largest))
        g = where(agreement < 0, 0, g)
        p.addcmul_(g.sign(), size, value=-1)
        before.copy_(g)
