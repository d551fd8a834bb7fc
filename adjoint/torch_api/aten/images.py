"""Convolutions, pooling and sampling, with numbers for what `nn.functional` has words for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...core.errors import InvalidArgument, ShapeError
from ...nn import functional as F  # noqa: N812 - the name everyone knows it by
from ...runtime.public import explaining
from ...tensor import Tensor

if TYPE_CHECKING:
    from ...ops.argument_types import Dims

_CONVOLUTIONS = (F.conv1d, F.conv2d, F.conv3d)
_TRANSPOSED = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)


@explaining
def convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    """`nn.functional.conv1d` to `conv3d`, or `conv_transpose1d` to `conv_transpose3d`, by the
    number of dimensions of `weight`.

    Errors: ShapeError for a weight of other dimensions than 3 to 5, and those of these functions.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.conv2d.html

    >>> ad.convolution(ad.ones(1, 1, 3), ad.ones(1, 1, 2), None, [1], [0], [1], False, [0], 1)
    tensor([[[2., 2.]]])
    """
    rank = weight.ndim - 2
    if rank not in (1, 2, 3):
        raise ShapeError(
            f"convolution: weight should have 3 to 5 dimensions, got shape {tuple(weight.shape)}"
        )
    steps, pads, gaps, more = (
        one if isinstance(one, int) else one[0] if len(one) == 1 else tuple(one)
        for one in (stride, padding, dilation, output_padding)
    )
    if transposed:
        return _TRANSPOSED[rank - 1](input, weight, bias, steps, pads, more, groups, gaps)
    return _CONVOLUTIONS[rank - 1](input, weight, bias, steps, pads, gaps, groups)


@explaining
def mkldnn_convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """`convolution`, in the order of arguments that PyTorch's of oneDNN has.

    Errors: those of `convolution`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.conv2d.html

    >>> x, w = ad.ones(1, 1, 2, 2), ad.ones(1, 1, 2, 2)
    >>> ad.mkldnn_convolution(x, w, None, [0, 0], [1, 1], [1, 1], 1)
    tensor([[[[4.]]]])
    """
    return convolution(input, weight, bias, stride, padding, dilation, False, [0], groups)


@explaining
def max_pool1d_with_indices(
    input: Tensor,
    kernel_size: Dims,
    stride: Dims = (),
    padding: Dims = 0,
    dilation: Dims = 1,
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    """`nn.functional.max_pool1d` with `return_indices`; no stride, (), is `kernel_size`.

    Errors: those of that function.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.max_pool1d.html

    >>> ad.max_pool1d_with_indices(ad.tensor([[1., 3., 2., 0.]]), 2)
    (tensor([[3., 2.]]), tensor([[1, 2]]))
    """
    steps = stride if isinstance(stride, int) or len(stride) else None
    return F.max_pool1d(input, kernel_size, steps, padding, dilation, ceil_mode, True)


@explaining
def native_channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """`nn.functional.channel_shuffle`.

    Errors: those of that function.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.channel_shuffle.html

    >>> ad.native_channel_shuffle(ad.arange(4).reshape(1, 4, 1), 2).flatten()
    tensor([0, 2, 1, 3])
    """
    return F.channel_shuffle(input, groups)


# ---- sampling ------------------------------------------------------------------------------------

_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")


@explaining
def affine_grid_generator(theta: Tensor, size: Sequence[int], align_corners: bool) -> Tensor:
    """`nn.functional.affine_grid`.

    Errors: those of that function.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.affine_grid.html

    >>> ad.affine_grid_generator(ad.eye(2, 3).unsqueeze(0), (1, 1, 2, 2), True).shape
    adjoint.Size([1, 2, 2, 2])
    """
    return F.affine_grid(theta, size, bool(align_corners))


@explaining
def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """`nn.functional.grid_sample`: modes 0 bilinear, 1 nearest, 2 bicubic; padding 0 zeros, 1
    border, 2 reflection.

    Errors: InvalidArgument for other numbers, and those of that function.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.grid_sample.html

    >>> ad.grid_sampler(ad.tensor([[[[1., 3.]]]]), ad.zeros(1, 1, 1, 2), 0, 0, False)
    tensor([[[[2.]]]])
    """
    return _sampled("grid_sampler", input, grid, interpolation_mode, padding_mode, align_corners)


@explaining
def grid_sampler_2d(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """`grid_sampler` of images.

    Errors: ShapeError for what is no batch of images, and those of `grid_sampler`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.grid_sample.html

    >>> ad.grid_sampler_2d(ad.tensor([[[[1., 3.]]]]), ad.zeros(1, 1, 1, 2), 0, 0, False)
    tensor([[[[2.]]]])
    """
    name = "grid_sampler_2d"
    return _sampled(name, input, grid, interpolation_mode, padding_mode, align_corners, 4)


@explaining
def grid_sampler_3d(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """`grid_sampler` of volumes.

    Errors: ShapeError for what is no batch of volumes, and those of `grid_sampler`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.grid_sample.html

    >>> ad.grid_sampler_3d(ad.ones(1, 1, 1, 1, 1), ad.zeros(1, 1, 1, 1, 3), 0, 0, False).item()
    1.0
    """
    name = "grid_sampler_3d"
    return _sampled(name, input, grid, interpolation_mode, padding_mode, align_corners, 5)


def _sampled(
    name: str, input: Any, grid: Any, mode: int, padding: int, align: bool, rank: int | None = None
) -> Any:
    if mode not in range(3) or padding not in range(3):
        raise InvalidArgument(
            f"{name}: interpolation_mode is 0, 1 or 2 for {', '.join(_MODES)}, padding_mode for "
            f"{', '.join(_PADDINGS)}; got {mode!r} and {padding!r}"
        )
    if rank is not None and input.ndim != rank:
        raise ShapeError(
            f"{name}: expected {rank}D input and grid with same number of dimensions, but got "
            f"{tuple(input.shape)} and {tuple(grid.shape)}"
        )
    return F.grid_sample(input, grid, _MODES[mode], _PADDINGS[padding], bool(align))
