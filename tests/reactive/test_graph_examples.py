"""The examples on graphs: equal to the eager programs beside them, and exactly as much computed."""

from __future__ import annotations

import contextlib
import importlib.util
import pathlib
import random
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


# ---- NEAT ----------------------------------------------------------------------------------------


@pytest.fixture
def neat(example):
    pytest.importorskip("gymnasium")
    return example("neat")


def below(graph, name):
    """How many nodes the node of that name reaches."""
    return len(graph.affected_by(graph[name]))


@pytest.mark.parametrize("seed", range(5))
def test_neat_after_random_mutations_the_graph_computes_what_the_genes_say(neat, seed):
    rng, history = random.Random(seed), neat.History()
    (genome,) = neat.first_generation(1, neat.XOR, history, rng)
    for _ in range(60):
        parent, before = genome, neat.output_of(genome).copy()
        genome = parent.copy()
        genome.mutate(history, rng)
        genome.graph.check_invariants()
        np.testing.assert_allclose(neat.output_of(genome), neat.eagerly(genome), atol=1e-5)
        np.testing.assert_array_equal(neat.output_of(parent), before)


def test_neat_a_changed_value_reruns_what_lies_below_it(neat):
    genome, _ = neat.grown(20)
    for name in genome.values():
        expected = below(genome.graph, name)
        ops, nodes = neat.cost(genome, lambda it, name=name: it.graph[name].set(0.5))
        assert len(ops) == expected < nodes, name
    assert neat.cost(genome, lambda it: None)[0] == []


def test_neat_a_new_connection_reruns_what_lies_below_it(neat):
    genome, _ = neat.grown(20)
    n = max(genome.sums)
    expected = 2 + 1 + below(genome.graph, f"n{n}")  # product and sum are new, then the neuron
    ops, _ = neat.cost(genome, lambda it: it.connect(1000, "s0", n, 1.0))
    assert len(ops) == expected


def test_neat_a_split_runs_the_new_neuron_and_what_lies_below_it(neat):
    genome, history = neat.grown(20)
    gene = max(genome.terms)
    _, target = genome.genes[gene]
    weight = genome.graph[f"w{gene}"].item()
    expected = 4 + below(genome.graph, f"w{gene}") - 1  # mul, add, tanh, mul for the old mul
    before = len(genome.graph)
    ops, _ = neat.cost(genome, lambda it: it.split(gene, history))
    assert len(ops) == expected
    assert ops[:4] == ["Mul", "Add", "Tanh", "Mul"]
    assert len(genome.graph) == before + 4 + 3 - 1  # with a bias and two weights, without the mul
    out = max(g for g in genome.terms if genome.genes[g][1] == target)
    assert genome.graph[f"w{out}"].item() == weight


def test_neat_a_cycle_is_refused_with_its_path_and_leaves_the_genome_as_it_was(neat):
    genome, _ = neat.grown(1)
    hidden, before = max(genome.sums), neat.output_of(genome).copy()
    names, nodes, genes = genome.values().keys(), len(genome.graph), dict(genome.genes)
    path = f"n{hidden} -> mul -> add -> n0 -> mul -> add -> n{hidden}"
    with pytest.raises(ad.GraphError, match=path):
        genome.connect(1000, "n0", hidden, 1.0)
    assert genome.values().keys() == names and genome.genes == genes
    assert len(genome.graph) == nodes
    np.testing.assert_array_equal(neat.output_of(genome), before)
    genome.graph.check_invariants()


def test_neat_a_copied_champion_runs_nothing(neat):
    genome, _ = neat.grown(5)
    neat.output_of(genome)
    twin = genome.copy()
    neat.output_of(twin)
    assert twin.graph.stats()["runs"] == 0


def test_neat_crossover_takes_values_of_either_parent_and_the_topology_of_the_fitter(neat):
    history, rng = neat.History(), random.Random(0)
    fitter, other = neat.first_generation(2, neat.XOR, history, rng)
    fitter.split(next(iter(fitter.terms)), history)
    child = neat.crossed(fitter, other, rng)
    assert child.genes == fitter.genes and child.terms.keys() == fitter.terms.keys()
    for name, x in child.values().items():
        theirs = other.values().get(name)
        assert x.item() in {fitter.graph[name].item(), None if theirs is None else theirs.item()}


def test_neat_distance_counts_genes_of_one_and_differences_of_weights(neat):
    history, rng = neat.History(), random.Random(0)
    (a,) = neat.first_generation(1, neat.XOR, history, rng)
    b = a.copy()
    assert neat.distance(a, b) == 0
    g, other = b.terms
    b.graph[f"w{g}"].set(a.graph[f"w{g}"].item() + 3)
    assert neat.distance(a, b) == neat.distance(b, a) == pytest.approx(0.4 * 3 / 2, rel=1e-5)
    b.split(other, history)
    assert neat.distance(a, b) == pytest.approx(2 + 0.4 * 3 / 2, rel=1e-5)


def test_neat_species_gather_what_is_near_and_share_children_by_mean_fitness(neat):
    history, rng = neat.History(), random.Random(0)
    (a,) = neat.first_generation(1, neat.XOR, history, rng)
    near, far = a.copy(), a.copy()
    for g in list(far.terms):
        far.split(g, history)
    species = []
    neat.speciate([(1.0, a), (2.0, near), (4.5, far)], species, 1.0, rng)
    assert [[pair[1] for pair in each.members] for each in species] == [[near, a], [far]]
    children = neat.next_generation(species, 20, history, rng)
    assert near in children and far in children  # the champions, unchanged
    assert sum(len(child.genes) == 2 for child in children if child is not far) < 20 / 2
    for each in species:
        each.age = neat.STAGNATION
    neat.speciate([(1.0, near), (4.5, far)], species, 1.0, rng)
    assert [each.members[0][1] for each in species] == [far]


def test_neat_solves_xor(neat):
    genome, _, (ran, held) = neat.evolve(neat.XOR, neat.xor_fitness, 150, 40, 3.75, seed=3)
    assert neat.right_answers(genome) == 4
    assert 0 < ran < held


def test_neat_evolves_the_same_way_from_the_same_seed(neat):
    first, again, other = (
        neat.evolve(neat.XOR, neat.xor_fitness, 30, 6, 4, seed) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(neat.output_of(first[0]), neat.output_of(again[0]))
    assert first[1:] == again[1:] != other[1:]


@pytest.mark.sweep
def test_neat_balances_a_pole(neat):
    gymnasium = pytest.importorskip("gymnasium")
    poles = gymnasium.make_vec("CartPole-v1", neat.POLES, vectorization_mode="vector_entry_point")
    sensors = {f"s{i}": np.zeros(neat.POLES, np.float32) for i in range(4)}
    genome, _, _ = neat.evolve(
        sensors, lambda it: neat.balance(it, poles, seed=0).mean(), 30, 10, 500, seed=3
    )
    assert neat.balance(genome, poles, seed=1000).mean() >= 475


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
