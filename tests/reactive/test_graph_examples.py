"""The examples on graphs: equal to the eager programs beside them, and exactly as much computed."""

from __future__ import annotations

import contextlib
import importlib.util
import pathlib
import sys

import numpy as np
import pytest

import adjoint as ad
from tests.sweep import swept

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(monkeypatch):
    """Imports an example in its smoke form."""

    def load(name):
        monkeypatch.setenv("ADJOINT_SMOKE", "1")
        monkeypatch.syspath_prepend(str(EXAMPLES))
        spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        return module

    return load


# ---- a frozen backbone ---------------------------------------------------------------------------


def test_transfer_the_backbone_runs_in_the_first_epoch_only_and_losses_are_eager_ones(example):
    pytest.importorskip("sklearn")
    transfer = example("transfer_graph")
    backbone = transfer.pretrained()
    batches, _ = transfer.load(5)
    programs = []
    for kind in (transfer.Eager, transfer.Reactive):
        ad.manual_seed(1)
        programs.append(kind(backbone, transfer.build_head(), batches))
    eager, reactive = programs
    of_backbone = {"Convolution", "MaxPool"}
    counts = []
    for _ in range(3):
        with reactive.graph.events() as log:
            losses = reactive.epoch()
        assert losses == pytest.approx(eager.epoch(), rel=1e-4)
        counts.append((sum(name in of_backbone for name in log.ran), len(log.ran)))
    assert [backbone for backbone, _ in counts] == [3 * len(batches), 0, 0]
    assert counts[2] == counts[1]


# ---- one block, one quote ------------------------------------------------------------------------


def test_block_descent_takes_eager_steps_and_runs_one_block(example):
    blocks = example("block_descent")
    features, labels = blocks.load()
    eager, reactive = blocks.Eager(features, labels), blocks.Reactive(features, labels)
    for step in range(3 * blocks.BLOCKS):
        b = step % blocks.BLOCKS
        expected = eager.step(b)
        with reactive.graph.events() as log:
            assert reactive.step(b) == pytest.approx(expected, rel=1e-12)
        if step >= blocks.BLOCKS:
            assert log.ran.count("MatMul") == 2  # the scores of the block before, the gradient
            assert log.ran.count("Add") <= 4  # the sums above 8 blocks are 3 deep
    for ours, theirs in zip(reactive.weights, eager.weights, strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-10)


def test_pricing_one_quote_reruns_its_stock_and_everything_agrees(example):
    pricing = example("pricing")
    spots, volatilities = pricing.SPOTS.copy(), pricing.VOLATILITIES.copy()
    book = pricing.Book(spots, volatilities)
    book.refresh()
    counts = set()
    for i in range(pricing.STOCKS):
        for quotes, values in ((book.spots, spots), (book.volatilities, volatilities)):
            values[i] *= 1.01
            quotes[i].set(values[i])
            quote = quotes[i]
            affected = {id(x.node) for x in book.graph.affected_by(quote)}
            with book.graph.events() as log:
                value, sensitivities = book.read()
            assert {id(cell) for cell in log.cells} <= affected
            changed = [k for k, g in enumerate(book.sensitivities) if id(g.node) in affected]
            assert changed == [i, i + pricing.STOCKS]
            counts.add(len(log.ran))
        for program in (pricing.eagerly, pricing.vectorized):
            expected, gradients = program(spots, volatilities)
            np.testing.assert_allclose(value, expected, rtol=1e-12)
            np.testing.assert_allclose(sensitivities, gradients, rtol=1e-10, atol=1e-10)
    nodes = len(book.graph) + len(book.graph.gradient_nodes)
    assert max(counts) < 80 < nodes / 10


def test_pricing_matches_the_formula_in_scipy(example):
    stats = pytest.importorskip("scipy.stats")
    pricing = example("pricing")
    s, v = pricing.SPOTS[:, None], pricing.VOLATILITIES[:, None]
    k, t, n = (x.numpy() for x in (pricing.STRIKES, pricing.YEARS, pricing.AMOUNTS))
    d1 = (np.log(s / k) + (pricing.RATE + v * v / 2) * t) / (v * np.sqrt(t))
    discounted = k * np.exp(-pricing.RATE * t)
    prices = s * stats.norm.cdf(d1) - discounted * stats.norm.cdf(d1 - v * np.sqrt(t))
    book = pricing.Book(pricing.SPOTS, pricing.VOLATILITIES)
    value, sensitivities = book.read()
    assert value == pytest.approx((n * prices).sum(), rel=1e-10)
    deltas = (n * stats.norm.cdf(d1)).sum(1)
    np.testing.assert_allclose(sensitivities[: pricing.STOCKS], deltas, rtol=1e-9)


# ---- a recorded step -----------------------------------------------------------------------------


def test_gan_losses_are_eager_ones_and_images_are_drawn_once_a_step(example):
    pytest.importorskip("sklearn")
    gan = example("gan_graph")
    eager, reactive = gan.Eager(), gan.Reactive()
    for _ in range(10):
        expected = eager.step()
        with reactive.graph.events() as log:
            assert reactive.step() == pytest.approx(expected, rel=1e-4)
        assert log.cells.count(reactive.fake.node) == 1
    nodes = len(reactive.graph)
    drawing, first, second = gan.nodes_ran(reactive)
    assert len(reactive.graph) == nodes
    assert drawing > 0 and second < drawing + second < first + second
    for ours, theirs in zip(
        reactive.discriminator.parameters(), eager.discriminator.parameters(), strict=True
    ):
        np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), atol=1e-4)


def test_gan_the_discriminators_loss_leaves_no_gradient_in_the_generator(example):
    pytest.importorskip("sklearn")
    gan = example("gan_graph")
    reactive = gan.Reactive()
    first, second = (loss() for loss in reactive.losses())
    first.backward()
    assert all(p.grad is None for p in reactive.generator.parameters())
    assert all(p.grad is not None for p in reactive.discriminator.parameters())
    second.backward()
    assert all(p.grad is not None for p in reactive.generator.parameters())


def test_tbptt_carries_the_state_and_ends_the_gradient_as_eager_does(example):
    tbptt = example("tbptt")
    eager, reactive = tbptt.Eager(), tbptt.Reactive()
    nodes = None
    for number in range(6):
        window = tbptt.signal(number)
        assert reactive.step(window) == pytest.approx(eager.step(window), rel=1e-5)
        np.testing.assert_allclose(reactive.state, eager.state.numpy(), atol=1e-6)
        nodes = nodes or len(reactive.graph)
        assert len(reactive.graph) == nodes
    assert reactive.graph.stats()["plans"] == 1
    assert reactive.initial.grad is None


# ---- in steps ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "reuse"), [
    ("ppo_graph", True), ("dqn_graph", False), ("ewc_graph", None), swept(("ppo_graph", False)),
    swept(("ppo_graph", None)), swept(("dqn_graph", True)), swept(("dqn_graph", None)),
    swept(("ewc_graph", True)), swept(("ewc_graph", False)),
])  # fmt: skip
def test_training_in_steps_gives_the_numbers_of_eager_execution(example, name, reuse):
    pytest.importorskip("sklearn" if name == "ewc_graph" else "gymnasium")
    program, graph = example(name), ad.Graph()
    model, losses = program.train(lambda: graph.step(reuse), 2)
    twin, expected = program.train(contextlib.nullcontext, 2)
    assert losses == expected and len(set(losses)) > 10
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        np.testing.assert_array_equal(ours.detach().numpy(), theirs.detach().numpy())


def test_a_difference_from_eager_is_noticed(example):
    interleaved = example("interleaved")
    model, twin = ad.nn.Linear(2, 1), ad.nn.Linear(2, 1)
    twin.load_state_dict(model.state_dict())
    assert interleaved.difference(model, [1.0], twin, [1.0]) == 0
    with pytest.raises(AssertionError):
        interleaved.difference(model, [1.0], twin, [1.1])
    with ad.no_grad():
        twin.weight[0, 0] += 0.1
    with pytest.raises(AssertionError):
        interleaved.difference(model, [1.0], twin, [1.0])


def test_ewc_what_mattered_is_held_back(example):
    pytest.importorskip("sklearn")
    ewc = example("ewc_graph")
    model = ewc.build_model()
    importance = [ad.ones_like(p) for p in model.parameters()]
    penalty = ewc.holding_back(model, importance)
    assert penalty(model).item() == 0
    with ad.no_grad():
        model[0].weight[0, 0] += 0.5
    assert penalty(model).item() == pytest.approx(ewc.STRENGTH / 2 * 0.25, rel=1e-5)
