"""Indices that are numbers of a capture, in a program: where an op views, fills or overwrites what
lies at such a place (`ops/index/number_places.py`), ops that take the number as an input do it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.errors import Unsupported
from ...core.op import Op
from ...ir.compute import spec_of
from ...ir.program import Program, Value, make
from ...ops.elementwise.arithmetic import Add
from ...ops.index.advanced import Index, IndexPut, Overwrite
from ...ops.index.number_places import NumberPlace, has_numbers, numbers_of
from ...ops.index.slicing import BasicIndex, Place, basic_index
from ...runtime.lazy import LazyValue
from ...runtime.writes import ViewWrite


def symbols_of(op: Op) -> list[LazyValue]:
    """The recorded values of the numbers by which an op indexes, which it reads besides inputs."""
    return [place.symbol for place in numbers_of(op)]


def take_numbers(program: Program) -> None:
    """Replace the ops of a program that index by numbers of its capture, in place. The last inputs
    of such an op's node are the numbers (`symbols_of`).

    Errors: Unsupported for another op that has such numbers.
    """
    changes: dict[Value, Value] = {}
    taking = _Taking()
    for node in program.renewed(changes):
        places = numbers_of(node.op)
        if not places:
            taking.nodes.append(node)
            continue
        own = len(node.inputs) - len(places)
        for place, number in zip(places, node.inputs[own:], strict=True):
            taking.numbers[id(place.symbol)] = number
        changes[node.output] = taking.of(node.op, node.inputs[:own], node.output)
    program.nodes = taking.nodes
    program.replace(changes)


class _Taking:
    """The nodes of a program that is rewritten, in order."""

    def __init__(self) -> None:
        self.numbers: dict[int, Value] = {}  # by the ids of the recorded values that stand for them
        self.nodes: list[Any] = []

    def of(self, op: Any, inputs: tuple[Any, ...], output: Value) -> Value:
        """The value of an op that has numbers of the capture."""
        if type(op) is BasicIndex:
            return self.read(op.items, inputs[0])[-1]
        if type(op) is Place:
            return self.write(op.items, self.filled(op, output), inputs[0])
        if type(op) is Overwrite:
            return self.write(op.items, *inputs)
        if type(op) is ViewWrite:
            base, value = inputs
            return self.write_view(op.ops, base, value)
        raise Unsupported(f"compile: a number that is an index, in {op.name}")

    def add(self, op: Op, *inputs: Any) -> Value:
        """The value of one node more."""
        node = make(op, *inputs)
        self.nodes.append(node)
        return node.output

    def filled(self, op: Any, output: Value) -> Value:
        """The tensor of one value into which `op`, a Place, puts its input."""
        nothing = np.empty((0, *op.shape[1:]), output.spec.dtype.numpy)
        empty = Value(spec_of(nothing), array=nothing)
        return self.add(Place(((0, 0, 1),), op.shape, op.value), empty)

    def read(self, items: tuple[Any, ...], x: Value) -> list[Value]:
        """The values from `x` to the part that `items` select, which is the last."""
        values = [x]
        whole, places = _apart(items, x.spec.shape)
        if not _is_all(whole, x.spec.shape):
            values.append(self.add(basic_index(whole), x))
        for axis, place in reversed(places):
            op = Index((axis,), place.negative)
            values.append(self.add(op, values[-1], self.index(place)))
        return values

    def index(self, place: NumberPlace) -> Value:
        """The positions of what a place selects along its dimension."""
        number = self.numbers[id(place.symbol)]
        if place.count is None:
            return number
        steps = np.arange(place.count) * place.step
        return self.add(Add(), Value(spec_of(steps), array=steps), number)

    def write(self, items: tuple[Any, ...], x: Value, value: Any) -> Value:
        """`x` with the part that `items` select replaced by a value, which is broadcast."""
        whole, places = _apart(items, x.spec.shape)
        *above, part = self.read(items, x)
        if not isinstance(value, Value) or value.spec != part.spec:
            value = self.add(Overwrite(), part, value)
        for axis, place in places:
            op = IndexPut((axis,), False, place.negative)
            value = self.add(op, above.pop(), self.index(place), value)
        return self.add(Overwrite(whole), above.pop(), value) if above else value

    def write_view(self, ops: tuple[Any, ...], base: Value, value: Value) -> Value:
        """`base` with the part that view ops lead to, one after another, replaced by a value."""
        parts = [base]
        for op in ops[:-1]:
            x = parts[-1]
            parts.append(self.read(op.items, x)[-1] if has_numbers(op) else self.add(op, x))
        for op, x in zip(reversed(ops), reversed(parts), strict=True):
            if has_numbers(op):
                value = self.write(op.items, x, value)
            else:
                value = self.add(ViewWrite((op,)), x, value)
        return value


def _apart(
    items: tuple[Any, ...], shape: tuple[int, ...]
) -> tuple[tuple[Any, ...], list[tuple[int, NumberPlace]]]:
    """The items with whole dimensions instead of places, and the places, each with its dimension in
    what those select.
    """
    whole: list[Any] = []
    places = []
    axis = kept = 0
    for item in items:
        if type(item) is NumberPlace:
            places.append((kept, item))
            whole.append((0, shape[axis], 1))
        else:
            whole.append(item)
        axis += item is not None
        kept += type(item) is not int
    return tuple(whole), places


def _is_all(items: tuple[Any, ...], shape: tuple[int, ...]) -> bool:
    return all(item == (0, size, 1) for item, size in zip(items, shape, strict=False))
