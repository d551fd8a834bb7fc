"""Losses as modules."""

from __future__ import annotations

from typing import Any

from ...tensor import Tensor
from .. import functional as F  # noqa: N812 - the name everyone knows it by
from .criterion import _Loss as _Loss
from .criterion import _WeightedLoss as _WeightedLoss
from .linear_cross_entropy import LinearCrossEntropyLoss, LinearCrossEntropyOptions
from .ranking_losses import (
    CosineEmbeddingLoss,
    HingeEmbeddingLoss,
    MarginRankingLoss,
    MultiLabelMarginLoss,
    MultiLabelSoftMarginLoss,
    MultiMarginLoss,
    SoftMarginLoss,
    TripletMarginLoss,
    TripletMarginWithDistanceLoss,
)

__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "CTCLoss", "CosineEmbeddingLoss", "CrossEntropyLoss",
    "GaussianNLLLoss", "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "L1Loss",
    "LinearCrossEntropyLoss", "LinearCrossEntropyOptions", "MSELoss", "MarginRankingLoss",
    "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss", "MultiMarginLoss", "NLLLoss",
    "PoissonNLLLoss", "SmoothL1Loss", "SoftMarginLoss", "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
]  # fmt: skip


class MSELoss(_Loss):
    """Squared difference: the mean squared error.

        loss = (input - target)^2

    Args:
        size_average: Old form of `reduction`, which warns: False for "sum". Default: None.
        reduce: Old form of `reduction`, which warns: False for "none". Default: None.
        reduction: What becomes of the elements' losses: "mean", "sum", or "none" to keep them.
            Default: "mean".

    Shapes: input and target alike; a scalar, or their shape for reduction "none".
    Errors: InvalidArgument for an unknown reduction; ShapeError for sizes that do not broadcast
    (different ones that do only warn).
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MSELoss.html

    >>> ad.nn.MSELoss()(ad.zeros(2), ad.ones(2)).item()
    1.0
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Compute the loss."""
        return F.mse_loss(input, target, reduction=self.reduction)


class L1Loss(_Loss):
    """Absolute difference: the mean absolute error.

        loss = |input - target|

    Args:
        size_average: Old form of `reduction`, which warns: False for "sum". Default: None.
        reduce: Old form of `reduction`, which warns: False for "none". Default: None.
        reduction: What becomes of the elements' losses: "mean", "sum", or "none" to keep them.
            Default: "mean".

    Shapes: input and target alike; a scalar, or their shape for reduction "none".
    Errors: InvalidArgument for an unknown reduction; ShapeError for sizes that do not broadcast
    (different ones that do only warn).
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.L1Loss.html

    >>> ad.nn.L1Loss()(ad.zeros(2), ad.ones(2)).item()
    1.0
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Compute the loss."""
        return F.l1_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(_Loss):
    """Absolute difference that is squared near zero.

        loss = (input - target)^2 / (2 beta)    where |input - target| < beta
        loss = |input - target| - beta / 2      elsewhere

    Args:
        size_average: Old form of `reduction`, which warns: False for "sum". Default: None.
        reduce: Old form of `reduction`, which warns: False for "none". Default: None.
        reduction: What becomes of the elements' losses: "mean", "sum", or "none" to keep them.
            Default: "mean".
        beta: Difference at which the two pieces meet, at least 0; 0 gives the absolute difference.
            Default: 1.0.

    Shapes: input and target alike; a scalar, or their shape for reduction "none".
    Errors: InvalidArgument for an unknown reduction or a negative beta.
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

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Compute the loss."""
        return F.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(_Loss):
    """Squared difference that is linear far from zero (Huber, 1964).

        loss = (input - target)^2 / 2                       where |input - target| < delta
        loss = delta (|input - target| - delta / 2)         elsewhere

    Args:
        reduction: What becomes of the elements' losses: "mean", "sum", or "none" to keep them.
            Default: "mean".
        delta: Difference at which the two pieces meet, above 0. Default: 1.0.

    Shapes: input and target alike; a scalar, or their shape for reduction "none".
    Errors: InvalidArgument for an unknown reduction or a delta that is not positive.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.HuberLoss.html

    >>> ad.nn.HuberLoss()(ad.zeros(2), ad.ones(2)).item()
    0.5
    """

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction)
        self.delta = delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Compute the loss."""
        return F.huber_loss(input, target, reduction=self.reduction, delta=self.delta)


class BCELoss(_WeightedLoss):
    """Binary cross entropy of probabilities.

        loss = -weight (target log(input) + (1 - target) log(1 - input))

    The logarithms are not below -100. For logits, `binary_cross_entropy_with_logits` is exact.

    Args:
        weight: Factors of the elements, which broadcast with the loss. Default: None, ones.
        size_average: Old form of `reduction`, which warns: False for "sum". Default: None.
        reduce: Old form of `reduction`, which warns: False for "none". Default: None.
        reduction: What becomes of the elements' losses: "mean", "sum", or "none" to keep them.
            Default: "mean".

    Shapes: input and target alike; a scalar, or their shape for reduction "none".
    Errors: ShapeError where the shapes differ; InvalidArgument for an unknown reduction or an input
    outside [0, 1].
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.BCELoss.html

    >>> ad.nn.BCELoss()(ad.tensor([0.5]), ad.ones(1))
    tensor(0.6931)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Compute the loss."""
        return F.binary_cross_entropy(input, target, self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(_WeightedLoss):
    """Binary cross entropy of logits, computed without overflow.

        loss = -weight (pos_weight target log(s) + (1 - target) log(1 - s)), s = sigmoid(input)

    Args:
        weight: Factors of the elements, which broadcast with the loss. Default: None, ones.
        size_average: Old form of `reduction`, which warns: False for "sum". Default: None.
        reduce: Old form of `reduction`, which warns: False for "none". Default: None.
        reduction: What becomes of the elements' losses: "mean", "sum", or "none" to keep them.
            Default: "mean".
        pos_weight: Factors of the part for positive targets, often one per class; they broadcast
            with the target. Default: None, ones.

    Shapes: input and target alike; a scalar, or their shape for reduction "none".
    Errors: ShapeError where the shapes differ; InvalidArgument for an unknown reduction.
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

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Compute the loss."""
        return F.binary_cross_entropy_with_logits(
            input, target, self.weight, reduction=self.reduction, pos_weight=self.pos_weight
        )


class CrossEntropyLoss(_WeightedLoss):
    """Cross entropy between logits and target classes, or target probabilities.

        loss = -weight[target] log_softmax(input)[target]                for classes
        loss = -sum over classes of weight target log_softmax(input)     for probabilities

    For classes the mean is over the sum of the weights of the targets that count, for probabilities
    over the number of samples.

    Args:
        weight: Factor of each class, (classes,). Default: None, ones.
        size_average: Old form of `reduction`, which warns: False for "sum". Default: None.
        ignore_index: Class of targets that do not count; without meaning for probabilities.
            Default: -100.
        reduce: Old form of `reduction`, which warns: False for "none". Default: None.
        reduction: What becomes of the elements' losses: "mean", "sum", or "none" to keep them.
            Default: "mean".
        label_smoothing: Share of the target, in [0, 1], that is spread evenly over all classes.
            Default: 0.0.

    Shapes: input (classes,), (batch, classes) or (batch, classes, ...); target the same without
    classes, or with them for probabilities; a scalar, or the target's shape (without classes) for
    reduction "none".
    Errors: ShapeError where the shapes do not fit; IndexingError for a target out of range;
    InvalidArgument for an unknown reduction or a label_smoothing outside [0, 1].
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

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Compute the loss."""
        return F.cross_entropy(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class NLLLoss(_WeightedLoss):
    """Negative log-likelihood: minus the log-probability of each target class.

        loss = -weight[target] input[target]

    The mean is over the sum of the weights of the targets that count.

    Args:
        weight: Factor of each class, (classes,). Default: None, ones.
        size_average: Old form of `reduction`, which warns: False for "sum". Default: None.
        ignore_index: Class of targets that do not count. Default: -100.
        reduce: Old form of `reduction`, which warns: False for "none". Default: None.
        reduction: What becomes of the elements' losses: "mean", "sum", or "none" to keep them.
            Default: "mean".

    Shapes: input (classes,), (batch, classes) or (batch, classes, ...); target the same without
    classes; a scalar, or the target's shape for reduction "none".
    Errors: ShapeError where the shapes do not fit; IndexingError for a target out of range;
    InvalidArgument for an unknown reduction.
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

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Compute the loss."""
        return F.nll_loss(
            input, target, self.weight, ignore_index=self.ignore_index, reduction=self.reduction
        )


class KLDivLoss(_Loss):
    """Kullback-Leibler divergence of the target from the input, which is in log space.

        loss = target (log(target) - input)
        loss = exp(target) (target - input)    with `log_target`

    Args:
        size_average: Old form of `reduction`, which warns: False for "sum". Default: None.
        reduce: Old form of `reduction`, which warns: False for "none". Default: None.
        reduction: "batchmean", the sum over the first size, as the definition has it; "mean", over
            all elements, which warns; "sum" or "none". Default: "mean".
        log_target: Whether the target is in log space, too. Default: False.

    Shapes: input and target alike, or such that broadcast; a scalar, or their shape for reduction
    "none".
    Errors: InvalidArgument for an unknown reduction.
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

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Compute the loss."""
        return F.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)


class PoissonNLLLoss(_Loss):
    """Negative log-likelihood of counts under Poisson distributions.

        loss = exp(input) - target input              with `log_input`
        loss = input - target log(input + eps)        without

    Args:
        log_input: Whether the input is the logarithm of the rate. Default: True.
        full: Add Stirling's approximation of log(target!), target log(target) - target + log(2 pi
            target) / 2, where target > 1. Default: False.
        size_average: Old form of `reduction`, which warns: False for "sum". Default: None.
        eps: Number added to the rate, so that its logarithm is finite. Default: 1e-8.
        reduce: Old form of `reduction`, which warns: False for "none". Default: None.
        reduction: What becomes of the elements' losses: "mean", "sum", or "none" to keep them.
            Default: "mean".

    Shapes: input and target alike, or such that broadcast; a scalar, or their shape for reduction
    "none".
    Errors: InvalidArgument for an unknown reduction.
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

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        """Compute the loss."""
        return F.poisson_nll_loss(
            log_input,
            target,
            log_input=self.log_input,
            full=self.full,
            eps=self.eps,
            reduction=self.reduction,
        )


class GaussianNLLLoss(_Loss):
    """Negative log-likelihood under normal distributions.

        loss = (log(v) + (input - target)^2 / v) / 2, v = max(var, eps)

    Args:
        full: Add the constant log(2 pi) / 2. Default: False.
        eps: Least variance; the gradient of var does not notice it. Default: 1e-6.
        reduction: What becomes of the elements' losses: "mean", "sum", or "none" to keep them.
            Default: "mean".

    Shapes: input and target alike; var too, or with one size 1, or with the last one missing; a
    scalar, or the input's shape for reduction "none".
    Errors: ShapeError for a var of another shape; InvalidArgument for an unknown reduction or a
    negative variance.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.GaussianNLLLoss.html

    >>> ad.nn.GaussianNLLLoss()(ad.zeros(1), ad.ones(1), ad.ones(1)).item()
    0.5
    """

    def __init__(self, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.full = full
        self.eps = eps

    def forward(self, input: Tensor, target: Tensor, var: Tensor) -> Tensor:
        """Compute the loss."""
        return F.gaussian_nll_loss(
            input, target, var, full=self.full, eps=self.eps, reduction=self.reduction
        )


class CTCLoss(_Loss):
    """Connectionist temporal classification loss (Graves et al., 2006).

        loss = -log(sum over alignments a of the target of exp(sum over t of log_probs[t, a[t]]))

    An alignment has one class for each time; without repetitions, and then without blanks, it is
    the target. "mean" divides each sample's loss by its target's length first. As in PyTorch the
    derivative is that of log-probabilities which `log_softmax` made.

    Args:
        blank: Class that stands for no label. Default: 0.
        reduction: What becomes of the elements' losses: "mean", "sum", or "none" to keep them.
            Default: "mean".
        zero_infinity: Zero, instead of an infinite loss, for targets that are too long for their
            input. Default: False.

    Shapes: log_probs (T, N, C) or (T, C); targets (N, S), or all in one (sum of lengths,); lengths
    (N,); a scalar, or (N,) for reduction "none".
    Errors: ShapeError where batch sizes differ; InvalidArgument for an unknown reduction, a blank
    that is no class, or lengths that do not fit.
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

    def forward(
        self, log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor
    ) -> Tensor:
        """Compute the loss."""
        return F.ctc_loss(
            log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction,
            self.zero_infinity,
        )  # fmt: skip


for _kind in (
    _Loss, _WeightedLoss, HingeEmbeddingLoss, SoftMarginLoss, MultiLabelSoftMarginLoss,
    MultiMarginLoss, MarginRankingLoss, CosineEmbeddingLoss, TripletMarginLoss,
    MultiLabelMarginLoss, TripletMarginWithDistanceLoss, LinearCrossEntropyOptions,
    LinearCrossEntropyLoss,
):  # fmt: skip
    _kind.__module__ = __name__  # where PyTorch has them: files name them so
