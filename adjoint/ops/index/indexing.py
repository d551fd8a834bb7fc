"""Indexing with tensors: reading and writing `x[...]`, and the functions that take indices."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import dtype as dt
from ...core.argument_errors import assert_tensor
from ...core.device import CPU
from ...core.errors import DTypeError, IndexingError, InvalidType, ShapeError
from ...core.mode import MODE, are_known
from ...core.overrides import ABSENT, FOLLOWED, concerns, overridden
from ...core.spec import Spec, broadcast_shapes, normalize_axis, prod
from ...core.symbolic_scalar import SymbolicNumber
from ...core.symbolic_sizes import indices
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...runtime.cells import Cell
from ...runtime.dispatch import apply, apply_view, run_known
from ...runtime.fused import writing
from ...runtime.public import FUNCTIONS, METHODS, explaining, public, write_in_place
from ...runtime.tensors import fresh
from ...runtime.writes import copied, values_of, write_by_kernel
from ..argument_dtypes import REALS, assert_dtypes
from ..create.allocation import are_numbers, names_on, of_numbers
from ..create.values import convert_number
from ..promotion import cast, note_real
from ..shape.movement import Movement, is_row_major, to_shape
from ..shape.sizes import hold_sizes, hold_values
from .advanced import Index, IndexPut, Overwrite, assert_one_place, assert_same_dtype, wrapped
from .backward_slices import straightened
from .selected import Selected, broadcast_mask, refuse, select, selected_values
from .slicing import Item, basic_index, number_places

if TYPE_CHECKING:
    from ...ops.argument_types import Dims, Number, Operand

__all__ = [
    "argwhere", "fill", "index_add", "index_copy", "index_fill", "index_put", "index_select",
    "masked_select", "nonzero", "nonzero_static", "put", "take", "unravel_index",
]  # fmt: skip


# ---- x[...] --------------------------------------------------------------------------------------


def _simple(shape: tuple[int, ...], index: Any) -> Any:
    """Result of `_parse` for the commonest indices alone: an int, a slice, an int64 tensor, a
    mask.
    """
    if not shape:
        return None
    kind = type(index)
    size = shape[0]
    if kind is int:
        if 0 <= index < size:
            return (index,), ()
        return ((index + size,), ()) if -size <= index < 0 else None
    if kind is slice:
        step = index.step
        if step is None or (type(step) is int and step > 0):
            item = _indices(index, size)
            if type(item) is not tuple:
                return (item,), ()
            start, stop, step = item
            return ((start, stop if stop > start else start, step),), ()
    elif isinstance(index, TensorBase) and (ndim := index._data.ndim):
        dtype = index._data.dtype
        if dtype == _INT64 or (dtype == _BOOL and index._data.shape == shape[:ndim]):
            return (), ((0, index),)
    return None


def _indices(part: slice, size: Any) -> Any:
    """`part.indices(size)`, of which numbers may be sizes that are not known yet; a place where the
    part begins at a number that comes with each run.
    """
    if (
        type(size) is int
        and type(part.start) is not SymbolicNumber
        and type(part.stop) is not SymbolicNumber
    ):
        return part.indices(size)
    return number_places().slice_at(part, size) or indices(part, size)


_INT64, _BOOL = np.dtype(np.int64), np.dtype(np.bool_)


def _parse(x: Any, index: Any) -> tuple[tuple[Item, ...], list[tuple[int, Any]]]:
    """The items of a basic index, and the index tensors left, each with its axis in what the items
    select.
    """
    shape = x._data.shape
    if type(index) is not tuple:
        index = tuple(index) if _stands_for_tuple(index) else (index,)
    parts = [_index_part(each) for each in index]
    used = 0
    for each in parts:
        if isinstance(each, TensorBase):
            used += each._data.ndim if each.dtype in (dt.bool_, dt.uint8) else 1
        elif each is not None and each is not Ellipsis and type(each) is not bool:
            used += 1
    if used > len(shape):
        if not shape and len(parts) == 1 and type(parts[0]) in (int, SymbolicNumber):
            raise IndexingError(
                "index: invalid index of a 0-dim tensor. Use `tensor.item()` to convert a 0-dim "
                "tensor to a number"
            )
        raise IndexingError(
            f"index: too many indices for tensor of dimension {len(shape)}: {used} given for "
            f"shape {tuple(shape)}"
        )
    items: list[Item] = []
    advanced: list[tuple[int, Any]] = []
    axis = place = 0  # the next dimension of x, and of what the items select
    for each in parts:
        if type(each) is int or type(each) is SymbolicNumber:
            size = shape[axis]
            each = each if type(each) is int else number_places().as_place(each, size)
            if not -size <= each < size:
                raise IndexingError(
                    f"index: index {each} is out of bounds for dimension {axis} with size {size}; "
                    f"the valid range is {-size} to {size - 1}"
                )
            if type(each) is int:
                items.append(each + size if each < 0 else each)
            else:
                items.append(number_places().item_at(each, size))
            axis += 1
            continue
        if each is None:
            items.append(None)
        elif each is Ellipsis:
            whole = [(0, size, 1) for size in shape[axis : axis + len(shape) - used]]
            used = len(shape)  # a second one stands for nothing
            items.extend(whole)
            axis += len(whole)
            place += len(whole)
            continue
        elif type(each) is slice:
            items.append(_slice_item(each, shape[axis]))
            axis += 1
        elif type(each) is not bool and not isinstance(each, TensorBase):
            items.append(each)  # a `NumberPlace`
            axis += 1
            continue
        elif type(each) is bool or (not each._data.ndim and each.dtype in (dt.bool_, dt.uint8)):
            # a mask without dimensions
            items.append(None)
            count = int(each) if type(each) is bool else int(bool(values_of(each)))
            advanced.append((place, fresh(np.zeros(count, np.int64))))
        else:
            advanced.append((place, each))
            mask = each.dtype in (dt.bool_, dt.uint8)
            count = each._data.ndim if mask else 1
            if mask and each._data.shape != shape[axis : axis + count]:
                raise IndexingError(
                    f"index: The shape of the mask {list(each.shape)} at index {axis} does not "
                    f"match the shape of the indexed tensor {list(shape)} at index {axis}"
                )
            items.extend((0, size, 1) for size in shape[axis : axis + count])
            axis += count
            place += count
            continue
        place += 1
    while items and items[-1] == (0, shape[axis - 1] if axis else -1, 1):
        items.pop()  # the dimensions after the items are kept whole anyway
        axis -= 1
    return tuple(items), advanced


@dataclass(eq=False, repr=False)
class Reindex(Movement, abstract=True):
    """A basic index as a graph records it: as it was written (slices as tuples, `...` as text),
    since the input may come to have another shape.
    """

    index: tuple[int | str | tuple[int | None, ...] | None, ...]
    view = True
    name = "index"

    def _for(self, shape: tuple[int, ...]) -> Any:
        index = tuple(
            slice(*each) if type(each) is tuple else ... if each == "..." else each
            for each in self.index
        )
        return basic_index(_parse(SimpleNamespace(_data=SimpleNamespace(shape=shape)), index)[0])

    def infer(self, spec: Spec) -> Spec:
        """The spec of the indexed part."""
        return self._for(spec.shape).infer(spec)  # type: ignore[no-any-return]

    def compute(self, xp: Any, x: Any) -> Any:
        """A view."""
        return self._for(x.shape).compute(xp, x)

    def gradient(self, g: Tensor, spec: Spec) -> tuple[Any, ...]:
        """g among zeros."""
        return self._for(spec.shape).gradient(g, spec)  # type: ignore[no-any-return]


def _as_written(op: Any, shape: tuple[int, ...], index: Any) -> Any:
    """The op of a basic index in a graph: `op`, unless it means something else in another shape."""
    parts = [_index_part(each) for each in (index if type(index) is tuple else (index,))]
    for i, each in enumerate(parts):
        if type(each) is slice:
            ends = each.start, each.stop, each.step
            parts[i] = tuple(None if end is None else operator.index(end) for end in ends)
        elif each is Ellipsis:
            parts[i] = "..."
    written = Reindex(tuple(parts))
    larger = written._for(tuple(size + 1 for size in shape))
    return op if larger is op else written


def _stands_for_tuple(index: Any) -> bool:
    """Whether a sequence is an index for several dimensions: one that holds more than numbers."""
    if not isinstance(index, list) or len(index) >= 32:
        return False
    return any(
        each is None or each is Ellipsis or isinstance(each, (slice, list, tuple, TensorBase))
        for each in index
    )


def _index_part(part: Any) -> Any:
    """One part of an index as an int, bool, None, Ellipsis, slice, tensor or `NumberPlace`."""
    kind = type(part)
    if kind is int or kind is slice or kind is bool or part is None or part is Ellipsis:
        return part
    if kind is SymbolicNumber and part.__class__ is int:
        return part
    if isinstance(part, TensorBase):
        data = part._data
        narrow = data.dtype.itemsize < 4 and data.dtype.kind == "i"
        if data.dtype.kind not in "biu" or (narrow and data.ndim):
            raise IndexingError(
                "index: tensors used as indices must be long, int, byte or bool tensors, got "
                f"{part.dtype}; convert it with .long()"
            )
        if not data.ndim and data.dtype.kind in "iu" and data.dtype != np.uint8:
            if getattr(data, "varies", False):
                return part
            if type(data) is np.ndarray and MODE.get().plain:
                return int(data)
            return number_places().number_of(part)
        return part
    if isinstance(part, np.bool_):
        return bool(part)
    if isinstance(part, (list, tuple, range, np.ndarray)):
        if are_numbers(part):
            numbers = of_numbers(part, None, CPU)
            if numbers is not None:
                return numbers
        values = np.asarray(part)
        if not values.size and not isinstance(part, np.ndarray):
            values = values.astype(np.int64)
        if values.dtype.kind == "O":
            values = np.array([operator.index(each) for each in part])
        return _index_part(fresh(values))
    try:
        return operator.index(part)
    except TypeError:
        raise IndexingError(
            "index: only integers, slices (`:`), ellipsis (`...`), None and long or byte "
            f"Variables are valid indices (got {type(part).__name__}: {part!r:.40})"
        ) from None


def _slice_item(part: slice, size: int) -> Any:
    """A slice as (start, stop, step) in range, or the place where it begins."""
    try:
        item = _indices(part, size)
        if type(item) is not tuple:
            return item
        start, stop, step = item
    except ValueError:
        step = 0
    if step <= 0:
        raise IndexingStepError(
            f"index: step must be greater than zero, got {part.step}; use flip() to reverse"
        )
    return (start, max(start, stop), step)


class IndexingStepError(IndexingError, ValueError):
    """A slice with a step that is not positive, for which PyTorch raises ValueError."""


def nonzero_columns(data: Any) -> tuple[Any, ...]:
    """The index per dimension of the elements that are not zero; several times faster for
    several dimensions than `np.nonzero`.
    """
    [places] = data.ravel().nonzero() if type(data) is np.ndarray else [np.flatnonzero(data)]
    return (places,) if data.ndim == 1 else np.unravel_index(places, data.shape)


def _gathered(x: Any, advanced: Sequence[tuple[int, Any]]) -> tuple[tuple[int, ...], Any]:
    """The axes of the index tensors in `x`, and the one index that stands for all of them."""
    axes: list[int] = []
    indices: list[Any] = []
    for place, each in advanced:
        if each.dtype in (dt.bool_, dt.uint8):
            axes.extend(range(place, place + each._data.ndim))
            mask = _values(each)
            if mask is None:
                refuse("what a mask selects, beside other indices or with a value for each element")
            columns = nonzero_columns(mask)
            indices.extend(hold_values("index", fresh(column), each) for column in columns)
        else:
            axes.append(place)
            indices.append(each)
    if len(indices) == 1:
        return tuple(axes), indices[0]
    try:
        shape = broadcast_shapes(*(each._data.shape for each in indices))
    except ShapeError:
        raise IndexingError(
            "index: shape mismatch: indexing tensors could not be broadcast together with shapes "
            + ", ".join(str(list(each.shape)) for each in indices)
        ) from None
    if any(type(each._data) is not np.ndarray for each in indices):  # recorded, or on a device
        places = [x if x._data.shape == shape else x.expand(shape) for x in indices]
        return tuple(axes), FUNCTIONS["stack"]([x.long() for x in places])
    packed = np.empty((len(indices), *shape), np.int64)
    for row, each in enumerate(indices):
        packed[row] = each._data
    return tuple(axes), fresh(packed)


def _values(mask: Any) -> Any:
    """The values of a mask; None in a function that is being captured where they are not known:
    one from outside is a constant there, as long as it holds the same.
    """
    executor = MODE.get().executor
    known = getattr(executor, "known_values", None)
    if known is not None:
        return known(mask)
    if hasattr(executor, "note_check"):
        executor.meet(mask)  # type: ignore[union-attr]
        return None if mask._data.array is None else mask._data.array
    return mask._data


_MASKS = (np.dtype(np.bool_), np.dtype(np.uint8))


@public(method="__getitem__")
def getitem(input: Tensor, index: Any) -> Tensor:
    """`input[index]`: a view for integers, slices, None and `...`, a copy for tensors, lists and
    slices with a negative step (which PyTorch does not have).

    Shapes: index tensors broadcast; what they select takes their place where they are neighbours,
    otherwise it comes first. A bool tensor selects where it is True.
    Errors: IndexingError for an index out of range, of a wrong dtype, or too many of them.
    Source: https://docs.pytorch.org/docs/stable/tensor_view.html

    >>> x = ad.tensor([[1, 2], [3, 4]])
    >>> x[0], x[:, 1], x[x > 2]
    (tensor([1, 2]), tensor([2, 4]), tensor([3, 4]))
    """
    if FOLLOWED and concerns(input, index):
        said = overridden(getitem, (input, index), {})
        if said is not ABSENT:
            return said  # type: ignore[no-any-return]
    try:
        items, advanced = _simple(input._data.shape, index) or _parse(input, index)
    except IndexingStepError:
        forward = straightened(tuple(input._data.shape), index)
        if forward is None:
            raise
        slices, turned, rest = forward
        return FUNCTIONS["flip"](getitem(input, slices), turned)[rest]  # type: ignore[no-any-return]
    if not advanced:
        op: Any = basic_index(items)
        if isinstance(input._data, Cell):
            op = _as_written(op, input._data.shape, index)
        return apply_view(op, input)  # type: ignore[no-any-return]
    part = apply_view(basic_index(items), input) if items else input
    if len(advanced) == 1:
        place, each = advanced[0]
        if each._data.dtype in _MASKS:
            mask = _values(each)
            if mask is None:
                return select(part, place, each)  # type: ignore[no-any-return]
            if mask.ndim > 1:
                shape = part._data.shape
                rest = shape[place + mask.ndim :]
                part = apply_view(to_shape((*shape[:place], mask.size, *rest)), part)
            each = hold_values("index", fresh(mask.reshape(-1).nonzero()[0]), each)
        return apply(Index((place,)), part, each)  # type: ignore[no-any-return]
    axes, packed = _gathered(part, advanced)
    return apply(Index(axes), part, packed)  # type: ignore[no-any-return]


@public(method="__setitem__")
def setitem(input: Tensor, index: Any, value: Any) -> None:
    """`input[index] = value`, in place; gradients flow to both.

    Shapes: `value` (a tensor or a number) broadcasts to the shape of `input[index]`.
    Dtypes: `value` is converted where the index has no tensors; otherwise dtypes must agree.
    Errors: those of reading; ShapeError where `value` does not fit; InvalidType for a list.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.index_put_.html

    >>> x = ad.zeros(3)
    >>> x[1:] = 5
    >>> x
    tensor([0., 5., 5.])
    """
    if FOLLOWED and concerns(input, index, value):
        said = overridden(setitem, (input, index, value), {})
        if said is not ABSENT:
            return
    value = _assignable(input, value)
    try:
        items, advanced = _simple(input._data.shape, index) or _parse(input, index)
    except IndexingStepError:
        forward = straightened(tuple(input._data.shape), index)
        if forward is None:
            raise
        slices, turned, rest = forward
        changed = FUNCTIONS["flip"](getitem(input, slices), turned)
        setitem(changed, rest, value)
        setitem(input, slices, FUNCTIONS["flip"](changed, turned))
        return
    if not advanced:
        if isinstance(value, TensorBase) and value._data.ndim:
            shape = basic_index(items).infer(input.spec).shape
            value = _strip(value, len(shape))
        if 0 in input._data.strides:  # the part may be writable where the whole is not
            part = apply_view(basic_index(items), input)
            write_in_place("setitem", _OVERWRITE, part, value)
        else:
            write_in_place("setitem", _overwrite(items), input, value)
        return
    part = apply_view(basic_index(items), input) if items else input
    if len(advanced) == 1 and hasattr(MODE.get().executor, "note_check"):
        place, mask = advanced[0]
        changed = _where_masked(part, place, mask, value)
        if changed is not None:
            write_in_place("setitem", _OVERWRITE, part, changed)
            return
    if len(advanced) == 1 and is_row_major(part):
        place, mask = advanced[0]
        if mask._data.dtype in _MASKS and mask._data.ndim > 1:  # as one dimension, a view
            part = part.flatten(place, place + mask._data.ndim - 1)
            advanced = ((place, mask.reshape(-1)),)
    axes, packed = _gathered(part, advanced)
    op = IndexPut(axes)
    if isinstance(value, TensorBase):
        assert_same_dtype(input, value)
        value = _strip(value, len(op.result_shape(part._data.shape, packed._data.shape)))
    write_in_place("setitem", op, part, packed, value)


def _where_masked(part: Any, place: int, mask: Any, value: Any) -> Any:
    """`part` with `value` where a mask of its dimensions from `place` on is true, whatever is
    selected: in a function that is being captured, where the mask cannot be read. None for other
    indices, and for values with a row for each element that is selected.
    """
    if mask._data.dtype not in _MASKS:
        return None
    rest = part._data.ndim - place - mask._data.ndim
    if isinstance(value, TensorBase):
        assert_same_dtype(part, value)
        if type(value._data) is Selected:
            value = selected_values(value, part, place, mask)
            return FUNCTIONS["where"](broadcast_mask(mask, rest), value, part)
        value = _strip(value, place + 1 + rest)
        shape, ahead = value._data.shape, value._data.ndim - rest
        if ahead > 0:
            if shape[ahead - 1] != 1:
                return None
            ones = (1,) * mask._data.ndim
            value = value.reshape(*shape[: ahead - 1], *ones, *shape[ahead:])
    return FUNCTIONS["where"](broadcast_mask(mask, rest), value, part)


_known_overwrite = functools.lru_cache(maxsize=4096)(Overwrite)


def _overwrite(items: tuple[Item, ...]) -> Overwrite:
    try:
        return _known_overwrite(items)
    except TypeError:  # sizes that are not known yet
        return Overwrite(items)


_OVERWRITE = Overwrite()


def _assignable(x: Any, value: Any) -> Any:
    """`value` as a tensor, or as a number of x's dtype."""
    if isinstance(value, TensorBase):
        note_real(value, x.dtype)
        if type(value._data) is not type(x._data) and value.device != x.device:
            return FUNCTIONS["to"](value, x.device)
        return value
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, (bool, int, float, complex)):
        raise InvalidType(
            f"setitem: can't assign a {type(value).__name__} to a tensor of {x.dtype}; wrap it in "
            "adjoint.tensor(...)"
        )
    return convert_number(value, x.dtype, "setitem")


def _strip(value: Any, ndim: int) -> Any:
    """`value` without the leading dimensions of size 1 that exceed `ndim`."""
    if not isinstance(value, TensorBase):
        return value
    shape = value._data.shape
    excess = len(shape) - ndim
    if excess > 0 and all(size == 1 for size in shape[:excess]):
        return value.reshape(shape[excess:])  # type: ignore[attr-defined]
    return value


# ---- whole-tensor writes -------------------------------------------------------------------------


def _copy(input: Tensor, value: Any) -> Any:
    return apply(_OVERWRITE, input, value)


@public(plain=True)
def copy_(input: Tensor, src: Any, non_blocking: bool = False) -> Tensor:
    """Write `src`, broadcast and converted, into this tensor; gradients flow to `src`.

    Errors: ShapeError where `src` does not broadcast to this tensor's shape.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.copy_.html

    >>> ad.zeros(2).copy_(ad.tensor([1, 2]))
    tensor([1., 2.])
    """
    if FOLLOWED and concerns(src):
        said = overridden(
            METHODS["copy_"], (input, src), {"non_blocking": True} if non_blocking else {}
        )
        if said is not ABSENT:
            return said  # type: ignore[no-any-return]
    if copied(input, src, "copy_") or write_by_kernel(copy_, "copy_", _copy, (input, src), {}):
        return input
    if isinstance(src, TensorBase):
        note_real(src, input.dtype)
    host = type(input._data) is np.ndarray
    if not host or not isinstance(src, TensorBase) or type(src._data) is not np.ndarray:
        assert_tensor("copy_", src, "src")
        if src.device != input.device:
            src = FUNCTIONS["to"](src, input.device, non_blocking=non_blocking)
    return write_in_place("copy_", _OVERWRITE, input, src)


@writing
def fill(input: Tensor, value: Operand) -> Any:
    """A tensor like `input` filled with one value (a number or a 0-d tensor).

    Errors: ShapeError for a tensor with dimensions.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.fill_.html

    >>> ad.fill(ad.zeros(2), 3)
    tensor([3., 3.])
    """
    return _OVERWRITE, input, one_value(input, value, "fill_")


@public()
def zero_(input: Tensor) -> Tensor:
    """Write zeros into all of this tensor.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.zero_.html

    >>> ad.ones(2).zero_()
    tensor([0., 0.])
    """
    if copied(input, None, "zero_") or write_by_kernel(zero_, "zero_", _copy, (input, 0), {}):
        return input
    assert_tensor("zero_", input)
    return write_in_place("zero_", _OVERWRITE, input, 0)


def one_value(x: Any, value: Any, name: str) -> Any:
    """A fill value: a number of x's dtype, or a 0-d tensor converted to it."""
    if isinstance(value, TensorBase):
        if value._data.ndim:
            raise ShapeError(
                f"{name}: only supports a 0-dimensional value tensor, but got tensor with "
                f"{value._data.ndim} dimension(s) (shape {tuple(value.shape)})"
            )
        if x.dtype.category < 3:
            assert_dtypes(name, REALS, value=value)
        if x.dtype.category == 1 and type(value._data) is np.ndarray:
            convert_number(value._data.item(), x.dtype, name)  # which refuses what does not fit
        return cast(value, x.dtype)  # type: ignore[arg-type]
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, (bool, int, float, complex)):
        raise InvalidType(f"{name}: expected a number or a 0-d tensor, got {value!r:.40}")
    return convert_number(value, x.dtype, name)


# ---- functions of indices along one dimension ----------------------------------------------------


def assert_index_dtype(index: Any, name: str) -> None:
    """Refuse an index that is not a tensor of int32 or int64."""
    if isinstance(index, TensorBase) and index._data.dtype == _INT64:
        return
    assert_tensor(name, index, "index")
    if index.dtype not in (dt.int64, dt.int32) and index._data.size:
        raise DTypeError(
            f"{name}: {name}(): Expected dtype int32 or int64 for index, got {index.dtype}; "
            "convert it with .long()"
        )


def _along(input: Any, dim: int, index: Any, name: str) -> tuple[int, Any]:
    """The axis, and a checked 1-d index."""
    axis = normalize_axis(dim, input._data.ndim, name)
    assert_index_dtype(index, name)
    if index._data.ndim > 1:
        raise IndexingError(
            f"{name}: {name}(): Index is supposed to be a vector, got shape {tuple(index.shape)}"
        )
    return axis, index if index._data.ndim else index.reshape(1)


@public(out=True)
def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices along `dim` that a vector of indices (not negative) names.

    Errors: IndexingError for an index out of range.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.index_select.html

    >>> ad.index_select(ad.tensor([[1, 2], [3, 4]]), 0, ad.tensor([1, 1]))
    tensor([[3, 4],
            [3, 4]])
    """
    if isinstance(index, TensorBase) and index._data.ndim == 1:  # more are an error
        found: Tensor | None = run_known(_selecting(dim, input._data.ndim), (input, index))
        if found is not None:
            return found
    axis, index = _along(input, dim, index, "index_select")
    x = input if input._data.ndim else input.reshape(1)
    result: Tensor = apply(Index((axis,), False), x, index)
    return result if input._data.ndim else result.reshape(())


@functools.lru_cache(maxsize=256, typed=True)
def _selecting(dim: int, ndim: int) -> Index:
    return Index((normalize_axis(dim, ndim, "index_select"),), False)


def rows_at(x: Any, index: Any) -> Any:
    """The rows of `x` at an index of any shape, which may not be negative."""
    return apply(Index((0,), False), x, index)


@writing
def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Number = 1) -> Any:
    """A copy of `input` with the slices of `source` added to those that `index` names.

    Shapes: `source` has the shape of `input`, but for `dim`, where it has as many as `index`.
    Errors: IndexingError for an index out of range; ShapeError where shapes do not fit.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.index_add.html

    >>> ad.index_add(ad.zeros(3), 0, ad.tensor([0, 0]), ad.ones(2))
    tensor([2., 0., 0.])
    """
    axis, index = _along(input, dim, index, "index_add")
    _assert_source(input, axis, index, source, "index_add")
    value = source if alpha == 1 else source * alpha
    return _put(input, axis, index, value, True, "index_add")


def _put(input: Any, axis: int, index: Any, value: Any, accumulate: bool, name: str) -> Any:
    if not input._data.ndim:
        assert_one_place(index, name == "index_fill")
        if not index._data.size:
            return Overwrite(), input, input
        value = value.reshape(()) if isinstance(value, TensorBase) else value  # type: ignore[attr-defined]
        return Overwrite(), input, input + value if accumulate else value
    return IndexPut((axis,), accumulate, name == "index_fill"), input, index, value


def _assert_source(input: Any, axis: int, index: Any, source: Any, name: str) -> None:
    assert_tensor(name, source, "source")
    if source._data.dtype is not input._data.dtype and source.dtype is not input.dtype:
        raise DTypeError(
            f"{name}: {name}(): self ({input.dtype}) and source ({source.dtype}) must have the "
            "same dtype; convert one with .to()"
        )
    shape, have = list(input._data.shape), source._data.shape
    count = index._data.shape[0]
    if shape:
        shape[axis] = count
    if have != tuple(shape) and (shape or have != (count,)):
        if len(have) == len(shape) and have[axis] != count:
            raise ShapeError(
                f"{name}: Number of indices ({count}) should be equal to source.size(dim): "
                f"({have[axis]}), for dim: {axis}"
            )
        raise ShapeError(
            f"{name}: source of shape {have} must match self of shape {tuple(input.shape)} at all "
            f"dimensions but {axis}, where it must have {count}"
        )


@writing
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Any:
    """A copy of `input` with the slices that `index` names replaced by those of `source`.

    Shapes: `source` has the shape of `input`, but for `dim`, where it has as many as `index`.
    Errors: IndexingError for an index out of range; ShapeError where shapes do not fit.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.index_copy.html

    >>> ad.index_copy(ad.zeros(3), 0, ad.tensor([2]), ad.ones(1))
    tensor([0., 0., 1.])
    """
    axis, index = _along(input, dim, index, "index_copy")
    _assert_source(input, axis, index, source, "index_copy")
    return _put(input, axis, index, source, False, "index_copy")


@writing
def index_fill(input: Tensor, dim: int, index: Tensor, value: Operand) -> Any:
    """A copy of `input` with the slices that `index` names filled with one value.

    Errors: IndexingError for an index out of range.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.index_fill.html

    >>> ad.index_fill(ad.zeros(3), 0, ad.tensor([0, 2]), 7)
    tensor([7., 0., 7.])
    """
    axis, index = _along(input, dim, index, "index_fill")
    fill_value = one_value(input, value, "index_fill")
    if isinstance(fill_value, TensorBase) and input._data.ndim:  # a repeated index writes it once
        if not are_known():
            marked = input.new_zeros((input._data.shape[axis],), dtype=dt.bool_)
            marked = marked.index_fill(0, index, True)
            marked = marked.reshape((-1, *(1,) * (input._data.ndim - axis - 1)))
            return Overwrite(), input, FUNCTIONS["where"](marked, fill_value, input)
        places = wrapped(values_of(index, followed=True), input._data.shape[axis], axis)
        unique = fresh(np.unique(places))
        input = hold_sizes("index_fill", input, dims=(axis,))
        index = hold_values("index_fill", unique, index)
    return _put(input, axis, index, fill_value, False, "index_fill")


@writing
def index_put(input: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Any:
    """A copy of `input` with the elements that a tuple of index tensors selects replaced by
    `values`, or with `values` added to them.

    Shapes: as for `input[indices] = values`.
    Errors: IndexingError for an index out of range; DTypeError where dtypes differ.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.index_put.html

    >>> ad.index_put(ad.zeros(3), (ad.tensor([0, 0]),), ad.tensor(1.), accumulate=True)
    tensor([2., 0., 0.])
    """
    if type(indices) is tuple and len(indices) == 1 and isinstance(values, TensorBase):
        op, index = IndexPut((0,), accumulate), indices[0]
        if isinstance(index, TensorBase) and index._data.dtype is _INT64 and input._data.ndim:
            assert_same_dtype(input, values)
            return op, input, index, values
    assert_tensor("index_put", values, "values")
    key = tuple(slice(None) if each is None else each for each in indices)
    simple = _simple(input._data.shape, key[0]) if len(key) == 1 else None
    _, advanced = simple or _parse(input, key)
    if not advanced:
        raise IndexingError("index_put: needs at least one index tensor")
    assert_same_dtype(input, values)
    axes, packed = _gathered(input, advanced)
    return IndexPut(axes, accumulate), input, packed, values


# ---- flat positions ------------------------------------------------------------------------------


@public(out=True)
@explaining
def take(input: Tensor, index: Tensor) -> Tensor:
    """The elements at flat positions (row-major; negative ones count from the end).

    Shapes: the result has the shape of `index`.
    Errors: IndexingError for a position out of range.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.take.html

    >>> ad.take(ad.tensor([[1, 2], [3, 4]]), ad.tensor([0, 3]))
    tensor([1, 4])
    """
    assert_index_dtype(index, "take")
    flat = apply(Index((0,)), input.reshape(-1), index.reshape(-1))
    return flat.reshape(index._data.shape)


@public(inplace=True)
@explaining
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of `input` with the elements at flat positions replaced by, or added to, `source`.

    Errors: IndexingError for a position out of range, or where the numbers of elements differ.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.put_.html

    >>> ad.put(ad.zeros(2, 2), ad.tensor([3]), ad.tensor([5.]))
    tensor([[0., 0.],
            [0., 5.]])
    """
    assert_index_dtype(index, "put")
    _assert_put(input, index, source)
    flat = apply(
        IndexPut((0,), accumulate), input.reshape(-1), index.reshape(-1), source.reshape(-1)
    )
    return flat.reshape(input._data.shape)


def _assert_put(input: Any, index: Any, source: Any) -> None:
    if source.dtype is not input.dtype:
        raise DTypeError(
            f"put: put_(): self and source expected to have the same dtype, but got self.dtype = "
            f"{input.dtype} and source.dtype = {source.dtype}"
        )
    if source._data.size != index._data.size:
        raise IndexingError(
            "put: put_(): Expected source and index to have the same number of elements, but got "
            f"source.numel() = {source._data.size}, index.numel() = {index._data.size}"
        )


@public(out=True)
@explaining
def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where `mask` is True, as a vector.

    Shapes: `input` and `mask` broadcast.
    Errors: DTypeError for a mask that is not bool.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.masked_select.html

    >>> ad.masked_select(ad.tensor([1, 2, 3]), ad.tensor([True, False, True]))
    tensor([1, 3])
    """
    if mask.dtype is not dt.bool_:
        raise DTypeError(f"masked_select: expected BoolTensor for mask, got {mask.dtype}")
    shape = broadcast_shapes(input._data.shape, mask._data.shape, op="masked_select")
    places = np.flatnonzero(
        np.broadcast_to(
            values_of(
                mask,
                "how much a mask selects is the size of masked_select's result; go on with "
                "where(mask, input, 0)",
                followed=True,
            ),
            shape,
        )
    )
    chosen = hold_values("masked_select", fresh(places), mask)
    return apply(Index((0,)), hold_sizes("masked_select", input).expand(shape).reshape(-1), chosen)


@public(out=True, plain=True)
def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """The indices of the elements that are not zero: one row each, or a tuple of one vector per
    dimension where `as_tuple`.

    Dtypes: the result is int64.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nonzero.html

    >>> ad.nonzero(ad.tensor([0, 1, 2]))
    tensor([[1],
            [2]])
    """
    data = values_of(
        input,
        "how many elements are not zero is the size of nonzero's result; call it outside, or go on "
        "with the mask: where(mask, x, 0)",
    )
    if as_tuple:
        columns = nonzero_columns(data if data.ndim else data.reshape(1))
        return tuple(fresh(column) for column in columns)
    if not data.ndim:
        return fresh(np.argwhere(data))
    columns = nonzero_columns(data)
    if type(data) is not np.ndarray:
        return fresh(np.stack(columns, 1))
    found = np.empty((len(columns[0]), len(columns)), np.int64)
    for k, column in enumerate(columns):
        found[:, k] = column
    return fresh(found)


@public(out=True)
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """The indices of the first `size` elements that are not zero, one row each; rows of
    `fill_value` where there are fewer.

    Errors: IndexingError for a negative size.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nonzero_static.html

    >>> ad.nonzero_static(ad.tensor([0, 5, 7]), size=3)
    tensor([[ 1],
            [ 2],
            [-1]])
    """
    if size < 0:
        raise IndexingError(f"nonzero_static: 'size' must be an non-negative integer, got {size}")
    found = nonzero(input)._data[:size]
    rows = names_on(input.device).full((size, found.shape[1]), fill_value, np.int64)
    rows[: len(found)] = found
    return fresh(rows)


@explaining
@public()
def argwhere(input: Tensor) -> Tensor:
    """The indices of the elements that are not zero, one row each.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.argwhere.html

    >>> ad.argwhere(ad.tensor([[0, 1], [1, 0]]))
    tensor([[0, 1],
            [1, 0]])
    """
    return nonzero(input)


@explaining
@public(method=False)
def unravel_index(indices: Tensor, shape: Dims) -> tuple[Tensor, ...]:
    """The index per dimension of flat positions in a tensor of `shape`.

    Errors: InvalidType for a negative size or floating-point positions.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.unravel_index.html

    >>> ad.unravel_index(ad.tensor([4]), (2, 3))
    (tensor([1]), tensor([1]))
    """
    indices = hold_sizes("unravel_index", indices)
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    if indices._data.dtype.kind not in "iu":
        raise InvalidType(f"unravel_index: expected integer indices, got {indices.dtype}")
    if any(size < 0 for size in sizes):
        raise InvalidType(f"unravel_index: 'shape' cannot have negative values, but got {sizes}")
    places: Any = indices.long()
    return tuple(places // prod(sizes[i + 1 :]) % size for i, size in enumerate(sizes))
