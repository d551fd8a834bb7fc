"""Networks whose topology evolves while gradients train their weights; they learn a curve.

A genome is an `ad.Graph`, as in neat.py, but its weights and biases are parameters: a child is a
copy of a parent, one edit of its topology, and some steps of Adam. Evolution looks for the shape of
the network only. A new connection joins the sum of a neuron (`set_input`) with weight 0, and a new
neuron is put into a connection (`insert_after`): most of what the parent has learnt is kept.

The best network of every generation is also written eagerly, from its genes: values and gradients
are the same to 1e-6.

Expected: variance explained at least 0.98
Run: python examples/neat_gradient.py
"""

import contextlib
import os
import random

import numpy as np
from interleaved import gain

import adjoint as ad

SEED = 0
SMOKE = bool(os.environ.get("ADJOINT_SMOKE"))
SIZE, GENERATIONS, STEPS = (4, 3, 10) if SMOKE else (8, 12, 80)

X = np.linspace(-1, 1, 64)
Y = np.sin(5 * X) + 0.5 * X


class Genome:
    """A network as a graph.

    The node "n<n>" is neuron n, tanh of `sums[n]`; neuron 0 is the output, the sum itself. A sum is
    the parameter "b<n>" and the terms of the connections to n. Gene g is a connection from the node
    `genes[g][0]` to neuron `genes[g][1]`; the node "t<g>" is its source times the parameter "w<g>".
    """

    def __init__(self, rng):
        self.graph, self.genes, self.sums = ad.Graph(), [], {}
        self.graph.input(X, "x")
        self.sums[0] = self.parameter("b0", 0.0)
        output = self.graph.name(self.sums[0] * 1.0, "n0")
        self.graph.name((output - ad.tensor(Y)).square().mean(), "loss")
        self.connect("x", 0, rng.gauss(0, 1))

    def parameter(self, name, value):
        return self.graph.parameter(value, name, dtype=ad.float64)

    def copy(self):
        twin = object.__new__(Genome)
        twin.graph, twin.genes = self.graph.copy(), list(self.genes)
        twin.sums = {n: twin.graph.twin(node) for n, node in self.sums.items()}
        return twin

    def connect(self, source, n, weight=0.0):
        """Let the node named `source` lead to neuron n; GraphError for a cycle."""
        g, graph = len(self.genes), self.graph
        with graph.batch():
            term = graph.name(graph[source] * self.parameter(f"w{g}", weight), f"t{g}")
            total = self.sums[n] + term
            graph[f"n{n}"].set_input(0, total)
        self.genes.append((source, n))
        self.sums[n] = total

    def split(self, g):
        """Put a neuron into connection g."""
        n, out, graph = len(self.sums), len(self.genes), self.graph
        bias, weight = self.parameter(f"b{n}", 0.0), self.parameter(f"w{out}", 1.0)

        def neuron(term):
            self.sums[n] = term + bias
            return graph.name(graph.name(ad.tanh(self.sums[n]), f"n{n}") * weight, f"t{out}")

        graph.insert_after(graph[f"t{g}"], neuron)
        source, target = self.genes[g]
        self.genes[g] = (source, n)
        self.genes.append((f"n{n}", target))

    def mutate(self, rng):
        """Another connection, another neuron in a connection, or both."""
        chance = rng.random()
        if chance < 0.8:
            source = rng.choice(["x", *(f"n{n}" for n in self.sums if n)])
            with contextlib.suppress(ad.GraphError):  # it would close a cycle
                self.connect(source, rng.choice(list(self.sums)))
        if chance > 0.3:
            newest = len(self.genes) - 1
            self.split(newest if chance < 0.8 else rng.randrange(len(self.genes)))

    def train(self, steps):
        """Some steps of Adam; returns the loss after them."""
        optimizer = ad.optim.Adam(self.graph.parameters(), lr=0.05)
        for _ in range(steps):
            optimizer.zero_grad()
            self.graph["loss"].backward()
            optimizer.step()
        return self.graph.forward(self.graph["loss"]).item()


def eagerly(genome):
    """Loss and gradients computed from the genes alone, without the graph."""
    leaves = {
        name: ad.tensor(p.detach().numpy().copy(), requires_grad=True)
        for name, p in genome.graph.named_parameters()
    }
    values = {"x": ad.tensor(X)}

    def value(name):
        if name not in values:
            total = leaves[f"b{name[1:]}"]
            for g, (source, n) in enumerate(genome.genes):
                if f"n{n}" == name:
                    total = total + value(source) * leaves[f"w{g}"]
            values[name] = total if name == "n0" else ad.tanh(total)
        return values[name]

    loss = (value("n0") - ad.tensor(Y)).square().mean()
    loss.backward()
    return loss.item(), {name: x.grad.item() for name, x in leaves.items()}


def difference(genome):
    """The largest difference of loss and gradients from the eager twin's."""
    graph = genome.graph
    for p in graph.parameters():
        p.grad = None
    graph["loss"].backward()
    loss, gradients = eagerly(genome)
    found = {name: p.grad.item() for name, p in graph.named_parameters()}
    assert found.keys() == gradients.keys()
    return max(
        abs(graph["loss"].item() - loss), *(abs(found[name] - g) for name, g in gradients.items())
    )


def evolve(size, generations, steps, seed):
    """The best genome, and the largest difference from eager twins that was seen."""
    rng = random.Random(seed)
    population = [(g.train(steps), g) for g in (Genome(rng) for _ in range(size))]
    worst = 0.0
    for _ in range(generations):
        for _ in range(size):
            _, parent = min(rng.sample(population, 2), key=lambda pair: pair[0])
            child = parent.copy()
            child.mutate(rng)
            population.append((child.train(steps), child))
        population = sorted(population, key=lambda pair: pair[0])[:size]
        worst = max(worst, difference(population[0][1]))
        assert worst <= 1e-6
    return population[0][1], worst


def main():
    genome, worst = evolve(SIZE, GENERATIONS, STEPS, SEED)
    print(f"{len(genome.sums) - 1} hidden neurons, {len(genome.genes)} connections")
    print(f"largest difference from eager: {worst:.1e}")
    graph, bias = genome.graph, genome.graph["b0"]
    ratio = gain(
        lambda: (bias.set(bias.item()), graph["loss"].backward()), lambda: eagerly(genome), calls=5
    )
    print(f"loss and gradients after a step: gain over eager {ratio:.2f}")
    print(f"variance explained: {1 - genome.graph['loss'].item() / Y.var():.4f}")


if __name__ == "__main__":
    main()
