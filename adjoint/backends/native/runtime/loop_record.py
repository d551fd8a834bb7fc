"""What a loop in machine code is at: the record in which it lies while Python runs.

A loop goes back to Python after a while, where signals are handled, or where it wants something. It
is called again with the same record, and goes on.
"""

from __future__ import annotations

import enum
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...codegen.emit import Module, Reg
from .shared_code import Writer

_PATIENCE = 0.025  # seconds of a stretch without Python
ENDLESS = 1 << 62  # turns


class Word(enum.IntEnum):
    """Words of a record."""

    GOES_ON = 0  # whether the next call goes on where the last has stopped
    TURN = 1
    WHY = 2  # it has stopped
    NUMBER = 3  # by which Python knows where
    LENGTH = 4  # the number of turns, or for which there is room
    OPEN = 5  # whether there may be more
    LEFT = 6  # turns until the next look at the clock
    BATCH = 7  # turns from a look to the next one
    SINCE = 8  # when Python ran last
    LAST = 9  # when the last look was
    SLICE = 10  # ticks of a stretch without Python
    SHORT = 11  # ticks below which looks are too often
    WORDS = 12  # address of the words of the run that has stopped
    BEGUN = 13  # how often the loop has begun
    COUNT = 14  # the number of the run
    HEAD = 15


class Stop(enum.IntEnum):
    """Why the loop has stopped, at a record with a number."""

    OVER = 0
    REFUSED = 1  # a launch list has refused its arrays
    PYTHON = 2
    FAILED = 3  # a check
    TIME = 4  # let Python handle signals
    FULL = 5  # as many turns as the table has room for
    ELSE = 6  # another loop is to run all turns instead


class Place(NamedTuple):
    """Where something lies in a turn: `offset` bytes from a pointer of the run (-1: from 0), plus
    `step` bytes for each turn before, plus `swap` bytes in each second one.
    """

    pointer: int
    offset: int = 0
    step: int = 0
    swap: int = 0

    @property
    def moves(self) -> bool:
        """Whether it is another one in another turn."""
        return bool(self.step or self.swap)


class LoopRecord:
    """The state of a loop's run."""

    def __init__(self, words: int, length: int | None) -> None:
        """`words` is its size, `length` the number of turns: None where the loop decides."""
        table = self.table = np.zeros(words, np.int64)
        table[Word.LENGTH] = ENDLESS if length is None else length
        table[Word.OPEN] = length is None
        table[Word.BATCH] = table[Word.LEFT] = 1
        now = time.monotonic_ns() if sys.platform != "win32" else 0
        table[Word.SINCE] = table[Word.LAST] = now
        ticks = _ticks()
        table[Word.SLICE], table[Word.SHORT] = int(_PATIENCE * ticks), int(_PATIENCE / 25 * ticks)

    @property
    def why(self) -> Stop:
        """Why the loop has stopped."""
        return Stop(int(self.table[Word.WHY]))

    @property
    def number(self) -> int:
        """The number by which Python knows the record at which it has stopped."""
        return int(self.table[Word.NUMBER])

    @property
    def turn(self) -> int:
        """Number of the turn, or of turns when the loop is over."""
        return int(self.table[Word.TURN])

    @property
    def words(self) -> int:
        """Address of the words of the run that has stopped."""
        return int(self.table[Word.WORDS])

    @property
    def begun(self) -> int:
        """How often the loop has begun."""
        return int(self.table[Word.BEGUN])

    @property
    def count(self) -> np.ndarray:
        """The number of the last run, as an array of one element."""
        return self.table[Word.COUNT : Word.COUNT + 1]

    def go_on(self, does: bool) -> None:
        """Let the next call go on where the loop has stopped, or begin anew. Calls begin anew
        unless this was just asked for: an exception may have come between a stop and who knows of
        it.
        """
        self.table[Word.GOES_ON] = does

    def put(self, record: int, at: int) -> None:
        """Set the word of this number, an address."""
        self.table[record] = at

    def let_in(self, turns: int, more: bool) -> None:
        """Set how many turns there is room for, and whether there may be more."""
        self.table[Word.LENGTH], self.table[Word.OPEN] = turns, more


def _ticks() -> float:
    """Ticks of the clock that the loop reads, a second."""
    if sys.platform != "win32":
        return 1e9
    import ctypes

    frequency = ctypes.c_int64()
    ctypes.windll.kernel32.QueryPerformanceFrequency(ctypes.byref(frequency))
    return float(frequency.value)


def write_clock(module: Module) -> None:
    """Write `i64 @clock()`, which counts ticks since some time."""
    if sys.platform == "win32":
        module.declare("QueryPerformanceCounter", "i32", ["ptr"])
        module.functions["clock"] = """
define internal i64 @clock() {
  %now = alloca i64
  %status = call i32 @QueryPerformanceCounter(ptr %now)
  %ticks = load i64, ptr %now
  ret i64 %ticks
}"""
        return
    module.declare("clock_gettime", "i32", ["i32", "ptr"])
    module.functions["clock"] = f"""
define internal i64 @clock() {{
  %now = alloca [2 x i64]
  %status = call i32 @clock_gettime(i32 {int(time.CLOCK_MONOTONIC)}, ptr %now)
  %seconds = load i64, ptr %now
  %place = getelementptr i64, ptr %now, i64 1
  %rest = load i64, ptr %place
  %whole = mul i64 %seconds, 1000000000
  %ticks = add i64 %whole, %rest
  ret i64 %ticks
}}"""


def write_look(b: Writer, word: Callable[[int], Reg], largest: int) -> Reg:
    """Write a look at the clock, by which the number of turns until the next is chosen: at most
    `largest`. `word` gives a word of the record; the result is the time.
    """
    now = b.call("clock", "i64", 0, [])
    short = (now - b.get(word(Word.LAST))) < b.get(word(Word.SHORT))
    batch = b.get(word(Word.BATCH))
    more = b.minmax("min", batch * 2, b.const("i64", largest), False)
    less = b.minmax("max", b.binary("sdiv", batch, 2), b.const("i64", 1), False)
    batch = b.select(short, more, less)
    b.put(word(Word.BATCH), batch)
    b.put(word(Word.LEFT), batch)
    b.put(word(Word.LAST), now)
    return now
