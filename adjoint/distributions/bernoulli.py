"""The Bernoulli distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..autograd.modes import no_grad
from ..core.errors import InvalidArgument
from ..ops.create.ranges import arange
from ..ops.elementwise.comparison import where
from ..ops.random.random import bernoulli
from . import constraints
from .distribution import Distribution
from .utils import broadcast_all, lazy_property, logits_to_probs, probs_to_logits, softplus

__all__ = ["Bernoulli"]


class Chance(Distribution):
    """The base of those of trials that succeed with probability `probs`, of log-odds `logits`."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}

    @lazy_property
    def logits(self) -> Any:
        """The log-odds of a success."""
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Any:
        """The probability of a success."""
        return logits_to_probs(self.logits, is_binary=True)

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter."""
        return self._batch_shape


class Bernoulli(Chance):
    """1 with probability `probs` (or of log-odds `logits`), else 0.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.bernoulli.Bernoulli

    >>> ad.distributions.Bernoulli(0.25).variance
    tensor(0.1875)
    """

    support = constraints.boolean  # type: ignore[assignment]
    has_enumerate_support = True

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        given = one_of(type(self).__name__, probs, logits)
        (self.__dict__[given],) = broadcast_all(logits if probs is None else probs)
        super().__init__(self.__dict__[given].shape, (), validate_args)

    @property
    def mean(self) -> Any:
        """The probability of 1."""
        return self.probs

    @property
    def mode(self) -> Any:
        """The more probable value, NaN where both are equally so."""
        probs = self.probs
        return where(probs == 0.5, math.nan, (probs >= 0.5).to(probs.dtype))

    @property
    def variance(self) -> Any:
        """probs (1 - probs)."""
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Any:
        """Draws without gradient."""
        with no_grad():
            return bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def _log_prob(self, value: Any) -> Any:
        """The log probability."""
        return value * self.logits - softplus(self.logits)

    def entropy(self) -> Any:
        """Entropy in closed form."""
        return softplus(self.logits) - self.logits * self.probs

    def enumerate_support(self, expand: bool = True) -> Any:
        """0 and 1."""
        like = self.__dict__.get("probs", self.logits)
        values = arange(2, dtype=like.dtype, device=like.device)
        return along_batch(values, self._batch_shape, expand)


def one_of(name: str, probs: Any, logits: Any) -> str:
    """Name of the argument that was given, `probs` or `logits`; InvalidArgument unless one was."""
    if (probs is None) == (logits is None):
        raise InvalidArgument(
            f"{name}: Either `probs` or `logits` must be specified, but not both."
        )
    return "logits" if probs is None else "probs"


def along_batch(values: Any, batch_shape: Any, expand: bool) -> Any:
    """`values` along dimension 0, before the batch's dimensions."""
    values = values.reshape((-1, *(1 for _ in batch_shape)))
    return values.expand((-1, *batch_shape)) if expand else values
