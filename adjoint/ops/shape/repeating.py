"""Repeating: a tensor beside itself, or each of its elements."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import InvalidArgument, InvalidType, ShapeError
from ...core.keywords import unexpected
from ...core.op import Sample
from ...core.spec import Spec, normalize_axis, prod
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply
from ...runtime.public import explaining, public
from ...runtime.tensors import fresh
from ...runtime.writes import values_of
from ..create.allocation import names_on
from ..index.advanced import Index
from ..samples import KINDS, array, each_dtype, strided
from .movement import Movement, sizes_of
from .sizes import hold_sizes, hold_values

if TYPE_CHECKING:
    from ...ops.argument_types import Dims

__all__ = ["repeat_interleave", "tile"]


@dataclass(eq=False, repr=False)
class Tile(Movement):
    """Copies of the tensor side by side: as many along each dimension as `times` says."""

    times: tuple[int, ...]
    library = "moves"

    def infer(self, spec: Spec) -> Spec:
        """The spec with each size multiplied."""
        if len(self.times) != len(spec.shape):
            raise ShapeError(f"repeat: {len(self.times)} numbers for a tensor of {spec.shape}")
        return spec.with_(shape=tuple(n * m for n, m in zip(self.times, spec.shape, strict=True)))

    def compute(self, xp: Any, x: Any) -> Any:
        """The backend's tile; of no copies, the other dimensions are not repeated on the way."""
        if 0 in self.times:
            x = x[tuple(slice(0 if n == 0 else None) for n in self.times)]
        return xp.tile(x, self.times)

    def batched(self, size: int) -> Tile:
        """The first dimension once."""
        return Tile((1, *self.times))

    def gradient(self, g: Tensor, spec: Spec) -> tuple[Any, ...]:
        """The sum over the copies."""
        wide = [n for pair in zip(self.times, spec.shape, strict=True) for n in pair]
        copies = tuple(range(0, len(wide), 2))
        return (g.reshape(wide).sum(copies) if copies else g,)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Each dimension, none, dtypes, strided, empty."""
        yield from each_dtype(cls((2, 3)), KINDS, (3, 2))
        yield Sample(cls((1, 2, 2)), (strided(array((2, 3, 4))),), "strided")
        yield Sample(cls((0, 2)), (array((2, 3)),), "no copy")
        yield Sample(cls(()), (array(()),), "0-d")

    def reference(self, x: Any) -> Any:
        """Reference value by index, one dimension after the other."""
        for axis, n in enumerate(self.times):
            x = np.take(x, list(range(x.shape[axis])) * n, axis)
        return x


# ---- repetition ----------------------------------------------------------------------------------


@public()
def repeat(input: Tensor, *repeats: Dims) -> Tensor:
    """Copies of the tensor side by side: as many along each dimension as `repeats` says.

    Shapes: `repeats` may have more entries than `input` has dimensions, not fewer.
    Errors: ShapeError for too few entries, or a negative one.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.repeat.html

    >>> ad.tensor([1, 2]).repeat(2, 2)
    tensor([[1, 2, 1, 2],
            [1, 2, 1, 2]])
    """
    times = sizes_of(repeats, "repeat")
    shape = input._data.shape
    lead = len(times) - len(shape)
    if lead < 0:
        raise ShapeError(
            "repeat: Number of dimensions of repeat dims can not be smaller than number of "
            f"dimensions of tensor: {list(times)} for shape {tuple(shape)}"
        )
    if any(n < 0 for n in times):
        raise ShapeError(f"repeat: Trying to create tensor with negative dimension: {list(times)}")
    padded = (1,) * lead + tuple(shape)
    if prod(times) == 1:
        return input.reshape(padded).clone()
    return apply(Tile(times), input if not lead else input.reshape(padded))


@explaining
@public()
def tile(input: Tensor, *repeats: Dims, dims: Dims | None = None, **others: object) -> Tensor:
    """Copies of the tensor side by side; missing entries of `dims` in front count as 1.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.tile.html

    >>> ad.tile(ad.tensor([1, 2]), (2,))
    tensor([1, 2, 1, 2])
    """
    if others:
        raise unexpected(tile, others)
    times = sizes_of(repeats if dims is None else (dims,), "tile")
    times = (1,) * (input._data.ndim - len(times)) + times
    return repeat(input, times)


@public()
def repeat_interleave(
    input: Tensor,
    repeats: int | Tensor | None = None,
    dim: int | None = None,
    *,
    output_size: int | None = None,
) -> Tensor:
    """The slices along `dim`, each several times in a row; the flat elements without `dim`. A
    tensor of counts alone gives the index that many times.

    Errors: ShapeError for counts that fit no slice; InvalidArgument for a negative one.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.repeat_interleave.html

    >>> ad.repeat_interleave(ad.tensor([5, 6]), ad.tensor([1, 2]))
    tensor([5, 6, 6])
    """
    if repeats is None:
        counts = values_of(input, _COUNTED)
        _assert_counts(counts)
        return fresh(np.repeat(names_on(input.device).arange(counts.size), counts))
    x = input.reshape(-1) if dim is None else input
    axis = normalize_axis(0 if dim is None else dim, x._data.ndim, "repeat_interleave")
    x = x if x._data.ndim else x.reshape(1)
    size = x._data.shape[axis]
    if not isinstance(repeats, TensorBase):
        times = operator.index(repeats)
        if times < 0:
            raise InvalidArgument(f"repeat_interleave: repeats can not be negative, got {times}")
        x = hold_sizes("repeat_interleave", x)
        shape = x._data.shape
        wide = (*shape[: axis + 1], times, *shape[axis + 1 :])
        whole = (*shape[:axis], size * times, *shape[axis + 1 :])
        return x.unsqueeze(axis + 1).expand(wide).reshape(whole)
    counts = values_of(repeats, _COUNTED, followed=True)
    _assert_counts(counts)
    if counts.size not in (1, size) or counts.ndim > 1:
        raise ShapeError(
            f"repeat_interleave: repeats must have the same size as input along dim, but got "
            f"repeats.size(0) = {counts.size} and input.size({axis}) = {size}"
        )
    places = np.repeat(names_on(x.device).arange(size), counts.reshape(-1))
    if output_size is not None and output_size != places.size:
        raise ShapeError(
            f"repeat_interleave: allocated size {output_size} does not match required size "
            f"{places.size}"
        )
    x = hold_sizes("repeat_interleave", x, dims=(axis,))
    return apply(Index((axis,)), x, hold_values("repeat_interleave", fresh(places), repeats))


_COUNTED = (
    "the sum of counts is the size of repeat_interleave's result; call it outside, and give the "
    "function what it gives, or use one number for all"
)


def _assert_counts(counts: Any) -> None:
    if counts.dtype not in (np.int64, np.int32):
        raise InvalidType(
            f"repeat_interleave: repeats has to be Long or Int tensor, got {counts.dtype}"
        )
    if counts.size and counts.min() < 0:
        raise InvalidArgument(f"repeat_interleave: repeats can not be negative, got {counts.min()}")
