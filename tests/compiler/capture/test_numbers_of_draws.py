"""Numbers of draws that change from call to call, as a schedule of dropout: one program for all."""

from __future__ import annotations

import pytest

import adjoint as ad
from adjoint import nn

PS = (0.3, 0.3, 0.9, 0.8, 0.0, 0.1, 0.5, 1.0, 0.25, 0.999)


def losses(compiled, size, device="cpu"):
    ad.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, size), nn.Dropout(0.3), nn.Tanh(), nn.Linear(size, 3))
    model.to(device)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean() + (ad.rand(2, device=device) * 0).sum()
        loss.backward()
        optimizer.step()
        return loss

    run = ad.compile(step) if compiled else step
    x = ad.randn(4, 5, device=device)
    found = []
    for p in PS:
        model[1].p = p
        found.append(run(x).item())
    return found, getattr(run, "reasons", [])


@pytest.mark.parametrize("size", [1, 7, 300])
def test_a_schedule_of_dropout_compiles_nothing_anew(size):
    wanted, _ = losses(False, size)
    for _ in range(2):  # a second model meets what the first has left in caches
        found, reasons = losses(True, size)
        assert found == pytest.approx(wanted, rel=2e-5, abs=1e-7)
        assert len(reasons) <= 4  # p = 0 and p = 1 go other ways


def test_the_same_on_another_device():
    pytest.importorskip("torch", reason="PyTorch is not installed")
    wanted, _ = losses(False, 7, "torch")
    found, reasons = losses(True, 7, "torch")
    assert found == pytest.approx(wanted, rel=2e-5, abs=1e-7)
    assert len(reasons) <= 4


def test_numbers_of_draws_within_a_loop():
    def noisy(x, rates):
        def body(total, n):
            return ad.nn.functional.dropout(total + 1, rates.p), n + 1

        return ad.while_loop(lambda total, n: n < 3, body, (x, ad.tensor(0)))[0]

    class Rates:
        p = 0.25

    rates = Rates()
    run = ad.compile(lambda x: noisy(x, rates))
    x = ad.ones(50)
    for p in (0.25, 0.5, 0.75, 0.125):
        rates.p = p
        found = []
        for function in (lambda x: noisy(x, rates), run):
            ad.manual_seed(3)
            found.append(function(x))
        assert found[0].tolist() == pytest.approx(found[1].tolist())


def test_other_draws_follow_their_numbers():
    class Bounds:
        low, high, p = 0, 5, 0.5

    bounds = Bounds()

    def draw(x):
        whole = ad.randint(bounds.low, bounds.high, (40,))
        coins = ad.empty(40).bernoulli_(bounds.p)
        return x + whole + coins

    run = ad.compile(draw)
    x = ad.zeros(40)
    for low, high, p in ((0, 5, 0.5), (0, 9, 0.25), (3, 4, 1), (2, 50, 0), (-7, 2, 0.75)):
        bounds.low, bounds.high, bounds.p = low, high, p
        found = []
        for function in (draw, run):
            ad.manual_seed(5)
            found.append(function(x).tolist())
        assert found[0] == found[1]


def test_a_number_that_is_read_is_named():
    class Held:
        value = 0.5

    held = Held()
    run = ad.compile(lambda x: x + round(held.value, 2))
    for value in (0.5, 0.25, 0.75):
        held.value = value
        assert run(ad.zeros(2)).tolist() == [value, value]
    assert run.reasons[2] == "the number value, which the function read, was 0.25 and is 0.75"


@pytest.mark.parametrize("value", [0.5, 3])
def test_numbers_that_fill_tensors_come_with_each_run(value):
    class Held:
        pass

    held = Held()
    held.value = value
    functions = {
        "full": lambda x: x + ad.full((2,), held.value),
        "half": lambda x: x + ad.full((2,), held.value, dtype=ad.bfloat16),
        "like": lambda x: ad.full_like(x, held.value).mul_(x + 1),
        "new": lambda x: x.new_full((3, 2), held.value) * x,
        "none": lambda x: x.new_full((0,), held.value),
        "leaf": lambda x: ad.full((), held.value, dtype=ad.float32, requires_grad=True) * x,
    }
    for name, function in functions.items():
        run = ad.compile(function)
        for factor in (1, 2, 3, -4):
            held.value = value * factor
            found, wanted = run(ad.ones(2)), function(ad.ones(2))
            assert found.dtype is wanted.dtype
            assert found.tolist() == wanted.tolist(), name
            assert found.requires_grad == wanted.requires_grad
        assert len(run.reasons) == 2, (name, run.reasons)
