"""The CPU as a device, under PyTorch's names.

Source: https://docs.pytorch.org/docs/stable/cpu.html

>>> ad.cpu.is_available(), ad.cpu.device_count(), ad.cpu.current_device()
(True, 1, 'cpu')
"""

from __future__ import annotations

from typing import Any

amp: Any  # `adjoint.amp.cpu`, which stands on this

__all__ = ["amp", "current_device", "device_count", "is_available", "synchronize"]


def is_available() -> bool:
    """Whether there is a CPU: yes."""
    return True


def device_count() -> int:
    """The number of CPU devices, which is 1: all cores together."""
    return 1


def current_device() -> str:
    """The name of the current CPU device."""
    return "cpu"


def synchronize(device: Any = None) -> None:
    """Wait for the device; operations on the CPU are complete when they return.

    >>> ad.cpu.synchronize()
    """
