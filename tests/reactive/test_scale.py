"""What a change costs does not depend on the size of the graph: counts, no times."""

from __future__ import annotations

import gc
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import adjoint as ad

from ..sweep import few_or_many


class Edges:
    """Stands for a tensor in a formula: counts the operations and who uses whose result."""

    def __init__(self, *inputs: Any) -> None:
        self.users: list[Edges] = []
        for x in inputs:
            if isinstance(x, Edges):
                x.users.append(self)

    def __add__(self, other: Any) -> Edges:
        return Edges(self, other)

    __mul__ = __sub__ = __add__

    def affected(self) -> int:
        """How many operations depend on this."""
        found: set[Edges] = set()
        stack = [self]
        while stack:
            for user in stack.pop().users:
                if user not in found:
                    found.add(user)
                    stack.append(user)
        return len(found)


def tree(xs: Sequence[Any]) -> Any:
    """Two operations on each input, and sums of pairs down to one output."""
    level = [x * 2.0 - 1.0 for x in xs]
    while len(level) > 1:
        rest = level[-1:] if len(level) % 2 else []
        level = [a + b for a, b in zip(level[::2], level[1::2], strict=False)] + rest
    return level[0]


def window(xs: Sequence[Any]) -> list[Any]:
    """Outputs of three neighbouring inputs each."""
    return [a * b + c for a, b, c in zip(xs, xs[1:], xs[2:], strict=False)]


@pytest.fixture
def no_gc() -> Iterator[None]:
    """Memory is freed by reference counts alone."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def made(formula: Any, n_inputs: int) -> tuple[ad.Graph, list[Any], Any]:
    graph = ad.Graph()
    xs = [graph.input(1.0) for _ in range(n_inputs)]
    return graph, xs, formula(xs)


def test_an_update_of_a_large_graph_runs_the_affected_nodes_and_no_others() -> None:
    graph, xs, y = made(tree, 25_000)
    doubles = [Edges() for _ in xs]
    tree(doubles)
    assert len(graph) == 99_999
    assert y.item() == 25_000.0
    total = 25_000.0
    for i in (0, 12_345, 24_999):
        with graph.events() as log:
            xs[i].set(3.0)
            total += 4.0
            assert y.item() == total
        assert len(log.cells) == len(set(log.cells)) == doubles[i].affected()
        assert not log.reused
    with graph.events() as log:
        y.item()
    assert not log.cells


def test_two_inputs_that_meet_share_what_they_both_affect() -> None:
    graph, xs, y = made(tree, 4_096)
    y.item()
    with graph.events() as log:
        xs[0].set(2.0)
        xs[1].set(2.0)
        y.item()
    assert len(log.cells) == 2 * 2 + 12  # two operations each, then one path through 12 sums
    with graph.events() as log:
        xs[0].set(5.0)
        xs[4_095].set(5.0)
        y.item()
    assert len(log.cells) == 2 * 2 + 2 * 11 + 1  # the paths meet in the output


def visits(n_inputs: int) -> list[int]:
    """How often one update asks cells for their users and for their inputs: by `set`, by all. The
    types of the compiled core cannot be patched to count.
    """
    _, xs, ys = made(window, n_inputs)
    n = n_inputs // 2
    asked = ys[n - 2 : n + 1]
    cells = [y.node for y in asked]
    for y in asked:
        y.item()
    counts = {"users": 0, "inputs": 0}
    kind = type(cells[0])
    slots = {"users": kind.__dict__["users"], "inputs": kind.__dict__["cells"]}

    def counted(name: str) -> property:
        def get(cell: Any) -> Any:
            counts[name] += 1
            return slots[name].__get__(cell)

        return property(get, slots[name].__set__)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "users", counted("users"))
        patch.setattr(kind, "cells", counted("inputs"))
        xs[n].set(2.0)
        pushed = dict(counts)
        for y in asked:
            y.item()
    return [pushed["users"], pushed["inputs"], counts["users"], counts["inputs"]]


def test_the_work_of_an_update_is_independent_of_the_size_of_the_graph() -> None:
    code = "from tests.reactive.test_scale import visits; print(visits(333), visits(33_333))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "ADJOINT_COMPILED": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    small, large = map(json.loads, re.findall(r"\[.*?\]", done.stdout))
    assert small == large
    assert small[0] == 1 + 5  # marking looks at the users of the input, two products, three sums


def test_work_grows_with_what_is_affected() -> None:
    graph, xs, y = made(lambda xs: [x * 2.0 for x in xs], 1_000)
    graph.forward(*y)
    for count in (1, 10, 100):
        with graph.events() as log:
            with graph.batch():
                for x in xs[:count]:
                    x.set(float(count))
            graph.forward(*y)
        assert len(log.cells) == count


def test_a_sensitivity_refreshes_along_its_own_path() -> None:
    counts = []
    for n_inputs in (256, 16_384):
        graph = ad.Graph()
        xs = [graph.input(1.0) for _ in range(n_inputs)]
        xs[0].requires_grad_()
        y = window(xs)[0]
        (g,) = ad.autograd.grad(y, [xs[0]])
        graph.forward(y, g)
        with graph.events() as log:
            xs[1].set(7.0)
            graph.forward(y, g)
        counts.append(len(log.cells))
        assert g.item() == 7.0
        with graph.events() as log:
            xs[-1].set(7.0)
            graph.forward(y, g)
        assert not log.cells
    assert counts[0] == counts[1]


@pytest.mark.usefixtures("no_gc")
@few_or_many("deep", 200_000, 1_000_000)
def test_a_chain_of_a_million_nodes(deep: int) -> None:
    """It is built, computed, updated and freed: nothing recurses, nothing waits for the gc."""
    assert sys.getrecursionlimit() < deep
    graph = ad.Graph()
    x, late = graph.input(np.float32(0.0)), graph.input(np.float32(0.0))
    y = x
    for _ in range(deep - 3):
        y = y + 1.0
    z = y + late
    cell = z.node
    assert cell is not None
    assert z.item() == deep - 3
    assert cell.state.runs == deep - 2
    with graph.events() as log:
        late.set(np.float32(3.0))
        assert z.item() == deep
    assert log.ran == ["Add"]
    references = [cell.reference, x.node.reference, late.node.reference]
    del graph, x, late, y, z, cell, log
    assert [r() for r in references] == [None] * 3


@pytest.mark.usefixtures("no_gc")
def test_gradients_of_a_long_chain() -> None:
    n = 10_000
    graph = ad.Graph()
    x = graph.parameter(1.0)
    y = x
    for _ in range(n):
        y = -y
    y.backward()
    assert x.grad is not None
    assert x.grad.item() == 1.0
    y.backward()
    assert x.grad.item() == 2.0
    (g,) = ad.autograd.grad(y * y, [x])
    assert g.item() == 2.0
    x.detach().set(3.0)
    assert g.item() == 6.0
    graph.check_invariants()
    reference = y.node.reference
    del graph, x, y, g
    assert reference() is None


def test_a_large_graph_is_drawn() -> None:
    graph = ad.Graph()
    y = graph.input(1.0)
    for _ in range(20_000):
        y = y * 1.0
    text = graph.to_dot()
    assert text.count("->") == 20_000
