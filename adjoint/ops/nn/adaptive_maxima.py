"""Adaptive windows, as many as the result has elements, and their maxima."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import dtype as dt
from ...core.spec import prod
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply
from ...runtime.public import FUNCTIONS, explaining
from ..shape.sizes import hold_sizes
from .pooling import MaxPool, MaxPoolIndices
from .windows import Sizes, batched, per_dimension

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d"]


def _output_sizes(name: str, input: Tensor, output_size: Any, rank: int) -> tuple[Sizes, Sizes]:
    """The sizes of the input and the output; None keeps a size."""
    if input._data.ndim not in (rank + 1, rank + 2):
        batched(input, rank, name)
    size = tuple(input._data.shape[-rank:])
    given = output_size if isinstance(output_size, (tuple, list)) else (output_size,) * rank
    sizes = tuple(n if o is None else o for o, n in zip(given, size, strict=False))
    return size, per_dimension(sizes, rank, name, "output_size", 0)


def _bounds(n: int, count: int) -> Iterable[tuple[int, int]]:
    """Begin and end of each of `count` windows that cover n elements."""
    return ((i * n // count, -(-(i + 1) * n // count)) for i in range(count))


def _adaptive_max_pool(rank: int, input: Tensor, output_size: Any, return_indices: bool) -> Any:
    size, count = _output_sizes(f"adaptive_max_pool{rank}d", input, output_size, rank)
    input = hold_sizes(f"adaptive_max_pool{rank}d", input, dims=range(-rank, 0))
    if all(c and n % c == 0 for n, c in zip(size, count, strict=True)):
        kernel = tuple(n // c for n, c in zip(size, count, strict=True))
        op = MaxPool(kernel, kernel, ((0, 0),) * rank, (1,) * rank)
        result: Any = apply(op, input)
        if not return_indices:
            return result
        return result, apply(MaxPoolIndices(*op.options), input, result)
    lead = tuple(input.shape[:-rank])
    windows: Any = input
    shape: list[int] = []
    place: Any = np.zeros((), np.int64)  # in the flattened image, for each window and element
    for i, (n, c) in enumerate(zip(size, count, strict=True)):
        bounds = list(_bounds(n, c))
        width = max((end - start for start, end in bounds), default=1)
        # Shorter windows repeat their last element, which never comes first.
        table = np.array([[min(s + j, e - 1) for j in range(width)] for s, e in bounds], np.int64)
        index = input.new_tensor(table.reshape(-1), dtype=dt.int64)
        windows = FUNCTIONS["index_select"](windows, i - rank, index)
        shape += [c, width]
        place = place[..., None, None] * n + table.reshape(c, width)
    order = [*range(0, 2 * rank, 2), *range(1, 2 * rank, 2)]
    first = len(lead)
    windows = windows.reshape(*lead, *shape)
    windows = windows.permute(*range(first), *(first + i for i in order))
    windows = windows.reshape(*lead, *count, prod(shape[1::2]))
    values, chosen = windows.max(-1)
    if not return_indices:
        return values
    table = place.transpose(order).reshape(*count, prod(shape[1::2]))
    places = input.new_tensor(table, dtype=dt.int64).expand(*windows.shape)
    return values, places.gather(-1, chosen.unsqueeze(-1)).squeeze(-1)


@explaining
def adaptive_max_pool1d(
    input: Tensor, output_size: int | Sequence[int | None] | None, return_indices: bool = False
) -> Any:
    """Largest value of each of output_size windows that cover the signals evenly.

        y[i] = max of x[floor(i size / output_size) : ceil((i + 1) size / output_size)]

    Args:
        input: Values.
        output_size: Size of the output, an int or one per dimension; None in it keeps a size.
        return_indices: Return the places of the maxima, too, as indices into the flattened spatial
            dimensions. Default: False.

    Shapes: (batch, channels, length) or without batch -> the same with output_size; with
    `return_indices` a pair of such tensors.
    Dtypes: any real; the indices are int64.
    Errors: ShapeError for other ranks.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.adaptive_max_pool1d.html

    >>> from adjoint.ops.nn.averaging import adaptive_max_pool1d
    >>> adaptive_max_pool1d(ad.ones(1, 5), 2).shape
    adjoint.Size([1, 2])
    """
    return _adaptive_max_pool(1, input, output_size, return_indices)


@explaining
def adaptive_max_pool2d(
    input: Tensor, output_size: int | Sequence[int | None] | None, return_indices: bool = False
) -> Any:
    """Largest value of each of output_size windows that cover the images evenly.

        y[i] = max of x[floor(i size / output_size) : ceil((i + 1) size / output_size)]

    Args:
        input: Values.
        output_size: Size of the output, an int or one per dimension; None in it keeps a size.
        return_indices: Return the places of the maxima, too, as indices into the flattened spatial
            dimensions. Default: False.

    Shapes: (batch, channels, height, width) or without batch -> the same with output_size; with
    `return_indices` a pair of such tensors.
    Dtypes: any real; the indices are int64.
    Errors: ShapeError for other ranks.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.adaptive_max_pool2d.html

    >>> from adjoint.ops.nn.averaging import adaptive_max_pool2d
    >>> adaptive_max_pool2d(ad.ones(1, 5, 5), 2).shape
    adjoint.Size([1, 2, 2])
    """
    return _adaptive_max_pool(2, input, output_size, return_indices)


def adaptive_max_pool3d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """Largest value of each of output_size windows that cover the volumes evenly.

        y[i] = max of x[floor(i size / output_size) : ceil((i + 1) size / output_size)]

    Args:
        input: Values.
        output_size: Size of the output, an int or one per dimension; None in it keeps a size.
        return_indices: Return the places of the maxima, too, as indices into the flattened spatial
            dimensions. Default: False.

    Shapes: (batch, channels, depth, height, width) or without batch -> the same with output_size;
    with `return_indices` a pair of such tensors.
    Dtypes: any real; the indices are int64.
    Errors: ShapeError for other ranks.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.adaptive_max_pool3d.html

    >>> from adjoint.ops.nn.averaging import adaptive_max_pool3d
    >>> adaptive_max_pool3d(ad.ones(1, 5, 5, 5), 2).shape
    adjoint.Size([1, 2, 2, 2])
    """
    return _adaptive_max_pool(3, input, output_size, return_indices)
