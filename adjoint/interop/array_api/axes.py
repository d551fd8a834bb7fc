"""Axes as the standard counts them, and reductions over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...core.errors import IndexingError, InvalidArgument
from ...core.spec import normalize_axis
from .data_types import Array


def axis_of(axis: int, ndim: int, name: str) -> int:
    """An axis as a number from 0; an array without axes has none (PyTorch lets it have one)."""
    if not ndim:
        raise IndexingError(f"{name}: an array without axes has no axis {axis}")
    return normalize_axis(axis, ndim, name)


def tuple_of(axis: int | Sequence[int]) -> tuple[int, ...]:
    """One axis or several, as a tuple."""
    return (axis,) if isinstance(axis, int) else tuple(axis)


def axes_of(axis: int | Sequence[int], ndim: int, name: str) -> tuple[int, ...]:
    """One axis or several as numbers from 0, each named once."""
    axes = tuple(axis_of(each, ndim, name) for each in tuple_of(axis))
    if len(set(axes)) < len(axes):
        raise InvalidArgument(f"{name}: {axis} names an axis twice")
    return axes


def reduced(
    function: Callable[..., Any],
    x: Array,
    axis: int | tuple[int, ...] | None,
    keepdims: bool,
    **options: Any,
) -> Array:
    """`function(x, dim, keepdim, **options)` over axes: None stands for all of them, and no axes
    leave every element apart.
    """
    axes = tuple(range(x.ndim)) if axis is None else axes_of(axis, x.ndim, function.__name__)
    if not axes:  # PyTorch would reduce over all: over a new axis of size 1, nothing is reduced
        return function(x[None], (0,), False, **options)
    return function(x, axes, keepdims, **options)
