"""NSGA-II: selection by several objectives at once (Deb et al., 2002)."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .errors import EvolutionError


def fronts(points: Any) -> list[list[int]]:
    """Sort points into fronts: no point of a front is dominated by one of its own or a later one.

    A point dominates another if it is no worse in any objective and better in one; all are better
    the larger they are. Points: (count, objectives); the fronts have their rows' numbers.

    >>> from adjoint import evolve
    >>> evolve.fronts([[1, 1], [2, 0], [0, 2], [0, 0]])
    [[0, 1, 2], [3]]
    """
    points = np.asarray(points, float)
    if points.size == 0:
        return []
    if points.ndim != 2 or np.isnan(points).any():
        raise EvolutionError(
            f"fronts: expected numbers of shape (count, objectives), got {points.shape}, or nan"
        )
    no_worse = (points[:, None] >= points[None]).all(2)
    dominates = no_worse & ~no_worse.T
    above = dominates.sum(0)
    rest = np.ones(len(points), bool)
    result = []
    while rest.any():
        front = np.flatnonzero(rest & (above == 0))
        result.append(front.tolist())
        rest[front] = False
        above = above - dominates[front].sum(0)
    return result


def crowding(points: Any) -> np.ndarray:
    """How far the neighbours of each point of a front are from each other; infinite at its ends.

    >>> from adjoint import evolve
    >>> evolve.crowding([[0, 4], [1, 1], [4, 0]])
    array([inf,  2., inf])
    """
    points = np.asarray(points, float)
    result = np.zeros(len(points))
    for column in points.T:
        order = np.argsort(column, kind="stable")
        column = column[order]
        width = column[-1] - column[0]
        result[order[[0, -1]]] = np.inf
        if np.isfinite(width) and width > 0:
            result[order[1:-1]] += (column[2:] - column[:-2]) / width
    return result


class NSGA2:
    """Elitist selection by fronts and crowding; with one objective, of the best.

    The survivors of all generations so far, as many as the population has, stay with their scores,
    and are parents of the next one. Those whose objectives are all equal count once.

    Args:
        objectives: names of scores; one with a minus in front is better the smaller it is.
            "score" and what else a task returns; "size": parameters; "time": measured seconds of a
            call, with which a run is no longer the same from the same seed.
        cross: the chance that a child has two parents.

    >>> from adjoint import evolve
    >>> evolve.NSGA2("score", "-size").objectives
    ('score', '-size')
    """

    def __init__(self, *objectives: str, cross: float = 0.3) -> None:
        self.objectives = objectives or ("score",)
        self.cross = cross
        self.survivors: list[Any] = []

    def __repr__(self) -> str:
        return f"NSGA2{self.objectives}, cross={self.cross}"

    def names(self) -> list[str]:
        """The scores that the objectives are made of."""
        return [each.removeprefix("-") for each in self.objectives]

    def points(self, individuals: Sequence[Any]) -> np.ndarray:
        """Each individual's objectives, all of them better the larger they are."""
        rows = []
        for individual in individuals:
            missing = [name for name in self.names() if name not in individual.scores]
            if missing:
                raise EvolutionError(
                    f"NSGA2: the task gives no {missing[0]!r}, but {', '.join(individual.scores)}"
                )
            rows.append(
                [
                    -individual.scores[each[1:]]
                    if each.startswith("-")
                    else individual.scores[each]
                    for each in self.objectives
                ]
            )
        points = np.array(rows, float).reshape(len(rows), len(self.objectives))
        return np.where(np.isnan(points), -np.inf, points)

    def ranked(self, individuals: list[Any]) -> list[tuple[int, float, Any]]:
        """Individuals with their front's number and crowding, best first."""
        points = self.points(individuals)
        result: list[tuple[int, float, Any]] = []
        for rank, front in enumerate(fronts(points)):
            spread = crowding(points[front])
            order = np.argsort(-spread, kind="stable")
            result += [(rank, float(spread[i]), individuals[front[i]]) for i in order]
        return result

    def front(self, individuals: Sequence[Any]) -> list[Any]:
        """The individuals that none dominates, one of each point, by the first objective."""
        distinct = self._distinct(individuals)
        points = self.points(distinct)
        kept = fronts(points)[0] if distinct else []
        return [distinct[i] for i in sorted(kept, key=lambda i: tuple(-points[i]))]

    def _distinct(self, individuals: Sequence[Any]) -> list[Any]:
        points = self.points(individuals)
        first: dict[tuple[float, ...], Any] = {}
        for point, individual in zip(points, individuals, strict=True):
            first.setdefault(tuple(point), individual)
        return list(first.values())

    def next(self, space: Any, evaluated: list[Any], size: int, rng: random.Random) -> list[Any]:
        """Children of the survivors of all that have scores."""
        ranked = self.ranked(self._distinct([*self.survivors, *evaluated]))[:size]
        self.survivors = [individual for *_, individual in ranked]  # best first

        def winner() -> int:
            return min(rng.randrange(len(ranked)), rng.randrange(len(ranked)))

        children = []
        for _ in range(size):
            one, other = sorted((winner(), winner()))
            if one != other and rng.random() < self.cross:
                child = space.cross(self.survivors[one], self.survivors[other], rng)
            else:
                child = self.survivors[one].copy()
            space.mutate(child, rng)
            children.append(child)
        return children

    def state_dict(self, space: Any) -> dict[str, Any]:
        """The survivors, as plain values."""
        return {"survivors": space.encode(self.survivors)}

    def load_state_dict(self, space: Any, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self.survivors = space.decode(state["survivors"])
