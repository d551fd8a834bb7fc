"""Small calls that follow one another, of which each thread does all for a block of the rows.

Layers of a small network are some microseconds each: to share one among threads, and to wait for
all before the next one, costs as much as it gains. But most compute rows of their result from the
same rows of their operands alone. A region is a run of such calls: threads meet before and behind
it, and go through it, each with rows of its own, without a word. What a block writes, no other
block of the region may touch: that is seen from where all of them begin and end in memory.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ....core import policy
from ....kernels.emit import Module
from . import machine_code
from .shared_code import function

FEWEST = 4  # rows of a block: products have tiles of so many


class Blocks(NamedTuple):
    """A call in chunks that are blocks of rows."""

    words: bytes
    spans: list[list[tuple[int, int]]]  # of each block and pointer: from where to where it goes


class Region(NamedTuple):
    """Calls from `first` up to `last`, without that."""

    first: int
    last: int
    blocks: list[Blocks]  # of each


def regions(calls: Sequence[Any], threads: int) -> list[Region]:
    """Those among calls (see `sequence.Call`) that run one after another."""
    found: list[Region] = []
    k = 0 if threads > 1 else len(calls)
    while k < len(calls):
        region = _begun(calls, k, threads)
        if region is None:
            k += 1
        else:
            found.append(region)
            k = region.last
    return found


def _begun(calls: Sequence[Any], first: int, threads: int) -> Region | None:
    """The longest region that begins with a call; None where it does not pay."""
    rows = next((n for n in map(_rows, calls[first:]) if n), 0)  # of who says, or can be in none
    if rows < 2 * FEWEST:
        return None
    size = -(-rows // min(threads, rows // FEWEST))
    touched = _Touched()
    blocks: list[Blocks] = []
    work = 0.0
    for call in calls[first:]:
        each = call.blocks(rows, size) if _rows(call) >= 0 else None
        if each is None or not touched.add(call, each):
            break
        blocks.append(each)
        work += call.work
    pays = work >= policy.REGION_LEAST and (len(blocks) > 1 or not calls[first].shared)
    return Region(first, first + len(blocks), blocks) if pays else None


def _rows(call: Any) -> int:
    """How many rows a call has; 0 for any number, -1 for one that can be in no region."""
    if call.blocks is None or call.otherwise is not None or call.work > policy.REGION_MOST:
        return -1
    return int(call.rows)


class _Touched:
    """What blocks of calls touch, and whether they keep apart."""

    def __init__(self) -> None:
        self._all = np.empty((0, 4), np.int64)  # begin, end, block, whether it is written

    def add(self, call: Any, blocks: Blocks) -> bool:
        """Note another call's; False, with nothing noted, where a block would touch what another
        one writes, in this call or in one before.
        """
        words = np.frombuffer(blocks.words, np.int64)
        places = [int(words[n]) for n in call.pointers]
        first = len(places) - call.outputs
        own = np.array(
            [
                (places[k] + low, places[k] + high, number, k >= first)
                for number, spans in enumerate(blocks.spans)
                for k, (low, high) in enumerate(spans)
            ],
            np.int64,
        )
        everyone = np.concatenate([self._all, own])
        begin, end, block, written = (column[:, None] for column in own.T)
        meets = (begin < everyone[:, 1]) & (everyone[:, 0] < end) & (block != everyone[:, 2])
        if (meets & ((written | everyone[:, 3]) != 0)).any():
            return False
        self._all = everyone
        return True


@functools.cache
def code() -> int:
    """What runs blocks `begin` to `end` of a region, of which the words are: how many calls there
    are, and of each where its code and its words are.
    """
    module = Module()
    with function(module, "void @region(i64 %begin, i64 %end, ptr %words)") as (
        b, begin, end, words,
    ):  # fmt: skip
        count = b.get(b.place("i64", words, 0))
        with b.counting(end - begin) as (i, _):
            block = begin + i
            with b.counting(count) as (k, _):
                record = b.at(words, k * 16)
                run, its = (b.get(b.place("ptr", record, n, "i64")) for n in (1, 2))
                b.invoke("void", run, block, block + 1, its)
    return machine_code.load(str(module), ["region"])[0]
