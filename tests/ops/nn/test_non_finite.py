"""NaN and infinity stay where they are: values and gradients as PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest

import adjoint as ad

from ...pytorch import torch

NAN, INF = float("nan"), float("inf")
NUMBERS = [NAN, INF, -INF, 0, -0.0, 1, -1, 0.5, -0.5, 6, 3, -3, 2, 1e30, 1e38, -1e38, 0.3]


def assert_alike(call, *arrays):
    found = []
    for t in (ad, torch):
        inputs = [t.tensor(a, requires_grad=True) for a in arrays]
        y = call(t.nn.functional, *inputs)
        y.sum().backward()
        found.append([y.detach().numpy(), *(x.grad.numpy() for x in inputs)])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "name",
    ["relu", "relu6", "hardtanh", "softshrink", "hardshrink", "elu",
     "tanhshrink", "selu", "celu", "gelu", "silu", "mish", "softplus", "leaky_relu",
     "hardsigmoid", "hardswish"],
)  # fmt: skip
def test_activations(name):
    """One number at a time: PyTorch's gradients at NaN are others in vectors of 16 and more, of
    hardtanh 0 and not 1. Of hardswish it computes x * 6 / 6, which overflows where x does not.
    """
    for number in NUMBERS:
        if name == "hardswish" and number == 1e38:
            continue
        assert_alike(lambda F, x: getattr(F, name)(x), np.float32([number]))


@pytest.mark.parametrize("name", ["hardsigmoid", "hardswish"])
def test_ends_are_those_of_the_input(name):
    """2.9999998 + 3 is 6, and yet no end."""
    ends = [np.nextafter(np.float32(x), np.float32(to)) for x in (3, -3) for to in (0, 9 * x)]
    for number in ends:
        assert_alike(lambda F, x: getattr(F, name)(x), np.float32([number]))


@pytest.mark.parametrize("name", ["smooth_l1_loss", "huber_loss", "l1_loss", "mse_loss"])
def test_losses(name):
    x = np.float32(NUMBERS)
    for target in (x[::-1].copy(), np.zeros_like(x)):
        assert_alike(lambda F, x, y: getattr(F, name)(x, y, reduction="none"), x, target)


@pytest.mark.parametrize("bad", [NAN, INF])
@pytest.mark.parametrize("size", [1, 3, 4, 5, 8, 11])
def test_one_bad_pixel_stays_in_its_windows(bad, size):
    x = np.ones((1, 1, 8, 8), np.float32)
    x[0, 0, 3, 3] = bad
    assert_alike(lambda F, x: F.adaptive_avg_pool2d(x, size), x)
    assert_alike(lambda F, x: F.interpolate(x, size=(size, size), mode="area"), x)
    assert_alike(lambda F, x: F.adaptive_avg_pool1d(x, size), x[0])
    assert_alike(lambda F, x: F.adaptive_avg_pool3d(x, (1, 3, size)), x)


@pytest.mark.parametrize("bad", [NAN, INF, -INF, 1e38])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_places_that_are_nowhere(bad, mode, padding):
    """The first of two points is bad. PyTorch crashes in the gradients that are left out."""
    image = np.arange(64, dtype=np.float32).reshape(1, 1, 8, 8)
    grid = np.float32([[[[bad, 0.25], [0.25, -0.5]]]])
    options = {"mode": mode, "padding_mode": padding, "align_corners": False}
    if mode == "bilinear" and padding != "zeros":
        ours, theirs = (
            t.nn.functional.grid_sample(t.tensor(image), t.tensor(grid), **options)
            for t in (ad, torch)
        )
        np.testing.assert_allclose(ours.numpy(), theirs.numpy())
        x = ad.tensor(image, requires_grad=True)
        ad.nn.functional.grid_sample(x, ad.tensor(grid), **options).sum().backward()
        assert x.grad.sum().item() == 2
    else:
        sample = lambda F, x, g: F.grid_sample(x, g, **options)  # noqa: E731 - for two frameworks
        if mode == "bicubic":  # values only: PyTorch's weights are others in the last bits
            for t in (ad, torch):
                y = sample(t.nn.functional, t.tensor(image), t.tensor(grid))
                assert np.isnan(y.numpy()).ravel().tolist() == [True, False]
        else:
            assert_alike(sample, image, grid)


@pytest.mark.parametrize("rank", [2, 3])
def test_no_images_are_sampled(rank):
    x = ad.zeros(0, 1, *(4,) * rank, requires_grad=True)
    grid = ad.zeros(0, *(3,) * rank, rank)
    y = ad.nn.functional.grid_sample(x, grid, align_corners=False)
    assert y.shape == (0, 1, *(3,) * rank)
    y.sum().backward()
    assert x.grad.shape == x.shape
