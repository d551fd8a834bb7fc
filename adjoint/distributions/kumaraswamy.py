"""The Kumaraswamy distribution."""

from __future__ import annotations

import math
from typing import Any

from ..ops.create.like import ones_like, zeros_like
from ..ops.elementwise.comparison import where
from ..ops.special.special import digamma, lgamma
from . import constraints
from .transformed_distribution import TransformedDistribution
from .transforms import AffineTransform, PowerTransform
from .uniform import Uniform
from .utils import broadcast_all, euler_constant

__all__ = ["Kumaraswamy"]


class Kumaraswamy(TransformedDistribution):
    """Kumaraswamy distribution, much like the beta distribution, with a cdf in closed form: 1 - (1
    - x^a)^b.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.kumaraswamy.Kumaraswamy

    >>> ad.distributions.Kumaraswamy(1.0, 1.0).mean
    tensor(0.5000)
    """

    arg_constraints = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    support = constraints.unit_interval  # type: ignore[assignment]
    has_rsample = True

    def __init__(
        self, concentration1: Any, concentration0: Any, validate_args: bool | None = None
    ) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        one = ones_like(self.concentration0)
        transforms = [
            PowerTransform(self.concentration0.reciprocal()),
            AffineTransform(1.0, -1.0),
            PowerTransform(self.concentration1.reciprocal()),
        ]
        super().__init__(Uniform(zeros_like(one), one, validate_args), transforms, validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """A distribution expanded to another batch shape."""
        a, b = self.concentration1.expand(batch_shape), self.concentration0.expand(batch_shape)
        return type(self)(a, b, validate_args=False)

    def _moment(self, n: int) -> Any:
        """The expectation of x^n."""
        b = self.concentration0
        more = 1 + n / self.concentration1
        return b * (lgamma(more) + lgamma(b) - lgamma(more + b)).exp()

    @property
    def mean(self) -> Any:
        """Mean in closed form."""
        return self._moment(1)

    @property
    def mode(self) -> Any:
        """((a - 1) / (a b - 1))^(1/a), where a and b are at least 1 and not both are 1."""
        a, b = self.concentration1, self.concentration0
        found = ((a - 1) / (a * b - 1)) ** a.reciprocal()
        return where((a < 1) | (b < 1) | (a * b == 1), math.nan, found)

    @property
    def variance(self) -> Any:
        """Variance by the first two moments."""
        return self._moment(2) - self._moment(1).square()

    def entropy(self) -> Any:
        """Entropy in closed form."""
        a, b = self.concentration1, self.concentration0
        harmonic = digamma(b + 1) + euler_constant
        return (1 - b.reciprocal()) + (1 - a.reciprocal()) * harmonic - a.log() - b.log()
