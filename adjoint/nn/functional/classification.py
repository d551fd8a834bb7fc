"""Cross entropy and the negative log likelihood of classes."""

from __future__ import annotations

from typing import Any

from ...core.errors import InvalidArgument, ShapeError
from ...ops.argument_dtypes import FLOATING, REALS, assert_dtypes
from ...ops.elementwise.comparison import where
from ...ops.index.pick import Pick
from ...ops.shape.sizes import hold_sizes, over_size
from ...runtime.dispatch import apply
from ...runtime.fused import checking, fused
from ...tensor import Tensor
from .checks import as_indices
from .loss_reduction import _reduced, reduction_of

__all__ = ["cross_entropy", "nll_loss"]


def _class_dim(input: Tensor, name: str) -> int:
    if not input.ndim:
        raise ShapeError(f"{name}: Expected 1 or more dimensions (got 0)")
    return 0 if input.ndim == 1 else 1


@checking
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Any:
    """Negative log-likelihood: minus the log-probability of each target class.

        loss = -weight[target] input[target]

    The mean is over the sum of the weights of the targets that count.

    Args:
        input: Log-probabilities.
        target: Classes as integers.
        weight: Factor of each class, (classes,). Default: None, ones.
        size_average: Old form of `reduction`, which warns: False for "sum". Default: None.
        ignore_index: Class of targets that do not count. Default: -100.
        reduce: Old form of `reduction`, which warns: False for "none". Default: None.
        reduction: What becomes of the elements' losses: "mean", "sum", or "none" to keep them.
            Default: "mean".

    Shapes: input (classes,), (batch, classes) or (batch, classes, ...); target the same without
    classes; a scalar, or the target's shape for reduction "none".
    Dtypes: target holds integers.
    Errors: ShapeError where the shapes do not fit; DTypeError for a target that holds no integers;
    IndexingError for one out of range; InvalidArgument for an unknown reduction.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.nll_loss.html

    >>> ad.nn.functional.nll_loss(ad.tensor([[-1., -2.]]), ad.tensor([1])).item()
    2.0
    """
    if size_average is not None or reduce is not None:
        reduction = reduction_of(reduction, size_average, reduce, 4)
        return nll_loss(input, target, weight, None, ignore_index, None, reduction)
    dim = _class_dim(input, "nll_loss")
    _assert_target_shape(input, target, dim, "nll_loss")
    _assert_class_weights(weight, input._data.shape[dim], "nll_loss")
    assert_dtypes("nll_loss", FLOATING, input=input)
    assert_dtypes("nll_loss", REALS, weight=weight)
    classes = as_indices(target, "nll_loss", "target")
    return _fused_nll, input, classes, weight, dim, ignore_index, reduction


@fused
def _fused_nll(
    input: Any, target: Any, weight: Any, dim: int, ignore_index: int, reduction: str
) -> Tensor:
    weight = _along(dim, input.ndim, weight)
    pick = Pick(dim, ignore_index)
    return _nll(pick, input, target.unsqueeze(dim), weight, reduction)


def _nll(pick: Pick, logs: Any, index: Any, weight: Any, reduction: str) -> Tensor:
    loss = -apply(pick, logs, index).squeeze(pick.axis)
    if weight is None and reduction != "mean":
        return _reduced(loss, reduction, pick.loss)
    kept = _kept(pick, logs, index, weight)
    if weight is not None:
        loss = loss * kept
    if reduction == "mean":
        return loss.sum() / kept.sum()
    return _reduced(loss, reduction, pick.loss)


def _kept(pick: Pick, logs: Any, index: Any, weight: Any) -> Any:
    """The weight of each target: 0 where it is ignored."""
    if weight is None:
        return (index != pick.ignore).to(logs.dtype).squeeze(pick.axis)
    return apply(pick, weight, index).squeeze(pick.axis)


def _assert_target_shape(input: Tensor, target: Tensor, dim: int, name: str) -> None:
    sizes = input._data.shape
    expected = sizes[:dim] + sizes[dim + 1 :]
    if target._data.shape == expected:
        return
    if input.ndim > 1 and target.ndim and input.shape[0] != target.shape[0]:
        raise ShapeError(
            f"{name}: Expected input batch_size ({input.shape[0]}) to match target batch_size "
            f"({target.shape[0]})."
        )
    raise ShapeError(
        f"{name}: Expected target size {list(expected)}, got {list(target.shape)}, for input "
        f"{list(input.shape)} whose dimension {dim} is the classes"
    )


def _assert_class_weights(weight: Tensor | None, classes: int, name: str) -> None:
    if weight is not None and tuple(weight.shape) != (classes,):
        raise ShapeError(
            f"{name}: weight tensor should be defined either for all {classes} classes or no "
            f"classes but got weight tensor of shape: {list(weight.shape)}"
        )


@checking
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    """Cross entropy between logits and target classes, or target probabilities.

        loss = -weight[target] log_softmax(input)[target]                for classes
        loss = -sum over classes of weight target log_softmax(input)     for probabilities

    For classes the mean is over the sum of the weights of the targets that count, for probabilities
    over the number of samples.

    Args:
        input: Logits.
        target: Classes as integers, or probabilities in floating point.
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
    Dtypes: target holds integers, or probabilities in the dtype of `input`.
    Errors: ShapeError where the shapes do not fit; DTypeError for classes that are no integers;
    IndexingError for one out of range; InvalidArgument for an unknown reduction or a
    label_smoothing outside [0, 1].
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.cross_entropy.html

    >>> ad.nn.functional.cross_entropy(ad.zeros(3, 2), ad.tensor([0, 1, 1]))
    tensor(0.6931)
    """
    if size_average is not None or reduce is not None:
        reduction = reduction_of(reduction, size_average, reduce, 4)
        return cross_entropy(
            input, target, weight, None, ignore_index, None, reduction, label_smoothing
        )
    if not 0.0 <= label_smoothing <= 1.0:
        raise InvalidArgument(
            f"cross_entropy: label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}"
        )
    dim = _class_dim(input, "cross_entropy")
    sizes = input._data.shape
    _assert_class_weights(weight, sizes[dim], "cross_entropy")
    assert_dtypes("cross_entropy", REALS, weight=weight)
    if target._data.shape == sizes and (target.is_floating_point() or input.ndim == 1):
        if not target.is_floating_point():
            raise ShapeError(
                "cross_entropy: Expected floating point type for target with class probabilities, "
                f"got {target.dtype}"
            )
        return _soft_cross_entropy, input, target, weight, dim, reduction, label_smoothing
    _assert_target_shape(input, target, dim, "cross_entropy")
    given = input, as_indices(target, "cross_entropy", "target"), weight
    return _cross_entropy, *given, dim, ignore_index, reduction, label_smoothing


@fused
def _cross_entropy(
    input: Any,
    target: Any,
    weight: Any,
    dim: int,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
) -> Tensor:
    weight, index = _along(dim, input.ndim, weight), target.unsqueeze(dim)
    logs = input.log_softmax(dim)
    pick = Pick(dim, ignore_index, "cross_entropy")
    loss = _nll(pick, logs, index, weight, reduction)
    if not label_smoothing:
        return loss
    spread = logs if weight is None else logs * weight
    ignored = (index == ignore_index).squeeze(dim)
    smooth = where(ignored, 0.0, -spread.sum(dim))
    if reduction == "mean":
        smooth = smooth.sum() / _kept(pick, logs, index, weight).sum()
    else:
        smooth = _reduced(smooth, reduction, "cross_entropy")
    share = label_smoothing / input.shape[dim]
    return (1 - label_smoothing) * loss + share * smooth


def _along(dim: int, ndim: int, x: Any) -> Any:
    """A vector so that it broadcasts along `dim`."""
    return None if x is None else x.reshape(tuple(-1 if i == dim else 1 for i in range(ndim)))


@fused
def _soft_cross_entropy(
    input: Any, target: Any, weight: Any, dim: int, reduction: str, label_smoothing: float
) -> Tensor:
    weight = _along(dim, input.ndim, weight)
    logs = hold_sizes("cross_entropy", input, dims=(dim,)).log_softmax(dim)
    classes = logs.shape[dim]
    if label_smoothing:
        target = target * (1 - label_smoothing) + label_smoothing / classes
    terms = logs * target
    if weight is not None:
        terms = terms * weight
    if reduction == "mean":
        others = [i for i in range(logs.ndim) if i != dim % logs.ndim]
        return over_size(-terms.sum(), logs.numel() / classes, logs, *others)
    return _reduced(-terms.sum(dim), reduction, "cross_entropy")
