"""What is kept for the case that a size comes again, in one budget: `policy.SIZED_BYTES` over all
tables together.

Sentences, images and last batches have other sizes with each call. What was made for one is kept in
a `SizedTable`. Its entries are *fresh* until they are found again, and then *young*. When all
tables together would take more than the budget, there is a *turn* of all of them: what came once is
dropped; and where the rest takes more than half of the budget, what was not found since the last
turn is dropped, too. So sizes that never come again do not drive out those that do. Of what was
dropped a hash stays: what is made a second time was dropped too soon, as where the sizes of a
program together take more than the budget, which grows by so much, to `policy.SIZED_BYTES_MOST`.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Hashable, Iterator

from . import policy


class _Budget:
    """The tables, and how many bytes they take together."""

    __slots__ = ("by_mark", "dropped", "grown", "nbytes", "turns")

    def __init__(self) -> None:
        self.nbytes = 0  # of what was put, also into tables that are gone since
        self.grown = 0  # of what was dropped too soon
        self.turns = 0
        self.by_mark: weakref.WeakValueDictionary[int, SizedTable] = weakref.WeakValueDictionary()
        self.dropped: set[int] = set()  # hashes of keys

    def tables(self) -> list[SizedTable]:
        """All that are not gone; other threads may make some meanwhile."""
        found = [reference() for reference in self.by_mark.valuerefs()]
        return [table for table in found if table is not None]


_budget = _Budget()
_numbers = itertools.count()


def _weigh_launcher(launcher: object) -> int:
    return policy.EXECUTABLE_BYTES


class SizedTable:
    """A table of what was made for sizes, strides or other things without number.

    `weigh(value)` says about how many bytes an entry takes: by default those of a launcher. Values
    are not None. `name` is what the inventory calls it.

    >>> table = SizedTable("texts", len)
    >>> table.put((3, 4), "made for 3 x 4")
    >>> table.find((3, 4))
    'made for 3 x 4'
    >>> table.find((5, 6))
    """

    __slots__ = ("__weakref__", "fresh", "mark", "name", "old", "weigh", "young")

    young: dict[Hashable, object]  # what was found again since the last turn
    fresh: dict[Hashable, object]  # what came once
    old: dict[Hashable, object]  # what was found again, but not since the last turn
    weigh: Callable[..., int]
    mark: int  # which no other table has, also of those that are gone

    def __init__(self, name: str, weigh: Callable[..., int] = _weigh_launcher) -> None:
        self.name = name
        self.young = {}
        self.fresh = {}
        self.old = {}
        self.weigh = weigh
        self.mark = hash((next(_numbers), "table"))
        _budget.by_mark[self.mark] = self

    def find(self, key: Hashable) -> object:
        """The value of a key, which then has been found again; None without one."""
        value = self.young.get(key)
        return self.again(key) if value is None else value

    def again(self, key: Hashable) -> object:
        """`find` for a key that is not young."""
        value = self.fresh.pop(key, None)
        if value is None and self.old:
            value = self.old.pop(key, None)
        if value is not None:
            self.young[key] = value
        return value

    def peek(self, key: Hashable) -> object:
        """`find` that does not count: what was put in this very call was not found again."""
        value = self.young.get(key)
        if value is None:
            value = self.fresh.get(key)
        return self.old.get(key) if value is None else value

    def put(self, key: Hashable, value: object) -> None:
        """Keep a value. Where the budget is used up, this is what the next turn begins with."""
        nbytes, mark = self.weigh(value), self.mark ^ hash(key)
        came = self.pop(key)
        if not came and mark in _budget.dropped:
            came = True
            _budget.dropped.discard(mark)
            _budget.grown += nbytes
        if _budget.nbytes + nbytes > limit():
            turn()
        _budget.nbytes += nbytes
        (self.young if came else self.fresh)[key] = value

    def pop(self, key: Hashable) -> bool:
        """Drop the value of a key, if it has one; whether that had come again."""
        for each in (self.fresh, self.young, self.old):
            value = each.pop(key, None)
            if value is not None:
                _budget.nbytes -= self.weigh(value)
                return each is not self.fresh
        return False

    def drop(self, entries: dict[Hashable, object]) -> None:
        """Drop entries, and remember that they were."""
        if len(_budget.dropped) > policy.DROPPED_KEYS:
            _budget.dropped.clear()
        _budget.dropped.update([self.mark ^ hash(key) for key in list(entries)])
        entries.clear()

    def clear(self) -> None:
        """Drop all."""
        self.young.clear()
        self.fresh.clear()
        self.old.clear()

    def values(self) -> Iterator[object]:
        """All values, none of which counts as found."""
        for each in (self.young, self.fresh, self.old):
            yield from list(each.values())

    def measured(self) -> int:
        """About how many bytes all entries take."""
        return sum(map(self.weigh, self.values()))

    def __len__(self) -> int:
        return len(self.young) + len(self.fresh) + len(self.old)


def turn() -> None:
    """Drop what came once, from all tables; and what was not found again since the last turn, where
    the rest takes more than half of the budget.
    """
    tables = _budget.tables()
    for table in tables:
        table.drop(table.fresh)
    left = sum(table.measured() for table in tables)
    if 2 * left > limit():
        for table in tables:
            table.drop(table.old)
            table.old, table.young = table.young, {}
        left = sum(table.measured() for table in tables)
    _budget.nbytes = left
    _budget.turns += 1


def limit() -> int:
    """How many bytes all tables may take together by now."""
    return max(policy.SIZED_BYTES, min(policy.SIZED_BYTES + _budget.grown, policy.SIZED_BYTES_MOST))


def turns() -> int:
    """How many turns there have been."""
    return _budget.turns


def kept_bytes() -> int:
    """About how many bytes all that is kept by size takes."""
    return sum(table.measured() for table in _budget.tables())


def inventory() -> dict[str, tuple[int, int]]:
    """The number of entries and their bytes, by the tables' names."""
    listed: dict[str, tuple[int, int]] = {}
    for table in _budget.tables():
        count, nbytes = listed.get(table.name, (0, 0))
        listed[table.name] = count + len(table), nbytes + table.measured()
    return listed
