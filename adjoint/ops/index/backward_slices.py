"""Slices with a negative step, which the array API standard has and PyTorch refuses: forward slices
of the same elements, turned round.
"""

from __future__ import annotations

from typing import Any

from ...core.tensor_base import TensorBase

__all__: list[str] = []


def is_backward(part: Any) -> bool:
    """Whether this part of an index is a slice with a negative step."""
    return isinstance(part, slice) and isinstance(part.step, int) and part.step < 0


def straightened(
    shape: tuple[int, ...], index: Any
) -> tuple[tuple[slice, ...], tuple[int, ...], tuple[Any, ...]] | None:
    """`x[index]` as `x[slices].flip(axes)[rest]`; None where no step is negative."""
    parts = index if type(index) is tuple else (index,)
    if not any(map(is_backward, parts)):
        return None
    used = sum(_dimensions(part) for part in parts)
    slices: list[slice] = []
    axes: list[int] = []
    rest: list[Any] = []
    for part in parts:
        if part is Ellipsis:
            slices += [slice(None)] * (len(shape) - used)
        elif is_backward(part) and len(slices) < len(shape):
            places = range(*part.indices(shape[len(slices)]))
            axes.append(len(slices))
            slices.append(slice(places[-1], places[0] + 1, -part.step) if places else slice(0))
            part = slice(None)
        else:
            slices += [slice(None)] * _dimensions(part)
        rest.append(part)
    return tuple(slices), tuple(axes), tuple(rest)


def _dimensions(part: Any) -> int:
    """Number of dimensions of the tensor that a part of an index stands for."""
    if part is None or part is Ellipsis or isinstance(part, bool):
        return 0
    if isinstance(part, TensorBase) and part.dtype.category == 0:
        return part.ndim
    return 1
