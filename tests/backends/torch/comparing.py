"""What the tests of the PyTorch backend compare with: the same on the CPU, by NumPy."""

from __future__ import annotations

import dataclasses

import numpy as np

import adjoint as ad
from adjoint.core.op import REGISTRY
from adjoint.runtime.dispatch import apply

TOLERANCE = {
    "float64": 1e-9, "complex128": 1e-9, "float32": 3e-5, "complex64": 3e-5,
    "float16": 4e-3, "bfloat16": 3.2e-2,
}  # fmt: skip


def samples():
    """Every sample of every registered op, with a name."""
    for name, cls in sorted(REGISTRY.items()):
        if name.startswith("adjoint."):
            for i, sample in enumerate(cls.samples()):
                yield f"{cls.__name__}-{sample.label or i}", sample


def outputs(value):
    return value if isinstance(value, tuple) else (value,)


def on_host(sample):
    return [ad.from_numpy(np.asarray(x)) if hasattr(x, "dtype") else x for x in sample.inputs]


def on_device(op, inputs, device):
    """The same op and inputs on a device; ops without tensors are told where to compute."""
    if not any(isinstance(x, ad.Tensor) for x in inputs) and hasattr(op, "device"):
        op = dataclasses.replace(op, device=ad.zeros(0, device=device).device)
    return op, [x.to(device) if isinstance(x, ad.Tensor) else x for x in inputs]


def wide(x):
    """A tensor's values in a precision in which they are compared."""
    x = x.detach().cpu().numpy()
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def assert_same(found, expected, device, tolerance=None):
    """Equal shapes, dtypes and values, on the device."""
    assert found.device == ad.zeros(0, device=device).device
    assert found.shape == expected.shape
    assert found.dtype is expected.dtype
    close = max(tolerance or 0, TOLERANCE.get(found.dtype.name, 0))
    np.testing.assert_allclose(wide(found), wide(expected), rtol=close, atol=close)


def gradients(op, inputs):
    """First and second derivatives along fixed cotangents; None where the op has no gradient."""
    leaves = [
        x.detach().requires_grad_() if isinstance(x, ad.Tensor) and x.dtype.category >= 2 else x
        for x in inputs
    ]
    ys = [y for y in outputs(apply(op, *leaves)) if y.requires_grad]
    wanted = [x for x in leaves if isinstance(x, ad.Tensor) and x.requires_grad]
    if not ys:
        return None
    seeds = [(ad.arange(y.numel()) % 5 + 1).reshape(y.shape).to(y) for y in ys]
    first = ad.autograd.grad(ys, wanted, seeds, create_graph=True, allow_unused=True)
    further = [g for g in first if g is not None and g.requires_grad]
    second = ()
    if further:
        ones = [ad.ones_like(g) for g in further]
        second = ad.autograd.grad(further, wanted, ones, allow_unused=True)
    return (*first, *second)
