"""`import adjoint` is quick and imports no optional library."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys

OPTIONAL = ("torch", "scipy", "sklearn", "matplotlib", "tqdm", "jax", "pandas", "llvmlite")


def run(program, **environment):
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, check=True, env={**os.environ, **environment},
    ).stdout  # fmt: skip


def test_import_brings_no_optional_library():
    loaded = run("import adjoint, sys; print(*(name for name in sys.modules if '.' not in name))")
    assert not set(loaded.split()) & set(OPTIONAL)


def test_import_takes_under_a_quarter_of_a_second(tmp_path):
    """Processor time, best of five, bytecode cached as after any first run."""
    program = (
        "import time; begin = time.process_time(); import adjoint; "
        "print(time.process_time() - begin)"
    )
    cached = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path)}
    times = [float(run(program, **cached)) for _ in range(6)][1:]
    assert min(times) < 0.25, f"import took {statistics.median(times):.3f} s"
