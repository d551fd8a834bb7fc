"""Loops whose turns run in machine code: bodies as records of a table (`turn_code.py`).

A turn's values lie where the loop wants them. A slice is read where it is, and a result written
where it is to be, at addresses that move with the turn; what is carried lies in two places, which
change roles. Values that are used as array objects have a fixed place, to or from which they are
copied. What only Python computes is called each turn, and the loop says what that is (`slow`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...backends import native
from ...backends.native.lowering.bound import bound_copy, dense
from ...backends.native.runtime import launch_list, turn_code
from ...backends.native.runtime.launch_list import Launch, LaunchList, joined
from ...backends.native.runtime.loop_record import ENDLESS, LoopRecord, Place, Stop
from ...backends.native.runtime.turn_code import Kind, Move, TurnTable
from ...core import debug
from ...core.arrays import address, call
from ...core.errors import Unsupported
from ...core.signal_deferral import DEFERRED
from ...core.spec import Spec, prod
from ...ir.program import Program, Value
from ..run.segment import Segment, unbound
from ..schedule.buffers import aligned
from .loop_draws import LoopDraws, apart

if TYPE_CHECKING:
    from .subgraphs import Subgraph

NOWHERE = -1  # number of a place's pointer that is an address by itself


def bytes_of(spec: Spec) -> int:
    """The size in bytes of an array."""
    return prod(spec.shape) * spec.dtype.itemsize


class Carried(NamedTuple):
    """A carried value: where a turn reads it, and where it writes the next one."""

    now: Place
    next: Place
    size: int  # in bytes


class Layout:
    """The records of a loop while they are written, in the order in which they run."""

    def __init__(
        self, title: str, given: Sequence[Spec | None], draws: LoopDraws | None = None
    ) -> None:
        """`given` are the arrays of a run, None for one that nobody reads: their memory is known by
        the numbers of these. Behind them come rows of what is drawn ahead.
        """
        self.title = title
        self.draws = draws
        self._first = len(given)  # of the rows
        self.given = [*given, *(() if draws is None else draws.specs)]
        self.slow = [] if draws is None else list(draws.slow)  # what Python computes in each turn
        self.python: list[Callable[[], object]] = []
        self.lists: list[LaunchList] = []
        self.errors: list[Callable[[], Exception]] = []
        self.keeps: list[Any] = []
        # Arrays that turns go through from the end: the bytes of a slice, by their numbers. A run
        # gives the addresses of their last slices, so that the records are those of any length.
        self.lasts: dict[int, int] = {}
        self._records: list[tuple[int, ...]] = []
        self._moves: list[tuple[int, int, Place]] = []
        self._outside: list[Move] = []

    # ---- places ----------------------------------------------------------------------------------

    def fixed(self, array: np.ndarray) -> Place:
        """The place of a contiguous array, which is kept."""
        self.keeps.append(array)
        return Place(NOWHERE, address(array))

    def memory(self, size: int) -> tuple[Place, np.ndarray]:
        """Memory of zeros that belongs to the loop, and its bytes."""
        raw = np.zeros(aligned(max(size, 1)) + 64, np.uint8)
        start = -address(raw) % 64
        self.keeps.append(raw)
        part = raw[start : start + max(size, 1)]
        return Place(NOWHERE, address(part)), part

    def carried(self, size: int) -> Carried:
        """Room for a carried value of so many bytes."""
        room = aligned(max(size, 1))
        place, _ = self.memory(2 * room)
        return Carried(
            place._replace(swap=room), place._replace(offset=place.offset + room, swap=-room), size
        )

    def row(self, number: int, length: int, reverse: bool) -> Place:
        """Place of the slice of a turn in the given array of this number."""
        spec = self.given[number]
        size = 0 if spec is None else bytes_of(spec) // max(length, 1)
        if reverse:
            self.lasts[number] = size
        return Place(number, 0, -size if reverse else size)

    # ---- records ---------------------------------------------------------------------------------

    def add(self, kind: Kind, *words: int, number: int = 0) -> None:
        """Add a record, which Python knows by a number."""
        self._records.append((int(kind), *words, *[0] * (3 - len(words)), number))

    def copy(self, to: Place, source: Place, size: int) -> int:
        """Add a copy; its number."""
        number = len(self._records)
        self._moves += [(number, 1, to), (number, 2, source)]
        self.add(Kind.COPY, 0, 0, size)
        return number

    def call(self, function: Callable[[], object], name: str = "") -> None:
        """Add a call of Python, which has a name if it costs time that an op in machine code would
        not.
        """
        self.add(Kind.PYTHON, number=len(self.python))
        self.python.append(function)
        if name and name not in self.slow:
            self.slow.append(name)

    def calls(self, calls: Sequence[Any], names: Sequence[str]) -> None:
        """Add bound calls. `names` are those of each that is not in a launch list."""
        named = iter(names)
        for each in calls:
            if type(each) is LaunchList:
                self.add(Kind.LIST, *each.entry(), number=len(self.lists))
                self.lists.append(each)
            else:
                self.call(each, next(named))

    def unless(self, place: Place, mask: int) -> int:
        """Add a jump to where `land` says, if no bit of a mask is set in the 8 bytes at a place;
        its number.
        """
        number = len(self._records)
        self._moves.append((number, 1, place))
        self.add(Kind.UNLESS, 0, mask)
        return number

    def go(self) -> int:
        """Add a jump to where `land` says; its number."""
        self.add(Kind.GO)
        return len(self._records) - 1

    def land(self, number: int) -> None:
        """Let a jump go to the next record."""
        kind, *words = self._records[number]
        words[2 if kind == Kind.UNLESS else 0] = len(self._records)
        self._records[number] = (kind, *words)

    def check(self, place: Place, error: Callable[[], Exception]) -> None:
        """Add a check: the loop raises an error if the byte at a fixed place is true."""
        self.add(Kind.CHECK, place.offset, number=len(self.errors))
        self.errors.append(error)

    def turn(
        self, body: Subgraph, inputs: Sequence[Place], outputs: Sequence[Sequence[Place]],
        draws: LoopDraws, number: int = 0,
    ) -> None:  # fmt: skip
        """Add a body, which is number `number` of those that draw. Its inputs lie at these places,
        and its outputs and kept values are wanted at these: any number for each.
        """
        program, one_by_one = body.program(), bool(body.streams.all) and not draws.ahead
        if draws.ahead:
            program, inputs = apart(program), [*inputs, *draws.places(number, self._first)]
        wrong: list[list[Place]] = []
        for x, _ in body.checks:
            one_byte = np.dtype(x.dtype).itemsize == 1
            wrong.append([self.memory(1)[0]] if one_byte else [])
        if one_by_one:
            self.call(lambda: draws.before(number))
        ends = [*outputs, *([] for _ in body.more), *wrong]
        beside = self.body(program, inputs, ends)
        body.called = list(self.slow)
        counts, others = beside[: len(body.more)], iter(beside[len(body.more) :])
        for (_, error), to in zip(body.checks, wrong, strict=True):
            if to:
                self.check(to[0], error)
            else:
                self.call(partial(_check, next(others), error), "a check of values")
        if one_by_one:
            self.call(lambda: draws.after(number, counts))

    def body(
        self, program: Program, inputs: Sequence[Place], outputs: Sequence[Sequence[Place]]
    ) -> list[np.ndarray]:
        """Add the records of a program whose inputs lie at these places, and whose outputs are
        wanted at these: any number for each. Returns arrays that hold outputs which are wanted
        nowhere.
        """
        return _Body(self, program, inputs, outputs).arrays

    def move(self, lists: Sequence[LaunchList], array: np.ndarray, place: Place) -> None:
        """Let the words of launch lists that point into an array point to a place."""
        for each in lists:
            for word, beyond in each.words_in(array):
                self._outside.append(Move(word, place, beyond))

    def table(self, length: int | None) -> TurnTable:
        """The table of all records, for so many turns (None: as many as records say)."""
        given, run_list = len(self.given), launch_list.code()
        return TurnTable(self._records, self._moves, self._outside, given, length, run_list)


class _Body:
    """A program's records while they are added to a layout."""

    def __init__(
        self, layout: Layout, program: Program, inputs: Sequence[Place],
        outputs: Sequence[Sequence[Place]],
    ) -> None:  # fmt: skip
        self.layout = layout
        places = dict(zip(program.inputs, inputs, strict=True))
        wanted: dict[Value, list[Place]] = {}
        for y, to in zip(program.outputs, outputs, strict=True):
            wanted.setdefault(y, []).extend(to)
        made = {y for node in program.nodes for y in node.outputs}
        computed = [y for y in wanted if y in made]
        moved = [y for y in computed if wanted[y]]
        array_at = unbound(program.inputs)
        targets = unbound(moved)
        layout.keeps += [array_at, targets]
        read = {x for node in program.nodes for x in node.values}
        part = Segment([x for x in program.inputs if x in read], program.nodes, computed)
        part.bind(array_at, targets)
        layout.keeps.append(part)
        lists = part.native_calls()
        for x, place in places.items():
            if x in part.shown:
                layout.copy(layout.fixed(array_at[x]), place, x.nbytes)
            elif x in read:
                layout.move(lists, array_at[x], place)
        for check in part.checks:
            layout.call(check, "a check of values")
        names = [
            "/".join(step.op.name for step in steps) for steps, in_code, _ in part.listed()
            if not in_code
        ]  # fmt: skip
        layout.calls(part.calls, names)
        if part.copies:
            self._copied(part.copies)
        for y, to in wanted.items():
            if y in places:
                source, rest = places[y], to
            elif y in moved and array_at[y] is targets[y] and y not in part.shown:
                source, *rest = to
                layout.move(lists, targets[y], source)
            else:
                array = y.array if y.array is not None else array_at[y]
                source, rest = self._contiguous(array) if to else Place(NOWHERE), to
            for place in rest:
                layout.copy(place, source, y.nbytes)
        self.arrays = [
            y.array if y.array is not None else array_at[y]
            for y, to in zip(program.outputs, outputs, strict=True) if not to
        ]  # fmt: skip

    def _copied(self, pairs: Sequence[tuple[Any, Any]]) -> None:
        calls = [each for to, source in pairs for each in bound_copy(to, source)]
        self.layout.keeps.append(list(pairs))
        self.layout.calls(joined(calls), ["copy"] * len(calls))

    def _contiguous(self, array: np.ndarray) -> Place:
        """The place of an array's elements in row-major order, to which they are copied if need
        be.
        """
        if not array.flags.c_contiguous:
            own = np.empty(array.shape, array.dtype)
            self._copied([(own, array)])
            array = own
        return self.layout.fixed(array)


class MachineLoop:
    """A loop that runs by its table: one run at a time."""

    def __init__(self, layout: Layout, length: int | None) -> None:
        self.title, self.slow = layout.title, layout.slow
        self._table: LoopRecord = layout.table(length)
        self._python, self._lists, self._errors = layout.python, layout.lists, layout.errors
        self._keeps = layout.keeps
        self._given, self._lasts = layout.given, layout.lasts
        self._words = np.zeros(len(self._given) + 2, np.int64)
        self._words[0] = address(self._table.table)
        self._code = turn_code.code()
        self._bound_turns(length, layout.draws)

    full: Callable[[int], None] | None = None  # makes room for more turns

    def _bound_turns(self, length: int | None, draws: LoopDraws | None) -> None:
        self._draws = draws if draws is not None and draws.ahead else None
        self._most, self._open = ENDLESS if length is None else length, length is None

    @property
    def turn(self) -> int:
        """Number of the turn, or of turns when the loop is over."""
        return self._table.turn

    def let_in(self, turns: int) -> None:
        """Set the number of turns, or the number for which there is room."""
        self._most = turns
        self._table.let_in(turns, self._open)

    def put(self, record: int, at: int) -> None:
        """Let the copy that is this record begin at an address in the first turn."""
        self._table.put(record, at)

    def run(self, arrays: Sequence[Any], outs: Sequence[Any]) -> None:
        """Run all turns for these arrays, which are followed by the outputs. The caller holds the
        lock.

        Errors: those of what is computed; they name the turn.
        """
        own = [_as_given(x, spec) for x, spec in zip(arrays, self._given, strict=False)]
        homes = [y if y.flags.c_contiguous else np.empty(y.shape, y.dtype) for y in outs]
        self.run_for(self._places([*own, *homes]))
        for y, home in zip(outs, homes, strict=True):
            if home is not y:
                y[...] = home

    def _places(self, arrays: Sequence[Any]) -> list[int]:
        """Addresses of arrays; of their last slices where turns begin with those."""
        places = [address(x) for x in arrays]
        for number, size in self._lasts.items():
            places[number] += max(self._most - 1, 0) * size
        return places

    def run_for(self, places: Sequence[int]) -> None:
        """Run all turns for contiguous arrays at these addresses."""
        self._words[1 : 1 + len(places)] = places
        for each in self._lists:
            each.hire()
        self._table.go_on(False)
        if self._draws is not None:
            self._draw(self._draws, 0)
        call(self._code, 1, address(self._words), None, False)
        if self._words[-1]:
            self.go_on()

    def bound(self, arrays: Sequence[Any], outs: Sequence[Any]) -> list[Any] | None:
        """Calls that run all turns for arrays that stay where they are, or move as those of any
        launch do; None where outputs have gaps.
        """
        if not all(y.flags.c_contiguous for y in outs):
            return None
        given, calls = dense(arrays)
        own = [_as_given(x, spec) for x, spec in zip(given, self._given, strict=False)]
        if any(x is not y for x, y in zip(own, given, strict=True)):
            return None
        for each in self._lists:
            each.hire()
        words = [address(self._table.table), *self._places([*own, *outs]), 0]
        launch = Launch(
            self._code, 1, np.array(words, np.int64).tobytes(), range(1, len(words) - 1), False,
            False, (self, own, list(outs)), self.go_on, shows=False, hires=True,
        )  # fmt: skip
        return [*calls, launch]

    def go_on(self) -> None:
        """Do what the loop has stopped for, and let it run, until all is over."""
        table, begun = self._table, self._table.begun
        try:
            while True:
                words = table.words
                if table.why == Stop.ELSE:
                    self.run_else(words)
                    return
                self._attend()
                if table.begun != begun:
                    raise Unsupported(
                        f"{self.title}: it was run while it runs, by a finalizer or by an "
                        "operation of it that Python computes; call what it was made of there"
                    )
                table.go_on(True)
                call(self._code, 1, words, None, False)
                if table.why == Stop.OVER:
                    return
        except BaseException:
            table.go_on(False)
            raise

    def run_else(self, words: int) -> None:
        """Run all turns in another way, for the run of these words."""
        raise NotImplementedError(f"{type(self).__name__}.run_else")

    def _attend(self) -> None:
        """Do what the loop has stopped for."""
        table = self._table
        why, number = table.why, table.number
        try:
            if why == Stop.PYTHON:
                self._python[number]()
            elif why == Stop.REFUSED:
                self._lists[number].go_on()
            elif why == Stop.FAILED:
                raise self._errors[number]()
            elif why == Stop.FULL:
                self._make_room(table.turn)
        except Exception as error:
            _say_turn(error, f"{self.title}: in turn {table.turn}")
            raise
        DEFERRED.poll()

    def _make_room(self, turn: int) -> None:
        if turn >= self._most:
            assert self.full is not None
            self.full(turn)
        if self._draws is not None:
            self._draw(self._draws, turn)

    def _draw(self, draws: LoopDraws, turn: int) -> None:
        """Let turns from this one on have their numbers, and the loop stop behind them."""
        if not turn or turn >= draws.end:
            at = draws.draw(turn, self._most - turn, not self._open)
            self._words[-1 - len(at) : -1] = at
        self._table.let_in(min(self._most, draws.end), self._open or draws.end < self._most)


def _as_given(x: Any, spec: Spec | None) -> Any:
    """The array, or a copy of it as the loop reads arrays."""
    if spec is None:
        return x if type(x) is np.ndarray and x.flags.c_contiguous else _UNREAD
    dtype = spec.dtype.numpy
    if type(x) is np.ndarray and x.dtype == dtype and x.flags.c_contiguous and x.flags.aligned:
        return x
    made = np.empty(x.shape, dtype)
    made[...] = x
    return made


_UNREAD = np.zeros(1)


def _say_turn(error: Exception, text: str) -> None:
    """Add a line to an error, which keeps its message."""
    if sys.version_info >= (3, 11):
        error.add_note(text)
    else:
        vars(error)["__notes__"] = [*vars(error).get("__notes__", []), text]


def is_available() -> bool:
    """Whether loops run in machine code; else Python runs their turns."""
    return bool(native.load())


def told(loop: MachineLoop) -> MachineLoop:
    """The loop, of which `ADJOINT_DEBUG=compile` tells what Python computes in each turn."""
    if "compile" in debug.on:
        slow = ", ".join(loop.slow)
        said = f"Python is called in each turn: {slow}" if slow else "turns run in machine code"
        debug.say("compile", f"{loop.title}: {said}")
    return loop


def _check(wrong: np.ndarray, error: Callable[[], Exception]) -> None:
    """Raise an error if the only element of an array is true."""
    if bool(wrong.reshape(())):
        raise error()
