"""Losses by margins as modules: of signs, labels, ranks, pairs and triplets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.errors import InvalidArgument
from ...tensor import Tensor
from .. import functional as F  # noqa: N812 - the name everyone knows it by
from .criterion import _Loss, _WeightedLoss
from .distance import PairwiseDistance

__all__ = [
    "CosineEmbeddingLoss", "HingeEmbeddingLoss", "MarginRankingLoss", "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss", "MultiMarginLoss", "SoftMarginLoss", "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
]  # fmt: skip


class HingeEmbeddingLoss(_Loss):
    """Hinge loss of distances: small for pairs that are alike, above a margin for the others.

        loss = input                       where target is 1
        loss = max(0, margin - input)      where target is -1

    Args:
        margin: Distance from which on pairs that differ cost nothing. Default: 1.0.
        size_average: Old form of `reduction`, which warns: False for "sum". Default: None.
        reduce: Old form of `reduction`, which warns: False for "none". Default: None.
        reduction: What becomes of the elements' losses: "mean", "sum", or "none" to keep them.
            Default: "mean".

    Shapes: input and target alike; a scalar, or their shape for reduction "none".
    Errors: InvalidArgument for an unknown reduction.
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

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Compute the loss."""
        return F.hinge_embedding_loss(input, target, margin=self.margin, reduction=self.reduction)


class SoftMarginLoss(_Loss):
    """Logistic loss of two classes, 1 and -1.

        loss = log(1 + exp(-target input))

    Args:
        size_average: Old form of `reduction`, which warns: False for "sum". Default: None.
        reduce: Old form of `reduction`, which warns: False for "none". Default: None.
        reduction: What becomes of the elements' losses: "mean", "sum", or "none" to keep them.
            Default: "mean".

    Shapes: input and target alike; a scalar, or their shape for reduction "none".
    Errors: InvalidArgument for an unknown reduction.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.SoftMarginLoss.html

    >>> ad.nn.SoftMarginLoss()(ad.zeros(1), ad.ones(1))
    tensor(0.6931)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Compute the loss."""
        return F.soft_margin_loss(input, target, reduction=self.reduction)


class MultiLabelSoftMarginLoss(_WeightedLoss):
    """Binary cross entropy of logits, averaged over the classes.

        loss = -mean over classes of weight (target log(s) + (1 - target) log(1 - s))
        s = sigmoid(input)

    Args:
        weight: Factors of the classes, which broadcast with the input. Default: None, ones.
        size_average: Old form of `reduction`, which warns: False for "sum". Default: None.
        reduce: Old form of `reduction`, which warns: False for "none". Default: None.
        reduction: What becomes of the elements' losses: "mean", "sum", or "none" to keep them.
            Default: "mean".

    Shapes: input and target (batch, classes) or (classes,); a scalar, or (batch,) for reduction
    "none".
    Errors: InvalidArgument for an unknown reduction.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiLabelSoftMarginLoss.html

    >>> ad.nn.MultiLabelSoftMarginLoss()(ad.zeros(1, 2), ad.ones(1, 2))
    tensor(0.6931)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Compute the loss."""
        return F.multilabel_soft_margin_loss(input, target, self.weight, reduction=self.reduction)


class MultiMarginLoss(_WeightedLoss):
    """Hinge loss of several classes: the target's score above all others by a margin.

        loss = w[t] sum over i != t of max(0, margin - input[t] + input[i])^p / C

    Here t is the target, w the weight and C the number of classes.

    Args:
        p: Exponent, 1 or 2. Default: 1.
        margin: Difference from which on a class costs nothing. Default: 1.0.
        weight: Factor of each target class, (classes,). Default: None, ones.
        size_average: Old form of `reduction`, which warns: False for "sum". Default: None.
        reduce: Old form of `reduction`, which warns: False for "none". Default: None.
        reduction: What becomes of the elements' losses: "mean", "sum", or "none" to keep them.
            Default: "mean".

    Shapes: (batch, classes) and (batch,), or (classes,) and one class; a scalar, or the target's
    shape for reduction "none".
    Errors: InvalidArgument for an unknown reduction or p other than 1 and 2; IndexingError for a
    target out of range.
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

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Compute the loss."""
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
    """Loss of pairs that are in the wrong order, or too near.

        loss = max(0, -target (input1 - input2) + margin)

    Args:
        margin: Difference from which on a pair costs nothing. Default: 0.0.
        size_average: Old form of `reduction`, which warns: False for "sum". Default: None.
        reduce: Old form of `reduction`, which warns: False for "none". Default: None.
        reduction: What becomes of the elements' losses: "mean", "sum", or "none" to keep them.
            Default: "mean".

    Shapes: all alike, or such that broadcast; a scalar, or their shape for reduction "none".
    Errors: InvalidArgument for an unknown reduction.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MarginRankingLoss.html

    >>> ad.nn.MarginRankingLoss()(ad.zeros(1), ad.ones(1), ad.ones(1)).item()
    1.0
    """

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        """Compute the loss."""
        return F.margin_ranking_loss(
            input1, input2, target, margin=self.margin, reduction=self.reduction
        )


class CosineEmbeddingLoss(_OfPairs):
    """Loss of the angle between vectors that are alike, or not.

        loss = 1 - cos(input1, input2)                    where target is 1
        loss = max(0, cos(input1, input2) - margin)       where target is -1

    Args:
        margin: Cosine up to which vectors that differ cost nothing. Default: 0.0.
        size_average: Old form of `reduction`, which warns: False for "sum". Default: None.
        reduce: Old form of `reduction`, which warns: False for "none". Default: None.
        reduction: What becomes of the elements' losses: "mean", "sum", or "none" to keep them.
            Default: "mean".

    Shapes: (batch, features) twice and (batch,), or (features,) twice and (); a scalar, or the
    target's shape for reduction "none".
    Errors: InvalidArgument for an unknown reduction.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.CosineEmbeddingLoss.html

    >>> x = ad.tensor([[3., 4.]])
    >>> abs(round(ad.nn.CosineEmbeddingLoss()(x, x, ad.ones(1)).item(), 4))
    0.0
    """

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        """Compute the loss."""
        return F.cosine_embedding_loss(
            input1, input2, target, margin=self.margin, reduction=self.reduction
        )


class TripletMarginLoss(_Loss):
    """Loss of anchors that are not nearer to the positive than to the negative by a margin.

        loss = max(0, d(anchor, positive) - d(anchor, negative) + margin)
        d(x, y) = p-norm of x - y + eps, over the last dimension

    Args:
        margin: Difference of distances from which on a triplet costs nothing, above 0. Default:
            1.0.
        p: Exponent of the norm. Default: 2.0.
        eps: Number added to each difference, which keeps the gradient finite. Default: 1e-6.
        swap: Take d(positive, negative) where it is smaller than d(anchor, negative). Default:
            False.
        size_average: Old form of `reduction`, which warns: False for "sum". Default: None.
        reduce: Old form of `reduction`, which warns: False for "none". Default: None.
        reduction: What becomes of the elements' losses: "mean", "sum", or "none" to keep them.
            Default: "mean".

    Shapes: (batch, features) or (features,), all alike; a scalar, or (batch,) for reduction "none".
    Errors: InvalidArgument for an unknown reduction or a margin that is not positive.
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

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """Compute the loss."""
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


class MultiLabelMarginLoss(_Loss):
    """Hinge loss of several labels a sample: each label's score above all other classes.

        loss = sum over labels j and other classes i of max(0, 1 - input[j] + input[i]) / classes

    A sample's labels are the classes in the target before its first -1.

    Args:
        size_average: Old form of `reduction`, which warns: False for "sum". Default: None.
        reduce: Old form of `reduction`, which warns: False for "none". Default: None.
        reduction: What becomes of the elements' losses: "mean", "sum", or "none" to keep them.
            Default: "mean".

    Shapes: (batch, classes) both, or (classes,); a scalar, or (batch,) for reduction "none".
    Errors: ShapeError where the shapes differ; InvalidArgument for an unknown reduction.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiLabelMarginLoss.html

    >>> x, y = ad.tensor([[0.1, 0.2, 0.4, 0.8]]), ad.tensor([[3, 0, -1, 1]])
    >>> ad.nn.MultiLabelMarginLoss()(x, y)
    tensor(0.8500)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Compute the loss."""
        return F.multilabel_margin_loss(input, target, reduction=self.reduction)


class TripletMarginWithDistanceLoss(_Loss):
    """Loss of triplets with any distance d.

        loss = max(0, d(anchor, positive) - d(anchor, negative) + margin)

    Args:
        distance_function: Function of two tensors, d. Default: None, `pairwise_distance`.
        margin: Difference of distances from which on a triplet costs nothing, above 0. Default:
            1.0.
        swap: Take d(positive, negative) where it is smaller than d(anchor, negative). Default:
            False.
        reduction: What becomes of the elements' losses: "mean", "sum", or "none" to keep them.
            Default: "mean".

    Shapes: those of the distance; by default (batch, features), all alike; a scalar, or the
    distance's shape for reduction "none".
    Errors: InvalidArgument for an unknown reduction or a margin that is not positive; ShapeError
    where numbers of dimensions differ.
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

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """Compute the loss."""
        return F.triplet_margin_with_distance_loss(
            anchor, positive, negative, distance_function=self.distance_function,
            margin=self.margin, swap=self.swap, reduction=self.reduction,
        )  # fmt: skip
