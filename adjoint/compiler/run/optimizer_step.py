"""Steps of optimizers in a compiled step: their guards, how they are undone, and their kernels."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ...backends.native.runtime.launch_list import LaunchList as Calls
from ...core.arrays import address
from ...core.errors import NotTraceable, Unsupported
from ...core.signal_deferral import DEFERRED
from ...core.tensor_base import TensorBase
from ...runtime.writes import announce
from ..capture.lifted_state import ScalarResult
from ..capture.step_capture import Update
from ..capture.step_counters import CountedStep, Launch, StepCounter, launch_all
from ..guards.identity_guards import IdentityGuards, hold_items

if TYPE_CHECKING:
    from ...optim.elementwise import ElementwiseOptimizer

    R = TypeVar("R")


class OptimizerGuards:
    """An optimizer's step in a program: its guards on states and options, and how it is undone."""

    def __init__(self, op: Update) -> None:
        self.op = op
        self.optimizer = op.optimizer
        self.groups = op.groups
        self.options = op.options
        self.held: list[IdentityGuards] = []  # states, and options
        self.know_states()
        self.held.append(self._options())

    def know_states(self) -> None:
        """Register the states as they are now."""
        op = self.op
        self.written = op.written()
        self.kept: list[tuple[Any, Any, Any]] = []  # dicts, keys, and their values
        self.sizes: dict[int, int] = {}  # number of entries of each state, by id
        for (_, parameters), (_, _, *kinds) in zip(op.groups, op.columns, strict=True):
            for i, p in enumerate(parameters):
                state = self.optimizer.state.get(p)
                self.kept.append((self.optimizer.state, p, state))
                self.sizes[id(state)] = len(state or ())
                names = [name for name in state or () if name not in self.optimizer.scalars]
                for name, kind in zip(names, kinds, strict=True):
                    self.kept.append((state, name, kind[i]))
        self.held[:1] = [self._states()]

    def _states(self) -> IdentityGuards:
        """Identity guard on the states that the step reads."""
        optimizer = self.optimizer
        named = [(optimizer.__dict__, "state", optimizer.state)]
        listed = [_listed(optimizer.state)]
        for holder, key, value in self.kept:
            if type(holder) is dict:
                named.append((holder, key, value))
            elif holder is not optimizer.state:
                listed.append(_listed(holder))
        return IdentityGuards(named, listed)

    def _options(self) -> IdentityGuards:
        """Identity guard on all options, which often change from call to call."""
        self.asked = [_listed(group) for group, _ in self.groups]
        return IdentityGuards([], self.asked)

    def fits(self) -> bool:
        """Whether the guards hold: the states are the same objects, and options need no other
        states.
        """
        states_guard, options_guard = self.held
        if not states_guard.hold():
            if self.kept and self.kept[0][0] is not self.optimizer.state:
                return False
            if not hold_items(self.kept):
                return False
            self.held[0] = self._states()
        if options_guard.hold():
            return True
        for g, (group, parameters) in enumerate(self.groups):
            changed = _listed(group) != self.asked[g]
            if changed and self._lacks_states(group, parameters):
                return False
        self.held[1] = self._options()
        return True

    def _lacks_states(self, group: dict[str, Any], parameters: Sequence[Any]) -> bool:
        """Whether a group's options need states that the program does not have."""
        optimizer = self.optimizer
        if any(not optimizer.state.get(p) and optimizer.begin(p, group) for p in parameters):
            return True
        present = [optimizer.state[p] for p in parameters if p in optimizer.state]
        optimizer.complete(group, present)
        return any(len(state) != self.sizes[id(state)] for state in present)

    def restoring(self, written: bool = True) -> Callable[[], None]:
        """A function that undoes the next step; only its counts, if nothing is `written` when it
        fails.
        """
        optimizer = self.optimizer
        states = [optimizer.state.get(p) or {} for _, ps in self.groups for p in ps]
        scalars = [(state, name) for state in states for name in optimizer.scalars if name in state]
        plain = [(state, name, state[name]) for state, name in scalars]
        tensors = [x for _, _, x in plain if isinstance(x, TensorBase)]
        tensors += self.written if written else ()
        kept = [x._data.copy() for x in tensors]

        def restore() -> None:
            for state, name, value in plain:
                state[name] = value
            watched = announce(tensors, "step")
            for x, array in zip(tensors, kept, strict=True):
                x._data[...] = array
            for version in watched:
                version.bump("step")

        return restore

    def with_options(self, numbers: Sequence[Any], run: Callable[[], R]) -> R:
        """Call `run` while some options are replaced by computed `numbers`."""
        kept = [(group, name, group[name]) for group, name, _ in self.options]
        try:
            for group, name, x in self.options:
                group[name] = numbers[x.place] if type(x) is ScalarResult else x
            return run()
        finally:
            with DEFERRED:
                for group, name, value in kept:
                    group[name] = value


def _listed(x: dict[Any, Any]) -> tuple[Any, list[Any], list[Any]]:
    """A dict with its keys and its values, as identity guards take them."""
    return x, list(x), list(x.values())


class BoundOptimizer(OptimizerGuards):
    """An optimizer's step on bound buffers of the host."""

    native = True

    def __init__(self, op: Update, arrays: Sequence[Any]) -> None:
        super().__init__(op)
        self.skip = arrays[-1] if op.skips else None
        memory_of = {id(x): x._data for x in self.written}
        read = arrays[:-1] if op.skips else arrays
        own = [memory_of.get(id(x), array) for x, array in zip(op.given(), read, strict=True)]
        # Values that the function has written to parameters before the step, which is in place.
        pairs = zip(own, read, strict=True)
        self.before = [(memory, array) for memory, array in pairs if memory is not array]
        inputs = iter(own)
        self.arrays = [[[next(inputs) for _ in column] for column in cs] for cs in op.columns]
        self.place = {id(p): i for _, ps in op.groups for i, p in enumerate(ps)}
        self.counted: CountedStep | None = None  # fast path, if all groups have common step counts
        self.laid: dict[Any, Any] = {}  # by group and parameters: names, rows, columns, dtypes
        self.followed: dict[int, _Followed] = {}  # arrays whose address may be patched, by id
        self.made: dict[Any, Launch] = {}

    def _layout(self, g: int, parameters: Sequence[Any]) -> tuple[Any, ...]:
        """Layout of some parameters of a group: names of states, rows of its arrays, the arrays,
        dtypes.
        """
        key = g, None if parameters is self.groups[g][1] else tuple(map(id, parameters))
        layout = self.laid.get(key)
        if layout is None:
            state = self.optimizer.state.get(parameters[0]) or ()
            names = tuple(name for name in state if name not in self.optimizer.scalars)
            rows = tuple(self.place[id(p)] for p in parameters)
            columns = [[column[i] for i in rows] for column in self.arrays[g]]
            layout = names, rows, columns, tuple(column[0].dtype for column in columns)
            self.laid[key] = layout
        return layout

    def moving(self, array: np.ndarray) -> Callable[[int], None]:
        """A function that patches the address of an array's memory in all kernels."""
        return self.followed.setdefault(id(array), _Followed(array))

    def run(self, numbers: Sequence[Any]) -> None:
        """Make the step, while some options are replaced by computed `numbers`."""
        if self.before:
            watched = announce(self.written, "step")
            for memory, array in self.before:
                memory[...] = array
            for version in watched:
                version.bump("step")
        if self.skip is not None and self.skip.item():
            return
        if self.options:
            self.with_options(numbers, self._run)
        else:
            self._run()

    def is_native(self) -> bool:
        """Return whether a counted step is native code alone: no numbers come with the call."""
        return not self.before and self.skip is None and not self.options

    def _run(self) -> None:
        if self.counted is None or not self.counted.run():
            launch_all(self._launches(), self.written)

    def _launches(self) -> list[Launch]:
        """Launches of the kernels, with the scalars of a step, which has been counted."""
        optimizer = self.optimizer
        parts: dict[Any, list[Any]] = {}
        for g, (group, parameters) in enumerate(self.groups):
            batches = optimizer._batches(group, parameters)
            for batch in batches:
                names, rows, columns, dtypes = self._layout(g, batch.parameters)
                formula_scalars = optimizer.formula_for(batch.group, batch.numbers, names, dtypes)
                if isinstance(formula_scalars, str):
                    raise Unsupported(f"compile: {formula_scalars}")
                alone = len(batches) == 1 and _counts_alone(optimizer, batch)
                counter = StepCounter(batch, formula_scalars[0]) if alone else None
                part = (g, rows), columns, (len(rows), formula_scalars[1]), counter
                parts.setdefault(formula_scalars[0], []).append(part)
        launches = []
        counters = []
        for formula, each in parts.items():
            rows_of, columns, numbers, own = zip(*each, strict=True)
            launch = self._launch(formula, rows_of, columns)
            launch.numbers = list(numbers)
            launches.append(launch)
            counters.append(own)
        all_counted = all(None not in own for own in counters)
        self.counted = (
            CountedStep(optimizer, self.written, launches, counters) if all_counted else None
        )
        return launches

    def _launch(self, formula: Any, rows: Hashable, columns: Sequence[Any]) -> Launch:
        """Launch of a formula's kernel for these rows of groups."""
        made = self.made.get((formula, rows))
        if made is None:
            joined = [[x for part in columns for x in part[k]] for k in range(len(columns[0]))]
            try:
                bound = formula.run.bound(joined)
            except NotTraceable as error:
                name = type(self.optimizer).__name__
                raise Unsupported(
                    f"compile: {name}.step on {error}; make parameters contiguous, or step "
                    "outside of the function"
                ) from error
            made = self.made[formula, rows] = Launch(Calls([bound.call]), bound.fill)
            for x in (x for column in joined for x in column if id(x) in self.followed):
                self.followed[id(x)].add(bound.moving(x))
        return made


class _Followed:
    """An array whose address in kernels is patched, as gradients come in other memory."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.at = address(array)
        self.moves: list[Callable[[int], None]] = []

    def add(self, move: Callable[[int], None]) -> None:
        """Register the patch of another kernel that was bound to the array."""
        self.moves.append(move)
        move(self.at)

    def __call__(self, at: int) -> None:
        self.at = at
        for move in self.moves:
            move(at)


def _counts_alone(optimizer: ElementwiseOptimizer, batch: Any) -> bool:
    """Whether a batch's only scalar state is the step count, in writable memory of the host."""
    if optimizer.scalars != ("step",) or "step" not in batch.states[0]:
        return False
    return all(
        isinstance(x := state["step"], TensorBase)
        and type(x._data) is np.ndarray
        and x._data.flags.writeable
        and x._node is None
        for state in batch.states
    )
