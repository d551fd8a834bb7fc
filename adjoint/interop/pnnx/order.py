"""The operators of a file in an order in which each can be computed."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from ...core.errors import CheckpointError
from .text import Operator


def sorted_operators(operators: Sequence[Operator]) -> list[Operator]:
    """Producers before consumers, and otherwise the order of the file.

    Errors: CheckpointError for an operand that is written twice or by nobody, and for a cycle, of
    which it names the path.
    """
    made: dict[str, int] = {}
    for i, op in enumerate(operators):
        for name in op.outputs:
            if name in made:
                raise CheckpointError(
                    f"operand {name[:80]!r} is written by {operators[made[name]].label} and by "
                    f"{op.label}"
                )
            made[name] = i
    users: list[list[int]] = [[] for _ in operators]
    waiting = [0] * len(operators)
    for i, op in enumerate(operators):
        for name in set(op.inputs):
            if name not in made:
                raise CheckpointError(
                    f"operator {op.label} reads operand {name[:80]!r}, which no operator writes"
                )
            users[made[name]].append(i)
            waiting[i] += 1
    ready = [i for i, count in enumerate(waiting) if not count]
    order = []
    while ready:
        i = heapq.heappop(ready)
        order.append(operators[i])
        for user in users[i]:
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, user)
    if len(order) < len(operators):
        raise CheckpointError(f"a cycle: {_cycle(operators, made, waiting)}")
    return order


def _cycle(operators: Sequence[Operator], made: dict[str, int], waiting: list[int]) -> str:
    """A path from an operator back to itself, through operators that still wait."""
    path = [next(i for i, count in enumerate(waiting) if count)]
    seen = {path[0]: 0}
    while True:
        before = next(made[n] for n in operators[path[-1]].inputs if waiting[made[n]])
        if before in seen:
            loop = [operators[i].name[:40] for i in (*path[seen[before] :], before)][::-1]
            shown = loop if len(loop) <= 8 else [*loop[:7], "...", loop[-1]]
            return " -> ".join(shown)
        seen[before] = len(path)
        path.append(before)
