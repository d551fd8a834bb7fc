"""Multiplications and additions by modules, beside PyTorch's FlopCounterMode."""

from __future__ import annotations

import pytest

import adjoint as ad
from adjoint.profiler import flop_counter

torch = pytest.importorskip("torch")
theirs = pytest.importorskip("torch.utils.flop_counter")


def network(t):
    return t.nn.Sequential(
        t.nn.Conv2d(3, 4, 3), t.nn.ReLU(), t.nn.Sequential(t.nn.Flatten(), t.nn.Linear(64, 5))
    )


CASES = {
    "network": (network, lambda t, m: m(t.ones(2, 3, 6, 6))),
    "transposed": (lambda t: t.nn.ConvTranspose2d(3, 4, 3), lambda t, m: m(t.ones(2, 3, 6, 6))),
    "attention": (
        lambda t: t.nn.MultiheadAttention(8, 2, batch_first=True),
        lambda t, m: m(*[t.ones(2, 5, 8)] * 3)[0],
    ),
    "products": (
        lambda t: t.nn.Identity(),
        lambda t, m: m(t.ones(2, 3, 4) @ t.ones(4, 5)) @ t.ones(2, 5, 1),
    ),
    "none": (lambda t: t.nn.Identity(), lambda t, m: m(t.ones(3)).exp()),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("depth", [1, 2])
def test_counts_of_modules(name, depth, capsys):
    make, run = CASES[name]
    found = []
    for t, counter_of in ((ad, flop_counter), (torch, theirs)):
        model = make(t)
        with counter_of.FlopCounterMode(display=False, depth=depth) as counter:
            run(t, model)
        counts = {k: sum(v.values()) for k, v in counter.get_flop_counts().items()}
        found.append((counter.get_total_flops(), {k: v for k, v in counts.items() if v}))
    assert found[0] == found[1]


def test_backward_counts_for_the_whole():
    totals = []
    for t, counter_of in ((ad, flop_counter), (torch, theirs)):
        model = network(t)
        with counter_of.FlopCounterMode(display=False) as counter:
            model(t.ones(2, 3, 6, 6)).sum().backward()
        totals.append(counter.get_total_flops())
    assert totals[0] == totals[1]


def test_the_table_is_printed(capsys):
    model = network(ad)
    with flop_counter.FlopCounterMode():
        model(ad.ones(2, 3, 6, 6))
    shown = capsys.readouterr().out.split("\n")
    assert shown[0].split() == ["Module", "FLOP", "%", "Total"]
    assert shown[2].split()[0] == "Sequential" and shown[2].endswith("100.00%")
    assert any(line.split()[:1] == ["Sequential.0"] for line in shown)


def test_what_is_refused():
    with pytest.raises(ad.Unsupported, match="custom_mapping"):
        flop_counter.FlopCounterMode(custom_mapping={1: len})
    with pytest.warns(UserWarning, match="mods"):
        flop_counter.FlopCounterMode(ad.nn.Linear(1, 1))
