"""Species: NEAT's selection, in which new topologies compete with their like only."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping
from typing import Any

from .errors import EvolutionError


class Group:
    """A species: its representative, how good it has been, and for how long it has not improved."""

    def __init__(self, number: int, representative: Any) -> None:
        self.number, self.representative = number, representative
        self.best, self.age = -float("inf"), 0
        self.members: list[Any] = []


class Species:
    """Speciation with shared fitness, stagnation and champions that live on.

    Args:
        count: how many species there should be: the distance that divides them follows.
        distance: which it begins with.
        stagnation: generations without improvement after which a species dies out; the one with
            the best individual never does.
        survival: the share of a species that has children.
        cross: the chance that a child has two parents.

    >>> from adjoint import evolve
    >>> evolve.Species(count=6).count
    6
    """

    def __init__(
        self, *, count: int = 8, distance: float = 3.0, stagnation: int = 15, survival: float =
        0.3, cross: float = 0.5,
    ) -> None:  # fmt: skip
        if count < 1 or not 0 < survival <= 1:
            raise EvolutionError(
                f"Species: count={count}, survival={survival}; give 1 or more, and above 0 to 1"
            )
        self.count, self.distance, self.stagnation = count, distance, stagnation
        self.survival, self.cross = survival, cross
        self.groups: list[Group] = []
        self.made = 0

    def __repr__(self) -> str:
        return f"Species({self.count}, {self.stagnation}, {self.survival}, {self.cross})"

    def next(self, space: Any, evaluated: list[Any], size: int, rng: random.Random) -> list[Any]:
        """The next generation, from one that has scores."""
        self.groups = [copy.copy(group) for group in self.groups]  # an error leaves the old ones
        self._divide(space, evaluated, rng)
        self._age()
        return self._children(space, size, rng)

    def _divide(self, space: Any, individuals: list[Any], rng: random.Random) -> None:
        """Sort individuals into the first species whose representative is near."""
        for group in self.groups:
            group.members = []
        waiting = list(individuals)
        if self.groups:
            far = space.distances(waiting, [group.representative for group in self.groups])
            near = far < self.distance
            chosen = near.argmax(1)
            for i in near.any(1).nonzero()[0]:
                self.groups[chosen[i]].members.append(waiting[i])
            waiting = [waiting[i] for i in (~near.any(1)).nonzero()[0]]
        while waiting:
            group = Group(self.made, waiting[0])
            self.made += 1
            self.groups.append(group)
            near = space.distances(waiting, [waiting[0]])[:, 0] < self.distance
            near[0] = True
            group.members = [x for x, is_near in zip(waiting, near, strict=True) if is_near]
            waiting = [x for x, is_near in zip(waiting, near, strict=True) if not is_near]
        self.groups = [group for group in self.groups if group.members]
        for group in self.groups:
            group.representative = rng.choice(group.members)
        more = len(self.groups) > self.count
        self.distance = max(0.3, self.distance + (0.3 if more else -0.3))

    def _age(self) -> None:
        """Let species that do not improve die out."""
        for group in self.groups:
            group.members.sort(key=lambda x: -x.scores["score"])
            best = group.members[0].scores["score"]
            group.age = 0 if best > group.best else group.age + 1
            group.best = max(group.best, best)
        top = max(group.members[0].scores["score"] for group in self.groups)
        self.groups = [
            group
            for group in self.groups
            if group.age < self.stagnation or group.members[0].scores["score"] == top
        ]

    def _shares(self, size: int) -> list[int]:
        """How many children each species has: by its mean score above the worst's."""
        means = []
        for group in self.groups:
            scores = [max(x.scores["score"], -1e30) for x in group.members]
            means.append(sum(scores) / len(scores))
        low, high = min(means), max(means)
        shares = [(mean - low) / (high - low) + 0.2 if high > low else 1.0 for mean in means]
        exact = [size * share / sum(shares) for share in shares]
        counts = [int(each) for each in exact]
        order = sorted(range(len(exact)), key=lambda i: counts[i] - exact[i])
        for i in order[: size - sum(counts)]:
            counts[i] += 1
        return counts

    def _children(self, space: Any, size: int, rng: random.Random) -> list[Any]:
        """Champions, unchanged, and mutated children of the best."""
        children = []
        for group, count in zip(self.groups, self._shares(size), strict=True):
            parents = group.members[: max(1, round(len(group.members) * self.survival))]
            if count:
                children.append(group.members[0].copy())
            for _ in range(count - 1):
                pair = [rng.choice(parents), rng.choice(parents)]
                pair.sort(key=lambda x: -x.scores["score"])
                if pair[0] is not pair[1] and rng.random() < self.cross:
                    child = space.cross(pair[0], pair[1], rng)
                else:
                    child = pair[0].copy()
                space.mutate(child, rng)
                children.append(child)
        return children

    def state_dict(self, space: Any) -> dict[str, Any]:
        """The species, as plain values."""
        return {
            "distance": self.distance,
            "made": self.made,
            "groups": [[x.number, x.best, x.age] for x in self.groups],
            "representatives": space.encode([x.representative for x in self.groups]),
        }

    def load_state_dict(self, space: Any, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self.distance, self.made, self.groups = state["distance"], state["made"], []
        representatives = space.decode(state["representatives"])
        for (number, best, age), each in zip(state["groups"], representatives, strict=True):
            group = Group(number, each)
            group.best, group.age = best, age
            self.groups.append(group)
