"""Losses of numbers, probabilities and distributions; also those of classes and of ranks."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

from ...autograd.modes import no_grad
from ...core import dtype as dt
from ...core.errors import InvalidArgument, ShapeError
from ...core.mode import refuse_where
from ...core.op import Sample
from ...ops.argument_dtypes import FLOATING, REALS, assert_dtypes
from ...ops.create.like import full_like
from ...ops.elementwise.comparison import where
from ...ops.elementwise.namespace import Elementwise
from ...ops.nn.activation import logsigmoid
from ...ops.samples import array
from ...ops.shape.sizes import over_size
from ...ops.special.special import xlogy
from ...runtime.dispatch import apply
from ...runtime.fused import fused
from ...runtime.public import explaining
from ...tensor import Tensor
from .classification import cross_entropy, nll_loss
from .hinge import (
    cosine_embedding_loss,
    hinge_embedding_loss,
    margin_ranking_loss,
    multi_margin_loss,
    multilabel_soft_margin_loss,
    soft_margin_loss,
    triplet_margin_loss,
)
from .loss_reduction import _reduced, _warn_of_sizes, reduction_of

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss",
    "cross_entropy", "gaussian_nll_loss", "hinge_embedding_loss", "huber_loss", "kl_div",
    "l1_loss", "margin_ranking_loss", "mse_loss", "multi_margin_loss",
    "multilabel_soft_margin_loss", "nll_loss", "poisson_nll_loss", "smooth_l1_loss",
    "soft_margin_loss", "triplet_margin_loss",
]  # fmt: skip


# ---- regression ----------------------------------------------------------------------------------


def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """Squared difference: the mean squared error.

        loss = (input - target)^2

    Args:
        input: Values predicted.
        target: Values wanted.
        size_average: Old form of `reduction`, which warns: False for "sum". Default: None.
        reduce: Old form of `reduction`, which warns: False for "none". Default: None.
        reduction: What becomes of the elements' losses: "mean", "sum", or "none" to keep them.
            Default: "mean".
        weight: Factors of the elements, of the loss' shape; the mean is then over their sum.
            Default: None, ones.

    Shapes: input and target alike; a scalar, or their shape for reduction "none".
    Errors: InvalidArgument for an unknown reduction; ShapeError for sizes that do not broadcast
    (different ones that do only warn).
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.mse_loss.html

    >>> ad.nn.functional.mse_loss(ad.tensor([1., 3.]), ad.tensor([1., 1.])).item()
    2.0
    """
    reduction = reduction_of(reduction, size_average, reduce)
    _warn_of_sizes(input, target, "mse_loss")
    assert_dtypes("mse_loss", REALS, input=input, target=target, weight=weight)
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
    """Absolute difference: the mean absolute error.

        loss = |input - target|

    Args:
        input: Values predicted.
        target: Values wanted.
        size_average: Old form of `reduction`, which warns: False for "sum". Default: None.
        reduce: Old form of `reduction`, which warns: False for "none". Default: None.
        reduction: What becomes of the elements' losses: "mean", "sum", or "none" to keep them.
            Default: "mean".
        weight: Factors of the elements, of the loss' shape; the mean is then over their sum.
            Default: None, ones.

    Shapes: input and target alike; a scalar, or their shape for reduction "none".
    Errors: InvalidArgument for an unknown reduction; ShapeError for sizes that do not broadcast
    (different ones that do only warn).
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
    """Absolute difference that is squared near zero.

        loss = (input - target)^2 / (2 beta)    where |input - target| < beta
        loss = |input - target| - beta / 2      elsewhere

    Args:
        input: Values predicted.
        target: Values wanted.
        size_average: Old form of `reduction`, which warns: False for "sum". Default: None.
        reduce: Old form of `reduction`, which warns: False for "none". Default: None.
        reduction: What becomes of the elements' losses: "mean", "sum", or "none" to keep them.
            Default: "mean".
        beta: Difference at which the two pieces meet, at least 0; 0 gives the absolute difference.
            Default: 1.0.

    Shapes: input and target alike; a scalar, or their shape for reduction "none".
    Errors: InvalidArgument for an unknown reduction or a negative beta.
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
    """Squared difference that is linear far from zero (Huber, 1964).

        loss = (input - target)^2 / 2                       where |input - target| < delta
        loss = delta (|input - target| - delta / 2)         elsewhere

    Args:
        input: Values predicted.
        target: Values wanted.
        reduction: What becomes of the elements' losses: "mean", "sum", or "none" to keep them.
            Default: "mean".
        delta: Difference at which the two pieces meet, above 0. Default: 1.0.
        weight: Factors of the elements, of the loss' shape; the mean is then over their sum.
            Default: None, ones.

    Shapes: input and target alike; a scalar, or their shape for reduction "none".
    Errors: InvalidArgument for an unknown reduction or a delta that is not positive.
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


# ---- probabilities -------------------------------------------------------------------------------


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
    """Binary cross entropy of probabilities.

        loss = -weight (target log(input) + (1 - target) log(1 - input))

    The logarithms are not below -100. For logits, `binary_cross_entropy_with_logits` is exact.

    Args:
        input: Probabilities.
        target: Probabilities wanted, mostly 0 and 1.
        weight: Factors of the elements, which broadcast with the loss. Default: None, ones.
        size_average: Old form of `reduction`, which warns: False for "sum". Default: None.
        reduce: Old form of `reduction`, which warns: False for "none". Default: None.
        reduction: What becomes of the elements' losses: "mean", "sum", or "none" to keep them.
            Default: "mean".

    Shapes: input and target alike; a scalar, or their shape for reduction "none".
    Errors: ShapeError where the shapes differ; InvalidArgument for an unknown reduction or an input
    outside [0, 1].
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
    assert_dtypes("binary_cross_entropy", FLOATING, input=input)
    assert_dtypes("binary_cross_entropy", REALS, target=target, weight=weight)
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
    """Binary cross entropy of logits, computed without overflow.

        loss = -weight (pos_weight target log(s) + (1 - target) log(1 - s)), s = sigmoid(input)

    Args:
        input: Logits.
        target: Probabilities wanted, mostly 0 and 1.
        weight: Factors of the elements, which broadcast with the loss. Default: None, ones.
        size_average: Old form of `reduction`, which warns: False for "sum". Default: None.
        reduce: Old form of `reduction`, which warns: False for "none". Default: None.
        reduction: What becomes of the elements' losses: "mean", "sum", or "none" to keep them.
            Default: "mean".
        pos_weight: Factors of the part for positive targets, often one per class; they broadcast
            with the target. Default: None, ones.

    Shapes: input and target alike; a scalar, or their shape for reduction "none".
    Errors: ShapeError where the shapes differ; InvalidArgument for an unknown reduction.
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
    assert_dtypes(
        "binary_cross_entropy_with_logits", REALS, input=input, target=target, weight=weight,
        pos_weight=pos_weight,
    )  # fmt: skip
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
    """Kullback-Leibler divergence of the target from the input, which is in log space.

        loss = target (log(target) - input)
        loss = exp(target) (target - input)    with `log_target`

    Args:
        input: Log-probabilities.
        target: Probabilities, or their logarithms.
        size_average: Old form of `reduction`, which warns: False for "sum". Default: None.
        reduce: Old form of `reduction`, which warns: False for "none". Default: None.
        reduction: "batchmean", the sum over the first size, as the definition has it; "mean", over
            all elements, which warns; "sum" or "none". Default: "mean".
        log_target: Whether the target is in log space, too. Default: False.

    Shapes: input and target alike, or such that broadcast; a scalar, or their shape for reduction
    "none".
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
    assert_dtypes("kl_div", REALS, input=input, target=target)
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
    """Negative log-likelihood of counts under Poisson distributions.

        loss = exp(input) - target input              with `log_input`
        loss = input - target log(input + eps)        without

    Args:
        input: Rates, or their logarithms.
        target: Counts.
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
    """Negative log-likelihood under normal distributions.

        loss = (log(v) + (input - target)^2 / v) / 2, v = max(var, eps)

    Args:
        input: Means.
        target: Values observed.
        var: Variances, a tensor or a number, not negative.
        full: Add the constant log(2 pi) / 2. Default: False.
        eps: Least variance; the gradient of var does not notice it. Default: 1e-6.
        reduction: What becomes of the elements' losses: "mean", "sum", or "none" to keep them.
            Default: "mean".

    Shapes: input and target alike; var too, or with one size 1, or with the last one missing; a
    scalar, or the input's shape for reduction "none".
    Errors: ShapeError for a var of another shape; InvalidArgument for an unknown reduction or a
    negative variance.
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
