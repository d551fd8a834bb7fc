"""One-hot draws as shares of a whole, with gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from . import constraints
from .one_hot_categorical import OfCategories
from .relaxed_bernoulli import Relaxed
from .transforms import ExpTransform
from .utils import broadcast_all, clamp_probs, open_uniform

__all__ = ["ExpRelaxedCategorical", "RelaxedOneHotCategorical"]


class ExpRelaxedCategorical(OfCategories):
    """The logarithms of `RelaxedOneHotCategorical` draws (Maddison et al., 2017).

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.relaxed_categorical.RelaxedOneHotCategorical

    >>> from adjoint.distributions.relaxed_categorical import ExpRelaxedCategorical
    >>> ExpRelaxedCategorical(ad.tensor(1.0), ad.ones(3)).event_shape
    adjoint.Size([3])
    """

    support = constraints.real_vector  # type: ignore[assignment]
    has_rsample = True

    def __init__(
        self,
        temperature: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        self.temperature = temperature
        super().__init__(probs, logits, validate_args)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Any:
        """Gumbel noise added to the logits, over the temperature, normalized."""
        uniform = clamp_probs(open_uniform(self._extended_shape(sample_shape), self.logits))
        scores = (self.logits - (-uniform.log()).log()) / self.temperature
        return scores - scores.logsumexp(-1, keepdim=True)

    def _log_prob(self, value: Any) -> Any:
        """The log density."""
        count = self._event_shape[0]
        (temperature,) = broadcast_all(self.temperature)
        score = self.logits - value * self.temperature
        score = (score - score.logsumexp(-1, keepdim=True)).sum(-1)
        return score + (count - 1) * temperature.log() + math.lgamma(count)


class RelaxedOneHotCategorical(Relaxed):
    """Shares that come near to one-hot vectors as the temperature falls.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.relaxed_categorical.RelaxedOneHotCategorical

    >>> ad.distributions.RelaxedOneHotCategorical(ad.tensor(1.0), ad.ones(3)).event_shape
    adjoint.Size([3])
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.simplex  # type: ignore[assignment]
    inner, transform = ExpRelaxedCategorical, ExpTransform
