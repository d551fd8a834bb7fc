"""Splitting: a tensor's parts along a dimension, as views."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import dtype as dt
from ...core.argument_errors import assert_tensor
from ...core.errors import IndexingError, InvalidType, ShapeError
from ...core.keywords import unexpected
from ...core.op import Op, Sample
from ...core.spec import Spec, normalize_axis
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply, apply_view
from ...runtime.public import METHODS, explaining, naming, public
from ...runtime.writes import values_of
from ..argument_dtypes import INTEGERS, assert_dtypes
from ..index.slicing import basic_index, before, part
from ..samples import array, strided
from .concatenation import Cat, Stack, _joined
from .movement import Movement, sizes_of
from .sizes import hold_sizes

if TYPE_CHECKING:
    from ...ops.argument_types import Dims

__all__ = [
    "chunk", "dsplit", "hsplit", "split", "split_with_sizes", "tensor_split", "unbind", "vsplit",
]  # fmt: skip


@dataclass(eq=False, repr=False)
class Split(Movement):
    """Views of consecutive parts along a dimension (two or more)."""

    sizes: tuple[int, ...]
    axis: int
    view = True

    @property
    def n_outputs(self) -> int:  # type: ignore[override]  # depends on the fields
        """Number of outputs: one for each size."""
        return len(self.sizes)

    def output_views(self, shape: tuple[int, ...]) -> tuple[Op, ...]:
        """Views of the outputs: one part each."""
        return _split_views(self.sizes, shape[: self.axis])

    def infer(self, spec: Spec) -> tuple[Spec, ...]:
        """The parts' shapes; the sizes must add up."""
        if sum(self.sizes) != spec.shape[self.axis] or min(self.sizes) < 0:
            raise ShapeError(
                f"split: split_with_sizes expects split_sizes to sum exactly to "
                f"{spec.shape[self.axis]} (input tensor's size at dimension {self.axis}), but got "
                f"split_sizes={list(self.sizes)}"
            )
        return tuple(op.infer(spec) for op in self.output_views(spec.shape))

    def compute(self, xp: Any, x: Any) -> tuple[Any, ...]:
        """Views."""
        return tuple([op.compute(xp, x) for op in self.output_views(x.shape)])

    def gradient(self, g: tuple[Any, ...], spec: Spec) -> tuple[Any, ...]:
        """The parts joined again."""
        return (_joined(g, self._parts(spec), Cat(self.axis)),)

    def _parts(self, spec: Spec) -> tuple[Spec, ...]:
        before, after = spec.shape[: self.axis], spec.shape[self.axis + 1 :]
        return tuple(spec.with_(shape=(*before, size, *after)) for size in self.sizes)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Parts along each dimension, an empty part."""
        yield Sample(cls((1, 2), 0), (array((3, 2)),))
        yield Sample(cls((2, 0, 1), 1), (array((2, 3)),), "empty")
        yield Sample(cls((2, 2), 0), (strided(array((4, 3))),), "strided")
        yield Sample(cls((1, 1), 0), (array((2,), dt.bfloat16),), "bfloat16")

    def reference(self, x: Any) -> Any:
        """NumPy's split."""
        return tuple(np.split(x, np.cumsum(self.sizes)[:-1], self.axis))


@functools.lru_cache(maxsize=1024)
def _split_views(sizes: tuple[int, ...], before: tuple[int, ...]) -> tuple[Op, ...]:
    """The parts of these sizes along the dimension that comes after those `before`."""
    lead = tuple((0, size, 1) for size in before)
    ops: list[Op] = []
    start = 0
    for size in sizes:
        ops.append(basic_index((*lead, (start, start + size, 1))))
        start += size
    return tuple(ops)


@dataclass(eq=False, repr=False)
class Unbind(Movement):
    """Views of all slices along a dimension (two or more)."""

    count: int
    axis: int
    view = True

    @property
    def n_outputs(self) -> int:  # type: ignore[override]  # depends on the fields
        """Number of outputs: one for each slice."""
        return self.count

    def output_views(self, shape: tuple[int, ...]) -> list[Op]:
        """Views of the outputs: one slice each."""
        lead = tuple((0, size, 1) for size in shape[: self.axis])
        return [basic_index((*lead, i)) for i in range(self.count)]

    def infer(self, spec: Spec) -> tuple[Spec, ...]:
        """The shape without the dimension, several times."""
        shape = spec.shape
        if shape[self.axis] != self.count:
            raise ShapeError(f"unbind: {self.count} slices of shape {shape} at dim {self.axis}")
        return (spec.with_(shape=(*shape[: self.axis], *shape[self.axis + 1 :])),) * self.count

    def compute(self, xp: Any, x: Any) -> tuple[Any, ...]:
        """Views."""
        lead = (slice(None),) * self.axis
        if x.ndim == self.axis + 1:
            return tuple(x[(*lead, i, ...)] for i in range(self.count))
        return tuple(x[(*lead, i)] for i in range(self.count)) if lead else tuple(x)

    def gradient(self, g: tuple[Any, ...], spec: Spec) -> tuple[Any, ...]:
        """The slices stacked again."""
        shape = (*spec.shape[: self.axis], *spec.shape[self.axis + 1 :])
        return (_joined(g, (spec.with_(shape=shape),) * self.count, Stack(self.axis)),)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Along each dimension."""
        yield Sample(cls(3, 0), (array((3, 2)),))
        yield Sample(cls(3, 1), (array((2, 3)),), "columns")
        yield Sample(cls(2, 0), (array((2,), dt.float32),), "0-d")

    def reference(self, x: Any) -> Any:
        """Reference value by take."""
        return tuple(np.take(x, i, self.axis) for i in range(self.count))


# ---- splitting -----------------------------------------------------------------------------------


def _parts(input: Any, sizes: tuple[int, ...], axis: int) -> tuple[Any, ...]:
    """Views of consecutive parts."""
    if len(sizes) == 1 and sizes[0] == input._data.shape[axis]:
        input = hold_sizes("split", input, dims=(axis,), viewed=True)
        return (part(input, axis, 0, sizes[0]),)
    return apply(Split(sizes, axis), input)


def _axis_to_split(input: Any, dim: int, name: str) -> int:
    assert_tensor(name, input)
    if not input._data.ndim:
        raise ShapeError(f"{name}: {name} expects at least a 1-dimensional tensor, got a 0-d one")
    return normalize_axis(dim, input._data.ndim, name)


@public()
def split(tensor: Tensor, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of parts of one size (the last may be smaller), or of the given sizes, along `dim`.

    Errors: ShapeError where given sizes do not add up, or a size is negative.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.split.html

    >>> ad.split(ad.arange(5), 2)
    (tensor([0, 1]), tensor([2, 3]), tensor([4]))
    """
    axis = _axis_to_split(tensor, dim, "split")
    length = tensor._data.shape[axis]
    if isinstance(split_size_or_sections, (tuple, list)):
        return split_with_sizes(tensor, split_size_or_sections, dim)
    size = operator.index(split_size_or_sections)
    if size < 0 or (size == 0 and length):
        raise ShapeError(
            f"split: split expects split_size be non-negative, and 0 only if dimension size is 0, "
            f"but got split_size={size} for dimension size of {length}"
        )
    return _parts(tensor, _equal_sizes(length, size), axis)


def _split(self: Tensor, split_size: Any, dim: int = 0, **others: object) -> tuple[Tensor, ...]:
    """`adjoint.split`, whose argument PyTorch calls otherwise where it is a method.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.split.html

    >>> ad.arange(3).split(split_size=2)
    (tensor([0, 1]), tensor([2]))
    """
    if others:
        raise unexpected(_split, others)
    return split(self, split_size, dim)


_split.__name__ = _split.__qualname__ = "split"


METHODS["split"] = naming(_split)  # PyTorch calls the method's argument otherwise


def _equal_sizes(length: int, size: int) -> tuple[int, ...]:
    """The sizes of parts of `size`, and of the rest, of so many elements."""
    count = max(1, -(-length // size)) if size else 1
    return (*(size,) * (count - 1), length - size * (count - 1))


@public()
def split_with_sizes(input: Tensor, split_sizes: Dims, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of parts of the given sizes along `dim`.

    Errors: ShapeError where the sizes do not add up.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.split.html

    >>> ad.split_with_sizes(ad.arange(3), [1, 2])
    (tensor([0]), tensor([1, 2]))
    """
    axis = _axis_to_split(input, dim, "split_with_sizes")
    sizes = sizes_of((split_sizes,), "split_with_sizes")
    if sum(sizes) != input._data.shape[axis] or any(size < 0 for size in sizes):
        raise ShapeError(
            f"split_with_sizes: split_with_sizes expects split_sizes to sum exactly to "
            f"{input._data.shape[axis]} (input tensor's size at dimension {dim}) and none to be "
            f"negative, but got split_sizes={list(sizes)}"
        )
    return _parts(input, sizes, axis) if sizes else ()


@public()
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of at most `chunks` parts of one size (the last may be smaller) along `dim`.

    Errors: ShapeError for `chunks` that is not positive.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.chunk.html

    >>> ad.chunk(ad.arange(5), 2)
    (tensor([0, 1, 2]), tensor([3, 4]))
    """
    axis = _axis_to_split(input, dim, "chunk")
    if chunks <= 0:
        raise ShapeError(f"chunk: chunk expects `chunks` to be greater than 0, got: {chunks}")
    length = input._data.shape[axis]
    if not length:
        return _parts(input, (0,) * chunks, axis)
    return _parts(input, _equal_sizes(length, -(-length // chunks)), axis)


@public()
def tensor_split(
    input: Tensor,
    indices_or_sections: Any = None,
    dim: int = 0,
    *,
    indices: Any = None,
    sections: Any = None,
    tensor_indices_or_sections: Any = None,
) -> tuple[Tensor, ...]:
    """Views of a number of nearly equal parts along `dim`, or of the parts between indices.

    Errors: ShapeError for a number that is not positive.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.tensor_split.html

    >>> ad.tensor_split(ad.arange(5), 2), ad.tensor_split(ad.arange(5), (1, 3))
    ((tensor([0, 1, 2]), tensor([3, 4])), (tensor([0]), tensor([1, 2]), tensor([3, 4])))
    """
    given = (indices_or_sections, indices, sections, tensor_indices_or_sections)
    indices_or_sections = _only("tensor_split", *given)
    axis = _axis_to_split(input, dim, "tensor_split")
    length = input._data.shape[axis]
    assert_dtypes("tensor_split", INTEGERS, indices_or_sections=indices_or_sections)
    if isinstance(indices_or_sections, TensorBase):
        if indices_or_sections.ndim > 1:
            raise ShapeError(
                "tensor_split: expected tensor_indices_or_sections to be zero-dimensional or "
                f"one-dimensional, got shape {tuple(indices_or_sections.shape)}"
            )
        indices_or_sections = values_of(indices_or_sections).tolist()
    if isinstance(indices_or_sections, (tuple, list)):
        stops = [slice(None, operator.index(i)).indices(length)[1] for i in indices_or_sections]
        bounds = [(a, max(a, b)) for a, b in zip([0, *stops], [*stops, length], strict=True)]
        sizes = tuple(b - a for a, b in bounds)
        if sum(sizes) == length:
            return _parts(input, sizes, axis)
        return tuple(part(input, axis, a, b) for a, b in bounds)  # parts that overlap
    count = operator.index(indices_or_sections)
    if count <= 0:
        raise ShapeError(f"tensor_split: number of sections must be larger than 0, got {count}")
    small, larger = divmod(length, count)
    return _parts(input, (small + 1,) * larger + (small,) * (count - larger), axis)


def _only(name: str, *given: Any) -> Any:
    """The value of one argument, which has several names."""
    found = [each for each in given if each is not None]
    if len(found) != 1:
        raise InvalidType(f"{name}: expected indices or sections, once, got {len(found)} of them")
    return found[0]


def _split_evenly(input: Any, given: Any, axis: int, name: str, least: int = 1) -> tuple[Any, ...]:
    if input._data.ndim < least:
        raise ShapeError(
            f"{name}: requires a tensor with at least {least} dimension, but got a tensor "
            f"with {input._data.ndim} dimensions!"
        )
    if isinstance(given, int) and (given <= 0 or input._data.shape[axis] % given):
        raise ShapeError(
            f"{name}: attempted to split along dimension {axis}, but the size of the "
            f"dimension {input._data.shape[axis]} is not divisible by the split_size {given}!"
        )
    return tensor_split(input, given, axis)


@explaining
@public()
def hsplit(
    input: Tensor, indices_or_sections: Any = None, *, indices: Any = None, sections: Any = None
) -> tuple[Tensor, ...]:
    """Views of parts along the second dimension (the first of a vector).

    Errors: ShapeError where a number of parts does not divide the size.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.hsplit.html

    >>> ad.hsplit(ad.arange(4), 2)
    (tensor([0, 1]), tensor([2, 3]))
    """
    given = _only("hsplit", indices_or_sections, indices, sections)
    ndim = input._data.ndim
    if ndim < 1:
        raise ShapeError("hsplit: requires a tensor with at least 1 dimension, got a 0-d tensor")
    return _split_evenly(input, given, 0 if ndim == 1 else 1, "hsplit")


@explaining
@public()
def vsplit(
    input: Tensor, indices_or_sections: Any = None, *, indices: Any = None, sections: Any = None
) -> tuple[Tensor, ...]:
    """Views of parts along the first dimension of a tensor of two or more.

    Errors: ShapeError where a number of parts does not divide the size.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.vsplit.html

    >>> ad.vsplit(ad.zeros(4, 2), 2)[0].shape
    adjoint.Size([2, 2])
    """
    given = _only("vsplit", indices_or_sections, indices, sections)
    return _split_evenly(input, given, 0, "vsplit", 2)


@explaining
@public()
def dsplit(
    input: Tensor, indices_or_sections: Any = None, *, indices: Any = None, sections: Any = None
) -> tuple[Tensor, ...]:
    """Views of parts along the third dimension.

    Errors: ShapeError where a number of parts does not divide the size.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.dsplit.html

    >>> ad.dsplit(ad.zeros(1, 2, 4), 2)[0].shape
    adjoint.Size([1, 2, 2])
    """
    given = _only("dsplit", indices_or_sections, indices, sections)
    return _split_evenly(input, given, 2, "dsplit", 3)


@public()
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of all slices along `dim`.

    Errors: IndexingError for a 0-d tensor or a dim out of range.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.unbind.html

    >>> ad.unbind(ad.tensor([[1, 2], [3, 4]]))
    (tensor([1, 2]), tensor([3, 4]))
    """
    shape = input._data.shape
    if not shape:
        raise IndexingError(
            "unbind: Dimension specified as 0 but tensor has no dimensions (it is 0-d)"
        )
    axis = normalize_axis(dim, len(shape), "unbind")
    if shape[axis] == 1:
        input = hold_sizes("unbind", input, dims=(axis,), viewed=True)
        return (apply_view(basic_index((*before(input, axis), 0)), input),)
    return apply(Unbind(shape[axis], axis), input)
