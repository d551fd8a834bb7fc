"""A `__repr__` that says what an object is: its class, and the arguments it was made with.

>>> class Steps:
...     def __init__(self, size, gamma=0.1, last=-1):
...         self.size, self.gamma, self.done = size, gamma, 4
...     _in_repr = ("done",)
...     __repr__ = argument_repr
>>> Steps(30)
Steps(size=30, done=4)
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from typing import Any

__all__ = ["argument_repr"]

_PLAIN = (int, float, complex, bool, str, bytes, type(None), range, slice)
_ABSENT: Any = object()


def argument_repr(x: object) -> str:
    """`Name(argument=value, ...)`, to be put into a class as `__repr__`.

    Arguments of the constructor are shown that the object keeps under their name, with or without
    `_` in front, and that are not the default; behind them attributes of `_in_repr`. Nothing is
    computed: tensors and arrays are told by their shapes, functions by their names, other objects
    by their classes.
    """
    kind: Any = type(x)
    kept: Mapping[str, Any] = getattr(x, "__dict__", {})
    shown = getattr(kind, "_in_repr", ())
    texts = []
    for name, default in _arguments(kind):
        if name in shown:
            continue
        value = kept.get(name, kept.get(f"_{name}", _ABSENT))
        if value is not _ABSENT and not _is_default(value, default):
            texts.append(f"{name}={_short(value)}")
    for name in shown:
        texts.append(f"{name.lstrip('_')}={_short(kept.get(name))}")
    return f"{kind.__name__}({', '.join(texts)})"


@functools.lru_cache(512)
def _arguments(kind: type) -> tuple[tuple[str, Any], ...]:
    """Names of the constructor's arguments, with their defaults."""
    try:
        parameters = inspect.signature(kind).parameters.values()
    except (TypeError, ValueError):  # one in C
        return ()
    return tuple((each.name, each.default) for each in parameters)


def _is_default(value: object, default: object) -> bool:
    return value is default or (
        type(value) is type(default) and type(value) in _PLAIN and value == default
    )


def _short(value: Any, longest: int = 40, depth: int = 2) -> str:
    """A value in so many characters, by no code of a user's class; lists in so many others."""
    kind = type(value)
    if kind in _PLAIN:
        text = repr(value)
        return text if len(text) <= longest else f"{text[: longest - 4]}...{text[-1]}"
    if kind in (list, tuple, dict):
        if len(value) > 4 or not depth:
            return f"<{len(value)} items>"
        inside = ", ".join(
            each if kind is dict and type(each) is str else _short(each, longest, depth - 1)
            for each in value
        )
        return f"[{inside}]" if kind is list else f"({inside})" if kind is tuple else f"<{inside}>"
    if isinstance(value, type) or inspect.isroutine(value):
        return str(getattr(value, "__qualname__", kind.__name__))
    known = kind.__module__.partition(".")[0] in ("adjoint", "numpy")
    shape = getattr(value, "shape", None) if known else None
    return f"<{kind.__name__}>" if shape is None else f"<{kind.__name__} {tuple(shape)}>"
