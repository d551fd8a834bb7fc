"""Optimizer steps in a program whose only per-step scalars depend on a shared step count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...core.elements import common_number, put_number
from ...runtime.writes import announce
from ..guards.identity_guards import have_memory

if TYPE_CHECKING:
    from ...optim.elementwise import ElementwiseOptimizer


class Launch:
    """Cached launch of an optimizer's kernel on bound arrays."""

    __slots__ = ("fill", "numbers", "run")

    run: Callable[[], object]
    fill: Callable[[list[Any]], None]
    numbers: list[Any]  # scalars of the next step: pairs of a number of rows and their scalars

    def __init__(self, run: Callable[[], object], fill: Callable[[list[Any]], None]) -> None:
        self.run = run
        self.fill = fill
        self.numbers = []


def launch_all(launches: Sequence[Launch], written: list[Any]) -> None:
    """Run the kernels, and bump the versions of the tensors `written`."""
    watched = announce(written, "step")
    for each in launches:
        each.fill(each.numbers)
        each.run()
    for version in watched:
        version.bump("step")


class StepCounter:
    """Step counter of those parameters of a group whose states hold the same count."""

    __slots__ = ("_arrays", "_bound", "_formula", "_group", "_state", "_step", "_tensors")

    def __init__(self, batch: Any, formula: Any) -> None:
        self._group, self._formula = batch.group, formula
        self._state = batch.states[0]
        self._tensors = [state["step"] for state in batch.states]
        self._arrays = [x._data for x in self._tensors]
        self._bound = [(x, x._data, x._node) for x in self._tensors]
        self._step: float = 0.0  # count of the coming step

    def numbers(self, optimizer: ElementwiseOptimizer) -> tuple[int, Any] | None:
        """The number of parameters and the scalars of the coming step. None where the counts differ
        by now, or where the options need another formula.
        """
        count = common_number(self._arrays) if have_memory(self._bound) else None
        if count is None:
            return None
        self._step = count + 1
        numbers = optimizer.numbers(self._group, self._state, self._step)
        scalars = self._formula.with_numbers((self._group, numbers))
        return None if scalars is None else (len(self._arrays), scalars[1])

    def count(self) -> None:
        """Write the new count into the states."""
        watched = announce(self._tensors, "step")
        put_number(self._arrays, self._step)
        for version in watched:
            version.bump("step")


class CountedStep:
    """The kernel launches of an optimizer's step, with the step counters of their rows."""

    __slots__ = ("_counters", "_launches", "_optimizer", "_written")

    def __init__(
        self, optimizer: ElementwiseOptimizer, written: list[Any], launches: Sequence[Launch],
        counters: Sequence[Sequence[StepCounter]],
    ) -> None:  # fmt: skip
        self._optimizer, self._written = optimizer, written
        self._launches, self._counters = list(launches), list(counters)

    def run(self) -> bool:
        """Make the step with the options of now; False, with nothing done, where parameters no
        longer have equal counts.
        """
        if not self.prepare():
            return False
        self.commit()
        return True

    def prepare(self) -> bool:
        """Find the numbers of the step, of options as they are now, and change nothing; False where
        parameters have no equal counts any more.
        """
        for k in range(len(self._launches)):
            launch = self._launches[k]
            numbers = []
            for counter in self._counters[k]:
                scalars = counter.numbers(self._optimizer)
                if scalars is None:
                    return False
                numbers.append(scalars)
            launch.numbers = numbers
        return True

    def commit(self) -> None:
        """Make the step that was prepared, without any Python code: no signal can split it."""
        for counters in self._counters:
            for counter in counters:
                counter.count()
        launch_all(self._launches, self._written)
