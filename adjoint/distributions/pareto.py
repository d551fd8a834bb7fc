"""The Pareto distribution."""

from __future__ import annotations

import math
from typing import Any

from ..ops.elementwise.comparison import where
from . import constraints
from .exponential import Exponential
from .transformed_distribution import TransformedDistribution
from .transforms import AffineTransform, ExpTransform
from .utils import broadcast_all

__all__ = ["Pareto"]


class Pareto(TransformedDistribution):
    """The Pareto distribution of the first kind, on numbers of at least `scale`.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.pareto.Pareto

    >>> ad.distributions.Pareto(1.0, 3.0).mean
    tensor(1.5000)
    """

    arg_constraints = {"alpha": constraints.positive, "scale": constraints.positive}
    has_rsample = True

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = broadcast_all(scale, alpha)
        base = Exponential(self.alpha, validate_args)
        transforms = [ExpTransform(), AffineTransform(0.0, self.scale)]
        super().__init__(base, transforms, validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """A distribution expanded to another batch shape."""
        scale, alpha = self.scale.expand(batch_shape), self.alpha.expand(batch_shape)
        return type(self)(scale, alpha, validate_args=False)

    @property
    def mean(self) -> Any:
        """alpha scale / (alpha - 1), where that is positive."""
        return where(self.alpha > 1, self.alpha * self.scale / (self.alpha - 1), math.inf)

    @property
    def mode(self) -> Any:
        """The scale."""
        return self.scale

    @property
    def variance(self) -> Any:
        """Variance; defined where alpha is more than 2."""
        a = self.alpha
        found = self.scale.square() * a / ((a - 1).square() * (a - 2))
        return where(a > 2, found, math.inf)

    @property
    def support(self) -> Any:
        """Support: from the scale on."""
        return constraints.greater_than_eq(self.scale)

    def entropy(self) -> Any:
        """Entropy in closed form."""
        return (self.scale / self.alpha).log() + (1 + self.alpha.reciprocal())
