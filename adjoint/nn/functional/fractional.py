"""Fractional max pooling, and names that also return indices."""

from __future__ import annotations

import inspect
import math
import textwrap
from typing import Any

from ...core import dtype as dt
from ...core.errors import InvalidArgument, ShapeError
from ...ops.argument_dtypes import REALS, assert_dtypes
from ...ops.create.creation import full
from ...ops.create.ranges import arange
from ...ops.nn import adaptive_maxima
from ...ops.nn.pooling import max_pool1d, max_pool2d, max_pool3d
from ...ops.nn.windows import per_dimension
from ...ops.random.random import rand
from ...ops.random.streams import draw_for
from ...ops.shape.arranging import pad
from ...runtime.public import explaining
from ...tensor import Tensor

__all__ = [
    "adaptive_max_pool1d_with_indices", "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d_with_indices", "fractional_max_pool2d",
    "fractional_max_pool2d_with_indices", "fractional_max_pool3d",
    "fractional_max_pool3d_with_indices", "max_pool1d_with_indices", "max_pool2d_with_indices",
    "max_pool3d_with_indices",
]  # fmt: skip


def _with_indices(rank: int, kind: str, pool: Any, arguments: str = "2") -> Any:
    """`pool` that always returns indices."""

    signature = inspect.signature(pool)

    def function(*args: Any, **kwargs: Any) -> Any:
        call = signature.bind(*args, **kwargs)
        call.arguments["return_indices"] = True
        return pool(*call.args, **call.kwargs)

    function.__signature__ = signature  # type: ignore[attr-defined]
    function.__name__ = function.__qualname__ = f"{kind}{rank}d_with_indices"
    example = ", ".join(["1"] + ["4"] * rank)
    described = (inspect.getdoc(pool) or "").partition("\n\n")[2].partition("\nSource:")[0]
    function.__doc__ = f"""`{kind}{rank}d` that always returns the places of the maxima, too.

{textwrap.indent(described, "    ")}
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.{kind}{rank}d.html

    >>> ad.nn.functional.{function.__name__}(ad.ones({example}), {arguments})[1].dtype
    adjoint.int64
    """
    return explaining(function)


max_pool1d_with_indices = _with_indices(1, "max_pool", max_pool1d)
max_pool2d_with_indices = _with_indices(2, "max_pool", max_pool2d)
max_pool3d_with_indices = _with_indices(3, "max_pool", max_pool3d)
adaptive_max_pool1d_with_indices = _with_indices(
    1, "adaptive_max_pool", adaptive_maxima.adaptive_max_pool1d
)
adaptive_max_pool2d_with_indices = _with_indices(
    2, "adaptive_max_pool", adaptive_maxima.adaptive_max_pool2d
)
adaptive_max_pool3d_with_indices = _with_indices(
    3, "adaptive_max_pool", adaptive_maxima.adaptive_max_pool3d
)


def _starts(draws: Any, size: int, count: int, kernel: int) -> Any:
    """Where the windows of each plane begin, (..., count), from one draw per plane."""
    if count == 1:
        return full((*draws.shape, 1), size - kernel, dtype=dt.int64, device=draws.device)
    kind = draws.dtype.numpy.type
    alpha = float(kind(size - kernel) / kind(count - 1))
    draws = draws.unsqueeze(-1)
    places = arange(count - 1, dtype=draws.dtype, device=draws.device) + draws
    starts = (places * alpha).to(dt.int64) - (draws * alpha).to(dt.int64)
    return pad(starts, (0, 1), value=size - kernel)


def _fractional_max_pool(
    rank: int, input: Tensor, kernel_size: Any, output_size: Any, output_ratio: Any, samples: Any
) -> tuple[Tensor, Tensor]:
    name = f"fractional_max_pool{rank}d"
    if output_size is None and output_ratio is None:
        raise InvalidArgument(
            f"{name} requires specifying either an output_size or an output_ratio"
        )
    if input.ndim not in (rank + 1, rank + 2):
        raise ShapeError(
            f"{name}: Expected {rank + 1}D or {rank + 2}D tensor, but got shape "
            f"{tuple(input.shape)}"
        )
    assert_dtypes(name, REALS, input=input)
    size = tuple(input.shape[-rank:])
    kernel = per_dimension(kernel_size, rank, name, "kernel_size")
    if output_size is None:
        ratios = output_ratio if isinstance(output_ratio, (tuple, list)) else [output_ratio] * rank
        output_size = [int(n * r) for n, r in zip(size, ratios, strict=True)]
    count = per_dimension(output_size, rank, name, "output_size")
    if any(c + k - 1 > n for n, k, c in zip(size, kernel, count, strict=True)):
        raise ShapeError(
            f"{name}: kernel {kernel} and output size {count} are too large for an input of size "
            f"{size}"
        )
    lead = tuple(input.shape[:-rank])
    planes = lead if len(lead) == 2 else (1, *lead)
    if samples is None:
        samples = draw_for((input,), rand, *planes, rank, dtype=input.dtype)
    draws: Any = samples.detach().to(input.device)[: planes[0], : planes[1]]
    index: Any = 0
    for i, (n, k, c) in enumerate(zip(size, kernel, count, strict=True)):
        # The draws of images are for width and height, those of volumes in the order of the axes.
        draw = draws[..., i if rank == 3 else rank - 1 - i]
        at = _starts(draw, n, c, k).unsqueeze(-1) + arange(k, device=input.device)
        shape = [*planes, *(1,) * (2 * rank)]
        shape[2 + i], shape[2 + rank + i] = c, k
        index = index * n + at.reshape(shape)
    index = index.expand(*planes, *count, *kernel).reshape(*lead, -1)
    windows = input.reshape(*lead, math.prod(size)).gather(-1, index)
    windows = windows.reshape(*lead, *count, math.prod(kernel))
    values, chosen = windows.max(-1)
    places = index.reshape(*windows.shape).gather(-1, chosen.unsqueeze(-1)).squeeze(-1)
    return values, places


def fractional_max_pool2d(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Any = None,
) -> Any:
    """Largest value of windows of images at random steps (Graham, 2014).

        y[i] = max of x[a_i : a_i + kernel_size]

    The windows begin at a_i = floor((i + u) alpha) - floor(u alpha), where u is drawn for each
    channel and alpha is (size - kernel_size) / (output_size - 1); the last one ends at the border.

    Args:
        input: Values.
        kernel_size: Size of the windows, an int or one per dimension.
        output_size: Size of the output, an int or one per dimension. Default: None, by
            output_ratio.
        output_ratio: Size of the output as a share of the input's, a float between 0 and 1 or one
            per dimension. Default: None, by output_size.
        return_indices: Return the places of the maxima, too, as indices into the flattened spatial
            dimensions. Default: False.
        _random_samples: Numbers u, (batch, channels, 2), instead of drawn ones. Default: None.

    Shapes: (batch, channels, height, width) -> (batch, channels, out_height, out_width), or without
    batch; with `return_indices` a pair of such tensors.
    Errors: InvalidArgument where neither output_size nor output_ratio is given; ShapeError for
    other ranks and where the windows do not fit.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.fractional_max_pool2d.html

    >>> ad.nn.functional.fractional_max_pool2d(ad.zeros(1, 6, 6), 2, output_ratio=0.5).shape
    adjoint.Size([1, 3, 3])
    """
    result = _fractional_max_pool(2, input, kernel_size, output_size, output_ratio, _random_samples)
    return result if return_indices else result[0]


def fractional_max_pool3d(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Any = None,
) -> Any:
    """Largest value of windows of volumes at random steps (Graham, 2014).

        y[i] = max of x[a_i : a_i + kernel_size]

    The windows begin at a_i = floor((i + u) alpha) - floor(u alpha), where u is drawn for each
    channel and alpha is (size - kernel_size) / (output_size - 1); the last one ends at the border.

    Args:
        input: Values.
        kernel_size: Size of the windows, an int or one per dimension.
        output_size: Size of the output, an int or one per dimension. Default: None, by
            output_ratio.
        output_ratio: Size of the output as a share of the input's, a float between 0 and 1 or one
            per dimension. Default: None, by output_size.
        return_indices: Return the places of the maxima, too, as indices into the flattened spatial
            dimensions. Default: False.
        _random_samples: Numbers u, (batch, channels, 3), instead of drawn ones. Default: None.

    Shapes: (batch, channels, depth, height, width) -> (batch, channels, out_depth, out_height,
    out_width), or without batch; with `return_indices` a pair of such tensors.
    Errors: InvalidArgument where neither output_size nor output_ratio is given; ShapeError for
    other ranks and where the windows do not fit.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.fractional_max_pool3d.html

    >>> ad.nn.functional.fractional_max_pool3d(ad.zeros(1, 6, 6, 6), 2, output_ratio=0.5).shape
    adjoint.Size([1, 3, 3, 3])
    """
    result = _fractional_max_pool(3, input, kernel_size, output_size, output_ratio, _random_samples)
    return result if return_indices else result[0]


fractional_max_pool2d_with_indices = _with_indices(
    2, "fractional_max_pool", fractional_max_pool2d, "2, 3"
)
fractional_max_pool3d_with_indices = _with_indices(
    3, "fractional_max_pool", fractional_max_pool3d, "2, 3"
)
