"""The documented way to write a backend of one's own: the example's, beside the CPU."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parent.parent.parent

PROGRAM = """
import io, sys
sys.path.insert(0, "examples")
import own_backend
import adjoint as ad

F = ad.nn.functional
CASES = {
    "softmax": lambda x: F.softmax(x, 1),
    "conv2d": lambda x: F.conv2d(x, x[:, :, :2, :2]),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "layer_norm": lambda x: F.layer_norm(x, (4,)),
    "max_pool2d": lambda x: F.max_pool2d(x, 2),
    "slices": lambda x: x[:, 1:, ::2] * 2,
    "indices": lambda x: x[x[0, 0, 0].argsort() % 2],
    "a view is written through": lambda x: written(x),
    "cat": lambda x: ad.cat([x, x], 1),
    "sort": lambda x: x.sort(descending=True)[0],
    "where": lambda x: ad.where(x > 0, x, 0.0),
    "half": lambda x: (x.half() * 3).float(),
    "bfloat16": lambda x: (x.bfloat16() * 3).float(),
    "einsum": lambda x: ad.einsum("abcd->ab", x),
    "std": lambda x: x.std(0),
    "pad": lambda x: F.pad(x, (1, 2)),
    "gelu": lambda x: F.gelu(x),
    "saved": lambda x: saved(x),
    "copied": lambda x: x.clone(),
}

def written(x):
    y = x.clone()
    y[0].mul_(2).add_(1)
    y[1, 0] = 5.0
    return y

def saved(x):
    file = io.BytesIO()
    ad.save({"x": x}, file)
    file.seek(0)
    found = ad.load(file)["x"]
    assert found.device == x.device
    return found

ad.manual_seed(0)
x = ad.randn(2, 3, 4, 4)
for name, case in CASES.items():
    here = x.clone().requires_grad_()
    there = x.to("counting").requires_grad_()
    wanted, found = case(here), case(there)
    assert found.device == ad.device("counting"), name
    narrow = name in ("half", "bfloat16")  # a namespace decides how they are computed
    assert found.cpu().allclose(wanted, atol=0.05 if narrow else 1e-5), name
    if narrow:
        continue
    if name in ("indices", "sort"):  # whose gradients need functions that the example has not
        try:
            found.sum().backward()
        except ad.Unsupported as error:
            assert "on backend 'counting'" in str(error)
        continue
    if wanted.grad_fn is not None:
        (wanted * wanted).sum().backward()
        (found * found).sum().backward()
        assert there.grad.device == there.device, name
        assert there.grad.cpu().allclose(here.grad, atol=1e-4), name
for kind in ("SGD", "Adam", "RMSprop", "AdamW"):
    layer = ad.nn.Linear(3, 2)
    twin = ad.nn.Linear(3, 2)
    twin.load_state_dict(layer.state_dict())
    twin.to("counting")
    for model, place in ((layer, "cpu"), (twin, "counting")):
        optimizer = getattr(ad.optim, kind)(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(ad.ones(1, 3, device=place)).square().sum().backward()
            optimizer.step()
    assert twin.weight.cpu().allclose(layer.weight, atol=1e-5), kind
assert str(x.to("counting")[0, 0, 0]).endswith("device='counting')")
try:
    ad.linalg.svd(x.to("counting"))
except ad.Unsupported:
    pass
else:
    raise AssertionError("there is no svd")
try:
    x + x.to("counting")
except ad.DeviceError as error:
    assert "counting and cpu" in str(error) or "cpu and counting" in str(error)
try:
    ad.ones(1, device="nowhere")
except ad.DeviceError as error:
    assert "counting" in str(error)
print("done")
"""


def test_a_backend_of_ones_own_computes_as_the_cpu_does():
    path = os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH")) if p)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.stdout == "done\n", done.stderr
