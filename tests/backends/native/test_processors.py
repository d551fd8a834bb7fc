"""Processors narrower than this one: which kernels are made, and that NumPy computes without."""

import os
import subprocess
import sys

import pytest

from adjoint.backends import native
from adjoint.backends.codegen import target
from tests.sweep import swept

pytest.importorskip("llvmlite", reason="llvmlite is not installed")

PROGRAM = """
import warnings
import adjoint as ad
from adjoint.backends import native
ad.manual_seed(0)
x = ad.randn(100, 100)
with warnings.catch_warnings(record=True) as told:
    found = ad.compile(lambda x: (x.tanh() * 2).sum())(x)
expected = (x.double().tanh() * 2).sum()
assert abs(found.item() - expected.item()) < 1e-3, (found, expected)
assert ad.equal(x @ ad.eye(100), x)
print(native.unusable(), ad.backends.cpu.get_cpu_capability(), len(told), sep="|")
"""


@pytest.mark.skipif(
    bool(native.unusable()) or not target.host().has("avx2"), reason="AVX2 is what is narrowed"
)
@pytest.mark.parametrize(
    ("level", "said"),
    [
        ("x86-64-v2", "Unsupported: kernels on x86-64-v2: it has no fused multiply-add|DEFAULT|1"),
        swept(("x86-64-v3", "None|AVX2|0")),
    ],
)
def test_kernels_for_narrower_processors(level, said):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False,
        env={**os.environ, "ADJOINT_CPU": level, "ADJOINT_BACKEND": "auto"},
    )  # fmt: skip
    assert done.stdout.strip() == said, done.stderr
