"""Lifted state: attributes, variables and items of containers that a function sets, or that others
set between calls. Their values become inputs of the program, and their new values become outputs;
Python numbers are lifted as scalars.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...core.deferred_effects import Later
from ...core.dtype import LOW_PRECISION, dtype
from ...core.errors import Unsupported
from ...core.signal_deferral import DEFERRED
from ...core.symbolic_scalar import NumberGraph, SymbolicNumber
from ...core.symbolic_sizes import known
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...core.tree import parts_in
from ...ops.promotion import number
from ...runtime.lazy import LazyValue
from ...runtime.tensors import wrap
from ..guards.code_names import NOTHING
from ..guards.slot_values import now, put
from ..guards.slots import ABSENT, PLAIN, GuardSource, contents_in, place_key
from ..guards.state_snapshot import StateSnapshot
from .written_arguments import WrittenArguments

if TYPE_CHECKING:
    from .dynamic_shapes import SymbolicArgumentSizes

_NUMBERS = (int, float)


class LiftedStateHistory:
    """History of a function's lifted state: which attributes and items it sets, and which ones
    others set.
    """

    def __init__(self) -> None:
        self.slots: dict[Any, GuardSource] = {}
        self.set: set[Any] = set()  # keys of slots that the function sets
        self.plain: set[Any] = set()  # keys of slots whose numbers are constants of each program
        self.same: set[Any] = set()  # keys of slots with lists and dicts that it writes to
        self.varying: dict[int, Any] = {}  # tensors, by id, whose values are no constants
        self.written: set[int] = set()  # ids of varying tensors that the function writes
        self.fixed: dict[int, Any] = {}  # tensors that change, yet are constants of each program
        self.names: set[str] = set()  # of code that ran, though nothing that it reads led there
        self.lookups = NOTHING  # of the last snapshot

    def add(self, slots: Sequence[GuardSource], by_function: bool) -> bool:
        """Lift slots; returns whether there is anything new."""
        count = len(self.slots) + len(self.set)
        for slot in slots:
            key = place_key(slot)
            self.slots.setdefault(key, slot)
            if by_function:
                self.set.add(key)
        return len(self.slots) + len(self.set) > count

    def follow(self, names: Iterable[str]) -> bool:
        """Register names of code to be followed; returns whether there are new ones."""
        count = len(self.names)
        self.names.update(names)
        return len(self.names) > count

    def add_written(self, slots: Sequence[GuardSource]) -> bool:
        """Register slots whose list or dict stays the same object while its items are lifted;
        returns whether there is anything new.
        """
        count = len(self.same)
        self.same.update(place_key(slot) for slot in slots if type(now(slot)) in (list, dict))
        return len(self.same) > count

    def give_up_numbers(self) -> bool:
        """Make numbers that others set constants from now on; returns whether there are any."""
        more = {
            key for key, slot in self.slots.items()
            if key not in self.set and key not in self.plain and type(now(slot)) in _NUMBERS
        }  # fmt: skip
        self.plain |= more
        return bool(more)

    def add_varying(self, tensors: Sequence[Any], by_function: bool) -> bool:
        """Register tensors whose values differ from call to call; returns whether there are new
        ones. Those that others change may later become constants of each program.
        """
        count = len(self.varying)
        for x in tensors:
            if by_function or id(x) not in self.fixed:
                self.varying[id(x)] = x
                self.fixed.pop(id(x), None)
                if by_function:
                    self.written.add(id(x))
        return len(self.varying) > count

    def give_up_varying(self) -> bool:
        """Make tensors that others change constants from now on; returns whether there are any."""
        more = {key: x for key, x in self.varying.items() if key not in self.written}
        for key in more:
            del self.varying[key]
        self.fixed |= more
        return bool(more)

    def given_up(self) -> tuple[set[Any], dict[int, Any], dict[int, Any]]:
        """A copy of the record of what is a constant of each program, for `take_back`."""
        return set(self.plain), dict(self.varying), dict(self.fixed)

    def take_back(self, before: tuple[set[Any], dict[int, Any], dict[int, Any]]) -> None:
        """Restore the record that `given_up` gave."""
        self.plain, self.varying, self.fixed = before

    def add_others(self, slots: Sequence[GuardSource], is_input: Callable[[Any], bool]) -> None:
        """Lift slots that others have changed from one tensor or number to another."""
        for slot in slots:
            current, before = now(slot), slot.value
            same_type = type(current) is type(before) and type(current) in _NUMBERS
            if same_type or (is_input(current) and is_input(before)):
                self.add([slot], False)


class RestoredState:
    """Wraps a function so that attributes rebound to new tensors are restored, and the new values
    copied into the original tensors. Used for export, where only in-place state can be stored;
    numbers that the function sets are lifted (`learnt`). Until the block ends, the attributes that
    it sets hold copies of their tensors, since these may be shared with others.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.learnt = LiftedStateHistory()
        self._slots: dict[Any, tuple[GuardSource, Any]] = {}  # with their original tensors

    def __enter__(self) -> RestoredState:
        return self

    def __exit__(self, *_: object) -> None:
        with DEFERRED:
            for slot, x in self._slots.values():
                put(slot, x)

    def add(self, slots: Sequence[GuardSource]) -> bool:
        """Register slots that the function sets. Returns whether they are new, and all hold
        numbers, or tensors that are no parameters.
        """
        numbers = [slot for slot in slots if type(now(slot)) in _NUMBERS]
        rest = [(slot, now(slot)) for slot in slots if type(now(slot)) not in _NUMBERS]
        if not all(isinstance(x, TensorBase) and x._node is None for _, x in rest):
            return False
        count_before = self.count
        self.learnt.add(numbers, True)
        for slot, x in rest:
            if place_key(slot) not in self._slots:
                put(slot, x.clone())
                self._slots[place_key(slot)] = slot, x
        return self.count > count_before

    @property
    def count(self) -> int:
        """Number of registered slots."""
        return len(self._slots) + len(self.learnt.slots)

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Call the function, and copy new tensors into the original ones. A tensor that cannot be
        copied stays in its slot, where the trace reports it.
        """
        before = [(slot, now(slot)) for slot, _ in self._slots.values()]
        result = self._function(*args, **kwargs)
        moved: list[tuple[GuardSource, Any, Any]] = []
        for slot, x in before:
            y = now(slot)
            if y is not x and isinstance(y, TensorBase) and y._node is None and y.spec == x.spec:
                moved.append((slot, x, y))
        copies = [y.clone() for *_, y in moved]  # two may have changed places
        for (slot, x, _), copy in zip(moved, copies, strict=True):
            x.copy_(copy)
            put(slot, x)
        return result


class LiftedState:
    """The lifted state of one program, with the values for which it was captured."""

    def __init__(
        self, slots: Sequence[GuardSource], learnt: LiftedStateHistory, operands: ScalarInputs
    ) -> None:
        self.slots = list(slots)
        self._operands = operands
        keys = [place_key(slot) for slot in slots]
        self._symbolic = [key not in learnt.plain for key in keys]
        self._moving = [key in learnt.set for key in keys]
        self._same = [key in learnt.same for key in keys]
        self.kept: list[Any] = []  # lists and dicts that are guarded by id
        self._numbers: list[Any] = []  # numbers for which it was captured
        self.changed: list[int] = []  # numbers of the slots that the program sets

    def values(self) -> list[Any]:
        """Current values of the slots."""
        return [now(slot) for slot in self.slots]

    def split(self, values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Split values into those that are signed, as arguments are, and lifted numbers."""
        signed, numbers = [], []
        for value, symbolic, same in zip(values, self._symbolic, self._same, strict=True):
            if same and type(value) in (list, dict):
                value = ("at", id(value))
            elif symbolic and type(value) in _NUMBERS:
                numbers.append(value)
                value = _A_NUMBER[type(value)]
            signed.append(value)
        return signed, numbers

    def during(
        self, function: Callable[[], Any], values: Sequence[Any], symbols: Iterator[Any]
    ) -> Any:
        """Call the function while the slots hold symbols for their `values`: `symbols` for those
        that `split` signs, symbolic scalars for numbers. Returns its result and, if there are
        slots, the values that it leaves in them.

        Errors: Written for lists and dicts whose items the function has set.
        """
        symbolic_values = []
        _, self._numbers = self.split(values)
        kinds = zip(self._symbolic, self._moving, self._same, strict=True)
        for value, (symbolic, moving, same) in zip(values, kinds, strict=True):
            x = next(symbols)
            if same and type(value) in (list, dict):
                x = value
                self.kept.append(x)
            elif symbolic and type(value) in _NUMBERS:
                arithmetic = self._operands.arithmetic
                x = arithmetic.scalar(value)
                if moving:
                    arithmetic.moving.add(x.place)
            symbolic_values.append(x)
        self._operands.standing = {
            (id(slot.holder), slot.key): x
            for slot, x in zip(self.slots, symbolic_values, strict=True)
        }
        kept = [list(parts_in(x)) for x in symbolic_values]
        try:
            for slot, x in zip(self.slots, symbolic_values, strict=True):
                if x is not ABSENT:
                    put(slot, x)
            result = function()
            self._operands.settle()
            self._operands.undo()
            left = self.values()
        finally:
            with DEFERRED:
                self._operands.undo()
                for slot, value in zip(self.slots, values, strict=True):
                    put(slot, value)
        written = [
            slot
            for slot, x, value, before in zip(
                self.slots, symbolic_values, values, kept, strict=True
            )
            if x is not value and not _are_same(list(parts_in(x)), before)
        ]
        if written:
            raise RetraceWritten(written)
        self.changed = [
            n for n, (x, y) in enumerate(zip(symbolic_values, left, strict=True))
            if x is not y and not (type(x) in PLAIN and type(x) is type(y) and repr(x) == repr(y))
        ]  # fmt: skip
        if any(left[n] is ABSENT for n in self.changed):
            raise Unsupported(
                "compile: the function deletes an attribute, a variable or an item from outside; "
                "set it to None"
            )
        return (result, [left[n] for n in self.changed]) if self.slots else result

    def difference(self) -> str:
        """Description of the first lifted number that may need another program; '' if there is
        none.
        """
        before = iter(self._numbers)
        for slot, x, symbolic in zip(self.slots, self.values(), self._symbolic, strict=True):
            if symbolic and type(x) in _NUMBERS and repr(was := next(before, x)) != repr(x):
                return f"the number {slot.key}, which the function read, was {was} and is {x}"
        return ""

    def set(self, values: Sequence[Any]) -> None:
        """Store new values in the slots that the program sets."""
        for n, value in zip(self.changed, values, strict=True):
            put(self.slots[n], value)


_A_NUMBER = {int: ("a number", int), float: ("a number", float)}  # key of a lifted number


def _nothing() -> None:
    return None


def _are_same(xs: list[Any], ys: list[Any]) -> bool:
    return len(xs) == len(ys) and all(map(operator.is_, xs, ys))


class RetraceWritten(Unsupported):
    """Retrace: the function writes to lists and dicts in lifted slots; these are to stay the same
    objects, and their items are to be lifted.
    """

    def __init__(self, slots: Sequence[GuardSource]) -> None:
        super().__init__(
            "compile: the function writes to a list or dict within what it keeps; keep it in an "
            "attribute or variable of its own"
        )
        self.slots = slots


class ScalarResult(NamedTuple):
    """Reference to one of the numbers that are computed for each run."""

    place: int


class ScalarInputs:
    """Python numbers that are inputs of a program: symbolic scalars while it is captured."""

    def __init__(self) -> None:
        self.arithmetic = NumberGraph(self._symbol)
        self.arguments = WrittenArguments()
        self.reads: StateSnapshot | None = None  # Python state before the capture
        self.begun: Any = None  # initializes the states of optimizers (capture.Begun)
        self.standing: dict[Any, Any] = {}  # symbols of slots, by holder and key
        self.options_given: list[SymbolicNumber] = []
        self.resized: SymbolicArgumentSizes | None = None  # sizes that are numbers
        self.varying: Container[int] = ()  # ids of tensors whose values are no constants
        self.has_targets = False  # whether gradients are asked for by certain tensors
        self.settle: Callable[[], None] = _nothing  # checks entries that later calls will change
        self.undo: Callable[[], None] = _nothing  # restores these entries
        self.given: list[tuple[SymbolicNumber, dtype, LazyValue]] = []
        self._made: dict[Any, Any] = {}

    def close(self) -> None:
        """End the capture, and drop all references to it."""
        self.settle = self.undo = _nothing
        self.reads = self.begun = None
        self.standing.clear()
        self._made.clear()

    def _symbol(self, x: SymbolicNumber, to: dtype) -> Tensor:
        key = x.place, to
        if key not in self._made:
            symbol = LazyValue(None, (), (), to.numpy)
            self.given.append((x, to, symbol))
            self._made[key] = symbol
        return wrap(self._made[key])

    def options(self, groups: Sequence[tuple[Any, Any]]) -> list[tuple[Any, str, Any]]:
        """Options of an optimizer's groups that the function has set before its step.

        Errors: Unsupported for an option that is no number or constant.
        """
        changed: list[tuple[Any, str, Any]] = []
        for group, _ in groups:
            before = None if self.reads is None else contents_in(self.reads.slots, group)
            if before is None:
                continue
            for name, x in group.items():
                was = self.standing.get((id(group), name), before.get(name, ABSENT))
                if x is was or name == "params":
                    continue
                [x] = known((x,))
                if type(x) is SymbolicNumber:
                    self.options_given.append(x)
                    x = ScalarResult(len(self.options_given) - 1)
                elif type(x) is Later:
                    x.refuse()
                elif type(x) not in PLAIN:
                    raise Unsupported(
                        f"compile: the function sets the option {name} of an optimizer to a "
                        f"{type(x).__name__} before its step; set it outside, or to a number"
                    )
                changed.append((group, name, x))
        return changed

    def function(self, results: Sequence[SymbolicNumber]) -> Callable[..., Any]:
        """A function from the numbers of a run to the program's scalar inputs, and to optimizers'
        options with `results`; it gives None where a branch on a number differs.
        """
        sources = [*(x for x, _, _ in self.given), *self.options_given, *results]
        run = self.arithmetic.function(sources)
        dtypes = [to for _, to, _ in self.given]

        def values(numbers: Sequence[Any]) -> tuple[list[Any], Any] | None:
            computed = run(*numbers)
            if computed is None:
                return None
            arrays = [wrap(array_of(x, to)) for x, to in zip(computed, dtypes, strict=False)]
            return arrays, computed[len(dtypes) :]

        return values


def array_of(x: Any, to: dtype) -> np.ndarray:
    """A number as an array, with the value that it has in ops on tensors of dtype `to`."""
    if to in LOW_PRECISION:
        with np.errstate(over="ignore"):
            return np.asarray(x).astype(to.numpy)
    return np.asarray(number(x, to), to.numpy)
