"""The Laplace distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.dtype import finfo
from ..ops.random.random import rand
from .distribution import LocationScale

__all__ = ["Laplace"]


class Laplace(LocationScale):
    """The Laplace (double exponential) distribution.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.laplace.Laplace

    >>> ad.distributions.Laplace(0.0, 1.0).log_prob(ad.tensor(1.0))
    tensor(-1.6931)
    """

    @property
    def variance(self) -> Any:
        """2 scale^2."""
        return 2 * self.scale.square()

    @property
    def stddev(self) -> Any:
        """sqrt(2) scale."""
        return 2**0.5 * self.scale

    def rsample(self, sample_shape: Sequence[int] = ()) -> Any:
        """Samples by the inverse of the cumulative distribution."""
        u = self._drawn(rand, sample_shape, self.loc) - 0.5
        tail = (1 - 2 * u.abs()).clamp(min=finfo(u.dtype).tiny)
        return self.loc - self.scale * u.sign() * tail.log()

    def _log_prob(self, value: Any) -> Any:
        """The log density."""
        return -(2 * self.scale).log() - (value - self.loc).abs() / self.scale

    def _cdf(self, value: Any) -> Any:
        """Cumulative distribution in closed form."""
        z = value - self.loc
        return 0.5 - 0.5 * z.sign() * (-z.abs() / self.scale).expm1()

    def icdf(self, value: Any) -> Any:
        """Inverse of the cumulative distribution in closed form."""
        term = value - 0.5
        return self.loc - self.scale * term.sign() * (-2 * term.abs()).log1p()

    def entropy(self) -> Any:
        """1 + log(2 scale)."""
        return 1 + (2 * self.scale).log()
