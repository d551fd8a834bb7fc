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
import re
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

    def scalar(self, value: float) -> Any:
        """The next number that comes with each run; `value` is what it is now."""
        made = self._new(value)
        self.given.append(made.place)
        return made

    def function(self, sources: Sequence[Any], late: int | None = None) -> Callable[..., Any]:
        """What computes `sources`, numbers of this and others, for other values of those that come
        with each run; it gives None where another decision would have been taken.

        With `late`, the first so many of these numbers come later: it takes the rest, and gives
        what computes the sources of the first.
        It is Python that is written here, a line for each step: a loop over them takes longer.
        """
        known: dict[str, Any] = {f"v{place}": value for place, value in enumerate(self.values)}
        first = self.given if late is None else self.given[:late]
        behind = set(first)  # places of what depends on them
        early: list[str] = []
        lines: list[str] = []
        for k, (function, a, b, place) in enumerate(self.steps):
            known[f"f{k}"] = function
            text = _TEXTS.get(function, "f(a, b)")
            if not behind.isdisjoint((a, b)):
                behind.add(place)
            (lines if place in behind else early).append(
                f"v{place} = {_filled(text, f'f{k}', a, b)}"
            )
        for k, (function, a, b, outcome) in enumerate(self.decisions):
            known[f"d{k}"] = function
            text = _filled(_TEXTS.get(function, "f(a, b)"), f"d{k}", a, b)
            line = f"if ({text}) is not {outcome}: return None"
            (early if behind.isdisjoint((a, b)) else lines).append(line)
        found = []
        for k, source in enumerate(sources):
            known[f"s{k}"] = source
            if type(source) in _WRITTEN and source.arithmetic is not self:
                raise Unsupported("numbers of two computations")
            found.append(f"v{source.place}" if type(source) in _WRITTEN else f"s{k}")
        result = f"({''.join(f'{x}, ' for x in found)})"
        if late is None:
            text = _written("run", first, [*early, *lines], result)
        else:
            inner = _written("inner", first, lines, result)
            text = _written("run", self.given[late:], early, "inner", inner)
        exec(text, known)
        return known["run"]  # type: ignore[no-any-return]

    def _new(self, value: Any) -> Any:
        self.values.append(value)
        return Scalar(self, len(self.values) - 1)

    def _place_of(self, x: Any) -> int:
        if type(x) in _WRITTEN:
            if x.arithmetic is not self:
                raise Unsupported("numbers of two computations")
            return x.place
        self.values.append(x)
        return len(self.values) - 1

    def compute(self, function: Callable[[Any, Any], Any], x: Any, y: Any) -> Any:
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


# Steps that are written as expressions, which takes less than a call.
_TEXTS: dict[Any, str] = {
    operator.add: "a + b", operator.sub: "a - b", operator.mul: "a * b", operator.truediv: "a / b",
    operator.lt: "a < b", operator.le: "a <= b", operator.gt: "a > b", operator.ge: "a >= b",
    operator.eq: "a == b", operator.ne: "a != b",
    _absolute: "abs(a)",
    as_float32: f"a if {-_FLOAT32_MOST!r} < a < {_FLOAT32_MOST!r} else f(a, b)",
}  # fmt: skip


def _written(
    name: str, given: Sequence[int], lines: Sequence[str], result: str, inner: str = ""
) -> str:
    """The text of a function of numbers, None where it fails: what fails may stand behind a
    decision, and the formula will say.
    """
    body = [f" {line}" for line in lines]
    if lines:
        body = ["try:", *body, "except (ArithmeticError, ValueError): return None"]
    body += [*inner.splitlines(), f"return {result}"]
    head = f"def {name}({', '.join(f'v{place}' for place in given)}):"
    return "\n".join([head, *(f" {line}" for line in body)])


def _filled(text: str, function: str, a: int, b: int) -> str:
    """The expression with names in place of the letters."""
    names = {"a": f"v{a}", "b": f"v{b}", "f": function}
    return re.sub(r"\b[abf]\b", lambda letter: names[letter[0]], text)


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

    def __neg__(self) -> Any:
        return self.arithmetic.compute(operator.mul, self, -1.0)

    def __pos__(self) -> Scalar:
        return self

    def __ceil__(self) -> Any:
        return self.arithmetic.compute(_ceiling, self, 0.0)

    def is_whole(self) -> bool:
        """Whether its values are ints."""
        return type(self.arithmetic.values[self.place]) is int

    def rounded(self, dtype: Any) -> Any:
        """The number as a NumPy dtype of floats holds it."""
        return self.arithmetic.compute(_rounded, self, dtype)

    def as_float32(self) -> Any:
        """The number, infinite where float32 has no nearer value."""
        return self.arithmetic.compute(as_float32, self, 0.0)

    def __abs__(self) -> Any:
        return self.arithmetic.compute(_absolute, self, 0.0)

    def __bool__(self) -> bool:
        return bool(self.arithmetic.decide(operator.ne, self, 0.0))

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


# ---- numbers of users ----------------------------------------------------------------------------


class Numbers(Arithmetic):
    """What Python does with numbers that come with each run, and where tensors meet them.

    `operand(number, dtype)` makes what stands for a number in an operation on tensors.
    """

    def __init__(self, operand: Callable[[Number, Any], Any]) -> None:
        super().__init__()
        self.operand = operand
        self.moving: set[int] = set()  # places of numbers that each run changes

    def _new(self, value: Any) -> Any:
        self.values.append(value)
        return Number(self, len(self.values) - 1)

    def compute(self, function: Callable[[Any, Any], Any], x: Any, y: Any) -> Any:
        """`function(x, y)`, written down."""
        made = super().compute(function, x, y)
        if any(type(each) is Number and each.place in self.moving for each in (x, y)):
            self.moving.add(made.place)
        return made

    def value_of(self, x: Number) -> Any:
        """The number itself, which later runs must agree with.

        Errors: Unsupported for one that each run changes.
        """
        value = self.values[x.place]
        if x.place in self.moving:
            raise Unsupported(
                f"compile: the function reads the number {value!r}, which it changes in each call; "
                "programs add, multiply and compare such numbers, and use them in operations on "
                "tensors: do the rest outside, or keep the number in a tensor"
            )
        self.decisions.append((_same, x.place, self._place_of(value), True))
        return value

    def hash_of(self, x: Number) -> int:
        """By which it is found in tables: its value's."""
        return hash(self.value_of(x))


def _same(x: Any, y: Any) -> bool:
    return repr(x) == repr(y)  # 0.0 and -0.0 are equal, NaN is not


class Number:
    """An int or float of a user's that comes with each run, or is computed from such.

    It is no subclass of these: C code that takes a number asks its methods, and gets the value that
    it has now, on which what is written then depends.
    """

    __slots__ = ("arithmetic", "place")

    arithmetic: Numbers
    place: int

    def __init__(self, arithmetic: Numbers, place: int) -> None:
        self.arithmetic = arithmetic
        self.place = place

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # for isinstance
        return type(self.arithmetic.values[self.place])

    def value(self) -> Any:
        """What it is now."""
        return self.arithmetic.value_of(self)

    def operand(self, dtype: Any) -> Any:
        """What stands for it where it meets tensors, with an element of that dtype."""
        return self.arithmetic.operand(self, dtype)

    def __neg__(self) -> Any:
        return self.arithmetic.compute(_negative, self, 0)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self.arithmetic.compute(_absolute, self, 0)

    def __bool__(self) -> bool:
        return bool(self.arithmetic.decide(operator.ne, self, 0))

    def __int__(self) -> int:
        return int(self.value())

    def __float__(self) -> float:
        return float(self.value())

    def __index__(self) -> int:
        return operator.index(self.value())

    def __hash__(self) -> int:
        return self.arithmetic.hash_of(self)

    def __repr__(self) -> str:
        return repr(self.value())

    def __format__(self, spec: str) -> str:
        return format(self.value(), spec)

    def __round__(self, digits: Any = None) -> Any:
        return round(self.value(), digits)

    def __trunc__(self) -> int:
        return math.trunc(self.value())

    def __floor__(self) -> int:
        return math.floor(self.value())

    def __ceil__(self) -> int:
        return math.ceil(self.value())

    def __divmod__(self, other: Any) -> Any:
        return divmod(self.value(), other)

    def __rdivmod__(self, other: Any) -> Any:
        return divmod(other, self.value())

    def __getattr__(self, name: str) -> Any:  # what else ints and floats have
        kind = type(self.arithmetic.values[self.place])
        if not hasattr(kind, name):
            raise AttributeError(f"'{kind.__name__}' object has no attribute {name!r}")
        return getattr(self.value(), name)

    def __reduce__(self) -> Any:
        return _itself, (self.value(),)


_WRITTEN = frozenset((Scalar, Number))


def _itself(x: Any) -> Any:
    return x


def _negative(x: Any, _: Any) -> Any:
    return -x


def _of_users(function: Callable[[Any, Any], Any], reflected: bool) -> Callable[[Any, Any], Any]:
    def method(self: Number, other: Any) -> Any:
        if type(other) not in (int, float, bool, Number):
            return NotImplemented
        pair = (other, self) if reflected else (self, other)
        return self.arithmetic.compute(function, *pair)

    return method


def _compared(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def method(self: Number, other: Any) -> Any:
        if type(other) not in (int, float, bool, Number):
            return NotImplemented
        return self.arithmetic.decide(function, self, other)

    return method


_ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
for _name in _ARITHMETIC:
    setattr(Number, f"__{_name}__", _of_users(getattr(operator, _name), False))
    setattr(Number, f"__r{_name}__", _of_users(getattr(operator, _name), True))
for _name in _COMPARISONS:
    setattr(Number, f"__{_name}__", _compared(getattr(operator, _name)))

# What is written down of numbers of users, by name: steps, and decisions.
STEPS: dict[str, Callable[[Any, Any], Any]] = {
    **{name: getattr(operator, name) for name in _ARITHMETIC},
    "negative": _negative,
    "absolute": _absolute,
}
DECISIONS: dict[str, Callable[[Any, Any], Any]] = {
    **{name: getattr(operator, name) for name in _COMPARISONS},
    "same": _same,
}
