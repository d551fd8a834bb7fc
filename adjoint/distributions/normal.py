"""The normal distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..ops.random.random import randn
from .distribution import LocationScale
from .utils import HALF_LOG_2PI

__all__ = ["Normal"]


class Normal(LocationScale):
    """The normal (Gaussian) distribution.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.normal.Normal

    >>> ad.distributions.Normal(0.0, 1.0).log_prob(ad.tensor(0.0))
    tensor(-0.9189)
    """

    @property
    def stddev(self) -> Any:
        """The scale."""
        return self.scale

    @property
    def variance(self) -> Any:
        """scale^2."""
        return self.scale.square()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Any:
        """loc + scale * standard normal draws."""
        noise = self._drawn(randn, sample_shape, self.loc)
        return self.loc + self.scale * noise

    def _log_prob(self, value: Any) -> Any:
        """The log density."""
        return ((value - self.loc) / self.scale).square() * -0.5 - self.scale.log() - HALF_LOG_2PI

    def _cdf(self, value: Any) -> Any:
        """Cumulative distribution by the error function."""
        return 0.5 * (1 + ((value - self.loc) / (self.scale * math.sqrt(2))).erf())

    def icdf(self, value: Any) -> Any:
        """Inverse of the cumulative distribution, by the inverse error function."""
        return self.loc + self.scale * (2 * value - 1).erfinv() * math.sqrt(2)

    def entropy(self) -> Any:
        """log(scale sqrt(2 pi e))."""
        return 0.5 + HALF_LOG_2PI + self.scale.log()
