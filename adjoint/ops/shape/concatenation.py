"""Concatenation and stacking: tensors joined along a dimension that they have, or a new one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import dtype as dt
from ...core.argument_errors import assert_tensor, misplaced
from ...core.device import CPU
from ...core.errors import InvalidArgument, ShapeError
from ...core.mode import MODE
from ...core.op import Sample
from ...core.spec import Spec, normalize_axis
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply, apply_view
from ...runtime.fused import checking
from ...runtime.public import public
from ..create.allocation import finish
from ..index.slicing import basic_index
from ..promotion import cast, common_dtype
from ..samples import KINDS, array, each_dtype, strided
from .movement import Movement, atleast_1d, atleast_2d, atleast_3d

if TYPE_CHECKING:
    from ...ops.argument_types import ManyTensors

__all__ = [
    "cat", "column_stack", "concat", "concatenate", "dstack", "hstack", "row_stack", "stack",
    "vstack",
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
        """The part of g for each input."""
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
        """The stacked spec; all shapes must agree."""
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
        """The slice of g for each input."""
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
        """Reference value from a list."""
        return np.moveaxis(np.array(list(xs), xs[0].dtype), 0, self.axis)


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
    """The joined tensor, where it exists already: the parts lie one after another, and there is
    nothing else in their memory.
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
def cat(tensors: ManyTensors, dim: int = 0) -> Any:
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
def concat(tensors: ManyTensors, dim: int = 0) -> Tensor:
    """Tensors joined along an existing dimension; another name of `cat`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.concat.html

    >>> ad.concat([ad.tensor([1, 2]), ad.tensor([3])])
    tensor([1, 2, 3])
    """
    return cat(tensors, dim)


@public(method=False, out=True)
def concatenate(tensors: ManyTensors, dim: int = 0, *, axis: int | None = None) -> Tensor:
    """Tensors joined along an existing dimension; another name of `cat`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.concatenate.html

    >>> ad.concatenate([ad.tensor([1, 2]), ad.tensor([3])])
    tensor([1, 2, 3])
    """
    return cat(tensors, dim if axis is None else axis)


@public(method=False, out=True)
@checking
def stack(tensors: ManyTensors, dim: int = 0) -> Any:
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
def hstack(tensors: ManyTensors) -> Tensor:
    """Tensors joined along the second dimension, vectors along the first.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.hstack.html

    >>> ad.hstack([ad.tensor([1, 2]), ad.tensor([3])])
    tensor([1, 2, 3])
    """
    several = [atleast_1d(each) for each in _promoted(tensors, "hstack")]
    return cat(several, 0 if several[0]._data.ndim == 1 else 1)


@public(method=False, out=True)
def vstack(tensors: ManyTensors) -> Tensor:
    """Tensors joined along the first dimension, vectors as rows.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.vstack.html

    >>> ad.vstack([ad.tensor([1, 2]), ad.tensor([3, 4])])
    tensor([[1, 2],
            [3, 4]])
    """
    return cat([atleast_2d(each) for each in _promoted(tensors, "vstack")], 0)


@public(method=False, out=True)
def row_stack(tensors: ManyTensors) -> Tensor:
    """Tensors joined along the first dimension; another name of `vstack`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.row_stack.html

    >>> ad.row_stack([ad.tensor([1, 2]), ad.tensor([3, 4])]).shape
    adjoint.Size([2, 2])
    """
    return vstack(tensors)


@public(method=False, out=True)
def dstack(tensors: ManyTensors) -> Tensor:
    """Tensors joined along the third dimension.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.dstack.html

    >>> ad.dstack([ad.tensor([1, 2]), ad.tensor([3, 4])])
    tensor([[[1, 3],
             [2, 4]]])
    """
    return cat([atleast_3d(each) for each in _promoted(tensors, "dstack")], 2)


@public(method=False, out=True)
def column_stack(tensors: ManyTensors) -> Tensor:
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
