"""The beta distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ops.random.gamma_draws import standard_dirichlet
from ..ops.shape.concatenation import stack
from . import constraints
from .dirichlet import Dirichlet
from .distribution import Distribution
from .utils import broadcast_all

__all__ = ["Beta"]


class Beta(Distribution):
    """The beta distribution: the first of two Dirichlet shares.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.beta.Beta

    >>> ad.distributions.Beta(1.0, 3.0).mean
    tensor(0.2500)
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
        super().__init__(self.concentration1.shape, (), validate_args)

    @property
    def _dirichlet(self) -> Dirichlet:
        both = stack([self.concentration1, self.concentration0], -1)
        return Dirichlet(both, validate_args=False)

    @property
    def mean(self) -> Any:
        """concentration1 in proportion."""
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Any:
        """Mode, as of the Dirichlet distribution."""
        return self._dirichlet.mode[..., 0]

    @property
    def variance(self) -> Any:
        """Variance in closed form."""
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total.square() * (total + 1))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Any:
        """Draws with implicit gradients."""
        both = stack([self.concentration1, self.concentration0], -1)
        shares = standard_dirichlet(both.expand((*self._extended_shape(sample_shape), 2)))
        return shares.select(-1, 0)

    def _log_prob(self, value: Any) -> Any:
        """The log density."""
        return self._dirichlet.log_prob(stack([value, 1 - value], -1))

    def entropy(self) -> Any:
        """Entropy in closed form."""
        return self._dirichlet.entropy()
