"""Functional passes and queries on programs; none changes the program it is given."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.spec import prod
from .program import Program, Value

Reshaped = tuple[int, tuple[int, ...]]  # an input, by number, and its other sizes


def without_reshapes(program: Program) -> tuple[Program, list[Reshaped]]:
    """A program for an equal computation without reshapes of inputs and outputs, which do not move
    memory; and the additional inputs (reshaped ones) that it has after the others.
    """
    place = {x: n for n, x in enumerate(program.inputs)}
    views: dict[Value, Reshaped] = {}
    last: dict[Value, Value] = {}  # reshaped value -> the computed value that it reshapes
    for node in program.nodes:
        if node.op.name != "reshape":
            continue
        x, y, sizes = node.inputs[0], node.output, node.op.shape  # type: ignore[attr-defined]
        if x in place:
            views[y] = place[x], sizes
        elif x in views:
            views[y] = views[x][0], sizes
        else:
            last[y] = last.get(x, x)
    outputs = [last.get(y, y) for y in program.outputs]
    read = {x for node in program.nodes if node.outputs[0] not in views for x in node.values}
    read.update(outputs)
    views = {y: reshaped for y, reshaped in views.items() if y in read}
    further = {
        (source, sizes): Value(program.inputs[source].spec.with_(shape=sizes))
        for source, sizes in views.values()
    }
    changes = {y: further[reshaped] for y, reshaped in views.items()}
    bare = Program(program.inputs, program.nodes, outputs)
    return bare.with_inputs(further.values(), changes), list(further)


def unused_inputs(program: Program) -> set[int]:
    """Indices of the inputs that no node or output uses."""
    used = {*program.outputs, *(x for node in program.nodes for x in node.values)}
    return {n for n, x in enumerate(program.inputs) if x not in used}


def drawn(program: Program) -> list[Value]:
    """Random values of a program. They are saved for the gradient, since drawing them again would
    take longer than reading them.
    """
    return [y for node in program.nodes if node.op.drawn for y in node.outputs]


def small(program: Program, results: Sequence[Value], share: int, least: int) -> list[Value]:
    """Small intermediate values worth saving, such as statistics of rows: values of `program` that
    come from something large, are `share` times smaller than its largest input, and are needed by
    `results`, which another program computes. Empty if all inputs are smaller than `least`.
    """
    largest = max((prod(x.shape) for x in program.inputs), default=0)
    if largest < least:
        return []

    def is_small(x: Value) -> bool:
        return prod(x.shape) * share <= largest

    made = {y for node in program.nodes for y in node.outputs}
    worthwhile: set[Value] = set()
    seen: set[Value] = set()
    stack = list(results)
    while stack:
        x = stack.pop()
        if x in seen:
            continue
        seen.add(x)
        if x in made and is_small(x) and not all(map(is_small, program.needed([x]))):
            worthwhile.add(x)
        elif x.node is not None:
            stack.extend(x.node.values)
    return [y for node in program.nodes for y in node.outputs if y in worthwhile]
