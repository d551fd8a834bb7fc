"""Arranging: flip, roll, pad, grids, combinations and blocks on a diagonal."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import dtype as dt
from ...core.argument_errors import assert_tensor
from ...core.device import is_device_array
from ...core.errors import InvalidArgument, InvalidType, ShapeError, Unsupported
from ...core.keywords import unexpected
from ...core.op import Sample
from ...core.spec import Spec, normalize_axes, normalize_axis
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply, apply_view
from ...runtime.fused import checking
from ...runtime.public import explaining, public
from ...runtime.tensors import fresh
from ..create import allocation
from ..create.allocation import names_on
from ..create.values import convert_number
from ..index.advanced import Index
from ..index.slicing import Item, Place, basic_index, part
from ..samples import KINDS, array, each_dtype, strided
from .concatenation import _promoted as promoted
from .concatenation import cat, stack
from .movement import Movement, sequence_of, sizes_of
from .repeating import Tile as Tile
from .repeating import repeat as repeat
from .repeating import repeat_interleave, tile
from .sizes import hold_sizes
from .triangles import Triangle as Triangle
from .triangles import tril, tril_indices, triu, triu_indices

if TYPE_CHECKING:
    from ...ops.argument_types import Dims, ManyTensors, Number

__all__ = [
    "block_diag", "cartesian_prod", "combinations", "constant_pad_nd", "flip", "fliplr", "flipud",
    "meshgrid", "repeat_interleave", "roll", "rot90", "tile", "tril", "tril_indices", "triu",
    "triu_indices",
]  # fmt: skip


@dataclass(eq=False, repr=False)
class Flip(Movement):
    """The elements in reverse order along `axes`."""

    axes: tuple[int, ...]
    library = "moves"

    def infer(self, spec: Spec) -> Spec:
        """The input's spec."""
        return spec

    def compute(self, xp: Any, x: Any) -> Any:
        """A copy: strides are never negative."""
        turned = xp.flip(x, axis=self.axes)
        return turned if not is_device_array(x) and xp.moves else turned.copy()

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """g flipped back."""
        return (apply(self, g),)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Each axis, both, dtypes, strided, empty."""
        yield from each_dtype(cls((0,)), (dt.float64, dt.bfloat16, dt.int32, dt.bool_), (3, 2))
        yield Sample(cls((0, 1)), (array((2, 3)),), "both")
        yield Sample(cls((1,)), (strided(array((2, 3))),), "strided")
        yield Sample(cls((0,)), (array((0, 3)),), "empty")

    def reference(self, x: Any) -> Any:
        """Reference value by index."""
        for axis in self.axes:
            x = np.take(x, range(x.shape[axis] - 1, -1, -1), axis)
        return x


@dataclass(eq=False, repr=False)
class Roll(Movement):
    """The elements shifted along `axis`, by less than its size; those that are pushed over an end
    come in at the other.
    """

    shift: int
    axis: int
    library = "moves"

    def infer(self, spec: Spec) -> Spec:
        """The input's spec."""
        return spec

    def compute(self, xp: Any, x: Any) -> Any:
        """The backend's roll."""
        return xp.roll(x, self.shift, self.axis)

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """g shifted back."""
        return (apply(Roll(-self.shift, self.axis), g),)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Both directions, dtypes, strided, empty."""
        yield from each_dtype(cls(1, 0), (*KINDS, dt.bool_), (3, 2))
        yield Sample(cls(-2, 1), (array((2, 5)),), "back")
        yield Sample(cls(1, 1), (strided(array((2, 3))),), "strided")
        yield Sample(cls(1, 0), (array((2, 0)),), "empty")

    def reference(self, x: Any) -> Any:
        """Reference value by index."""
        n = x.shape[self.axis]
        return np.take(x, [(i - self.shift) % n for i in range(n)], self.axis)


@explaining
@public()
def flip(input: Tensor, *axes: Dims, dims: Dims | None = None, **others: object) -> Tensor:
    """A copy with the elements in reverse order along `dims`.

    Errors: IndexingError for a dim out of range; ShapeError for one that appears twice.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.flip.html

    >>> ad.flip(ad.tensor([1, 2, 3]), (0,))
    tensor([3, 2, 1])
    """
    if others:
        raise unexpected(flip, others)
    wanted = sizes_of(axes if dims is None else (dims,), "flip")
    return apply(_flipping(wanted, input._data.ndim), input)


@functools.lru_cache(maxsize=1024)
def _flipping(dims: tuple[int, ...], ndim: int) -> Flip:
    return Flip(normalize_axes(dims, ndim, "flip") if dims else ())


@explaining
@public()
def fliplr(input: Tensor) -> Tensor:
    """The columns in reverse order.

    Errors: ShapeError for fewer than 2 dimensions.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.fliplr.html

    >>> ad.fliplr(ad.tensor([[1, 2], [3, 4]]))
    tensor([[2, 1],
            [4, 3]])
    """
    if input._data.ndim < 2:
        raise ShapeError(f"fliplr: Input must be >= 2-d., got shape {tuple(input.shape)}")
    return apply(Flip((1,)), input)


@explaining
@public()
def flipud(input: Tensor) -> Tensor:
    """The rows in reverse order.

    Errors: ShapeError for a 0-d tensor.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.flipud.html

    >>> ad.flipud(ad.tensor([[1, 2], [3, 4]]))
    tensor([[3, 4],
            [1, 2]])
    """
    if input._data.ndim < 1:
        raise ShapeError("flipud: Input must be >= 1-d., got a 0-d tensor")
    return apply(Flip((0,)), input)


def _ints(value: Any, name: str) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else sizes_of((value,), name)


@explaining
@public()
def roll(input: Tensor, shifts: Dims, dims: Dims | None = None, **others: object) -> Tensor:
    """The elements shifted along `dims`, those pushed over the end coming in at the start; as one
    flat sequence without `dims`.

    Errors: ShapeError where `shifts` and `dims` differ in number.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.roll.html

    >>> ad.roll(ad.tensor([1, 2, 3]), 1)
    tensor([3, 1, 2])
    """
    if others:
        raise unexpected(roll, others)
    moves = _ints(shifts, "roll")
    if dims is None or dims == ():
        if len(moves) != 1:
            raise ShapeError(
                f"roll: shifts and dimensions must align. shifts: {len(moves)}, dims:0"
            )
        flat = _rolled(input.reshape(-1), moves[0], 0)
        return flat.reshape(input._data.shape)
    axes = _ints(dims, "roll")
    if len(axes) != len(moves):
        raise ShapeError(
            f"roll: shifts and dimensions must align. shifts: {len(moves)}, dims:{len(axes)}"
        )
    result: Tensor = input
    for shift, dim in zip(moves, axes, strict=True):
        result = _rolled(result, shift, normalize_axis(dim, input._data.ndim, "roll"))
    return result


def _rolled(x: Any, shift: int, axis: int) -> Any:
    size = x._data.shape[axis] if x._data.ndim else 0
    if abs(shift) >= size:
        x = hold_sizes("roll", x, dims=(axis,))
    if not size or shift % size == 0:
        return x.clone()
    return apply(Roll(shift % size if shift > 0 else -(-shift % size), axis), x)


@explaining
@public()
def rot90(input: Tensor, k: int = 1, dims: tuple[int, int] | list[int] = (0, 1)) -> Tensor:
    """The plane of two dimensions turned by k times 90 degrees, from the first to the second.

    Errors: ShapeError where `dims` does not name two different dimensions.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.rot90.html

    >>> ad.rot90(ad.tensor([[1, 2], [3, 4]]))
    tensor([[2, 4],
            [1, 3]])
    """
    if len(dims) != 2:
        raise ShapeError(f"rot90: expected total rotation dims == 2, but got dims = {len(dims)}")
    if input._data.ndim < 2:
        raise ShapeError(
            f"rot90: expected total dims >= 2, but got total dims = {input._data.ndim}"
        )
    first, second = (normalize_axis(d, input._data.ndim, "rot90") for d in dims)
    if first == second:
        raise ShapeError(
            f"rot90: expected rotation dims to be different, but got dim0 = dim1 = {first}"
        )
    turns = k % 4
    if turns == 0:
        result: Tensor = input.clone()
    elif turns == 2:
        result = apply(Flip((first, second)), input)
    elif turns == 1:
        result = apply(Flip((second,)), input).transpose(first, second).clone()
    else:
        result = apply(Flip((first,)), input).transpose(first, second).clone()
    return result


# ---- padding -------------------------------------------------------------------------------------


@checking
def pad(input: Tensor, pad: Dims, mode: str = "constant", value: float | None = None) -> Any:
    """Tensor made larger, or smaller, at both ends of its last dimensions.

        y[i] = x[i - before] where x has that place

    Elsewhere y is `value`, or what the mode says: the value of the border ("replicate"), the values
    reflected at it ("reflect"), or those of the other end ("circular").

    Args:
        input: Values.
        pad: Pairs of widths (before, after), that of the last dimension first, in one flat
            sequence. A negative one cuts.
        mode: "constant", "reflect", "replicate" or "circular". Default: "constant".
        value: Value of the padding in mode "constant". Default: None, 0.

    Shapes: any; each padded size is larger by before + after.
    Dtypes: any.
    Errors: ShapeError where padding does not fit; InvalidArgument for another mode.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.pad.html

    >>> ad.nn.functional.pad(ad.tensor([1, 2]), (1, 2), value=9)
    tensor([9, 1, 2, 9, 9])
    """
    assert_tensor("pad", input)
    widths = sizes_of((pad,), "pad")
    shape = input._data.shape
    ndim = len(shape)
    if len(widths) % 2:
        raise ShapeError(f"pad: Padding length must be divisible by 2, got {list(widths)}")
    pairs = list(zip(widths[::2], widths[1::2], strict=True))
    if len(pairs) > ndim:
        raise ShapeError(
            "pad: Padding length should be less than or equal to two times the input dimension "
            f"but got padding length {len(widths)} and input of dimension {ndim}"
        )
    by_axis = [(ndim - 1 - i, before, after) for i, (before, after) in enumerate(pairs)]
    if mode == "constant":
        return _pad_constant(input, by_axis, 0 if value is None else value)
    if value is not None and value != 0:
        raise InvalidArgument(f"pad: Padding mode {mode!r} doesn't take in value argument")
    if mode not in _PAD_MODES:
        raise Unsupported(
            f"pad: Unrecognised padding mode {mode}; use 'constant', 'reflect', 'replicate' or "
            "'circular'"
        )
    if not len(pairs) < ndim <= len(pairs) + 2:
        raise Unsupported(
            f"pad: mode {mode!r} pads the last {len(pairs)} dimensions of a tensor of "
            f"{len(pairs) + 1} or {len(pairs) + 2} dimensions only, got shape {tuple(shape)}; "
            "unsqueeze it first"
        )
    result: Tensor = hold_sizes("pad", input, dims=[axis for axis, _, _ in by_axis])
    for axis, before, after in by_axis:
        result = _pad_axis(result, axis, before, after, mode)
    return input.clone() if result is input else result


_PAD_MODES = ("reflect", "replicate", "circular")


_padded = pad  # the next function has an argument of that name


@explaining
@public(method=False)
def constant_pad_nd(input: Tensor, pad: Dims, value: float = 0) -> Tensor:
    """`input` with constants around it: `pad` says how many before and after each dimension, the
    last one first.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.pad.html

    >>> ad.constant_pad_nd(ad.ones(2), (1, 2))
    tensor([0., 1., 1., 0., 0.])
    """
    return _padded(input, pad, "constant", value)


def _pad_constant(x: Any, by_axis: Sequence[tuple[int, int, int]], value: Any) -> Any:
    crop, room, whole = _frame(x._data.shape, tuple(by_axis))
    if crop:
        x = hold_sizes("pad", x)
        x = apply_view(basic_index(crop), x)
    if whole == x._data.shape:
        return x.clone()
    return Place(room, whole, convert_number(value, x.dtype, "pad")), x


_Items = tuple[Item, ...]


@functools.lru_cache(maxsize=1024)
def _frame(
    shape: tuple[int, ...], by_axis: tuple[tuple[int, int, int], ...]
) -> tuple[_Items, _Items, tuple[int, ...]]:
    """The kept part of a tensor (nothing: all of it), where that goes, and the size of the padded
    tensor.
    """
    crop: list[Item] = [(0, size, 1) for size in shape]
    room: list[Item] = list(crop)
    whole = list(shape)
    for axis, before, after in by_axis:
        size = shape[axis]
        whole[axis] = size + before + after
        if whole[axis] < 0 or max(-before, 0) + max(-after, 0) > size:
            raise ShapeError(
                f"pad: The input size {size}, plus negative padding {before} and {after} resulted "
                f"in a negative output size, which is invalid. Check dimension {axis} of the input."
            )
        crop[axis] = (max(-before, 0), size - max(-after, 0), 1)
        kept = size - max(-before, 0) - max(-after, 0)
        room[axis] = (max(before, 0), max(before, 0) + kept, 1)
    less = any(before < 0 or after < 0 for _, before, after in by_axis)
    return tuple(crop) if less else (), tuple(room), tuple(whole)


def _pad_axis(x: Any, axis: int, before: int, after: int, mode: str) -> Any:
    if before < 0 or after < 0:
        cut = (max(-before, 0), max(-after, 0))
        if mode == "circular":  # what is left goes round; other modes look at what is cut off too
            return _pad_axis(_cut(x, axis, *cut), axis, max(before, 0), max(after, 0), mode)
        return _cut(_pad_axis(x, axis, max(before, 0), max(after, 0), mode), axis, *cut)
    size = x._data.shape[axis]
    limit = {"reflect": size - 1, "circular": size, "replicate": 1 << 62 if size else 0}[mode]
    if max(before, after) > limit:
        raise ShapeError(
            f"pad: Padding size should be less than the corresponding input dimension, but got: "
            f"padding ({before}, {after}) at dimension {axis} of input {list(x.shape)} (mode "
            f"{mode!r})"
        )
    if not before and not after:
        return x

    def piece(count: int, mirrored: int, opposite: int, edge: int) -> Any:
        if mode == "reflect":
            return apply(Flip((axis,)), part(x, axis, mirrored, mirrored + count))
        if mode == "circular":
            return part(x, axis, opposite, opposite + count)
        return _repeated(x, axis, edge, count)

    pieces = [piece(before, 1, size - before, 0)] if before else []
    pieces.append(x)
    if after:
        pieces.append(piece(after, size - 1 - after, 0, size - 1))
    return cat(pieces, axis)


def _cut(x: Any, axis: int, before: int, after: int) -> Any:
    size = x._data.shape[axis]
    if before + after > size:
        raise ShapeError(
            f"pad: negative padding (-{before}, -{after}) resulted in a negative output size at "
            f"dimension {axis}, which has {size}"
        )
    return part(x, axis, before, size - after)


def _repeated(x: Any, axis: int, place: int, times: int) -> Any:
    shape = list(x._data.shape)
    shape[axis] = times
    return part(x, axis, place, place + 1).expand(shape)


# ---- grids and blocks ----------------------------------------------------------------------------


@explaining
@public(method=False)
def meshgrid(*tensors: Tensor | ManyTensors, indexing: str = "ij") -> tuple[Any, ...]:
    """The coordinates of all points of a grid: one tensor for each vector given.

    Shapes: for "ij", result i varies along dimension i; "xy" swaps the first two.
    Errors: ShapeError for tensors of more than 1 dimension; InvalidArgument for another indexing.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.meshgrid.html

    >>> ad.meshgrid(ad.tensor([1, 2]), ad.tensor([3, 4]))
    (tensor([[1, 1],
            [2, 2]]), tensor([[3, 4],
            [3, 4]]))
    """
    several = list(sequence_of(tensors, "meshgrid"))
    if not several:
        raise InvalidArgument("meshgrid: meshgrid expects a non-empty TensorList")
    if indexing not in ("ij", "xy"):
        raise InvalidArgument(
            f"meshgrid: indexing must be one of 'xy' or 'ij', but received: {indexing}"
        )
    for each in several:
        if each._data.ndim > 1:
            raise ShapeError(
                "meshgrid: Expected 0D or 1D tensor in the tensor list but got: shape "
                f"{tuple(each.shape)}"
            )
        if each.dtype is not several[0].dtype:
            raise InvalidType(
                "meshgrid: meshgrid expects all tensors to have the same dtype, got "
                f"{several[0].dtype} and {each.dtype}"
            )
    swap = indexing == "xy" and len(several) >= 2
    if swap:
        several[0], several[1] = several[1], several[0]
    shape = tuple(each._data.size for each in several)
    grids = [
        each.reshape((1,) * i + (-1,) + (1,) * (len(several) - i - 1)).expand(shape)
        for i, each in enumerate(several)
    ]
    if swap:
        grids[0], grids[1] = grids[1], grids[0]
    return tuple(grids)


@explaining
@public(method=False)
def cartesian_prod(*tensors: Tensor) -> Tensor:
    """All combinations of one element from each vector, one row each.

    Errors: ShapeError for tensors that are not 1-d.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.cartesian_prod.html

    >>> ad.cartesian_prod(ad.tensor([1, 2]), ad.tensor([3, 4]))
    tensor([[1, 3],
            [1, 4],
            [2, 3],
            [2, 4]])
    """
    several = sequence_of(tensors, "cartesian_prod")
    for each in several:
        if each._data.ndim != 1:
            raise ShapeError(
                f"cartesian_prod: Expect a 1D vector, but got shape {list(each.shape)}"
            )
    if len(several) == 1:
        return several[0]
    grids = meshgrid(*several)
    return stack([grid.reshape(-1) for grid in grids], 1)


@explaining
@public()
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """The choices of r elements of a vector, in order, one row each.

    Errors: ShapeError for a tensor that is not 1-d; InvalidArgument for a negative r.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.combinations.html

    >>> ad.combinations(ad.tensor([1, 2, 3]))
    tensor([[1, 2],
            [1, 3],
            [2, 3]])
    """
    if input._data.ndim != 1:
        raise ShapeError(f"combinations: Expect a 1D vector, but got shape {list(input.shape)}")
    if r < 0:
        raise InvalidArgument(f"combinations: Expect a non-negative number, but got {r}")
    if r == 0:
        return input.new_empty((0,))
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    input = hold_sizes("combinations", input)
    rows = list(choose(range(input._data.size), r))
    places = np.array(rows, np.int64).reshape(len(rows), r)
    return apply(Index((0,)), input, allocation.finish(places, input.device))


@explaining
@public(method=False)
def block_diag(*tensors: Tensor) -> Tensor:
    """A matrix with the given matrices along its diagonal, zeros elsewhere.

    Shapes: vectors count as rows, 0-d tensors as 1 x 1.
    Errors: ShapeError for more than 2 dimensions.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.block_diag.html

    >>> ad.block_diag(ad.tensor([[1]]), ad.tensor([[2, 3]]))
    tensor([[1, 0, 0],
            [0, 2, 3]])
    """
    if not tensors:
        return fresh(np.zeros((1, 0), dt.get_default_dtype().numpy))
    for each in tensors:
        assert_tensor("block_diag", each)
        if each._data.ndim > 2:
            raise ShapeError(
                "block_diag: Input tensors must have 2 or fewer dimensions. Got shape "
                f"{tuple(each.shape)}"
            )
    blocks = [
        each if each._data.ndim == 2 else each.reshape(1, each._data.size)
        for each in promoted(list(tensors), "block_diag")
    ]
    width = sum(block._data.shape[1] for block in blocks)
    rows = []
    start = 0
    for block in blocks:
        height, columns = block._data.shape
        items: tuple[Item, ...] = ((0, height, 1), (start, start + columns, 1))
        rows.append(apply(Place(items, (height, width)), block))
        start += columns
    return cat(rows, 0)


@public()
def fill_diagonal_(input: Tensor, fill_value: Number, wrap: bool = False) -> Tensor:
    """Write one value on the main diagonal, in place; again below the square where `wrap`.

    Errors: ShapeError for fewer than 2 dimensions, or more than 2 of different sizes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.fill_diagonal_.html

    >>> ad.zeros(2, 2).fill_diagonal_(1)
    tensor([[1., 0.],
            [0., 1.]])
    """
    shape = input._data.shape
    if len(shape) < 2:
        raise ShapeError(f"fill_diagonal_: dimensions must larger than 1, got shape {tuple(shape)}")
    if len(shape) == 2:
        input.diagonal().fill_(fill_value)
        height, width = shape
        start = width + 1
        while wrap and start < height:
            part(input, 0, start, height).diagonal().fill_(fill_value)
            start += width + 1
        return input
    if len(set(shape)) > 1:
        raise ShapeError(
            f"fill_diagonal_: all dimensions of input must be of equal length, got {tuple(shape)}"
        )
    places = tuple(fresh(names_on(input.device).arange(shape[0])) for _ in shape)
    input.index_put_(places, input.new_tensor(fill_value))
    return input
