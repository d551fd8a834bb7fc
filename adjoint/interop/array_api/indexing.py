"""Elements at given places."""

from __future__ import annotations

from ...core.errors import InvalidArgument, ShapeError
from ...core.spec import broadcast_shapes
from . import functions as ad
from .axes import axis_of
from .data_types import INTEGRAL, Array, checked

__all__ = ["take", "take_along_axis"]


def _places(name: str, indices: Array) -> Array:
    """Indices in the dtype that indexing takes."""
    return checked(name, indices, INTEGRAL).to(ad.int64)


def take(x: Array, indices: Array, /, *, axis: int | None = None) -> Array:
    """The elements at `indices` along an axis, which may be left out for one-dimensional arrays.

    Shapes: the shape of `indices` takes the place of the axis.
    Errors: InvalidArgument without an axis where x has several; IndexingError out of range.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.take.html

    >>> xp = ad.array_api
    >>> xp.take(xp.asarray([10, 20, 30]), xp.asarray([2, 0]))
    tensor([30, 10])
    """
    checked("take", x)
    places = _places("take", indices)
    if axis is None:
        if x.ndim != 1:
            raise InvalidArgument(f"take: an array of shape {tuple(x.shape)} needs an axis")
        axis = 0
    return x[(slice(None),) * axis_of(axis, x.ndim, "take") + (places,)]


def take_along_axis(x: Array, indices: Array, /, *, axis: int = -1) -> Array:
    """The elements at `indices`, one array of indices for each row along an axis.

    Shapes: `indices` has the rank of x; all other axes broadcast.
    Errors: ShapeError where the ranks differ or the shapes do not broadcast; IndexingError out of
    range.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.take_along_axis.html

    >>> xp = ad.array_api
    >>> xp.take_along_axis(xp.asarray([[1, 2], [3, 4]]), xp.asarray([[1], [0]]))
    tensor([[2],
            [3]])
    """
    checked("take_along_axis", x)
    places = _places("take_along_axis", indices)
    if places.ndim != x.ndim:
        raise ShapeError(
            f"take_along_axis: indices of shape {tuple(places.shape)} need the rank of x, whose "
            f"shape is {tuple(x.shape)}"
        )
    axis = axis_of(axis, x.ndim, "take_along_axis")
    common = list(
        broadcast_shapes(
            *((*a.shape[:axis], 1, *a.shape[axis + 1 :]) for a in (x, places)), op="take_along_axis"
        )
    )

    def spread(a: Array) -> Array:
        return ad.broadcast_to(a, (*common[:axis], a.shape[axis], *common[axis + 1 :]))

    return ad.take_along_dim(spread(x), spread(places), axis)
