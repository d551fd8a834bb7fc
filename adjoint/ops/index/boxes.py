"""Boxes in pictures: which of those that overlap stay."""

from __future__ import annotations

import numpy as np

from ...core.errors import ShapeError
from ...core.tensor_type import Tensor
from ..create.exchange import from_numpy

__all__ = ["nms"]


def nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """The places of the boxes that stay where each, from the highest score on, removes those that
    overlap it by more than `iou_threshold` (intersection over union): non-maximum suppression.

    No gradient flows through it. Boxes with the same score keep their order.

    Shapes: boxes (N, 4), each x1, y1, x2, y2; scores (N,); the result (M,), int64, in the order
    of falling scores.
    Errors: ShapeError where there are not as many boxes (N, 4) as scores (N,).
    Source: https://docs.pytorch.org/vision/main/generated/torchvision.ops.nms.html

    >>> boxes = ad.tensor([[0., 0., 4., 4.], [0., 0., 4., 3.], [5., 5., 6., 6.]])
    >>> ad.ops.nms(boxes, ad.tensor([0.5, 0.9, 0.1]), 0.5)
    tensor([1, 2])
    """
    if dets.ndim != 2 or dets.shape[1] != 4 or scores.ndim != 1 or len(dets) != len(scores):
        raise ShapeError(
            f"nms: boxes {tuple(dets.shape)} and scores {tuple(scores.shape)}; (N, 4) and (N,)"
        )
    boxes = dets.detach().cpu().numpy().T
    order = scores.detach().argsort(descending=True, stable=True).cpu().numpy()
    x1, y1, x2, y2 = (side[order] for side in boxes)
    areas = (x2 - x1) * (y2 - y1)
    stays = np.ones(len(order), bool)
    with np.errstate(all="ignore"):
        for i in range(len(order)):
            if not stays[i]:
                continue
            rest = slice(i + 1, None)
            width = np.minimum(x2[i], x2[rest]) - np.maximum(x1[i], x1[rest])
            height = np.minimum(y2[i], y2[rest]) - np.maximum(y1[i], y1[rest])
            shared = np.maximum(width, 0) * np.maximum(height, 0)
            overlap = shared / (areas[i] + areas[rest] - shared)
            stays[rest] &= ~(overlap.astype(np.float64) > iou_threshold)
    return from_numpy(order[stays]).to(dets.device)
