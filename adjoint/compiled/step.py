"""A captured step made native: kernels, products and optimizers as one sequence, run on call."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import numpy as np

from ..backends.native.runtime.sequence import Sequence as Calls
from ..core.errors import Unsupported
from ..core.mode import DEFAULT, MODE
from ..core.spec import prod
from ..eager.arrays import address
from ..eager.tensors import wrap
from ..eager.writes import announce
from ..inference.execution import Workspace
from ..inference.kernels import Kernel, fuse_kernels
from ..inference.passes import (
    Folds,
    drop_dead,
    drop_identities,
    fold_constants,
    inline_numbers,
    merge_equal,
)
from ..inference.schedule import Schedule
from ..program.program import Program
from .capture import Captured, NotReady, Update, capture

_COPIED = 1 << 14  # bytes of an argument below which it is copied


class Step:
    """A function of tensors that may change parameters, gradients and optimizers, as one program
    for each combination of its arguments' shapes and dtypes.

    >>> layer = ad.nn.Linear(2, 1)
    >>> optimizer = ad.optim.SGD(layer.parameters(), lr=0.1)
    >>> def step(x, y):
    ...     optimizer.zero_grad()
    ...     loss = ((layer(x) - y) ** 2).mean()
    ...     loss.backward()
    ...     optimizer.step()
    ...     return loss
    >>> from adjoint.compiled.step import Step
    >>> compiled = Step(step)
    >>> x, y = ad.randn(8, 2), ad.randn(8, 1)
    >>> losses = [compiled(x, y).item() for _ in range(20)]
    >>> losses[-1] < losses[0]
    True
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.programs: dict[Any, _Compiled] = {}

    def __call__(self, *arguments: Any) -> Any:
        """What the function returns; all that it changes is changed."""
        plain = all(type(x._data) is np.ndarray for x in arguments)
        if not plain or MODE.get() is not DEFAULT:
            return self.function(*arguments)
        key = tuple([(x._data.shape, x._data.dtype) for x in arguments])
        program = self.programs.get(key)
        if program is None or not program.fits():
            try:
                program = self.programs[key] = _Compiled(capture(self.function, arguments))
            except NotReady:
                return self.function(*arguments)
        return program.run(arguments)


class _Compiled:
    """A program for arguments of certain shapes and dtypes; one thread at a time runs it."""

    def __init__(self, captured: Captured) -> None:
        self.lock = threading.Lock()
        self.captured = captured
        graph = captured.program
        states = graph.inputs[captured.arguments :]
        self.state_values = states
        count = len(captured.written)
        written, rest = graph.outputs[:count], graph.outputs[count:]
        self.gradients = rest[: len(captured.leaves)]
        results = rest[len(captured.leaves) :]
        self.updates = captured.updates
        read = {x for node in graph.nodes for x in node.values}
        by_update = {y for node in self.updates for y in node.outputs}
        if by_update & (read | set(results)):
            raise Unsupported("compile: what an optimizer has changed is read in the same step")
        graph.nodes = [node for node in graph.nodes if not isinstance(node.op, Update)]
        self.changed = [
            (captured.states[n], y)
            for n, y in zip(captured.written, written, strict=True)
            if y not in by_update
        ]
        wanted = [x for node in self.updates for x in node.values]
        self.n_results = len(results)
        graph.inputs = [x for x in graph.inputs if x.array is None]
        graph.outputs = [*results, *self.gradients, *(y for _, y in self.changed), *wanted]
        _optimize(graph)
        self.results = graph.outputs[: self.n_results]
        found = iter(graph.outputs[self.n_results :])
        self.gradients = [next(found) for _ in self.gradients]
        self.changed = [(x, next(found)) for x, _ in self.changed]
        self.wanted = [[next(found) for _ in node.values] for node in self.updates]
        self.arguments = [x for x in graph.inputs if x not in set(states)]
        made = {y for node in graph.nodes for y in node.outputs if not node.op.view}
        once = [y for y in self.gradients if y in made and self.gradients.count(y) == 1]
        self.placed = {x for x in states if x.array is None} | set(once)
        # Large arguments are read where they are, if nothing needs them as arrays.
        large = {x for x in self.arguments if prod(x.shape) * x.spec.dtype.itemsize >= _COPIED}
        self.placed |= large
        self.schedule = Schedule(graph, None, lambda: None, self.placed)
        self._bind()
        shown = self.space.shown.union(*(step.values for step in self._checked()))
        if large & {self.schedule.roots.get(x, x) for x in shown}:
            self.placed -= large
            self.schedule = Schedule(graph, None, lambda: None, self.placed)
            self._bind()

    # ---- memory ----------------------------------------------------------------------------------

    def _bind(self) -> None:
        """Connect all kernels to the memory of now."""
        captured = self.captured
        arrays = {}
        self.bound = []
        self.holders: Any = None  # of gradients, when nobody else has seen them
        for value, x in zip(self.state_values, captured.states, strict=True):
            if value.array is None:
                arrays[value] = x._data
                self.bound.append((x, x._data, x._node))
        self.grads = [wrap(np.zeros(x._data.shape, x._data.dtype)) for x in captured.leaves]
        for value, g in zip(self.gradients, self.grads, strict=True):
            if value in self.placed:
                arrays[value] = g._data
        own = {x: np.zeros(x.shape, x.spec.dtype.numpy) for x in self.arguments if x in self.placed}
        arrays.update(own)
        space = self.space = Workspace(self.schedule, lambda: None, arrays)
        shown = space.arrays
        self.checks = [
            partial(step.op.composite.check, [shown[x] for x in step.values])
            for step in self._checked()
        ]
        self.inputs = [_Argument(shown[x], space.calls if x in own else ()) for x in self.arguments]
        self.copies = [
            (g._data, shown[value])
            for value, g in zip(self.gradients, self.grads, strict=True)
            if shown[value] is not g._data
        ]
        self.writes = [(x, shown[y]) for x, y in self.changed]
        self.returned = [shown[y] for y in self.results]
        self.steps = [
            _Optimizer(cast(Update, node.op), [shown[x] for x in values])
            for node, values in zip(self.updates, self.wanted, strict=True)
        ]

    def _checked(self) -> list[Any]:
        """The kernels that refuse some values of their inputs."""
        return [
            step
            for step in self.schedule.steps
            if isinstance(step.op, Kernel) and step.op.composite.guards
        ]

    def _holders(self) -> list[tuple[int, int]]:
        """References to each gradient, but its leaf's, and to its array."""
        return [
            (sys.getrefcount(g) - (x._leaf.grad is g), sys.getrefcount(g._data))
            for x, g in zip(self.captured.leaves, self.grads, strict=True)
        ]

    def _give(self) -> None:
        for x, g in zip(self.captured.leaves, self.grads, strict=True):
            x._leaf.grad = g

    def fits(self) -> bool:
        """Whether what it was captured from is as it was."""
        captured = self.captured
        for x, leaf_cleared in zip(captured.leaves, captured.cleared, strict=True):
            if not leaf_cleared and x._leaf.grad is not None:
                return False
        return all(step.fits() for step in self.steps)

    def run(self, arguments: Sequence[Any]) -> Any:
        """The results; everything is written."""
        with self.lock:
            return self._run(arguments)

    def _run(self, arguments: Sequence[Any]) -> Any:
        for x, array, node in self.bound:
            if x._data is not array or x._node is not node:
                self._bind()
                break
        if self.holders is not None and self._holders() != self.holders:
            self._bind()  # somebody keeps a gradient of the last step
        for target, x in zip(self.inputs, arguments, strict=True):
            target.take(x._data)
        for check in self.checks:
            check()
        for call in self.space.calls:
            call()
        for target, source in self.copies:
            target[...] = source
        for x, source in self.writes:
            watched = announce([x], "step")
            x._data[...] = source
            for version in watched:
                version.bump("step")
        for step in self.steps:
            step.run()
        self._give()
        if self.holders is None:
            self.holders = self._holders()
        return self.captured.rebuild(iter([wrap(y.copy()) for y in self.returned]))


def _optimize(graph: Program) -> None:
    """The passes."""
    fold_constants(graph, Folds())
    drop_identities(graph)
    merge_equal(graph)
    inline_numbers(graph)
    drop_dead(graph)
    shown = set(graph.inputs)
    for node in graph.nodes:
        if node.op.view and node.inputs[0] in shown:
            shown.update(node.outputs)
    fuse_kernels(graph, shown)
    drop_dead(graph)


class _Argument:
    """Where an argument is read: in memory of its own, or, by `calls`, where it is."""

    def __init__(self, array: Any, calls: Sequence[Any]) -> None:
        self.array = array
        self.moves = [call.moving(array) for call in calls if type(call) is Calls]
        self.at = self.own = address(array)
        self.given: Any = None  # keeps what is read

    def take(self, array: Any) -> None:
        """Let the calls read this one."""
        at = self.own
        if self.moves and array.flags.c_contiguous:
            at, self.given = address(array), array
        else:
            self.array[...] = array
        if at != self.at:
            for move in self.moves:
                move(at)
            self.at = at


class _Optimizer:
    """An optimizer's step on memory that stays where it is."""

    def __init__(self, op: Update, arrays: Sequence[Any]) -> None:
        self.optimizer = op.optimizer
        self.groups = op.groups
        self.written = op.written()
        given = iter(arrays)
        self.arrays = [[[next(given) for _ in column] for column in cs] for cs in op.columns]
        self.place = {id(p): i for _, ps in op.groups for i, p in enumerate(ps)}
        self.kept: list[tuple[Any, Any, Any]] = []  # dicts, keys, and what they hold
        for (_, parameters), (_, _, *kinds) in zip(op.groups, op.columns, strict=True):
            for i, p in enumerate(parameters):
                state = self.optimizer.state.get(p)
                self.kept.append((self.optimizer.state, p, state))
                names = [name for name in state or () if name not in self.optimizer.scalars]
                for name, kind in zip(names, kinds, strict=True):
                    self.kept.append((state, name, kind[i]))
        self.laid: dict[Any, Any] = {}  # by group and parameters: names, rows, columns, dtypes
        self.made: dict[Any, Any] = {}

    def fits(self) -> bool:
        """Whether the optimizer's state is what it was."""
        if self.kept and self.kept[0][0] is not self.optimizer.state:
            return False
        return all(held.get(key) is value for held, key, value in self.kept)

    def _layout(self, g: int, parameters: Any) -> tuple[Any, ...]:
        """For some parameters of a group: names of states, rows of its arrays, these, dtypes."""
        key = g, None if parameters is self.groups[g][1] else tuple(map(id, parameters))
        found = self.laid.get(key)
        if found is None:
            state = self.optimizer.state.get(parameters[0]) or ()
            names = tuple(name for name in state if name not in self.optimizer.scalars)
            rows = tuple(self.place[id(p)] for p in parameters)
            columns = [[column[i] for i in rows] for column in self.arrays[g]]
            found = names, rows, columns, tuple(column[0].dtype for column in columns)
            self.laid[key] = found
        return found

    def run(self) -> None:
        """Count the step, and change everything."""
        optimizer = self.optimizer
        parts: dict[Any, list[Any]] = {}
        for g, (group, parameters) in enumerate(self.groups):
            for batch in optimizer._batches(group, parameters):
                names, rows, columns, dtypes = self._layout(g, batch.parameters)
                found = optimizer.formula_for(batch.group, batch.numbers, names, dtypes)
                if isinstance(found, str):
                    raise Unsupported(f"compile: {found}")
                parts.setdefault(found[0], []).append((g, rows, columns, found[1]))
        watched = announce(self.written, "step")
        for formula, each in parts.items():
            key = (formula, *[part[:2] for part in each])
            made = self.made.get(key)
            if made is None:
                columns = [[x for part in each for x in part[2][k]] for k in range(len(each[0][2]))]
                call, fill = formula.run.bound(columns)
                made = self.made[key] = Calls([call]), fill
            run, fill = made
            fill([(len(rows), values) for _, rows, _, values in each])
            run()
        for version in watched:
            version.bump("step")
