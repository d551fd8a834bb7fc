"""The multinomial distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.errors import Unsupported
from ..core.spec import Size
from ..ops.elementwise.comparison import where
from ..ops.index.scatter import one_hot
from ..ops.special.special import lgamma
from . import constraints
from .binomial import Binomial
from .one_hot_categorical import OfCategories

__all__ = ["Multinomial"]


class Multinomial(OfCategories):
    """Distribution of the numbers of times that each category comes among `total_count` draws.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.multinomial.Multinomial

    >>> ad.distributions.Multinomial(4, ad.tensor([1., 3.])).mean
    tensor([1., 3.])
    """

    def __init__(
        self,
        total_count: int = 1,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(total_count, int):
            raise Unsupported(
                "Multinomial: inhomogeneous total_count is not supported; make one distribution "
                "for each count"
            )
        self.total_count = total_count
        super().__init__(probs, logits, validate_args)

    @property
    def support(self) -> Any:
        """Counts that sum to `total_count`."""
        return constraints.multinomial(self.total_count)

    @property
    def mean(self) -> Any:
        """probs * total_count."""
        return self.probs * self.total_count

    @property
    def variance(self) -> Any:
        """total_count * probs * (1 - probs)."""
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Any:
        """Draws without gradient."""
        drawn = self._categorical.sample((self.total_count, *Size(sample_shape)))
        counts = one_hot(drawn, self._event_shape[0]).sum(0)
        return counts.to(self._categorical._parameter.dtype)

    def _log_prob(self, value: Any) -> Any:
        """The log probability."""
        impossible = (value == 0) & (self.logits == float("-inf"))
        logits = where(impossible, 0.0, self.logits)
        ways = lgamma(value.sum(-1) + 1) - lgamma(value + 1).sum(-1)
        return ways + (logits * value).sum(-1)

    def entropy(self) -> Any:
        """Entropy by the categories' entropy and the expected logarithms of factorials."""
        n = self.logits.new_tensor(self.total_count)
        counts = Binomial(self.total_count, self.probs, validate_args=False)
        values = counts.enumerate_support(expand=False)[1:]
        expected = (counts.log_prob(values).exp() * lgamma(values + 1)).sum((0, -1))
        return n * self._categorical.entropy() - lgamma(n + 1) + expected
