"""The Cauchy distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..ops.create.creation import empty
from ..ops.create.like import full_like
from ..ops.random.filling import draw_cauchy
from .distribution import LocationScale

__all__ = ["Cauchy"]


class Cauchy(LocationScale):
    """The Cauchy (Lorentz) distribution.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.cauchy.Cauchy

    >>> ad.distributions.Cauchy(0.0, 1.0).cdf(ad.tensor(0.0))
    tensor(0.5000)
    """

    @property
    def mean(self) -> Any:
        """Undefined: NaN."""
        return full_like(self.loc, math.nan)

    @property
    def variance(self) -> Any:
        """Infinite."""
        return full_like(self.loc, math.inf)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Any:
        """loc + scale * standard Cauchy draws."""
        noise = draw_cauchy(self._drawn(empty, sample_shape, self.loc))
        return self.loc + noise * self.scale

    def _log_prob(self, value: Any) -> Any:
        """The log density."""
        z = (value - self.loc) / self.scale
        return -math.log(math.pi) - self.scale.log() - z.square().log1p()

    def _cdf(self, value: Any) -> Any:
        """Cumulative distribution in closed form."""
        return ((value - self.loc) / self.scale).atan() / math.pi + 0.5

    def icdf(self, value: Any) -> Any:
        """Inverse of the cumulative distribution in closed form."""
        return (math.pi * (value - 0.5)).tan() * self.scale + self.loc

    def entropy(self) -> Any:
        """log(4 pi scale)."""
        return math.log(4 * math.pi) + self.scale.log()
