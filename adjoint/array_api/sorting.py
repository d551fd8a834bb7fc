"""Elements in order."""

from __future__ import annotations

from . import functions as ad
from .data_types import REAL, Array, assert_array

__all__ = ["argsort", "sort"]


def argsort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """The places of the elements in order along an axis; equal ones keep theirs where `stable`.

    Errors: DTypeError for bool and complex arrays.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.argsort.html

    >>> ad.array_api.argsort(ad.tensor([3, 1, 2]))
    tensor([1, 2, 0])
    """
    assert_array("argsort", x, REAL)
    return ad.argsort(x, axis, descending, stable)


def sort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """The elements in order along an axis.

    Errors: DTypeError for bool and complex arrays.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.sort.html

    >>> ad.array_api.sort(ad.tensor([3, 1, 2]), descending=True)
    tensor([3, 2, 1])
    """
    assert_array("sort", x, REAL)
    return ad.sort(x, axis, descending, stable).values
