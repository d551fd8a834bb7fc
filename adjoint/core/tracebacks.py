"""Tracebacks without this package's frames, between which a user would look for the own lines.

Errors are looked at where they are caught anyway: by public functions, modules, compiled calls and
the backward pass. Nothing here runs in a call that succeeds. `ADJOINT_DEBUG=traceback` keeps all.
"""

from __future__ import annotations

from types import TracebackType

from . import debug
from .errors import AdjointError
from .package import NAME

__all__ = ["cut", "is_ours"]


def is_ours(module: str) -> bool:
    """Whether a module of that name is of this package."""
    return module == NAME or module.startswith(NAME + ".")


def cut(error: BaseException) -> None:
    """Drop this package's frames from the traceback of an error that is being handled, and raised
    on by a bare `raise` (which then adds no frame). Frames of others stay, as does all of an error
    that this package, or NumPy called by it, did not raise on purpose.
    """
    trace = first = error.__traceback__
    kept: list[TracebackType] = []
    module = ""
    while trace is not None:
        module = trace.tb_frame.f_globals.get("__name__") or ""
        if not is_ours(module):
            kept.append(trace)
        trace = trace.tb_next
    if "traceback" in debug.on or first is None:
        return
    if not isinstance(error, AdjointError) and (is_ours(module) or _is_numpys(module)):
        return
    for n, each in enumerate(kept):
        each.tb_next = kept[n + 1] if n + 1 < len(kept) else None
    rest = kept[0] if kept else None
    if first is not rest:
        first.tb_next = rest  # Python 3.10 raises on with the frame that handles it
    error.__traceback__ = rest


def _is_numpys(module: str) -> bool:
    return module.partition(".")[0] == "numpy"
