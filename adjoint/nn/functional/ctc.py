"""Connectionist temporal classification (Graves et al., 2006)."""

from __future__ import annotations

import operator
from typing import Any

from ...core import dtype as dt
from ...core.errors import InvalidArgument, ShapeError
from ...core.mode import are_known, refuse_where
from ...ops.create.creation import tensor
from ...ops.create.like import full_like
from ...ops.create.ranges import arange
from ...ops.elementwise.comparison import where
from ...ops.shape.arranging import pad
from ...ops.shape.concatenation import cat, stack
from ...ops.special.special import logaddexp
from ...tensor import Tensor
from .checks import as_indices
from .loss_reduction import _reduced

__all__ = ["ctc_loss"]

# Stands for log 0: an infinity would turn the derivatives of log-sums into NaN.
_LOG_ZERO = -1e30


class _Lengths:
    """The lengths of samples: a tensor, and their range, as far as values can be read now."""

    def __init__(self, given: Any, most: int, place: Any) -> None:
        """`most` is the largest one that there may be."""
        self.known: list[int] | None = None
        if isinstance(given, Tensor):
            given = as_indices(given, "ctc_loss", "lengths'")
        if isinstance(given, Tensor) and not are_known():
            self.tensor: Any = given.reshape(-1).to(dt.int64).to(place)
            self.least, self.most = 0, most
        else:
            values = given.reshape(-1).tolist() if isinstance(given, Tensor) else given
            self.known = [operator.index(n) for n in values]
            self.tensor = tensor(self.known, dtype=dt.int64).to(place)
            self.least, self.most = min(self.known, default=0), max(self.known, default=0)

    def __len__(self) -> int:
        return int(self.tensor.shape[0])

    def __str__(self) -> str:
        return "others" if self.known is None else str(self.known)

    def assert_within(self, most: int, message: str) -> None:
        """Refuse lengths that are not from 0 to `most`, now or in each run.

        Errors: InvalidArgument.
        """
        if self.known is None:
            wrong = ((self.tensor < 0) | (self.tensor > most)).any()
            refuse_where(wrong, lambda: InvalidArgument(message))
        elif self.least < 0 or self.most > most:
            raise InvalidArgument(message)

    def assert_sum(self, total: int) -> None:
        """Refuse lengths whose sum is another one, now or in each run.

        Errors: InvalidArgument.
        """
        name = "ctc_loss: target_lengths sum to"
        if self.known is None:
            wrong = self.tensor.sum() != total
            message = f"{name} something else, but targets has {total}"
            refuse_where(wrong, lambda: InvalidArgument(message))
        elif sum(self.known) != total:
            raise InvalidArgument(f"{name} {sum(self.known)}, but targets has {total}")


def _labels(targets: Any, lengths: _Lengths, blank: int) -> tuple[Any, Any]:
    """Each target with blanks between and around (N, 2 longest + 1), and where a state may not be
    reached from two before: only at a label unlike the last one it is.
    """
    places = arange(lengths.most, device=targets.device)
    if targets.ndim == 2:
        rows = targets[:, : lengths.most]
    else:
        begin = (lengths.tensor.cumsum(0) - lengths.tensor).unsqueeze(-1)
        rows = targets[(begin + places).clamp(max=targets.shape[0] - 1)]
    rows = rows.to(dt.int64).masked_fill(places >= lengths.tensor.unsqueeze(-1), blank)
    same = pad(rows[:, 1:] == rows[:, :-1], (1, 0), value=True) if lengths.most else rows == blank
    found = []
    for x, between in ((rows, blank), (same, True)):
        pairs = stack([full_like(x, between), x], 2)
        found.append(pad(pairs.reshape(len(lengths), -1), (0, 1), value=between))
    return found[0], found[1]


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Connectionist temporal classification loss (Graves et al., 2006).

        loss = -log(sum over alignments a of the target of exp(sum over t of log_probs[t, a[t]]))

    An alignment has one class for each time; without repetitions, and then without blanks, it is
    the target. "mean" divides each sample's loss by its target's length first. As in PyTorch the
    derivative is that of log-probabilities which `log_softmax` made.

    Args:
        log_probs: Log-probabilities, mostly of `log_softmax`.
        targets: Labels as integers, padded, or all in one row.
        input_lengths: Length of each input, a tensor or a sequence.
        target_lengths: Length of each target, a tensor or a sequence.
        blank: Class that stands for no label. Default: 0.
        reduction: What becomes of the elements' losses: "mean", "sum", or "none" to keep them.
            Default: "mean".
        zero_infinity: Zero, instead of an infinite loss, for targets that are too long for their
            input. Default: False.

    Shapes: log_probs (T, N, C) or (T, C); targets (N, S), or all in one (sum of lengths,); lengths
    (N,); a scalar, or (N,) for reduction "none".
    Errors: ShapeError where batch sizes differ; InvalidArgument for an unknown reduction, a blank
    that is no class, or lengths that do not fit.
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
    steps, batch, classes = logs.shape
    targets = targets.to(logs.device)
    times = _Lengths(input_lengths, steps, logs.device)
    labels = _Lengths(target_lengths, targets.shape[-1], logs.device)
    if not (len(times) == len(labels) == batch):
        raise ShapeError(
            f"ctc_loss: input_lengths and target_lengths must be of size {batch}, got "
            f"{len(times)} and {len(labels)}"
        )
    times.assert_within(
        steps, f"ctc_loss: Expected input_lengths to have value at most {steps}, but got {times}"
    )
    if not 0 <= blank < classes:
        raise InvalidArgument(f"ctc_loss: blank must be in label range 0 to {classes - 1}")
    if targets.ndim == 1 and batched:
        labels.assert_sum(targets.shape[0])
    labels.assert_within(
        targets.shape[-1],
        f"ctc_loss: target_lengths {labels} do not fit targets of shape {tuple(targets.shape)}",
    )
    if logs.dtype in (dt.float16, dt.bfloat16):
        logs = logs.to(dt.float32)
    extended, no_skip = _labels(targets, labels, blank)
    loss = _negative_log_likelihood(logs, extended, no_skip, times, labels)
    impossible = loss.detach() > -_LOG_ZERO / 2
    loss = loss + _normalisation(logs, times.tensor)
    loss = loss.masked_fill(impossible, 0.0 if zero_infinity else float("inf"))
    loss = loss.to(log_probs.dtype)
    if reduction == "mean":
        return (loss / labels.tensor.clamp(min=1).to(loss)).mean()
    return _reduced(loss if batched else loss.squeeze(0), reduction, "ctc_loss")


def _negative_log_likelihood(
    logs: Any, extended: Any, no_skip: Any, times: _Lengths, labels: _Lengths
) -> Any:
    """Compute each sample's loss by the forward recursion over the states of `extended`."""
    batch, states = extended.shape
    scores = logs.clamp_min(_LOG_ZERO).gather(2, extended.expand(logs.shape[0], batch, states))
    place = arange(states, device=logs.device)
    nothing = logs.new_full((batch, 2), _LOG_ZERO)
    alpha = scores.new_full((batch, states), _LOG_ZERO)
    rows: Any = alpha
    ends = times.tensor
    for t in range(times.most):
        if t == 0:
            rows = scores[0].masked_fill(place >= 2, _LOG_ZERO)
        else:
            before = cat([nothing, alpha], 1)
            one, two = before[:, 1:-1], before[:, :-2].masked_fill(no_skip, _LOG_ZERO)
            rows = logaddexp(logaddexp(alpha, one), two) + scores[t]
        alpha = rows if times.least > t else where((ends > t).unsqueeze(1), rows, alpha)
    if times.least == 0:  # no input: only the empty target has an alignment
        alpha = where((ends > 0).unsqueeze(1), alpha, where(place < 1, 0.0, alpha))
    last = (2 * labels.tensor).clamp(max=states - 1)  # checks of a program come in the end
    final = alpha.gather(1, last.unsqueeze(1)).squeeze(1)
    label = alpha.gather(1, (last - 1).clamp(min=0).unsqueeze(1)).squeeze(1)
    return -logaddexp(final, label.masked_fill(last == 0, _LOG_ZERO))


def _normalisation(logs: Any, times: Any) -> Any:
    """Zeros whose derivative is the softmax exp(logs): see the docstring of `ctc_loss`."""
    if not logs.requires_grad:
        return 0.0
    used = arange(logs.shape[0], device=logs.device).unsqueeze(1) < times
    total = (logs.exp() * used.unsqueeze(2).to(logs)).sum((0, 2))
    return total - total.detach()
