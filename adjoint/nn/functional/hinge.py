"""Hinge losses and their relatives: by margins of signs, labels, ranks, pairs and triplets."""

from __future__ import annotations

from typing import Any

from ...core.errors import InvalidArgument
from ...ops.argument_dtypes import FLOATING, assert_dtypes
from ...ops.create.like import ones_like, zeros_like
from ...ops.elementwise.comparison import minimum, where
from ...ops.nn.activation import logsigmoid
from ...runtime.public import explaining
from ...tensor import Tensor
from .checks import as_indices
from .loss_reduction import _reduced, reduction_of

__all__ = [
    "cosine_embedding_loss", "hinge_embedding_loss", "margin_ranking_loss", "multi_margin_loss",
    "multilabel_soft_margin_loss", "soft_margin_loss", "triplet_margin_loss",
]  # fmt: skip


def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Hinge loss of distances: small for pairs that are alike, above a margin for the others.

        loss = input                       where target is 1
        loss = max(0, margin - input)      where target is -1

    Args:
        input: Distances.
        target: 1 or -1.
        margin: Distance from which on pairs that differ cost nothing. Default: 1.0.
        size_average: Old form of `reduction`, which warns: False for "sum". Default: None.
        reduce: Old form of `reduction`, which warns: False for "none". Default: None.
        reduction: What becomes of the elements' losses: "mean", "sum", or "none" to keep them.
            Default: "mean".

    Shapes: input and target alike; a scalar, or their shape for reduction "none".
    Errors: InvalidArgument for an unknown reduction.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.hinge_embedding_loss.html

    >>> x, t = ad.tensor([0.2, 0.5]), ad.tensor([1.0, -1.0])
    >>> ad.nn.functional.hinge_embedding_loss(x, t, reduction="sum")
    tensor(0.7000)
    """
    reduction = reduction_of(reduction, size_average, reduce)
    zeros = zeros_like(input)
    apart = where(target != 1, (margin - input).clamp(min=0), zeros)
    alike = where(target != -1, input, zeros)
    return _reduced(apart + alike, reduction, "hinge_embedding_loss")


def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Loss of pairs that are in the wrong order, or too near.

        loss = max(0, -target (input1 - input2) + margin)

    Args:
        input1: First scores.
        input2: Second scores.
        target: 1 where the first is to be larger, -1 where the second is.
        margin: Difference from which on a pair costs nothing. Default: 0.
        size_average: Old form of `reduction`, which warns: False for "sum". Default: None.
        reduce: Old form of `reduction`, which warns: False for "none". Default: None.
        reduction: What becomes of the elements' losses: "mean", "sum", or "none" to keep them.
            Default: "mean".

    Shapes: all alike, or such that broadcast; a scalar, or their shape for reduction "none".
    Errors: InvalidArgument for an unknown reduction.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.margin_ranking_loss.html

    >>> a, b, t = ad.tensor([1.0]), ad.tensor([3.0]), ad.tensor([1.0])
    >>> ad.nn.functional.margin_ranking_loss(a, b, t).item()
    2.0
    """
    reduction = reduction_of(reduction, size_average, reduce)
    loss: Any = (-target * (input1 - input2) + margin).clamp(min=0)
    return _reduced(loss, reduction, "margin_ranking_loss")


def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Logistic loss of two classes, 1 and -1.

        loss = log(1 + exp(-target input))

    Args:
        input: Scores.
        target: 1 or -1.
        size_average: Old form of `reduction`, which warns: False for "sum". Default: None.
        reduce: Old form of `reduction`, which warns: False for "none". Default: None.
        reduction: What becomes of the elements' losses: "mean", "sum", or "none" to keep them.
            Default: "mean".

    Shapes: input and target alike; a scalar, or their shape for reduction "none".
    Errors: InvalidArgument for an unknown reduction.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.soft_margin_loss.html

    >>> ad.nn.functional.soft_margin_loss(ad.zeros(1), ad.ones(1))
    tensor(0.6931)
    """
    reduction = reduction_of(reduction, size_average, reduce)
    assert_dtypes("soft_margin_loss", FLOATING, input=input)
    return _reduced(-logsigmoid(target * input), reduction, "soft_margin_loss")


@explaining
def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Binary cross entropy of logits, averaged over the classes.

        loss = -mean over classes of weight (target log(s) + (1 - target) log(1 - s))
        s = sigmoid(input)

    Args:
        input: Logits.
        target: 0 or 1 for each class.
        weight: Factors of the classes, which broadcast with the input. Default: None, ones.
        size_average: Old form of `reduction`, which warns: False for "sum". Default: None.
        reduce: Old form of `reduction`, which warns: False for "none". Default: None.
        reduction: What becomes of the elements' losses: "mean", "sum", or "none" to keep them.
            Default: "mean".

    Shapes: input and target (batch, classes) or (classes,); a scalar, or (batch,) for reduction
    "none".
    Errors: InvalidArgument for an unknown reduction.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.multilabel_soft_margin_loss.html

    >>> ad.nn.functional.multilabel_soft_margin_loss(ad.zeros(1, 2), ad.ones(1, 2))
    tensor(0.6931)
    """
    reduction = reduction_of(reduction, size_average, reduce)
    loss: Any = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    if weight is not None:
        loss = loss * weight
    return _reduced(loss.mean(-1), reduction, "multilabel_soft_margin_loss")


def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Hinge loss of several classes: the target's score above all others by a margin.

        loss = w[t] sum over i != t of max(0, margin - input[t] + input[i])^p / C

    Here t is the target, w the weight and C the number of classes.

    Args:
        input: Scores.
        target: Classes as integers.
        p: Exponent, 1 or 2. Default: 1.
        margin: Difference from which on a class costs nothing. Default: 1.0.
        weight: Factor of each target class, (classes,). Default: None, ones.
        size_average: Old form of `reduction`, which warns: False for "sum". Default: None.
        reduce: Old form of `reduction`, which warns: False for "none". Default: None.
        reduction: What becomes of the elements' losses: "mean", "sum", or "none" to keep them.
            Default: "mean".

    Shapes: (batch, classes) and (batch,), or (classes,) and one class; a scalar, or the target's
    shape for reduction "none".
    Errors: InvalidArgument for an unknown reduction or p other than 1 and 2; DTypeError for a
    target that holds no integers; IndexingError for one out of range.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.multi_margin_loss.html

    >>> ad.nn.functional.multi_margin_loss(ad.zeros(1, 2), ad.tensor([0])).item()
    0.5
    """
    reduction = reduction_of(reduction, size_average, reduce)
    if p not in (1, 2):
        raise InvalidArgument(f"multi_margin_loss: only p == 1 and p == 2 supported, got {p}")
    if input.ndim < 2:  # one sample
        input, target = input.reshape(-1), target.reshape(())
    classes = as_indices(target, "multi_margin_loss", "target")
    index = classes.unsqueeze(-1)
    gaps: Any = (margin - input.gather(-1, index) + input).clamp(min=0)
    if p == 2:
        gaps = gaps * gaps
    if weight is not None:
        gaps = gaps * weight[classes].unsqueeze(-1)
    others = ones_like(input.detach()).scatter_(-1, index, 0.0)
    return _reduced((gaps * others).mean(-1), reduction, "multi_margin_loss")


@explaining
def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Loss of the angle between vectors that are alike, or not.

        loss = 1 - cos(input1, input2)                    where target is 1
        loss = max(0, cos(input1, input2) - margin)       where target is -1

    Args:
        input1: First vectors.
        input2: Second vectors.
        target: 1 or -1.
        margin: Cosine up to which vectors that differ cost nothing. Default: 0.
        size_average: Old form of `reduction`, which warns: False for "sum". Default: None.
        reduce: Old form of `reduction`, which warns: False for "none". Default: None.
        reduction: What becomes of the elements' losses: "mean", "sum", or "none" to keep them.
            Default: "mean".

    Shapes: (batch, features) twice and (batch,), or (features,) twice and (); a scalar, or the
    target's shape for reduction "none".
    Errors: InvalidArgument for an unknown reduction.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.cosine_embedding_loss.html

    >>> x, t = ad.tensor([[3., 4.]]), ad.tensor([-1.0])
    >>> round(ad.nn.functional.cosine_embedding_loss(x, x, t).item(), 4)
    1.0
    """
    reduction = reduction_of(reduction, size_average, reduce)
    tiny = 1e-12
    products: Any = (input1 * input2).sum(-1)
    sizes: Any = ((input1 * input1).sum(-1) + tiny) * ((input2 * input2).sum(-1) + tiny)
    cosine = products / sizes.sqrt()
    zeros = zeros_like(cosine)
    alike = where(target == 1, 1 - cosine, zeros)
    apart = where(target == -1, (cosine - margin).clamp(min=0), zeros)
    return _reduced(alike + apart, reduction, "cosine_embedding_loss")


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Loss of anchors that are not nearer to the positive than to the negative by a margin.

        loss = max(0, d(anchor, positive) - d(anchor, negative) + margin)
        d(x, y) = p-norm of x - y + eps, over the last dimension

    Args:
        anchor: Vectors.
        positive: Vectors that are to be near.
        negative: Vectors that are to be far.
        margin: Difference of distances from which on a triplet costs nothing, above 0. Default:
            1.0.
        p: Exponent of the norm. Default: 2.
        eps: Number added to each difference, which keeps the gradient finite. Default: 1e-6.
        swap: Take d(positive, negative) where it is smaller than d(anchor, negative). Default:
            False.
        size_average: Old form of `reduction`, which warns: False for "sum". Default: None.
        reduce: Old form of `reduction`, which warns: False for "none". Default: None.
        reduction: What becomes of the elements' losses: "mean", "sum", or "none" to keep them.
            Default: "mean".

    Shapes: (batch, features) or (features,), all alike; a scalar, or (batch,) for reduction "none".
    Errors: InvalidArgument for an unknown reduction or a margin that is not positive.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.triplet_margin_loss.html

    >>> a = ad.tensor([[0., 0.]])
    >>> round(ad.nn.functional.triplet_margin_loss(a, a, a).item(), 4)
    1.0
    """
    reduction = reduction_of(reduction, size_average, reduce)
    if margin <= 0:
        raise InvalidArgument(f"triplet_margin_loss: margin must be greater than 0, got {margin}")

    def distance(x: Any, y: Any) -> Any:
        return (x - y + eps).norm(p, -1)

    far = distance(anchor, negative)
    if swap:
        far = minimum(far, distance(positive, negative))
    loss = (distance(anchor, positive) - far + margin).clamp(min=0)
    return _reduced(loss, reduction, "triplet_margin_loss")
