"""Evolution beside neat-python: `python -m benchmarks evolve [--bars NAME ...] [--seeds N]`.

neat-python is a peer for this alone: `pip install neat-python` into a folder of your own, and
name the folder of its packages by NEAT_PYTHON. Without it, ours is measured alone. Bars: xor,
speed, cartpole, acrobot, digits, diabetes, parity. Times are processor time, ours and theirs in
turns, of equal evaluations.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import adjoint as ad
from adjoint import evolve, nn

XOR = ad.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
ANSWERS = ad.tensor([[0.0], [1.0], [1.0], [0.0]])

# neat-python's own example of XOR, with the sizes left open.
CONFIG = """
[NEAT]
fitness_criterion = max
fitness_threshold = {goal}
no_fitness_termination = False
pop_size = {size}
reset_on_extinction = True
seed = 0
[DefaultGenome]
activation_default = {activation}
activation_mutate_rate = 0.0
activation_options = {activation}
aggregation_default = sum
aggregation_mutate_rate = 0.0
aggregation_options = sum
bias_init_mean = 0.0
bias_init_stdev = 1.0
bias_init_type = gaussian
bias_max_value = 30.0
bias_min_value = -30.0
bias_mutate_power = 0.5
bias_mutate_rate = 0.7
bias_replace_rate = 0.1
compatibility_disjoint_coefficient = 1.0
compatibility_excess_coefficient = auto
compatibility_include_node_genes = True
compatibility_weight_coefficient = 0.5
compatibility_enable_penalty = 1.0
conn_add_prob = 0.5
conn_delete_prob = 0.5
enabled_default = True
enabled_mutate_rate = 0.01
enabled_rate_to_true_add = 0.0
enabled_rate_to_false_add = 0.0
feed_forward = True
initial_connection = full_direct
node_add_prob = 0.2
node_delete_prob = 0.2
num_hidden = 0
num_inputs = {inputs}
num_outputs = {outputs}
response_init_mean = 1.0
response_init_stdev = 0.0
response_init_type = gaussian
response_max_value = 30.0
response_min_value = -30.0
response_mutate_power = 0.0
response_mutate_rate = 0.0
response_replace_rate = 0.0
single_structural_mutation = False
structural_mutation_surer = default
weight_init_mean = 0.0
weight_init_stdev = 1.0
weight_init_type = gaussian
weight_max_value = 30
weight_min_value = -30
weight_mutate_power = 0.5
weight_mutate_rate = 0.8
weight_replace_rate = 0.1
[DefaultSpeciesSet]
compatibility_threshold = 3.0
[DefaultStagnation]
species_fitness_func = max
max_stagnation = 20
species_elitism = 2
[DefaultReproduction]
elitism = 2
survival_threshold = 0.2
min_species_size = 2
"""


def peer() -> Any:
    """neat-python, or None."""
    folder = os.environ.get("NEAT_PYTHON")
    if not folder:
        return None
    sys.path.append(folder)
    try:
        import neat
    finally:
        sys.path.remove(folder)
    return neat


def their_run(
    neat: Any, seed: int, fitness: Callable[[Any], float], generations: int, goal: float,
    inputs: int, outputs: int, activation: str = "sigmoid", size: int = 150,
) -> tuple[bool, int, float]:  # fmt: skip
    """Whether neat-python reached the goal, its evaluations, and its processor time."""
    with tempfile.NamedTemporaryFile("w", suffix=".cfg", delete=False) as file:
        form = {"inputs": inputs, "outputs": outputs, "goal": goal, "activation": activation}
        file.write(CONFIG.format(size=size, **form))
    kinds = (
        neat.DefaultGenome, neat.DefaultReproduction, neat.DefaultSpeciesSet, neat.DefaultStagnation
    )  # fmt: skip
    config = neat.Config(*kinds, file.name)
    os.unlink(file.name)
    count = 0

    def evaluate(genomes: Any, config: Any) -> None:
        nonlocal count
        for _, genome in genomes:
            genome.fitness = fitness(neat.nn.FeedForwardNetwork.create(genome, config))
            count += 1

    random.seed(seed)
    begin = time.process_time()
    best = neat.Population(config, seed=seed).run(evaluate, generations)
    return best.fitness >= goal, count, time.process_time() - begin


def our_run(
    space: Any, task: Any, seed: int, generations: int, goal: float | None, **options: Any
) -> tuple[evolve.Evolution, bool, float]:
    begin = time.process_time()
    run = evolve.Evolution(space, task, seed=seed, **options)
    best = run.run(generations, goal)
    reached = goal is not None and best.scores["score"] >= goal
    return run, reached, time.process_time() - begin


def told(name: str, runs: list[tuple[bool, int, float]]) -> None:
    solved = [count for reached, count, _ in runs if reached]
    share = f"{len(solved)} of {len(runs)}"
    middle = f"{statistics.median(solved):.0f}" if solved else "none"
    seconds = statistics.median(each for *_, each in runs)
    print(f"  {name:12s} solved {share}, median evaluations {middle}, median {seconds:.2f} s")


# ---- the bars ------------------------------------------------------------------------------------


def xor(seeds: int, neat: Any) -> None:
    """XOR to a sum of squares of 0.1, 150 genomes, 300 generations at most."""
    print(f"XOR, {seeds} seeds")
    rows = list(zip(XOR.tolist(), [y for (y,) in ANSWERS.tolist()], strict=True))

    def fitness(network: Any) -> float:
        return 4 - sum((network.activate(x)[0] - y) ** 2 for x, y in rows)

    ours, theirs = [], []
    task = evolve.Supervised(XOR, ANSWERS)
    for seed in range(seeds):
        space = evolve.NEAT(2, 1, output="sigmoid")
        run, reached, seconds = our_run(space, task, seed, 300, -0.025, group=150)
        ours.append((reached, run.evaluations, seconds))
        if neat is not None:
            theirs.append(their_run(neat, seed, fitness, 300, 3.9, 2, 1))
    told("adjoint", ours)
    if neat is not None:
        told("neat-python", theirs)


def speed(seeds: int, neat: Any) -> None:
    """Equal evaluations on supervised tasks: processor time, ours and theirs in turns."""
    print("supervised, 150 genomes, 20 generations, processor time")
    for rows in (200, 1000):
        rng = np.random.default_rng(0)
        x = rng.normal(size=(rows, 8))
        y = np.tanh(x[:, :1] * x[:, 1:2] + x[:, 2:3])
        listed, targets = x.tolist(), y[:, 0].tolist()

        def fitness(network: Any, listed: Any = listed, targets: Any = targets) -> float:
            pairs = zip(listed, targets, strict=True)
            return -sum((network.activate(a)[0] - b) ** 2 for a, b in pairs) / len(targets)

        task = evolve.Supervised(x, y)
        ratios, ours = [], []
        for seed in range(max(2, min(seeds, 5))):
            _, _, mine = our_run(evolve.NEAT(8, 1), task, seed, 20, None, group=150)
            ours.append(mine)
            if neat is not None:
                _, count, their = their_run(neat, seed, fitness, 20, 1e9, 8, 1, "tanh")
                ratios.append(their / count / (mine / 3000))
        more = (
            f", neat-python takes {statistics.median(ratios):.1f} times as long" if ratios else ""
        )
        print(f"  {rows} rows: ours {statistics.median(ours):.2f} s{more}  {ratios}")


def mean_return(make: Callable[[], Any], network: Any, episodes: int = 3) -> float:
    """The mean return of neat-python's network, whose one output decides by 0.5, several by the
    largest.
    """
    world, total = make(), 0.0
    for episode in range(episodes):
        seen, _ = world.reset(seed=episode)
        over = False
        while not over:
            ys = network.activate(seen.tolist())
            action = int(ys[0] > 0.5) if len(ys) == 1 else int(np.argmax(ys))
            seen, reward, ended, cut, _ = world.step(action)
            total += float(reward)
            over = ended or cut
    return total / episodes


def pole(name: str, goal: float, seeds: int, neat: Any, outputs: int, inputs: int) -> None:
    import gymnasium

    print(f"{name} to a mean return of {goal} over 3 episodes, 50 genomes, 30 generations at most")
    for seed in range(min(seeds, 3)):
        task = evolve.Episodes(partial(gymnasium.make, name), episodes=3)
        space = evolve.NEAT(inputs, outputs)
        run, reached, seconds = our_run(space, task, seed, 30, goal, size=50)
        fresh = evolve.Episodes(partial(gymnasium.make, name), episodes=20, seed=1000)
        (scores,) = fresh.evaluate([run.best], space)
        print(
            f"  seed {seed}: reached {reached}, {run.evaluations} evaluations, {seconds:.1f} s;"
            f" on 20 new episodes {scores['score']:.1f}; {run.best}"
        )
        if neat is not None:
            fitness = partial(mean_return, partial(gymnasium.make, name))
            met, count, took = their_run(neat, seed, fitness, 30, goal, inputs, outputs, size=50)
            print(f"  neat-python: reached {met}, {count} evaluations, {took:.1f} s", flush=True)


def cartpole(seeds: int, neat: Any) -> None:
    pole("CartPole-v1", 500, seeds, neat, 1, 4)


def acrobot(seeds: int, neat: Any) -> None:
    pole("Acrobot-v1", -90, seeds, neat, 3, 6)


def small_network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3, padding=1),
        nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(24, 10),
    )  # fmt: skip


def digits(seeds: int, neat: Any) -> None:
    """scikit-learn's digits: layers are found by evolution on a validation part of the training
    rows; the test rows (a third) are looked at once, at the end.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    x, y = load_digits(return_X_y=True)
    x = (x / 16).reshape(-1, 1, 8, 8).astype(np.float32)
    x, x_test, y, y_test = train_test_split(x, y, test_size=1 / 3, random_state=0, stratify=y)
    x, x_valid, y, y_valid = train_test_split(x, y, test_size=0.2, random_state=0, stratify=y)
    task = evolve.Supervised(
        x, y, loss="cross_entropy", steps=150, batch=64, validation=(x_valid, y_valid)
    )
    space = evolve.Modules(
        small_network, mutations={"wider": 0.8}, optimizer=partial(ad.optim.Adam, lr=0.003)
    )
    rows, labels = np.concatenate([x, x_valid]), np.concatenate([y, y_valid])
    whole = evolve.Supervised(rows, labels, loss="cross_entropy", steps=1000, batch=64)
    for seed in range(min(seeds, 1)):
        selection = evolve.NSGA2("score", "-size")
        run, _, seconds = our_run(space, task, seed, 20, None, size=12, selection=selection)
        print(f"digits, {run.evaluations} evaluations, {seconds:.0f} s")
        test = ad.tensor(x_test)
        small = [each.copy() for each in run.front() if each.size() < 3000][:3]
        whole.evaluate(small, space)  # trained further, on all training rows
        for each in small:
            with ad.no_grad():
                right = each.module.eval()(test).argmax(1).numpy() == y_test
            print(f"  {each.size()} parameters: {right.mean():.4f} of the test rows")
        print(f"  {small[0].module}", flush=True)


def diabetes(seeds: int, neat: Any) -> None:
    """scikit-learn's diabetes: error on held-out rows against parameters."""
    from sklearn.datasets import load_diabetes

    x, y = load_diabetes(return_X_y=True)
    x, y = x / x.std(0), ((y - y.mean()) / y.std())[:, None]
    order = np.random.default_rng(0).permutation(len(x))
    train, valid = order[:300], order[300:]
    task = evolve.Supervised(x[train], y[train], steps=10, validation=(x[valid], y[valid]))
    space = evolve.NEAT(
        10, 1, connected=0.2, optimizer=partial(ad.optim.Adam, lr=0.03),
        mutations={"change_values": 0.2, "drop_connection": 0.2, "add_connection": 0.3},
    )  # fmt: skip
    selection = evolve.NSGA2("score", "-size")
    run, _, seconds = our_run(space, task, 0, 25, None, size=40, selection=selection)
    points = [f"{int(x.scores['size'])}: {1 + x.scores['score']:.3f}" for x in run.front()]
    print(f"diabetes, {run.evaluations} evaluations, {seconds:.1f} s; parameters: R2 held out")
    print("  " + ", ".join(points))
    if "--picture" in sys.argv:
        run.picture("diabetes.svg")


def parity(seeds: int, neat: Any) -> None:
    """The parity of the bits so far: sequences of 8 bits, then 24, by recurrent connections."""
    print("parity of sequences, 8 bits, then asked for 24")
    for seed in range(min(seeds, 5)):
        bits = np.random.default_rng(seed).integers(0, 2, (8, 64, 1))
        task = evolve.Supervised(
            bits.astype(np.float32), (bits.cumsum(0) % 2).astype(np.float32),
            loss="binary_cross_entropy", score="accuracy", steps=20, sequence=True, clip=1.0,
        )  # fmt: skip
        space = evolve.NEAT(
            1, 1, recurrent=0.5, optimizer=partial(ad.optim.Adam, lr=0.05),
            mutations={"add_node": 0.3, "add_connection": 0.5},
        )  # fmt: skip
        run, reached, seconds = our_run(space, task, seed, 60, 1.0, size=50)
        bits = np.random.default_rng(99).integers(0, 2, (24, 200, 1))
        with ad.no_grad():
            outputs = evolve.unroll(run.network(), ad.tensor(bits.astype(np.float32)))
        right = ((outputs.numpy() > 0) == (bits.cumsum(0) % 2)).mean()
        print(
            f"  seed {seed}: solved {reached} after {run.evaluations} evaluations, {seconds:.1f} s;"
            f" 24 bits: {right:.4f}; {run.best}"
        )


BARS = {
    "xor": xor, "speed": speed, "cartpole": cartpole, "acrobot": acrobot, "digits": digits,
    "diabetes": diabetes, "parity": parity,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks evolve")
    parser.add_argument("--bars", nargs="*", default=list(BARS), choices=list(BARS))
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--picture", action="store_true", help="write diabetes.svg")
    options = parser.parse_args()
    neat = peer()
    for name in options.bars:
        BARS[name](options.seeds, neat)
