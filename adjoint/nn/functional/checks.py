"""Checks of values: at once, or, in a function that is being captured, at each of its runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.mode import MODE


def are_known() -> bool:
    """Whether values can be read now: not so in a function that is being captured."""
    return not hasattr(MODE.get().executor, "note_check")


def refuse_where(wrong: Any, error: Callable[[], Exception]) -> None:
    """Raise `error()` where `wrong`, a tensor of one boolean, is true."""
    note = getattr(MODE.get().executor, "note_check", None)
    if note is not None:
        note(wrong, error)
    elif bool(wrong):
        raise error()
