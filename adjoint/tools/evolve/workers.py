"""Groups of individuals evaluated here, or by processes; with the same results."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pickle import PicklingError
from typing import Any

import adjoint as ad

from .errors import EvolutionError

_worker: tuple[Any, Any, bool] | None = None  # task, space and whether to measure, of this process


def evaluate(task: Any, space: Any, group: Sequence[Any], seed: int, timed: bool) -> None:
    """Give each of a group its scores; what is drawn is seeded, and the caller's generator is left
    as it was.
    """
    with ad.random.fork_rng():
        ad.manual_seed(seed)
        scores = task.evaluate(group, space)
    if len(scores) != len(group):
        raise EvolutionError(
            f"Evolution: the task gave {len(scores)} scores for {len(group)} individuals"
        )
    for individual, each in zip(group, scores, strict=True):
        individual.scores = {**each, "size": float(individual.size())}
        if timed:
            individual.scores["time"] = seconds(space.network(individual), task)


def seconds(network: Any, task: Any) -> float:
    """The least time of a call on the task's inputs, of five."""
    x = getattr(task, "inputs", None)
    if x is None:
        raise EvolutionError("Evolution: 'time' is measured on a task's `inputs`; it has none")
    times = []
    with ad.no_grad():
        for _ in range(5):
            begin = time.perf_counter()
            for each in x if getattr(task, "sequence", False) else (x,):
                network(each)
            times.append(time.perf_counter() - begin)
    return min(times)


def _start(task: Any, space: Any, timed: bool) -> None:
    global _worker
    _worker = (task, space, timed)
    ad.set_num_threads(1)


def _work(state: Any, seed: int) -> Any:
    assert _worker is not None, "a worker is started with a task"
    task, space, timed = _worker
    group = space.decode(state)
    evaluate(task, space, group, seed, timed)
    return space.encode(group)


class Workers:
    """Processes that evaluate groups; none are started for `workers=0`.

    A process is started anew (`spawn`): the program needs `if __name__ == "__main__":`, and task
    and space must be such that pickle can pass them on.
    """

    def __init__(self, task: Any, space: Any, workers: int, timed: bool) -> None:
        self.task, self.space, self.workers, self.timed = task, space, workers, timed
        self._processes: ProcessPoolExecutor | None = None

    def evaluate(self, groups: list[list[Any]], seeds: list[int]) -> list[Any]:
        """The individuals of all groups, with their scores."""
        if not self.workers:
            for group, seed in zip(groups, seeds, strict=True):
                evaluate(self.task, self.space, group, seed, self.timed)
            return [individual for group in groups for individual in group]
        if self._processes is None:
            self._processes = ProcessPoolExecutor(
                self.workers, get_context("spawn"), _start, (self.task, self.space, self.timed)
            )
        states = [self.space.encode(group) for group in groups]
        try:
            results = list(self._processes.map(_work, states, seeds))
        except (PicklingError, AttributeError, TypeError) as error:
            self.close()
            raise EvolutionError(
                f"Evolution: workers={self.workers} cannot be given task or space: {error}; "
                "use functions with names, at the top of a module"
            ) from error
        except BrokenProcessPool as error:
            self.close()
            raise EvolutionError(
                f"Evolution: a process of workers={self.workers} has ended; does the program start "
                'evolution below `if __name__ == "__main__":`?'
            ) from error
        return [individual for state in results for individual in self.space.decode(state)]

    def close(self) -> None:
        """End the processes."""
        if self._processes is not None:
            self._processes.shutdown(wait=True, cancel_futures=True)
            self._processes = None
