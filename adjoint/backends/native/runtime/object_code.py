"""Functions written as LLVM IR: compiled once, kept on disk, loaded once a process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from types import ModuleType

from ....kernels import cache, target
from ....kernels.target import Target

_loading = threading.RLock()  # two threads would compile the same twice; a finalizer may come
_loaded: dict[str, tuple[int, ...]] = {}


def load(
    writer: ModuleType, what: str, text: Callable[[Target, str], str], entries: Sequence[str]
) -> tuple[int, ...]:
    """The addresses of the functions `symbol`.entry of text(target, symbol).

    `writer` is the module that writes the text: with `what`, the target and all sources, the text
    is determined, so that it need not be written where the code is on disk.

    Errors: Unsupported where no code can be generated.
    """
    host = target.host()
    name = cache.digest(writer.__name__, what, repr(host))
    symbol = "o" + name
    return _kept(name, lambda: text(host, symbol), [f"{symbol}.{entry}" for entry in entries])


def library(writer: str, text: Callable[[], str], names: Sequence[str]) -> tuple[int, ...]:
    """The same for functions that have these names in the `text()` of the module `writer`, which
    its sources determine: no address of this process is in it.

    Errors: Unsupported where no code can be generated.
    """
    return _kept(cache.digest(writer, *names, repr(target.host())), text, names)


def _kept(name: str, text: Callable[[], str], symbols: Sequence[str]) -> tuple[int, ...]:
    with _loading:
        found = _loaded.get(name)
        if found is None:
            found = _loaded[name] = target.kept(name, text, *symbols)
    return found


def of_text(text: str, names: Sequence[str]) -> tuple[int, ...]:
    """The same, compiled now, of text in which there are addresses of this process.

    Errors: Unsupported where no code can be generated.

    >>> import ctypes
    >>> from adjoint.backends.native.runtime import object_code
    >>> [address] = object_code.of_text("define i64 @one() { ret i64 1 }", ["one"])
    >>> ctypes.CFUNCTYPE(ctypes.c_int64)(address)()
    1
    """
    return target.load(target.host().compile(text), *names)


def _after_fork() -> None:
    """Another thread may have been loading when the process was forked."""
    global _loading
    _loading = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
