"""Base of the distributions of absolute values of draws around 0."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ..ops.create.like import zeros_like
from ..ops.elementwise.comparison import where
from . import constraints
from .transformed_distribution import TransformedDistribution
from .transforms import AbsTransform


class Half(TransformedDistribution):
    """The absolute value of draws from `base` around 0."""

    base: ClassVar[Any]
    arg_constraints = {"scale": constraints.positive}
    support = constraints.nonnegative  # type: ignore[assignment]
    has_rsample = True

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(self.base(0, scale, validate_args=False), AbsTransform(), validate_args)

    @property
    def scale(self) -> Any:
        """The base distribution's scale."""
        return self.base_dist.scale

    @property
    def mode(self) -> Any:
        """Zero."""
        return zeros_like(self.scale)

    def _log_prob(self, value: Any) -> Any:
        """Twice the base's density."""
        return where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -math.inf)

    def _cdf(self, value: Any) -> Any:
        """Cumulative distribution, from the base's."""
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, value: Any) -> Any:
        """Inverse of the cumulative distribution, from the base's."""
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self) -> Any:
        """The base's, less log 2."""
        return self.base_dist.entropy() - math.log(2)
