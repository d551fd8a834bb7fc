"""Criterion: the base of losses, which says how the elements' losses are reduced."""

from __future__ import annotations

from typing import Any

from ..functional.loss_reduction import reduction_of
from .module import Module

__all__: list[str] = []


class _Loss(Module):
    """The base of losses: how the elements' losses are reduced."""

    def __init__(
        self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
    ) -> None:
        super().__init__()
        self.reduction = reduction_of(reduction, size_average, reduce)


class _WeightedLoss(_Loss):
    """The base of losses with a weight for each class."""

    def __init__(
        self,
        weight: Any = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)
