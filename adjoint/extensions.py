"""Which files of the core Cython compiles, and which of both runs: the extension, or the file.

The files are Python and mean the same either way. An extension that is older than its sources never
runs: there is a warning, and the files are interpreted. `ADJOINT_COMPILED=0` selects them, too.
This file imports nothing of ours: `setup.py` loads it alone, and `adjoint` before all else.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["MODULES", "NOTE", "source_hash", "state"]

MODULES = (
    "adjoint.core.tensor_base",
    "adjoint.core.mode",
    "adjoint.core.overrides",
    "adjoint.eager.arrays",
    "adjoint.eager.elements",
    "adjoint.program.executable",
    "adjoint.program.standing",
    "adjoint.program.watch",
    "adjoint.graph.node",
    "adjoint.graph.lazy",
    "adjoint.graph.chains",
    "adjoint.graph.cells",
    "adjoint.eager.tensors",
    "adjoint.eager.views",
    "adjoint.eager.record",
    "adjoint.eager.dispatch",
    "adjoint.eager.writes",
    "adjoint.eager.public",
    "adjoint.eager.fused",
    "adjoint.eager.operators",
    "adjoint.autograd.engine",
    "adjoint.autograd.recording",
    "adjoint.ops.index.slicing",
    "adjoint.ops.index.indexing",
    "adjoint.ops.shape.movement",
    "adjoint.ops.elementwise.arithmetic",
    "adjoint.ops.elementwise.pointwise",
    "adjoint.backends.native.runtime.sequence",
    "adjoint.optim.formula",
    "adjoint.compiled.form",
    "adjoint.compiled.handover",
    "adjoint.compiled.counting",
    "adjoint.compiled.course",
    "adjoint.compiled.signature",
)
_PACKAGE = Path(__file__).parent
NOTE = f"extensions.{sys.implementation.cache_tag}.txt"  # beside this file: the sources' hash

_state = "interpreted"


def is_supported() -> bool:
    """Whether extensions may be built: free-threaded Pythons are not supported."""
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def source_hash(package: Path = _PACKAGE) -> str:
    """Of all that the extensions are made from."""
    text = b""
    for name in MODULES:
        file = package.parent / (name.replace(".", "/") + ".py")
        text += file.read_bytes() + file.with_suffix(".pxd").read_bytes()
    return importlib.util.source_hash(text).hex()


def state() -> str:
    """How the core runs: "compiled", or "interpreted" and why."""
    return _state


class _Files:
    """Finds the files of the core before its extensions."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: Any = None) -> Any:
        """The file of a module that there is an extension of; None for others."""
        if name not in MODULES:
            return None
        file = _PACKAGE.parent / (name.replace(".", "/") + ".py")
        loader = importlib.machinery.SourceFileLoader(name, str(file))
        return importlib.util.spec_from_file_location(name, file, loader=loader)


def _choose() -> None:
    """Decide which runs, before any of them is imported."""
    global _state
    note = _PACKAGE / NOTE
    if os.environ.get("ADJOINT_COMPILED", "") == "0":
        _state = "interpreted: ADJOINT_COMPILED=0"
    elif not is_supported():
        _state = "interpreted: free-threaded Python is not supported"
    elif not note.exists():
        _state = "interpreted: no extensions were built (was there a C compiler?)"
    elif note.read_text().strip() != source_hash():
        _state = "interpreted: the extensions are older than their sources"
        warnings.warn(
            "adjoint: the compiled core is older than its sources and is not used; build it again "
            "(make build, or pip install -e .)",
            RuntimeWarning,
            stacklevel=2,
        )
    else:
        _state = "compiled"
        return
    sys.meta_path.insert(0, _Files)  # type: ignore[arg-type]


if __name__ == "adjoint.extensions":  # and not loaded by setup.py
    _choose()
