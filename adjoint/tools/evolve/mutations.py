"""The registry of mutations, by their names."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from .errors import EvolutionError

Function = TypeVar("Function", bound=Callable[..., bool])
MUTATIONS: dict[str, Callable[..., bool]] = {}


def mutation(function: Function) -> Function:
    """Register a mutation under its name, as a decorator.

    It is called with an individual, which it changes, the space, and a `random.Random` from which
    alone it draws; it returns whether it could do anything. Spaces name it with its chance.

    Errors: EvolutionError for a name that another mutation has.

    >>> from adjoint import evolve
    >>> @evolve.mutation
    ... def half_biases(genome, space, rng):
    ...     for n in genome.nodes:
    ...         genome.values[~n] /= 2
    ...     return True
    >>> space = evolve.NEAT(2, 1, mutations={"half_biases": 0.1})
    """
    name = function.__name__
    other = MUTATIONS.get(name)
    if other is not None and (other.__module__, other.__qualname__) != (
        function.__module__, function.__qualname__,
    ):  # fmt: skip
        raise EvolutionError(f"mutation: {name!r} is a mutation already; choose another name")
    MUTATIONS[name] = function
    return function


def named(name: str) -> Callable[..., bool]:
    """The mutation of that name."""
    if name not in MUTATIONS:
        raise EvolutionError(
            f"mutations: none is called {name!r}; register it with @evolve.mutation, or use one of "
            f"{', '.join(sorted(MUTATIONS))}"
        )
    return MUTATIONS[name]


def chosen(
    space: Any, individual: Any, chances: Mapping[str, float], rng: random.Random
) -> list[str]:
    """Let each mutation happen with its chance; where none did, try again a few times."""
    for _ in range(20):
        done = [
            name
            for name, chance in chances.items()
            if rng.random() < chance and named(name)(individual, space, rng)
        ]
        if done:
            return done
    return []
