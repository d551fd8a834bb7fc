"""`ADJOINT_DEBUG`: what each level says on stderr, and nothing else."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest

from adjoint.backends import native
from adjoint.core import debug

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = """
import adjoint as ad
factor = [3.0]
step = ad.compile(lambda x: ((x * 1 - 0.0).exp() * factor[0]).sum(0), name="step")
step(ad.ones(2, 3))
factor[0] = 4.0
step(ad.ones(2, 3))
"""


def heard(levels, tmp_path):
    """The lines on stderr of a process that starts with no kernels kept."""
    environment = {
        **os.environ, "ADJOINT_DEBUG": levels, "ADJOINT_CACHE_DIR": str(tmp_path / "cache"),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()


@pytest.fixture(autouse=True)
def _needs_kernels():
    if native.unusable() is not None:
        pytest.skip(f"native backend: {native.unusable()}")


def test_from_why_to_the_code(tmp_path):
    lines = heard("compile,passes,kernels,code", tmp_path)
    levels = [line.split(":")[0] for line in lines]
    assert set(levels) == {"compile", "passes", "kernels", "code"}
    text = "\n".join(lines)
    assert "compile: step: program 1, first call\n" in text
    assert "compile: step: program 2, what factor contains was changed, read (" in text
    assert "compile:   argument 0: (2, 3) float32\n" in text
    assert re.search(r"compile:   read elsewhere, .*\bfactor\b", text)
    assert "passes: drop_identities: 1 changes, 5 -> 4 nodes\n" in text
    assert "passes: exact_algebra: 1 changes, 4 -> 3 nodes\n" in text
    assert re.search(r"passes:   %1 = exp\(%0\) +float32\[2, 3\]\n", text)
    assert re.search(r"kernels:   %\d = exp %\d : float32 \(0, 1\)\n", text)
    assert re.search(r"kernels: \w{12}: compiled: .*No such file", text)
    assert re.search(r"code: define void @k\w+\(", text) and re.search(r"code:\s+\.globl", text)
    symbol = re.search(r"kernels: (k\w{12}): LoopLayout", text)[1]
    assert text.index("passes: fuse_kernels: ") < text.index(symbol) < text.index(f"@{symbol}")


def test_one_level_alone_and_none(tmp_path):
    assert {line.split(":")[0] for line in heard("passes", tmp_path)} == {"passes"}
    assert heard("", tmp_path) == []


def test_every_level_is_in_the_table():
    page = (ROOT / "docs" / "compiler.md").read_text(encoding="utf-8")
    table = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", page, re.M))
    assert {name: table.get(name) for name in debug.LEVELS} == debug.LEVELS
