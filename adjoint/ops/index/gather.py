"""Gather: one index for every element of the result, along one dimension."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.argument_errors import assert_tensor
from ...core.device import is_device_array
from ...core.errors import DTypeError, ShapeError
from ...core.op import Op, Sample
from ...core.spec import Spec, broadcast_shapes, normalize_axis, prod
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply, run_known
from ...runtime.public import public
from ..create import allocation
from ..samples import KINDS, array, each_dtype
from .advanced import Index, add_at, wrapped
from .indexing import assert_index_dtype

__all__ = ["gather", "take_along_dim"]


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
        """Gathers by flat position."""
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
        """Adds by flat position."""
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
        """Elements of g at the index."""
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
        nothing = allocation.finish(np.zeros(index._data.shape, np.int64), index.device)
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
