"""Schedules: when a profile records, by the number of the program's step."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from ...core.errors import InvalidArgument


class ProfilerAction(Enum):
    """Action of a profile in a step.

    Source: https://docs.pytorch.org/docs/stable/profiler.html#torch.profiler.ProfilerAction

    >>> ad.profiler.ProfilerAction.RECORD.value
    2
    """

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3

    @property
    def records(self) -> bool:
        """Whether events are recorded."""
        return self in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


def schedule(
    *,
    wait: int,
    warmup: int,
    active: int,
    repeat: int = 0,
    skip_first: int = 0,
    skip_first_wait: int = 0,
) -> Callable[[int], ProfilerAction]:
    """A function from the step's number to what a profile does in it: nothing in the first
    `skip_first` steps, then in cycles nothing for `wait` steps, nothing either for `warmup` steps,
    and record for `active` ones.

    `repeat` bounds the cycles (0: no bound); with `skip_first_wait` other than 0 the first cycle
    has no `wait`.
    Errors: InvalidArgument for negative numbers, and an `active` of 0.
    Source: https://docs.pytorch.org/docs/stable/profiler.html#torch.profiler.schedule

    >>> action = ad.profiler.schedule(wait=1, warmup=1, active=2, repeat=1)
    >>> [action(step).name for step in range(5)]
    ['NONE', 'WARMUP', 'RECORD', 'RECORD_AND_SAVE', 'NONE']
    """
    numbers = wait, warmup, active, repeat, skip_first
    if min(numbers) < 0 or not active:
        raise InvalidArgument(
            f"schedule: wait={wait}, warmup={warmup}, active={active}, repeat={repeat}, "
            f"skip_first={skip_first}; none may be negative, and active must be at least 1"
        )
    length = wait + warmup + active
    saved = wait if skip_first_wait else 0  # steps by which the first cycle is shorter

    def action(step: int) -> ProfilerAction:
        if step < 0:
            raise InvalidArgument(f"schedule: a step of {step}; steps are counted from 0")
        if step < skip_first:
            return ProfilerAction.NONE
        cycle, place = divmod(step - skip_first + saved, length)
        if repeat and cycle >= repeat:
            return ProfilerAction.NONE
        if place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        last = place == length - 1
        return ProfilerAction.RECORD_AND_SAVE if last else ProfilerAction.RECORD

    return action


def always(step: int) -> ProfilerAction:
    """The schedule of a profile without one."""
    return ProfilerAction.RECORD
