"""The Laplace distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.dtype import finfo
from ..ops.random.random import rand
from . import constraints
from .distribution import Distribution
from .utils import broadcast_all

__all__ = ["Laplace"]


class Laplace(Distribution):
    """The Laplace (double exponential) distribution.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.laplace.Laplace

    >>> ad.distributions.Laplace(0.0, 1.0).log_prob(ad.tensor(1.0))
    tensor(-1.6931)
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}  # noqa: RUF012
    support = constraints.real  # type: ignore[assignment]
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, (), validate_args)

    @property
    def mean(self) -> Any:
        """The location."""
        return self.loc

    mode = mean

    @property
    def variance(self) -> Any:
        """2 scale^2."""
        return 2 * self.scale.square()

    @property
    def stddev(self) -> Any:
        """sqrt(2) scale."""
        return 2**0.5 * self.scale

    def rsample(self, sample_shape: Sequence[int] = ()) -> Any:
        """By the inverse of the cumulative distribution."""
        u = rand(self._extended_shape(sample_shape), dtype=self.loc.dtype) - 0.5
        tail = (1 - 2 * u.abs()).clamp(min=finfo(u.dtype).tiny)
        return self.loc - self.scale * u.sign() * tail.log()

    def log_prob(self, value: Any) -> Any:
        """The log density."""
        self._validate_sample(value)
        return -(2 * self.scale).log() - (value - self.loc).abs() / self.scale

    def cdf(self, value: Any) -> Any:
        """In closed form."""
        self._validate_sample(value)
        z = value - self.loc
        return 0.5 - 0.5 * z.sign() * (-z.abs() / self.scale).expm1()

    def icdf(self, value: Any) -> Any:
        """In closed form."""
        term = value - 0.5
        return self.loc - self.scale * term.sign() * (-2 * term.abs()).log1p()

    def entropy(self) -> Any:
        """1 + log(2 scale)."""
        return 1 + (2 * self.scale).log()
