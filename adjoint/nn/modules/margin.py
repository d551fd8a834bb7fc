"""Losses as modules beyond those of `loss`: CTC, multi-label margins, other distances."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...core.errors import InvalidArgument, ShapeError
from .. import functional as F  # noqa: N812 - the name everyone knows it by
from ..functional.loss import reduction_of
from .distance import PairwiseDistance
from .linear import Linear
from .module import Module

__all__ = [
    "CTCLoss", "LinearCrossEntropyLoss", "LinearCrossEntropyOptions", "MultiLabelMarginLoss",
    "TripletMarginWithDistanceLoss",
]  # fmt: skip


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


class CTCLoss(_Loss):
    """Minus the log-probability of the targets, summed over all their alignments with the input.

    Shapes: log-probabilities (T, N, C) or (T, C); targets (N, S), or all in one.
    Errors: those of `functional.ctc_loss`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.CTCLoss.html

    >>> ad.nn.CTCLoss()(ad.zeros(2, 1, 2).log_softmax(2), ad.tensor([[1]]), [2], [1]).exp()
    tensor(1.3333)
    """

    def __init__(
        self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False
    ) -> None:
        super().__init__(reduction=reduction)
        self.blank = blank
        self.zero_infinity = zero_infinity

    def forward(self, log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any) -> Any:
        """The loss."""
        return F.ctc_loss(
            log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction,
            self.zero_infinity,
        )  # fmt: skip


class MultiLabelMarginLoss(_Loss):
    """The sum over labels j and other classes i of max(0, 1 - input[j] + input[i]) / classes.

    Shapes: (batch, classes) both, or without batch.
    Errors: those of `functional.multilabel_margin_loss`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiLabelMarginLoss.html

    >>> x, y = ad.tensor([[0.1, 0.2, 0.4, 0.8]]), ad.tensor([[3, 0, -1, 1]])
    >>> ad.nn.MultiLabelMarginLoss()(x, y)
    tensor(0.8500)
    """

    def forward(self, input: Any, target: Any) -> Any:
        """The loss."""
        return F.multilabel_margin_loss(input, target, reduction=self.reduction)


class TripletMarginWithDistanceLoss(_Loss):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin) for any distance d.

    Shapes: those of the distance; by default (batch, features), all alike.
    Errors: InvalidArgument where the margin is not positive.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.TripletMarginWithDistanceLoss.html

    >>> a = ad.zeros(1, 2)
    >>> ad.nn.TripletMarginWithDistanceLoss()(a, a, a).item()
    1.0
    """

    def __init__(
        self,
        *,
        distance_function: Callable[[Any, Any], Any] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction=reduction)
        if margin <= 0:
            raise InvalidArgument(
                f"TripletMarginWithDistanceLoss: expected margin to be greater than 0, got "
                f"{margin} instead"
            )
        self.distance_function = distance_function or PairwiseDistance()
        self.margin = margin
        self.swap = swap

    def forward(self, anchor: Any, positive: Any, negative: Any) -> Any:
        """The loss."""
        return F.triplet_margin_with_distance_loss(
            anchor, positive, negative, distance_function=self.distance_function,
            margin=self.margin, swap=self.swap, reduction=self.reduction,
        )  # fmt: skip


@dataclass(frozen=True)
class LinearCrossEntropyOptions:
    """How PyTorch bounds the memory of linear_cross_entropy; nothing depends on it here.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LinearCrossEntropyOptions.html

    >>> ad.nn.LinearCrossEntropyOptions(batch_chunk_size=2).chunking_method
    'auto'
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: Any = None


class LinearCrossEntropyLoss(_WeightedLoss):
    """The cross entropy of a linear map of the input.

    Shapes: (batch, in_features) or (in_features,), and target classes or probabilities.
    Errors: those of `functional.linear_cross_entropy`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LinearCrossEntropyLoss.html

    >>> ad.nn.LinearCrossEntropyLoss(5, 10)(ad.ones(2, 5), ad.tensor([3, 4])).shape
    adjoint.Size([])
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device: Any = None,
        dtype: Any = None,
        reduction: str = "mean",
        weight: Any = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: Any = None,
    ) -> None:
        super().__init__(weight, reduction=reduction)
        if weight is not None and tuple(weight.shape) != (num_classes,):
            raise ShapeError(
                f"expected weight shape to be {(num_classes,)}, got {tuple(weight.shape)}"
            )
        if not 0 <= label_smoothing <= 1:
            raise InvalidArgument(
                f"expected label_smoothing to be in range [0, 1], got {label_smoothing}"
            )
        self.num_classes = num_classes
        self.out_features = out_features
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        rows = num_classes * math.prod(out_features)
        self.linear = Linear(in_features, rows, bias=bias, device=device, dtype=dtype)
        self.options = options

    def forward(self, input: Any, target: Any) -> Any:
        """The loss."""
        shape = (self.num_classes, *self.out_features)
        bias = self.linear.bias
        return F.linear_cross_entropy(
            input,
            self.linear.weight.reshape(*shape, self.linear.in_features),
            target,
            linear_bias=None if bias is None else bias.reshape(shape),
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            options=self.options,
        )

    def extra_repr(self) -> str:
        """The settings."""
        return (
            f"in_features={self.linear.in_features}, num_classes={self.num_classes}, "
            f"out_features={self.out_features}, bias={self.linear.bias is not None}, "
            f"reduction={self.reduction}, ignore_index={self.ignore_index}, "
            f"label_smoothing={self.label_smoothing}, options={self.options}"
        )
