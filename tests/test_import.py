"""`import adjoint` is quick and imports no optional library."""

from __future__ import annotations

import os
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


def test_import_does_no_more_than_numpys():
    """Calls and modules while importing, beside NumPy's own in the same process: counts, which no
    busy machine changes. The time itself: benchmarks/overhead.py.
    """
    program = """
import sys

def cost(name):
    calls, before = 0, set(sys.modules)
    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")
    sys.setprofile(count)
    __import__(name)
    sys.setprofile(None)
    new = {id(sys.modules[name]) for name in set(sys.modules) - before}  # some have two names
    return calls, len(new)

print(*cost("numpy"), *cost("adjoint"))
"""
    their_calls, _, our_calls, our_modules = map(int, run(program).split())
    assert our_calls < 1.5 * their_calls, "what is costly belongs behind its first use"
    # 329 on 2026-11-29: files of over 600 lines were split by their subjects, 26 of them in ops.
    # 332 with what draws again, conjugates that are views, and the dtypes of arguments. 338 with
    # trees, histories of aliases and the regions of graphs.
    assert our_modules < 342, "a library imported that its first use could import?"
