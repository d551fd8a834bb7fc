"""Places of elements, and elements in order."""

from __future__ import annotations

from typing import Any

from ...core.errors import InvalidArgument
from . import functions as ad
from .axes import reduced
from .data_types import ANY, BOOLEAN, REAL, Array, checked, common_dtype, operands

__all__ = [
    "argmax", "argmin", "argsort", "count_nonzero", "nonzero", "searchsorted", "sort", "where",
]  # fmt: skip


def _extremum(name: str, x: Array, axis: int | None, keepdims: bool) -> Array:
    checked(name, x, REAL)
    if axis is None:
        place = getattr(ad, name)(x)
        return place.reshape((1,) * x.ndim) if keepdims else place
    return getattr(ad, name)(x, axis, keepdims)


def argmax(x: Array, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """The place of the first greatest element along an axis, or in x flattened.

    Errors: DTypeError for bool and complex arrays; IndexingError where there is no element.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.argmax.html

    >>> ad.array_api.argmax(ad.tensor([1, 3, 2]))
    tensor(1)
    """
    return _extremum("argmax", x, axis, keepdims)


def argmin(x: Array, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """The place of the first smallest element along an axis, or in x flattened.

    Errors: DTypeError for bool and complex arrays; IndexingError where there is no element.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.argmin.html

    >>> ad.array_api.argmin(ad.tensor([2, 3, 1]))
    tensor(2)
    """
    return _extremum("argmin", x, axis, keepdims)


def count_nonzero(
    x: Array, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False
) -> Array:
    """Number of elements that are not zero, over axes or in all.

    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.count_nonzero.html

    >>> ad.array_api.count_nonzero(ad.tensor([1, 0, 3]))
    tensor(2)
    """
    return reduced(ad.sum, checked("count_nonzero", x) != 0, axis, keepdims, dtype=ad.int64)


def nonzero(x: Array, /) -> tuple[Array, ...]:
    """The places of the elements that are not zero, one array of indices per axis.

    Errors: InvalidArgument for an array without axes.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.nonzero.html

    >>> ad.array_api.nonzero(ad.tensor([0, 5, 0, 7]))
    (tensor([1, 3]),)
    """
    checked("nonzero", x)
    if not x.ndim:
        raise InvalidArgument("nonzero: an array without axes has no places; reshape it to (1,)")
    return tuple(ad.nonzero(x, as_tuple=True))


def searchsorted(
    x1: Array, x2: Array, /, *, side: str = "left", sorter: Array | None = None
) -> Array:
    """Index in the sorted x1 at which each element of x2 would be inserted to keep it sorted.

    Shapes: x1 is (n,), sorted or put in order by `sorter`; the result has the shape of x2.
    Errors: InvalidArgument where `side` is neither "left" (before equal elements) nor "right".
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.searchsorted.html

    >>> ad.array_api.searchsorted(ad.tensor([1, 3, 5]), ad.tensor([3, 4]))
    tensor([1, 2])
    """
    if side not in ("left", "right"):
        raise InvalidArgument(f"searchsorted: side must be 'left' or 'right', got {side!r}")
    x1, x2 = operands("searchsorted", REAL, x1, x2)
    if x1.ndim != 1:
        raise InvalidArgument(f"searchsorted: x1 must have one axis, not shape {tuple(x1.shape)}")
    if sorter is not None:
        x1 = x1[sorter.to(ad.int64)]
    return ad.searchsorted(x1, x2, side=side)


def where(condition: Array, x1: Any, x2: Any, /) -> Array:
    """x1 where the condition holds, and x2 elsewhere; one of both may be a Python scalar.

    Shapes: all three broadcast.
    Errors: DTypeError where the condition is not bool, or x1 and x2 do not promote.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.where.html

    >>> ad.array_api.where(ad.tensor([True, False]), ad.tensor([1, 2]), 0)
    tensor([1, 0])
    """
    checked("where", condition, BOOLEAN)
    common_dtype("where", (x1, x2))
    return ad.where(condition, *operands("where", ANY, x1, x2))


def argsort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """The places of the elements in order along an axis; equal ones keep theirs where `stable`.

    Errors: DTypeError for bool and complex arrays.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.argsort.html

    >>> ad.array_api.argsort(ad.tensor([3, 1, 2]))
    tensor([1, 2, 0])
    """
    return ad.argsort(checked("argsort", x, REAL), axis, descending, stable)


def sort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """The elements in order along an axis.

    Errors: DTypeError for bool and complex arrays.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.sort.html

    >>> ad.array_api.sort(ad.tensor([3, 1, 2]), descending=True)
    tensor([3, 2, 1])
    """
    return ad.sort(checked("sort", x, REAL), axis, descending, stable).values
