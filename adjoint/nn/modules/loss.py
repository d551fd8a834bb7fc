"""Losses as modules."""

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
    "BCELoss", "BCEWithLogitsLoss", "CTCLoss", "CosineEmbeddingLoss", "CrossEntropyLoss",
    "GaussianNLLLoss", "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "L1Loss",
    "LinearCrossEntropyLoss", "LinearCrossEntropyOptions", "MSELoss", "MarginRankingLoss",
    "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss", "MultiMarginLoss", "NLLLoss",
    "PoissonNLLLoss", "SmoothL1Loss", "SoftMarginLoss", "TripletMarginLoss",
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


class MSELoss(_Loss):
    """The squared difference.

    Shapes: input and target alike; a scalar, or their shape for reduction "none".
    Errors: those of `functional.mse_loss`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MSELoss.html

    >>> ad.nn.MSELoss()(ad.zeros(2), ad.ones(2)).item()
    1.0
    """

    def forward(self, input: Any, target: Any) -> Any:
        """The loss."""
        return F.mse_loss(input, target, reduction=self.reduction)


class L1Loss(_Loss):
    """The absolute difference.

    Shapes: input and target alike; a scalar, or their shape for reduction "none".
    Errors: those of `functional.l1_loss`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.L1Loss.html

    >>> ad.nn.L1Loss()(ad.zeros(2), ad.ones(2)).item()
    1.0
    """

    def forward(self, input: Any, target: Any) -> Any:
        """The loss."""
        return F.l1_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(_Loss):
    """Squared below beta, absolute beyond.

    Shapes: input and target alike; a scalar, or their shape for reduction "none".
    Errors: those of `functional.smooth_l1_loss`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.SmoothL1Loss.html

    >>> ad.nn.SmoothL1Loss()(ad.zeros(2), ad.ones(2)).item()
    0.5
    """

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        beta: float = 1.0,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.beta = beta

    def forward(self, input: Any, target: Any) -> Any:
        """The loss."""
        return F.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(_Loss):
    """Half the square below delta, delta times the distance beyond.

    Shapes: input and target alike; a scalar, or their shape for reduction "none".
    Errors: those of `functional.huber_loss`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.HuberLoss.html

    >>> ad.nn.HuberLoss()(ad.zeros(2), ad.ones(2)).item()
    0.5
    """

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction)
        self.delta = delta

    def forward(self, input: Any, target: Any) -> Any:
        """The loss."""
        return F.huber_loss(input, target, reduction=self.reduction, delta=self.delta)


class BCELoss(_WeightedLoss):
    """The binary cross entropy of probabilities.

    Shapes: input and target alike; a scalar, or their shape for reduction "none".
    Errors: those of `functional.binary_cross_entropy`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.BCELoss.html

    >>> ad.nn.BCELoss()(ad.tensor([0.5]), ad.ones(1))
    tensor(0.6931)
    """

    def forward(self, input: Any, target: Any) -> Any:
        """The loss."""
        return F.binary_cross_entropy(input, target, self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(_WeightedLoss):
    """The binary cross entropy of logits; `pos_weight` weighs the positive ones.

    Shapes: input and target alike; a scalar, or their shape for reduction "none".
    Errors: those of `functional.binary_cross_entropy_with_logits`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.BCEWithLogitsLoss.html

    >>> ad.nn.BCEWithLogitsLoss()(ad.zeros(1), ad.ones(1))
    tensor(0.6931)
    """

    def __init__(
        self,
        weight: Any = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        pos_weight: Any = None,
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Any, target: Any) -> Any:
        """The loss."""
        return F.binary_cross_entropy_with_logits(
            input, target, self.weight, reduction=self.reduction, pos_weight=self.pos_weight
        )


class CrossEntropyLoss(_WeightedLoss):
    """The cross entropy between logits and target classes, or target probabilities.

    Shapes: (batch, classes, ...) and (batch, ...), without batch, or probabilities like the input.
    Errors: those of `functional.cross_entropy`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html

    >>> ad.nn.CrossEntropyLoss()(ad.zeros(3, 2), ad.tensor([0, 1, 1]))
    tensor(0.6931)
    """

    def __init__(
        self,
        weight: Any = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing

    def forward(self, input: Any, target: Any) -> Any:
        """The loss."""
        return F.cross_entropy(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class NLLLoss(_WeightedLoss):
    """Minus the log-probability of each target class.

    Shapes: (batch, classes, ...) and (batch, ...), or without batch.
    Errors: those of `functional.nll_loss`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.NLLLoss.html

    >>> ad.nn.NLLLoss()(ad.tensor([[-1., -2.]]), ad.tensor([1])).item()
    2.0
    """

    def __init__(
        self,
        weight: Any = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index

    def forward(self, input: Any, target: Any) -> Any:
        """The loss."""
        return F.nll_loss(
            input, target, self.weight, ignore_index=self.ignore_index, reduction=self.reduction
        )


class KLDivLoss(_Loss):
    """The Kullback-Leibler divergence; the input in log space.

    Shapes: input and target alike.
    Errors: those of `functional.kl_div`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.KLDivLoss.html

    >>> ad.nn.KLDivLoss(reduction="sum")(ad.zeros(2), ad.ones(2)).item()
    0.0
    """

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        log_target: bool = False,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_target = log_target

    def forward(self, input: Any, target: Any) -> Any:
        """The loss."""
        return F.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)


class PoissonNLLLoss(_Loss):
    """Minus the log-likelihood of counts under Poisson distributions.

    Shapes: input and target alike; a scalar, or their shape for reduction "none".
    Errors: those of `functional.poisson_nll_loss`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.PoissonNLLLoss.html

    >>> ad.nn.PoissonNLLLoss()(ad.zeros(1), ad.ones(1)).item()
    1.0
    """

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        size_average: bool | None = None,
        eps: float = 1e-8,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_input = log_input
        self.full = full
        self.eps = eps

    def forward(self, log_input: Any, target: Any) -> Any:
        """The loss."""
        return F.poisson_nll_loss(
            log_input,
            target,
            log_input=self.log_input,
            full=self.full,
            eps=self.eps,
            reduction=self.reduction,
        )


class HingeEmbeddingLoss(_Loss):
    """The input where target is 1, max(0, margin - input) where it is -1.

    Shapes: input and target alike; a scalar, or their shape for reduction "none".
    Errors: those of `functional.hinge_embedding_loss`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.HingeEmbeddingLoss.html

    >>> ad.nn.HingeEmbeddingLoss()(ad.zeros(1), ad.ones(1)).item()
    0.0
    """

    def __init__(
        self,
        margin: float = 1.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input: Any, target: Any) -> Any:
        """The loss."""
        return F.hinge_embedding_loss(input, target, margin=self.margin, reduction=self.reduction)


class SoftMarginLoss(_Loss):
    """log(1 + exp(-target input)).

    Shapes: input and target alike; a scalar, or their shape for reduction "none".
    Errors: those of `functional.soft_margin_loss`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.SoftMarginLoss.html

    >>> ad.nn.SoftMarginLoss()(ad.zeros(1), ad.ones(1))
    tensor(0.6931)
    """

    def forward(self, input: Any, target: Any) -> Any:
        """The loss."""
        return F.soft_margin_loss(input, target, reduction=self.reduction)


class MultiLabelSoftMarginLoss(_WeightedLoss):
    """The binary cross entropy with logits, averaged over the classes.

    Shapes: input and target alike.
    Errors: those of `functional.multilabel_soft_margin_loss`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiLabelSoftMarginLoss.html

    >>> ad.nn.MultiLabelSoftMarginLoss()(ad.zeros(1, 2), ad.ones(1, 2))
    tensor(0.6931)
    """

    def forward(self, input: Any, target: Any) -> Any:
        """The loss."""
        return F.multilabel_soft_margin_loss(input, target, self.weight, reduction=self.reduction)


class MultiMarginLoss(_WeightedLoss):
    """The mean over the other classes of max(0, margin - input[target] + input[class]) ** p.

    Shapes: (batch, classes) and (batch,), or without batch.
    Errors: those of `functional.multi_margin_loss`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiMarginLoss.html

    >>> ad.nn.MultiMarginLoss()(ad.zeros(1, 2), ad.tensor([0])).item()
    0.5
    """

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: Any = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.p = p
        self.margin = margin

    def forward(self, input: Any, target: Any) -> Any:
        """The loss."""
        return F.multi_margin_loss(
            input,
            target,
            p=self.p,
            margin=self.margin,
            weight=self.weight,
            reduction=self.reduction,
        )


class _OfPairs(_Loss):
    """The base of losses of two inputs, of which the target says whether they are alike."""

    def __init__(
        self,
        margin: float = 0.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin


class MarginRankingLoss(_OfPairs):
    """max(0, -target (input1 - input2) + margin).

    Shapes: all alike.
    Errors: those of `functional.margin_ranking_loss`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MarginRankingLoss.html

    >>> ad.nn.MarginRankingLoss()(ad.zeros(1), ad.ones(1), ad.ones(1)).item()
    1.0
    """

    def forward(self, input1: Any, input2: Any, target: Any) -> Any:
        """The loss."""
        return F.margin_ranking_loss(
            input1, input2, target, margin=self.margin, reduction=self.reduction
        )


class CosineEmbeddingLoss(_OfPairs):
    """1 - cos where target is 1, max(0, cos - margin) where it is -1.

    Shapes: (batch, features) twice and (batch,), or without batch.
    Errors: those of `functional.cosine_embedding_loss`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.CosineEmbeddingLoss.html

    >>> x = ad.tensor([[3., 4.]])
    >>> abs(round(ad.nn.CosineEmbeddingLoss()(x, x, ad.ones(1)).item(), 4))
    0.0
    """

    def forward(self, input1: Any, input2: Any, target: Any) -> Any:
        """The loss."""
        return F.cosine_embedding_loss(
            input1, input2, target, margin=self.margin, reduction=self.reduction
        )


class TripletMarginLoss(_Loss):
    """max(0, |anchor - positive| - |anchor - negative| + margin), in the p-norm.

    Shapes: (batch, features), all alike, or without batch.
    Errors: those of `functional.triplet_margin_loss`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.TripletMarginLoss.html

    >>> x = ad.tensor([[3., 4.]])
    >>> round(ad.nn.TripletMarginLoss()(x, x, x).item(), 4)
    1.0
    """

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin
        self.p = p
        self.eps = eps
        self.swap = swap

    def forward(self, anchor: Any, positive: Any, negative: Any) -> Any:
        """The loss."""
        return F.triplet_margin_loss(
            anchor,
            positive,
            negative,
            margin=self.margin,
            p=self.p,
            eps=self.eps,
            swap=self.swap,
            reduction=self.reduction,
        )


class GaussianNLLLoss(_Loss):
    """Minus the log-likelihood under normal distributions of mean `input` and variance `var`.

    Shapes: input and target alike; var too, or with the last size 1 or missing.
    Errors: those of `functional.gaussian_nll_loss`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.GaussianNLLLoss.html

    >>> ad.nn.GaussianNLLLoss()(ad.zeros(1), ad.ones(1), ad.ones(1)).item()
    0.5
    """

    def __init__(self, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.full = full
        self.eps = eps

    def forward(self, input: Any, target: Any, var: Any) -> Any:
        """The loss."""
        return F.gaussian_nll_loss(
            input, target, var, full=self.full, eps=self.eps, reduction=self.reduction
        )


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
