"""Changes of programs, and what is asked of them: each a function that leaves its program alone."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.spec import prod
from .program import Program, Value

Reshaped = tuple[int, tuple[int, ...]]  # an input, by number, and its other sizes


def without_reshapes(program: Program) -> tuple[Program, list[Reshaped]]:
    """The same computation without reshapes of inputs and of what becomes outputs, which lie in
    memory the same way; and the further inputs that it then has, behind the others.
    """
    place = {x: n for n, x in enumerate(program.inputs)}
    found: dict[Value, Reshaped] = {}
    last: dict[Value, Value] = {}  # what was computed and is reshaped, and what it was before
    for node in program.nodes:
        if node.op.name != "reshape":
            continue
        x, y, sizes = node.inputs[0], node.output, node.op.shape  # type: ignore[attr-defined]
        if x in place:
            found[y] = place[x], sizes
        elif x in found:
            found[y] = found[x][0], sizes
        else:
            last[y] = last.get(x, x)
    outputs = [last.get(y, y) for y in program.outputs]
    read = {x for node in program.nodes if node.outputs[0] not in found for x in node.values}
    read.update(outputs)
    found = {y: reshaped for y, reshaped in found.items() if y in read}
    further = {
        (source, sizes): Value(program.inputs[source].spec.with_(shape=sizes))
        for source, sizes in found.values()
    }
    changes = {y: further[reshaped] for y, reshaped in found.items()}
    bare = Program(program.inputs, program.nodes, outputs)
    return bare.with_inputs(further.values(), changes), list(further)


def unused_inputs(program: Program) -> set[int]:
    """The inputs that nothing is computed from, by number."""
    used = {*program.outputs, *(x for node in program.nodes for x in node.values)}
    return {n for n, x in enumerate(program.inputs) if x not in used}


def drawn(program: Program) -> list[Value]:
    """What is drawn at random: kept for a gradient, since to draw it again would take longer than
    to read it.
    """
    return [y for node in program.nodes if node.op.drawn for y in node.outputs]


def small(program: Program, results: Sequence[Value], share: int, least: int) -> list[Value]:
    """Values of `program` that come from something large, are `share` times smaller than its
    largest input, and `results`, which another program computes from them, need: statistics of
    rows, say. None where all inputs are smaller than `least`.
    """
    largest = max((prod(x.shape) for x in program.inputs), default=0)
    if largest < least:
        return []

    def is_small(x: Value) -> bool:
        return prod(x.shape) * share <= largest

    made = {y for node in program.nodes for y in node.outputs}
    found: set[Value] = set()
    seen: set[Value] = set()
    stack = list(results)
    while stack:
        x = stack.pop()
        if x in seen:
            continue
        seen.add(x)
        if x in made and is_small(x) and not all(map(is_small, program.needed([x]))):
            found.add(x)
        elif x.node is not None:
            stack.extend(x.node.values)
    return [y for node in program.nodes for y in node.outputs if y in found]
