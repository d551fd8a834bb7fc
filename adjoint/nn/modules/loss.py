"""Losses as modules."""

from __future__ import annotations

from typing import Any

from .. import functional as F  # noqa: N812 - the name everyone knows it by
from .margin import *  # noqa: F403 - PyTorch has them here too
from .margin import _Loss, _WeightedLoss

__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "CosineEmbeddingLoss", "CrossEntropyLoss", "GaussianNLLLoss",
    "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "L1Loss", "MSELoss", "MarginRankingLoss",
    "MultiLabelSoftMarginLoss", "MultiMarginLoss", "NLLLoss", "PoissonNLLLoss", "SmoothL1Loss",
    "SoftMarginLoss", "TripletMarginLoss",
]  # fmt: skip


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

    def forward(self, input: Any, target: Any) -> Any:
        """The loss."""
        return F.poisson_nll_loss(
            input,
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
