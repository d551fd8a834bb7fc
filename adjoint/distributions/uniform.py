"""The uniform distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..ops.create.like import full_like
from ..ops.random.random import rand
from . import constraints
from .distribution import Distribution
from .utils import broadcast_all

__all__ = ["Uniform"]


class Uniform(Distribution):
    """Uniform draws from [low, high).

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.uniform.Uniform

    >>> ad.distributions.Uniform(0.0, 4.0).log_prob(ad.tensor(1.0))
    tensor(-1.3863)
    """

    arg_constraints = {"low": constraints.dependent, "high": constraints.dependent}
    has_rsample = True

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.shape, (), validate_args)
        if self._validate_args:
            self._assert_all(
                self.low < self.high, (self.low, self.high),
                lambda shown: "Uniform is not defined when low>= high, got low and high",
            )  # fmt: skip

    @property
    def support(self) -> Any:
        """Support: from low to high."""
        return constraints.interval(self.low, self.high)

    @property
    def mean(self) -> Any:
        """The middle."""
        return (self.low + self.high) / 2

    @property
    def mode(self) -> Any:
        """Mode: NaN, as it is not unique."""
        return full_like(self.high, math.nan)

    @property
    def variance(self) -> Any:
        """Width^2 / 12."""
        return (self.high - self.low).square() / 12

    @property
    def stddev(self) -> Any:
        """Width / sqrt(12)."""
        return (self.high - self.low) / 12**0.5

    def rsample(self, sample_shape: Sequence[int] = ()) -> Any:
        """low + (high - low) * uniform draws."""
        draws = self._drawn(rand, sample_shape, self.low)
        return self.low + draws * (self.high - self.low)

    def _log_prob(self, value: Any) -> Any:
        """-log(width) inside, -inf outside."""
        inside = (self.low <= value) & (self.high > value)
        return inside.to(self.low.dtype).log() - (self.high - self.low).log()

    def _cdf(self, value: Any) -> Any:
        """The part of the width below `value`."""
        return ((value - self.low) / (self.high - self.low)).clamp(min=0, max=1)

    def icdf(self, value: Any) -> Any:
        """Inverse of the cumulative distribution in closed form."""
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Any:
        """log(width)."""
        return (self.high - self.low).log()
