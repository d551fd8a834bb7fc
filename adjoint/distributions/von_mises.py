"""The von Mises distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..autograd.modes import no_grad
from ..namespaces.special import i0e, i1e
from ..ops.create.creation import zeros
from ..ops.elementwise.comparison import where
from ..ops.random.generators import torch_generator
from ..ops.random.random import rand
from . import constraints
from .distribution import Distribution
from .utils import broadcast_all, lazy_property

__all__ = ["VonMises"]


class VonMises(Distribution):
    """Angles around `loc`, by a normal distribution wrapped around the circle, nearly.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.von_mises.VonMises

    >>> ad.distributions.VonMises(0.0, 1.0).log_prob(ad.tensor(0.0))
    tensor(-1.0738)
    """

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real  # type: ignore[assignment]

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, (), validate_args)

    @property
    def mean(self) -> Any:
        """The location."""
        return self.loc

    mode = mean

    @lazy_property
    def variance(self) -> Any:
        """1 less the mean of the cosine."""
        return 1 - i1e(self.concentration) / i0e(self.concentration)

    def sample(self, sample_shape: Sequence[int] = ()) -> Any:
        """Samples by rejection from a wrapped Cauchy distribution (Best and Fisher, 1979), in
        float64.
        """
        with no_grad():
            shape = self._extended_shape(sample_shape)
            loc, k = self.loc.double(), self.concentration.double()
            tau = 1 + (1 + 4 * k.square()).sqrt()
            rho = (tau - (2 * tau).sqrt()) / (2 * k)
            r = where(k < 1e-5, 1 / k + k, (1 + rho.square()) / (2 * rho)).expand(shape)
            k = k.expand(shape)
            place = {"dtype": loc.dtype, "device": loc.device}
            angles, done = zeros(shape, **place), zeros(shape, **place) > 0
            while not bool(done.all()):
                u1, u2, u3 = rand((3, *shape), **place).unbind(0)
                z = (math.pi * u1).cos()
                f = (1 + r * z) / (r + z)
                c = k * (r - f)
                taken = (c * (2 - c) - u2 > 0) | ((c / u2).log() + 1 - c >= 0)
                angle = (u3 - 0.5).sign() * f.clamp(-1, 1).acos()
                # PyTorch takes another one for those that are done, too.
                fresh = taken if torch_generator(None, loc.device) is not None else taken & ~done
                angles = where(fresh, angle, angles)
                done = done | taken
            wrapped = (angles + math.pi + loc) % (2 * math.pi) - math.pi
            return wrapped.to(self.loc.dtype)

    def _log_prob(self, value: Any) -> Any:
        """The log density."""
        k = self.concentration
        return k * ((value - self.loc).cos() - 1) - math.log(2 * math.pi) - i0e(k).log()
