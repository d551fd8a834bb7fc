"""Results that take the memory of what nothing reads afterwards: which, and the same bits."""

import numpy as np
import pytest

import adjoint as ad
from adjoint.compiler.schedule import schedule
from tests.native import needs_native

from ...sweep import swept

pytestmark = needs_native


def drawn(*shape, seed=0):
    return ad.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def count_of(function, monkeypatch, *args):
    """How many results were written over others; the bits are those of memory for each."""
    found = []
    for change in (schedule.overwritten, lambda *_: {}):
        monkeypatch.setattr(schedule, "overwritten", change)
        program = ad.compile(lambda *args: function(*args))
        results = [y for k in (1, 3) for y in program(*(x * k for x in args))]
        [part] = program.programs[0].parts
        found.append((results, len(part.schedule.overwritten), part.schedule.layout.size))
        assert not program.explain(*args).host_calls
    (results, count, size), (wanted, _, whole) = found
    for y, z in zip(results, wanted, strict=True):
        np.testing.assert_array_equal(y.numpy(), z.numpy())
    assert size <= whole
    return count


W = drawn(64, 64, seed=5)
CASES = {  # results that may lie over others, and how many do; products begin each kernel
    "a chain": (lambda x: [((x @ W).tanh() @ W).exp() @ W], 2),
    "what is kept meanwhile": (lambda x: [(x @ W).softmax(1) @ W], 0),
    "of two": (lambda x: [((x @ W) * (x.T @ W)) @ W], 1),
    "read later": (lambda x: [(y := x @ W).tanh() @ W, y.exp() @ y], 0),
    "read by a view later": (lambda x: [(y := x @ W).tanh() @ W, y.T @ W], 0),
    "another place": (lambda x: [((y := x @ W) + y.T) @ W], 0),
    "a row of itself": (lambda x: [((y := x @ W) * y[:1]) @ W], 0),
    "returned": (lambda x: [y := x @ W, y.tanh()], 0),
    "an argument": (lambda x: [x.tanh() @ W], 0),
    "another dtype": (lambda x: [(x @ W).double().tanh()], 0),
    "more than one": (lambda x: [(y := x @ W).tanh() @ W, (y + 1) @ W], 1),
    "statistics": (lambda x: [((y := x @ W) - y.mean(0)) / (y.square().mean(0) + 1) @ W], None),
    "other shapes": (lambda x: [(x @ W).sum(1).exp(), (x @ W).tanh().sum(0)], None),
}
SQUARE = ("of two", "read later", "read by a view later", "another place")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("rows", [64, swept((1,)), swept((700,))])
def test_what_is_overwritten(name, rows, monkeypatch):
    function, wanted = CASES[name]
    if rows != 64 and name in SQUARE:
        pytest.skip("of square matrices")
    count = count_of(function, monkeypatch, drawn(rows, 64))
    assert rows != 64 or wanted in (count, None)


def test_a_step_needs_less_memory(monkeypatch):
    """And trains as it does with memory for each result."""
    from adjoint import nn

    found = []
    for change in (schedule.overwritten, lambda *_: {}):
        monkeypatch.setattr(schedule, "overwritten", change)
        ad.manual_seed(0)
        model = nn.Sequential(*(m for _ in range(3) for m in (nn.Linear(32, 32), nn.Tanh())))
        optimizer = ad.optim.Adam(model.parameters())

        @ad.compile
        def step(x, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        losses = [step(drawn(256, 32, seed=k)).item() for k in range(4)]
        found.append((losses, step.explain(drawn(256, 32)).memory))
    (losses, memory), (wanted, whole) = found
    assert losses == wanted and memory < whole


@pytest.mark.parametrize("kept", [False, True], ids=["free", "kept"])
def test_a_sum_of_gradients_lies_where_it_is_wanted(kept, monkeypatch):
    """In the gradient's own memory from its first term on, but in another's while that is held."""
    from adjoint import nn
    from adjoint.core import policy

    monkeypatch.setattr(policy, "RUNNING_SUM", 0)
    layer = nn.Linear(64, 64, bias=False)
    held = []

    @ad.compile
    def step(x):
        layer.zero_grad()
        for part in x.chunk(4):
            layer(part).square().sum().backward()

    for k in range(5):
        x = drawn(32, 64, seed=k)
        step(x)
        expected = 2 * (x @ layer.weight.T).T @ x
        ad.testing.assert_close(layer.weight.grad, expected, rtol=1e-4, atol=1e-3)
        if kept:
            held.append((layer.weight.grad, expected))
    for gradient, expected in held:
        ad.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-3)
    [program] = step.programs
    assert not program.bindings.copies and not program.late
    assert step.explain(x).memory < layer.weight.nbytes
