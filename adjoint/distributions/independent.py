"""Batch dimensions as event dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.errors import InvalidArgument, Unsupported
from ..core.spec import Size
from . import constraints
from .distribution import Distribution
from .utils import sum_rightmost

__all__ = ["Independent"]


class Independent(Distribution):
    """`base_distribution` whose last batch dimensions belong to the event.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.independent.Independent

    >>> d = ad.distributions
    >>> d.Independent(d.Normal(ad.zeros(3), 1.0), 1).log_prob(ad.zeros(3))
    tensor(-2.7568)
    """

    def __init__(
        self,
        base_distribution: Any,
        reinterpreted_batch_ndims: int,
        validate_args: bool | None = None,
    ) -> None:
        shape = (*base_distribution.batch_shape, *base_distribution.event_shape)
        batch = len(base_distribution.batch_shape)
        if not 0 <= reinterpreted_batch_ndims <= batch:
            raise InvalidArgument(
                "Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), actual "
                f"{reinterpreted_batch_ndims} vs {batch}"
            )
        self.base_dist = base_distribution
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        kept = batch - reinterpreted_batch_ndims
        super().__init__(shape[:kept], shape[kept:], validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """A distribution expanded to another batch shape."""
        new = self._expanding(batch_shape, _instance)
        inner = self._event_shape[: self.reinterpreted_batch_ndims]
        new.base_dist = self.base_dist.expand(Size((*batch_shape, *inner)))
        return new

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        """Whether there are reparametrized samples, as for the base distribution."""
        return bool(self.base_dist.has_rsample)

    @property
    def has_enumerate_support(self) -> bool:  # type: ignore[override]
        """Whether the support can be enumerated: only where nothing is reinterpreted."""
        return not self.reinterpreted_batch_ndims and bool(self.base_dist.has_enumerate_support)

    @property
    def support(self) -> Any:
        """The base distribution's, for whole events."""
        base, n = self.base_dist.support, self.reinterpreted_batch_ndims
        return constraints.independent(base, n) if n else base

    @property
    def mean(self) -> Any:
        """Mean of the base distribution."""
        return self.base_dist.mean

    @property
    def mode(self) -> Any:
        """Mode of the base distribution."""
        return self.base_dist.mode

    @property
    def variance(self) -> Any:
        """Variance of the base distribution."""
        return self.base_dist.variance

    def sample(self, sample_shape: Sequence[int] = ()) -> Any:
        """Draws without gradient."""
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Any:
        """Draws with gradients."""
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Any) -> Any:
        """The sum over the event's dimensions."""
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Any:
        """The sum over the event's dimensions."""
        return sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand: bool = True) -> Any:
        """All values of the base distribution, where nothing is reinterpreted."""
        if self.reinterpreted_batch_ndims > 0:
            raise Unsupported(
                "Independent: Enumeration over cartesian product is not implemented; enumerate "
                "the base distribution"
            )
        return self.base_dist.enumerate_support(expand=expand)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_dist}, {self.reinterpreted_batch_ndims})"
