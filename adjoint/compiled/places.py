"""Places that hold what changes: attributes, variables and items that a function sets, or that
others set between calls. What they hold is given to a program as arguments are, and what they are
to hold afterwards is given back as results are; a number is known by what is computed from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..core.dtype import dtype
from ..core.errors import Unsupported
from ..core.scalar import Number, Numbers
from ..eager.tensors import wrap
from ..graph.lazy import LazyValue
from ..ops.promotion import number
from ..program.reads import ABSENT, Slot, now, place_key, put

_NUMBERS = (int, float)


class Learnt:
    """The places that a function is known to set, and those that others have set."""

    def __init__(self) -> None:
        self.slots: dict[Any, Slot] = {}
        self.set: set[Any] = set()  # those that the function sets
        self.plain: set[Any] = set()  # those whose numbers are constants of each program

    def add(self, slots: Sequence[Slot], by_function: bool) -> bool:
        """Learn of places; whether there is anything new."""
        known = len(self.slots) + len(self.set)
        for slot in slots:
            key = place_key(slot)
            self.slots.setdefault(key, slot)
            if by_function:
                self.set.add(key)
        return len(self.slots) + len(self.set) > known

    def add_others(self, slots: Sequence[Slot], is_input: Callable[[Any], bool]) -> None:
        """Learn of places that others have set: from a tensor or number to another one."""
        for slot in slots:
            found, before = now(slot), slot.value
            alike = type(found) is type(before) and type(found) in _NUMBERS
            if alike or (is_input(found) and is_input(before)):
                self.add([slot], False)


class Places:
    """Those of one program, with what they held when it was captured."""

    def __init__(self, slots: Sequence[Slot], learnt: Learnt, arithmetic: Numbers | None) -> None:
        self.slots = list(slots)
        self._numbers = arithmetic
        keys = [place_key(slot) for slot in slots]
        self._symbolic = [arithmetic is not None and key not in learnt.plain for key in keys]
        self._moving = [key in learnt.set for key in keys]
        self.changed: list[int] = []  # which of them the program sets

    def values(self) -> list[Any]:
        """What they hold now."""
        return [now(slot) for slot in self.slots]

    def split(self, values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """What is signed of values, as arguments are, and the numbers among them."""
        signed, numbers = [], []
        for value, symbolic in zip(values, self._symbolic, strict=True):
            if symbolic and type(value) in _NUMBERS:
                numbers.append(value)
                value = _A_NUMBER[type(value)]
            signed.append(value)
        return signed, numbers

    def during(
        self, function: Callable[[], Any], values: Sequence[Any], symbols: Iterator[Any]
    ) -> Any:
        """What the function gives, while symbols stand in the place of `values`; numbers among
        these get their own. If there are places, what they hold in the end, too.

        Errors: Unsupported for a list or dict whose items the function has set.
        """
        if not self.slots:
            return function()
        given = []
        for value, symbolic, moving in zip(values, self._symbolic, self._moving, strict=True):
            x = next(symbols)
            if symbolic and type(value) in _NUMBERS:
                assert self._numbers is not None
                x = self._numbers.scalar(value)
                if moving:
                    self._numbers.moving.add(x.place)
            given.append(x)
        kept = [list(_leaves(x)) for x in given]
        try:
            for slot, x in zip(self.slots, given, strict=True):
                if x is not ABSENT:
                    put(slot, x)
            found = function()
            left = self.values()
        finally:
            for slot, value in zip(self.slots, values, strict=True):
                put(slot, value)
        for x, before in zip(given, kept, strict=True):
            after = list(_leaves(x))
            if len(after) != len(before) or any(a is not b for a, b in zip(after, before)):  # noqa: B905
                raise Unsupported(
                    "compile: the function sets items of a list or dict that it has made in an "
                    "earlier call; make a new one"
                )
        self.changed = [
            n for n, (x, y) in enumerate(zip(given, left, strict=True))
            if x is not y and not (type(x) in (*_NUMBERS, bool, str) and repr(x) == repr(y))
        ]  # fmt: skip
        if any(left[n] is ABSENT for n in self.changed):
            raise Unsupported(
                "compile: the function deletes an attribute, a variable or an item from outside; "
                "set it to None"
            )
        return found, [left[n] for n in self.changed]

    def set(self, values: Sequence[Any]) -> None:
        """Let the places that the program sets hold these."""
        for n, value in zip(self.changed, values, strict=True):
            put(self.slots[n], value)


_A_NUMBER = {int: ("a number", int), float: ("a number", float)}  # stands for any


def _leaves(x: Any) -> Iterator[Any]:
    """All that a list or dict contains, as far as tuples, lists and dicts go; not other things."""
    if isinstance(x, (list, dict, tuple)):
        for each in x.values() if isinstance(x, dict) else x:
            yield each
            yield from _leaves(each)


class Operands:
    """The numbers that are arguments of a program: symbols while it is captured."""

    def __init__(self) -> None:
        self.arithmetic = Numbers(self._symbol)
        self.given: list[tuple[Number, dtype, LazyValue]] = []
        self._made: dict[Any, Any] = {}

    def _symbol(self, x: Number, to: dtype) -> Any:
        key = x.place, to
        if key not in self._made:
            symbol = LazyValue(None, (), (), to.numpy)
            self.given.append((x, to, symbol))
            self._made[key] = symbol
        return wrap(self._made[key])

    def function(self, results: Sequence[Number]) -> Callable[..., Any]:
        """What computes, of the numbers of a run, the arguments and then `results`; None where a
        decision differs.
        """
        run = self.arithmetic.function([*(x for x, _, _ in self.given), *results])
        dtypes = [to for _, to, _ in self.given]

        def values(numbers: Sequence[Any]) -> Any:
            found = run(*numbers)
            if found is None:
                return None
            arrays = [
                wrap(np.asarray(number(x, to), to.numpy))
                for x, to in zip(found, dtypes, strict=False)
            ]
            return arrays, found[len(dtypes) :]

        return values
