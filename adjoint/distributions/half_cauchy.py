"""The half-Cauchy distribution."""

from __future__ import annotations

import math
from typing import Any

from ..ops.create.like import full_like
from .cauchy import Cauchy
from .half import Half

__all__ = ["HalfCauchy"]


class HalfCauchy(Half):
    """The absolute value of centred Cauchy draws.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.half_cauchy.HalfCauchy

    >>> ad.distributions.HalfCauchy(1.0).cdf(ad.tensor(1.0))
    tensor(0.5000)
    """

    base = Cauchy

    @property
    def mean(self) -> Any:
        """Infinite."""
        return full_like(self.scale, math.inf)

    variance = mean
