"""The F distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..core.dtype import finfo
from ..ops.elementwise.comparison import where
from ..ops.special.special import lgamma
from . import constraints
from .distribution import Distribution
from .gamma import drawn
from .utils import broadcast_all

__all__ = ["FisherSnedecor"]


class FisherSnedecor(Distribution):
    """The F distribution: the ratio of two chi-squared draws, each over its degrees of freedom.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.fishersnedecor.FisherSnedecor

    >>> ad.distributions.FisherSnedecor(1.0, 4.0).mean
    tensor(2.)
    """

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive  # type: ignore[assignment]
    has_rsample = True

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self.df1, self.df2 = broadcast_all(df1, df2)
        super().__init__(self.df1.shape, (), validate_args)

    @property
    def mean(self) -> Any:
        """df2 / (df2 - 2), where that is positive."""
        df2 = where(self.df2 > 2, self.df2, math.nan)
        return df2 / (df2 - 2)

    @property
    def mode(self) -> Any:
        """Mode; defined where df1 is more than 2."""
        mode = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return where(self.df1 > 2, mode, math.nan)

    @property
    def variance(self) -> Any:
        """Variance; defined where df2 is more than 4."""
        df2 = where(self.df2 > 4, self.df2, math.nan)
        top = 2 * df2.square() * (self.df1 + df2 - 2)
        return top / (self.df1 * (df2 - 2).square() * (df2 - 4))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Any:
        """Samples as the ratio of two gamma draws, with implicit gradients."""
        shape = self._extended_shape(sample_shape)
        tiny = finfo(self.df1.dtype).tiny
        halves = self.df1 * 0.5, self.df2 * 0.5
        top, bottom = (drawn(half, half, shape) for half in halves)
        bottom.detach().clamp_(min=tiny)  # in place, so that gradients are not cut
        ratio = top / bottom
        ratio.detach().clamp_(min=tiny)
        return ratio

    def _log_prob(self, value: Any) -> Any:
        """The log density."""
        a, b = self.df1 * 0.5, self.df2 * 0.5
        ratio = self.df1 / self.df2
        norm = lgamma(a + b) - lgamma(a) - lgamma(b)
        return norm + a * ratio.log() + (a - 1) * value.log() - (a + b) * (ratio * value).log1p()
