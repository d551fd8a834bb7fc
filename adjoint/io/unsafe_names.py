"""Finds the names in a PyTorch file that would have to be allowed: it is read, and nothing is
built.
"""

from __future__ import annotations

import pickletools
from collections.abc import Iterator
from typing import Any

from ..core.errors import CheckpointError
from .pytorch_file import is_legacy, text_of_archive
from .pytorch_names import find
from .restricted_pickle import MAX_PICKLE
from .source import named, opened
from .zip_archive import Archive


def get_unsafe_globals_in_checkpoint(f: Any) -> list[str]:
    """The names in a PyTorch file that `load` would refuse, sorted; empty where it needs none.

    Errors: CheckpointError for a file that is not one of PyTorch's.
    Source: https://docs.pytorch.org/docs/stable/notes/serialization.html#torch.serialization.get_unsafe_globals_in_checkpoint

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "x.pt")
    >>> ad.save([ad.ones(2)], path)
    >>> ad.serialization.get_unsafe_globals_in_checkpoint(path)
    []
    """
    with opened(f) as source, named(source):
        head = source.head(64)
        if head[:2] == b"PK":
            names = set(_names(text_of_archive(Archive(source))[1], 1))
        elif is_legacy(head):
            names = set(_names(source.head(MAX_PICKLE), 5))
        else:
            raise CheckpointError("the file is not one of PyTorch's")
        return sorted(f"{module}.{name}" for module, name in names if not _is_known(module, name))


def _is_known(module: str, name: str) -> bool:
    try:
        find(module, name)
    except CheckpointError:
        return False
    return True


def _names(data: bytes, count: int) -> Iterator[tuple[str, str]]:
    """The names in `count` pickles that follow each other."""
    position = 0
    for _ in range(count):
        texts: list[str] = []  # the last two on the stack, as far as names are concerned
        memo: dict[int, str] = {}
        opcode: Any
        argument: Any
        place: Any
        for opcode, argument, place in pickletools.genops(data[position:]):
            code = opcode.name
            if code == "GLOBAL":
                module, _, name = argument.partition(" ")
                yield module, name
            elif code == "STACK_GLOBAL" and len(texts) > 1:
                yield texts[-2], texts[-1]
            elif isinstance(argument, str):
                texts = [*texts[-1:], argument]
            elif code == "MEMOIZE":
                memo[len(memo)] = texts[-1] if texts else ""
            elif code in ("BINPUT", "LONG_BINPUT"):
                memo[argument] = texts[-1] if texts else ""
            elif code in ("BINGET", "LONG_BINGET"):
                texts = [*texts[-1:], memo.get(argument, "")]
            elif code == "STOP":
                position += place + 1
