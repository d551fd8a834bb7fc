"""Functions that change the shape or arrangement of elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.errors import InvalidArgument, InvalidType, ShapeError
from . import functions as ad
from .axes import axes_of, axis_of, tuple_of
from .data_types import INTEGRAL, Array, assert_kind, checked, common_dtype, is_array

__all__ = [
    "broadcast_arrays", "broadcast_to", "concat", "expand_dims", "flip", "moveaxis",
    "permute_dims", "repeat", "reshape", "roll", "squeeze", "stack", "tile", "unstack",
]  # fmt: skip


def _alike(name: str, arrays: Any) -> list[Array]:
    """The arrays, brought to their common dtype."""
    arrays = [checked(name, array) for array in arrays]
    if not arrays:
        raise InvalidArgument(f"{name}: needs at least one array")
    common = common_dtype(name, arrays)
    return [array.to(common) for array in arrays]


def broadcast_arrays(*arrays: Array) -> list[Array]:
    """The arrays, spread to the shape to which all of them broadcast.

    Errors: ShapeError where the shapes do not broadcast.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.broadcast_arrays.html

    >>> ad.array_api.broadcast_arrays(ad.tensor([1, 2]), ad.tensor(3))
    [tensor([1, 2]), tensor([3, 3])]
    """
    for array in arrays:
        checked("broadcast_arrays", array)
    return list(ad.broadcast_tensors(*arrays)) if arrays else []


def broadcast_to(x: Array, /, shape: tuple[int, ...]) -> Array:
    """The array, spread to a shape.

    Errors: ShapeError where it does not broadcast to exactly that shape.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.broadcast_to.html

    >>> ad.array_api.broadcast_to(ad.tensor([1, 2]), (2, 2))
    tensor([[1, 2],
            [1, 2]])
    """
    checked("broadcast_to", x)
    if any(size < 0 for size in shape):  # PyTorch reads -1 as the size that is there
        raise ShapeError(f"broadcast_to: {tuple(shape)} has a negative size")
    return ad.broadcast_to(x, tuple(shape))


def concat(arrays: Sequence[Array], /, *, axis: int | None = 0) -> Array:
    """The arrays one after the other along an axis; flattened first where it is None.

    Errors: ShapeError where other sizes differ; DTypeError where the dtypes do not promote.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.concat.html

    >>> ad.array_api.concat([ad.tensor([1, 2]), ad.tensor([3])])
    tensor([1, 2, 3])
    """
    parts = _alike("concat", arrays)
    if axis is None:
        parts, axis = [part.reshape(-1) for part in parts], 0
    first = parts[0]
    axis = axis_of(axis, first.ndim, "concat")
    for part in parts:  # PyTorch joins empty arrays of other ranks
        if part.ndim != first.ndim or not first.ndim:
            raise ShapeError(f"concat: shapes {tuple(first.shape)} and {tuple(part.shape)}")
        for i, (size, other) in enumerate(zip(first.shape, part.shape, strict=True)):
            if i != axis and size != other:
                raise ShapeError(f"concat: shapes {tuple(first.shape)} and {tuple(part.shape)}")
    return ad.cat(parts, axis)


def expand_dims(x: Array, /, axis: int) -> Array:
    """The array with a dimension of size 1 at position `axis` of the result.

    Errors: IndexingError for a position that the result does not have.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.expand_dims.html

    >>> ad.array_api.expand_dims(ad.zeros(2, 3), -1).shape
    adjoint.Size([2, 3, 1])
    """
    return ad.unsqueeze(checked("expand_dims", x), axis)


def flip(x: Array, /, *, axis: int | tuple[int, ...] | None = None) -> Array:
    """The elements in reverse order along axes, all of them where None.

    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.flip.html

    >>> ad.array_api.flip(ad.tensor([1, 2, 3]))
    tensor([3, 2, 1])
    """
    checked("flip", x)
    return ad.flip(x, tuple(range(x.ndim)) if axis is None else tuple_of(axis))


def moveaxis(
    x: Array, source: int | tuple[int, ...], destination: int | tuple[int, ...], /
) -> Array:
    """The axes `source` at positions `destination`, the others in their order between.

    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.moveaxis.html

    >>> ad.array_api.moveaxis(ad.zeros(2, 3, 4), 0, -1).shape
    adjoint.Size([3, 4, 2])
    """
    return ad.movedim(checked("moveaxis", x), source, destination)


def permute_dims(x: Array, /, axes: tuple[int, ...]) -> Array:
    """The axes in another order.

    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.permute_dims.html

    >>> ad.array_api.permute_dims(ad.zeros(2, 3, 4), (2, 0, 1)).shape
    adjoint.Size([4, 2, 3])
    """
    return ad.permute(checked("permute_dims", x), tuple(axes))


def repeat(x: Array, repeats: int | Array, /, *, axis: int | None = None) -> Array:
    """Each element `repeats` times in a row, along an axis of x (of x flattened where None).

    Shapes: `repeats` is an int, or one per element along the axis.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.repeat.html

    >>> ad.array_api.repeat(ad.tensor([1, 2]), 2)
    tensor([1, 1, 2, 2])
    """
    checked("repeat", x)
    if axis is None:
        x, axis = x.reshape(-1), 0
    axis = axis_of(axis, x.ndim, "repeat")
    if is_array(repeats):
        assert_kind("repeat", repeats.dtype, INTEGRAL)  # type: ignore[union-attr]
        counts = repeats.to(ad.int64).expand(x.shape[axis])  # type: ignore[union-attr]
        return ad.repeat_interleave(x, counts, axis)
    return ad.repeat_interleave(x, repeats, axis)


def reshape(x: Array, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Array:
    """A tensor of the same elements in another shape, one of whose sizes may be -1: inferred.

    `copy` says whether memory must (True), may (None) or must not (False) be copied.

    Errors: ShapeError (a ValueError) where the sizes do not fit, or a copy is needed and `copy` is
    False.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.reshape.html

    >>> ad.array_api.reshape(ad.tensor([1, 2, 3, 4]), (2, -1))
    tensor([[1, 2],
            [3, 4]])
    """
    checked("reshape", x)
    if copy is False:
        return x.view(tuple(shape))  # an error where it would need a copy
    return ad.reshape(x.clone() if copy else x, tuple(shape))


def roll(
    x: Array, /, shift: int | tuple[int, ...], *, axis: int | tuple[int, ...] | None = None
) -> Array:
    """The elements moved by `shift` places along axes (of x flattened where None), coming back in
    at the other end.

    Errors: InvalidArgument where there are not as many shifts as axes.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.roll.html

    >>> ad.array_api.roll(ad.tensor([1, 2, 3]), 1)
    tensor([3, 1, 2])
    """
    checked("roll", x)
    if axis is None:
        if isinstance(shift, tuple):
            raise InvalidArgument(f"roll: {len(shift)} shifts need as many axes")
        return ad.roll(x, shift)
    axes = tuple_of(axis)
    shifts = tuple_of(shift) if isinstance(shift, (tuple, list)) else (shift,) * len(axes)
    if len(shifts) != len(axes):
        raise InvalidArgument(f"roll: {len(shifts)} shifts for {len(axes)} axes")
    return ad.roll(x, shifts, axes) if axes else x.clone()


def squeeze(x: Array, /, axis: int | tuple[int, ...]) -> Array:
    """The array without dimensions of size 1.

    Errors: ShapeError (a ValueError) for a dimension of another size.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.squeeze.html

    >>> ad.array_api.squeeze(ad.zeros(2, 1), 1).shape
    adjoint.Size([2])
    """
    checked("squeeze", x)
    axes = axes_of(axis, x.ndim, "squeeze")
    for each in axes:
        if x.shape[each] != 1:  # PyTorch leaves it as it is
            raise ShapeError(f"squeeze: axis {each} of shape {tuple(x.shape)} is not of size 1")
    return ad.squeeze(x, axes) if axes else x


def stack(arrays: Sequence[Array], /, *, axis: int = 0) -> Array:
    """The arrays, of one shape, along a new axis.

    Errors: ShapeError where the shapes differ; DTypeError where the dtypes do not promote.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.stack.html

    >>> ad.array_api.stack([ad.tensor([1, 2]), ad.tensor([3, 4])])
    tensor([[1, 2],
            [3, 4]])
    """
    return ad.stack(_alike("stack", arrays), axis)


def tile(x: Array, repetitions: tuple[int, ...], /) -> Array:
    """The whole array `repetitions` times along each axis.

    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.tile.html

    >>> ad.array_api.tile(ad.tensor([1, 2]), (2,))
    tensor([1, 2, 1, 2])
    """
    checked("tile", x)
    if not isinstance(repetitions, (tuple, list)):
        raise InvalidType(f"tile: repetitions must be a tuple, got {repetitions!r}")
    return ad.tile(x, tuple(repetitions))


def unstack(x: Array, /, *, axis: int = 0) -> tuple[Array, ...]:
    """The slices along an axis, without it.

    Errors: IndexingError for an axis that x does not have.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.unstack.html

    >>> ad.array_api.unstack(ad.tensor([[1, 2], [3, 4]]))
    (tensor([1, 2]), tensor([3, 4]))
    """
    return tuple(ad.unbind(checked("unstack", x), axis))
