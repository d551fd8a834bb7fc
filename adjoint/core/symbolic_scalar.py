"""Symbolic numbers: numbers with which a computation is recorded before their values are known.

A `SymbolicFloat` is a float whose value comes with each run: arithmetic on it is written down in
its
`ScalarGraph`, and so is the outcome of every comparison, since it may have decided what else was
written. `ScalarGraph.function` computes what is asked for from other values, or gives None where a
decision differs.

>>> arithmetic = ScalarGraph()
>>> rate = arithmetic.scalar(0.5)
>>> kept = 1 - rate if rate > 0 else rate
>>> run = arithmetic.function([kept])
>>> run(0.25)
(0.75,)
>>> run(-1.0) is None
True
"""

from __future__ import annotations

import functools
import math
import operator
import re
import struct
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, SupportsIndex, TypeVar

import numpy as np

from . import policy
from .errors import InvalidType, NotTraceable, Unsupported
from .package import FOLDER

T = TypeVar("T")


class _Recorded(NamedTuple):
    """A step, or a decision, which has no place but an outcome."""

    function: Callable[[Any, Any], Any]
    a: int
    b: int
    place: int | None
    outcome: bool = False


class ScalarGraph:
    """A recorded computation on numbers: steps and decisions, in order."""

    def __init__(self) -> None:
        self.values: list[Any] = []  # of everything so far, as they are while this is written
        self.given: list[int] = []  # the places of the numbers that come with each run
        self.steps: list[tuple[Callable[[Any, Any], Any], int, int, int]] = []
        self.decisions: list[tuple[Callable[[Any, Any], Any], int, int, bool]] = []

    def scalar(self, value: float) -> Any:
        """A new symbolic input; `value` is its value in this recording."""
        made = self._new(value)
        self.given.append(made.place)
        return made

    def function(
        self, sources: Sequence[Any], late: int | None = None, early: Sequence[Any] = ()
    ) -> Callable[..., Any]:
        """Compile the recording into a function from input values to the values of `sources`
        (symbolic numbers, tuples of them, or others as they are); it returns None where a recorded
        decision comes out differently.

        With `late`, the first so many of these numbers come later: it takes the rest, and gives
        the values of `early`, which depend on the rest alone, if there are some, and what computes
        the sources of the first.
        It is Python that is written here, a line for each step: a loop over them takes longer.
        """
        namespace: dict[str, Any] = {}
        first = self.given if late is None else self.given[:late]
        dependent = set(first)  # places of what depends on them
        before: list[str] = []
        lines: list[str] = []
        needed = self._needed([*sources, *early])
        for k, (function, a, b, place, outcome) in enumerate(self._in_order()):
            if place is not None and not dependent.isdisjoint((a, b)):
                dependent.add(place)
            if place is not None and place not in needed:
                continue
            namespace[f"f{k}"] = function
            value = _filled(_TEXTS.get(function, "f(a, b)"), f"f{k}", a, b)
            line = f"v{place} = {value}"
            if place is None:
                line = f"if ({value}) is not {outcome}: return None"
            (before if dependent.isdisjoint((place, a, b)) else lines).append(line)
        namespace |= {f"v{place}": self.values[place] for place in needed}
        result = self._results(sources, "s", namespace)
        if late is None:
            text = _written("run", first, [*before, *lines], result)
        else:
            inner = _written("inner", first, lines, result)
            given = f"{self._results(early, 'e', namespace)}, inner" if early else "inner"
            text = _written("run", self.given[late:], before, given, inner)
        exec(_compiled(text), namespace)
        return namespace.pop("run")  # type: ignore[no-any-return]

    def _in_order(self) -> list[_Recorded]:
        """Steps, and decisions as soon as both numbers are there: who asks several functions is
        refused early.
        """
        each = [(place, 0, _Recorded(f, a, b, place)) for f, a, b, place in self.steps]
        for f, a, b, outcome in self.decisions:
            each.append((max(a, b), 1, _Recorded(f, a, b, None, outcome)))
        return [item for _, _, item in sorted(each, key=itemgetter(0, 1))]

    def _needed(self, sources: Sequence[Any]) -> set[int]:
        """The places of the numbers that decisions and these sources depend on."""
        needed = {x.place for x in _flat(sources) if type(x) in _WRITTEN}
        for _, a, b, _ in self.decisions:
            needed.update((a, b))
        for _, a, b, place in reversed(self.steps):
            if place in needed:
                needed.update((a, b))
        return needed

    def _results(self, sources: Sequence[Any], letter: str, namespace: dict[str, Any]) -> str:
        """The text of a tuple of their values; of tuples and lists among them tuples."""
        texts = []
        for k, source in enumerate(sources):
            if type(source) is tuple or type(source) is list:
                texts.append(f"{self._results(source, f'{letter}{k}_', namespace)}, ")
                continue
            if type(source) not in _WRITTEN:
                namespace[f"{letter}{k}"] = source
                texts.append(f"{letter}{k}, ")
                continue
            if source.arithmetic is not self:
                raise Unsupported("numbers of two computations")
            texts.append(f"v{source.place}, ")
        return f"({''.join(texts)})"

    def _new(self, value: object) -> Any:
        self.values.append(value)
        return SymbolicFloat(self, len(self.values) - 1)

    def _place_of(self, x: Any) -> int:
        if type(x) in _WRITTEN:
            if x.arithmetic is not self:
                raise Unsupported("numbers of two computations")
            return x.place
        self.values.append(x)
        return len(self.values) - 1

    def compute(self, function: Callable[[Any, Any], Any], x: object, y: object) -> Any:
        """Compute `function(x, y)` and record it as a step."""
        a, b = self._place_of(x), self._place_of(y)
        try:
            made = self._new(function(self.values[a], self.values[b]))
        except (ArithmeticError, ValueError) as error:
            raise NotTraceable(f"a number that has no value: {error}") from None
        self.steps.append((function, a, b, made.place))
        return made

    def decide(self, function: Callable[[Any, Any], Any], x: object, y: object) -> bool:
        """Evaluate the condition `function(x, y)` and record its outcome, which later runs must
        reproduce.
        """
        a, b = self._place_of(x), self._place_of(y)
        outcome = bool(function(self.values[a], self.values[b]))
        self.decisions.append((function, a, b, outcome))
        return outcome


def _flat(sources: Iterable[Any]) -> Iterator[Any]:
    for x in sources:
        if type(x) is tuple or type(x) is list:
            yield from _flat(x)
        else:
            yield x


def _plain(x: object) -> bool:
    return isinstance(x, (int, float))


def _absolute(x: float, _: object) -> float:
    return abs(x)


def _ceiling(x: float, _: object) -> int:
    return math.ceil(x)


def _rounded(x: float, dtype: np.dtype) -> float:
    with np.errstate(over="ignore"):
        return float(dtype.type(x))


_FLOAT32_MOST = 2.0**128 - 2.0**103  # from which on float32 has infinity


def as_float32(x: float, _: float = 0.0) -> float:
    """`x`, rounded to infinity where it is beyond float32's range, so that it can be passed on."""
    return x if abs(x) < _FLOAT32_MOST or x != x else math.copysign(math.inf, x)


# Steps written inline as expressions, which cost less than calls.
_TEXTS: dict[Any, str] = {
    operator.add: "a + b", operator.sub: "a - b", operator.mul: "a * b", operator.truediv: "a / b",
    operator.lt: "a < b", operator.le: "a <= b", operator.gt: "a > b", operator.ge: "a >= b",
    operator.eq: "a == b", operator.ne: "a != b",
    _absolute: "abs(a)",
    min: "a if a < b else b", max: "a if a > b else b",
    operator.floordiv: "a // b", operator.mod: "a % b",
    as_float32: f"a if {-_FLOAT32_MOST!r} < a < {_FLOAT32_MOST!r} else f(a, b)",
}  # fmt: skip


def _written(
    name: str, inputs: Sequence[int], lines: Sequence[str], result: str, inner: str = ""
) -> str:
    """Source text of a function of numbers. It returns None if a step fails: that step may stand
    behind a decision that comes out differently, and running the formula itself will tell.
    """
    body = [f" {line}" for line in lines]
    if lines:
        body = ["try:", *body, "except (ArithmeticError, ValueError): return None"]
    body += [*inner.splitlines(), f"return {result}"]
    head = f"def {name}({', '.join(f'v{place}' for place in inputs)}):"
    return "\n".join([head, *(f" {line}" for line in body)])


def _filled(text: str, function: str, a: int, b: int) -> str:
    """The expression with the letters a, b and f replaced by names."""
    names = {"a": f"v{a}", "b": f"v{b}", "f": function}
    return re.sub(r"\b[abf]\b", lambda letter: names[letter[0]], text)


# A NaN with a payload, which arithmetic and conversion to float32 keep.
(_LOST,) = struct.unpack("<d", bytes.fromhex("000000405a5afd7f"))


def is_lost(x: object) -> bool:
    """Whether a float was computed from a `SymbolicFloat` taken for a known number."""
    return isinstance(x, float) and x != x and any(struct.pack("<d", x)[3:6])


class SymbolicFloat(float):
    """A symbolic float: an input of the recording, or computed from inputs.

    As a float it is a NaN of its own: whoever takes it for one without asking its methods gets no
    number that could pass for a result, and `is_lost` tells that from other NaNs.
    """

    __slots__ = ("arithmetic", "place")

    arithmetic: ScalarGraph
    place: int

    def __new__(cls, arithmetic: ScalarGraph, place: int) -> SymbolicFloat:
        """The number at position `place` of `arithmetic`."""
        self = super().__new__(cls, _LOST)
        self.arithmetic = arithmetic
        self.place = place
        return self

    def __neg__(self) -> SymbolicFloat:
        return self.arithmetic.compute(operator.mul, self, -1.0)

    def __pos__(self) -> SymbolicFloat:
        return self

    def __ceil__(self) -> Any:
        return self.arithmetic.compute(_ceiling, self, 0.0)

    def rounded(self, dtype: np.dtype) -> SymbolicFloat:
        """The number rounded to a NumPy floating-point dtype."""
        return self.arithmetic.compute(_rounded, self, dtype)

    def __abs__(self) -> SymbolicFloat:
        return self.arithmetic.compute(_absolute, self, 0.0)

    def __bool__(self) -> bool:
        return bool(self.arithmetic.decide(operator.ne, self, 0.0))

    def __hash__(self) -> int:
        raise InvalidType("a number that is not known yet finds nothing in a table")

    def __repr__(self) -> str:
        return f"<number {self.place}>"

    def __float__(self, *others: object) -> float:
        raise Unsupported("the value of a number that is not known yet")

    __int__ = __index__ = __trunc__ = __round__ = __floor__ = __float__  # type: ignore[assignment]
    __divmod__ = __rdivmod__ = __floordiv__ = __rfloordiv__ = __float__  # type: ignore[assignment]
    __mod__ = __rmod__ = is_integer = as_integer_ratio = hex = __float__  # type: ignore[assignment]


def _operator(function: Callable[[Any, Any], Any], reflected: bool) -> Callable[[Any, Any], Any]:
    def method(self: SymbolicFloat, other: object) -> object:
        if not _plain(other):
            return NotImplemented
        pair = (other, self) if reflected else (self, other)
        return self.arithmetic.compute(function, *pair)

    return method


def _comparison(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def method(self: SymbolicFloat, other: object) -> object:
        return self.arithmetic.decide(function, self, other) if _plain(other) else NotImplemented

    return method


for _name in ("add", "sub", "mul", "truediv", "pow"):
    setattr(SymbolicFloat, f"__{_name}__", _operator(getattr(operator, _name), False))
    setattr(SymbolicFloat, f"__r{_name}__", _operator(getattr(operator, _name), True))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(SymbolicFloat, f"__{_name}__", _comparison(getattr(operator, _name)))


# ---- numbers of users ----------------------------------------------------------------------------


@functools.lru_cache(policy.WRITTEN_TEXTS)
def _compiled(text: str) -> types.CodeType:
    """The code of a written function: most that are written have a text that another has, with
    other numbers.
    """
    return compile(text, _WRITTEN_TO, "exec")


class NumberGraph(ScalarGraph):
    """A recorded computation on the user's Python numbers that are inputs of a compiled program.

    `operand(number, dtype)` makes what stands for a number in an operation on tensors.
    """

    def __init__(self, operand: Callable[[SymbolicNumber, Any], Any]) -> None:
        super().__init__()
        self.operand = operand
        self.moving: set[int] = set()  # places of numbers that each run changes

    def _new(self, value: object) -> SymbolicNumber:
        self.values.append(value)
        return SymbolicNumber(self, len(self.values) - 1)

    def compute(self, function: Callable[[Any, Any], Any], x: object, y: object) -> Any:
        """Compute `function(x, y)` and record it as a step."""
        made = super().compute(function, x, y)
        if any(type(each) is SymbolicNumber and each.place in self.moving for each in (x, y)):
            self.moving.add(made.place)
        return made

    def value_of(self, x: SymbolicNumber) -> Any:
        """The current value of `x`, recorded as a decision: later runs must have the same.

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

    def hash_of(self, x: SymbolicNumber) -> int:
        """Hash of the current value of `x`, for dict lookups; the recording then depends on it."""
        return hash(self.value_of(x))


def _same(x: object, y: object) -> bool:
    return repr(x) == repr(y)  # 0.0 and -0.0 are equal, NaN is not


class SymbolicNumber:
    """A symbolic int or float of the user: an input of the recording, or computed from inputs.

    It is no subclass of these: C code that takes a number asks its methods, and gets the value that
    it has now, on which what is written then depends.
    """

    __slots__ = ("arithmetic", "place")

    arithmetic: NumberGraph
    place: int

    def __init__(self, arithmetic: NumberGraph, place: int) -> None:
        self.arithmetic = arithmetic
        self.place = place

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # for isinstance
        return type(self.arithmetic.values[self.place])

    def value(self) -> Any:
        """The current value; the recording then depends on it."""
        return self.arithmetic.value_of(self)

    def operand(self, dtype: Any) -> Any:
        """The operand that represents the number, as an element of `dtype`, in an operation on
        tensors.
        """
        return self.arithmetic.operand(self, dtype)

    def __neg__(self) -> SymbolicNumber:
        return self.arithmetic.compute(_negative, self, 0)

    def __pos__(self) -> SymbolicNumber:
        return self

    def __abs__(self) -> SymbolicNumber:
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

    def __round__(self, digits: SupportsIndex | None = None) -> float:
        return round(self.value(), digits)

    def __trunc__(self) -> int:
        return math.trunc(self.value())

    def __floor__(self) -> int:
        return math.floor(self.value())

    def __ceil__(self) -> int:
        return math.ceil(self.value())

    def __divmod__(self, other: float) -> tuple[float, float]:
        return divmod(self.value(), other)

    def __rdivmod__(self, other: float) -> tuple[float, float]:
        return divmod(other, self.value())

    def __getattr__(self, name: str) -> Any:  # other methods of ints and floats
        kind = type(self.arithmetic.values[self.place])
        if not hasattr(kind, name):
            raise AttributeError(f"'{kind.__name__}' object has no attribute {name!r}")
        return getattr(self.value(), name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _itself, (self.value(),)


_WRITTEN_TO = (
    f"{FOLDER}core/symbolic_scalar.py"  # the file that the code of `function` is said to be in
)
_WRITTEN = frozenset((SymbolicFloat, SymbolicNumber))


def _itself(x: T) -> T:
    return x


def _negative(x: float, _: object) -> float:
    return -x


_TEXTS[_negative] = "-a"


def _of_users(function: Callable[[Any, Any], Any], reflected: bool) -> Callable[[Any, Any], Any]:
    def method(self: SymbolicNumber, other: object) -> object:
        if type(other) not in (int, float, bool, SymbolicNumber):
            return NotImplemented
        pair = (other, self) if reflected else (self, other)
        return self.arithmetic.compute(function, *pair)

    return method


def _compared(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def method(self: SymbolicNumber, other: object) -> object:
        if type(other) not in (int, float, bool, SymbolicNumber):
            return NotImplemented
        return self.arithmetic.decide(function, self, other)

    return method


_ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
for _name in _ARITHMETIC:
    setattr(SymbolicNumber, f"__{_name}__", _of_users(getattr(operator, _name), False))
    setattr(SymbolicNumber, f"__r{_name}__", _of_users(getattr(operator, _name), True))
for _name in _COMPARISONS:
    setattr(SymbolicNumber, f"__{_name}__", _compared(getattr(operator, _name)))

# The functions that steps and decisions on users' numbers may have, by name.
STEPS: dict[str, Callable[[Any, Any], Any]] = {
    **{name: getattr(operator, name) for name in _ARITHMETIC},
    "negative": _negative,
    "absolute": _absolute,
}
DECISIONS: dict[str, Callable[[Any, Any], Any]] = {
    **{name: getattr(operator, name) for name in _COMPARISONS},
    "same": _same,
}
