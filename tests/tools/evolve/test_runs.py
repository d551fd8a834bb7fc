"""Runs: the same seed, the pool, files, selection, tasks, what a run looks like."""

from __future__ import annotations

import random
import re
from functools import partial

import numpy as np
import pytest

import adjoint as ad
from adjoint import evolve, nn

from ...sweep import one_in

X = ad.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
Y = ad.tensor([[0.0], [1.0], [1.0], [0.0]])


def build():
    return nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Dropout(0.1), nn.Linear(3, 1))


def plain(seed=0, **options):
    """NEAT without gradients."""
    options = {"size": 16, "group": 5, **options}
    return evolve.Evolution(evolve.NEAT(2, 1), evolve.Supervised(X, Y), seed=seed, **options)


def gradual(seed=0, **options):
    """NEAT with gradients, batches that are drawn, and two objectives."""
    space = evolve.NEAT(2, 1, recurrent=0.3, optimizer=partial(ad.optim.Adam, lr=0.05))
    task = evolve.Supervised(X, Y, steps=3, batch=3)
    selection = evolve.NSGA2("score", "-size")
    return evolve.Evolution(
        space, task, size=9, group=4, seed=seed, selection=selection, **options
    )  # fmt: skip


def layered(seed=0, **options):
    """Modules with dropout."""
    space = evolve.Modules(build, optimizer=partial(ad.optim.Adam, lr=0.05))
    task = evolve.Supervised(X, Y, steps=3)
    return evolve.Evolution(space, task, size=6, group=4, seed=seed, **options)


RUNS = [plain, gradual, layered]


def told(run):
    """All that a run is, as text that has every bit."""
    ad.set_printoptions(precision=9, threshold=100_000)
    try:
        return re.sub(r"array\(|\s", "", repr(run.state_dict()))
    finally:
        ad.set_printoptions(profile="default")


@pytest.mark.parametrize("make", RUNS)
def test_the_same_seed_is_the_same_run(make):
    first, again, other = make(0), make(0), make(1)
    ad.manual_seed(7)
    for run in (first, again, other):
        run.run(3)
        ad.rand(3)  # what others draw does not matter
    assert told(first) == told(again) != told(other)
    assert first.history == again.history


def test_a_run_leaves_the_generators_of_others_alone():
    ad.manual_seed(3)
    random.seed(3)
    expected = ad.rand(2).tolist(), random.random()
    ad.manual_seed(3)
    random.seed(3)
    gradual().run(2)
    assert (ad.rand(2).tolist(), random.random()) == expected


@pytest.mark.parametrize("make", [gradual, pytest.param(plain, marks=pytest.mark.sweep),
                                  pytest.param(layered, marks=pytest.mark.sweep)])  # fmt: skip
def test_a_pool_gives_the_same_run(make):
    alone = make(0)
    alone.run(3)
    with make(0, workers=2) as pooled:
        pooled.run(3)
        assert told(pooled) == told(alone)


def test_a_pool_that_cannot_be_given_the_task_says_so():
    run = evolve.Evolution(evolve.NEAT(2, 1), lambda network: 0.0, size=4, workers=1)
    with pytest.raises(evolve.EvolutionError, match="functions with names"):
        run.step()
    run.close()


@pytest.mark.parametrize("make", RUNS)
@pytest.mark.parametrize("at", one_in(3, range(3)))
def test_a_saved_run_goes_on_bit_for_bit(make, at, tmp_path):
    whole, part = make(5), make(5)
    whole.run(at + 2)
    part.run(at) if at else None
    part.save(tmp_path / "run.safetensors")
    resumed = make(5).resume(tmp_path / "run.safetensors")
    resumed.run(2)
    assert told(resumed) == told(whole)
    assert resumed.best.scores == whole.best.scores


def test_a_file_of_another_run_is_refused_and_changes_nothing(tmp_path):
    run = plain(0)
    run.run(2)
    run.save(tmp_path / "run")
    for other, words in [(plain(1), "seed=1"), (plain(0, size=8), "size=8"), (gradual(0), "NSGA2")]:
        before = told(other)
        with pytest.raises(evolve.EvolutionError, match=words):
            other.resume(tmp_path / "run")
        assert told(other) == before
    ad.save({"x": ad.ones(2)}, str(tmp_path / "other"))
    with pytest.raises(evolve.EvolutionError, match="no file that"):
        run.resume(tmp_path / "other")
    (tmp_path / "cut").write_bytes((tmp_path / "run").read_bytes()[:-40])
    with pytest.raises(ad.CheckpointError):
        run.resume(tmp_path / "cut")


def test_an_error_in_the_task_leaves_the_run_as_it_was():
    failing = []

    def fitness(network):
        if failing:
            raise KeyError("mine")
        return network(ad.ones(1, 2)).item()

    run, twin = (evolve.Evolution(evolve.NEAT(2, 1), fitness, size=6, seed=0) for _ in range(2))
    run.run(2)
    before = told(run)
    failing.append(True)
    with pytest.raises(KeyError):
        run.step()
    assert told(run) == before
    failing.clear()
    run.run(2)
    twin.run(4)
    assert told(run) == told(twin)


@pytest.mark.parametrize("result", [None, "x", {"size": 1.0}, [1, 2]])
def test_a_function_that_gives_no_score_is_refused(result):
    run = evolve.Evolution(evolve.NEAT(2, 1), lambda network: result, size=3)
    with pytest.raises(evolve.EvolutionError, match="a number is meant"):
        run.step()


def test_a_score_that_is_no_number_is_the_worst():
    run = evolve.Evolution(
        evolve.NEAT(2, 1, scale=1e30), evolve.Supervised(X * 1e30, Y), size=6, seed=0
    )
    run.run(3)
    assert all(individual.scores["score"] == -np.inf for individual in run.evaluated)


@pytest.mark.parametrize("size", [1, 2, 15])
def test_populations_of_any_size_evolve(size):
    for make in (plain, gradual):
        run = make()
        run.size, run.population = size, run.population[:1] * size
        run.run(3)
        assert len(run.population) == len(run.evaluated) == size


# ---- selection -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", one_in(20, range(100)))
def test_fronts_are_those_of_the_definition(seed):
    rng = np.random.default_rng(seed)
    points = rng.integers(0, 5, (rng.integers(1, 20), rng.integers(1, 4))).astype(float)
    rest, expected = list(range(len(points))), []
    while rest:
        front = [
            i for i in rest
            if not any((points[j] >= points[i]).all() and any(points[j] > points[i]) for j in rest)
        ]  # fmt: skip
        expected.append(front)
        rest = [i for i in rest if i not in front]
    assert evolve.fronts(points) == expected


def test_fronts_of_nothing_and_of_what_is_no_number():
    assert evolve.fronts([]) == []
    with pytest.raises(evolve.EvolutionError, match="nan"):
        evolve.fronts([[float("nan"), 1.0]])


def test_the_front_holds_what_no_individual_ever_dominated():
    run = gradual()
    seen = []
    for _ in range(5):
        run.step()
        seen += [(x.scores["score"], -x.scores["size"]) for x in run.evaluated]
    front = [(x.scores["score"], -x.scores["size"]) for x in run.front()]
    best = {seen[i] for i in evolve.fronts(seen)[0]}
    assert set(front) <= best and len(front) == min(len(best), run.size)


def test_an_objective_that_no_task_gives_is_refused():
    run = evolve.Evolution(
        evolve.NEAT(2, 1), evolve.Supervised(X, Y), size=4, selection=evolve.NSGA2("score", "-heat")
    )
    with pytest.raises(evolve.EvolutionError, match="'heat'"):
        run.step()


def test_time_is_measured_where_it_is_an_objective():
    selection = evolve.NSGA2("score", "-time")
    run = evolve.Evolution(evolve.NEAT(2, 1), evolve.Supervised(X, Y), size=3, selection=selection)
    run.step()
    assert all(individual.scores["time"] > 0 for individual in run.evaluated)


def test_species_gather_what_is_near_and_stagnate():
    run = plain(size=40)
    run.run(10)
    groups = run.selection.groups
    assert len(groups) > 1
    for group in groups:
        assert group.members[0].scores["score"] == max(x.scores["score"] for x in group.members)
    champion = max(run.evaluated, key=lambda x: x.scores["score"])
    top = [x for x in run.population if x.values == champion.values]
    assert top, "the champion lives on, unchanged"
    for group in groups:
        group.age, group.best = 100, 1e9
    run.step()
    best = max(x.scores["score"] for x in run.evaluated)
    for group in run.selection.groups:  # of those that are old, all but that with the best are gone
        assert group.age < 15 or group.members[0].scores["score"] == best
    assert sum(group.age > 15 for group in run.selection.groups) <= 1


def test_species_of_modules_are_refused():
    with pytest.raises(evolve.EvolutionError, match="NSGA2"):
        evolve.Evolution(evolve.Modules(build), lambda m: 0, selection=evolve.Species())


# ---- tasks ---------------------------------------------------------------------------------------


def parity(steps, count, seed=0):
    """Sequences of bits, and whether those so far are odd in number."""
    bits = np.random.default_rng(seed).integers(0, 2, (steps, count, 1))
    return ad.tensor(bits.astype(np.float32)), ad.tensor((bits.cumsum(0) % 2).astype(np.float32))


def test_sequences_train_through_time():
    x, y = parity(4, 16)
    space = evolve.NEAT(1, 1, recurrent=0.6, optimizer=partial(ad.optim.Adam, lr=0.05))
    for last in (False, True):
        targets = y[-1] if last else y
        task = evolve.Supervised(
            x, targets, loss="binary_cross_entropy", steps=8, sequence=True, last=last
        )
        run = evolve.Evolution(space, task, size=6, seed=0)
        scores = [run.step()["best"] for _ in range(6)]
        assert scores[-1] > scores[0]


def test_validation_is_what_the_score_is_taken_on():
    task = evolve.Supervised(X, Y, validation=(X[:1], Y[:1] + 5))
    space = evolve.NEAT(2, 1)
    genome = space.first(random.Random(0))
    (scores,) = task.evaluate([genome], space)
    output = space.network(genome)(X[:1]).item()
    assert scores["score"] == pytest.approx(-((output - 5) ** 2), rel=1e-5)


def test_losses_are_those_of_nn():
    ad.manual_seed(0)
    outputs, labels = ad.randn(3, 7, 4), ad.randint(0, 4, (7,))
    ours = evolve.tasks.cross_entropy(outputs, labels).mean(1)
    theirs = ad.stack([nn.functional.cross_entropy(each, labels) for each in outputs])
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    targets = ad.rand(7, 4)
    ours = evolve.tasks.binary_cross_entropy(outputs, targets).mean((1, 2))
    theirs = [nn.functional.binary_cross_entropy_with_logits(x, targets).item() for x in outputs]
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


class Walk:
    """An environment of gymnasium's kind: reach 3 of a line, from where the seed says."""

    def reset(self, seed=None):
        self.at, self.time = float(seed % 3), 0
        return np.array([self.at]), {}

    def step(self, action):
        self.at += 1 if action == 1 else -1
        self.time += 1
        return np.array([self.at]), -1.0, self.at >= 3, self.time >= 10, {}


def test_episodes_run_in_step_and_score_their_mean_return():
    task = evolve.Episodes(Walk, episodes=3)
    space = evolve.NEAT(1, 1)
    genome = space.first(random.Random(0))
    genome.values[0], genome.values[~1] = 0.0, 1.0  # always to the right
    other = genome.copy()
    other.values[~1] = -1.0  # always to the left
    scores = [each["score"] for each in task.evaluate([genome, other], space)]
    assert scores == [-(3 + 2 + 1) / 3, -10.0]
    modules = evolve.Modules(lambda: nn.Linear(1, 2))
    assert len(task.evaluate([modules.first(random.Random(0))], modules)) == 1


# ---- what it looks like --------------------------------------------------------------------------


@pytest.mark.parametrize("make", RUNS)
def test_a_run_has_a_table_a_picture_and_a_page(make, tmp_path):
    run = make()
    assert "no generation" in run.table()
    run.run(3)
    lines = run.table().splitlines()
    assert len(lines) == 4 and lines[0].split()[0] == "generation"
    assert lines[-1].split()[:2] == ["3", str(run.evaluations)]
    run.picture(tmp_path / "front.svg")
    picture = (tmp_path / "front.svg").read_text()
    assert picture.startswith("<svg") and picture.count("<circle") >= len(run.front())
    for generation in (None, 1, -1):
        run.view(tmp_path / "graph.html", generation)
        assert "<html" in (tmp_path / "graph.html").read_text()
    with pytest.raises(evolve.EvolutionError, match="no generation 4"):
        run.graph(4)


def test_the_reports_are_the_history():
    reports = []
    run = plain(report=reports.append)
    run.run(2)
    assert reports == run.history and [each["generation"] for each in reports] == [1, 2]


@pytest.mark.parametrize("make", [plain, gradual])
def test_an_error_in_a_mutation_leaves_the_run_as_it_was(make):
    run, twin = make(2), make(2)
    for each in (run, twin):
        each.space.mutations["breaking"] = 1.0
    run.run(3)
    before = told(run)
    BREAKING.append(True)
    try:
        with pytest.raises(KeyError):
            run.step()
    finally:
        BREAKING.clear()
    assert told(run) == before
    run.run(2)
    twin.run(5)
    assert told(run) == told(twin)


BREAKING = []


@evolve.mutation
def breaking(genome, space, rng):
    """A mutation that fails where it is told to, after it has drawn."""
    space.innovations.link(0, 2, bool(rng.getrandbits(1)))
    if BREAKING:
        raise KeyError("mine")
    return False
