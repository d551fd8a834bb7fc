"""Gather and scatter: one index for every element, along one dimension; and masks."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core import policy
from ...core.device import is_device_array
from ...core.errors import DTypeError, IndexingError, InvalidArgument, ShapeError
from ...core.mistakes import assert_tensor
from ...core.op import Op, Sample
from ...core.spec import Spec, broadcast_shapes, normalize_axis, prod
from ...core.tensor_base import TensorBase
from ...core.types import Tensor
from ...eager.dispatch import apply, run_known
from ...eager.fused import checking, writing
from ...eager.public import explaining, public
from ...eager.tensors import fresh
from ...eager.writes import values_of
from ..create import creation
from ..samples import KINDS, array, each_dtype
from ..shape.sizes import hold_sizes, hold_values
from .advanced import Index, IndexPut, Overwrite, add_at, wrapped
from .indexing import assert_index_dtype, one_value
from .slicing import Place

__all__ = [
    "gather", "index_reduce", "masked_fill", "masked_scatter", "one_hot", "scatter",
    "scatter_add", "scatter_reduce", "take_along_dim",
]  # fmt: skip


class _Along(Op, abstract=True):
    """Base of ops that take, for every element of an index, the place along `axis`; from its end
    too only where `negative`.
    """

    axis: int
    negative: bool = False

    def _positions(self, shape: tuple[int, ...], index: Any) -> Any:
        """The row-major position, in a tensor of `shape`, that each index entry means."""
        axis = self.axis
        checked = wrapped(index, shape[axis], axis, self.negative, self.name)
        positions = checked * prod(shape[axis + 1 :]) if axis < len(shape) - 1 else checked
        for i, size in enumerate(index.shape):
            if i != axis and size > 1:
                steps = np.arange(size) * prod(shape[i + 1 :])
                positions = positions + steps.reshape((-1,) + (1,) * (index.ndim - i - 1))
        return positions

    def _assert_like(self, spec: Spec, src: Any) -> None:
        if isinstance(src, Spec) and src.dtype is not spec.dtype:
            raise DTypeError(
                f"{self.name}: scatter(): Expected self.dtype to be equal to src.dtype, got "
                f"{spec.dtype} and {src.dtype}; convert one with .to()"
            )

    def _assert_fits(self, shape: tuple[int, ...], index: Spec, src: Any = None) -> None:
        name = self.name
        if index.dtype not in (dt.int64, dt.int32):
            raise DTypeError(
                f"{name}: {name}(): Expected dtype int32/int64 for index, got {index.dtype}; "
                "convert it with .long()"
            )
        if len(index.shape) != len(shape):
            raise ShapeError(
                f"{name}: Index tensor must have the same number of dimensions as input tensor: "
                f"index {index.shape}, input {shape}"
            )
        for i, size in enumerate(index.shape):
            if i != self.axis and size > shape[i]:
                raise ShapeError(
                    f"{name}: Size does not match at dimension {i} expected index "
                    f"{list(index.shape)} to be no larger than self {list(shape)} apart from "
                    f"dimension {self.axis}"
                )
        if isinstance(src, Spec) and (
            len(src.shape) != len(shape)
            or any(size > have for size, have in zip(index.shape, src.shape, strict=True))
        ):
            raise ShapeError(
                f"{name}: Expected index {list(index.shape)} to be no larger than self "
                f"{list(shape)} apart from dimension {self.axis} and to be no larger size than "
                f"src {list(src.shape)}"
            )


@dataclass(eq=False, repr=False)
class Gather(_Along):
    """The elements at the index entries along `axis`."""

    axis: int
    negative: bool = False
    needs = ("x2 spec1", "")
    exact = True
    strict = True
    library = "moves"

    def infer(self, spec: Spec, index: Spec) -> Spec:
        """The index's shape."""
        self._assert_fits(spec.shape, index)
        return spec.with_(shape=index.shape)

    def compute(self, xp: Any, x: Any, index: Any) -> Any:
        """By flat position."""
        if is_device_array(x):
            size, axis = x.shape[self.axis], self.axis
            return xp.gather(x, axis, wrapped(index, size, axis) if self.negative else index)
        if xp.moves:
            found = xp.gather(x, self.axis, index, self.negative)
            if found is not NotImplemented:
                return found
        return xp.take(x.reshape(-1), self._positions(x.shape, index))

    def gradient(self, g: Tensor, index: Tensor, spec: Spec) -> tuple[Any, ...]:
        """g added where the elements came from."""
        return (apply(GatherSum(self.axis, spec.shape, self.negative), g, index), None)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Each axis, repeated entries, a smaller index, dtypes, empty."""
        index = np.array([[0, 1, 1], [2, 0, 1]])
        yield from each_dtype(cls(0), KINDS, (3, 3), index)
        yield Sample(cls(1), (array((4, 3)), index), "smaller")
        yield Sample(cls(1), (array((2, 3, 2)), index[:, :, None] % 3), "3-d")
        yield Sample(cls(0), (array((3, 2)).T, index[:, :1] % 2), "transposed")
        yield Sample(cls(0), (array((3,)), np.zeros((0,), np.int64)), "empty")

    def reference(self, x: Any, index: Any) -> Any:
        """NumPy's take_along_axis."""
        kept = tuple(
            slice(None) if i == self.axis else slice(size) for i, size in enumerate(index.shape)
        )
        return np.take_along_axis(x[kept], index, self.axis)


@dataclass(eq=False, repr=False)
class GatherSum(_Along):
    """Zeros of `shape` with the first input added at the index entries along `axis`."""

    axis: int
    shape: tuple[int, ...]
    negative: bool = False
    needs = ("x2", "")
    library = "moves"

    def infer(self, g: Spec, index: Spec) -> Spec:
        """The shape."""
        self._assert_fits(self.shape, index)
        if g.shape != index.shape:
            raise ShapeError(f"gather: values of shape {g.shape} for an index of {index.shape}")
        return g.with_(shape=self.shape)

    def compute(self, xp: Any, g: Any, index: Any) -> Any:
        """By flat position."""
        if not is_device_array(g) and xp.moves:
            found = xp.place(
                None, self.axis, index, g,
                add=True, along=True, negative=self.negative, shape=self.shape,
            )  # fmt: skip
            if found is not NotImplemented:
                return found
        result = xp.zeros(self.shape, g.dtype)
        if is_device_array(g):
            size, axis = self.shape[self.axis], self.axis
            xp.scatter(
                result, axis, wrapped(index, size, axis) if self.negative else index, g, True
            )
        else:
            add_at(result, self._positions(self.shape, index), g)
        return result

    def gradient(self, g: Tensor, index: Tensor) -> tuple[Any, ...]:
        """The same elements of g."""
        return (apply(Gather(self.axis, self.negative), g, index), None)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Each axis, dtypes."""
        index = np.array([[0, 1, 1], [2, 0, 1]])
        yield from each_dtype(cls(0, (3, 3)), KINDS, (2, 3), index)
        yield Sample(cls(1, (4, 3)), (array((2, 3)), index), "larger")

    def reference(self, g: Any, index: Any) -> Any:
        """Element by element."""
        result = np.zeros(self.shape, np.complex128 if g.dtype.kind == "c" else np.float64)
        for place in np.ndindex(*index.shape):
            target = list(place)
            target[self.axis] = index[place]
            result[tuple(target)] += g[place]
        return result


@dataclass(eq=False, repr=False)
class Scatter(_Along):
    """The first input with values replaced, or added where `accumulate`, at the index entries
    along `axis`.
    """

    axis: int
    accumulate: bool = False
    needs = ("x2", "", "x2 spec3")
    exact = True
    strict = True
    library = "moves"

    def infer(self, spec: Spec, index: Spec, src: Any) -> Spec:
        """The first input's spec."""
        self._assert_like(spec, src)
        self._assert_fits(spec.shape, index, src)
        return spec

    def compute(self, xp: Any, x: Any, index: Any, src: Any) -> Any:
        """Write into a row-major copy."""
        found = self._placed(xp, x, index, src)
        if found is NotImplemented:
            found = x.copy()
            self.write(xp, found, index, src)
        return found

    def _placed(self, xp: Any, x: Any, index: Any, src: Any, over: bool = False) -> Any:
        """The result by native code; NotImplemented where there is none."""
        if is_device_array(x) or not xp.moves:
            return NotImplemented
        return xp.place(x, self.axis, index, src, add=self.accumulate, along=True, over=over)

    def write(self, xp: Any, x: Any, index: Any, src: Any) -> None:
        """Assign, or add one by one, by flat position."""
        if is_device_array(x):
            xp.scatter(x, self.axis, index, src, self.accumulate)
            return
        if not x.flags.c_contiguous:
            x[...] = self.compute(xp, x, index, src)
            return
        values = src[tuple(slice(size) for size in index.shape)] if hasattr(src, "shape") else src
        if self._placed(xp, x, index, values, True) is not NotImplemented:
            return
        positions = self._positions(x.shape, index)
        if self.accumulate:
            add_at(x, positions, values)
        else:
            x.reshape(-1)[positions] = values

    def gradient(self, g: Tensor, index: Tensor, spec: Any) -> tuple[Any, ...]:
        """g where it was kept; for the values, the part of g that they went to."""

        def values() -> Any:
            part = apply(Gather(self.axis), g, index)
            if part._data.shape == spec.shape:
                return part
            items = tuple((0, size, 1) for size in part._data.shape)
            return apply(Place(items, spec.shape), part)

        return (g if self.accumulate else lambda: scatter(g, self.axis, index, 0), None, values)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Replaced and added, larger sources, numbers."""
        once = np.array([[0, 1, 2], [2, 0, 1]])
        for dtype in (dt.float64, dt.bfloat16, dt.int32, dt.complex128):
            for accumulate in (False, True):
                index = once * 0 if accumulate else once
                yield Sample(
                    cls(0, accumulate),
                    (array((3, 3), dtype), index, array((2, 3), dtype, seed=1)),
                    f"{dtype.name}-{accumulate}",
                )
        yield Sample(cls(1), (array((3, 4)), once[:1], array((2, 4), seed=1)), "larger")
        yield Sample(cls(1), (array((4, 3)).T, once[:, :2], array((3, 3))), "transposed")
        yield Sample(cls(0), (array((3, 3)), once, 1.5), "number")

    def reference(self, x: Any, index: Any, src: Any) -> Any:
        """Element by element."""
        result = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
        for place in np.ndindex(*index.shape):
            target = list(place)
            target[self.axis] = index[place]
            value = src[place] if hasattr(src, "shape") else src
            result[tuple(target)] = (result[tuple(target)] if self.accumulate else 0) + value
        return result


_UFUNCS = {"prod": np.multiply, "amax": np.maximum, "amin": np.minimum}


@dataclass(eq=False, repr=False)
class ScatterReduce(_Along):
    """The first input reduced ("prod", "mean", "amax" or "amin") with the values at the index
    entries along `axis`; where not `include_self`, only the values count where there are any.
    """

    axis: int
    reduce: str
    include_self: bool = True
    strict = True

    def infer(self, spec: Spec, index: Spec, src: Spec) -> Spec:
        """The first input's spec."""
        self._assert_like(spec, src)
        self._assert_fits(spec.shape, index, src)
        return spec

    def compute(self, xp: Any, x: Any, index: Any, src: Any) -> Any:
        """One by one, by flat position."""
        if is_device_array(x):
            return xp.scatter_reduce(x, self.axis, index, src, self.reduce, self.include_self)
        result = x.copy()
        flat = result.reshape(-1)
        places = self._positions(x.shape, index).reshape(-1)
        values = src[tuple(slice(size) for size in index.shape)].reshape(-1)
        if not self.include_self:
            flat[places] = self._identity(x.dtype)
        if self.reduce == "mean":
            np.add.at(flat, places, values)
            counts = np.full(flat.shape, int(self.include_self))
            np.add.at(counts, places, 1)
            counts = np.maximum(counts, 1)
            flat[...] = flat // counts if x.dtype.kind in "iu" else flat / counts
        else:
            _UFUNCS[self.reduce].at(flat, places, values)
        return result

    def _identity(self, dtype: Any) -> Any:
        if self.reduce in ("prod", "mean"):
            return int(self.reduce == "prod")
        if dtype.kind == "f":
            return -np.inf if self.reduce == "amax" else np.inf
        if dtype.kind == "b":
            return self.reduce == "amin"
        limits = np.iinfo(dtype)
        return limits.min if self.reduce == "amax" else limits.max

    def gradient(self, g: Any, x1: Any, x2: Any, x3: Any, y: Any) -> tuple[Any, ...]:
        """As PyTorch defines it: a product without the element itself, equal shares of a mean,
        equal shares for all that attain an extremum.
        """
        axis, index = self.axis, x2
        src = x3
        if src.shape != index.shape:
            for i, size in enumerate(index.shape):
                src = src.narrow(i, 0, size)
        if self.reduce == "prod":
            to_self, to_src = self._product_gradient(g, x1, index, src, y)
        elif self.reduce == "mean":
            counts = g.new_full(g.shape, float(self.include_self))
            counts = scatter_add(counts, axis, index, g.new_ones(index.shape))
            share = g / masked_fill(counts, counts == 0, 1)
            to_self, to_src = share, apply(Gather(axis), share, index)
        else:
            of_self = (x1 == y).to(g.dtype)
            of_src = (src == apply(Gather(axis), y, index)).to(g.dtype)
            share = g / scatter_add(of_self, axis, index, of_src)
            to_self = of_self * share
            to_src = of_src * apply(Gather(axis), share, index)
        if not self.include_self:
            to_self = scatter(to_self, axis, index, 0)
        if x3.shape != index.shape:
            items = tuple((0, size, 1) for size in index.shape)
            to_src = apply(Place(items, tuple(x3.shape)), to_src)
        return (to_self, None, to_src)

    def _product_gradient(self, g: Any, x: Any, index: Any, src: Any, y: Any) -> tuple[Any, Any]:
        axis = self.axis
        without_zeros = masked_fill(x, x == 0, 1)
        others = apply(self, without_zeros, index, src)
        to_self = g * others / without_zeros
        zero = src == 0
        zeros = scatter_add(x.new_zeros(x.shape), axis, index, zero.to(x.dtype))
        only = zero & (apply(Gather(axis), zeros, index) == 1)
        rest = apply(self, x, index, masked_fill(src, only, 1))
        at_zero = apply(Gather(axis), g * rest, index)
        elsewhere = apply(Gather(axis), g * y, index) / masked_fill(src, zero, 1)
        to_src = masked_fill(at_zero, only.logical_not(), 0) + masked_fill(elsewhere, only, 0)
        return to_self, to_src

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Each reduction, with and without self; zeros, ties, larger sources."""
        index = np.array([[0, 1, 1], [0, 0, 1]])
        for reduce in ("prod", "mean", "amax", "amin"):
            for include in (True, False):
                x, src = array((3, 3)), array((2, 4), seed=1)
                yield Sample(cls(0, reduce, include), (x, index, src), f"{reduce}-{include}")
                yield Sample(cls(1, reduce, include), (x[:2], index, src), f"{reduce}-{include}-1")
            for dtype in (dt.bfloat16, dt.int32):
                inputs = array((3, 3), dtype), index, array((2, 3), dtype, seed=1)
                yield Sample(cls(0, reduce), inputs, f"{reduce}-{dtype.name}")
        zeros = np.array([[0.0, 2.0, 0.0], [3.0, 0.0, 0.5]])
        yield Sample(cls(0, "prod"), (array((3, 3)), index, zeros), "zeros")

    def reference(self, x: Any, index: Any, src: Any) -> Any:
        """From the list of values of each element."""
        found: dict[Any, list[Any]] = {}
        for place in np.ndindex(*index.shape):
            target = list(place)
            target[self.axis] = int(index[place])
            found.setdefault(tuple(target), []).append(src[place])
        integer = x.dtype.kind in "iu"
        result = x.astype(np.int64 if integer else np.float64)
        reduce: Any = {"prod": np.prod, "mean": np.mean, "amax": np.max, "amin": np.min}
        for where, values in found.items():
            several = [*values, x[where]] if self.include_self else values
            value = reduce[self.reduce](np.array(several, result.dtype))
            result[where] = np.floor(value) if integer else value
        return result


@dataclass(eq=False, repr=False)
class MaskedFill(Op):
    """The first input with one value where the mask is True."""

    needs = ("x2", "", "x2")
    exact = True

    def infer(self, spec: Spec, mask: Spec, value: Any) -> Spec:
        """The broadcast shape of the first two."""
        return spec.with_(shape=broadcast_shapes(spec.shape, mask.shape, op="masked_fill"))

    def compute(self, xp: Any, x: Any, mask: Any, value: Any) -> Any:
        """Write into a copy; kernels select."""
        if type(x) is not np.ndarray and not is_device_array(x):
            return xp.where(mask, value, x)
        shape = x.shape if x.shape == mask.shape else np.broadcast_shapes(x.shape, mask.shape)
        result = x.copy() if x.shape == shape else xp.broadcast_to(x, shape).copy()
        self.write(xp, result, mask, value)
        return result

    def write(self, xp: Any, x: Any, mask: Any, value: Any) -> None:
        """Assign where the mask is True; of many elements by position, which is faster where few
        are meant.
        """
        if is_device_array(x) or not x.flags.c_contiguous:
            np.copyto(x, value, where=mask, casting="unsafe")
            return
        wide = mask if mask.shape == x.shape else np.broadcast_to(mask, x.shape)
        if x.size <= policy.SCATTER_FEW:
            np.putmask(x, wide, value)
        else:
            x.reshape(-1)[np.flatnonzero(wide)] = value

    def batch(  # type: ignore[override]
        self, size: int, flags: Any, x: Any, mask: Any, value: Any
    ) -> Any:
        """As the entries of the first two, whose dimensions are as many."""
        each = (x, mask, value)
        ndim = max(t._data.ndim - flag for t, flag in zip(each[:2], flags, strict=False))
        x = x if flags[0] else x.expand(size, *x._data.shape)
        lifted = [
            t.reshape(size, *(1,) * (ndim + 1 - t._data.ndim), *t._data.shape[1:]) if flag else t
            for t, flag in zip((x, mask, value), (True, *flags[1:]), strict=True)
        ]
        return apply(self, *lifted)

    def gradient(self, g: Tensor, mask: Tensor) -> tuple[Any, ...]:
        """g where it was kept; the rest of it for the value."""
        return (
            lambda: apply(self, g, mask, 0),
            None,
            lambda: apply(self, g, mask.logical_not(), 0),
        )

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Each dtype, broadcast both ways, 0-d values, empty."""
        mask = array((2, 3), dt.bool_, seed=2)
        yield from each_dtype(cls(), KINDS, (2, 3), mask, 1)
        yield Sample(cls(), (array((2, 3)), mask[:1], array(())), "value")
        yield Sample(cls(), (array((3,)), mask, array(())), "broadcast")
        yield Sample(cls(), (array((0, 3)), mask[:0], 2.0), "empty")
        yield Sample(cls(), (array(()), np.array(True), 2.0), "0-d")

    def reference(self, x: Any, mask: Any, value: Any) -> Any:
        """By arithmetic."""
        return np.where(mask, value, x.astype(np.complex128 if x.dtype.kind == "c" else float))


@dataclass(eq=False, repr=False)
class OneHot(Op):
    """Along a new last dimension of size `count`, a one at the place that each entry names, zeros
    elsewhere.
    """

    count: int
    differentiable = False
    library = "moves"
    grows = True
    strict = True
    core = (0,)

    def infer(self, spec: Spec) -> Spec:
        """int64, with the new dimension."""
        if spec.dtype is not dt.int64:
            raise DTypeError(
                "one_hot: one_hot is only applicable to index tensor of type LongTensor, got "
                f"{spec.dtype}; use .long()"
            )
        return spec.with_(shape=(*spec.shape, self.count))

    def compute(self, xp: Any, index: Any) -> Any:
        """Zeros, and one written for each entry."""
        if not is_device_array(index) and xp.moves:
            found = xp.one_hot(index, self.count)
            if found is not NotImplemented:
                return found
        if not is_device_array(index):  # as unsigned numbers, negative ones are the largest
            unsigned = index.view(np.uint64)
            if not index.size or unsigned.max() < self.count:
                result = np.zeros((*index.shape, self.count), np.int64)
                result.reshape(-1)[np.arange(index.size) * self.count + index.reshape(-1)] = 1
                return result
        low, high = (int(index.min()), int(index.max())) if index.size else (0, -1)
        if low < 0:
            raise InvalidArgument(f"one_hot: Class values must be non-negative, got {low}")
        if high >= self.count:
            raise InvalidArgument(
                f"one_hot: Class values must be smaller than num_classes ({self.count}), got {high}"
            )
        result = xp.zeros((*index.shape, self.count), dtype=np.int64)
        xp.scatter(result, index.ndim, index[..., None], 1, False)
        return result

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Several shapes, a place left out, empty."""
        yield Sample(cls(3), (np.array([[0, 2], [1, 1]]),))
        yield Sample(cls(5), (np.array([4, 0, 0])[::2],), "strided")
        yield Sample(cls(2), (np.array(1),), "0-d")
        yield Sample(cls(2), (np.zeros((0, 3), np.int64),), "empty")

    def reference(self, index: Any) -> Any:
        """By comparison with every place."""
        return (index[..., None] == np.arange(self.count)).astype(np.int64)


# ---- public functions ----------------------------------------------------------------------------


def _prepare(input: Any, dim: int, index: Any, name: str) -> int:
    """The axis, after checking the arguments that all have in common."""
    assert_tensor(name, input)
    assert_index_dtype(index, name)
    return normalize_axis(dim, input._data.ndim, name)


def _as_1d(x: Any) -> Any:
    return x if not isinstance(x, TensorBase) or x._data.ndim else x.reshape(1)  # type: ignore[attr-defined]


@public(out=True)
def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """result[i][j] = input[index[i][j]][j] for dim 0, and likewise for others.

    Shapes: `index` has as many dimensions as `input` and, but for `dim`, none larger; the result
    has its shape.
    Errors: IndexingError for an entry out of range; ShapeError where shapes do not fit.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.gather.html

    >>> ad.gather(ad.tensor([[1, 2], [3, 4]]), 1, ad.tensor([[0, 0], [1, 0]]))
    tensor([[1, 1],
            [4, 3]])
    """
    if isinstance(input, TensorBase):
        found = run_known(_gathering(dim, input._data.ndim), (input, index))
        if found is not None:
            return found
    axis = _prepare(input, dim, index, "gather")
    if not index._data.size:
        nothing = creation.finish(np.zeros(index._data.shape, np.int64), index.device)
        return apply(Index((0,)), input.reshape(-1), nothing)
    if not input._data.ndim or not index._data.ndim:
        one = apply(Gather(axis), _as_1d(input), _as_1d(index))
        return one.reshape(index._data.shape)
    return apply(_gathering(dim, input._data.ndim), input, index)


@functools.lru_cache(maxsize=256, typed=True)
def _gathering(dim: int, ndim: int, negative: bool = False) -> Gather:
    return Gather(normalize_axis(dim, ndim, "gather"), negative)


@public(out=True)
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """The elements at the indices along `dim`, other dimensions broadcast; flat without `dim`.

    Errors: IndexingError for an index out of range; ShapeError where shapes do not fit.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.take_along_dim.html

    >>> x = ad.tensor([[3, 1], [2, 4]])
    >>> ad.take_along_dim(x, ad.tensor([[1], [0]]), dim=1)
    tensor([[1],
            [2]])
    """
    if dim is None:
        assert_index_dtype(indices, "take_along_dim")
        return gather(input.reshape(-1), 0, indices.reshape(-1))
    found = run_known(_gathering(dim, input._data.ndim, True), (input, indices))
    if found is not None:
        return found
    assert_index_dtype(indices, "take_along_dim")
    if input._data.ndim != indices._data.ndim:
        raise ShapeError(
            f"take_along_dim: input and indices should have the same "
            f"number of dimensions, but got {input._data.ndim} dimensions for input, and "
            f"{indices._data.ndim} dimensions for indices"
        )
    axis = normalize_axis(dim, input._data.ndim, "take_along_dim")
    shape, index_shape = list(input._data.shape), list(indices._data.shape)
    if not shape or not indices._data.size:
        wrapped(indices._data, 1, axis)
        return gather(input, axis, indices * 0)
    length, count = shape[axis], index_shape[axis]
    shape[axis] = index_shape[axis] = 1
    if shape != index_shape:
        common = list(broadcast_shapes(shape, index_shape, op="take_along_dim"))
        input = input.expand(*common[:axis], length, *common[axis + 1 :])
        indices = indices.expand(*common[:axis], count, *common[axis + 1 :])
    return apply(_gathering(dim, input._data.ndim, True), input, indices)


def _scatter_inputs(input: Any, axis: int, index: Any, src: Any, accumulate: bool) -> Any:
    if index._data.size and input._data.ndim and index._data.ndim:
        return Scatter(axis, accumulate), input, index, _as_1d(src)
    if not index._data.size:  # nothing is written, whatever the shapes
        return Overwrite(), input, input
    if not input._data.ndim:
        if index._data.size > 1:
            raise ShapeError(
                f"scatter: index of shape {tuple(index.shape)} for a 0-d tensor; unsqueeze it"
            )
        wrapped(index._data, 1, 0, negative=False)
        value = src.reshape(()) if isinstance(src, TensorBase) else src  # type: ignore[attr-defined]
        return Overwrite(), input, value + input if accumulate else value
    return Scatter(axis, accumulate), input, _as_1d(index), _as_1d(src)


@writing
def scatter(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Any = None,
    *,
    value: Any = None,
    reduce: str | None = None,
) -> Any:
    """A copy of `input` with result[index[i][j]][j] = src[i][j] for dim 0, and likewise for others;
    `reduce` "add" or "multiply" combines with what is there.

    Shapes: `index` has as many dimensions as `input`; none is larger than that of `src`, nor, but
    for `dim`, than that of `input`. `src` may be a number.
    Errors: IndexingError for an entry out of range; ShapeError where shapes do not fit.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.scatter.html

    >>> ad.scatter(ad.zeros(2, 2), 1, ad.tensor([[1], [0]]), 5.)
    tensor([[0., 5.],
            [5., 0.]])
    """
    axis = _prepare(input, dim, index, "scatter")
    source = value if src is None else src
    if not isinstance(source, TensorBase):
        source = one_value(input, source, "scatter")
    if reduce is None or reduce == "add":
        return _scatter_inputs(input, axis, index, source, reduce == "add")
    if reduce != "multiply":
        raise InvalidArgument(
            f"scatter: reduce argument must be either add or multiply, got {reduce!r}"
        )
    if not isinstance(source, TensorBase):
        source = input.new_full(index.shape, source)
    return ScatterReduce(axis, "prod"), input, index, source


@writing
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Any:
    """A copy of `input` with src[i][j] added to result[index[i][j]][j] for dim 0, and likewise for
    others.

    Shapes: as for `scatter`.
    Errors: IndexingError for an entry out of range; ShapeError where shapes do not fit.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.scatter_add.html

    >>> ad.scatter_add(ad.zeros(2), 0, ad.tensor([0, 0, 1]), ad.ones(3))
    tensor([2., 1.])
    """
    axis = _prepare(input, dim, index, "scatter_add")
    assert_tensor("scatter_add", src, "src")
    return _scatter_inputs(input, axis, index, src, True)


@public(inplace=True, out=True)
def scatter_reduce(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """A copy of `input` with the values of `src` reduced into the places that `index` names:
    "sum", "prod", "mean", "amax" or "amin".

    Shapes: as for `scatter`. Where not `include_self`, old values count only where no index points.
    Errors: IndexingError for an entry out of range; InvalidArgument for another reduction.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.scatter_reduce.html

    >>> ad.scatter_reduce(ad.zeros(2), 0, ad.tensor([0, 0, 1]), ad.tensor([1., 3., 2.]), "amax")
    tensor([3., 2.])
    """
    axis = _prepare(input, dim, index, "scatter_reduce")
    assert_tensor("scatter_reduce", src, "src")
    if reduce not in ("sum", "prod", "mean", "amax", "amin"):
        raise InvalidArgument(
            "scatter_reduce: reduce argument must be either sum, prod, mean, amax or amin, got "
            f"{reduce}"
        )
    if not index._data.size:
        return input.clone()
    x, where, values = _as_1d(input), _as_1d(index), _as_1d(src)
    if reduce == "sum":
        base = x if include_self else scatter(x, axis, where, 0)
        result: Tensor = apply(Scatter(axis, True), base, where, values)
    else:
        result = apply(ScatterReduce(axis, reduce, include_self), x, where, values)
    return result if input._data.ndim else result.reshape(())


@public(inplace=True, out=True)
def index_reduce(
    input: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Tensor:
    """A copy of `input` with the slices of `source` reduced into those that a vector of indices
    names: "prod", "mean", "amax" or "amin".

    Errors: IndexingError for an index out of range; InvalidArgument for another reduction.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.index_reduce_.html

    >>> ad.index_reduce(ad.ones(2), 0, ad.tensor([0, 0]), ad.tensor([2., 3.]), "prod")
    tensor([6., 1.])
    """
    axis = _prepare(input, dim, index, "index_reduce")
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise InvalidArgument(
            f"index_reduce: reduce argument must be either prod, mean, amax or amin, got {reduce}."
        )
    index, source = _as_1d(index), _as_1d(source)
    source = hold_sizes("index_reduce", source)
    shape = source._data.shape
    if index._data.ndim != 1 or shape[axis : axis + 1] != index._data.shape:
        raise IndexingError(
            f"index_reduce: index_reduce_(): Number of indices {tuple(index.shape)} should be "
            f"equal to source.size(dim) of shape {tuple(shape)}, for dim {axis}"
        )
    wide = index.reshape((-1,) + (1,) * (len(shape) - axis - 1)).expand(shape)
    return scatter_reduce(input, axis, wide, source, reduce, include_self=include_self)


@writing
def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Any:
    """A copy of `input` with one value (a number or a 0-d tensor) where `mask` is True.

    Shapes: `input` and `mask` broadcast (in place, only `mask` does).
    Errors: DTypeError for a mask that is not bool; ShapeError for a value with dimensions.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.masked_fill.html

    >>> ad.masked_fill(ad.tensor([1., 2.]), ad.tensor([True, False]), 0)
    tensor([0., 2.])
    """
    assert_tensor("masked_fill", mask, "mask")
    if mask.dtype is not dt.bool_:
        raise DTypeError(
            "masked_fill: masked_fill_ only supports boolean masks, but got mask with dtype "
            f"{mask.dtype}; compare it, e.g. mask != 0"
        )
    return _MASKED_FILL, input, mask, one_value(input, value, "masked_fill")


_MASKED_FILL = MaskedFill()


@public(inplace=True)
@explaining
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """A copy of `input` with the elements where `mask` is True taken, in order, from `source`.

    Shapes: `input` and `mask` broadcast; `source` has at least as many elements as are True.
    Errors: DTypeError for other dtypes; ShapeError where `source` is too short.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.masked_scatter.html

    >>> ad.masked_scatter(ad.zeros(3), ad.tensor([True, False, True]), ad.tensor([1., 2.]))
    tensor([1., 0., 2.])
    """
    if mask.dtype is not dt.bool_:
        raise DTypeError(
            f"masked_scatter: masked_scatter_ only supports boolean masks, but got mask with dtype "
            f"{mask.dtype}"
        )
    if source.dtype is not input.dtype:
        raise DTypeError(
            "masked_scatter: expected self and source to have same dtypes but got "
            f"{input.dtype} and {source.dtype}"
        )
    shape = broadcast_shapes(input._data.shape, mask._data.shape, op="masked_scatter")
    known = values_of(
        mask,
        "masked_scatter takes as many elements as a mask selects; take them by "
        "source.reshape(-1)[mask.reshape(-1).cumsum(0) - 1] (clamped), and select by where()",
    )
    places = np.flatnonzero(np.broadcast_to(known, shape))
    if source._data.size < places.size:
        raise ShapeError(
            f"masked_scatter: Number of elements of source ({source._data.size}) < number of ones "
            f"in mask ({places.size})"
        )
    values = source.reshape(-1)[: places.size]
    input = hold_sizes("masked_scatter", input)
    chosen = hold_values("masked_scatter", fresh(places), mask)
    flat = apply(IndexPut((0,)), input.expand(shape).reshape(-1), chosen, values)
    return flat.reshape(shape)


@public(method=False)
@checking
def one_hot(tensor: Tensor, num_classes: int = -1) -> Any:
    """Vectors of zeros with a one at the place that each entry names.

    Shapes: (...) -> (..., num_classes); -1 takes one more than the largest entry.
    Dtypes: int64 in and out.
    Errors: InvalidArgument for a negative entry, or one that is not below `num_classes`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.one_hot.html

    >>> ad.one_hot(ad.tensor([0, 2]))
    tensor([[1, 0, 0],
            [0, 0, 1]])
    """
    data = tensor._data
    if not data.size and num_classes <= 0:
        raise InvalidArgument(
            "one_hot: Can not infer total number of classes from empty tensor; pass num_classes"
        )
    if num_classes < -1:
        raise InvalidArgument(f"one_hot: num_classes should be positive, got {num_classes}")
    if num_classes == -1:  # which the values decide
        data = values_of(
            tensor, "one_hot has one more column than the largest entry; give num_classes"
        )
        return apply(OneHot(max(int(data.max()) + 1, 0)), tensor)
    return OneHot(num_classes), tensor
