"""Average pooling: sums of windows, divided; adaptive pooling, whose windows cover the input."""

from __future__ import annotations

import functools
import math
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
from ...runtime.public import FUNCTIONS, explaining, public
from ..argument_dtypes import NUMBERS, assert_dtypes
from ..elementwise.comparison import where
from ..samples import array
from ..shape.sizes import hold_sizes
from .adaptive_maxima import (
    _bounds,
    _output_sizes,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
)
from .pooling import pool_geometry
from .unpooling import max_unpool1d, max_unpool2d, max_unpool3d
from .windows import Pairs, Sizes, batched, hashable, per_dimension, reference_windows, window_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...ops.argument_types import Dims

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d",
    "lp_pool1d", "lp_pool2d", "lp_pool3d", "max_unpool1d", "max_unpool2d", "max_unpool3d",
]  # fmt: skip


@dataclass(eq=False, repr=False)
class SumPool(Op):
    """The sum of each window over the last len(kernel) dimensions."""

    kernel: Sizes
    stride: Sizes
    padding: Pairs
    library = "always"
    by_rows = True
    linear = True

    def count(self, shape: Any) -> Sizes:
        """Number of windows along each dimension."""
        rank = len(self.kernel)
        size = tuple(shape[len(shape) - rank :])
        return window_count(size, self.kernel, self.stride, self.padding, (1,) * rank)

    def infer(self, x: Spec) -> Spec:
        """A spec of one element per window."""
        lead = x.shape[: len(x.shape) - len(self.kernel)]
        return x.with_(shape=(*lead, *self.count(x.shape)))

    def compute(self, xp: Any, x: Any) -> Any:
        """The backend's sums."""
        return xp.sum_pool(x, self.kernel, self.stride, self.padding, self.count(x.shape))

    def gradient(self, g: Tensor, spec: Spec) -> tuple[Any, ...]:
        """g for every element of its window."""
        size = spec.shape[len(spec.shape) - len(self.kernel) :]
        return (apply(_to_input(self, tuple(size)), g),)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Windows apart, overlapping, padded, cut."""
        for label, shape, options in _geometries():
            yield Sample(cls(*options), (array(shape),), label)
        for dtype in (dt.float32, dt.bfloat16, dt.float16, dt.complex128):
            yield Sample(cls((2,), (2,), ((0, 0),)), (array((2, 4), dtype),), dtype.name)

    def reference(self, x: Any) -> Any:
        """Window by window."""
        rank = len(self.kernel)
        wide = x.astype(np.float64) if x.dtype.kind in "fV" else x
        windows = reference_windows(wide, self.kernel, self.stride, self.padding, (1,) * rank)
        return windows.sum(tuple(range(-rank, 0)))


def _geometries() -> Iterable[tuple[str, Sizes, tuple[Sizes, Sizes, Pairs]]]:
    yield "apart", (2, 3, 4, 6), ((2, 2), (2, 2), ((0, 0), (0, 0)))
    yield "overlapping", (2, 5, 4), ((3, 2), (1, 1), ((1, 1), (0, 1)))
    yield "cut", (1, 7), ((2,), (3,), ((0, -1),))
    yield "3d", (2, 3, 3, 3), ((2, 1, 2), (1, 2, 1), ((0, 0),) * 3)
    yield "empty", (0, 4), ((2,), (2,), ((0, 0),))


@dataclass(eq=False, repr=False)
class SumPoolInput(Op):
    """The transpose of `SumPool`: each value added everywhere in its window."""

    kernel: Sizes
    stride: Sizes
    padding: Pairs
    size: Sizes
    library = "always"
    by_rows = True
    linear = True

    def infer(self, g: Spec) -> Spec:
        """Images of `size`."""
        lead = g.shape[: len(g.shape) - len(self.kernel)]
        shape = (*lead, *SumPool(self.kernel, self.stride, self.padding).count(self.size))
        if shape != g.shape:
            raise ShapeError(f"{self.name}: {g.shape} is no pooled image of {self.size}, {shape}")
        return g.with_(shape=(*g.shape[: len(g.shape) - len(self.kernel)], *self.size))

    def compute(self, xp: Any, g: Any) -> Any:
        """The backend's sums."""
        count = tuple(g.shape[g.ndim - len(self.kernel) :])
        return xp.sum_pool_input(g, self.kernel, self.stride, self.padding, count, self.size)

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """The sum of each window."""
        return (apply(SumPool(self.kernel, self.stride, self.padding), g),)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Values of the shapes that SumPool gives."""
        for label, shape, options in _geometries():
            rank = len(options[0])
            lead, size = shape[: len(shape) - rank], shape[len(shape) - rank :]
            values = array((*lead, *SumPool(*options).count(shape)))
            yield Sample(cls(*options, size), (values,), label)

    def reference(self, g: Any) -> Any:
        """Reference value by the matrix of SumPool."""
        op = SumPool(self.kernel, self.stride, self.padding)
        rows = [op.reference(e.reshape(self.size)).ravel() for e in np.eye(prod(self.size))]
        lead = g.shape[: g.ndim - len(self.kernel)]
        flat = g.reshape(prod(lead), prod(g.shape[len(lead) :]))
        return (flat @ np.array(rows).T).reshape(*lead, *self.size)


# ---- public functions ----------------------------------------------------------------------------


@functools.lru_cache(maxsize=1024, typed=True)
def _sum_op(
    rank: int, size: Sizes, kernel: Any, stride: Any, padding: Any, ceil_mode: bool
) -> SumPool:
    """The op with these arguments, cached: equal calls get the same object."""
    name, ones = f"avg_pool{rank}d", (1,) * rank
    kernel = per_dimension(kernel, rank, name, "kernel_size")
    strides, pairs = pool_geometry(name, size, kernel, stride, padding, ones, ceil_mode)
    return SumPool(kernel, strides, pairs)


@functools.lru_cache(maxsize=1024)
def _to_input(op: SumPool, size: Sizes) -> SumPoolInput:
    return SumPoolInput(op.kernel, op.stride, op.padding, size)


def _avg_pool(
    rank: int,
    input: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    name = f"avg_pool{rank}d"
    if input._data.ndim not in (rank + 1, rank + 2):
        batched(input, rank, name)
    if input.dtype.category < 2 and input.dtype is not dt.int64:
        raise DTypeError(f"{name}: not implemented for {input.dtype}; convert with .float()")
    if divisor_override == 0:
        raise InvalidArgument(f"{name}: divisor must be not zero")
    size = tuple(input._data.shape[-rank:])
    op = _sum_op(rank, size, hashable(kernel_size), hashable(stride), hashable(padding), ceil_mode)
    kernel, strides, pairs = op.kernel, op.stride, op.padding
    if ceil_mode or any(lo or hi for lo, hi in pairs):
        input = hold_sizes(name, input, dims=range(-rank, 0))
    sums = apply(op, input)
    rounding = "trunc" if input.dtype is dt.int64 else None
    if divisor_override is not None or not any(hi > lo or lo for lo, hi in pairs):
        divisor = prod(kernel) if divisor_override is None else divisor_override
        if rounding is None:
            return sums / divisor
        return sums.div(divisor, rounding_mode=rounding)
    divisors: Any = np.ones(())
    pads = per_dimension(padding, rank, name, "padding", 0)
    for n, k, s, p, c in zip(size, kernel, strides, pads, sums.shape[-rank:], strict=True):
        start = np.arange(c) * s - p
        end = np.minimum(start + k, n + p)
        if not count_include_pad:
            start, end = np.maximum(start, 0), np.minimum(end, n)
        divisors = np.multiply.outer(divisors, end - start)
    divisor = sums.new_tensor(divisors, dtype=input.dtype)
    return sums.div(divisor, rounding_mode=rounding)


@explaining
@public(method=False)
def avg_pool1d(
    input: Tensor,
    kernel_size: Dims,
    stride: Dims | None = None,
    padding: Dims = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """Mean of each window of signals.

        y[i] = sum over k of x[stride i + k - padding] / number of elements

    Padding counts as zeros. The number of windows is floor((size + 2 padding - kernel_size) /
    stride) + 1.

    Args:
        input: Values.
        kernel_size: Size of the windows, an int or one per dimension.
        stride: Distance between neighbouring windows, an int or one per dimension. Default: None,
            kernel_size.
        padding: Width of the padding on both sides, an int or one per dimension; at most half of
            the window. Default: 0.
        ceil_mode: Round the number of windows up, not down: the last one may reach over the end.
            Default: False.
        count_include_pad: Whether the divisor counts the padding in a window. Default: True.

    Shapes: (batch, channels, length) -> (batch, channels, out), or without batch.
    Dtypes: floating point, complex and int64.
    Errors: ShapeError where no window fits; InvalidArgument for padding of more than half a window.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.avg_pool1d.html

    >>> ad.avg_pool1d(ad.tensor([[1., 3., 2., 0.]]), 2)
    tensor([[2., 1.]])
    """
    return _avg_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


@explaining
def avg_pool2d(
    input: Tensor,
    kernel_size: Dims,
    stride: Dims | None = None,
    padding: Dims = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Mean of each window of images.

        y[i] = sum over k of x[stride i + k - padding] / number of elements

    Padding counts as zeros. The number of windows is floor((size + 2 padding - kernel_size) /
    stride) + 1.

    Args:
        input: Values.
        kernel_size: Size of the windows, an int or one per dimension.
        stride: Distance between neighbouring windows, an int or one per dimension. Default: None,
            kernel_size.
        padding: Width of the padding on both sides, an int or one per dimension; at most half of
            the window. Default: 0.
        ceil_mode: Round the number of windows up, not down: the last one may reach over the end.
            Default: False.
        count_include_pad: Whether the divisor counts the padding in a window. Default: True.
        divisor_override: Divisor of each sum. Default: None, the number of elements in the window.

    Shapes: (batch, channels, height, width) -> (batch, channels, out_height, out_width), or without
    batch.
    Dtypes: floating point, complex and int64.
    Errors: ShapeError where no window fits; InvalidArgument for a divisor of 0, and for padding of
    more than half a window.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.avg_pool2d.html

    >>> from adjoint.ops.nn.averaging import avg_pool2d
    >>> avg_pool2d(ad.ones(1, 4, 4), 2).shape
    adjoint.Size([1, 2, 2])
    """
    return _avg_pool(
        2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


def avg_pool3d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Mean of each window of volumes.

        y[i] = sum over k of x[stride i + k - padding] / number of elements

    Padding counts as zeros. The number of windows is floor((size + 2 padding - kernel_size) /
    stride) + 1.

    Args:
        input: Values.
        kernel_size: Size of the windows, an int or one per dimension.
        stride: Distance between neighbouring windows, an int or one per dimension. Default: None,
            kernel_size.
        padding: Width of the padding on both sides, an int or one per dimension; at most half of
            the window. Default: 0.
        ceil_mode: Round the number of windows up, not down: the last one may reach over the end.
            Default: False.
        count_include_pad: Whether the divisor counts the padding in a window. Default: True.
        divisor_override: Divisor of each sum. Default: None, the number of elements in the window.

    Shapes: (batch, channels, depth, height, width) -> (batch, channels, out_depth, out_height,
    out_width), or without batch.
    Dtypes: floating point, complex and int64.
    Errors: ShapeError where no window fits; InvalidArgument for a divisor of 0, and for padding of
    more than half a window.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.avg_pool3d.html

    >>> from adjoint.ops.nn.averaging import avg_pool3d
    >>> avg_pool3d(ad.ones(1, 4, 4, 4), 2).shape
    adjoint.Size([1, 2, 2, 2])
    """
    return _avg_pool(
        3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


def _adaptive_avg_pool(rank: int, input: Tensor, output_size: Any) -> Tensor:
    size, count = _output_sizes(f"adaptive_avg_pool{rank}d", input, output_size, rank)
    assert_dtypes(f"adaptive_avg_pool{rank}d", NUMBERS, input=input)
    if count == (1,) * rank:
        return input.mean(tuple(range(-rank, 0)), keepdim=True)
    input = hold_sizes(f"adaptive_avg_pool{rank}d", input, dims=range(-rank, 0))
    if all(c and n % c == 0 for n, c in zip(size, count, strict=True)):
        kernel = tuple(n // c for n, c in zip(size, count, strict=True))
        sums = apply(SumPool(kernel, kernel, ((0, 0),) * rank), input)
        return sums / prod(kernel)
    result: Any = input
    for i, (n, c) in enumerate(zip(size, count, strict=True)):
        bounds = np.array(list(_bounds(n, c)), np.int64).reshape(c, 2)
        lengths = bounds[:, 1] - bounds[:, 0]
        sums = _window_sums(result, input._data.ndim - rank + i, bounds)
        result = sums / input.new_tensor(
            lengths.reshape(c, *(1,) * (rank - i - 1)), dtype=input.dtype
        )
    return result


def _window_sums(input: Tensor, axis: int, bounds: Any) -> Tensor:
    """The sums over windows along `axis`, whose `bounds` are (count, 2) places. No element counts
    in a window of others: one that is infinite or no number does not spread.
    """
    starts, ends = bounds[:, 0], bounds[:, 1]
    width = int((ends - starts).max(initial=1))
    table = np.minimum(starts[:, None] + np.arange(width), ends[:, None] - 1)
    taken = FUNCTIONS["index_select"](input, axis, _constant(input, table.reshape(-1), dt.int64))
    shape = tuple(input.shape)
    along = (len(bounds), width) + (1,) * (len(shape) - axis - 1)
    taken = FUNCTIONS["unflatten"](taken, axis, along[:2])
    within = np.arange(width) < (ends - starts)[:, None]
    if not within.all():
        taken = where(_constant(input, within.reshape(along), dt.bool_), taken, 0)
    return taken.sum(axis + 1)


def _constant(beside: Tensor, array: Any, dtype: dt.dtype) -> Tensor:
    return beside.new_tensor(array, dtype=dtype)  # type: ignore[attr-defined, no-any-return]


@explaining
@public(method=False)
def adaptive_avg_pool1d(input: Tensor, output_size: int | Sequence[int | None] | None) -> Tensor:
    """Mean of each of output_size windows that cover the signals evenly.

        y[i] = mean of x[floor(i size / output_size) : ceil((i + 1) size / output_size)]

    Args:
        input: Values.
        output_size: Size of the output, an int or one per dimension; None in it keeps a size.

    Shapes: (batch, channels, length) or without batch -> the same with output_size.
    Dtypes: floating point.
    Errors: ShapeError for other ranks.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.adaptive_avg_pool1d.html

    >>> ad.adaptive_avg_pool1d(ad.ones(1, 5), 2).shape
    adjoint.Size([1, 2])
    """
    return _adaptive_avg_pool(1, input, output_size)


@explaining
def adaptive_avg_pool2d(input: Tensor, output_size: int | Sequence[int | None] | None) -> Tensor:
    """Mean of each of output_size windows that cover the images evenly.

        y[i] = mean of x[floor(i size / output_size) : ceil((i + 1) size / output_size)]

    Args:
        input: Values.
        output_size: Size of the output, an int or one per dimension; None in it keeps a size.

    Shapes: (batch, channels, height, width) or without batch -> the same with output_size.
    Dtypes: floating point.
    Errors: ShapeError for other ranks.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.adaptive_avg_pool2d.html

    >>> from adjoint.ops.nn.averaging import adaptive_avg_pool2d
    >>> adaptive_avg_pool2d(ad.ones(1, 5, 5), 2).shape
    adjoint.Size([1, 2, 2])
    """
    return _adaptive_avg_pool(2, input, output_size)


def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """Mean of each of output_size windows that cover the volumes evenly.

        y[i] = mean of x[floor(i size / output_size) : ceil((i + 1) size / output_size)]

    Args:
        input: Values.
        output_size: Size of the output, an int or one per dimension; None in it keeps a size.

    Shapes: (batch, channels, depth, height, width) or without batch -> the same with output_size.
    Dtypes: floating point.
    Errors: ShapeError for other ranks.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.adaptive_avg_pool3d.html

    >>> from adjoint.ops.nn.averaging import adaptive_avg_pool3d
    >>> adaptive_avg_pool3d(ad.ones(1, 5, 5, 5), 2).shape
    adjoint.Size([1, 2, 2, 2])
    """
    return _adaptive_avg_pool(3, input, output_size)


def _lp_pool(
    rank: int, input: Tensor, norm_type: float, kernel_size: Any, stride: Any, ceil_mode: bool
) -> Tensor:
    kernel = per_dimension(kernel_size, rank, f"lp_pool{rank}d", "kernel_size")
    if isinstance(norm_type, float) and math.isinf(norm_type):  # the largest or least size
        sign = math.copysign(1.0, norm_type)
        sizes: Any = FUNCTIONS["abs"](input) * sign
        return FUNCTIONS[f"max_pool{rank}d"](sizes, kernel, stride, 0, 1, ceil_mode) * sign
    powers: Any = FUNCTIONS["pow"](input, norm_type)
    means = _avg_pool(rank, powers, kernel, stride, 0, ceil_mode, True, None)
    sums: Any = means.sign() * means.abs().relu() * prod(kernel)  # relu: no gradient at zero
    return sums ** (1.0 / norm_type)


@explaining
def lp_pool1d(
    input: Tensor,
    norm_type: float,
    kernel_size: Dims,
    stride: Dims | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """p-norm of each window of signals.

        y[i] = (sum over k of x[stride i + k]^p)^(1 / p)

    Args:
        input: Values.
        norm_type: Exponent p; of inf the largest size, of -inf the least.
        kernel_size: Size of the windows, an int or one per dimension.
        stride: Distance between neighbouring windows, an int or one per dimension. Default: None,
            kernel_size.
        ceil_mode: Round the number of windows up, not down: the last one may reach over the end.
            Default: False.

    Shapes: (batch, channels, length) -> (batch, channels, out), or without batch.
    Errors: ShapeError where no window fits.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.lp_pool1d.html

    >>> from adjoint.ops.nn.averaging import lp_pool1d
    >>> lp_pool1d(ad.ones(1, 4), 2, 2).shape
    adjoint.Size([1, 2])
    """
    return _lp_pool(1, input, norm_type, kernel_size, stride, ceil_mode)


@explaining
def lp_pool2d(
    input: Tensor,
    norm_type: float,
    kernel_size: Dims,
    stride: Dims | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """p-norm of each window of images.

        y[i] = (sum over k of x[stride i + k]^p)^(1 / p)

    Args:
        input: Values.
        norm_type: Exponent p; of inf the largest size, of -inf the least.
        kernel_size: Size of the windows, an int or one per dimension.
        stride: Distance between neighbouring windows, an int or one per dimension. Default: None,
            kernel_size.
        ceil_mode: Round the number of windows up, not down: the last one may reach over the end.
            Default: False.

    Shapes: (batch, channels, height, width) -> (batch, channels, out_height, out_width), or without
    batch.
    Errors: ShapeError where no window fits.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.lp_pool2d.html

    >>> from adjoint.ops.nn.averaging import lp_pool2d
    >>> lp_pool2d(ad.ones(1, 4, 4), 2, 2).shape
    adjoint.Size([1, 2, 2])
    """
    return _lp_pool(2, input, norm_type, kernel_size, stride, ceil_mode)


@explaining
def lp_pool3d(
    input: Tensor,
    norm_type: float,
    kernel_size: Dims,
    stride: Dims | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """p-norm of each window of volumes.

        y[i] = (sum over k of x[stride i + k]^p)^(1 / p)

    Args:
        input: Values.
        norm_type: Exponent p; of inf the largest size, of -inf the least.
        kernel_size: Size of the windows, an int or one per dimension.
        stride: Distance between neighbouring windows, an int or one per dimension. Default: None,
            kernel_size.
        ceil_mode: Round the number of windows up, not down: the last one may reach over the end.
            Default: False.

    Shapes: (batch, channels, depth, height, width) -> (batch, channels, out_depth, out_height,
    out_width), or without batch.
    Errors: ShapeError where no window fits.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.lp_pool3d.html

    >>> from adjoint.ops.nn.averaging import lp_pool3d
    >>> lp_pool3d(ad.ones(1, 4, 4, 4), 2, 2).shape
    adjoint.Size([1, 2, 2, 2])
    """
    return _lp_pool(3, input, norm_type, kernel_size, stride, ceil_mode)
