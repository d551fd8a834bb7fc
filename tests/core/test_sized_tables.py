"""Tables of what was made for sizes: what stays and what goes when their budget is used up."""

from __future__ import annotations

import gc
import weakref

import pytest

from adjoint.core import policy, sized_tables
from adjoint.core.sized_tables import SizedTable


class Made:
    """A value of so many bytes, of which it can be told whether it is still there."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes


def weigh(made: Made) -> int:
    return made.nbytes


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> int:
    """Room for so many bytes beside what there is."""
    for _ in range(2):
        sized_tables.turn()
    monkeypatch.setattr(policy, "SIZED_BYTES", sized_tables.kept_bytes() * 4 + 40_000)
    return policy.SIZED_BYTES - sized_tables.kept_bytes()


def test_what_came_once_goes_first_and_what_came_again_stays(room: int) -> None:
    table = SizedTable("test", weigh)
    table.put("again", Made(100))
    assert table.find("again") is table.find("again")
    turns = sized_tables.turns()
    each = room // 100
    for n in range(1000):
        table.put(n, Made(each))
        assert sized_tables.kept_bytes() <= policy.SIZED_BYTES
        assert table.find("again") is not None
    assert 10 <= sized_tables.turns() - turns <= 12
    assert len(table) <= 101
    sized_tables.turn()
    assert len(table) == 1 and table.find(999) is None


def test_what_is_not_found_any_more_goes_where_others_need_the_room(room: int) -> None:
    table = SizedTable("test", weigh)
    each = room // 20
    names = [*range(15)]
    for name in names:
        table.put(name, Made(each))
        table.find(name)
    sized_tables.turn()  # more than half of the budget: these are to be found again
    assert len(table) == 15
    table.find(3)
    sized_tables.turn()
    assert [name for name in names if table.find(name)] == [3]


def test_what_takes_less_than_half_of_the_budget_stays_however_long(room: int) -> None:
    table = SizedTable("test", weigh)
    table.put("kept", Made(room // 50))
    table.find("kept")
    for _ in range(10):
        sized_tables.turn()
    assert len(table) == 1 and table.find("kept") is not None


def test_peeking_does_not_count_and_another_value_is_no_second_entry(room: int) -> None:
    table = SizedTable("test", weigh)
    table.put("a", Made(10))
    assert table.peek("a") is table.peek("a") is not None and table.peek("b") is None
    sized_tables.turn()
    assert len(table) == 0
    table.put("a", Made(10))
    table.put("a", Made(20))
    assert table.measured() == 20
    table.find("a")
    table.put("a", Made(30))
    sized_tables.turn()
    assert table.measured() == 30 == sized_tables.inventory()["test"][1]
    table.pop("a")
    assert len(table) == 0


def test_tables_that_are_gone_take_nothing(room: int) -> None:
    table = SizedTable("short", weigh)
    table.put("a", Made(room // 2))
    value = weakref.ref(table.find("a"))
    del table
    gc.collect()
    assert value() is None and "short" not in sized_tables.inventory()
    other = SizedTable("test", weigh)
    for n in range(3):
        other.put(n, Made(room // 5))
        other.find(n)
    assert len(other) == 3  # the turn that came counted anew


def test_one_value_that_is_larger_than_the_budget_is_kept_until_the_next(room: int) -> None:
    table = SizedTable("test", weigh)
    table.put("large", Made(2 * policy.SIZED_BYTES))
    assert table.peek("large") is not None
    table.put("small", Made(10))
    assert table.peek("large") is None and table.peek("small") is not None
    assert sized_tables.kept_bytes() <= policy.SIZED_BYTES
