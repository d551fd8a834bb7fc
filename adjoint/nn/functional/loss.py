"""Loss functions."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

from ...autograd.modes import no_grad
from ...core import dtype as dt
from ...core.errors import InvalidArgument, ShapeError
from ...core.op import Sample
from ...eager.dispatch import apply
from ...eager.fused import checking, fused
from ...eager.public import explaining
from ...ops.create.creation import full_like, ones_like, zeros_like
from ...ops.elementwise.comparison import minimum, where
from ...ops.elementwise.namespace import Elementwise
from ...ops.index.pick import Pick
from ...ops.nn.activation import logsigmoid
from ...ops.samples import array
from ...ops.shape.sizes import hold_sizes, over_size
from ...ops.special.special import xlogy
from ...tensor import Tensor
from .checks import refuse_where

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss",
    "cross_entropy", "gaussian_nll_loss", "hinge_embedding_loss", "huber_loss", "kl_div",
    "l1_loss", "margin_ranking_loss", "mse_loss", "multi_margin_loss",
    "multilabel_soft_margin_loss", "nll_loss", "poisson_nll_loss", "smooth_l1_loss",
    "soft_margin_loss", "triplet_margin_loss",
]  # fmt: skip


def reduction_of(
    reduction: str, size_average: bool | None, reduce: bool | None, stacklevel: int = 3
) -> str:
    """`reduction`, or what the deprecated two flags mean."""
    if size_average is not None or reduce is not None:
        whole = reduce is None or reduce
        mean = size_average is None or size_average
        reduction = ("mean" if mean else "sum") if whole else "none"
        warnings.warn(
            f"size_average and reduce args will be deprecated, please use reduction='{reduction}' "
            "instead.",
            stacklevel=stacklevel,
        )
    return reduction


def _reduced(loss: Any, reduction: str, name: str) -> Tensor:
    if reduction == "mean":
        return loss.mean()
    if reduction == "sum":
        return loss.sum()
    if reduction == "none":
        return loss
    raise InvalidArgument(
        f"{name}: {reduction} is not a valid value for reduction; use 'none', 'mean' or 'sum'"
    )


def _warn_of_sizes(input: Tensor, target: Tensor, name: str) -> None:
    if input.shape != target.shape:
        warnings.warn(
            f"Using a target size ({target.shape}) that is different to the input size "
            f"({input.shape}). This will likely lead to incorrect results due to broadcasting. "
            f"Please ensure they have the same size. ({name})",
            stacklevel=4,
        )


# ---- regression ----------------------------------------------------------------------------------


def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """The squared difference.

    Shapes: `input` and `target` alike; a scalar, or their shape for reduction 'none'.
    Errors: InvalidArgument for an unknown reduction.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.mse_loss.html

    >>> ad.nn.functional.mse_loss(ad.tensor([1., 3.]), ad.tensor([1., 1.])).item()
    2.0
    """
    reduction = reduction_of(reduction, size_average, reduce)
    _warn_of_sizes(input, target, "mse_loss")
    return _mse(input, target, weight, reduction)


@fused
def _mse(input: Tensor, target: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    d = input - target
    return _weighted(d * d, weight, reduction, "mse_loss")


def _weighted(loss: Any, weight: Tensor | None, reduction: str, name: str) -> Tensor:
    """The reduced loss; with weights, the mean is over their sum."""
    if weight is None:
        return _reduced(loss, reduction, name)
    if weight.shape != loss.shape:
        raise ShapeError(
            f"{name}: Weights and input must have the same size, got {tuple(weight.shape)} and "
            f"{tuple(loss.shape)}"
        )
    if reduction == "mean":
        return (loss * weight).sum() / weight.sum()
    return _reduced(loss * weight, reduction, name)


def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """The absolute difference.

    Shapes: `input` and `target` alike; a scalar, or their shape for reduction 'none'.
    Errors: InvalidArgument for an unknown reduction.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.l1_loss.html

    >>> ad.nn.functional.l1_loss(ad.tensor([1., 3.]), ad.tensor([1., 1.])).item()
    1.0
    """
    reduction = reduction_of(reduction, size_average, reduce)
    _warn_of_sizes(input, target, "l1_loss")
    return _l1(input, target, weight, reduction)


@fused
def _l1(input: Tensor, target: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    return _weighted((input - target).abs(), weight, reduction, "l1_loss")


def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """Squared difference / (2 beta) where it is below beta, absolute difference - beta/2 beyond.

    Shapes: `input` and `target` alike; a scalar, or their shape for reduction 'none'.
    Errors: InvalidArgument for a negative beta or an unknown reduction.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.smooth_l1_loss.html

    >>> ad.nn.functional.smooth_l1_loss(ad.tensor([1., 3.]), ad.tensor([1., 1.])).item()
    0.75
    """
    if beta < 0:
        raise InvalidArgument(f"smooth_l1_loss: beta must not be negative, got {beta}")
    if beta == 0:
        return l1_loss(input, target, size_average, reduce, reduction)
    reduction = reduction_of(reduction, size_average, reduce)
    _warn_of_sizes(input, target, "smooth_l1_loss")
    return _smooth_l1(input, target, beta, reduction)


@fused
def _smooth_l1(input: Tensor, target: Tensor, beta: float, reduction: str) -> Tensor:
    d = input - target
    near = d.clamp(-beta, beta)  # its products are finite wherever the loss is
    loss = near * (d - 0.5 * near) * (1 / beta)
    return _reduced(loss, reduction, "smooth_l1_loss")


def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """Half the squared difference where it is below delta, delta (|difference| - delta/2) beyond.

    Shapes: `input` and `target` alike; a scalar, or their shape for reduction 'none'.
    Errors: InvalidArgument where delta is not positive.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.huber_loss.html

    >>> ad.nn.functional.huber_loss(ad.tensor([1., 3.]), ad.tensor([1., 1.]), delta=2.0).item()
    1.0
    """
    if delta <= 0:
        raise InvalidArgument(
            f"huber_loss does not support non-positive values for delta, got {delta}"
        )
    _warn_of_sizes(input, target, "huber_loss")
    return _huber(input, target, weight, delta, reduction)


@fused
def _huber(
    input: Tensor, target: Tensor, weight: Tensor | None, delta: float, reduction: str
) -> Tensor:
    d = input - target
    near = d.clamp(-delta, delta)
    loss = near * (d - 0.5 * near)
    return _weighted(loss, weight, reduction, "huber_loss")


# ---- classification ------------------------------------------------------------------------------


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
    """Minus the log-probability `input` of each target class.

    Shapes: input (classes,), (batch, classes) or (batch, classes, ...); target without classes.
    Dtypes: target holds integers.
    Errors: ShapeError where the shapes do not fit; IndexingError for a target out of range.
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
    return _fused_nll, input, target.long(), weight, dim, ignore_index, reduction


@fused
def _fused_nll(
    input: Any, target: Any, weight: Any, dim: int, ignore_index: int, reduction: str
) -> Tensor:
    weight = _along(dim, input.ndim, weight)
    return _nll(input, target.unsqueeze(dim), weight, dim, ignore_index, reduction)


def _nll(logs: Any, index: Any, weight: Any, dim: int, ignore_index: int, reduction: str) -> Tensor:
    loss = -apply(Pick(dim, ignore_index), logs, index).squeeze(dim)
    if weight is None and reduction != "mean":
        return _reduced(loss, reduction, "nll_loss")
    kept = _kept(logs, index, weight, dim, ignore_index)
    if weight is not None:
        loss = loss * kept
    if reduction == "mean":
        return loss.sum() / kept.sum()
    return _reduced(loss, reduction, "nll_loss")


def _kept(logs: Any, index: Any, weight: Any, dim: int, ignore_index: int) -> Any:
    """The weight of each target: 0 where it is ignored."""
    if weight is None:
        return (index != ignore_index).to(logs.dtype).squeeze(dim)
    return apply(Pick(dim, ignore_index), weight, index).squeeze(dim)


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
    """The cross entropy between logits and target classes, or target probabilities.

    Shapes: input (classes,), (batch, classes) or (batch, classes, ...); target the same without
    classes, or with them for probabilities.
    Dtypes: target holds integers, or probabilities in the dtype of `input`.
    Errors: ShapeError where the shapes do not fit; IndexingError for a target out of range;
    InvalidArgument for label smoothing outside 0 to 1.
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
    if target._data.shape == sizes and (target.is_floating_point() or input.ndim == 1):
        if not target.is_floating_point():
            raise ShapeError(
                "cross_entropy: Expected floating point type for target with class probabilities, "
                f"got {target.dtype}"
            )
        return _soft_cross_entropy, input, target, weight, dim, reduction, label_smoothing
    _assert_target_shape(input, target, dim, "cross_entropy")
    given = input, target.long(), weight
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
    loss = _nll(logs, index, weight, dim, ignore_index, reduction)
    if not label_smoothing:
        return loss
    spread = logs if weight is None else logs * weight
    ignored = (index == ignore_index).squeeze(dim)
    smooth = where(ignored, 0.0, -spread.sum(dim))
    if reduction == "mean":
        smooth = smooth.sum() / _kept(logs, index, weight, dim, ignore_index).sum()
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


class BinaryCrossEntropy(Elementwise):
    """-(t log x + (1 - t) log(1 - x)), with logarithms not below -100.

    A primitive, because the bound makes the derivative of the composition undefined at 0 and 1.
    """

    needs = ("x1 x2", "x1")

    def compute(self, xp: Any, x1: Any, x2: Any) -> Any:
        """Both logarithms, bounded."""
        low = x1.dtype.type(-100)
        return (x2 - 1) * xp.maximum(xp.log1p(-x1), low) - x2 * xp.maximum(xp.log(x1), low)

    def gradient(self, g: Any, x1: Any, x2: Any) -> tuple[Any, ...]:
        """(x - t) / (x (1 - x)), and log(1 - x) - log x."""
        return (
            lambda: g * (x1 - x2) / ((1 - x1) * x1).clamp(min=1e-12),
            lambda: g * ((-x1).log1p() - x1.log()),
        )

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Inside (0, 1), several dtypes, broadcast, empty, 0-d, the ends."""
        for dtype in (dt.float64, dt.float32, dt.float16, dt.bfloat16):
            x, t = (array((3, 4), dtype, low=0.1, high=0.9, seed=s) for s in (1, 2))
            yield Sample(cls(), (x, t), dtype.name)
        x = array((2, 3), dt.float64, low=0.1, high=0.9, seed=1)
        yield Sample(cls(), (x, array((3,), dt.float64, low=0.1, high=0.9, seed=2)), "broadcast")
        yield Sample(cls(), (x[:0], x[:0]), "empty")
        yield Sample(cls(), (np.array(0.3), np.array(1.0)), "0-d", gradients=False)
        ends = np.array([0.0, 1.0, 0.0, 1.0])
        yield Sample(cls(), (ends, np.array([0.0, 0.0, 1.0, 1.0])), "ends", gradients=False)

    def reference(self, x1: Any, x2: Any) -> Any:
        """In float64, by the definition."""
        x, t = np.asarray(x1, np.float64), np.asarray(x2, np.float64)
        with np.errstate(divide="ignore"):
            logs = np.log(x), np.log1p(-x)
        low, high = (np.clip(value, -100, None) for value in logs)
        return -(t * low + (1 - t) * high)


_BCE = BinaryCrossEntropy()


def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """-(t log x + (1 - t) log(1 - x)) for probabilities x; logarithms are bounded by -100.

    Shapes: `input` and `target` alike; a scalar, or their shape for reduction 'none'.
    Errors: ShapeError where the shapes differ; InvalidArgument for values outside 0 to 1.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.binary_cross_entropy.html

    >>> ad.nn.functional.binary_cross_entropy(ad.tensor([0.5]), ad.tensor([1.0]))
    tensor(0.6931)
    """
    reduction = reduction_of(reduction, size_average, reduce)
    if target.shape != input.shape:
        raise ShapeError(
            f"binary_cross_entropy: Using a target size ({target.shape}) that is different to the "
            f"input size ({input.shape}) is deprecated. Please ensure they have the same size."
        )
    loss, wrong = _binary_cross_entropy(input, target, weight, reduction)
    refuse_where(wrong, _not_probabilities)
    return loss


def _not_probabilities() -> InvalidArgument:
    return InvalidArgument(
        "binary_cross_entropy: all elements of input should be between 0 and 1; for logits use "
        "binary_cross_entropy_with_logits"
    )


@fused
def _binary_cross_entropy(input: Any, target: Any, weight: Any, reduction: str) -> Any:
    """The loss, and whether a probability is none."""
    values = input.detach()
    wrong = ((values < 0) | (values > 1)).any()
    loss = apply(_BCE, input, target.to(input.dtype))
    loss = loss if weight is None else loss * weight
    return _reduced(loss, reduction, "binary_cross_entropy"), wrong


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """The binary cross entropy of sigmoid(input), computed without overflow.

    Shapes: `input` and `target` alike; a scalar, or their shape for reduction 'none'.
    Errors: ShapeError where the shapes differ.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.binary_cross_entropy_with_logits.html

    >>> ad.nn.functional.binary_cross_entropy_with_logits(ad.zeros(1), ad.ones(1))
    tensor(0.6931)
    """
    reduction = reduction_of(reduction, size_average, reduce)
    if target.shape != input.shape:
        raise ShapeError(
            f"binary_cross_entropy_with_logits: Target size ({target.shape}) must be the same as "
            f"input size ({input.shape})"
        )
    return _bce_with_logits(input, target, weight, pos_weight, reduction)


@fused
def _bce_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None, pos_weight: Tensor | None, reduction: str
) -> Tensor:
    log_sigmoid: Any = logsigmoid(input)
    if pos_weight is not None:
        log_sigmoid = log_sigmoid * ((pos_weight - 1) * target + 1)
    loss = (1 - target) * input - log_sigmoid
    if weight is not None:
        loss = loss * weight
    return _reduced(loss, reduction, "binary_cross_entropy_with_logits")


def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """target (log target - input): the Kullback-Leibler divergence, `input` in log space.

    Reduction 'batchmean' divides the sum by the first size, as the definition has it.

    Shapes: `input` and `target` alike.
    Errors: InvalidArgument for an unknown reduction.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.kl_div.html

    >>> p = ad.tensor([[0.5, 0.5]])
    >>> ad.nn.functional.kl_div(p.log(), p, reduction="batchmean").item()
    0.0
    """
    reduction = reduction_of(reduction, size_average, reduce)
    if reduction == "mean":
        warnings.warn(
            "reduction: 'mean' divides the total loss by both the batch size and the support size. "
            "'batchmean' divides only by the batch size, and aligns with the KL div math "
            "definition.",
            stacklevel=2,
        )
    return _kl_div(input, target, log_target, reduction)


@fused
def _kl_div(input: Tensor, target: Tensor, log_target: bool, reduction: str) -> Tensor:
    if log_target:
        loss: Any = target.exp() * (target - input)
    else:
        loss = xlogy(target, target) - target * input  # 0 log 0 counts as 0
    if reduction == "batchmean":
        total = loss.sum()
        return over_size(total, input.shape[0], input, 0) if input.ndim else total
    return _reduced(loss, reduction, "kl_div")


# ---- others --------------------------------------------------------------------------------------


def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-08,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Minus the log-likelihood of counts under Poisson distributions.

    Shapes: `input` and `target` alike.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.poisson_nll_loss.html

    >>> ad.nn.functional.poisson_nll_loss(ad.zeros(1), ad.ones(1)).item()
    1.0
    """
    reduction = reduction_of(reduction, size_average, reduce)
    loss: Any
    if log_input:
        loss = input.exp() - target * input
    else:
        loss = input - target * (input + eps).log()
    if full:
        safe = where(target > 1, target, 1.0)
        stirling = safe * safe.log() - safe + 0.5 * (2 * np.pi * safe).log()
        loss = loss + stirling.masked_fill(target <= 1, 0.0)
    return _reduced(loss, reduction, "poisson_nll_loss")


@explaining
def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Any,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """Minus the log-likelihood under normal distributions of mean `input` and variance `var`.

    Shapes: `input` and `target` alike; `var` too, or with one size 1 or the
    last one missing, or a number.
    Errors: ShapeError for another shape; InvalidArgument for a negative variance.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.gaussian_nll_loss.html

    >>> ad.nn.functional.gaussian_nll_loss(ad.zeros(1), ad.ones(1), ad.ones(1)).item()
    0.5
    """
    if isinstance(var, (int, float)):
        var = full_like(input, var)
    if var.shape != input.shape:
        if tuple(input.shape[:-1]) == tuple(var.shape):
            var = var.unsqueeze(-1)
        elif var.ndim != input.ndim or [
            v for n, v in zip(input.shape, var.shape, strict=True) if n != v
        ] != [1]:
            raise ShapeError(
                f"gaussian_nll_loss: var is of incorrect size {tuple(var.shape)}, input has "
                f"{tuple(input.shape)}"
            )
    refuse_where(
        (var < 0).any(),
        lambda: InvalidArgument("gaussian_nll_loss: var has negative entry/entries"),
    )
    with no_grad():
        floor = (eps - var).clamp(min=0)
    bounded = var + floor
    d: Any = input - target
    loss = 0.5 * (bounded.log() + d * d / bounded)
    if full:
        loss = loss + 0.5 * float(np.log(2 * np.pi))
    return _reduced(loss, reduction, "gaussian_nll_loss")


def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """`input` where target is 1, max(0, margin - input) where it is -1.

    Shapes: `input` and `target` alike.
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
    """max(0, -target (input1 - input2) + margin).

    Shapes: all alike.
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
    """log(1 + exp(-target input)).

    Shapes: `input` and `target` alike.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.soft_margin_loss.html

    >>> ad.nn.functional.soft_margin_loss(ad.zeros(1), ad.ones(1))
    tensor(0.6931)
    """
    reduction = reduction_of(reduction, size_average, reduce)
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
    """The binary cross entropy with logits, averaged over the classes (the last dimension).

    Shapes: `input` and `target` alike.
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
    """The mean over the other classes of max(0, margin - input[target] + input[class]) ** p.

    Shapes: (batch, classes) and (batch,), or without batch.
    Errors: InvalidArgument for p other than 1 and 2.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.multi_margin_loss.html

    >>> ad.nn.functional.multi_margin_loss(ad.zeros(1, 2), ad.tensor([0])).item()
    0.5
    """
    reduction = reduction_of(reduction, size_average, reduce)
    if p not in (1, 2):
        raise InvalidArgument(f"multi_margin_loss: only p == 1 and p == 2 supported, got {p}")
    if input.ndim < 2:  # one sample
        input, target = input.reshape(-1), target.reshape(())
    index = target.long().unsqueeze(-1)
    gaps: Any = (margin - input.gather(-1, index) + input).clamp(min=0)
    if p == 2:
        gaps = gaps * gaps
    if weight is not None:
        gaps = gaps * weight[target].unsqueeze(-1)
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
    """1 - cos where target is 1, max(0, cos - margin) where it is -1.

    Shapes: (batch, features) and (batch,), or without batch.
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
    """max(0, |anchor - positive| - |anchor - negative| + margin), in the p-norm.

    Shapes: (batch, features) all alike, or without batch.
    Errors: InvalidArgument where the margin is not positive.
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
