"""`torch.compiler`'s names, which programs mark code with, for `adjoint.compile`.

Source: https://docs.pytorch.org/docs/stable/torch.compiler_api.html

>>> ad.compiler.is_compiling(), ad.compiler.disable(len) is len
(False, True)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from .compiled import compile as compile
from .core.mode import MODE

__all__ = [
    "allow_in_graph", "assume_constant_result", "compile", "cudagraph_mark_step_begin", "disable",
    "is_compiling", "is_dynamo_compiling", "is_exporting", "list_backends", "set_stance",
]  # fmt: skip


def is_compiling() -> bool:
    """Whether a function is being captured as a program here."""
    executor = MODE.get().executor
    return executor is not None and hasattr(executor, "meet")


is_dynamo_compiling = is_compiling


def is_exporting() -> bool:
    """Whether PyTorch's exporter runs this: False."""
    return False


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """The function, or a decorator that gives it: what is captured means what Python means."""
    return _given if fn is None else fn


def _given(fn: Any) -> Any:
    return fn


allow_in_graph = assume_constant_result = _given


def list_backends(exclude_tags: Any = ()) -> list[str]:
    """What compiles.

    >>> ad.compiler.list_backends()
    ['inductor', 'native']
    """
    return ["inductor", "native"]


def cudagraph_mark_step_begin() -> None:
    """Nothing is to be marked.

    >>> ad.compiler.cudagraph_mark_step_begin()
    """


@contextlib.contextmanager
def set_stance(stance: str = "default", **options: Any) -> Iterator[None]:
    """Only the default stance is here, which changes nothing inside.

    Errors: Unsupported for another.
    """
    if stance != "default":
        from .core.errors import Unsupported

        raise Unsupported(
            f"set_stance: {stance!r}; compile with backend='eager' to compile nothing"
        )
    yield
