"""Mutations of modules: what is computed stays, and the optimizer goes on."""

from __future__ import annotations

import random
from functools import partial

import numpy as np
import pytest

import adjoint as ad
from adjoint import evolve, nn

from ...sweep import one_in


def perceptron():
    return nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))


def convolutional():
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Dropout(0.3), nn.Linear(16, 3),
    )  # fmt: skip


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(5, 5)
        self.block = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 5))
        self.last = nn.Linear(5, 3)

    def forward(self, x):
        x = self.first(x)
        return self.last(x + self.block(x))


SHAPES = {perceptron: (8, 5), convolutional: (8, 1, 8, 8), Residual: (8, 5)}
OPTIMIZERS = [
    partial(ad.optim.Adam, lr=0.01), partial(ad.optim.SGD, lr=0.05, momentum=0.9),
    partial(ad.optim.RMSprop, lr=0.01),
]  # fmt: skip


def trained(build, seed, optimizer=OPTIMIZERS[0], **options):
    """A space, an individual that has been trained a little, and a task."""
    space = evolve.Modules(build, optimizer=optimizer, **options)
    ad.manual_seed(seed)
    x, y = ad.randn(SHAPES[build]), ad.randint(0, 3, (8,))
    task = evolve.Supervised(x, y, loss="cross_entropy", steps=3)
    individual = space.first(random.Random(seed))
    task.evaluate([individual], space)
    return space, individual, task


@pytest.mark.parametrize("build", SHAPES)
@pytest.mark.parametrize("seed", one_in(10, range(40)))
def test_wider_and_deeper_modules_compute_what_their_parent_does(build, seed):
    space, parent, task = trained(build, seed, OPTIMIZERS[seed % 3])
    child, rng = parent.copy(), random.Random(seed)
    for _ in range(6):
        before = child.size()
        mutation = rng.choice([evolve.wider, evolve.deeper])
        assert mutation(child, space, rng)
        assert child.size() > before
    before, after = parent.module(task.inputs), child.module(task.inputs)
    assert not child.module.training
    np.testing.assert_allclose(
        after.detach().numpy(), before.detach().numpy(), rtol=1e-3, atol=1e-4
    )
    parameters = dict(child.module.named_parameters())
    assert child.moments.keys() <= parameters.keys()
    for name, kept in child.moments.items():
        for x in kept.values():
            assert x.ndim == 0 or x.shape == parameters[name].shape
    (scores,) = task.evaluate([child], space)
    assert np.isfinite(scores["score"])


def test_the_optimizers_state_follows_the_units():
    space, parent, _ = trained(perceptron, 0)
    child = parent.copy()
    before = {name: {k: v.clone() for k, v in kept.items()} for name, kept in child.moments.items()}
    only = [child.module[0]]
    rng = random.Random(1)
    while child.module[0] is only[0] and child.module[0].out_features == 6:
        child = parent.copy()
        only = [child.module[0]]
        assert evolve.wider(child, space, rng)
    new = child.module[0].weight.shape[0]
    kept = child.moments["0.weight"]
    rows = parent.module[0].weight
    for unit in range(new):  # each unit is one of the parent's
        source = next(i for i in range(6) if ad.equal(child.module[0].weight[unit], rows[i]))
        np.testing.assert_allclose(kept["exp_avg"][unit], before["0.weight"]["exp_avg"][source] / 2)
        np.testing.assert_allclose(
            kept["exp_avg_sq"][unit], before["0.weight"]["exp_avg_sq"][source] / 4
        )
        column = child.moments["2.weight"]["exp_avg"][:, unit]
        np.testing.assert_allclose(column, before["2.weight"]["exp_avg"][:, source])
    assert kept["step"] == 3.0


def test_a_new_layer_moves_the_state_of_those_behind_it():
    space, parent, _ = trained(perceptron, 0)
    child = parent.copy()
    assert evolve.deeper(child, space, random.Random(0))
    assert [type(layer).__name__ for layer in child.module][:5] == [
        "Linear", "ReLU", "Linear", "ReLU", "Linear",
    ]  # fmt: skip
    assert "2.weight" not in child.moments
    assert ad.equal(child.moments["4.weight"]["exp_avg"], parent.moments["2.weight"]["exp_avg"])
    assert ad.equal(child.moments["6.weight"]["exp_avg"], parent.moments["4.weight"]["exp_avg"])


def test_a_narrower_layer_loses_a_unit():
    space, parent, task = trained(convolutional, 0)
    child = parent.copy()
    assert evolve.narrower(child, space, random.Random(0))
    assert child.size() < parent.size()
    task.evaluate([child], space)


def test_copies_part_in_training():
    space, parent, task = trained(perceptron, 0)
    child = parent.copy()
    while child.module[0].out_features == 6:
        assert evolve.wider(child, space, random.Random(random.random()))
    task.evaluate([child], space)
    rows = child.module[0].weight
    assert len({tuple(row.tolist()) for row in rows}) == len(rows)


def test_what_it_is_not_known_of_how_it_follows_is_left_alone():
    def build():
        return nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.ReLU(), nn.Linear(4, 2))

    space = evolve.Modules(build)
    individual = space.first(random.Random(0))
    assert not evolve.wider(individual, space, random.Random(0))
    assert not evolve.narrower(individual, space, random.Random(0))
    shared = nn.Linear(4, 4)
    tied = evolve.Individual(nn.Sequential(shared, nn.ReLU(), shared))
    assert not evolve.wider(tied, space, random.Random(0))


def test_an_unknown_state_is_refused_and_says_so():
    space, parent, _ = trained(perceptron, 0)
    for kept in parent.moments.values():
        kept["curvature"] = ad.ones_like(kept["exp_avg"])
    with pytest.raises(evolve.EvolutionError, match="'curvature'"):
        evolve.wider(parent, space, random.Random(0))


@pytest.mark.parametrize("build", SHAPES)
def test_individuals_are_encoded_and_back_bit_for_bit(build):
    space, individual, task = trained(build, 0)
    for mutation in (evolve.wider, evolve.deeper, evolve.wider):
        assert mutation(individual, space, random.Random(3))
    (again,) = space.decode(space.encode([individual]))
    assert repr(again.module) == repr(individual.module)
    for each in (individual, again):
        ad.manual_seed(0)
        each.scores = task.evaluate([each], space)[0]
    assert again.scores == individual.scores
    ours, theirs = individual.module.state_dict(), again.module.state_dict()
    assert all(ad.equal(ours[name], theirs[name]) for name in ours)


def test_a_layer_that_cannot_be_made_again_is_refused():
    class Scaled(nn.Module):
        def __init__(self, factor):
            super().__init__()
            self.kept = factor

    space = evolve.Modules(lambda: nn.Sequential(nn.Linear(2, 2), Scaled(3)))
    with pytest.raises(evolve.EvolutionError, match="Scaled"):
        space.encode([space.first(random.Random(0))])


def test_a_mutation_of_ones_own_edits_modules():
    @evolve.mutation
    def sigmoid_to_tanh(individual, space, rng):
        for _, chain in individual.chains():
            for i, layer in enumerate(chain):
                if isinstance(layer, nn.Sigmoid):
                    chain[i] = nn.Tanh()
                    return True
        return False

    space = evolve.Modules(
        lambda: nn.Sequential(nn.Linear(2, 2), nn.Sigmoid(), nn.Linear(2, 1)),
        mutations={"sigmoid_to_tanh": 1.0, "wider": 0, "deeper": 0, "narrower": 0},
    )
    individual = space.first(random.Random(0))
    space.mutate(individual, random.Random(0))
    assert isinstance(individual.module[1], nn.Tanh)


def test_modules_evolve_to_a_front_of_score_and_size():
    ad.manual_seed(0)
    x = ad.rand(64, 5) * 2 - 1
    y = (x.sum(1) > 0).long() + (x[:, 0] > 0.5).long()
    space = evolve.Modules(perceptron, optimizer=partial(ad.optim.Adam, lr=0.02))
    task = evolve.Supervised(x, y, loss="cross_entropy", score="accuracy", steps=10)
    run = evolve.Evolution(space, task, size=6, seed=0, selection=evolve.NSGA2("score", "-size"))
    run.run(4)
    front = run.front()
    assert run.best.scores["score"] > 0.8
    points = [(each.scores["score"], each.scores["size"]) for each in front]
    assert points == sorted(points, reverse=True) and len(set(points)) == len(points)
