"""The Gumbel distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..core.dtype import finfo
from ..ops.random.generators import torch_generator
from ..ops.random.random import rand
from ..ops.random.streams import draw_exponential
from .distribution import LocationScale
from .utils import euler_constant

__all__ = ["Gumbel"]


class Gumbel(LocationScale):
    """The Gumbel distribution: of the greatest of many draws.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.gumbel.Gumbel

    >>> ad.distributions.Gumbel(1.0, 2.0).mean
    tensor(2.1544)
    """

    @property
    def mean(self) -> Any:
        """loc + scale * Euler's constant."""
        return self.loc + self.scale * euler_constant

    @property
    def stddev(self) -> Any:
        """pi scale / sqrt(6)."""
        return math.pi / math.sqrt(6) * self.scale

    @property
    def variance(self) -> Any:
        """The square of the standard deviation."""
        return self.stddev.square()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Any:
        """loc - scale * log of standard exponential draws."""
        if torch_generator(None, self.loc.device) is not None:  # which draws uniform numbers for it
            info = finfo(self.loc.dtype)
            u = self._drawn(rand, sample_shape, self.loc) * (1 - info.eps - info.tiny) + info.tiny
            return self.loc - self.scale * (-u.log()).log()
        draws = self._drawn(draw_exponential, sample_shape, self.loc)
        return self.loc - self.scale * draws.clamp(min=finfo(draws.dtype).tiny).log()

    def _log_prob(self, value: Any) -> Any:
        """The log density."""
        y = (self.loc - value) / self.scale
        return (y - y.exp()) - self.scale.log()

    def _cdf(self, value: Any) -> Any:
        """Cumulative distribution in closed form."""
        return (-((self.loc - value) / self.scale).exp()).exp()

    def icdf(self, value: Any) -> Any:
        """Inverse of the cumulative distribution in closed form."""
        return self.loc - self.scale * (-value.log()).log()

    def entropy(self) -> Any:
        """log(scale) + 1 + Euler's constant."""
        return self.scale.log() + (1 + euler_constant)
