"""Tests of all elements, and differences of neighbours."""

from __future__ import annotations

from ...core.errors import InvalidArgument
from . import functions as ad
from .axes import reduced
from .data_types import NUMERIC, Array, assert_kind, checked, common_dtype

__all__ = ["all", "any", "diff"]


def all(x: Array, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Array:
    """Whether all elements over axes are true (not zero); True of no elements.

    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.all.html

    >>> ad.array_api.all(ad.tensor([[True, False], [True, True]]), axis=0)
    tensor([ True, False])
    """
    return reduced(ad.all, checked("all", x) != 0, axis, keepdims)


def any(x: Array, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Array:
    """Whether any element over axes is true (not zero); False of no elements.

    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.any.html

    >>> ad.array_api.any(ad.tensor([[True, False], [True, False]]), axis=0)
    tensor([ True, False])
    """
    return reduced(ad.any, checked("any", x) != 0, axis, keepdims)


def diff(
    x: Array,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: Array | None = None,
    append: Array | None = None,
) -> Array:
    """The differences of neighbours along an axis, taken n times, after joining what is to come
    before and after.

    Shapes: n less along the axis.
    Errors: InvalidArgument for a negative n.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.diff.html

    >>> ad.array_api.diff(ad.tensor([1, 4, 9]))
    tensor([3, 5])
    """
    checked("diff", x)
    if n == 0:
        return x
    if n < 0:
        raise InvalidArgument(f"diff: n must not be negative, got {n}")
    parts = [part for part in (prepend, x, append) if part is not None]
    common = common_dtype("diff", parts)
    assert_kind("diff", common, NUMERIC)
    return ad.diff(ad.cat([part.to(common) for part in parts], axis), n, axis)
