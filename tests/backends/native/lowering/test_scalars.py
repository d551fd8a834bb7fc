"""Ops with other numbers each time: the kernels are there, and the numbers are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import adjoint as ad
from adjoint.backends.codegen import run as compiler_run
from adjoint.backends.native.lowering import kernel_execution
from adjoint.core.arrays import signature
from adjoint.core.sized_tables import SizedTable
from adjoint.ir import compute, executable
from adjoint.nn.functional import elu
from adjoint.ops.elementwise.arithmetic import MUL
from tests.native import needs_native

pytestmark = needs_native

OPS: dict[str, Callable[[Any, float], Any]] = {
    "add": lambda x, n: x + n,
    "sub": lambda x, n: n - x,
    "mul": lambda x, n: x * n,
    "div": lambda x, n: x / n,
    "reflected div": lambda x, n: n / x,
    "maximum": lambda x, n: x.clamp(min=n),
    "clamp": lambda x, n: x.clamp(-n, n),
    "add alpha": lambda x, n: x.add(x, alpha=n),
    "addcmul": lambda x, n: ad.addcmul(x, x, x, value=n),
    "addcdiv": lambda x, n: ad.addcdiv(x, x, x + 9, value=n),
    "lerp": lambda x, n: x.lerp(x * x, n),
    "where": lambda x, n: ad.where(x > 0, x, n),
    "greater": lambda x, n: x > n,
    "masked_fill": lambda x, n: x.masked_fill(x > 0, n),
}
NUMBERS = [
    0.3,
    0.7,
    1.0,
    0.5,
    2.0,
    0.0,
    -0.0,
    -1.5,
    1e-30,
    1e30,
    float("inf"),
    float("nan"),
    0.3,
    0.3,
]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels for arrays of 100 elements, none made before."""
    for name in ("_programs", "_families"):
        monkeypatch.setattr(kernel_execution, name, SizedTable(name, lambda made: 1))
    monkeypatch.setattr(compute, "LARGE", 99)


@pytest.mark.parametrize("dtype", [ad.float32, ad.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("name", OPS)
def test_every_number_gives_what_numpy_gives(name: str, dtype: Any, monkeypatch: Any) -> None:
    x = ad.tensor(np.random.default_rng(0).standard_normal(70_000)).to(dtype)
    for number in NUMBERS:
        found = OPS[name](x, number).numpy()
        with monkeypatch.context() as patch:
            patch.setattr(compute, "accelerate", None)
            expected = OPS[name](x, number).numpy()
        np.testing.assert_array_equal(found, expected)
        if found.dtype.kind == "f" and name not in ("maximum", "clamp"):  # of 0.0 and -0.0: either
            zeros = expected == 0
            np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(expected[zeros]))


@pytest.mark.parametrize("name", [name for name in OPS if name not in ("masked_fill",)])
def test_new_numbers_are_no_new_code(name: str) -> None:
    x = ad.rand(70_000) + 0.5
    for n in (0.61, 0.62, 0.63):  # of both signs of a decision, if there is one
        OPS[name](x, n)
        OPS[name](x, n / 4)
    before = len(compiler_run._codes), len(kernel_execution._programs)
    for n in range(40):
        OPS[name](x, 0.6 + n / 128)
    assert (len(compiler_run._codes), len(kernel_execution._programs)) == before


def test_other_numbers_are_launched_and_leave_nothing_unless_they_come_again(monkeypatch) -> None:
    x = ad.rand(64)
    x * 0.3, x.clamp(-0.3, 0.3), elu(x, 0.3), ad.where(x > 0.3, x, 0.3)

    def unexpected(*_: Any) -> None:
        raise AssertionError("not launched")

    monkeypatch.setattr(compute, "accelerate", unexpected)
    before = sum(executable.counts().values())
    for n in range(1, 100):
        np.testing.assert_array_equal((x * (n / 7)).numpy(), x.numpy() * np.float32(n / 7))
        clamped = x.numpy().clip(None, np.float32(n / 200))
        np.testing.assert_array_equal(x.clamp(-n / 200, n / 200).numpy(), clamped)
        ad.where(x > n / 200, x, n / 7), elu(x, n / 7)
    assert sum(executable.counts().values()) == before
    key = signature(MUL, (x, 0.25), False, [])
    assert executable.find(key) is None
    x * 0.25, x * 0.5, x * 0.25
    assert executable.find(key) is not None
    np.testing.assert_array_equal((x * 0.25).numpy(), x.numpy() / 4)


@pytest.mark.parametrize("dtype", [ad.int8, ad.uint8, ad.int32, ad.int64], ids=lambda d: d.name)
def test_whole_numbers_that_a_dtype_does_not_have_go_their_own_way(dtype: Any) -> None:
    x = ad.tensor([1, 2, 3, 4] * 30, dtype=dtype)
    expected = [int(n) for n in range(1, 60)]
    assert [(x + n)[0].item() for n in range(59)] == expected
    for n in (300, -1, 1 << 40, -5, 7):
        found = (x + n).numpy()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compute, "accelerate", None)
            executable.forget()
            np.testing.assert_array_equal(found, (x + n).numpy())


def test_a_number_that_an_op_must_know_is_part_of_its_kernel() -> None:
    x = ad.rand(70_000, dtype=ad.float64)
    for n in (0.5, 0.25, 0.125):
        y = ad.nn.functional.elu(x - 0.5, n)
        expected = np.where(x.numpy() > 0.5, x.numpy() - 0.5, n * np.expm1(x.numpy() - 0.5))
        np.testing.assert_allclose(y.numpy(), expected, rtol=1e-14)


@pytest.mark.parametrize("kind", [float, np.float64, np.float32, np.float16])
def test_zeros_of_both_signs_are_two_numbers(kind) -> None:
    x = ad.tensor([-1.0, 1.0])
    for zero in (0.0, -0.0, 0.0):
        y = ad.nn.functional.threshold(x, 0.5, kind(zero))
        assert np.signbit(y.numpy()).tolist() == [np.signbit(zero), False]


def test_a_number_that_changes_is_read_each_time() -> None:
    x, slope = ad.tensor([-1.0, 1.0]), np.array(0.0)
    for n in (1.0, 2.0, 3.0):
        slope[...] = n
        assert ad.nn.functional.leaky_relu(x, slope).tolist() == [-n, 1]
