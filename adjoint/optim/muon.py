"""Muon."""

from __future__ import annotations

import math
from typing import Any

from ..core.errors import DTypeError, InvalidArgument
from ..ops.create.like import zeros_like
from ..ops.linalg.matmul import addmm
from ..runtime.fused import fused
from .optimizer import Group, Optimizer
from .options import as_float, checked

__all__ = ["Muon"]


class Muon(Optimizer):
    """Muon: orthogonalized momentum, for the matrices of hidden layers (Jordan et al., 2024).

        v = momentum v + (1 - momentum) g
        u = orthogonalized(g + momentum (v - g)), or orthogonalized(v) without `nesterov`
        p = p (1 - lr weight_decay) - lr factor u

    Here g is the gradient of p. A matrix is orthogonalized by `ns_steps` Newton-Schulz iterations
    in bfloat16, from y = x / max(|x|, eps): with A = y y^T and (a, b, c) = ns_coefficients, y = a y
    + (b A + c A A) y.

    Args:
        params: Parameters to change, matrices all: an iterable of tensors, of pairs (name, tensor),
            or of groups.
        lr: Learning rate, a number or a tensor of one element. Default: 0.001.
        weight_decay: Factor by which, times lr, the parameter shrinks in each step. Default: 0.1.
        momentum: Decay rate of the mean of gradients, v. Default: 0.95.
        nesterov: Look ahead: mix the gradient once more with v. Default: True.
        ns_coefficients: Coefficients (a, b, c) of the iteration. Default: (3.4445, -4.775, 2.0315).
        eps: Least norm by which a matrix is divided. Default: 1e-7.
        ns_steps: Number of iterations, below 100. Default: 5.
        adjust_lr_fn: How the factor follows from the matrix' shape: "original" or None, sqrt(max(1,
            rows / columns)); "match_rms_adamw", 0.2 sqrt(max(rows, columns)). Default: None.

    Errors: InvalidArgument for a parameter that is not a matrix, a negative lr, momentum, eps or
    weight_decay, another adjust_lr_fn, 100 steps or more, or other than three coefficients;
    DTypeError for complex parameters; LayoutError for sparse gradients.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.Muon.html

    >>> p = ad.nn.Parameter(ad.eye(2))
    >>> (p * ad.tensor([[2.0, 0.0], [0.0, 3.0]])).sum().backward()
    >>> ad.optim.Muon([p], lr=0.5, weight_decay=0).step()
    >>> p[0, 1].item()
    0.0
    """

    takes_sparse = False

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        options = checked(locals())
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise InvalidArgument(
                f"Adjust learning rate function {adjust_lr_fn} is not supported; choose "
                "'original' or 'match_rms_adamw'"
            )
        if ns_steps >= 100:
            raise InvalidArgument(f"Number of steps must be less than 100, got {ns_steps}")
        if len(ns_coefficients) != 3:
            raise InvalidArgument(
                f"Coefficients must be a tuple of exactly 3 values, got {ns_coefficients}"
            )
        super().__init__(params, options)
        for group in self.param_groups:
            for p in group["params"]:
                if p.ndim != 2:
                    raise InvalidArgument(
                        "Muon only supports 2D parameters whereas we found a parameter with size: "
                        f"{tuple(p.shape)}; give the others to AdamW"
                    )

    def update(self, group: Group, parameters: list[Any]) -> None:
        """p = p - rate orthogonalized(velocity).

        >>> optimizer = ad.optim.Muon([ad.nn.Parameter(ad.eye(2))])
        >>> optimizer.update(optimizer.param_groups[0], [])
        """
        lr, momentum = as_float(group["lr"]), group["momentum"]
        for p in parameters:
            if p.is_complex():
                raise DTypeError(f"Muon does not support complex parameters, got {p.dtype}")
            g = p.grad
            state = self.state[p]
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = zeros_like(g)
            velocity = state["momentum_buffer"]
            velocity.lerp_(g, 1 - momentum)
            change = g.lerp(velocity, momentum) if group["nesterov"] else velocity
            change = _orthogonalized(
                change, group["ns_coefficients"], group["ns_steps"], group["eps"]
            )
            rows, columns = p.shape
            if group["adjust_lr_fn"] == "match_rms_adamw":
                rate = lr * 0.2 * math.sqrt(max(rows, columns))
            else:
                rate = lr * math.sqrt(max(1, rows / columns))
            p.mul_(1 - lr * group["weight_decay"])
            p.add_(change.to(p.dtype), alpha=-rate)


@fused
def _unit(x: Any, eps: float) -> Any:
    """`x` in bfloat16, over its norm, so that no singular value is above 1."""
    y = x.bfloat16().float()
    norm = y.norm().bfloat16().float()
    return (y / norm.clamp(min=eps)).bfloat16()


@fused(native="onednn.newton_schulz")
def _iterated(y: Any, a: float, b: float, c: float, steps: int) -> Any:
    """`steps` times y = a y + (b gram + c gram gram) y with gram = y y', in bfloat16."""
    for _ in range(steps):
        gram = y @ y.t()
        y = _rounded_once(y, _rounded_once(gram, gram, gram, b, c), y, a, 1)
    return y


def _rounded_once(z: Any, x: Any, y: Any, beta: float, alpha: float) -> Any:
    """beta z + alpha x y, computed in float32."""
    return addmm(z.float(), x.float(), y.float(), beta=beta, alpha=alpha).bfloat16()


def _orthogonalized(
    x: Any, coefficients: tuple[float, float, float], steps: int, eps: float
) -> Any:
    """About the orthogonal factor of `x`, by a Newton-Schulz iteration in bfloat16."""
    y = _unit(x, eps)
    is_tall = x.size(0) > x.size(1)
    y = _iterated(y.t() if is_tall else y, *coefficients, steps)
    return y.t() if is_tall else y
