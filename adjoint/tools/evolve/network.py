"""Networks of genomes: many of them computed together, by a few products of matrices a level."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import adjoint as ad

from .errors import EvolutionError
from .genome import Genome

Activation = Callable[[ad.Tensor], ad.Tensor]
ACTIVATIONS: dict[str, Activation] = {
    "identity": lambda x: x,
    "tanh": ad.tanh,
    "sigmoid": ad.sigmoid,
    "relu": ad.relu,
    "sin": ad.sin,
    "abs": ad.abs,
    "gauss": lambda x: ad.exp(-x * x),
}


def levels_of(genome: Genome) -> list[list[int]]:
    """The nodes that outputs depend on, by the longest way to them from an input; the outputs are
    a level of their own, the last. They are kept for as long as the same connections count.
    """
    links, disabled = tuple(genome.links), frozenset(genome.disabled)
    if not genome.plan or genome.plan[:2] != (links, disabled):
        genome.plan = (links, disabled, _levels(genome))
    return genome.plan[2]


def _levels(genome: Genome) -> list[list[int]]:
    """The levels, worked out from the connections."""
    outputs = range(genome.inputs, genome.inputs + genome.outputs)
    before: dict[int, list[int]] = {}
    reached: dict[int, list[int]] = {}
    for _, link in genome.enabled():
        reached.setdefault(link.target, []).append(link.source)
        if not link.recurrent and link.source >= genome.inputs:
            before.setdefault(link.target, []).append(link.source)
    needed, work = set(outputs), list(outputs)
    while work:
        for source in reached.get(work.pop(), ()):
            if source >= genome.inputs and source not in needed:
                needed.add(source)
                work.append(source)
    after: dict[int, list[int]] = {}
    waiting = {}
    for n in needed:
        sources = [s for s in before.get(n, ()) if s in needed]
        waiting[n] = len(sources)
        for source in sources:
            after.setdefault(source, []).append(n)
    levels, level = [], [n for n in needed if not waiting[n] and n not in outputs]
    while level:
        levels.append(sorted(level))
        following = []
        for n in level:
            for target in after.get(n, ()):
                waiting[target] -= 1
                if not waiting[target] and target not in outputs:
                    following.append(target)
        level = following
    return [*levels, list(outputs)]


class Networks:
    """The networks of several genomes, which compute their outputs together.

    Nodes are placed into levels that all genomes share; a level is one product of matrices for all
    of them. `networks(x)` takes x of shape (rows, inputs), or (genomes, rows, inputs) where each
    has rows of its own, and gives (genomes, rows, outputs). Where a genome has recurrent
    connections, a call reads what the nodes were in the call before (0 in the first; `reset`
    forgets it). `parameters()` are the values of all genomes, for an optimizer; `store()` writes
    them back into the genomes.

    Errors: EvolutionError for no genomes, and for inputs of another width.

    >>> import random
    >>> from adjoint import evolve
    >>> space, rng = evolve.NEAT(2, 1), random.Random(0)
    >>> networks = evolve.Networks([space.first(rng) for _ in range(5)])
    >>> networks(ad.zeros(4, 2)).shape
    adjoint.Size([5, 4, 1])
    """

    def __init__(self, genomes: Sequence[Genome], dtype: ad.dtype = ad.float32) -> None:
        if not genomes:
            raise EvolutionError("Networks: there are no genomes; give one or more")
        self.genomes, self.dtype = list(genomes), dtype
        self.inputs, self.outputs = genomes[0].inputs, genomes[0].outputs
        self.state: ad.Tensor | None = None
        self._place()
        self._pack()

    def _place(self) -> None:
        """Give each node a slot: `slots` of each genome, and the levels' bounds."""
        plans = [levels_of(genome) for genome in self.genomes]
        depth = max(len(plan) for plan in plans) - 1
        widths = [
            max((len(p[i]) for p in plans if i < len(p) - 1), default=0) for i in range(depth)
        ]
        bounds = np.cumsum([0, *widths, self.outputs]).tolist()
        self.bounds = [(bounds[i], bounds[i + 1]) for i in range(depth + 1)]
        self.width = bounds[-1]
        self.slots: list[dict[int, int]] = []
        used: list[dict[str, list[tuple[int, int]]]] = [{} for _ in self.bounds]
        for row, (genome, plan) in enumerate(zip(self.genomes, plans, strict=True)):
            slots: dict[int, int] = {}
            for i, level in enumerate(plan):
                at = depth if i == len(plan) - 1 else i
                for j, n in enumerate(level):
                    slots[n] = self.bounds[at][0] + j
                    used[at].setdefault(genome.nodes[n], []).append((row, j))
            self.slots.append(slots)
        self._activations = [
            self._masks(each, hi - lo) for each, (lo, hi) in zip(used, self.bounds, strict=True)
        ]

    def _masks(
        self, used: dict[str, list[tuple[int, int]]], width: int
    ) -> list[tuple[Activation, ad.Tensor | None]]:
        """The activations of a level, each with the nodes that have it; None: all others."""
        result: list[tuple[Activation, ad.Tensor | None]] = []
        for name in sorted(used):
            if name not in ACTIVATIONS:
                raise EvolutionError(
                    f"Networks: no activation is called {name!r}; add it to evolve.ACTIVATIONS"
                )
            mask = None
            if result:
                array = np.zeros((len(self.genomes), width, 1), bool)
                rows, at = zip(*used[name], strict=True)
                array[list(rows), list(at)] = True
                mask = ad.tensor(array)
            result.append((ACTIVATIONS[name], mask))
        return result

    def _pack(self) -> None:
        """Gather the values that count into flat parameters, one for each number of steps that
        genomes were trained, and say where in the blocks of matrices each stands.
        """
        count, width, inputs = len(self.genomes), self.width, self.inputs
        self.recurrent = any(link.recurrent for each in self.genomes for _, link in each.enabled())
        sizes = [count * width, count * width * inputs, count * width * width]
        self._sizes = sizes + [sizes[2]] * self.recurrent
        starts = np.cumsum([0, *self._sizes]).tolist()
        groups: dict[tuple, list[tuple[int, int, int, float]]] = {}
        for row, (genome, slots) in enumerate(zip(self.genomes, self.slots, strict=True)):
            entries = groups.setdefault(tuple(sorted(genome.steps.items())), [])
            values, first = genome.values, row * width
            for n, slot in slots.items():
                entries.append((row, ~n, first + slot, values[~n]))
            for g, link in genome.enabled():
                target = slots.get(link.target)
                if target is None:
                    continue
                line = first + target
                if link.source < inputs:
                    at = starts[1] + line * inputs + link.source
                else:
                    at = starts[3 if link.recurrent else 2] + line * width + slots[link.source]
                entries.append((row, g, at, values[g]))
        self._steps = list(groups)
        self._entries = list(groups.values())
        places = [entry[2] for entries in self._entries for entry in entries]
        self._places = ad.tensor(np.array(places, np.int64))
        self._parameters = [
            ad.nn.Parameter(ad.tensor([entry[3] for entry in entries], dtype=self.dtype))
            for entries in self._entries
        ]
        self._blank = ad.zeros(starts[-1], dtype=self.dtype)
        self._blocks: list[ad.Tensor] = []
        self._key: tuple[Any, ...] = ()

    def parameters(self) -> list[ad.Tensor]:
        """The values of all genomes, as few flat tensors."""
        return list(self._parameters)

    def _matrices(self) -> list[ad.Tensor]:
        """Biases, and weights from inputs, from nodes, and from nodes in the step before: made anew
        where parameters have changed, and for each call with gradients that begins a sequence.
        """
        key = (*(p._version for p in self._parameters), ad.is_grad_enabled())
        if key != self._key or (key[-1] and self.state is None):
            flat = self._blank.scatter(0, self._places, ad.cat(self._parameters))
            count, width = len(self.genomes), self.width
            shapes = [(count, width, 1), (count * width, self.inputs)]
            shapes += [(count, width, width)] * (len(self._sizes) - 2)
            parts = zip(ad.split(flat, self._sizes), shapes, strict=True)
            self._blocks, self._key = [part.reshape(shape) for part, shape in parts], key
        return self._blocks

    def reset(self) -> None:
        """Forget the step before."""
        self.state = None

    def __call__(self, x: ad.Tensor) -> ad.Tensor:
        """The outputs, of shape (genomes, rows, outputs)."""
        x = ad.as_tensor(x, dtype=self.dtype)
        count, width, inputs = len(self.genomes), self.width, self.inputs
        if x.shape[-1:] != (inputs,) or not (x.ndim == 2 or x.shape[:-2] == (count,)):
            raise EvolutionError(
                f"Networks: expected (rows, {inputs}) or ({count}, rows, {inputs}), got "
                f"{tuple(x.shape)}"
            )
        bias, first, later, *back = self._matrices()
        if x.ndim == 2:
            sums = (first @ x.T).reshape(count, width, x.shape[0]) + bias
        else:
            sums = first.reshape(count, width, self.inputs) @ x.transpose(1, 2) + bias
        if back and self.state is not None:
            sums = sums + back[0] @ self.state
        values = self._level(0, sums[:, : self.bounds[0][1]])
        for i, (low, high) in enumerate(self.bounds[1:], 1):
            level = ad.baddbmm(sums[:, low:high], later[:, low:high, :low], values)
            values = ad.cat([values, self._level(i, level)], 1)
        if back:
            self.state = values
        return values[:, -self.outputs :].transpose(1, 2)

    def _level(self, i: int, sums: ad.Tensor) -> ad.Tensor:
        """The activations of a level."""
        result = sums
        for activation, mask in self._activations[i]:
            value = activation(sums)
            result = value if mask is None else ad.where(mask, value, result)
        return result

    # ---- what training changes -------------------------------------------------------------------

    def optimizer(self, make: Callable[..., ad.optim.Optimizer]) -> ad.optim.Optimizer:
        """An optimizer of the parameters that goes on with what the genomes keep of it.

        It must treat each element alike, as SGD and Adam do.
        Errors: EvolutionError for one of another kind.
        """
        optimizer = make(self.parameters())
        if type(optimizer).__name__ not in ELEMENTWISE:
            raise EvolutionError(
                f"optimizer: {type(optimizer).__name__} may treat elements by their place; use "
                f"one of {', '.join(ELEMENTWISE)}"
            )
        state = {}
        for i, (steps, entries) in enumerate(zip(self._steps, self._entries, strict=True)):
            names = {name for row, *_ in entries for name in self.genomes[row].moments}
            if steps or names:
                state[i] = {name: ad.tensor(value) for name, value in steps}
                for name in sorted(names):
                    kept = [
                        self.genomes[row].moments.get(name, {}).get(key, 0.0)
                        for row, key, *_ in entries
                    ]
                    state[i][name] = ad.tensor(kept, dtype=self.dtype)
        if state:
            groups = optimizer.state_dict()["param_groups"]
            optimizer.load_state_dict({"state": state, "param_groups": groups})
        return optimizer

    def store(self, optimizer: ad.optim.Optimizer | None = None) -> None:
        """Write the values, and what the optimizer keeps for each, back into the genomes."""
        kept = optimizer.state_dict()["state"] if optimizer is not None else {}
        for i, entries in enumerate(self._entries):
            values = self._parameters[i].tolist()
            for (row, key, *_), value in zip(entries, values, strict=True):
                self.genomes[row].values[key] = value
            for name, value in kept.get(i, {}).items():
                if isinstance(value, ad.Tensor) and value.ndim:
                    for (row, key, *_), moment in zip(entries, value.tolist(), strict=True):
                        self.genomes[row].moments.setdefault(name, {})[key] = moment
                elif value is not None:
                    for row, *_ in entries:
                        self.genomes[row].steps[name] = float(value)


ELEMENTWISE = ("SGD", "Adam", "AdamW", "NAdam", "RAdam", "RMSprop", "Adagrad", "Adadelta", "Adamax")


class Network(Networks):
    """The network of one genome: `network(x)` takes (rows, inputs) and gives (rows, outputs).

    >>> import random
    >>> from adjoint import evolve
    >>> network = evolve.Network(evolve.NEAT(2, 1).first(random.Random(0)))
    >>> network(ad.zeros(4, 2)).shape
    adjoint.Size([4, 1])
    """

    def __init__(self, genome: Genome, dtype: ad.dtype = ad.float32) -> None:
        super().__init__([genome], dtype)

    def __call__(self, x: ad.Tensor) -> ad.Tensor:
        """The outputs, of shape (rows, outputs)."""
        return super().__call__(x).squeeze(0)


def unroll(network: Networks, sequence: ad.Tensor) -> ad.Tensor:
    """Outputs of a sequence of shape (steps, rows, inputs), from a state of zeros.

    The result has shape (steps, rows, outputs), with the genomes in front for `Networks`.
    Gradients flow back through time.

    >>> import random
    >>> from adjoint import evolve
    >>> network = evolve.Network(evolve.NEAT(1, 1, recurrent=0.5).first(random.Random(0)))
    >>> evolve.unroll(network, ad.ones(7, 4, 1)).shape
    adjoint.Size([7, 4, 1])
    """
    if sequence.ndim != 3 or not len(sequence):
        raise EvolutionError(
            f"unroll: expected (steps, rows, inputs) with a step or more, got "
            f"{tuple(sequence.shape)}"
        )
    network.reset()
    return ad.stack([network(x) for x in sequence], dim=-3)
