"""Bindings of a program's values to what comes and goes with each call, which are made when the
program is bound to memory.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from ...core.elements import owner
from ...ir.program import Value
from ..capture.step_capture import Update
from .bindings import Bindings, BufferBinding, InputBinding, OutputBinding
from .segment import Segment, is_small

if TYPE_CHECKING:
    from .step import CompiledStep


def bindings_of(
    step: CompiledStep, array_at: dict[Value, Any], targets: dict[Value, Any],
    owned: dict[Value, int], shown: set[Value], calls: Sequence[Any],
) -> Bindings:  # fmt: skip
    """The bindings of a program whose segments are bound to the arrays `array_at`.

    `targets` are arrays that outputs should be written to. `owned` are gradients that are read in
    place, with the numbers of their states, and `shown` values whose arrays are used as objects,
    and not only by their addresses, which `calls` can be told.
    """
    updates = step.captured.effects.updates
    bindings = Bindings()
    fixed = {*shown, *step.results, *step.gradients, *step.written, *step.tangents}
    fixed.update(x for node in updates for x in node.values)
    inputs = [
        InputBinding(array_at[x], () if x in fixed or is_small(x) else calls)
        for x in (*step.arguments, *step.seeds)
    ]
    count = len(step.arguments)
    bindings.arguments, bindings.cotangents = inputs[:count], inputs[count:]
    movable = {x for x, target in targets.items() if array_at.get(x) is target}
    movable = {x for x in movable.difference(shown, step.gradients) if step.tangents.count(x) == 1}
    bindings.tangents = [
        OutputBinding(array_of(array_at, x), calls if x in movable else ()) for x in step.tangents
    ]
    bindings.results = [array_of(array_at, y) for y in step.results]
    _bind_gradients(bindings, step, array_at, owned, shown, [*calls, *step.steps])
    _bind_writes(bindings, step, array_at, set(owned.values()))
    return bindings


def _bind_gradients(
    bindings: Bindings, step: CompiledStep, array_at: dict[Value, Any], owned: dict[Value, int],
    shown: set[Value], calls: Sequence[Any],
) -> None:  # fmt: skip
    """Bind gradients of leaves: those that are read, and those that the function computes, which
    `calls` write where they lie, or which are copied.
    """
    updates = step.captured.effects.updates
    skips = {node.values[-1] for node in updates if cast(Update, node.op).skips}
    apart = _apart(step, array_at, shown, skips)
    bindings.owning = [step.captured.inputs.owners[n] for n in owned.values()]
    bindings.owned = [
        InputBinding(array_at[x], () if is_small(x) or x not in apart else calls) for x in owned
    ]
    for k, (value, home) in enumerate(zip(step.gradients, step.landing.homes, strict=True)):
        if array_at.get(value) is home and value in apart:
            bindings.movers.append((k, BufferBinding(home, calls)))
        else:
            bindings.copies.append((k, array_of(array_at, value)))


def _apart(
    step: CompiledStep, array_at: dict[Value, Any], shown: set[Value], skips: set[Value]
) -> set[Value]:
    """Values whose buffers may change address: all their users know them by address, and no value
    that is used as an array shares their memory.
    """
    fixed = [*step.results, *step.written, *step.tangents, *step.checked, *skips]
    fixed += [x for x, count in collections.Counter(step.gradients).items() if count > 1]
    arrays = [array_at[x] for x in fixed if x in array_at]
    arrays += [array for part in step.parts for pair in part.copies for array in pair]
    owners = {id(owner(array)) for array in arrays}
    moved: dict[int, set[Value]] = {}
    for x in (*step.gradients, *(x for node in step.captured.effects.updates for x in node.values)):
        if x in array_at:
            moved.setdefault(id(owner(array_at[x])), set()).add(x)
    return {
        x
        for x, array in array_at.items()
        if x not in shown and (own := id(owner(array))) not in owners
        and moved.get(own, {x}) == {x}
    }  # fmt: skip


def _bind_writes(
    bindings: Bindings, step: CompiledStep, array_at: dict[Value, Any], gradients: set[int]
) -> None:
    """Bind new values of states, arguments and `gradients`, which are numbers of states."""
    captured = step.captured
    states, added, arguments = [], [], []
    for n, y in zip(captured.effects.written, step.written, strict=True):
        if y in step.after:
            continue
        array = array_of(array_at, y)
        if n < 0:
            arguments.append((~n, False, array))
        elif n in gradients:
            added.append((captured.inputs.owners[n], True, array))
        else:
            states.append((step.state(n), False, array))
    bindings.writes = [*states, *added, *arguments]


def checked_arguments(
    parts: Sequence[Segment], arguments: Sequence[Value],
    refused: Sequence[dict[tuple[Value, int], None] | None],
) -> dict[int, int] | None:  # fmt: skip
    """Arguments whose elements the segments may refuse as indices, with the bound of each. None
    where other indices may be refused, or errors have other reasons.
    """
    bounds: dict[int, int] = {}
    for part, indices in zip(parts, refused, strict=True):
        if indices is None:
            return None
        names = dict(zip(part.graph.inputs, part.inputs, strict=True))
        for index, below in indices:
            home = part.schedule.roots.get(index, index)
            if (array := home.array) is not None and (
                array.size == 0 or 0 <= array.min() <= array.max() < below
            ):
                continue
            value = names.get(home)
            if value is None or value not in arguments:
                return None
            n = arguments.index(value)
            bounds[n] = min(below, bounds.get(n, below))
    return bounds


def array_of(array_at: dict[Value, Any], x: Value) -> Any:
    """The array of a value, which a constant has itself."""
    return x.array if x.array is not None else array_at[x]
