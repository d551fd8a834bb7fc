"""A text corpus that every machine has: the source code of Python's standard library."""

from __future__ import annotations

import sysconfig
from pathlib import Path

from ..core.errors import InvalidArgument, Unsupported


def source_code(size: int | None = None) -> str:
    """The source of the standard library's modules in alphabetical order, about 5 MB of text.

    `size` is the number of characters wanted, from the beginning. Modules only, not packages;
    the text is the same for the same Python version.

    Errors: InvalidArgument where `size` is negative or more than there is; Unsupported where Python
    came without its sources.
    Source: https://docs.python.org/3/library/sysconfig.html#sysconfig.get_path

    >>> text = ad.data.source_code(100_000)
    >>> len(text), "def " in text
    (100000, True)
    """
    if size is not None and size < 0:
        raise InvalidArgument(f"source_code: size must not be negative, got {size}")
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    if not files:
        raise Unsupported(
            f"source_code: {sysconfig.get_path('stdlib')} holds no sources; use another text"
        )
    parts, length = [], 0
    for file in files:
        if size is not None and length >= size:
            break
        parts.append(file.read_text("utf-8"))
        length += len(parts[-1])
    if size is not None and length < size:
        raise InvalidArgument(f"source_code: there are {length} characters, {size} were asked for")
    return "".join(parts)[:size]
