"""Small calls that follow one another, through which threads go without waiting for each other.

Layers of a small network are some microseconds each: to share one among threads, and to wait for
all before the next one, costs as much as it gains. But most compute rows of their result from the
same rows of their operands alone: each thread goes through them with rows of its own, without a
word. What is behind them, sums over the rows above all, needs all of what comes before, but mostly
not each other: each thread has calls of its own. Such runs of calls are regions; what one part of a
region writes, no other one may touch, which is seen from where all begins and ends in memory.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ....core import policy
from ...codegen.emit import Module
from . import object_code
from .shared_code import function

FEWEST = 4  # rows of a block: products have tiles of so many

Spans = list[tuple[int, int]]  # of each pointer of a call: from where to where it goes, in bytes


class Blocks(NamedTuple):
    """A call in chunks that are blocks of rows."""

    words: bytes
    spans: list[Spans]  # of each
    keeps: Any = None  # what other words point to


class ParallelSection(NamedTuple):
    """Calls from `first` up to `last`, without that, in parts that may run at once."""

    first: int
    last: int
    words: list[bytes]  # of each call
    parts: list[list[tuple[int, int, int]]]  # numbers of calls, and of their chunks from and up to
    keeps: Any = None  # what other words point to


def parallel_sections(calls: Sequence[Any], threads: int) -> list[ParallelSection]:
    """Regions of calls (see `sequence.Call`) that run one after another without a barrier."""
    worthwhile: list[ParallelSection] = []
    k = 0 if threads > 1 else len(calls)
    while k < len(calls):
        by_rows = _by_rows(calls, k, threads)
        apart = _apart(calls, k, threads)
        region = max(by_rows, apart, key=lambda each: each.last)
        k = max(region.last, k + 1)
        work = sum(call.work for call in calls[region.first : region.last])
        # One that is alone is shared by itself, or is not worth it.
        if work >= policy.REGION_LEAST and region.last - region.first > 1:
            worthwhile.append(region)
    return worthwhile


def _by_rows(calls: Sequence[Any], first: int, threads: int) -> ParallelSection:
    """The calls from `first` on of which each part does some rows."""
    rows = next((n for n in map(_rows, calls[first:]) if n), 0)  # of who says, or can be in none
    work = (call.work for call in itertools.takewhile(_may_join, calls[first:]))
    count = min(threads, rows // FEWEST, _worth(sum(work)))
    if count < 2:
        return ParallelSection(first, first, [], [])
    size = -(-rows // count)
    touched = _Touched()
    blocks: list[Blocks] = []
    for call in calls[first:]:
        each = call.blocks(rows, size) if _rows(call) >= 0 else None
        if each is None or not touched.add(call, each.words, enumerate(each.spans)):
            break
        blocks.append(each)
    numbers = range(len(blocks))
    parts = [[(n, block, block + 1) for n in numbers] for block in range(-(-rows // size))]
    words = [each.words for each in blocks]
    return ParallelSection(first, first + len(words), words, parts, [each.keeps for each in blocks])


def _apart(calls: Sequence[Any], first: int, threads: int) -> ParallelSection:
    """The calls from `first` on that do not need each other: each part has some of them."""
    touched = _Touched()
    count = 0
    for call in calls[first:]:
        if not _may_join(call) or not touched.add(call, call.words, [(count, call.spans)]):
            break
        count += 1
    members = calls[first : first + count]
    total = sum(call.work for call in members)
    most = min(threads, count, _worth(total))
    parts: list[list[tuple[int, int, int]]] = [[] for _ in range(most)]
    load = [0.0] * len(parts)
    for n in sorted(range(count), key=lambda n: -members[n].work):
        place = load.index(min(load))
        parts[place].append((n, 0, members[n].chunks))
        load[place] += members[n].work
    # One that is larger than the others is better shared by itself.
    shared = [call.work for call in members if call.shared]
    meeting = policy.REGION_LEAST / 8
    alone = total - sum(shared) * (1 - 1 / threads) + len(shared) * meeting
    if max(load, default=0.0) + meeting > alone:
        return ParallelSection(first, first, [], [])
    return ParallelSection(first, first + count, [call.words for call in members], parts)


def _worth(work: float) -> int:
    """Number of threads that so much work is worth, at least two."""
    return max(2, int(2 * work // policy.REGION_LEAST))


def _may_join(call: Any) -> bool:
    """Whether a call may join a region: it is small, never refuses, and tells which memory it
    touches.
    """
    return call.spans is not None and call.otherwise is None and call.work <= policy.REGION_MOST


def _rows(call: Any) -> int:
    """Number of rows of a call; 0 for any number, -1 for one that has none."""
    return int(call.rows) if _may_join(call) and call.blocks is not None else -1


class _Touched:
    """Memory spans touched by parts of calls, to tell whether the parts keep apart."""

    def __init__(self) -> None:
        self._all = np.empty((64, 4), np.int64)  # begin, end, part, whether it is written
        self._count = 0  # of its rows that are known

    def add(self, call: Any, words: bytes, parts: Any) -> bool:
        """Note another call's, numbers and spans; False, with nothing noted, where one would touch
        what another one writes, in this call or in one before, or does not say what it touches.
        """
        known = np.frombuffer(words, np.int64)
        places = [int(known[n]) for n in call.pointers]
        parts = list(parts)
        if not all(len(spans) == len(places) > 0 for _, spans in parts):
            return False
        inputs = len(places) - call.outputs
        own = np.array(
            [
                (places[k] + low, places[k] + high, number, k >= inputs)
                for number, spans in parts
                for k, (low, high) in enumerate(spans)
            ],
            np.int64,
        )
        end = self._count + len(own)
        if end > len(self._all):
            self._all = np.concatenate([self._all, np.empty((end, 4), np.int64)])
        everyone = self._all[:end]
        everyone[self._count :] = own
        first, last, part, written = (column[:, None] for column in own.T)
        meets = (first < everyone[:, 1]) & (everyone[:, 0] < last) & (part != everyone[:, 2])
        if (meets & ((written != 0) | (everyone[:, 3] != 0))).any():
            return False
        self._count = end
        return True


_CODE, _BEGIN, _END, _WORDS, _RECORD = range(5)  # words of a record, and how many


def table(region: ParallelSection, codes: Sequence[int], places: Sequence[int]) -> list[int]:
    """The words of a region, for codes and words of its calls that are there: numbers of each
    part's first record and of none, then records.
    """
    starts = [0]
    records: list[int] = []
    for part in region.parts:
        for n, begin, end in part:
            records += codes[n], begin, end, places[n]
        starts.append(starts[-1] + len(part))
    return [len(region.parts), *starts, *records]


@functools.cache
def code() -> int:
    """Machine code for parts `begin` to `end` of a region, whose words are those of `table`."""
    return object_code.library(__name__, _text, ["region"])[0]


def _text() -> str:
    module = Module()
    with function(module, "void @region(i64 %begin, i64 %end, ptr %words)") as (
        b, begin, end, words,
    ):  # fmt: skip
        head = b.get(b.place("i64", words, 0)) * 8 + 16
        with b.counting(end - begin) as (i, _):
            number = (begin + i) * 8 + 8
            first, last = (b.get(b.place("i64", words, number + 8 * n)) for n in (0, 1))
            with b.counting(last - first) as (k, _):
                record = b.at(words, head + (first + k) * (8 * _RECORD))
                run, its = (b.get(b.place("ptr", record, n, "i64")) for n in (_CODE, _WORDS))
                chunks = [b.get(b.place("i64", record, n, "i64")) for n in (_BEGIN, _END)]
                b.invoke("void", run, *chunks, its)
    return str(module)
