"""Sizes that change: the kernels of a pattern serve sizes that were never seen, and what is made
for a size does not depend on which were.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.backends.codegen import run as kernels_run
from adjoint.core import policy
from adjoint.core.errors import Unsupported
from adjoint.core.op import Op
from adjoint.core.spec import Spec
from adjoint.ir import compute
from adjoint.runtime.dispatch import apply

pytest.importorskip("llvmlite", reason="llvmlite is not installed")

from adjoint.backends.codegen import Compiled, Kernel, plans, split
from adjoint.backends.native.lowering import kernel_execution

F = ad.nn.functional

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "add row": lambda x, y: x + y[:1],
    "add transposed": lambda x, y: x.t() + y.t(),
    "scaled": lambda x, y: x * 0.3,
    "clamp": lambda x, y: x.clamp(-0.5, 0.5),
    "tril": lambda x, y: x.tril(),
    "sum rows": lambda x, y: x.sum(0),
    "sum columns": lambda x, y: x.sum(1),
    "mean rows": lambda x, y: x.mean(0),
    "mean columns": lambda x, y: x.mean(1),
    "mean": lambda x, y: x.mean(),
    "var rows": lambda x, y: x.var(0),
    "var columns": lambda x, y: x.var(1),
    "var": lambda x, y: x.var(),
    "norm": lambda x, y: x.norm(2, 0),
    "argmax rows": lambda x, y: x.argmax(0),
    "argmax columns": lambda x, y: x.argmax(1),
    "argmax": lambda x, y: x.argmax(),
    "mean of parts": lambda x, y: x.reshape(-1, 2, x.shape[1] // 2).mean(1),
    "softmax": lambda x, y: F.softmax(x, -1),
    "layer_norm": lambda x, y: F.layer_norm(x, x.shape[1:]),
    "batch_norm": lambda x, y: F.batch_norm(x, None, None, training=True),
    "bce": lambda x, y: F.binary_cross_entropy_with_logits(x, y),
    "mse": lambda x, y: F.mse_loss(x, y),
}


def pairs(low: int, high: int) -> Iterator[tuple[Any, Any]]:
    """Two matrices each of sizes that are drawn."""
    rng = np.random.default_rng([low, high])
    for _ in itertools.count():
        shape = int(rng.integers(low, high + 1)), 2 * int(rng.integers(low // 2, high // 2 + 1))
        yield tuple(ad.tensor(rng.random(shape, np.float32)) for _ in range(2))


@pytest.fixture(autouse=True)
def _nothing_is_known() -> None:
    compute.forget()


class MadeKernels:
    """Kernels of which machine code is made, since none was there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.keys: set[str] = set()
        self.halves: set[str] = set()  # as which `plan` may compute them, where they are large
        self._load = kernels_run._load
        monkeypatch.setattr(kernels_run, "_codes", {})
        monkeypatch.setattr(kernels_run, "_load", self._noted)

    def _noted(self, kernel: Kernel, layout: Any) -> Any:
        self.keys.add(kernel.key)
        if split.can_split(kernel):
            halves = plans.halves_of(kernel, Compiled)
            self.halves |= {halves.part.key, halves.whole.kernel.key}
        return self._load(kernel, layout)


def assert_nothing_new(
    name: str, count: int, monkeypatch: pytest.MonkeyPatch, low: int, high: int
) -> None:
    """After some sizes of a pattern, so many others make no kernel: only layouts have code."""
    made = MadeKernels(monkeypatch)
    drawn = pairs(low, high)
    for x, y in itertools.islice(drawn, 3):
        CALLS[name](x, y)
    known = made.keys | made.halves
    for x, y in itertools.islice(drawn, count):
        CALLS[name](x, y)
    assert made.keys <= known


@pytest.mark.parametrize("name", CALLS)
def test_new_sizes_are_no_new_kernels(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_nothing_new(name, 6, monkeypatch, 2, 64)


@pytest.mark.sweep
@pytest.mark.parametrize(("low", "high"), [(2, 64), (65, 512)])
@pytest.mark.parametrize("name", CALLS)
def test_many_new_sizes_are_no_new_kernels(
    name: str, low: int, high: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_nothing_new(name, 200, monkeypatch, low, high)


SHAPES = ((5, 8), (6, 8), (1, 4), (15, 2), (8, 16), (7, 2), (300, 300), (2, 70000), (3, 2), (1, 2))


@pytest.mark.parametrize("name", CALLS)
def test_bits_do_not_depend_on_sizes_before(name: str) -> None:
    rng = np.random.default_rng(0)
    given = [[ad.tensor(rng.random(shape, np.float32)) for _ in range(2)] for shape in SHAPES]
    if name in ("batch_norm", "var rows"):
        given = [(x, y) for x, y in given if x.shape[0] > 1]
    if name == "mean of parts":
        given = [(x, y) for x, y in given if not x.shape[0] % 2]
    results = [CALLS[name](x, y).numpy() for x, y in given]
    for (x, y), result in zip(given, results, strict=True):
        compute.forget()
        alone = CALLS[name](x, y).numpy()
        assert alone.strides == result.strides and alone.tobytes() == result.tobytes()


def test_empty_arrays_come_between() -> None:
    for n in (4, 5, 0, 6, 0, 7):
        x = ad.ones(n, 3)
        assert (x + x).tolist() == [[2.0] * 3] * n
        assert x.sum(1).tolist() == [3.0] * n


class Root(Op, abstract=True):
    """x over the square root of the number of its elements, which Python computes."""

    needs = ""

    def infer(self, x: Spec) -> Spec:
        """Its input's."""
        return x

    def compute(self, xp: Any, x: Any) -> Any:
        """By a number that must be known."""
        return x / math.sqrt(x.size)

    def gradient(self, g: Any) -> tuple[Any, ...]:
        """None is asked for."""
        raise Unsupported("no gradient")


class RootOfMean(Root, abstract=True):
    """x over the square root of half the number of its elements."""

    def compute(self, xp: Any, x: Any) -> Any:
        """By a float that C reads without asking."""
        return x / math.sqrt(x.size / 2)


@pytest.mark.parametrize(("op", "share"), [(Root(), 1), (RootOfMean(), 2)])
def test_what_must_know_a_size_knows_each(op: Op, share: int) -> None:
    for n in (9, 16, 25, 36, 9, 16):
        y = apply(op, ad.ones(n))
        assert np.array_equal(y.numpy(), np.ones(n, "f4") / np.float32(math.sqrt(n / share)))


def test_patterns_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "SIZE_VARIANTS", 2)
    for n in range(3, 9):
        assert np.allclose(apply(Root(), ad.ones(n)).numpy(), n**-0.5)
    assert all(len(each.made) <= 2 for each in kernel_execution._patterns.values())


def kernels() -> Iterator[Kernel]:
    """Kernels of three axes: elementwise, with an index, and reductions of each axis."""
    for axes in ((), (0,), (1,), (2,), (0, 2), (0, 1, 2)):
        k = Kernel(rank=3)
        x, y = k.input("float32"), k.input("float32", (1, 2))
        z = x * y + 1 if axes != (1,) else x * k.cast(k.index(1), "float32")
        k.output(k.reduce("sum", z, axes) if axes else z)
        yield k


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("kernel", list(kernels()), ids=lambda kernel: str(kernel.reduced))
def test_a_recorded_plan_is_the_plan(kernel: Kernel, given: bool) -> None:
    rng = np.random.default_rng(1)
    sizes = (1, 2, 8, 15, 16, 40, 300)
    compiled = Compiled(kernel)
    for _ in range(40):
        shape = [int(rng.choice(sizes)) for _ in range(3)]
        order = rng.permutation(3)
        x = np.empty([shape[k] for k in order], np.float32).transpose(np.argsort(order))
        arrays = [x[::-1] if rng.random() < 0.3 else x, np.empty(shape[1:], np.float32)]
        outs = None
        if given:
            kept = [shape[a] for a in kernel.outputs[0].axes]
            outs = [np.empty(kept, np.float32)]
        recorded = compiled.entry(arrays, outs=outs)
        alone = Compiled(kernel).entry(arrays, outs=outs)  # whose first plan is made of numbers
        assert type(recorded) is type(alone)
        first, second = (getattr(each, "first", each) for each in (recorded, alone))
        assert (first.head, first.chunks) == (second.head, second.chunks)
        assert first.code is second.code and first.spans == second.spans
        if not given:
            made, expected = recorded.allocate()[0], alone.allocate()[0]
            assert (made.shape, made.strides) == (expected.shape, expected.strides)
