"""Sampling images at arbitrary places: affine_grid, grid_sample."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.errors import InvalidArgument, ShapeError
from ...ops.argument_dtypes import FLOATING, assert_dtypes, assert_equal_dtypes
from ...ops.create.exchange import from_numpy
from ...ops.elementwise.comparison import where
from ...ops.shape.concatenation import stack
from ...runtime.public import explaining
from ...tensor import Tensor

__all__ = ["affine_grid", "grid_sample"]


def _aligned(align_corners: bool | None) -> bool:
    if align_corners is None:
        warnings.warn(
            "Default grid_sample and affine_grid behavior has changed to align_corners=False since "
            "1.3.0. Please specify align_corners=True if the old behavior is desired.",
            stacklevel=3,
        )
    return bool(align_corners)


@explaining
def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """Places in the input that affine maps give to the elements of an output.

        grid[n, i, j] = theta[n] (x_j, y_i, 1)

    x_j and y_i go from -1 to 1 along the output.

    Args:
        theta: Matrix of each sample's affine map.
        size: Shape of the output, (N, C, H, W) or (N, C, D, H, W).
        align_corners: Whether -1 and 1 are the centres of the border's elements, not their outer
            edges. Default: None, False with a warning.

    Shapes: theta (N, 2, 3) and size (N, C, H, W) -> (N, H, W, 2); (N, 3, 4) and (N, C, D, H, W) ->
    (N, D, H, W, 3).
    Errors: ShapeError for other shapes; InvalidArgument for a size that is not positive.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.affine_grid.html

    >>> theta = ad.tensor([[[1., 0., 0.], [0., 1., 0.]]])
    >>> ad.nn.functional.affine_grid(theta, (1, 1, 1, 2), align_corners=True)[0, 0]
    tensor([[-1.,  0.],
            [ 1.,  0.]])
    """
    align = _aligned(align_corners)
    rank = len(size) - 2
    if rank not in (2, 3) or theta.ndim != 3 or tuple(theta.shape[1:]) != (rank, rank + 1):
        raise ShapeError(
            f"affine_grid: Expected a batch of affine matrices of shape Nx2x3 for a size of 4 or "
            f"Nx3x4 for a size of 5. Got {tuple(theta.shape)} and size {tuple(size)}."
        )
    if min(size) <= 0:
        raise InvalidArgument(f"affine_grid: Expected non-zero, positive output size. Got {size}")
    lines = []
    for n in size[2:]:
        line = np.linspace(-1, 1, n) if n > 1 else np.zeros(1)
        lines.append(line if align else line * (n - 1) / n)
    places = np.stack([*reversed(np.meshgrid(*lines, indexing="ij")), np.ones(tuple(size[2:]))], -1)
    base = from_numpy(places.reshape(-1, rank + 1)).to(theta)
    grid = base @ theta.transpose(1, 2)
    return grid.reshape(size[0], *size[2:], rank)


def _reflected(x: Any, low: float, high: float) -> Any:
    """`x` reflected at `low` and `high` until it is between them."""
    span = high - low
    if span == 0:
        return x * 0
    x = (x - low).abs()
    flips = (x / span).detach().floor()
    rest = x - flips * span
    odd = (flips % 2).to(x.dtype)
    return odd * (span - rest) + (1 - odd) * rest + low


def _bounded(x: Any, size: int, padding_mode: str, align: bool) -> Any:
    if padding_mode == "reflection":
        x = _reflected(x, *((0, size - 1) if align else (-0.5, size - 0.5)))
    return x if padding_mode == "zeros" else where(x == x, x, 0).clamp(0, size - 1)


def _cubic_weights(t: Any) -> list[Any]:
    """The weights of the pixels at -1, 0, 1 and 2 for a place `t` between 0 and 1."""
    a = -0.75

    def near(x: Any) -> Any:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Any) -> Any:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """Values of the input at the places of a grid.

        y[n, c, i, j] = input[n, c] at (x, y) = grid[n, i, j], where -1 and 1 are its borders

    Args:
        input: Values.
        grid: Places (x, y), or (x, y, z), for each element of the output.
        mode: "bilinear" (for volumes, trilinear), "nearest" or, for images, "bicubic". Default:
            "bilinear".
        padding_mode: Value beyond the borders: "zeros", "border" or "reflection". Default: "zeros".
        align_corners: Whether -1 and 1 are the centres of the border's elements, not their outer
            edges. Default: None, False with a warning.

    Shapes: input (N, C, H, W), grid (N, h, w, 2) -> (N, C, h, w); or input (N, C, D, H, W), grid
    (N, d, h, w, 3) -> (N, C, d, h, w).
    Errors: InvalidArgument for an unknown mode or padding_mode; ShapeError where shapes do not fit.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.grid_sample.html

    >>> x, grid = ad.tensor([[[[1., 3.]]]]), ad.zeros(1, 1, 1, 2)
    >>> ad.nn.functional.grid_sample(x, grid, align_corners=False)
    tensor([[[[2.]]]])
    """
    rank = input.ndim - 2
    if mode not in ("bilinear", "nearest", "bicubic") or (mode == "bicubic" and rank != 2):
        raise InvalidArgument(
            f"grid_sample: expected mode to be 'bilinear', 'nearest' or, for images, 'bicubic', "
            f"but got: {mode!r}"
        )
    if padding_mode not in ("zeros", "border", "reflection"):
        raise InvalidArgument(
            f"grid_sample: expected padding_mode to be 'zeros', 'border', or 'reflection', but "
            f"got: {padding_mode!r}"
        )
    if rank not in (2, 3) or grid.ndim != input.ndim or grid.shape[-1] != rank or (
        grid.shape[0] != input.shape[0]
    ):  # fmt: skip
        raise ShapeError(
            f"grid_sample: expected 4D or 5D input and grid with same number of dimensions and "
            f"batch size, and {rank} coordinates last, but got {tuple(input.shape)} and "
            f"{tuple(grid.shape)}"
        )
    assert_equal_dtypes("grid_sample", input, grid=grid)
    assert_dtypes("grid_sample", FLOATING, input=input)
    align = _aligned(align_corners)
    sizes = tuple(input.shape[2:])
    centres = []  # in pixels, one for each dimension of the image
    for i, n in enumerate(sizes):
        x = grid[..., rank - 1 - i]
        x = (x + 1) / 2 * (n - 1) if align else ((x + 1) * n - 1) / 2
        centres.append(x if mode == "bicubic" else _bounded(x, n, padding_mode, align))
    axes: list[list[tuple[Any, Any]]] = []  # per dimension: pixels and their weights
    for x, n in zip(centres, sizes, strict=True):
        if mode == "nearest":
            one = where((x == x) | (x != x), 1, x)  # so the gradient of `grid` is 0, not none
            axes.append([(x.detach().round(), one if x is centres[0] else None)])
            continue
        low = x.detach().floor()
        t = x - low
        if mode == "bilinear":
            axes.append([(low, 1 - t), (low + 1, t)])
        else:
            around = [_bounded(low + k, n, padding_mode, align) for k in (-1, 0, 1, 2)]
            axes.append(list(zip(around, _cubic_weights(t), strict=True)))
    batch, channels = input.shape[:2]
    flat = input.reshape(batch, channels, math.prod(sizes))
    places = math.prod(grid.shape[1:-1])
    terms = []
    for corner in itertools.product(*axes):
        index: Any = 0
        inside: Any = None
        weight: Any = None
        for (pixel, part), n in zip(corner, sizes, strict=True):
            valid = (pixel >= 0) & (pixel <= n - 1)
            inside = valid if inside is None else inside & valid
            index = index * n + where(valid, pixel, 0).long()
            if part is not None:
                weight = part if weight is None else weight * part
        found = flat.gather(2, index.reshape(batch, 1, places).expand(batch, channels, places))
        found = where(inside.reshape(batch, 1, places), found, 0)
        terms.append(found if weight is None else found * weight.reshape(batch, 1, places))
    total = terms[0] if len(terms) == 1 else stack(terms).sum(0)
    return total.reshape(batch, channels, *grid.shape[1:-1])
