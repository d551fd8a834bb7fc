"""NEAT: networks whose topology evolves learn XOR and to balance a pole, without gradients.

A genome is an `ad.Graph`. A child is a copy of its fitter parent, values included, and a mutation
is an edit of the copy: a weight is set, a connection joins a sum, a connection is split by a new
neuron. What no mutation has touched is not computed again, and a connection that would close a
cycle is refused by the graph. (Stanley and Miikkulainen, 2002, "Evolving Neural Networks through
Augmenting Topologies"; here neurons have a bias each and topology is inherited from the fitter
parent alone.)

Expected: mean return at least 475
Run: python examples/neat.py
"""

import contextlib
import os
import random

import gymnasium
import numpy as np
from interleaved import gain

import adjoint as ad

SEED = 3
SMOKE = bool(os.environ.get("ADJOINT_SMOKE"))
POLES = 20
SPLIT, CONNECT = 0.05, 0.1  # chances of these mutations; others change values
SPECIES = 8  # how many there should be: the distance that divides them follows
STAGNATION = 15  # generations after which a species that has not improved dies out


class History:
    """Numbers innovations: the same one, wherever it happens, has the same number."""

    def __init__(self):
        self.numbers = {}

    def number(self, *innovation):
        return self.numbers.setdefault(innovation, len(self.numbers))


class Genome:
    """A network as a graph.

    Neuron n is the node "n<n>", tanh of `sums[n]`: its bias "b<n>" and the terms of the connections
    that lead to it. Gene g is a connection; its weight is the node "w<g>", and `terms[g]` is the
    product of weight and source, missing while the gene is disabled.
    """

    def __init__(self, sensors):
        self.graph = ad.Graph()
        self.genes, self.sums, self.terms = {}, {}, {}
        for name, values in sensors.items():
            self.graph.input(values, name)

    def copy(self):
        twin = object.__new__(Genome)
        twin.graph = self.graph.copy()
        twin.genes = dict(self.genes)
        twin.sums = {n: twin.graph.twin(node) for n, node in self.sums.items()}
        twin.terms = {g: twin.graph.twin(node) for g, node in self.terms.items()}
        return twin

    def values(self):
        """The weights and biases by name."""
        return {name: x for name, x in self.graph.inputs.items() if name[0] in "wb"}

    # ---- mutations: edits of the graph; each returns whether it was possible ---------------------

    def add_neuron(self, n):
        self.sums[n] = self.graph.input(0.0, f"b{n}")
        self.graph.name(ad.tanh(self.sums[n]), f"n{n}")

    def connect(self, g, source, n, weight):
        """Let the node named `source` lead to neuron n, by gene g; GraphError for a cycle."""
        if g in self.terms:
            return False
        with self.graph.batch():
            if f"w{g}" not in self.graph:
                self.graph.input(weight, f"w{g}")
            term = self.graph[source] * self.graph[f"w{g}"]
            total = self.sums[n] + term
            self.graph[f"n{n}"].set_input(0, total)
        self.genes[g], self.terms[g], self.sums[n] = (source, n), term, total
        return True

    def split(self, g, history):
        """Put a neuron in the middle of connection g; at first it changes little."""
        source, target = self.genes[g]
        n = history.number("neuron", g)
        if n in self.sums:
            return False
        out = history.number("connection", f"n{n}", target)
        self.add_neuron(n)
        self.connect(history.number("connection", source, n), source, n, 1.0)
        weight = self.graph.input(self.graph[f"w{g}"].item(), f"w{out}")
        old = self.terms.pop(g)
        self.genes[out] = (f"n{n}", target)
        self.terms[out] = self.graph.replace(old, self.graph[f"n{n}"] * weight)
        self.graph.remove(old)
        return True

    def mutate(self, history, rng):
        """One mutation of the topology, or of a few values."""
        chance = rng.random()
        if chance < SPLIT:
            return self.split(rng.choice(list(self.terms)), history)
        if chance < SPLIT + CONNECT:
            sensors = [name for name in self.graph.inputs if name[0] == "s"]
            source = rng.choice([*sensors, *(f"n{n}" for n in self.sums)])
            n = rng.choice(list(self.sums))
            try:
                return self.connect(
                    history.number("connection", source, n), source, n, rng.gauss(0, 1)
                )
            except ad.GraphError:  # it would close a cycle
                return False
        values = list(self.values().values())
        for x in rng.sample(values, rng.randint(1, min(3, len(values)))):
            fresh = rng.random() < 0.1
            x.set(rng.gauss(0, 2) if fresh else x.item() + rng.gauss(0, 0.5))
        return True


def first_generation(size, sensors, history, rng):
    """Networks without hidden neurons, all sensors connected to the output."""
    found = []
    output = history.number("output")
    for _ in range(size):
        genome = Genome(sensors)
        genome.add_neuron(output)
        for name in sensors:
            g = history.number("connection", name, output)
            genome.connect(g, name, output, rng.gauss(0, 1))
        found.append(genome)
    return found


def crossed(fitter, other, rng):
    """A child: the topology of the fitter parent, and values that both have from either."""
    child = fitter.copy()
    theirs = other.values()
    for name, x in child.values().items():
        if name in theirs and rng.random() < 0.5:
            x.set(theirs[name])
    return child


def distance(a, b):
    """How far apart two genomes are: genes that only one has, and differences of weights."""
    shared = a.genes.keys() & b.genes.keys()
    weights = [a.graph[f"w{g}"].item() - b.graph[f"w{g}"].item() for g in shared]
    return len(a.genes.keys() ^ b.genes.keys()) + 0.4 * float(np.abs(weights).mean())


class Species:
    def __init__(self, representative):
        self.representative = representative
        self.members = []
        self.best, self.age = -np.inf, 0  # age: generations since `best` grew


def speciate(genomes, species, near, rng):
    """Sort (fitness, genome) pairs into species, which are near their representative."""
    for each in species:
        each.members = []
    for pair in genomes:
        for each in species:
            if distance(pair[1], each.representative) < near:
                break
        else:
            each = Species(pair[1])
            species.append(each)
        each.members.append(pair)
    species[:] = [each for each in species if each.members]
    for each in species:
        each.representative = rng.choice(each.members)[1]
        each.members.sort(key=lambda pair: -pair[0])
        best = each.members[0][0]
        each.age = 0 if best > each.best else each.age + 1
        each.best = max(each.best, best)
    top = max(each.best for each in species)
    species[:] = [each for each in species if each.age < STAGNATION or each.best == top]


def next_generation(species, size, history, rng):
    """Each species has children by its members' mean fitness; its champion lives on."""
    children = []
    shares = [np.mean([fitness for fitness, _ in each.members]) for each in species]
    for each, share in zip(species, shares, strict=True):
        count = round(size * float(share) / float(sum(shares)))
        children.append(each.members[0][1])
        parents = each.members[: max(1, len(each.members) // 3)]
        for _ in range(count - 1):
            pair = sorted(rng.choices(parents, k=2), key=lambda pair: -pair[0])
            mates = rng.random() < 0.5
            child = crossed(pair[0][1], pair[1][1], rng) if mates else pair[0][1].copy()
            while not child.mutate(history, rng):
                continue
            children.append(child)
    return children


def census(genomes):
    """How many nodes ever ran in these graphs, and how many computed nodes they hold."""
    stats = [genome.graph.stats() for genome in genomes]
    return sum(x["runs"] for x in stats), sum(x["nodes"] - x["inputs"] for x in stats)


def evolve(sensors, fitness, size, generations, goal, seed):
    """The fittest genome, as soon as it reaches `goal`, and its generation; and how many nodes ran
    in all generations after the first, of how many.
    """
    rng = random.Random(seed)
    history = History()
    genomes, species = first_generation(size, sensors, history, rng), []
    ran = held = 0
    near = 3.0
    for generation in range(1, generations + 1):
        before = census(genomes)
        scored = [(fitness(genome), genome) for genome in genomes]
        best = max(scored, key=lambda pair: pair[0])
        if generation > 1:
            now = census(genomes)
            ran += now[0] - before[0]
            held += now[1]
        if best[0] >= goal:
            break
        speciate(scored, species, near, rng)
        near = max(0.5, near + (0.3 if len(species) > SPECIES else -0.3))
        genomes = next_generation(species, size, history, rng)
    return best[1], generation, (ran, held)


# ---- two tasks -----------------------------------------------------------------------------------


def output_of(genome):
    return genome.graph["n0"].numpy()


XOR = {"s0": [-1.0, -1.0, 1.0, 1.0], "s1": [-1.0, 1.0, -1.0, 1.0]}
ANSWERS = np.array([-1.0, 1.0, 1.0, -1.0])


def xor_fitness(genome):
    """4 for four perfect answers; above 3.75 all four are right."""
    return 4 - float(np.square((output_of(genome) - ANSWERS) / 2).sum())


def right_answers(genome):
    return int((np.sign(output_of(genome)) == ANSWERS).sum())


def balance(genome, poles, seed):
    """How long each of many poles stands, all in step, at most 500."""
    sensors = [genome.graph[name] for name in ("s0", "s1", "s2", "s3")]
    observation, _ = poles.reset(seed=seed)
    standing = np.ones(POLES, bool)
    returns = np.zeros(POLES)
    while standing.any():
        for sensor, column in zip(sensors, observation.T, strict=True):
            sensor.set(column)
        action = (output_of(genome) > 0).astype(int)
        observation, _, fallen, over, _ = poles.step(action)
        returns += standing
        standing &= ~(fallen | over)
    return returns


# ---- what a mutation costs -----------------------------------------------------------------------


def eagerly(genome):
    """The output computed from the genes alone, without the graph."""
    values = {name: ad.tensor(x.numpy()) for name, x in genome.graph.inputs.items()}
    incoming = {}
    for g in genome.terms:
        source, n = genome.genes[g]
        incoming.setdefault(f"n{n}", []).append((source, f"w{g}"))

    def value(name):
        if name not in values:
            total = values[f"b{name[1:]}"]
            for source, weight in incoming.get(name, []):
                total = total + value(source) * values[weight]
            values[name] = ad.tanh(total)
        return values[name]

    return value("n0").numpy()


def grown(neurons, seed=0):
    """A genome with so many hidden neurons, each followed by an attempt at a connection."""
    rng, history = random.Random(seed), History()
    (genome,) = first_generation(1, XOR, history, rng)
    while len(genome.sums) <= neurons:
        genome.split(rng.choice(list(genome.terms)), history)
        source, n = f"n{rng.choice(list(genome.sums))}", rng.choice(list(genome.sums))
        with contextlib.suppress(ad.GraphError):
            genome.connect(history.number("connection", source, n), source, n, rng.gauss(0, 1))
    return genome, history


def cost(genome, mutation):
    """The ops that run when the output is read after a mutation, and how many there are in all."""
    output_of(genome)
    mutation(genome)
    with genome.graph.events() as log:
        output_of(genome)
    stats = genome.graph.stats()
    return log.ran, stats["nodes"] - stats["inputs"]


def show_costs():
    genome, history = grown(20)
    gene = max(g for g in genome.terms if genome.genes[g][0][0] == "n")
    _, target = genome.genes[gene]
    for name, mutation in {
        "set its bias": lambda it: it.graph["b0"].set(0.5),
        "set a weight": lambda it: it.graph[f"w{gene}"].set(0.5),
        "split a connection": lambda it: it.split(gene, history),
        "add a connection": lambda it: it.connect(1000, "s0", target, 1.0),
    }.items():
        ops, nodes = cost(genome.copy(), mutation)
        print(f"{name}: {len(ops)} of {nodes} nodes run")
    small, _ = grown(1)
    try:
        small.connect(1000, "n0", max(small.sums), 1.0)
    except ad.GraphError as error:
        print(f"a connection backward is refused: {error}")
    weight = genome.graph[f"w{gene}"]
    ratio = gain(lambda: (weight.set(0.5), output_of(genome)), lambda: eagerly(genome), calls=20)
    print(f"a weight set and the output read: gain over eager {ratio:.2f}")


def main():
    show_costs()
    size, generations = (20, 3) if SMOKE else (150, 100)
    genome, generation, (ran, held) = evolve(XOR, xor_fitness, size, generations, 3.75, SEED)
    print(f"XOR: {right_answers(genome)} of 4 right in generation {generation}")
    print(f"after the first generation: {ran} of {held} nodes ran")

    poles = gymnasium.make_vec("CartPole-v1", POLES, vectorization_mode="vector_entry_point")
    sensors = {f"s{i}": np.zeros(POLES, np.float32) for i in range(4)}
    size, generations = (4, 1) if SMOKE else (30, 30)
    genome, generation, _ = evolve(
        sensors, lambda it: balance(it, poles, seed=0).mean(), size, generations, 500, SEED
    )
    print(f"CartPole: generation {generation}, {len(genome.sums) - 1} hidden neurons")
    print(f"mean return: {balance(genome, poles, seed=1000).mean()}")


if __name__ == "__main__":
    main()
