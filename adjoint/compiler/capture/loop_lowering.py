"""What a turn of each kind of loop does, as records of a table: of a scan, a while loop, and the
gradient of one.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends.native.lowering.bound import bound_op
from ...backends.native.runtime.launch_list import joined
from ...backends.native.runtime.loop_record import Place, Word
from ...backends.native.runtime.turn_code import Kind
from ...core.arrays import address
from ...core.dtype import int64
from ...core.spec import Spec
from ...ops.elementwise.arithmetic import Add
from .fused_loop import fused, fused_scan, fused_while, fused_while_gradient
from .loop_draws import LoopDraws, State
from .machine_loop import NOWHERE, Layout, MachineLoop, bytes_of, told

if TYPE_CHECKING:
    from .control_flow_ops import Branch, Scan
    from .fused_loop import FusedLoop
    from .loops import Loop, LoopGradient
    from .random_state import ControlFlowDraws
    from .subgraphs import Subgraph

_FEWEST = 64  # turns for which a loop of unknown length has room at first


class ScanMachine:
    """A scan in machine code. The arrays of a run are the scan's inputs, then its outputs."""

    def __init__(self, scan: Scan, given: int) -> None:
        """`given` is the number of its inputs."""
        inputs, specs = _inputs(scan, given), scan.specs[: len(scan.specs) - len(scan.drawing)]
        arrays = [*inputs, *specs]
        self.draws = LoopDraws(scan.body)
        layout = Layout(scan.title, arrays, self.draws)

        def by_records() -> MachineLoop:
            return self._by_records(scan, layout, len(inputs))

        self.loop = fused(
            scan.body, lambda: fused_scan(scan, arrays, len(inputs), layout, self.draws, by_records)
        ) or told(by_records())

    def _by_records(self, scan: Scan, layout: Layout, first: int) -> MachineLoop:
        """The loop over the records of its body; `first` is the number of its inputs."""
        body, n, length = scan.body, scan.carried, scan.length
        end = len(body.outputs) + len(body.kept)
        carried = [layout.carried(bytes_of(spec)) for spec in body.specs[:n]]
        for k, each in enumerate(carried):
            layout.copy(each.now, Place(k), each.size)
        layout.add(Kind.TURN)
        for k in range(n * scan.keeps):
            row = layout.row(first + end + k, length, scan.reverse)
            layout.copy(row, carried[k].now, carried[k].size)
        slots = [
            *(each.now for each in carried),
            *(layout.row(k, length, scan.reverse) for k in range(n, n + scan.sliced)),
            *(Place(k) for k in range(n + scan.sliced, first)),
        ]
        outputs = [[each.next] for each in carried]
        outputs += [[layout.row(first + k, length, scan.reverse)] for k in range(n, end)]
        layout.turn(body, [slots[k] for k in scan.places], outputs, self.draws)
        layout.add(Kind.NEXT)
        layout.add(Kind.LEAVE)
        for k, each in enumerate(carried):
            layout.copy(Place(first + k), each.now, each.size)
        layout.add(Kind.END)
        return MachineLoop(layout, length)

    def run(
        self, arrays: Sequence[Any], outs: Sequence[Any], drawing: ControlFlowDraws,
        now: Sequence[Any], length: int,
    ) -> list[Any]:  # fmt: skip
        """Run so many turns. Returns the states of the generators at the end."""
        self.draws.begin(drawing, now)
        self.loop.let_in(length)
        self.loop.run(arrays, outs)
        return self.draws.finish(self.loop.turn)


def _inputs(scan: Scan, count: int) -> list[Spec | None]:
    """Specs of the first `count` inputs of a scan, as its body takes them; None for others."""
    specs: dict[int, Spec] = dict(enumerate(scan.body.specs[: scan.carried]))
    for slot, spec in zip(scan.places, scan.body.input_specs, strict=True):
        row = scan.carried <= slot < scan.carried + scan.sliced
        specs[slot] = spec.with_(shape=(scan.length, *spec.shape)) if row else spec
    return [specs.get(k) for k in range(count)]


class BranchMachine:
    """A branch in machine code. The arrays of a run are the predicate and the branch's other
    inputs, then its outputs.
    """

    def __init__(self, branch: Branch, pred: np.dtype, given: int) -> None:
        """`pred` is the dtype of the predicate, `given` the number of inputs with it."""
        specs = branch.specs[: len(branch.specs) - len(branch.drawing)]
        layout = Layout(branch.title, [*_inputs_of(branch, given), *specs])
        apart, _ = layout.memory(8)  # a predicate of fewer bytes may be the last of its memory
        layout.copy(apart, Place(0), pred.itemsize)
        other = layout.unless(apart, mask_of(pred))
        draws = LoopDraws(*branch.bodies, ahead=False)
        zeros, _ = layout.memory(max(bytes_of(spec) for spec in specs))
        jumps = []
        for k, (body, places) in enumerate(zip(branch.bodies, branch.places, strict=True)):
            if k:
                layout.land(other)
            outputs: list[list[Place]] = [[] for _ in range(len(body.outputs) + len(body.kept))]
            for n, (source, spec) in enumerate(zip(branch.sources[k], specs, strict=True), given):
                if source is None:
                    layout.copy(Place(n), zeros, bytes_of(spec))
                else:
                    outputs[source].append(Place(n))
            layout.turn(body, [Place(1 + n) for n in places], outputs, draws, k)
            jumps.append(layout.go())
        for jump in jumps:
            layout.land(jump)
        layout.add(Kind.END)
        self.loop = told(MachineLoop(layout, None))


def _inputs_of(branch: Branch, count: int) -> list[Spec | None]:
    """Specs of the first `count` inputs of a branch; None for the predicate, which has one element
    in any form, and for those that nobody reads.
    """
    specs: dict[int, Spec] = {}
    for body, own in zip(branch.bodies, branch.places, strict=True):
        specs.update((1 + slot, spec) for slot, spec in zip(own, body.input_specs, strict=True))
    return [specs.get(k) for k in range(count)]


class Stack:
    """Values at the begin of each turn of a loop of unknown length: carried values, one row a turn,
    and the states of the generators.
    """

    def __init__(self, specs: Sequence[Spec], room: int) -> None:
        self.rows = [np.empty((room, *spec.shape), spec.dtype.numpy) for spec in specs]
        self.states: list[Any] = []  # one by one
        self.line: dict[int, tuple[State, int]] = {}  # or by stream: that of turn 0, and its step
        self.turns = 0

    def grow(self) -> None:
        """Make room for twice as many turns."""
        for k, rows in enumerate(self.rows):
            self.rows[k] = np.empty((2 * len(rows), *rows.shape[1:]), rows.dtype)
            self.rows[k][: len(rows)] = rows

    @property
    def room(self) -> int:
        """The number of turns for which there is room."""
        return len(self.rows[0])

    def listed(self) -> list[tuple[list[Any], Any]]:
        """Carried values and states of each turn."""
        turns = range(self.turns)
        line = self.line.values()
        states = self.states or [[(key, at + t * step) for (key, at), step in line] for t in turns]
        return [([rows[t, ...] for rows in self.rows], states[t]) for t in turns]


class WhileMachine:
    """A while loop in machine code. The arrays of a run are the loop's inputs, its carried outputs,
    and a number of the run, which no run of another one has. If turns are kept, they lie in a
    stack: that of the machine, or one of the run.
    """

    def __init__(self, loop: Loop, given: int, keep: bool) -> None:
        """`given` is the number of its inputs; with `keep` its turns are kept."""
        n, self.specs = loop.count, list(loop.specs[: loop.count])
        arrays = [*_read(loop, given), *self.specs, Spec((), int64)]
        self.draws = LoopDraws(loop.test, loop.body)
        self._rows: list[int] = []  # by which the loop knows where it writes rows of the stack
        self._last = _FEWEST  # number of turns of the last run
        self._stack: Any = None

        def by_records() -> MachineLoop:
            return self._by_records(loop, Layout(loop.title, arrays, self.draws), given, keep)

        made = fused(
            loop.body, lambda: fused_while(loop, arrays, given, keep, self.draws, by_records)
        )
        self.loop: FusedLoop | MachineLoop
        if made is None:
            self.loop = told(by_records())
            self._count = self._counted.view(np.int64)
        else:
            self.loop, self._count = made, made.count
            self._rows = [Word.HEAD + k for k in range(n * keep)]
        self.name = next(_machines)
        self._count[0] = self.name << 32
        if keep:
            self.loop.full = self._grow
            self.take_stack()

    def _by_records(self, loop: Loop, layout: Layout, first: int, keep: bool) -> MachineLoop:
        """The loop over the records of its bodies; `first` is the number of its inputs."""
        n = loop.count
        place, self._counted = layout.memory(8)
        layout.add(Kind.COUNT, place.offset)
        layout.copy(Place(first + n), place, 8)
        carried = [layout.carried(bytes_of(spec)) for spec in self.specs]
        for k, each in enumerate(carried):
            layout.copy(each.now, Place(k), each.size)
        layout.add(Kind.TURN)
        slots = [*(each.now for each in carried), *(Place(k) for k in range(n, first))]
        over = self._test(layout, loop.test, [slots[k] for k in loop.places[0]])
        self._rows = [
            layout.copy(Place(NOWHERE, 0, each.size), each.now, each.size)
            for each in carried[: n * keep]
        ]
        if keep and loop.body.streams.all and not self.draws.ahead:
            layout.call(lambda: self._note_states(loop))
        outputs = [[each.next] for each in carried]
        layout.turn(loop.body, [slots[k] for k in loop.places[1]], outputs, self.draws, 1)
        layout.add(Kind.NEXT)
        layout.land(over)
        layout.add(Kind.LEAVE)
        for k, each in enumerate(carried):
            layout.copy(Place(first + k), each.now, each.size)
        layout.add(Kind.END)
        return MachineLoop(layout, None)

    def _test(self, layout: Layout, test: Subgraph, inputs: Sequence[Place]) -> int:
        """Add the records that end the loop where `test` gives false; the number of the jump."""
        place, slot = layout.memory(16)
        [go] = test.outputs
        dtype = go.spec.dtype.numpy
        mask = mask_of(dtype)
        if mask:
            layout.turn(test, inputs, [[place]], self.draws)
        else:
            apart, memory = layout.memory(bytes_of(go.spec))
            layout.turn(test, inputs, [[apart]], self.draws)
            layout.call(partial(_decide, slot, memory.view(dtype)), f"truth of {go.spec.dtype}")
            mask = 255
        return layout.unless(place, mask)

    def _note_states(self, loop: Loop) -> None:
        self._stack.states.append(self.draws.states(1))

    def run(
        self, arrays: Sequence[Any], outs: Sequence[Any], drawing: ControlFlowDraws,
        now: Sequence[Any],
    ) -> tuple[Stack | None, list[Any]]:  # fmt: skip
        """Run all turns. Returns what they began with, if that is kept, and the states of the
        generators at the end.
        """
        self.draws.begin(drawing, now)
        stack = self.take_stack() if self._rows else None
        self.loop.run(arrays, outs)
        if stack is not None:
            stack.turns = self._last = self.loop.turn
            stack.line = self.draws.line_of(1)
        return stack, self.draws.finish(self.loop.turn, True)

    def take_stack(self) -> Stack:
        """Give the machine another stack."""
        stack = self._stack = Stack(self.specs, max(_FEWEST, self._last))
        self._show()
        return stack

    def stack_of(self, number: int) -> Stack | None:
        """Values at the begin of the turns of that run; None if it was not the last one."""
        if self._count[0] != number:
            return None
        self._stack.turns = self.loop.turn
        stack: Stack = self._stack
        return stack

    def _grow(self, turn: int) -> None:
        self._stack.grow()
        self._show()

    def _show(self) -> None:
        """Tell the loop where the stack lies."""
        self.loop.let_in(self._stack.room)
        for record, rows in zip(self._rows, self._stack.rows, strict=True):
            self.loop.put(record, address(rows))


_machines = itertools.count(1)


def _decide(slot: np.ndarray, go: np.ndarray) -> None:
    slot[0] = bool(go.reshape(()))


def mask_of(dtype: np.dtype) -> int:
    """The bits of which a true element has one, 0 where there are no such: zeros have signs."""
    bits = 8 * dtype.itemsize
    if dtype.kind in "biu":
        return -1 if bits == 64 else (1 << bits) - 1
    return (1 << (bits - 1)) - 1 if dtype.kind == "f" and bits <= 64 else 0


def _read(loop: Loop, count: int) -> list[Spec | None]:
    """Specs of the first `count` inputs of a while loop; None for those that nobody reads."""
    specs = dict(enumerate(loop.specs[: loop.count]))
    for body, own in zip((loop.test, loop.body), loop.places, strict=True):
        specs.update((slot, spec) for slot, spec in zip(own, body.input_specs, strict=True))
    return [specs.get(k) for k in range(count)]


class WhileGradientMachine:
    """The gradient of a while loop in machine code: from the last turn to the first. The arrays of
    a run are rows of the stack, what turns read besides carried values, the gradients that arrive,
    tensors that the derivative reads besides; then the node's outputs.
    """

    def __init__(self, op: LoopGradient) -> None:
        body, back, n = op.back.body, op.back, op.count
        carried_specs = list(op.loop.specs[:n])
        own = op.loop.places[1]
        outside = [body.input_specs[k] for k, slot in enumerate(own) if slot >= n]
        self.stacked = n
        met_specs = body.input_specs[len(own) + len(back.seeds) :]
        given = [*carried_specs, *outside, *carried_specs, *met_specs]
        begin = n + len(outside)
        # What a turn began with is the row before that of the turn that followed it.
        slots: list[Place | int] = [
            *(Place(k, 0, -bytes_of(spec)) for k, spec in enumerate(carried_specs)),
            *(Place(n + k) for k in range(len(outside))),
            *back.seeds,
            *(Place(begin + n + k) for k in range(len(met_specs))),
        ]
        self.run_states: list[Any] = []
        self._op = op
        ahead = not op.loop.body.streams.all or LoopDraws(op.loop.test, op.loop.body).ahead
        self.draws = LoopDraws(body, ahead=ahead)

        def by_records() -> MachineLoop:
            return self._by_records(op, given, slots, begin)

        made = fused(
            body, lambda: fused_while_gradient(op, given, slots, begin, self.draws, by_records)
        )
        self.loop = made or told(by_records())

    def _by_records(
        self, op: LoopGradient, given: Sequence[Spec], slots: Sequence[Place | int], begin: int
    ) -> MachineLoop:
        """The loop over the records of the body's derivative."""
        body, n = op.back.body, op.count
        carried_specs = list(op.loop.specs[:n])
        layout = Layout(op.title, [*given, *op.specs], self.draws)
        carried = [layout.carried(bytes_of(spec)) for spec in carried_specs]
        for k, each in enumerate(carried):
            layout.copy(each.now, Place(begin + k), each.size)
        zeros, _ = layout.memory(
            max([0, *(bytes_of(spec) for spec in op.specs), *(each.size for each in carried)])
        )
        totals: dict[int, tuple[Place, np.ndarray]] = {}
        for slot, spec in zip(op.ends, op.specs, strict=True):
            if slot >= n:
                total = np.zeros(spec.shape, spec.dtype.numpy)
                totals[slot] = layout.fixed(total), total
                layout.copy(totals[slot][0], zeros, bytes_of(spec))
        layout.add(Kind.TURN)
        if self.draws.some and not self.draws.ahead:
            layout.call(self._draw)
        inputs = [slot if isinstance(slot, Place) else carried[slot].now for slot in slots]
        outputs: list[list[Place]] = [[] for _ in body.outputs]
        computed: dict[int, np.ndarray] = {}
        for slot, k in op.reached.items():
            if slot < n:
                outputs[k].append(carried[slot].next)
            elif slot in totals:
                computed[slot] = np.empty_like(totals[slot][1])
                outputs[k].append(layout.fixed(computed[slot]))
        layout.turn(body, inputs, outputs, self.draws)
        for slot, each in enumerate(carried):
            if slot not in op.reached:
                layout.copy(each.next, zeros, each.size)
        sums = [
            each
            for slot, (_, total) in totals.items()
            for each in bound_op(Add(), [total, computed[slot]], [total])
        ]
        layout.keeps.append(list(computed.values()))
        layout.calls(joined(sums), ["add"] * len(sums))
        layout.add(Kind.NEXT)
        layout.add(Kind.LEAVE)
        for k, (slot, spec) in enumerate(zip(op.ends, op.specs, strict=True), len(given)):
            source = carried[slot].now if slot < n else totals[slot][0]
            layout.copy(Place(k), source, bytes_of(spec))
        layout.add(Kind.END)
        return MachineLoop(layout, 0)

    def _draw(self) -> None:
        self._op.loop.body.draw_from(self.run_states[len(self.run_states) - 1 - self.loop.turn])

    def run(self, stack: Stack, arrays: Sequence[Any], outs: Sequence[Any]) -> None:
        """Run all turns; `arrays` are those behind the stack's."""
        self.run_states = stack.states
        self.draws.follow(stack.line, stack.turns)
        self.loop.let_in(stack.turns)
        last = max(stack.turns - 1, 0)
        self.loop.run([*(rows[last, ...] for rows in stack.rows), *arrays], outs)
