"""Launchers: kernels that are called as C functions, once an op has been computed before."""

from __future__ import annotations

import gc
import sys

import numpy as np
import pytest

import adjoint as ad
from adjoint.ir import compute as core_compute
from adjoint.ir import executable

pytest.importorskip("llvmlite", reason="llvmlite is not installed")

from adjoint.backends.codegen import Compiled, Kernel
from adjoint.backends.native.runtime.launch import launcher


def doubled(dtype="float32", outputs=1):
    k = Kernel(rank=2)
    x = k.input(dtype)
    for n in range(outputs):
        k.output(x * (n + 2))
    return Compiled(k)


def array(*shape, dtype="float32"):
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


def test_it_gives_what_the_kernel_gives():
    x = array(5, 7)
    launch = launcher(doubled(), [x], [(5, 7)])
    y = launch(x)
    assert y.dtype == x.dtype
    assert y.flags.owndata
    np.testing.assert_array_equal(y, 2 * x)
    np.testing.assert_array_equal(launch(x + 1), 2 * (x + 1))


def test_results_may_have_another_shape_of_as_many_elements():
    x = array(5, 7)
    assert launcher(doubled(), [x], [(5, 1, 7)])(x).shape == (5, 1, 7)


def test_several_results_are_a_tuple():
    x = array(3, 4)
    found = launcher(doubled(outputs=3), [x], [(3, 4)] * 3)(x)
    assert type(found) is tuple
    for n, y in enumerate(found):
        np.testing.assert_array_equal(y, (n + 2) * x)


@pytest.mark.parametrize(
    "other",
    [
        array(5, 8), array(7, 5), array(35), array(5, 7, 1), array(5, 7, dtype="float64"),
        array(7, 5).T, array(5, 14)[:, ::2], array(5, 7)[::-1], array(5, 7).view(np.recarray),
    ],
    ids=str,
)  # fmt: skip
def test_other_arrays_are_left_to_the_caller(other):
    x = array(5, 7)
    launch = launcher(doubled(), [x], [(5, 7)])
    assert launch(other) is None
    assert launch() is None
    assert launch(x, x) is None
    np.testing.assert_array_equal(launch(x), 2 * x)


def test_strided_arrays_have_launchers_of_their_own():
    x = array(10, 14)[::2, ::-2]
    launch = launcher(doubled(), [x], [(5, 7)])
    np.testing.assert_array_equal(launch(x), 2 * x)
    assert launch(np.ascontiguousarray(x)) is None


def test_numbers_among_the_arguments_are_passed_over():
    x = array(5, 7)
    launch = launcher(doubled(), [x], [(5, 7)])
    np.testing.assert_array_equal(launch(3.0, x), 2 * x)
    np.testing.assert_array_equal(launch(x, None), 2 * x)


def test_nothing_is_leaked():
    x = array(5, 7)
    launch = launcher(doubled(outputs=2), [x], [(5, 7)] * 2)
    launch(x)
    counts = sys.getrefcount(x), sys.getrefcount(x.dtype), sys.getrefcount(None)
    for _ in range(1000):
        launch(x)
        launch(array(2, 2))
    after = sys.getrefcount(x), sys.getrefcount(x.dtype), sys.getrefcount(None)
    assert all(abs(a - b) < 50 for a, b in zip(counts, after, strict=True))


def test_a_reduction_in_two_steps_has_one():
    k = Kernel(rank=1)
    k.output(k.sum(k.input("float32")))
    x = np.ones(300_000, np.float32)
    assert launcher(Compiled(k), [x], [()], parallel=True)(x) == 300_000


def test_ops_are_launched_for_the_numbers_they_were_made_for():
    x = ad.rand(50, 40)
    for _ in range(4):
        assert ad.lerp(x, x * 0, 0.25).allclose(x * 0.75)
        assert ad.lerp(x, x * 0, 0.5).allclose(x * 0.5)
        assert not ad.masked_fill(x, x > 2, -0.0).equal(ad.masked_fill(x, x >= 0, -0.0))
        assert bool(ad.masked_fill(x, x >= 0, -0.0).signbit().all())
        assert not bool(ad.masked_fill(x, x >= 0, 0.0).signbit().any())
        assert not bool(ad.masked_fill(x, x >= 0, 0).signbit().any())


def test_dtypes_shapes_and_memory_orders_may_take_turns():
    for _ in range(3):
        for dtype in (ad.float32, ad.float64, ad.bfloat16):
            for shape in ((8, 9), (9, 8), (72,)):
                x = ad.rand(*shape).to(dtype)
                for y in (x, x.flip(0), x.t() if x.ndim > 1 else x):
                    found = y.sigmoid()
                    assert found.dtype is dtype
                    expected = 1 / (1 + np.exp(-y.double().numpy()))
                    np.testing.assert_allclose(found.double().numpy(), expected, rtol=1e-2)


def test_what_has_launchers_is_kept_and_let_go():
    x = ad.rand(40, 40)
    for n in range(3):
        x.sum(n % 2)
    assert executable.counts()["Sum"] == 2
    core_compute.forget()
    gc.collect()
    assert not executable.counts()
    assert x.sum(0).allclose(ad.ones(40) @ x)


def test_gradients_of_launched_ops(monkeypatch):
    x = ad.rand(30, 30, generator=ad.Generator().manual_seed(1)).requires_grad_()
    grads = []
    for _ in range(3):
        (g,) = ad.autograd.grad(x.sigmoid().softmax(-1).var(), x)
        grads.append(g)
    assert grads[0].equal(grads[1])
    assert grads[1].equal(grads[2])
    monkeypatch.setattr(core_compute, "accelerate", None)
    (g,) = ad.autograd.grad(x.sigmoid().softmax(-1).var(), x)
    assert g.allclose(grads[0], rtol=1e-4, atol=1e-9)
