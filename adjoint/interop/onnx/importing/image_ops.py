"""ONNX's operators on images beside convolution: sampling, regions, boxes, columns."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....tensor import Tensor
from .imported_node import F, ImportedNode, ad, axis_in, host, ints, operator, t
from .layer_ops import windows

MOST_BINS = 1 << 20  # of regions, each taken by itself
MOST_SAMPLES = 1 << 14  # of a region along an axis
_MODES = {"linear": "bilinear", "cubic": "bicubic"}  # as operators since opset 20 call them


@operator("GridSample")
def _(n: ImportedNode, x: Any, grid: Any) -> Any:
    mode = n.get("mode", "bilinear" if n.opset < 20 else "linear")
    padding, align = n.get("padding_mode", "zeros"), bool(n.get("align_corners", 0))
    return F.grid_sample(t(x), t(grid), _MODES.get(mode, mode), padding, align)


@operator("AffineGrid")
def _(n: ImportedNode, theta: Any, size: Any) -> Any:
    sizes = ints(size)
    n.check_size(sizes)
    return F.affine_grid(t(theta), sizes, bool(n.get("align_corners", 0)))


@operator("CenterCropPad", tensors=1)
def _(n: ImportedNode, x: Any, shape: Any) -> Any:
    axes = n.get("axes")
    axes = list(range(x.ndim)) if axes is None else [axis_in(axis, x.ndim) for axis in axes]
    wanted = list(x.shape)
    for axis, size in zip(axes, ints(shape), strict=True):
        wanted[axis] = size
    n.check_size(wanted)
    pads = [0] * (2 * x.ndim)
    for axis, size in enumerate(wanted):
        less = x.shape[axis] - size
        if less > 0:
            x = x.narrow(axis, less // 2, size)
        pads[2 * (x.ndim - 1 - axis)] = max(-less, 0) // 2
        pads[2 * (x.ndim - 1 - axis) + 1] = max(-less, 0) - max(-less, 0) // 2
    return F.pad(x, pads)


@operator("Col2Im")
def _(n: ImportedNode, x: Any, image: Any, block: Any) -> Any:
    x, size, kernel = t(x), tuple(ints(image)), tuple(ints(block))
    strides, dilations, pairs = windows(n, size, kernel)
    channels = x.shape[1] // max(math.prod(kernel), 1)
    padded = [a + low + high for a, (low, high) in zip(size, pairs, strict=True)]
    n.check_size([x.shape[0], channels, *padded])
    counts = [
        (a - d * (k - 1) - 1) // s + 1
        for a, k, s, d in zip(padded, kernel, strides, dilations, strict=True)
    ]
    if x.shape[1] != channels * math.prod(kernel) or x.shape[2] != math.prod(counts):
        raise ValueError(f"{tuple(x.shape)} for {counts} blocks of {list(kernel)}")
    place = np.zeros((*kernel, *counts), np.int64)  # of each element in the padded image
    rank = len(size)
    for i, (k, s, d) in enumerate(zip(kernel, strides, dilations, strict=True)):
        at = (np.arange(k) * d)[:, None] + np.arange(counts[i]) * s
        shape = [1] * (2 * rank)
        shape[i], shape[rank + i] = at.shape
        place = place * padded[i] + at.reshape(shape)
    places = t(place.reshape(-1)).expand(x.shape[0], channels, -1)
    values = x.reshape(x.shape[0], channels, -1)
    found = x.new_zeros(x.shape[0], channels, math.prod(padded)).scatter_add(2, places, values)
    found = found.reshape(x.shape[0], channels, *padded)
    for i, (low, _) in enumerate(pairs):
        found = found.narrow(2 + i, low, size[i])
    return found


@operator("NonMaxSuppression")
def _(
    n: ImportedNode,
    boxes: Any,
    scores: Any,
    most: Any = None,
    overlap: Any = None,
    least: Any = None,
) -> Any:
    """Non-maximum suppression: the best boxes of each class, none of which overlaps a better one by
    more than `overlap`.
    """
    corners, values = host(boxes).astype(np.float64), host(scores)
    if corners.ndim != 3 or values.ndim != 3 or corners.shape[::2] != (values.shape[0], 4):
        raise ValueError(f"boxes {corners.shape} and scores {values.shape}")
    limit = 0 if most is None else int(host(most).reshape(()))
    above = 0.0 if overlap is None else float(host(overlap).reshape(()))
    floor = None if least is None else float(host(least).reshape(()))
    if n.get("center_point_box", 0):
        center, size = corners[..., :2], corners[..., 2:]
        low, high = center - size / 2, center + size / 2
    else:
        low = np.minimum(corners[..., :2], corners[..., 2:])
        high = np.maximum(corners[..., :2], corners[..., 2:])
    areas = (high - low).prod(-1)
    found = []
    for batch, kind in np.ndindex(values.shape[:2]):
        score = values[batch, kind]
        order = np.argsort(-score, kind="stable")
        order = order if floor is None else order[score[order] > floor]
        count = 0
        while order.size and count < limit:
            best, order = order[0], order[1:]
            found.append((batch, kind, best))
            count += 1
            inner = np.minimum(high[batch, best], high[batch, order])
            inner = (inner - np.maximum(low[batch, best], low[batch, order])).clip(0).prod(-1)
            union = areas[batch, best] + areas[batch, order] - inner
            order = order[~((inner > 0) & (union > 0) & (inner > above * union))]
    return np.array(found, np.int64).reshape(-1, 3)


@operator("RoiAlign")
def _(n: ImportedNode, x: Any, rois: Any, batches: Any) -> Any:
    """Means or maxima of bilinear samples of each region's bins (He and others, 2017)."""
    x, regions, images = t(x), host(rois).astype(np.float64), host(batches).reshape(-1)
    high, wide = n.get("output_height", 1), n.get("output_width", 1)
    ratio, scale = n.get("sampling_ratio", 0), n.get("spatial_scale", 1.0)
    half = n.get("coordinate_transformation_mode", "half_pixel" if n.opset >= 16 else "") == (
        "half_pixel"
    )
    if regions.shape != (len(images), 4) or (
        len(images) and not 0 <= images.min() <= images.max() < x.shape[0]
    ):
        raise ValueError(f"regions {regions.shape} of images {images[:8]}")
    n.check_size([len(images), x.shape[1], high, wide])
    found = []
    for region, image in zip(regions * scale - 0.5 * half, images, strict=True):
        size = region[2:] - region[:2]
        size = size if half else np.maximum(size, 1.0)
        axes = []
        for axis, bins in ((1, high), (0, wide)):
            count = ratio if ratio > 0 else max(math.ceil(size[axis] / bins), 1)
            if bins * count > MOST_SAMPLES:
                raise n.unsupported(f"{bins} bins of {count} samples")
            step = size[axis] / bins
            at = np.arange(bins)[:, None] * step + (np.arange(count) + 0.5) * step / count
            axes.append((region[axis] + at.reshape(-1), count))
        found.append(_sampled(x[int(image)], axes, n.get("mode", "avg") == "max"))
    if not found:
        return x.new_zeros(0, x.shape[1], high, wide)
    return ad.stack(found)


def _sampled(image: Tensor, axes: Any, largest: bool) -> Any:
    """Bilinear samples of an image (C, H, W) at a grid, the mean or maximum of each bin."""
    terms = []
    for axis, (at, _) in enumerate(axes):
        size = image.shape[1 + axis]
        inside = (at >= -1) & (at <= size)
        at = at.clip(0, size - 1)
        low = np.floor(at).astype(np.int64)
        rest = at - low
        terms.append(((low, (1 - rest) * inside), (np.minimum(low + 1, size - 1), rest * inside)))
    parts = []
    for rows, row_weights in terms[0]:
        for columns, column_weights in terms[1]:
            values = image.index_select(1, t(rows)).index_select(2, t(columns))
            weights = t(row_weights[:, None] * column_weights).to(image.dtype)
            parts.append(values * weights)
    (_, down), (_, across) = axes
    shape = (image.shape[0], -1, down, parts[0].shape[2] // across, across)
    if largest:  # as the standard has it: of each sample's four weighted neighbours
        return ad.stack([part.reshape(shape).amax((2, 4)) for part in parts]).amax(0)
    return (parts[0] + parts[1] + parts[2] + parts[3]).reshape(shape).mean((2, 4))


@operator("MaxRoiPool")
def _(n: ImportedNode, x: Any, rois: Any) -> Any:
    """The maximum of each bin of each region (Girshick, 2015)."""
    x, regions = t(x), host(rois)
    high, wide = n.get("pooled_shape")
    scale = n.get("spatial_scale", 1.0)
    n.check_size([len(regions), x.shape[1], high, wide])
    if len(regions) * high * wide > MOST_BINS:
        raise n.unsupported(f"{len(regions)} regions of {high} x {wide} bins")
    found = []
    for image, *corners in regions:
        left, top, right, bottom = (math.floor(v * scale + 0.5) for v in corners)
        rows = _bins(top, bottom, high, x.shape[2])
        columns = _bins(left, right, wide, x.shape[3])
        part = x[int(image)]
        cells = [
            part[:, a:b, c:d].amax((1, 2)) if a < b and c < d else part.new_zeros(part.shape[0])
            for a, b in rows
            for c, d in columns
        ]
        found.append(ad.stack(cells, -1).reshape(-1, high, wide))
    return ad.stack(found) if found else x.new_zeros(0, x.shape[1], high, wide)


def _bins(first: int, last: int, count: int, size: int) -> list[tuple[int, int]]:
    """Begin and end of each of `count` bins between two positions."""
    step = max(last - first + 1, 1) / count
    return [
        (
            min(max(math.floor(i * step) + first, 0), size),
            min(max(math.ceil((i + 1) * step) + first, 0), size),
        )
        for i in range(count)
    ]


@operator("DeformConv", tensors=3)
def _(n: ImportedNode, x: Any, weight: Any, offset: Any, bias: Any = None, mask: Any = None) -> Any:
    """A convolution whose elements are sampled where `offset` says (Dai and others, 2017)."""
    kernel = tuple(weight.shape[2:])
    if len(kernel) != 2:
        raise n.unsupported(f"a kernel of {len(kernel)} dimensions")
    strides, dilations, pairs = windows(n, tuple(x.shape[2:]), kernel)
    groups, parts = n.get("group", 1), n.get("offset_group", 1)
    batch, channels, height, width = x.shape
    rows, columns = offset.shape[2:]
    taps = math.prod(kernel)
    n.check_size([batch, channels, taps, rows, columns])
    shifts = offset.reshape(batch, parts, taps, 2, rows, columns)
    base = []
    for axis in range(2):
        tap = np.indices(kernel)[axis].reshape(-1, 1, 1) * dilations[axis] - pairs[axis][0]
        base.append(tap + np.indices((rows, columns))[axis] * strides[axis])
    y, z = (t(base[i]).to(x.dtype) + shifts[:, :, :, i] for i in range(2))
    grid = ad.stack([(2 * z + 1) / width - 1, (2 * y + 1) / height - 1], -1)
    grid = grid.reshape(batch * parts, taps * rows, columns, 2)
    images = x.reshape(batch * parts, channels // parts, height, width)
    samples = F.grid_sample(images, grid, "bilinear", "zeros", False)
    samples = samples.reshape(batch, parts, channels // parts, taps, rows, columns)
    if mask is not None:
        samples = samples * t(mask).reshape(batch, parts, 1, taps, rows, columns)
    samples = samples.reshape(batch, groups, channels // groups * taps, rows * columns)
    filters = weight.reshape(groups, weight.shape[0] // groups, -1)
    found = (filters @ samples).reshape(batch, weight.shape[0], rows, columns)
    return found if bias is None else found + t(bias).reshape(-1, 1, 1)
