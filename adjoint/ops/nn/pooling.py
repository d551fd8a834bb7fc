"""Pooling: the largest element, or the sum, of each window."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import dtype as dt
from ...core.errors import DTypeError, InvalidArgument, ShapeError
from ...core.op import Op, Sample
from ...core.spec import Spec, prod
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply
from ...runtime.public import explaining, public
from ..samples import array, each_dtype
from ..shape.sizes import hold_sizes
from .windows import Pairs, Sizes, batched, hashable, per_dimension, reference_windows, window_count

if TYPE_CHECKING:
    from ...ops.argument_types import Dims

__all__ = ["max_pool1d", "max_pool2d", "max_pool3d"]


@dataclass(eq=False, repr=False)
class Pool(Op, abstract=True):
    """Base of ops on windows over the last len(kernel) dimensions."""

    kernel: Sizes
    stride: Sizes
    padding: Pairs  # before and after; after may be negative, where no window reaches the end
    dilation: Sizes
    by_rows = True

    def count(self, spec: Any) -> Sizes:
        """The spatial shape of the output for images of this spec (or array)."""
        size = tuple(spec.shape[len(spec.shape) - len(self.kernel) :])
        return window_count(size, self.kernel, self.stride, self.padding, self.dilation)

    def infer(self, x: Spec, *rest: Spec) -> Spec:
        """A spec of one element per window, as in the second input, if there is one."""
        lead = len(x.shape) - len(self.kernel)
        shape = (*x.shape[:lead], *self.count(x))
        if rest and rest[0].shape != shape:
            raise ShapeError(f"{self.name}: {rest[0].shape} is not {x.shape} pooled, {shape}")
        return x.with_(shape=shape)

    @property
    def options(self) -> tuple[Any, ...]:
        """The attributes, as the backend takes them."""
        return self.kernel, self.stride, self.padding, self.dilation


def _geometries() -> Iterable[tuple[str, Sizes, Sizes, Sizes, Pairs, Sizes]]:
    yield "apart", (2, 3, 4, 6), (2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1)
    yield "overlapping", (2, 2, 5, 4), (3, 2), (1, 1), ((1, 1), (0, 1)), (1, 1)
    yield "dilated", (1, 1, 7), (2,), (2,), ((1, 1),), (2,)
    yield "cut", (1, 1, 7), (2,), (3,), ((0, -1),), (1,)
    yield "3d", (1, 2, 3, 3, 3), (2, 1, 2), (1, 2, 1), ((0, 0),) * 3, (1, 1, 1)
    yield "empty", (0, 2, 4), (2,), (2,), ((0, 0),), (1,)


def _windows(op: Pool, x: Any, fill: Any) -> Any:
    """x's windows, (..., *count, places), by a gather."""
    windows = reference_windows(x, op.kernel, op.stride, op.padding, op.dilation, fill)
    return windows.reshape(*windows.shape[: x.ndim], prod(op.kernel))


class MaxPool(Pool):
    """The largest element of each window; padding never wins."""

    library = "always"

    def infer(self, x: Spec, *rest: Spec) -> Spec:
        """A spec of one element per window, of numbers of which one is the largest."""
        if x.dtype.is_complex or x.dtype is dt.bool_:
            way = "pool .abs() or .real" if x.dtype.is_complex else "convert with .float()"
            name = f"max_pool{len(self.kernel)}d"
            raise DTypeError(f'{name}: "{name}" not implemented for {x.dtype}; {way}')
        return Pool.infer(self, x, *rest)

    def compute(self, xp: Any, x: Any) -> Any:
        """The backend's pooling."""
        return xp.max_pool(x, *self.options, self.count(x))

    def gradient(self, g: Tensor, x: Any, y: Any) -> tuple[Any, ...]:
        """g goes to the place of the maximum: the first, where several are equal."""
        return (apply(_to_input(self), x.detach(), y, g),)

    def output_again(self, x: Any) -> Any:
        """The maxima: whoever pools may go on in place."""
        return apply(self, x.detach())

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """The geometries, every dtype, ties and NaN."""
        for label, shape, *options in _geometries():
            yield Sample(cls(*options), (array(shape),), label)  # type: ignore[arg-type]
        op = cls((2,), (2,), ((1, 1),), (1,))
        yield from each_dtype(op, (dt.float32, dt.bfloat16, dt.float16, dt.int64, dt.uint8), (2, 4))
        special = np.array([[1.0, 1.0, np.nan, 2.0, -np.inf, -np.inf]])
        yield Sample(cls((2,), (2,), ((0, 0),), (1,)), (special,), "special", gradients=False)

    def reference(self, x: Any) -> Any:
        """Window by window."""
        lowest = -np.inf if x.dtype.kind in "fV" else np.iinfo(x.dtype).min
        return _windows(self, x, lowest).max(-1)


@functools.lru_cache(maxsize=1024)
def _to_input(op: MaxPool) -> MaxPoolInput:
    return MaxPoolInput(*op.options)


def _pooled(cls: Any) -> Iterable[tuple[str, Any, Any, Any]]:
    """Label, op of `cls`, pooled array and pooling op, of each geometry."""
    for label, shape, *options in _geometries():
        yield label, cls(*options), array(shape), MaxPool(*options)  # type: ignore[arg-type]


class MaxPoolIndices(Pool):
    """Index of each window's maximum in its flattened image; inputs x and its pooled y."""

    def infer(self, x: Spec, *rest: Spec) -> Spec:
        """A spec of one index per window."""
        return Pool.infer(self, x, *rest).with_(dtype=dt.int64)

    def compute(self, xp: Any, x: Any, y: Any) -> Any:
        """The backend's search."""
        return xp.max_pool_indices(x, y, *self.options)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """The geometries."""
        for label, op, x, pool in _pooled(cls):
            yield Sample(op, (x, pool.reference(x)), label)

    def reference(self, x: Any, y: Any) -> Any:
        """Reference value by the windows of the positions."""
        size = x.shape[x.ndim - len(self.kernel) :]
        at = np.broadcast_to(np.arange(int(np.prod(size))).reshape(size), x.shape)
        places = _windows(self, x, -np.inf).argmax(-1)[..., None]
        return np.take_along_axis(_windows(self, at, -1), places, -1)[..., 0]


class MaxPoolInput(Pool):
    """Zeros like x with each window's g added at the place of its maximum y."""

    library = "always"

    def infer(self, x: Spec, *rest: Spec) -> Spec:
        """x's spec."""
        for each in rest:
            Pool.infer(self, x, each)
        return x

    def compute(self, xp: Any, x: Any, y: Any, g: Any) -> Any:
        """The backend's scatter."""
        return xp.max_pool_input(x, y, g, *self.options)

    def gradient(self, g: Tensor, x1: Any, x2: Any) -> tuple[Any, ...]:
        """Linear in the third input; constant in the others, apart from jumps."""
        return (None, None, lambda: apply(MaxPoolSelect(*self.options), x1, x2, g))

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """The geometries; gradients are tested with MaxPool."""
        for label, op, x, pool in _pooled(cls):
            y = pool.reference(x)
            yield Sample(op, (x, y, array(y.shape, seed=1)), label, gradients=False)

    def reference(self, x: Any, y: Any, g: Any) -> Any:
        """Reference value by the indices."""
        at = MaxPoolIndices(*self.options).reference(x, y)
        lead = x.shape[: x.ndim - len(self.kernel)]
        result = np.zeros((*lead, int(np.prod(x.shape[len(lead) :]))))
        for row in np.ndindex(*lead):
            np.add.at(result[row], at[row].ravel(), g[row].ravel())
        return result.reshape(x.shape)


class MaxPoolSelect(Pool):
    """The elements of the third input at the places where x has its windows' maxima y."""

    def infer(self, x: Spec, *rest: Spec) -> Spec:
        """A spec of one element per window."""
        y, h = rest
        if h.shape != x.shape:
            raise ShapeError(f"{self.name}: {h.shape} is not of the images' shape, {x.shape}")
        return Pool.infer(self, x, y)

    def compute(self, xp: Any, x: Any, y: Any, h: Any) -> Any:
        """The backend's gather."""
        return xp.max_pool_select(x, y, h, *self.options)

    def gradient(self, g: Tensor, x1: Any, x2: Any) -> tuple[Any, ...]:
        """Linear in the third input; constant in the others, apart from jumps."""
        return (None, None, lambda: apply(MaxPoolInput(*self.options), x1, x2, g))

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """The geometries; gradients are tested with MaxPool."""
        for label, op, x, pool in _pooled(cls):
            inputs = (x, pool.reference(x), array(x.shape, seed=1))
            yield Sample(op, inputs, label, gradients=False)

    def reference(self, x: Any, y: Any, h: Any) -> Any:
        """Reference value by the indices."""
        at = MaxPoolIndices(*self.options).reference(x, y)
        lead = x.shape[: x.ndim - len(self.kernel)]
        size, places = int(np.prod(x.shape[len(lead) :])), int(np.prod(at.shape[len(lead) :]))
        found = np.take_along_axis(h.reshape(*lead, size), at.reshape(*lead, places), len(lead))
        return found.reshape(at.shape)


# ---- public functions ----------------------------------------------------------------------------


def pool_geometry(
    name: str,
    size: Sizes,
    kernel: Sizes,
    stride: Any,
    padding: Any,
    dilation: Sizes,
    ceil_mode: bool,
) -> tuple[Sizes, Pairs]:
    """The strides, and the padding that gives as many windows as PyTorch has."""
    rank = len(kernel)
    none = stride is None or (isinstance(stride, (tuple, list)) and not stride)
    strides = kernel if none else per_dimension(stride, rank, name, "stride")
    pads = per_dimension(padding, rank, name, "padding", 0)
    pairs = []
    for n, k, s, p, d in zip(size, kernel, strides, pads, dilation, strict=True):
        span = (k - 1) * d + 1
        if p > span // 2:
            raise InvalidArgument(
                f"{name}: pad should be at most half of effective kernel size, but got "
                f"pad={p}, kernel_size={k} and dilation={d}"
            )
        room = n + 2 * p - span
        count = (-(-room // s) if ceil_mode else room // s) + 1
        if ceil_mode and (count - 1) * s >= n + p:
            count -= 1  # a window must start inside the image or the padding before it
        if count < 1:
            raise ShapeError(
                f"{name}: Given input size: {list(size)}. Calculated output size is too small: "
                f"kernel_size={list(kernel)} (dilation {list(dilation)}) does not fit; pad the "
                "input or shrink the kernel"
            )
        pairs.append((p, (count - 1) * s + span - n - p))
    return strides, tuple(pairs)


@functools.lru_cache(maxsize=1024, typed=True)
def _pool_op(
    rank: int, size: Sizes, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> MaxPool:
    """The op with these arguments, cached: equal calls get the same object."""
    name = f"max_pool{rank}d"
    kernel = per_dimension(kernel, rank, name, "kernel_size")
    dilations = per_dimension(dilation, rank, name, "dilation")
    strides, pairs = pool_geometry(name, size, kernel, stride, padding, dilations, ceil_mode)
    return MaxPool(kernel, strides, pairs, dilations)


def _max_pool(
    rank: int,
    input: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    return_indices: bool,
) -> Any:
    name = f"max_pool{rank}d"
    if input._data.ndim not in (rank + 1, rank + 2):
        batched(input, rank, name)
    op = _pool_op(
        rank, input._data.shape[-rank:], hashable(kernel_size), hashable(stride),
        hashable(padding), hashable(dilation), ceil_mode,
    )  # fmt: skip
    if ceil_mode or any(lo != hi for lo, hi in op.padding):
        input = hold_sizes(name, input, dims=range(-rank, 0))
    result: Tensor = apply(op, input)
    if not return_indices:
        return result
    return result, apply(MaxPoolIndices(*op.options), input, result)


@explaining
@public(method=False)
def max_pool1d(
    input: Tensor,
    kernel_size: Dims,
    stride: Dims | None = None,
    padding: Dims = 0,
    dilation: Dims = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Largest value of each window of signals.

        y[i] = max over k of x[stride i + dilation k - padding]

    Padding never wins. The number of windows is floor((size + 2 padding - dilation (kernel_size -
    1) - 1) / stride) + 1.

    Args:
        input: Values.
        kernel_size: Size of the windows, an int or one per dimension.
        stride: Distance between neighbouring windows, an int or one per dimension. Default: None,
            kernel_size.
        padding: Width of the padding on both sides, an int or one per dimension; at most half of
            the window. Default: 0.
        dilation: Distance between neighbouring elements of a window, an int or one per dimension.
            Default: 1.
        ceil_mode: Round the number of windows up, not down: the last one may reach over the end.
            Default: False.
        return_indices: Return the places of the maxima, too, as indices into the flattened spatial
            dimensions. Default: False.

    Shapes: (batch, channels, length) -> (batch, channels, out), or without batch.
    Dtypes: any real; the indices, where asked for, are int64.
    Errors: ShapeError where no window fits; InvalidArgument for padding of more than half a window.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.max_pool1d.html

    >>> ad.max_pool1d(ad.tensor([[1., 3., 2., 0.]]), 2)
    tensor([[3., 2.]])
    """
    return _max_pool(1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@explaining
@public(method=False)
def max_pool2d(
    input: Tensor,
    kernel_size: Dims,
    stride: Dims | None = None,
    padding: Dims = 0,
    dilation: Dims = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Largest value of each window of images.

        y[i] = max over k of x[stride i + dilation k - padding]

    Padding never wins. The number of windows is floor((size + 2 padding - dilation (kernel_size -
    1) - 1) / stride) + 1.

    Args:
        input: Values.
        kernel_size: Size of the windows, an int or one per dimension.
        stride: Distance between neighbouring windows, an int or one per dimension. Default: None,
            kernel_size.
        padding: Width of the padding on both sides, an int or one per dimension; at most half of
            the window. Default: 0.
        dilation: Distance between neighbouring elements of a window, an int or one per dimension.
            Default: 1.
        ceil_mode: Round the number of windows up, not down: the last one may reach over the end.
            Default: False.
        return_indices: Return the places of the maxima, too, as indices into the flattened spatial
            dimensions. Default: False.

    Shapes: (batch, channels, height, width) -> (batch, channels, out_height, out_width), or without
    batch.
    Dtypes: any real; the indices into height * width, where asked for, are int64.
    Errors: ShapeError where no window fits; InvalidArgument for padding of more than half a window.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.max_pool2d.html

    >>> ad.max_pool2d(ad.tensor([[[1., 3.], [2., 0.]]]), 2)
    tensor([[[3.]]])
    """
    return _max_pool(2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@public(method=False)
def max_pool3d(
    input: Tensor,
    kernel_size: Dims,
    stride: Dims | None = None,
    padding: Dims = 0,
    dilation: Dims = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Largest value of each window of volumes.

        y[i] = max over k of x[stride i + dilation k - padding]

    Padding never wins. The number of windows is floor((size + 2 padding - dilation (kernel_size -
    1) - 1) / stride) + 1.

    Args:
        input: Values.
        kernel_size: Size of the windows, an int or one per dimension.
        stride: Distance between neighbouring windows, an int or one per dimension. Default: None,
            kernel_size.
        padding: Width of the padding on both sides, an int or one per dimension; at most half of
            the window. Default: 0.
        dilation: Distance between neighbouring elements of a window, an int or one per dimension.
            Default: 1.
        ceil_mode: Round the number of windows up, not down: the last one may reach over the end.
            Default: False.
        return_indices: Return the places of the maxima, too, as indices into the flattened spatial
            dimensions. Default: False.

    Shapes: (batch, channels, depth, height, width) -> (batch, channels, out_depth, out_height,
    out_width), or without batch.
    Dtypes: any real; the indices into depth * height * width, where asked for, are int64.
    Errors: ShapeError where no window fits; InvalidArgument for padding of more than half a window.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.max_pool3d.html

    >>> ad.max_pool3d(ad.ones(1, 2, 2, 2), 2).item()
    1.0
    """
    return _max_pool(3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)
