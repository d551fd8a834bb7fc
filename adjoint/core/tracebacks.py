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
    that this package, or a library that it called, did not raise on purpose.
    """
    trace = first = error.__traceback__
    kept: list[TracebackType] = []
    called: TracebackType | None = None  # by this package, last
    while trace is not None:
        if is_ours(trace.tb_frame.f_globals.get("__name__") or ""):
            called = trace.tb_next
        else:
            kept.append(trace)
        trace = trace.tb_next
    if "traceback" in debug.on or first is None:
        return
    if not isinstance(error, AdjointError) and (called is None or _is_librarys(called)):
        return
    for n, each in enumerate(kept):
        each.tb_next = kept[n + 1] if n + 1 < len(kept) else None
    rest = kept[0] if kept else None
    if first is not rest:
        first.tb_next = rest  # Python 3.10 raises on with the frame that handles it
    error.__traceback__ = rest


def _is_librarys(trace: TracebackType) -> bool:
    """Whether a frame is of Python's library, or of what was installed."""
    import sysconfig  # for errors alone

    file = trace.tb_frame.f_code.co_filename
    folders = (sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
    return file.startswith(("<frozen", *folders))
