"""Losses of labels, margins and distances beyond those of `loss`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.dtype import int64
from ...core.errors import InvalidArgument, ShapeError
from ...eager.public import explaining
from ...ops.elementwise.comparison import minimum
from ...ops.linalg.matmul import linear
from ...tensor import Tensor
from .loss import _reduced, cross_entropy, reduction_of
from .sparse import pairwise_distance

__all__ = ["linear_cross_entropy", "multilabel_margin_loss", "triplet_margin_with_distance_loss"]


@explaining
def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The sum over labels j and other classes i of max(0, 1 - input[j] + input[i]) / classes.

    A sample's labels are the classes in `target` before its first -1.

    Shapes: (batch, classes) both, or without batch.
    Errors: ShapeError where the shapes differ.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.multilabel_margin_loss.html

    >>> x, y = ad.tensor([[0.1, 0.2, 0.4, 0.8]]), ad.tensor([[3, 0, -1, 1]])
    >>> ad.nn.functional.multilabel_margin_loss(x, y)
    tensor(0.8500)
    """
    reduction = reduction_of(reduction, size_average, reduce)
    if not input.ndim and target.numel() == 1:
        input, target = input.reshape(1), target.reshape(1)
    if input.ndim not in (1, 2) or tuple(target.shape) != tuple(input.shape):
        raise ShapeError(
            f"multilabel_margin_loss: inconsistent target size: {list(target.shape)} for input of "
            f"size: {list(input.shape)}"
        )
    given = (target < 0).long().cumsum(-1) == 0
    index = target.masked_fill(~given, 0).long()
    counts = input.new_zeros(*input.shape, dtype=int64).scatter_add_(-1, index, given.long())
    other = (counts == 0).unsqueeze(-2)
    picked: Any = input.gather(-1, index)
    gaps: Any = (1 - picked.unsqueeze(-1) + input.unsqueeze(-2)).clamp(min=0)
    gaps = gaps * (given.unsqueeze(-1) & other).to(input.dtype)
    return _reduced(gaps.sum((-2, -1)) / input.shape[-1], reduction, "multilabel_margin_loss")


@explaining
def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Any, Any], Any] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin) for any distance d.

    Shapes: those of the distance; by default (batch, features), all alike.
    Errors: InvalidArgument where the margin is not positive; ShapeError where ranks differ.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.triplet_margin_with_distance_loss.html

    >>> a = ad.zeros(1, 2)
    >>> ad.nn.functional.triplet_margin_with_distance_loss(a, a, a).item()
    1.0
    """
    name = "triplet_margin_with_distance_loss"
    if margin <= 0:
        raise InvalidArgument(f"{name}: margin must be greater than 0, got {margin}")
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise ShapeError(
            f"{name}: The anchor, positive, and negative tensors are expected to have the same "
            f"number of dimensions, but got: anchor {anchor.ndim}D, positive {positive.ndim}D, and "
            f"negative {negative.ndim}D inputs"
        )
    distance = pairwise_distance if distance_function is None else distance_function
    far: Any = distance(anchor, negative)
    if swap:
        far = minimum(far, distance(positive, negative))
    loss = (margin + distance(anchor, positive) - far).clamp_min(0)
    return _reduced(loss, reduction, name)


@explaining
def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
) -> Tensor:
    """The cross entropy of `linear(input, linear_weight, linear_bias)`.

    `options` bounds memory in PyTorch; here nothing depends on it.

    Shapes: input (batch, features) or (features,); linear_weight (classes, ..., features).
    Errors: ShapeError where sizes do not fit; InvalidArgument for `ignore_index` with
    probabilities.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.linear_cross_entropy.html

    >>> x, w = ad.ones(2, 3), ad.zeros(4, 3)
    >>> ad.nn.functional.linear_cross_entropy(x, w, ad.tensor([0, 1]))
    tensor(1.3863)
    """
    name = "linear_cross_entropy"
    if input.ndim not in (1, 2):
        raise ShapeError(f"{name}: expected input with dimensionality 1 or 2, got {input.ndim}")
    classes, *rest, features = linear_weight.shape
    if input.shape[-1] != features:
        raise ShapeError(
            f"{name}: expected equal input and linear_weight last dimensions (in_features), got "
            f"{input.shape[-1]} and {features}, respectively"
        )
    if rest and input.ndim == 1:
        raise ShapeError(
            f"{name}: K-dimensional loss defined by linear_weight shape "
            f"{tuple(linear_weight.shape)} requires batched input, got {tuple(input.shape)}"
        )
    if linear_bias is not None and tuple(linear_bias.shape) != (classes, *rest):
        raise ShapeError(
            f"{name}: expected linear_bias shape {(classes, *rest)}, got {tuple(linear_bias.shape)}"
        )
    flat = None if linear_bias is None else linear_bias.reshape(-1)
    logits = linear(input, linear_weight.reshape(-1, features), flat)
    logits = logits.reshape(*input.shape[:-1], classes, *rest)
    if target.shape == logits.shape and ignore_index is not None:
        raise InvalidArgument(
            f"{name}: ignore_index is not supported for target containing class probabilities, "
            f"got {ignore_index}"
        )
    return cross_entropy(
        logits, target, weight, None, -100 if ignore_index is None else ignore_index, None,
        reduction, label_smoothing,
    )  # fmt: skip
