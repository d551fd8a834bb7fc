"""Primitives (one class each, one file per family) and their compositions."""

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "nms":  # imported with its first use, as little is wanted by all programs
        from .index.boxes import nms

        return nms
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
