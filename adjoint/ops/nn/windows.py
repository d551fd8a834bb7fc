"""Windows that slide over images, shared by convolution and pooling, and their arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.errors import InvalidArgument, InvalidType, ShapeError
from ...core.tensor_type import Tensor

Sizes = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]


def window_count(
    size: Sizes, kernel: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes
) -> Sizes:
    """Number of windows that fit along each dimension."""
    return tuple(
        (n + lo + hi - (k - 1) * d - 1) // s + 1
        for n, k, s, (lo, hi), d in zip(size, kernel, stride, padding, dilation, strict=True)
    )


def reference_windows(
    x: Any, kernel: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes, fill: Any = 0
) -> Any:
    """The windows of the last dimensions, (..., *count, *kernel), by NumPy, as the reference of
    ops. Padding after a dimension may be negative.
    """
    rank = len(kernel)
    ends = zip(x.shape[-rank:], padding, strict=True)
    keep = (slice(None, n + min(hi, 0)) for n, (_, hi) in ends)
    pads = [(0, 0)] * (x.ndim - rank) + [(lo, max(hi, 0)) for lo, hi in padding]
    padded: Any = np.pad(x[(..., *keep)], pads, constant_values=fill)
    spans = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True))
    windows: Any = np.lib.stride_tricks.sliding_window_view(padded, spans, tuple(range(-rank, 0)))
    return windows[(..., *(slice(None, None, step) for step in (*stride, *dilation)))]


def hashable(value: Any) -> Any:
    """An argument, which may be a list of ints, as a cache key."""
    return tuple(value) if isinstance(value, list) else value


def per_dimension(value: Any, rank: int, name: str, argument: str, low: int = 1) -> Sizes:
    """An int, or one int per dimension, as a tuple."""
    if isinstance(value, (tuple, list)):
        sizes = tuple(value) * (rank if len(value) == 1 else 1)
    else:
        sizes = (value,) * rank
    if not all(isinstance(size, (int, np.integer)) for size in sizes):
        raise InvalidType(f"{name}: {argument} must be an int or a tuple of ints, got {value!r}")
    if len(sizes) != rank:
        raise InvalidArgument(
            f"{name}: expected {argument} to be a single integer value or a list of {rank} values "
            f"to match the spatial dimensions, but got {argument}={value!r}"
        )
    if min(sizes) < low:
        raise InvalidArgument(f"{name}: {argument} must be at least {low}, got {value!r}")
    return tuple(int(size) for size in sizes)


def batched(input: Tensor, rank: int, name: str) -> tuple[Tensor, bool]:
    """`input` with a batch dimension, and whether it had one."""
    ndim = input._data.ndim
    if ndim == rank + 2:
        return input, True
    if ndim == rank + 1:
        return input.unsqueeze(0), False
    raise ShapeError(
        f"{name}: Expected {rank + 1}D (unbatched) or {rank + 2}D (batched) input to {name}, but "
        f"got input of size: {list(input.shape)}"
    )
