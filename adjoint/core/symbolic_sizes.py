"""Symbolic sizes of tensors: a computation is recorded before the sizes are known.

A size is a `SymbolicNumber`: no int, but what computes with it writes that down, and so does what
compares it; C code that takes it for an int asks for its value, which then is the only one for
which the computation stands. `SizeGraph.function` says for other sizes what all are, or None where
the computation would have been another.

>>> sizes = SizeGraph(lambda size, dtype: None)
>>> rows = sizes.scalar(4)
>>> half = rows // 2 if rows > 2 else rows
>>> run = sizes.function([half])
>>> run(10), run(1)
((5,), None)
"""

from __future__ import annotations

import contextlib
import itertools
import operator
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn, SupportsIndex, TypeVar, cast

from . import debug
from .device import device
from .dtype import dtype
from .errors import InvalidType, Unsupported
from .op import Op
from .package import FOLDER
from .spec import Spec
from .symbolic_scalar import NumberGraph, SymbolicFloat, SymbolicNumber

T = TypeVar("T")
SYMBOLS = frozenset((SymbolicFloat, SymbolicNumber))
_WITHOUT_SIZES = (int, float, complex, str, dtype, device)

# Neutral operands (left, right): with them, a function returns its other operand.
_NEUTRAL: dict[Any, tuple[Any, Any]] = {
    operator.add: (0, 0), operator.sub: (None, 0), operator.mul: (1, 1),
    operator.floordiv: (None, 1),
}  # fmt: skip
_REFLEXIVE = {operator.eq: True, operator.le: True, operator.ge: True, operator.ne: False,
              operator.lt: False, operator.gt: False}  # fmt: skip


class SizeGraph(NumberGraph):
    """A recorded computation on sizes. Equal computations give the same object, so that equal
    shapes are recognised by identity.
    """

    def __init__(self, operand: Callable[[SymbolicNumber, Any], Any]) -> None:
        super().__init__(operand)
        self.settled = False  # it is over: no number may be asked for anything
        self.read: dict[int, Any] = {}  # places of those that C code has read, with what they were
        self.guessing = False  # what is read and decided will be looked at again: see `guessing`
        self._constants: dict[Any, int] = {}
        self._made: dict[Any, Any] = {}  # numbers and outcomes, by function and places

    def _place_of(self, x: Any) -> int:
        if type(x) is SymbolicNumber:
            return super()._place_of(x)
        key = type(x), repr(x) if type(x) is float else x  # 0.0 == -0.0
        if key not in self._constants:
            self._constants[key] = super()._place_of(x)
        return self._constants[key]

    def settle(self) -> tuple[list[int], Callable[..., Any]]:
        """Finish the recording: returns the positions of all computed numbers, and a function that
        gives their values for other sizes. Everything else is dropped, since tables may hold the
        numbers for long.
        """
        constants = set(self._constants.values())
        places = [n for n in range(len(self.values)) if n not in constants]
        run = self.function([SymbolicNumber(self, n) for n in places])
        self.close()
        return places, run

    def close(self) -> None:
        """End the recording: its numbers are places from now on, and no computation is kept."""
        self.settled = True
        for each in (self.steps, self.decisions, self._constants, self._made):
            each.clear()  # type: ignore[attr-defined]
        self.operand = _refused

    def compute(self, function: Callable[[Any, Any], Any], x: object, y: object) -> Any:
        """Compute `function(x, y)` and record it as a step."""
        left, right = _NEUTRAL.get(function, (None, None))
        if type(y) is int and y == right and right is not None:
            return x
        if type(x) is int and x == left and left is not None:
            return y
        self._assert_open()
        key = function, self._place_of(x), self._place_of(y)
        result = self._made.get(key)
        if result is None:
            result = self._made[key] = super().compute(function, x, y)
        return result

    def decide(self, function: Callable[[Any, Any], Any], x: object, y: object) -> bool:
        """Evaluate the condition `function(x, y)` and record its outcome, which other sizes must
        reproduce.
        """
        if x is y and function in _REFLEXIVE:
            return _REFLEXIVE[function]
        self._assert_open()
        _, _, a, b = key = "decision", function, self._place_of(x), self._place_of(y)
        if self.guessing:
            return bool(function(self.values[a], self.values[b]))
        outcome = self._made.get(key)
        if outcome is None:
            outcome = self._made[key] = super().decide(function, x, y)
        return bool(outcome)

    def value_of(self, x: SymbolicNumber) -> Any:
        """The current value of a size; the recording then holds for this value only."""
        self._assert_open()
        value = self.values[x.place]
        if x.place not in self.read and not self.guessing:
            self.read[x.place] = value
            if "compile" in debug.on:
                debug.say("compile", f"the size {value} is read, and is no number: {_places()}")
            super().value_of(x)
        return value

    def hash_of(self, x: SymbolicNumber) -> int:
        """Hash for this package's own tables of shapes.

        Errors: InvalidType elsewhere, as for a list: other sizes would find something else.
        """
        if self.guessing or not sys._getframe(2).f_code.co_filename.startswith(FOLDER):
            raise InvalidType("unhashable: a size that is not known yet")
        return hash((id(self), x.place))

    def _assert_open(self) -> None:
        if self.settled:
            _refused()


class KernelGraph(SizeGraph):
    """A recorded computation on the sizes of a kernel's arrays and the floats that come with its
    calls. Floats, those of sizes too, are `SymbolicFloat`s: who takes one for known is found out.
    """

    def __init__(self) -> None:
        super().__init__(_as_float)

    def _new(self, value: object) -> Any:
        made = super()._new(value)
        return SymbolicFloat(self, made.place) if type(value) is float else made

    def _place_of(self, x: object) -> int:
        return x.place if isinstance(x, SymbolicFloat) else super()._place_of(x)

    @property
    def floats(self) -> int:
        """How many of the given numbers are floats, which come before the sizes."""
        return [type(self.values[place]) for place in self.given].count(float)

    def sizes(self, shape: Iterable[int]) -> tuple[int, ...]:
        """Symbols for the sizes of an array; whether it has elements is decided."""
        symbols: tuple[int, ...] = tuple([self.scalar(n) for n in shape])
        for n in symbols:
            self.decide(operator.gt, n, 0)
        return symbols

    def known_sizes(self, shape: Iterable[int]) -> tuple[int, ...]:
        """The sizes themselves: the recording then holds for no others."""
        return tuple([operator.index(n) for n in self.sizes(shape)])


def _as_float(size: SymbolicNumber, dtype: object) -> SymbolicFloat:
    return SymbolicFloat(size.arithmetic, size.place)


def least(x: int, y: int) -> int:
    """The lesser of two sizes: where one is symbolic a step, and no decision."""
    return step(min, x, y)


def most(x: int, y: int) -> int:
    """The greater of two sizes: where one is symbolic a step, and no decision."""
    return step(max, x, y)


def step(function: Callable[[int, int], T], x: int, y: int) -> T:
    """`function(x, y)`, of sizes; where one is symbolic, a number: also of a comparison."""
    for size in (x, y):
        if is_size(size):
            return cast("SymbolicNumber", size).arithmetic.compute(function, x, y)
    return function(x, y)


def ask(question: Callable[[list[tuple[int, ...]]], bool], shapes: Sequence[Sequence[int]]) -> bool:
    """`question` of shapes; where a size in them is symbolic, a guard: it is asked again for
    others, and must give the same answer.
    """
    ranks = [len(shape) for shape in shapes]

    def of(sizes: tuple[int, ...], _: object = None) -> bool:
        each = iter(sizes)
        return bool(question([tuple(itertools.islice(each, rank)) for rank in ranks]))

    together: Any = ()
    for shape in shapes:
        for n in shape:
            together = _joined(together, n)
    return of(together) if type(together) is tuple else together.arithmetic.decide(of, together, 0)


def largest(numbers: Sequence[int]) -> int:
    """The place of the first of the largest numbers; where some are symbolic, a guard for each."""
    plain = [x.arithmetic.values[x.place] if is_size(x) else x for x in cast("Any", numbers)]
    at = max(range(len(plain)), key=plain.__getitem__)
    for k, x in enumerate(numbers):
        if k != at:
            differs = x >= numbers[at] if k < at else x > numbers[at]
            assert not differs
    return at


def _joined(sizes: Any, n: int) -> Any:
    for x in (sizes, n):
        if is_size(x):
            return cast("SymbolicNumber", x).arithmetic.compute(_with, sizes, n)
    return _with(sizes, n)


def _with(sizes: tuple[int, ...], n: int) -> tuple[int, ...]:
    return (*sizes, n)


def _refused(*_: object) -> NoReturn:
    raise Unsupported("compile: a size of another call")


@contextlib.contextmanager
def guessing(*shapes: Iterable[Any]) -> Iterator[None]:
    """Context manager: sizes in these shapes are read at their current values without the recording
    depending on them; the caller makes the result again for other sizes and compares.
    """
    recordings = {n.arithmetic for shape in shapes for n in shape if is_size(n)}
    for each in recordings:
        each.guessing = True
    try:
        yield
    finally:
        for each in recordings:
            each.guessing = False


def as_size(x: SupportsIndex) -> int:
    """`x` as an int, or unchanged if it is a symbolic size.

    Errors: TypeError for what is no whole number.
    """
    return x if is_size(x) and isinstance(x, int) else operator.index(x)


class Filling:
    """A function that puts values in the place of sizes: in numbers, shapes, specs and ops.

    The first one, for the sizes of a recording, collects what it was asked for; the others have
    that, made for other sizes, and find it.
    """

    def __init__(self, values: Sequence[object], made: dict[int, object] | None = None) -> None:
        """`values` are those of the recording, by place; `made` is what takes the place of sizes
        and of shapes, by their ids.
        """
        self._values = values
        self._made: dict[int, Any] = made or {}
        self.asked: dict[int, object] = {}  # sizes, and tuples and lists of them, by their ids

    def __call__(self, x: T) -> T:
        """A copy of `x` with values for sizes, or `x` itself if there is none in it.

        Errors: Unsupported for what may hold sizes unseen.
        """
        made: T | None = self._made.get(id(x))
        return cast("T", self._filled(x)) if made is None else made

    def _filled(self, x: object) -> object:
        kind: Callable[..., object] = type(x)
        if type(x) is SymbolicNumber:
            return self._noted(x, self._values[x.place])
        if x is None or (kind is not SymbolicFloat and isinstance(x, _WITHOUT_SIZES)):
            return x
        if type(x) is Spec:
            return Spec(self(x.shape), x.dtype, x.device)
        if isinstance(x, (tuple, list)):
            if SymbolicNumber in map(type, x) and not any(hasattr(n, "__len__") for n in x):
                sizes = [self._values[n.place] if type(n) is SymbolicNumber else n for n in x]
                return self._noted(x, tuple(sizes))
            parts = list(map(self, x))
            if all(map(operator.is_, parts, x)):
                return x
            return kind(*parts) if hasattr(kind, "_fields") else kind(parts)
        if isinstance(x, Op):
            return x.resized(self)
        raise Unsupported(f"sizes within a {type(x).__name__}")

    def _noted(self, x: object, value: object) -> object:
        if self._made:
            raise Unsupported("a size that was not recorded")
        self.asked[id(x)] = x
        return value


def shown(sizes: Iterable[object]) -> str:
    """A shape as messages have it, in which sizes that stand for others are "any"."""
    texts = ["any" if is_size(n) else str(n) for n in sizes]
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def all_known(shape: Iterable[Any]) -> bool:
    """Whether a shape has no symbolic size."""
    return SymbolicNumber not in map(type, shape) or not any(map(is_size, shape))


def is_size(x: object) -> bool:
    """Whether `x` is a symbolic size, or a number computed from such."""
    return type(x) is SymbolicNumber and isinstance(x.arithmetic, SizeGraph)


def known(numbers: Iterable[Any]) -> tuple[Any, ...]:
    """The current values of numbers; the recording then holds for these values only."""
    return tuple([x.value() if is_size(x) else x for x in numbers])


def indices(part: slice, size: int) -> tuple[int, int, int]:
    """`part.indices(size)` for sizes that may be symbolic, where the step is positive."""
    if all_known((part.start, part.stop, part.step, size)):
        return part.indices(size)
    start = 0 if part.start is None else _within(part.start, size)
    stop = size if part.stop is None else _within(part.stop, size)
    return start, stop, 1 if part.step is None else operator.index(part.step)


def _within(place: SupportsIndex, size: int) -> int:
    place = as_size(place)
    if place < 0:
        place = place + size
        return 0 if place < 0 else place
    return size if place > size else place


def _places() -> str:
    """The Python stack as text, for the debug log: frames in this package, and their caller."""
    frame: Any = sys._getframe(3)
    lines: list[str] = []
    while frame is not None and len(lines) < 6:
        name = frame.f_code.co_filename
        if name != _HERE:
            lines.append(f"{name.removeprefix(FOLDER)}:{frame.f_lineno}")
        if not name.startswith(FOLDER):
            break
        frame = frame.f_back
    return " < ".join(lines)


_HERE = os.path.join(FOLDER, "core", "symbolic_scalar.py")
