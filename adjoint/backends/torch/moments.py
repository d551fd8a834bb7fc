"""The mean and the variance of each channel as Triton kernels, which read what they are of once.

Each element of a block adds up the distances of those that it sees, one for each round, from the
first, and their squares. That the first may lie far off does no harm: its own distance from the
mean is part of the variance, beside which what is rounded is small. These sums, and then those of
programs that share a channel, are joined by their numbers.

Source: https://doi.org/10.1080/00031305.1983.10483115 (Chan, Golub and LeVeque)
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from ...core import policy
from ...core.spec import prod
from ...kernels import triton
from .array import Array, allocating
from .fused import function_of

__all__ = ["moments_of_channels"]

TILE = 4096  # elements of a block


@allocating
def moments_of_channels(x: Array, eps: float) -> tuple[Array, Array, Array]:
    """The mean and the biased variance of the second dimension's places, and the reciprocal of the
    root of the variance and `eps`; in float32.
    """
    t = x.tensor
    last = x.is_channels_last()
    t = t if last else t.contiguous()
    batch, channels, *size = t.shape
    source, programs, shares, ends = _text(batch, channels, prod(size), last, eps)
    given: dict[str, Any] = {"dtype": torch.float32, "device": t.device}
    found = torch.empty(3, channels, **given).unbind()
    parts = torch.empty(2, shares, channels, **given).unbind()
    function_of(source, "moments")[(programs, shares)](t, *parts, num_warps=8)
    function_of(source, "moments_end")[(ends,)](*parts, *found)
    return Array(found[0]), Array(found[1]), Array(found[2])


@functools.lru_cache(maxsize=policy.KERNELS)
def _text(
    batch: int, channels: int, places: int, last: bool, eps: float
) -> tuple[str, int, int, int]:
    """The functions, and how many programs there are for channels, for shares, and in the end."""
    total = batch * places
    beside = min(triton.COLUMNS, 1 << (channels - 1).bit_length()) if last else 1
    rows = TILE // beside
    programs = -(-channels // beside)
    rounds = -(-total // rows)  # of blocks
    share = -(-rounds // min(rounds, max(triton.PROGRAMS // programs, 1))) * rows
    shares = -(-total // share)
    width = 1 << (shares - 1).bit_length()
    ending = max(1, min(TILE // width, 1 << (channels - 1).bit_length()))
    where = f"row * {channels} + channel"
    if not last:
        where = f"(row // {places} * {channels} + channel) * {places} + row % {places}"
    text = f"""\
import triton
import triton.language as tl


@triton.jit
def moments(x, means, squares):
    channel = tl.program_id(0) * {beside} + tl.arange(0, {beside})[None, :]
    channel_in = channel < {channels}
    row = (tl.program_id(1) * {share} + tl.arange(0, {rows}))[:, None]
    first = tl.load(x + ({where}), mask=(row < {total}) & channel_in, other=0).to(tl.float32)
    count = tl.full(({rows}, 1), 0.0, tl.float32)
    mean = tl.full(({rows}, {beside}), 0.0, tl.float32)
    square = tl.full(({rows}, {beside}), 0.0, tl.float32)
    for start in range(tl.program_id(1) * {share}, tl.program_id(1) * {share} + {share}, {rows}):
        row = (start + tl.arange(0, {rows}))[:, None]
        row_in = row < {total}
        v = tl.load(x + ({where}), mask=row_in & channel_in, other=0).to(tl.float32)
        count = count + row_in.to(tl.float32)
        apart = tl.where(row_in, v - first, 0.0)
        mean = mean + apart
        square = square + apart * apart
    apart = mean / tl.maximum(count, 1.0)
    square = tl.maximum(square - apart * mean, 0.0)
    mean = first + apart
    seen = tl.maximum(tl.sum(count, 0, keep_dims=True), 1.0)
    whole = tl.sum(count * mean, 0, keep_dims=True) / seen
    apart = mean - whole
    square = tl.sum(square + count * apart * apart, 0, keep_dims=True)
    tl.store(means + (tl.program_id(1) * {channels} + channel), whole, mask=channel_in)
    tl.store(squares + (tl.program_id(1) * {channels} + channel), square, mask=channel_in)


@triton.jit
def moments_end(means, squares, mean, variance, root):
    channel = tl.program_id(0) * {ending} + tl.arange(0, {ending})[None, :]
    channel_in = channel < {channels}
    share = tl.arange(0, {width})[:, None]
    here = (share < {shares}) & channel_in
    count = tl.maximum(tl.minimum({total} - share * {share}, {share}), 0).to(tl.float32)
    m = tl.load(means + (share * {channels} + channel), mask=here, other=0)
    s = tl.load(squares + (share * {channels} + channel), mask=here, other=0)
    whole = tl.sum(count * m, 0, keep_dims=True) / {float(total)}
    apart = m - whole
    square = tl.sum(s + tl.where(here, count * apart * apart, 0.0), 0, keep_dims=True)
    tl.store(mean + channel, whole, mask=channel_in)
    square = square / {float(total)}
    tl.store(variance + channel, square, mask=channel_in)
    tl.store(root + channel, tl.rsqrt(square + {eps!r}), mask=channel_in)
"""
    return text, programs, shares, -(-channels // ending)
