"""torchvision's operators in adjoint's own, beside their definitions written as loops."""

from __future__ import annotations

import numpy as np
import pytest

import adjoint as ad
from adjoint.core.errors import ShapeError
from adjoint.testing import gradcheck
from adjoint.torch_api.alias import ops, vision

RNG = np.random.default_rng(0)


def iou(a, b):
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    shared = max(width, 0) * max(height, 0)
    return shared / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared)


@pytest.mark.parametrize("count", [0, 1, 15, 60])
def test_nms_keeps_what_no_better_box_covers(count):
    corner = RNG.uniform(0, 10, (count, 2))
    boxes = np.concatenate([corner, corner + RNG.uniform(1, 8, (count, 2))], 1)
    scores = RNG.integers(0, 9, count) / 9  # ties: the first counts
    kept = []
    for i in np.argsort(-scores, kind="stable"):
        if all(iou(boxes[i], boxes[k]) <= 0.4 for k in kept):
            kept.append(int(i))
    assert vision.nms(ad.tensor(boxes.reshape(-1, 4)), ad.tensor(scores), 0.4).tolist() == kept


def interpolated(plane, y, x):
    height, width = plane.shape
    if y < -1 or y > height or x < -1 or x > width:
        return 0.0
    y, x = np.clip(y, 0, height - 1), np.clip(x, 0, width - 1)
    top, left = int(y), int(x)
    down, right = min(top + 1, height - 1), min(left + 1, width - 1)
    a, b = y - top, x - left
    return ((1 - a) * (1 - b) * plane[top, left] + (1 - a) * b * plane[top, right]
            + a * (1 - b) * plane[down, left] + a * b * plane[down, right])  # fmt: skip


ROIS = np.array([[0, 0, 0, 6, 9], [1, -3, 2, 20, 5], [1, 2, 3, 2, 3], [0, 4, 4, 30, 30.0]])


@pytest.mark.parametrize(("ratio", "aligned"), [(2, False), (3, True), (-1, False), (0, True)])
def test_roi_align_is_the_mean_of_points_in_cells(ratio, aligned, monkeypatch):
    x = RNG.standard_normal((2, 3, 6, 8))
    expected = np.zeros((len(ROIS), 3, 2, 3))
    for k, roi in enumerate(ROIS):
        x1, y1, x2, y2 = roi[1:] * 0.5 - (0.5 if aligned else 0)
        h, w = y2 - y1, x2 - x1
        if not aligned:
            h, w = max(h, 1), max(w, 1)
        down, across = ratio, ratio
        if ratio <= 0:
            down, across = int(np.ceil(h / 2)), int(np.ceil(w / 3))
        for c, i, j in np.ndindex(3, 2, 3):
            points = [
                interpolated(x[int(roi[0]), c], y1 + (i + (p + 0.5) / down) * h / 2,
                             x1 + (j + (q + 0.5) / across) * w / 3)
                for p in range(down) for q in range(across)
            ]  # fmt: skip
            expected[k, c, i, j] = sum(points) / max(down * across, 1)
    given = (ad.tensor(x), ad.tensor(ROIS), 0.5, 2, 3, ratio, aligned)
    np.testing.assert_allclose(vision.roi_align(*given).numpy(), expected, atol=1e-12)
    monkeypatch.setattr(vision, "PIECE", 1)
    np.testing.assert_allclose(vision.roi_align(*given).numpy(), expected, atol=1e-12)


def test_roi_pool_is_the_largest_of_each_cell():
    x = RNG.standard_normal((2, 3, 6, 8))
    values, places = vision.roi_pool(ad.tensor(x), ad.tensor(ROIS), 0.5, 2, 3)
    for k, roi in enumerate(ROIS):
        x1, y1, x2, y2 = (int(np.floor(v * 0.5 + 0.5)) for v in roi[1:])
        if roi[1] < 0:
            x1 = -2  # -1.5: halves go outwards
        h, w = max(y2 - y1 + 1, 1), max(x2 - x1 + 1, 1)
        for c, i, j in np.ndindex(3, 2, 3):
            top, left = int(np.floor(i * h / 2)) + y1, int(np.floor(j * w / 3)) + x1
            down, right = int(np.ceil((i + 1) * h / 2)) + y1, int(np.ceil((j + 1) * w / 3)) + x1
            cell = x[int(roi[0]), c, max(top, 0) : max(down, 0), max(left, 0) : max(right, 0)]
            assert values[k, c, i, j] == (cell.max() if cell.size else 0)
            place = int(places[k, c, i, j])
            assert place == -1 if not cell.size else x[int(roi[0]), c].flat[place] == cell.max()


def test_a_deformed_convolution_without_offsets_is_a_convolution():
    x, w = RNG.standard_normal((2, 4, 7, 6)), RNG.standard_normal((6, 2, 3, 2))
    b = RNG.standard_normal(6)
    expected = ad.nn.functional.conv2d(
        ad.tensor(x), ad.tensor(w), ad.tensor(b), (2, 1), (1, 2), (1, 2), 2
    )
    offset = ad.zeros(2, 2 * 2 * 6, *expected.shape[2:], dtype=ad.float64)
    mask = ad.full((2, 2 * 6, *expected.shape[2:]), 0.5, dtype=ad.float64)
    given = (ad.tensor(b), 2, 1, 1, 2, 1, 2, 2, 2)
    found = vision.deform_conv2d(ad.tensor(x), ad.tensor(w), offset, mask, *given, False)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), atol=1e-12)
    # moved by whole numbers, it is that of a moved image; masks scale what is read
    moved = offset.clone()
    moved.view(2, 2, 6, 2, *expected.shape[2:])[:, :, :, 1] = 1.0
    shifted = np.concatenate([x[..., 1:], np.zeros_like(x[..., :1])], 3)
    found = vision.deform_conv2d(ad.tensor(x), ad.tensor(w), moved, mask, *given, True)
    left = ad.nn.functional.conv2d(
        ad.tensor(shifted), ad.tensor(w) * 0.5, ad.tensor(b), (2, 1), (1, 2), (1, 2), 2
    )
    inner = np.s_[..., 2:]  # where the column left of the image is not read
    np.testing.assert_allclose(found.numpy()[inner], left.numpy()[inner], atol=1e-12)


def test_gradients():
    x = ad.tensor(RNG.standard_normal((1, 4, 4, 5)), requires_grad=True)
    rois = ad.tensor(ROIS[:1])
    assert gradcheck(lambda x: vision.roi_align(x, rois, 0.5, 2, 2, 2, True), (x,))
    assert gradcheck(lambda x: vision.roi_pool(x, rois, 0.5, 2, 2)[0], (x,))
    assert gradcheck(lambda x: vision.ps_roi_align(x, rois, 0.5, 2, 2, 2)[0], (x,))
    offset = ad.tensor(RNG.uniform(0.1, 0.9, (1, 8, 3, 4)), requires_grad=True)
    mask = ad.tensor(RNG.standard_normal((1, 4, 3, 4)), requires_grad=True)
    w, b = ad.tensor(RNG.standard_normal((2, 4, 2, 2))), ad.zeros(2, dtype=ad.float64)
    assert gradcheck(
        lambda x, offset, mask: vision.deform_conv2d(
            x, w, offset, mask, b, 1, 1, 0, 0, 1, 1, 1, 1, True
        ),
        (x, offset, mask),
    )


def test_shapes_and_images_are_checked():
    x, rois = ad.zeros(2, 4, 5, 5), ad.zeros(3, 5)
    none = vision.roi_align(x.requires_grad_(), rois[:0], 1.0, 2, 3, 2, False)
    assert none.shape == (0, 4, 2, 3) and none.requires_grad
    for refused in (
        lambda: vision.nms(ad.zeros(2, 3), ad.zeros(2), 0.5),
        lambda: vision.roi_align(x, rois[:, :4], 1.0, 2, 2, 2, False),
        lambda: vision.roi_align(x, rois.double(), 1.0, 2, 2, 2, False),
        lambda: vision.roi_pool(x, rois + 2, 1.0, 2, 2),
        lambda: vision.ps_roi_align(x, rois, 1.0, 3, 3, 2),
        lambda: vision.deform_conv2d(x, ad.zeros(2, 4, 3, 3), rois, x, x, *[1] * 8, False),
    ):
        with pytest.raises(ShapeError):
            refused()


def test_the_library_is_as_good_as_loaded():
    ops.load_library("/somewhere/torchvision/_C.so")
    assert ops.torchvision.nms.default(ad.zeros(0, 4), ad.zeros(0), 0.5).shape == (0,)
    assert ops.torchvision._cuda_version() == -1
    with pytest.raises(ad.Unsupported, match="ps_roi_align is"):
        ops.torchvision.ps_roi_pool(ad.zeros(1))
    with pytest.raises(OSError):
        ops.load_library("/somewhere/torchvision/image.so")
    # registered for autocast, a function is called there
    library = ad.library.Library("torchvision", "IMPL")
    library.impl("nms", lambda *_: "cast", "AutocastCPU")
    library.impl("nms", lambda *_: "other", "AutocastXPU")
    given = (ad.zeros(0, 4), ad.zeros(0), 0.5)
    with ad.autocast("cpu"):
        assert ops.torchvision.nms(*given) == "cast"
    assert ops.torchvision.nms(*given).shape == (0,)
    assert ops.aten.relu.default(ad.tensor(-1.0)) == 0 and ops.aten.add is ops.aten.add
    with pytest.raises(ad.Unsupported):
        ops.aten.no_such_thing.default(ad.ones(1))
