"""Devices, and the backend that serves each kind of array."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .errors import DeviceError, Unsupported

if TYPE_CHECKING:
    import numpy as np

__all__ = ["device", "get_default_device", "set_default_device"]


KINDS = ["cpu", "cuda", "torch", "meta"]  # and those of further backends
# PyTorch's others: a device may be one, so that programs can compare with it; none is here.
NAMED = frozenset((
    "fpga", "hip", "hpu", "ideep", "ipu", "lazy", "maia", "mkldnn", "mps", "mtia", "opencl",
    "opengl", "privateuseone", "ve", "vulkan", "xla", "xpu",
))  # fmt: skip


class device:  # noqa: N801 - PyTorch's name
    """Where a tensor's data lives, such as `device("cpu")` or `device("cuda", 0)`.

    `device("torch")` is PyTorch's memory on the CPU: what runs there runs the same way on CUDA.

    Errors: DeviceError for an unknown kind or a malformed string.
    Source: https://docs.pytorch.org/docs/stable/tensor_attributes.html#torch.device

    >>> ad.device("cuda:1").index
    1
    """

    __slots__ = ("index", "type")
    type: str
    index: int | None

    def __init__(self, type: Any, index: int | None = None) -> None:
        if isinstance(type, device):
            type, index = type.type, type.index if index is None else index
        if isinstance(type, int):
            type, index = "cuda", type
        kind, colon, number = type.partition(":")
        if not type:
            raise DeviceError("device: Device string must not be empty; give 'cpu'")
        if not (kind in KINDS or kind in NAMED):
            raise DeviceError(
                f"device: Invalid device string: {type!r}; Expected one of {', '.join(KINDS)} "
                f"device type at start of device string: {kind}"
            )
        if colon and not number.isdecimal():
            raise DeviceError(f"device: Invalid device string: '{type}'; give a number, as cuda:0")
        object.__setattr__(self, "type", kind)
        object.__setattr__(self, "index", int(number) if colon else index)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("device is immutable")

    def __repr__(self) -> str:
        inner = f"type='{self.type}'"
        return f"device({inner})" if self.index is None else f"device({inner}, index={self.index})"

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __reduce__(self) -> tuple[Any, ...]:
        return (device, (self.type, self.index))

    def __enter__(self) -> device:
        _defaults.entered.append(_defaults.device)
        set_default_device(self)
        return self

    def __exit__(self, *exc: Any) -> None:
        _defaults.device = _defaults.entered.pop()


CPU = device("cpu")


class _Defaults(threading.local):
    """Per-thread state: the default device, and those to restore after `with device(...)`."""

    def __init__(self) -> None:
        self.device = CPU
        self.entered: list[device] = []


_defaults = _Defaults()

# array type -> the backend's namespace (the "Mat" layer); filled by backends when imported
_namespaces: dict[type, Any] = {}
_finders: dict[type, Callable[[Any], Any]] = {}  # the same where it depends on the array's device
_devices: dict[type, Callable[[Any], device]] = {}
_loaders: dict[str, Callable[[], Any]] = {}  # kind of device -> what imports its backend
_watchers: list[Callable[[type], None]] = []


def register_backend(
    array_type: type, namespace: Any, device_of: Callable[[Any], device] = lambda array: CPU
) -> None:
    """Register `namespace` as the backend of arrays of `array_type`; `device_of(array)` is an
    array's device.
    """
    _namespaces[array_type] = namespace
    _devices[array_type] = device_of


def register_devices(
    array_type: type, find: Callable[[Any], Any], device_of: Callable[[Any], device]
) -> None:
    """Register a backend with one namespace per device: `find(array)` is the one that serves an
    array of `array_type`.
    """
    _finders[array_type] = find
    _devices[array_type] = device_of
    for watch in _watchers:
        watch(array_type)


def register_loader(kinds: tuple[str, ...], load: Callable[[], Any]) -> None:
    """Register `load`, which imports the module that serves devices of these kinds. The module has
    `resolve`, an existing device for a requested one; `space`, the namespace that makes arrays
    there; `transfer`, an array moved there.
    """
    for kind in kinds:
        _loaders[kind] = load
        if kind not in KINDS:
            KINDS.append(kind)


def watch_backends(watch: Callable[[type], None]) -> None:
    """Register a callback that receives the array type of each backend registered with
    `register_devices`.
    """
    _watchers.append(watch)


def namespace_of(array: object) -> Any:
    """The backend namespace that computes with `array`."""
    kind = type(array)
    if kind in _namespaces:
        return _namespaces[kind]
    if kind not in _finders:
        raise Unsupported(f"computing with a {kind.__name__}, which is no array")
    return _finders[kind](array)


def device_of(array: object) -> device:
    """The device on which `array` lives."""
    try:
        find = _devices[type(array)]
    except KeyError:
        raise Unsupported(f"the device of a {type(array).__name__}, which is no array") from None
    return find(array)


def as_device(value: device | str | int | None) -> device:
    """A device from a device, a string, or None for the default; DeviceError if it does not exist
    here.
    """
    if value is None:
        return _defaults.device
    named = value if isinstance(value, device) else device(value)
    if named.type == "cpu":
        return CPU
    return _backend(named).resolve(named)  # type: ignore[no-any-return]


def _backend(where: device) -> Any:
    load = _loaders.get(where.type)
    if load is None:
        raise DeviceError(
            f"device: no backend serves '{where}' in this version; use 'cpu', or check "
            "adjoint.cuda.is_available() first"
        )
    return load()


def space(where: device) -> Any:
    """The namespace that makes arrays on a device that exists."""
    return _host_space() if where.type == "cpu" else _backend(where).space(where)


def _host_space() -> Any:
    return next(iter(_namespaces.values()))  # NumPy's is the first to be registered


def is_device_array(array: object) -> bool:
    """Whether `array` is of a backend for devices other than the host."""
    return type(array) in _finders


def transfer(array: Any, where: device, non_blocking: bool = False) -> Any:
    """A copy of `array` on another device that exists."""
    there = device_of(array) if where.type == "cpu" else where
    if there.type == "cpu":
        return array.copy()
    return _backend(there).transfer(array, where, non_blocking)


def host_array(array: Any, memories: dict[int, Any]) -> Any:
    """`array` in the host's memory. Arrays that share memory still share it if one dict `memories`
    is passed for all of them.
    """
    if type(array) not in _finders:
        return array
    return _backend(device_of(array)).host_array(array, memories)


def pin(array: np.ndarray) -> np.ndarray:
    """A copy of a NumPy array in pinned memory, where CUDA is."""
    return _backend(device("cuda")).pin(array)


def is_pinned(array: object) -> bool:
    """Whether an array of the host is in pinned memory."""
    loaded = sys.modules.get("adjoint.backends.torch")
    return loaded is not None and bool(loaded.is_pinned(array))


def get_default_device() -> device:
    """The device on which tensors are made when none is named.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.get_default_device.html

    >>> ad.get_default_device()
    device(type='cpu')
    """
    return _defaults.device


def set_default_device(device: device | str | int | None) -> None:
    """Set the device on which tensors are made when none is named; None is the CPU.

    Errors: DeviceError for a device that does not exist here.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.set_default_device.html

    >>> ad.set_default_device("cpu")
    """
    _defaults.device = CPU if device is None else as_device(device)
