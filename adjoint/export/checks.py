"""What may stand in a file, a part at a time; everything else is a CheckpointError."""

from __future__ import annotations

from typing import Any

from ..core.errors import CheckpointError

MAX_TEXT = 1 << 16  # characters of a name or a message


def short(text: Any) -> str:
    """A name or a message, or a CheckpointError."""
    if type(text) is not str or len(text) > MAX_TEXT:
        raise CheckpointError(f"{text!r:.80} is no name or message")
    return text


def checked_list(x: Any) -> list[Any]:
    """A list, or a CheckpointError."""
    if type(x) is not list:
        raise CheckpointError(f"{x!r:.80} stands where a list belongs")
    return x


def checked_dict(x: Any) -> dict[Any, Any]:
    """A dict, or a CheckpointError."""
    if type(x) is not dict:
        raise CheckpointError(f"{x!r:.80} stands where a dict belongs")
    return x


def is_class_of(x: Any, kind: type) -> bool:
    """Whether it is a class that is derived from `kind`."""
    return isinstance(x, type) and issubclass(x, kind)
