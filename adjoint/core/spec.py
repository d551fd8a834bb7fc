"""Spec (shape, dtype, device), broadcasting, axis normalisation."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, SupportsIndex, cast, overload

from . import config, policy
from .device import CPU, device
from .dtype import dtype
from .errors import IndexingError, InvalidType, ShapeError
from .symbolic_scalar import SymbolicNumber


class Size(tuple[int, ...]):
    """A tensor's shape: a tuple of ints that also counts its elements.

    Source: https://docs.pytorch.org/docs/stable/size.html

    >>> ad.zeros(2, 3).shape.numel()
    6
    """

    __slots__ = ()

    def __new__(cls, sizes: Iterable[SupportsIndex] = ()) -> Size:
        """A size of ints; other items are asked for theirs."""
        made = tuple.__new__(cls, sizes)
        for each in made:
            if type(each) is not int:
                return tuple.__new__(cls, map(_int_of, range(len(made)), made))
        return made

    def numel(self) -> int:
        """The number of elements of a tensor of this shape."""
        return prod(self)

    def __repr__(self) -> str:
        return f"{config.CALLED}.Size({list(self)})"

    @overload
    def __getitem__(self, index: SupportsIndex) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> Size: ...

    def __getitem__(self, index: Any) -> Any:
        item = tuple.__getitem__(self, index)
        return Size(item) if isinstance(index, slice) else item

    def __add__(self, other: tuple[Any, ...]) -> Size:
        return Size(tuple(self) + tuple(other))


def _int_of(place: int, size: SupportsIndex) -> int:
    """A size as an int: also of a bool, a NumPy number or a tensor of one. A symbolic one stays."""
    if type(size) is SymbolicNumber:
        return cast("int", size)
    try:
        return operator.index(size)
    except TypeError:
        raise InvalidType(
            f"{config.CALLED}.Size() takes an iterable of 'int' (item {place} is "
            f"{type(size).__name__!r})"
        ) from None


class Spec(NamedTuple):
    """Shape, dtype and device: what is known of a value before it is computed."""

    shape: tuple[int, ...]
    dtype: dtype
    device: device = CPU

    def with_(self, **changes: Any) -> Spec:
        """A copy with some fields replaced."""
        return self._replace(**changes)


def prod(sizes: Iterable[int]) -> int:
    """The product of `sizes`; 1 for none."""
    total = 1
    for size in sizes:
        total *= size
    return total


def assert_possible(shape: Sequence[int], op: str) -> None:
    """Refuse a shape of more elements than memory has addresses."""
    if prod(max(size, 1) for size in shape) >= policy.MOST_ELEMENTS:
        raise ShapeError(
            f"{op}: Storage size calculation overflowed with sizes={list(shape)}; use fewer "
            "elements"
        )


def broadcast_shapes(*shapes: Sequence[int], op: str = "broadcast_shapes") -> tuple[int, ...]:
    """The shape to which all `shapes` broadcast; ShapeError names `op` where they do not."""
    result, conflict = broadcast(shapes)
    if conflict is not None:
        size, i = conflict
        raise ShapeError(
            f"{op}: shapes {' and '.join(str(tuple(s)) for s in shapes)} do not "
            f"broadcast: sizes {result[i]} and {size} at dimension {i} must be equal "
            "or 1; reshape or unsqueeze one of them"
        )
    return tuple(result)


def broadcast(shapes: Iterable[Sequence[int]]) -> tuple[list[int], tuple[int, int] | None]:
    """The sizes to which all `shapes` broadcast; or those so far, and the size that does not, with
    its dimension.
    """
    shapes = tuple(shapes)
    ndim = max((len(shape) for shape in shapes), default=0)
    result = [1] * ndim
    for shape in shapes:
        for i, size in enumerate(shape, ndim - len(shape)):
            if size != 1 and size != result[i]:
                if result[i] != 1:
                    return result, (size, i)
                result[i] = size
    return result, None


def normalize_axis(dim: SupportsIndex, ndim: int, op: str) -> int:
    """`dim` counted from the front; IndexingError where it is out of range (0-d counts as 1-d)."""
    try:
        axis = operator.index(dim)
    except TypeError:
        raise InvalidType(f"{op}: dim must be an int, got {dim!r}") from None
    span = max(ndim, 1)
    if not -span <= axis < span:
        raise IndexingError(
            f"{op}: Dimension out of range (expected to be in range of [{-span}, {span - 1}], "
            f"but got {axis}) for a tensor of {ndim} dimensions"
        )
    return axis + span if axis < 0 else axis


def normalize_axes(
    dim: SupportsIndex | tuple[SupportsIndex, ...] | list[SupportsIndex] | list[int] | None,
    ndim: int,
    op: str,
) -> tuple[int, ...]:
    """`dim` (None for all, an int, or several) as a sorted tuple of axes without repeats."""
    if dim is None:
        return tuple(range(ndim))
    if isinstance(dim, (tuple, list)):
        axes = [normalize_axis(d, ndim, op) for d in dim]
        if len(set(axes)) != len(axes):
            raise ShapeError(f"{op}: dim {tuple(dim)} appears multiple times in the list of dims")
        if not ndim:
            return ()
        return tuple(sorted(axes)) if axes else tuple(range(ndim))
    axis = normalize_axis(dim, ndim, op)
    return (axis,) if ndim else ()


def reduced_shape(shape: Sequence[int], axes: Sequence[int], keepdims: bool) -> tuple[int, ...]:
    """The shape after reducing `axes`."""
    if keepdims:
        return tuple(1 if i in axes else size for i, size in enumerate(shape))
    return tuple(size for i, size in enumerate(shape) if i not in axes)
