"""The space of modules: layers that grow without changing what the network computes."""

from __future__ import annotations

import copy
import inspect
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import adjoint as ad
from adjoint import nn

from .errors import EvolutionError
from .mutations import chosen, named


class Individual:
    """A module, what its optimizer keeps for each parameter (by its name), and scores."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.moments: dict[str, dict[str, ad.Tensor]] = {}
        self.scores: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"Individual: {self.size()} parameters"

    def copy(self) -> Individual:
        """An individual of its own, with all that this one has learnt, and without its scores."""
        twin = copy.deepcopy(self)
        twin.scores = {}
        return twin

    def size(self) -> int:
        """The parameters."""
        return sum(p.numel() for p in self.module.parameters())

    def optimizer(self, make: Callable[..., ad.optim.Optimizer]) -> ad.optim.Optimizer:
        """An optimizer that goes on with what is kept of it."""
        optimizer = make(list(self.module.parameters()))
        names = [name for name, _ in self.module.named_parameters()]
        state = {
            i: {what: x.clone() for what, x in self.moments[name].items()}
            for i, name in enumerate(names)
            if name in self.moments
        }
        if state:
            groups = optimizer.state_dict()["param_groups"]
            optimizer.load_state_dict({"state": state, "param_groups": groups})
        return optimizer

    def store(self, optimizer: ad.optim.Optimizer) -> None:
        """Keep what the optimizer keeps for each parameter."""
        state = optimizer.state_dict()["state"]
        for i, (name, _) in enumerate(self.module.named_parameters()):
            self.moments[name] = {
                what: ad.as_tensor(x).detach().clone()
                for what, x in state.get(i, {}).items()
                if x is not None
            }

    def chains(self) -> Iterator[tuple[str, nn.Sequential]]:
        """The Sequentials of the module, in which layers may grow, with their names."""
        for path, module in self.module.named_modules():
            if type(module) is nn.Sequential:
                yield path, module

    # ---- edits that mutations are made of --------------------------------------------------------

    def replace(
        self, layer: nn.Module, name: str, value: ad.Tensor, moments: Callable[[ad.Tensor],
        ad.Tensor], factor: float = 1.0,
    ) -> None:  # fmt: skip
        """Give a layer another parameter, or buffer, of another shape.

        `moments` is what became of its elements, applied to the optimizer's state: gradients are
        `factor` times what they were.
        Errors: EvolutionError for a state of which it is not known how it follows.
        """
        old = getattr(layer, name)
        if not isinstance(old, nn.Parameter):
            setattr(layer, name, value)
            return
        key = next(key for key, p in self.module.named_parameters() if p is old)
        kept: dict[str, ad.Tensor] = {}
        for what, x in self.moments.get(key, {}).items():
            if not x.ndim:
                kept[what] = x
            elif what not in POWERS:
                raise EvolutionError(
                    f"modules: it is not known how the optimizer's {what!r} follows {key} to "
                    f"another shape; use an optimizer that keeps no more than {', '.join(POWERS)}"
                )
            else:
                kept[what] = moments(x) * factor ** POWERS[what]
        setattr(layer, name, nn.Parameter(value.detach().clone(), old.requires_grad))
        if kept:
            self.moments[key] = kept

    def insert(self, path: str, position: int, *layers: nn.Module) -> None:
        """Put layers into the Sequential called `path`, in front of what stands at `position`."""
        chain: Any = self.module.get_submodule(path)
        before = path + "." if path else ""
        moved = {}
        for key, kept in self.moments.items():
            number, dot, rest = key.removeprefix(before).partition(".")
            inside = key.startswith(before) and number.isdigit() and int(number) >= position
            name = f"{before}{int(number) + len(layers)}{dot}{rest}" if inside else key
            moved[name] = kept
        children = list(chain)
        children[position:position] = layers
        _refill(chain, children)
        self.moments = moved


# What an optimizer keeps -> the power of the gradient that it is made of.
POWERS = {
    "exp_avg": 1, "momentum_buffer": 1, "exp_avg_sq": 2, "max_exp_avg_sq": 2, "square_avg": 2,
    "grad_avg": 1, "sum": 2, "exp_inf": 1,
}  # fmt: skip


def _refill(chain: Any, children: list[nn.Module]) -> None:
    """Let a Sequential have these layers."""
    for name in [name for name, _ in chain.named_children()]:
        delattr(chain, name)
    for i, child in enumerate(children):
        chain.add_module(str(i), child)


# ---- the space -----------------------------------------------------------------------------------

CHANCES = {"wider": 0.5, "deeper": 0.2, "narrower": 0.1}


class Modules:
    """Modules whose layers evolve: those in an `nn.Sequential`, wherever in the module it is.

    Mutations are "wider" (copies of units, with shares of the weights that lead on: Net2WiderNet),
    "deeper" (a layer that is the identity: Net2DeeperNet; after ReLU), "narrower" (a unit less) and
    your own, registered by `evolve.mutation`; wider and deeper ones compute what their parent does.
    What the optimizer keeps follows the weights. A child has one parent.

    Args:
        build: makes a module; what it draws is seeded.
        mutations: chances by name, as for `NEAT`.
        optimizer: makes the optimizer for tasks with gradient steps, from parameters.

    Errors: EvolutionError for names and chances that cannot be.

    >>> import random
    >>> from adjoint import evolve, nn
    >>> def build():
    ...     return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> space = evolve.Modules(build, mutations={"wider": 1.0, "deeper": 0.0})
    >>> parent = space.first(random.Random(0))
    >>> child, x = parent.copy(), ad.randn(5, 3)
    >>> space.mutate(child, random.Random(0))
    >>> child.size() > parent.size(), ad.allclose(child.module(x), parent.module(x), atol=1e-5)
    (True, True)
    """

    def __init__(
        self, build: Callable[[], nn.Module], *, mutations: Mapping[str, float] | None = None,
        optimizer: Callable[..., ad.optim.Optimizer] = ad.optim.Adam, dtype: ad.dtype = ad.float32,
    ) -> None:  # fmt: skip
        self.build, self.optimizer, self.dtype = build, optimizer, dtype
        self.mutations = {**CHANCES, **(mutations or {})}
        for name, chance in self.mutations.items():
            named(name)
            if not 0 <= chance <= 1:
                raise EvolutionError(f"Modules: the chance of {name} is {chance}; 0 to 1 is meant")

    def __repr__(self) -> str:
        return f"Modules({self.build.__qualname__}, {sorted(self.mutations.items())})"

    def first(self, rng: random.Random) -> Individual:
        """A module as it was built."""
        with ad.random.fork_rng():
            ad.manual_seed(rng.getrandbits(48))
            module = self.build()
        if not isinstance(module, nn.Module):
            raise EvolutionError(f"Modules: build returned {module!r}; a module is meant")
        return Individual(module)

    def mutate(self, individual: Individual, rng: random.Random) -> None:
        """Let each mutation happen with its chance, and one at least where one can."""
        chosen(self, individual, self.mutations, rng)

    def cross(self, fitter: Individual, other: Individual, rng: random.Random) -> Individual:
        """A child of the fitter alone."""
        return fitter.copy()

    def network(self, individual: Individual) -> nn.Module:
        """The module."""
        return individual.module

    def encode(self, group: list[Individual]) -> list[dict[str, Any]]:
        """Individuals as plain values and tensors."""
        return [_encoded(each) for each in group]

    def decode(self, state: list[dict[str, Any]]) -> list[Individual]:
        """The individuals that `encode` was given."""
        return [self._decoded(each) for each in state]

    def _decoded(self, state: Mapping[str, Any]) -> Individual:
        individual = self.first(random.Random(0))
        known = {type(m).__name__: type(m) for m in individual.module.modules()}
        for path, layers in state["layers"]:
            chain = individual.module.get_submodule(path)
            _refill(chain, [_layer(name, arguments, known) for name, arguments in layers])
        individual.module.load_state_dict(state["values"])
        individual.module.train(state["training"])
        individual.moments = {name: dict(each) for name, each in state["moments"].items()}
        individual.scores = dict(state["scores"])
        return individual

    def state_dict(self) -> dict[str, Any]:
        """Nothing: what is evolved is in the individuals."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        if state:
            raise EvolutionError(
                f"Modules: the state has {', '.join(state)}; it is another space's"
            )


def _encoded(individual: Individual) -> dict[str, Any]:
    values = {name: x.detach().clone() for name, x in individual.module.state_dict().items()}
    return {
        "layers": [
            (path, [_described(each) for each in chain]) for path, chain in individual.chains()
        ],
        "values": values,
        "training": individual.module.training,
        "moments": {name: dict(each) for name, each in individual.moments.items()},
        "scores": dict(individual.scores),
    }


def _described(layer: nn.Module) -> tuple[str, dict[str, Any]]:
    """A layer's class and the arguments that make it again."""
    arguments = {}
    for name in inspect.signature(type(layer)).parameters:
        if name in ("device", "dtype") or not hasattr(layer, name):
            continue
        value = getattr(layer, name)
        arguments[name] = (
            value is not None if name == "bias" and not isinstance(value, bool) else value
        )
    kind = type(layer).__name__
    try:
        twin = type(layer)(**arguments)
    except (TypeError, ValueError) as error:
        raise EvolutionError(
            f"modules: {kind} cannot be made again from {arguments}: {error}"
        ) from error
    if repr(twin) != repr(layer):
        raise EvolutionError(
            f"modules: {layer!r} cannot be made again from its attributes; keep its constructor's "
            "arguments as attributes, or put it outside of the Sequential"
        )
    return kind, arguments


def _layer(name: str, arguments: dict[str, Any], known: dict[str, type]) -> nn.Module:
    """A layer of a class of `adjoint.nn`, or of one that the built module has."""
    kind = known.get(name) or getattr(nn, name, None)
    if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        raise EvolutionError(f"modules: no layer is called {name!r}")
    return kind(**arguments)


GROWING = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
