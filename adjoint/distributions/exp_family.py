"""Exponential families."""

from __future__ import annotations

from typing import Any

from ..autograd.gradients import grad
from ..autograd.modes import enable_grad
from ..core.errors import Unsupported
from .distribution import Distribution

__all__ = ["ExponentialFamily"]


class ExponentialFamily(Distribution):
    """Base of distributions with densities exp(t(x) . natural - log_normalizer(natural) + k(x)).

    Subclasses define `_natural_params`, `_log_normalizer` and `_mean_carrier_measure`; the entropy
    follows, by the gradient of the log normalizer.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.exp_family.ExponentialFamily

    >>> class Mine(ad.distributions.ExponentialFamily):
    ...     _mean_carrier_measure = 0
    ...     _natural_params = (ad.tensor(-2.0),)
    ...     def _log_normalizer(self, x):
    ...         return -(-x).log()
    >>> Mine().entropy().detach()  # as of Exponential(2.0)
    tensor(0.3069)
    """

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        raise Unsupported(f"{type(self).__name__}._natural_params is not defined")

    def _log_normalizer(self, *natural_params: Any) -> Any:
        raise Unsupported(f"{type(self).__name__}._log_normalizer is not defined")

    @property
    def _mean_carrier_measure(self) -> Any:
        raise Unsupported(f"{type(self).__name__}._mean_carrier_measure is not defined")

    def entropy(self) -> Any:
        """Entropy by the gradient of the log normalizer."""
        with enable_grad():
            params = [p.detach().requires_grad_() for p in self._natural_params]
            normalizer = self._log_normalizer(*params)
            gradients = grad(normalizer.sum(), params, create_graph=True)
        result = normalizer - self._mean_carrier_measure
        for p, g in zip(params, gradients, strict=True):
            result = result - (p * g).reshape((*self._batch_shape, -1)).sum(-1)
        return result
