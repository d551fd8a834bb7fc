"""CUDA devices under PyTorch's names, answering truthfully: no backend serves one yet.

Questions have answers (`is_available()` is False, `device_count()` is 0), seeding all zero devices
does nothing, and what needs a device raises DeviceError.

Source: https://docs.pytorch.org/docs/stable/cuda.html

>>> ad.cuda.is_available(), ad.cuda.device_count()
(False, 0)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .core.errors import DeviceError

__all__ = [
    "Event", "Stream", "current_device", "current_stream", "device_count", "empty_cache",
    "get_arch_list", "get_device_capability", "get_device_name", "get_device_properties",
    "get_rng_state", "get_rng_state_all", "init", "initial_seed", "is_available",
    "is_bf16_supported", "is_initialized", "manual_seed", "manual_seed_all",
    "max_memory_allocated", "max_memory_reserved", "mem_get_info", "memory_allocated",
    "memory_reserved", "reset_peak_memory_stats", "seed", "seed_all", "set_device",
    "set_rng_state", "set_rng_state_all", "synchronize",
]  # fmt: skip


def device_count() -> int:
    """How many CUDA devices tensors can live on."""
    return 0


def is_available() -> bool:
    """Whether tensors can live on a CUDA device."""
    return device_count() > 0


def is_initialized() -> bool:
    """Whether CUDA has been started in this process."""
    return False


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the current device computes in bfloat16."""
    return False


def get_arch_list() -> list[str]:
    """The architectures that kernels were built for."""
    return []


def manual_seed(seed: int) -> None:
    """Seed the current device's generator, where there is one.

    >>> ad.cuda.manual_seed(0)
    """
    int(seed)


def manual_seed_all(seed: int) -> None:
    """Seed every device's generator."""
    int(seed)


def seed() -> None:
    """Seed the current device's generator, where there is one, by chance."""


def seed_all() -> None:
    """Seed every device's generator by chance."""


def get_rng_state_all() -> list[Any]:
    """The state of every device's generator."""
    return []


def set_rng_state_all(new_states: Any) -> None:
    """Set the state of every device's generator.

    Errors: DeviceError for more states than there are devices.
    """
    if len(list(new_states)) > device_count():
        raise _no_device("set_rng_state_all")


def empty_cache() -> None:
    """Give cached memory of the devices back."""


def memory_allocated(device: Any = None) -> int:
    """Bytes that tensors occupy on a device."""
    return 0


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that tensors have occupied on a device."""
    return 0


def memory_reserved(device: Any = None) -> int:
    """Bytes that the allocator holds on a device."""
    return 0


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes that the allocator has held on a device."""
    return 0


def _no_device(name: str) -> DeviceError:
    return DeviceError(
        f"cuda.{name}: there is no CUDA device that adjoint can use; ask "
        "adjoint.cuda.is_available() first"
    )


def _needs_device(name: str, meaning: str) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        raise _no_device(name)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{meaning}\n\nErrors: DeviceError where there is no device."
    return function


current_device = _needs_device("current_device", "The number of the current device.")
current_stream = _needs_device("current_stream", "The stream that work is queued on.")
get_device_capability = _needs_device("get_device_capability", "A device's compute capability.")
get_device_name = _needs_device("get_device_name", "A device's name.")
get_device_properties = _needs_device("get_device_properties", "A device's properties.")
get_rng_state = _needs_device("get_rng_state", "The state of a device's generator.")
init = _needs_device("init", "Start CUDA in this process.")
initial_seed = _needs_device("initial_seed", "The seed of the current device's generator.")
mem_get_info = _needs_device("mem_get_info", "A device's free and total memory in bytes.")
reset_peak_memory_stats = _needs_device("reset_peak_memory_stats", "Forget the peak memory.")
set_device = _needs_device("set_device", "Make a device the current one.")
set_rng_state = _needs_device("set_rng_state", "Set the state of a device's generator.")
synchronize = _needs_device("synchronize", "Wait until a device has done all its work.")


class Stream:
    """A queue of work on a device.

    Errors: DeviceError where there is no device.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise _no_device("Stream")


class Event:
    """A mark in a stream.

    Errors: DeviceError where there is no device.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise _no_device("Event")
