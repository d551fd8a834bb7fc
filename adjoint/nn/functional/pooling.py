"""Average pooling and adaptive pooling, as compositions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import adjoint as ad

from ...core.errors import InvalidArgument, ShapeError
from ...tensor import Tensor

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "avg_pool1d",
    "avg_pool2d", "avg_pool3d",
]  # fmt: skip


def _sizes(value: Any, rank: int, what: str) -> tuple[int, ...]:
    if isinstance(value, int):
        return (value,) * rank
    found = tuple(value)
    if len(found) == 1:
        return found * rank
    if len(found) != rank:
        raise InvalidArgument(f"{what} must be an int or {rank} ints, got {value!r}")
    return found


def _output_size(size: int, kernel: int, stride: int, padding: int, ceil_mode: bool) -> int:
    span = size + 2 * padding - kernel
    count = (-(-span // stride) if ceil_mode else span // stride) + 1
    if ceil_mode and (count - 1) * stride >= size + padding:
        count -= 1  # the last window would begin in the padding on the right
    return count


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
    kernel = _sizes(kernel_size, rank, f"{name}: kernel_size")
    strides = kernel if stride in (None, ()) else _sizes(stride, rank, f"{name}: stride")
    pads = _sizes(padding, rank, f"{name}: padding")
    if input.ndim not in (rank + 1, rank + 2):
        raise ShapeError(
            f"{name}: expected {rank + 1}D or {rank + 2}D input, got shape {tuple(input.shape)}"
        )
    if any(s <= 0 for s in strides) or any(k <= 0 for k in kernel):
        raise InvalidArgument(f"{name}: kernel {kernel} and stride {strides} must be positive")
    if any(2 * p > k for p, k in zip(pads, kernel, strict=True)):
        raise InvalidArgument(
            f"{name}: pad should be at most half of effective kernel size, but got pad={pads} and "
            f"kernel_size={kernel}"
        )
    if divisor_override == 0:
        raise InvalidArgument(f"{name}: divisor must be not zero")
    sizes = tuple(input.shape[-rank:])
    counts = tuple(
        _output_size(n, k, s, p, ceil_mode)
        for n, k, s, p in zip(sizes, kernel, strides, pads, strict=True)
    )
    if any(count < 1 for count in counts):
        raise ShapeError(
            f"{name}: input of spatial size {sizes} gives output of size {counts}, which is too "
            f"small; kernel_size={kernel}, padding={pads}"
        )
    exact = all(n == c * k for n, c, k in zip(sizes, counts, kernel, strict=True))
    if exact and kernel == strides and not any(pads) and divisor_override is None:
        return _mean_of_blocks(input, counts, kernel)
    summed = _window_sums(input, kernel, strides, pads, counts)
    divisors = _divisors(sizes, kernel, strides, pads, counts, count_include_pad)
    if divisor_override is not None:
        return summed / divisor_override
    return summed / ad.from_numpy(divisors).to(input.dtype)


def _mean_of_blocks(input: Tensor, counts: Sequence[int], kernel: Sequence[int]) -> Tensor:
    """The means of blocks that tile the input."""
    lead = tuple(input.shape[: -len(kernel)])
    split = [n for pair in zip(counts, kernel, strict=True) for n in pair]
    axes = tuple(range(len(lead) + 1, len(lead) + 2 * len(kernel), 2))
    result: Tensor = input.reshape(*lead, *split).mean(axes)
    return result


def _window_sums(
    input: Tensor,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    counts: Sequence[int],
) -> Tensor:
    """The sums of all windows: a convolution with ones, each channel for itself."""
    rank = len(kernel)
    lead = tuple(input.shape[:-rank])
    sizes = tuple(input.shape[-rank:])
    x = input.reshape(math.prod(lead), 1, *sizes)
    # With ceil_mode the last window may reach past the padding: add zeros on the right.
    after = [
        max((c - 1) * s + k - n - p, p)
        for c, s, k, n, p in zip(counts, strides, kernel, sizes, pads, strict=True)
    ]
    if tuple(after) != tuple(pads):
        for axis, (before, more) in enumerate(zip(pads, after, strict=True), 2):
            if more > before:
                shape = list(x.shape)
                shape[axis] = more - before
                x = ad.cat([x, x.new_zeros(shape)], axis)
    ones = x.new_ones((1, 1, *kernel))
    convolve = getattr(ad, f"conv{rank}d")
    y = convolve(x, ones, stride=tuple(strides), padding=tuple(pads))
    for axis, count in enumerate(counts, 2):
        y = y.narrow(axis, 0, count)
    result: Tensor = y.reshape(*lead, *counts)
    return result


def _divisors(
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    counts: Sequence[int],
    count_include_pad: bool,
) -> Any:
    """How many elements each window counts."""
    total: Any = np.ones(())
    for n, k, s, p, c in zip(sizes, kernel, strides, pads, counts, strict=True):
        start = np.arange(c) * s - p
        end = np.minimum(start + k, n + p)
        if not count_include_pad:
            start, end = np.maximum(start, 0), np.minimum(end, n)
        total = np.multiply.outer(total, (end - start).astype(np.float64))
    return total


def avg_pool1d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window of a signal.

    Shapes: (..., channels, length).
    Errors: ShapeError where no window fits.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.avg_pool1d.html

    >>> ad.nn.functional.avg_pool1d(ad.tensor([[1., 3., 5., 7.]]), 2)
    tensor([[2., 6.]])
    """
    return _avg_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


def avg_pool2d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window of an image.

    Shapes: (..., channels, height, width).
    Errors: ShapeError where no window fits.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.avg_pool2d.html

    >>> ad.nn.functional.avg_pool2d(ad.ones(1, 1, 4, 4), 2).shape
    adjoint.Size([1, 1, 2, 2])
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
    """The mean of each window of a volume.

    Shapes: (..., channels, depth, height, width).
    Errors: ShapeError where no window fits.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.avg_pool3d.html

    >>> ad.nn.functional.avg_pool3d(ad.ones(1, 1, 4, 4, 4), 2).shape
    adjoint.Size([1, 1, 2, 2, 2])
    """
    return _avg_pool(
        3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


# ---- adaptive ------------------------------------------------------------------------------------


def _adaptive_avg_pool(rank: int, input: Tensor, output_size: Any) -> Tensor:
    name = f"adaptive_avg_pool{rank}d"
    if input.ndim not in (rank + 1, rank + 2):
        raise ShapeError(
            f"{name}: Expected {rank + 1}D or {rank + 2}D tensor, got shape {tuple(input.shape)}"
        )
    sizes = tuple(input.shape[-rank:])
    wanted = output_size if isinstance(output_size, (tuple, list)) else (output_size,) * rank
    if len(wanted) != rank:
        raise InvalidArgument(f"{name}: output_size must be an int or {rank} of them")
    counts = tuple(n if w is None else w for n, w in zip(sizes, wanted, strict=True))
    if all(n % c == 0 for n, c in zip(sizes, counts, strict=True)):
        blocks = [n // c for n, c in zip(sizes, counts, strict=True)]
        return _mean_of_blocks(input, counts, blocks)
    result = input
    for axis, (size, count) in enumerate(zip(sizes, counts, strict=True), input.ndim - rank):
        weights = ad.from_numpy(_bin_weights(size, count)).to(input.dtype)
        result = (result.transpose(axis, -1) @ weights).transpose(axis, -1)
    return result


def _bin_weights(size: int, count: int) -> Any:
    """The matrix (size, count) whose columns average one bin each; bins may overlap."""
    weights = np.zeros((size, count))
    for i in range(count):
        start, end = i * size // count, -(-(i + 1) * size // count)
        weights[start:end, i] = 1 / (end - start)
    return weights


def adaptive_avg_pool1d(input: Tensor, output_size: Any) -> Tensor:
    """The mean of each of `output_size` bins of a signal.

    Shapes: (..., channels, length) -> (..., channels, output_size).
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.adaptive_avg_pool1d.html

    >>> ad.nn.functional.adaptive_avg_pool1d(ad.tensor([[1., 3., 5., 7.]]), 2)
    tensor([[2., 6.]])
    """
    return _adaptive_avg_pool(1, input, output_size)


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """The mean of each bin of an image; None keeps a size.

    Shapes: (..., channels, height, width) -> (..., channels, *output_size).
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.adaptive_avg_pool2d.html

    >>> ad.nn.functional.adaptive_avg_pool2d(ad.ones(1, 2, 5, 7), (2, None)).shape
    adjoint.Size([1, 2, 2, 7])
    """
    return _adaptive_avg_pool(2, input, output_size)


def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """The mean of each bin of a volume; None keeps a size.

    Shapes: (..., channels, depth, height, width) -> (..., channels, *output_size).
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.adaptive_avg_pool3d.html

    >>> ad.nn.functional.adaptive_avg_pool3d(ad.ones(1, 2, 4, 4, 4), 1).shape
    adjoint.Size([1, 2, 1, 1, 1])
    """
    return _adaptive_avg_pool(3, input, output_size)
