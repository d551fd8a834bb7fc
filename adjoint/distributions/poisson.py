"""The Poisson distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..autograd.modes import no_grad
from ..ops.random.random import poisson
from ..ops.special.special import lgamma, xlogy
from . import constraints
from .distribution import Distribution
from .utils import broadcast_all

__all__ = ["Poisson"]


class Poisson(Distribution):
    """The number of events that come at a rate.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.poisson.Poisson

    >>> ad.distributions.Poisson(2.0).log_prob(ad.tensor(0.0))
    tensor(-2.)
    """

    arg_constraints = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer  # type: ignore[assignment]

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, (), validate_args)

    @property
    def mean(self) -> Any:
        """The rate."""
        return self.rate

    variance = mean

    @property
    def mode(self) -> Any:
        """The rate's whole part."""
        return self.rate.floor()

    def sample(self, sample_shape: Sequence[int] = ()) -> Any:
        """Draws without gradient."""
        with no_grad():
            return poisson(self.rate.expand(self._extended_shape(sample_shape)))

    def _log_prob(self, value: Any) -> Any:
        """The log probability."""
        return xlogy(value, self.rate) - self.rate - lgamma(value + 1)
