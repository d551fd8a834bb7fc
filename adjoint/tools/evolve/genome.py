"""Genomes of NEAT: nodes, connections, innovation numbers, and what is inherited."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from .errors import EvolutionError


class Link(NamedTuple):
    """A connection: node `source` leads to node `target`, in the next step if `recurrent`."""

    source: int
    target: int
    recurrent: bool = False


class Innovations:
    """Numbers of innovations: the same one, wherever it happens, has the same number.

    >>> innovations = Innovations()
    >>> innovations.link(0, 2), innovations.link(1, 2), innovations.link(0, 2)
    (0, 1, 0)
    """

    def __init__(self) -> None:
        self.links: dict[tuple[int, int, bool], int] = {}
        self.nodes: dict[tuple[int, int], int] = {}

    def link(self, source: int, target: int, recurrent: bool = False) -> int:
        """The number of a connection."""
        return self.links.setdefault((source, target, recurrent), len(self.links))

    def node(self, split: int, taken: Iterable[int], first: int) -> int:
        """The node that splits connection `split`; another one where a genome has `taken` it.
        `first` is the number of the first hidden node.
        """
        for time in range(len(self.nodes) + 1):
            number = self.nodes.setdefault((split, time), first + len(self.nodes))
            if number not in taken:
                return number
        raise AssertionError("one more time than there are nodes is always free")

    def state_dict(self) -> dict[str, Any]:
        """The numbers as plain values."""
        return {"links": list(self.links.items()), "nodes": list(self.nodes.items())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over the numbers that `state_dict` gave."""
        self.links, self.nodes = dict(state["links"]), dict(state["nodes"])


class Genome:
    """A network as nodes and connections, with trained values and an optimizer's state.

    Nodes 0 to `inputs` - 1 are inputs, the next `outputs` are outputs, others are hidden.
    `nodes` has the activation of each that is no input, `links` the connections by innovation
    number, `disabled` those that do not count. `values` has the weight of connection g under g,
    and the bias of node n under ~n. `moments` has what the optimizer keeps for each of them, by
    its names; `steps` what it keeps once.

    >>> import random
    >>> from adjoint import evolve
    >>> space = evolve.NEAT(2, 1)
    >>> space.first(random.Random(0))
    Genome: 2 inputs, 1 outputs, 0 hidden, 2 connections
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        self.inputs, self.outputs = inputs, outputs
        self.nodes: dict[int, str] = {}
        self.links: dict[int, Link] = {}
        self.disabled: set[int] = set()
        self.values: dict[int, float] = {}
        self.moments: dict[str, dict[int, float]] = {}
        self.steps: dict[str, float] = {}
        self.scores: dict[str, float] = {}
        self.plan: tuple[Any, ...] = ()  # the levels, and of which connections they are

    def __repr__(self) -> str:
        return (
            f"Genome: {self.inputs} inputs, {self.outputs} outputs, {len(self.hidden())} hidden, "
            f"{len(self.links) - len(self.disabled)} connections"
        )

    def copy(self) -> Genome:
        """A genome of its own, with all that this one has learnt, and without its scores."""
        twin = Genome(self.inputs, self.outputs)
        twin.nodes, twin.links = dict(self.nodes), dict(self.links)
        twin.disabled, twin.values = set(self.disabled), dict(self.values)
        twin.moments = {name: dict(each) for name, each in self.moments.items()}
        twin.steps, twin.plan = dict(self.steps), self.plan
        return twin

    def hidden(self) -> list[int]:
        """The hidden nodes."""
        return [n for n in self.nodes if n >= self.inputs + self.outputs]

    def enabled(self) -> Iterator[tuple[int, Link]]:
        """The connections that count, with their innovation numbers."""
        return ((g, link) for g, link in self.links.items() if g not in self.disabled)

    def size(self) -> int:
        """The parameters: weights of connections that count, and biases."""
        return len(self.links) - len(self.disabled) + len(self.nodes)

    def would_cycle(self, source: int, target: int) -> bool:
        """Whether a connection within a step would close a cycle; disabled ones count too, as
        they may come back.
        """
        after: dict[int, list[int]] = {}
        for link in self.links.values():
            if not link.recurrent:
                after.setdefault(link.source, []).append(link.target)
        seen, work = {target}, [target]
        while work:
            node = work.pop()
            if node == source:
                return True
            new = [n for n in after.get(node, ()) if n not in seen]
            seen.update(new)
            work.extend(new)
        return False

    # ---- edits -----------------------------------------------------------------------------------

    def add_node(self, n: int, activation: str, bias: float = 0.0) -> None:
        """Add a node that nothing leads to yet."""
        self.nodes[n] = activation
        self.values[~n] = bias

    def connect(self, g: int, link: Link, weight: float) -> None:
        """Add a connection; EvolutionError for one that is there, or would close a cycle."""
        if g in self.links:
            raise EvolutionError(f"connect: connection {link} is there already")
        if link.target not in self.nodes:
            raise EvolutionError(f"connect: node {link.target} is an input, or not there")
        if not 0 <= link.source < self.inputs and link.source not in self.nodes:
            raise EvolutionError(f"connect: node {link.source} is not there")
        if link.recurrent and link.source < self.inputs:
            raise EvolutionError(f"connect: input {link.source} cannot lead on in the next step")
        if not link.recurrent:
            if self.inputs <= link.source < self.inputs + self.outputs:
                raise EvolutionError(
                    f"connect: {link} leaves an output; only a recurrent connection may"
                )
            if self.would_cycle(link.source, link.target):
                raise EvolutionError(f"connect: {link} would close a cycle; make it recurrent?")
        self.links[g] = link
        self.values[g] = weight

    def forget(self, key: int) -> None:
        """Drop a value, and what the optimizer keeps for it."""
        self.values.pop(key, None)
        for each in self.moments.values():
            each.pop(key, None)

    def drop_link(self, g: int) -> None:
        """Remove a connection."""
        del self.links[g]
        self.disabled.discard(g)
        self.forget(g)

    def drop_node(self, n: int) -> None:
        """Remove a hidden node, and the connections that lead to it or leave it."""
        for g in [g for g, link in self.links.items() if n in (link.source, link.target)]:
            self.drop_link(g)
        del self.nodes[n]
        self.forget(~n)

    # ---- inheritance -----------------------------------------------------------------------------

    def crossed(self, other: Genome, rng: random.Random) -> Genome:
        """A child: the topology of this one, the fitter parent, and values that both have from
        either, each with its optimizer state. A connection that is disabled in one of the parents
        is disabled in the child with a chance of three quarters.
        """
        child = self.copy()
        for key in child.values:
            if key in other.values and rng.random() < 0.5:
                child.values[key] = other.values[key]
                for name, each in child.moments.items():
                    theirs = other.moments.get(name, {}).get(key)
                    if theirs is not None:
                        each[key] = theirs
        off = {g for g in self.disabled | other.disabled if g in child.links and g in other.links}
        for g in sorted(off):
            child.disabled.discard(g)
            if rng.random() < 0.75:
                child.disabled.add(g)
        return child


def distances(genomes: list[Genome], others: list[Genome], weight: float = 0.4) -> np.ndarray:
    """How far each genome is from each of the others: genes that only one of them has, and
    `weight` times the mean difference of the weights of those that both have. Shape: (genomes,
    others).
    """
    numbers = sorted({g for each in (*genomes, *others) for g in each.links})
    column = {g: i for i, g in enumerate(numbers)}

    def matrices(group: list[Genome]) -> tuple[np.ndarray, np.ndarray]:
        there = np.zeros((len(group), len(numbers)))
        weights = np.zeros((len(group), len(numbers)))
        for row, genome in enumerate(group):
            at = [column[g] for g in genome.links]
            there[row, at] = 1
            weights[row, at] = [genome.values[g] for g in genome.links]
        return there, weights

    (a, wa), (b, wb) = matrices(genomes), matrices(others)
    both = a @ b.T
    result = a.sum(1)[:, None] + b.sum(1)[None] - 2 * both
    for j in range(len(others)):
        apart = (np.abs(wa - wb[j]) * a) @ b[j]
        result[:, j] += weight * apart / np.maximum(both[:, j], 1)
    return result


def encode(genome: Genome) -> dict[str, Any]:
    """A genome as arrays and plain Python values, which files and other processes take."""
    keys = list(genome.values)
    moments = {
        name: (list(each), np.array(list(each.values()), np.float64))
        for name, each in genome.moments.items()
    }
    return {
        "sizes": (genome.inputs, genome.outputs),
        "nodes": list(genome.nodes.items()),
        "links": [(g, *link) for g, link in genome.links.items()],
        "disabled": sorted(genome.disabled),
        "keys": keys,
        "values": np.array(list(genome.values.values()), np.float64),
        "moments": moments,
        "steps": dict(genome.steps),
        "scores": dict(genome.scores),
    }


def decode(state: Mapping[str, Any]) -> Genome:
    """The genome that `encode` was given."""
    genome = Genome(*state["sizes"])
    genome.nodes = dict(state["nodes"])
    genome.links = {g: Link(*link) for g, *link in state["links"]}
    genome.disabled = set(state["disabled"])
    genome.values = dict(zip(state["keys"], state["values"].tolist(), strict=True))
    genome.moments = {
        name: dict(zip(keys, values.tolist(), strict=True))
        for name, (keys, values) in state["moments"].items()
    }
    genome.steps, genome.scores = dict(state["steps"]), dict(state["scores"])
    return genome
