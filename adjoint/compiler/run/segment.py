"""A segment of a compiled step: kernels and library calls in order, bound to buffers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends.native.runtime.array_memory import zeros
from ...backends.native.runtime.launch_list import LaunchList as Calls
from ...core.spec import Spec
from ...ir.program import Node, Program, Value, take_apart
from ...ops.index.advanced import Index, IndexSum
from ...ops.index.pick import Pick, PlaceAt
from ..passes.basic_passes import Folds
from ..passes.kernels import Kernel
from ..passes.pipelines import Settings, run_pipeline
from ..schedule.buffers import placeholders
from ..schedule.schedule import Schedule
from ..schedule.steps import Step
from ..schedule.workspace import Workspace
from .bindings import copy_all

if TYPE_CHECKING:
    from ...autograd.protocols import StepObserver
    from ...backends.native.lowering.scratch import Scratch

_COPIED = 1 << 14  # bytes of an argument below which it is copied
ON_HOST = Settings(checked=True, again=True)


def unbound(values: Sequence[Value]) -> dict[Value, Any]:
    """Placeholder arrays for values whose buffers are bound in each call, or that are copied."""
    arrays = placeholders((x.shape, x.spec.dtype.numpy) for x in values)
    return dict(zip(values, arrays, strict=True))


def is_small(x: Value) -> bool:
    """Whether an argument is so small that it is copied rather than read where it is."""
    return x.nbytes < _COPIED


class Segment:
    """A segment between two optimizer steps: a program, with kernels and buffers of its own."""

    def __init__(
        self,
        inputs: Sequence[Value],
        nodes: Sequence[Node],
        wanted: Sequence[Value],
        pipeline: str = "step",
        settings: Settings = ON_HOST,
    ) -> None:
        """`inputs` and `wanted` are values of the whole program, whose nodes are taken over. They
        become kernels and library calls by the named pipeline.
        """
        self.inputs, self.wanted = list(inputs), list(wanted)
        own = {x: Value(x.spec, name=x.name) for x in inputs}
        self.views = set(own.values())  # inputs and views of them, which change with the inputs
        for node in nodes:
            node.inputs = tuple([own.get(x, x) if type(x) is Value else x for x in node.inputs])
            if node.op.view and node.inputs[0] in self.views:
                self.views.update(node.outputs)
        self.graph = Program(own.values(), nodes, wanted)
        self.cuts: list[tuple[str, str]] = []  # ops that begin another kernel, and why
        self.schedule: Any = None  # of native code
        run_pipeline(pipeline, self.graph, replace(settings, folds=Folds(), said=self.cuts))
        runs = set(self.graph.nodes)
        kernels = [node.op for node in runs if isinstance(node.op, Kernel)]
        runs.update(node for op in kernels for node in op.program.nodes)
        take_apart(set(nodes) - runs)

    def let_go(self) -> None:
        """Drop all references to bound buffers."""
        self.space: Any = None
        self.calls: list[Any] = []
        self.checks: list[Callable[[], None]] = []
        self.copies: list[tuple[Any, Any]] = []

    def bind(
        self, array_at: dict[Value, Any], targets: dict[Value, Any],
        memory: Callable[[int], Any] = zeros, scratch: Scratch | None = None,
    ) -> None:  # fmt: skip
        """Bind the kernels to arrays: `array_at` has those of inputs, and gets those of outputs.
        `targets` are arrays into which outputs are to be written, if that is possible; for `memory`
        and `scratch` see `Workspace`.
        """
        self.let_go()
        graph = self.graph
        inputs = dict(zip(graph.inputs, self.inputs, strict=True))
        arrays = {x: array_at[source] for x, source in inputs.items()}
        made = {y for node in graph.nodes for y in node.outputs if not node.op.view}
        for value, y in zip(self.wanted, graph.outputs, strict=True):
            if value in targets and y in made and graph.outputs.count(y) == 1:
                arrays[y] = targets[value]
        self.schedule = Schedule(graph, None, lambda: None, arrays)
        space = Workspace(self.schedule, lambda: None, arrays, memory, scratch)
        self.space = space  # keeps memory alive, of which the calls have addresses only
        self.calls = space.calls
        roots = self.schedule.roots
        copied: set[Value] = set()
        for value, y in zip(self.wanted, graph.outputs, strict=True):
            array_at[value] = array = space.arrays[y]
            follows = value in self.views and value not in targets  # gradients are copies
            if roots.get(y, y) in inputs and not follows:
                array_at[value] = array.copy()
                self.copies.append((array_at[value], array))
                copied.add(y)
        checked = [
            step
            for step in self.schedule.steps
            if isinstance(step.op, Kernel) and step.op.composite.guards
        ]
        guards = [
            (guard, spec, step.values[n])
            for step in checked
            for guard, spec, n in step.op.composite.guards  # type: ignore[attr-defined]
        ]
        # A copy of an input is made only after the checks, which therefore make their own.
        looked = [
            (x, []) if roots.get(x, x) in inputs or x.array is not None else self._path(x)
            for *_, x in guards
        ]
        self.checks = [
            partial(_check, guard, spec, space.arrays[x], nodes)
            for (guard, spec, _), (x, nodes) in zip(guards, looked, strict=True)
        ]
        shown = space.shown.union(copied, (x for x, _ in looked))
        # Inputs and outputs whose arrays are used as objects, and not only by their addresses.
        used = shown.union(graph.outputs)  # which may be views of inputs
        self.shown = {inputs[y] for x in used if (y := roots.get(x, x)) in inputs}
        fixed = {roots.get(x, x) for x in shown}
        fixed.update(roots[y] for y in graph.outputs if roots.get(y, y) is not y)  # views of others
        self.shown.update(
            x for x, y in zip(self.wanted, graph.outputs, strict=True) if roots.get(y, y) in fixed
        )

    def lay_out(self, array_at: dict[Value, Any], read: Sequence[Value]) -> None:
        """Make contiguous copies of outputs that an optimizer's step reads and that are views with
        strides (an expanded gradient): kernels of optimizers go through rows.
        """
        for x in set(read).intersection(self.wanted):
            array = array_at[x]
            if not array.flags.c_contiguous:
                array_at[x] = np.empty(array.shape, array.dtype)
                self.copies.append((array_at[x], array))

    def _path(self, x: Value) -> tuple[Value, list[tuple[Any, int]]]:
        """The input or constant that a value is a view of, and the view nodes from there."""
        path: list[tuple[Any, int]] = []
        while x.node is not None and x not in self.graph.inputs:
            path.insert(0, (x.node, x.index))
            x = x.node.inputs[0]
        return x, path

    def may_fail(self) -> bool:
        """Whether running it may raise an error."""
        return bool(self.checks) or any(
            type(call) is not Calls or any(call.failing) for call in self.calls
        )

    def refused_behind(self, written: set[int]) -> dict[tuple[Value, int], None] | None:
        """Index checks that may fail after one of these arrays, by id, was written: each index,
        with the bound of its elements. None where errors may have other reasons. The gradient of
        indexing checks an index that was checked before, and adds nothing.
        """
        after_write = False
        checks: dict[tuple[Value, int], None] = {}
        taken: set[Any] = set()  # indices, with what they were found to be within
        by_call = iter(self.space.steps_by_call)
        for call in self.calls:
            for fails in call.failing if type(call) is Calls else (True,):
                steps = next(by_call)
                checked = _index_of(steps)
                if after_write and fails and checked not in taken:
                    if checked is None:
                        return None
                    index, (_, sizes) = checked
                    checks[index, min(sizes)] = None
                if checked is not None and isinstance(steps[0].op, Index):
                    taken.add(checked)
                outputs = [y for step in steps for y in step.outputs]
                after_write = after_write or any(
                    id(self.space.arrays.get(y)) in written for y in outputs
                )
        return checks

    def native_calls(self) -> list[Calls]:
        """Launch lists of native code, which know their arrays by address."""
        return [call for call in self.calls if type(call) is Calls]

    def listed(self) -> list[tuple[tuple[Step, ...], bool, int]]:
        """Listing of the launches: the steps that each computes, whether it is native code, and the
        number of the parallel section that it belongs to, or 0.
        """
        kinds: list[tuple[bool, int]] = []
        count = 0
        for call in self.space.calls:
            begin = len(kinds)
            kinds += [(True, 0)] * len(call) if isinstance(call, Calls) else [(False, 0)]
            for region in getattr(call, "regions", ()):
                count += 1
                kinds[begin + region.start : begin + region.stop] = [(True, count)] * len(region)
        return [(steps, *each) for steps, each in zip(self.space.steps_by_call, kinds, strict=True)]

    def run(self, observer: StepObserver | None) -> None:
        """Run the checks, then the kernels."""
        for check in self.checks:
            check()
        self.space.compute(observer)
        copy_all(self.copies)


def _index_of(steps: Sequence[Step]) -> tuple[Value, tuple[Any, Sequence[int]]] | None:
    """The index that a launch checks, with the axes and sizes that bound it; None where its errors
    may have other reasons.
    """
    if len(steps) != 1:
        return None
    op = steps[0].op
    if isinstance(op, (Index, IndexSum)):
        x, index = steps[0].values
        return index, op.bounds(x.spec)
    if isinstance(op, (Pick, PlaceAt)):
        x, index = steps[0].values
        size = op.classes if isinstance(op, PlaceAt) else x.shape[op.axis]
        return index, (op.axis, (size,))
    return None


def _check(
    guard: Callable[..., object], spec: Spec, array: Any, nodes: Sequence[tuple[Any, int]]
) -> None:
    """Raise the error of an op for values that it refuses, after applying view nodes to an
    array.
    """
    for node, index in nodes:
        result = node.op.compute(np, array, *node.inputs[1:])
        array = result[index] if isinstance(result, tuple) else result
    guard(spec, array)
