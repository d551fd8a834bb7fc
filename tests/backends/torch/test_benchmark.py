"""The benchmark of GPUs runs, in small, on the CPU."""

from __future__ import annotations

import os
import subprocess
import sys


def test_it_prints_its_tables():
    found = subprocess.run(
        [sys.executable, "-m", "benchmarks", "cuda", "--device", "torch", "--smoke"],
        capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert not found.returncode, found.stderr
    for name in ("GPT, autocast", "ResNet-18", "MLP", "32 x 32", "bfloat16; a copy", "softmax"):
        assert name in found.stdout
