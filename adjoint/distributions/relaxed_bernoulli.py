"""Bernoulli draws as numbers between 0 and 1, with gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ops.random.random import rand
from . import constraints
from .bernoulli import Chance, one_of
from .transformed_distribution import TransformedDistribution
from .transforms import SigmoidTransform
from .utils import broadcast_all, clamp_probs

__all__ = ["LogitRelaxedBernoulli", "RelaxedBernoulli"]


class LogitRelaxedBernoulli(Chance):
    """The log-odds of `RelaxedBernoulli` draws (Maddison et al., 2017).

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.relaxed_bernoulli.LogitRelaxedBernoulli

    >>> from adjoint.distributions.relaxed_bernoulli import LogitRelaxedBernoulli
    >>> LogitRelaxedBernoulli(ad.tensor(1.0), 0.5).log_prob(ad.tensor(0.0))
    tensor(-1.3863)
    """

    support = constraints.real  # type: ignore[assignment]
    has_rsample = True

    def __init__(
        self,
        temperature: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        self.temperature = temperature
        given = one_of(type(self).__name__, probs, logits)
        (self.__dict__[given],) = broadcast_all(logits if probs is None else probs)
        super().__init__(self.__dict__[given].shape, (), validate_args)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Any:
        """Logistic noise added to the log-odds, over the temperature."""
        probs = clamp_probs(self.probs)
        noise = clamp_probs(self._drawn(rand, sample_shape, probs))
        odds = noise.log() - (-noise).log1p() + probs.log() - (-probs).log1p()
        return odds / self.temperature

    def _log_prob(self, value: Any) -> Any:
        """The log density."""
        (temperature,) = broadcast_all(self.temperature)
        difference = self.logits - value * self.temperature
        return temperature.log() + difference - 2 * difference.exp().log1p()


class Relaxed(TransformedDistribution):
    """Base of relaxed distributions: a distribution over logarithms or log-odds (`inner`),
    transformed by `transform`.
    """

    inner: Any
    transform: Any
    has_rsample = True

    def __init__(
        self,
        temperature: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        base = self.inner(temperature, probs, logits, validate_args)
        super().__init__(base, self.transform(), validate_args)

    @property
    def temperature(self) -> Any:
        """Temperature: how far draws are from those that are not relaxed."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Any:
        """The log-odds, or the logarithms of the probabilities."""
        return self.base_dist.logits

    @property
    def probs(self) -> Any:
        """The probabilities."""
        return self.base_dist.probs


class RelaxedBernoulli(Relaxed):
    """Numbers of (0, 1) that come near to Bernoulli draws as the temperature falls.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.relaxed_bernoulli.RelaxedBernoulli

    >>> ad.distributions.RelaxedBernoulli(ad.tensor(1.0), 0.5).log_prob(ad.tensor(0.5))
    tensor(0.)
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval  # type: ignore[assignment]
    inner, transform = LogitRelaxedBernoulli, SigmoidTransform
