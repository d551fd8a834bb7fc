"""Kernels that run one after another as one call of machine code, on memory that may move.

A `Launch` is machine code with its words, some of which are addresses. A `LaunchList` lays the
words of many calls out in one place, with a record for each: code, chunks, where its words are,
whether threads share the chunks. Small calls through which threads go apart are one record
(`parallel_sections.py`). A generated loop goes through the records without the GIL. Where code
refuses its arrays (an index out of range), the loop stops: what is general computes instead, or
says what is wrong. Where an array lies elsewhere the next time, the words that point into it are
changed (`moving`).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from collections.abc import Sequence as Many
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....core.arrays import address, call
from ....core.elements import put_addresses
from ...codegen.emit import Module
from ...codegen.target import LoadedCode
from . import object_code
from .parallel_sections import Blocks, Spans, parallel_sections, table
from .parallel_sections import code as region_code
from .pool import default_pool
from .shared_code import function

_CODE, _CHUNKS, _WORDS, _SHARED, _STATUS, _RECORD = range(6)  # words of a record, and how many
# Of a table, before its records: the pool's `run` (0: none) and its state, and the next record.
_RUN, _STATE, _NEXT, _HEAD = range(4)


@dataclass(eq=False, slots=True)
class Launch:
    """Machine code `void(int64 begin, int64 end, int64 *words)` for chunks 0 to `chunks` - 1."""

    code: (
        int | LoadedCode
    )  # or where it is; asked when calls are joined, so that all are linked at once
    chunks: int
    words: bytes
    pointers: range  # the places of the words that are addresses
    shared: bool  # whether the pool's threads share the chunks
    quick: bool  # so little that the GIL is kept
    keeps: Any  # what owns the code, and memory that other words point to
    otherwise: Callable[[], object] | None = None  # the last word is set where that is to be called
    shows: bool = True  # whether `otherwise` reads arrays as such, wherever the words point
    fails: bool = True  # whether `otherwise` may raise an error
    hires: bool = False  # whether the code itself lets the pool's threads share its work
    fixed: bool = False  # whether tables have addresses, too
    # For regions: what it does, in additions; from where to where it goes from its pointers, of
    # which the last `outputs` are written; how many rows it has (0: any number that divides them);
    # the same in blocks of so many of these.
    work: float = 0.0
    spans: Spans | None = None
    outputs: int = 1
    rows: int = 0
    blocks: Callable[[int, int], Blocks | None] | None = None

    @property
    def address(self) -> int:
        """Address of the code."""
        return self.code if isinstance(self.code, int) else self.code.address

    @property
    def needs_arrays(self) -> bool:
        """Whether arrays are read as such, and not only where the words point."""
        return self.fixed or (self.otherwise is not None and self.shows)

    def __call__(self) -> None:
        """Run it alone."""
        LaunchList([self])()


@functools.cache
def code() -> int:
    """The loop: records from the next to `end` of a table, which says afterwards which is the next:
    the one behind that which refused, or the first.
    """
    return object_code.library(__name__, _text, ["sequence"])[0]


def _text() -> str:
    module = Module()
    header = "void @sequence(i64 %begin, i64 %end, ptr %table)"
    with function(module, header) as (b, _, end, table):
        run, state = (b.get(b.place("ptr", table, k, "i64")) for k in (_RUN, _STATE))
        following = b.place("i64", table, _NEXT, "i64")
        alone = b.emit("i1", 0, f"icmp eq ptr {run.ref}, null")
        with b.forever() as (_, over):
            i = b.get(following)
            b.put(following, i + 1)
            with b.when(i >= end):
                b.put(following, 0)
                b.go(over)
            record = b.at(table, i * (8 * _RECORD) + 8 * _HEAD)
            code, words, status = (
                b.get(b.place("ptr", record, k, "i64")) for k in (_CODE, _WORDS, _STATUS)
            )
            chunks, shared = (b.get(b.place("i64", record, k, "i64")) for k in (_CHUNKS, _SHARED))
            together = b.compare("ne", shared, 0) & ~alone
            with b.when(together):
                b.invoke("void", run, state, code, words, chunks)
            with b.when(~together):
                b.invoke("void", code, b.const("i64", 0), chunks, words)
            with b.when(b.emit("i1", 0, f"icmp ne ptr {status.ref}, null")):
                refused = b.place("i64", status, 0)
                with b.when(b.compare("ne", b.get(refused), 0)):
                    b.put(refused, 0)
                    b.go(over)
    return str(module)


class LaunchList:
    """Calls, which run in order as one call of machine code."""

    __slots__ = (
        "_at", "_behind", "_code", "_entry", "_keeps", "_one", "_otherwise", "_pointers", "_pool",
        "_quick", "_refuses", "_runs", "_shared", "_table", "_words", "failing", "regions",
    )  # fmt: skip

    failing: list[bool]  # which calls may raise an error
    regions: list[range]  # calls through which threads go apart

    def __init__(self, calls: Many[Launch]) -> None:
        parallel = parallel_sections(calls, default_pool().num_threads) if len(calls) > 1 else []
        self.regions = [range(each.first, each.last) for each in parallel]
        # What is pointed to; what else calls say of themselves is needed no more.
        self._keeps = [
            *((each.code, each.keeps) for each in calls),
            *(each.keeps for each in parallel),
        ]
        codes = [each.address for each in calls]
        self._otherwise = [each.otherwise for each in calls]
        laid = [(each.words, each.pointers) for each in calls]
        for region in parallel:
            pointers = [each.pointers for each in calls[region.first : region.last]]
            laid += zip(region.words, pointers, strict=True)
            blank = [0] * len(pointers)
            laid.append((bytes(8 * len(table(region, blank, blank))), range(0)))
        starts = [0, *itertools.accumulate(len(words) // 8 for words, _ in laid)]
        self._words = np.empty(starts[-1], np.int64)
        self._pointers = np.empty(sum(len(pointers) for _, pointers in laid), np.int64)
        count = 0
        for start, end, (words, own) in zip(starts, starts[1:], laid, strict=False):
            self._words[start:end] = np.frombuffer(words, np.int64)
            self._pointers[count : count + len(own)] = own
            self._pointers[count : count + len(own)] += start
            count += len(own)
        first = address(self._words)
        runs = len(calls) + len(parallel) - sum(region.last - region.first for region in parallel)
        self._runs = runs
        # Where the calls are, one by one.
        self._one = runs if parallel else 0
        self._table = np.zeros(_HEAD + _RECORD * (self._one + len(calls)), np.int64)
        records = self._table[_HEAD:].reshape(-1, _RECORD)
        alone = records[self._one :]
        for k, each in enumerate(calls):
            status = first + 8 * starts[k + 1] - 8 if each.otherwise is not None else 0
            alone[k] = codes[k], each.chunks, first + 8 * starts[k], int(each.shared), status
        self._behind: list[Any] = []
        k, word = 0, len(calls)
        for region in parallel:
            here = len(self._behind)
            self._behind += [*self._otherwise[k : region.first], None]
            records[here : len(self._behind) - 1] = alone[k : region.first]
            k = region.last
            last = word + k - region.first
            places = [first + 8 * start for start in starts[word:last]]
            self._words[starts[last] : starts[last + 1]] = table(
                region, codes[region.first : k], places
            )
            whole = region_code(), len(region.parts), first + 8 * starts[last], 1, 0
            records[len(self._behind) - 1] = whole
            word = last + 1
        records[len(self._behind) : runs] = alone[k:]
        self._behind += self._otherwise[k:]
        self._quick = all(each.quick for each in calls)
        self._shared = bool(parallel) or any(each.shared or each.hires for each in calls)
        self.failing = [each.otherwise is not None and each.fails for each in calls]
        self._refuses = any(each is not None for each in self._otherwise)
        self._pool = default_pool() if self._shared else None
        self._entry: tuple[int, int] | None = None  # of the pool, as the table has it
        self._code, self._at = code(), address(self._table)

    def __len__(self) -> int:
        return len(self._otherwise)

    def moving(self, array: Any) -> Callable[[int], None]:
        """A function that makes all calls that use an array's memory use the memory at another
        address.
        """
        places, offsets = self._inside(array)
        return functools.partial(put_addresses, self._words, places, offsets)

    def words_in(self, array: Any) -> list[tuple[int, int]]:
        """The addresses of all words that point into an array's memory, and how far into it."""
        places, offsets = self._inside(array)
        found = zip(places * 8 + address(self._words), offsets, strict=True)
        return [(int(place), int(offset)) for place, offset in found]

    def _inside(self, array: Any) -> tuple[Any, Any]:
        offsets = self._words[self._pointers] - address(array)
        inside = (offsets >= 0) & (offsets < max(array.nbytes, 1))
        return self._pointers[inside], offsets[inside]

    def entry(self) -> tuple[int, int]:
        """The table and the number of its records, as `code` runs them."""
        return self._at, self._runs

    def hire(self) -> None:
        """See to it that the pool's workers are there, for who runs `entry`."""
        self._hire()

    def one_by_one(self, around: Callable[[int, Callable[[], None]], object]) -> None:
        """Runs all calls, in order, each by `around(its place, what runs it)`."""
        for k in range(len(self._otherwise)):
            around(k, functools.partial(self._run_one, k))

    def _run_one(self, k: int) -> None:
        table = self._table
        self._hire()
        table[_NEXT] = self._one + k
        call(self._code, self._one + k + 1, self._at, None, self._quick)
        refused, table[_NEXT] = table[_NEXT], 0
        if refused:
            otherwise = self._otherwise[k]
            assert otherwise is not None
            otherwise()

    def _hire(self) -> None:
        """Starts the pool's workers, also where a fork or a change has left some missing."""
        entry = None if self._pool is None else self._pool.entry()
        if entry is not self._entry:
            self._table[_RUN : _STATE + 1] = entry or (0, 0)
            self._entry = entry

    def __call__(self) -> None:
        """Runs all calls, in order."""
        self._hire()
        call(self._code, self._runs, self._at, None, self._quick)
        self.go_on()

    def go_on(self) -> None:
        """Run what is left where a call has refused its arrays."""
        table = self._table
        while self._refuses and table[_NEXT]:
            otherwise = self._behind[table[_NEXT] - 1]
            assert otherwise is not None
            try:
                otherwise()
            except BaseException:
                table[_NEXT] = 0
                raise
            call(self._code, self._runs, self._at, None, self._quick)


def joined(calls: Many[Callable[[], object]]) -> list[Callable[[], object]]:
    """The calls with each run of machine code joined to one `LaunchList`."""
    grouped: list[Callable[[], object]] = []
    for kind, group in itertools.groupby(calls, type):
        each = list(group)
        grouped += [LaunchList(each)] if kind is Launch else each  # type: ignore[arg-type]
    return grouped
