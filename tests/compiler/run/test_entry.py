"""The short way of a compiled function to the program that it ran last, and what leaves it."""

from __future__ import annotations

import threading

import pytest

import adjoint as ad
from adjoint import nn


@pytest.fixture
def ways(monkeypatch):
    """How often calls went the general way."""
    from adjoint.compiler.function import CompiledFunction

    found = []
    general = CompiledFunction._run

    def counted(self, *args):
        found.append(self)
        return general(self, *args)

    monkeypatch.setattr(CompiledFunction, "_run", counted)
    return found


def training(optimizer_class=ad.optim.Adam, **options):
    ad.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.Dropout(0.3), nn.Tanh(), nn.Linear(7, 3))
    optimizer = optimizer_class(model.parameters(), **options)

    def step(x, y=None, *, scale=1.0):
        optimizer.zero_grad()
        out = model(x) * scale
        loss = (out if y is None else out - y).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, optimizer, step


def assert_same(calls, **options):
    """Calls on two models, one compiled: the same losses, parameters and gradients."""
    losses, states = [], []
    for compiled in (False, True):
        model, optimizer, step = training(**options)
        run = ad.compile(step) if compiled else step
        losses.append([float(x) for x in calls(run, model, optimizer)])
        states.append([*model.state_dict().values(), *(p.grad for p in model.parameters())])
    assert losses[0] == pytest.approx(losses[1], rel=2e-5)
    for ours, theirs in zip(*states, strict=True):
        assert ad.allclose(ours, theirs, rtol=2e-4, atol=1e-6)


def test_a_call_like_the_last_one_goes_the_short_way(ways):
    x, y = ad.randn(4, 5), ad.randn(4, 3)

    def calls(run, model, optimizer):
        for _ in range(6):
            yield run(x, y=y)

    assert_same(calls)
    assert len(ways) == 2  # the first, and the one that finds the program


def test_a_forward_whose_gradients_come_from_outside_goes_the_short_way(ways):
    """Also where earlier calls wait for their backward, and where memory was replaced."""
    ad.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    run = ad.compile(model)
    xs = [ad.randn(4, 5, requires_grad=k % 2 == 0) for k in range(2)]

    def gradients(function, pending):
        model.zero_grad()
        for x in xs:
            x.grad = None
        ys = [function(xs[0]) for _ in range(pending)]
        for scale, y in enumerate(ys, 1):
            (y * scale).sum().backward()
        return [p.grad.clone() for p in (*model.parameters(), xs[0])]

    for pending in (1, 1, 3, 1):
        for ours, eager in zip(gradients(run, pending), gradients(model, pending), strict=True):
            assert ad.allclose(ours, eager, rtol=1e-5, atol=1e-6)
    assert len(ways) == 2  # the first, and the one that finds the program
    model[0].weight.data = ad.randn(7, 5)
    for ours, eager in zip(gradients(run, 2), gradients(model, 2), strict=True):
        assert ad.allclose(ours, eager, rtol=1e-5, atol=1e-6)
    assert not run(xs[1]).detach().requires_grad
    model[0].weight.requires_grad_(False)
    y = run(xs[0])
    y.sum().backward()
    model[0].weight.requires_grad_(True)
    assert y.requires_grad
    y = run(xs[0])
    with ad.no_grad():
        model[2].weight.mul_(2)
    with pytest.raises(ad.AutogradError, match="changed"):
        y.sum().backward()


def test_what_changes_between_calls_leaves_the_short_way_and_is_seen():
    x, y = ad.randn(4, 5), ad.randn(4, 3)
    short = ad.randn(1, 5)

    def calls(run, model, optimizer):
        for _ in range(3):
            yield run(x)
        yield run(x, y)
        yield run(short)
        yield run(x, y=y)
        yield run(x, scale=0.5)
        yield run(x, scale=0.5)
        for group in optimizer.param_groups:
            group["lr"] *= 3
        yield run(x, scale=0.5)
        model.eval()
        yield run(x, scale=0.5)
        model[0].weight.requires_grad_(False)
        yield run(x, scale=0.5)
        model[0].weight.requires_grad_(True)
        yield run(x, scale=0.5)
        with ad.no_grad():
            model[3].bias.add_(1)
        yield run(x, scale=0.5)
        model[3].bias.data = ad.zeros(3)
        yield run(x, scale=0.5)
        kept = model[0].weight.grad
        before = kept.clone()
        yield run(x, scale=0.5)
        assert (kept == before).all()
        model[1].p = 0.9
        model.train()
        yield run(x, scale=0.5)
        yield run(x, scale=0.5)

    assert_same(calls)
    assert_same(calls, optimizer_class=ad.optim.SGD, momentum=0.9, lr=0.05)


def test_modes_and_default_dtypes_are_part_of_the_call(ways):
    doubled = ad.compile(lambda x: x * 2 + ad.ones(2))
    x = ad.ones(2, requires_grad=True)
    with ad.no_grad():
        for _ in range(3):
            assert not doubled(x).requires_grad
    assert doubled(x).requires_grad
    with ad.no_grad(), ad.autocast("cpu", dtype=ad.bfloat16):
        assert doubled(x).dtype is ad.float32
    whole = ad.ones(2, dtype=ad.int64)
    for _ in range(3):
        assert doubled(whole).dtype is ad.float32
    ad.set_default_dtype(ad.float64)
    try:
        assert doubled(whole).dtype is ad.float64
    finally:
        ad.set_default_dtype(ad.float32)
    assert doubled(whole).dtype is ad.float32


def test_errors_leave_the_short_way_usable():
    table = nn.Embedding(3, 2)
    looked = ad.compile(lambda i: table(i).sum())
    good, bad = ad.tensor([0, 2]), ad.tensor([0, 3])
    with ad.no_grad():
        wanted = looked(good)
        for _ in range(3):
            assert looked(good) == wanted
            with pytest.raises(IndexError):
                looked(bad)


def test_what_cannot_be_captured_later_is_said_after_short_calls():
    seen = []
    flag = [False]

    def function(x):
        if flag[0]:
            seen.append(float(x.sum()))
        return x + 1

    run = ad.compile(function, fallback="eager")
    x = ad.ones(3)
    for _ in range(3):
        run(x)
    flag[0] = True
    with pytest.warns(UserWarning, match="runs eagerly"):
        assert run(x).tolist() == [2, 2, 2]
    assert run(x).tolist() == [2, 2, 2]
    assert seen[-1] == 3.0


def test_threads_take_turns_on_the_short_way():
    weight = ad.randn(64, 64)
    run = ad.compile(lambda x: (x @ weight).tanh())
    inputs = [ad.randn(8, 64) for _ in range(4)]
    wanted = [run(x).clone() for x in inputs]
    wrong = []

    def work(n):
        for _ in range(50):
            if not (run(inputs[n]) == wanted[n]).all():
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


def test_graphs_and_lazy_blocks_between_short_calls():
    doubled = ad.compile(lambda x: x * 2)
    for _ in range(3):
        assert doubled(ad.ones(2)).tolist() == [2, 2]
    with ad.lazy():
        y = doubled(ad.ones(2))
    assert y.tolist() == [2, 2]
    graph = ad.Graph()
    x = graph.input(ad.ones(2))
    node = doubled(x)
    x.set(ad.full((2,), 3.0))
    assert node.tolist() == [6, 6]
    assert doubled(ad.ones(2)).tolist() == [2, 2]
