"""Optimizers of complex parameters: one kernel, of twice as many real numbers, as op by op."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.backends.native.lowering import multi_tensor
from tests.native import needs_native

pytestmark = needs_native

OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.05, "momentum": 0.9}), ("Adam", {"lr": 0.1, "amsgrad": True}),
    ("AdamW", {"lr": 0.1}), ("RMSprop", {"lr": 0.1, "centered": True}), ("Adagrad", {"lr": 0.1}),
    ("NAdam", {"lr": 0.1}), ("Rprop", {}), ("RAdam", {"lr": 0.1}), ("Adamax", {"lr": 0.1}),
]  # fmt: skip
SHAPES = [(3, 5), (7,), (), (0,), (70, 90)]


def trained(name: str, options: dict[str, Any], dtype: ad.dtype, way: str) -> list[np.ndarray]:
    ad.manual_seed(0)
    weights = [ad.randn(shape, dtype=dtype).requires_grad_() for shape in SHAPES]
    optimizer = getattr(ad.optim, name)(weights, **options)

    def step() -> Any:
        optimizer.zero_grad()
        loss = sum(((w - 0.5).abs() ** 2).sum() + w.real.sin().sum() for w in weights)
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = ad.compile(step) if way == "compiled" else step
    for _ in range(8):
        if way == "op by op":
            optimizer._kernels, optimizer._small_steps = None, -9
        run()
    return [w.detach().numpy() for w in weights]


@pytest.mark.parametrize("dtype", [ad.complex64, ad.complex128])
@pytest.mark.parametrize(("name", "options"), OPTIMIZERS, ids=[name for name, _ in OPTIMIZERS])
def test_kernels_compute_what_ops_compute(
    name: str, options: dict[str, Any], dtype: ad.dtype
) -> None:
    expected = trained(name, options, dtype, "op by op")
    before = multi_tensor.launches[0]
    found = trained(name, options, dtype, "by kernels")
    assert multi_tensor.launches[0] > before
    for way in (found, trained(name, options, dtype, "compiled")):
        for a, b in zip(way, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4 if dtype is ad.complex64 else 1e-10)


def test_real_and_complex_parameters_in_one_optimizer() -> None:
    weights = [ad.ones(3).requires_grad_(), ad.ones(3, dtype=ad.complex64).requires_grad_()]
    optimizer = ad.optim.Adam(weights, lr=0.1)

    @ad.compile
    def step() -> Any:
        optimizer.zero_grad()
        sum((w.abs() ** 2).sum() for w in weights).backward()
        optimizer.step()

    for _ in range(3):
        step()
    np.testing.assert_allclose(weights[1].detach().numpy().real, weights[0].detach().numpy())
