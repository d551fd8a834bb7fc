"""Max pooling of images as Triton kernels, which keep for its gradient which of a window's elements
is the largest, in a byte: PyTorch's keep eight, and add the gradient up element by element.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from ...core import policy
from ...core.dtype import LOW_PRECISION, float32
from ...core.spec import Spec, prod
from ..codegen.triton import BLOCK, OFFSETS, head
from .array import Array, allocating
from .fused import function_of, reason_off

__all__ = ["has_kernels", "largest", "spread"]

Sizes = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]


def has_kernels(x: Spec, kernel: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes) -> bool:
    """Whether there are kernels for images of this spec and such windows, of which there are no
    more than four times as many as elements.
    """
    return (
        len(kernel) == 2 and len(x.shape) == 4 and x.dtype in (float32, *LOW_PRECISION)
        and set(dilation) == {1} and prod(kernel) <= 256 and 0 < prod(x.shape) < OFFSETS // 4
        and all(0 <= low < k for (low, _), k in zip(padding, kernel, strict=True))
        and not reason_off(x.device)
    )  # fmt: skip


@allocating
def largest(
    x: Array, kernel: Sizes, stride: Sizes, padding: Pairs, count: Sizes
) -> tuple[Array, Array]:
    """The largest element in each window, NaN where one is, and its number in the window."""
    last = x.is_channels_last()
    t = x.tensor if last else x.tensor.contiguous()
    y = _empty((*t.shape[:2], *count), t, last)
    places = _empty(y.shape, t, last, torch.uint8)
    if not y.numel():
        return Array(y), Array(places)
    source = _largest(tuple(t.shape), kernel, stride, padding, count, last)
    function_of(source, "max_pool")[(-(-y.numel() // BLOCK),)](t, y, places)
    return Array(y), Array(places)


@allocating
def spread(
    x: Array, places: Array, g: Array, kernel: Sizes, stride: Sizes, padding: Pairs
) -> Array:
    """Images like x that have each window's g at the place of its largest element, added up."""
    last = places.is_channels_last()
    layout = torch.channels_last if last else torch.contiguous_format
    given = g.tensor.contiguous(memory_format=layout)
    made = _empty(x.shape, given, last)
    if not given.numel():
        return Array(made.zero_())
    count = places.shape[2:]
    source = _spread(tuple(x.shape), kernel, stride, padding, tuple(count), last)
    function_of(source, "max_pool_backward")[(-(-made.numel() // BLOCK),)](
        places.tensor, given, made
    )
    return Array(made)


def _empty(shape: Sequence[int], like: Any, last: bool, dtype: Any = None) -> Any:
    layout = torch.channels_last if last else torch.contiguous_format
    dtype = like.dtype if dtype is None else dtype
    return torch.empty(tuple(shape), dtype=dtype, device=like.device, memory_format=layout)


# ---- the text ------------------------------------------------------------------------------------


def _begin(total: int, channels: int, size: Sequence[int], last: bool) -> list[str]:
    """Lines for the numbers of a program's elements, and where they are in their images."""
    h, w = size
    after = channels if last else 1  # elements from one column to the next
    lines = [f"at = tl.program_id(0) * {BLOCK} + tl.arange(0, {BLOCK})", f"at_in = at < {total}"]
    lines += [f"w = at // {after} % {w}", f"h = at // {after * w} % {h}"]
    lines.append(f"image = at // {after * w * h}")
    return [*lines, f"c = at % {channels}"] if last else lines


def _offset(channels: int, h: str, w: str, size: Sequence[int], last: bool) -> str:
    """Offset of an element in an image of this size."""
    rows = f"(image * {size[0]} + {h}) * {size[1]} + {w}"
    return f"({rows}) * {channels} + c" if last else rows


def _text(name: str, arguments: Sequence[str], lines: Sequence[str]) -> str:
    return "\n".join([head(name, arguments), *(f"    {line}" for line in lines), ""])


@functools.lru_cache(maxsize=policy.KERNELS)
def _largest(
    shape: Sizes, kernel: Sizes, stride: Sizes, padding: Pairs, count: Sizes, last: bool
) -> str:
    batch, channels, *size = shape
    lines = _begin(batch * channels * prod(count), channels, count, last)
    lines.append(f'best = tl.full(({BLOCK},), float("-inf"), tl.float32)')
    lines.append(f"place = tl.full(({BLOCK},), -1, tl.int32)")
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            lines += [
                f"y = h * {stride[0]} + {i - padding[0][0]}",
                f"x = w * {stride[1]} + {j - padding[1][0]}",
                f"inside = at_in & (y >= 0) & (y < {size[0]}) & (x >= 0) & (x < {size[1]})",
                f"offset = {_offset(channels, 'y', 'x', size, last)}",
                'v = tl.load(images + offset, mask=inside, other=float("-inf")).to(tl.float32)',
                "more = inside & ((v > best) | (v != v) | (place < 0))",
                "best = tl.where(more, v, best)",
                f"place = tl.where(more, {i * kernel[1] + j}, place)",
            ]
    lines.append("tl.store(largest + at, best, mask=at_in)")
    lines.append("tl.store(places + at, place.to(tl.uint8), mask=at_in)")
    return _text("max_pool", ("images", "largest", "places"), lines)


@functools.lru_cache(maxsize=policy.KERNELS)
def _spread(
    shape: Sizes, kernel: Sizes, stride: Sizes, padding: Pairs, count: Sizes, last: bool
) -> str:
    batch, channels, *size = shape
    lines = _begin(batch * channels * prod(size), channels, size, last)
    lines.append(f"found = tl.full(({BLOCK},), 0.0, tl.float32)")
    # The windows that see an element begin at most a kernel before it.
    windows = [-(-k // s) for k, s in zip(kernel, stride, strict=True)]
    for i in range(windows[0]):
        for j in range(windows[1]):
            lines += [
                f"y = (h + {padding[0][0]}) // {stride[0]} - {i}",
                f"x = (w + {padding[1][0]}) // {stride[1]} - {j}",
                f"down = h + {padding[0][0]} - y * {stride[0]}",
                f"right = w + {padding[1][0]} - x * {stride[1]}",
                f"inside = at_in & (y >= 0) & (y < {count[0]}) & (x >= 0) & (x < {count[1]})",
                f"inside = inside & (down < {kernel[0]}) & (right < {kernel[1]})",
                f"offset = {_offset(channels, 'y', 'x', count, last)}",
                "place = tl.load(places + offset, mask=inside, other=0).to(tl.int32)",
                f"here = inside & (place == down * {kernel[1]} + right)",
                "g = tl.load(gradients + offset, mask=inside, other=0).to(tl.float32)",
                "found += tl.where(here, g, 0.0)",
            ]
    lines.append("tl.store(made + at, found, mask=at_in)")
    return _text("max_pool_backward", ("places", "gradients", "made"), lines)
