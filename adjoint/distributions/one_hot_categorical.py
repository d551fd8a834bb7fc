"""Categories as one-hot vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ops.create.creation import eye
from ..ops.index.scatter import one_hot
from . import constraints
from .categorical import Categorical
from .distribution import Distribution

__all__ = ["OneHotCategorical", "OneHotCategoricalStraightThrough"]


class OfCategories(Distribution):
    """The base of those whose events are vectors over the categories of a `Categorical`."""

    arg_constraints = Categorical.arg_constraints

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._categorical = Categorical(probs, logits, validate_args)
        shape = self._categorical.param_shape
        super().__init__(self._categorical.batch_shape, shape[-1:], validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """A distribution expanded to another batch shape."""
        new = self._expanding(batch_shape, _instance)
        new._categorical = self._categorical.expand(batch_shape)
        return new

    @property
    def probs(self) -> Any:
        """The probabilities."""
        return self._categorical.probs

    @property
    def logits(self) -> Any:
        """The logarithms of the probabilities."""
        return self._categorical.logits

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter."""
        return self._categorical.param_shape


class OneHotCategorical(OfCategories):
    """Distribution of one-hot vectors with probabilities in proportion to `probs` (or to
    exp(logits)).

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.one_hot_categorical.OneHotCategorical

    >>> ad.distributions.OneHotCategorical(ad.tensor([0., 1.])).sample()
    tensor([0., 1.])
    """

    support = constraints.one_hot  # type: ignore[assignment]
    has_enumerate_support = True

    @property
    def mean(self) -> Any:
        """The probabilities."""
        return self.probs

    @property
    def mode(self) -> Any:
        """The most probable vector."""
        return self._one_hot(self._categorical.mode)

    @property
    def variance(self) -> Any:
        """probs (1 - probs)."""
        return self.probs * (1 - self.probs)

    def _one_hot(self, index: Any) -> Any:
        return one_hot(index, self._event_shape[0]).to(self._categorical._parameter.dtype)

    def sample(self, sample_shape: Sequence[int] = ()) -> Any:
        """Draws without gradient."""
        return self._one_hot(self._categorical.sample(sample_shape))

    def _log_prob(self, value: Any) -> Any:
        """The log probability."""
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self) -> Any:
        """-sum of p log p."""
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Any:
        """All one-hot vectors."""
        k = self._event_shape[0]
        like = self._categorical._parameter
        values = eye(k, dtype=like.dtype, device=like.device)
        values = values.reshape((k, *(1 for _ in self._batch_shape), k))
        return values.expand((k, *self._batch_shape, k)) if expand else values

    def __repr__(self) -> str:
        return repr(self._categorical).replace("Categorical", type(self).__name__, 1)


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """OneHotCategorical whose draws pass their gradient to `probs` (Bengio et al., 2013).

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.one_hot_categorical.OneHotCategoricalStraightThrough

    >>> p = ad.tensor([0., 1.], requires_grad=True)
    >>> ad.distributions.OneHotCategoricalStraightThrough(p).rsample().requires_grad
    True
    """

    has_rsample = True

    def rsample(self, sample_shape: Sequence[int] = ()) -> Any:
        """Draws with the gradient of the probabilities."""
        return self.sample(sample_shape) + (self.probs - self.probs.detach())
