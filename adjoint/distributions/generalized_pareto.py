"""The generalized Pareto distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..ops.elementwise.comparison import where
from . import constraints
from .distribution import Distribution
from .utils import broadcast_all, open_uniform

__all__ = ["GeneralizedPareto"]


class GeneralizedPareto(Distribution):
    """Distribution of values above a high threshold, `loc`: 1 - cdf = (1 + c z)^(-1/c) of z = (x -
    loc) / scale, which for a concentration c of 0 is exp(-z).

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.generalized_pareto.GeneralizedPareto

    >>> ad.distributions.GeneralizedPareto(0.0, 1.0, 0.5).mean
    tensor(2.)
    """

    arg_constraints = {
        "loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real,
    }  # fmt: skip
    has_rsample = True

    def __init__(
        self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None
    ) -> None:
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(self.loc.shape, (), validate_args)

    def _shape(self) -> tuple[Any, Any]:
        """Whether the concentration is 0, and it where it is not."""
        zero = self.concentration == 0
        return zero, where(zero, 1.0, self.concentration)

    @property
    def support(self) -> Any:
        """Support: from loc on; for negative concentrations to loc - scale / concentration."""
        upper = where(self.concentration < 0, self.loc - self.scale / self._shape()[1], math.inf)
        return constraints.interval(self.loc, upper)

    @property
    def mean(self) -> Any:
        """loc + scale / (1 - concentration), where that is finite."""
        found = self.loc + self.scale / (1 - self.concentration)
        return where(self.concentration < 1, found, math.nan)

    @property
    def mode(self) -> Any:
        """The location."""
        return self.loc

    @property
    def variance(self) -> Any:
        """Variance; defined where the concentration is less than 1/2."""
        c = self.concentration
        found = self.scale.square() / ((1 - c).square() * (1 - 2 * c))
        return where(c < 0.5, found, math.nan)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Any:
        """The inverse of the cdf, of uniform draws."""
        return self.icdf(open_uniform(self._extended_shape(sample_shape), self.loc))

    def _log_prob(self, value: Any) -> Any:
        """The log density."""
        zero, c = self._shape()
        z = (value - self.loc) / self.scale
        return where(zero, -z, -(1 + 1 / c) * (c * z).log1p()) - self.scale.log()

    def log_survival_function(self, value: Any) -> Any:
        """log(1 - cdf)."""
        self._validate_sample(value)
        zero, c = self._shape()
        z = (value - self.loc) / self.scale
        return where(zero, -z, -(c * z).log1p() / c)

    def log_cdf(self, value: Any) -> Any:
        """The logarithm of the cdf."""
        return (-self.log_survival_function(value).exp()).log1p()

    def _cdf(self, value: Any) -> Any:
        """Cumulative distribution in closed form."""
        return -self.log_survival_function(value).expm1()

    def icdf(self, value: Any) -> Any:
        """Inverse of the cumulative distribution in closed form."""
        zero, c = self._shape()
        rest = (-value).log1p()
        return self.loc + self.scale * where(zero, -rest, (-c * rest).expm1() / c)

    def entropy(self) -> Any:
        """log(scale) + concentration + 1."""
        return self.scale.log() + self.concentration + 1
