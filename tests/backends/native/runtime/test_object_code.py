"""Code of the library's own: compiled by one process, read from disk by the next."""

import os
import re
import subprocess
import sys

import pytest

from adjoint.backends import native

if native.unusable() is not None:
    pytest.skip("no native backend", allow_module_level=True)

from adjoint.backends.native.gemm import gemm
from adjoint.backends.native.onednn import plan
from adjoint.backends.native.runtime import (
    block_cache,
    launch_list,
    object_code,
    parallel_sections,
    worker_loop,
)

TEXTS = {
    "block_cache": block_cache.text,
    "worker_loop": worker_loop.text,
    "sequence": launch_list._text,
    "regions": parallel_sections._text,
    "plan": plan._text,
    "gemm": lambda: gemm._LIMITED,
}
STEPS = """
import adjoint as ad
from adjoint.backends.codegen.target import Target
compiled = []
compile = Target.compile
Target.compile = lambda self, text: compiled.append(text) or compile(self, text)
ad.manual_seed(0)
model = ad.nn.Sequential(ad.nn.Linear(64, 64), ad.nn.ReLU(), ad.nn.Linear(64, 64))
optimizer = ad.optim.Adam(model.parameters())
def step(x):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss
x = ad.randn(64, 64)
losses = [f(x).item() for f in (ad.compile(step), step, ad.compile(step)) for _ in range(3)]
print(len(compiled), losses)
"""


@pytest.mark.parametrize("name", TEXTS)
def test_no_address_of_this_process_is_kept(name):
    assert not re.search(r"inttoptr *\(i64 [1-9]", TEXTS[name]())


def test_a_second_process_compiles_nothing(tmp_path):
    paths = os.pathsep.join(sys.path)
    environment = {**os.environ, "PYTHONPATH": paths, "ADJOINT_CACHE_DIR": str(tmp_path)}
    found = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", STEPS], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        found.append(done.stdout.split(" ", 1))
    (first, losses), (second, again) = found
    assert int(first) > 10 and second == "0" and again == losses


def test_code_is_loaded_once():
    writer = "tests.backends.native.runtime.test_object_code"
    text = "define i64 @one() { ret i64 1 }\ndefine i64 @two() { ret i64 2 }"
    found = object_code.library(writer, lambda: text, ["one", "two"])
    assert found == object_code.library(writer, lambda: text, ["one", "two"])
    assert len(set(found)) == 2
