"""Peak memory of a training step, ours and PyTorch's, each in a fresh process."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from tests.native import needs_native

from .sweep import swept

PROGRAM = """
import sys
framework, kind = sys.argv[1:]
if framework == "torch":
    import torch as t
    t.set_num_threads(1)
else:
    import adjoint as t
nn = t.nn

def make(kind):
    if kind == "batches":
        model = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
        return model, (lambda n: t.randn(n, 3, 64, 64)), 64
    if kind == "mlp":
        model = nn.Sequential(
            nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(),
            nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
        return model, (lambda n: t.randn(n, 512)), 4096
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 8 * 8, 10))
    return model, (lambda n: t.randn(n, 3, 32, 32)), 256

model, batch, size = make(kind)
optimizer = t.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.CrossEntropyLoss()

def step(x, y):
    optimizer.zero_grad()
    count = 4 if kind == "batches" else 1
    for part, wanted in zip(x.chunk(count), y.chunk(count)):
        criterion(model(part), wanted).backward()
    optimizer.step()

if framework == "compiled":
    step = t.compile(step)
step(batch(8), t.arange(8) % 10)  # brings in what is loaded on first use
x, y = batch(size), t.arange(size) % 10

def status(field):  # not getrusage, whose maximum a child inherits from its parent
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))

before = status("VmRSS")
step(x, y)
print(status("VmHWM") - before)
"""


def peak(framework, kind):
    """Bytes that one step adds at its peak; "compiled" is ours."""
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, framework, kind],
        capture_output=True, text=True, check=True, timeout=600,
    )  # fmt: skip
    return int(result.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/status")
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
@pytest.mark.parametrize("kind", ["mlp", swept("cnn")])
def test_a_step_needs_no_more_memory_than_in_pytorch(kind):
    theirs, ours = peak("torch", kind), peak("adjoint", kind)
    if ours > theirs:  # each may have been unlucky
        theirs, ours = min(theirs, peak("torch", kind)), min(ours, peak("adjoint", kind))
    print(f"{kind}: ours {ours / 2**20:.1f} MiB, PyTorch {theirs / 2**20:.1f} MiB")
    assert theirs > 50 * 2**20, "the step must dominate what else the process does"
    assert ours <= theirs + 2**20


@pytest.mark.sweep
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/status")
@needs_native
def test_a_compiled_step_of_several_batches_needs_the_memory_of_one_at_a_time():
    """It needs no more than an eager step, which frees each batch's before the next one's."""
    eager, ours = peak("adjoint", "batches"), peak("compiled", "batches")
    print(f"eager {eager / 2**20:.1f} MiB, compiled {ours / 2**20:.1f} MiB")
    assert eager > 40 * 2**20, "the step must dominate what else the process does"
    assert ours <= eager + 4 * 2**20
