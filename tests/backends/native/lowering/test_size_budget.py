"""What is kept by size: programs that meet sizes without end stay within one budget, sizes that
come again keep their path, and results do not depend on what was dropped.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.core import policy, sized_tables
from adjoint.ir import compute

from ....sweep import few_or_many

pytest.importorskip("llvmlite", reason="llvmlite is not installed")

from adjoint.backends.native.lowering import composite, kernel_patterns

F = ad.nn.functional


@pytest.fixture(autouse=True)
def _nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    compute.forget()
    monkeypatch.setattr(sized_tables._budget, "grown", 0)
    yield
    compute.forget()


def trained() -> Callable[[int], Any]:
    """A training step for a batch of so many rows: linear layers, composites, a loss, Adam."""
    ad.manual_seed(0)
    model = ad.nn.Sequential(
        ad.nn.Linear(6, 8), ad.nn.GELU(), ad.nn.LayerNorm(8), ad.nn.Linear(8, 3)
    )
    optimizer = ad.optim.Adam(model.parameters(), lr=1e-3)
    rng = np.random.default_rng(0)

    def step(rows: int) -> Any:
        x = ad.tensor(rng.random((rows, 6), np.float32))
        loss = F.cross_entropy(model(x), ad.arange(rows) % 3)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def results(rows: int) -> list[bytes]:
    """What ops, routines, products and composites with gradients give for so many rows."""
    rng = np.random.default_rng(rows)
    x = ad.tensor(rng.random((rows, 6), np.float32), requires_grad=True)
    w = ad.tensor(rng.random((5, 6), np.float32))
    image = ad.tensor(rng.random((1, 2, rows, rows + 3), np.float32))
    filters = ad.tensor(rng.random((3, 2, 3, 3), np.float32))
    ys = [
        x + x[:1], x.sum(0), x.mean(1), x.flip(0), x.cumsum(0), F.linear(x, w), x @ x.t(),
        F.layer_norm(x, (6,)), F.softmax(x, -1), F.gelu(x), F.conv2d(image, filters),
        F.max_pool2d(image, 2), ad.cat([x, x]), x.detach().clone().mul_(0.3),
    ]  # fmt: skip
    sum(y.square().sum() for y in ys[:10]).backward()
    assert x.grad is not None
    return [y.detach().numpy().tobytes() for y in (*ys, x.grad)]


def fresh_entries() -> int:
    """How many entries came once."""
    return sum(len(table.fresh) for table in sized_tables._budget.tables())


class Counted:
    """How often something was made: plans of composites and traces of ops are captured, entries of
    the tables are put.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.captures = 0
        for kind, name in (
            (kernel_patterns.KernelPattern, "__init__"),
            (composite.Composite, "__init__"),
            (composite.Composite, "sized"),
            (composite.Composite, "_prepared"),
        ):
            monkeypatch.setattr(kind, name, self._counting(getattr(kind, name)))

    def _counting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.captures += 1
            return function(*args, **kwargs)

        return counted


@few_or_many("count", 120, 10_000)
def test_a_training_step_of_sizes_without_end_stays_in_the_budget(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if count < 1000:
        monkeypatch.setattr(policy, "SIZED_BYTES", 1 << 20)
    step = trained()
    turns = sized_tables.turns()
    for k, rows in enumerate(range(3, 3 + count)):
        assert step(rows).item() > 0
        if k % max(1, count // 60) == 0:
            assert sized_tables.kept_bytes() <= 1.1 * sized_tables.limit()  # families grow
    assert sized_tables.turns() > turns + 2
    assert sized_tables.limit() < 1.5 * policy.SIZED_BYTES  # nearly nothing came again


def test_what_came_once_is_not_kept_and_what_comes_again_keeps_its_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(policy, "SIZED_BYTES", 1 << 20)
    step = trained()
    counted = Counted(monkeypatch)
    for _ in range(4):
        step(50)
    turns, sizes = sized_tables.turns(), itertools.count(60)
    while sized_tables.turns() < turns + 4:
        step(next(sizes))
        fresh, captures = fresh_entries(), counted.captures
        step(50)
        assert (fresh_entries(), counted.captures) == (fresh, captures)
    assert next(sizes) > 70  # several sizes a turn
    sized_tables.turn()
    assert fresh_entries() == 0
    captures = counted.captures
    step(50)
    assert (fresh_entries(), counted.captures) == (0, captures)
    step(60)  # made anew, and known to have come again
    assert counted.captures > captures


def test_a_size_is_known_the_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    step = trained()
    for rows in (5, 6, 7, 8, 8):
        step(rows)
    counted = Counted(monkeypatch)
    step(40)
    assert counted.captures > 0
    before = counted.captures
    step(40)
    step(40)
    assert counted.captures == before


def test_results_do_not_depend_on_what_was_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = (17, 18, 40, 41, 17, 90, 18)
    expected = {rows: results(rows) for rows in sizes}
    for rows in sizes:
        sized_tables.turn()
        sized_tables.turn()
        assert results(rows) == expected[rows]
    for name in ("SIZED_BYTES", "SIZED_BYTES_MOST"):  # each drops what was before
        monkeypatch.setattr(policy, name, 0)
    for rows in sizes:
        assert results(rows) == expected[rows]
        assert fresh_entries() <= 1


def test_every_table_is_in_the_inventory() -> None:
    for rows in (33, 34, 35):
        results(rows)
        results(rows)
        x = ad.rand(rows, 4)
        (x[:, ::2] * 2).sum()
    found = sized_tables.inventory()
    for name in ("executables", "draws of arrays", "products", "plans of oneDNN", "kernels of ops"):
        count, nbytes = found[name]
        assert count > 0 and nbytes >= count * policy.KEY_BYTES, name
    assert sum(nbytes for _, nbytes in found.values()) == sized_tables.kept_bytes()
