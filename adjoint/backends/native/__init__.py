"""The native backend: generated machine code and oneDNN under eager execution of large arrays.

`enable` makes it serve; its parts are imported when the first large array is computed with. NumPy
stays the fallback, and the reference.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from ...core import config, dispatch_log
from ...core.errors import InvalidArgument, Unsupported
from ...ir import compute

__all__ = ["enable", "load", "reason_off", "unusable"]

_reason: str | None = "not enabled"


def enable(on: bool = True) -> bool:
    """Let the native backend compute what it can of large arrays; returns whether it does."""
    global _reason
    _reason = _missing() if on else "switched off"
    compute.accelerate = _first if _reason is None else None
    compute.moving = _moving if _reason is None else None
    compute.forget()
    return _reason is None


def reason_off() -> str | None:
    """Why NumPy computes everything; None where it does not."""
    return _reason


def unusable() -> str | None:
    """Why NumPy computes everything, for what is about to need kernels: loads what makes them."""
    load()
    return _reason


def _missing() -> str | None:
    wish = config.read("ADJOINT_BACKEND")
    if wish not in ("auto", "numpy", "native"):
        raise InvalidArgument(f"ADJOINT_BACKEND={wish}: expected auto, numpy or native")
    if wish == "numpy":
        return "ADJOINT_BACKEND=numpy"
    if importlib.util.find_spec("llvmlite") is None:
        return "llvmlite is not installed; pip install 'adjoint[native]'"
    return None


def load() -> bool:
    """Import the parts that make kernels; False where that fails, and from then on NumPy computes
    everything.
    """
    global _reason
    if _reason is not None:
        return False
    try:
        from ..codegen.target import host
        from .lowering import composite, kernel_execution, multi_tensor  # noqa: F401

        host()  # raises where the processor is one that no kernels are made for
    except (ImportError, OSError, Unsupported) as error:
        if str(getattr(error, "name", "")).startswith("adjoint."):
            raise  # a mistake of ours
        _reason = f"{type(error).__name__}: {error}"
        compute.accelerate = compute.moving = None
        dispatch_log.fell_back("the native backend", "NumPy", _reason)
    return _reason is None


def _first(op: Any, arrays: list[Any]) -> Any:
    """The first large op: from now on `execution.accelerate` is asked."""
    if not load():
        return NotImplemented
    from .lowering.composite import chained
    from .lowering.kernel_execution import accelerate
    from .runtime.array_memory import use_in

    compute.prepare_contexts(use_in)
    if compute.accelerate is _first:
        compute.accelerate, compute.chained = accelerate, chained
    return accelerate(op, arrays)


def _moving() -> Any:
    """The namespace of the routines that move elements; None where they cannot be loaded."""
    if not load():
        return None
    from .lowering import large_arrays

    if compute.moving is _moving:
        compute.moving = lambda: large_arrays
    return large_arrays
