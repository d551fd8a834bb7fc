"""Functions and whole training steps as native programs: `ad.compile`, control flow in them, and
`torch.compiler`'s names, which programs mark code with. The folders are in the order of the
pipeline: capture, guards, passes, schedule, run, device; freeze, export and report stand on them.

Source: https://docs.pytorch.org/docs/stable/torch.compiler_api.html

>>> ad.compiler.is_compiling(), ad.compiler.disable(len) is len
(False, True)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any

from ..core.faces import load as _load
from ..core.mode import MODE

if _TYPE_CHECKING:
    from .capture.associative_scan import associative_scan as associative_scan
    from .capture.control import cond as cond
    from .capture.control import fori_loop as fori_loop
    from .capture.control import scan as scan
    from .capture.control import while_loop as while_loop
    from .function import CompiledFunction as CompiledFunction
    from .function import CompiledModule as CompiledModule
    from .function import compile as compile

__all__ = [
    "allow_in_graph", "assume_constant_result", "compile", "cudagraph_mark_step_begin", "disable",
    "is_compiling", "is_dynamo_compiling", "is_exporting", "list_backends", "set_stance",
]  # fmt: skip


_LATER = {
    "CompiledFunction": "function", "CompiledModule": "function", "compile": "function",
    "associative_scan": "capture.associative_scan", "cond": "capture.control",
    "fori_loop": "capture.control", "scan": "capture.control", "while_loop": "capture.control",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """What captures and compiles, which not all who import a part of this room need."""
    if name in _LATER:
        return getattr(_load(f"compiler.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})


def is_compiling() -> bool:
    """Whether a function is being captured as a program here."""
    executor = MODE.get().executor
    return executor is not None and hasattr(executor, "meet")


is_dynamo_compiling = is_compiling


def is_exporting() -> bool:
    """Whether PyTorch's exporter runs this: False."""
    return False


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """The function itself, or a decorator that returns it: captured code means what it means in
    Python.
    """
    return _given if fn is None else fn


def _given(fn: Any) -> Any:
    return fn


allow_in_graph = assume_constant_result = _given


def list_backends(exclude_tags: Any = ()) -> list[str]:
    """The names of compiler backends.

    >>> ad.compiler.list_backends()
    ['inductor', 'native']
    """
    return ["inductor", "native"]


def cudagraph_mark_step_begin() -> None:
    """Does nothing: no marks are needed.

    >>> ad.compiler.cudagraph_mark_step_begin()
    """


@contextlib.contextmanager
def set_stance(stance: str = "default", **options: Any) -> Iterator[None]:
    """Accepts only the default stance, which changes nothing inside.

    Errors: Unsupported for another.
    """
    if stance != "default":
        from ..core.errors import Unsupported

        raise Unsupported(
            f"set_stance: {stance!r}; compile with backend='eager' to compile nothing"
        )
    yield
