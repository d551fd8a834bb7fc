"""The space of NEAT: the genomes there are, and how they mutate and cross."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import adjoint as ad

from . import genome as genomes
from .errors import EvolutionError
from .genome import Genome, Innovations, Link
from .mutations import chosen, mutation, named
from .network import ACTIVATIONS, Network

CHANCES = {
    "add_node": 0.03,
    "add_connection": 0.1,
    "drop_connection": 0.02,
    "drop_node": 0.01,
    "change_values": 0.8,
}


class NEAT:
    """Networks of any topology (Stanley and Miikkulainen, 2002): evolution adds and removes nodes
    and connections, and changes weights and biases.

    Args:
        inputs, outputs: how many there are.
        activation: of new hidden nodes; several are drawn from. Names of `evolve.ACTIVATIONS`.
        output: the activation of outputs.
        mutations: chances by name; each mutation happens or not, on its own. A name that is not
            given keeps its chance, 0 turns it off. `evolve.mutation` registers your own.
        connected: the chance of each connection from an input to an output in first genomes.
        recurrent: the chance that a new connection is recurrent.
        scale: the standard deviation of new weights and biases.
        step: the standard deviation of changes.
        optimizer: makes the optimizer for tasks with gradient steps, from parameters.
        dtype: of the computation.

    Errors: EvolutionError for sizes, names and chances that cannot be.

    >>> import random
    >>> from adjoint import evolve
    >>> space = evolve.NEAT(2, 1, mutations={"add_node": 1.0})
    >>> rng = random.Random(0)
    >>> genome = space.first(rng)
    >>> space.mutate(genome, rng)
    >>> len(genome.hidden())
    1
    """

    def __init__(
        self, inputs: int, outputs: int, *, activation: str | tuple[str, ...] = "tanh", output: str
        = "identity", mutations: Mapping[str, float] | None = None, connected: float = True,
        recurrent: float = 0.0, scale: float = 1.0, step: float = 0.5, optimizer: Callable[...,
        ad.optim.Optimizer] = ad.optim.Adam, dtype: ad.dtype = ad.float32,
    ) -> None:  # fmt: skip
        if inputs < 1 or outputs < 1:
            sizes = f"{inputs} and {outputs}"
            raise EvolutionError(f"NEAT: inputs and outputs must be 1 or more, got {sizes}")
        self.inputs, self.outputs = inputs, outputs
        self.activations = (activation,) if isinstance(activation, str) else tuple(activation)
        self.output, self.connected, self.recurrent = output, float(connected), recurrent
        self.scale, self.step, self.optimizer, self.dtype = scale, step, optimizer, dtype
        for name in (*self.activations, output):
            if name not in ACTIVATIONS:
                raise EvolutionError(
                    f"NEAT: no activation is called {name!r}; there are {', '.join(ACTIVATIONS)}"
                )
        self.mutations = {**CHANCES, **(mutations or {})}
        for name in self.mutations:
            named(name)
        for what, chance in (*self.mutations.items(), ("recurrent", recurrent)):
            if not 0 <= chance <= 1:
                raise EvolutionError(f"NEAT: the chance of {what} is {chance}; 0 to 1 is meant")
        self.innovations = Innovations()

    def __repr__(self) -> str:
        hidden = ("innovations", "optimizer")
        return f"NEAT({', '.join(f'{k}={v}' for k, v in vars(self).items() if k not in hidden)})"

    # ---- what a space has to have ----------------------------------------------------------------

    def first(self, rng: random.Random) -> Genome:
        """A genome without hidden nodes."""
        genome = Genome(self.inputs, self.outputs)
        for n in range(self.inputs, self.inputs + self.outputs):
            genome.add_node(n, self.output, rng.gauss(0, self.scale))
            for source in range(self.inputs):
                if self.connected >= 1 or rng.random() < self.connected:
                    g = self.innovations.link(source, n)
                    genome.connect(g, Link(source, n), rng.gauss(0, self.scale))
        return genome

    def mutate(self, genome: Genome, rng: random.Random) -> None:
        """Let each mutation happen with its chance, and one at least where one can."""
        chosen(self, genome, self.mutations, rng)

    def cross(self, fitter: Genome, other: Genome, rng: random.Random) -> Genome:
        """A child of two."""
        return fitter.crossed(other, rng)

    def distances(self, group: list[Genome], others: list[Genome]) -> np.ndarray:
        """How far each of a group is from each of others."""
        return genomes.distances(group, others)

    def network(self, genome: Genome) -> Network:
        """The network of a genome."""
        return Network(genome, self.dtype)

    def encode(self, group: list[Genome]) -> list[dict[str, Any]]:
        """Genomes as plain values."""
        return [genomes.encode(each) for each in group]

    def decode(self, state: list[dict[str, Any]]) -> list[Genome]:
        """The genomes that `encode` was given."""
        return [genomes.decode(each) for each in state]

    def state_dict(self) -> dict[str, Any]:
        """The innovations so far."""
        return self.innovations.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with the innovations that `state_dict` gave."""
        self.innovations.load_state_dict(state)

    # ---- edits that mutations are made of --------------------------------------------------------

    def connect(
        self, genome: Genome, source: int, target: int, weight: float, recurrent: bool = False
    ) -> bool:
        """Add a connection, if it is not there; False where it is, or cannot be."""
        g = self.innovations.link(source, target, recurrent)
        if g in genome.links:
            return False
        try:
            genome.connect(g, Link(source, target, recurrent), weight)
        except EvolutionError:
            return False
        return True

    def split(self, genome: Genome, g: int, rng: random.Random) -> int:
        """Put a node into connection g, which is disabled; returns the node.

        The way in has weight 1, the way out that of the connection, with its optimizer state.
        """
        link = genome.links[g]
        n = self.innovations.node(g, genome.nodes, self.inputs + self.outputs)
        genome.add_node(n, rng.choice(self.activations))
        genome.disabled.add(g)
        self.connect(genome, link.source, n, 1.0, link.recurrent)
        out = self.innovations.link(n, link.target)
        genome.connect(out, Link(n, link.target), genome.values[g])
        for each in genome.moments.values():
            if g in each:
                each[out] = each[g]
        return n


# ---- mutations -----------------------------------------------------------------------------------


@mutation
def add_node(genome: Genome, space: NEAT, rng: random.Random) -> bool:
    """Split a connection by a node."""
    enabled = [g for g, _ in genome.enabled()]
    if not enabled:
        return False
    space.split(genome, rng.choice(enabled), rng)
    return True


@mutation
def add_connection(genome: Genome, space: NEAT, rng: random.Random) -> bool:
    """Connect two nodes that were not; a disabled connection between them comes back."""
    recurrent = space.recurrent > 0 and rng.random() < space.recurrent
    hidden, targets = genome.hidden(), list(genome.nodes)
    sources = targets if recurrent else [*range(space.inputs), *hidden]
    for _ in range(5):
        source, target = rng.choice(sources), rng.choice(targets)
        g = space.innovations.links.get((source, target, recurrent))
        if g in genome.disabled:
            genome.disabled.discard(g)
            return True
        if source == target and not recurrent:
            continue
        if not recurrent and genome.would_cycle(source, target):
            continue
        if space.connect(genome, source, target, rng.gauss(0, space.scale), recurrent):
            return True
    return False


@mutation
def drop_connection(genome: Genome, space: NEAT, rng: random.Random) -> bool:
    """Remove a connection."""
    if not genome.links:
        return False
    genome.drop_link(rng.choice(list(genome.links)))
    return True


@mutation
def drop_node(genome: Genome, space: NEAT, rng: random.Random) -> bool:
    """Remove a hidden node with its connections."""
    hidden = genome.hidden()
    if not hidden:
        return False
    genome.drop_node(rng.choice(hidden))
    return True


@mutation
def change_values(genome: Genome, space: NEAT, rng: random.Random) -> bool:
    """Change weights and biases: most by a little, one of ten to a new value."""
    for key, value in genome.values.items():
        chance = rng.random()
        if chance < 0.1:
            genome.values[key] = rng.gauss(0, space.scale)
        elif chance < 0.8:
            genome.values[key] = value + rng.gauss(0, space.step)
    return True
