"""NEAT: genomes, their networks, and runs."""

from __future__ import annotations

import math
import random
from functools import partial

import numpy as np
import pytest

import adjoint as ad
from adjoint import evolve

from ...sweep import one_in

X = ad.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
Y = ad.tensor([[0.0], [1.0], [1.0], [0.0]])
OFTEN = {"add_node": 0.4, "add_connection": 0.6, "drop_connection": 0.1, "drop_node": 0.05}
FUNCTIONS = {
    "identity": lambda x: x,
    "tanh": math.tanh,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "relu": lambda x: max(x, 0.0),
    "sin": math.sin,
    "abs": abs,
    "gauss": lambda x: math.exp(-x * x),
}


def grown(space, seed, mutations=25):
    """A genome after some mutations."""
    rng = random.Random(seed)
    genome = space.first(rng)
    for _ in range(mutations):
        space.mutate(genome, rng)
    return genome


def by_genes(genome, rows, before=None):
    """The outputs of each row, from the genes alone, one number at a time; and all nodes."""
    incoming = {}
    for g, link in genome.enabled():
        incoming.setdefault(link.target, []).append((link, genome.values[g]))
    results, states = [], []
    for r, row in enumerate(rows):
        values = dict(enumerate(row))

        def value(n, values=values, r=r):
            if n not in values:
                total = genome.values[~n]
                for link, weight in incoming.get(n, []):
                    if link.recurrent:
                        total += weight * (before[r].get(link.source, 0.0) if before else 0.0)
                    else:
                        total += weight * value(link.source)
                values[n] = FUNCTIONS[genome.nodes[n]](total)
            return values[n]

        for n in genome.nodes:
            value(n)
        first = genome.inputs
        results.append([values[n] for n in range(first, first + genome.outputs)])
        states.append(values)
    return results, states


def space_of(seed, **options):
    """A space, another one for each seed."""
    rng = random.Random(seed)
    return evolve.NEAT(
        rng.randint(1, 4), rng.randint(1, 3), activation=tuple(FUNCTIONS)[: rng.randint(1, 7)],
        mutations=OFTEN, connected=rng.choice([0, 0.5, 1]), scale=0.7, dtype=ad.float64, **options,
    )  # fmt: skip


@pytest.mark.parametrize("seed", one_in(25, range(200)))
def test_many_networks_together_compute_what_the_genes_say(seed):
    space = space_of(seed)
    group = [grown(space, 1000 * seed + i) for i in range(5)]
    rows = np.random.default_rng(seed).normal(size=(3, space.inputs))
    outputs = evolve.Networks(group, ad.float64)(ad.tensor(rows)).detach().numpy()
    for genome, output in zip(group, outputs, strict=True):
        np.testing.assert_allclose(output, by_genes(genome, rows)[0], rtol=1e-9, atol=1e-9)
    own = ad.tensor(rows).expand(5, 3, space.inputs)
    again = evolve.Networks(group, ad.float64)(own).detach().numpy()
    np.testing.assert_allclose(again, outputs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seed", one_in(20, range(100)))
def test_recurrent_connections_read_the_step_before(seed):
    space = space_of(seed, recurrent=0.5)
    genome = grown(space, seed)
    sequence = np.random.default_rng(seed).normal(size=(4, 3, space.inputs))
    network = evolve.Network(genome, ad.float64)
    outputs = evolve.unroll(network, ad.tensor(sequence)).detach().numpy()
    before = None
    for rows, output in zip(sequence, outputs, strict=True):
        expected, before = by_genes(genome, rows, before)
        np.testing.assert_allclose(output, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("seed", one_in(16, range(50)))
def test_gradients_flow_through_time_as_differences_say(seed):
    space = space_of(seed, recurrent=0.7)
    networks = evolve.Networks([grown(space, seed)], ad.float64)
    sequence = ad.tensor(np.random.default_rng(seed).normal(size=(3, 2, space.inputs)))
    (values,) = networks.parameters()
    evolve.unroll(networks, sequence).square().sum().backward()
    for i in range(len(values)):
        sums = []
        for change in (1e-6, -1e-6):
            with ad.no_grad():
                values[i] += change
                sums.append(evolve.unroll(networks, sequence).square().sum().item())
                values[i] -= change
        assert values.grad[i].item() == pytest.approx(
            (sums[0] - sums[1]) / 2e-6, rel=1e-3, abs=1e-4
        )


@pytest.mark.parametrize("seed", one_in(15, range(60)))
def test_the_graph_of_a_genome_computes_the_same(seed):
    space = space_of(seed)
    genome = grown(space, seed)
    rows = np.random.default_rng(seed).normal(size=(3, space.inputs))
    graph = evolve.graph_of(genome, ad.tensor(rows, dtype=ad.float32))
    expected = by_genes(genome, rows)[0]
    for j in range(space.outputs):
        output = graph[f"n{space.inputs + j}"].detach().numpy()
        np.testing.assert_allclose(
            np.broadcast_to(output, 3), [row[j] for row in expected], rtol=1e-3, atol=1e-4
        )


def test_innovations_have_one_number_wherever_they_happen():
    space = evolve.NEAT(2, 1)
    a, b = space.first(random.Random(0)), space.first(random.Random(1))
    assert a.links.keys() == b.links.keys() == {0, 1}
    n, m = space.split(a, 0, random.Random(0)), space.split(b, 0, random.Random(5))
    assert n == m == 3 and a.links.keys() == b.links.keys()
    a.disabled.clear()
    assert space.split(a, 0, random.Random(0)) == 4  # split again: another node


def test_a_connection_that_cannot_be_is_refused_and_changes_nothing():
    space = evolve.NEAT(2, 1)
    genome = space.first(random.Random(0))
    n = space.split(genome, 0, random.Random(0))
    before = space.encode([genome])
    m = space.innovations.node(1, genome.nodes, 3)
    for g, link, words in [
        (0, evolve.Link(0, 2), "there already"),
        (90, evolve.Link(n, n), "cycle"),
        (91, evolve.Link(2, n), "leaves an output"),
        (92, evolve.Link(0, 1), "is an input"),
        (93, evolve.Link(m + 7, 2), "not there"),
    ]:
        with pytest.raises(evolve.EvolutionError, match=words):
            genome.connect(g, link, 1.0)
    assert repr(space.encode([genome])) == repr(before)


@pytest.mark.parametrize("seed", one_in(25, range(100)))
def test_genomes_are_encoded_and_back(seed):
    space = space_of(seed, recurrent=0.3)
    genome = grown(space, seed)
    (again,) = space.decode(space.encode([genome]))
    assert repr(space.encode([again])) == repr(space.encode([genome]))
    assert list(again.values) == list(genome.values)


def test_a_split_keeps_what_the_optimizer_knows_of_the_connection():
    space = evolve.NEAT(2, 1, optimizer=partial(ad.optim.Adam, lr=0.1))
    task = evolve.Supervised(X, Y, steps=3)
    genome = space.first(random.Random(0))
    task.evaluate([genome], space)
    assert (
        genome.steps == {"step": 3.0} and genome.moments["exp_avg"].keys() == genome.values.keys()
    )
    value, moment = genome.values[0], genome.moments["exp_avg"][0]
    n = space.split(genome, 0, random.Random(0))
    out = space.innovations.link(n, 2)
    assert genome.values[out] == value and genome.moments["exp_avg"][out] == moment != 0
    task.evaluate([genome], space)
    assert genome.steps == {"step": 6.0} and ~n in genome.moments["exp_avg"]


@pytest.mark.parametrize("optimizer", [
    partial(ad.optim.Adam, lr=0.05), partial(ad.optim.SGD, lr=0.05, momentum=0.9),
    partial(ad.optim.RMSprop, lr=0.01), partial(ad.optim.AdamW, lr=0.05, amsgrad=True),
])  # fmt: skip
def test_training_in_two_parts_is_training_in_one(optimizer):
    space = evolve.NEAT(2, 1, optimizer=optimizer, dtype=ad.float64)
    genomes = [grown(space, seed) for seed in range(3)]
    twins = [genome.copy() for genome in genomes]
    x, y = X.double(), Y.double()
    whole, part = evolve.Supervised(x, y, steps=8), evolve.Supervised(x, y, steps=4)
    whole.inputs = part.inputs = x
    whole.evaluate(genomes, space)
    part.evaluate(twins, space)
    part.evaluate(twins, space)
    for genome, twin in zip(genomes, twins, strict=True):
        assert genome.values == pytest.approx(twin.values, rel=1e-12)


def test_genomes_train_as_if_they_were_alone():
    space = evolve.NEAT(2, 1, optimizer=partial(ad.optim.Adam, lr=0.05), dtype=ad.float64)
    genomes = [grown(space, seed) for seed in range(4)]
    twins = [genome.copy() for genome in genomes]
    task = evolve.Supervised(X, Y, steps=5)
    task.evaluate(genomes[:1], space)  # others have no steps yet: they are groups of their own
    task.evaluate(genomes, space)
    task.evaluate(twins[:1], space)
    for twin in twins:
        task.evaluate([twin], space)
    for genome, twin in zip(genomes, twins, strict=True):
        assert genome.values == pytest.approx(twin.values, rel=1e-9)


def test_an_optimizer_that_is_not_elementwise_is_refused():
    space = evolve.NEAT(2, 1, optimizer=ad.optim.LBFGS)
    with pytest.raises(evolve.EvolutionError, match="LBFGS"):
        evolve.Supervised(X, Y, steps=1).evaluate([space.first(random.Random(0))], space)


def test_crossover_takes_values_of_either_and_the_topology_of_the_fitter():
    space, rng = evolve.NEAT(2, 1), random.Random(0)
    fitter, other = space.first(rng), space.first(rng)
    space.split(fitter, 0, rng)
    child = space.cross(fitter, other, rng)
    assert child.links.keys() == fitter.links.keys() and child.nodes == fitter.nodes
    for key, value in child.values.items():
        assert value in (fitter.values[key], other.values.get(key))


def test_distances_count_genes_of_one_and_differences_of_weights():
    space = evolve.NEAT(2, 1)
    a = space.first(random.Random(0))
    b = a.copy()
    b.values[0] += 3
    space.split(b, 1, random.Random(0))
    found = space.distances([a, b], [a, b])
    np.testing.assert_allclose(found, [[0, 2 + 0.4 * 3 / 2], [2 + 0.4 * 3 / 2, 0]], atol=1e-12)


def test_what_cannot_be_is_refused():
    for make, words in [
        (lambda: evolve.NEAT(0, 1), "1 or more"),
        (lambda: evolve.NEAT(1, 1, activation="step"), "'step'"),
        (lambda: evolve.NEAT(1, 1, mutations={"grow": 0.1}), "'grow'"),
        (lambda: evolve.NEAT(1, 1, mutations={"add_node": 2}), "2"),
        (lambda: evolve.Networks([]), "no genomes"),
        (lambda: evolve.Supervised(X, Y[:3]), "4 rows"),
        (lambda: evolve.Supervised(X[:0], Y[:0]), "one or more"),
        (lambda: evolve.Supervised(X, Y, loss="mean"), "'mean'"),
        (lambda: evolve.Supervised(X, Y, batch=9), "batch=9"),
        (lambda: evolve.Evolution(evolve.NEAT(2, 1), evolve.Supervised(X, Y), size=0), "size=0"),
        (lambda: evolve.Evolution(evolve.NEAT(2, 1), 5), "no task"),
        (lambda: evolve.unroll(evolve.Network(grown(evolve.NEAT(2, 1), 0)), X), "steps"),
        (lambda: evolve.Network(grown(evolve.NEAT(2, 1), 0))(ad.ones(3, 5)), "rows, 2"),
    ]:
        with pytest.raises(evolve.EvolutionError, match=words):
            make()


@pytest.mark.parametrize("seed", one_in(25, range(50)))
def test_xor_is_solved(seed):
    space = evolve.NEAT(2, 1, output="sigmoid")
    run = evolve.Evolution(space, evolve.Supervised(X, Y), size=150, seed=seed)
    assert run.run(80, goal=-0.025).scores["score"] >= -0.025
    outputs = run.network()(X)
    assert ((outputs > 0.5) == (Y > 0.5)).all()


def test_xor_is_solved_with_gradients_between_mutations():
    space = evolve.NEAT(
        2, 1, optimizer=partial(ad.optim.Adam, lr=0.1), mutations={"change_values": 0.1}
    )
    task = evolve.Supervised(X, Y, steps=20)
    run = evolve.Evolution(space, task, size=20, seed=0)
    assert run.run(30, goal=-1e-3).scores["score"] >= -1e-3


def test_ones_own_mutation_takes_part():
    @evolve.mutation
    def to_sines(genome, space, rng):
        n = rng.choice(list(genome.nodes))
        genome.nodes[n] = "sin"
        return True

    space = evolve.NEAT(2, 1, mutations={"to_sines": 1.0})
    run = evolve.Evolution(space, evolve.Supervised(X, Y), size=10, seed=0)
    run.run(3)
    assert any("sin" in genome.nodes.values() for genome in run.population)
    with pytest.raises(evolve.EvolutionError, match="already"):
        evolve.mutation(add_node)


def add_node(genome, space, rng):
    """Another mutation of a name that is taken."""
    return False


def test_a_stale_plan_is_not_used():
    space = evolve.NEAT(2, 1)
    genome = space.first(random.Random(0))
    x = ad.ones(1, 2)
    before = evolve.Network(genome)(x).item()
    genome.disabled.add(0)  # behind its back
    after = evolve.Network(genome)(x).item()
    assert after == pytest.approx(before - genome.values[0], abs=1e-6)


def test_a_set_weight_of_the_graph_reruns_what_lies_below_it():
    space = evolve.NEAT(3, 2, mutations=OFTEN)
    graph = evolve.graph_of(grown(space, 5, 60), ad.ones(4, 3))
    outputs = [graph["n3"], graph["n4"]]

    def read():
        return [output.detach().numpy() for output in outputs]

    read()
    nodes = graph.stats()["nodes"] - graph.stats()["inputs"]
    counts = set()
    for name, p in graph.named_parameters():
        if not any(p is each for each in graph.inputs.values()):
            p = graph[name]
        below = {id(node) for node in graph.affected_by(p)}
        p.set(0.25)
        with graph.events() as log:
            read()
        assert len(log.ran) <= len(below) <= nodes
        counts.add(len(log.ran))
    assert min(counts) < max(counts)
    with graph.events() as log:
        read()
    assert log.ran == []


@pytest.mark.sweep
def test_a_pole_is_balanced():
    gymnasium = pytest.importorskip("gymnasium")
    make = partial(gymnasium.make, "CartPole-v1")
    run = evolve.Evolution(evolve.NEAT(4, 1), evolve.Episodes(make, episodes=3), size=50, seed=3)
    best = run.run(30, goal=500)
    (scores,) = evolve.Episodes(make, episodes=20, seed=1000).evaluate([best], run.space)
    assert scores["score"] >= 475


def test_parameters_that_changed_and_gradients_are_seen_by_the_next_call():
    space = evolve.NEAT(2, 1, mutations=OFTEN)
    networks = evolve.Networks([grown(space, 3)])
    (values,) = networks.parameters()
    with ad.no_grad():
        before = networks(X).sum().item()
    for _ in range(2):  # each call has a graph of its own
        networks(X).sum().backward()
    assert values.grad.abs().sum() > 0
    with ad.no_grad():
        values += values.grad
        assert networks(X).sum().item() != before
    optimizer = networks.optimizer(partial(ad.optim.SGD, lr=1.0))
    before = networks(X).sum().item()
    optimizer.step()
    assert networks(X).sum().item() != before
