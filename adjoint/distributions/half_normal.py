"""The half-normal distribution."""

from __future__ import annotations

import math
from typing import Any

from .half import Half
from .normal import Normal

__all__ = ["HalfNormal"]


class HalfNormal(Half):
    """The absolute value of centred normal draws.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.half_normal.HalfNormal

    >>> ad.distributions.HalfNormal(1.0).mean
    tensor(0.7979)
    """

    base = Normal

    @property
    def mean(self) -> Any:
        """scale sqrt(2 / pi)."""
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Any:
        """scale^2 (1 - 2 / pi)."""
        return self.scale.square() * (1 - 2 / math.pi)
