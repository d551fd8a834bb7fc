"""Schedules that are combined of others: one after another, or all at once."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Any

from ..core.deferred_effects import deferrable
from ..core.errors import InvalidArgument
from .learning_rate import LRScheduler, _changes
from .optimizer import Optimizer

__all__ = ["ChainedScheduler", "SequentialLR"]


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

        rate of step n = the schedule whose milestone was the last one up to n

    Each schedule starts with its own step 0 at its milestone, the first of them at 0.

    Args:
        optimizer: Optimizer whose groups get the rates.
        schedulers: Schedules of `optimizer`, in their order.
        milestones: Numbers of the steps at which the second, third, ... takes over.
        last_epoch: Number of the last step taken, to resume a schedule; -1 starts one. Default: -1.

    Errors: InvalidArgument where there is not one milestone between every two schedules, no
    schedule, or one of another optimizer.
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
        self._set(group["initial_lr"] for group in optimizer.param_groups)  # undo the first steps
        for schedule in self._schedulers:
            schedule.last_epoch -= 1
        first = self._schedulers[bisect.bisect_right(self._milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

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
    """Schedules that all act in every step, each on the rate that the one before left.

        lr_n = lr_(n-1) times the factors of all schedules

    Args:
        schedulers: Schedules of one optimizer.
        optimizer: Their optimizer. Default: None, that of the first schedule.

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
