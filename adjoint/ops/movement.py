"""Movement: reshape, transpose, expand, join and split; views wherever memory allows."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.errors import InvalidType, ShapeError
from ..core.op import Op, Sample, apply, public
from ..core.spec import Spec, normalize_axis, prod
from .samples import array, strided

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["permute", "reshape"]


class Movement(Op, abstract=True):
    """Base of ops that move values without changing them."""

    exact = True


@dataclass(frozen=True)
class Reshape(Movement):
    """The same elements, in row-major order, in another shape."""

    shape: tuple[int, ...]
    needs = "spec"
    view = True

    def infer(self, spec: Spec) -> Spec:
        """The new shape; the number of elements must agree."""
        if prod(self.shape) != prod(spec.shape):
            raise ShapeError(
                f"reshape: shape '{list(self.shape)}' is invalid for input of size "
                f"{prod(spec.shape)} (shape {spec.shape})"
            )
        return spec.with_(shape=self.shape)

    def compute(self, xp: Any, x: Any) -> Any:
        """A view where the memory allows one, otherwise a copy."""
        return xp.reshape(x, self.shape)

    def gradient(self, g: Tensor, spec: Spec) -> tuple[Any, ...]:
        """Back to the old shape."""
        return (g.reshape(spec.shape),)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Contiguous, strided, empty, 0-d."""
        yield Sample(cls((3, 2)), (array((2, 3)),))
        yield Sample(cls((6,)), (strided(array((2, 3))),), "strided")
        yield Sample(cls((0, 7)), (array((7, 0)),), "empty")
        yield Sample(cls((1, 1)), (array(()),), "0-d")

    def reference(self, x: Any) -> Any:
        """Element by element."""
        return np.array(list(x.ravel()), x.dtype).reshape(self.shape)


@dataclass(frozen=True)
class Permute(Movement):
    """The dimensions in another order."""

    axes: tuple[int, ...]
    needs = ""
    view = True

    def infer(self, spec: Spec) -> Spec:
        """The sizes in the new order."""
        if len(self.axes) != len(spec.shape):
            raise ShapeError(
                f"permute: number of dimensions in the tensor input does not match the length of "
                f"the desired ordering of dimensions i.e. input.dim() = {len(spec.shape)} is not "
                f"equal to len(dims) = {len(self.axes)}"
            )
        return spec.with_(shape=tuple(spec.shape[a] for a in self.axes))

    def compute(self, xp: Any, x: Any) -> Any:
        """A view."""
        return xp.permute_dims(x, self.axes)

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """The inverse order."""
        inverse = [0] * len(self.axes)
        for i, axis in enumerate(self.axes):
            inverse[axis] = i
        return (apply(Permute(tuple(inverse)), g),)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Several orders."""
        yield Sample(cls((1, 0)), (array((2, 3)),))
        yield Sample(cls((2, 0, 1)), (array((2, 3, 4)),))
        yield Sample(cls(()), (array(()),), "0-d")
        yield Sample(cls((1, 0)), (array((0, 3)),), "empty")

    def reference(self, x: Any) -> Any:
        """By einsum."""
        letters = "abcdefgh"[: x.ndim]
        return np.einsum(f"{letters}->{''.join(letters[a] for a in self.axes)}", x).copy()


@dataclass(frozen=True)
class Expand(Movement):
    """Dimensions of size 1 repeated without copying."""

    shape: tuple[int, ...]
    needs = ""
    view = True

    def infer(self, spec: Spec) -> Spec:
        """The expanded shape; only dimensions of size 1 grow."""
        lead = len(self.shape) - len(spec.shape)
        if lead < 0 or any(
            have not in (1, want) for have, want in zip(spec.shape, self.shape[lead:], strict=True)
        ):
            raise ShapeError(
                f"expand: the expanded size of the tensor {self.shape} must match the existing "
                f"size {spec.shape} at non-singleton dimensions"
            )
        return spec.with_(shape=self.shape)

    def compute(self, xp: Any, x: Any) -> Any:
        """A view with strides of 0."""
        return xp.broadcast_to(x, self.shape)

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """The engine sums over what was expanded."""
        return (g,)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """New dimensions, grown dimensions, 0-d, empty."""
        yield Sample(cls((4, 2, 3)), (array((2, 3)),))
        yield Sample(cls((2, 3)), (array((2, 1)),))
        yield Sample(cls((2, 2)), (array(()),), "0-d")
        yield Sample(cls((0, 3)), (array((1, 3)),), "empty")

    def reference(self, x: Any) -> Any:
        """By adding zeros."""
        return x + np.zeros(self.shape, x.dtype)


def sizes_of(sizes: tuple[Any, ...], name: str) -> tuple[int, ...]:
    """Sizes given as `f(2, 3)` or `f((2, 3))`, as a tuple of ints."""
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = tuple(sizes[0])
    try:
        return tuple(operator.index(size) for size in sizes)
    except TypeError:
        raise InvalidType(f"{name}: sizes must be ints, got {sizes!r}") from None


def infer_size(shape: tuple[int, ...], count: int, name: str) -> tuple[int, ...]:
    """`shape` with its -1, if any, replaced by the size that makes `count` elements."""
    if -1 not in shape:
        return shape
    known = prod(size for size in shape if size != -1)
    if shape.count(-1) > 1:
        raise ShapeError(f"{name}: only one dimension can be inferred, got shape {list(shape)}")
    if known == 0 or count % known:
        raise ShapeError(
            f"{name}: shape '{list(shape)}' is invalid for input of size {count}"
        )
    return tuple(count // known if size == -1 else size for size in shape)


@public()
def reshape(input: Tensor, *shape: Any) -> Tensor:
    """The same elements in another shape; a view where the memory allows one, else a copy.

    Shapes: the number of elements must agree; one size may be -1 to be inferred.
    Errors: ShapeError where the number of elements differs.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.reshape.html

    >>> ad.reshape(ad.arange(4), (2, -1))
    tensor([[0, 1],
            [2, 3]])
    """
    sizes = infer_size(sizes_of(shape, "reshape"), input._data.size, "reshape")
    result: Tensor = apply(Reshape(sizes), input)
    return result


@public()
def permute(input: Tensor, *dims: Any) -> Tensor:
    """A view with the dimensions in another order.

    Shapes: `dims` names every dimension once.
    Errors: ShapeError where it does not.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.permute.html

    >>> ad.permute(ad.zeros(2, 3, 4), (2, 0, 1)).shape
    adjoint.Size([4, 2, 3])
    """
    axes = tuple(normalize_axis(d, input.ndim, "permute") for d in sizes_of(dims, "permute"))
    if len(set(axes)) != len(axes):
        raise ShapeError(f"permute: repeated dim in {dims}")
    result: Tensor = apply(Permute(axes), input)
    return result


@public()
def expand(input: Tensor, *sizes: Any) -> Tensor:
    """A view with dimensions of size 1 repeated; -1 keeps a size.

    Shapes: new dimensions may be added in front.
    Errors: ShapeError where a dimension that is not of size 1 would have to grow.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.expand.html

    >>> ad.tensor([[1.], [2.]]).expand(2, 3)
    tensor([[1., 1., 1.],
            [2., 2., 2.]])
    """
    shape = sizes_of(sizes, "expand")
    lead = len(shape) - input.ndim
    shape = tuple(
        input.shape[i - lead] if size == -1 and i >= lead else size for i, size in enumerate(shape)
    )
    result: Tensor = apply(Expand(shape), input)
    return result
