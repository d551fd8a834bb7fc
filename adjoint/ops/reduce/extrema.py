"""Extrema: largest and smallest elements, and where they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, overload

import numpy as np

from ...core import dtype as dt
from ...core.errors import DTypeError, IndexingError, InvalidType, ShapeError
from ...core.spec import Spec, normalize_axes, normalize_axis, prod, reduced_shape
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply
from ...runtime.fused import checking
from ...runtime.public import public
from .. import return_types
from ..samples import FLOATS, INTS
from .reduction import Reduction, reduction, reduction_samples, wide

if TYPE_CHECKING:
    from ...ops.argument_types import Dims, Operand

__all__ = ["amax", "amin", "aminmax", "argmax", "argmin", "max", "min"]


EXTREMA_DTYPES = (*FLOATS, *INTS, dt.bool_)


@dataclass(eq=False, repr=False)
class Extremum(Reduction, abstract=True):
    """Base of the largest and the smallest value; NaN wins. Then the gradient goes to the NaNs
    with `nan_equal`, and is NaN without, as in PyTorch's `max` and `amax`.
    """

    ufunc = ""  # of two elements
    nan_equal: bool = False
    samples = reduction_samples(EXTREMA_DTYPES)

    def infer(self, spec: Spec) -> Spec:
        """The shape without the reduced axes, none of which may be empty."""
        assert_not_empty(spec.shape, self.axes, self.name)
        return super().infer(spec)

    def compute(self, xp: Any, x: Any) -> Any:
        """Pairwise comparisons that let NaN through."""
        return getattr(xp, self.ufunc).reduce(x, self.axes, None, None, self.keepdims)

    def gradient(self, g: Tensor, x: Tensor, y: Tensor) -> tuple[Any, ...]:
        """Equal shares for the elements that are extreme."""
        g, y = self.restore(g, x.shape), self.restore(y, x.shape)
        return (share_evenly(g, x, y, self.axes, self.nan_equal),)

    def reference(self, x: Any) -> Any:
        """Reference value by sorting."""
        axes = self.axes
        kept = tuple(a for a in range(x.ndim) if a not in axes)
        rows = np.transpose(wide(x), kept + axes)
        rows = rows.reshape((*rows.shape[: len(kept)], self.size(x.shape)))
        found = np.sort(rows, axis=-1)[..., 0 if self.ufunc == "minimum" else -1]
        return found.reshape(reduced_shape(x.shape, axes, self.keepdims))


def share_evenly(g: Any, x: Any, y: Any, axes: tuple[int, ...], nan_equal: bool = True) -> Any:
    """`g`, with the reduced axes still there, in equal shares for the elements of `x` that equal
    `y`; where none does, NaN.
    """
    chosen = x == y
    if nan_equal:
        chosen = chosen | (x.isnan() & y.isnan())
    chosen = chosen.to(x.dtype)
    return chosen * (g / chosen.sum(axes, True)) if axes else g


class Amax(Extremum):
    """Largest value over `axes`."""

    ufunc = "maximum"


class Amin(Extremum):
    """Smallest value over `axes`."""

    ufunc = "minimum"


class ArgExtremum(Reduction, abstract=True):
    """Base of the place of the largest or smallest value: `axes` is one axis, or all of them for
    the place in the flattened tensor.
    """

    function: ClassVar[str]

    @classmethod
    def samples(cls) -> Any:
        """One axis or all."""
        for sample in reduction_samples(EXTREMA_DTYPES).__func__(cls):
            axes = sample.op.axes  # type: ignore[attr-defined]
            if len(axes) in (1, sample.inputs[0].ndim):
                yield sample

    def infer(self, spec: Spec) -> Spec:
        """int64."""
        assert_not_empty(spec.shape, self.axes, self.name)
        return super().infer(spec).with_(dtype=dt.int64)

    def compute(self, xp: Any, x: Any) -> Any:
        """The first place; the first NaN where there is one."""
        axis = self.axes[0] if len(self.axes) == 1 else None
        return getattr(xp, self.function)(x, axis=axis, keepdims=self.keepdims)

    def batch(self, size: int, flags: Any, x: Any) -> Any:  # type: ignore[override]
        """Along the next axis, or in each flattened entry."""
        if len(self.axes) == 1:
            return apply(type(self)((self.axes[0] + 1,), self.keepdims), x)
        shape = reduced_shape(x._data.shape[1:], self.axes, self.keepdims)
        flat = x.reshape(size, prod(x._data.shape[1:]))
        return apply(type(self)((1,), False), flat).reshape(size, *shape)

    def reference(self, x: Any) -> Any:
        """Reference value by a stable sort."""
        key = wide(x).astype(np.float64) * (1 if self.function == "argmin" else -1)
        if len(self.axes) == 1:
            found = np.argsort(key, axis=self.axes[0], kind="stable").take([0], self.axes[0])
        else:
            found = np.argsort(key.ravel(), kind="stable")[0]
        return np.reshape(found, reduced_shape(x.shape, self.axes, self.keepdims))


class Argmax(ArgExtremum):
    """Place of the largest value along an axis, or in the flattened tensor."""

    function = "argmax"


class Argmin(ArgExtremum):
    """Place of the smallest value along an axis, or in the flattened tensor."""

    function = "argmin"


def assert_not_empty(shape: Any, axes: tuple[int, ...], name: str) -> None:
    """Refuse to reduce an axis without elements."""
    for axis in axes:
        if shape[axis] == 0:
            raise IndexingError(
                f"{name}(): Expected reduction dim {axis} to have non-zero size; got shape "
                f"{tuple(shape)}"
            )


def assert_comparable(input: Any, name: str, dim: Any = 0) -> None:
    """Refuse complex numbers, and elements to choose from that are not there."""
    data = input._data
    if data.dtype.kind == "c":
        raise DTypeError(
            f"{name}(): does not support complex input, got {input.dtype}; compare .abs() or .real"
        )
    if data.size == 0:
        if dim is None:
            kind = IndexingError if name.startswith("arg") else ShapeError
            raise kind(
                f"{name}(): Expected reduction dim to be specified for input.numel() == 0. "
                f"Specify the reduction dim with the 'dim' argument (shape {data.shape})."
            )
        assert_not_empty(data.shape, normalize_axes(dim, data.ndim, name), name)


def value_at(input: Any, place: Any, axis: int, keepdim: bool, result: Any) -> Any:
    """`result(values, indices)` of the elements at `place`, which has size 1 along `axis`."""
    values = input.gather(axis, place)
    if not keepdim and input._data.ndim:
        values, place = values.squeeze(axis), place.squeeze(axis)
    return result(values, place)


# ---- public functions ----------------------------------------------------------------------------


@public(out=True)
@checking
def amax(input: Tensor, dim: Dims = (), keepdim: bool = False) -> Any:
    """The largest element over `dim` (an int, several, or all where empty).

    Equal extreme elements share the gradient evenly.

    Errors: IndexingError for a dimension without elements.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.amax.html

    >>> ad.amax(ad.tensor([[1., 5.], [7., 2.]]), dim=1)
    tensor([5., 7.])
    """
    return _extremum(Amax, "amax", input, dim, keepdim)


@public(out=True)
@checking
def amin(input: Tensor, dim: Dims = (), keepdim: bool = False) -> Any:
    """The smallest element over `dim` (an int, several, or all where empty).

    Equal extreme elements share the gradient evenly.

    Errors: IndexingError for a dimension without elements.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.amin.html

    >>> ad.amin(ad.tensor([[1., 5.], [7., 2.]]), dim=1)
    tensor([1., 2.])
    """
    return _extremum(Amin, "amin", input, dim, keepdim)


def _extremum(cls: Any, name: str, input: Any, dim: Any, keepdim: bool) -> Any:
    if isinstance(dim, (tuple, list)) and not dim:
        dim = None
    data = input._data
    if data.dtype.kind == "c" or data.size == 0:
        assert_comparable(input, name, dim)
    return reduction(cls, dim, data.ndim, keepdim), input


@public(out=True)
@checking
def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """Index of the largest element along `dim`, or in the flattened tensor: the first of several.

    Errors: IndexingError for no elements; DTypeError for bool and complex.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.argmax.html

    >>> ad.argmax(ad.tensor([[1., 5.], [7., 2.]]), dim=1)
    tensor([1, 0])
    """
    return _place(Argmax, "argmax", input, dim, keepdim)


@public(out=True)
@checking
def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """Index of the smallest element along `dim`, or in the flattened tensor: the first of several.

    Errors: IndexingError for no elements; DTypeError for bool and complex.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.argmin.html

    >>> ad.argmin(ad.tensor([[1., 5.], [7., 2.]]), dim=1)
    tensor([0, 1])
    """
    return _place(Argmin, "argmin", input, dim, keepdim)


def _place(cls: Any, name: str, input: Any, dim: Any, keepdim: bool) -> Any:
    if input.dtype is dt.bool_:
        raise DTypeError(f"{name}(): does not support bool input; convert with .int()")
    assert_comparable(input, name, dim)
    if dim is not None:
        normalize_axis(dim, input._data.ndim, name)
    return reduction(cls, dim, input._data.ndim, keepdim), input


@overload
def max(input: Tensor) -> Tensor: ...
@overload
def max(input: Tensor, dim: int, keepdim: bool = False) -> return_types.max: ...
@overload
def max(input: Tensor, other: Tensor) -> Tensor: ...
@public(out=True)
def max(
    input: Tensor, dim: Dims | None = None, keepdim: bool = False, *, other: Operand | None = None
) -> Any:
    """The largest element; with `dim`, the largest along it and where they are; with a second
    tensor, the elementwise maximum.

    The gradient is shared evenly by equal elements of the whole tensor; with `dim` it goes to
    the element at the index.

    Errors: IndexingError or ShapeError for no elements; DTypeError for complex.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.max.html

    >>> values, indices = ad.max(ad.tensor([[1., 5.], [7., 2.]]), dim=1)
    >>> values, indices
    (tensor([5., 7.]), tensor([1, 0]))
    """
    return _overloaded("max", Amax, Argmax, input, dim, keepdim, other)


@overload
def min(input: Tensor) -> Tensor: ...
@overload
def min(input: Tensor, dim: int, keepdim: bool = False) -> return_types.min: ...
@overload
def min(input: Tensor, other: Tensor) -> Tensor: ...
@public(out=True)
def min(
    input: Tensor, dim: Dims | None = None, keepdim: bool = False, *, other: Operand | None = None
) -> Any:
    """The smallest element; with `dim`, the smallest along it and where they are; with a second
    tensor, the elementwise minimum.

    The gradient is shared evenly by equal elements of the whole tensor; with `dim` it goes to
    the element at the index.

    Errors: IndexingError or ShapeError for no elements; DTypeError for complex.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.min.html

    >>> values, indices = ad.min(ad.tensor([[1., 5.], [7., 2.]]), dim=1)
    >>> values, indices
    (tensor([1., 2.]), tensor([0, 1]))
    """
    return _overloaded("min", Amin, Argmin, input, dim, keepdim, other)


def _overloaded(
    name: str, whole: Any, place: Any, input: Any, dim: Any, keepdim: bool, other: Any
) -> Any:
    if isinstance(dim, TensorBase):
        dim, other = None, dim
    if other is not None:
        return input.maximum(other) if name == "max" else input.minimum(other)
    assert_comparable(input, name, dim)
    ndim = input._data.ndim
    if dim is None:
        if keepdim:
            raise InvalidType(f"{name}: keepdim needs a dim; use a{name} to keep all dimensions")
        return apply(whole(tuple(range(ndim)), nan_equal=True), input)
    axis = normalize_axis(dim, ndim, name)
    found = apply(reduction(place, dim, ndim, True), input)
    return value_at(input, found, axis, keepdim, getattr(return_types, name))


@public(out=True)
def aminmax(
    input: Tensor, *, dim: int | None = None, keepdim: bool = False
) -> return_types.aminmax:
    """The smallest and the largest element, along `dim` or of all.

    Errors: ShapeError for no elements.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.aminmax.html

    >>> low, high = ad.aminmax(ad.tensor([3., 1., 2.]))
    >>> low, high
    (tensor(1.), tensor(3.))
    """
    data = input._data
    axes = normalize_axes(dim, data.ndim, "aminmax")
    if data.size == 0 and (dim is None or data.shape[axes[0]] == 0):
        raise ShapeError(
            "aminmax(): cannot compute aminmax over an empty dimension as the operation has no "
            f"identity (shape {data.shape})"
        )
    low: Tensor = apply(*_extremum(Amin, "aminmax", input, dim, keepdim))
    return return_types.aminmax(low, apply(*_extremum(Amax, "aminmax", input, dim, keepdim)))
