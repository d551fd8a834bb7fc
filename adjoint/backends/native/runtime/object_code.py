"""Functions written as LLVM IR: compiled once, kept on disk, loaded once a process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType

from ....core import fork_safety
from ...codegen import cache, target
from ...codegen.target import Target

_loading = fork_safety.lock()  # two threads would compile the same twice; a finalizer may come
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
    """The addresses of the functions of these names in the `text()` of the module `writer`. Its
    sources determine the text: no address of this process is in it.

    Errors: Unsupported where no code can be generated.
    """
    return _kept(cache.digest(writer, *names, repr(target.host())), text, names)


def _kept(name: str, text: Callable[[], str], symbols: Sequence[str]) -> tuple[int, ...]:
    with _loading:
        addresses = _loaded.get(name)
        if addresses is None:
            addresses = _loaded[name] = target.kept(name, text, *symbols)
    return addresses


def of_text(text: str, names: Sequence[str]) -> tuple[int, ...]:
    """The addresses of the functions of these names in a text that is compiled now, since it
    contains addresses of this process.

    Errors: Unsupported where no code can be generated.

    >>> import ctypes
    >>> from adjoint.backends.native.runtime import object_code
    >>> [address] = object_code.of_text("define i64 @one() { ret i64 1 }", ["one"])
    >>> ctypes.CFUNCTYPE(ctypes.c_int64)(address)()
    1
    """
    return target.load(target.host().compile(text), *names)
