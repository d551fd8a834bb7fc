"""Many tensors as one: a formula written for a tensor runs once for a list of them, each of its
operations as a few kernels for all (PyTorch's `_foreach` functions).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


class Many:
    """Tensors that have the methods which optimizers' formulas use; each acts on all of them.

    A formula that uses another method raises AttributeError: try it on `like` first, which has no
    memory, as a formula that stops halfway has changed half of its tensors.
    """

    __slots__ = ("tensors",)

    def __init__(self, tensors: Sequence[Any]) -> None:
        self.tensors = list(tensors)

    @classmethod
    def like(cls, dtype: Any) -> Many:
        """One tensor without memory, on which a formula can be tried."""
        return cls([torch.empty(1, dtype=dtype, device="meta")])

    def detach(self) -> Many:
        """The tensors themselves, which have no history."""
        return self

    def clone(self) -> Many:
        """Copies."""
        return Many([t.clone() for t in self.tensors])

    def copy_(self, other: Many) -> Many:
        """Copy the others in."""
        torch._foreach_copy_(self.tensors, other.tensors)
        return self

    def zero_(self) -> Many:
        """Zeros."""
        torch._foreach_zero_(self.tensors)
        return self

    def lerp_(self, end: Many, weight: float) -> Many:
        """Part of the way to the others, in place."""
        torch._foreach_lerp_(self.tensors, end.tensors, weight)
        return self

    def addcmul(self, a: Many, b: Many, *, value: float = 1) -> Many:
        """A multiple of the products added."""
        return Many(torch._foreach_addcmul(self.tensors, a.tensors, b.tensors, value))

    def addcmul_(self, a: Many, b: Many, *, value: float = 1) -> Many:
        """A multiple of the products added, in place."""
        torch._foreach_addcmul_(self.tensors, a.tensors, b.tensors, value)
        return self

    def addcdiv_(self, a: Many, b: Many, *, value: float = 1) -> Many:
        """A multiple of the quotients added, in place."""
        torch._foreach_addcdiv_(self.tensors, a.tensors, b.tensors, value)
        return self

    def add(self, other: Any, *, alpha: float = 1) -> Many:
        """A multiple of the others, or a number, added."""
        if isinstance(other, Many):
            return Many(torch._foreach_add(self.tensors, other.tensors, alpha=alpha))
        return Many(torch._foreach_add(self.tensors, other * alpha))

    def add_(self, other: Any, *, alpha: float = 1) -> Many:
        """A multiple of the others, or a number, added in place."""
        if isinstance(other, Many):
            torch._foreach_add_(self.tensors, other.tensors, alpha=alpha)
        else:
            torch._foreach_add_(self.tensors, other * alpha)
        return self

    def __add__(self, other: Any) -> Many:
        return self.add(other)

    def __sub__(self, other: Any) -> Many:
        return self.add(other, alpha=-1)

    def __neg__(self) -> Many:
        return Many(torch._foreach_neg(self.tensors))


def _of_one(name: str) -> Callable[[Many], Many]:
    function, in_place = getattr(torch, f"_foreach_{name}"), name.endswith("_")

    def method(self: Many) -> Many:
        results = function(self.tensors)
        return self if in_place else Many(results)

    return method


def _of_two(name: str) -> Callable[[Many, Any], Many]:
    function, in_place = getattr(torch, f"_foreach_{name}"), name.endswith("_")

    def method(self: Many, other: Any) -> Many:
        results = function(self.tensors, other.tensors if isinstance(other, Many) else other)
        return self if in_place else Many(results)

    return method


for _name in ("sqrt", "abs", "sign", "reciprocal", "sqrt_", "abs_", "neg_", "reciprocal_"):
    setattr(Many, _name, _of_one(_name))
for _name in ("mul", "div", "mul_", "div_"):
    setattr(Many, _name, _of_two(_name))
for _symbol, _name in {"mul": "mul", "rmul": "mul", "truediv": "div"}.items():
    setattr(Many, f"__{_symbol}__", getattr(Many, _name))
