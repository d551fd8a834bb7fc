"""Sizes that change: the kernels of a pattern serve sizes that were never seen, and what is made
for a size does not depend on which were.
"""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.autograd import plan_patterns
from adjoint.backends.codegen import run as kernels_run
from adjoint.core import policy
from adjoint.core.errors import ShapeError, Unsupported
from adjoint.core.op import Op
from adjoint.core.spec import Spec
from adjoint.core.symbolic_sizes import KernelGraph
from adjoint.ir import compute
from adjoint.runtime.dispatch import apply

pytest.importorskip("llvmlite", reason="llvmlite is not installed")

from adjoint.backends.codegen import Compiled, Kernel, plans, split
from adjoint.backends.native.lowering import composite, kernel_execution

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
    "scaled in place": lambda x, y: x.clone().mul_(0.3),
    "added in place": lambda x, y: x.clone().add_(y, alpha=0.5),
    "copied": lambda x, y: x.clone().copy_(y),
    "a row in place": lambda x, y: x.clone().mul_(y[:1]),
    "clamped in place": lambda x, y: x.clone().clamp_(0.2, 0.7),
}


def labels(x: Any) -> Any:
    """A class of each row."""
    return ad.tensor(np.arange(x.shape[0]) * 7 % x.shape[1])


def halves(x: Any) -> Any:
    """Channels of two halves of the columns."""
    return x.reshape(x.shape[0], 2, x.shape[1] // 2)


# Composites, whose gradients are asked for.
COMPOSITES: dict[str, Callable[[Any, Any], Any]] = {
    "softmax": lambda x, y: F.softmax(x, -1) * y,
    "log_softmax of columns": lambda x, y: F.log_softmax(x, 0) * y,
    "gelu": lambda x, y: F.gelu(x),
    "gelu, tanh": lambda x, y: F.gelu(x, approximate="tanh"),
    "leaky_relu": lambda x, y: F.leaky_relu(x, 0.3),
    "softplus": lambda x, y: F.softplus(x, 1.5),
    "glu": lambda x, y: F.glu(x),
    "layer_norm": lambda x, y: F.layer_norm(x, x.shape[1:]) * y,
    "layer_norm with weights": lambda x, y: F.layer_norm(x, x.shape[1:], y[0], y[0]) * y,
    "rms_norm": lambda x, y: F.rms_norm(x, x.shape[1:]) * y,
    "batch_norm": lambda x, y: F.batch_norm(x, None, None, training=True) * y,
    "group_norm": lambda x, y: F.group_norm(halves(x), 2) * halves(y),
    "normalize": lambda x, y: F.normalize(x) * y,
    "cross_entropy": lambda x, y: F.cross_entropy(x, labels(x)),
    "cross_entropy, smooth": lambda x, y: F.cross_entropy(x, labels(x), label_smoothing=0.1),
    "cross_entropy of probabilities": lambda x, y: F.cross_entropy(x, y),
    "nll_loss": lambda x, y: F.nll_loss(x, labels(x)),
    "bce": lambda x, y: F.binary_cross_entropy(x * 0.5 + 0.25, y),
    "bce of logits": lambda x, y: F.binary_cross_entropy_with_logits(x, y),
    "mse": lambda x, y: F.mse_loss(x, y),
    "huber": lambda x, y: F.huber_loss(x, y, delta=0.4),
    "kl_div": lambda x, y: F.kl_div(x, y, reduction="batchmean"),
    "cosine_similarity": lambda x, y: F.cosine_similarity(x, y),
}


def with_gradient(name: str) -> Callable[[Any, Any], Any]:
    """A function that gives the composite's value and the gradient of its sum, as one tensor."""

    def call(x: Any, y: Any) -> Any:
        leaf = x.detach().requires_grad_()
        result = COMPOSITES[name](leaf, y)
        result.sum().backward()
        return ad.cat([result.detach().flatten(), leaf.grad.flatten()])

    return call


CALLS |= {f"{name}, with its gradient": with_gradient(name) for name in COMPOSITES}


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
        for module in (kernels_run, composite):  # what tests before left alive has code already
            monkeypatch.setattr(module, "_in_use", weakref.WeakValueDictionary())
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
    if name.endswith("gradient"):  # what a large composite keeps for it is another pattern
        for shape in ((low, 2 * (low // 2)), (high, high)):
            CALLS[name](ad.rand(shape), ad.rand(shape))
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
    if "batch_norm" in name or name == "var rows":
        given = [(x, y) for x, y in given if x.shape[0] > 1]
    if name == "mean of parts":
        given = [(x, y) for x, y in given if not x.shape[0] % 2]
    results = [CALLS[name](x, y).numpy() for x, y in given]
    for (x, y), result in zip(given, results, strict=True):
        compute.forget()
        alone = CALLS[name](x, y).numpy()
        assert alone.strides == result.strides and alone.tobytes() == result.tobytes()


@pytest.mark.parametrize("name", COMPOSITES)
def test_composites_are_captured_once_a_pattern(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    monkeypatch.setattr(plan_patterns, "KernelGraph", lambda: made.append(0) or KernelGraph())
    for x, y in itertools.islice(pairs(2, 64), 12):
        with_gradient(name)(x, y)
    assert 1 <= len(made) <= 3


def test_writers_are_captured_once_a_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    monkeypatch.setattr(plan_patterns, "KernelGraph", lambda: made.append(0) or KernelGraph())
    for n, (x, y) in enumerate(itertools.islice(pairs(2, 64), 12)):
        expected = x.numpy() + np.float32(n / 8) * y.numpy()
        assert np.allclose(x.add_(y, alpha=n / 8).numpy(), expected)
    assert len(made) == 1


def test_a_pattern_does_not_write_where_a_gradient_is_wanted() -> None:
    for n in (5, 6, 7):
        x, leaf = ad.ones(n, 3), ad.full((n, 3), 2.0).requires_grad_()
        x.mul_(ad.full((n, 3), 2.0))
        x.mul_(leaf)
        x.sum().backward()
        assert leaf.grad.tolist() == [[2.0] * 3] * n


def test_second_derivatives_by_the_body_of_a_pattern() -> None:
    def curvature(x: Any) -> Any:
        leaf = x.detach().requires_grad_()
        (g,) = ad.autograd.grad((F.softmax(leaf, 1) ** 2).sum(), leaf, create_graph=True)
        return ad.autograd.grad(g.square().sum(), leaf)[0]

    given = [x for x, _ in itertools.islice(pairs(20, 64), 4)]
    results = [curvature(x) for x in given]
    for x, result in zip(given, results, strict=True):
        compute.forget()
        assert curvature(x).numpy().tobytes() == result.numpy().tobytes()


def test_a_label_that_is_no_class_is_refused_for_each_size() -> None:
    for n in (20, 30, 40, 50):
        with pytest.raises(IndexError, match=f"{n}"):
            F.cross_entropy(ad.ones(n, n), ad.full((n,), n))


@pytest.mark.parametrize("name", ["add", "add row", "scaled", "clamp", "sum columns"])
def test_a_new_size_of_a_known_pattern_is_launched(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Op] = []
    accelerate = compute.accelerate
    monkeypatch.setattr(
        compute, "accelerate", lambda op, arrays: asked.append(op) or accelerate(op, arrays)
    )
    drawn = pairs(65, 300)
    for x, y in itertools.islice(drawn, 6):
        CALLS[name](x, y)
    asked.clear()
    for x, y in itertools.islice(drawn, 6):
        first = CALLS[name](x, y)
        assert np.array_equal(CALLS[name](x, y).numpy(), first.numpy())
    assert asked == []


def test_other_numbers_for_a_new_size() -> None:
    for n in range(5, 12):
        for number in (0.5, 0.5, -2.0, 3, 3, True, 0.25):
            assert (ad.ones(n, 3) * number).tolist() == [[float(number)] * 3] * n


def test_sizes_that_do_not_broadcast_are_refused_after_others() -> None:
    for n in (4, 5, 6, 7):
        assert (ad.ones(n, 3) + ad.ones(n, 3)).shape == (n, 3)
    with pytest.raises(ShapeError, match="8 and 9"):
        ad.ones(8, 3) + ad.ones(9, 3)


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
