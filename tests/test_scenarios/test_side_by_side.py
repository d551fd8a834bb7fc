"""Every scenario gives the same observations on PyTorch and on adjoint."""

from __future__ import annotations

import inspect

import pytest

import adjoint as ad

from . import (  # noqa: F401 - importing a topic collects its scenarios
    accumulation,
    custom_functions,
    dtypes,
    grad_api,
    graphs,
    higher_order,
    hooks,
    indexing,
    misuse,
    modes,
    numerics,
    training,
    views,
)
from .harness import SCENARIOS, Raised, assert_same, is_empty, run

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_scenario(name):
    theirs = run(SCENARIOS[name], torch)
    assert not is_empty(theirs)
    assert_same(run(SCENARIOS[name], ad), theirs)


def test_there_are_at_least_150_distinct_scenarios():
    bodies = {
        inspect.getsource(f).partition("\n")[2].partition("\n")[2] for f in SCENARIOS.values()
    }
    assert len(bodies) >= 150


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (lambda: ad.tensor(1.0), lambda: torch.tensor(1.1)),
        (lambda: ad.tensor([1.0]), lambda: torch.tensor(1.0)),
        (lambda: ad.tensor(1.0), lambda: torch.tensor(1.0, dtype=torch.float64)),
        (lambda: None, lambda: torch.tensor(1.0)),
        (lambda: ad.tensor(0.0), lambda: torch.tensor(float("nan"))),
        (lambda: {"a": 1}, lambda: {"a": 2}),
        (lambda: [1], lambda: [1, 1]),
        (lambda: True, lambda: 1),
        (lambda: "did not raise", lambda: Raised(RuntimeError("x"), ())),
        (lambda: Raised(ad.InvalidType("x"), ()), lambda: Raised(RuntimeError("x"), ())),
        (lambda: Raised(ad.AutogradError("x"), ()), lambda: Raised(RuntimeError("y"), ("y",))),
        (lambda: Raised(RuntimeError("x"), ()), lambda: Raised(RuntimeError("x"), ())),
    ],
)  # fmt: skip
def test_the_comparison_rejects_a_difference(ours, theirs):
    with pytest.raises(AssertionError):
        assert_same(ours(), theirs())
