"""Copy elision: results are written directly to where a copy or a concatenation would move them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...ir.program import Node, Value
from ...ops.shape.movement import Permute, Reshape
from .steps import Step


class Destination(NamedTuple):
    """Memory of a value within the output of a step that only moves it."""

    value: Value
    step: Step
    place: int  # number of the input that the step moves
    views: tuple[Node, ...]  # views from the value to that input, the last first

    def of(self, arrays: Mapping[Value, Any]) -> np.ndarray | None:
        """The value's array, a part of the output's; None where no array can show it so."""
        [y] = self.step.outputs
        array = self.step.moved(arrays[y])[self.place][1]
        for node in self.views:
            array = None if array is None else _undone(node, array)
        return array


def _undone(view: Node, y: np.ndarray) -> np.ndarray | None:
    """The array of which the view shows `y`; None where there is none."""
    if isinstance(view.op, Permute):
        return y.transpose(np.argsort(view.op.axes))
    if isinstance(view.op, Reshape):
        x = y.reshape(view.values[0].shape)
        return x if np.may_share_memory(x, y) else None
    return None


def destinations(
    steps: Sequence[Step],
    model: dict[Value, Any],
    roots: Mapping[Value, Value],
    placed: Collection[Value],
    outputs: Collection[Value],
) -> list[Destination]:
    """Values whose copies can be elided: nothing else reads them, and their steps write as fast
    into memory with gaps. Each comes after the one that it lies in. `model` has arrays with the
    layout that values will have, and is updated; `roots` says whose memory views show. Values that
    are `placed` may be seen by others, so only their own steps write them.
    """
    kept = {*placed, *outputs}
    readers = Counter(x for step in steps for x in step.values)
    views = {x.node for x in roots if x.node is not None}
    readers.update(x for node in views for x in node.values)
    makers = {y: step for step in steps for y in step.outputs}
    elided: list[Destination] = []
    for step in reversed(steps):
        if len(step.outputs) != 1 or step.outputs[0] in placed:
            continue
        for number, (x, _) in enumerate(step.moved(model[step.outputs[0]])):
            path = []
            while x.node in views and readers[x] == 1 and x not in kept:
                path.append(x.node)
                x = x.node.values[0]  # type: ignore[union-attr]
            maker = makers.get(x)
            if maker is None or readers[x] != 1 or x in kept:
                continue
            destination = Destination(x, step, number, tuple(path))
            array = destination.of(model)
            if array is not None and array.size and maker.writes(x, model, array):
                model[x] = array
                elided.append(destination)
    return elided
