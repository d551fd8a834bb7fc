"""The logistic normal distribution."""

from __future__ import annotations

from typing import Any

from . import constraints
from .normal import Normal
from .transformed_distribution import TransformedDistribution
from .transforms import StickBreakingTransform

__all__ = ["LogisticNormal"]


class LogisticNormal(TransformedDistribution):
    """Shares of a whole, of which one is left over by sticks broken at normal draws.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.logistic_normal.LogisticNormal

    >>> ad.distributions.LogisticNormal(ad.zeros(2), ad.ones(2)).event_shape
    adjoint.Size([3])
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.simplex  # type: ignore[assignment]
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args)
        if not base.batch_shape:
            base = base.expand([1])
        super().__init__(base, StickBreakingTransform(), validate_args)

    @property
    def loc(self) -> Any:
        """The normal distribution's mean."""
        return self.base_dist.base_dist.loc

    @property
    def scale(self) -> Any:
        """The normal distribution's standard deviation."""
        return self.base_dist.base_dist.scale
