"""The native backend: generated machine code and oneDNN under eager execution of large arrays.

`enable` makes it serve; its parts are imported when the first large array is computed with. NumPy
stays the fallback, and the reference.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from ...core import config
from ...core.errors import InvalidArgument
from ...program import compute

__all__ = ["enable", "reason_off"]

_reason: str | None = "not enabled"


def enable(on: bool = True) -> bool:
    """Let the native backend compute what it can of large arrays; returns whether it does."""
    global _reason
    _reason = _unusable() if on else "switched off"
    compute.accelerate = _first if _reason is None else None
    compute.forget()
    return _reason is None


def reason_off() -> str | None:
    """Why NumPy computes everything; None where it does not."""
    return _reason


def _unusable() -> str | None:
    wish = config.read("ADJOINT_BACKEND")
    if wish not in ("auto", "numpy", "native"):
        raise InvalidArgument(f"ADJOINT_BACKEND={wish}: expected auto, numpy or native")
    if wish == "numpy":
        return "ADJOINT_BACKEND=numpy"
    if importlib.util.find_spec("llvmlite") is None:
        return "llvmlite is not installed; pip install 'adjoint[native]'"
    return None


def _first(op: Any, arrays: list[Any]) -> Any:
    """The first large op: from now on `execution.accelerate` is asked."""
    global _reason
    try:
        from .execution import accelerate
        from .memory import use_in
    except (ImportError, OSError) as error:
        _reason = f"{type(error).__name__}: {error}"
        compute.accelerate = None
        return NotImplemented
    compute.prepare_contexts(use_in)
    if compute.accelerate is _first:
        compute.accelerate = accelerate
    return accelerate(op, arrays)
