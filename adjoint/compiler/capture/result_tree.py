"""Leaves of the tree spec of what a function returned, by which each run rebuilds its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ...core.errors import IndexingError
from ...core.mode import MODE, mode_with, switched
from ...core.tree import TreeSpec
from ...ops.index.number_places import item_from
from ...runtime.dispatch import apply_view
from ..run.bindings import end_all, tensors_of

if TYPE_CHECKING:
    from ...core.op import Op
    from ...core.tensor_type import Tensor


class RunValues:
    """Values of one run from which the results are rebuilt."""

    __slots__ = ("arguments", "computed", "numbers", "objects")

    def __init__(
        self, computed: list[Any], arguments: Sequence[Any], numbers: Sequence[Any]
    ) -> None:
        self.computed = computed  # tensors
        self.arguments = arguments
        self.numbers = numbers  # and behind them the caller's containers that are returned
        self.objects: dict[int, Any] = {}  # shared parts that were built already, by spec


class ComputedResult(TreeSpec):
    """A computed tensor, by its index among the computed results."""

    __slots__ = ("place",)

    def __init__(self, place: int) -> None:
        self.shared = False
        self.place = place

    def new(self, values: object) -> object:
        """Return the tensor that this run computed."""
        assert isinstance(values, RunValues)  # a cast would be a call of Python's for each leaf
        return values.computed[self.place]


class ArgumentResult(ComputedResult):
    """An argument that is returned, by its index."""

    __slots__ = ()

    def new(self, values: object) -> object:
        """Return the argument of this run."""
        assert isinstance(values, RunValues)
        return values.arguments[self.place]


class PlaceResult(NamedTuple):
    """An item of an index that begins at a number of each run."""

    place: int  # among the numbers, or among the computed tensors
    computed: bool
    length: int | None  # None for an index, whose dimension goes
    step: int

    def of(self, values: RunValues) -> int | slice:
        """The item in this run."""
        start = values.computed[self.place].item() if self.computed else values.numbers[self.place]
        item = item_from(int(start), self.length, self.step)
        return slice(*item) if isinstance(item, tuple) else item


class ViewResult(TreeSpec):
    """A view of a tensor that is not computed, or is returned, too: what is written through it is
    seen there.
    """

    __slots__ = ("base", "detached", "graded", "leaf", "ops", "shape")

    def __init__(
        self, base: TreeSpec, ops: tuple[Op | list[object], ...], shape: tuple[int, ...],
        graded: bool, detached: bool, leaf: bool,
    ) -> None:  # fmt: skip
        """`ops` lead from the base to it; a list is an index with a `PlaceResult`. `graded`: its
        history is that of the base's; `detached`: it is an alias without history of such a view;
        `leaf`: it wants a gradient of its own.
        """
        self.shared = False
        self.base, self.ops, self.shape = base, ops, shape
        self.graded, self.detached, self.leaf = graded, detached, leaf

    def new(self, values: object) -> object:
        """View what this run has left in the base.

        Errors: IndexingError for a number out of range.
        """
        x = cast("Tensor", self.base.build(values))
        if self.ops:
            with switched(mode_with(MODE.get(), grad=self.graded and MODE.get().grad)):
                for op in self.ops:
                    x = _part(op, x, values) if isinstance(op, list) else apply_view(op, x)
            if x.shape != self.shape:  # a slice from a place out of range
                raise IndexingError(
                    f"narrow: start out of range, or start + length exceeds the dimension: what is "
                    f"returned has shape {tuple(x.shape)} instead of {self.shape}"
                )
        if self.detached:
            x = x.detach()
        return x.requires_grad_() if self.leaf else x


def _part(items: list[object], x: Tensor, values: object) -> Tensor:
    """View by an index of which numbers come with the run."""
    assert isinstance(values, RunValues)
    return x[tuple([each.of(values) if isinstance(each, PlaceResult) else each for each in items])]


class NumberResult(ComputedResult):
    """A Python number that is computed in each run, by its index."""

    __slots__ = ()

    def new(self, values: object) -> object:
        """Return the number of this run."""
        assert isinstance(values, RunValues)
        return values.numbers[self.place]


class ContainerResult(ComputedResult):
    """A list or dict among the arguments, by its number from the last, which is 1."""

    __slots__ = ()

    def new(self, values: object) -> object:
        """Return the caller's own."""
        assert isinstance(values, RunValues)
        return values.numbers[-self.place]


class Results:
    """Rebuilds the return value of the function from the arrays that a run computed."""

    __slots__ = ("_closed", "_ended", "_form", "_leaves", "_wanting")

    def __init__(
        self, form: TreeSpec, wanting: list[int], leaves: list[int], ended: Op, closed: bool
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
        return self._form.build(RunValues(computed, arguments, numbers))
