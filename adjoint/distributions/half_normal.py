"""The half-normal distribution."""

from __future__ import annotations

import math
from typing import Any

from ..ops.create.creation import zeros_like
from ..ops.elementwise.comparison import where
from . import constraints
from .normal import Normal
from .transformed_distribution import TransformedDistribution
from .transforms import AbsTransform

__all__ = ["HalfNormal"]


class HalfNormal(TransformedDistribution):
    """The absolute value of centred normal draws.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.half_normal.HalfNormal

    >>> ad.distributions.HalfNormal(1.0).mean
    tensor(0.7979)
    """

    arg_constraints = {"scale": constraints.positive}  # noqa: RUF012
    support = constraints.nonnegative  # type: ignore[assignment]
    has_rsample = True

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Normal(0, scale, validate_args=False), AbsTransform(), validate_args)

    @property
    def scale(self) -> Any:
        """The normal distribution's scale."""
        return self.base_dist.scale

    @property
    def mean(self) -> Any:
        """scale sqrt(2 / pi)."""
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def mode(self) -> Any:
        """Zero."""
        return zeros_like(self.scale)

    @property
    def variance(self) -> Any:
        """scale^2 (1 - 2 / pi)."""
        return self.scale.square() * (1 - 2 / math.pi)

    def log_prob(self, value: Any) -> Any:
        """Twice the normal density."""
        self._validate_sample(value)
        return where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -math.inf)

    def cdf(self, value: Any) -> Any:
        """From the normal distribution's."""
        self._validate_sample(value)
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, value: Any) -> Any:
        """From the normal distribution's."""
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self) -> Any:
        """The normal distribution's, less log 2."""
        return self.base_dist.entropy() - math.log(2)
