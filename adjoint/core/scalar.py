"""Numbers with which a computation is written down before they are known.

A `Scalar` is a float whose value comes with each run: arithmetic on it is written down in its
`Arithmetic`, and so is the outcome of every comparison, since it may have decided what else was
written. `Arithmetic.function` computes what is asked for from other values, or gives None where a
decision differs.

>>> arithmetic = Arithmetic()
>>> rate = arithmetic.scalar(0.5)
>>> kept = 1 - rate if rate > 0 else rate
>>> run = arithmetic.function([kept])
>>> run(0.25)
(0.75,)
>>> run(-1.0) is None
True
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .errors import InvalidType, NotTraceable, Unsupported


class Arithmetic:
    """What was computed from some numbers, in order."""

    def __init__(self) -> None:
        self.values: list[Any] = []  # of everything so far, as they are while this is written
        self.given: list[int] = []  # the places of the numbers that come with each run
        self.steps: list[tuple[Callable[[Any, Any], Any], int, int, int]] = []
        self.decisions: list[tuple[Callable[[Any, Any], Any], int, int, bool]] = []

    def scalar(self, value: float) -> Scalar:
        """The next number that comes with each run; `value` is what it is now."""
        made = self._new(value)
        self.given.append(made.place)
        return made

    def function(self, sources: Sequence[Any]) -> Callable[..., tuple[Any, ...] | None]:
        """What computes `sources`, numbers of this and others, for other values of those that come
        with each run; it gives None where another decision would have been taken.

        It is Python that is written here, a line for each step: a loop over them takes longer.
        """
        known: dict[str, Any] = {f"v{place}": value for place, value in enumerate(self.values)}
        lines = []
        for k, (function, a, b, place) in enumerate(self.steps):
            known[f"f{k}"] = function
            lines.append(f"  v{place} = f{k}(v{a}, v{b})")
        for k, (function, a, b, outcome) in enumerate(self.decisions):
            known[f"d{k}"] = function
            lines.append(f"  if d{k}(v{a}, v{b}) is not {outcome}: return None")
        if lines:  # what fails may stand behind a decision: the formula will say
            lines = [" try:", *lines, " except (ArithmeticError, ValueError): return None"]
        found = []
        for k, source in enumerate(sources):
            known[f"s{k}"] = source
            found.append(f"v{source.place}" if type(source) is Scalar else f"s{k}")
        given = ", ".join(f"v{place}" for place in self.given)
        lines = [f"def run({given}):", *lines, f" return ({''.join(f'{x}, ' for x in found)})"]
        exec("\n".join(lines), known)
        return known["run"]  # type: ignore[no-any-return]

    def _new(self, value: Any) -> Scalar:
        self.values.append(value)
        return Scalar(self, len(self.values) - 1)

    def _place_of(self, x: Any) -> int:
        if type(x) is Scalar:
            if x.arithmetic is not self:
                raise Unsupported("numbers of two computations")
            return x.place
        self.values.append(x)
        return len(self.values) - 1

    def compute(self, function: Callable[[Any, Any], Any], x: Any, y: Any) -> Scalar:
        """`function(x, y)`, written down."""
        a, b = self._place_of(x), self._place_of(y)
        try:
            made = self._new(function(self.values[a], self.values[b]))
        except (ArithmeticError, ValueError) as error:
            raise NotTraceable(f"a number that has no value: {error}") from None
        self.steps.append((function, a, b, made.place))
        return made

    def decide(self, function: Callable[[Any, Any], Any], x: Any, y: Any) -> bool:
        """`function(x, y)`, which later runs must agree with."""
        a, b = self._place_of(x), self._place_of(y)
        outcome = bool(function(self.values[a], self.values[b]))
        self.decisions.append((function, a, b, outcome))
        return outcome


def _plain(x: Any) -> bool:
    return isinstance(x, (int, float))


def _absolute(x: Any, _: Any) -> Any:
    return abs(x)


def _ceiling(x: Any, _: Any) -> Any:
    return math.ceil(x)


def _rounded(x: Any, dtype: Any) -> Any:
    with np.errstate(over="ignore"):
        return float(dtype.type(x))


_FLOAT32_MOST = 2.0**128 - 2.0**103  # from which on float32 has infinity


def as_float32(x: float, _: float = 0.0) -> float:
    """`x`, infinite where float32 has no nearer value: so it can be passed as one."""
    return x if abs(x) < _FLOAT32_MOST or x != x else math.copysign(math.inf, x)


class Scalar(float):
    """A number that comes with each run, or is computed from such.

    As a float it is NaN: whoever takes it for one without asking its methods gets no number that
    could pass for a result.
    """

    __slots__ = ("arithmetic", "place")

    arithmetic: Arithmetic
    place: int

    def __new__(cls, arithmetic: Arithmetic, place: int) -> Scalar:
        """The number at a place of `arithmetic`."""
        self = super().__new__(cls, math.nan)
        self.arithmetic = arithmetic
        self.place = place
        return self

    def __neg__(self) -> Scalar:
        return self.arithmetic.compute(operator.mul, self, -1.0)

    def __pos__(self) -> Scalar:
        return self

    def __ceil__(self) -> Any:
        return self.arithmetic.compute(_ceiling, self, 0.0)

    def is_whole(self) -> bool:
        """Whether its values are ints."""
        return type(self.arithmetic.values[self.place]) is int

    def rounded(self, dtype: Any) -> Scalar:
        """The number as a NumPy dtype of floats holds it."""
        return self.arithmetic.compute(_rounded, self, dtype)

    def as_float32(self) -> Scalar:
        """The number, infinite where float32 has no nearer value."""
        return self.arithmetic.compute(as_float32, self, 0.0)

    def __abs__(self) -> Scalar:
        return self.arithmetic.compute(_absolute, self, 0.0)

    def __bool__(self) -> bool:
        return self.arithmetic.decide(operator.ne, self, 0.0)

    def __hash__(self) -> int:
        raise InvalidType("a number that is not known yet finds nothing in a table")

    def __repr__(self) -> str:
        return f"<number {self.place}>"

    def __float__(self, *others: Any) -> float:
        raise Unsupported("the value of a number that is not known yet")

    __int__ = __index__ = __trunc__ = __round__ = __floor__ = __float__  # type: ignore[assignment]
    __divmod__ = __rdivmod__ = __floordiv__ = __rfloordiv__ = __float__  # type: ignore[assignment]
    __mod__ = __rmod__ = is_integer = as_integer_ratio = hex = __float__  # type: ignore[assignment]


def _operator(function: Callable[[Any, Any], Any], reflected: bool) -> Callable[[Any, Any], Any]:
    def method(self: Scalar, other: Any) -> Any:
        if not _plain(other):
            return NotImplemented
        pair = (other, self) if reflected else (self, other)
        return self.arithmetic.compute(function, *pair)

    return method


def _comparison(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def method(self: Scalar, other: Any) -> Any:
        return self.arithmetic.decide(function, self, other) if _plain(other) else NotImplemented

    return method


for _name in ("add", "sub", "mul", "truediv", "pow"):
    setattr(Scalar, f"__{_name}__", _operator(getattr(operator, _name), False))
    setattr(Scalar, f"__r{_name}__", _operator(getattr(operator, _name), True))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Scalar, f"__{_name}__", _comparison(getattr(operator, _name)))
