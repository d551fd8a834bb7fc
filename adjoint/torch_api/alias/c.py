"""`torch._C`: the names that packages read of PyTorch's own extension, as far as they are true."""

from __future__ import annotations

import enum
from typing import Any

import adjoint

from ...autograd.levels import current
from ...core.errors import LinalgError as _LinAlgError
from ...core.errors import MissingName
from ...core.mode import MODE, mode_with, switched
from ...core.overrides import DisableTorchFunction as DisableTorchFunction
from ...core.overrides import DisableTorchFunctionSubclass, disabled, is_unasked
from ...core.tensor_base import TensorBase
from ...nn.modules.module import _parse_to

__all__ = ["DisableTorchFunctionSubclass", "DispatchKey", "DispatchKeySet", "TensorBase"]

_TensorBase = TensorBase
_TensorMeta = type(adjoint.Tensor)
_has_cuda = _has_mps = _has_xpu = False  # what PyTorch's library was built for
assert issubclass(_LinAlgError, RuntimeError)


class DispatchKey(enum.Enum):
    """Keys of PyTorch's dispatcher that packages name."""

    Undefined = 0
    CPU = 1
    CUDA = 2
    XPU = 3
    Meta = 4
    AutogradCPU = 5
    AutogradCUDA = 6
    AutocastCPU = 7
    AutocastCUDA = 8
    AutocastXPU = 9
    CompositeImplicitAutograd = 10
    CompositeExplicitAutograd = 11


class DispatchKeySet:
    """A set of dispatch keys."""

    def __init__(self, *keys: DispatchKey) -> None:
        self.keys = frozenset(keys)

    def __or__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(*self.keys | other.keys)

    def has(self, key: DispatchKey) -> bool:
        """Whether a key is among them."""
        return key in self.keys


def _ExcludeDispatchKeyGuard(keys: DispatchKeySet) -> switched:  # noqa: N802
    """A block in which what the keys stand for does not happen: autocast; others are refused."""
    others = [key.name for key in keys.keys if not key.name.startswith("Autocast")]
    if others:
        raise MissingName(f"torch._C._ExcludeDispatchKeyGuard: {others}; there is no dispatcher")
    return switched(mode_with(MODE.get(), autocast=None))


_disabled_torch_function_impl = disabled
_disabled_torch_dispatch_impl = disabled  # a class that has it has none


def _is_torch_function_enabled() -> bool:
    """Whether subclasses of Tensor say here what functions do with them."""
    return not is_unasked()


_is_torch_function_all_disabled = is_unasked


class _nn:  # noqa: N801 - PyTorch's name
    """Functions that PyTorch's modules ask of its extension."""

    @staticmethod
    def _parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
        """Device, dtype, non_blocking and memory format that the arguments of `to` ask for."""
        where, kind = _parse_to(*args, **kwargs)
        flags = [each for each in args if isinstance(each, bool)]
        blocking = kwargs.get("non_blocking", flags[0] if flags else False)
        return where, kind, blocking, kwargs.get("memory_format")


class Value:
    """TorchScript's class of graph values, for annotations."""


class Graph:
    """TorchScript's class of graphs, for annotations."""


class Node:
    """TorchScript's class of graph nodes, for annotations."""


class Function:
    """TorchScript's class of functions, for annotations."""


def _get_tracing_state() -> None:
    """None: TorchScript traces nothing here."""


def _log_api_usage_once(event: str) -> None:
    """Does nothing: no use is logged."""


def _are_functorch_transforms_active() -> bool:
    """Whether a transform of `func` runs here."""
    return current() is not None


def _get_accelerator(check: bool | None = None) -> Any:
    """The CPU: there is no other under the alias."""
    return adjoint.device("cpu")


def _get_privateuse1_backend_name() -> str:
    """Name of the backend for custom devices: none is registered, so the default."""
    return "privateuseone"


def _cuda_isInBadFork() -> bool:  # noqa: N802
    """False: there is no CUDA here that a fork could break."""
    return False


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module 'torch._C' has no attribute {name!r}")
    raise MissingName(f"torch._C.{name}: PyTorch's extension in C++ is not here")
