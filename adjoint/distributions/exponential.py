"""The exponential distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ops.create.like import zeros_like
from ..ops.random.streams import draw_exponential
from . import constraints
from .distribution import Distribution
from .utils import broadcast_all

__all__ = ["Exponential"]


class Exponential(Distribution):
    """The exponential distribution with a rate.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.exponential.Exponential

    >>> ad.distributions.Exponential(2.0).mean
    tensor(0.5000)
    """

    arg_constraints = {"rate": constraints.positive}
    support = constraints.nonnegative  # type: ignore[assignment]
    has_rsample = True

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, (), validate_args)

    @property
    def mean(self) -> Any:
        """1 / rate."""
        return self.rate.reciprocal()

    stddev = mean

    @property
    def mode(self) -> Any:
        """Zero."""
        return zeros_like(self.rate)

    @property
    def variance(self) -> Any:
        """1 / rate^2."""
        return self.rate.pow(-2)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Any:
        """Standard exponential draws / rate."""
        return self._drawn(draw_exponential, sample_shape, self.rate) / self.rate

    def _log_prob(self, value: Any) -> Any:
        """The log density."""
        return self.rate.log() - self.rate * value

    def _cdf(self, value: Any) -> Any:
        """1 - e^(-rate value)."""
        return -(-self.rate * value).expm1()

    def icdf(self, value: Any) -> Any:
        """Inverse of the cumulative distribution in closed form."""
        return -(-value).log1p() / self.rate

    def entropy(self) -> Any:
        """1 - log(rate)."""
        return 1 - self.rate.log()
