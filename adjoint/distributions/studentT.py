"""Student's t distribution."""  # noqa: N999 - PyTorch's name

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..ops.elementwise.comparison import where
from ..ops.random.random import randn
from ..ops.special.special import digamma, lgamma
from . import constraints
from .distribution import Distribution
from .gamma import drawn
from .utils import broadcast_all

__all__ = ["StudentT"]


class StudentT(Distribution):
    """Student's t distribution with degrees of freedom, a location and a scale.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.studentT.StudentT

    >>> ad.distributions.StudentT(3.0).variance
    tensor(3.)
    """

    arg_constraints = {
        "df": constraints.positive,
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support = constraints.real  # type: ignore[assignment]
    has_rsample = True

    def __init__(
        self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        super().__init__(self.df.shape, (), validate_args)

    @property
    def mean(self) -> Any:
        """The location; NaN up to 1 degree of freedom."""
        return where(self.df <= 1, math.nan, self.loc)

    @property
    def mode(self) -> Any:
        """The location."""
        return self.loc

    @property
    def variance(self) -> Any:
        """Infinite up to 2 degrees of freedom, NaN up to 1."""
        wide = self.df > 2
        df = where(wide, self.df, 3.0)
        finite = self.scale.square() * df / (df - 2)
        return where(wide, finite, where(self.df > 1, math.inf, math.nan))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Any:
        """A normal draw over the root of a chi-squared one."""
        noise = self._drawn(randn, sample_shape, self.df)
        spread = drawn(0.5 * self.df, 0.5, self._extended_shape(sample_shape))  # chi-squared
        return self.loc + self.scale * (noise * (spread / self.df).rsqrt())

    def _log_normalizer(self) -> Any:
        half = 0.5 * self.df
        return (
            self.scale.log()
            + 0.5 * (self.df.log() + math.log(math.pi))
            + lgamma(half)
            - lgamma(half + 0.5)
        )

    def _log_prob(self, value: Any) -> Any:
        """The log density."""
        y = (value - self.loc) / self.scale
        return -0.5 * (self.df + 1) * (y.square() / self.df).log1p() - self._log_normalizer()

    def entropy(self) -> Any:
        """Entropy in closed form."""
        half = 0.5 * self.df
        return self._log_normalizer() + (half + 0.5) * (digamma(half + 0.5) - digamma(half))
