"""The Cauchy distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..ops.create.creation import empty, full_like
from . import constraints
from .distribution import Distribution
from .utils import broadcast_all

__all__ = ["Cauchy"]


class Cauchy(Distribution):
    """The Cauchy (Lorentz) distribution.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.cauchy.Cauchy

    >>> ad.distributions.Cauchy(0.0, 1.0).cdf(ad.tensor(0.0))
    tensor(0.5000)
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}  # noqa: RUF012
    support = constraints.real  # type: ignore[assignment]
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, (), validate_args)

    @property
    def mean(self) -> Any:
        """Undefined: NaN."""
        return full_like(self.loc, math.nan)

    @property
    def mode(self) -> Any:
        """The location."""
        return self.loc

    @property
    def variance(self) -> Any:
        """Infinite."""
        return full_like(self.loc, math.inf)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Any:
        """loc + scale * standard Cauchy draws."""
        noise = empty(self._extended_shape(sample_shape), dtype=self.loc.dtype).cauchy_()
        return self.loc + noise * self.scale

    def log_prob(self, value: Any) -> Any:
        """The log density."""
        self._validate_sample(value)
        z = (value - self.loc) / self.scale
        return -math.log(math.pi) - self.scale.log() - z.square().log1p()

    def cdf(self, value: Any) -> Any:
        """In closed form."""
        self._validate_sample(value)
        return ((value - self.loc) / self.scale).atan() / math.pi + 0.5

    def icdf(self, value: Any) -> Any:
        """In closed form."""
        return (math.pi * (value - 0.5)).tan() * self.scale + self.loc

    def entropy(self) -> Any:
        """log(4 pi scale)."""
        return math.log(4 * math.pi) + self.scale.log()
