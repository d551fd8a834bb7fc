"""Loops whose body is one function (`loop_code.py`), where it is known how all of it is written.

What is not known is said (`NotTraceable`), and the loop goes through records instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...backends.native.loops import loop_code
from ...backends.native.loops.loop_code import Carry, LoopCode, Row
from ...backends.native.loops.registers import Array
from ...backends.native.runtime.loop_record import LoopRecord, Place, Word
from ...core import debug
from ...core.arrays import address, array_at
from ...core.errors import NotTraceable
from ...core.spec import Spec
from ...ir.program import Program
from ..passes.pipelines import run_pipeline
from .fused_body import BodyCode
from .loop_draws import LoopDraws, apart
from .machine_loop import Layout, MachineLoop, bytes_of

if TYPE_CHECKING:
    from .subgraphs import Subgraph

_LARGEST = 4096  # bytes of a value that is computed or carried


class LoopText(NamedTuple):
    """The code of a scan, of any length: the words of its record, and LLVM's text."""

    record: int
    text: str
    lasts: dict[int, int]  # see `Layout`


class FusedLoop(MachineLoop):
    """A loop whose body is one function, with the record of its runs."""

    def __init__(
        self, title: str, given: Sequence[Spec | None], code: LoopText, length: int | None,
        other: Callable[[], MachineLoop], draws: LoopDraws,
    ) -> None:  # fmt: skip
        """`other` makes a loop that runs all turns where this one cannot."""
        self.title, self.slow = title, draws.slow
        self._table = LoopRecord(code.record, length)
        self._python, self._lists, self._errors = [], [], []
        self._given, self._lasts = list(given), code.lasts
        self._words = np.zeros(len(self._given) + 2, np.int64)
        self._words[0] = address(self._table.table)
        self._keeps = [loop_code.loaded(code.text)]
        self._code = self._keeps[0].address
        self._other = other
        self._else: MachineLoop | None = None
        self._bound_turns(length, draws)

    @property
    def count(self) -> np.ndarray:
        """The number of the last run, as an array of one element."""
        return self._table.count

    def run_else(self, words: int) -> None:
        """Run all turns by another loop, for the run of these words."""
        if self._else is None:
            self._else = self._other()
        if not self._open:
            self._else.let_in(self._most)
        count = len(self._given)
        given = array_at(words, (1 + count,), np.dtype(np.int64), (8,))
        self._else.run_for(given[1:].tolist())
        self._table.table[Word.TURN] = self._else.turn


def is_on() -> bool:
    """Whether bodies of loops become one function where they can."""
    return True


def fused(body: Subgraph, made: Callable[[], FusedLoop]) -> FusedLoop | None:
    """The loop over a body as one function; None where it is not, and the body says why."""
    try:
        if not is_on():
            raise NotTraceable("switched off")
        loop = made()
    except NotTraceable as error:
        body.by_records = str(error)
        return None
    body.by_records, body.called = "", list(loop.slow)
    return loop


def prepared(body: Subgraph, draws: LoopDraws) -> Program:
    """The program of a body, simplified as that of any step is: to the same bits. What is drawn
    ahead are further inputs.

    Errors: NotTraceable for one that needs Python in its turns, or large values.
    """
    if (draws.some and not draws.ahead) or body.more:
        raise NotTraceable("random numbers, one by one")
    if body.checks:
        raise NotTraceable("a check of values")
    graph = apart(body.program())
    for node in graph.nodes:
        for y in node.outputs:
            if y.nbytes > _LARGEST and not node.op.view:
                raise NotTraceable(f"{node.op.name}: {y.nbytes} bytes")
    run_pipeline("loop", graph)
    return graph


class Plan:
    """A loop that is to be one function: its arrays, what it carries, and where its values go."""

    def __init__(
        self, title: str, given: Sequence[Spec | None], carries: Sequence[Carry], draws: LoopDraws
    ) -> None:
        """`given` are the arrays of a run, behind which come rows of what is drawn ahead."""
        for each in carries:
            if bytes_of(each.spec) > _LARGEST or 0 in each.spec.shape:
                raise NotTraceable(f"a carried value of {bytes_of(each.spec)} bytes")
        self.title, self.given, self.carries = title, [*given, *draws.specs], carries
        self._draws = draws
        self.rows: list[Row] = []
        self.extra = 0
        self.number: Place | None = None
        self.lasts: dict[int, int] = {}
        self.text: LoopText

    def loop(
        self, programs: Sequence[Program], write: Callable[[LoopCode, Sequence[Array]], None],
        length: int | None, other: Callable[[], MachineLoop],
    ) -> FusedLoop:  # fmt: skip
        """The loop, whose turns `write` writes.

        Errors: NotTraceable where that is not known.
        """
        values = [
            x.spec for program in programs
            for x in (*program.inputs, *(y for node in program.nodes for y in node.outputs))
        ]  # fmt: skip
        code = LoopCode(
            [*values, *(each.spec for each in self.carries)], len(self.given), self.carries,
            self.rows, self.extra,
        )  # fmt: skip
        code.number = self.number
        self.text = LoopText(code.record, code.text(write), self.lasts)
        return self.made(self.text, length, other)

    def made(
        self, text: LoopText, length: int | None, other: Callable[[], MachineLoop]
    ) -> FusedLoop:
        """A loop of this code, with memory of its own."""
        loop = FusedLoop(self.title, self.given, text, length, other, self._draws)
        if "compile" in debug.on:
            debug.say("compile", f"{self.title}: turns are one function")
        return loop


def inputs_of(
    program: Program, code: LoopCode, slots: Sequence[Place | int], carried: Sequence[Array],
    known: dict[Place, Array],
) -> list[Array]:  # fmt: skip
    """The inputs of a program: a carried value, by number, or the array at a place, of which those
    that were read before are `known`.
    """
    inputs: list[Array] = []
    for x, slot in zip(program.inputs, slots, strict=True):
        if isinstance(slot, Place):
            if slot not in known:
                known[slot] = code.read(slot, x.spec)
            inputs.append(known[slot])
        else:
            inputs.append(carried[slot])
    return inputs


def fused_scan(
    scan: Any, given: Sequence[Spec | None], inputs: int, layout: Layout, draws: LoopDraws,
    other: Callable[[], MachineLoop],
) -> FusedLoop:  # fmt: skip
    """A scan as one function. `given` are specs of its inputs, of which there are so many, and of
    its outputs; `layout` knows the places of slices.

    Errors: NotTraceable where its body is not one.
    """
    body, n, length, reverse = scan.body, scan.carried, scan.length, scan.reverse
    row = layout.row
    key = inputs, scan.places, n, scan.sliced, length > 0, reverse, scan.keeps
    known = None if draws.some else body.texts.get(key)
    if known is not None:
        return Plan(scan.title, given, (), draws).made(known, length, other)
    program = prepared(body, draws)
    end = len(body.outputs) + len(body.kept)
    carries = [Carry(spec, Place(k), Place(inputs + k)) for k, spec in enumerate(body.specs[:n])]
    plan = Plan(scan.title, given, carries, draws)
    plan.lasts = layout.lasts
    if scan.keeps:
        plan.rows = [Row(k, row(inputs + end + k, length, reverse)) for k in range(n)]
    slots: list[Place | int] = [
        *range(n),
        *(row(k, length, reverse) for k in range(n, n + scan.sliced)),
        *(Place(k) for k in range(n + scan.sliced, inputs)),
    ]

    def write(code: LoopCode, carried: Sequence[Array]) -> None:
        code.note_rows()
        written = BodyCode(code.registers)
        read = [*(slots[k] for k in scan.places), *draws.places(0, len(given))]
        own = inputs_of(program, code, read, carried, {})
        made = written.write(program, own)
        results = [(row(inputs + k, length, reverse), made[k]) for k in range(n, end)]
        code.end(made[:n], results, written.singular)

    loop = plan.loop([program], write, length, other)
    body.texts[key] = plan.text
    return loop


def fused_while(
    loop: Any, given: Sequence[Spec | None], inputs: int, keep: bool, draws: LoopDraws,
    other: Callable[[], MachineLoop],
) -> FusedLoop:  # fmt: skip
    """A while loop as one function; with `keep` what each turn begins with is noted in a stack, to
    which the record's words behind its head point.

    Errors: NotTraceable where its bodies are not.
    """
    n = loop.count
    test, body = (prepared(each, draws) for each in loop.subgraphs())
    carries = [Carry(spec, Place(k), Place(inputs + k)) for k, spec in enumerate(loop.specs[:n])]
    plan = Plan(loop.title, given, carries, draws)
    plan.number = Place(inputs + n)
    if keep:
        plan.rows, plan.extra = [Row(k, None, Word.HEAD + k) for k in range(n)], n
    slots: list[Place | int] = [*range(n), *(Place(k) for k in range(n, inputs))]

    def write(code: LoopCode, carried: Sequence[Array]) -> None:
        written = BodyCode(code.registers)
        known: dict[Place, Array] = {}
        read = [
            [*(slots[k] for k in places), *draws.places(number, len(given))]
            for number, places in enumerate(loop.places)
        ]
        own = [
            inputs_of(program, code, each, carried, known)
            for program, each in zip((test, body), read, strict=True)
        ]
        [go] = written.write(test, own[0])
        code.test(go)
        code.note_rows()
        made = written.write(body, own[1])
        if written.singular:
            raise NotTraceable("a system of equations, which may be singular")
        code.end(made, [], [])

    return plan.loop([test, body], write, None, other)


def fused_while_gradient(
    op: Any, given: Sequence[Spec], inputs: Sequence[Place | int], begin: int, draws: LoopDraws,
    other: Callable[[], MachineLoop],
) -> FusedLoop:  # fmt: skip
    """The gradient of a while loop as one function. `inputs` are those of the body's derivative,
    `begin` the number of the array with which the first carried gradient begins.

    Errors: NotTraceable where the derivative is not one.
    """
    n = op.count
    program = prepared(op.back.body, draws)
    ends = {slot: Place(len(given) + k) for k, slot in enumerate(op.ends)}
    totals = {slot: n + k for k, slot in enumerate(slot for slot in op.ends if slot >= n)}
    specs = dict(zip(op.ends, op.specs, strict=True))
    carries = [
        *(
            Carry(spec, Place(begin + k), ends.get(k))
            for k, spec in enumerate(op.loop.specs[:n])
        ),
        *(Carry(specs[slot], None, ends[slot]) for slot in totals),
    ]  # fmt: skip
    plan = Plan(op.title, [*given, *op.specs], carries, draws)
    read = [*inputs, *draws.places(0, len(given) + len(op.specs))]

    def write(code: LoopCode, carried: Sequence[Array]) -> None:
        r = code.registers
        written = BodyCode(r)
        made = written.write(program, inputs_of(program, code, read, carried, {}))
        if written.singular:
            raise NotTraceable("a system of equations, which may be singular")
        following: list[Array] = [
            made[op.reached[k]] if k in op.reached else r.number(0, carried[k].dtype)
            for k in range(n)
        ]
        following += [r.op("add", carried[k], made[op.reached[slot]]) for slot, k in totals.items()]
        code.end(following, [], [])

    return plan.loop([program], write, 0, other)
