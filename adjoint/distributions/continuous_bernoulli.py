"""The continuous Bernoulli distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..ops.elementwise.comparison import where
from ..ops.random.random import rand
from . import constraints
from .bernoulli import Chance, one_of
from .utils import broadcast_all, clamp_probs, softplus

__all__ = ["ContinuousBernoulli"]


class ContinuousBernoulli(Chance):
    """Numbers of [0, 1] with a density in proportion to p^x (1 - p)^(1 - x).

    Between the two `lims` around p = 1/2, where closed forms lose digits, their series are taken.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.continuous_bernoulli.ContinuousBernoulli

    >>> ad.distributions.ContinuousBernoulli(0.5).mean
    tensor(0.5000)
    """

    support = constraints.unit_interval  # type: ignore[assignment]
    has_rsample = True

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        given = one_of(type(self).__name__, probs, logits)
        (value,) = broadcast_all(logits if probs is None else probs)
        self.__dict__[given] = value
        self._lims = lims
        super().__init__(value.shape, (), validate_args)
        self.__dict__["probs"] = clamp_probs(self.probs)

    def _far(self) -> Any:
        """A mask: where p is outside of the limits."""
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _cut(self) -> Any:
        """Log-odds where p is outside of the limits, some like them inside. The closed forms are of
        log-odds, which say more of a p near 1 than p does.
        """
        low = self._lims[0]
        return where(self._far(), self.logits, math.log(low / (1.0 - low)))

    def _log_norm(self) -> Any:
        """The logarithm of the number that makes the density one."""
        size, x = self._cut().abs(), (self.probs - 0.5).square()
        far = (size / (0.5 * size).tanh()).log()
        return where(self._far(), far, math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x)

    @property
    def mean(self) -> Any:
        """Mean in closed form."""
        odds, x = self._cut(), self.probs - 0.5
        far = 0.5 / (0.5 * odds).tanh() - 1.0 / odds + 0.5
        return where(self._far(), far, 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * x.square()) * x)

    @property
    def variance(self) -> Any:
        """Variance in closed form."""
        odds, x = self._cut(), (self.probs - 0.5).square()
        size = (-odds.abs()).exp()
        far = 1.0 / odds.square() - size / (1.0 - size).square()
        return where(self._far(), far, 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Any:
        """The inverse of the cdf, of uniform draws."""
        return self.icdf(self._drawn(rand, sample_shape, self.probs))

    def _log_prob(self, value: Any) -> Any:
        """The log density."""
        logits = self.logits
        return value * logits - softplus(logits) + self._log_norm()

    def _cdf(self, value: Any) -> Any:
        """Cumulative distribution in closed form."""
        odds = self._cut()
        size, rises = -odds.abs(), odds > 0.0
        far = (size * value).expm1() / size.expm1()
        far = far * where(rises, (size * (1.0 - value)).exp(), 1.0)
        inside = where(self._far(), far, value)
        return where(value <= 0.0, 0.0, where(value >= 1.0, 1.0, inside))

    def icdf(self, value: Any) -> Any:
        """Inverse of the cumulative distribution in closed form."""
        odds = self._cut()
        size, rises = -odds.abs(), odds > 0.0
        part = (where(rises, 1.0 - value, value) * size.expm1()).log1p() / size
        far = where(rises, 1.0 - part, part).clamp(0.0, 1.0)
        return where(self._far(), far, value)

    def entropy(self) -> Any:
        """Entropy in closed form."""
        return softplus(self.logits) - self.mean * self.logits - self._log_norm()
