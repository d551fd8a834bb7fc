"""The binomial distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..autograd.modes import no_grad
from ..core.errors import Unsupported
from ..ops.create.ranges import arange
from ..ops.elementwise.comparison import minimum
from ..ops.random.gamma_draws import binomial
from ..ops.special.special import lgamma
from . import constraints
from .bernoulli import Chance, along_batch, one_of
from .utils import broadcast_all, softplus

__all__ = ["Binomial"]


class Binomial(Chance):
    """The number of successes among `total_count` trials.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.binomial.Binomial

    >>> ad.distributions.Binomial(4, 0.25).mean
    tensor(1.)
    """

    arg_constraints = {"total_count": constraints.nonnegative_integer, **Chance.arg_constraints}
    has_enumerate_support = True

    def __init__(
        self,
        total_count: Any = 1,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        given = one_of(type(self).__name__, probs, logits)
        count, value = broadcast_all(total_count, logits if probs is None else probs)
        self.total_count, self.__dict__[given] = count.to(value.dtype), value
        super().__init__(value.shape, (), validate_args)

    @property
    def support(self) -> Any:
        """Whole numbers up to the count of trials."""
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Any:
        """total_count * probs."""
        return self.total_count * self.probs

    @property
    def mode(self) -> Any:
        """Mode in closed form."""
        return minimum(((self.total_count + 1) * self.probs).floor(), self.total_count)

    @property
    def variance(self) -> Any:
        """total_count * probs * (1 - probs)."""
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Any:
        """Draws without gradient."""
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def _log_prob(self, value: Any) -> Any:
        """The log probability."""
        n = self.total_count
        ways = lgamma(n + 1) - lgamma(value + 1) - lgamma(n - value + 1)
        return ways + value * self.logits - n * softplus(self.logits)

    def entropy(self) -> Any:
        """The sum over all values."""
        self._one_count("entropy")
        log_prob = self.log_prob(self.enumerate_support(expand=False))
        return -(log_prob.exp() * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Any:
        """0 to the count of trials, which must be the same for the whole batch."""
        count = self._one_count("enumerate_support")
        values = arange(1 + count, dtype=self.total_count.dtype, device=self.total_count.device)
        return along_batch(values, self._batch_shape, expand)

    def _one_count(self, name: str) -> int:
        count = int(self.total_count.max())
        if not int(self.total_count.min()) == count:
            raise Unsupported(
                f"Binomial.{name}: Inhomogeneous total count not supported by `{name}`; make one "
                "distribution for each count"
            )
        return count
