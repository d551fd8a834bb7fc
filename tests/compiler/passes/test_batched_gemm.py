"""Small products as one step: which, and that they compute the same."""

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.compiler.passes.batched_gemm import Products, batch_products, work_of
from tests.native import needs_native

from ..run.test_step import OPTIMIZERS, Pair
from .test_inference_passes import check, graph_of, names

pytestmark = needs_native
F = nn.functional


def drawn(*shape, seed=0):
    return ad.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


X, B = drawn(3, 4), drawn(5, seed=9)
W = [drawn(4, 5, seed=k) for k in range(1, 7)]
V = [w.T.clone() for w in W]


def test_batch_products_of_one_depth():
    def both(x):
        first = [F.linear(x, V[0], B), x @ W[1], F.linear(x, V[2]), x @ W[3]]
        return [sum(y @ v for y in first) for v in V[:2]]  # which need all of the first

    nodes = ["linear", "mat_mul", "add"]  # x @ V[0], its product with V[0], 0 + that
    rest = ["mat_mul", "mat_mul", "add", "linear", "mat_mul", "add", "mat_mul", "mat_mul", "add"]
    check(
        batch_products, both, X, before=[*nodes, *rest, *["mat_mul", "add"] * 4],
        after=["4_products", "8_products", *["add"] * 8],
    )  # fmt: skip


def test_few_and_large_products_stay():
    assert batch_products(graph_of(lambda x: [x @ w for w in W[:3]], X)) == 0
    large = drawn(64, 64)
    assert batch_products(graph_of(lambda x: [x @ (large + k) for k in range(5)], large)) == 0
    chain = graph_of(lambda x: x @ V[0].T @ V[1] @ W[1] @ V[2] @ W[2], X)
    assert batch_products(chain) == 0


def test_products_say_what_each_gives():
    graph = graph_of(lambda x: [x @ w for w in W[:4]], X)
    assert [work_of(node) for node in graph.nodes] == [60] * 4
    assert batch_products(graph) == 3
    graph.verify()
    op = graph.nodes[0].op
    assert isinstance(op, Products) and names(graph) == ["4_products"]
    found = op.compute(np, *(a.numpy() for w in W[:4] for a in (X, w)))
    for y, w in zip(found, W, strict=False):
        np.testing.assert_allclose(y, X.numpy() @ w.numpy(), rtol=1e-6)


def products(kind, count=100):
    """A function that makes so many products of 4x4 with their gradients, and what it changes."""
    first = [drawn(4, 4, seed=k).mul(0.5).requires_grad_() for k in range(count)]
    second = [drawn(4, 4, seed=-k % 999).mul(0.5).requires_grad_() for k in range(1, count + 1)]
    x = drawn(4, 4, seed=3)

    def apart():
        total = sum((q @ p).sum() for p, q in zip(first, second, strict=True))
        total.backward()
        return total

    def shared():
        total = sum(((x @ p) ** 2).sum() for p in first)
        total.backward()
        return total

    def layers():
        total = sum(F.linear(x, p, b[0]).tanh().sum() for p, b in zip(first, second, strict=True))
        total.backward()
        return total

    def chain():
        y = first[0]
        for _ in range(count):
            y = y @ second[0]
        y.backward(x)
        return y

    def elementwise():
        y = first[0]
        for _ in range(count):
            y = y * second[0]
        y.backward(x)
        return y

    function = {f.__name__: f for f in (apart, shared, layers, chain, elementwise)}[kind]
    changed = first + second

    def step():
        for p in changed:
            p.grad = None
        return function()

    return step, changed


# Kinds of 100 products with gradients: steps that are products, and how many there are in all.
STEPS = {
    "apart": (2, 7), "shared": (2, 109), "layers": (2, 408), "chain": (300, 303),
    "elementwise": (0, 9),
}  # fmt: skip


@pytest.mark.parametrize("kind", STEPS)
def test_a_hundred_products_with_gradients_are_few_steps(kind):
    (eager, known), (step, changed) = products(kind), products(kind)
    compiled = ad.compile(step)
    for _ in range(3):
        expected, found = eager(), compiled()
        np.testing.assert_allclose(found.tolist(), expected.tolist(), rtol=1e-4, atol=1e-6)
        for a, b in zip(known, changed, strict=True):
            assert (a.grad is None) == (b.grad is None)
            if a.grad is not None:
                np.testing.assert_allclose(b.grad.tolist(), a.grad.tolist(), rtol=1e-4, atol=1e-6)
    said = compiled.explain()
    assert not said.host_calls
    most, steps = STEPS[kind]
    assert [row.how for row in said.rows].count("product") <= most and len(said.rows) <= steps
    assert sum(row.operations for row in said.rows if row.how == "product") >= most * 128


def test_products_follow_parameters_that_are_replaced():
    """The places of arrays are in tables: memory that moves is bound anew."""
    step, changed = products("apart", 8)
    compiled = ad.compile(step)
    compiled()
    for p in changed:
        p.data = drawn(4, 4, seed=77)
    total = compiled()
    assert total.item() == pytest.approx(step().item(), rel=1e-5)


class Heads(nn.Module):
    """Small layers side by side."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList([nn.Linear(20, 3 + k % 2, dtype=ad.float32) for k in range(6)])
        self.out = nn.Linear(21, 5)

    def forward(self, x):
        return self.out(ad.cat([part(x).tanh() for part in self.parts], 1))


@pytest.mark.parametrize("batch", [1, 2, 15])
def test_layers_side_by_side_train_as_eagerly(batch):
    ad.manual_seed(0)
    pair = Pair(Heads(), OPTIMIZERS["Adam"], nn.CrossEntropyLoss())
    for seed in range(3):
        y = ad.tensor(np.arange(batch) % 5)
        pair.run(drawn(batch, 20, seed=seed), y)
    ops = [type(s.op) for part in pair.program.parts for s in part.schedule.steps]
    assert ops.count(Products) >= (2 if batch > 1 else 1)  # weights' gradients of one row multiply
