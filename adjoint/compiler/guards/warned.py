"""Warnings of a captured function: each call of its program gives them, as the function would."""

from __future__ import annotations

import sys
import threading
import types
import warnings
from typing import Any, NamedTuple, cast

from .code_names import of_compiler


class Warned(NamedTuple):
    """One warning, and where it points: at a frame of the function's, or `levels` above the call of
    the compiled function.
    """

    message: str | Warning
    category: type[Warning]
    source: object
    frame: tuple[str, int, dict[str, Any]] | None  # file, line and globals
    levels: int

    def give(self) -> None:
        """Warn, by the filters of now."""
        file, line, own = self.frame or _described(_above(sys._getframe(1), self.levels))
        warnings.warn_explicit(
            self.message, self.category, file, line, own.get("__name__") or "<string>",
            own.setdefault("__warningregistry__", {}), own, self.source,
        )  # fmt: skip


class WarningLog:
    """Context manager that writes warnings down, in order, where a function would give them."""

    def __init__(self) -> None:
        self.warned: list[Warned] = []
        self._thread = threading.get_ident()

    def __enter__(self) -> WarningLog:
        self._give, self._filters = warnings.warn, warnings.filters
        vars(warnings)["warn"] = self._warn
        return self

    def __exit__(self, *exception: object) -> None:
        vars(warnings)["warn"] = self._give

    def _warn(
        self, message: str | Warning, category: type[Warning] | None = None, stacklevel: int = 1,
        source: object = None, **more: object,
    ) -> None:  # fmt: skip
        if isinstance(message, Warning):
            category = type(message)
        category = category or UserWarning
        is_own = threading.get_ident() == self._thread and isinstance(category, type)
        # In a block of catch_warnings() it goes where that sends it.
        if not is_own or not issubclass(category, Warning) or warnings.filters is not self._filters:
            self._give(message, category, stacklevel + 1, source, **cast(Any, more))
            return
        skipped = cast(tuple[str, ...], more.get("skip_file_prefixes", ()))
        levels = max(stacklevel, 2 if skipped else 1)
        text = str(message)  # an error for what has no values yet
        frame: types.FrameType | None = sys._getframe(1)
        while levels > 1 and frame is not None and not of_compiler(frame.f_code):
            frame = frame.f_back
            if frame is None or not skipped or not frame.f_code.co_filename.startswith(skipped):
                levels -= 1
        place = None if frame is not None and of_compiler(frame.f_code) else _described(frame)
        message = message if isinstance(message, Warning) else text
        self.warned.append(Warned(message, category, source, place, levels))


def _described(frame: types.FrameType | None) -> tuple[str, int, dict[str, Any]]:
    if frame is None:
        return "<sys>", 0, vars(sys)
    return frame.f_code.co_filename, frame.f_lineno, frame.f_globals


def _above(frame: types.FrameType | None, levels: int) -> types.FrameType | None:
    """The frame so many levels above those of the compiler, the first of which is 1."""
    while frame is not None and (levels > 1 or of_compiler(frame.f_code)):
        levels -= not of_compiler(frame.f_code)
        frame = frame.f_back
    return frame
