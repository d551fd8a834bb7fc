"""Buffer donation: results are written over values that nothing reads afterwards."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ...ir.program import Value
from .steps import Step


def overwritten(
    steps: Sequence[Step],
    model: dict[Value, Any],
    roots: dict[Value, Value],
    placed: Collection[Value],
    outputs: Collection[Value],
) -> dict[Value, Value]:
    """For each result, in order, the value that donates its memory: one that the result's step is
    the last to read, and reads element by element as it writes. Fewer cache lines are touched, and
    less memory is needed. Where a result is `placed` in memory from outside that no other value
    shows, such a value takes that memory instead, if all its users know it by address: a sum is
    accumulated where it is to be in the end.

    Measured for products of two arrays in a chain, 12,288 to 1,048,576 float32: 0.6 to 0.8 of the
    processor time. `model` has arrays with the layout that values will have, `roots` says whose
    memory a value has; both are updated.
    """
    last = {
        roots.get(x, x): i for i, step in enumerate(steps) for x in (*step.outputs, *step.values)
    }
    last.update((roots.get(y, y), len(steps)) for y in outputs)
    own = {y for step in steps for y in step.outputs if y not in roots and y not in placed}
    donors: dict[Value, Value] = {}
    home: dict[Value, Value] = {}
    first: dict[Value, Value] = {}  # values that lie where a result is placed
    users: dict[Value, list[Step]] = {}  # steps that use a value's memory, through any value
    for step in steps:
        for x in (*step.values, *step.outputs):
            users.setdefault(roots.get(x, x), []).append(step)
    for i, step in enumerate(steps):
        for y in step.outputs:
            if y not in own and y not in placed:
                continue
            for x in step.values:
                root = home.get(x, x)
                if x not in own or root in first or last[root] != i:
                    continue
                if not (_lie_alike(x, y, model) and step.overwrites(y, x, model)):
                    continue
                if y in own:
                    donors[y], home[y], last[root] = x, root, last[y]
                    model[y] = model[x]
                    users[root] += users[y]
                    break
                if _is_apart(y, placed, model) and all(
                    each.by_address(model) for each in users[root]
                ):
                    first[root] = y
                    break
    home = {x: first.get(root, root) for x, root in home.items()} | first
    roots.update(home)
    roots.update((x, home[root]) for x, root in roots.items() if root in home)
    return first | donors


def _is_apart(y: Value, placed: Collection[Value], model: Mapping[Value, Any]) -> bool:
    """Whether no other placed value shares the memory of `y`."""
    return not any(x is not y and np.may_share_memory(model[x], model[y]) for x in placed)


def _lie_alike(x: Value, y: Value, model: Mapping[Value, Any]) -> bool:
    a, b = model[x], model[y]
    return x.spec == y.spec and bool(a.size) and a.strides == b.strides
