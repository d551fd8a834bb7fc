"""The order in which threads can go apart: that it is one, which, and that bits stay."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.compiler.passes import basic_passes, kernels
from adjoint.compiler.passes.batched_gemm import work_of
from adjoint.compiler.schedule import buffers
from adjoint.compiler.schedule.barrier_free import gather_rows, stretches
from adjoint.core import policy
from tests.native import needs_native
from tests.sweep import one_in

from ..agreement import assert_equal
from ..passes.test_inference_passes import graph_of, names, values
from ..run.test_step import Pair

pytestmark = needs_native


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """However little it is."""
    monkeypatch.setattr(policy, "REGION_LEAST", 1)


def drawn(*shape, seed=0):
    return ad.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


X, W, V = drawn(12, 5), drawn(5, 7, seed=1), drawn(7, 5, seed=2)


def layers(x):
    """Sums over rows stand between layers."""
    h = x @ W
    first = h.T @ x
    a = h * h + 1
    return first, a.sum(0), a @ V, a.sum()


def test_gather_rows_of_two_layers():
    graph = graph_of(layers, X)
    kernels.fuse_kernels(graph)
    basic_passes.drop_dead(graph)
    expected = values(graph, X)
    assert names(graph) == ["mat_mul", "permute", "mat_mul", "mul_add_sum_...", "mat_mul"]
    assert gather_rows(graph) == 5
    graph.verify()
    assert graph.rows == 12
    assert names(graph) == ["mat_mul", "permute", "mul_add", "mat_mul", "mat_mul", "sum_sum"]
    steps = [node for node in graph.nodes if not node.op.view]
    assert stretches(steps, graph.rows) == ([range(3)], [range(3, 5)])
    for found, known in zip(values(graph, X), expected, strict=True):
        np.testing.assert_allclose(found, known, rtol=1e-6, atol=1e-6)
    assert gather_rows(graph) == 0  # which is so by now


def test_as_many_columns_as_rows():
    """A sum of 12 columns is none of 12 rows."""
    square = drawn(12, 12, seed=4)

    def both(x):
        a = (x @ square).exp()
        return a, a.sum(0), a.sum(1)

    graph = graph_of(both, drawn(12, 12))
    kernels.fuse_kernels(graph)
    basic_passes.drop_dead(graph)
    expected = values(graph, drawn(12, 12))
    gather_rows(graph)
    graph.verify()
    found = [(node.op.name, len(node.outputs)) for node in graph.nodes]
    assert found in (
        [("mat_mul", 1), ("exp_sum", 2), ("sum", 1)], [("mat_mul", 1), ("exp", 1), ("sum_sum", 2)],
        [("mat_mul", 1), ("exp", 1), ("sum", 1), ("sum", 1)],
    )  # fmt: skip
    for a, known in zip(values(graph, drawn(12, 12)), expected, strict=True):
        np.testing.assert_allclose(a, known, rtol=1e-6)


def test_large_programs_and_little_work_stay(monkeypatch):
    graph = graph_of(layers, X)
    monkeypatch.setattr(policy, "REGION_BYTES", 100)
    assert gather_rows(graph) == 0 and graph.rows == 0
    monkeypatch.setattr(policy, "REGION_BYTES", 1 << 22)
    monkeypatch.setattr(policy, "REGION_MOST", max(map(work_of, graph.nodes)) - 1)
    assert gather_rows(graph) == 0
    monkeypatch.setattr(policy, "REGION_MOST", 1 << 20)
    monkeypatch.setattr(policy, "REGION_LEAST", 1 << 20)
    assert gather_rows(graph) == 0
    assert gather_rows(graph_of(lambda x: x[:, 0].cumsum(0), X)) == 0


@pytest.mark.parametrize("seed", range(20))
def test_buffers_of_steps_that_threads_are_not_all_at(seed):
    """Each two are apart as long as one may be needed; those that take turns have as many bytes."""
    random = np.random.default_rng(seed)
    cuts = np.unique(random.integers(0, 40, 6))
    found = [range(int(a), int(b)) for a, b in itertools.pairwise(cuts) if b - a > 1]
    by_rows, waves = found[::2], found[1::2]
    made = []
    for _ in range(60):
        begin = int(random.integers(0, 36))
        size = int(random.choice([64, 100, 256, 1000]))
        end = begin + int(random.integers(0, 6))
        made.append(buffers.Buffer(size, begin, end, int(random.choice([0, 4]))))
    layout = buffers.plan(made, by_rows, waves)
    assert max(o + b.size for o, b in zip(layout.offsets, made, strict=True)) <= layout.size
    for i, (x, at) in enumerate(zip(made, layout.offsets, strict=True)):
        for y, there in zip(made[:i], layout.offsets, strict=False):
            apart = at + x.size <= there or there + y.size <= at
            if x.begin <= y.end and y.begin <= x.end:
                assert apart
            for each in by_rows:
                a, b = (x, y) if x.end < y.begin else (y, x)
                if a.end < b.begin and a.end in each and b.begin in each and not apart:
                    assert at == there and x.size == y.size and x.rows and y.rows
            for each in waves:
                a, b = (x, y) if x.end < y.begin else (y, x)
                assert apart or not (a.end < b.begin and a.end in each and b.begin in each)


class Recurrent(nn.Module):
    """A cell in a loop, embedded numbers, and what is read of each step."""

    def __init__(self):
        super().__init__()
        self.tokens, self.cell, self.out = nn.Embedding(9, 6), nn.LSTMCell(6, 8), nn.Linear(8, 9)

    def forward(self, x):
        state = None
        found = []
        for column in x.unbind(1):
            state = self.cell(self.tokens(column), state)
            found.append(self.out(state[0]))
        return ad.stack(found, 1).flatten(0, 1)


class Normed(nn.Module):
    """Statistics over all rows between layers that have none."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(6, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Linear(16, 16), nn.LayerNorm(16),
            nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 16), nn.Softmax(1), nn.Linear(16, 9),
        )  # fmt: skip

    def forward(self, x):
        return self.net(x)


@pytest.mark.parametrize(
    ("kind", "rows", "threads"),
    one_in(4, itertools.product([Recurrent, Normed], [1, 8, 15, 16, 33], [1, 2, 5])),
)
def test_steps_are_those_of_eager_execution(kind, rows, threads):
    """16 rows, and a width of 16: which of both sums and vectors are of is not to be guessed."""
    if kind is Normed and rows == 1:
        pytest.skip("batch norm needs two")
    before = ad.get_num_threads()
    ad.set_num_threads(threads)
    try:
        ad.manual_seed(0)
        random = np.random.default_rng(rows)
        if kind is Recurrent:
            x = ad.tensor(random.integers(0, 9, (rows, 5)))
            y = ad.tensor(random.integers(0, 9, rows * 5))
        else:
            x = ad.tensor(random.standard_normal((rows, 6)).astype(np.float32))
            y = ad.tensor(random.integers(0, 9, rows))
        pair = Pair(kind(), lambda p: ad.optim.SGD(p, lr=0.1), nn.functional.cross_entropy)
        for seed in range(4):
            ad.manual_seed(seed)
            eagerly = pair.steps[0](x, y)
            ad.manual_seed(seed)
            found = pair.compiled(x, y)
            np.testing.assert_allclose(found.item(), eagerly.item(), rtol=1e-5)
            pair.check()
    finally:
        ad.set_num_threads(before)


def test_bits_do_not_depend_on_the_threads():
    def trained(threads):
        before = ad.get_num_threads()
        ad.set_num_threads(threads)
        try:
            ad.manual_seed(0)
            model = Recurrent()
            optimizer = ad.optim.Adam(model.parameters(), lr=1e-2)
            x = ad.arange(80).reshape(16, 5) % 9
            y = ad.arange(80) % 7

            @ad.compile
            def step():
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                return loss

            losses = [step().item() for _ in range(5)]
            apart = [row.apart for row in step.explain().rows]
            return losses, [p.tolist() for p in model.parameters()], max(apart)
        finally:
            ad.set_num_threads(before)

    one, two, five = trained(1), trained(2), trained(5)
    assert one[2] == 0 and two[2] > 1 and five[2] > 1
    assert_equal(one[:2], two[:2])
    assert_equal(one[:2], five[:2])
