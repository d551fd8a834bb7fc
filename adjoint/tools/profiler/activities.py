"""Activities and devices that a profile can name."""

from __future__ import annotations

from enum import Enum


class ProfilerActivity(Enum):
    """Kind of activity to profile; only `CPU` is recorded, the others are accepted.

    Source: https://docs.pytorch.org/docs/stable/profiler.html#torch.profiler.ProfilerActivity

    >>> ad.profiler.ProfilerActivity.CPU.name
    'CPU'
    """

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3
    HPU = 4
    PrivateUse1 = 5


class DeviceType(Enum):
    """Device on which an event took place: always on the CPU, from which work for devices is
    launched.

    Source: https://docs.pytorch.org/docs/stable/profiler.html

    >>> ad.profiler.DeviceType.CPU.value
    0
    """

    CPU = 0
    CUDA = 1


def supported_activities() -> set[ProfilerActivity]:
    """The activities that are seen.

    Work on CUDA counts as the time that launching it takes.
    Source: https://docs.pytorch.org/docs/stable/profiler.html#torch.profiler.supported_activities

    >>> ad.profiler.supported_activities()
    {<ProfilerActivity.CPU: 0>}
    """
    return {ProfilerActivity.CPU}


def kineto_available() -> bool:
    """Whether events come from Kineto, PyTorch's library: never.

    Source: https://docs.pytorch.org/docs/stable/profiler.html

    >>> ad.profiler.kineto_available()
    False
    """
    return False
