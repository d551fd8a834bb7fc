"""The run: generations of evaluation and selection, which is saved and goes on bit for bit."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import adjoint as ad

from . import pictures
from .errors import EvolutionError
from .genome import Genome
from .pareto import NSGA2
from .species import Species
from .tasks import task_of
from .workers import Workers

VERSION = 1


class Evolution:
    """A population that evolves: each generation is evaluated by a task, and the selection makes
    the next one.

    Args:
        space: the individuals there are: `NEAT`, `Modules`.
        task: `Supervised`, `Episodes`, or a function of a network that returns its score.
        size: individuals of a generation.
        seed: of all that is drawn. The same seed gives the same run, with any number of workers.
        selection: `Species()`, or `NSGA2("score", "-size")`; by default the first for NEAT, the
            second with the score alone for modules.
        workers: processes that evaluate; 0: this one.
        group: individuals that are evaluated together; part of what makes a run the same.
        report: called with each generation's record, `print` for one.

    Errors: EvolutionError for sizes below 1, and where individuals cannot be evaluated.

    >>> from adjoint import evolve
    >>> x = ad.tensor([[0., 0.], [0., 1.], [1., 0.], [1., 1.]])
    >>> task = evolve.Supervised(x, ad.tensor([[0.], [1.], [1.], [1.]]))
    >>> run = evolve.Evolution(evolve.NEAT(2, 1), task, size=20, seed=1)
    >>> run.run(10, goal=-0.1).scores["score"] >= -0.1
    True
    """

    def __init__(
        self, space: Any, task: Any, *, size: int = 150, seed: int = 0, selection: Any = None,
        workers: int = 0, group: int = 50, report: Callable[[dict[str, Any]], Any] | None = None,
    ) -> None:  # fmt: skip
        if size < 1 or group < 1 or workers < 0:
            raise EvolutionError(
                f"Evolution: size={size}, group={group}, workers={workers}; give 1, 1 and 0 or more"
            )
        self.space, self.task, self.size, self.seed = space, task_of(task), size, seed
        if selection is None:
            selection = Species() if hasattr(space, "distances") else NSGA2()
        if isinstance(selection, Species) and not hasattr(space, "distances"):
            raise EvolutionError(
                "Evolution: Species needs a space with distances, as NEAT's; use NSGA2()"
            )
        self.selection, self.group, self.report = selection, group, report
        names = selection.names() if isinstance(selection, NSGA2) else []
        self.pool = Workers(self.task, space, workers, "time" in names)
        self.rng = random.Random(seed)
        self.population: list[Any] = [space.first(self.rng) for _ in range(size)]
        self.evaluated: list[Any] = []  # the last generation, with scores
        self.champions: list[Any] = []  # the best of each generation
        self.history: list[dict[str, Any]] = []
        self.best: Any = None

    def __enter__(self) -> Evolution:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the pool's processes; another generation starts them again."""
        self.pool.close()

    @property
    def generation(self) -> int:
        """How many generations were evaluated."""
        return len(self.history)

    @property
    def evaluations(self) -> int:
        """How many individuals were evaluated."""
        return self.size * self.generation

    # ---- going on --------------------------------------------------------------------------------

    def step(self) -> dict[str, Any]:
        """One generation: evaluated, recorded, followed by the next; returns its record.

        An error of the task leaves the run as it was before.
        """
        groups = [
            [each.copy() for each in self.population[i : i + self.group]]
            for i in range(0, self.size, self.group)
        ]
        draws = random.Random(f"{self.seed} {self.generation}")
        evaluated = self.pool.evaluate(groups, [draws.getrandbits(48) for _ in groups])
        kept = self.rng.getstate(), self.space.state_dict(), dict(vars(self.selection))
        try:
            population = self.selection.next(self.space, evaluated, self.size, self.rng)
        except BaseException:
            self.rng.setstate(kept[0])
            self.space.load_state_dict(kept[1])
            vars(self.selection).update(kept[2])
            raise
        self.evaluated, self.population = evaluated, population
        champion = max(evaluated, key=lambda x: x.scores["score"])
        self.champions.append(champion)
        if self.best is None or champion.scores["score"] > self.best.scores["score"]:
            self.best = champion
        self.history.append(self._record(champion))
        if self.report is not None:
            self.report(self.history[-1])
        return self.history[-1]

    def _record(self, champion: Any) -> dict[str, Any]:
        scores = [x.scores["score"] for x in self.evaluated]
        record = {
            "generation": self.generation + 1, "evaluations": self.evaluations + self.size,
            "best": champion.scores["score"], "mean": sum(scores) / len(scores),
            "size": int(champion.scores["size"]),
        }  # fmt: skip
        if isinstance(self.selection, Species):
            record["species"] = len(self.selection.groups)
        else:
            record["front"] = len(self.front())
        return record

    def run(self, generations: int, goal: float | None = None) -> Any:
        """Evolve for so many generations, or until a score reaches `goal`; the best individual of
        the whole run, with `scores`.
        """
        for _ in range(generations):
            if goal is not None and self.best is not None and self.best.scores["score"] >= goal:
                break
            self.step()
        if self.best is None:
            raise EvolutionError("Evolution: no generation was evaluated; run one or more")
        return self.best

    def network(self, individual: Any = None) -> Any:
        """The network of an individual; by default of the best."""
        return self.space.network(self.best if individual is None else individual)

    def front(self) -> list[Any]:
        """The individuals that no other one dominates, of all generations, by the first objective;
        under `Species`, the best.
        """
        if isinstance(self.selection, NSGA2):
            return self.selection.front([*self.selection.survivors])
        return [] if self.best is None else [self.best]

    # ---- looking at it ---------------------------------------------------------------------------

    def table(self) -> str:
        """The run as a table, a row for each generation."""
        return pictures.table(self.history)

    def picture(self, path: str | Path) -> None:
        """Write the picture of the front, or under `Species` of the scores, as an SVG file."""
        if isinstance(self.selection, NSGA2) and len(self.selection.objectives) > 1:
            pictures.front(self.selection, self.evaluated, self.front(), path)
        else:
            pictures.scores(self.history, path)

    def graph(self, generation: int | None = None, inputs: Any = None) -> ad.Graph:
        """The best network of a generation (of the run, where none is given; from 1, or from the
        end with a minus) as a living graph with its nodes' names.
        """
        if not self.champions:
            raise EvolutionError("Evolution: no generation was evaluated; run one or more")
        individual = self.best
        if generation is not None:
            if generation == 0 or not -self.generation <= generation <= self.generation:
                raise EvolutionError(
                    f"Evolution: there is no generation {generation}; there are {self.generation}"
                )
            individual = self.champions[generation - (generation > 0)]
        if isinstance(individual, Genome):
            return pictures.graph_of(individual, inputs)
        inputs = getattr(self.task, "inputs", None) if inputs is None else inputs
        if inputs is None:
            raise EvolutionError("Evolution: the graph of a module needs inputs=")
        graph = ad.Graph()
        x = graph.input(ad.as_tensor(inputs)[:1], "input")
        with graph:
            graph.name(self.space.network(individual).eval()(x), "output")
        return graph

    def view(self, path: str | Path, generation: int | None = None, inputs: Any = None) -> None:
        """Write the viewer's page of the best network of a generation."""
        graph: Any = self.graph(generation, inputs)
        graph.save_html(str(path))

    # ---- files -----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """All that the run depends on, as plain values and arrays."""
        version, numbers, gauss = self.rng.getstate()
        best = [] if self.best is None else [self.best]
        return {
            "version": VERSION,
            "made": self._made(),
            "random": [version, list(numbers), gauss],
            "history": [dict(record) for record in self.history],
            "space": self.space.state_dict(),
            "selection": self.selection.state_dict(self.space),
            "population": self.space.encode(self.population),
            "evaluated": self.space.encode(self.evaluated),
            "champions": self.space.encode(self.champions),
            "best": self.space.encode(best),
        }

    def _made(self) -> str:
        """The arguments that two runs must share for one to go on as the other."""
        return (
            f"{self.space!r}, {self.selection!r}, size={self.size}, seed={self.seed}, "
            f"group={self.group}"
        )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken.

        Errors: EvolutionError for a state of a run that was made otherwise; the run is then as it
        was.
        """
        if state.get("version") != VERSION:
            raise EvolutionError(
                f"Evolution: expected a state of version {VERSION}, got {state.get('version')!r}"
            )
        if state["made"] != self._made():
            raise EvolutionError(
                f"Evolution: the state is of a run that was made otherwise: {state['made']}; this "
                f"one is {self._made()}"
            )
        decode = self.space.decode
        names = ("population", "evaluated", "champions", "best")
        groups = {name: decode(state[name]) for name in names}
        version, numbers, gauss = state["random"]
        self.space.load_state_dict(state["space"])
        self.selection.load_state_dict(self.space, state["selection"])
        self.rng.setstate((version, tuple(numbers), gauss))
        self.history = [dict(record) for record in state["history"]]
        self.population, self.evaluated = groups["population"], groups["evaluated"]
        self.champions = groups["champions"]
        self.best = groups["best"][0] if groups["best"] else None

    def save(self, path: str | Path) -> None:
        """Write the run to a file, which holds arrays and plain values only."""
        ad.save(self.state_dict(), str(path))

    def resume(self, path: str | Path) -> Evolution:
        """Go on with a run that was saved; returns itself. What was made alike is not in the file:
        space, task and selection.

        Errors: EvolutionError as `load_state_dict`; CheckpointError for a file that is none.
        """
        state = ad.load(str(path))
        if not isinstance(state, dict) or "made" not in state:
            raise EvolutionError(f"Evolution: {path} is no file that Evolution.save wrote")
        self.load_state_dict(state)
        return self
