"""Calls of composites in a graph: where all of one is computed anew, forward and backward are those
of eager execution, bit for bit; what lies between is there when it is asked for."""

from __future__ import annotations

import gc
from collections import Counter

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.autograd.regions import RegionBackward
from adjoint.nn import functional as F


def first(y):
    return y[0] if isinstance(y, tuple) else y


MODELS = {
    "gru": (lambda: nn.GRU(4, 8), (5, 2, 4)),
    "gru, two layers, both ways": (lambda: nn.GRU(4, 3, 2, bidirectional=True), (3, 2, 4)),
    "lstm": (lambda: nn.LSTM(4, 8, batch_first=True), (2, 5, 4)),
    "rnn": (lambda: nn.RNN(4, 8, bias=False), (5, 2, 4)),
    "batch norm": (lambda: nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh()), (9, 4)),
    "dropout": (
        lambda: nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.4), nn.LayerNorm(4), nn.GELU()),
        (9, 4),
    ),
    "group norm": (lambda: nn.GroupNorm(2, 4), (3, 4, 5)),
    "transformer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), (5, 2, 8)),
}
every_model = pytest.mark.parametrize("name", MODELS)


@pytest.fixture
def calls(monkeypatch):
    """How often each composite was walked back over, and, of `counted` regions, called."""
    found = Counter()
    original = RegionBackward.compute

    def compute(self, *args):
        found["gradients", self.region.declared.function.__name__] += 1
        return original(self, *args)

    monkeypatch.setattr(RegionBackward, "compute", compute)
    return found


class Counted:
    """A composite that counts its calls."""

    def __init__(self, declared, calls):
        self.function, self.called, self.calls = declared.function, declared.run, calls

    def run(self, *args):
        self.calls["call", self.function.__name__] += 1
        return self.called(*args)


def count_calls(graph, calls):
    for region in {cell.region for cell in graph._state.cells() if cell.given}:
        region.declared = Counted(region.declared, calls)


def both(name):
    make, shape = MODELS[name]
    models = []
    for _ in range(2):
        ad.manual_seed(0)
        models.append(make())
    return *models, [ad.randn(*shape) for _ in range(4)]


def values(x):
    return x.detach().numpy().copy()


def assert_bits(found, expected):
    np.testing.assert_array_equal(values(found), values(expected))


@every_model
def test_training_a_recorded_composite_is_eager_bit_for_bit(name):
    eager, ours, batches = both(name)
    graph = ad.Graph()
    x = graph.input(tuple(batches[0].shape), requires_grad=True)
    with graph:
        y = first(ours(x))
        loss = y.square().mean()
    steps = [ad.optim.SGD(m.parameters(), lr=0.1) for m in (eager, ours)]
    for turn, batch in enumerate([*batches, batches[0]]):
        leaf = batch.clone().requires_grad_()
        for step in steps:
            step.zero_grad()
        ad.manual_seed(turn)
        out = first(eager(leaf))
        out.square().mean().backward()
        ad.manual_seed(turn)
        x.set(batch)
        x.grad = None
        assert_bits(y, out)
        loss.backward()
        assert_bits(x.grad, leaf.grad)
        for p, q in zip(ours.parameters(), eager.parameters(), strict=True):
            assert_bits(p.grad, q.grad)
        for step in steps:
            step.step()
        for a, b in zip(ours.buffers(), eager.buffers(), strict=True):
            assert_bits(a, b)
    graph.check_invariants()


def test_a_turn_calls_each_composite_once_and_walks_back_once(calls):
    _, gru, batches = both("gru")
    graph = ad.Graph()
    x = graph.input(batches[0])
    with graph:
        loss = gru(x)[0].square().mean()
    loss.backward()
    calls.clear()
    count_calls(graph, calls)
    for batch in batches:
        x.set(batch)
        loss.backward()
    assert calls["call", "recurrent_layer"] == calls["gradients", "recurrent_layer"] == 4
    x.set(batches[0])
    with graph.events() as log:
        loss.backward()
    assert "TanhGradient" not in log.ran and log.ran.count("RegionBackward") == 1
    # Eager execution has one node for the layer; here nothing of its 60 ops has one in backward
    assert len(graph.gradient_nodes) < 20


def test_the_cells_of_a_normalization_are_one_op_in_backward(calls):
    _, model, batches = both("dropout")
    graph = ad.Graph()
    x = graph.input(batches[0])
    with graph:
        loss = model(x).mean()
    loss.backward()
    calls.clear()
    count_calls(graph, calls)
    x.set(batches[1])
    with graph.events() as log:
        loss.backward()
    assert log.ran.count("RegionBackward") == 2
    assert calls["gradients", "_standardize_channels"] == 1
    assert calls["call", "_standardize_channels"] == 1


def test_reading_alone_keeps_no_tape():
    _, gru, batches = both("gru")
    graph = ad.Graph()
    x = graph.input(batches[0])
    with graph:
        y, _ = gru(x)
    y.tolist()
    regions = {cell.region for cell in graph._state.cells() if cell.given}
    assert regions and all(region.tape is None for region in regions)
    y.sum().backward()
    assert all(region.tape is None for region in regions)
    x.set(batches[1])
    y.tolist()
    assert any(region.tape is not None for region in regions)
    graph.release()
    assert all(region.tape is None for region in regions)


def test_what_lies_between_is_computed_when_it_is_asked_for():
    _, gru, batches = both("gru")
    graph = ad.Graph()
    x = graph.input(batches[0])
    with graph:
        y, _ = gru(x)
    y.tolist()
    gates = [node for node in graph.nodes if node.node.label == "sigmoid"]
    assert len(gates) == 10
    x.set(batches[1])
    expected = y.tolist()
    for gate in gates:
        assert 0 < gate.min().item() <= gate.max().item() < 1
    assert y.tolist() == expected
    graph.release()
    assert y.tolist() == expected  # the value that it was
    graph.check_invariants()


def test_an_edit_inside_ends_the_region():
    eager, gru, batches = both("gru")
    graph = ad.Graph()
    x = graph.input(batches[0])
    with graph:
        y, _ = gru(x)
    y.sum().backward()
    before = y.tolist()
    tanh = next(node for node in graph.nodes if node.node.label == "tanh")
    graph.insert_after(tanh, lambda node: node * 0)
    assert y.tolist() != before
    x.set(batches[1])
    expected, _ = eager(batches[1])
    y.sum().backward()
    assert not np.allclose(values(y), values(expected))
    graph.check_invariants()


def test_an_edit_that_a_failed_batch_takes_back_leaves_values():
    _, gru, batches = both("gru")
    graph = ad.Graph()
    x = graph.input(batches[0])
    with graph:
        y, _ = gru(x)
    before = values(y)
    tanh = next(node for node in graph.nodes if node.node.label == "tanh")
    with pytest.raises(KeyError), graph.batch():
        graph.insert_after(tanh, lambda node: node * 0)
        x.set(batches[1])
        y.tolist()
        raise KeyError
    np.testing.assert_allclose(values(y), before, 1e-6, 1e-7)
    graph.check_invariants()


def test_gradients_of_nodes_inside_can_be_kept_and_hooks_run():
    _, gru, batches = both("gru")
    graph = ad.Graph()
    x = graph.input(batches[0])
    with graph:
        y, _ = gru(x)
        loss = y.sum()
    gate = next(node for node in graph.nodes if node.node.label == "sigmoid")
    loss.backward()
    without = gru.weight_hh_l0.grad.clone()
    loss.backward(retain_graph=True)
    assert gate.grad is not None and gate.grad.shape == gate.shape
    seen = []
    gate.register_hook(lambda g: seen.append(g.shape))
    gru.zero_grad()
    loss.backward()
    assert seen == [gate.shape]
    np.testing.assert_allclose(gru.weight_hh_l0.grad.numpy(), without.numpy(), 1e-5, 1e-6)


def test_a_node_inside_that_another_loss_uses_gets_both_gradients():
    _, gru, batches = both("gru")
    graph = ad.Graph()
    x = graph.input(batches[0])
    with graph:
        y, _ = gru(x)
    gate = next(node for node in graph.nodes if node.node.label == "sigmoid")
    parts = []
    for loss in (y.sum(), gate.sum(), y.sum() + gate.sum()):
        gru.zero_grad()
        loss.backward()
        parts.append(gru.weight_hh_l0.grad.numpy().copy())
    np.testing.assert_allclose(parts[0] + parts[1], parts[2], 1e-5, 1e-6)


def test_two_losses_of_one_call_share_it_and_keep_their_gradients():
    eager, gru, batches = both("gru")
    graph = ad.Graph()
    x = graph.input(batches[0])
    with graph:
        y, h = gru(x)
        losses = [y.sum(), h.square().sum(), (y * 2).sum() + h.sum()]
    for batch in batches:
        x.set(batch)
        for n, loss in enumerate(losses):
            gru.zero_grad()
            eager.zero_grad()
            loss.backward()
            out, last = eager(batch)
            [out.sum(), last.square().sum(), (out * 2).sum() + last.sum()][n].backward()
            for p, q in zip(gru.parameters(), eager.parameters(), strict=True):
                assert_bits(p.grad, q.grad)


def test_freezing_and_detaching_reach_a_region():
    eager, gru, batches = both("gru")
    graph = ad.Graph()
    x = graph.input(batches[0], requires_grad=True)
    with graph:
        loss = gru(x.detach())[0].sum() + (x * 2).sum()
    loss.backward()
    assert (x.grad == 2).all()
    for model in (eager, gru):
        model.weight_hh_l0.requires_grad_(False)
    gru.zero_grad()
    loss.backward()
    eager(batches[0])[0].sum().backward()
    assert gru.weight_hh_l0.grad is None
    assert_bits(gru.weight_ih_l0.grad, eager.weight_ih_l0.grad)
    for model in (eager, gru):
        model.weight_hh_l0.requires_grad_(True)
        model.zero_grad()
    loss.backward()
    eager(batches[0])[0].sum().backward()
    assert_bits(gru.weight_hh_l0.grad, eager.weight_hh_l0.grad)


@pytest.mark.parametrize("gradients", [True, False], ids=["grad", "no_grad"])
@pytest.mark.parametrize("rows", [1, 15, 0])
@pytest.mark.parametrize("name", ["layer norm", "cell", "mse"])
def test_other_batches_are_eager_in_either_mode(name, rows, gradients):
    ad.manual_seed(0)
    norm, cell = nn.LayerNorm(4), nn.GRUCell(4, 3)
    of = {
        "layer norm": norm,
        "cell": cell,
        "mse": lambda x: F.huber_loss(x, x * 2, reduction="none"),
    }[name]
    graph = ad.Graph()
    x = graph.input(ad.randn(3, 4))
    with graph, ad.set_grad_enabled(gradients):
        y = of(x)
    y.tolist()
    batch = ad.randn(rows, 4)
    try:
        x.set(batch)
    except ad.AdjointError:
        assert name == "cell"  # whose first state is zeros of the batch that was recorded
        return
    with ad.no_grad():
        np.testing.assert_allclose(values(y), values(of(batch)), 1e-6, 1e-7)


def test_gradients_that_are_nodes_go_through_the_ops():
    eager, norm, batches = both("group norm")
    graph = ad.Graph()
    x = graph.input(batches[0], requires_grad=True)
    with graph:
        loss = norm(x).pow(3).sum()
    (g,) = ad.autograd.grad(loss, x, create_graph=True)
    (gg,) = ad.autograd.grad(g.square().sum(), x)
    for batch in batches[:2]:
        leaf = batch.clone().requires_grad_()
        (expected,) = ad.autograd.grad(eager(leaf).pow(3).sum(), leaf, create_graph=True)
        (second,) = ad.autograd.grad(expected.square().sum(), leaf)
        x.set(batch)
        np.testing.assert_allclose(values(g), values(expected), 1e-4, 1e-5)
        np.testing.assert_allclose(values(gg), values(second), 1e-3, 1e-3)


def test_a_copy_of_a_graph_has_the_regions_of_its_own():
    _, gru, batches = both("gru")
    graph = ad.Graph()
    x = graph.input(batches[0], "x")
    with graph:
        y, _ = gru(x)
        loss = y.sum()
    loss.backward()
    other = graph.copy()
    x.set(batches[1])
    other["x"].set(batches[1])
    assert_bits(other.twin(y), y)
    with other.events() as log:
        other.twin(loss).backward()
    assert log.ran.count("RegionBackward") == 1
    x.set(batches[2])
    other["x"].set(batches[3])
    assert not np.array_equal(values(other.twin(y)), values(y))


class Weighted(ad.autograd.Function):
    """A Function whose forward reads values, so that it is one node."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return ad.tensor(x.numpy() * 2)

    @staticmethod
    def backward(ctx, g):
        return g * 2


@pytest.mark.parametrize("of", [Weighted.apply, lambda x: F.layer_norm(x, (4,))])
def test_what_is_dropped_is_gone(of):
    graph, w = ad.Graph(), ad.randn(3, 4, requires_grad=True)
    x = graph.input(ad.randn(3, 4))

    def turn():
        with graph:
            loss = of(x * w).square().mean()
            loss.backward()

    turn()
    gc.collect()
    held = len(graph._state.cells())
    for _ in range(5):
        turn()
    gc.collect()
    assert len(graph._state.cells()) <= held + 2
