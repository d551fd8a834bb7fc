"""Python numbers in files: numbers that a function sets, and its computations on them.

    of a file, "numbers"     ("number", name, value), or ("option", optimizer, group, name, whole):
                             an option of an optimizer, which holds the value itself
    of a program, "numbers"  "given": indices of the numbers that are its inputs
                             "values": all values in order: ("given",), ("constant", value), or
                             (step, a, b), a step's name and the indices of earlier values
                             "decisions": (name, a, b, outcome), which each call must agree with
                             "inputs": values that are the program's arguments, with dtypes
                             "options", "results": values that are options, or are returned
                             "left": pairs of a number of the file and its value afterwards

Steps and decisions are those of `core/symbolic_scalar.py`, by name. Loaded, numbers stay within
`MAX_BITS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ...core.dtype import dtype
from ...core.errors import AdjointError, CheckpointError, Unsupported
from ...core.spec import Spec
from ...core.symbolic_scalar import DECISIONS, STEPS, NumberGraph, SymbolicNumber
from ...io.stored_ops import checked
from ...runtime.tensors import wrap
from ..capture.lifted_state import ScalarInputs, array_of
from .file_checks import checked_list, short

MAX_BITS = 1 << 12  # of a number, since a file may square numbers repeatedly
MAX_VALUES = 1 << 14  # of a program
_NAMES = {function: name for table in (STEPS, DECISIONS) for name, function in table.items()}
_PLAIN = (bool, int, float)


def _is_number(x: object) -> bool:
    """Whether a value is a real number of bounded size."""
    return type(x) in _PLAIN and not (type(x) is int and x.bit_length() > MAX_BITS)


# ---- writing -------------------------------------------------------------------------------------


def written_numbers(
    operands: ScalarInputs, given: Sequence[int], results: Sequence[SymbolicNumber],
    left: Sequence[tuple[int, Any]],
) -> dict[str, Any]:  # fmt: skip
    """Serialize a program's computations on numbers. `given` are indices of the file's numbers that
    are its inputs; `left` are pairs of such an index and the value (a number, or a constant) that
    it holds afterwards.

    Errors: Unsupported for a computation that no file can hold.
    """
    arithmetic = operands.arithmetic
    steps = {index: (function, a, b) for function, a, b, index in arithmetic.steps}
    own = set(arithmetic.given)
    values: list[tuple[Any, ...]] = []
    for index, value in enumerate(arithmetic.values):
        if index in own:
            values.append(("given",))
        elif index in steps:
            function, a, b = steps[index]
            values.append((_name(function), a, b))
        else:
            values.append(("constant", _stored(value)))
    if len(values) > MAX_VALUES - len(left):
        raise Unsupported(f"export: more than {MAX_VALUES} numbers are computed in a call")
    ends = []
    for n, x in left:
        if type(x) is not SymbolicNumber:
            values.append(("constant", _stored(x)))
        ends.append((n, x.place if type(x) is SymbolicNumber else len(values) - 1))
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


def _stored(x: object) -> object:
    if not _is_number(x):
        raise Unsupported(f"export: a number is computed with {x!r:.80}, which no file can hold")
    return x


# ---- numbers of a file ---------------------------------------------------------------------------


class NumberSlot(NamedTuple):
    """A number of a file: the dict entry that holds it, and its type."""

    holder: dict[str, Any]
    key: str
    kind: type
    option: tuple[int, int] | None  # numbers of the optimizer and of the group, if an option

    def __str__(self) -> str:
        return self.key if self.option is None else f"the option {self.key} of an optimizer"

    def now(self) -> Any:
        """The present value.

        Errors: Unsupported if it is no number of the type any more.
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
        """Serialize the number."""
        value = self.now()
        if self.option is None:
            return "number", self.key, value
        return "option", *self.option, self.key, self.kind is int


_A = {int: "an int", float: "a float"}


def read_numbers(entries: object, optimizers: Sequence[Any]) -> list[NumberSlot]:
    """Deserialize the numbers of a file, including those in options of its optimizers.

    Errors: CheckpointError for an invalid entry.
    """
    own: dict[str, Any] = {}
    numbers = []
    for kind, *parts in checked_list(entries):
        if kind == "number":
            name, value = parts
            own[short(name)] = checked(value, int | float)
            numbers.append(NumberSlot(own, name, type(value), None))
        elif kind == "option":
            n, g, name, whole = parts
            groups = optimizers[_place(n, len(optimizers))].param_groups
            group = groups[_place(g, len(groups))]
            if name == "params" or type(group.get(short(name))) not in (int, float):
                raise CheckpointError(f"there is no number in the option {name!r:.40}")
            numbers.append(NumberSlot(group, name, int if checked(whole, bool) else float, (n, g)))
        else:
            raise CheckpointError(f"{kind!r:.40} is no kind of number")
        numbers[-1].now()
    if len({(id(each.holder), each.key) for each in numbers}) < len(numbers):
        raise CheckpointError("a number is there twice")
    return numbers


# ---- computations of a program -------------------------------------------------------------------


class Computed:
    """The computations of one program on numbers."""

    def __init__(self, content: dict[str, Any], numbers: Sequence[NumberSlot]) -> None:
        """Errors: CheckpointError for an invalid content."""
        self._given = [numbers[_place(n, len(numbers))] for n in checked_list(content["given"])]
        self.arithmetic = arithmetic = NumberGraph(_nowhere)
        if len(checked_list(content["values"])) > MAX_VALUES:
            raise CheckpointError(f"it computes more than {MAX_VALUES} numbers")
        for kind, *parts in content["values"]:
            index = len(arithmetic.values)
            value: Any = 0
            if kind == "given":
                () = parts
                arithmetic.given.append(index)
            elif kind == "constant":
                value = _constant(*parts)
            else:
                a, b = parts
                arithmetic.steps.append(
                    (_known(_STEPS, kind), _place(a, index), _place(b, index), index)
                )
            arithmetic.values.append(value)
        for kind, a, b, outcome in checked_list(content["decisions"]):
            arithmetic.decisions.append(
                (_known(DECISIONS, kind), self._value(a), self._value(b), checked(outcome, bool))
            )
        if len(arithmetic.given) != len(self._given):
            raise CheckpointError("it is given other numbers")
        inputs = [(self._value(n), checked(to, dtype)) for n, to in checked_list(content["inputs"])]
        self._dtypes = [to for _, to in inputs]
        self.specs = [Spec((), to) for to in self._dtypes]
        options = [self._value(n) for n in checked_list(content["options"])]
        results = [self._value(n) for n in checked_list(content["results"])]
        left = [(_place(n, len(numbers)), self._value(k)) for n, k in checked_list(content["left"])]
        if len({n for n, _ in left}) < len(left):
            raise CheckpointError("it sets a number twice")
        self._left = [numbers[n] for n, _ in left]
        self.options = len(options)  # their count
        self.results = [SymbolicNumber(arithmetic, index) for index in results]
        indices = [*(n for n, _ in inputs), *options, *results, *(k for _, k in left)]
        self._run = arithmetic.function([SymbolicNumber(arithmetic, index) for index in indices])

    def _value(self, n: object) -> int:
        return _place(n, len(self.arithmetic.values))

    def of_a_call(self, name: str) -> tuple[list[Any], Sequence[Any], Sequence[Any]]:
        """Compute the numbers of a call: the program's scalar arguments, its options and returned
        numbers, and the values that numbers are to hold afterwards.

        Errors: Unsupported where a decision of the program `name` differs, or numbers have other
        types.
        """
        inputs = [each.now() for each in self._given]
        computed = self._run(*inputs)
        if computed is None:
            raise Unsupported(f"export: {name}: {self._difference(inputs)}")
        first = len(self._dtypes)
        last = len(computed) - len(self._left)
        for each, value in zip(self._left, computed[last:], strict=True):
            if type(value) is not each.kind:
                raise Unsupported(
                    f"export: {name} would set {each} to {value!r:.40}, where it was "
                    f"{_A[each.kind]}; nothing was changed: let it be of one type"
                )
        arrays = [wrap(_array(x, to)) for x, to in zip(computed, self._dtypes, strict=False)]
        return arrays, computed[first:last], computed[last:]

    def set(self, values: Sequence[Any]) -> None:
        """Store new values in the numbers that the program sets."""
        for each, value in zip(self._left, values, strict=True):
            each.holder[each.key] = value

    def _difference(self, inputs: Sequence[Any]) -> str:
        """Reason, in words, why the program does not hold for these numbers."""
        arithmetic = self.arithmetic
        values = list(arithmetic.values)
        sources: list[frozenset[int]] = [frozenset()] * len(values)  # numbers it depends on
        for n, (index, value) in enumerate(zip(arithmetic.given, inputs, strict=True)):
            values[index], sources[index] = value, frozenset((n,))
        for function, a, b, index in arithmetic.steps:
            sources[index] = sources[a] | sources[b]
            try:
                values[index] = function(values[a], values[b])
            except (ArithmeticError, ValueError) as error:
                names = self._named(sources[index], inputs)
                return (
                    f"a number that its Python computes of {names} has no value, or goes another "
                    f"way: {error}; nothing was changed: set the number in `numbers` to another one"
                )
        for function, a, b, outcome in arithmetic.decisions:
            if function(values[a], values[b]) is not outcome:
                names = self._named(sources[a] | sources[b], inputs)
                sign = _SIGNS.get(_NAMES[function], "is")
                return (
                    f"its Python goes another way for {names} than the one that was exported "
                    f"({values[a]!r:.40} {sign} {values[b]!r:.40} was {outcome} then); nothing was "
                    "changed: set the number in `numbers` to one that goes that way, or let the "
                    "function decide by tensors (where()), or not at all, and export it again"
                )
        return "its numbers have no values"

    def _named(self, numbers: Iterable[int], inputs: Sequence[Any]) -> str:
        """Names and values of the numbers with these indices."""
        named = [f"{self._given[n]} ({inputs[n]!r:.40})" for n in sorted(numbers)]
        return ", ".join(named) or "constants"


_SIGNS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}


def _limited(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The function restricted to results that are real numbers of bounded size."""

    def limited(a: Any, b: Any) -> Any:
        powers = function is STEPS["pow"] and type(a) is int and type(b) is int
        if powers and a.bit_length() * b > MAX_BITS:
            raise OverflowError("it is too large")
        result = function(a, b)
        if not _is_number(result):
            raise ValueError("it is too large, or no real number")
        return result

    return limited


_STEPS = {name: _limited(function) for name, function in STEPS.items()}


def _array(x: Any, to: dtype) -> np.ndarray:
    try:
        return array_of(x, to)
    except AdjointError:
        raise
    except (ArithmeticError, TypeError, ValueError) as error:
        raise Unsupported(f"export: {x!r:.40} is no {to}: {error}") from error


def _nowhere(x: SymbolicNumber, to: object) -> NoReturn:
    raise CheckpointError("a number meets a tensor, of which there is none")


def _known(table: dict[str, Any], name: object) -> Any:
    if type(name) is not str or name not in table:
        raise CheckpointError(f"{name!r:.40} computes no number")
    return table[name]


def _constant(x: object) -> object:
    if not _is_number(x):
        raise CheckpointError(f"{x!r:.40} is no number")
    return x


def _place(n: object, count: int) -> int:
    if type(n) is not int or not 0 <= n < count:
        raise CheckpointError(f"there is no number {n!r:.40}")
    return n
