"""Sorting and selection by rank: sort, topk, kthvalue, searchsorted."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.device import is_device_array, namespace_of
from ...core.errors import DTypeError, InvalidArgument, ShapeError
from ...core.op import Op, Sample
from ...core.spec import Spec, normalize_axis, prod
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply, run_known
from ...runtime.public import explaining, public
from .. import return_types
from ..promotion import as_tensor_like, cast, promote
from ..samples import FLOATS, INTS, array, strided
from .extrema import assert_not_empty, value_at

__all__ = ["argsort", "bucketize", "isin", "kthvalue", "msort", "searchsorted", "sort", "topk"]

_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def order_key(x: Any, descending: bool = False) -> Any:
    """Unsigned integers that sort as `x` does: NaN after everything, zeros of both signs equal."""
    bits = 8 * x.dtype.itemsize
    unsigned: Any = _UNSIGNED[x.dtype.itemsize]
    if x.dtype.kind == "f":
        x = x + x.dtype.type(0)
        missing = x != x
        if missing.any():
            x[missing] = np.nan
        # Negative numbers sort backwards: all their bits flip; of the others, only the sign.
        key = x.view(f"i{bits // 8}")
        key ^= (key >> (bits - 1)) & np.iinfo(key.dtype).max
    else:
        key = x.copy()
    signed = key.dtype.kind == "i"
    key = key.view(unsigned)
    if signed:
        key ^= unsigned(1 << (bits - 1))
    return np.invert(key, out=key) if descending else key


def ranked_places(x: Any, axis: int, descending: bool = False, kth: Any = None) -> Any:
    """The places of the elements of `x` in ascending order along `axis`, equal ones in theirs;
    with `kth`, only those ranks are in place, and smaller elements before them.

    Keys of 32 bits are joined with their places, so that sorting plain integers (which is five
    times faster than sorting indirectly, except for few) does everything.
    """
    if is_device_array(x):
        return namespace_of(x).argsort(x, axis, descending=descending)
    if x.size <= 1024:
        if not descending:
            return np.argsort(x, axis, "stable")
        # From the end, so that equal elements keep their order here, too.
        return x.shape[axis] - 1 - np.flip(np.argsort(np.flip(x, axis), axis, "stable"), axis)
    key = order_key(np.ascontiguousarray(np.moveaxis(x, axis, -1)), descending)
    n = key.shape[-1]
    if key.dtype.itemsize <= 4 and n < 2**32:
        joined = key.astype(np.uint64)
        joined <<= np.uint64(32)
        joined |= np.arange(n, dtype=np.uint64)
        if kth is None:
            joined.sort(axis=-1)
        else:
            joined.partition(kth, axis=-1)
        joined &= np.uint64(2**32 - 1)
        places = joined.view(np.int64)
    elif kth is None:
        places = np.argsort(key, axis=-1, kind="stable")
    else:
        places = np.argpartition(key, kth, axis=-1)
    return np.moveaxis(places, -1, axis)


@dataclass(eq=False, repr=False)
class Ranking(Op, abstract=True):
    """Base of ops that give places along `axis`, chosen by rank."""

    axis: int

    def length(self, size: int) -> int:
        """Number of places given along an axis of that size."""
        return size

    def infer(self, spec: Spec) -> Spec:
        """int64."""
        shape = list(spec.shape)
        shape[self.axis] = self.length(shape[self.axis])
        return spec.with_(shape=tuple(shape), dtype=dt.int64)


def ranking_samples(cls: Any, *fields: Any) -> Iterable[Sample]:
    """Samples for ops of (axis, *fields): every dtype, axes, ties, NaN, strided."""
    for dtype in (*FLOATS, *INTS, dt.int8, dt.int16, dt.bool_):
        yield Sample(cls(1, *fields), (array((3, 5), dtype, -9, 9),), dtype.name)
    for axis in range(3):
        yield Sample(cls(axis, *fields), (array((4, 3, 5)),), f"axis{axis}")
    yield Sample(cls(0, *fields), (np.array([2.0, 1.0, 2.0, 1.0, 0.0, -0.0]),), "ties")
    special = np.array([np.nan, 1.0, np.inf, -np.inf, np.nan, -1.0])
    yield Sample(cls(0, *fields), (special,), "special")
    yield Sample(cls(0, *fields), (special.astype(np.float32),), "special32")
    yield Sample(cls(1, *fields), (strided(array((3, 4))),), "strided")
    yield Sample(cls(1, *fields), (array((0, 3)),), "empty")


@dataclass(eq=False, repr=False)
class ArgSort(Ranking):
    """Places of the elements in order along `axis`; equal elements keep theirs."""

    descending: bool = False
    library = "moves"

    def compute(self, xp: Any, x: Any) -> Any:
        """Order by integer keys."""
        if not is_device_array(x) and xp.moves:
            found = xp.ranked(x, self.axis, x.shape[self.axis], self.descending)
            if found is not NotImplemented:
                return found
        return ranked_places(x, self.axis, self.descending)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Both directions."""
        yield from ranking_samples(cls)
        yield from ranking_samples(cls, True)
        for dtype in (dt.float64, dt.float32, dt.int32, dt.int16, dt.uint8, dt.bool_):
            large = array((3, 500), dtype, -9, 9)
            yield Sample(cls(1), (large,), f"large-{dtype.name}")
            yield Sample(cls(0, True), (large.T,), f"large-descending-{dtype.name}")
        large = array((1200,), dt.float32, -2, 2).round()
        large[::7] = np.nan
        yield Sample(cls(0), (large,), "large-special")
        yield Sample(cls(0, True), (large.astype(np.float64),), "large-special64")
        yield Sample(cls(1), (array((3, 0)),), "empty-axis")

    def reference(self, x: Any) -> Any:
        """NumPy's stable sort, of the reversed elements where descending."""
        x = x.astype(np.float64)
        if not self.descending:
            return np.argsort(x, self.axis, kind="stable")
        flipped = np.argsort(np.flip(x, self.axis), self.axis, kind="stable")
        return x.shape[self.axis] - 1 - np.flip(flipped, self.axis)


@dataclass(eq=False, repr=False)
class TopPlaces(Ranking):
    """Places of the `k` largest or smallest elements along `axis`, the most extreme first."""

    k: int = 2
    largest: bool = True
    library = "moves"

    def length(self, size: int) -> int:
        """k."""
        return self.k

    def compute(self, xp: Any, x: Any) -> Any:
        """A partition, then a sort of the part."""
        if not is_device_array(x) and xp.moves:
            found = xp.ranked(x, self.axis, self.k, self.largest)
            if found is not NotImplemented:
                return found
        k, n = self.k, x.shape[self.axis]
        if k == 0 or x.size <= 1024 or k * 4 > n or is_device_array(x):
            places = ranked_places(x, self.axis, self.largest)
            return xp.take(places, range(k), self.axis)
        x = xp.moveaxis(x, self.axis, -1)
        key = order_key(xp.ascontiguousarray(x), self.largest)
        last = xp.partition(key, k - 1, axis=-1)[..., k - 1 : k]
        part = xp.nonzero((key <= last).ravel())[0]
        if part.size > last.size * k:  # some equal the last one: the first of them are wanted
            return xp.moveaxis(ranked_places(x, -1, self.largest)[..., :k], -1, self.axis)
        part = part.reshape((*x.shape[:-1], k)) % n
        order = ranked_places(xp.take_along_axis(x, part, -1), -1, self.largest)
        return xp.moveaxis(xp.take_along_axis(part, order, -1), -1, self.axis)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Largest and smallest; a part so small that it is partitioned first."""
        yield from ranking_samples(cls, 2)
        yield from ranking_samples(cls, 2, False)
        yield Sample(cls(1, 3), (array((3, 400)),), "partition")
        yield Sample(cls(1, 3), (array((3, 400), dt.float32),), "partition32")
        yield Sample(cls(0, 3), (array((400, 3), dt.int64, -9, 9),), "partition-ties")
        yield Sample(cls(0, 0), (array((3,)),), "none")

    def reference(self, x: Any) -> Any:
        """The start of a full sort."""
        order = ArgSort(self.axis, self.largest).reference(x)
        return np.take(order, range(self.k), self.axis)


class OnePlace(Ranking, abstract=True):
    """Base of those that give one place along `axis`, which is kept with size 1."""

    def length(self, size: int) -> int:
        """One place along the axis."""
        return 1


@dataclass(eq=False, repr=False)
class KthPlace(OnePlace):
    """Place of the element of rank `k` (from 0) along `axis`, which is kept with size 1; NaN ranks
    last.
    """

    k: int = 1

    def compute(self, xp: Any, x: Any) -> Any:
        """Position by a partition."""
        return xp.take(ranked_places(x, self.axis, kth=self.k), [self.k], self.axis)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """A low rank."""
        for sample in ranking_samples(cls):
            if sample.label != "ties":  # any of the equal elements may be chosen
                yield sample

    def reference(self, x: Any) -> Any:
        """Reference value by a full sort."""
        return np.take(ArgSort(self.axis).reference(x), [self.k], self.axis)


@dataclass(eq=False, repr=False)
class SearchSorted(Op):
    """Number of elements of each sorted row that are less (or, with `right`, not more) than
    values.
    """

    right: bool = False
    differentiable = False

    def infer(self, rows: Spec, values: Spec) -> Spec:
        """int64, of the values' shape."""
        if len(rows.shape) != 1 and rows.shape[:-1] != values.shape[:-1]:
            raise ShapeError(
                "searchsorted: boundaries tensor should be 1 dimension or the first N-1 dimensions "
                "of boundaries tensor and input value tensor must match, but we got boundaries "
                f"tensor {rows.shape} and input value tensor {values.shape}"
            )
        return values.with_(dtype=dt.int64)

    def compute(self, xp: Any, rows: Any, values: Any) -> Any:
        """Positions by bisection of each row."""
        side = "right" if self.right else "left"
        if rows.ndim == 1:
            return xp.searchsorted(rows, values, side)
        found = xp.empty(values.shape, np.int64)
        for place in np.ndindex(rows.shape[:-1]):
            found[place] = xp.searchsorted(rows[place], values[place], side)
        return found

    def batch(self, size: int, flags: Any, rows: Any, values: Any) -> Any:  # type: ignore[override]
        """A row each, unless all share one."""
        if not flags[0] and rows._data.ndim == 1:
            return apply(self, rows, values)
        rows = rows if flags[0] else rows.expand(size, *rows._data.shape)
        values = values if flags[1] else values.expand(size, *values._data.shape)
        if rows._data.ndim > 2:
            return apply(self, rows, values)
        flat = values.reshape(size, prod(values._data.shape[1:]))
        return apply(self, rows, flat).reshape(values._data.shape)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """One row for all values, a row each, empty."""
        for right in (False, True):
            for dtype in (dt.float64, dt.bfloat16, dt.int64):
                values = array((2, 3), dtype, -9, 9)
                yield Sample(cls(right), (np.sort(values.ravel()[::2]), values), dtype.name)
            rows = np.sort(array((2, 4)))
            yield Sample(cls(right), (rows, array((2, 3), seed=1)), "rows")
            yield Sample(cls(right), (rows[0], rows), "equal")
            yield Sample(cls(right), (rows[0], np.array(rows[1, 1])), "0-d")
        yield Sample(cls(), (array((0,)), array((2,))), "empty")

    def reference(self, rows: Any, values: Any) -> Any:
        """Reference value by counting."""
        wide_rows, wide_values = (np.asarray(x).astype(np.float64) for x in (rows, values))
        less = np.less_equal if self.right else np.less
        shape = wide_rows.shape if rows.ndim == 1 else (*rows.shape[:-1], 1, rows.shape[-1])
        return less(wide_rows.reshape(shape), wide_values[..., None]).sum(-1)


@dataclass(eq=False, repr=False)
class IsIn(Op):
    """Whether each element is among the elements of a second tensor."""

    differentiable = False
    exact = True

    def infer(self, x: Spec, elements: Spec) -> Spec:
        """Bool."""
        return x.with_(dtype=dt.bool_)

    def compute(self, xp: Any, x: Any, elements: Any) -> Any:
        """Membership by the backend."""
        if x.dtype.kind == "V":
            x, elements = x.astype(np.float32), elements.astype(np.float32)
        return xp.isin(x, elements)

    def batch(self, size: int, flags: Any, x: Any, elements: Any) -> Any:  # type: ignore[override]
        """Compared with each, where they are not the same for all."""
        if not flags[1]:
            return apply(self, x, elements)
        count = prod(elements._data.shape[1:])
        x = x if flags[0] else x.unsqueeze(0)
        others = elements.reshape(size, *(1,) * (x._data.ndim - 1), count)
        return (x.unsqueeze(-1) == others).any(-1)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Numbers of several kinds, 0-d, empty."""
        for dtype in (dt.float32, dt.bfloat16, dt.int64):
            values = array((3, 4), dtype, -9, 9)
            yield Sample(cls(), (values, values[1]), dtype.name)
        yield Sample(cls(), (array(()), array((3,))), "0-d")
        yield Sample(cls(), (array((0, 3)), array((3,))), "empty")
        yield Sample(cls(), (array((3,)), array((0,))), "none")

    def reference(self, x: Any, elements: Any) -> Any:
        """Reference value by comparing all pairs."""
        pairs = x.astype(np.float64)[..., None] == elements.astype(np.float64).ravel()
        return pairs.any(-1)


# ---- public functions ----------------------------------------------------------------------------


def assert_sortable(input: Any, name: str) -> None:
    if input._data.dtype.kind == "c":
        raise DTypeError(
            f"{name}: Sort does not support complex dtypes, got {input.dtype}; sort .abs() or .real"
        )


@public(out=True)
def sort(
    input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False
) -> return_types.sort:
    """The elements in order along `dim`, and the places that they came from.

    Equal elements always keep their order; NaN counts as the largest value.

    Errors: DTypeError for complex; IndexingError for a dim out of range.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.sort.html

    >>> values, indices = ad.sort(ad.tensor([2., 3., 1.]), descending=True)
    >>> values, indices
    (tensor([3., 2., 1.]), tensor([1, 0, 2]))
    """
    indices = _sorted_places("sort", input, dim, descending)
    return return_types.sort(input.gather(dim, indices), indices)


@public(out=True)
def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """The places of the elements in order along `dim`.

    Equal elements always keep their order; NaN counts as the largest value.

    Dtypes: int64.
    Errors: DTypeError for complex; IndexingError for a dim out of range.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.argsort.html

    >>> ad.argsort(ad.tensor([2., 3., 1.]))
    tensor([2, 0, 1])
    """
    return _sorted_places("argsort", input, dim, descending)


def _sorted_places(name: str, input: Any, dim: Any, descending: bool) -> Any:
    assert_sortable(input, name)
    axis = normalize_axis(dim, input._data.ndim, name)
    return place_along(ArgSort(axis, bool(descending)), input)


def place_along(op: Op, input: Any) -> Any:
    """`op` on `input`, of which 0 dimensions count as one."""
    if input._data.ndim:
        return apply(op, input)
    return apply(op, input.reshape((1,))).reshape(())


@public(out=True)
def msort(input: Tensor) -> Tensor:
    """The elements in ascending order along the first dimension.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.msort.html

    >>> ad.msort(ad.tensor([2., 3., 1.]))
    tensor([1., 2., 3.])
    """
    return sort(input, 0)[0]


@public(out=True)
def topk(
    input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> return_types.topk:
    """The `k` largest (or smallest) elements along `dim` in order, and where they are.

    Errors: InvalidArgument for a `k` that is negative or larger than the dimension.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.topk.html

    >>> values, indices = ad.topk(ad.tensor([2., 5., 1., 4.]), 2)
    >>> values, indices
    (tensor([5., 4.]), tensor([1, 3]))
    """
    if type(k) is int and isinstance(input, TensorBase) and (ndim := input._data.ndim):
        first = _topping(dim, ndim, k, largest)
        found: Any = run_known(first, (input,))
        if found is not None:
            return return_types.topk(input.gather(first.axis, found), found)  # type: ignore[attr-defined]
    assert_sortable(input, "topk")
    axis = normalize_axis(dim, input._data.ndim, "topk")
    size = input._data.shape[axis] if input._data.ndim else 1
    if not 0 <= k <= size:
        raise InvalidArgument(
            f"topk: selected index k out of range: k is {k}, dimension {axis} has size {size}"
        )
    op = TopPlaces(axis, int(k), bool(largest))
    if not input._data.ndim:
        row = input.reshape((1,))
        places = apply(op, row)
        shape = () if k == 1 else (0,)
        values = row.gather(0, places)
        return return_types.topk(values.reshape(shape), places.reshape(shape))
    indices = apply(op, input)
    return return_types.topk(input.gather(axis, indices), indices)


@functools.lru_cache(maxsize=1024, typed=True)
def _topping(dim: int, ndim: int, k: int, largest: bool) -> TopPlaces:
    return TopPlaces(normalize_axis(dim, ndim, "topk"), k, bool(largest))


@public(out=True)
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> return_types.kthvalue:
    """The `k`-th smallest element (from 1) along `dim`, and where it is.

    Errors: InvalidArgument for a `k` out of range; IndexingError for a dimension without elements.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.kthvalue.html

    >>> value, index = ad.kthvalue(ad.tensor([2., 5., 1.]), 2)
    >>> value, index
    (tensor(2.), tensor(0))
    """
    assert_sortable(input, "kthvalue")
    axis = normalize_axis(dim, input._data.ndim, "kthvalue")
    shape = input.shape or (1,)
    assert_not_empty(shape, (axis,), "kthvalue")
    if not 1 <= k <= shape[axis]:
        raise InvalidArgument(
            f"kthvalue(): selected number k out of range for dimension {axis}: k is {k}, the size "
            f"is {shape[axis]}"
        )
    place = place_along(KthPlace(axis, int(k) - 1), input)
    return value_at(input, place, axis, keepdim, return_types.kthvalue)


@public(method=False, out=True)
def searchsorted(
    sorted_sequence: Tensor,
    input: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Tensor:
    """Index at which values would be inserted into sorted rows to keep them sorted: before equal
    elements, or after them with `right`.

    Shapes: a 1-d sequence serves all values; otherwise rows match the values' leading dimensions.
    Dtypes: int64, or int32 where `out_int32`.
    Errors: ShapeError where the shapes do not match; InvalidArgument for another `side`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.searchsorted.html

    >>> ad.searchsorted(ad.tensor([1, 3, 5]), ad.tensor([3, 6]))
    tensor([1, 3])
    """
    if side not in (None, "left", "right"):
        raise InvalidArgument(f"searchsorted: side can only be 'left' or 'right' but got {side!r}")
    if side == "left" and right:
        raise InvalidArgument("searchsorted: side and right can't be set to opposites: left, True")
    if sorter is not None:
        if sorter.shape != sorted_sequence.shape:
            raise ShapeError(
                "searchsorted: boundary and sorter must have the same size, got "
                f"{tuple(sorted_sequence.shape)} and {tuple(sorter.shape)}"
            )
        sorted_sequence = sorted_sequence.gather(-1, sorter)
    values = as_tensor_like(input, sorted_sequence)
    if values.dtype.is_complex or sorted_sequence.dtype.is_complex:
        raise DTypeError("searchsorted: complex numbers have no order; use their abs() or real")
    op = SearchSorted(right or side == "right")
    op.infer(sorted_sequence.spec, values.spec)
    found = apply(op, *promote("searchsorted", sorted_sequence, values)[1])
    return cast(found, dt.int32) if out_int32 else found


@public(out=True)
@explaining
def bucketize(
    input: Tensor, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    """The number of the bucket, between sorted `boundaries`, that each value falls into.

    Shapes: `boundaries` is 1-d; the result has the shape of `input`.
    Dtypes: int64, or int32 where `out_int32`.
    Errors: ShapeError for boundaries that are not 1-d.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.bucketize.html

    >>> ad.bucketize(ad.tensor([3, 6]), ad.tensor([1, 3, 5]))
    tensor([1, 3])
    """
    if boundaries._data.ndim != 1:
        raise ShapeError(
            f"bucketize: boundaries tensor must be 1 dimension, but got dim({boundaries.ndim})"
        )
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


@public(method=False, out=True)
def isin(
    elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    """Whether each of `elements` is (or, with `invert`, is not) among `test_elements`.

    Shapes: that of `elements`.
    Dtypes: bool.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.isin.html

    >>> ad.isin(ad.tensor([1, 2, 3]), ad.tensor([2, 5]))
    tensor([False,  True, False])
    """
    like: Any = elements if isinstance(elements, TensorBase) else test_elements
    both = (as_tensor_like(elements, like), as_tensor_like(test_elements, like))
    found: Any = apply(IsIn(), *promote("isin", *both)[1])
    return ~found if invert else found
