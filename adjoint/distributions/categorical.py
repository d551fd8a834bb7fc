"""The categorical distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..autograd.modes import no_grad
from ..core.dtype import finfo
from ..core.errors import InvalidArgument
from ..core.spec import Size, broadcast_shapes
from ..ops.create.ranges import arange
from ..ops.random.random import multinomial
from . import constraints
from .bernoulli import along_batch, one_of
from .distribution import Distribution
from .utils import lazy_property, logits_to_probs, normalized, probs_to_logits

__all__ = ["Categorical"]


class Categorical(Distribution):
    """The numbers 0 to K - 1 with probabilities in proportion to `probs` (or to exp(logits)).

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.categorical.Categorical

    >>> ad.distributions.Categorical(ad.tensor([1., 3.])).probs
    tensor([0.2500, 0.7500])
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        given = one_of(type(self).__name__, probs, logits)
        value = logits if probs is None else probs
        if value.ndim < 1:
            raise InvalidArgument(
                f"Categorical: `{given}` parameter must be at least one-dimensional."
            )
        shares = normalized(value) if probs is None else value / value.sum(-1, keepdim=True)
        self.__dict__[given] = shares
        self._num_events = value.shape[-1]
        super().__init__(value.shape[:-1], (), validate_args)

    @property
    def support(self) -> Any:
        """0 to K - 1."""
        return constraints.integer_interval(0, self._num_events - 1)

    @lazy_property
    def logits(self) -> Any:
        """The logarithms of the probabilities."""
        return probs_to_logits(self.probs)

    @lazy_property
    def probs(self) -> Any:
        """The probabilities."""
        return logits_to_probs(self.logits)

    @property
    def _parameter(self) -> Any:
        return self.__dict__["probs" if "probs" in self.__dict__ else "logits"]

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter."""
        return self._parameter.shape

    @property
    def mean(self) -> Any:
        """Categories have none: NaN."""
        return self._parameter.new_full(self._batch_shape, math.nan)

    variance = mean

    @property
    def mode(self) -> Any:
        """The most probable category."""
        return self.probs.argmax(-1)

    def sample(self, sample_shape: Sequence[int] = ()) -> Any:
        """Draws without gradient, int64."""
        count = Size(sample_shape).numel()
        with no_grad():
            probs = self.probs
            rows = probs if probs.ndim <= 2 else probs.reshape(-1, self._num_events)
            drawn = multinomial(rows, count, True)
            if drawn.ndim == 2 and count > 1:
                drawn = drawn.T
            return drawn.reshape(self._extended_shape(sample_shape))

    def _log_prob(self, value: Any) -> Any:
        """The log probability."""
        index = value.long().unsqueeze(-1)
        logits = self.logits
        if index.shape[:-1] != logits.shape[:-1]:
            batch = broadcast_shapes(index.shape[:-1], logits.shape[:-1], op="Categorical.log_prob")
            index, logits = index.expand((*batch, 1)), logits.expand((*batch, logits.shape[-1]))
        return logits.gather(-1, index).squeeze(-1)

    def entropy(self) -> Any:
        """-sum of p log p."""
        least = finfo(self.logits.dtype).min
        return -(self.logits.clamp(min=least) * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Any:
        """0 to K - 1."""
        places = arange(self._num_events, device=self._parameter.device)
        return along_batch(places, self._batch_shape, expand)
