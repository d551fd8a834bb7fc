"""The gamma distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.dtype import finfo
from ..ops.random.gamma_draws import standard_gamma
from ..ops.special.incomplete import igamma
from ..ops.special.special import digamma, lgamma, xlogy
from . import constraints
from .distribution import Distribution
from .utils import broadcast_all

__all__ = ["Gamma"]


def drawn(concentration: Any, rate: Any, shape: Sequence[int]) -> Any:
    """Gamma draws of a shape, through which gradients reach the parameters; never 0."""
    value = standard_gamma(concentration.expand(shape)) / rate
    value.detach().clamp_(min=finfo(value.dtype).tiny)  # in place, so that no gradient is cut
    return value


class Gamma(Distribution):
    """The gamma distribution with a shape (concentration) and a rate.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.gamma.Gamma

    >>> ad.distributions.Gamma(2.0, 4.0).mean
    tensor(0.5000)
    """

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative  # type: ignore[assignment]
    has_rsample = True

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.shape, (), validate_args)

    @property
    def mean(self) -> Any:
        """concentration / rate."""
        return self.concentration / self.rate

    @property
    def mode(self) -> Any:
        """(concentration - 1) / rate, at least 0."""
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Any:
        """concentration / rate^2."""
        return self.concentration / self.rate.square()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Any:
        """Standard gamma draws / rate, with implicit gradients."""
        return drawn(self.concentration, self.rate, self._extended_shape(sample_shape))

    def _log_prob(self, value: Any) -> Any:
        """The log density."""
        return (
            xlogy(self.concentration, self.rate)
            + xlogy(self.concentration - 1, value)
            - self.rate * value
            - lgamma(self.concentration)
        )

    def _cdf(self, value: Any) -> Any:
        """The regularized incomplete gamma function."""
        return igamma(self.concentration, self.rate * value)

    def entropy(self) -> Any:
        """Entropy in closed form."""
        a = self.concentration
        return a - self.rate.log() + lgamma(a) + (1 - a) * digamma(a)
