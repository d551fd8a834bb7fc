"""The geometric distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..autograd.modes import no_grad
from ..ops.create.like import zeros_like
from ..ops.elementwise.comparison import where
from . import constraints
from .bernoulli import Chance, one_of
from .utils import broadcast_all, open_uniform, softplus

__all__ = ["Geometric"]


class Geometric(Chance):
    """The number of failures before the first success.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.geometric.Geometric

    >>> ad.distributions.Geometric(0.25).mean
    tensor(3.)
    """

    support = constraints.nonnegative_integer  # type: ignore[assignment]

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        given = one_of(type(self).__name__, probs, logits)
        (value,) = broadcast_all(logits if probs is None else probs)
        self.__dict__[given] = value
        super().__init__(value.shape, (), validate_args)
        if self._validate_args and probs is not None:
            self._assert_all(
                value > 0, value,
                lambda shown: f"Expected parameter probs (Tensor of shape {tuple(value.shape)}) of "
                f"distribution {shown(self)} to be positive but found invalid values",
            )  # fmt: skip

    @property
    def mean(self) -> Any:
        """1 / probs - 1."""
        return 1 / self.probs - 1

    @property
    def mode(self) -> Any:
        """Zero."""
        return zeros_like(self.probs)

    @property
    def variance(self) -> Any:
        """(1 / probs - 1) / probs."""
        return (1 / self.probs - 1) / self.probs

    def sample(self, sample_shape: Sequence[int] = ()) -> Any:
        """Draws without gradient."""
        with no_grad():
            u = open_uniform(self._extended_shape(sample_shape), self.probs)
            return (u.log() / (-self.probs).log1p()).floor()

    def _log_prob(self, value: Any) -> Any:
        """The log probability."""
        certain = (self.probs == 1) & (value == 0)
        return value * (-where(certain, 0.0, self.probs)).log1p() + self.probs.log()

    def entropy(self) -> Any:
        """Entropy in closed form."""
        return softplus(self.logits) / self.probs - self.logits
