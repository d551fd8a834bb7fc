"""A call in which all is as in the last one: how much Python it is, what it must still notice."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.backends.native.gemm import products

compiled_core = pytest.mark.skipif(
    ad.extensions.state() != "compiled", reason="loops over lists are Python here"
)


def calls_of(run) -> int:
    """How many functions run, of Python or called by it."""
    count = 0

    def event(frame, what, argument):
        nonlocal count
        count += what in ("call", "c_call")

    sys.setprofile(event)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


def network(width: int, layers: int = 2):
    parts = []
    for _ in range(layers):
        parts += [nn.Linear(width, width), nn.ReLU()]
    model = nn.Sequential(*parts[:-1])
    optimizer = ad.optim.Adam(model.parameters(), lr=1e-2)
    criterion = nn.CrossEntropyLoss()

    def step(x, y):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, optimizer, step


@compiled_core
@pytest.mark.parametrize("layers", (2, 6))
def test_a_step_is_few_calls_of_python_whatever_it_is_of(layers):
    _, _, step = network(8, layers)
    compiled = ad.compile(step)
    x, y = ad.randn(4, 8), ad.tensor([0, 1, 2, 3])
    for _ in range(4):
        compiled(x, y)
    assert calls_of(lambda: compiled(x, y)) <= 45


@compiled_core
def test_many_arguments_and_results_are_no_more_calls():
    def doubled(*xs):
        return [x * 2 for x in xs]

    counts = []
    for count in (2, 100):
        compiled = ad.compile(doubled)
        xs = [ad.full((3,), float(n)) for n in range(count)]
        for _ in range(3):
            found = compiled(*xs)
        assert [y.tolist() for y in found] == [[2.0 * n] * 3 for n in range(count)]
        assert all(y._data.base is None for y in found)  # each has memory of its own
        counts.append(calls_of(lambda c=compiled, xs=xs: c(*xs)))
    few, many = counts
    assert few <= 25 and many <= few + 8  # the pool may be asked for its workers


@pytest.mark.parametrize("count", (3, 15, 16, 17, 40))
def test_one_tensor_twice_among_few_or_many_arguments_is_another_call(count):
    def same(*xs):
        return xs[0] * 1 + sum(float(x is xs[-1]) for x in xs)

    compiled = ad.compile(same)
    xs = [ad.zeros(1) for _ in range(count)]
    for _ in range(2):
        assert compiled(*xs).item() == 1.0
        assert compiled(*xs[:-1], xs[0]).item() == 2.0
        assert compiled(*xs[:-1], xs[-2]).item() == 2.0
    assert len(compiled.programs) == 3


def test_a_container_that_is_returned_twice_is_one_object_of_each_run():
    def pairs(x):
        both = [x + 1, x + 2]
        return {"first": both, "then": (both, both[0], x, 3)}

    compiled = ad.compile(pairs)
    x = ad.ones(2)
    before = compiled(x)
    found = compiled(x)
    assert found["first"] is found["then"][0]
    assert found["first"][0] is found["then"][1]
    assert found["then"][2] is x
    assert found["then"][3] == 3
    assert found["first"] is not before["first"]
    assert [y.tolist() for y in found["first"]] == [[2.0, 2.0], [3.0, 3.0]]


def test_rates_and_counts_that_change_in_each_call_are_those_of_eager_steps():
    x, y = ad.randn(5, 6), ad.tensor([0, 1, 2, 3, 4])
    found = []
    for wrap in (ad.compile, lambda step: step):
        ad.manual_seed(3)
        model, optimizer, step = network(6)
        step = wrap(step)
        losses = []
        for k in range(7):
            optimizer.param_groups[0]["lr"] = 0.01 / (k + 1)
            losses.append(step(x, y).item())
            if k == 4:  # from outside
                for state in optimizer.state.values():
                    state["step"].fill_(2.0)
        found.append((losses, [p.tolist() for p in model.parameters()]))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-5)
    for a, b in zip(found[0][1], found[1][1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_results_and_gradients_that_are_kept_are_not_written_again():
    model, _, step = network(6)
    compiled = ad.compile(step)
    y = ad.tensor([0, 1, 2])
    kept = []
    for k in range(5):
        loss = compiled(ad.full((3, 6), float(k)), y)
        gradient = next(iter(model.parameters())).grad
        kept.append((loss, loss.item(), gradient, gradient.tolist()))
    for loss, value, gradient, values in kept:
        assert loss.item() == value
        assert gradient.tolist() == values


def test_an_error_in_the_middle_leaves_the_step_uncounted():
    model, optimizer, step = network(6)
    compiled = ad.compile(step)
    x, y = ad.randn(3, 6), ad.tensor([0, 1, 2])
    for _ in range(3):
        compiled(x, y)
    before = [p.tolist() for p in model.parameters()]
    with pytest.raises(IndexError, match="Target 6 is out of bounds"):
        compiled(x, ad.tensor([0, 1, 6]))
    assert [state["step"].item() for state in optimizer.state.values()] == [3.0] * 4
    assert [p.tolist() for p in model.parameters()] == before
    compiled(x, y)
    assert [state["step"].item() for state in optimizer.state.values()] == [4.0] * 4


def test_products_are_cut_anew_for_other_threads(monkeypatch):
    """A program that was compiled for one thread uses two, once there are; and compiles nothing."""
    made = []

    def cut(p, workers, turned=False):
        made.append(workers)
        return found(p, workers, turned)

    found = products._build_generated
    monkeypatch.setattr(products, "_build_generated", cut)
    a, b = ad.randn(256, 301), ad.randn(301, 200)
    step = ad.compile(lambda a: a @ b)
    before = ad.get_num_threads()
    results = []
    try:
        for threads in (1, 1, 2, 2):
            ad.set_num_threads(threads)
            made.clear()
            results.append((step(a).tolist(), set(made)))
    finally:
        ad.set_num_threads(before)
    assert [seen for _, seen in results] == [{1}, set(), {2}, set()]
    for found_, _ in results:
        np.testing.assert_allclose(found_, (a @ b).tolist(), rtol=1e-4, atol=1e-4)
    assert step.reasons == ["first call"]
