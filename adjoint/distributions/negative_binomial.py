"""The negative binomial distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..autograd.modes import no_grad
from ..ops.elementwise.comparison import where
from ..ops.nn.activation import logsigmoid
from ..ops.random.random import poisson
from ..ops.special.special import lgamma
from . import constraints
from .bernoulli import Chance, one_of
from .gamma import drawn
from .utils import broadcast_all

__all__ = ["NegativeBinomial"]


class NegativeBinomial(Chance):
    """Successes of probability `probs` before there are `total_count` failures.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.negative_binomial.NegativeBinomial

    >>> ad.distributions.NegativeBinomial(3.0, 0.5).mean
    tensor(3.)
    """

    arg_constraints = {
        "total_count": constraints.nonnegative,
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer  # type: ignore[assignment]

    def __init__(
        self,
        total_count: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        given = one_of(type(self).__name__, probs, logits)
        self.total_count, value = broadcast_all(total_count, logits if probs is None else probs)
        self.total_count = self.total_count.type_as(value)
        self.__dict__[given] = value
        super().__init__(value.shape, (), validate_args)

    @property
    def mean(self) -> Any:
        """total_count times the odds."""
        return self.total_count * self.logits.exp()

    @property
    def mode(self) -> Any:
        """(total_count - 1) times the odds, rounded down, at least 0."""
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    @property
    def variance(self) -> Any:
        """The mean over the probability of a failure."""
        return self.mean / (-self.logits).sigmoid()

    def sample(self, sample_shape: Sequence[int] = ()) -> Any:
        """Poisson draws whose rates are gamma draws."""
        with no_grad():
            shape = self._extended_shape(sample_shape)
            return poisson(drawn(self.total_count, (-self.logits).exp(), shape))

    def _log_prob(self, value: Any) -> Any:
        """The log probability."""
        n = self.total_count
        ways = lgamma(n + value) - lgamma(1.0 + value) - lgamma(n)
        ways = where(n + value == 0.0, 0.0, ways)
        return n * logsigmoid(-self.logits) + value * logsigmoid(self.logits) + ways
