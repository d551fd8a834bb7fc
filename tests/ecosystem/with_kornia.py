"""kornia: colours, filters, geometry, features, losses, metrics."""

from __future__ import annotations

import kornia as K
import torch
from common import data


def _image(*shape):
    return data(*(shape or (2, 3, 16, 20))).sigmoid()


def case_colours():
    x = _image()
    return [
        K.color.rgb_to_hsv(x),
        K.color.rgb_to_lab(x),
        K.color.rgb_to_grayscale(x),
        K.color.rgb_to_ycbcr(x),
        K.color.hsv_to_rgb(x),
        K.color.rgb_to_luv(x),
        K.color.sepia(x),
        K.enhance.adjust_gamma(x, 0.7),
        K.enhance.equalize_clahe(x),
        K.enhance.sharpness(x, 0.5),
        K.enhance.posterize(x, 3),
    ]


def case_filters():
    x = _image().requires_grad_()
    y = [
        K.filters.gaussian_blur2d(x, (5, 5), (1.5, 1.5)),
        K.filters.sobel(x),
        K.filters.laplacian(x, 3),
        K.filters.median_blur(x, (3, 3)),
        K.filters.box_blur(x, (3, 3)),
        K.filters.unsharp_mask(x, (3, 3), (1.0, 1.0)),
        K.filters.bilateral_blur(x, (3, 3), 0.1, (1.0, 1.0)),
        K.filters.canny(x)[0],
        K.filters.spatial_gradient(x),
    ]
    sum(each.square().mean() for each in y).backward()
    return [*y, x.grad]


def case_geometry():
    x = _image().requires_grad_()
    angle = torch.tensor([10.0, -30.0], requires_grad=True)
    turned = K.geometry.rotate(x, angle)
    turned.square().sum().backward()
    points = data(2, 4, 2) * 5
    square = torch.tensor([[[0.0, 0], [10, 0], [10, 10], [0, 10]]]).repeat(2, 1, 1)
    matrix = K.geometry.get_perspective_transform(square, square + points)
    return [
        turned,
        x.grad,
        angle.grad,
        matrix,
        K.geometry.warp_perspective(x, matrix, (12, 12)),
        K.geometry.transform.resize(x, (8, 9)),
        K.geometry.transform.pyrdown(x),
        K.geometry.transform_points(matrix, points),
        K.geometry.angle_axis_to_rotation_matrix(data(4, 3))
        if hasattr(K.geometry, "angle_axis_to_rotation_matrix")
        else K.geometry.axis_angle_to_rotation_matrix(data(4, 3)),
        K.geometry.transform.hflip(x),
        K.geometry.find_homography_dlt(square, square + points),
    ]


def case_features():
    x = _image(1, 1, 32, 32)
    patches = _image(3, 1, 32, 32)
    return [
        K.feature.harris_response(x),
        K.feature.gftt_response(x),
        K.feature.hessian_response(x),
        K.feature.SIFTDescriptor(32)(patches),
        K.feature.match_nn(data(5, 8), data(6, 8, seed=1))[0],
    ]


def case_losses():
    a, b = _image(), data(2, 3, 16, 20, seed=1).sigmoid()
    a.requires_grad_()
    target = (b.argmax(1),)[0]
    y = [
        K.losses.ssim_loss(a, b, 5),
        K.losses.psnr_loss(a, b, 1.0),
        K.losses.total_variation(a).mean(),
        K.losses.focal_loss(a, target, 0.5, reduction="mean"),
        K.losses.dice_loss(a, target),
        K.losses.charbonnier_loss(a, b, reduction="mean"),
        K.losses.tversky_loss(a, target, 0.5, 0.5),
    ]
    sum(y).backward()
    return [*y, a.grad, K.metrics.ssim(a, b, 5), K.metrics.mean_iou(target, target, 3)]


def case_augmentation():
    x = _image()
    steps = K.augmentation.AugmentationSequential(
        K.augmentation.RandomHorizontalFlip(p=1.0),
        K.augmentation.Normalize(0.5, 0.2),
        K.augmentation.CenterCrop((8, 8)),
        data_keys=["input", "mask"],
    )
    return list(steps(x, x[:, :1]))


def case_morphology():
    x, kernel = _image(), torch.ones(3, 3)
    return [
        K.morphology.dilation(x, kernel),
        K.morphology.erosion(x, kernel),
        K.morphology.gradient(x, kernel),
        K.contrib.distance_transform(x[:, :1].round()),
    ]
