"""The primitives of indexing with tensors: read, add to zeros, write; and overwriting a part."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.device import is_device_array
from ...core.errors import DTypeError, IndexingError, ShapeError
from ...core.mode import are_known, refuse_where
from ...core.op import Op, Sample
from ...core.spec import Spec, prod
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply, apply_view
from ...runtime.public import FUNCTIONS
from ..samples import KINDS, array, each_dtype
from ..shape.movement import Movement
from .slicing import Item, basic_index

__all__: list[str] = []


# ---- positions -----------------------------------------------------------------------------------


def wrapped(index: Any, size: int, axis: int, negative: bool = True, name: str = "index") -> Any:
    """An index array with negative entries counted from the end; IndexingError out of range."""
    if not index.size:
        return index
    if is_device_array(index):  # whose elements are not read: the device checks them
        return np.where(index < 0, index + size, index) if negative else index
    low, high = int(index.min()), int(index.max())
    if high >= size or low < (-size if negative else 0):
        raise IndexingError(
            f"{name}: index {high if high >= size else low} is out of bounds for dimension {axis} "
            f"with size {size}; the valid range is {-size if negative else 0} to {size - 1}"
        )
    return np.where(index < 0, index + size, index) if low < 0 else index


def assert_one_place(index: Tensor, negative: bool = False) -> None:
    """Refuse an index, of a tensor without dimensions, that is not 0; -1 is where `negative`."""
    if are_known():
        wrapped(index._data, 1, 0, negative)
    elif index._data.size:
        least = -1 if negative else 0
        refuse_where(
            ((index < least) | (index > 0)).any(),
            lambda: IndexingError(
                f"index: out of bounds for dimension 0 with size 1; the valid range is {least} to 0"
            ),
        )


def add_at(target: Any, positions: Any, values: Any) -> None:
    """Add `values` to the elements of row-major `target` at flat `positions`, one by one."""
    flat = target.reshape(-1)
    values = np.broadcast_to(values, positions.shape).reshape(-1)
    if target.dtype.kind == "V" or target.dtype == np.float16:
        wide = flat.astype(np.float32)
        np.add.at(wide, positions.reshape(-1), values.astype(np.float32))
        flat[...] = wide
    else:
        np.add.at(flat, positions.reshape(-1), values.astype(flat.dtype, copy=False))


@dataclass(eq=False, repr=False)
class Advanced(Op, abstract=True):
    """Base of ops that index `axes` (sorted) of a tensor.

    The index is one array of any shape for one axis, and of shape (number of axes, *shape) for
    several. What it selects takes the place of the axes where they are neighbours, otherwise it
    comes first, as in NumPy.
    """

    axes: tuple[int, ...]

    def _key(self, index: Any) -> tuple[Any, ...]:
        key: list[Any] = [slice(None)] * (self.axes[-1] + 1)
        for axis, each in zip(self.axes, [index] if len(self.axes) == 1 else index, strict=True):
            key[axis] = each
        return tuple(key)

    def result_shape(self, shape: tuple[int, ...], index: tuple[int, ...]) -> tuple[int, ...]:
        """The shape that indexing `shape` gives."""
        axes = self.axes
        selected = index if len(axes) == 1 else index[1:]
        rest = [size for i, size in enumerate(shape) if i not in axes]
        place = self._place()
        return (*rest[:place], *selected, *rest[place:])

    def _place(self) -> int:
        """Position of the selected dimensions in the result."""
        axes = self.axes
        return axes[0] if axes[-1] - axes[0] == len(axes) - 1 else 0

    def _in_front(
        self, size: int, ndim: int, index: Any, flag: bool
    ) -> tuple[tuple[int, ...], Any, tuple[int, ...]]:
        """Axes and index for tensors of `ndim` dimensions behind that of a batch, with which they
        are indexed; and the order in which the dimensions of what that gives come.
        """
        axes = tuple(axis + 1 for axis in self.axes)
        several = len(axes) > 1
        selected = index._data.ndim - several - flag
        place = self._place()
        rest = ndim - len(axes)
        if not flag:
            apart = axes[-1] - axes[0] != len(axes) - 1
            behind = range(selected + 1, selected + 1 + rest)
            order = (selected, *range(selected), *behind) if apart else range(1 + selected + rest)
            return axes, index, tuple(order)
        sizes = index._data.shape[1 + several :]
        rows = FUNCTIONS["arange"](size, dtype=index.dtype, device=index.device)
        rows = rows.reshape(1, size, *(1,) * selected).expand(1, size, *sizes)
        places = index.movedim(0, 1) if several else index.unsqueeze(0)
        kept = range(selected + 1, selected + 1 + place)
        behind = range(selected + 1 + place, selected + 1 + rest)
        order = (0, *kept, *range(1, selected + 1), *behind)
        return (0, *axes), FUNCTIONS["cat"]([rows, places]), tuple(order)

    def _assert_fits(self, shape: tuple[int, ...], index: Spec) -> None:
        if index.dtype not in (dt.int64, dt.int32):
            raise IndexingError(
                "index: tensors used as indices must be long, int, byte or bool tensors, got "
                f"{index.dtype}"
            )
        if self.axes[-1] >= len(shape):
            raise IndexingError(f"index: too many indices for tensor of dimension {len(shape)}")
        if len(self.axes) > 1 and (not index.shape or index.shape[0] != len(self.axes)):
            raise ShapeError(f"index: {len(self.axes)} axes, but an index of shape {index.shape}")

    def _positions(self, shape: tuple[int, ...], index: Any) -> Any:
        """The row-major position, in a tensor of `shape`, of each element of the result."""
        axes = self.axes
        strides = [prod(shape[i + 1 :]) for i in range(len(shape))]
        selected = 0
        for axis, each in zip(axes, [index] if len(axes) == 1 else index, strict=True):
            selected = selected + wrapped(each, shape[axis], axis) * strides[axis]
        rest = [i for i in range(len(shape)) if i not in axes]
        place = self._place()
        positions = np.asarray(selected).reshape(np.shape(selected) + (1,) * (len(rest) - place))
        for i, axis in enumerate(rest):
            after = len(rest) - i - 1 + (np.ndim(selected) if i < place else 0)
            steps = np.arange(shape[axis]) * strides[axis]
            positions = positions + steps.reshape((-1,) + (1,) * after)
        return positions


@dataclass(eq=False, repr=False)
class Index(Advanced):
    """The elements that index tensors select; entries count from the end only where `negative`."""

    negative: bool = True
    needs = ("x2 spec1", "")
    exact = True
    library = "moves"

    def bounds(self, spec: Spec) -> Any:
        """Bounds of a valid index; see `IndexSum.bounds`."""
        return self.axes, tuple(spec.shape[axis] for axis in self.axes)

    def infer(self, spec: Spec, index: Spec) -> Spec:
        """The selected dimensions among the others."""
        self._assert_fits(spec.shape, index)
        return spec.with_(shape=self.result_shape(spec.shape, index.shape))

    def compute(self, xp: Any, x: Any, index: Any) -> Any:
        """The backend's indexing; `take` is the faster way where it needs no copy of x."""
        if not is_device_array(x) and xp.moves and len(self.axes) == 1:
            found = xp.take_along(x, index, self.axes[0], self.negative)
            if found is not NotImplemented:
                return found
        if not self.negative:
            assert_not_negative(index, x.shape[self.axes[0]])
        try:
            if len(self.axes) == 1 and x.flags.c_contiguous:
                return xp.take(x, index, axis=self.axes[0])
            return x[self._key(index)]
        except IndexError:
            self._assert_fits(x.shape, Spec(index.shape, dt.from_numpy_dtype(index.dtype)))
            for axis, each in zip(
                self.axes, [index] if len(self.axes) == 1 else index, strict=True
            ):
                wrapped(each, x.shape[axis], axis)
            raise

    def batch(self, size: int, flags: Any, x: Any, index: Any) -> Any:  # type: ignore[override]
        """A batch as one index that has positions in the batch, too; one tensor that all share gets
        more positions instead.
        """
        if not flags[0]:
            index = index.movedim(0, 1) if len(self.axes) > 1 else index
            return apply(self, x, index).movedim(self._place(), 0)
        axes, index, order = self._in_front(size, x._data.ndim - 1, index, flags[1])
        return apply(Index(axes, self.negative), x, index).permute(order)

    def gradient(self, g: Tensor, index: Tensor, spec: Spec) -> tuple[Any, ...]:
        """g added where the elements came from."""
        return (apply(IndexSum(self.axes, spec.shape), g, index), None)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """One index and several, neighbours and not, repeated and negative entries, empty."""
        one = np.array([2, 0, 2, -1])
        two = np.array([[0, 2, 1], [1, 1, 0]])
        yield from each_dtype(cls((0,)), KINDS, (3, 2), one)
        yield Sample(cls((1,)), (array((2, 3, 2)), one.reshape(2, 2)), "middle")
        yield Sample(cls((1, 2)), (array((2, 3, 2)), two), "neighbours")
        yield Sample(cls((0, 2)), (array((3, 2, 2)), two), "apart")
        yield Sample(cls((0,)), (array((3, 2)).T, one[:2] * 0), "transposed")
        yield Sample(cls((0,)), (array((3, 2)), np.zeros((0,), np.int64)), "empty")

    def reference(self, x: Any, index: Any) -> Any:
        """Reference value by flat positions."""
        return np.take(x.ravel(), self._positions(x.shape, index))


@dataclass(eq=False, repr=False)
class IndexSum(Advanced):
    """Zeros of `shape` with the first input added where the index says."""

    shape: tuple[int, ...]
    needs = ("x2", "")
    library = "moves"

    def bounds(self, g: Spec) -> Any:
        """Bounds of a valid index: an index that an `Index` of equal bounds has taken is valid
        here.
        """
        return self.axes, tuple(self.shape[axis] for axis in self.axes)

    def infer(self, g: Spec, index: Spec) -> Spec:
        """The shape."""
        self._assert_fits(self.shape, index)
        result = self.result_shape(self.shape, index.shape)
        if g.shape != result:
            raise ShapeError(f"index: values of shape {g.shape} do not fill {result}")
        return g.with_(shape=self.shape)

    def compute(self, xp: Any, g: Any, index: Any) -> Any:
        """Sums by flat position, in pieces that keep the positions few."""
        if not is_device_array(g) and xp.moves and len(self.axes) == 1:
            found = xp.place(
                None, self.axes[0], index, g, add=True, negative=True, shape=self.shape
            )
            if found is not NotImplemented:
                return found
        result = xp.zeros(self.shape, g.dtype)
        if is_device_array(g):
            xp.index_add(result, self._key(index), g)
        elif self.axes == (0,) and index.ndim:
            rows = index.reshape(-1)
            values = g.reshape((rows.shape[0], *self.shape[1:]))
            count = max(1, _PIECE // max(1, prod(self.shape[1:])))
            for start in range(0, rows.shape[0], count):
                piece = slice(start, start + count)
                add_at(result, self._positions(self.shape, rows[piece]), values[piece])
        else:
            add_at(result, self._positions(self.shape, index), g)
        return result

    def batch(self, size: int, flags: Any, g: Any, index: Any) -> Any:  # type: ignore[override]
        """The op for a batch: its index has positions in the batch, too."""
        g = g if flags[0] else g.expand(size, *g._data.shape)
        axes, index, order = self._in_front(size, len(self.shape), index, flags[1])
        g = g.permute([order.index(i) for i in range(len(order))])
        return apply(IndexSum(axes, (size, *self.shape)), g, index)

    def gradient(self, g: Tensor, index: Tensor) -> tuple[Any, ...]:
        """Elements of g at the index."""
        return (apply(Index(self.axes), g, index), None)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """One index and several."""
        one = np.array([2, 0, 2, -1])
        two = np.array([[0, 2, 1], [1, 1, 0]])
        yield from each_dtype(cls((0,), (3, 2)), KINDS, (4, 2), one)
        yield Sample(cls((1,), (2, 3, 2)), (array((2, 4, 2)), one), "middle")
        yield Sample(cls((1, 2), (2, 3, 2)), (array((2, 3)), two), "neighbours")
        yield Sample(cls((0, 2), (3, 2, 2)), (array((3, 2)), two), "apart")

    def reference(self, g: Any, index: Any) -> Any:
        """NumPy's unbuffered addition."""
        wide = np.complex128 if g.dtype.kind == "c" else np.float64
        result = np.zeros(self.shape, wide)
        np.add.at(result, self._key(index), g.astype(wide))
        return result


_PIECE = 1 << 20


def assert_not_negative(index: Any, size: int, name: str = "index_select") -> None:
    """Refuse an index array with negative entries; a device checks its own."""
    if not is_device_array(index) and index.size and (low := int(index.min())) < 0:
        raise IndexingError(
            f"{name}: index out of range in self: index {low} is negative, the dimension has size "
            f"{size}"
        )


@dataclass(eq=False, repr=False)
class IndexPut(Advanced):
    """The first input with the elements that the index selects replaced by values, or, where
    `accumulate`, with the values added to them. Entries count from the end only where `negative`.
    """

    accumulate: bool = False
    negative: bool = True
    needs = ("x2", "", "x2")
    exact = True
    library = "moves"

    def infer(self, spec: Spec, index: Spec, value: Any) -> Spec:
        """The first input's spec; values broadcast to what is selected."""
        self._assert_fits(spec.shape, index)
        result = self.result_shape(spec.shape, index.shape)
        if isinstance(value, Spec):
            assert_same_dtype(spec, value)
            if not _broadcasts(value.shape, result):
                raise ShapeError(
                    f"index_put: shape mismatch: value tensor of shape {list(value.shape)} cannot "
                    f"be broadcast to indexing result of shape {list(result)}"
                )
        return spec

    def compute(self, xp: Any, x: Any, index: Any, value: Any) -> Any:
        """Write into a copy."""
        found = self._placed(xp, x, index, value)
        if found is NotImplemented:
            found = x.copy()
            self.write(xp, found, index, value)
        return found

    def _placed(self, xp: Any, x: Any, index: Any, value: Any, over: bool = False) -> Any:
        """The result by native code; NotImplemented where there is none."""
        if is_device_array(x) or not xp.moves or len(self.axes) > 1:
            return NotImplemented
        return xp.place(
            x, self.axes[0], index, value, add=self.accumulate, negative=self.negative, over=over
        )

    def write(self, xp: Any, x: Any, index: Any, value: Any) -> None:
        """Assign, or add one by one."""
        if self.accumulate and self._placed(xp, x, index, value, True) is not NotImplemented:
            return  # which has looked at the index
        if not self.negative:
            assert_not_negative(index, x.shape[self.axes[0]], "index_put")
        if self.accumulate and is_device_array(x):
            xp.index_add(x, self._key(index), value)
        elif self.accumulate and x.flags.c_contiguous:
            add_at(x, self._positions(x.shape, index), value)
        elif self.accumulate:
            x[...] = self.compute(xp, np.ascontiguousarray(x), index, value)
        else:
            try:
                x[self._key(index)] = value
            except IndexError:
                self._positions(x.shape, index)
                raise

    def batch(  # type: ignore[override]
        self, size: int, flags: Any, x: Any, index: Any, value: Any
    ) -> Any:
        """The op for a batch: its index has positions in the batch, too."""
        shape = index._data.shape[1:] if flags[1] else index._data.shape
        shape = self.result_shape(x._data.shape[1:] if flags[0] else x._data.shape, shape)
        x = x if flags[0] else x.expand(size, *x._data.shape).contiguous()
        axes, index, order = self._in_front(size, x._data.ndim - 1, index, flags[1])
        if isinstance(value, TensorBase):
            value = as_entries(size, flags[2], value, shape)
            value = value.permute([order.index(i) for i in range(len(order))])
        return apply(IndexPut(axes, self.accumulate, self.negative), x, index, value)

    def gradient(self, g: Tensor, index: Tensor) -> tuple[Any, ...]:
        """g where it was kept; the selected part of g for the values."""
        return (
            g if self.accumulate else lambda: apply(IndexPut(self.axes), g, index, 0),
            None,
            lambda: apply(Index(self.axes), g, index),
        )

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Replaced and added, broadcast values, numbers."""
        one = np.array([2, 0, -2])
        two = np.array([[0, 2, 1], [1, 1, 0]])
        repeated = np.array([1, 1, 0])
        for dtype in (dt.float64, dt.bfloat16, dt.int32, dt.complex128):
            for accumulate in (False, True):
                index = repeated if accumulate else one
                yield Sample(
                    cls((0,), accumulate),
                    (array((3, 2), dtype), index, array((3, 2), dtype, seed=1)),
                    f"{dtype.name}-{accumulate}",
                )
        yield Sample(cls((1,)), (array((2, 3)), one, array((3,))), "broadcast")
        yield Sample(cls((0, 2), True), (array((3, 2, 2)), two, array(())), "apart")
        yield Sample(cls((0,)), (array((3, 2)), one, 1.5), "number")
        yield Sample(cls((0,), True), (array((2, 3)).T, repeated, array((3, 2))), "transposed")

    def reference(self, x: Any, index: Any, value: Any) -> Any:
        """Element by element."""
        result = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
        places = self._positions(x.shape, index)
        values = np.broadcast_to(value, places.shape)
        for place, each in zip(places.ravel(), values.ravel(), strict=True):
            result.flat[place] = result.flat[place] + each if self.accumulate else each
        return result


def as_entries(size: int, flag: bool, value: Any, shape: Any) -> Any:
    """A value for each entry of a batch, of that shape; with a `flag` it has one for each."""
    if not flag:
        return value.expand(size, *shape)
    _, *have = value._data.shape
    return value.reshape(size, *(1,) * (len(shape) - len(have)), *have).expand(size, *shape)


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    """Whether `shape` broadcasts to exactly `to`."""
    lead = len(to) - len(shape)
    return lead >= 0 and all(s in (1, t) for s, t in zip(shape, to[lead:], strict=True))


def _too_large(shape: tuple[int, ...], value: tuple[int, ...]) -> ShapeError:
    return ShapeError(
        f"copy_: output with shape {list(shape)} doesn't match the broadcast shape of a value of "
        f"shape {list(value)}"
    )


@dataclass(eq=False, repr=False)
class Overwrite(Movement):
    """The first input with the second, broadcast and converted, in the part that `items` select."""

    items: tuple[Item, ...] = ()
    linear = False  # of a number

    def infer(self, spec: Spec, value: Any) -> Spec:
        """The first input's spec."""
        shape = basic_index(self.items).infer(spec).shape
        if isinstance(value, Spec) and not _broadcasts(value.shape, shape):
            raise _too_large(shape, value.shape)
        return spec

    def compute(self, xp: Any, x: Any, value: Any) -> Any:
        """Write into new memory."""
        result = x.copy() if self.items else xp.empty_like(x)
        self.write(xp, result, value)
        return result

    def write(self, xp: Any, x: Any, value: Any) -> None:
        """Assign."""
        dtype = getattr(value, "dtype", None)
        if dtype is not None and dtype.kind == "c" and x.dtype.kind != "c":
            value = value.real
        if isinstance(value, np.ndarray) and np.may_share_memory(x, value):
            value = value.copy()  # NumPy assigns one dimension in place, whatever the strides
        if not self.items and getattr(value, "ndim", 0) > x.ndim:  # which NumPy would accept
            raise _too_large(x.shape, value.shape)
        x[basic_index(self.items).key if self.items else ...] = value

    def batch(self, size: int, flags: Any, x: Any, value: Any) -> Any:  # type: ignore[override]
        """The part of each entry."""
        shape = x._data.shape[1:] if flags[0] else x._data.shape
        x = x if flags[0] else x.expand(size, *shape).contiguous()
        if isinstance(value, TensorBase):
            part = basic_index(self.items).infer(Spec(tuple(shape), x.dtype)).shape
            value = as_entries(size, flags[1], value, part)
        return apply(Overwrite(((0, size, 1), *self.items)), x, value)

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """Nothing of the old values remains in the part: zeros there, and the part of g."""
        return (
            lambda: apply(self, g, 0) if self.items else g.new_zeros(g.shape),
            lambda: apply_view(basic_index(self.items), g),
        )

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Values of equal shape, broadcast, of another dtype, a number; a part."""
        yield Sample(cls(), (array((2, 3)), array((2, 3), seed=1)))
        yield Sample(cls(), (array((2, 3)), array((3,))), "broadcast")
        yield Sample(cls(), (array((2, 3), dt.bfloat16), array((2, 1), dt.float32)), "dtype")
        yield Sample(cls(), (array((2, 3)), 2.5), "number")
        yield Sample(cls(), (array(()), array(())), "0-d")
        yield Sample(cls((1,)), (array((2, 3)), array((3,))), "row")
        yield Sample(cls(((0, 2, 1), None, 1)), (array((2, 3)), array((1,))), "column")

    def reference(self, x: Any, value: Any) -> Any:
        """Reference value by position."""
        places = np.arange(x.size).reshape(x.shape)[basic_index(self.items).key]
        values = np.zeros(x.size) + x.astype(np.float64).reshape(-1)
        values[places.reshape(-1)] = (np.zeros(places.shape) + value).reshape(-1)
        return values.reshape(x.shape).astype(x.dtype)


def assert_same_dtype(x: Any, value: Any) -> None:
    """Refuse values of another dtype than that of the tensor they are written into."""
    if value.dtype is not x.dtype:
        raise DTypeError(
            f"index_put: Index put requires the source and destination dtypes match, got {x.dtype} "
            f"for the destination and {value.dtype} for the source; convert it with .to()"
        )
