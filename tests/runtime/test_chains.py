"""Chains of stale elementwise cells, computed by one kernel: the bits, the counts, the errors."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import adjoint as ad
from adjoint.backends.native.lowering import composite
from adjoint.core import policy
from adjoint.core.errors import GraphError
from adjoint.ir import compute, executable
from tests.native import needs_native

pytestmark = needs_native


@pytest.fixture(autouse=True)
def at_the_third_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chains are compiled when they come for the third time."""
    monkeypatch.setattr(policy, "CHAIN_SEEN", 2)


def chained(x: Any) -> Any:
    y = x * 0.75 + x
    y = y.tanh() - y / 3
    return ad.where(y > 0, y.exp(), y.abs() + x)


@pytest.mark.parametrize("shape", [(), (1,), (15,), (3, 5), (1, 70), (300, 70)], ids=str)
@pytest.mark.parametrize("dtype", [ad.float32, ad.float64, ad.bfloat16], ids=lambda d: d.name)
def test_the_bits_are_eager_ones(shape: Any, dtype: Any) -> None:
    draw = np.random.default_rng(0)
    graph = ad.Graph()
    with graph:
        x = graph.input(ad.zeros(shape, dtype=dtype))
        y = chained(x)
    for _ in range(6):
        value = ad.tensor(draw.standard_normal(shape)).to(dtype)
        x.set(value)
        found, expected = ad.tensor(y), chained(value)
        assert found.dtype is dtype
        assert found.equal(expected)


def test_a_chain_that_comes_again_is_few_kernels() -> None:
    graph = ad.Graph()
    with graph:
        x = graph.input(ad.ones(100))
        y = x
        for _ in range(20):
            y = y * 0.5 + x
    kernels, nodes = [], []
    for n in range(6):
        x.set(ad.full((100,), float(n)))
        before, ran = composite.launches[0], graph.stats()["runs"]
        y.numpy()
        kernels.append(composite.launches[0] - before)
        nodes.append(graph.stats()["runs"] - ran)
    chains = 40 // policy.CHAIN
    assert kernels == [0, 0, min(policy.CHAINS_MADE, chains), *[chains] * 3]
    assert nodes == [40] * 6


def test_like_chains_share_a_kernel_and_few_are_made_at_once(monkeypatch: Any) -> None:
    monkeypatch.setattr(policy, "CHAINS_MADE", 2)
    made = []
    compiled = composite.chained

    def counting(*args: Any) -> Any:
        made.append(args)
        return compiled(*args)

    monkeypatch.setattr(compute, "chained", counting)
    executable.forget()
    graph = ad.Graph()
    with graph:
        xs = [graph.input(ad.ones(10)) for _ in range(5)]
        ys = [x * (n + 0.5) + x for n, x in enumerate(xs)]
    kernels = []
    for k in range(8):
        for x in xs:
            x.set(ad.full((10,), float(k)))
        before = composite.launches[0]
        for n, y in enumerate(ys):
            assert y.tolist() == [k * (n + 1.5)] * 10
        kernels.append(composite.launches[0] - before)
    assert kernels == [0, 0, *[5] * 6]  # each read is a walk of its own
    assert len(made) == 1
    before = composite.launches[0]
    total = sum(ys[1:], ys[0])
    for k in range(9):
        for x in xs:
            x.set(ad.full((10,), float(k)))
        assert total.tolist() == [k * 17.5] * 10
    assert executable.forget() is None
    assert not graph._state.chains
    graph.check_invariants()


def test_only_what_is_read_is_computed() -> None:
    graph = ad.Graph()
    with graph:
        x = graph.input(ad.ones(50))
        b = x * 2 + 1
        d = b.tanh() * b
    for n in range(6):
        x.set(ad.full((50,), float(n)))
        ran = graph.stats()["runs"]
        assert b[0].item() == 2 * n + 1
        assert graph.stats()["runs"] == ran + 3  # with the index
        assert d[0].item() == pytest.approx(float(np.tanh(2 * n + 1)) * (2 * n + 1))
        assert graph.stats()["runs"] == ran + 6


def test_who_watches_sees_each_node() -> None:
    graph = ad.Graph()
    with graph:
        x = graph.input(ad.ones(50))
        y = x * 2 + 1
    for n in range(6):
        x.set(ad.full((50,), float(n)))
        with graph.events() as log:
            y.numpy()
        assert len(log.ran) == 2


def test_memory_in_another_order_goes_its_own_way() -> None:
    graph = ad.Graph()
    with graph:
        x = graph.input(ad.zeros(40, 30))
        y = chained(x).sum(0)
    draw = np.random.default_rng(1)
    for k in range(6):
        value = ad.tensor(draw.standard_normal((40, 30)).astype(np.float32))
        if k % 2:
            value = ad.tensor(np.asfortranarray(value.numpy()))
        x.set(value)
        assert ad.tensor(y).equal(chained(value).sum(0))


@pytest.mark.parametrize("most", [0, 1, 2, 8])
def test_what_is_no_part_of_the_chain_gets_the_new_values(most: int, monkeypatch: Any) -> None:
    """Also where it is asked whether it may be one, and the others are computed for that."""
    monkeypatch.setattr(policy, "CHAIN", most)
    draw = np.random.default_rng(2)
    graph = ad.Graph()
    with graph:
        x = graph.input(ad.zeros(1, 3))
        empty = ad.zeros(0, 3, dtype=ad.float32)
        y = x.exp() + 1
        z = (empty * y).sum(), (y @ y.t()), (y.expand(4, 3) * 2 + y), y.sum(1) * y
    for _ in range(5):
        value = ad.tensor(draw.standard_normal((1, 3)).astype(np.float32))
        x.set(value)
        y = value.exp() + 1
        expected = (empty * y).sum(), (y @ y.t()), (y.expand(4, 3) * 2 + y), y.sum(1) * y
        for one, other in zip(z, expected, strict=True):
            assert ad.tensor(one).equal(other)
        graph.check_invariants()


def test_an_error_in_the_middle_leaves_the_rest_stale() -> None:
    graph = ad.Graph()
    with graph:
        x = graph.input(ad.ones(20))
        z = graph.input(shape=(20,))
        y = (x * 2 + 1) * z.exp()
    for _ in range(4):
        with pytest.raises(GraphError, match="no value"):
            y.sum().item()
        graph.check_invariants()
    z.set(ad.zeros(20))
    assert y.tolist() == [3.0] * 20
    graph.check_invariants()


def test_an_op_that_raises_leaves_its_cell_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = ad.Graph()
    with graph:
        x = graph.input(ad.ones(20))
        a = x * 2
        b = a + 1
        c = b - 3
    assert c.tolist() == [0.0] * 20
    x.set(ad.zeros(20))
    from adjoint.runtime import chains

    def failing(op: Any, arrays: list[Any], run: Any = chains.run) -> Any:
        if type(op).__name__ == "Sub":
            raise MemoryError
        return run(op, arrays)

    with monkeypatch.context() as patch:
        patch.setattr(chains, "run", failing)
        with pytest.raises(MemoryError):
            c.sum().item()
        graph.check_invariants()
    assert a.tolist() == [0.0] * 20
    assert c.tolist() == [-2.0] * 20
    graph.check_invariants()


def test_edits_and_cutoffs_between_refreshes() -> None:
    graph = ad.Graph()
    with graph:
        x = graph.input(ad.ones(20))
        a = x * 2
        b = a.clamp(0, 1)
        c = b + 1
        d = c * c
    for n in range(2, 8):
        x.set(ad.full((20,), float(n)))
        assert d.tolist() == [4.0] * 20
    with graph:
        e = a * 3
    graph.replace(b, e)
    for n in range(2, 8):
        x.set(ad.full((20,), float(n)))
        assert d.tolist() == [(6.0 * n + 1) ** 2] * 20
    graph.check_invariants()


def test_what_nobody_can_ask_for_is_freed() -> None:
    graph = ad.Graph()
    with graph:
        x = graph.input(ad.ones(20))
        y = x * 2 + 1
    for n in range(5):
        x.set(ad.full((20,), float(n)))
        y.sum().item()
    cell = weakref.ref(y._data)
    del y
    gc.collect()
    assert cell() is None
