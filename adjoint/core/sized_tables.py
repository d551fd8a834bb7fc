"""What is kept for the case that a size comes again, in one budget: `policy.SIZED_BYTES` over all
tables together.

Sentences, images and last batches have other sizes with each call. What was made for one is kept in
a `SizedTable`. Its entries are *fresh* until they are found again, and then *young*. When all
tables together would take more than the budget, there is a *turn* of all of them: what came once is
dropped; and where the rest takes more than half of the budget, what was not found since the last
turn is dropped, too. So sizes that never come again do not drive out those that do.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterator

from . import policy


class _Budget:
    """The tables, and how many bytes they take together."""

    __slots__ = ("nbytes", "tables", "turns")

    def __init__(self) -> None:
        self.nbytes = 0  # of what was put, also into tables that are gone since
        self.turns = 0
        self.tables: weakref.WeakSet[SizedTable] = weakref.WeakSet()


_budget = _Budget()


class SizedTable:
    """A table of what was made for sizes, strides or other things without number.

    `weigh(value)` says about how many bytes an entry takes. Values are not None. `name` is what the
    inventory calls it.

    >>> table = SizedTable("texts", len)
    >>> table.put((3, 4), "made for 3 x 4")
    >>> table.find((3, 4))
    'made for 3 x 4'
    >>> table.find((5, 6))
    """

    __slots__ = ("__weakref__", "fresh", "name", "old", "weigh", "young")

    young: dict[Hashable, object]  # what was found again since the last turn
    fresh: dict[Hashable, object]  # what came once
    old: dict[Hashable, object]  # what was found again, but not since the last turn
    weigh: Callable[..., int]

    def __init__(self, name: str, weigh: Callable[..., int]) -> None:
        self.name = name
        self.young = {}
        self.fresh = {}
        self.old = {}
        self.weigh = weigh
        _budget.tables.add(self)

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
        nbytes = self.weigh(value)
        if _budget.nbytes + nbytes > policy.SIZED_BYTES:
            turn()
        _budget.nbytes += nbytes
        if self.young.pop(key, None) is None and self.old.pop(key, None) is None:
            self.fresh[key] = value
        else:
            self.fresh.pop(key, None)
            self.young[key] = value  # another value for what came again

    def pop(self, key: Hashable) -> None:
        """Drop the value of a key, if it has one."""
        for each in (self.young, self.fresh, self.old):
            value = each.pop(key, None)
            if value is not None:
                _budget.nbytes -= self.weigh(value)

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
    tables = list(_budget.tables)
    for table in tables:
        table.fresh.clear()
    left = sum(table.measured() for table in tables)
    if 2 * left > policy.SIZED_BYTES:
        for table in tables:
            table.old, table.young = table.young, {}
        left = sum(table.measured() for table in tables)
    _budget.nbytes = left
    _budget.turns += 1


def turns() -> int:
    """How many turns there have been."""
    return _budget.turns


def kept_bytes() -> int:
    """About how many bytes all that is kept by size takes."""
    return sum(table.measured() for table in list(_budget.tables))


def inventory() -> dict[str, tuple[int, int]]:
    """The number of entries and their bytes, by the tables' names."""
    listed: dict[str, tuple[int, int]] = {}
    for table in list(_budget.tables):
        count, nbytes = listed.get(table.name, (0, 0))
        listed[table.name] = count + len(table), nbytes + table.measured()
    return listed
