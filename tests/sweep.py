"""What `make test` shows with a few cases, `make test-all` shows with all (docs/testing.md)."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def few_or_many(name: str, few: int, many: int) -> pytest.MarkDecorator:
    """A test of `few` random cases, and in the sweep of `many`: how many is its argument `name`."""
    return pytest.mark.parametrize(name, [few, pytest.param(many, marks=pytest.mark.sweep)])


def one_in(step: int, cases: Iterable[Any]) -> list[Any]:
    """The cases of a test; all but the first of each `step` are left to the sweep."""
    return [case if number % step == 0 else swept(case) for number, case in enumerate(cases)]


def first_of_each(kind: Callable[[Any], Any], cases: Iterable[Any], count: int = 1) -> list[Any]:
    """The cases of a test; all but the first `count` of each `kind(case)` are left to the sweep."""
    seen: Counter[Any] = Counter()
    found = []
    for case in cases:
        seen[kind(case)] += 1
        found.append(case if seen[kind(case)] <= count else swept(case))
    return found


def swept(case: Any) -> Any:
    """A case of a test (a tuple for several arguments) that is left to the sweep."""
    if isinstance(case, type(pytest.param())):
        return pytest.param(*case.values, marks=(*case.marks, pytest.mark.sweep), id=case.id)
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.sweep)


def spread(cases: Iterable[Any], count: int) -> list[Any]:
    """`count` of the cases, the first and the last among them: neighbours are often alike."""
    found = list(cases)
    count = min(count, len(found))
    return [found[k * (len(found) - 1) // max(count - 1, 1)] for k in range(count)]


def part_of(name: str, parts: int) -> int:
    """Which of so many parts a test of this name belongs to, whatever else there is."""
    return zlib.crc32(name.encode()) % parts
