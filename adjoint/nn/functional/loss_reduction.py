"""Reduction of the elements of a loss: their mean, their sum, or all of them."""

from __future__ import annotations

import warnings
from typing import Any

from ...core.errors import InvalidArgument
from ...tensor import Tensor

__all__: list[str] = []


def reduction_of(
    reduction: str, size_average: bool | None, reduce: bool | None, stacklevel: int = 3
) -> str:
    """`reduction`, or what the deprecated two flags mean."""
    if size_average is not None or reduce is not None:
        whole = reduce is None or reduce
        mean = size_average is None or size_average
        reduction = ("mean" if mean else "sum") if whole else "none"
        warnings.warn(
            f"size_average and reduce args will be deprecated, please use reduction='{reduction}' "
            "instead.",
            stacklevel=stacklevel,
        )
    return reduction


def _reduced(loss: Any, reduction: str, name: str) -> Tensor:
    if reduction == "mean":
        return loss.mean()
    if reduction == "sum":
        return loss.sum()
    if reduction == "none":
        return loss
    raise InvalidArgument(
        f"{name}: {reduction} is not a valid value for reduction; use 'none', 'mean' or 'sum'"
    )


def _warn_of_sizes(input: Tensor, target: Tensor, name: str) -> None:
    if input.shape != target.shape:
        warnings.warn(
            f"Using a target size ({target.shape}) that is different to the input size "
            f"({input.shape}). This will likely lead to incorrect results due to broadcasting. "
            f"Please ensure they have the same size. ({name})",
            stacklevel=4,
        )
