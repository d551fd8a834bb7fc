"""Places in an index that are numbers of a capture: `x[i]` and `x[i : i + 4]`, where `i` comes with
each run of the program, or `x[i]` with a tensor that it computes. Shapes are known, where the part
begins is not.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any, cast

from ...core import dtype as dt
from ...core.errors import InvalidType, Unsupported
from ...core.mode import MODE
from ...core.op import Op
from ...core.symbolic_scalar import SymbolicNumber
from ...core.symbolic_sizes import is_size
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...runtime.lazy import LazyValue
from ...runtime.public import FUNCTIONS
from ...runtime.tensors import wrap
from ...runtime.writes import values_of

__all__: list[str] = []


class NumberPlace:
    """An item of a basic index that begins at a number of a capture, which is in range and not
    negative. What an op computes with it holds for the number's value now alone: the program has
    other ops in its place (`compiler/capture/number_indices.py`).
    """

    __slots__ = ("count", "number", "step", "symbol")

    number: SymbolicNumber | None  # None for a tensor's, which the program looks at
    count: int | None  # of the elements; None for an index, whose dimension goes
    step: int
    symbol: LazyValue  # the recorded value that stands for the number

    def __init__(
        self, number: SymbolicNumber | None, count: int | None = None, step: int = 1,
        symbol: LazyValue | None = None,
    ) -> None:  # fmt: skip
        self.number, self.count, self.step = number, count, step
        if number is not None:
            symbol = number.operand(dt.int64)._data
        assert symbol is not None
        self.symbol = symbol

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NumberPlace):
            return NotImplemented
        same = self.symbol is other.symbol
        if self.number is not None and other.number is not None:
            same = self.number.place == other.number.place
        return same and (self.count, self.step) == (other.count, other.step)

    def __hash__(self) -> int:
        raise InvalidType("unhashable: a place that is not known yet")  # no table is to keep it

    def __repr__(self) -> str:
        return "<from a tensor>" if self.number is None else f"<from number {self.number.place}>"

    @property
    def negative(self) -> bool:
        """Whether the number may count from the end: a tensor's, which nothing was added to."""
        return self.number is None and self.count is None

    @property
    def now(self) -> Any:
        """The item for the number's value now, on which nothing comes to depend. A tensor's value
        is not known: what is asked of the item, a shape or how memory lies, is the same at 0.
        """
        start = 0 if self.number is None else self.number.arithmetic.values[self.number.place]
        return item_from(start, self.count, self.step)


def item_from(start: int, count: int | None, step: int) -> int | tuple[int, int, int]:
    """The item of `count` elements from a place on; of the place itself where that is None."""
    return start if count is None else (start, start + max((count - 1) * step + 1, 0), step)


def numbers_of(op: Op) -> list[NumberPlace]:
    """The places of an op that indexes by numbers of a capture."""
    own = [item for item in getattr(op, "items", ()) if type(item) is NumberPlace]
    return [*own, *(item for each in getattr(op, "ops", ()) for item in numbers_of(each))]


def has_numbers(op: Any) -> bool:
    """Whether an op indexes by numbers of a capture."""
    return bool(numbers_of(op))


def settle_numbers(ops: Iterable[Any]) -> None:
    """Read the numbers by which these ops index; the capture then holds for their values alone.

    Errors: Unsupported for the number of a tensor.
    """
    for item in (item for op in ops for item in numbers_of(op)):
        if item.number is None:
            raise Unsupported(
                "compile: the function reads a value: where the view that a tensor's number "
                "selects begins; take its clone(), or index_select"
            )
        item.number.value()


def number_of(x: Tensor) -> int | NumberPlace:
    """The value of an integer tensor without dimensions; in a capture that does not know it, the
    place that it is in an index.

    Errors: those of reading a value, where such places are not followed.
    """
    executor = MODE.get().executor
    if not getattr(executor, "follows_tensors", False):
        return int(values_of(x).item())
    known_values = getattr(executor, "known_values", None)
    array = None if known_values is None else known_values(x)
    if known_values is None:  # a body's, which knows none from outside
        executor.meet(x)  # type: ignore[union-attr]
        array = getattr(x._data, "array", x._data)
    if array is not None:
        return int(array)
    return NumberPlace(None, symbol=FUNCTIONS["add"](x.long(), 0).reshape(())._data)


def is_followed(x: object, size: object) -> bool:
    """Whether an index or the end of a slice, in a dimension of a size, may stay a number of the
    capture that is going on.
    """
    if type(x) is not SymbolicNumber or is_size(x) or type(size) is not int:
        return False
    is_int = x.__class__ is int
    return is_int and bool(getattr(MODE.get().executor, "follows_numbers", False))


def as_place(x: Any, size: Any) -> Any:
    """An index as an int, or as the number of a capture that it is."""
    return x if is_followed(x, size) else operator.index(x)


def as_index(x: Any, size: Any) -> Any:
    """`as_place`, of what may be a tensor of one number; then it may be a `NumberPlace`."""
    if isinstance(x, TensorBase) and x._data.size == 1 and x._data.dtype.kind in "iu":
        return number_of(cast("Tensor", x))
    return as_place(x, size)


def item_at(place: Any, size: Any) -> Any:
    """The item of an index that is in range, and may be negative."""
    place = place + size if place < 0 else place
    return NumberPlace(place) if type(place) is SymbolicNumber else place


def part_of_tensor(first: NumberPlace, length: int, size: int) -> NumberPlace:
    """The item of so many elements from a tensor's number on; the program looks whether they are
    in range.
    """
    start = wrap(first.symbol)
    return NumberPlace(
        None, length, symbol=FUNCTIONS["where"](start < 0, start + size, start)._data
    )


def part_from(first: Any, length: int) -> Any:
    """The item of so many elements from a place on, which is in range."""
    if type(first) is SymbolicNumber:
        return NumberPlace(first, length)
    return first, first + length, 1


def slice_at(part: slice, size: Any) -> Any:
    """The item of a slice with a step that is not negative, of which an end is a number of the
    capture; None for others. How many elements it has is read.
    """
    if not (is_followed(part.start, size) or is_followed(part.stop, size)):
        return None
    step = 1 if part.step is None else operator.index(part.step)
    if step <= 0:
        return None
    start = 0 if part.start is None else _within(part.start, size)
    stop = size if part.stop is None else _within(part.stop, size)
    span = max(_distance(start, stop), 0)
    if type(start) is not SymbolicNumber:
        return start, start + span, step
    return NumberPlace(start, -(-span // step), step) if span else (0, 0, step)


def _distance(start: Any, stop: Any) -> int:
    """`stop - start`: of numbers that are the same one but for what is added to it without a look
    at their values; otherwise it is read.
    """
    if type(start) is type(stop) is SymbolicNumber:
        (root, first), (other, last) = _shifted(start), _shifted(stop)
        if root == other:
            return last - first
    return operator.index(stop - start)


def _shifted(x: SymbolicNumber) -> tuple[int, int]:
    """The place of the number that `x` is made of by adding constants, and their sum."""
    graph = x.arithmetic
    steps = {place: (function, a, b) for function, a, b, place in graph.steps}
    computed = {*steps, *graph.given}
    place, shift = x.place, 0
    while place in steps:
        function, a, b = steps[place]
        if function is operator.add and a not in computed:
            a, b = b, a
        if function not in (operator.add, operator.sub) or b in computed or a not in computed:
            break
        more = graph.values[b]
        if type(more) is not int:
            break
        shift += more if function is operator.add else -more
        place = a
    return place, shift


def _within(end: Any, size: int) -> Any:
    place = as_place(end, size)
    if place < 0:
        place = place + size
        return 0 if place < 0 else place
    return size if place > size else place
