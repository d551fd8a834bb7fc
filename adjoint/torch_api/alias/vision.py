"""Operators on boxes that torchvision's C++ library declares, in adjoint's own.

They are functions of tensors, so gradients of every order follow. Boxes get none from pooling, as
in PyTorch. Declared where torchvision loads its library (`ops.load_library`).

>>> from adjoint.torch_api.alias.vision import nms
>>> boxes = ad.tensor([[0., 0., 4., 4.], [0., 0., 4., 3.], [5., 5., 6., 6.]])
>>> nms(boxes, ad.tensor([0.5, 0.9, 0.1]), 0.5)
tensor([1, 2])
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import adjoint as ad

from ...core.errors import ShapeError
from ...core.missing_names import refused
from ...ops.index.boxes import nms
from ..library import Library

__all__ = ["deform_conv2d", "nms", "ps_roi_align", "roi_align", "roi_pool"]

Tensor = ad.Tensor

PIECE = 1 << 22  # numbers that are gathered at once: temporary memory of some 100 MB


def roi_align(
    input: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    """The mean of interpolated points in each of the cells into which boxes are divided; rois have
    rows of (image, x1, y1, x2, y2).

    Shapes: (images, C, H, W) and (boxes, 5) -> (boxes, C, pooled_height, pooled_width).
    Errors: ShapeError for others.
    """
    _assert_regions("roi_align", input, rois)
    offset = 0.5 if aligned else 0.0
    least = -math.inf if aligned else 1.0
    return _aligned(
        input, rois, spatial_scale, (pooled_height, pooled_width), sampling_ratio, offset, least
    )


def ps_roi_align(
    input: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
) -> tuple[Tensor, Tensor]:
    """`roi_align` where each cell has channels of its own, and which channels those are.

    Errors: ShapeError where channels cannot be divided so.
    """
    _assert_regions("ps_roi_align", input, rois)
    cells = pooled_height * pooled_width
    if input.shape[1] % cells:
        raise ShapeError(f"ps_roi_align: {input.shape[1]} channels for {cells} cells each")
    every = _aligned(
        input, rois, spatial_scale, (pooled_height, pooled_width), sampling_ratio, 0.5, -math.inf
    )
    own = every.reshape(len(rois), -1, cells, cells).diagonal(dim1=2, dim2=3)
    own = own.reshape(len(rois), -1, pooled_height, pooled_width)
    channels = ad.arange(input.shape[1], dtype=ad.int32, device=input.device)
    return own, channels.reshape(own.shape[1:]).expand(own.shape).clone()


def _assert_regions(name: str, x: Tensor, rois: Tensor) -> None:
    if x.ndim != 4 or rois.ndim != 2 or rois.shape[1] != 5:
        raise ShapeError(
            f"{name}: input {tuple(x.shape)} and rois {tuple(rois.shape)}; (N, C, H, W) and (K, 5)"
        )
    if x.dtype is not rois.dtype:
        raise ShapeError(f"{name}: input is {x.dtype}, rois are {rois.dtype}; make them alike")
    images = rois[:, 0].detach()
    if len(rois) and not bool(((images >= 0) & (images < len(x))).all()):
        raise ShapeError(f"{name}: rois are of images {images.tolist()}, there are {len(x)}")


def _aligned(
    x: Tensor,
    rois: Tensor,
    scale: float,
    pooled: tuple[int, int],
    sampling: int,
    offset: float,
    least: float,
) -> Tensor:
    """Boxes in groups of as many points each, and in pieces."""
    rois = rois.detach()
    starts = rois[:, [2, 1]] * scale - offset
    sizes = (rois[:, [4, 3]] * scale - offset - starts).clamp(min=least)
    cells = sizes / ad.tensor(pooled, dtype=rois.dtype, device=rois.device)
    counts = (
        np.full((len(rois), 2), sampling)
        if sampling > 0
        else np.ceil(cells.cpu().numpy()).astype(np.int64).clip(min=0)
    )
    channels = x.permute(0, 2, 3, 1)
    parts, places = [], []
    for points in np.unique(counts, axis=0):
        group = np.flatnonzero((counts == points).all(1))
        each = max(1, PIECE // max(1, int(np.prod(points)) * math.prod(pooled) * x.shape[1]))
        for first in range(0, len(group), each):
            place = ad.from_numpy(group[first : first + each]).to(x.device)
            spots = [
                _spots(starts[place, i], cells[place, i], pooled[i], int(points[i]), x.shape[2 + i])
                for i in (0, 1)
            ]
            parts.append(_means(channels, rois[place, 0].long(), spots, pooled, points))
            places.append(place)
    if not parts:
        return x[:0, :, :1, :1].expand(-1, -1, *pooled)
    if len(parts) == 1:
        return parts[0]
    return ad.cat(parts)[ad.cat(places).argsort()]


Spots = list[tuple[Tensor, Tensor]]  # what is read along an axis: positions, and their weights


def _spots(start: Tensor, cell: Tensor, cells: int, points: int, size: int) -> Spots:
    """Points along an axis lie between two positions each; those outside by more than 1 weigh 0."""
    within = (ad.arange(points, dtype=start.dtype, device=start.device) + 0.5) / max(points, 1)
    whole = ad.arange(cells, dtype=start.dtype, device=start.device)
    at = start[:, None, None] + (whole[:, None] + within) * cell[:, None, None]
    at = at.reshape(len(start), -1)
    counts = (at >= -1) & (at <= size)
    at = at.clamp(0, size - 1)
    low = at.floor()
    weight = at - low
    low = low.long()
    return [(low, (1 - weight) * counts), ((low + 1).clamp(max=size - 1), weight * counts)]


def _means(
    channels: Tensor, image: Tensor, spots: list[Spots], pooled: tuple[int, int], points: Any
) -> Tensor:
    """The means over each cell's points of what lies there: (boxes, C, cells, cells)."""
    total: Any = 0
    for y, wy in spots[0]:
        for x, wx in spots[1]:
            there = channels[image[:, None, None], y[:, :, None], x[:, None, :]]
            total = total + there * (wy[:, :, None] * wx[:, None, :])[..., None]
    (rows, columns), (down, across) = pooled, (int(n) for n in points)
    total = total.reshape(len(image), rows, down, columns, across, channels.shape[3]).sum((2, 4))
    return (total / max(down * across, 1)).permute(0, 3, 1, 2).contiguous()


def roi_pool(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Tensor, Tensor]:
    """The largest number in each of the cells into which boxes are divided, and where it lies in
    its plane; 0 and -1 for a cell without any.

    Shapes: (images, C, H, W) and (boxes, 5) -> (boxes, C, pooled_height, pooled_width), twice.
    Errors: ShapeError for others.
    """
    _assert_regions("roi_pool", input, rois)
    planes = input.detach().cpu().numpy()
    _, channels, height, width = planes.shape
    bounds = rois.detach().cpu().numpy()
    found = np.full((len(bounds), channels, pooled_height, pooled_width), -1, np.int64)
    corners = bounds[:, 1:] * bounds.dtype.type(spatial_scale)
    corners = np.trunc(corners + np.copysign(0.5, corners)).astype(np.int64)  # halves: outwards
    for k, (x1, y1, x2, y2) in enumerate(corners):
        down = _cells(y1, y2, pooled_height, height, bounds.dtype)
        across = _cells(x1, x2, pooled_width, width, bounds.dtype)
        for i, (top, bottom) in enumerate(down):
            for j, (left, right) in enumerate(across):
                if top < bottom and left < right:
                    cell = planes[int(bounds[k, 0]), :, top:bottom, left:right]
                    row, column = divmod(cell.reshape(channels, -1).argmax(1), right - left)
                    found[k, :, i, j] = (row + top) * width + column + left
    places = ad.from_numpy(found).to(input.device)
    first = rois[:, 0].detach().long()[:, None] * channels
    plane = first + ad.arange(channels, device=input.device)
    values = input.reshape(-1)[plane[:, :, None, None] * (height * width) + places.clamp(min=0)]
    return ad.where(places >= 0, values, 0.0), places.int()


def _cells(first: int, last: int, cells: int, size: int, dtype: Any) -> list[tuple[int, int]]:
    """Bounds of the cells of an axis, within its size."""
    each = dtype.type(max(last - first + 1, 1)) / dtype.type(cells)
    lows = np.floor(np.arange(cells, dtype=dtype) * each).astype(np.int64) + first
    highs = np.ceil(np.arange(1, cells + 1, dtype=dtype) * each).astype(np.int64) + first
    return [(int(a), int(b)) for a, b in zip(lows.clip(0, size), highs.clip(0, size), strict=True)]


def deform_conv2d(
    input: Tensor,
    weight: Tensor,
    offset: Tensor,
    mask: Tensor,
    bias: Tensor,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> Tensor:
    """A convolution whose taps lie elsewhere: by `offset`, in numbers between those of the input
    (Dai et al., 2017), times `mask` (Zhu et al., 2018).

    Shapes: input (N, C, H, W); weight (out, C / groups, kh, kw); offset (N, 2 offset_groups kh kw,
    out_h, out_w), y before x; mask (N, offset_groups kh kw, out_h, out_w).
    Errors: ShapeError for others.
    """
    images, channels, height, width = input.shape
    out, _, kh, kw = weight.shape
    out_h = (height + 2 * pad_h - dilation_h * (kh - 1) - 1) // stride_h + 1
    out_w = (width + 2 * pad_w - dilation_w * (kw - 1) - 1) // stride_w + 1
    taps = offset_groups * kh * kw
    expected = [(images, 2 * taps, out_h, out_w), (images, taps, out_h, out_w)]
    if tuple(offset.shape) != expected[0] or (use_mask and tuple(mask.shape) != expected[1]):
        raise ShapeError(
            f"deform_conv2d: offset {tuple(offset.shape)} and mask {tuple(mask.shape)}; due are "
            f"{expected[0]} and {expected[1]}"
        )
    moved = offset.reshape(images, offset_groups, kh, kw, 2, out_h, out_w)
    steps = [ad.arange(n, dtype=input.dtype, device=input.device) for n in (kh, kw, out_h, out_w)]
    y = moved[..., 0, :, :] + (
        steps[0][:, None, None, None] * dilation_h + steps[2][:, None] * stride_h - pad_h
    )
    x = moved[..., 1, :, :] + (steps[1][:, None, None] * dilation_w + steps[3] * stride_w - pad_w)
    planes = input.reshape(images, offset_groups, -1, height * width)
    columns: Any = 0
    for row, wy in _neighbours(y, height):
        for column, wx in _neighbours(x, width):
            place = (row * width + column).reshape(images, offset_groups, 1, -1)
            there = planes.gather(3, place.expand(-1, -1, planes.shape[2], -1))
            columns = columns + there * (wy * wx).reshape(place.shape)
    if use_mask:
        columns = columns * mask.reshape(images, offset_groups, 1, -1)
    columns = columns.reshape(images, groups, channels // groups * kh * kw, out_h * out_w)
    rows = weight.reshape(groups, out // groups, -1)
    return (rows @ columns).reshape(images, out, out_h, out_w) + bias[:, None, None]


def _neighbours(at: Tensor, size: int) -> Spots:
    """The two positions between which numbers lie; those outside weigh 0."""
    low = at.detach().floor()
    found = []
    for place, weight in ((low, low + 1 - at), (low + 1, at - low)):
        inside = (place >= 0) & (place < size)
        found.append((place.clamp(0, size - 1).long(), ad.where(inside, weight, 0.0)))
    return found


_BOX = "Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width"
_STEPS = ("stride_h", "stride_w", "pad_h", "pad_w", "dilation_h", "dilation_w", "groups",
          "offset_groups")  # fmt: skip
_DECLARED: tuple[tuple[Callable[..., Any], str], ...] = (
    (nms, "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"),
    (roi_align, f"({_BOX}, SymInt sampling_ratio, bool aligned) -> Tensor"),
    (roi_pool, f"({_BOX}) -> (Tensor, Tensor)"),
    (ps_roi_align, f"({_BOX}, SymInt sampling_ratio) -> (Tensor, Tensor)"),
    (
        deform_conv2d,
        "(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, "
        + ", ".join(f"SymInt {step}" for step in _STEPS)
        + ", bool use_mask) -> Tensor",
    ),
)
_REFUSED = {
    "ps_roi_pool": "not here; ps_roi_align is",
    "qnms": "quantized tensors are not here; nms on floats",
    "qroi_align": "quantized tensors are not here; roi_align on floats",
    "box_iou_rotated": "not here; box_iou is, of boxes that stand upright",
    **{
        f"_{name}_backward": "gradients follow from the operator's own"
        for name in ("roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d")
    },
}


def declare() -> None:
    """Declare the operators, as `torch.ops.torchvision.NAME`."""
    library = Library("torchvision", "DEF")
    for function, schema in _DECLARED:
        library.impl(
            library.define(f"{function.__name__}{schema}"), function, "CompositeImplicitAutograd"
        )
    for name, why in _REFUSED.items():
        library.define(f"{name}(Tensor input) -> Tensor")
        library.impl(name, refused("torch.ops.torchvision", name, why), "CompositeImplicitAutograd")
    library.impl(
        library.define("_cuda_version() -> SymInt"), _cuda_version, "CompositeImplicitAutograd"
    )


def _cuda_version() -> int:
    """-1: there is no CUDA here."""
    return -1
