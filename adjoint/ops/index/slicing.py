"""Views of a part: basic indexing, narrow, select, diagonals, windows, arbitrary strides."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends import numpy as backend
from ...core import dtype as dt
from ...core.argument_errors import assert_tensor
from ...core.device import is_device_array
from ...core.errors import IndexingError, ShapeError, Unsupported
from ...core.mode import MODE
from ...core.op import Op, Sample
from ...core.spec import Spec, normalize_axis, prod
from ...core.symbolic_scalar import SymbolicNumber
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply, apply_view
from ...runtime.lazy import LazyValue
from ...runtime.public import explaining, public, rebinding
from ..argument_dtypes import INTEGERS, assert_dtypes
from ..samples import array, strided
from ..shape.movement import Clone, Movement, as_writable, is_row_major, sizes_of
from ..shape.sizes import hold_sizes, is_of_graph

if TYPE_CHECKING:
    from ..argument_types import Dims

__all__ = [
    "as_strided", "as_strided_scatter", "diag", "diag_embed", "diagflat", "diagonal",
    "diagonal_scatter", "narrow",
    "narrow_copy", "select", "select_scatter", "slice_scatter", "trace",
]  # fmt: skip

Item = int | None | tuple[int, int, int]  # in a capture also a `NumberPlace`


def number_places() -> Any:
    """The module for indices that are numbers of a capture, which is imported where there are."""
    from . import number_places as module

    return module


def items_now(items: Iterable[Any]) -> tuple[Any, ...]:
    """The items of an index for the values that its numbers have now: see `NumberPlace`."""
    return tuple([getattr(x, "now", x) for x in items])


@dataclass(eq=False, repr=False)
class BasicIndex(Movement):
    """The part of a tensor that integers, slices and new dimensions select.

    An item is an index (its dimension goes), None (a new dimension of size 1) or (start, stop,
    step), all in range and not negative; the dimensions after the items are kept whole.
    """

    items: tuple[Item, ...]
    key: Any = field(init=False, compare=False, repr=False)  # the items as NumPy takes them
    view = True

    def __post_init__(self) -> None:
        items = items_now(self.items)
        key = (*(slice(*i) if type(i) is tuple else i for i in items), Ellipsis)
        object.__setattr__(self, "key", key)

    def infer(self, spec: Spec) -> Spec:
        """The sizes of the slices, 1 for new dimensions, then the rest."""
        shape: list[int] = []
        axis = 0
        for item in items_now(self.items):
            if item is None:
                shape.append(1)
                continue
            if axis >= len(spec.shape):
                raise IndexingError(
                    f"index: too many indices for tensor of dimension {len(spec.shape)} "
                    f"(shape {spec.shape}, items {self.items})"
                )
            if isinstance(item, tuple):
                start, stop, step = item
                size = spec.shape[axis]
                stop = size if stop > size else stop  # in graphs an end is left open
                shape.append(-((start - stop) // step) if stop > start else 0)
            elif item >= spec.shape[axis]:
                raise IndexingError(
                    f"index: index {item} is out of bounds for dimension {axis} with size "
                    f"{spec.shape[axis]}"
                )
            axis += 1
        return spec.with_(shape=(*shape, *spec.shape[axis:]))

    def compute(self, xp: Any, x: Any) -> Any:
        """A view."""
        return x[self.key]

    def gradient(self, g: Tensor, spec: Spec) -> tuple[Any, ...]:
        """g among zeros."""
        return (apply(Place(self.items, spec.shape), g),)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Every kind of item, strided and empty inputs."""
        yield Sample(cls((1,)), (array((3, 4)),), "int")
        yield Sample(cls(((0, 3, 1), 2)), (array((3, 4)),), "column")
        yield Sample(cls(((0, 3, 2), (1, 4, 1))), (array((3, 4)),), "slices")
        yield Sample(cls((None, (0, 3, 1), None)), (array((3, 4)),), "new")
        yield Sample(cls((1, 2)), (array((3, 4)),), "element")
        yield Sample(cls((1,)), (strided(array((3, 4))),), "strided")
        yield Sample(cls(((1, 1, 1),)), (array((3, 4), dt.float32),), "empty")
        yield Sample(cls(()), (array((), dt.bfloat16),), "0-d")

    def reference(self, x: Any) -> Any:
        """Reference value by taking positions."""
        places = np.arange(x.size).reshape(x.shape)[self.key]
        return np.take(x.ravel(), places)


_basic_index = functools.lru_cache(maxsize=8192)(BasicIndex)  # the same come again in a loop


def basic_index(items: tuple[Item, ...]) -> BasicIndex:
    """The op of these items."""
    try:
        return _basic_index(items)
    except TypeError:  # sizes that are not known yet
        return BasicIndex(items)


@dataclass(eq=False, repr=False)
class Place(Movement):
    """A tensor of `shape` filled with `value`, and the input where `items` select."""

    items: tuple[Item, ...]
    shape: tuple[int, ...]
    value: Any = 0
    library = "moves"
    linear = False  # where it is filled with others than zeros

    def infer(self, spec: Spec) -> Spec:
        """The shape, which must have room for the input."""
        part = basic_index(self.items).infer(spec.with_(shape=self.shape))
        if part.shape != spec.shape:
            raise ShapeError(f"place: shape {spec.shape} does not fill {part.shape}")
        return spec.with_(shape=self.shape)

    def compute(self, xp: Any, x: Any) -> Any:
        """Fill, then write; native code does both at once, where the input is in a frame."""
        if not is_device_array(x) and xp.moves and len(self.items) == x.ndim:
            starts = [i[0] for i in self.items if type(i) is tuple and i[2] == 1]
            found = NotImplemented
            if len(starts) == x.ndim:
                found = xp.framed(x, tuple(starts), self.shape, self.value)
            if found is not NotImplemented:
                return found
        make = xp.zeros if type(self.value) is int and self.value == 0 else xp.full
        result = make(self.shape, *(() if make is xp.zeros else (self.value,)), dtype=x.dtype)
        result[basic_index(self.items).key] = x
        return result

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """The part of g."""
        return (apply_view(basic_index(self.items), g),)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Zeros and another value around, several dtypes."""
        for dtype in (dt.float64, dt.bfloat16, dt.int64, dt.complex128):
            yield Sample(cls(((1, 3, 1),), (4, 2)), (array((2, 2), dtype),), dtype.name)
        yield Sample(cls((2, (0, 4, 2)), (3, 4), 1.5), (array((2,)),), "value")
        yield Sample(cls(((1, 1, 1),), (2, 2)), (array((0, 2)),), "empty")
        yield Sample(cls((1,), (3,)), (array(()),), "0-d")

    def reference(self, x: Any) -> Any:
        """Element by element."""
        result = np.full(self.shape, self.value).astype(x.dtype)
        places = np.arange(result.size).reshape(self.shape)[basic_index(self.items).key]
        for place, value in zip(places.ravel(), x.ravel(), strict=True):
            result.flat[place] = value
        return result


# ---- diagonals -----------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class Diagonal(Movement):
    """The diagonal of two dimensions, as the last dimension."""

    offset: int
    axis1: int
    axis2: int
    view = True

    def infer(self, spec: Spec) -> Spec:
        """The other dimensions, then the diagonal."""
        rows, columns = spec.shape[self.axis1], spec.shape[self.axis2]
        length = max(0, min(rows, columns - self.offset, columns, rows + self.offset))
        rest = (s for i, s in enumerate(spec.shape) if i not in (self.axis1, self.axis2))
        return spec.with_(shape=(*rest, length))

    def compute(self, xp: Any, x: Any) -> Any:
        """A view."""
        return as_writable(xp.diagonal(x, self.offset, self.axis1, self.axis2), x)

    def gradient(self, g: Tensor, spec: Spec) -> tuple[Any, ...]:
        """g among zeros."""
        return (apply(PlaceDiagonal(spec.shape, self.offset, self.axis1, self.axis2), g),)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Offsets to both sides, batches, empty."""
        yield Sample(cls(0, 0, 1), (array((3, 4)),))
        yield Sample(cls(1, 0, 1), (array((3, 3), dt.float32),), "above")
        yield Sample(cls(-1, 1, 0), (array((3, 4)),), "below")
        yield Sample(cls(0, 0, 2), (array((3, 2, 3)),), "batch")
        yield Sample(cls(5, 0, 1), (array((3, 3)),), "outside")

    def reference(self, x: Any) -> Any:
        """Reference value by index."""
        moved = np.moveaxis(x, (self.axis1, self.axis2), (-2, -1))
        rows, columns = np.indices(moved.shape[-2:])
        return moved[..., columns - rows == self.offset]


@dataclass(eq=False, repr=False)
class PlaceDiagonal(Movement):
    """Zeros of `shape` with the input's last dimension on the diagonal of two dimensions."""

    shape: tuple[int, ...]
    offset: int
    axis1: int
    axis2: int

    def _diagonal(self) -> Diagonal:
        return Diagonal(self.offset, self.axis1, self.axis2)

    def infer(self, spec: Spec) -> Spec:
        """The shape, whose diagonal the input must fill."""
        part = self._diagonal().infer(spec.with_(shape=self.shape))
        if part.shape != spec.shape:
            raise ShapeError(
                f"diag_embed: shape {spec.shape} does not fill the diagonal {part.shape}"
            )
        return spec.with_(shape=self.shape)

    def compute(self, xp: Any, x: Any) -> Any:
        """Write into the diagonal of zeros."""
        result = xp.zeros(self.shape, x.dtype)
        self._diagonal().compute(xp, result)[...] = x
        return result

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """The diagonal of g."""
        return (apply(self._diagonal(), g),)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """A matrix, a batch, an offset."""
        yield Sample(cls((3, 3), 0, 0, 1), (array((3,)),))
        yield Sample(cls((2, 4, 4), 1, 1, 2), (array((2, 3)),), "batch")
        yield Sample(cls((4, 3), -2, 0, 1), (array((2,), dt.float32),), "below")

    def reference(self, x: Any) -> Any:
        """Reference value by index."""
        result = np.zeros(self.shape, x.dtype)
        moved = np.moveaxis(result, (self.axis1, self.axis2), (-2, -1))
        rows, columns = np.indices(moved.shape[-2:])
        moved[..., columns - rows == self.offset] = x
        return result


# ---- windows and strides -------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class Unfold(Movement):
    """Windows of `size` along `axis`, `step` apart, as a new last dimension."""

    axis: int
    size: int
    step: int
    view = overlaps = True

    def infer(self, spec: Spec) -> Spec:
        """The number of windows in place of the dimension, and their size at the end."""
        length = spec.shape[self.axis]
        if not 0 <= self.size <= length:
            raise ShapeError(
                f"unfold: maximum size for tensor at dimension {self.axis} is {length} but size "
                f"is {self.size}"
            )
        count = (length - self.size) // self.step + 1
        shape = (*spec.shape[: self.axis], count, *spec.shape[self.axis + 1 :], self.size)
        return spec.with_(shape=shape)

    def compute(self, xp: Any, x: Any) -> Any:
        """A view in which the windows overlap."""
        self.infer(Spec(x.shape, dt.float64))
        count = (x.shape[self.axis] - self.size) // self.step + 1
        shape = (*x.shape[: self.axis], count, *x.shape[self.axis + 1 :], self.size)
        stride = x.strides[self.axis]
        before, after = x.strides[: self.axis], x.strides[self.axis + 1 :]
        return xp.as_strided(
            x, shape, (*before, stride * self.step, *after, stride), writeable=x.flags.writeable
        )

    def gradient(self, g: Tensor, spec: Spec) -> tuple[Any, ...]:
        """The cotangents summed for each element over the windows that show it."""
        return (apply(SumWindows(self.axis, self.size, self.step, spec.shape[self.axis]), g),)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Overlapping windows, gaps, an inner dimension."""
        yield Sample(cls(0, 3, 1), (array((5,)),))
        yield Sample(cls(1, 2, 3), (array((2, 6, 2)),), "gaps")
        yield Sample(cls(0, 2, 1), (strided(array((3, 2))),), "strided")
        yield Sample(cls(0, 0, 1), (array((2,)),), "empty")

    def reference(self, x: Any) -> Any:
        """Window by window."""
        starts = range(0, x.shape[self.axis] - self.size + 1, self.step)
        windows = [np.take(x, range(s, s + self.size), self.axis) for s in starts]
        return np.stack([np.moveaxis(w, self.axis, -1) for w in windows], self.axis)


@dataclass(eq=False, repr=False)
class SumWindows(Op):
    """Windows, as `Unfold` gives them, added where they came from."""

    axis: int
    size: int
    step: int
    length: int
    linear = True

    def infer(self, spec: Spec) -> Spec:
        """The dimension has its length back."""
        shape = (*spec.shape[: self.axis], self.length, *spec.shape[self.axis + 1 : -1])
        return spec.with_(shape=shape)

    def compute(self, xp: Any, x: Any) -> Any:
        """Add one position of all windows at a time."""
        shape = (*x.shape[: self.axis], self.length, *x.shape[self.axis + 1 : -1])
        result = xp.zeros(shape, x.dtype)
        span = x.shape[self.axis] * self.step
        lead = (slice(None),) * self.axis
        for i in range(self.size):
            result[(*lead, slice(i, i + span, self.step))] += x[..., i]
        return result

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """The windows of g."""
        return (apply_view(Unfold(self.axis, self.size, self.step), g),)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Overlapping windows and gaps."""
        yield Sample(cls(0, 3, 1, 5), (array((3, 3)),))
        yield Sample(cls(1, 2, 3, 6), (array((2, 2, 2, 2)),), "gaps")
        yield Sample(cls(0, 2, 1, 4), (array((3, 2), dt.bfloat16),), "bfloat16")

    def reference(self, x: Any) -> Any:
        """Element by element."""
        windows = np.moveaxis(x.astype(np.float64), self.axis, 0)
        rest = windows.shape[1:-1]
        result = np.zeros((self.length, *rest))
        for n, window in enumerate(windows):
            for i in range(self.size):
                result[n * self.step + i] += window[..., i]
        return np.moveaxis(result, 0, self.axis)


@dataclass(eq=False, repr=False)
class AsStrided(Movement):
    """The elements at offset + sum(index * stride) of the input in row-major order."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    view = overlaps = True

    def infer(self, spec: Spec) -> Spec:
        """The new shape, within the elements that exist."""
        last = self.offset + _reach(self.size, self.stride)
        first = min(self.offset, *self.stride, 0)  # steps lead forward only
        if 0 not in self.size and not 0 <= first <= last < prod(spec.shape):
            raise ShapeError(
                f"as_strided: setStorage: sizes {list(self.size)}, strides {list(self.stride)}, "
                f"storage offset {self.offset} are out of bounds for storage of "
                f"{prod(spec.shape)} elements"
            )
        return spec.with_(shape=self.size)

    def compute(self, xp: Any, x: Any) -> Any:
        """A view of row-major memory."""
        self.infer(Spec(x.shape, dt.float64))
        flat = xp.ascontiguousarray(x).reshape(-1)
        item = x.dtype.itemsize
        return xp.as_strided(
            flat[self.offset :],
            self.size,
            tuple(s * item for s in self.stride),
            writeable=flat.flags.writeable,
        )

    def batch(self, size: int, flags: Any, x: Any) -> Any:  # type: ignore[override]
        """A batch as one view with another stride, over entries in row-major order."""
        step = prod(x._data.shape[1:])
        op = AsStrided((size, *self.size), (step, *self.stride), self.offset)
        if not size:
            return x.new_zeros((size, *self.size))
        return apply(op, x.contiguous())

    def gradient(self, g: Tensor, spec: Spec) -> tuple[Any, ...]:
        """The cotangents summed for each element over the places that show it."""
        return (apply(SumStrided(spec.shape, self.size, self.stride, self.offset), g),)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Overlapping, repeated, from an offset, not row-major."""
        yield Sample(cls((2, 2), (1, 2), 1), (array((6,)),))
        yield Sample(cls((3, 2), (1, 1), 0), (array((2, 3)),), "overlap")
        yield Sample(cls((2, 3), (0, 1), 0), (array((3,)),), "repeat")
        yield Sample(cls((2, 3), (3, 1), 0), (strided(array((3, 2))),), "strided")
        yield Sample(cls((), (), 1), (array((2,)),), "0-d")

    def reference(self, x: Any) -> Any:
        """Position by position."""
        return np.take(x.ravel(), _positions(self.size, self.stride, self.offset))


@dataclass(eq=False, repr=False)
class SumStrided(Op):
    """The input added to zeros of `shape` where `AsStrided` reads from."""

    shape: tuple[int, ...]
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    linear = True

    def infer(self, spec: Spec) -> Spec:
        """The shape."""
        return spec.with_(shape=self.shape)

    def compute(self, xp: Any, x: Any) -> Any:
        """Add by position."""
        result = xp.zeros(self.shape, x.dtype)
        places = _positions(self.size, self.stride, self.offset)
        xp.add.at(result.reshape(-1), places.reshape(-1), x.reshape(-1))
        return result

    def batched(self, size: int) -> SumStrided:
        """The op for a batch: another stride."""
        step = prod(self.shape)
        shape, sizes = (size, *self.shape), (size, *self.size)
        return SumStrided(shape, sizes, (step, *self.stride), self.offset)

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """Elements of g at the view's positions."""
        return (apply_view(AsStrided(self.size, self.stride, self.offset), g),)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Overlapping and not."""
        yield Sample(cls((6,), (2, 2), (1, 2), 1), (array((2, 2)),))
        yield Sample(cls((2, 3), (3, 2), (1, 1), 0), (array((3, 2)),), "overlap")
        yield Sample(cls((3,), (2, 3), (0, 1), 0), (array((2, 3), dt.float32),), "float32")

    def reference(self, x: Any) -> Any:
        """Reference value by counting."""
        places = _positions(self.size, self.stride, self.offset).ravel()
        return np.bincount(places, x.ravel(), prod(self.shape)).reshape(self.shape)


@dataclass(eq=False, repr=False)
class OfMemory(Movement, abstract=True):
    """The elements at offset + sum(index * stride) from the input's first one, in its memory, where
    it has its own elements `steps` apart; what lies between these is constant.
    """

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    steps: tuple[int, ...]
    view = overlaps = True

    def infer(self, spec: Spec) -> Spec:
        """The new shape."""
        return spec.with_(shape=self.size)

    def compute(self, xp: Any, x: Any) -> Any:
        """A view."""
        item = x.dtype.itemsize
        if x.strides != tuple(s * item for s in self.steps):
            raise Unsupported(
                "as_strided: a write to such a view of a tensor that is not row-major has no "
                "gradient; write to the tensor itself, or use .contiguous() first"
            )
        first = xp.as_strided(x, (2,), (self.offset * item,))[1:]
        steps = tuple(s * item for s in self.stride)
        return xp.as_strided(first, self.size, steps, writeable=x.flags.writeable)

    def gradient(self, g: Tensor, spec: Spec) -> tuple[Any, ...]:
        """The memory's cotangent at the input's own elements."""
        begin = min(0, self.offset)
        ends = _reach(spec.shape, self.steps), self.offset + _reach(self.size, self.stride)
        memory = SumStrided((max(ends) - begin + 1,), self.size, self.stride, self.offset - begin)
        return (apply(AsStrided(spec.shape, self.steps, -begin), apply(memory, g)),)


def _reach(size: tuple[int, ...], stride: tuple[int, ...]) -> int:
    """Distance of the last element from the first one."""
    return sum((n - 1) * s for n, s in zip(size, stride, strict=True))


def _is_apart(size: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Whether no two elements are at one place of memory, as far as the strides in order tell."""
    reach = 0
    for s, n in sorted((s, n) for s, n in zip(stride, size, strict=True) if n > 1):
        if s <= reach:
            return False
        reach += (n - 1) * s
    return True


def _positions(size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> Any:
    """The row-major position of each element of a strided view."""
    places = np.array(offset)
    for n, s in zip(size, stride, strict=True):
        places = places[..., None] + np.arange(n) * s
    return places


# ---- public functions ----------------------------------------------------------------------------


def part(input: Tensor, axis: int, start: int, stop: int, step: int = 1) -> Tensor:
    """The view of `start:stop:step` (in range) along `axis`."""
    return apply_view(basic_index((*before(input, axis), (start, stop, step))), input)


def before(input: Any, axis: int) -> tuple[Item, ...]:
    """Full slices of the dimensions before `axis`; in a graph, however many that will be."""
    if is_of_graph(input):
        return ((0, _ANY_SIZE, 1),) * axis
    return tuple((0, size, 1) for size in input._data.shape[:axis])


_ANY_SIZE = 1 << 62


@public()
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """A view of the slice number `index` along `dim`, which goes.

    Errors: IndexingError for an index out of range, or a 0-d tensor.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.select.html

    >>> ad.select(ad.tensor([[1, 2], [3, 4]]), 1, 0)
    tensor([1, 3])
    """
    shape = input._data.shape
    if not shape:
        raise IndexingError("select: select() cannot be applied to a 0-dim tensor.")
    axis = normalize_axis(dim, len(shape), "select")
    place = index if type(index) is int else number_places().as_index(index, shape[axis])
    if hasattr(place, "symbol"):  # a tensor's, of which the program looks whether it is in range
        return apply_view(basic_index((*before(input, axis), place)), input)
    if not -shape[axis] <= place < shape[axis]:
        raise IndexingError(
            f"select: select(): index {place} out of range for tensor of size {list(shape)} at "
            f"dimension {axis}"
        )
    if place < 0:
        input = hold_sizes("select", input, dims=(axis,))
    item = _item_at(place, shape[axis])
    return apply_view(basic_index((*before(input, axis), item)), input)


def _item_at(place: Any, size: int) -> Any:
    """The item of an index that is in range, and may be negative."""
    return place % size if type(place) is int else number_places().item_at(place, size)


@public()
def narrow(input: Tensor, dim: int, start: Any, length: int) -> Tensor:
    """A view of `length` elements from `start` along `dim`.

    Errors: ShapeError where they reach over the end; IndexingError for a start out of range.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.narrow.html

    >>> ad.narrow(ad.arange(5), 0, 1, 3)
    tensor([1, 2, 3])
    """
    shape = input._data.shape
    if not shape:
        raise ShapeError("narrow: narrow() cannot be applied to a 0-dim tensor.")
    axis = normalize_axis(dim, len(shape), "narrow")
    size = shape[axis]
    if type(start) is not int:
        assert_dtypes("narrow", INTEGERS, start=start)
        if isinstance(start, TensorBase) and start._data.size != 1:
            raise ShapeError(
                f"narrow: start must be an int or a tensor of one, got shape {tuple(start.shape)}"
            )
    first = start if type(start) is int else number_places().as_index(start, size)
    length = operator.index(length)
    if length < 0:
        raise ShapeError(f"narrow: narrow(): length must be non-negative, got {length}")
    if hasattr(first, "symbol"):
        item = number_places().part_of_tensor(first, length, size)
        return apply_view(basic_index((*before(input, axis), item)), input)
    if not -size <= first <= size:
        raise IndexingError(
            f"narrow: start out of range (expected to be in range of [{-size}, {size}], but got "
            f"{first})"
        )
    if first < 0:
        input = hold_sizes("narrow", input, dims=(axis,))
        first = first + size
    if first + length > size:
        raise ShapeError(
            f"narrow: start ({first}) + length ({length}) exceeds dimension size ({size})."
        )
    if type(first) is int:
        return part(input, axis, first, first + length)
    item = number_places().part_from(first, length)
    return apply_view(basic_index((*before(input, axis), item)), input)


@public(out=True)
def narrow_copy(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """`narrow` as a copy.

    Errors: those of `narrow`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.narrow_copy.html

    >>> ad.narrow_copy(ad.arange(5), 0, 1, 3)
    tensor([1, 2, 3])
    """
    return narrow(input, dim, start, length).clone()


@explaining
@public(plain=True)
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A view of the diagonal of two dimensions, as the last dimension.

    Errors: IndexingError for a dim out of range; ShapeError where the two are the same.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.diagonal.html

    >>> ad.diagonal(ad.tensor([[1, 2], [3, 4]]))
    tensor([1, 4])
    """
    axis1, axis2 = _two_axes(input._data.ndim, dim1, dim2, "diagonal")
    return apply_view(Diagonal(operator.index(offset), axis1, axis2), input)


def _two_axes(ndim: int, dim1: int, dim2: int, name: str) -> tuple[int, int]:
    axis1, axis2 = normalize_axis(dim1, ndim, name), normalize_axis(dim2, ndim, name)
    if axis1 == axis2:
        raise ShapeError(f"{name}: diagonal dimensions cannot be identical {dim1}, {dim2}")
    return axis1, axis2


@explaining
@public()
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Zeros with the last dimension of `input` on the diagonal of two new dimensions.

    Shapes: (..., n) -> (..., m, m) with m = n + abs(offset).
    Errors: IndexingError for a dim out of range; ShapeError where the two are the same.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.diag_embed.html

    >>> ad.diag_embed(ad.tensor([1, 2]))
    tensor([[1, 0],
            [0, 2]])
    """
    shape = input._data.shape
    axis1, axis2 = _two_axes(len(shape) + 1, dim1, dim2, "diag_embed")
    if not shape:
        raise ShapeError("diag_embed: needs at least 1 dimension, got a 0-d tensor")
    size = shape[-1] + abs(offset)
    result = list(shape[:-1])
    for axis in sorted((axis1, axis2)):
        result.insert(axis, size)
    return apply(PlaceDiagonal(tuple(result), offset, axis1, axis2), input)


@public(out=True)
def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """A vector as the diagonal of a matrix, or the diagonal of a matrix as a vector.

    Errors: ShapeError for other numbers of dimensions.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.diag.html

    >>> ad.diag(ad.tensor([[1, 2], [3, 4]]), 1)
    tensor([2])
    """
    ndim = input._data.ndim
    if ndim == 1:
        return diag_embed(input, diagonal)
    if ndim != 2:
        raise ShapeError(f"diag: diag(): Supports 1D or 2D tensors. Got {ndim}D")
    return apply_view(Diagonal(operator.index(diagonal), 0, 1), input).clone()  # type: ignore[no-any-return]


@explaining
@public(method=True)
def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """The elements, in row-major order, on the diagonal of a matrix.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.diagflat.html

    >>> ad.diagflat(ad.tensor([[1, 2]]))
    tensor([[1, 0],
            [0, 2]])
    """
    return diag_embed(input.reshape(-1), offset)


@public()
def trace(input: Tensor) -> Tensor:
    """The sum of the diagonal of a matrix.

    Errors: ShapeError for a tensor that is not 2-d.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.trace.html

    >>> ad.trace(ad.tensor([[1., 2.], [3., 4.]]))
    tensor(5.)
    """
    if input._data.ndim != 2:
        raise ShapeError(
            f"trace: expected a matrix, but got tensor with dim {input._data.ndim} (shape "
            f"{tuple(input.shape)})"
        )
    return apply_view(Diagonal(0, 0, 1), input).sum()


@explaining
@public()
def unfold(input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """A view of all windows of `size`, `step` apart, along a dimension; they are the last one.

    Errors: ShapeError for a window longer than the dimension, or a step that is not positive.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.unfold.html

    >>> ad.arange(5).unfold(0, 3, 2)
    tensor([[0, 1, 2],
            [2, 3, 4]])
    """
    axis = normalize_axis(dimension, input._data.ndim, "unfold")
    if step <= 0:
        raise ShapeError(f"unfold: step is {step} but must be > 0")
    x = input if input._data.ndim else input.reshape(1)
    result: Tensor = apply_view(Unfold(axis, operator.index(size), operator.index(step)), x)
    return result if input._data.ndim else result.squeeze(0)


@explaining
@rebinding
@public(plain=True)
def as_strided(
    input: Tensor, size: Dims, stride: Dims, storage_offset: int | None = None
) -> Tensor:
    """A view of the storage with the given sizes, strides and offset, all in elements.

    Errors: ShapeError where it leaves the storage; Unsupported where the operation is recorded or
    `input` expanded, and the storage not that of a row-major tensor.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.as_strided.html

    >>> ad.as_strided(ad.arange(6), (2, 2), (1, 2))
    tensor([[0, 2],
            [1, 3]])
    """
    sizes, strides = sizes_of((size,), "as_strided"), sizes_of((stride,), "as_strided")
    if len(sizes) != len(strides):
        raise ShapeError(
            "as_strided: mismatch in length of strides and shape: "
            f"{list(strides)} for {list(sizes)}"
        )
    if any(s < 0 for s in strides):
        raise ShapeError(
            f"as_strided: Negative strides are not supported at the moment, got strides: "
            f"{list(strides)}"
        )
    here = input._storage_offset()
    offset = here if storage_offset is None else operator.index(storage_offset)
    last = offset + _reach(sizes, strides)
    base = None if input._view is None else input._view.base
    for candidate in (input, base):
        if candidate is None or not is_row_major(candidate):
            continue
        kinds = type(input._data), type(candidate._data)  # not the data, which lazy ones compute
        if hasattr(kinds[0], "tangent") and not hasattr(kinds[1], "tangent"):
            continue  # the primal of a dual (autograd/forward_ad.py), which has none
        begin = candidate._storage_offset()
        whole = begin == 0 and candidate is (input if base is None else base)
        if 0 in sizes or (begin <= offset and last < begin + candidate._data.size) or whole:
            if isinstance(candidate._data, LazyValue):
                _assert_lies(candidate._data, storage_offset is not None)
            return apply_view(AsStrided(sizes, strides, offset - begin), candidate)
    if type(input._data) is np.ndarray and MODE.get().executor is None:
        steps = input.stride()
        if input.numel() and _is_apart(tuple(input.shape), steps):
            whole = input.untyped_storage().nbytes() // input.element_size()
            if prod(sizes) and not 0 <= offset <= last < whole:
                raise ShapeError(
                    f"as_strided: setStorage: sizes {list(sizes)}, strides {list(strides)}, "
                    f"storage offset {offset} are out of bounds for storage of {whole} elements"
                )
            return apply_view(OfMemory(sizes, strides, offset - here, steps), input)
    if is_row_major(input):
        raise Unsupported(
            f"as_strided: of memory from outside: sizes {list(sizes)}, strides {list(strides)}, "
            f"offset {offset} leave the tensor, and where operations are recorded nothing is known "
            "of its storage beyond it; take the view of the whole storage's tensor"
        )
    raise Unsupported(
        f"as_strided: sizes {list(sizes)}, strides {list(strides)}, offset {offset} need the "
        "storage of a tensor that is not row-major; use .contiguous() first"
    )


def _assert_lies(value: Any, begins: bool) -> None:
    """Refuse what is only recorded where eager execution may not lay it out row-major: what is
    computed of an input that is not follows that one's order. `begins`: an offset is counted from
    the beginning of a storage.
    """
    note = getattr(MODE.get().executor, "note_memory", None)  # a capture's
    stack, seen = [(value, begins)], set()
    while stack:
        x, begins = stack.pop()
        if (id(x), begins) in seen:
            continue
        seen.add((id(x), begins))
        ops: list[Op] = []
        while isinstance(x, LazyValue) and x.op is not None and x.array is None and x.op.view:
            ops.append(x.op)
            x = x.inputs[0]
        array = x.array if isinstance(x, LazyValue) else x
        computed = array is None and x.op is not None
        if array is None:
            array = np.empty(x.shape, x.dtype)
            if not computed and note is not None:
                note(x, begins)
        for op in reversed(ops):
            array = op.compute(backend, array)
        steps = [abs(s) for s, n in zip(array.strides, array.shape, strict=True) if n > 1]
        if steps != sorted(steps, reverse=True):
            raise Unsupported(
                "as_strided: of what is computed from a tensor that is not row-major, where "
                "operations are recorded; use .clone(memory_format=contiguous_format) first"
            )
        if computed and not (isinstance(x.op, Clone) and x.op.order == "C"):
            given = (y for y in x.inputs if isinstance(y, (LazyValue, np.ndarray)))
            stack += [(y, False) for y in given]


# ---- a copy with one part replaced ---------------------------------------------------------------


def _scattered(input: Tensor, src: Tensor, op: Op, name: str) -> Tensor:
    shape = op.infer(input.spec).shape
    assert_tensor(name, src, "src")
    if tuple(src._data.shape) != shape:
        raise ShapeError(
            f"{name}: expected src to have a size equal to the slice of self. src size = "
            f"{list(src.shape)}, slice size = {list(shape)}"
        )
    result: Tensor = input.clone()
    apply_view(op, result).copy_(src)
    return result


@public()
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy of `input` with the slice number `index` along `dim` replaced by `src`.

    Errors: ShapeError where src has not the slice's shape.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.select_scatter.html

    >>> ad.select_scatter(ad.zeros(2, 2), ad.ones(2), 0, 1)
    tensor([[0., 0.],
            [1., 1.]])
    """
    shape = input._data.shape
    axis = normalize_axis(dim, len(shape), "select_scatter")
    index = index if type(index) is int else number_places().as_place(index, shape[axis])
    if not -shape[axis] <= index < shape[axis]:
        raise IndexingError(
            f"select_scatter: index {index} out of range for shape {tuple(shape)} at dim {axis}"
        )
    items = *((0, size, 1) for size in shape[:axis]), _item_at(index, shape[axis])
    return _scattered(input, src, basic_index(items), "select_scatter")


@public(out=True)
def slice_scatter(
    input: Tensor,
    src: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Tensor:
    """A copy of `input` with `start:end:step` along `dim` replaced by `src`.

    Errors: ShapeError where src has not the slice's shape.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.slice_scatter.html

    >>> ad.slice_scatter(ad.zeros(4), ad.ones(2), 0, 1, 3)
    tensor([0., 1., 1., 0.])
    """
    shape = input._data.shape
    axis = normalize_axis(dim, len(shape), "slice_scatter")
    if step <= 0:
        raise ShapeError(f"slice_scatter: step must be positive, got {step}")
    item = None
    kinds: tuple[type, ...] = type(start), type(end)
    if SymbolicNumber in kinds:
        item = number_places().slice_at(slice(start, end, step), shape[axis])
    if item is None:
        first, last, _ = slice(start, end, step).indices(shape[axis])
        item = first, max(first, last), step
    items = *((0, size, 1) for size in shape[:axis]), item
    return _scattered(input, src, basic_index(items), "slice_scatter")


@explaining
@public()
def as_strided_scatter(
    input: Tensor, src: Tensor, size: Dims, stride: Dims, storage_offset: int | None = None
) -> Tensor:
    """A copy of `input` with the elements that `as_strided` shows replaced by `src`.

    Errors: ShapeError where src has not that shape; those of `as_strided`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.as_strided_scatter.html

    >>> ad.as_strided_scatter(ad.zeros(4), ad.ones(2), (2,), (2,), 0)
    tensor([1., 0., 1., 0.])
    """
    offset = input._storage_offset() if storage_offset is None else operator.index(storage_offset)
    op = AsStrided(
        sizes_of((size,), "as_strided_scatter"), sizes_of((stride,), "as_strided_scatter"), offset
    )
    return _scattered(input.contiguous(), src, op, "as_strided_scatter")


@public()
@explaining
def diagonal_scatter(
    input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """A copy of `input` with a diagonal replaced by `src`.

    Errors: ShapeError where src has not the diagonal's shape.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.diagonal_scatter.html

    >>> ad.diagonal_scatter(ad.zeros(2, 2), ad.ones(2))
    tensor([[1., 0.],
            [0., 1.]])
    """
    axes = _two_axes(input._data.ndim, dim1, dim2, "diagonal_scatter")
    return _scattered(input, src, Diagonal(offset, *axes), "diagonal_scatter")
