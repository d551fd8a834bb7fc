"""The half-Cauchy distribution."""

from __future__ import annotations

import math
from typing import Any

from ..ops.create.creation import full_like, zeros_like
from ..ops.elementwise.comparison import where
from . import constraints
from .cauchy import Cauchy
from .transformed_distribution import TransformedDistribution
from .transforms import AbsTransform

__all__ = ["HalfCauchy"]


class HalfCauchy(TransformedDistribution):
    """The absolute value of centred Cauchy draws.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.half_cauchy.HalfCauchy

    >>> ad.distributions.HalfCauchy(1.0).cdf(ad.tensor(1.0))
    tensor(0.5000)
    """

    arg_constraints = {"scale": constraints.positive}  # noqa: RUF012
    support = constraints.nonnegative  # type: ignore[assignment]
    has_rsample = True

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Cauchy(0, scale, validate_args=False), AbsTransform(), validate_args)

    @property
    def scale(self) -> Any:
        """The Cauchy distribution's scale."""
        return self.base_dist.scale

    @property
    def mean(self) -> Any:
        """Infinite."""
        return full_like(self.scale, math.inf)

    @property
    def mode(self) -> Any:
        """Zero."""
        return zeros_like(self.scale)

    @property
    def variance(self) -> Any:
        """Infinite."""
        return full_like(self.scale, math.inf)

    def log_prob(self, value: Any) -> Any:
        """Twice the Cauchy density."""
        self._validate_sample(value)
        return where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -math.inf)

    def cdf(self, value: Any) -> Any:
        """From the Cauchy distribution's."""
        self._validate_sample(value)
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, value: Any) -> Any:
        """From the Cauchy distribution's."""
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self) -> Any:
        """The Cauchy distribution's, less log 2."""
        return self.base_dist.entropy() - math.log(2)
