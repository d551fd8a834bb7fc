"""The inverse gamma distribution."""

from __future__ import annotations

import math
from typing import Any

from ..ops.elementwise.comparison import where
from ..ops.special.special import digamma, lgamma
from . import constraints
from .gamma import Gamma
from .transformed_distribution import TransformedDistribution
from .transforms import PowerTransform

__all__ = ["InverseGamma"]


class InverseGamma(TransformedDistribution):
    """Numbers whose reciprocal has a gamma distribution.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.inverse_gamma.InverseGamma

    >>> ad.distributions.InverseGamma(2.0, 3.0).mean
    tensor(3.)
    """

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.positive  # type: ignore[assignment]
    has_rsample = True

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        base = Gamma(concentration, rate, validate_args)
        power = PowerTransform(-base.rate.new_ones(()))
        super().__init__(base, power, validate_args)

    @property
    def concentration(self) -> Any:
        """Concentration of the gamma distribution."""
        return self.base_dist.concentration

    @property
    def rate(self) -> Any:
        """Rate of the gamma distribution."""
        return self.base_dist.rate

    @property
    def mean(self) -> Any:
        """rate / (concentration - 1), where that is positive."""
        found = self.rate / (self.concentration - 1)
        return where(self.concentration > 1, found, math.inf)

    @property
    def mode(self) -> Any:
        """rate / (concentration + 1)."""
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Any:
        """Variance; defined where the concentration is more than 2."""
        a = self.concentration
        found = self.rate.square() / ((a - 1).square() * (a - 2))
        return where(a > 2, found, math.inf)

    def entropy(self) -> Any:
        """Entropy in closed form."""
        a = self.concentration
        return a + self.rate.log() + lgamma(a) - (1 + a) * digamma(a)
