"""PyTorch as a backend: arrays that are PyTorch tensors, on the CPU (device "torch") and on CUDA.

Imported when the first such device is asked for; `import adjoint` does not import PyTorch.
"""

from __future__ import annotations

import contextlib
import functools
import os
import warnings
from typing import Any

import numpy as np
import torch

from ...core.device import device, register_devices
from ...core.errors import DeviceError, NoCuda
from .. import settings
from . import algebra, bessel_functions, reduction, selection, shaping, sliding_windows, ufuncs
from .array import Array, allocating, from_host, to_host
from .namespace import TorchNamespace, on

__all__ = [
    "Array", "Namespace", "device_of", "from_host", "host_array", "is_pinned", "pin", "place",
    "resolve", "space", "to_host", "transfer",
]  # fmt: skip

if torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1":
    with contextlib.suppress(ImportError):
        import triton  # noqa: F401 - before a function is captured, which would see it imported

# Importing them fills the namespace.
_MODULES = (algebra, bessel_functions, ufuncs, reduction, selection, shaping, sliding_windows)
_TORCH = device("torch")
_devices: dict[Any, device] = {}


def place(where: device) -> Any:
    """PyTorch's device for ours.

    Errors: DeviceError where there is none.
    """
    if where.type == "torch":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        why = "" if torch.version.cuda else "Torch not compiled with CUDA enabled; "
        raise NoCuda(
            f"device: {why}'{where}' needs a CUDA device, and PyTorch {torch.__version__} finds "
            "none: ask adjoint.cuda.is_available() first; use 'cpu', or 'torch', which computes "
            "the same way on the CPU"
        )
    count = torch.cuda.device_count()
    index = torch.cuda.current_device() if where.index is None else where.index
    if index >= count:
        names = "'cuda:0' is" if count == 1 else f"'cuda:0' to 'cuda:{count - 1}' are"
        raise DeviceError(f"device: '{where}' does not exist here: {names}; use that, or 'cpu'")
    return torch.device("cuda", index)


def device_of(array: Array) -> device:
    """Our name for where an array is."""
    torch_device = array.tensor.device
    named = _devices.get(torch_device)
    if named is None:
        named = _TORCH if torch_device.type == "cpu" else device("cuda", torch_device.index)
        _devices[torch_device] = named
    return named


def resolve(where: device) -> device:
    """The device that was asked for, with its number.

    Errors: DeviceError where there is none.
    """
    torch_device = place(where)
    return _TORCH if torch_device.type == "cpu" else device("cuda", torch_device.index)


def space(where: device) -> TorchNamespace:
    """The namespace of our device."""
    return on(place(where))


@allocating
def transfer(array: Any, where: device, non_blocking: bool = False) -> Any:
    """A copy of `array`, NumPy's or ours, on another device."""
    if type(array) is not Array:
        return from_host(array, place(where), non_blocking)
    if where.type == "cpu":
        on_host = to_host(array)
        return on_host.copy() if array.tensor.device.type == "cpu" else on_host
    target = place(where)
    if target == array.tensor.device:
        return array.copy()
    return Array(array.tensor.to(target, non_blocking=non_blocking))


def host_array(array: Array, memories: dict[int, Any]) -> Any:
    """`array` in the host's memory, as a part of its storage, of which `memories` has a copy."""
    t = array.tensor.detach().resolve_conj().resolve_neg()
    storage = t.untyped_storage()
    key = storage.data_ptr()
    if key not in memories or not storage.nbytes():
        whole = torch.empty(0, dtype=torch.uint8, device=t.device).set_(storage)
        memories[key] = whole.cpu().numpy()
    steps = [s * t.element_size() for s in t.stride()]
    start = t.storage_offset() * t.element_size()
    return np.ndarray(array.shape, array.dtype, memories[key], start, steps)


def pin(array: Any) -> Any:
    """A copy of a NumPy array in memory from which CUDA copies while the program goes on."""
    memory = torch.empty(array.nbytes, dtype=torch.uint8, pin_memory=True).numpy()
    pinned = memory.view(array.dtype).reshape(array.shape)
    pinned[...] = array
    return pinned


def is_pinned(array: Any) -> bool:
    """Whether a NumPy array lies in pinned memory."""
    if not torch.cuda.is_initialized() or not array.size:
        return False
    return bool(torch.from_numpy(array.reshape(-1)[:1].view(np.uint8)).is_pinned())


def _set(name: str, value: Any) -> None:
    """Give PyTorch a setting: its variable of that name, or the arguments of its function."""
    *path, last = name.split(".")
    owner = functools.reduce(getattr, path, torch)
    setting = getattr(owner, last)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer names for the same settings
        if callable(setting):
            setting(*value)
        elif owner is torch.backends.cudnn:  # whose variables some programs lock
            owner.set_flags(**{f"_{last}": value})
        else:
            setattr(owner, last, value)


register_devices(Array, lambda array: on(array.tensor.device), device_of)
settings.connect(_set)
