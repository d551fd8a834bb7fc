"""The base of optimizers whose step treats every element alike, and how their step is run."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ..autograd.tape import rebase, wrap
from ..core.compute import quiet
from ..core.dtype import float32, float64, get_default_dtype
from ..core.mode import MODE
from ..ops.complex import view_as_real
from ..ops.creation import tensor, zeros_like
from ..tensor import Tensor
from .optimizer import Optimizer, as_float

__all__ = ["ElementwiseOptimizer"]

_BLOCK = 1 << 16  # elements: what a step makes on the way stays in the processor's cache
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
        return {"step": new_scalar(0.0), **{name: zeros_like(p) for name in self.zeros}}

    def numbers(self, group: dict[str, Any], state: dict[str, Any], step: float) -> Any:
        """What the formula needs besides the elements, also what of the state is no tensor like
        the parameter; called once a parameter and step. `step` is this step's number; where the
        state does not count steps, 1 for the first and 2 for any other.
        """
        return step

    def change(
        self, group: dict[str, Any], numbers: Any, state: dict[str, Any], p: Any, g: Any
    ) -> None:
        """The formula: change `p`, and the tensors of `state`, in place.

        They may be blocks of the whole.
        """
        raise NotImplementedError(f"{type(self).__name__} must define change, or update")

    def change_arrays(
        self,
        group: dict[str, Any],
        numbers: Any,
        state: dict[str, Any],
        p: Any,
        g: Any,
        spare: Any,
    ) -> None:
        """`change` on NumPy arrays of one dtype, in few passes; for the optimizers used most.

        `spare` are two arrays to write into.
        """
        raise NotImplementedError(f"{type(self).__name__} has no change_arrays")

    def update(self, group: dict[str, Any], parameters: list[Any]) -> None:
        """Apply the formula to each parameter."""
        mode = MODE.get()
        plain = mode.plain and not mode.grad
        has_arrays = type(self).change_arrays is not ElementwiseOptimizer.change_arrays
        least = 0 if has_arrays else 2 * _BLOCK
        for p in parameters:
            state = self.state.get(p)
            fresh = not state
            if not state:
                state = self.begin(p, group)
                if state:
                    self.state[p] = state
            step = advance(state) if "step" in state else 1.0 if fresh else 2.0
            numbers = self.numbers(group, state, step)
            if not plain or p._data.size < least:
                self._change_whole(group, numbers, state, p)
                continue
            like = {name: value for name, value in state.items() if _is_like(value, p)}
            if not _is_plain(p, p.grad, *like.values()):
                self._change_whole(group, numbers, state, p)
                continue
            try:
                if has_arrays:
                    quiet.run(self._change_arrays, group, numbers, like, p)
                else:
                    self._change_blocks(group, numbers, like, p)
            finally:
                for changed in (p, *like.values()):
                    rebase(changed, None, "step")

    def _change_whole(
        self, group: dict[str, Any], numbers: Any, state: dict[str, Any], p: Any
    ) -> None:
        if MODE.get().grad:  # differentiable: what the graph saved must stay
            for name, value in state.items():
                if _is_like(value, p):
                    state[name] = value.clone()
        g = p.grad
        if p.is_complex():
            state = {
                name: view_as_real(value) if _is_like(value, p) else value
                for name, value in state.items()
            }
            p, g = view_as_real(p), view_as_real(g)
        self._decay_and_change(group, numbers, state, p, g)

    def _decay_and_change(
        self, group: dict[str, Any], numbers: Any, state: dict[str, Any], p: Any, g: Any
    ) -> None:
        weight_decay = group.get("weight_decay", 0)
        if group.get("maximize"):
            g = -g
        if weight_decay:
            if group.get("decoupled_weight_decay"):
                p.mul_(1 - as_float(group["lr"]) * weight_decay)
            else:
                g = g.add(p, alpha=weight_decay)
        self.change(group, numbers, state, p, g)

    def _change_blocks(
        self, group: dict[str, Any], numbers: Any, like: dict[str, Any], p: Any
    ) -> None:
        """Change large parameters block by block."""
        flat, flat_g = p._data.reshape(-1), p.grad._data.reshape(-1)
        states = {name: value._data.reshape(-1) for name, value in like.items()}
        for i in range(0, flat.size, _BLOCK):
            block = slice(i, i + _BLOCK)
            parts = {name: wrap(array[block]) for name, array in states.items()}
            self._decay_and_change(group, numbers, parts, wrap(flat[block]), wrap(flat_g[block]))

    def _change_arrays(
        self, group: dict[str, Any], numbers: Any, like: dict[str, Any], p: Any
    ) -> None:
        """The same with `change_arrays`."""
        flat, flat_g = p._data.reshape(-1), p.grad._data.reshape(-1)
        states = {name: value._data.reshape(-1) for name, value in like.items()}
        maximize, weight_decay = group["maximize"], group["weight_decay"]
        decoupled = weight_decay and group.get("decoupled_weight_decay")
        size = flat.size
        spare = np.empty((3, min(size, _BLOCK)), flat.dtype)
        for i in range(0, size, _BLOCK):
            if size > _BLOCK:
                block = slice(i, i + _BLOCK)
                part, g = flat[block], flat_g[block]
                parts = {name: array[block] for name, array in states.items()}
                rows = spare[:, : part.size]
            else:
                part, g, parts, rows = flat, flat_g, states, spare
            if maximize:
                g = np.negative(g, rows[0])
            if decoupled:
                np.multiply(part, 1 - as_float(group["lr"]) * weight_decay, part)
            elif weight_decay:
                decay = np.multiply(part, weight_decay, rows[1])
                g = np.add(g, decay, rows[0])
            self.change_arrays(group, numbers, parts, part, g, rows[1:])


def _is_like(value: Any, p: Any) -> bool:
    return isinstance(value, Tensor) and value._data.shape == p._data.shape and value is not p


def _is_plain(*tensors: Any) -> bool:
    """Whether all hold memory that can be cut into blocks."""
    dtype = tensors[0]._data.dtype
    if dtype not in _PLAIN:
        return False
    for each in tensors:
        data = each._data
        if type(data) is not np.ndarray or data.dtype != dtype:
            return False
        flags = data.flags
        if not (flags.c_contiguous and flags.writeable):
            return False
    return True


def new_scalar(value: float) -> Any:
    """A state of one number: float64 where that is the default dtype, float32 otherwise."""
    double = get_default_dtype() == float64
    return tensor(value, dtype=float64 if double else float32)


def advance(state: dict[str, Any]) -> float:
    """Count one step in `state` and return their number."""
    count = state["step"]
    if not isinstance(count, Tensor):  # as checkpoints of older versions have it
        count = state["step"] = new_scalar(float(count))
    count.add_(1)
    return float(count.item())
