"""Log of how each call is executed, and why: printed by `ADJOINT_DEBUG=dispatch`, enforced by
`ADJOINT_STRICT=1`.

    softmax (64, 1000) float32: kernel
    sort (3, 5) float32: NumPy: at most 32 elements
    cum_prod (64, 1000) float32: NumPy: multiply.accumulate

A call that is decided says so; those that a cache answers later do not. Whoever decides asks `on`
before it words anything, so the log costs nothing where it is off.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from . import config, debug, policy
from .errors import AdjointError, FallbackError, NotTraceable

on = "dispatch" in debug.on
strict = config.read("ADJOINT_STRICT") == "1"
_lines: set[str] = set()


def named(name: str, inputs: Iterable[Any]) -> str:
    """Description of a call for the log: its name, and the inputs' shapes and dtypes.

    >>> import numpy as np
    >>> named("mul", [np.zeros((2, 3)), 2.0])
    'mul (2, 3) float64, 2.0'
    """
    words = [f"{tuple(x.shape)} {x.dtype}" if hasattr(x, "shape") else repr(x) for x in inputs]
    return f"{name} {', '.join(words)}".strip()


def said(what: str, way: str, reason: object = "") -> None:
    """Print how a call is executed; each distinct line once, and only while the log is on."""
    if not on:
        return
    line = f"{what}: {way}: {reason}" if str(reason) else f"{what}: {way}"
    if line not in _lines:
        if len(_lines) >= policy.DISPATCH_LINES:
            _lines.clear()
        _lines.add(line)
        print(line, file=sys.stderr)


def fell_back(what: str, way: str, reason: object) -> None:
    """Report that a slower way than expected was taken; FallbackError in strict mode.

    Errors: FallbackError where `strict`.
    """
    said(what, way, reason)
    if strict:
        raise FallbackError(f"{what}: expected a kernel, but it is computed by {way}: {reason}")


def is_ours(author: object) -> bool:
    """Whether an op or a function is defined in this package."""
    return str(getattr(author, "__module__", "")).startswith("adjoint.")


def reason_of(error: Exception, author: object) -> str:
    """The reason, as text, why a capture ended with `error` and a slower way is taken.

    `author` is the op or function that was captured. Whatever happens in one of a user's may be due
    to what symbols do not know; if it is a mistake, the slower way raises it. In our own it is a
    mistake, and raised, unless it was raised on purpose.
    """
    on_purpose = isinstance(error, (NotTraceable, AdjointError))
    if not on_purpose and is_ours(author):
        raise error
    return str(error) if on_purpose else f"{type(error).__name__}: {error}"


@contextlib.contextmanager
def strictly() -> Iterator[None]:
    """Context manager: a slower way where a kernel is expected is an error, in all threads."""
    global strict
    before, strict = strict, True
    try:
        yield
    finally:
        strict = before
