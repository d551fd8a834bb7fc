"""Distributions of transformed draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..autograd.modes import no_grad
from ..core.errors import InvalidArgument
from ..core.spec import Size
from . import constraints
from .change_of_variables import Transform
from .distribution import Distribution
from .independent import Independent
from .transforms import ComposeTransform
from .utils import sum_rightmost

__all__ = ["TransformedDistribution"]


class TransformedDistribution(Distribution):
    """The distribution of f(x) for draws x of `base_distribution`.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transformed_distribution.TransformedDistribution

    >>> d = ad.distributions
    >>> d.TransformedDistribution(d.Normal(0.0, 1.0), d.ExpTransform()).log_prob(ad.tensor(1.0))
    tensor(-0.9189)
    """

    def __init__(
        self, base_distribution: Any, transforms: Any, validate_args: bool | None = None
    ) -> None:
        self.transforms = [transforms] if isinstance(transforms, Transform) else list(transforms)
        for t in self.transforms:
            if not isinstance(t, Transform):
                raise InvalidArgument(
                    f"transforms must be a Transform or a list of Transforms, but was {t!r}"
                )
        whole = ComposeTransform(self.transforms)
        base_events = len(base_distribution.event_shape)
        shape = (*base_distribution.batch_shape, *base_distribution.event_shape)
        needed = whole.domain.event_dim
        if len(shape) < needed:
            raise InvalidArgument(
                f"base_distribution needs to have shape with size at least {needed}, but got "
                f"{shape}."
            )
        result = tuple(whole.forward_shape(shape))
        back = tuple(whole.inverse_shape(result))
        if back != shape:
            base_distribution = base_distribution.expand(Size(back[: len(back) - base_events]))
        if needed > base_events:
            base_distribution = Independent(base_distribution, needed - base_events)
        self.base_dist = base_distribution
        events = whole.codomain.event_dim + max(base_events - needed, 0)
        cut = len(result) - events
        super().__init__(result[:cut], result[cut:], validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """A distribution expanded to another batch shape."""
        new = self._expanding(batch_shape, _instance)
        whole = ComposeTransform(self.transforms)
        shape = tuple(whole.inverse_shape((*batch_shape, *self._event_shape)))
        kept = len(shape) - len(self.base_dist.event_shape)
        new.base_dist = self.base_dist.expand(Size(shape[:kept]))
        return new

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        """Whether there are reparametrized samples, as for the base distribution."""
        return bool(self.base_dist.has_rsample)

    @property
    def support(self) -> Any:
        """The last transform's codomain, for whole events."""
        if not self.transforms:
            return self.base_dist.support
        support = self.transforms[-1].codomain
        extra = len(self._event_shape) - support.event_dim
        return constraints.independent(support, extra) if extra > 0 else support

    def sample(self, sample_shape: Sequence[int] = ()) -> Any:
        """Draws without gradient."""
        with no_grad():
            return self._transformed(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Any:
        """Draws with gradients."""
        return self._transformed(self.base_dist.rsample(sample_shape))

    def _transformed(self, x: Any) -> Any:
        for transform in self.transforms:
            x = transform(x)
        return x

    def _log_prob(self, value: Any) -> Any:
        """The base's log density, less the transforms' log determinants."""
        events = len(self._event_shape)
        total: Any = 0.0
        y = value
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            events += transform.domain.event_dim - transform.codomain.event_dim
            term = transform.log_abs_det_jacobian(x, y)
            total = total - sum_rightmost(term, events - transform.domain.event_dim)
            y = x
        base = self.base_dist.log_prob(y)
        return total + sum_rightmost(base, events - len(self.base_dist.event_shape))

    def _cdf(self, value: Any) -> Any:
        """The base's, of the value transformed back; from above where the order is turned."""
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        return self._turned(self.base_dist.cdf(value))

    def icdf(self, value: Any) -> Any:
        """Inverse of the cumulative distribution: the base's, transformed."""
        return self._transformed(self.base_dist.icdf(self._turned(value)))

    def _turned(self, probability: Any) -> Any:
        sign = ComposeTransform(self.transforms).sign
        if isinstance(sign, int) and sign == 1:
            return probability
        return sign * (probability - 0.5) + 0.5

    def __repr__(self) -> str:
        if self.arg_constraints:
            return super().__repr__()
        return f"{type(self).__name__}({self.base_dist!r}, {self.transforms})"
