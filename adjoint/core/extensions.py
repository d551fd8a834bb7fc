"""Extension modules of the core: which files Cython compiles, and whether the extension or the file
runs.

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
from types import ModuleType

__all__ = ["MODULES", "NOTE", "source_hash", "state"]

MODULES = (
    "adjoint.core.tensor_base",
    "adjoint.core.mode",
    "adjoint.core.signal_deferral",
    "adjoint.core.sized_tables",
    "adjoint.core.overrides",
    "adjoint.core.arrays",
    "adjoint.core.elements",
    "adjoint.ir.executable",
    "adjoint.compiler.guards.identity_guards",
    "adjoint.compiler.guards.code_observer",
    "adjoint.compiler.guards.slot_values",
    "adjoint.runtime.node",
    "adjoint.runtime.lazy",
    "adjoint.runtime.chains",
    "adjoint.runtime.cells",
    "adjoint.runtime.repeats",
    "adjoint.runtime.tensors",
    "adjoint.runtime.views",
    "adjoint.runtime.record",
    "adjoint.runtime.dispatch",
    "adjoint.runtime.writes",
    "adjoint.runtime.public",
    "adjoint.runtime.fused",
    "adjoint.runtime.op_functions",
    "adjoint.autograd.engine",
    "adjoint.autograd.recording",
    "adjoint.autograd.regions",
    "adjoint.ops.index.slicing",
    "adjoint.ops.index.indexing",
    "adjoint.ops.shape.movement",
    "adjoint.ops.elementwise.arithmetic",
    "adjoint.ops.elementwise.pointwise",
    "adjoint.ops.random.twister",
    "adjoint.ops.special.incomplete_gamma",
    "adjoint.backends.native.runtime.launch_list",
    "adjoint.optim.formula",
    "adjoint.core.tree",
    "adjoint.compiler.capture.result_tree",
    "adjoint.compiler.run.bindings",
    "adjoint.compiler.capture.step_counters",
    "adjoint.compiler.run.bound_call",
    "adjoint.compiler.guards.signature",
)
_PACKAGE = Path(__file__).parents[1]
NOTE = f"extensions.{sys.implementation.cache_tag}.txt"  # in the package: the sources' hash

_state = "interpreted"


def is_supported() -> bool:
    """Whether extensions may be built: free-threaded Pythons are not supported."""
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def source_hash(package: Path = _PACKAGE) -> str:
    """Hash of all sources of the extensions."""
    text = b""
    for name in MODULES:
        file = package.parent / (name.replace(".", "/") + ".py")
        text += file.read_bytes() + file.with_suffix(".pxd").read_bytes()
    return importlib.util.source_hash(text).hex()


def state() -> str:
    """The state of the core: "compiled", or "interpreted" and the reason."""
    return _state


class _Files:
    """Import finder that finds the core's Python files before their extensions."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of the Python file of a module that has an extension; None for other modules."""
        if name not in MODULES:
            return None
        file = _PACKAGE.parent / (name.replace(".", "/") + ".py")
        loader = importlib.machinery.SourceFileLoader(name, str(file))
        return importlib.util.spec_from_file_location(name, file, loader=loader)


def _choose() -> None:
    """Choose between extensions and files, before any of them is imported."""
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


if __name__ == "adjoint.core.extensions":  # and not loaded by setup.py
    _choose()
