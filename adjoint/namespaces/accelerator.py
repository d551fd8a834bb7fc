"""The machine's accelerator of any make: CUDA, or none.

Source: https://docs.pytorch.org/docs/stable/accelerator.html

>>> device = ad.accelerator.current_accelerator() or "cpu"
>>> str(device) in ("cpu", "cuda")
True
"""

from __future__ import annotations

from typing import Any

from ..core.device import device as Device  # noqa: N812 - the parameters here are called device
from ..core.errors import DeviceError
from . import cuda

__all__ = [
    "current_accelerator", "current_device_index", "current_stream", "device_count", "empty_cache",
    "is_available", "set_device_index", "set_stream", "synchronize",
]  # fmt: skip


def is_available() -> bool:
    """Whether there is an accelerator that tensors can live on."""
    return cuda.is_available()


def device_count() -> int:
    """The number of the accelerator's devices."""
    return cuda.device_count()


def current_accelerator(check_available: bool = False) -> Device | None:
    """The accelerator's device, or None where there is none."""
    return Device("cuda") if cuda.is_available() else None


def _assert_there(name: str) -> None:
    if not cuda.is_available():
        raise DeviceError(
            f"accelerator.{name}: Cannot access accelerator device when none is available; ask "
            "adjoint.accelerator.is_available() first"
        )


def current_device_index() -> int:
    """The number of the current device.

    Errors: DeviceError where there is no accelerator.
    """
    _assert_there("current_device_index")
    return cuda.current_device()


def set_device_index(device: Any) -> None:
    """Make a device the current one.

    Errors: DeviceError where there is no accelerator.
    """
    _assert_there("set_device_index")
    cuda.set_device(device)


def current_stream(device: Any = None) -> Any:
    """The stream that work is queued on.

    Errors: DeviceError where there is no accelerator.
    """
    _assert_there("current_stream")
    return cuda.current_stream(device)


def set_stream(stream: Any) -> None:
    """Queue work on another stream.

    Errors: DeviceError where there is no accelerator.
    """
    _assert_there("set_stream")
    cuda.set_stream(stream)


def synchronize(device: Any = None) -> None:
    """Wait until a device has done all its work.

    Errors: DeviceError where there is no accelerator.
    """
    _assert_there("synchronize")
    cuda.synchronize(device)


def empty_cache() -> None:
    """Give cached memory of the devices back.

    Errors: DeviceError where there is no accelerator.
    """
    _assert_there("empty_cache")
    cuda.empty_cache()
