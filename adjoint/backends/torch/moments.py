"""The mean and the variance of each channel as Triton kernels, which read what they are of once.

Each element of a block adds up the distances of those that it sees, one for each round, from the
first, and their squares. That the first may lie far off does no harm: its own distance from the
mean is part of the variance, beside which what is rounded is small. These sums, and then those of
programs that share a channel, are joined by their numbers.

Source: https://doi.org/10.1080/00031305.1983.10483115 (Chan, Golub and LeVeque)
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch

from ...core import policy
from ...core.spec import prod
from ..codegen import triton
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
    moments = torch.empty(3, channels, **given).unbind()
    parts = torch.empty(2, shares, channels, **given).unbind()
    function_of(source, "moments")[(programs, shares)](t, *parts, num_warps=8)
    function_of(source, "moments_end")[(ends,)](*parts, *moments)
    return Array(moments[0]), Array(moments[1]), Array(moments[2])


class _Cut(NamedTuple):
    """Sizes of what the programs do, and of what they read."""

    total: int  # places of a channel
    channels: int
    beside: int  # channels of a block
    rows: int  # of a block: places that are read of each of its channels
    programs: int  # that differ in their channels
    share: int  # places of a channel that one program reads
    shares: int  # programs for the same channels
    width: int  # shares for which a block has room in the end
    ending: int  # and its channels


def _cut(total: int, channels: int, last: bool) -> _Cut:
    """The sizes for channels of so many places: with the channels last, neighbours are read
    together; and there are enough programs to keep the device busy.
    """
    beside = min(triton.COLUMNS, 1 << (channels - 1).bit_length()) if last else 1
    rows = TILE // beside
    programs = -(-channels // beside)
    rounds = -(-total // rows)  # of blocks
    share = -(-rounds // min(rounds, max(triton.PROGRAMS // programs, 1))) * rows
    shares = -(-total // share)
    width = 1 << (shares - 1).bit_length()
    ending = max(1, min(TILE // width, 1 << (channels - 1).bit_length()))
    return _Cut(total, channels, beside, rows, programs, share, shares, width, ending)


@functools.lru_cache(maxsize=policy.KERNELS)
def _text(
    batch: int, channels: int, places: int, last: bool, eps: float
) -> tuple[str, int, int, int]:
    """The functions, and how many programs there are for channels, for shares, and in the end."""
    cut = _cut(batch * places, channels, last)
    where = f"row * {channels} + channel"
    if not last:
        where = f"(row // {places} * {channels} + channel) * {places} + row % {places}"
    text = f"""\
import triton
import triton.language as tl


{_text_of_shares(cut, where)}


{_text_of_end(cut, eps)}
"""
    return text, cut.programs, cut.shares, -(-channels // cut.ending)


def _text_of_shares(cut: _Cut, where: str) -> str:
    """The function that gives the mean of each share of a channel, and the sum of the squares of
    the distances from it; `where` is the offset of a row and channel in x.
    """
    total, channels, beside, rows, share = cut.total, cut.channels, cut.beside, cut.rows, cut.share
    return f"""\
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
    tl.store(squares + (tl.program_id(1) * {channels} + channel), square, mask=channel_in)"""


def _text_of_end(cut: _Cut, eps: float) -> str:
    """The function that joins the shares of each channel."""
    total, channels, ending, share = cut.total, cut.channels, cut.ending, cut.share
    return f"""\
@triton.jit
def moments_end(means, squares, mean, variance, root):
    channel = tl.program_id(0) * {ending} + tl.arange(0, {ending})[None, :]
    channel_in = channel < {channels}
    share = tl.arange(0, {cut.width})[:, None]
    here = (share < {cut.shares}) & channel_in
    count = tl.maximum(tl.minimum({total} - share * {share}, {share}), 0).to(tl.float32)
    m = tl.load(means + (share * {channels} + channel), mask=here, other=0)
    s = tl.load(squares + (share * {channels} + channel), mask=here, other=0)
    whole = tl.sum(count * m, 0, keep_dims=True) / {float(total)}
    apart = m - whole
    square = tl.sum(s + tl.where(here, count * apart * apart, 0.0), 0, keep_dims=True)
    tl.store(mean + channel, whole, mask=channel_in)
    square = square / {float(total)}
    tl.store(variance + channel, square, mask=channel_in)
    tl.store(root + channel, tl.rsqrt(square + {eps!r}), mask=channel_in)"""
