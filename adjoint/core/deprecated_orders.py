"""Deprecated argument orders that PyTorch still accepts: numbers between the tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .tensor_base import TensorBase

_SUMS = ("beta", "alpha"), 3
_ORDERS: dict[str, tuple[tuple[str, ...], int]] = {  # keywords of the numbers, count of tensors
    "add": (("alpha",), 2), "sub": (("alpha",), 2),
    "addcdiv": (("value",), 3), "addcmul": (("value",), 3),
    "addbmm": _SUMS, "addmm": _SUMS, "addmv": _SUMS, "addr": _SUMS, "baddbmm": _SUMS,
}  # fmt: skip


def in_present_order(
    name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]] | None:
    """The arguments of a deprecated call, such as `add(x, alpha, y)`, as `add(x, y, alpha=alpha)`;
    None if the order is the present one.
    """
    names, count = _ORDERS.get(name.removesuffix("_"), ((), 0))
    numbers = [x for x in args if isinstance(x, (int, float, complex))]
    tensors = [x for x in args if isinstance(x, TensorBase)]
    if (
        not numbers or len(numbers) > len(names) or len(tensors) != count
        or len(numbers) + count != len(args) or any(each in kwargs for each in names)
        or not isinstance(args[-1], TensorBase)
    ):  # fmt: skip
        return None
    return tensors, {**kwargs, **dict(zip(names, numbers, strict=False))}
