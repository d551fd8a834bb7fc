"""Type checks of a file's parts; each raises CheckpointError for anything unexpected."""

from __future__ import annotations

from typing import Any

from ...core.errors import CheckpointError

MAX_TEXT = 1 << 16  # characters of a name or a message


def short(text: object) -> str:
    """Return `text` if it is a name or a message of bounded length; CheckpointError if not."""
    if type(text) is not str or len(text) > MAX_TEXT:
        raise CheckpointError(f"{text!r:.80} is no name or message")
    return text


def checked_list(x: object) -> list[Any]:
    """Return `x` if it is a list; CheckpointError if not."""
    if type(x) is not list:
        raise CheckpointError(f"{x!r:.80} stands where a list belongs")
    return x


def checked_dict(x: object) -> dict[Any, Any]:
    """Return `x` if it is a dict; CheckpointError if not."""
    if type(x) is not dict:
        raise CheckpointError(f"{x!r:.80} stands where a dict belongs")
    return x


def is_class_of(x: object, kind: type) -> bool:
    """Whether `x` is a class derived from `kind`."""
    return isinstance(x, type) and issubclass(x, kind)
