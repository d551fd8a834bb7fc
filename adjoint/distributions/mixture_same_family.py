"""Mixtures of distributions of one family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..autograd.modes import no_grad
from ..core.errors import InvalidArgument
from ..core.spec import broadcast_shapes
from ..ops.nn.softmax import log_softmax
from . import constraints
from .categorical import Categorical
from .distribution import Distribution

__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Distribution):
    """Draws from the entry of `component_distribution`, along its last batch dimension, that a
    draw of the categorical `mixture_distribution` chooses.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.mixture_same_family.MixtureSameFamily

    >>> d = ad.distributions
    >>> normals = d.Normal(ad.tensor([-1.0, 3.0]), 1.0)
    >>> d.MixtureSameFamily(d.Categorical(ad.ones(2)), normals).mean
    tensor(1.)
    """

    def __init__(
        self,
        mixture_distribution: Categorical,
        component_distribution: Distribution,
        validate_args: bool | None = None,
    ) -> None:
        self._mixture = mixture_distribution
        self._component = component_distribution
        if not isinstance(mixture_distribution, Categorical):
            raise InvalidArgument(
                "The Mixture distribution needs to be an instance of torch.distributions."
                f"Categorical, got {mixture_distribution!r}"
            )
        if not isinstance(component_distribution, Distribution):
            raise InvalidArgument(
                "The Component distribution need to be an instance of torch.distributions."
                f"Distribution, got {component_distribution!r}"
            )
        batch = component_distribution.batch_shape[:-1]
        broadcast_shapes(mixture_distribution.batch_shape, batch, op="MixtureSameFamily")
        count = component_distribution.batch_shape[-1:]
        if mixture_distribution.param_shape[-1:] != count:
            raise InvalidArgument(
                f"`mixture_distribution component` ({mixture_distribution.param_shape[-1]}) does "
                f"not equal `component_distribution.batch_shape[-1]` ({tuple(count)})"
            )
        super().__init__(batch, component_distribution.event_shape, validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """A distribution expanded to another batch shape."""
        new = self._expanding(batch_shape, _instance)
        count = self._component.batch_shape[-1:]
        new._component = self._component.expand((*batch_shape, *count))
        new._mixture = self._mixture.expand(batch_shape)
        return new

    @property
    def support(self) -> Any:
        """Support: the components'."""
        return constraints.MixtureSameFamilyConstraint(self._component.support)

    @property
    def mixture_distribution(self) -> Categorical:
        """The distribution that chooses a component."""
        return self._mixture

    @property
    def component_distribution(self) -> Distribution:
        """The distribution of the components."""
        return self._component

    def _weights(self) -> Any:
        """The mixture's probabilities, with dimensions for events."""
        probs = self._mixture.probs
        return probs.reshape((*probs.shape, *(1 for _ in self._event_shape)))

    def _over_components(self, values: Any) -> Any:
        return values.sum(-1 - len(self._event_shape))

    @property
    def mean(self) -> Any:
        """The components' means, weighted."""
        return self._over_components(self._weights() * self._component.mean)

    @property
    def variance(self) -> Any:
        """The mean of the components' variances, and the variance of their means."""
        place = -1 - len(self._event_shape)
        apart = (self._component.mean - self.mean.unsqueeze(place)).square()
        return self._over_components(self._weights() * (self._component.variance + apart))

    def sample(self, sample_shape: Sequence[int] = ()) -> Any:
        """Draws of all components, of which one is taken."""
        with no_grad():
            place = len(sample_shape) + len(self._batch_shape)
            chosen = self._mixture.expand(self._batch_shape).sample(sample_shape)
            drawn = self._component.sample(sample_shape)
            index = chosen.reshape((*chosen.shape, 1, *(1 for _ in self._event_shape)))
            index = index.expand((*chosen.shape, 1, *self._event_shape))
            return drawn.gather(place, index).squeeze(place)

    def _pad(self, value: Any) -> Any:
        return value.unsqueeze(-1 - len(self._event_shape))

    def _log_prob(self, value: Any) -> Any:
        """The logarithm of the weighted densities."""
        densities = self._component.log_prob(self._pad(value))
        return (densities + log_softmax(self._mixture.logits, -1)).logsumexp(-1)

    def _cdf(self, value: Any) -> Any:
        """Cumulative distribution: the components', weighted."""
        return (self._component.cdf(self._pad(value)) * self._mixture.probs).sum(-1)

    def __repr__(self) -> str:
        return f"MixtureSameFamily(\n  {self._mixture},\n  {self._component})"
