"""The backend's namespace: one object per device, with the array API's names and the extras that
operations use. A name that is not here is a gap: asking for it raises BackendGap.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import torch

from ...core.errors import BackendGap
from . import execution
from .array import Array, allocating, find_namespace_by, torch_dtype, unwrap

F = TypeVar("F", bound=Callable[..., Any])

FUNCTIONS: dict[str, Any] = {}  # name -> function of arrays
MAKERS: dict[str, Any] = {}  # name -> function that makes an array of nothing, given a device
linalg, fft = SimpleNamespace(), SimpleNamespace()
_DATA = (float, int, bool, complex)


def extra(function: F) -> F:
    """Add `function` to the namespace under its own name."""
    FUNCTIONS[function.__name__] = function
    return function


def named(name: str) -> Callable[[F], F]:
    """Add a function under a name that hides one of Python's."""

    def add(function: F) -> F:
        FUNCTIONS[name] = function
        return function

    return add


def maker(function: F) -> F:
    """Add a function whose first argument is the device on which it makes an array."""
    MAKERS[function.__name__] = allocating(function)
    return function


class TorchNamespace:
    """Array namespace that computes on one PyTorch device."""

    has_routines = True  # for composites (`routines.py`), and for lists of tensors (`many.py`)

    def __init__(self, device: Any) -> None:
        self.device = device
        self.linalg, self.fft = linalg, fft

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found: Any = FUNCTIONS.get(name)
        if found is None and name in MAKERS:
            make, device = MAKERS[name], self.device

            def found(*args: Any, **kwargs: Any) -> Any:
                return make(device, *args, **kwargs)

        if found is None:
            found = getattr(np, name, None)
            if not isinstance(found, (type, np.dtype, *_DATA)):
                raise BackendGap(
                    f"{name} on backend 'torch'; compose it from operations that exist, or move "
                    "the tensor to the CPU with .cpu()"
                )
        setattr(self, name, found)
        return found

    run = execution.run

    def __repr__(self) -> str:
        return f"<namespace of torch device {self.device}>"


_spaces: dict[Any, TorchNamespace] = {}


def on(device: Any) -> TorchNamespace:
    """The namespace of a PyTorch device."""
    namespace = _spaces.get(device)
    if namespace is None:
        namespace = _spaces[device] = TorchNamespace(device)
    return namespace


find_namespace_by(on)


# ---- arrays of nothing ---------------------------------------------------------------------------


def _shape(shape: Any) -> tuple[int, ...]:
    return (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(map(int, shape))


@maker
def zeros(device: Any, shape: Any, dtype: Any = float) -> Array:
    """Zeros."""
    return Array(torch.zeros(_shape(shape), dtype=torch_dtype(dtype), device=device))


@maker
def ones(device: Any, shape: Any, dtype: Any = float) -> Array:
    """Ones."""
    return Array(torch.ones(_shape(shape), dtype=torch_dtype(dtype), device=device))


@maker
def empty(device: Any, shape: Any, dtype: Any = float) -> Array:
    """Uninitialised memory."""
    return Array(torch.empty(_shape(shape), dtype=torch_dtype(dtype), device=device))


@maker
def full(device: Any, shape: Any, value: Any, dtype: Any = None) -> Array:
    """An array filled with one number."""
    kind = torch_dtype(np.asarray(value).dtype if dtype is None else dtype)
    return Array(torch.full(_shape(shape), unwrap(value), dtype=kind, device=device))


@maker
def arange(device: Any, *bounds: Any, dtype: Any = None) -> Array:
    """Numbers in steps."""
    kind = torch_dtype(np.result_type(*bounds) if dtype is None else dtype)
    return Array(torch.arange(*bounds, dtype=kind, device=device))


@maker
def eye(device: Any, n: int, m: int | None = None, dtype: Any = float) -> Array:
    """Ones on the diagonal."""
    kind = torch_dtype(dtype)
    return Array(torch.eye(n, n if m is None else m, dtype=kind, device=device))


@maker
def asarray(device: Any, x: Any, dtype: Any = None, **_: Any) -> Array:
    """An array as it is, or converted; numbers and NumPy arrays moved to the device."""
    from .array import from_host

    if type(x) is Array:
        result: Array = x
        return result if dtype is None else result.astype(dtype, copy=False)
    if isinstance(x, (bool, int, float, complex, np.generic)):
        kind = torch_dtype(np.asarray(x).dtype if dtype is None else dtype)
        return Array(torch.full((), unwrap(x), dtype=kind, device=device))
    if isinstance(x, (list, tuple)) and any(type(each) is Array for each in x):
        joined: Array = FUNCTIONS["stack"](x)
        return joined if dtype is None else joined.astype(dtype)
    return from_host(np.asarray(x, dtype), device)


@maker
def array(device: Any, x: Any, dtype: Any = None) -> Array:
    """A copy on the device."""
    converted = asarray(device, x, dtype)
    return converted.copy() if converted is x else converted
