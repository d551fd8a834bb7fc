"""Learning-rate schedules: each `step()` sets the learning rates of an optimizer's groups.

Schedules change the current rate from step to step, so that several can act on one optimizer.
"""

from __future__ import annotations

import bisect
import math
import types
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from ..core.deferred_effects import deferrable
from ..core.errors import InvalidArgument
from .annealing import CosineAnnealingLR, CosineAnnealingWarmRestarts
from .combined import ChainedScheduler, SequentialLR
from .cyclical import CyclicLR, OneCycleLR
from .learning_rate import LRScheduler, _assert_optimizer, _changes
from .optimizer import Optimizer

__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts",
    "CyclicLR", "ExponentialLR", "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR",
    "MultiplicativeLR", "OneCycleLR", "PolynomialLR", "ReduceLROnPlateau", "SequentialLR", "StepLR",
]  # fmt: skip


class _WithFunctions(LRScheduler):
    """Base of schedules that call one user function per group."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1) -> None:
        count = len(optimizer.param_groups)
        functions = list(lr_lambda) if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * count
        if len(functions) != count:
            raise InvalidArgument(f"Expected {count} lr_lambdas, but got {len(functions)}")
        self.lr_lambdas: list[Callable[[int], float]] = functions
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> dict[str, Any]:
        """Without the optimizer; functions are left out, callable objects give their attributes.

        >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0)
        >>> ad.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1.0).state_dict()["lr_lambdas"]
        [None]
        """
        state = {k: v for k, v in super().state_dict().items() if k != "lr_lambdas"}
        state["lr_lambdas"] = [
            None if isinstance(f, (types.FunctionType, types.BuiltinFunctionType))
            else dict(f.__dict__)
            for f in self.lr_lambdas
        ]  # fmt: skip
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` gave.

        >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0)
        >>> schedule = ad.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1.0)
        >>> schedule.load_state_dict(schedule.state_dict())
        """
        rest = {key: value for key, value in state_dict.items() if key != "lr_lambdas"}
        self.__dict__.update(rest)
        for function, saved in zip(self.lr_lambdas, state_dict["lr_lambdas"], strict=True):
            if saved is not None:
                function.__dict__.update(saved)


class LambdaLR(_WithFunctions):
    """Schedule whose rate is the initial rate times a function of the number of steps.

        lr_n = lr_0 lr_lambda(n)

    Args:
        optimizer: Optimizer whose groups get the rates.
        lr_lambda: Function from the number of steps to a factor, or a list of them, one per group.
        last_epoch: Number of the last step taken, to resume a schedule; -1 starts one. Default: -1.

    Errors: InvalidArgument where the list has not one function per group.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.LambdaLR.html

    >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0)
    >>> schedule = ad.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 0.5**n)
    >>> optimizer.step(); schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    def get_lr(self) -> list[Any]:
        """The initial rates times the functions."""
        return [
            base * f(self.last_epoch)
            for f, base in zip(self.lr_lambdas, self.base_lrs, strict=True)
        ]


class MultiplicativeLR(_WithFunctions):
    """Schedule whose rate is multiplied in each step by a function of the number of steps.

        lr_n = lr_(n-1) lr_lambda(n)

    Args:
        optimizer: Optimizer whose groups get the rates.
        lr_lambda: Function from the number of steps, from 1 on, to a factor, or a list of them, one
            per group.
        last_epoch: Number of the last step taken, to resume a schedule; -1 starts one. Default: -1.

    Errors: InvalidArgument where the list has not one function per group.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.MultiplicativeLR.html

    >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0)
    >>> schedule = ad.optim.lr_scheduler.MultiplicativeLR(optimizer, lambda n: 0.5)
    >>> optimizer.step(); schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    def get_lr(self) -> list[Any]:
        """The current rates times the functions."""
        if self._is_initial:
            return self._current
        return [
            rate * f(self.last_epoch)
            for f, rate in zip(self.lr_lambdas, self._current, strict=True)
        ]


class _LRScheduler(LRScheduler):
    """The old name, from which programs derive."""


class StepLR(LRScheduler):
    """Schedule whose rate is multiplied by gamma every step_size steps.

        lr_n = lr_0 gamma^floor(n / step_size)

    Args:
        optimizer: Optimizer whose groups get the rates.
        step_size: Number of steps with the same rate.
        gamma: Factor. Default: 0.1.
        last_epoch: Number of the last step taken, to resume a schedule; -1 starts one. Default: -1.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.StepLR.html

    >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0)
    >>> schedule = ad.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    >>> optimizer.step(); schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The current rates, times gamma where a period ends."""
        if self.last_epoch == 0 or self.last_epoch % self.step_size:
            return self._current
        return self._scaled(self.gamma)

    def _get_closed_form_lr(self) -> list[Any]:
        return [b * self.gamma ** (self.last_epoch // self.step_size) for b in self.base_lrs]


class MultiStepLR(LRScheduler):
    """Schedule whose rate is multiplied by gamma at each milestone.

        lr_n = lr_0 gamma^(number of milestones up to n)

    Args:
        optimizer: Optimizer whose groups get the rates.
        milestones: Numbers of steps at which the rate changes; one that is listed twice counts
            twice.
        gamma: Factor. Default: 0.1.
        last_epoch: Number of the last step taken, to resume a schedule; -1 starts one. Default: -1.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.MultiStepLR.html

    >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0)
    >>> schedule = ad.optim.lr_scheduler.MultiStepLR(optimizer, [1], gamma=0.5)
    >>> optimizer.step(); schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        milestones: Iterable[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
    ) -> None:
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The current rates, times gamma at a milestone."""
        if self.last_epoch not in self.milestones:
            return self._current
        return self._scaled(self.gamma ** self.milestones[self.last_epoch])

    def _get_closed_form_lr(self) -> list[Any]:
        passed = bisect.bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return [base * self.gamma**passed for base in self.base_lrs]


class ConstantLR(LRScheduler):
    """Schedule whose rate is smaller by a factor during the first steps.

        lr_n = lr_0 factor for n < total_iters, lr_0 from there on

    Args:
        optimizer: Optimizer whose groups get the rates.
        factor: Factor of the first rates, in [0, 1]. Default: 1/3.
        total_iters: Number of steps with the smaller rate. Default: 5.
        last_epoch: Number of the last step taken, to resume a schedule; -1 starts one. Default: -1.

    Errors: InvalidArgument for a factor outside [0, 1].
    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.ConstantLR.html

    >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0)
    >>> ad.optim.lr_scheduler.ConstantLR(optimizer, factor=0.5).get_last_lr()
    [0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        factor: float = 1.0 / 3,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 <= factor <= 1:
            raise InvalidArgument(
                f"Constant multiplicative factor expected to be between 0 and 1, got {factor}"
            )
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The current rates, changed at the first step and back after the last."""
        if self.last_epoch == 0:
            return self._scaled(self.factor)
        if self.last_epoch != self.total_iters:
            return self._current
        return self._scaled(1.0 / self.factor)

    def _get_closed_form_lr(self) -> list[Any]:
        factor = self.factor if self.last_epoch < self.total_iters else 1.0
        return [base * factor for base in self.base_lrs]


class LinearLR(LRScheduler):
    """Schedule whose rate is scaled by a factor that changes linearly.

        lr_n = lr_0 (start_factor + (end_factor - start_factor) min(n / total_iters, 1))

    Args:
        optimizer: Optimizer whose groups get the rates.
        start_factor: Factor at the start, in (0, 1]. Default: 1/3.
        end_factor: Factor from step total_iters on, in [0, 1]. Default: 1.0.
        total_iters: Number of steps from one factor to the other. Default: 5.
        last_epoch: Number of the last step taken, to resume a schedule; -1 starts one. Default: -1.

    Errors: InvalidArgument for a factor out of its range.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.LinearLR.html

    >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0)
    >>> ad.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.5).get_last_lr()
    [0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 < start_factor <= 1:
            raise InvalidArgument(
                "Starting multiplicative factor expected to be greater than 0 and less or equal "
                f"to 1, got {start_factor}"
            )
        if not 0 <= end_factor <= 1:
            raise InvalidArgument(
                f"Ending multiplicative factor expected to be between 0 and 1, got {end_factor}"
            )
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The current rates, times the ratio of this factor to the one before."""
        if self.last_epoch == 0:
            return self._scaled(self.start_factor)
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._current
        rise = self.end_factor - self.start_factor
        before = self.total_iters * self.start_factor + (self.last_epoch - 1) * rise
        return self._scaled(1.0 + rise / before)

    def _get_closed_form_lr(self) -> list[Any]:
        done = min(self.total_iters, self.last_epoch) / self.total_iters
        factor = self.start_factor + (self.end_factor - self.start_factor) * done
        return [base * factor for base in self.base_lrs]


class ExponentialLR(LRScheduler):
    """Schedule whose rate is multiplied by gamma in every step.

        lr_n = lr_0 gamma^n

    Args:
        optimizer: Optimizer whose groups get the rates.
        gamma: Factor.
        last_epoch: Number of the last step taken, to resume a schedule; -1 starts one. Default: -1.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.ExponentialLR.html

    >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0)
    >>> schedule = ad.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    >>> optimizer.step(); schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The current rates times gamma."""
        return self._current if self._is_initial else self._scaled(self.gamma)

    def _get_closed_form_lr(self) -> list[Any]:
        return [base * self.gamma**self.last_epoch for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """Schedule whose rate falls to zero as a power of the steps that are left.

        lr_n = lr_0 (1 - min(n / total_iters, 1))^power

    Args:
        optimizer: Optimizer whose groups get the rates.
        total_iters: Number of steps down to zero. Default: 5.
        power: Exponent; 1 is a straight line. Default: 1.0.
        last_epoch: Number of the last step taken, to resume a schedule; -1 starts one. Default: -1.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.PolynomialLR.html

    >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0)
    >>> schedule = ad.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=4)
    >>> optimizer.step(); schedule.step()
    >>> schedule.get_last_lr()
    [0.75]
    """

    def __init__(
        self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1
    ) -> None:
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The current rates, times the ratio of this factor to the one before."""
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._current
        left = 1.0 - self.last_epoch / self.total_iters
        before = 1.0 - (self.last_epoch - 1) / self.total_iters
        return self._scaled((left / before) ** self.power)

    def _get_closed_form_lr(self) -> list[Any]:
        left = 1.0 - min(self.total_iters, self.last_epoch) / self.total_iters
        return [base * left**self.power for base in self.base_lrs]


class ReduceLROnPlateau(LRScheduler):
    """Schedule that reduces the rate when a metric has not improved for more than patience steps.

        lr = max(lr factor, min_lr)

    `step(metric)` compares the metric with the best one so far. A reduction by eps or less is not
    made.

    Args:
        optimizer: Optimizer whose groups get the rates.
        mode: "min" where a lower metric is better, "max" where a higher one is. Default: "min".
        factor: Factor of the rate, below 1. Default: 0.1.
        patience: Number of steps without improvement that are borne. Default: 10.
        threshold: How much better a metric must be to count as improvement. Default: 0.0001.
        threshold_mode: "rel": better than best (1 - threshold), for "max" best (1 + threshold);
            "abs": than best - threshold, for "max" best + threshold. Default: "rel".
        cooldown: Number of steps after a reduction in which none is counted. Default: 0.
        min_lr: Least rate, or a list of them, one per group. Default: 0.
        eps: Least change of the rate. Default: 1e-8.

    Errors: InvalidType where `optimizer` is none; InvalidArgument for a factor of 1 or more, an
    unknown mode, or a list with not one rate per group.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.ReduceLROnPlateau.html

    >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0)
    >>> schedule = ad.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    >>> for loss in (3.0, 3.0):
    ...     schedule.step(loss)
    >>> schedule.get_last_lr()
    [0.1]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: Any = 0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1.0:
            raise InvalidArgument(f"Factor should be < 1.0, got {factor}")
        _assert_optimizer(optimizer)
        if mode not in ("min", "max"):
            raise InvalidArgument(f"mode {mode} is unknown!")
        if threshold_mode not in ("rel", "abs"):
            raise InvalidArgument(f"threshold mode {threshold_mode} is unknown!")
        count = len(optimizer.param_groups)
        floors = list(min_lr) if isinstance(min_lr, (list, tuple)) else [min_lr] * count
        if len(floors) != count:
            raise InvalidArgument(f"expected {count} min_lrs, got {len(floors)}")
        self.optimizer = optimizer
        self.mode = mode
        self.factor = factor
        self.patience = patience
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.cooldown = cooldown
        self.min_lrs = floors
        self.eps = eps
        self.last_epoch = 0
        self._last_lr = self._current
        self._reset()

    def _reset(self) -> None:
        """Forget the metrics so far."""
        self.best = math.inf if self.mode == "min" else -math.inf
        self.cooldown_counter = 0
        self.num_bad_epochs = 0

    def is_better(self, a: float, best: float) -> bool:
        """Whether `a` improves on `best` by more than the threshold.

        >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0)
        >>> ad.optim.lr_scheduler.ReduceLROnPlateau(optimizer).is_better(1.0, 2.0)
        True
        """
        if self.mode == "min":
            if self.threshold_mode == "rel":
                return a < best * (1.0 - self.threshold)
            return a < best - self.threshold
        if self.threshold_mode == "rel":
            return a > best * (self.threshold + 1.0)
        return a > best + self.threshold

    @property
    def in_cooldown(self) -> bool:
        """Whether metrics are not counted because the rate was just reduced."""
        return self.cooldown_counter > 0

    @deferrable(_changes)
    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Look at a metric, and reduce the rates where it has stayed too long.

        >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0)
        >>> ad.optim.lr_scheduler.ReduceLROnPlateau(optimizer).step(0.5)
        """
        current = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self.is_better(current, self.best):
            self.best = current
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce_lr(self.last_epoch)
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = self._current

    def _reduce_lr(self, epoch: int) -> None:
        """Reduce the rates; packages put functions of their own in its place."""
        reduced = []
        for old, floor in zip(self._current, self.min_lrs, strict=True):
            new = max(old * self.factor, floor)
            reduced.append(new if old - new > self.eps else old)
        self._set(reduced)


for _kind in (
    LRScheduler, CosineAnnealingLR, CosineAnnealingWarmRestarts, OneCycleLR, CyclicLR,
    SequentialLR, ChainedScheduler,
):  # fmt: skip
    _kind.__module__ = __name__  # where PyTorch has them: files name them so
