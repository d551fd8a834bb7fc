"""NEAT: networks whose topology evolves learn XOR and to balance a pole, without gradients.

`adjoint.evolve` has the genomes, their innovation numbers, species and crossover (Stanley and
Miikkulainen, 2002, "Evolving Neural Networks through Augmenting Topologies"). All networks of a
generation are computed together. The best one is also a living graph, `run.graph()`: what a
changed weight does not reach is not computed again.

Expected: mean return at least 475
Run: python examples/neat.py
"""

import os
from functools import partial

import gymnasium

import adjoint as ad
from adjoint import evolve

SEED = 3
SMOKE = bool(os.environ.get("ADJOINT_SMOKE"))

XOR = ad.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
ANSWERS = ad.tensor([[0.0], [1.0], [1.0], [0.0]])


def solve_xor(size, generations):
    """A run that ends when the mean squared error is 0.025."""
    space = evolve.NEAT(2, 1, output="sigmoid")
    run = evolve.Evolution(space, evolve.Supervised(XOR, ANSWERS), size=size, seed=SEED)
    run.run(generations, goal=-0.025)
    return run


def balance(size, generations, episodes):
    """A run that ends when a network holds the pole in all episodes."""
    task = evolve.Episodes(partial(gymnasium.make, "CartPole-v1"), episodes=episodes)
    run = evolve.Evolution(evolve.NEAT(4, 1), task, size=size, seed=SEED)
    run.run(generations, goal=500)
    return run


def show_costs(run):
    """How much of the best network's graph runs after one of its weights is set."""
    graph = run.graph(inputs=XOR)
    graph["n2"].detach().numpy()
    name, weight = next((name, p) for name, p in graph.named_parameters() if name[0] == "w")
    with graph.events() as log:
        weight.set(0.5)
        graph["n2"].detach().numpy()
    stats = graph.stats()
    print(f"{name} set: {len(log.ran)} of {stats['nodes'] - stats['inputs']} nodes run")


def main():
    run = solve_xor(*((20, 3) if SMOKE else (150, 100)))
    right = ((run.network()(XOR) > 0.5) == (ANSWERS > 0.5)).sum().item()
    print(f"XOR: {right} of 4 right in generation {run.generation}, by {run.best}")
    show_costs(run)

    run = balance(*((4, 1, 1) if SMOKE else (50, 30, 3)))
    print(f"CartPole: generation {run.generation}, {run.best}")
    fresh = partial(gymnasium.make, "CartPole-v1")
    task = evolve.Episodes(fresh, episodes=2 if SMOKE else 20, seed=1000)
    (scores,) = task.evaluate([run.best], run.space)
    print(f"mean return: {scores['score']}")


if __name__ == "__main__":
    main()
