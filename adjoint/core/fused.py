"""`@fused`: a composite that eager execution may run as a few kernels instead of op by op."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, cast, overload

import numpy as np

from . import compute
from .device import is_device_array
from .mode import MODE

__all__ = ["fused"]

F = TypeVar("F", bound=Callable[..., Any])

SMALLEST = compute.SMALL  # elements of the first argument from which kernels pay


@overload
def fused(function: F) -> F: ...
@overload
def fused(*, native: str, always: bool = ...) -> Callable[[F], F]: ...
def fused(function: Any = None, *, native: str = "", always: bool = False) -> Any:
    """Declare that `function` may run as kernels, forward and backward, derived from its ops.

    It takes positional arguments: tensors, the largest one first, and hashable values. It returns a
    tensor or a tuple of them, and does nothing else: no checks, warnings, draws or writes. What it
    means is what its ops mean; where they are recorded, or too small, or no kernel can be made,
    they run one by one.

    `native` names a module of `backends.native` for what cannot be derived, such as loops over
    time: its `plan(specs, statics, wants)` makes a `Routine` (see `autograd.fusion`). A recorder
    may take such a composite as a whole: its `composite(function, native, args)` returns the
    result, or NotImplemented. `always` says that it pays for tensors of every size.
    """
    if function is None:
        return functools.partial(_declare, native=native, always=always)
    return _declare(function, native, always)


def _declare(function: F, native: str, always: bool) -> F:
    plans: dict[Any, Any] = {}

    @functools.wraps(function)
    def run(*args: Any) -> Any:
        mode = MODE.get()
        if mode.fuses:
            data = args[0]._data
            few = compute.accelerate is None or (data.size < SMALLEST and not always)
            if few and not is_device_array(data):
                return function(*args)
            return _execute(function, native, plans, args)
        whole = getattr(mode.executor, "composite", None) if native else None
        found = NotImplemented if whole is None else whole(function, native, args)
        return function(*args) if found is NotImplemented else found

    return cast(F, run)


def is_fusing(x: Any) -> bool:
    """Whether a composite of `x` runs as kernels of the host here, if there are any for it."""
    return MODE.get().fuses and type(x._data) is np.ndarray and pays((x,))


def pays(args: tuple[Any, ...]) -> bool:
    """Whether there are kernels, and the arguments are large enough for them."""
    return compute.accelerate is not None and args[0]._data.size >= SMALLEST


Executor: TypeAlias = "Callable[[Callable[..., Any], str, dict[Any, Any], tuple[Any, ...]], Any]"


def _one_by_one(
    function: Callable[..., Any], native: str, plans: dict[Any, Any], args: tuple[Any, ...]
) -> Any:
    return function(*args)


_execute: Executor = _one_by_one


def connect(execute: Executor) -> None:
    """Set what runs fused composites (called once, where the layers are wired together)."""
    global _execute
    _execute = execute
