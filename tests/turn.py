"""Whose turn it is: what `.ci/run` shows beside `make test` is chosen by the commit's hash, so that
all of it is shown in turn.

`python -m tests.turn` says what that is, `python -m tests.turn seventh` (or `python`, `processor`)
one of them, and `python -m tests.turn on x86-64-v3 COMMAND ...` runs a command as if on such a
processor: its kernels, and the libraries that look at the processor themselves.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from .pythons import VERSIONS, interpreter

PROCESSORS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")  # psABI's levels: SSE4.2, AVX2, AVX-512
PARTS = 7  # of the sweep


class Turn(NamedTuple):
    """What is shown of a commit."""

    seventh: int
    python: str
    processor: str


def turn(commit: str, pythons: list[str], processors: list[str]) -> Turn:
    """What is shown of the commit of this hash, of what there is."""
    number = int(commit, 16)
    number, seventh = divmod(number, PARTS)
    number, python = divmod(number, len(pythons))
    return Turn(seventh, pythons[python], processors[number % len(processors)])


def here() -> tuple[str, Turn]:
    """The commit that is checked out, and its turn on this machine."""
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"],
        cwd=Path(__file__).parent, capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    pythons = [version for version in VERSIONS if interpreter(version) is not None]
    return commit, turn(commit, pythons or ["none"], [*reached()])


def reached() -> list[str]:
    """The levels that this machine has, the narrowest first."""
    from adjoint.backends.codegen.target import host, narrowed
    from adjoint.core.errors import AdjointError

    found = []
    for level in PROCESSORS:
        try:
            narrowed(host().features, level)
        except AdjointError:
            break
        found.append(level)
    return found or ["this"]


def environment(processor: str) -> dict[str, str]:
    """The variables by which libraries take this machine for such a processor."""
    from numpy._core import _multiarray_umath as numpy_core

    if processor == "this":
        return {}
    level = PROCESSORS.index(processor)
    features = [name for name in numpy_core.__cpu_dispatch__ if numpy_core.__cpu_features__[name]]
    return {
        "ADJOINT_CPU": processor,
        "ONEDNN_MAX_CPU_ISA": ("SSE41", "AVX2", "AVX512_CORE")[level],
        "ATEN_CPU_CAPABILITY": ("default", "avx2", "avx512")[level],
        "NPY_DISABLE_CPU_FEATURES": " ".join(n for n in features if level < _level(n)),
    }


def _level(feature: str) -> int:
    """The least level that has one of NumPy's names for instructions; beyond the last: 3."""
    if feature.startswith(("AVX512", "X86_V4")):
        return 2 if feature in ("AVX512F", "AVX512CD", "AVX512_SKX", "X86_V4") else 3
    return 1 if feature in ("AVX", "F16C", "FMA3", "AVX2", "X86_V3") else 0


def main(arguments: list[str]) -> int:
    """What the arguments ask for."""
    if arguments[:1] == ["on"]:
        command = arguments[2:]
        return subprocess.run(
            command, env={**os.environ, **environment(arguments[1])}, check=False
        ).returncode
    commit, found = here()
    if arguments:
        print(getattr(found, arguments[0]))
    else:
        print(
            f"commit {commit[:8]}: of the sweep, seventh {found.seventh} (of 0 to {PARTS - 1}); "
            f"Python {found.python}; processor {found.processor}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
