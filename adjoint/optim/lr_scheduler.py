"""Learning-rate schedules: each `step()` sets the learning rates of an optimizer's groups.

Schedules change the current rate from step to step, so that several can act on one optimizer.
"""

from __future__ import annotations

import bisect
import math
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ..core.deferred import deferrable
from ..core.errors import InvalidArgument, InvalidType
from .optimizer import Group, Optimizer

__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts",
    "CyclicLR", "ExponentialLR", "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR",
    "MultiplicativeLR", "OneCycleLR", "PolynomialLR", "ReduceLROnPlateau", "SequentialLR", "StepLR",
]  # fmt: skip


OPTIONS = ("lr", "momentum")  # of groups: the numbers that schedules of this module set


def _changes(schedule: Any) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """What a schedule's step may change: its attributes, those of its parts, groups' options."""
    own = vars(schedule)
    yield own, [name for name in own if name not in ("optimizer", "_schedulers")]
    for part in own.get("_schedulers", ()):
        yield from _changes(part)
    for group in schedule.optimizer.param_groups:
        yield group, [name for name in group if name not in ("params", "param_names")]


class LRScheduler:
    """Base of schedules; subclasses define `get_lr`, the rates after `last_epoch` steps.

    Errors: InvalidType where `optimizer` is none; KeyError where a schedule is resumed whose groups
    have no initial rate.
    Source: https://docs.pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate

    >>> class Halve(ad.optim.lr_scheduler.LRScheduler):
    ...     def get_lr(self): return [base / 2**self.last_epoch for base in self.base_lrs]
    >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0)
    >>> schedule = Halve(optimizer)
    >>> optimizer.step(); schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        _assert_optimizer(optimizer)
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{i}] when resuming an "
                    "optimizer; load the optimizer's state dict first"
                )
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._step_count = 0
        self._last_lr: list[Any] = []
        self._initial_step()

    def _initial_step(self) -> None:
        self.step()

    def get_lr(self) -> list[Any]:
        """The learning rates after `last_epoch` steps; subclasses define it.

        >>> ad.optim.lr_scheduler.ExponentialLR(
        ...     ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0), 0.5).get_last_lr()
        [1.0]
        """
        raise NotImplementedError(f"{type(self).__name__} must define get_lr")

    def get_last_lr(self) -> list[Any]:
        """The learning rates that were set last.

        >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0)
        >>> ad.optim.lr_scheduler.StepLR(optimizer, 10).get_last_lr()
        [1.0]
        """
        return self._last_lr

    @property
    def _current(self) -> list[Any]:
        return [group["lr"] for group in self.optimizer.param_groups]

    def _scaled(self, factor: float) -> list[Any]:
        """The current rates times `factor`."""
        return [rate * factor for rate in self._current]

    @deferrable(_changes)
    def step(self, epoch: int | None = None) -> None:
        """Go one step further and set the learning rates.

        >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0)
        >>> schedule = ad.optim.lr_scheduler.StepLR(optimizer, 1)
        >>> optimizer.step(); schedule.step()
        >>> optimizer.param_groups[0]["lr"]
        0.1
        """
        if self._step_count == 1 and not self.optimizer._has_stepped:
            warnings.warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`. Call them in "
                "the opposite order: otherwise the first value of the schedule is skipped.",
                UserWarning,
                stacklevel=2,
            )
        self._step_count += 1
        closed = getattr(self, "_get_closed_form_lr", None)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        self._set(self.get_lr() if epoch is None or closed is None else closed())

    def _set(self, rates: Iterable[Any]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            if hasattr(group["lr"], "fill_"):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        self._last_lr = self._current

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer.

        >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0)
        >>> ad.optim.lr_scheduler.StepLR(optimizer, 10).state_dict()["last_epoch"]
        0
        """
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` gave; load the optimizer's own state dict too.

        >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0)
        >>> schedule = ad.optim.lr_scheduler.StepLR(optimizer, 10)
        >>> schedule.load_state_dict(schedule.state_dict())
        """
        self.__dict__.update(state_dict)


def _assert_optimizer(optimizer: Any) -> None:
    if not isinstance(optimizer, Optimizer):
        raise InvalidType(f"{type(optimizer).__name__} is not an Optimizer")


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
    """The initial rate times lr_lambda(number of steps).

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
    """The current rate times lr_lambda(number of steps).

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.MultiplicativeLR.html

    >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0)
    >>> schedule = ad.optim.lr_scheduler.MultiplicativeLR(optimizer, lambda n: 0.5)
    >>> optimizer.step(); schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    def get_lr(self) -> list[Any]:
        """The current rates times the functions."""
        if self.last_epoch <= 0:
            return self._current
        return [
            rate * f(self.last_epoch)
            for f, rate in zip(self.lr_lambdas, self._current, strict=True)
        ]


class _LRScheduler(LRScheduler):
    """The old name, from which programs derive."""


class StepLR(LRScheduler):
    """The rate times gamma every step_size steps.

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
    """The rate times gamma at each of the given steps.

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
    """The rate times factor during the first total_iters steps.

    Errors: InvalidArgument for a factor outside 0 to 1.
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
    """The rate times a factor that goes from start_factor to end_factor in total_iters steps.

    Errors: InvalidArgument for a factor outside 0 to 1.
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
        if self.last_epoch > self.total_iters:
            return self._current
        rise = self.end_factor - self.start_factor
        before = self.total_iters * self.start_factor + (self.last_epoch - 1) * rise
        return self._scaled(1.0 + rise / before)

    def _get_closed_form_lr(self) -> list[Any]:
        done = min(self.total_iters, self.last_epoch) / self.total_iters
        factor = self.start_factor + (self.end_factor - self.start_factor) * done
        return [base * factor for base in self.base_lrs]


class ExponentialLR(LRScheduler):
    """The rate times gamma at every step.

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
        return self._current if self.last_epoch == 0 else self._scaled(self.gamma)

    def _get_closed_form_lr(self) -> list[Any]:
        return [base * self.gamma**self.last_epoch for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """The rate times (1 - step / total_iters) ** power.

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
        if self.last_epoch == 0 or self.last_epoch > self.total_iters:
            return self._current
        left = 1.0 - self.last_epoch / self.total_iters
        before = 1.0 - (self.last_epoch - 1) / self.total_iters
        return self._scaled((left / before) ** self.power)

    def _get_closed_form_lr(self) -> list[Any]:
        left = 1.0 - min(self.total_iters, self.last_epoch) / self.total_iters
        return [base * left**self.power for base in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """The rate down to eta_min along half a cosine in T_max steps (Loshchilov and Hutter, 2017).

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
        if n == 0:
            return self._current
        if self._step_count == 1 and n > 0:  # resumed: there is no rate before
            return self._get_closed_form_lr()
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
    """Cosine annealing that begins again after T_0 steps, then after T_mult times as many.

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
                self.T_cur -= self.T_i
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


class OneCycleLR(LRScheduler):
    """One cycle: from max_lr / div_factor up to max_lr, then down far below (Smith, 2018).

    Momentum (or beta1) moves the other way where `cycle_momentum`.

    Errors: InvalidArgument where the number of steps is not given, or pct_start is outside 0 to 1.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.OneCycleLR.html

    >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0, momentum=0.9)
    >>> schedule = ad.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=10)
    >>> round(schedule.get_last_lr()[0], 4)
    0.04
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: Any,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float = 0.85,
        max_momentum: float = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise InvalidArgument(
                    "You must define either total_steps OR (epochs AND steps_per_epoch)"
                )
            total_steps = epochs * steps_per_epoch
        if total_steps <= 0:
            raise InvalidArgument(f"Expected positive integer total_steps, but got {total_steps}")
        if not 0 <= pct_start <= 1:
            raise InvalidArgument(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise InvalidArgument(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        self.total_steps = total_steps
        self.anneal_strategy = anneal_strategy
        self.cycle_momentum = cycle_momentum
        up = pct_start * total_steps
        rising: list[tuple[float, str, str]] = [(up - 1, "initial_lr", "max_lr")]
        if three_phase:
            rising += [(2 * up - 2, "max_lr", "initial_lr")]
            self.phases = [*rising, (total_steps - 1, "initial_lr", "min_lr")]
        else:
            self.phases = [*rising, (total_steps - 1, "max_lr", "min_lr")]
        groups = optimizer.param_groups
        rates = list(max_lr) if isinstance(max_lr, (list, tuple)) else [max_lr] * len(groups)
        if cycle_momentum:
            _assert_momentum(optimizer)
        if last_epoch == -1:
            for group, rate in zip(groups, rates, strict=True):
                group["initial_lr"] = rate / div_factor
                group["max_lr"] = rate
                group["min_lr"] = group["initial_lr"] / final_div_factor
                if cycle_momentum:
                    group["max_momentum"] = max_momentum
                    group["base_momentum"] = base_momentum
        super().__init__(optimizer, last_epoch)

    def _between(self, start: float, end: float, done: float) -> float:
        if self.anneal_strategy == "linear":
            return (end - start) * done + start
        return end + (start - end) / 2.0 * (math.cos(math.pi * done) + 1)

    def get_lr(self) -> list[Any]:
        """The rates at this place of the cycle; sets the momentum too."""
        n = self.last_epoch
        if n > self.total_steps:
            raise InvalidArgument(
                f"Tried to step {n} times. The specified number of total steps is "
                f"{self.total_steps}"
            )
        which = next((i for i, phase in enumerate(self.phases) if n <= phase[0]), -1)
        end, first, last = self.phases[which]
        start = self.phases[which - 1][0] if which not in (0, -len(self.phases)) else 0.0
        done = (n - start) / (end - start)
        rates = []
        momentum = {"max_lr": "base_momentum"}
        for group in self.optimizer.param_groups:
            rates.append(self._between(group[first], group[last], done))
            if self.cycle_momentum:
                low = group[momentum.get(first, "max_momentum")]
                high = group[momentum.get(last, "max_momentum")]
                _set_momentum(group, self._between(low, high, done))
        return rates


class CyclicLR(LRScheduler):
    """The rate up and down between base_lr and max_lr (Smith, 2017); momentum the other way.

    Errors: InvalidArgument for an unknown mode without `scale_fn`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.CyclicLR.html

    >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0, momentum=0.9)
    >>> schedule = ad.optim.lr_scheduler.CyclicLR(optimizer, 0.0, 1.0, step_size_up=2)
    >>> optimizer.step(); schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: Any,
        max_lr: Any,
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[Any], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: Any = 0.8,
        max_momentum: Any = 0.9,
        last_epoch: int = -1,
    ) -> None:
        _assert_optimizer(optimizer)
        self.optimizer = optimizer
        base_lrs = _per_group("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            self._set(base_lrs)
        self.max_lrs = _per_group("max_lr", optimizer, max_lr)
        self.total_size = float(step_size_up + (step_size_down or step_size_up))
        self.step_ratio = step_size_up / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise InvalidArgument(f"mode is invalid and scale_fn is None: {mode!r}")
        self.mode = mode
        self.gamma = gamma
        self._scale_fn_custom = scale_fn
        if scale_fn is None:
            scale_mode = "iterations" if mode == "exp_range" else "cycle"
        self.scale_mode = scale_mode
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            _assert_momentum(optimizer)
            self.use_beta1 = "betas" in optimizer.defaults
            self.base_momentums = _per_group("base_momentum", optimizer, base_momentum)
            self.max_momentums = _per_group("max_momentum", optimizer, max_momentum)
            if last_epoch == -1:
                for group, low, high in zip(
                    optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True
                ):
                    group["base_momentum"], group["max_momentum"] = low, high
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def scale_fn(self, x: Any) -> float:
        """How high cycle (or step) number `x` goes.

        >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0, momentum=0.9)
        >>> ad.optim.lr_scheduler.CyclicLR(optimizer, 0, 1, mode="triangular2").scale_fn(2)
        0.5
        """
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "exp_range":
            return float(self.gamma**x)
        return 1.0 if self.mode == "triangular" else 1 / (2.0 ** (x - 1))

    def get_lr(self) -> list[Any]:
        """The rates at this place of the cycle; sets the momentum too."""
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        up = self.step_ratio
        height = x / up if x <= up else (x - 1) / (up - 1)
        height *= self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for group, low, high in zip(
                self.optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True
            ):
                _set_momentum(group, high - (high - low) * height)
        return [
            low + (high - low) * height
            for low, high in zip(self.base_lrs, self.max_lrs, strict=True)
        ]

    def state_dict(self) -> dict[str, Any]:
        """Without the optimizer; a `scale_fn` that is a function is left out, of a callable object
        its attributes are given.

        >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0, momentum=0.9)
        >>> ad.optim.lr_scheduler.CyclicLR(optimizer, 0.1, 1.0).state_dict()["max_lrs"]
        [1.0]
        """
        state = super().state_dict()
        function = state["_scale_fn_custom"]
        is_object = function is not None and not isinstance(function, types.FunctionType)
        state["_scale_fn_custom"] = dict(function.__dict__) if is_object else None
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` gave.

        >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0, momentum=0.9)
        >>> schedule = ad.optim.lr_scheduler.CyclicLR(optimizer, 0.1, 1.0)
        >>> schedule.load_state_dict(schedule.state_dict())
        """
        rest = {key: value for key, value in state_dict.items() if key != "_scale_fn_custom"}
        super().load_state_dict(rest)
        saved = state_dict.get("_scale_fn_custom")
        if saved is not None and self._scale_fn_custom is not None:
            self._scale_fn_custom.__dict__.update(saved)


def _assert_momentum(optimizer: Optimizer) -> None:
    if not {"momentum", "betas"} & set(optimizer.defaults):
        raise InvalidArgument(
            "optimizer must support momentum or beta1 with `cycle_momentum` option enabled"
        )


def _set_momentum(group: Group, value: float) -> None:
    if "betas" in group:
        group["betas"] = (value, *group["betas"][1:])
    else:
        group["momentum"] = value


def _per_group(name: str, optimizer: Optimizer, value: Any) -> list[Any]:
    """`value` for each of the optimizer's groups, or the values that it lists."""
    count = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [value] * count
    if len(value) != count:
        raise InvalidArgument(
            f"{name} must have the same length as optimizer.param_groups. {name} has {len(value)} "
            f"values, param_groups has {count}."
        )
    return list(value)


class _WithParts(LRScheduler):
    """Base of schedules that are made of others."""

    _schedulers: list[Any]

    def state_dict(self) -> dict[str, Any]:
        """The place, if there is one, and the schedules' state dicts.

        >>> S = ad.optim.lr_scheduler
        >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0)
        >>> S.SequentialLR(optimizer, [S.ConstantLR(optimizer)], []).state_dict()["last_epoch"]
        0
        """
        state = {k: v for k, v in super().state_dict().items() if k != "_schedulers"}
        state["_schedulers"] = [part.state_dict() for part in self._schedulers]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` gave.

        >>> S = ad.optim.lr_scheduler
        >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0)
        >>> schedule = S.SequentialLR(optimizer, [S.ConstantLR(optimizer)], [])
        >>> schedule.load_state_dict(schedule.state_dict())
        """
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "_schedulers"})
        for part, saved in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            part.load_state_dict(saved)


class SequentialLR(_WithParts):
    """Schedules one after the other, each from its milestone on.

    Errors: InvalidArgument where there is not one milestone between every two schedules, or the
    schedules belong to different optimizers.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.SequentialLR.html

    >>> S = ad.optim.lr_scheduler
    >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0)
    >>> parts = [S.ConstantLR(optimizer, 0.5), S.ExponentialLR(optimizer, 0.9)]
    >>> S.SequentialLR(optimizer, parts, milestones=[2]).get_last_lr()
    [0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: Sequence[Any],
        milestones: Sequence[int],
        last_epoch: int = -1,
    ) -> None:
        if not schedulers:
            raise InvalidArgument("SequentialLR expects at least one scheduler to be chained")
        if any(s.optimizer is not optimizer for s in schedulers):
            raise InvalidArgument("SequentialLR expects all schedulers to belong to the optimizer")
        if len(milestones) != len(schedulers) - 1:
            raise InvalidArgument(
                "Sequential Schedulers expects number of schedulers provided to be one more than "
                f"the number of milestone points, but got number of schedulers {len(schedulers)} "
                f"and the number of milestones to be equal to {len(milestones)}"
            )
        self._schedulers = list(schedulers)
        self._milestones = list(milestones)
        self.last_epoch = last_epoch + 1
        self.optimizer = optimizer
        self._step_count = 1
        for group in optimizer.param_groups:  # undo the schedules' first steps
            group["lr"] = group["initial_lr"]
        for schedule in self._schedulers:
            schedule.last_epoch -= 1
        self._schedulers[0]._step_count = 0
        self._schedulers[0]._initial_step()
        self._last_lr = self._schedulers[0].get_last_lr()

    @deferrable(_changes)
    def step(self, epoch: int | None = None) -> None:
        """Go one step further with the schedule whose turn it is.

        >>> S = ad.optim.lr_scheduler
        >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0)
        >>> parts = [S.ConstantLR(optimizer, 0.5), S.ExponentialLR(optimizer, 0.5)]
        >>> schedule = S.SequentialLR(optimizer, parts, milestones=[1])
        >>> optimizer.step(); schedule.step()
        >>> schedule.get_last_lr()
        [1.0]
        """
        self.last_epoch += 1
        which = bisect.bisect_right(self._milestones, self.last_epoch)
        schedule = self._schedulers[which]
        begins = which > 0 and self._milestones[which - 1] == self.last_epoch
        schedule.step(*((0,) if begins else ()))
        self._last_lr = schedule.get_last_lr()


class ChainedScheduler(_WithParts):
    """Schedules that all act at every step.

    Errors: InvalidArgument for no schedules, or schedules of different optimizers.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.ChainedScheduler.html

    >>> S = ad.optim.lr_scheduler
    >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0)
    >>> parts = [S.ExponentialLR(optimizer, 0.5), S.ExponentialLR(optimizer, 0.5)]
    >>> schedule = S.ChainedScheduler(parts)
    >>> optimizer.step(); schedule.step()
    >>> schedule.get_last_lr()
    [0.25]
    """

    def __init__(self, schedulers: Sequence[Any], optimizer: Optimizer | None = None) -> None:
        self._schedulers = list(schedulers)
        if not self._schedulers:
            raise InvalidArgument("ChainedScheduler expects at least one scheduler to be chained")
        self.optimizer = optimizer or self._schedulers[0].optimizer
        if any(s.optimizer is not self.optimizer for s in self._schedulers):
            raise InvalidArgument(
                "ChainedScheduler expects all schedulers to belong to the same optimizer"
            )
        self._last_lr = self._current

    @deferrable(_changes)
    def step(self, epoch: int | None = None) -> None:
        """Go one step further with every schedule.

        >>> S = ad.optim.lr_scheduler
        >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0)
        >>> schedule = S.ChainedScheduler([S.ExponentialLR(optimizer, 0.5)])
        >>> optimizer.step(); schedule.step()
        >>> schedule.get_last_lr()
        [0.5]
        """
        for schedule in self._schedulers:
            schedule.step()
        self._last_lr = self._current


class ReduceLROnPlateau(LRScheduler):
    """The rate times factor when a metric has not improved for more than patience steps.

    Errors: InvalidArgument for a factor of 1 or more, or an unknown mode.
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
            reduced = []
            for old, floor in zip(self._current, self.min_lrs, strict=True):
                new = max(old * self.factor, floor)
                reduced.append(new if old - new > self.eps else old)
            self._set(reduced)
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = self._current
