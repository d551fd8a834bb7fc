"""Connectionist temporal classification (Graves et al., 2006)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.errors import InvalidArgument, ShapeError
from ...ops.create.memory import from_numpy
from ...ops.elementwise.comparison import where
from ...ops.shape.joining import cat
from ...ops.special.special import logaddexp
from ...tensor import Tensor
from .loss import _reduced

__all__ = ["ctc_loss"]

# Stands for log 0: an infinity would turn the derivatives of log-sums into NaN.
_LOG_ZERO = -1e30


def _lengths(value: Any) -> list[int]:
    return [int(n) for n in (value.reshape(-1).tolist() if isinstance(value, Tensor) else value)]


def _labels(targets: Any, lengths: list[int], blank: int) -> tuple[Any, Any]:
    """Each target with blanks between and around (N, 2 longest + 1), and where a state may be
    reached from two before: at a label unlike the last one.
    """
    values = targets.detach().cpu().numpy()
    extended = np.full((len(lengths), 2 * max(lengths, default=0) + 1), blank, np.int64)
    start = 0
    for n, length in enumerate(lengths):
        row = values[n] if values.ndim == 2 else values[start : start + length]
        extended[n, 1 : 2 * length : 2] = row[:length]
        start += length
    skips = np.zeros(extended.shape, bool)
    skips[:, 3::2] = extended[:, 3::2] != extended[:, 1:-2:2]
    return extended, skips


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Minus the log-probability of the targets, summed over all their alignments with the input.

    'mean' divides each sample's loss by its target's length first. As in PyTorch the derivative is
    that of log-probabilities which `log_softmax` made: it has their softmax added to it.

    Shapes: log_probs (T, N, C) or (T, C); targets (N, S), or all in one (sum of lengths,).
    Errors: ShapeError where batch sizes differ; InvalidArgument for lengths that do not fit.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.ctc_loss.html

    >>> logs = ad.zeros(2, 1, 2).log_softmax(2)
    >>> ad.nn.functional.ctc_loss(logs, ad.tensor([[1]]), [2], [1]).exp()
    tensor(1.3333)
    """
    batched = log_probs.ndim == 3
    if log_probs.ndim not in (2, 3):
        raise ShapeError(
            f"ctc_loss: log_probs must be (T, N, C) or (T, C), got {tuple(log_probs.shape)}"
        )
    logs: Any = log_probs if batched else log_probs.unsqueeze(1)
    times, labels = _lengths(input_lengths), _lengths(target_lengths)
    steps, batch, classes = logs.shape
    if not (len(times) == len(labels) == batch):
        raise ShapeError(
            f"ctc_loss: input_lengths and target_lengths must be of size {batch}, got "
            f"{len(times)} and {len(labels)}"
        )
    if max(times, default=0) > steps or min(times, default=0) < 0:
        raise InvalidArgument(
            f"ctc_loss: Expected input_lengths to have value at most {steps}, but got {times}"
        )
    if not 0 <= blank < classes:
        raise InvalidArgument(f"ctc_loss: blank must be in label range 0 to {classes - 1}")
    if min(labels, default=0) < 0 or (
        targets.ndim == 2 and max(labels, default=0) > targets.shape[1]
    ):
        raise InvalidArgument(
            f"ctc_loss: target_lengths {labels} do not fit targets of shape {tuple(targets.shape)}"
        )
    if targets.ndim == 1 and batched and sum(labels) != targets.shape[0]:
        raise InvalidArgument(
            f"ctc_loss: target_lengths sum to {sum(labels)}, but targets has {targets.shape[0]}"
        )
    if logs.dtype in (dt.float16, dt.bfloat16):
        logs = logs.to(dt.float32)
    extended, skips = _labels(targets, labels, blank)
    loss = _negative_log_likelihood(logs, extended, skips, times, labels)
    impossible = loss.detach() > -_LOG_ZERO / 2
    loss = loss + _normalisation(logs, times)
    loss = loss.masked_fill(impossible, 0.0 if zero_infinity else float("inf"))
    loss = loss.to(log_probs.dtype)
    if reduction == "mean":
        counts = np.maximum(np.array(labels), 1)
        return (loss / from_numpy(counts).to(loss)).mean()  # type: ignore[no-any-return]
    return _reduced(loss if batched else loss.squeeze(0), reduction, "ctc_loss")


def _negative_log_likelihood(
    logs: Any, extended: Any, skips: Any, times: list[int], labels: list[int]
) -> Any:
    """By the forward recursion over the states of `extended`, all samples at once."""
    batch, states = extended.shape
    place = logs.device
    index = from_numpy(np.broadcast_to(extended, (logs.shape[0], batch, states)).copy()).to(place)
    scores = logs.clamp_min(_LOG_ZERO).gather(2, index)
    no_skip = from_numpy(~skips).to(place)
    start = from_numpy(np.broadcast_to(np.arange(states) < 2, (batch, states)).copy()).to(place)
    nothing = logs.new_full((batch, 2), _LOG_ZERO)
    alpha = scores.new_full((batch, states), _LOG_ZERO)
    rows: Any = alpha
    ends = from_numpy(np.array(times)).to(place)
    for t in range(max(times, default=0)):
        if t == 0:
            rows = scores[0].masked_fill(~start, _LOG_ZERO)
        else:
            before = cat([nothing, alpha], 1)
            one, two = before[:, 1:-1], before[:, :-2].masked_fill(no_skip, _LOG_ZERO)
            rows = logaddexp(logaddexp(alpha, one), two) + scores[t]
        running = (ends > t).unsqueeze(1)
        alpha = rows if min(times) > t else where(running, rows, alpha)
    if min(times, default=1) == 0:  # no input: only the empty target has an alignment
        empty = start & from_numpy(np.arange(states) < 1).to(place)
        alpha = where((ends > 0).unsqueeze(1), alpha, where(empty, 0.0, alpha))
    last = 2 * np.array(labels)
    final = alpha.gather(1, from_numpy(last[:, None]).to(place)).squeeze(1)
    label = alpha.gather(1, from_numpy(np.maximum(last - 1, 0)[:, None]).to(place)).squeeze(1)
    label = label.masked_fill(from_numpy(last == 0).to(place), _LOG_ZERO)
    return -logaddexp(final, label)


def _normalisation(logs: Any, times: list[int]) -> Any:
    """Zeros whose derivative is the softmax exp(logs): see the docstring of `ctc_loss`."""
    used = np.arange(logs.shape[0])[:, None] < np.array(times)
    if not logs.requires_grad:
        return 0.0
    total = (logs.exp() * from_numpy(used[..., None]).to(logs)).sum((0, 2))
    return total - total.detach()
