"""The Dirichlet distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.errors import InvalidArgument
from ..ops.elementwise.comparison import where
from ..ops.index.scatter import one_hot
from ..ops.random.gamma_draws import standard_dirichlet
from ..ops.special.special import digamma, lgamma, xlogy
from . import constraints
from .distribution import Distribution

__all__ = ["Dirichlet"]


class Dirichlet(Distribution):
    """The Dirichlet distribution: shares that sum to 1.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.dirichlet.Dirichlet

    >>> ad.distributions.Dirichlet(ad.tensor([1., 3.])).mean
    tensor([0.2500, 0.7500])
    """

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex  # type: ignore[assignment]
    has_rsample = True

    def __init__(self, concentration: Any, validate_args: bool | None = None) -> None:
        if concentration.ndim < 1:
            raise InvalidArgument(
                "Dirichlet: `concentration` parameter must be at least one-dimensional."
            )
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args)

    @property
    def mean(self) -> Any:
        """Concentrations in proportion."""
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self) -> Any:
        """Concentrations less 1 in proportion; the corner of the greatest where all are below 1."""
        above = (self.concentration - 1).clamp(min=0.0)
        inner = above / above.sum(-1, True)
        corner = one_hot(self.concentration.argmax(-1), self.concentration.shape[-1]).to(
            inner.dtype
        )
        return where((self.concentration < 1).all(-1, True), corner, inner)

    @property
    def variance(self) -> Any:
        """Variance in closed form."""
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total.square() * (total + 1))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Any:
        """Draws with implicit gradients."""
        return standard_dirichlet(self.concentration.expand(self._extended_shape(sample_shape)))

    def _log_prob(self, value: Any) -> Any:
        """The log density."""
        a = self.concentration
        return xlogy(a - 1, value).sum(-1) + lgamma(a.sum(-1)) - lgamma(a).sum(-1)

    def entropy(self) -> Any:
        """Entropy in closed form."""
        a, k = self.concentration, self.concentration.shape[-1]
        total = a.sum(-1)
        return (
            lgamma(a).sum(-1)
            - lgamma(total)
            - (k - total) * digamma(total)
            - ((a - 1) * digamma(a)).sum(-1)
        )
