"""Cosine annealing of the learning rate, once or with warm restarts."""

from __future__ import annotations

import math
from typing import Any

from ..core.deferred_effects import deferrable
from ..core.errors import InvalidArgument
from .learning_rate import LRScheduler, _changes
from .optimizer import Optimizer

__all__ = ["CosineAnnealingLR", "CosineAnnealingWarmRestarts"]


class CosineAnnealingLR(LRScheduler):
    """Schedule whose rate falls to eta_min along half a cosine (Loshchilov and Hutter, 2017).

        lr_n = eta_min + (lr_0 - eta_min) (1 + cos(pi n / T_max)) / 2

    It does not stop at eta_min: the rate rises again in the T_max steps behind.

    Args:
        optimizer: Optimizer whose groups get the rates.
        T_max: Number of steps down to eta_min.
        eta_min: Least rate. Default: 0.0.
        last_epoch: Number of the last step taken, to resume a schedule; -1 starts one. Default: -1.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.CosineAnnealingLR.html

    >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0)
    >>> schedule = ad.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2)
    >>> optimizer.step(); schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        T_max: float,  # noqa: N803 - PyTorch's name
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The current rates, moved by the ratio of this cosine to the one before."""
        n, period, low = self.last_epoch, self.T_max, self.eta_min
        if self._is_initial:
            return self._current
        if (n - 1 - period) % (2 * period) == 0:
            rise = (1 - math.cos(math.pi / period)) / 2
            return [
                rate + (base - low) * rise
                for base, rate in zip(self.base_lrs, self._current, strict=True)
            ]
        now, before = (1 + math.cos(math.pi * i / period) for i in (n, n - 1))
        return [now / before * (rate - low) + low for rate in self._current]

    def _get_closed_form_lr(self) -> list[Any]:
        height = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Schedule that falls along half a cosine again and again (Loshchilov and Hutter, 2017).

        lr = eta_min + (lr_0 - eta_min) (1 + cos(pi T_cur / T_i)) / 2

    T_cur is the number of steps since the last restart, T_i the length of the present period: T_0
    at first, and T_mult times the one before from restart to restart.

    Args:
        optimizer: Optimizer whose groups get the rates.
        T_0: Number of steps in the first period.
        T_mult: Factor of the length from one period to the next, an integer of at least 1. Default:
            1.
        eta_min: Least rate. Default: 0.0.
        last_epoch: Number of the last step taken, to resume a schedule; -1 starts one. Default: -1.

    Errors: InvalidArgument where T_0 or T_mult is not a positive integer.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.CosineAnnealingWarmRestarts.html

    >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0)
    >>> schedule = ad.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=2)
    >>> optimizer.step(); schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,  # noqa: N803 - PyTorch's name
        T_mult: int = 1,  # noqa: N803 - PyTorch's name
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        if T_0 <= 0 or not isinstance(T_0, int):
            raise InvalidArgument(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise InvalidArgument(f"Expected integer T_mult >= 1, but got {T_mult}")
        self.T_0 = self.T_i = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The rates at this place of the current period."""
        height = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]

    @deferrable(_changes)
    def step(self, epoch: Any = None) -> None:
        """Go one step further, or to the (fractional) epoch, and set the learning rates.

        >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0)
        >>> schedule = ad.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=2)
        >>> schedule.step(2.0)
        >>> schedule.get_last_lr()
        [1.0]
        """
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur %= self.T_i
                self.T_i *= self.T_mult
        elif epoch < 0:
            raise InvalidArgument(f"Expected non-negative epoch, but got {epoch}")
        else:
            self._go_to(epoch)
        self._step_count += 1
        self.last_epoch = math.floor(epoch)
        self._set(self.get_lr())

    def _go_to(self, epoch: float) -> None:
        start, period = 0.0, self.T_0
        while epoch >= start + period:
            start += period
            period *= self.T_mult
            if self.T_mult == 1:
                start = epoch - epoch % period
        self.T_cur, self.T_i = epoch - start, period
