"""Under no_grad a graph holds what eager execution holds: a value that only led to another goes."""

from __future__ import annotations

import gc
import tracemalloc

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(256, 256) for _ in range(6)])

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x).relu()
        return x


class Viewed(Residual):
    def forward(self, x):
        for layer in self.layers:
            x = layer(x.view(-1, 256)).relu().view(-1, 16, 16)
        return x


def stacked(*kinds):
    return nn.Sequential(*[make() for _ in range(6) for make in kinds]).eval()


NETWORKS = {
    "mlp": (lambda: stacked(lambda: nn.Linear(256, 256), nn.ReLU), (1024, 256)),
    "normalized": (
        lambda: stacked(lambda: nn.Linear(256, 256), lambda: nn.LayerNorm(256), nn.GELU),
        (1024, 256),
    ),
    "cnn": (
        lambda: stacked(
            lambda: nn.Conv2d(8, 8, 3, padding=1), lambda: nn.BatchNorm2d(8), nn.ReLU
        ),
        (16, 8, 32, 32),
    ),
    "viewed": (Viewed, (1024, 256)),
    "residual": (Residual, (1024, 256)),
}  # fmt: skip
MARGIN = 1.2


def peak(function):
    """The most bytes that are held beyond those before, in a call that is not the first."""
    function()
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        kept = function()
        found = tracemalloc.get_traced_memory()[1] - before
        del kept
    finally:
        tracemalloc.stop()
    return found


@pytest.mark.parametrize("name", NETWORKS)
def test_inference_holds_no_more_than_eagerly(name):
    make, shape = NETWORKS[name]
    model, batches = make(), iter([ad.randn(shape) for _ in range(10)])
    graph = ad.Graph()

    def eagerly():
        with ad.no_grad():
            return model(next(batches))

    def living():
        with graph, ad.no_grad():
            return ad.realize(model(next(batches)))

    def in_a_step():
        with graph.step(), ad.no_grad():
            return model(next(batches))

    bound = MARGIN * peak(eagerly)
    assert bound > 2 * 2**20 / 2
    assert peak(living) <= bound
    assert peak(in_a_step) <= bound
    inputs = graph.input(next(batches))
    with ad.no_grad():
        output = model(inputs)

    def refreshed():
        inputs.set(next(batches))
        return output.numpy()

    refreshed()
    with ad.no_grad():
        size = inputs.nbytes
        assert peak(refreshed) <= bound + size  # which the graph copies
        expected = model(inputs.snapshot())
    np.testing.assert_array_equal(output.numpy(), expected.numpy())
    graph.check_invariants()


def test_values_that_lead_to_others_go_and_come_again():
    graph = ad.Graph()
    x = graph.input(ad.randn(64, 64))
    with ad.no_grad():
        hidden = (x @ x).tanh()
        y = hidden.exp()
    y.numpy()
    assert y.is_computed and not hidden.is_computed and graph.stats()["released"] == 2
    for _ in range(3):
        x.set(ad.randn(64, 64))
        plain = x.snapshot()
        with graph.events() as log:
            np.testing.assert_array_equal(y.numpy(), (plain @ plain).tanh().exp().numpy())
        assert log.ran == ["MatMul", "Tanh", "Exp"]
    np.testing.assert_array_equal(hidden.numpy(), (plain @ plain).tanh().numpy())
    x.set(ad.randn(64, 64))
    y.numpy()
    assert hidden.is_computed  # as the program asked for it once


def test_a_view_of_such_a_value():
    """`view` asks whether memory is shared; that is no asking for the values."""
    graph = ad.Graph()
    x = graph.input(ad.randn(8, 8))
    with ad.no_grad():
        hidden = (x @ x).tanh()
        flat = hidden.view(-1)
        y = flat.exp()
    for _ in range(2):
        plain = x.snapshot()
        np.testing.assert_array_equal(y.numpy(), (plain @ plain).tanh().view(-1).exp().numpy())
        assert not hidden.is_computed and not flat.is_computed
        x.set(ad.randn(8, 8))
    with ad.no_grad(), pytest.raises(ad.ShapeError, match="contiguous"):
        hidden.t().view(-1)


def test_with_gradients_all_values_are_kept():
    graph = ad.Graph()
    x = graph.input(ad.randn(64, 64))
    (x @ x).tanh().exp().sum().item()
    y = (x @ x).tanh()
    y.sum().item()
    assert graph.stats()["released"] == 0 and y.is_computed


def test_what_did_not_change_is_computed_again_once():
    """A sum of many branches, of which one changes at a time."""
    graph = ad.Graph()
    inputs = [graph.input(ad.randn(3)) for _ in range(8)]
    with ad.no_grad():
        total = sum(x.tanh().exp() for x in inputs)
    total.numpy()
    for round_ in range(4):
        for i, x in enumerate(inputs):
            x.set(ad.randn(3))
            with graph.events() as log:
                total.numpy()
            if round_:
                assert len(log.ran) == 2 + len(inputs) - i
    expected = sum(x.snapshot().tanh().exp() for x in inputs)
    np.testing.assert_allclose(total.numpy(), expected.numpy(), rtol=1e-6)


def test_what_is_to_be_compared_is_kept():
    graph = ad.Graph(cutoff=True)
    x = graph.input(2.0)
    with ad.no_grad():
        y = (x > 1.0).float() * 3
    y.item()
    x.set(4.0)
    with graph.events() as log:
        y.item()
    assert log.ran == log.cut == ["Gt"]


def test_a_value_that_others_still_wait_for_stays():
    graph = ad.Graph()
    x = graph.input(ad.randn(3))
    with ad.no_grad():
        shared = x.exp()
        first, second = shared.sin(), shared.cos()
    first.numpy()
    assert shared.is_computed
    with graph.events() as log:
        second.numpy()
    assert log.ran == ["Cos"] and not shared.is_computed


def test_gradients_that_are_nodes_are_kept():
    graph = ad.Graph()
    x, w = graph.input(2.0), graph.parameter(3.0)
    (slope,) = ad.autograd.grad((w * x).tanh() * w, w)
    slope.item()
    x.set(1.0)
    slope.item()
    assert graph.stats()["released"] == 0


def test_a_copy_drops_them_too():
    graph = ad.Graph()
    x = graph.input(ad.randn(4))
    with ad.no_grad():
        y = graph.name(x.tanh().exp(), "y")
    twin = graph.copy()
    twin["y"].numpy()
    assert twin.stats()["released"] == 1 and not y.is_computed
