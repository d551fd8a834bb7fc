"""Numbers of Python's in files: those that a function sets, and what it computes of them.

    of a file, "numbers"     ("number", name, value), or ("option", optimizer, group, name, whole):
                             an option of an optimizer, which holds the value itself
    of a program, "numbers"  "given": which of them it is given, by their places
                             "values": of everything in order: ("given",), ("constant", value), or
                             (step, a, b), a step's name and the places of values before
                             "decisions": (name, a, b, outcome), which each call must agree with
                             "inputs": values that are the program's arguments, with dtypes
                             "options", "results": values that are options, and are returned
                             "left": which numbers of the file are to hold which values afterwards

Steps and decisions are those of `core/scalar.py`, by name. Loaded, numbers stay within `MAX_BITS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ..compiled.places import Operands, array_of
from ..core.dtype import dtype
from ..core.errors import AdjointError, CheckpointError, Unsupported
from ..core.scalar import DECISIONS, STEPS, Number, Numbers
from ..core.spec import Spec
from ..eager.tensors import wrap
from ..io.ops import checked
from .checks import checked_list, short

MAX_BITS = 1 << 12  # of a number: a file may square them again and again
MAX_VALUES = 1 << 14  # of a program
_NAMES = {function: name for table in (STEPS, DECISIONS) for name, function in table.items()}
_PLAIN = (bool, int, float)


def _is_number(x: Any) -> bool:
    """Whether it is a real one that is not too large."""
    return type(x) in _PLAIN and not (type(x) is int and x.bit_length() > MAX_BITS)


# ---- writing -------------------------------------------------------------------------------------


def written_numbers(
    operands: Operands, given: Sequence[int], results: Sequence[Number],
    left: Sequence[tuple[int, Any]],
) -> dict[str, Any]:  # fmt: skip
    """What a program computes of the numbers of a file: it is `given` some of them, and has `left`
    values (numbers of its own, or constants) for some.

    Errors: Unsupported for what no file can hold.
    """
    arithmetic = operands.arithmetic
    steps = {place: (function, a, b) for function, a, b, place in arithmetic.steps}
    own = set(arithmetic.given)
    values: list[tuple[Any, ...]] = []
    for place, value in enumerate(arithmetic.values):
        if place in own:
            values.append(("given",))
        elif place in steps:
            function, a, b = steps[place]
            values.append((_name(function), a, b))
        else:
            values.append(("constant", _stored(value)))
    if len(values) > MAX_VALUES - len(left):
        raise Unsupported(f"export: more than {MAX_VALUES} numbers are computed in a call")
    ends = []
    for n, x in left:
        if type(x) is not Number:
            values.append(("constant", _stored(x)))
        ends.append((n, x.place if type(x) is Number else len(values) - 1))
    return {
        "given": list(given),
        "values": values,
        "decisions": [(_name(f), a, b, outcome) for f, a, b, outcome in arithmetic.decisions],
        "inputs": [(x.place, to) for x, to, _ in operands.given],
        "options": [x.place for x in operands.options_given],
        "results": [x.place for x in results],
        "left": ends,
    }


def _name(function: Callable[..., Any]) -> str:
    if function not in _NAMES:
        raise Unsupported(f"export: a number that is computed by {function!r}, which no file holds")
    return _NAMES[function]


def _stored(x: Any) -> Any:
    if not _is_number(x):
        raise Unsupported(f"export: a number is computed with {x!r:.80}, which no file can hold")
    return x


# ---- numbers of a file ---------------------------------------------------------------------------


class Held(NamedTuple):
    """A number of a file: the entry of a dict that holds it, and its type."""

    holder: dict[str, Any]
    key: str
    kind: type
    option: tuple[int, int] | None  # of which optimizer, and group

    def __str__(self) -> str:
        return self.key if self.option is None else f"the option {self.key} of an optimizer"

    def now(self) -> Any:
        """Its value.

        Errors: Unsupported for what is no such number.
        """
        value: Any = self.holder.get(self.key)
        if self.kind is float and type(value) is int:
            return float(value)
        if type(value) is not self.kind or not _is_number(value):
            raise Unsupported(
                f"export: {self} is {value!r:.80}, and was {_A[self.kind]} when it was exported"
            )
        return value

    def written(self) -> tuple[Any, ...]:
        """What stands for it in a file."""
        value = self.now()
        if self.option is None:
            return "number", self.key, value
        return "option", *self.option, self.key, self.kind is int


_A = {int: "an int", float: "a float"}


def read_numbers(found: Any, optimizers: Sequence[Any]) -> list[Held]:
    """The numbers of a file, those in options of its optimizers among them.

    Errors: CheckpointError for what is none.
    """
    own: dict[str, Any] = {}
    held = []
    for kind, *parts in checked_list(found):
        if kind == "number":
            name, value = parts
            own[short(name)] = checked(value, int | float)
            held.append(Held(own, name, type(value), None))
        elif kind == "option":
            n, g, name, whole = parts
            groups = optimizers[_place(n, len(optimizers))].param_groups
            group = groups[_place(g, len(groups))]
            if name == "params" or type(group.get(short(name))) not in (int, float):
                raise CheckpointError(f"there is no number in the option {name!r:.40}")
            held.append(Held(group, name, int if checked(whole, bool) else float, (n, g)))
        else:
            raise CheckpointError(f"{kind!r:.40} is no kind of number")
        held[-1].now()
    if len({(id(each.holder), each.key) for each in held}) < len(held):
        raise CheckpointError("a number is there twice")
    return held


# ---- what a program computes of them -------------------------------------------------------------


class Computed:
    """The numbers of one program."""

    def __init__(self, found: dict[str, Any], held: Sequence[Held]) -> None:
        """Errors: CheckpointError for what cannot have been written."""
        self._given = [held[_place(n, len(held))] for n in checked_list(found["given"])]
        self.arithmetic = arithmetic = Numbers(_nowhere)
        if len(checked_list(found["values"])) > MAX_VALUES:
            raise CheckpointError(f"it computes more than {MAX_VALUES} numbers")
        for kind, *parts in found["values"]:
            place = len(arithmetic.values)
            value: Any = 0
            if kind == "given":
                () = parts
                arithmetic.given.append(place)
            elif kind == "constant":
                value = _constant(*parts)
            else:
                a, b = parts
                arithmetic.steps.append(
                    (_known(_STEPS, kind), _place(a, place), _place(b, place), place)
                )
            arithmetic.values.append(value)
        for kind, a, b, outcome in checked_list(found["decisions"]):
            arithmetic.decisions.append(
                (_known(DECISIONS, kind), self._value(a), self._value(b), checked(outcome, bool))
            )
        if len(arithmetic.given) != len(self._given):
            raise CheckpointError("it is given other numbers")
        inputs = [(self._value(n), checked(to, dtype)) for n, to in checked_list(found["inputs"])]
        self._dtypes = [to for _, to in inputs]
        self.specs = [Spec((), to) for to in self._dtypes]
        options = [self._value(n) for n in checked_list(found["options"])]
        results = [self._value(n) for n in checked_list(found["results"])]
        left = [(_place(n, len(held)), self._value(k)) for n, k in checked_list(found["left"])]
        if len({n for n, _ in left}) < len(left):
            raise CheckpointError("it sets a number twice")
        self._left = [held[n] for n, _ in left]
        self.options = len(options)  # how many
        self.results = [Number(arithmetic, place) for place in results]
        places = [*(n for n, _ in inputs), *options, *results, *(k for _, k in left)]
        self._run = arithmetic.function([Number(arithmetic, place) for place in places])

    def _value(self, n: Any) -> int:
        return _place(n, len(self.arithmetic.values))

    def of_a_call(self, name: str) -> tuple[list[Any], Sequence[Any], Sequence[Any]]:
        """The program's arguments; its options and returned numbers; what numbers are to hold.

        Errors: Unsupported where the program of `name` would take another way, or numbers are of
        other types.
        """
        given = [each.now() for each in self._given]
        found = self._run(*given)
        if found is None:
            raise Unsupported(f"export: {name}: {self._difference(given)}")
        first = len(self._dtypes)
        last = len(found) - len(self._left)
        for each, value in zip(self._left, found[last:], strict=True):
            if type(value) is not each.kind:
                raise Unsupported(
                    f"export: {name} would set {each} to {value!r:.40}, where it was "
                    f"{_A[each.kind]}; nothing was changed: let it be of one type"
                )
        arrays = [wrap(_array(x, to)) for x, to in zip(found, self._dtypes, strict=False)]
        return arrays, found[first:last], found[last:]

    def set(self, values: Sequence[Any]) -> None:
        """Let the numbers that the program sets hold these."""
        for each, value in zip(self._left, values, strict=True):
            each.holder[each.key] = value

    def _difference(self, given: Sequence[Any]) -> str:
        """Why the program does not stand for these numbers, in words."""
        arithmetic = self.arithmetic
        values = list(arithmetic.values)
        behind: list[frozenset[int]] = [frozenset()] * len(values)  # which numbers decide on each
        for n, (place, value) in enumerate(zip(arithmetic.given, given, strict=True)):
            values[place], behind[place] = value, frozenset((n,))
        for function, a, b, place in arithmetic.steps:
            behind[place] = behind[a] | behind[b]
            try:
                values[place] = function(values[a], values[b])
            except (ArithmeticError, ValueError) as error:
                names = self._named(behind[place], given)
                return (
                    f"a number that its Python computes of {names} has no value, or goes another "
                    f"way: {error}; nothing was changed: set the number in `numbers` to another one"
                )
        for function, a, b, outcome in arithmetic.decisions:
            if function(values[a], values[b]) is not outcome:
                names = self._named(behind[a] | behind[b], given)
                sign = _SIGNS.get(_NAMES[function], "is")
                return (
                    f"its Python goes another way for {names} than the one that was exported "
                    f"({values[a]!r:.40} {sign} {values[b]!r:.40} was {outcome} then); nothing was "
                    "changed: set the number in `numbers` to one that goes that way, or let the "
                    "function decide by tensors (where()), or not at all, and export it again"
                )
        return "its numbers have no values"

    def _named(self, numbers: Iterable[int], given: Sequence[Any]) -> str:
        """Numbers that it was given, with their values."""
        found = [f"{self._given[n]} ({given[n]!r:.40})" for n in sorted(numbers)]
        return ", ".join(found) or "constants"


_SIGNS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}


def _limited(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The same for numbers that are not too large, to real ones that are not."""

    def limited(a: Any, b: Any) -> Any:
        powers = function is STEPS["pow"] and type(a) is int and type(b) is int
        if powers and a.bit_length() * b > MAX_BITS:
            raise OverflowError("it is too large")
        found = function(a, b)
        if not _is_number(found):
            raise ValueError("it is too large, or no real number")
        return found

    return limited


_STEPS = {name: _limited(function) for name, function in STEPS.items()}


def _array(x: Any, to: dtype) -> Any:
    try:
        return array_of(x, to)
    except AdjointError:
        raise
    except (ArithmeticError, TypeError, ValueError) as error:
        raise Unsupported(f"export: {x!r:.40} is no {to}: {error}") from error


def _nowhere(x: Number, to: Any) -> Any:
    raise CheckpointError("a number meets a tensor, of which there is none")


def _known(table: dict[str, Any], name: Any) -> Any:
    if type(name) is not str or name not in table:
        raise CheckpointError(f"{name!r:.40} computes no number")
    return table[name]


def _constant(x: Any) -> Any:
    if not _is_number(x):
        raise CheckpointError(f"{x!r:.40} is no number")
    return x


def _place(n: Any, count: int) -> int:
    if type(n) is not int or not 0 <= n < count:
        raise CheckpointError(f"there is no number {n!r:.40}")
    return n
