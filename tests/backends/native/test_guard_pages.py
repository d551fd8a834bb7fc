"""The kernels' tests once more with every array between forbidden pages, in child processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("llvmlite")

from adjoint.backends import native
from tests.sweep import swept

pytestmark = [
    pytest.mark.skipif(native.unusable() is not None, reason=str(native.unusable())),
    pytest.mark.skipif(sys.platform != "linux", reason="mprotect"),
]

ROOT = Path(__file__).parents[3]
HERE = "tests/backends/native"
RUNS: dict[str, list[str]] = {
    "compiler": [
        "tests/backends/codegen/test_kernels.py",
        "-k",
        "edges or softmax or argmax or random and 2",
    ],
    "reductions": ["tests/backends/codegen/test_reductions.py"],
    "fuzz": ["tests/backends/codegen/test_fuzz.py", "-k", "memory and last"],
    "eager": [
        f"{HERE}/lowering/test_kernel_execution.py",
        "-k",
        "random or every_time or values and Su",
    ],
    "composites": [f"{HERE}/lowering/test_fused.py", "-k", "strides or random or special"],
    "optimizers": [
        f"{HERE}/lowering/test_optimizer_kernels.py",
        "-k",
        "not freed and not float16 and not loaded",
    ],
    "in place": [f"{HERE}/lowering/test_inplace_kernels.py"],
    "numbers": [f"{HERE}/lowering/test_scalars.py"],
    "moves": [
        f"{HERE}/indexing/test_movement_kernels.py",
        f"{HERE}/indexing/test_copies.py",
        f"{HERE}/indexing/test_ranking.py",
    ],
    "draws": [f"{HERE}/test_draws.py", "-k", "bits or integers or masks or perm"],
    "registry": [f"{HERE}/test_fuzz.py", "-m", ""],  # of all ops
    "routines": [f"{HERE}/test_determinism.py", "-k", "every_run"],
    "pooling": [f"{HERE}/onednn/test_max_pooling.py"],
    "products": [f"{HERE}/gemm/test_gemm.py", "-k", "tile or bias or nothing"],
    "recurrent": [f"{HERE}/test_recurrent.py", "-k", "strided or cell"],
    "triangular": [f"{HERE}/gemm/test_triangular.py", "-k", "layouts or batches or gradient"],
    "mistakes": ["tests/peers/test_error_heads.py", "-m", "", "-k", "what_was_called"],
    "attention": [f"{HERE}/test_attention.py", "-k", "values or masks or strides"],
}


def child(arguments: list[str]) -> Any:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "ADJOINT_NUM_THREADS": "3", "FUZZ_CASES": "100"},
    )


@pytest.mark.parametrize("name", [n if n == "numbers" else swept(n) for n in RUNS])
def test_nothing_outside_the_arrays_is_touched(name: str) -> None:
    options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist"]
    ended = child(
        ["-m", "pytest", "-p", "tests.backends.native.guarded_memory", *options, *RUNS[name]]
    )
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    assert " passed" in ended.stdout or "100%" in ended.stdout


BEGIN = """
import ctypes
from tests.backends.native import guarded_memory
import numpy as np
guarded_memory.install()
x = [np.zeros(n, np.float32) for n in (3, 5, 1024)]
"""
WRONG = {
    "behind": "ctypes.string_at(x[1].ctypes.data + 20, 1)",
    "before": "ctypes.string_at(x[2].ctypes.data - 1, 1)",
    "freed": "at = x[0].ctypes.data; del x[0]; ctypes.string_at(at, 1)",
    "kernel": """
from adjoint.backends.codegen import Compiled, Kernel
k = Kernel(rank=1)
k.output(k.input("float32") + 1)
Compiled(k)(np.lib.stride_tricks.as_strided(x[1], (6,), (4,)))
""",
    "result": """
import adjoint as ad
y = ad.tensor(x[2]).exp()._data
for place in (-1, y.nbytes):
    pid = __import__("os").fork()
    if not pid:
        ctypes.string_at(y.ctypes.data + place, 1)
        __import__("os")._exit(0)
    seen = __import__("os").waitpid(pid, 0)[1]
    if seen:
        __import__("os").kill(__import__("os").getpid(), seen & 127)
""",
}


@pytest.mark.parametrize("name", WRONG)
def test_the_guards_bite(name: str) -> None:
    ended = child(["-c", BEGIN + WRONG[name]])
    assert -ended.returncode in (signal.SIGSEGV, signal.SIGBUS), ended.stderr


RIGHT = {
    "elements": "x[0][2] = x[1][4] = x[2][-1] = 1; y = x[2] + x[2]; y.resize(5000)",
    "nothing": """
from adjoint.backends.codegen import Compiled, Kernel
k = Kernel(rank=3)
k.output(k.sum(k.input("float64")))
for empty in [np.empty((1, 2, 0), np.float64) for _ in range(3)]:  # memory of one byte
    assert empty.strides == (0, 0, 0) and Compiled(k)(empty) == 0
""",
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_left_alone(name: str) -> None:
    ended = child(["-c", BEGIN + RIGHT[name]])
    assert ended.returncode == 0, ended.stderr
