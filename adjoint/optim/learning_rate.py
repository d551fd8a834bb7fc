"""The base of learning-rate schedules: each `step()` sets the learning rates of an optimizer."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from ..core.argument_repr import argument_repr
from ..core.deferred_effects import deferrable
from ..core.errors import InvalidType
from ..core.keywords import explain_keywords
from .optimizer import Optimizer

__all__ = ["LRScheduler"]


OPTIONS = ("lr", "momentum")  # of groups: the numbers that schedules set


def _changes(schedule: Any) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """List what a schedule's step may change: attributes of it and its parts, groups' options."""
    own = vars(schedule)
    yield own, [name for name in own if name not in ("optimizer", "_schedulers")]
    for part in own.get("_schedulers", ()):
        yield from _changes(part)
    for group in schedule.optimizer.param_groups:
        yield group, [name for name in group if name not in ("params", "param_names")]


@explain_keywords
class LRScheduler:
    """Base of schedules: a subclass defines `get_lr`, the rates after `last_epoch` steps.

        lr_n = get_lr() with last_epoch = n, for n = 0, 1, 2, ...

    Construction sets the rates of step 0; each `step()` those of the next. `base_lrs` are the
    groups' rates before the schedule (`initial_lr` of a group).

    Args:
        optimizer: Optimizer whose groups get the rates.
        last_epoch: Number of the last step taken, to resume a schedule; -1 starts one. Default: -1.

    Errors: InvalidType where `optimizer` is none; KeyError where a schedule is resumed whose groups
    have no `initial_lr`.
    Source: https://docs.pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate

    >>> class Halve(ad.optim.lr_scheduler.LRScheduler):
    ...     def get_lr(self): return [base / 2**self.last_epoch for base in self.base_lrs]
    >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0)
    >>> schedule = Halve(optimizer)
    >>> optimizer.step(); schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    _is_initial = False  # in the constructor's step, whose rate a resumed optimizer has already

    _in_repr = ("last_epoch", "_last_lr")
    __repr__ = argument_repr

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        _assert_optimizer(optimizer)
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                rate = group["lr"]  # a tensor is changed in place: keep its value
                group.setdefault("initial_lr", rate.clone() if hasattr(rate, "fill_") else rate)
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{i}] when resuming an "
                    "optimizer; load the optimizer's state dict first"
                )
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._last_lr: list[Any] = []
        self._initial_step()

    def _initial_step(self) -> None:
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            del self._is_initial  # the class's again: it is no state

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
