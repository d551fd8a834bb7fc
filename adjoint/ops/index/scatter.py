"""Scatter: one index for every element of the source, along one dimension; one-hot rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import dtype as dt
from ...core.argument_errors import assert_tensor
from ...core.device import is_device_array
from ...core.errors import DTypeError, IndexingError, InvalidArgument, ShapeError
from ...core.op import Op, Sample
from ...core.spec import Spec
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply
from ...runtime.fused import checking, writing
from ...runtime.public import public
from ...runtime.writes import values_of
from ..argument_dtypes import assert_equal_dtypes
from ..samples import array
from ..shape.sizes import hold_sizes
from .advanced import Overwrite, add_at, assert_one_place
from .gather import Gather as Gather
from .gather import GatherSum as GatherSum
from .gather import _Along, _as_1d, _prepare, gather, take_along_dim
from .indexing import one_value
from .masking import MaskedFill as MaskedFill
from .masking import masked_fill, masked_scatter
from .slicing import Place

if TYPE_CHECKING:
    from ...ops.argument_types import Number, Operand

__all__ = [
    "gather", "index_reduce", "masked_fill", "masked_scatter", "one_hot", "scatter",
    "scatter_add", "scatter_reduce", "take_along_dim",
]  # fmt: skip


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
        """Reduces elements one by one, by flat position."""
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
        """The gradient as PyTorch defines it: a product without the element itself, equal shares of
        a mean, equal shares for all that attain an extremum.
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
        """Reference value from the list of values of each element."""
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
        """Reference value by comparison with every place."""
        return (index[..., None] == np.arange(self.count)).astype(np.int64)


# ---- public functions ----------------------------------------------------------------------------


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
        assert_one_place(index)
        value = src.reshape(()) if isinstance(src, TensorBase) else src  # type: ignore[attr-defined]
        return Overwrite(), input, value + input if accumulate else value
    return Scatter(axis, accumulate), input, _as_1d(index), _as_1d(src)


@writing
def scatter(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Operand | None = None,
    *,
    value: Number | None = None,
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
    assert_equal_dtypes("scatter", input, src=source)
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
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
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
    assert_equal_dtypes("scatter_add", input, src=src)
    return _scatter_inputs(input, axis, index, src, True)


@public(inplace=True, out=True)
def scatter_reduce(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """A copy of `input` with the values of `src` reduced into the places that `index` names:
    "sum", "prod", "mean", "amax" (also "max") or "amin" ("min").

    Shapes: as for `scatter`. Where not `include_self`, old values count only where no index points.
    Errors: IndexingError for an entry out of range; InvalidArgument for another reduction.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.scatter_reduce.html

    >>> ad.scatter_reduce(ad.zeros(2), 0, ad.tensor([0, 0, 1]), ad.tensor([1., 3., 2.]), "amax")
    tensor([3., 2.])
    """
    axis = _prepare(input, dim, index, "scatter_reduce")
    assert_tensor("scatter_reduce", src, "src")
    reduce = {"min": "amin", "max": "amax"}.get(reduce, reduce)
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


@public(method=False)
@checking
def one_hot(tensor: Tensor, num_classes: int = -1) -> Any:
    """Vectors of zeros with a one at the place that each entry names.

        y[i, c] = 1 where tensor[i] is c, else 0

    Args:
        tensor: Classes as integers.
        num_classes: Number of classes; -1 for one more than the largest entry. Default: -1.

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
