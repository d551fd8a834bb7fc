"""The Weibull distribution."""

from __future__ import annotations

from typing import Any

from ..ops.create.like import ones_like
from ..ops.special.special import lgamma
from . import constraints
from .exponential import Exponential
from .transformed_distribution import TransformedDistribution
from .transforms import AffineTransform, PowerTransform
from .utils import broadcast_all, euler_constant

__all__ = ["Weibull"]


class Weibull(TransformedDistribution):
    """A power of exponential draws, stretched.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.weibull.Weibull

    >>> ad.distributions.Weibull(2.0, 1.0).mean
    tensor(2.)
    """

    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive  # type: ignore[assignment]
    has_rsample = True

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = broadcast_all(scale, concentration)
        self.concentration_reciprocal = self.concentration.reciprocal()
        base = Exponential(ones_like(self.scale), validate_args)
        transforms = [
            PowerTransform(self.concentration_reciprocal),
            AffineTransform(0.0, self.scale),
        ]
        super().__init__(base, transforms, validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """A distribution expanded to another batch shape."""
        scale = self.scale.expand(batch_shape)
        return type(self)(scale, self.concentration.expand(batch_shape), validate_args=False)

    @property
    def mean(self) -> Any:
        """Mean in closed form."""
        return self.scale * lgamma(1 + self.concentration_reciprocal).exp()

    @property
    def mode(self) -> Any:
        """scale ((concentration - 1) / concentration)^(1 / concentration)."""
        ratio = (self.concentration - 1) / self.concentration
        return self.scale * ratio**self.concentration_reciprocal

    @property
    def variance(self) -> Any:
        """Variance in closed form."""
        r = self.concentration_reciprocal
        return self.scale.square() * (lgamma(1 + 2 * r).exp() - (2 * lgamma(1 + r)).exp())

    def entropy(self) -> Any:
        """Entropy in closed form."""
        r = self.concentration_reciprocal
        return euler_constant * (1 - r) + (self.scale * r).log() + 1
