"""Adafactor."""

from __future__ import annotations

import functools
from typing import Any

from ..core.dtype import finfo
from ..core.errors import DTypeError, InvalidArgument
from ..core.mode import MODE
from ..ops.create.creation import tensor, zeros
from ..ops.create.like import zeros_like
from ..ops.elementwise.comparison import where
from ..ops.linalg.norms import vector_norm
from ..runtime.fused import fused
from ..tensor import Tensor
from .elementwise import advance, new_scalar
from .optimizer import Group, Optimizer, State
from .options import as_float, checked

__all__ = ["Adafactor"]


class Adafactor(Optimizer):
    """Adafactor: Adam with means of squares of rows and columns alone (Shazeer and Stern, 2018).

        s = t^beta2_decay
        r = r + s (mean of each row of g^2 - r)
        c = c + s (mean of each column of g^2 - c)
        u = g / sqrt(r c / mean(r))
        rate = max(eps2, rms(p)) min(lr, 1 / sqrt(t))
        p = p (1 - lr weight_decay) - rate u / max(1, rms(u) / d)

    Here g is the gradient of p, t the number of the step, from 1, and rms the root of the mean of
    squares. A parameter with more than two dimensions is a batch of matrices, one with fewer has
    its whole mean of squares, v = v + s (g^2 - v), and u = g / sqrt(v). mean(r) is at least eps1,
    what is under the root at least eps1^2. This is PyTorch's variant, which has a learning rate.

    Args:
        params: Parameters to change: an iterable of tensors, of pairs (name, tensor), or of dicts
            (groups) that hold `params` and, where a group differs, options.
        lr: Largest relative step, a number or a tensor of one element. Default: 0.01.
        beta2_decay: Exponent of t in the weight of the newest squares; at most 0. Default: -0.8.
        eps: Pair (eps1, eps2): the least mean of squares, where None is the machine epsilon of the
            parameter's dtype, and the least rms(p). Default: (None, 0.001).
        d: Bound of rms(u), at least 1: larger steps are scaled down to it. Default: 1.0.
        weight_decay: Factor by which, times lr, the parameter shrinks in each step. Default: 0.0.
        foreach: Accepted for programs written for PyTorch; changes nothing. Default: None.
        maximize: Take -g instead of g, which goes uphill. Default: False.

    Errors: InvalidArgument for a positive beta2_decay, d below 1, or a negative lr, eps or
    weight_decay; DTypeError for complex parameters; LayoutError for sparse gradients.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.Adafactor.html

    >>> p = ad.nn.Parameter(ad.ones(2))
    >>> (2 * p).sum().backward()
    >>> ad.optim.Adafactor([p], lr=0.25).step()
    >>> p.tolist()
    [0.75, 0.75]
    """

    takes_sparse = False

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        options = checked(locals())
        if beta2_decay > 0:
            raise InvalidArgument(f"beta2_decay should be <= 0 but is: {beta2_decay}")
        for i, value in enumerate(eps, 1):
            if value is not None and not value >= 0:
                raise InvalidArgument(f"epsilon{i} should be >= 0 but is: {value}")
        if not d >= 1:
            raise InvalidArgument(f"Clipping threshold d should be >= 1 but is: {d}")
        super().__init__(params, options)

    def _begin(self, p: Any) -> State:
        state = {"step": new_scalar(0.0)}
        if p.ndim < 2:
            return {**state, "variance": zeros_like(p)}
        shape = tuple(p.shape)
        for name, size in (("row_var", (*shape[:-1], 1)), ("col_var", (*shape[:-2], 1, shape[-1]))):
            state[name] = zeros(size, dtype=p.dtype, device=p.device)
        return state

    def update(self, group: Group, parameters: list[Any]) -> None:
        """p = p - rate u, where u is g over its root mean square, clipped to a mean square of d.

        >>> optimizer = ad.optim.Adafactor([ad.nn.Parameter(ad.ones(1))])
        >>> optimizer.update(optimizer.param_groups[0], [])
        """
        lr, d = as_float(group["lr"]), group["d"]
        captured = getattr(MODE.get().executor, "not_ready", None)
        for p in parameters:
            if p.is_complex():
                raise DTypeError(
                    f"Adafactor does not support complex parameters, got {p.dtype}; give their "
                    "real and imaginary parts"
                )
            eps1, eps2 = group["eps"]
            if eps1 is None:
                eps1 = _eps(p.dtype)
            g = p.grad
            state = self.state[p]
            if not state:
                if captured is not None:
                    captured("Adafactor has no state yet")
                state.update(self._begin(p))
            # A number, or in a captured function a tensor, as all is that is computed from it.
            step = advance(state) if captured is None else state["step"].add_(1).double()
            share = step ** group["beta2_decay"]
            share = (
                tensor(share, dtype=g.dtype, device=g.device) if captured is None else share.to(g)
            )
            if g.ndim < 2:
                variance, change = _change(g, state["variance"], share, eps1 * eps1)
                state["variance"].copy_(variance)
            else:
                row = state["row_var"].copy_(_mean(g, state["row_var"], share, -1))
                column = state["col_var"].copy_(_mean(g, state["col_var"], share, -2))
                change = _change_of_matrix(g, _over_mean(row, eps1), column, eps1 * eps1)
            if not p.numel():
                continue
            norms = [x.double() if captured else float(x.item()) for x in _norms(p, change)]
            size, length = (x / p.numel() ** 0.5 for x in norms)
            rate = _larger(eps2, size) * -_larger(-lr, -(step**-0.5)) / _larger(1.0, length / d)
            if group["weight_decay"]:
                p.mul_(1 - lr * group["weight_decay"])
            rate = rate if group["maximize"] else -rate
            if isinstance(rate, Tensor):
                p.add_(change * rate.to(change))
            else:
                p.add_(change, alpha=rate)


def _larger(least: Any, x: Any) -> Any:
    """`x`, or `least` where it is not larger, as for NaN."""
    if isinstance(x, Tensor):
        return where(x > least, x, least)
    return x if x > least else least


@functools.cache
def _eps(dtype: Any) -> float:
    return finfo(dtype).eps


@fused
def _change(g: Any, variance: Any, share: Any, least: float) -> Any:
    """The mean of squared gradients, and the gradient over its root."""
    variance = variance + share * (g * g - variance)
    return variance, variance.clamp(min=least).rsqrt() * g


@fused
def _mean(g: Any, mean: Any, share: Any, dim: int) -> Any:
    """The mean of squared gradients over `dim`."""
    return mean + share * ((g * g).mean(dim, keepdim=True) - mean)


@fused
def _over_mean(row: Any, eps: float) -> Any:
    return row / row.mean(-2, keepdim=True).clamp(min=eps)


@fused
def _change_of_matrix(g: Any, row: Any, column: Any, least: float) -> Any:
    return (row * column).clamp(min=least).rsqrt() * g


@fused
def _norms(p: Any, change: Any) -> Any:
    return vector_norm(p), vector_norm(change)
