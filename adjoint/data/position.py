"""Position of a DataLoader in its pass, so that a checkpoint can bring it back there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..core.errors import CheckpointError
from ..ops.random.generators import Generator, default_generator

State = tuple[Any, ...]  # of a generator: seed, draws, what follows where it is PyTorch's


def state_of(generator: Generator) -> State:
    """The generator's state as plain numbers."""
    return generator.__getstate__()


def set_state(generator: Generator, state: State) -> None:
    """Bring the generator to a state that `state_of` gave."""
    generator.__setstate__(state)


class Position:
    """Progress of a pass: how much was handed out, and the random states from which its order was
    drawn.
    """

    def __init__(self, own: Iterable[Generator]) -> None:
        self.running = False  # a pass has begun and not come to its end
        self.batches = 0  # handed out in this pass
        self.default = state_of(default_generator)  # when the pass began
        self.own = [state_of(g) for g in own]  # likewise, of the loader's and samplers' generators
        # Of each worker: the batches handed out, and its generator's state after the last of them.
        # None before there are workers.
        self.workers: list[tuple[int, State | None]] | None = None
        self.turn = 0  # which worker makes the next batch
        self.seed: int | None = None  # of workers that are kept from pass to pass
        self.drawn = True  # whether this pass draws it: the first one that has these workers

    def state_dict(self) -> dict[str, Any]:
        """Everything, in plain values."""
        return {**vars(self), "own": list(self.own), "workers": self.workers and [*self.workers]}

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Position:
        """The inverse of `state_dict`, also after a way through JSON."""
        position = cls(())
        try:
            position.running = bool(state["running"])
            position.batches = int(state["batches"])
            position.default = _checked(state["default"])
            position.own = [_checked(s) for s in state["own"]]
            if state["workers"] is not None:
                position.workers = [(int(n), s and _checked(s)) for n, s in state["workers"]]
            position.turn = int(state["turn"])
            seed = state.get("seed")  # which states of older versions lack
            position.seed, position.drawn = seed and int(seed), bool(state.get("drawn", True))
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"DataLoader.load_state_dict: this is no DataLoader's state_dict() "
                f"({type(error).__name__}: {error})"
            ) from None
        return position

    def follow(self, last: Position) -> None:
        """Go on with the workers of an earlier pass: their seed, and their states after it."""
        if last.seed is None:
            return
        self.seed, self.drawn = last.seed, False
        if last.workers is not None:  # one that handed out nothing begins anew
            self.workers = [
                (0, state or (last.seed + i, 0)) for i, (_, state) in enumerate(last.workers)
            ]

    def restore(self, own: Iterable[Generator]) -> None:
        """Bring all generators to where they were when the pass began."""
        set_state(default_generator, self.default)
        for generator, state in zip(own, self.own, strict=True):
            set_state(generator, state)

    def advance(self, worker: int | None = None, state: State | None = None) -> None:
        """Counts one more batch that is handed out, made by this worker."""
        self.batches += 1
        if worker is not None and self.workers is not None:
            self.workers[worker] = self.workers[worker][0] + 1, state
            self.turn = (worker + 1) % len(self.workers)


def _checked(state: Any) -> State:
    key, draws, *more = state
    return (int(key), int(draws), *map(str, more))
