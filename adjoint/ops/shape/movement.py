"""Movement: reshape, transpose, expand, join and split; views wherever memory allows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import dtype as dt
from ...core.argument_errors import assert_tensor, settled
from ...core.errors import InvalidType, ShapeError
from ...core.mode import MODE
from ...core.op import Op, Sample
from ...core.spec import Size, Spec, normalize_axes, normalize_axis, prod
from ...core.spec import broadcast_shapes as common_shape
from ...core.symbolic_sizes import as_size
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...runtime.cells import Cell, lies_in
from ...runtime.dispatch import apply, apply_view
from ...runtime.fused import viewing
from ...runtime.lazy import LazyValue
from ...runtime.public import explaining, public, rebinding
from ...runtime.views import is_in_order, lies, shares_storage
from ..memory_formats import follow_hint
from ..samples import array, strided
from .sizes import hold_sizes, is_of_graph

if TYPE_CHECKING:
    from ...ops.argument_types import Dims, ManyTensors, MemoryFormat

__all__ = [
    "adjoint", "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_shapes", "broadcast_tensors",
    "broadcast_to", "clone", "flatten", "moveaxis", "movedim", "permute", "ravel", "reshape",
    "squeeze", "swapaxes", "swapdims", "t", "transpose", "unflatten", "unsqueeze",
]  # fmt: skip


class Movement(Op, abstract=True):
    """Base of ops that move values without changing them."""

    exact = True
    linear = True


@dataclass(eq=False, repr=False)
class Reshape(Movement):
    """Change of shape: the elements stay in row-major order."""

    shape: tuple[int, ...]
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
        return x.reshape(self.shape)

    def gradient(self, g: Tensor, spec: Spec) -> tuple[Any, ...]:
        """Back to the old shape."""
        return (g.reshape(spec.shape),)

    def gradient_view(self, g: Any, spec: Spec) -> Any:
        """The cotangent in the input's shape, as a view."""
        return g.reshape(spec.shape)

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


_to_shape = functools.lru_cache(maxsize=4096)(Reshape)  # the same come again and again in a loop


def to_shape(shape: tuple[int, ...]) -> Reshape:
    """The reshape to `shape`."""
    try:
        return _to_shape(shape)
    except TypeError:  # sizes that are not known yet
        return Reshape(shape)


@dataclass(eq=False, repr=False)
class Refit(Reshape, abstract=True):
    """A reshape as a graph records it, whose input may come to have other sizes: -1 in the shape is
    what is left, (i, j) the product of the input's sizes from i up to j.
    """

    shape: tuple[Any, ...]
    rank: int | None  # how many dimensions the input must have
    name = "reshape"

    def _sizes(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if self.rank not in (None, len(shape)):
            raise ShapeError(
                f"reshape: recorded for a tensor of {self.rank} dimensions, got shape {shape}"
            )
        sizes = tuple(prod(shape[n[0] : n[1]]) if type(n) is tuple else n for n in self.shape)
        return infer_size(sizes, prod(shape), "reshape")

    def infer(self, spec: Spec) -> Spec:
        """The new shape; the number of elements must agree."""
        return to_shape(self._sizes(spec.shape)).infer(spec)

    def compute(self, xp: Any, x: Any) -> Any:
        """A view where the memory allows one, otherwise a copy."""
        return x.reshape(self._sizes(x.shape))


def _fitted(
    input: Tensor, sizes: tuple[int, ...], said: tuple[Any, ...], rank: int | None = None
) -> Tensor:
    """`input` in the shape `sizes`; in a graph, recorded as what was `said`: see `Refit`."""
    if isinstance(input._data, Cell) and said != sizes:
        return apply_view(Refit(said, rank), input)
    return apply_view(to_shape(sizes), input)


def _kept(start: int, stop: int) -> tuple[tuple[int, int], ...]:
    return tuple((i, i + 1) for i in range(start, stop))


@dataclass(eq=False, repr=False)
class Permute(Movement):
    """The dimensions in another order."""

    axes: tuple[int, ...]
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
        return x.transpose(self.axes) if type(x) is np.ndarray else xp.permute_dims(x, self.axes)

    def batched(self, size: int) -> Permute:
        """The first dimension stays."""
        return Permute((0, *(axis + 1 for axis in self.axes)))

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """The inverse order."""
        return (apply_view(to_order(_inverse(self.axes)), g),)

    def gradient_view(self, g: Any) -> Any:
        """The cotangent with the dimensions in the input's order, as a view."""
        return g.transpose(_inverse(self.axes))

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Several orders."""
        yield Sample(cls((1, 0)), (array((2, 3)),))
        yield Sample(cls((2, 0, 1)), (array((2, 3, 4)),))
        yield Sample(cls(()), (array(()),), "0-d")
        yield Sample(cls((1, 0)), (array((0, 3)),), "empty")

    def reference(self, x: Any) -> Any:
        """Reference value by einsum."""
        letters = "abcdefgh"[: x.ndim]
        return np.einsum(f"{letters}->{''.join(letters[a] for a in self.axes)}", x).copy()


@functools.lru_cache(maxsize=1024)
def _inverse(axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(range(len(axes)), key=axes.__getitem__))


@functools.lru_cache(maxsize=1024)
def to_order(axes: tuple[int, ...]) -> Permute:
    """The permutation that puts the dimensions in the order `axes`."""
    return Permute(axes)


@dataclass(eq=False, repr=False)
class Expand(Movement):
    """Dimensions of size 1 repeated without copying; -1 keeps a size (in graphs: see `Refit`)."""

    shape: tuple[int, ...]
    view = True

    def _sizes(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if -1 not in self.shape:
            return self.shape
        have = (-1,) * (len(self.shape) - len(shape)) + tuple(shape)
        return tuple(h if n == -1 else n for n, h in zip(self.shape, have, strict=False))

    def infer(self, spec: Spec) -> Spec:
        """The expanded shape; only dimensions of size 1 grow."""
        lead = len(self.shape) - len(spec.shape)
        sizes = self._sizes(spec.shape)
        if lead < 0 or -1 in sizes:
            raise ShapeError(
                f"expand: the number of sizes provided ({len(self.shape)}) must be greater or "
                f"equal to the number of dimensions in the tensor ({len(spec.shape)}): sizes "
                f"{self.shape}, shape {spec.shape}"
            )
        for i, have in enumerate(spec.shape, lead):
            if have not in (1, sizes[i]):
                raise ShapeError(
                    f"expand: The expanded size of the tensor ({sizes[i]}) must match the "
                    f"existing size ({have}) at non-singleton dimension {i}. Target sizes: "
                    f"{list(sizes)}. Tensor sizes: {list(spec.shape)}"
                )
        return spec.with_(shape=sizes)

    def compute(self, xp: Any, x: Any) -> Any:
        """A view with strides of 0."""
        return as_writable(xp.broadcast_to(x, self._sizes(x.shape)), x)

    def batch(self, size: int, flags: Any, x: Any) -> Any:  # type: ignore[override]
        """New dimensions come behind the batch."""
        _, *have = x._data.shape
        sizes = self._sizes(tuple(have))
        lead = (1,) * (len(sizes) - len(have))
        x = apply(to_shape((size, *lead, *have)), x) if lead else x
        return apply(Expand((size, *sizes)), x)

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
        """Reference value by adding zeros."""
        return x + np.zeros(self.shape, x.dtype)


@dataclass(eq=False, repr=False)
class Clone(Movement):
    """A copy, in the input's memory order ("K") or row-major ("C")."""

    order: str = "K"
    library = "moves"
    copies = True
    core = (0,)

    def infer(self, spec: Spec) -> Spec:
        """The input's spec."""
        return spec

    def compute(self, xp: Any, x: Any) -> Any:
        """A copy of the array."""
        if type(x) is np.ndarray and xp.moves:
            found = xp.copied(x, self.order)
            if found is not NotImplemented:
                return found
        return x.copy(order=self.order)

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """g itself."""
        return (g,)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Both orders, several dtypes, 0-d, empty."""
        for dtype in (dt.float64, dt.bfloat16, dt.int32, dt.bool_, dt.complex64):
            yield Sample(cls(), (array((2, 3), dtype),), dtype.name)
        yield Sample(cls("C"), (strided(array((2, 3))),), "strided")
        yield Sample(cls(), (array(()),), "0-d")
        yield Sample(cls(), (array((0, 2)),), "empty")

    def reference(self, x: Any) -> Any:
        """NumPy's copy."""
        return np.array(x)


@dataclass(eq=False, repr=False)
class Bitcast(Movement):
    """Reinterpretation of the memory as another dtype."""

    to: dt.dtype
    view = True
    core = (0,)
    linear = False

    def infer(self, spec: Spec) -> Spec:
        """The last dimension shrinks or grows with the element size."""
        old, new = spec.dtype.itemsize, self.to.itemsize
        if old == new:
            return spec.with_(dtype=self.to)
        if not spec.shape or (spec.shape[-1] * old) % new:
            raise ShapeError(
                f"view: self.size(-1) must be divisible by {new / old:g} to view {spec.dtype} as "
                f"{self.to} (different element sizes), but got shape {spec.shape}"
            )
        shape = (*spec.shape[:-1], spec.shape[-1] * old // new)
        return spec.with_(shape=shape, dtype=self.to)

    def compute(self, xp: Any, x: Any) -> Any:
        """A view."""
        return x.view(self.to.numpy)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Equal, smaller and larger element sizes."""
        yield Sample(cls(dt.int64), (array((2, 3)),))
        yield Sample(cls(dt.float32), (array((2, 3)).astype(np.float16).repeat(2, 1),), "larger")
        yield Sample(cls(dt.uint8), (array((2, 3)),), "smaller")

    def reference(self, x: Any) -> Any:
        """Reference value from the bytes."""
        values = np.frombuffer(x.tobytes(), self.to.numpy)
        return values.reshape(self.infer(Spec(x.shape, dt.from_numpy_dtype(x.dtype))).shape)


def as_writable(view: Any, source: Any) -> Any:
    """`view` of `source`, which may be written where `source` may: NumPy forbids it for views that
    could overlap, while the tape refuses those that do.
    """
    if source.flags.writeable:
        view.flags.writeable = True
    return view


def sizes_of(sizes: tuple[Any, ...], name: str) -> tuple[int, ...]:
    """Sizes given as `f(2, 3)` or `f((2, 3))`, as a tuple of ints."""
    if len(sizes) == 1 and type(sizes[0]) is not int:
        try:
            sizes = tuple(sizes[0])
        except TypeError:
            sizes = tuple(sizes)  # a number of another type
    for size in sizes:
        if type(size) is not int:
            break
    else:
        return sizes
    try:
        return tuple(map(as_size, sizes))
    except TypeError:
        raise InvalidType(f"{name}: sizes must be ints, got {sizes!r}") from None


def infer_size(shape: tuple[int, ...], count: int, name: str) -> tuple[int, ...]:
    """`shape` with its -1, if any, replaced by the size that makes `count` elements."""
    if -1 not in shape:
        return shape
    known = prod(size for size in shape if size != -1)
    if shape.count(-1) > 1:
        raise ShapeError(f"{name}: only one dimension can be inferred, got shape {list(shape)}")
    if known == 0 and count == 0:
        raise ShapeError(
            f"{name}: cannot reshape tensor of 0 elements into shape {list(shape)} because the "
            "unspecified dimension size -1 can be any value and is ambiguous"
        )
    if known <= 0 or count % known:
        raise ShapeError(f"{name}: shape '{list(shape)}' is invalid for input of size {count}")
    return tuple(count // known if size == -1 else size for size in shape)


@public()
@viewing
def reshape(input: Tensor, *sizes: Dims, shape: Dims | None = None) -> Tensor:
    """A tensor of the same elements in another shape; a view where the memory allows one, else a
    copy.

    Shapes: the number of elements must agree; one size may be -1 to be inferred.
    Errors: ShapeError where the number of elements differs.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.reshape.html

    >>> ad.reshape(ad.arange(4), (2, -1))
    tensor([[0, 1],
            [2, 3]])
    """
    wanted = sizes_of(sizes if shape is None else (shape,), "reshape")
    return _fitted(input, infer_size(wanted, input._data.size, "reshape"), wanted)


@public(plain=True)
def view(
    input: Tensor, *sizes: Dims, size: Dims | None = None, dtype: dt.dtype | None = None
) -> Tensor:
    """A view in another shape, or of the same memory read as another `dtype`.

    Shapes: as for `reshape`.
    Errors: ShapeError where the memory allows no such view.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.view.html

    >>> ad.arange(4).view(2, 2)
    tensor([[0, 1],
            [2, 3]])
    """
    if dtype is not None or (len(sizes) == 1 and isinstance(sizes[0], (dt.dtype, str))):
        return apply_view(Bitcast(dt.as_dtype(sizes[0] if dtype is None else dtype)), input)
    wanted = sizes_of(sizes if size is None else (size,), "view")
    try:
        result = _fitted(input, infer_size(wanted, input._data.size, "view"), wanted)
    except ShapeError as error:
        settled(error, "view")
        raise
    if input._data.size and not _shares(result._data, input):
        raise ShapeError(
            f"view: view size {list(wanted)} is not compatible with input tensor's size "
            f"{list(input.shape)} and stride {input.stride()} (at least one dimension spans across "
            "two contiguous subspaces). Use .reshape(...) instead."
        )
    return result


def _shares(found: Any, input: Tensor) -> bool:
    """Whether what a shape of `input` has given shows its memory."""
    data = input._data
    if isinstance(data, Cell) and isinstance(found, Cell):
        return lies_in(found, data)
    if isinstance(found, LazyValue):  # which is not computed to find that out
        lazy = type(found) is LazyValue
        shows = getattr(MODE.get().executor, "shows", None) if lazy else None  # a capture's
        if shows is not None:
            return bool(shows(found, data))
        return shares_storage(found, input, to_shape(found.shape))
    if type(data) is np.ndarray and (found.base is data or found.base is data.base is not None):
        return True
    return bool(np.may_share_memory(found, data))


@public()
@explaining
def view_as(input: Tensor, other: Tensor) -> Tensor:
    """`input` viewed in the shape of `other`.

    Errors: ShapeError where the memory allows no such view.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.view_as.html

    >>> ad.arange(4).view_as(ad.zeros(2, 2)).shape
    adjoint.Size([2, 2])
    """
    return view(input, other._data.shape)


@public()
@explaining
def reshape_as(input: Tensor, other: Tensor) -> Tensor:
    """`input` in the shape of `other`; a view where the memory allows one.

    Errors: ShapeError where the number of elements differs.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.reshape_as.html

    >>> ad.arange(4).reshape_as(ad.zeros(2, 2)).shape
    adjoint.Size([2, 2])
    """
    return reshape(input, other._data.shape)


@public()
@viewing
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """The dimensions from `start_dim` to `end_dim` joined into one; a 0-d tensor becomes 1-d.

    Errors: IndexingError for a dim out of range; ShapeError where start_dim comes after end_dim.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.flatten.html

    >>> ad.flatten(ad.zeros(2, 3, 4), 1).shape
    adjoint.Size([2, 12])
    """
    shape = input._data.shape
    ndim = len(shape)
    start = normalize_axis(start_dim, ndim, "flatten")
    end = normalize_axis(end_dim, ndim, "flatten")
    if start > end:
        raise ShapeError(
            f"flatten: flatten() has invalid args: start_dim {start_dim} cannot come after "
            f"end_dim {end_dim} for shape {tuple(shape)}"
        )
    if start == end and ndim:
        return input
    joined = (*shape[:start], prod(shape[start : end + 1]), *shape[end + 1 :])
    said = (*_kept(0, start), (start, end + 1), *_kept(end + 1, ndim))
    return _fitted(input, joined, said, ndim)


@explaining
@public()
def ravel(input: Tensor) -> Tensor:
    """The tensor with all dimensions joined into one; a view where the memory allows one.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.ravel.html

    >>> ad.ravel(ad.zeros(2, 3)).shape
    adjoint.Size([6])
    """
    if input._data.ndim == 1 and input._data.flags.c_contiguous:
        return input
    return _fitted(input, (input._data.size,), (-1,))


@public()
@viewing
def unflatten(input: Tensor, dim: int, sizes: Dims) -> Tensor:
    """The tensor with one dimension split into several; one of `sizes` may be -1.

    Errors: ShapeError where the sizes do not multiply to that of `dim`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.unflatten.html

    >>> ad.unflatten(ad.zeros(2, 12), 1, (3, -1)).shape
    adjoint.Size([2, 3, 4])
    """
    shape = input._data.shape
    axis = normalize_axis(dim, len(shape), "unflatten")
    wanted = sizes_of((sizes,), "unflatten")
    if not wanted:
        raise ShapeError("unflatten: sizes must be non-empty")
    whole = shape[axis] if shape else 1
    inner = infer_size(wanted, whole, "unflatten")
    if prod(inner) != whole:
        raise ShapeError(
            f"unflatten: Provided sizes {list(wanted)} don't multiply up to the size of dim {dim} "
            f"({whole}) in the input tensor of shape {tuple(shape)}"
        )
    said = (*_kept(0, axis), *wanted, *_kept(axis + 1, len(shape)))
    return _fitted(input, (*shape[:axis], *inner, *shape[axis + 1 :]), said, len(shape))


@rebinding
@public()
@viewing
def squeeze(input: Tensor, dim: Dims | None = None) -> Tensor:
    """A view without the dimensions of size 1: all of them, or those among `dim`.

    Errors: IndexingError for a dim out of range.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.squeeze.html

    >>> ad.squeeze(ad.zeros(1, 2, 1), -1).shape
    adjoint.Size([1, 2])
    """
    shape = input._data.shape
    axes: Any = range(len(shape))
    if dim is not None:
        axes = normalize_axes(dim, len(shape), "squeeze") if dim != () else ()
    kept = [i for i, size in enumerate(shape) if size != 1 or i not in axes]
    said = tuple((i, i + 1) for i in kept)
    return _fitted(input, tuple(shape[i] for i in kept), said, len(shape))


@rebinding
@public()
@viewing
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """A view with a dimension of size 1 added at `dim`.

    Errors: IndexingError for a dim out of range.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.unsqueeze.html

    >>> ad.unsqueeze(ad.zeros(2), -1).shape
    adjoint.Size([2, 1])
    """
    shape = input._data.shape
    axis = normalize_axis(dim, len(shape) + 1, "unsqueeze")
    said = (*_kept(0, axis), 1, *_kept(axis, len(shape)))
    return _fitted(input, (*shape[:axis], 1, *shape[axis:]), said, len(shape))


@public()
@viewing
def permute(input: Tensor, *axes: Dims, dims: Dims | None = None) -> Tensor:
    """A view with the dimensions in another order.

    Shapes: `dims` names every dimension once.
    Errors: ShapeError where it does not.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.permute.html

    >>> ad.permute(ad.zeros(2, 3, 4), (2, 0, 1)).shape
    adjoint.Size([4, 2, 3])
    """
    wanted = sizes_of(axes if dims is None else (dims,), "permute")
    if len(wanted) != input._data.ndim:
        Permute(wanted).infer(input.spec)
    return apply_view(_permuting(wanted), input)


@functools.lru_cache(maxsize=1024)
def _permuting(dims: tuple[int, ...]) -> Permute:
    """The permutation that `dims` say, all of them."""
    order = tuple(normalize_axis(d, len(dims), "permute") for d in dims)
    if len(set(order)) != len(order):
        raise ShapeError(f"permute: duplicate dims are not allowed, got {list(dims)}")
    return to_order(order)


@rebinding
@public()
@viewing
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """A view with two dimensions swapped.

    Errors: IndexingError for a dim out of range.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.transpose.html

    >>> ad.transpose(ad.zeros(2, 3), 0, 1).shape
    adjoint.Size([3, 2])
    """
    swapping = _swapping if type(dim0) is int is type(dim1) else _swapping.__wrapped__
    return apply_view(swapping(dim0, dim1, input._data.ndim), input)


@functools.lru_cache(maxsize=1024)
def _swapping(dim0: int, dim1: int, ndim: int) -> Permute:
    """The permutation of two of so many dimensions."""
    first = normalize_axis(dim0, ndim, "transpose")
    second = normalize_axis(dim1, ndim, "transpose")
    order = list(range(ndim))
    if ndim:
        order[first], order[second] = second, first
    return to_order(tuple(order))


@explaining
@rebinding
@public()
def swapaxes(input: Tensor, axis0: int, axis1: int) -> Tensor:
    """A view with two dimensions swapped; `transpose` by NumPy's name.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.swapaxes.html

    >>> ad.swapaxes(ad.zeros(2, 3), 0, 1).shape
    adjoint.Size([3, 2])
    """
    return transpose(input, axis0, axis1)


@explaining
@rebinding
@public()
def swapdims(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """A view with two dimensions swapped; another name of `transpose`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.swapdims.html

    >>> ad.swapdims(ad.zeros(2, 3), 0, 1).shape
    adjoint.Size([3, 2])
    """
    return transpose(input, dim0, dim1)


@rebinding
@public()
@viewing
def t(input: Tensor) -> Tensor:
    """The transpose of a matrix; tensors of fewer dimensions as they are.

    Errors: ShapeError for more than 2 dimensions.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.t.html

    >>> ad.t(ad.zeros(2, 3)).shape
    adjoint.Size([3, 2])
    """
    ndim = input._data.ndim
    if ndim > 2:
        raise ShapeError(
            f"t: t() expects a tensor with <= 2 dimensions, but self is {ndim}D of shape "
            f"{tuple(input.shape)}; use .mT or transpose(dim0, dim1)"
        )
    return apply_view(to_order((1, 0) if ndim == 2 else tuple(range(ndim))), input)


@public()
@viewing
def movedim(input: Tensor, source: Dims, destination: Dims) -> Tensor:
    """A view with the dimensions `source` moved to the places `destination`.

    Errors: ShapeError where the two differ in number or repeat a dim.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.movedim.html

    >>> ad.movedim(ad.zeros(2, 3, 4), 0, -1).shape
    adjoint.Size([3, 4, 2])
    """
    ndim = input._data.ndim
    froms = [source] if isinstance(source, int) else list(source)
    tos = [destination] if isinstance(destination, int) else list(destination)
    if len(froms) != len(tos):
        raise ShapeError(
            f"movedim: Invalid source or destination dims: source ({froms} dims) should contain "
            f"the same number of dims as destination ({tos} dims)"
        )
    froms = [normalize_axis(d, ndim, "movedim") for d in froms]
    tos = [normalize_axis(d, ndim, "movedim") for d in tos]
    if len(set(froms)) != len(froms) or len(set(tos)) != len(tos):
        raise ShapeError(f"movedim: repeated dim in source {froms} or destination {tos}")
    order = [axis for axis in range(ndim) if axis not in froms]
    for to, axis in sorted(zip(tos, froms, strict=True)):
        order.insert(to, axis)
    return apply_view(to_order(tuple(order[:ndim])), input)


@explaining
@public()
def moveaxis(input: Tensor, source: Dims, destination: Dims) -> Tensor:
    """A view with dimensions moved; `movedim` by NumPy's name.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.moveaxis.html

    >>> ad.moveaxis(ad.zeros(2, 3, 4), 0, -1).shape
    adjoint.Size([3, 4, 2])
    """
    return movedim(input, source, destination)


@explaining
@public()
def adjoint(input: Tensor) -> Tensor:
    """The last two dimensions swapped and conjugated; `.mH`.

    Errors: ShapeError for fewer than 2 dimensions.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.adjoint.html

    >>> ad.adjoint(ad.zeros(2, 3)).shape
    adjoint.Size([3, 2])
    """
    return _conjugate_transpose(input)


def _reversed_dimensions(input: Tensor) -> Tensor:
    """A view with all dimensions in reverse order."""
    return apply_view(to_order(tuple(range(input._data.ndim))[::-1]), input)


def _matrix_transpose(input: Tensor, name: str = "mT") -> Tensor:
    """A view with the last two dimensions swapped."""
    ndim = input._data.ndim
    if ndim < 2:
        raise ShapeError(
            f"{name}: tensor.{name} is only supported on matrices or batches of matrices. Got "
            f"{ndim}-D tensor; unsqueeze it first"
        )
    return apply_view(to_order((*range(ndim - 2), ndim - 1, ndim - 2)), input)


def _conjugate_transpose(input: Tensor) -> Tensor:
    """The last two dimensions swapped and conjugated."""
    swapped = _matrix_transpose(input, "mH")
    return swapped if swapped._data.dtype.kind != "c" else swapped.conj()


def _hermitian(input: Tensor) -> Tensor:
    """The conjugate transpose of a matrix."""
    if input._data.ndim not in (0, 2):
        raise ShapeError(
            "H: tensor.H is only supported on matrices (2-D tensors). Got "
            f"{input._data.ndim}-D tensor. For batches of matrices, consider using tensor.mH"
        )
    return _conjugate_transpose(input) if input._data.ndim else input


# Attributes of Tensor that are computed by a function of it.
PROPERTIES: dict[str, Callable[[Any], Any]] = {
    "T": _reversed_dimensions,
    "mT": _matrix_transpose,
    "H": _hermitian,
    "mH": _conjugate_transpose,
}


@public()
@viewing
def expand(input: Tensor, *sizes: Dims, size: Dims | None = None) -> Tensor:
    """A view with dimensions of size 1 repeated; -1 keeps a size.

    Shapes: new dimensions may be added in front.
    Errors: ShapeError where a dimension that is not of size 1 would have to grow.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.expand.html

    >>> ad.tensor([[1.], [2.]]).expand(2, 3)
    tensor([[1., 1., 1.],
            [2., 2., 2.]])
    """
    wanted = sizes_of(sizes if size is None else (size,), "expand")
    have = input._data.shape
    lead = len(wanted) - len(have)
    shape = tuple(
        have[i - lead] if each == -1 and i >= lead else each for i, each in enumerate(wanted)
    )
    if any(each < 0 for each in shape):
        raise ShapeError(
            f"expand: the expanded size of the tensor ({min(shape)}) isn't allowed in a leading, "
            f"non-existing dimension {shape.index(min(shape))}, got sizes {list(wanted)} for a "
            f"tensor of shape {tuple(have)}"
        )
    return apply_view(Expand(wanted if isinstance(input._data, Cell) else shape), input)


@public()
@explaining
def expand_as(input: Tensor, other: Tensor) -> Tensor:
    """`input` expanded to the shape of `other`.

    Errors: ShapeError where the shapes do not fit.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.expand_as.html

    >>> ad.zeros(1, 3).expand_as(ad.zeros(2, 3)).shape
    adjoint.Size([2, 3])
    """
    y: Tensor = apply_view(Expand(tuple(other._data.shape)), input)
    return hold_sizes("expand_as", y, other) if is_of_graph(other) else y


@explaining
@public()
def broadcast_to(input: Tensor, size: Dims) -> Tensor:
    """A view of `input` broadcast to `size`.

    Errors: ShapeError where the shapes do not fit.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.broadcast_to.html

    >>> ad.broadcast_to(ad.tensor([1, 2]), (2, 2))
    tensor([[1, 2],
            [1, 2]])
    """
    return expand(input, size)


@public(method=False)
def broadcast_shapes(*shapes: Any) -> Size:
    """The shape to which all shapes (ints or tuples) broadcast.

    Errors: ShapeError where they do not.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.broadcast_shapes.html

    >>> ad.broadcast_shapes((2,), (3, 1), (1, 1, 1))
    adjoint.Size([1, 3, 2])
    """
    several = [(s,) if isinstance(s, int) else tuple(s) for s in shapes]
    return Size(common_shape(*several))


@explaining
@public(method=False)
def broadcast_tensors(*tensors: Tensor | ManyTensors) -> tuple[Any, ...]:
    """Views of all tensors, broadcast to their common shape.

    Errors: ShapeError where the shapes do not broadcast.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.broadcast_tensors.html

    >>> [x.shape for x in ad.broadcast_tensors(ad.zeros(2, 1), ad.zeros(3))]
    [adjoint.Size([2, 3]), adjoint.Size([2, 3])]
    """
    several = sequence_of(tensors, "broadcast_tensors")
    shape = common_shape(*(x._data.shape for x in several), op="broadcast_tensors")
    found = [x if x._data.shape == shape else apply_view(Expand(shape), x) for x in several]
    if any(map(is_of_graph, several)):
        return tuple([hold_sizes("broadcast_tensors", x, *several) for x in found])
    return tuple(found)


def sequence_of(tensors: tuple[Any, ...], name: str) -> tuple[Any, ...]:
    """Tensors given as `f(a, b)` or `f([a, b])`, as a tuple."""
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        tensors = tuple(tensors[0])
    for each in tensors:
        assert_tensor(name, each)
    return tensors


@explaining
@public()
@explaining
def clone(input: Tensor, *, memory_format: MemoryFormat | None = None) -> Tensor:
    """A copy through which gradients flow back.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.clone.html

    >>> x = ad.tensor([1., 2.])
    >>> ad.clone(x).data_ptr() == x.data_ptr()
    False
    """
    if memory_format is None:
        return apply(_CLONE, input)
    follow_hint(memory_format, "clone")
    return apply(_CLONE_C, input)


@public(plain=True)
def contiguous(input: Tensor, memory_format: MemoryFormat | None = None) -> Tensor:
    """The tensor itself where its memory is row-major without gaps, otherwise a copy that is.

    A memory format with channels last is a hint; the memory stays row-major, and a warning says so.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.contiguous.html

    >>> ad.zeros(2, 3).t().contiguous().is_contiguous()
    True
    """
    if memory_format is not None:
        follow_hint(memory_format, "contiguous")
    if is_row_major(input):
        return input
    return apply(_CLONE_C, input)


def is_row_major(x: Tensor) -> bool:
    """Whether memory is row-major without gaps; of what is recorded, where eager execution's is."""
    data = x._data
    if isinstance(data, LazyValue) and data.kept is None:  # sparse ones have no memory that lies
        return lies(x, is_in_order)
    return bool(data.flags.c_contiguous)


_CLONE, _CLONE_C = Clone(), Clone("C")


def _each(tensors: tuple[Any, ...], name: str, function: Callable[[Any], Any]) -> Any:
    """`function` of one tensor, or of each of several."""
    found = tuple(function(x) for x in sequence_of(tensors, name))
    return found[0] if len(tensors) == 1 and isinstance(tensors[0], TensorBase) else found


@explaining
@public(method=False)
def atleast_1d(*tensors: Tensor | ManyTensors) -> Any:
    """The tensors with at least one dimension.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.atleast_1d.html

    >>> ad.atleast_1d(ad.tensor(1.)).shape
    adjoint.Size([1])
    """
    return _each(tensors, "atleast_1d", lambda x: x if x._data.ndim else reshape(x, 1))


@explaining
@public(method=False)
def atleast_2d(*tensors: Tensor | ManyTensors) -> Any:
    """The tensors with at least two dimensions, new ones in front.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.atleast_2d.html

    >>> ad.atleast_2d(ad.tensor([1., 2.])).shape
    adjoint.Size([1, 2])
    """
    return _each(
        tensors, "atleast_2d", lambda x: x if x._data.ndim >= 2 else reshape(x, 1, x._data.size)
    )


@explaining
@public(method=False)
def atleast_3d(*tensors: Tensor | ManyTensors) -> Any:
    """The tensors with at least three dimensions; a vector becomes (1, n, 1).

    Source: https://docs.pytorch.org/docs/stable/generated/torch.atleast_3d.html

    >>> ad.atleast_3d(ad.tensor([1., 2.])).shape
    adjoint.Size([1, 2, 1])
    """

    def deepen(x: Any) -> Any:
        shape = x._data.shape
        if len(shape) >= 3:
            return x
        return unsqueeze(x, -1) if len(shape) == 2 else reshape(x, 1, x._data.size, 1)

    return _each(tensors, "atleast_3d", deepen)
