"""Execution of a schedule: an arena, arrays that show its parts, and calls bound to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends.native.runtime.array_memory import zeros
from ...core import policy
from ...ir.program import Value
from .buffers import ALIGNMENT
from .schedule import Schedule, dense, shown
from .steps import Kept, LibraryStep, Step

if TYPE_CHECKING:
    from ...autograd.protocols import StepObserver
    from ...backends.native.lowering.scratch import Scratch


class Workspace:
    """Memory and bound calls for one run at a time. `placed` has the arrays of values outside of
    the arena, for which `memory` allocates at least the given number of bytes; `scratch` is shared
    with others that never run at the same time. `apart`: each layer is a call of its own.
    """

    def __init__(
        self,
        schedule: Schedule,
        tell: Callable[[], object],
        placed: Mapping[Value, Any] = MappingProxyType({}),
        memory: Callable[[int], Any] = zeros,
        scratch: Scratch | None = None,
        apart: bool = False,
    ) -> None:
        from ...backends.native.runtime.launch_list import Launch, joined

        layout = schedule.layout
        raw = memory(layout.size + ALIGNMENT)
        start = -raw.ctypes.data % ALIGNMENT
        self.arena = raw[start : start + layout.size]
        self.kept = Kept(scratch)
        arrays: dict[Value, Any] = {x: x.array for x in schedule.graph.constants()}
        arrays.update(placed)
        for x, offset, buffer in zip(
            schedule.owners, layout.offsets, schedule.buffers, strict=True
        ):
            dtype = x.spec.dtype.numpy
            count = buffer.size // dtype.itemsize if 0 not in x.shape else 0
            part = self.arena[offset : offset + count * dtype.itemsize]
            arrays[x] = dense(part.view(dtype).reshape(x.shape), schedule.orders[x])
        for y, x in schedule.overwritten.items():
            arrays[y] = arrays[x]
        for destination in schedule.destinations:
            arrays[destination.value] = destination.of(arrays)
        for node in schedule.views:
            arrays.update(zip(node.outputs, shown(node, arrays), strict=True))
        self.arrays = arrays
        self.inputs = [arrays[x] for x in schedule.graph.inputs]
        self.outputs = [arrays[y] for y in schedule.graph.outputs]
        self.calls: list[Callable[[], object]] = []
        self.shown: set[Value] = set()  # values used as array objects, not by their address
        self.steps_by_call: list[tuple[Step, ...]] = []  # the steps that each call computes
        layers: list[LibraryStep] = []
        for step in schedule.steps:
            if isinstance(step, LibraryStep):
                layers.append(step)
                if apart:
                    self._connect(layers)
                    layers = []
            else:
                self._connect(layers)
                layers = []
                calls = step.bind(arrays, self.kept)
                if not all(type(call) is Launch and not call.needs_arrays for call in calls):
                    used = (*step.values, *step.outputs)
                    self.shown.update(schedule.roots.get(x, x) for x in used)
                self.calls += calls
                self.steps_by_call += [(step,)] * len(calls)
            tell()
        self._connect(layers)
        self.calls = joined(self.calls)

    def _connect(self, steps: Sequence[LibraryStep]) -> None:
        """Join consecutive oneDNN layers to one call."""
        if not steps:
            return
        from ...backends.native.onednn.fused_layers import connect

        slots: list[Any] = [self.arena]
        slot_of: dict[int, int] = {}
        begin = self.arena.ctypes.data

        def place(array: np.ndarray) -> tuple[int, int]:
            offset = array.ctypes.data - begin
            if 0 <= offset < self.arena.size:
                return 0, offset
            if id(array) not in slot_of:
                slot_of[id(array)] = len(slots)
                slots.append(array)
            return slot_of[id(array)], 0

        bound = []
        for step in steps:
            where = {role: place(self._shown(x)) for role, x in step.roles.items()}
            where.update((role, place(array)) for role, array in step.layer.packed.items())
            bound.append((step.layer, where))
        plan = connect(bound, len(slots))
        call = plan.call(*slots, work=self.kept.scratch(plan.work))
        self.calls.append((lambda: plan.run(*slots)) if call is None else call)
        self.steps_by_call.append(tuple(steps))

    def _shown(self, x: Value) -> np.ndarray:
        """The array of a value; a constant's in row-major order."""
        array = self.arrays.get(x, x.array)
        if x.array is None or array.flags.c_contiguous:
            return array
        own = np.ascontiguousarray(array)
        self.kept.append(own)
        return own

    def compute(self, observer: StepObserver | None = None) -> None:
        """Run the calls; with an observer one by one, each as a `step` that it sees."""
        if observer is None:
            for call in self.calls:
                call()
            return
        from ...backends.native.runtime.launch_list import LaunchList as Calls

        begin = 0
        for call in self.calls:
            of = self.steps_by_call[begin:]
            if isinstance(call, Calls):
                call.one_by_one(lambda k, run, of=of: observer.step(of[k], run))  # type: ignore[misc]
                begin += len(call)
            else:
                observer.step(of[0], call)
                begin += 1

    def run(self, arrays: Sequence[Any], observer: StepObserver | None = None) -> list[Any]:
        """Copy the inputs in, run the calls, and return copies of the outputs."""
        for target, source in zip(self.inputs, arrays, strict=True):
            _copy(target, source)
        self.compute(observer)
        return [y.copy() for y in self.outputs]


def _copy(target: np.ndarray, source: np.ndarray) -> None:
    """Copy an array. Images of a few channels, which lie last in `target`, are copied a channel at
    a time: NumPy's innermost loop would go over those few.
    """
    channels = target.shape[1] if target.ndim > 2 else 0
    if 1 < channels <= policy.LAYER_FEW_CHANNELS and target.strides[1] == target.itemsize:
        for c in range(channels):
            target[:, c] = source[:, c]
    else:
        target[...] = source
