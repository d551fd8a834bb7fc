"""The machine code that runs the turns of a loop, and the table that tells it what a turn does.

A turn is a list of records: launch lists, copies, checks, calls of Python. Before each turn the
words that move are set from its number: where a slice lies (so many bytes further a turn), and
where a carried value is read and written (two places, which change roles every turn). Nothing else
happens in a turn: no Python, no memory is asked for, and no lock is taken.

The loop is resumable. All that it knows lies in the table, so it stops where Python must do
something (`Stop`), and goes on from there in the next call. It is called like any kernel, with
words of its own: the table, the addresses of the arrays that one run is given, and whether it has
stopped.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ....core.arrays import address
from ...codegen.emit import Module, Reg
from . import object_code
from .loop_record import LoopRecord, Place, Stop, Word, write_clock, write_look
from .shared_code import Writer, function

# Words of a table, behind those of any loop's record.
(
    _AT, _FIRST, _END, _RUN_LIST, _RECORDS, _ONCE, _ONCE_COUNT, _EACH, _EACH_COUNT, _AFTER,
    _AFTER_COUNT, _GIVEN, _HEAD,
) = range(Word.HEAD, Word.HEAD + 13)  # fmt: skip
RECORD = 5  # words of a record: what it is, three more, and the number by which Python knows it
_MOVE = 5  # words of a move
_LARGEST_BATCH = 1024  # turns without a look at the clock


class Kind(enum.IntEnum):
    """Kinds of records."""

    LIST = 0  # a launch list: its table, and how many of its records there are
    COPY = 1  # bytes: to, from, how many
    TURN = 2  # a turn begins: the loop ends behind the last one
    NEXT = 3  # a turn ends
    LEAVE = 4  # the turns are over: what follows runs once
    UNLESS = 5  # goes to a record where no bit of a mask is set in the 64 bits at a place
    GO = 6  # goes to a record
    CHECK = 7  # stops where the byte at a place is not zero
    PYTHON = 8  # stops: Python computes something
    COUNT = 9  # adds one to the word at a place
    END = 10  # all is over


class Move(NamedTuple):
    """A word that is set to a place, `beyond` bytes further."""

    word: int  # its address
    place: Place
    beyond: int = 0

    def words(self) -> tuple[int, ...]:
        """The words of the move in a table."""
        pointer, offset, step, swap = self.place
        return self.word, pointer + 1, offset + self.beyond, step, swap


class TurnTable(LoopRecord):
    """Records of a loop, laid out with its moves, and the state of its run."""

    def __init__(
        self,
        records: Sequence[tuple[int, ...]],
        moves: Sequence[tuple[int, int, Place]],
        outside: Sequence[Move],
        given: int,
        length: int | None,
        run_list: int,
    ) -> None:
        """`records` run in order, those before `Kind.TURN` and behind `Kind.LEAVE` once, as do all
        where there are no turns. `moves` are words of records: the record's number, the word's, and
        its place; `outside` those of launch lists. Runs are `given` so many arrays. `length` is the
        number of turns, None where records decide, `run_list` the code that runs a launch list.
        """
        kinds = [record[0] for record in records]
        first, end = (
            kinds.index(kind) if kind in kinds else len(kinds) for kind in (Kind.TURN, Kind.LEAVE)
        )
        self._records = np.zeros((len(records), RECORD), np.int64)
        for row, record in zip(self._records, records, strict=True):
            row[: len(record)] = record
        start = address(self._records)
        own = [(n, Move(start + 8 * (RECORD * n + k), place)) for n, k, place in moves]
        before = [move for n, move in own if n < first]
        behind = [move for n, move in own if n >= end]
        within = [*(move for n, move in own if first <= n < end), *outside]
        once = [*before, *(move for move in within if not move.place.moves)]
        each = [move for move in within if move.place.moves]
        self._moves = [
            np.array([move.words() for move in part], np.int64).reshape(-1, _MOVE)
            for part in (once, each, behind)
        ]
        super().__init__(_HEAD, length)
        table = self.table
        table[_FIRST], table[_END] = first, end
        table[_GIVEN], table[_RUN_LIST], table[_RECORDS] = given, run_list, start
        for k, part in zip((_ONCE, _EACH, _AFTER), self._moves, strict=True):
            table[k], table[k + 1] = address(part), len(part)

    def put(self, record: int, at: int) -> None:
        """Let the copy that is this record begin at an address in the first turn."""
        each = self._moves[1]
        each[each[:, 0] == address(self._records[record]) + 8, 2] = at


@functools.cache
def code() -> int:
    """Address of the loop's code: `void turns(i64 begin, i64 end, i64 *words)`, of which the first
    two are not looked at.
    """
    return object_code.library(__name__, _text, ["turns"])[0]


def _text() -> str:
    module = Module()
    write_clock(module)
    with function(module, "void @move(ptr %words, ptr %moves, i64 %count, i64 %turn)") as (
        b, words, moves, count, turn,
    ):  # fmt: skip
        _write_moves(b, words, moves, count, turn)
    with function(module, "void @turns(i64 %begin, i64 %end, ptr %words)") as (b, _, _, words):
        _Writing(b, words).write()
    return str(module)


def _write_moves(b: Writer, words: Reg, moves: Reg, count: Reg, turn: Reg) -> None:
    """Set words to their places in a turn."""
    odd = b.const("i64", 0) - (turn & 1)  # all bits, or none
    with b.loop(0, count) as i:
        move = b.at(moves, i * (8 * _MOVE))
        word = b.get(b.place("ptr", move, 0))
        pointer, offset, step, swap = (b.get(b.place("i64", move, 8 * k)) for k in range(1, _MOVE))
        given = b.get(b.place("i64", words, pointer, "i64"))
        start = b.select(pointer > 0, given, b.const("i64", 0))
        b.put(b.place("i64", word, 0), start + offset + turn * step + (swap & odd))


class _Writing:
    """The text of the loop while it is written."""

    def __init__(self, b: Writer, words: Reg) -> None:
        self.b, self.words = b, words
        self.table = b.get(b.place("ptr", words, 0))
        self.record = b.alloca("ptr")
        self.stopped = b.place("i64", words, self._get(_GIVEN) + 1, "i64")

    def _word(self, k: int, elem: str = "i64") -> Reg:
        return self.b.place(elem, self.table, 8 * k)

    def _get(self, k: int, elem: str = "i64") -> Reg:
        return self.b.get(self._word(k, elem))

    def _own(self, k: int, elem: str = "i64") -> Reg:
        """Word `k` of the record."""
        b = self.b
        return b.get(b.place(elem, b.get(self.record), 8 * k))

    def _move(self, which: int, turn: Reg) -> None:
        moves, count = self._get(which, "ptr"), self._get(which + 1)
        self.b.invoke("void", "move", self.words, moves, count, turn)

    def _go_to(self, k: Reg) -> None:
        """Make record `k` the next one."""
        b = self.b
        b.put(self.record, b.at(self._get(_RECORDS, "ptr"), k * (8 * RECORD)))

    def _stop(self, why: Stop, behind: int) -> None:
        """Stop, so that the next call begins with this record, or with the one `behind` it."""
        b = self.b
        record, first = (
            b.convert("ptrtoint", x, "i64")
            for x in (b.get(self.record), self._get(_RECORDS, "ptr"))
        )
        number = b.binary("sdiv", record - first, 8 * RECORD)
        b.put(self._word(_AT), number + behind)
        b.put(self._word(Word.WHY), why)
        b.put(self._word(Word.NUMBER), self._own(RECORD - 1))
        b.put(self.stopped, why != Stop.OVER)
        b.ret()
        b.start(b.label())

    def write(self) -> None:
        """Write all."""
        b = self.b
        b.put(self._word(Word.WHY), 0)
        b.put(self._word(Word.WORDS), b.convert("ptrtoint", self.words, "i64"))
        goes_on = b.compare("ne", self._get(Word.GOES_ON), 0)
        b.put(self._word(Word.GOES_ON), 0)
        with b.when(~goes_on):
            b.put(self._word(Word.BEGUN), self._get(Word.BEGUN) + 1)
            b.put(self._word(_AT), 0)
            b.put(self._word(Word.TURN), 0)
            self._move(_ONCE, b.const("i64", 0))
        self._go_to(self._get(_AT))
        with b.forever() as (again, _):
            kind = self._own(0)
            for which, write in (
                (Kind.LIST, self._list),
                (Kind.COPY, self._copy),
                (Kind.NEXT, self._next),
                (Kind.TURN, lambda: self._turn(again)),
                (Kind.UNLESS, lambda: self._unless(again)),
                (Kind.GO, lambda: self._jump(self._own(1), again)),
                (Kind.LEAVE, lambda: self._move(_AFTER, self._get(Word.TURN))),
                (Kind.CHECK, self._check),
                (Kind.COUNT, self._count),
                (Kind.PYTHON, lambda: self._stop(Stop.PYTHON, 1)),
                (Kind.END, lambda: self._stop(Stop.OVER, 1)),
            ):
                with b.when(b.compare("eq", kind, int(which))):
                    write()
                    if which is Kind.NEXT:
                        b.go(again)
                        b.start(b.label())
                    else:
                        b.put(self.record, b.at(b.get(self.record), 8 * RECORD))
                        b.go(again)
                        b.start(b.label())

    def _list(self) -> None:
        b = self.b
        table, runs = self._own(1, "ptr"), self._own(2)
        b.put(b.place("i64", table, 16), 0)  # an exception may have come where it had refused
        b.invoke("void", self._get(_RUN_LIST, "ptr"), b.const("i64", 0), runs, table)
        following = b.get(b.place("i64", table, 16))
        with b.when(b.compare("ne", following, 0)):
            self._stop(Stop.REFUSED, 1)

    def _copy(self) -> None:
        b = self.b
        to, source, count = self._own(1, "ptr"), self._own(2, "ptr"), self._own(3)
        b.module.declare("llvm.memcpy.p0.p0.i64", "void", ["ptr", "ptr", "i64", "i1"])
        b.line(
            f"call void @llvm.memcpy.p0.p0.i64(ptr {to.ref}, ptr {source.ref}, i64 {count.ref}, "
            "i1 false)"
        )

    def _next(self) -> None:
        b = self.b
        b.put(self._word(Word.TURN), self._get(Word.TURN) + 1)
        self._go_to(self._get(_FIRST))

    def _jump(self, number: Reg, again: str) -> None:
        """Go on with another record."""
        self._go_to(number)
        self.b.go(again)
        self.b.start(self.b.label())

    def _turn(self, again: str) -> None:
        b = self.b
        turn = self._get(Word.TURN)
        with b.when(turn >= self._get(Word.LENGTH)):
            with b.when(b.compare("ne", self._get(Word.OPEN), 0)):
                self._stop(Stop.FULL, 0)
            self._jump(self._get(_END), again)
        self._move(_EACH, turn)
        left = self._get(Word.LEFT) - 1
        b.put(self._word(Word.LEFT), left)
        with b.when(left <= 0):
            self._look()

    def _look(self) -> None:
        """Look at the clock: stop after a while, and look more seldom where turns are short."""
        b = self.b
        now = write_look(b, self._word, _LARGEST_BATCH)
        with b.when((now - self._get(Word.SINCE)) > self._get(Word.SLICE)):
            b.put(self._word(Word.SINCE), now)
            self._stop(Stop.TIME, 1)

    def _unless(self, again: str) -> None:
        b = self.b
        bits = b.get(b.place("i64", self._own(1, "ptr"), 0)) & self._own(2)
        with b.when(b.compare("eq", bits, 0)):
            self._jump(self._own(3), again)

    def _count(self) -> None:
        word = self.b.place("i64", self._own(1, "ptr"), 0)
        self.b.put(word, self.b.get(word) + 1)

    def _check(self) -> None:
        b = self.b
        wrong = b.get(b.place("i8", self._own(1, "ptr"), 0))
        with b.when(b.compare("ne", wrong, 0)):
            self._stop(Stop.FAILED, 1)
