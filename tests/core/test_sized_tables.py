"""Tables of what was made for sizes: what stays and what goes when their budget is used up."""

from __future__ import annotations

import gc
import threading
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
    monkeypatch.setattr(sized_tables._budget, "grown", 0)
    monkeypatch.setattr(policy, "SIZED_BYTES", sized_tables.kept_bytes() * 4 + 40_000)
    return policy.SIZED_BYTES - sized_tables.kept_bytes()


def test_what_came_once_goes_first_and_what_came_again_stays(room: int) -> None:
    table = SizedTable("test", weigh)
    table.put("again", Made(100))
    assert table.find("again") is table.find("again")
    turns = last = sized_tables.turns()
    others = sized_tables.kept_bytes() - table.measured()  # only turns change them
    each = room // 100
    for n in range(1000):
        table.put(n, Made(each))
        if sized_tables.turns() != last:
            last = sized_tables.turns()
            others = sized_tables.kept_bytes() - table.measured()
        assert others + table.measured() <= policy.SIZED_BYTES
        assert table.find("again") is not None
    assert 10 <= last - turns <= 12
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
    table.put("b", Made(10))
    assert table.peek("b") is table.peek("b") is not None and table.peek("a") is None
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


def test_sizes_that_come_in_turn_stay_though_all_take_more_than_the_budget(room: int) -> None:
    """Some have gone when they come again: the budget grows by them."""
    table = SizedTable("test", weigh)
    made = []
    for _ in range(5):
        made.append(0)
        for n in range(6):
            if table.find(n) is None:
                table.put(n, Made(room // 4))
                made[-1] += 1
    assert made[0] == 6 and made[1] > 0 and made[3:] == [0, 0]


def test_the_budget_grows_to_the_most_alone(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "SIZED_BYTES_MOST", 2 * policy.SIZED_BYTES)
    table = SizedTable("test", weigh)
    for n in [*range(40)] * 4:
        if table.find(n) is None:
            table.put(n, Made(room // 4))
        assert sized_tables.kept_bytes() <= policy.SIZED_BYTES_MOST + room // 4
    assert sized_tables.limit() == policy.SIZED_BYTES_MOST


def test_the_same_key_of_another_table_has_not_come_again(room: int) -> None:
    for name in ("first", "second"):
        table = SizedTable(name, weigh)
        table.put("key", Made(10))
        sized_tables.turn()
        assert len(table) == 0
    table.put("key", Made(10))
    assert len(table.young) == 1


def test_tables_are_made_while_others_turn(room: int) -> None:
    """Of another thread: a table for each composite, say."""
    ended = []

    def make() -> None:
        while not ended:
            for n in range(50):
                SizedTable("short", weigh).put(n, Made(room // 9))

    others = [threading.Thread(target=make) for _ in range(2)]
    for other in others:
        other.start()
    for _ in range(300):
        sized_tables.turn()
        sized_tables.kept_bytes()
    ended.append(True)
    for other in others:
        other.join()
