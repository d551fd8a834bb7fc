"""Places that hold what changes: attributes, variables and items that a function sets, or that
others set between calls. What they hold is given to a program as arguments are, and what they are
to hold afterwards is given back as results are; a number is known by what is computed from it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Container, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..core.deferred import Later
from ..core.dtype import LOW_PRECISION, dtype
from ..core.errors import Unsupported
from ..core.scalar import Number, Numbers
from ..core.sizes import known
from ..core.tensor_base import TensorBase
from ..eager.tensors import wrap
from ..graph.lazy import LazyValue
from ..ops.promotion import number
from ..program.reads import ABSENT, PLAIN, Reads, Slot, now, place_key, put

if TYPE_CHECKING:
    from .resizing import Resized

_NUMBERS = (int, float)


class Learnt:
    """The places that a function is known to set, and those that others have set."""

    def __init__(self) -> None:
        self.slots: dict[Any, Slot] = {}
        self.set: set[Any] = set()  # those that the function sets
        self.plain: set[Any] = set()  # those whose numbers are constants of each program
        self.same: set[Any] = set()  # those of lists and dicts that the function writes to
        self.varying: dict[int, Any] = {}  # tensors, by id, whose values are no constants
        self.written: set[int] = set()  # those of them that the function writes
        self.fixed: dict[int, Any] = {}  # others that change, and are constants of each program

    def add(self, slots: Sequence[Slot], by_function: bool) -> bool:
        """Learn of places; whether there is anything new."""
        known = len(self.slots) + len(self.set)
        for slot in slots:
            key = place_key(slot)
            self.slots.setdefault(key, slot)
            if by_function:
                self.set.add(key)
        return len(self.slots) + len(self.set) > known

    def add_written(self, slots: Sequence[Slot]) -> bool:
        """Learn of places of lists and dicts that stay; whether there is anything new."""
        known = len(self.same)
        self.same.update(place_key(slot) for slot in slots if type(now(slot)) in (list, dict))
        return len(self.same) > known

    def give_up_numbers(self) -> bool:
        """Let numbers that others set be constants from now on; whether there are some."""
        more = {
            key for key, slot in self.slots.items()
            if key not in self.set and key not in self.plain and type(now(slot)) in _NUMBERS
        }  # fmt: skip
        self.plain |= more
        return bool(more)

    def add_varying(self, tensors: Sequence[Any], by_function: bool) -> bool:
        """Learn of tensors that hold something else from call to call; whether there are new ones.
        Those that others change may yet be constants of each program.
        """
        known = len(self.varying)
        for x in tensors:
            if by_function or id(x) not in self.fixed:
                self.varying[id(x)] = x
                self.fixed.pop(id(x), None)
                if by_function:
                    self.written.add(id(x))
        return len(self.varying) > known

    def give_up_varying(self) -> bool:
        """Let tensors that others change be constants from now on; whether there are some."""
        more = {key: x for key, x in self.varying.items() if key not in self.written}
        for key in more:
            del self.varying[key]
        self.fixed |= more
        return bool(more)

    def add_others(self, slots: Sequence[Slot], is_input: Callable[[Any], bool]) -> None:
        """Learn of places that others have set: from a tensor or number to another one."""
        for slot in slots:
            found, before = now(slot), slot.value
            alike = type(found) is type(before) and type(found) in _NUMBERS
            if alike or (is_input(found) and is_input(before)):
                self.add([slot], False)


class Settled:
    """A function after which places hold the tensors that they held before: those that it has put
    there are copied into these. So a file needs no places for tensors; those that it sets to
    numbers are `learnt`. Until the block ends, places that it sets hold copies of what they hold
    otherwise, which others may have, too.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.learnt = Learnt()
        self._slots: dict[Any, tuple[Slot, Any]] = {}  # with what is put back

    def __enter__(self) -> Settled:
        return self

    def __exit__(self, *_: object) -> None:
        for slot, x in self._slots.values():
            put(slot, x)

    def add(self, slots: Sequence[Slot]) -> bool:
        """Learn of places that the function sets, which hold what they held; whether that is new,
        and all of them hold numbers, or tensors that are no parameters.
        """
        numbers = [slot for slot in slots if type(now(slot)) in _NUMBERS]
        rest = [(slot, now(slot)) for slot in slots if type(now(slot)) not in _NUMBERS]
        if not all(isinstance(x, TensorBase) and x._node is None for _, x in rest):
            return False
        known = self.count
        self.learnt.add(numbers, True)
        for slot, x in rest:
            if place_key(slot) not in self._slots:
                put(slot, x.clone())
                self._slots[place_key(slot)] = slot, x
        return self.count > known

    @property
    def count(self) -> int:
        """How many places are known."""
        return len(self._slots) + len(self.learnt.slots)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's; what cannot be copied stays where it is put, which is then found."""
        before = [(slot, now(slot)) for slot, _ in self._slots.values()]
        found = self._function(*args, **kwargs)
        moved: list[tuple[Slot, Any, Any]] = []
        for slot, x in before:
            y = now(slot)
            if y is not x and isinstance(y, TensorBase) and y._node is None and y.spec == x.spec:
                moved.append((slot, x, y))
        copies = [y.clone() for *_, y in moved]  # two may have changed places
        for (slot, x, _), copy in zip(moved, copies, strict=True):
            x.copy_(copy)
            put(slot, x)
        return found


class Places:
    """Those of one program, with what they held when it was captured."""

    def __init__(self, slots: Sequence[Slot], learnt: Learnt, operands: Operands) -> None:
        self.slots = list(slots)
        self._operands = operands
        keys = [place_key(slot) for slot in slots]
        self._symbolic = [key not in learnt.plain for key in keys]
        self._moving = [key in learnt.set for key in keys]
        self._same = [key in learnt.same for key in keys]
        self.kept: list[Any] = []  # which are known by their ids
        self._numbers: list[Any] = []  # for which it was captured
        self.changed: list[int] = []  # which of them the program sets

    def values(self) -> list[Any]:
        """What they hold now."""
        return [now(slot) for slot in self.slots]

    def split(self, values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """What is signed of values, as arguments are, and the numbers among them."""
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
        """What the function gives, while symbols stand in the place of `values`, of which they are
        those of what `split` gave; numbers get their own. If there are places, what they hold in
        the end, too.

        Errors: Written for lists and dicts whose items the function has set.
        """
        given = []
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
            given.append(x)
        self._operands.standing = {
            (id(slot.holder), slot.key): x for slot, x in zip(self.slots, given, strict=True)
        }
        kept = [list(parts(x)) for x in given]
        try:
            for slot, x in zip(self.slots, given, strict=True):
                if x is not ABSENT:
                    put(slot, x)
            found = function()
            self._operands.settle()
            self._operands.undo()
            left = self.values()
        finally:
            self._operands.undo()
            for slot, value in zip(self.slots, values, strict=True):
                put(slot, value)
        written = [
            slot
            for slot, x, value, before in zip(self.slots, given, values, kept, strict=True)
            if x is not value and not _are_same(list(parts(x)), before)
        ]
        if written:
            raise Written(written)
        self.changed = [
            n for n, (x, y) in enumerate(zip(given, left, strict=True))
            if x is not y and not (type(x) in PLAIN and type(x) is type(y) and repr(x) == repr(y))
        ]  # fmt: skip
        if any(left[n] is ABSENT for n in self.changed):
            raise Unsupported(
                "compile: the function deletes an attribute, a variable or an item from outside; "
                "set it to None"
            )
        return (found, [left[n] for n in self.changed]) if self.slots else found

    def difference(self) -> str:
        """The first number by which the program may not go on, in words; '' if there is none."""
        before = iter(self._numbers)
        for slot, x, symbolic in zip(self.slots, self.values(), self._symbolic, strict=True):
            if symbolic and type(x) in _NUMBERS and repr(was := next(before, x)) != repr(x):
                return f"the number {slot.key}, which the function read, was {was} and is {x}"
        return ""

    def set(self, values: Sequence[Any]) -> None:
        """Let the places that the program sets hold these."""
        for n, value in zip(self.changed, values, strict=True):
            put(self.slots[n], value)


_A_NUMBER = {int: ("a number", int), float: ("a number", float)}  # stands for any


def parts(x: Any) -> Iterator[Any]:
    """All that a list or dict contains, as far as tuples, lists and dicts go; not other things."""
    if isinstance(x, (list, dict, tuple)):
        for each in x.values() if isinstance(x, dict) else x:
            yield each
            yield from parts(each)


def _nothing() -> None:
    return None


def _are_same(xs: list[Any], ys: list[Any]) -> bool:
    return len(xs) == len(ys) and all(map(operator.is_, xs, ys))


class Written(Unsupported):
    """The function writes to lists and dicts that places hold: these are to stay, and their items
    are places.
    """

    def __init__(self, slots: Sequence[Slot]) -> None:
        super().__init__(
            "compile: the function writes to a list or dict within what it keeps; keep it in an "
            "attribute or variable of its own"
        )
        self.slots = slots


class Result(NamedTuple):
    """A number among those that are computed for each run."""

    place: int


class Operands:
    """The numbers that are arguments of a program: symbols while it is captured."""

    def __init__(self) -> None:
        self.arithmetic = Numbers(self._symbol)
        self.reads: Reads | None = None  # what there was before
        self.begun: Any = None  # gives optimizers the states that they begin with (capture.Begun)
        self.standing: dict[Any, Any] = {}  # what stands for it, by a place's holder and key
        self.options_given: list[Number] = []
        self.resized: Resized | None = None  # sizes that are numbers
        self.varying: Container[int] = ()  # ids of tensors whose values are no constants
        self.settle: Callable[[], None] = _nothing  # looks at what calls after the run will change
        self.undo: Callable[[], None] = _nothing  # lets that be as it was
        self.given: list[tuple[Number, dtype, LazyValue]] = []
        self._made: dict[Any, Any] = {}

    def close(self) -> None:
        """The capture is over: nothing of it is kept."""
        self.settle = self.undo = _nothing
        self.reads = self.begun = None
        self.standing.clear()
        self._made.clear()

    def _symbol(self, x: Number, to: dtype) -> Any:
        key = x.place, to
        if key not in self._made:
            symbol = LazyValue(None, (), (), to.numpy)
            self.given.append((x, to, symbol))
            self._made[key] = symbol
        return wrap(self._made[key])

    def options(self, groups: Sequence[tuple[Any, Any]]) -> list[tuple[Any, str, Any]]:
        """The options of an optimizer's groups that the function has set before its step.

        Errors: Unsupported for what is no number.
        """
        found: list[tuple[Any, str, Any]] = []
        for group, _ in groups:
            before = None if self.reads is None else self.reads.contents(group)
            if before is None:
                continue
            for name, x in group.items():
                was = self.standing.get((id(group), name), before.get(name, ABSENT))
                if x is was or name == "params":
                    continue
                [x] = known((x,))
                if type(x) is Number:
                    self.options_given.append(x)
                    x = Result(len(self.options_given) - 1)
                elif type(x) is Later:
                    x.refuse()
                elif type(x) not in PLAIN:
                    raise Unsupported(
                        f"compile: the function sets the option {name} of an optimizer to a "
                        f"{type(x).__name__} before its step; set it outside, or to a number"
                    )
                found.append((group, name, x))
        return found

    def function(self, results: Sequence[Number]) -> Callable[..., Any]:
        """What computes, of the numbers of a run, the arguments, and then optimizers' options and
        `results`; None where a decision differs.
        """
        sources = [*(x for x, _, _ in self.given), *self.options_given, *results]
        run = self.arithmetic.function(sources)
        dtypes = [to for _, to, _ in self.given]

        def values(numbers: Sequence[Any]) -> Any:
            found = run(*numbers)
            if found is None:
                return None
            arrays = [wrap(array_of(x, to)) for x, to in zip(found, dtypes, strict=False)]
            return arrays, found[len(dtypes) :]

        return values


def array_of(x: Any, to: dtype) -> Any:
    """A number as it takes part in an operation on tensors of a dtype."""
    if to in LOW_PRECISION:
        with np.errstate(over="ignore"):
            return np.asarray(x).astype(to.numpy)
    return np.asarray(number(x, to), to.numpy)
