"""The levels of `ADJOINT_DEBUG`, which prints to stderr: from a call down to its machine code."""

from __future__ import annotations

import sys

from . import config
from .errors import InvalidArgument

LEVELS = {
    "dispatch": "which way each call went, and why (dispatch_log.py)",
    "compile": "why each program of ad.compile was compiled, and what it depends on",
    "traceback": "errors with the frames of this package, which are else cut (tracebacks.py)",
    "passes": "each program after each pass that changed it",
    "kernels": "each kernel as it is made, in its own form",
    "collectives": "errors where ranks are about to do different things (adjoint.distributed)",
    "code": "LLVM's text of each kernel, and the assembly that it becomes",
}


def asked() -> frozenset[str]:
    """The levels that `ADJOINT_DEBUG` names, separated by commas.

    Errors: InvalidArgument for another name.
    """
    words = frozenset(filter(None, config.read("ADJOINT_DEBUG").split(",")))
    for word in sorted(words.difference(LEVELS)):
        raise InvalidArgument(
            f"ADJOINT_DEBUG={word}: there is nothing of that name to debug; there are "
            f"{', '.join(LEVELS)} (several with commas)"
        )
    return words


on = asked()  # looked at before anything is worded, so it costs nothing where it is off


def say(level: str, text: str) -> None:
    """Print text of a level to stderr, each line prefixed with the level's name."""
    lines = text.splitlines() or [""]
    print("\n".join(f"{level}: {line}" if line else f"{level}:" for line in lines), file=sys.stderr)
