"""Tree spec of what a function returned, by which each run rebuilds its own results."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..run.bindings import end_all, tensors_of

if TYPE_CHECKING:
    from ...core.op import Op


class RunValues:
    """Values of one run from which the results are rebuilt."""

    __slots__ = ("arguments", "computed", "numbers", "objects")

    def __init__(
        self, computed: list[Any], arguments: Sequence[Any], numbers: Sequence[Any]
    ) -> None:
        self.computed = computed  # tensors
        self.arguments = arguments
        self.numbers = numbers  # and behind them the caller's containers that are returned
        self.objects: dict[int, Any] = {}  # shared parts that were built already, by form


class ResultTree:
    """Node of the tree spec: builds one part of what is returned."""

    __slots__ = ("shared",)

    shared: bool  # whether it occurs twice, as one object

    def __init__(self) -> None:
        self.shared = False

    def of(self, made: RunValues) -> object:
        """Build the part for a run, or return the object that was built before where the part is
        shared.
        """
        if not self.shared:
            return self.new(made)
        if id(self) not in made.objects:
            made.objects[id(self)] = self.new(made)
        return made.objects[id(self)]

    def new(self, made: RunValues) -> object:
        """Build the part for a run."""
        raise NotImplementedError


class ConstantResult(ResultTree):
    """A value that existed before the trace and is returned unchanged."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.shared = False
        self.value = value

    def new(self, made: RunValues) -> object:
        """Return the value."""
        return self.value


class ComputedResult(ResultTree):
    """A computed tensor, by its index among the computed results."""

    __slots__ = ("place",)

    def __init__(self, place: int) -> None:
        self.shared = False
        self.place = place

    def new(self, made: RunValues) -> object:
        """Return the tensor that this run computed."""
        return made.computed[self.place]


class ArgumentResult(ComputedResult):
    """An argument that is returned, by its index."""

    __slots__ = ()

    def new(self, made: RunValues) -> object:
        """Return the argument of this run."""
        return made.arguments[self.place]


class NumberResult(ComputedResult):
    """A Python number that is computed in each run, by its index."""

    __slots__ = ()

    def new(self, made: RunValues) -> object:
        """Return the number of this run."""
        return made.numbers[self.place]


class ContainerResult(ComputedResult):
    """A list or dict among the arguments, by its number from the last, which is 1."""

    __slots__ = ()

    def new(self, made: RunValues) -> object:
        """Return the caller's own."""
        return made.numbers[-self.place]


class SequenceResult(ResultTree):
    """A tuple or list, or a subclass that is constructed from an iterable."""

    __slots__ = ("kind", "parts")

    def __init__(self, kind: type, parts: list[ResultTree]) -> None:
        self.shared = False
        self.kind, self.parts = kind, parts

    def new(self, made: RunValues) -> object:
        """Build a container of this run's parts."""
        items: list[Any] = []
        for part in self.parts:
            items.append(part.of(made))
        return items if self.kind is list else self.kind(items)


class NamedTupleResult(SequenceResult):
    """A named tuple, constructed from its fields."""

    __slots__ = ()

    def new(self, made: RunValues) -> object:
        """Build a named tuple of this run's parts."""
        return self.kind(*[part.of(made) for part in self.parts])


class DictResult(ResultTree):
    """A dict, or an object of a subclass: `shell` is a copy of it without values."""

    __slots__ = ("parts", "shell")

    def __init__(self, shell: Any, parts: dict[Any, ResultTree]) -> None:
        self.shared = False
        self.shell, self.parts = shell, parts

    def new(self, made: RunValues) -> object:
        """Build a dict of the same type with this run's parts."""
        result = copy.copy(self.shell)
        for key, part in self.parts.items():
            result[key] = part.of(made)
        return result


class DataclassResult(DictResult):
    """A dataclass object, whose fields are set on a copy."""

    __slots__ = ()

    def new(self, made: RunValues) -> object:
        """Build an object of the dataclass with this run's parts."""
        result = copy.copy(self.shell)
        for name, part in self.parts.items():
            object.__setattr__(result, name, part.of(made))
        return result


class Results:
    """Rebuilds the return value of the function from the arrays that a run computed."""

    __slots__ = ("_closed", "_ended", "_form", "_leaves", "_wanting")

    def __init__(
        self, form: ResultTree, wanting: list[int], leaves: list[int], ended: Op, closed: bool
    ) -> None:
        """Results with a number in `wanting` that get no node of their own get one with the op
        `ended`, which ends their history. If `closed` it stands behind the states and arguments,
        else behind nothing. Results in `leaves` are leaves that the function made.
        """
        self._form = form
        self._wanting, self._leaves = wanting, leaves
        self._ended, self._closed = ended, closed

    def wrapped(
        self,
        arrays: list[Any],
        nodes: Mapping[int, Any] | None,
        states: tuple[Any, ...],
        arguments: Sequence[Any],
    ) -> list[Any]:
        """Wrap the computed `arrays` in tensors and give them their `nodes` (by number, or None).
        Results that require gradients and have no node are put behind `states` and the nodes of
        `arguments`, to which they pass no gradient.
        """
        tensors = tensors_of(arrays)
        if nodes is not None:
            for n, node in nodes.items():
                tensors[n]._node = node
        if self._wanting:
            if self._closed:
                end_all(tensors, self._wanting, self._ended, states, arguments)
            else:
                end_all(tensors, self._wanting, self._ended, (), [])
        for n in self._leaves:
            tensors[n].requires_grad_()
        return tensors

    def rebuilt(
        self, computed: list[Any], arguments: Sequence[Any], numbers: Sequence[Any] = ()
    ) -> Any:
        """Build the return value of the function."""
        return self._form.of(RunValues(computed, arguments, numbers))
