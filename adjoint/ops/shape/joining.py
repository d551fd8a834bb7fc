"""Joining and splitting: cat, stack, split, chunk, unbind and their relatives."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.device import CPU
from ...core.errors import IndexingError, InvalidArgument, InvalidType, ShapeError
from ...core.mistakes import assert_tensor, misplaced
from ...core.mode import MODE
from ...core.op import Op, Sample
from ...core.spec import Spec, normalize_axis
from ...core.tensor_base import TensorBase
from ...core.types import Tensor
from ...eager.dispatch import apply, apply_view
from ...eager.fused import checking
from ...eager.public import METHODS, explaining, public
from ...eager.writes import values_of
from ..create.creation import finish
from ..index.slicing import basic_index, before, part
from ..promotion import cast, common_dtype
from ..samples import KINDS, array, each_dtype, strided
from .movement import Movement, atleast_1d, atleast_2d, atleast_3d, sizes_of
from .sizes import hold_sizes

__all__ = [
    "cat", "chunk", "column_stack", "concat", "concatenate", "dsplit", "dstack", "hsplit",
    "hstack", "row_stack", "split", "split_with_sizes", "stack", "tensor_split", "unbind",
    "vsplit", "vstack",
]  # fmt: skip


@dataclass(eq=False, repr=False)
class Cat(Movement):
    """Tensors joined along a dimension that they have."""

    axis: int
    library = "moves"
    joins = True

    def infer(self, *specs: Spec) -> Spec:
        """The sizes along the axis add up; the others agree."""
        first = specs[0].shape
        total = 0
        for i, spec in enumerate(specs):
            shape = spec.shape
            if not shape:
                raise ShapeError(
                    f"cat: zero-dimensional tensor (at position {i}) cannot be concatenated; use "
                    "stack, or unsqueeze it"
                )
            if len(shape) != len(first):
                raise ShapeError(
                    f"cat: Tensors must have same number of dimensions: got {len(first)} and "
                    f"{len(shape)} (shapes {first} and {shape})"
                )
            for axis, (want, have) in enumerate(zip(first, shape, strict=True)):
                if axis != self.axis and want != have:
                    raise ShapeError(
                        f"cat: Sizes of tensors must match except in dimension {self.axis}. "
                        f"Expected size {want} but got size {have} for tensor number {i} in the "
                        f"list (shapes {first} and {shape})"
                    )
            total += shape[self.axis]
        return specs[0].with_(shape=(*first[: self.axis], total, *first[self.axis + 1 :]))

    def compute(self, xp: Any, *xs: Any) -> Any:
        """The backend's concat."""
        return xp.concat(xs, axis=self.axis)

    def gradient(self, g: Tensor, specs: tuple[Spec, ...]) -> tuple[Any, ...]:
        """Each its part of g."""
        lead = tuple((0, size, 1) for size in specs[0].shape[: self.axis])
        results = []
        start = 0
        for spec in specs:
            stop = start + spec.shape[self.axis]
            op = basic_index((*lead, (start, stop, 1)))
            results.append(lambda op=op: apply_view(op, g))
            start = stop
        return tuple(results)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Several sizes, each dtype, strided, empty."""
        yield from each_dtype(cls(0), (*KINDS, dt.bool_), (2, 3), (1, 3))
        three = (array((2, 1)), array((2, 3), seed=1), strided(array((2, 2))))
        yield Sample(cls(1), three, "three")
        yield Sample(cls(0), (array((0, 2)), array((1, 2))), "empty")

    def reference(self, *xs: Any) -> Any:
        """Slice by slice."""
        moved = [row for x in xs for row in np.moveaxis(x, self.axis, 0)]
        return np.moveaxis(np.array(moved, xs[0].dtype), 0, self.axis)


@dataclass(eq=False, repr=False)
class Stack(Movement):
    """Tensors of one shape joined along a new dimension."""

    axis: int
    library = "moves"
    joins = True

    def infer(self, *specs: Spec) -> Spec:
        """All shapes agree."""
        first = specs[0].shape
        for i, spec in enumerate(specs):
            if spec.shape != first:
                raise ShapeError(
                    f"stack: stack expects each tensor to be equal size, but got {list(first)} at "
                    f"entry 0 and {list(spec.shape)} at entry {i}"
                )
        return specs[0].with_(shape=(*first[: self.axis], len(specs), *first[self.axis :]))

    def compute(self, xp: Any, *xs: Any) -> Any:
        """The backend's stack."""
        return xp.stack(xs, axis=self.axis)

    def gradient(self, g: Tensor, specs: tuple[Spec, ...]) -> tuple[Any, ...]:
        """Each its slice of g."""
        lead = tuple((0, size, 1) for size in specs[0].shape[: self.axis])
        ops = [basic_index((*lead, i)) for i in range(len(specs))]
        return tuple(lambda op=op: apply_view(op, g) for op in ops)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Each dtype, each place, 0-d."""
        for dtype in (dt.float64, dt.bfloat16, dt.int32, dt.bool_, dt.complex128):
            yield Sample(cls(0), (array((2, 3), dtype), array((2, 3), dtype, seed=1)), dtype.name)
        yield Sample(cls(2), (array((2, 3)), array((2, 3), seed=1)), "last")
        yield Sample(cls(0), (array(()), array(()), array(())), "0-d")
        yield Sample(cls(1), (strided(array((2, 3))),), "one")

    def reference(self, *xs: Any) -> Any:
        """From a list."""
        return np.moveaxis(np.array(list(xs), xs[0].dtype), 0, self.axis)


@dataclass(eq=False, repr=False)
class Split(Movement):
    """Views of consecutive parts along a dimension (two or more)."""

    sizes: tuple[int, ...]
    axis: int
    view = True

    @property
    def n_outputs(self) -> int:  # type: ignore[override]  # depends on the fields
        """One for each size."""
        return len(self.sizes)

    def output_views(self, shape: tuple[int, ...]) -> tuple[Op, ...]:
        """One part each."""
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
        """One for each slice."""
        return self.count

    def output_views(self, shape: tuple[int, ...]) -> list[Op]:
        """One slice each."""
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
        """By take."""
        return tuple(np.take(x, i, self.axis) for i in range(self.count))


def _joined(gradients: tuple[Any, ...], specs: tuple[Spec, ...], join: Cat | Stack) -> Any:
    """The cotangents of all parts joined, zeros where one is missing."""
    if not MODE.get().grad:
        whole = _whole(gradients, join)
        if whole is not None:
            return finish(whole, CPU)
    some = next(g for g in gradients if g is not None)
    return apply(
        join,
        *(
            some.new_zeros(spec.shape) if g is None else g
            for g, spec in zip(gradients, specs, strict=True)
        ),
    )


def _whole(tensors: tuple[Any, ...], join: Cat | Stack) -> Any:
    """What joining would make, where it is there already: the parts lie one after another, and
    there is nothing else in their memory.
    """
    axis = join.axis
    arrays: list[Any] = []
    for x in tensors:
        if x is None or type(x._data) is not np.ndarray:
            return None
        arrays.append(np.expand_dims(x._data, axis) if type(join) is Stack else x._data)
    first, base = arrays[0], arrays[0].base
    if type(base) is not np.ndarray or not base.flags.carray:
        return None
    starts = [x.__array_interface__["data"][0] for x in (base, *arrays)]
    sizes, strides = list(first.shape), list(first.strides)
    sizes[axis] = sum(x.shape[axis] for x in arrays)
    strides[axis] = (starts[2] - starts[1]) // max(first.shape[axis], 1)
    dense = first.itemsize
    for stride, size in sorted(zip(strides, sizes, strict=True)):
        if size != 1 and stride != dense:
            return None
        dense *= size
    at = starts[0]
    for x, start in zip(arrays, starts[1:], strict=True):
        alike = all(n == 1 or s == t for n, s, t in zip(x.shape, x.strides, strides, strict=True))
        if x.base is not base or start != at or not alike:
            return None
        at += x.shape[axis] * strides[axis]
    return np.ndarray(sizes, first.dtype, base, 0, strides) if dense == base.nbytes else None


# ---- joining -------------------------------------------------------------------------------------


def _promoted(tensors: Any, name: str) -> list[Any]:
    """The tensors of a sequence, brought to their common dtype."""
    if not isinstance(tensors, (tuple, list)):
        try:
            tensors = list(tensors)  # the rows of one tensor, or any iterable
        except TypeError:
            raise misplaced(tensors, name, "tensors", "a list of tensors") from None
    if not tensors:
        raise InvalidArgument(f"{name}: {name}(): expected a non-empty list of Tensors")
    dtypes = set()
    for each in tensors:
        assert_tensor(name, each)
        dtypes.add(each._data.dtype)
    if len(dtypes) == 1:
        return list(tensors)
    common = common_dtype(tensors, name)
    for each in tensors:
        if not each._data.ndim:  # in joining, a 0-d tensor counts like any other
            common = dt.promote_types(common, each.dtype)
    return [cast(each, common) for each in tensors]


@public(method=False, out=True)
@checking
def cat(tensors: Any, dim: int = 0) -> Any:
    """Tensors joined along an existing dimension.

    Shapes: equal but for `dim`; empty 1-d tensors join anything.
    Dtypes: promoted to a common one.
    Errors: ShapeError where sizes differ; IndexingError for a dim out of range.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.cat.html

    >>> ad.cat([ad.tensor([1, 2]), ad.tensor([3])])
    tensor([1, 2, 3])
    """
    several = _promoted(tensors, "cat")
    shapes = [x._data.shape for x in several]
    shape = shapes[0]
    if (0,) in shapes:
        shape = next((each for each in shapes if each != (0,)), (0,))
    axis = normalize_axis(dim, len(shape), "cat")
    if len(shape) > 1 and (0,) in shapes:  # joins anything, as a tensor of no extent
        none = (*shape[:axis], 0, *shape[axis + 1 :])
        several = [x.reshape(none) if x._data.shape == (0,) else x for x in several]
    return Cat(axis), *several


@public(method=False, out=True)
def concat(tensors: Any, dim: int = 0) -> Tensor:
    """Tensors joined along an existing dimension; another name of `cat`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.concat.html

    >>> ad.concat([ad.tensor([1, 2]), ad.tensor([3])])
    tensor([1, 2, 3])
    """
    return cat(tensors, dim)


@public(method=False, out=True)
def concatenate(tensors: Any, dim: int = 0, *, axis: int | None = None) -> Tensor:
    """Tensors joined along an existing dimension; another name of `cat`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.concatenate.html

    >>> ad.concatenate([ad.tensor([1, 2]), ad.tensor([3])])
    tensor([1, 2, 3])
    """
    return cat(tensors, dim if axis is None else axis)


@public(method=False, out=True)
@checking
def stack(tensors: Any, dim: int = 0) -> Any:
    """Tensors of one shape joined along a new dimension.

    Dtypes: promoted to a common one.
    Errors: ShapeError where shapes differ; IndexingError for a dim out of range.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.stack.html

    >>> ad.stack([ad.tensor([1, 2]), ad.tensor([3, 4])])
    tensor([[1, 2],
            [3, 4]])
    """
    several = _promoted(tensors, "stack")
    return Stack(normalize_axis(dim, several[0]._data.ndim + 1, "stack")), *several


@public(method=False, out=True)
def hstack(tensors: Any) -> Tensor:
    """Tensors joined along the second dimension, vectors along the first.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.hstack.html

    >>> ad.hstack([ad.tensor([1, 2]), ad.tensor([3])])
    tensor([1, 2, 3])
    """
    several = [atleast_1d(each) for each in _promoted(tensors, "hstack")]
    return cat(several, 0 if several[0]._data.ndim == 1 else 1)


@public(method=False, out=True)
def vstack(tensors: Any) -> Tensor:
    """Tensors joined along the first dimension, vectors as rows.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.vstack.html

    >>> ad.vstack([ad.tensor([1, 2]), ad.tensor([3, 4])])
    tensor([[1, 2],
            [3, 4]])
    """
    return cat([atleast_2d(each) for each in _promoted(tensors, "vstack")], 0)


@public(method=False, out=True)
def row_stack(tensors: Any) -> Tensor:
    """Tensors joined along the first dimension; another name of `vstack`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.row_stack.html

    >>> ad.row_stack([ad.tensor([1, 2]), ad.tensor([3, 4])]).shape
    adjoint.Size([2, 2])
    """
    return vstack(tensors)


@public(method=False, out=True)
def dstack(tensors: Any) -> Tensor:
    """Tensors joined along the third dimension.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.dstack.html

    >>> ad.dstack([ad.tensor([1, 2]), ad.tensor([3, 4])])
    tensor([[[1, 3],
             [2, 4]]])
    """
    return cat([atleast_3d(each) for each in _promoted(tensors, "dstack")], 2)


@public(method=False, out=True)
def column_stack(tensors: Any) -> Tensor:
    """Tensors joined along the second dimension, vectors as columns.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.column_stack.html

    >>> ad.column_stack([ad.tensor([1, 2]), ad.tensor([3, 4])])
    tensor([[1, 3],
            [2, 4]])
    """
    columns = [
        each.reshape(each._data.size, 1) if each._data.ndim <= 1 else each
        for each in _promoted(tensors, "column_stack")
    ]
    return cat(columns, 1)


# ---- splitting -----------------------------------------------------------------------------------


def _parts(input: Any, sizes: tuple[int, ...], axis: int) -> tuple[Any, ...]:
    """Views of consecutive parts."""
    if len(sizes) == 1 and sizes[0] == input._data.shape[axis]:
        input = hold_sizes("split", input, dims=(axis,))
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


def _split(self: Tensor, split_size: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """`adjoint.split`, whose argument PyTorch calls otherwise where it is a method.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.split.html

    >>> ad.arange(3).split(split_size=2)
    (tensor([0, 1]), tensor([2]))
    """
    return split(self, split_size, dim)


METHODS["split"] = _split  # PyTorch calls the method's argument otherwise


def _equal_sizes(length: int, size: int) -> tuple[int, ...]:
    """The sizes of parts of `size`, and of the rest, of so many elements."""
    count = max(1, -(-length // size)) if size else 1
    return (*(size,) * (count - 1), length - size * (count - 1))


@public()
def split_with_sizes(input: Tensor, split_sizes: Any, dim: int = 0) -> tuple[Tensor, ...]:
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
    if isinstance(indices_or_sections, TensorBase):
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
    """What was given of one argument, which has several names."""
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
        input = hold_sizes("unbind", input, dims=(axis,))
        return (apply_view(basic_index((*before(input, axis), 0)), input),)
    return apply(Unbind(shape[axis], axis), input)
