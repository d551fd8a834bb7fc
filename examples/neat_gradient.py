"""Networks whose topology evolves while gradients train their weights; they learn a curve.

Evolution looks for the shape of the network only: a child is a copy of a parent with an edit of
its topology, and keeps what the parent has learnt, Adam's moments among it. All networks of a
generation train together (`adjoint.evolve`).

The best network of every generation is also a living graph: its output is the same to 1e-5.

Expected: variance explained at least 0.98
Run: python examples/neat_gradient.py
"""

import os
from functools import partial

import numpy as np

import adjoint as ad
from adjoint import evolve

SEED = 0
SMOKE = bool(os.environ.get("ADJOINT_SMOKE"))
SIZE, GENERATIONS, STEPS = (4, 3, 10) if SMOKE else (16, 20, 60)

X = ad.linspace(-1, 1, 64).unsqueeze(1)
Y = ad.sin(5 * X) + 0.5 * X


def difference(run):
    """The largest difference of the best network's output from its graph's."""
    graph = run.graph(-1, inputs=X)
    output = run.network(run.champions[-1])(X).detach().numpy()[:, 0]
    return float(np.abs(graph["n1"].detach().numpy() - output).max())


def main():
    space = evolve.NEAT(
        1, 1, optimizer=partial(ad.optim.Adam, lr=0.05),
        mutations={"add_node": 0.6, "add_connection": 0.6, "change_values": 0.05},
    )  # fmt: skip
    task = evolve.Supervised(X, Y, steps=STEPS)
    run = evolve.Evolution(space, task, size=SIZE, seed=SEED, selection=evolve.NSGA2())
    worst = 0.0
    for _ in range(GENERATIONS):
        run.step()
        worst = max(worst, difference(run))
        assert worst <= 1e-5, worst
    print(run.table())
    print(f"{run.best}; largest difference from its graph: {worst:.1e}")
    print(f"variance explained: {1 + run.best.scores['score'] / Y.var().item():.4f}")


if __name__ == "__main__":
    main()
