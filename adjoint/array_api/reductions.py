"""Reductions over axes: None stands for all of them, and no axes leave every element apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.errors import InvalidArgument
from ..core.spec import normalize_axis
from .data_types import Array

__all__: list[str] = []


def reduced(
    function: Callable[..., Any],
    x: Array,
    axis: int | tuple[int, ...] | None,
    keepdims: bool,
    **options: Any,
) -> Array:
    """`function(x, dim, keepdim, **options)` over `axis`."""
    if axis is None:
        axes = tuple(range(x.ndim))
    else:
        given = axis if isinstance(axis, tuple) else (axis,)
        axes = tuple(normalize_axis(each, x.ndim, function.__name__) for each in given)
        if len(set(axes)) < len(axes):
            raise InvalidArgument(f"{function.__name__}: axis {axis} names an axis twice")
    if not axes:  # PyTorch would reduce over all: over a new axis of size 1, nothing is reduced
        return function(x[None], (0,), False, **options)
    return function(x, axes, keepdims, **options)
