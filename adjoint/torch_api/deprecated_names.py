"""PyTorch's older top-level switches and queries, in terms of the preferred ones."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from .. import backends
from ..autograd.modes import set_detect_anomaly
from ..backends.threads import (
    are_deterministic_algorithms_enabled,
    is_deterministic_algorithms_warn_only_enabled,
    use_deterministic_algorithms,
)
from ..core.device import as_device, get_default_device
from ..core.dtype import set_default_dtype
from ..core.errors import InvalidArgument, InvalidType
from ..core.faces import NAME
from ..core.mode import MODE, note_setting, note_switch
from ..namespaces import cpu, cuda
from ..ops.create.conversion import TensorType
from ..runtime.public import explaining
from ..tensor import Tensor

_LEVELS = ("default", "warn", "error")


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """`use_deterministic_algorithms` by a number or a word: 0 "default", 1 "warn", 2 "error".

    Errors: InvalidArgument for others; InvalidType for what is neither.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.set_deterministic_debug_mode.html

    >>> ad.set_deterministic_debug_mode("default")
    """
    if not isinstance(debug_mode, (int, str)):
        raise InvalidType(f"debug_mode must be str or int, but got {type(debug_mode)}")
    allowed = _LEVELS if isinstance(debug_mode, str) else range(3)
    if debug_mode not in allowed:
        raise InvalidArgument(
            f"invalid value of debug_mode, expected one of {', '.join(map(str, allowed))}, but got "
            f"{debug_mode}"
        )
    level = _LEVELS.index(debug_mode) if isinstance(debug_mode, str) else debug_mode
    use_deterministic_algorithms(level > 0, warn_only=level == 1)


def get_deterministic_debug_mode() -> int:
    """The last setting of `set_deterministic_debug_mode`, as a number.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.get_deterministic_debug_mode.html

    >>> ad.get_deterministic_debug_mode()
    0
    """
    if not are_deterministic_algorithms_enabled():
        return 0
    return 1 if is_deterministic_algorithms_warn_only_enabled() else 2


_always = [False]


def set_warn_always(b: bool) -> None:
    """Request warnings each time, where PyTorch gives some of them once. Here each goes to Python's
    `warnings` each time, whose filters decide.

    Errors: InvalidArgument for what is no bool.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.set_warn_always.html

    >>> ad.set_warn_always(False)
    """
    if not isinstance(b, bool):
        raise InvalidArgument(f"set_warn_always expects a bool, but got {type(b).__name__}")
    note_switch("set_warn_always")
    _always[0] = b


def is_warn_always_enabled() -> bool:
    """The last argument of `set_warn_always`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.is_warn_always_enabled.html

    >>> ad.is_warn_always_enabled()
    False
    """
    return note_setting(lambda: _always[0])


def set_anomaly_enabled(enabled: bool, check_nan: bool = True) -> None:
    """Older name of `autograd.set_detect_anomaly`.

    Errors: InvalidType for what is no bool.
    Source: https://docs.pytorch.org/docs/stable/autograd.html#anomaly-detection

    >>> ad.set_anomaly_enabled(False)
    """
    for name, value in (("enabled", enabled), ("check_nan", check_nan)):
        if not isinstance(value, bool):
            raise InvalidType(
                f"set_anomaly_enabled: {name} must be a bool, got {type(value).__name__}"
            )
    set_detect_anomaly(enabled, check_nan)


def is_anomaly_check_nan_enabled() -> bool:
    """Whether anomaly mode looks for NaN.

    Source: https://docs.pytorch.org/docs/stable/autograd.html#anomaly-detection

    >>> ad.is_anomaly_check_nan_enabled()
    True
    """
    return MODE.get().checks_nan


def set_default_tensor_type(t: Any) -> None:
    """`set_default_dtype` by a type such as `FloatTensor`, or its name.

    Errors: InvalidType for other types than those of floating point, and for devices' ones.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.set_default_tensor_type.html

    >>> ad.set_default_tensor_type(ad.FloatTensor)
    """
    tensor_type = t
    if isinstance(t, str):
        space, _, name = t.rpartition(".")
        is_ours = space in ("torch", "adjoint")
        tensor_type = getattr(importlib.import_module(NAME), name, None) if is_ours else None
    if not isinstance(tensor_type, TensorType) or not tensor_type.dtype.is_floating_point:
        raise InvalidType(
            f"set_default_tensor_type: only floating-point types of the CPU such as FloatTensor, "
            f"or their names, are supported as the default type, got {t!r}; set_default_dtype "
            "takes a dtype, set_default_device a device"
        )
    set_default_dtype(tensor_type.dtype)


def get_device_module(device: Any = None) -> ModuleType:
    """The module with a device's functions, `adjoint.cpu` or `adjoint.cuda`; by default that of the
    default device.

    Errors: DeviceError for a device that is not known.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.get_device_module.html

    >>> ad.get_device_module("cpu").__name__
    'adjoint.cpu'
    """
    kind = (get_default_device() if device is None else as_device(device)).type
    return cuda if kind == "cuda" else cpu


@explaining
def get_device(input: Tensor) -> int:
    """The number of the accelerator that a tensor is on; -1 for the CPU.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.get_device.html

    >>> ad.get_device(ad.ones(1))
    -1
    """
    return input.get_device()  # type: ignore[no-any-return]


@explaining
def is_distributed(input: Tensor) -> bool:
    """False: no tensor is distributed, in PyTorch neither.

    >>> ad.is_distributed(ad.ones(1))
    False
    """
    if not isinstance(input, Tensor):
        raise InvalidType(f"is_distributed: expected a tensor, got {type(input).__name__}")
    return False


@explaining
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether both have the same shape.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.equal.html

    >>> ad.is_same_size(ad.ones(2), ad.ones(2, 1))
    False
    """
    return input.is_same_size(other)  # type: ignore[no-any-return]


def init_num_threads() -> None:
    """Does nothing: the number of threads is known from the start.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.set_num_threads.html
    """


def thread_safe_generator() -> None:
    """None: workers of a DataLoader are processes, each with its own generator."""


def is_vulkan_available() -> bool:
    """False, as in PyTorch's builds for CPUs."""
    return False


@explaining
def cudnn_is_acceptable(input: Tensor) -> bool:
    """Whether PyTorch's cuDNN would compute with a tensor: one on CUDA.

    >>> ad.cudnn_is_acceptable(ad.ones(1))
    False
    """
    on_cuda = input.device.type == "cuda" and input.dtype.is_floating_point
    return bool(on_cuda and backends.cudnn.is_available())


has_lapack = True  # NumPy's
has_mkl = backends.mkl.is_available()
has_openmp = backends.openmp.is_available()
has_spectral = True  # transforms are `adjoint.fft`
