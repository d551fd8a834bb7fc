"""The base of optimizers whose step treats every element alike, and how their step is run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

import adjoint as ad

from ..autograd.tape import rebase, wrap
from ..core.mode import MODE
from ..tensor import Tensor
from .optimizer import Optimizer

__all__ = ["ElementwiseOptimizer"]

_BLOCK = 1 << 14  # elements: what a step makes on the way stays in the processor's cache
_PLAIN = (np.dtype(np.float32), np.dtype(np.float64))


class ElementwiseOptimizer(Optimizer):
    """Base of optimizers whose step is a formula of each element of a parameter and its gradient.

    A subclass names its state tensors in `zeros` (or defines `begin`) and gives the formula in
    `change`; numbers that all elements share come from `numbers`. Complex parameters are seen as
    real ones with a last dimension of 2, as in PyTorch.

    >>> class Signs(ElementwiseOptimizer):
    ...     def change(self, group, numbers, state, p, g): p.add_(g.sign(), alpha=-group["lr"])
    >>> p = ad.nn.Parameter(ad.tensor([1.0, -1.0]))
    >>> (p * p).sum().backward()
    >>> Signs([p], {"lr": 0.5}).step()
    >>> p.tolist()
    [0.5, -0.5]
    """

    zeros: ClassVar[tuple[str, ...]] = ()

    def begin(self, p: Any, group: dict[str, Any]) -> dict[str, Any]:
        """What the state of `p` is before its first step."""
        return {"step": new_scalar(0.0), **{name: ad.zeros_like(p) for name in self.zeros}}

    def numbers(self, group: dict[str, Any], state: dict[str, Any], step: float) -> Any:
        """What the formula needs besides the elements, also what of the state is no tensor like
        the parameter; called once a parameter and step.
        """
        return step

    def change(
        self, group: dict[str, Any], numbers: Any, state: dict[str, Any], p: Any, g: Any
    ) -> None:
        """The formula: change `p`, and the tensors of `state`, in place.

        They may be blocks of the whole.
        """
        raise NotImplementedError(f"{type(self).__name__} must define change, or update")

    def update(self, group: dict[str, Any], parameters: list[Any]) -> None:
        """Apply the formula to each parameter."""
        weight_decay = group.get("weight_decay", 0)
        for p in parameters:
            state = self.state[p]
            if not state:
                state.update(self.begin(p, group))
            numbers = self.numbers(group, state, advance(state))
            for part, g, states in _parts(p, state):
                if group.get("maximize"):
                    g = -g
                if weight_decay:
                    if group.get("decoupled_weight_decay"):
                        part.mul_(1 - float(group["lr"]) * weight_decay)
                    else:
                        g = g.add(part, alpha=weight_decay)
                self.change(group, numbers, states, part, g)


def _parts(p: Any, state: dict[str, Any]) -> Iterator[tuple[Any, Any, dict[str, Any]]]:
    """The parameter with its gradient and state; large ones in blocks of their memory."""
    g = p.grad
    if p.is_complex():
        real = {
            name: ad.view_as_real(value) if _is_like(value, p) else value
            for name, value in state.items()
        }
        yield ad.view_as_real(p), ad.view_as_real(g), real
        return
    like = {name: value for name, value in state.items() if _is_like(value, p)}
    mode = MODE.get()
    changed = (p, *like.values())
    if p._data.size < 2 * _BLOCK or mode.grad or not mode.plain or not _is_plain(g, *changed):
        yield p, g, state
        return
    try:
        flat = p._data.reshape(-1), g._data.reshape(-1)
        flat_state = {name: value._data.reshape(-1) for name, value in like.items()}
        for i in range(0, p._data.size, _BLOCK):
            block = slice(i, i + _BLOCK)
            part, part_g = (wrap(array[block]) for array in flat)
            yield part, part_g, {name: wrap(array[block]) for name, array in flat_state.items()}
    finally:
        for tensor in changed:
            rebase(tensor, None, "step")


def _is_like(value: Any, p: Any) -> bool:
    return isinstance(value, Tensor) and value.shape == p.shape and value.ndim > 0


def _is_plain(*tensors: Any) -> bool:
    """Whether all hold memory that can be cut into blocks."""
    first = tensors[0]._data
    return all(
        type(data) is np.ndarray
        and data.dtype in _PLAIN
        and data.dtype == first.dtype
        and data.flags.c_contiguous
        and data.flags.writeable
        for data in (tensor._data for tensor in tensors)
    )


def new_scalar(value: float) -> Any:
    """A state of one number: float64 where that is the default dtype, float32 otherwise."""
    double = ad.get_default_dtype() == ad.float64
    return ad.tensor(value, dtype=ad.float64 if double else ad.float32)


def advance(state: dict[str, Any]) -> float:
    """Count one step in `state` and return their number."""
    count = state["step"]
    if not isinstance(count, Tensor):  # as checkpoints of older versions have it
        count = state["step"] = new_scalar(float(count))
    count.add_(1)
    return float(count.item())
