"""The benchmark of GPUs runs, in small, on the CPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

import adjoint as ad


@pytest.mark.sweep
def test_it_prints_its_tables():
    found = subprocess.run(
        [sys.executable, "-m", "benchmarks", "cuda", "--device", "torch", "--smoke"],
        capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert not found.returncode, found.stderr
    for name in ("GPT, autocast", "ResNet-18", "MLP", "32 x 32", "bfloat16; a copy", "softmax"):
        assert name in found.stdout
    for name in ("AdamW: eager", "momentum: eager", "Compiled groups"):
        assert name in found.stdout
    assert re.search(r"torch\.compile +not run", found.stdout)
    assert "only CUDA records" in found.stdout


@pytest.mark.skipif(ad.cuda.is_available(), reason="there is a CUDA device")
def test_what_was_not_run_says_so():
    found = subprocess.run(
        [sys.executable, "-m", "benchmarks", "cuda"], capture_output=True, text=True
    )
    assert not found.returncode, found.stderr
    assert found.stdout.count("not run") == 8
