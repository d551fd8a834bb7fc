"""Reductions: sums, means, products, logical ones, logsumexp."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ...core import dtype as dt
from ...core.errors import DTypeError, ShapeError
from ...core.mode import MODE
from ...core.op import Op, Sample, snake_case
from ...core.spec import Spec, normalize_axes, normalize_axis, reduced_shape
from ...core.spec import prod as count
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply, apply_view
from ...runtime.fused import checking
from ...runtime.public import FUNCTIONS, public
from ...runtime.tensors import fresh
from ..elementwise.pointwise import conj
from ..promotion import cast
from ..samples import COMPLEX, FLOATS, INTS, array, strided
from ..shape.movement import Expand

if TYPE_CHECKING:
    from ...ops.argument_types import Dims

__all__ = ["all", "any", "count_nonzero", "logsumexp", "mean", "nanmean", "nansum", "prod", "sum"]


@dataclass(eq=False, repr=False)
class Reduction(Op, abstract=True):
    """Base of ops that reduce `axes` (sorted, not negative)."""

    axes: tuple[int, ...]
    keepdims: bool = False

    def infer(self, spec: Spec) -> Spec:
        """The shape without the reduced axes."""
        return spec.with_(shape=reduced_shape(spec.shape, self.axes, self.keepdims))

    def restore(self, value: Any, shape: tuple[int, ...]) -> Any:
        """`value` (of the output's shape) so that it broadcasts to the input's `shape`."""
        axes = self.axes
        if self.keepdims or axes == tuple(range(len(axes))):
            return value
        return value.reshape(reduced_shape(shape, axes, True))

    def size(self, shape: tuple[int, ...]) -> int:
        """Number of elements of an input of `shape` that make one of the output."""
        return count(shape[axis] for axis in self.axes)


@lru_cache(maxsize=4096, typed=True)
def _reduction(cls: Any, dim: Any, ndim: int, keepdim: bool) -> Any:
    name = getattr(cls, "function", None) or snake_case(cls.__name__)
    return cls(normalize_axes(dim, ndim, name), keepdim)


def reduction(cls: Any, dim: Any, ndim: int, keepdim: bool) -> Any:
    """The op `cls` over `dim`; one object for equal arguments, since making one takes longer
    than summing a small tensor.
    """
    return _reduction(cls, tuple(dim) if isinstance(dim, (list, tuple)) else dim, ndim, keepdim)


def reduction_samples(dtypes: tuple[dt.dtype, ...], **options: Any) -> Any:
    """Samples of a reduction: every set of axes, kept or not, 0-d, empty, strided, each dtype."""

    def samples(cls: Any) -> Iterable[Sample]:
        first = dtypes[0]
        for dtype in dtypes:
            yield Sample(cls((1,)), (array((3, 4), dtype),), dtype.name, **options)
        for axes in ((0,), (1,), (2,), (0, 2), (0, 1, 2)):
            for keepdims in (False, True):
                x = array((2, 3, 2), first)
                yield Sample(cls(axes, keepdims), (x,), f"axes{axes}{keepdims}", **options)
        yield Sample(cls((0,)), (strided(array((3, 4), first)),), "strided", **options)
        yield Sample(cls(()), (array((), first),), "0-d", **options)
        yield Sample(cls((1,)), (array((0, 3), first),), "empty", **options)

    return classmethod(samples)


def wide(x: Any) -> Any:
    """`x` in double precision, for references."""
    if x.dtype.kind in "fV":
        return x.astype(np.float64)
    return x.astype(np.complex128) if x.dtype.kind == "c" else x


class Sum(Reduction):
    """Sum over `axes`."""

    samples = reduction_samples(FLOATS + INTS + COMPLEX)
    linear = True

    def compute(self, xp: Any, x: Any) -> Any:
        """The backend's sum, in the input's dtype (pairwise along contiguous memory)."""
        return xp.add.reduce(x, self.axes, x.dtype, None, self.keepdims)

    def gradient(self, g: Tensor, spec: Spec) -> tuple[Any, ...]:
        """g for every element that was summed."""
        whole = g if not g._data.ndim else self.restore(g, spec.shape)
        return (apply_view(Expand(spec.shape), whole),)

    def reference(self, x: Any) -> Any:
        """NumPy's sum in float64."""
        return np.sum(wide(x), axis=self.axes, keepdims=self.keepdims)


class Mean(Reduction):
    """Mean over `axes`."""

    samples = reduction_samples(FLOATS + COMPLEX)
    linear = True

    def compute(self, xp: Any, x: Any) -> Any:
        """The backend's sum, divided once; nan for no elements."""
        total = xp.add.reduce(x, self.axes, x.dtype, None, self.keepdims)
        n = self.size(x.shape)
        if total.ndim:
            total /= n
            return total
        return total / n

    def gradient(self, g: Tensor, spec: Spec) -> tuple[Any, ...]:
        """An equal share of g for every element."""
        g = self.restore(g / self.size(spec.shape), spec.shape)
        return (apply_view(Expand(spec.shape), g),)

    def reference(self, x: Any) -> Any:
        """Reference value by weights of a dot product."""
        n = self.size(x.shape)
        weights = np.ones_like(wide(x)) / n if n else np.ones_like(wide(x))
        return np.sum(wide(x) * weights, axis=self.axes, keepdims=self.keepdims)


class Prod(Reduction):
    """Product over `axes`."""

    samples = reduction_samples(FLOATS + INTS + COMPLEX)

    def compute(self, xp: Any, x: Any) -> Any:
        """The backend's product, in the input's dtype."""
        return xp.multiply.reduce(x, self.axes, x.dtype, None, self.keepdims)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """g times the product of the other elements (no division, so zeros are right)."""
        shape, axes = x.shape, self.axes
        if not axes:
            return (g,)
        order = (*(a for a in range(len(shape)) if a not in axes), *axes)
        kept = tuple(shape[a] for a in order[: len(order) - len(axes)])
        others = products_of_others(x.permute(order).reshape((*kept, self.size(shape))))
        inverse = tuple(sorted(range(len(order)), key=order.__getitem__))
        others = others.reshape(tuple(shape[a] for a in order)).permute(inverse)
        return (self.restore(g, shape) * conj(others),)

    def reference(self, x: Any) -> Any:
        """NumPy's product in float64."""
        return np.prod(wide(x), axis=self.axes, keepdims=self.keepdims, dtype=wide(x).dtype)


def products_of_others(x: Any) -> Any:
    """The product of all other elements of the last dimension, for each of them, by a tree: up it
    go the products of two halves; down it, what lies outside each half.
    """
    cat = FUNCTIONS["cat"]
    size = x.shape[-1]
    halves = []
    while x.shape[-1] > 1:
        if x.shape[-1] % 2:
            x = cat((x, x.new_ones((*x.shape[:-1], 1))), -1)
        half = x.shape[-1] // 2
        left, right = x.narrow(-1, 0, half), x.narrow(-1, half, half)
        halves.append((left, right))
        x = left * right
    others = x.new_ones(x.shape)
    for left, right in reversed(halves):
        others = others.narrow(-1, 0, left.shape[-1])  # without what made its size even
        others = cat((others * right, others * left), -1)
    return others.narrow(-1, 0, size)


def shifted(x: Any, dim: int, first: float) -> Any:
    """`x` moved one place towards the end of `dim`: `first` enters, the last value is lost."""
    size = x.shape[dim]
    if not size:
        return x
    start = x.narrow(dim, 0, 1)
    start = start.new_full(start.shape, first)
    return FUNCTIONS["cat"]((start, x.narrow(dim, 0, size - 1)), dim)


class Logical(Reduction, abstract=True):
    """Base of `all` and `any`."""

    function: ClassVar[str]
    ufunc: ClassVar[str]

    def infer(self, spec: Spec) -> Spec:
        """Bool."""
        return super().infer(spec).with_(dtype=dt.bool_)

    def compute(self, xp: Any, x: Any) -> Any:
        """Reduction by the backend's logical operator."""
        return getattr(xp, self.ufunc).reduce(x, self.axes, None, None, self.keepdims)

    def reference(self, x: Any) -> Any:
        """Reference value by counting."""
        true = np.sum(x != 0, axis=self.axes, keepdims=self.keepdims)
        return true > 0 if self.function == "any" else true == self.size(x.shape)


class All(Logical):
    """Whether all elements over `axes` are true."""

    function = "all"
    ufunc = "logical_and"
    samples = reduction_samples((dt.bool_, *INTS, *FLOATS, *COMPLEX))


class Some(Logical):
    """Whether any element over `axes` is true."""

    function = "any"
    ufunc = "logical_or"
    samples = reduction_samples((dt.bool_, *INTS, *FLOATS, *COMPLEX))


class LogSumExp(Reduction):
    """Logarithm of the sum of exponentials over `axes`, without overflow."""

    samples = reduction_samples(FLOATS + COMPLEX)

    def compute(self, xp: Any, x: Any) -> Any:
        """Sum with the largest (real part) taken out of the exponentials, unless it is infinite."""
        real = x.real if x.dtype.kind == "c" else x
        top = xp.max(real, axis=self.axes, keepdims=True, initial=-np.inf)
        top = xp.where(xp.isfinite(top), top, top.dtype.type(0))
        terms = xp.asarray(x - top)
        total = xp.sum(xp.exp(terms, out=terms), axis=self.axes, keepdims=self.keepdims)
        return xp.log(total) + (top if self.keepdims else xp.squeeze(top, self.axes))

    def gradient(self, g: Tensor, x: Tensor, y: Tensor) -> tuple[Any, ...]:
        """g times each element's share of the sum."""
        share = (x - self.restore(y, x.shape)).exp()
        return (self.restore(g, x.shape) * conj(share),)

    def reference(self, x: Any) -> Any:
        """Reference value by the formula as it is written."""
        with np.errstate(divide="ignore"):
            return np.log(np.sum(np.exp(wide(x)), axis=self.axes, keepdims=self.keepdims))


# ---- public functions ----------------------------------------------------------------------------


@public(out=True)
def sum(
    input: Tensor, dim: Dims | None = None, keepdim: bool = False, *, dtype: dt.dtype | None = None
) -> Tensor:
    """The sum of the elements over `dim` (an int, several, or all where None).

    Shapes: any; reduced dimensions are dropped, or kept with size 1 where `keepdim`.
    Dtypes: bools and integers sum to int64; `dtype` converts first.
    Errors: IndexingError for a dim out of range.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.sum.html

    >>> ad.sum(ad.tensor([[1., 2.], [3., 4.]]), dim=0)
    tensor([4., 6.])
    """
    if dtype is not None:
        input = cast(input, dtype)
    elif input._data.dtype.kind in "biu":
        data = input._data
        if type(data) is np.ndarray and data.itemsize < 8 and MODE.get().plain:
            op = reduction(Sum, dim, data.ndim, keepdim)  # without a copy of 8 bytes an element
            total: Any = np.sum(data, op.axes, np.int64, keepdims=op.keepdims)
            return fresh(np.asarray(total))
        input = cast(input, dt.int64)
    return apply(reduction(Sum, dim, input._data.ndim, keepdim), input)


@public(out=True)
def mean(
    input: Tensor, dim: Dims | None = None, keepdim: bool = False, *, dtype: dt.dtype | None = None
) -> Tensor:
    """The mean of the elements over `dim` (an int, several, or all where None).

    Shapes: any; reduced dimensions are dropped, or kept with size 1 where `keepdim`.
    Dtypes: floating point and complex; `dtype` converts first.
    Errors: DTypeError for integers and bools; IndexingError for a dim out of range.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.mean.html

    >>> ad.mean(ad.tensor([[1., 2.], [3., 4.]]), dim=0)
    tensor([2., 3.])
    """
    if dtype is not None:
        input = cast(input, dtype)
    if input._data.dtype.kind in "biu":
        raise DTypeError(
            "mean(): could not infer output dtype. Input dtype must be either a floating point or "
            f"complex dtype. Got: {input.dtype}; convert with .float() or pass dtype="
        )
    return apply(reduction(Mean, dim, input._data.ndim, keepdim), input)


@public(out=True)
@checking
def prod(
    input: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: dt.dtype | None = None
) -> Any:
    """The product of the elements over `dim` (an int, or all where None).

    Shapes: any; the reduced dimension is dropped, or kept with size 1 where `keepdim`.
    Dtypes: bools and integers multiply to int64; `dtype` converts first.
    Errors: IndexingError for a dim out of range; InvalidType for several dims.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.prod.html

    >>> x = ad.tensor([0., 2., 3.], requires_grad=True)
    >>> ad.prod(x).backward()
    >>> x.grad
    tensor([6., 0., 0.])
    """
    if dtype is not None:
        input = cast(input, dtype)
    elif input._data.dtype.kind in "biu":
        input = cast(input, dt.int64)
    if dim is not None:
        normalize_axis(dim, input._data.ndim, "prod")
    return reduction(Prod, dim, input._data.ndim, keepdim), input


def _logical(cls: Any, input: Any, dim: Any, keepdim: bool) -> Any:
    result = apply(reduction(cls, dim, input._data.ndim, keepdim), input)
    return cast(result, dt.uint8) if input.dtype is dt.uint8 else result


@public(out=True)
def all(input: Tensor, dim: Dims | None = None, keepdim: bool = False) -> Tensor:
    """Whether all elements over `dim` (an int, several, or all where None) are true, not zero.

    Shapes: any; True for no elements.
    Dtypes: bool; uint8 for uint8.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.all.html

    >>> ad.all(ad.tensor([[True, False], [True, True]]), dim=1)
    tensor([False,  True])
    """
    return _logical(All, input, dim, keepdim)


@public(out=True)
def any(input: Tensor, dim: Dims | None = None, keepdim: bool = False) -> Tensor:
    """Whether any element over `dim` (an int, several, or all where None) is true, not zero.

    Shapes: any; False for no elements.
    Dtypes: bool; uint8 for uint8.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.any.html

    >>> ad.any(ad.tensor([[True, False], [False, False]]), dim=1)
    tensor([ True, False])
    """
    return _logical(Some, input, dim, keepdim)


@public()
def count_nonzero(input: Tensor, dim: Dims | None = None) -> Tensor:
    """Number of elements over `dim` (an int, several, or all where None) that are not zero.

    Dtypes: int64.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.count_nonzero.html

    >>> ad.count_nonzero(ad.tensor([[1., 0.], [2., 3.]]), dim=1)
    tensor([1, 2])
    """
    x: Any = input
    return sum(x != 0, dim)


@public()
def sum_to_size(self: Tensor, *size: Dims) -> Tensor:
    """The tensor summed over the dimensions along which `size` would have to be broadcast.

    Shapes: `size` must broadcast to this tensor's shape.
    Errors: ShapeError where it does not.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.sum_to_size.html

    >>> ad.ones(2, 3).sum_to_size(1, 3)
    tensor([[2., 2., 2.]])
    """
    shape = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
    extra = self.ndim - len(shape)
    fits = extra >= 0 and {n in (1, m) for n, m in zip(shape, self.shape[extra:], strict=True)} <= {
        True
    }
    if not fits:
        raise ShapeError(
            f"sum_to_size: size {list(shape)} is not expandable to size {list(self.shape)}"
        )
    if not shape:
        return sum(self)
    axes = [i for i in range(self.ndim) if i < extra or shape[i - extra] != self.shape[i]]
    result: Tensor = sum(self, axes, keepdim=True) if axes else self
    return result.reshape(shape) if extra else result


@public(out=True)
def logsumexp(input: Tensor, dim: Dims, keepdim: bool = False) -> Tensor:
    """The logarithm of the sum of the exponentials over `dim` (an int or several).

    Shapes: any; -inf for no elements.
    Dtypes: integers become floats.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.logsumexp.html

    >>> ad.logsumexp(ad.tensor([[1000., 1000.]]), dim=1)
    tensor([1000.6932])
    """
    if input._data.dtype.kind in "biu":
        input = cast(input, dt.get_default_dtype())
    return apply(reduction(LogSumExp, dim, input._data.ndim, keepdim), input)


@public(out=True)
def nansum(
    input: Tensor, dim: Dims | None = None, keepdim: bool = False, *, dtype: dt.dtype | None = None
) -> Tensor:
    """The sum over `dim` (an int, several, or all where None) of the elements that are not NaN.

    Shapes: any; reduced dimensions are dropped, or kept with size 1 where `keepdim`.
    Dtypes: bools and integers sum to int64; `dtype` converts first.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nansum.html

    >>> ad.nansum(ad.tensor([1., float("nan"), 4.]))
    tensor(5.)
    """
    if dtype is not None:
        input = cast(input, dtype)
    if input._data.dtype.kind in "fcV":
        input = input.masked_fill(input.isnan(), 0)
    return sum(input, dim, keepdim)


@public(out=True)
def nanmean(
    input: Tensor, dim: Dims | None = None, keepdim: bool = False, *, dtype: dt.dtype | None = None
) -> Tensor:
    """The mean over `dim` (an int, several, or all where None) of the elements that are not NaN.

    Shapes: any; reduced dimensions are dropped, or kept with size 1 where `keepdim`.
    Dtypes: floating point and complex.
    Errors: DTypeError for integers and bools.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nanmean.html

    >>> ad.nanmean(ad.tensor([1., float("nan"), 4.]))
    tensor(2.5000)
    """
    if input._data.dtype.kind in "biu":
        raise DTypeError(
            "nanmean(): expected input to have floating point or complex dtype but got "
            f"{input.dtype}; convert with .float()"
        )
    counted = sum(~input.isnan(), dim, keepdim)
    return nansum(input, dim, keepdim, dtype=dtype) / counted
