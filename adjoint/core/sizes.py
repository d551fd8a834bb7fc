"""Sizes of tensors with which a computation is written down before they are known.

A size is a `Number`: no int, but what computes with it writes that down, and so does what compares
it; C code that takes it for an int asks for its value, which then is the only one for which the
computation stands. `Sizes.function` says for other sizes what all are, or None where the
computation would have been another.

>>> sizes = Sizes(lambda size, dtype: None)
>>> rows = sizes.scalar(4)
>>> half = rows // 2 if rows > 2 else rows
>>> run = sizes.function([half])
>>> run(10), run(1)
((5,), None)
"""

from __future__ import annotations

import contextlib
import operator
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from . import debug
from .errors import InvalidType, Unsupported
from .scalar import Number, Numbers

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# What gives one of its operands back, where the other one is this.
_NEUTRAL: dict[Any, tuple[Any, Any]] = {
    operator.add: (0, 0), operator.sub: (None, 0), operator.mul: (1, 1),
    operator.floordiv: (None, 1),
}  # fmt: skip
_REFLEXIVE = {operator.eq: True, operator.le: True, operator.ge: True, operator.ne: False,
              operator.lt: False, operator.gt: False}  # fmt: skip


class Sizes(Numbers):
    """What was computed from some sizes. Equal computations are one number, so that shapes with the
    same are found equal by identity.
    """

    def __init__(self, operand: Callable[[Number, Any], Any]) -> None:
        super().__init__(operand)
        self.settled = False  # it is over: no number may be asked for anything
        self.read: dict[int, Any] = {}  # places of those that C code has read, with what they were
        self.guessing = False  # what is read and decided will be looked at again: see `guessing`
        self._constants: dict[Any, int] = {}
        self._made: dict[Any, Any] = {}  # numbers and outcomes, by function and places

    def _place_of(self, x: Any) -> int:
        if type(x) is Number:
            return super()._place_of(x)
        key = type(x), x
        if key not in self._constants:
            self._constants[key] = super()._place_of(x)
        return self._constants[key]

    def settle(self) -> tuple[list[int], Callable[..., Any]]:
        """It is over: the places of all that was computed, and what gives them for other sizes. Of
        the rest nothing is kept, since tables may hold numbers for long.
        """
        constants = set(self._constants.values())
        places = [n for n in range(len(self.values)) if n not in constants]
        run = self.function([Number(self, n) for n in places])
        self.settled = True
        for each in (self.steps, self.decisions, self._constants, self._made):
            each.clear()  # type: ignore[attr-defined]
        self.operand = _refused
        return places, run

    def compute(self, function: Callable[[Any, Any], Any], x: Any, y: Any) -> Any:
        """`function(x, y)`, written down."""
        left, right = _NEUTRAL.get(function, (None, None))
        if type(y) is int and y == right and right is not None:
            return x
        if type(x) is int and x == left and left is not None:
            return y
        self._assert_open()
        key = function, self._place_of(x), self._place_of(y)
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = super().compute(function, x, y)
        return found

    def decide(self, function: Callable[[Any, Any], Any], x: Any, y: Any) -> bool:
        """`function(x, y)`, which other sizes must agree with."""
        if x is y and function in _REFLEXIVE:
            return _REFLEXIVE[function]
        self._assert_open()
        a, b = key = self._place_of(x), self._place_of(y)
        if self.guessing:
            return bool(function(self.values[a], self.values[b]))
        found = self._made.get((function, *key))
        if found is None:
            found = self._made[function, a, b] = super().decide(function, x, y)
        return bool(found)

    def value_of(self, x: Number) -> Any:
        """The number itself, which is the only one from now on."""
        self._assert_open()
        value = self.values[x.place]
        if x.place not in self.read and not self.guessing:
            self.read[x.place] = value
            if "compile" in debug.on:
                debug.say("compile", f"the size {value} is read, and is no number: {_places()}")
            super().value_of(x)
        return value

    def hash_of(self, x: Number) -> int:
        """By which tables of this package find what they know of shapes.

        Errors: InvalidType elsewhere, as for a list: other sizes would find something else.
        """
        if self.guessing or not sys._getframe(2).f_code.co_filename.startswith(_PACKAGE):
            raise InvalidType("unhashable: a size that is not known yet")
        return hash((id(self), x.place))

    def _assert_open(self) -> None:
        if self.settled:
            _refused()


def _refused(*_: Any) -> Any:
    raise Unsupported("compile: a size of another call")


@contextlib.contextmanager
def guessing(*shapes: Iterable[Any]) -> Iterator[None]:
    """Within it sizes in these shapes are read as they are now, and nothing depends on that: what
    is made so is made again for others, and compared.
    """
    found = {n.arithmetic for shape in shapes for n in shape if is_size(n)}
    for each in found:
        each.guessing = True
    try:
        yield
    finally:
        for each in found:
            each.guessing = False


def as_size(x: Any) -> Any:
    """A whole number as an int, or as it is where it is a size.

    Errors: TypeError for what is no whole number.
    """
    return x if is_size(x) and isinstance(x, int) else operator.index(x)


def all_known(shape: Iterable[Any]) -> bool:
    """Whether no size of a shape is a number that is not known yet."""
    return Number not in map(type, shape) or not any(map(is_size, shape))


def is_size(x: Any) -> bool:
    """Whether it is a size that is not known yet, or a number that was computed of such."""
    return type(x) is Number and type(x.arithmetic) is Sizes


def known(numbers: Iterable[Any]) -> tuple[Any, ...]:
    """Numbers as they are now, on which what is computed depends from now on."""
    return tuple([x.value() if is_size(x) else x for x in numbers])


def indices(part: slice, size: Any) -> tuple[Any, Any, Any]:
    """`part.indices(size)`, of sizes that may be numbers, where the step is positive."""
    if all_known((part.start, part.stop, part.step, size)):
        return part.indices(size)
    start = 0 if part.start is None else _within(part.start, size)
    stop = size if part.stop is None else _within(part.stop, size)
    return start, stop, 1 if part.step is None else operator.index(part.step)


def _within(place: Any, size: Any) -> Any:
    place = as_size(place)
    if place < 0:
        place = place + size
        return 0 if place < 0 else place
    return size if place > size else place


def _places() -> str:
    """Where Python is: in this package, and who has called it."""
    frame: Any = sys._getframe(3)
    found: list[str] = []
    while frame is not None and len(found) < 6:
        name = frame.f_code.co_filename
        if name != _HERE:
            found.append(f"{name.removeprefix(_PACKAGE)}:{frame.f_lineno}")
        if not name.startswith(_PACKAGE):
            break
        frame = frame.f_back
    return " < ".join(found)


_HERE = os.path.join(_PACKAGE, "core", "scalar.py")
