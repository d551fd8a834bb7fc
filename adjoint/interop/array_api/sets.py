"""The different elements of an array. Each NaN is different from all others; -0.0 equals 0.0."""

from __future__ import annotations

from typing import NamedTuple

from ...core import dtype as dt
from . import functions as ad
from .data_types import Array, checked

__all__ = ["unique_all", "unique_counts", "unique_inverse", "unique_values"]


class UniqueAll(NamedTuple):
    """Result of `unique_all`."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    """Result of `unique_counts`."""

    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    """Result of `unique_inverse`."""

    values: Array
    inverse_indices: Array


def _order(x: Array) -> Array:
    """The places of one-dimensional elements such that equal ones come one after the other."""
    if not x.dtype.is_complex:
        return ad.argsort(x, stable=True)
    by_imaginary = ad.argsort(x.imag, stable=True)
    return by_imaginary[ad.argsort(x.real[by_imaginary], stable=True)]


def unique_all(x: Array, /) -> UniqueAll:
    """The different elements in order, where each occurs first, which of them each element is, and
    how often each occurs.

    Shapes: `inverse_indices` has the shape of x, the others (number of different elements,).
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.unique_all.html

    >>> ad.array_api.unique_all(ad.tensor([3, 1, 3])).indices
    tensor([1, 0])
    """
    checked("unique_all", x)
    flat = x.reshape(-1)
    order = _order(flat)
    in_order = flat[order]
    first = ad.ones(flat.shape, dtype=dt.bool_, device=x.device)
    first[1:] = in_order[1:] != in_order[:-1]
    starts = ad.nonzero(first, as_tuple=True)[0]
    ends = ad.cat([starts[1:], starts.new_full((min(1, len(flat)),), len(flat))])
    inverse = ad.empty_like(order)
    inverse[order] = ad.cumsum(first, 0) - 1
    indices = order[starts]
    return UniqueAll(flat[indices], indices, inverse.reshape(x.shape), ends - starts)


def unique_counts(x: Array, /) -> UniqueCounts:
    """The different elements in order, and how often each occurs.

    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.unique_counts.html

    >>> ad.array_api.unique_counts(ad.tensor([3, 1, 3]))
    UniqueCounts(values=tensor([1, 3]), counts=tensor([1, 2]))
    """
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Array, /) -> UniqueInverse:
    """The different elements in order, and which of them each element is.

    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.unique_inverse.html

    >>> ad.array_api.unique_inverse(ad.tensor([3, 1, 3]))
    UniqueInverse(values=tensor([1, 3]), inverse_indices=tensor([1, 0, 1]))
    """
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: Array, /) -> Array:
    """The different elements in order.

    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.unique_values.html

    >>> ad.array_api.unique_values(ad.tensor([3, 1, 3]))
    tensor([1, 3])
    """
    return unique_all(x).values
