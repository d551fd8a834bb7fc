"""Losses of labels, margins and distances beyond those of `loss`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.dtype import int64
from ...core.errors import InvalidArgument, ShapeError
from ...ops.argument_dtypes import FLOATING, assert_dtypes
from ...ops.elementwise.comparison import minimum
from ...ops.linalg.fully_connected import linear
from ...runtime.public import explaining
from ...tensor import Tensor
from .checks import as_indices
from .classification import cross_entropy
from .loss_reduction import _reduced, reduction_of
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
    """Hinge loss of several labels a sample: each label's score above all other classes.

        loss = sum over labels j and other classes i of max(0, 1 - input[j] + input[i]) / classes

    A sample's labels are the classes in the target before its first -1.

    Args:
        input: Scores.
        target: Labels as integers, the rest filled with -1.
        size_average: Old form of `reduction`, which warns: False for "sum". Default: None.
        reduce: Old form of `reduction`, which warns: False for "none". Default: None.
        reduction: What becomes of the elements' losses: "mean", "sum", or "none" to keep them.
            Default: "mean".

    Shapes: (batch, classes) both, or (classes,); a scalar, or (batch,) for reduction "none".
    Errors: ShapeError where the shapes differ; DTypeError for a target that holds no integers;
    InvalidArgument for an unknown reduction.
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
    assert_dtypes("multilabel_margin_loss", FLOATING, input=input)
    target = as_indices(target, "multilabel_margin_loss", "target")
    given = (target < 0).long().cumsum(-1) == 0
    index = target.masked_fill(~given, 0)
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
    """Loss of triplets with any distance d.

        loss = max(0, d(anchor, positive) - d(anchor, negative) + margin)

    Args:
        anchor: Examples.
        positive: Examples that are to be near.
        negative: Examples that are to be far.
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
    """Cross entropy of the logits that a linear map gives.

        loss = cross_entropy(linear(input, linear_weight, linear_bias), target)

    Args:
        input: Vectors.
        linear_weight: Weight of the map, a row for each class.
        target: Classes as integers, or probabilities in floating point.
        linear_bias: Bias of the map. Default: None.
        weight: Factor of each class, (classes,). Default: None, ones.
        reduction: What becomes of the elements' losses: "mean", "sum", or "none" to keep them.
            Default: "mean".
        ignore_index: Class of targets that do not count; None is -100. Not for probabilities.
            Default: None.
        label_smoothing: Share of the target, in [0, 1], that is spread evenly over all classes.
            Default: 0.0.
        options: Options that bound memory in PyTorch; here nothing depends on them. Default: None.

    Shapes: input (batch, features) or (features,); linear_weight (classes, ..., features);
    linear_bias (classes, ...); target (batch, ...) or, for probabilities, (batch, classes, ...).
    Errors: ShapeError where sizes do not fit; InvalidArgument for an unknown reduction, a
    label_smoothing outside [0, 1], or `ignore_index` with probabilities.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.linear_cross_entropy.html

    >>> x, w = ad.ones(2, 3), ad.zeros(4, 3)
    >>> ad.nn.functional.linear_cross_entropy(x, w, ad.tensor([0, 1]))
    tensor(1.3863)
    """
    name = "linear_cross_entropy"
    if input.ndim not in (1, 2):
        raise ShapeError(f"{name}: expected input with dimensionality 1 or 2, got {input.ndim}")
    if linear_weight.ndim < 2:
        raise ShapeError(
            f"{name}: expected linear_weight of (classes, ..., in_features), got shape "
            f"{tuple(linear_weight.shape)}"
        )
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
