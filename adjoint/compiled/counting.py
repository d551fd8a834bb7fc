"""An optimizer's step in a program, where all that states say of its numbers is their step's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..eager.elements import common_number, put_number
from ..eager.writes import announce
from ..program.standing import have_memory


class Launch:
    """A formula's kernel on arrays that stay where they are."""

    __slots__ = ("fill", "numbers", "run")

    run: Callable[[], object]
    fill: Callable[[list[Any]], None]
    numbers: list[Any]  # that it gets with the next step, for so many rows each

    def __init__(self, run: Callable[[], object], fill: Callable[[list[Any]], None]) -> None:
        self.run = run
        self.fill = fill
        self.numbers = []


def launch_all(launches: Sequence[Launch], written: list[Any]) -> None:
    """Run kernels, which change the tensors `written`."""
    watched = announce(written, "step")
    for each in launches:
        each.fill(each.numbers)
        each.run()
    for version in watched:
        version.bump("step")


class Counter:
    """Parameters of a group whose states say of their numbers one thing, the same step count."""

    __slots__ = ("_arrays", "_bound", "_formula", "_group", "_state", "_step", "_tensors")

    def __init__(self, batch: Any, formula: Any) -> None:
        self._group, self._formula = batch.group, formula
        self._state = batch.states[0]
        self._tensors = [state["step"] for state in batch.states]
        self._arrays = [x._data for x in self._tensors]
        self._bound = [(x, x._data, x._node) for x in self._tensors]
        self._step: float = 0.0  # that is to come

    def numbers(self, optimizer: Any) -> tuple[int, Any] | None:
        """For so many parameters those of the step that is to come; None where counts were changed,
        or options are such that they have another formula.
        """
        count = common_number(self._arrays) if have_memory(self._bound) else None
        if count is None:
            return None
        self._step = count + 1
        numbers = optimizer.numbers(self._group, self._state, self._step)
        found = self._formula.with_numbers((self._group, numbers))
        return None if found is None else (len(self._arrays), found[1])

    def count(self) -> None:
        """It has come."""
        watched = announce(self._tensors, "step")
        put_number(self._arrays, self._step)
        for version in watched:
            version.bump("step")


class Counted:
    """The kernels of a step, and the counters of their rows."""

    __slots__ = ("_counters", "_launches", "_optimizer", "_written")

    def __init__(
        self, optimizer: Any, written: list[Any], launches: Sequence[Launch],
        counters: Sequence[Sequence[Counter]],
    ) -> None:  # fmt: skip
        self._optimizer, self._written = optimizer, written
        self._launches, self._counters = list(launches), list(counters)

    def run(self) -> bool:
        """Make the step, of options as they are now; False, with nothing done, where parameters
        have no equal counts any more.
        """
        for k in range(len(self._launches)):
            launch = self._launches[k]
            numbers = []
            for counter in self._counters[k]:
                found = counter.numbers(self._optimizer)
                if found is None:
                    return False
                numbers.append(found)
            launch.numbers = numbers
        for counters in self._counters:
            for counter in counters:
                counter.count()
        launch_all(self._launches, self._written)
        return True
