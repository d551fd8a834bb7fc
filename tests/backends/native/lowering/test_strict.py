"""No slower way without a word: reasons, the table of them, the log, and the strict mode."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.autograd import fusion
from adjoint.core import dispatch_log
from adjoint.core.errors import FallbackError
from adjoint.core.op import Op
from adjoint.core.spec import Spec
from adjoint.ir import compute
from adjoint.runtime.dispatch import apply
from adjoint.runtime.fused import fused

pytest.importorskip("llvmlite", reason="llvmlite is not installed")

from adjoint.backends.native.lowering import tracing

ROOT = pathlib.Path(__file__).parents[4]


@pytest.fixture(autouse=True)
def _nothing_is_known() -> None:
    compute.forget()


def builder() -> Any:
    spec = importlib.util.spec_from_file_location("kernels", ROOT / "docs" / "build_kernels.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_is_what_tracing_finds() -> None:
    build = builder()
    found = build.ways()
    assert build.PAGE.read_text() == build.page(found), "run python docs/build_kernels.py"
    assert build.TABLE.read_text() == build.table(found), "run python docs/build_kernels.py"
    assert all(why for way, why in found.values() if way == "NumPy")  # each with its reason


class Clumsy(Op, abstract=True):
    """An op whose `compute` does with arrays what symbols do not know."""

    needs = ""

    def infer(self, x: Spec) -> Spec:
        """Its input's."""
        return x

    def compute(self, xp: Any, x: Any) -> Any:
        """Its input, if that is an array."""
        return {np.ndarray: x}[type(x)]


def test_a_mistake_in_our_own_code_is_not_numpys_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    x = ad.randn(100, 100)
    monkeypatch.setattr(Clumsy, "__module__", "adjoint.ops.clumsy")
    with pytest.raises(KeyError, match="Traced"):
        apply(Clumsy(), x)
    monkeypatch.setattr(
        tracing.TracingNamespace, "horner", lambda *args: [][0]
    )  # in the tracer itself, by which erf is computed
    with pytest.raises(IndexError):
        x.lgamma()


def test_a_users_op_may_do_anything(falls_back: None) -> None:
    x = ad.randn(100, 100)
    assert apply(Clumsy(), x).equal(x)


def test_strict_refuses_what_the_table_does_not_list(
    monkeypatch: pytest.MonkeyPatch, falls_back: None
) -> None:
    x, z = ad.randn(100, 100), ad.randn(100, 100, dtype=ad.complex64)
    monkeypatch.delitem(tracing._FUNCTIONS, "exp")
    expected = z.exp(), x.cumprod(1)
    with dispatch_log.strictly():
        for _ in range(2):  # what is remembered is refused, too
            with pytest.raises(FallbackError, match=r"exp \(100, 100\) float32: .*does exp"):
                x.exp()
        assert z.exp().equal(expected[0])  # complex numbers are nobody's
        assert x.cumprod(1).equal(expected[1])  # and a scan is in the table
        x.log()
    x.exp()


def test_strict_refuses_composites_op_by_op(falls_back: None) -> None:
    @fused
    def sorts(x: Any) -> Any:
        return x.sort(0).values * 2

    x = ad.randn(100, 100)
    expected = sorts(x)
    with dispatch_log.strictly():
        for _ in range(2):
            with pytest.raises(FallbackError, match=r"sorts \(100, 100\) float32.*does ranked"):
                sorts(x)
        ad.nn.functional.layer_norm(x, (100,))
    assert sorts(x).equal(expected)


def test_a_mistake_in_a_composite_of_ours_is_raised(
    monkeypatch: pytest.MonkeyPatch, falls_back: None
) -> None:
    def broken(*args: Any) -> Any:
        raise LookupError("a mistake")

    monkeypatch.setattr(fusion, "small", broken)

    @fused
    def doubled(x: Any) -> Any:
        return (x + x).exp()

    x = ad.randn(100, 100)
    assert doubled(x).shape == (100, 100)  # a user's: the ops say what is wrong, if anything is
    doubled.declared.plans.clear()  # type: ignore[attr-defined]
    monkeypatch.setattr(doubled.declared.function, "__module__", "adjoint.nn")  # type: ignore[attr-defined]
    with pytest.raises(LookupError, match="a mistake"):
        doubled(x)


LOG = """
import adjoint as ad
x = ad.ones(128, 1000)
for _ in range(3):
    ad.nn.functional.layer_norm(x, (1000,))
    x.exp(); x.cumprod(1); x.sort(); x @ x.T; ad.randn(100, 100); ad.ones(0, 3).exp()
    x.cumprod_(1)
    x.mul_(2.0).exp_()
"""
LINES = """\
_standardize (128, 1000) float32: kernels
exp (128, 1000) float32: kernel
cum_prod (128, 1000) float32: NumPy: NumPy's own moveaxis
arg_sort (128, 1000) float32: routine
gather (128, 1000) float32, (128, 1000) int64: routine
mat_mul (128, 1000) float32, (1000, 128) float32: library
normal (100, 100) adjoint.float32: generator
exp (0, 3) float32: NumPy: at most 0 elements
cumprod_ (128, 1000) float32: a new array, copied: cum_prod: NumPy's own moveaxis
exp_ (128, 1000) float32: kernel, in place
"""


def test_the_log_says_which_way_and_why_once() -> None:
    found = run(LOG, "dispatch")
    for line in LINES.splitlines():
        assert found.splitlines().count(line) == 1, (line, found)
    assert run(LOG, "") == ""


def test_all_products_of_a_layer_of_few_rows_go_to_our_threads() -> None:
    """NumPy's BLAS would wake threads of its own, which look for work beside ours for long after:
    a step of ResNet-18, whose last layer has four rows, took a quarter longer.
    """
    found = run(
        """
import adjoint as ad
x, layer = ad.ones(4, 512, requires_grad=True), ad.nn.Linear(512, 1000)
layer(x).backward(ad.ones(4, 1000))
""",
        "dispatch",
    )
    for name in ("linear", "linear_input", "linear_weight"):
        [line] = [line for line in found.splitlines() if line.startswith(f"{name} ")]
        assert line.endswith(": library"), line


def test_another_word_is_refused() -> None:
    said = run("import adjoint", "dispatch,everything", fails=True)
    assert "ADJOINT_DEBUG=everything: there is nothing of that name to debug" in said
    assert (
        "there are dispatch, compile, traceback, passes, kernels, collectives, code "
        "(several with commas)" in said
    )


def run(code: str, debug: str, fails: bool = False) -> str:
    """What the program says on stderr."""
    environment = {**os.environ, "ADJOINT_DEBUG": debug, "ADJOINT_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, cwd=ROOT
    )
    assert (done.returncode != 0) == fails, done.stderr
    return done.stderr
