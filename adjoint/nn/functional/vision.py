"""Resizing and rearranging images: interpolate, pixel and channel shuffles."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import dtype as dt
from ...core.errors import InvalidArgument, ShapeError, Unsupported
from ...ops.create.exchange import from_numpy
from ...ops.nn.averaging import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d
from ...ops.shape.sizes import hold_sizes
from ...runtime.public import explaining
from ...tensor import Tensor

if TYPE_CHECKING:
    from ...ops.argument_types import Dims

__all__ = [
    "channel_shuffle", "interpolate", "native_channel_shuffle", "pixel_shuffle",
    "pixel_unshuffle", "upsample", "upsample_bilinear", "upsample_nearest",
]  # fmt: skip


# ---- rearranging ---------------------------------------------------------------------------------


@explaining
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """Groups of r^2 channels as the pixels of a larger image (Shi et al., 2016).

        y[c, h r + i, w r + j] = x[c r^2 + i r + j, h, w]

    Args:
        input: Values.
        upscale_factor: Factor r by which height and width grow.

    Shapes: (..., C r r, H, W) -> (..., C, H r, W r).
    Errors: ShapeError for less than three dimensions, and where the channels are no multiple of
    r^2; InvalidArgument for a factor that is not positive.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.pixel_shuffle.html

    >>> ad.nn.functional.pixel_shuffle(ad.arange(4.).reshape(1, 4, 1, 1), 2)
    tensor([[[[0., 1.],
              [2., 3.]]]])
    """
    input = hold_sizes("pixel_shuffle", input)
    r = upscale_factor
    _assert_factor("pixel_shuffle", input, r)
    *lead, channels, height, width = input.shape
    if channels % (r * r):
        raise ShapeError(
            f"pixel_shuffle: expects its input's 'channel' dimension to be divisible by the square "
            f"of upscale_factor, but input.size(-3)={channels} is not divisible by {r * r}"
        )
    n = len(lead)
    split = input.reshape(*lead, channels // (r * r), r, r, height, width)
    mixed = split.permute(*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return mixed.reshape(*lead, channels // (r * r), height * r, width * r)


@explaining
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """Blocks of r^2 pixels as channels of a smaller image.

        y[c r^2 + i r + j, h, w] = x[c, h r + i, w r + j]

    Args:
        input: Values.
        downscale_factor: Factor r by which height and width shrink.

    Shapes: (..., C, H r, W r) -> (..., C r r, H, W).
    Errors: ShapeError for less than three dimensions, and where height or width is no multiple of
    r; InvalidArgument for a factor that is not positive.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.pixel_unshuffle.html

    >>> ad.nn.functional.pixel_unshuffle(ad.zeros(1, 1, 4, 4), 2).shape
    adjoint.Size([1, 4, 2, 2])
    """
    input = hold_sizes("pixel_unshuffle", input)
    r = downscale_factor
    _assert_factor("pixel_unshuffle", input, r)
    *lead, channels, height, width = input.shape
    if height % r or width % r:
        raise ShapeError(
            f"pixel_unshuffle: expects height and width to be divisible by downscale_factor, but "
            f"{(height, width)} are not divisible by {r}"
        )
    n = len(lead)
    split = input.reshape(*lead, channels, height // r, r, width // r, r)
    mixed = split.permute(*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return mixed.reshape(*lead, channels * r * r, height // r, width // r)


def _assert_factor(name: str, input: Tensor, factor: int) -> None:
    if input.ndim < 3:
        raise ShapeError(
            f"{name}: expects input to have at least 3 dimensions, but got shape "
            f"{tuple(input.shape)}"
        )
    if factor <= 0:
        raise InvalidArgument(f"{name}: expects a positive factor, but got {factor}")


@explaining
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Channels of several groups interleaved (Zhang et al., 2018).

        y[n, j groups + g] = x[n, g (channels / groups) + j]

    Args:
        input: Values.
        groups: Number of groups; it divides the channels.

    Shapes: (batch, channels, ...) -> the same.
    Errors: ShapeError for less than three dimensions and where `groups` does not divide the
    channels; InvalidArgument for groups that are not positive.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.channel_shuffle.html

    >>> ad.nn.functional.channel_shuffle(ad.arange(4.).reshape(1, 4, 1), 2).flatten()
    tensor([0., 2., 1., 3.])
    """
    if input.ndim < 3:
        raise ShapeError(
            f"channel_shuffle: expected an input of more than 2 dims, got {tuple(input.shape)}"
        )
    if groups <= 0:
        raise InvalidArgument(
            f"channel_shuffle: Number of groups to divide channels in must be positive. Value of "
            f"groups:{groups}"
        )
    batch, channels, *size = input.shape
    if channels % groups:
        raise ShapeError(
            f"channel_shuffle: Number of channels must be divisible by groups. Got {channels} "
            f"channels and {groups} groups."
        )
    split = input.reshape(batch, groups, channels // groups, *size)
    return split.transpose(1, 2).reshape(input.shape)


native_channel_shuffle = channel_shuffle


# ---- resizing ------------------------------------------------------------------------------------

# Each dimension for itself: output element i is a weighted sum of a few input elements ("taps").
_Taps = list[tuple[Any, Any]]  # (index of each output element's tap, its weight or None for 1)


def _scale(size: int, count: int, factor: float | None, align_corners: bool) -> float:
    """How far apart in the input two neighbours of the output are."""
    if align_corners:
        return (size - 1) / (count - 1) if count > 1 else 0.0
    return 1.0 / factor if factor is not None and factor > 0 else size / count


def _nearest(size: int, count: int, factor: float | None, align: bool, wide: Any) -> _Taps:
    scale = wide(_scale(size, count, factor, False))
    places = np.floor(np.float32(np.arange(count, dtype=wide) * scale))
    return [(np.minimum(places.astype(np.int64), size - 1), None)]


def _nearest_exact(size: int, count: int, factor: float | None, align: bool, wide: Any) -> _Taps:
    scale = wide(_scale(size, count, factor, False))
    places = np.floor((np.arange(count, dtype=wide) + wide(0.5)) * scale)
    return [(np.clip(places.astype(np.int64), 0, size - 1), None)]


def _source(size: int, count: int, factor: float | None, align: bool, wide: Any) -> Any:
    """Where in the input each output element lies."""
    scale = wide(_scale(size, count, factor, align))
    index = np.arange(count, dtype=wide)
    return index * scale if align else (index + wide(0.5)) * scale - wide(0.5)


def _linear(size: int, count: int, factor: float | None, align: bool, wide: Any) -> _Taps:
    places = np.maximum(_source(size, count, factor, align, wide), 0)
    low = np.minimum(places.astype(np.int64), size - 1)
    weight = np.clip(places - low, 0, 1)
    return [(low, 1 - weight), (np.minimum(low + 1, size - 1), weight)]


def _cubic_kernel(t: Any, a: float) -> Any:
    t = np.abs(t)
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = (((t - 5) * t + 8) * t - 4) * a
    return np.where(t <= 1, near, np.where(t < 2, far, 0))


def _cubic(size: int, count: int, factor: float | None, align: bool, wide: Any) -> _Taps:
    places = _source(size, count, factor, align, wide)
    low = np.floor(places)
    taps = []
    for offset in (-1, 0, 1, 2):
        index = np.clip(low + offset, 0, size - 1).astype(np.int64)
        taps.append((index, _cubic_kernel(places - low - offset, -0.75)))
    return taps


_MODES: dict[str, tuple[Callable[..., _Taps], tuple[int, ...]]] = {  # taps, ranks
    "nearest": (_nearest, (1, 2, 3)),
    "nearest-exact": (_nearest_exact, (1, 2, 3)),
    "linear": (_linear, (1,)),
    "bilinear": (_linear, (2,)),
    "trilinear": (_linear, (3,)),
    "bicubic": (_cubic, (2,)),
}
_AREA = (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)


def _resize(x: Any, axis: int, taps: _Taps, factor: float | None) -> Any:
    """`x` with the weighted sums of `taps` along `axis`."""
    count = len(taps[0][0])
    size = x.shape[axis]
    if len(taps) == 1:
        index = taps[0][0]
        times = count // max(size, 1)
        if count == times * size and np.array_equal(index, np.arange(count) // times):
            shape = list(x.shape)
            tall = x.unsqueeze(axis + 1).expand(*shape[: axis + 1], times, *shape[axis + 1 :])
            return tall.reshape(*shape[:axis], count, *shape[axis + 1 :])
        return x.index_select(axis, from_numpy(index).to(x.device))
    result = None
    along = [1] * x.ndim
    along[axis] = count
    for index, weight in taps:
        weights = from_numpy(np.asarray(weight, np.float64)).to(x).reshape(along)
        term = x.index_select(axis, from_numpy(index).to(x.device)) * weights
        result = term if result is None else result + term
    return result


def _wide_kernel(size: int, count: int, factor: float | None, align: bool, a: Any) -> Any:
    """The weights (inputs, outputs) of a kernel as wide as the output's elements are apart."""
    scale = _scale(size, count, factor, align)
    stretch = max(scale, 1.0)
    support = (1.0 if a is None else 2.0) * stretch
    centres = scale * (np.arange(count) + 0.5)
    places = np.arange(size)[:, None]
    first = np.maximum((centres - support + 0.5).astype(np.int64), 0)
    last = np.minimum((centres + support + 0.5).astype(np.int64), size)
    distance = (places - centres + 0.5) / stretch
    weights = np.maximum(1 - np.abs(distance), 0) if a is None else _cubic_kernel(distance, a)
    weights = np.where((places >= first) & (places < last), weights, 0)
    return weights / weights.sum(0)


def _weighted(x: Any, axis: int, weights: Any) -> Any:
    """Sums along `axis` by weights (inputs, outputs); bytes by whole ones, as PyTorch adds them up:
    of 15 bits and rounded.
    """
    if x.dtype is not dt.uint8:
        return (x.transpose(axis, -1) @ from_numpy(weights).to(x)).transpose(axis, -1)
    bits = 0
    while bits < 22 and int(0.5 + weights.max() * 2 ** (bits + 1)) < 1 << 15:
        bits += 1
    whole = np.trunc(weights * 2**bits + np.copysign(0.5, weights))
    sums = x.double().transpose(axis, -1) @ from_numpy(whole).to(x.device)
    rounded = ((sums + 2 ** (bits - 1)) / 2**bits).floor().clamp(0, 255)
    return rounded.transpose(axis, -1).to(dt.uint8)


def _matrix(taps: _Taps, size: int) -> Any:
    """The weights (inputs, outputs) that taps are."""
    weights = np.zeros((size, len(taps[0][0])))
    for index, weight in taps:
        np.add.at(weights, (index, np.arange(len(index))), weight)
    return weights


def _sizes(
    input: Tensor, size: Any, scale_factor: Any, recompute: bool | None, mode: str
) -> tuple[list[int], Sequence[float | None]]:
    """The output's spatial shape, and the factors that were given (None: by the sizes)."""
    rank = input.ndim - 2
    if (size is None) == (scale_factor is None):
        raise InvalidArgument(
            "interpolate: "
            + ("either" if size is None else "only one of")
            + f" size or scale_factor should be defined, got size={size}, "
            f"scale_factor={scale_factor}"
        )
    given = scale_factor if size is None else size
    values = list(given) if isinstance(given, (tuple, list)) else [given] * rank
    if len(values) != rank:
        raise InvalidArgument(
            f"interpolate: Input and output must have the same number of spatial dimensions, but "
            f"got input with spatial dimensions of {list(input.shape[2:])} and {given}"
        )
    if size is not None:
        if recompute:
            raise InvalidArgument(
                "interpolate: recompute_scale_factor is not meaningful with an explicit size."
            )
        return [int(v) for v in values], [None] * rank
    counts = [math.floor(n * float(f)) for n, f in zip(input.shape[2:], values, strict=True)]
    if recompute or mode == "area":
        return counts, [None] * rank
    return counts, [float(f) for f in values]


@explaining
def interpolate(
    input: Tensor,
    size: Dims | None = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Resize of signals, images or volumes to another size.

        y[i] = x at (i + 1/2) size / out - 1/2
        y[i] = x at i (size - 1) / (out - 1)      with `align_corners`
        y[i] = x[floor(i size / out)]             in mode "nearest"

    Between elements it is interpolated as the mode says; "area" takes means as adaptive pooling
    does.

    Args:
        input: Values.
        size: Size of the output, an int or one per dimension. Default: None, by scale_factor.
        scale_factor: Factor of each size, a number or one per dimension. Default: None, by size.
        mode: Interpolation: "nearest", "nearest-exact" or "area" for any rank, "linear" for
            signals, "bilinear" or "bicubic" for images, "trilinear" for volumes. Default:
            "nearest".
        align_corners: Whether the first and last elements stay in place; for the interpolating
            modes. Default: None, False.
        recompute_scale_factor: Compute the factor anew from the sizes, which are whole. Default:
            None, False.
        antialias: Widen the kernel where the output is smaller, for "bilinear" and "bicubic".
            Default: False.

    Shapes: (batch, channels, length), (batch, channels, height, width) or (batch, channels, depth,
    height, width) -> the same with other sizes.
    Dtypes: floating point; uint8 for images; any for the nearest.
    Errors: InvalidArgument for an unknown mode, unless exactly one of `size` and `scale_factor` is
    given, and for align_corners or antialias in a mode that has none; Unsupported for a mode of
    another rank or dtype; ShapeError for empty sizes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.interpolate.html

    >>> x = ad.tensor([[[1., 3.]]])
    >>> ad.nn.functional.interpolate(x, scale_factor=2)
    tensor([[[1., 1., 3., 3.]]])
    >>> ad.nn.functional.interpolate(x, size=3, mode="linear", align_corners=True)
    tensor([[[1., 2., 3.]]])
    """
    rank = input.ndim - 2
    if mode != "area" and mode not in _MODES:
        raise InvalidArgument(f"interpolate: unknown mode {mode!r}; use area, {', '.join(_MODES)}")
    if rank not in ((1, 2, 3) if mode == "area" else _MODES[mode][1]):
        raise Unsupported(
            f"interpolate: Got {input.ndim}D input of shape {tuple(input.shape)}, which mode "
            f"{mode!r} does not take; it needs batch, channels and the spatial dimensions"
        )
    if align_corners is not None and mode in ("nearest", "nearest-exact", "area"):
        raise InvalidArgument(
            "interpolate: align_corners option can only be set with the interpolating modes: "
            f"linear | bilinear | bicubic | trilinear, got {mode!r}"
        )
    if antialias and mode not in ("bilinear", "bicubic"):
        raise InvalidArgument(
            f"interpolate: Anti-alias option is restricted to bilinear and bicubic modes, got "
            f"{mode!r}"
        )
    of_bytes = input.dtype is dt.uint8 and mode in ("bilinear", "bicubic")
    if not (input.is_floating_point() or of_bytes or mode.startswith("nearest")):
        raise Unsupported(
            f"interpolate: mode {mode!r} is not implemented for {input.dtype}; use input.float()"
        )
    counts, factors = _sizes(input, size, scale_factor, recompute_scale_factor, mode)
    if min(counts) <= 0 or min(input.shape[2:]) <= 0:
        raise ShapeError(
            f"interpolate: Input and output sizes should be greater than 0, but got input of size "
            f"{list(input.shape[2:])} and output of size {counts}"
        )
    input = hold_sizes("interpolate", input, dims=range(2, input.ndim))
    if mode == "area":
        return _AREA[rank - 1](input, counts)
    align = bool(align_corners)
    result: Any = input
    make = _MODES[mode][0]
    if antialias or of_bytes:
        a = -0.5 if mode == "bicubic" else None
        for axis in reversed(range(2, input.ndim)):
            n, count, factor = input.shape[axis], counts[axis - 2], factors[axis - 2]
            if of_bytes and n == count:
                continue
            if antialias:
                weights = _wide_kernel(n, count, factor, align, a)
            else:
                weights = _matrix(make(n, count, factor, align, np.float64), n)
            result = _weighted(result, axis, weights)
        return result.clone() if result is input else result
    wide = np.float64 if input.dtype is dt.float64 else np.float32
    for axis in range(2, input.ndim):
        count, factor = counts[axis - 2], factors[axis - 2]
        n = input.shape[axis]
        if count == n and factor is None:
            continue
        result = _resize(result, axis, make(n, count, factor, align, wide), factor)
    return result.clone() if result is input else result


def _warn_of_old_name(name: str) -> None:
    warnings.warn(
        f"`nn.functional.{name}` is deprecated. Use `nn.functional.interpolate` instead.",
        stacklevel=3,
    )


@explaining
def upsample(
    input: Tensor,
    size: Dims | None = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """Old name of `interpolate`, which warns.

        y = interpolate(x, size, scale_factor, mode, align_corners)

    Args:
        input: Values.
        size: Size of the output, an int or one per dimension. Default: None, by scale_factor.
        scale_factor: Factor of each size, a number or one per dimension. Default: None, by size.
        mode: Interpolation: "nearest", "nearest-exact" or "area" for any rank, "linear" for
            signals, "bilinear" or "bicubic" for images, "trilinear" for volumes. Default:
            "nearest".
        align_corners: Whether the first and last elements stay in place; for the interpolating
            modes. Default: None, False.

    Errors: those of `interpolate`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.upsample.html

    >>> ad.nn.functional.interpolate(ad.zeros(1, 1, 2), scale_factor=2).shape
    adjoint.Size([1, 1, 4])
    """
    _warn_of_old_name("upsample")
    return interpolate(input, size, scale_factor, mode, align_corners)


@explaining
def upsample_nearest(input: Tensor, size: Dims | None = None, scale_factor: Any = None) -> Tensor:
    """Old name of `interpolate` in mode "nearest", which warns.

        y = interpolate(x, size, scale_factor)

    Args:
        input: Values.
        size: Size of the output, an int or one per dimension. Default: None, by scale_factor.
        scale_factor: Factor of each size, a number or one per dimension. Default: None, by size.

    Errors: those of `interpolate`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.upsample_nearest.html

    >>> ad.nn.functional.interpolate(ad.zeros(1, 1, 2), scale_factor=2).shape
    adjoint.Size([1, 1, 4])
    """
    _warn_of_old_name("upsample_nearest")
    return interpolate(input, size, scale_factor, mode="nearest")


@explaining
def upsample_bilinear(input: Tensor, size: Dims | None = None, scale_factor: Any = None) -> Tensor:
    """Old name of `interpolate` in mode "bilinear" with aligned corners, which warns.

        y = interpolate(x, size, scale_factor, "bilinear", align_corners=True)

    Args:
        input: Values.
        size: Size of the output, an int or a pair. Default: None, by scale_factor.
        scale_factor: Factor of both sizes, a number or a pair. Default: None, by size.

    Errors: those of `interpolate`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.upsample_bilinear.html

    >>> x = ad.zeros(1, 1, 2, 2)
    >>> ad.nn.functional.interpolate(x, size=3, mode="bilinear", align_corners=True).shape
    adjoint.Size([1, 1, 3, 3])
    """
    _warn_of_old_name("upsample_bilinear")
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)
