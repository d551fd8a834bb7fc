"""Random programs (writes, views, reductions, products, control flow, several calls with changed
state): compiled, they leave what they leave eagerly. `random_growth.py` makes them.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.native import needs_native

from ..sweep import swept
from . import random_growth, random_programs

pytestmark = needs_native
REFUSED = 0.15  # at most this share, for one of the reasons of the list
ILL = 0.02  # whose values rounding decides


@pytest.mark.parametrize(
    ("first", "count", "size"),
    [(0, 20, 8), swept((20, 20, 8)), *(swept((1000 + 200 * k, 100, 14)) for k in range(4))],
)
def test_random_programs_leave_what_they_leave_eagerly(first, count, size):
    found: Counter[str] = Counter()
    for seed in range(first, first + count):
        said = random_programs.compared(random_growth.made(seed, size))
        found[said if said in ("", "ill") else random_programs.reason_of(said)] += 1
    assert found["ill"] <= ILL * count, found
    assert count - found[""] - found["ill"] <= REFUSED * count, found


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    ("first", "count", "size"),
    [(0, 4, 8), swept((4, 4, 8)), *(swept((3000 + 200 * k, 60, 14)) for k in range(2))],
)
def test_random_programs_for_many_sizes(first, count, size, dynamic):
    found: Counter[str] = Counter()
    for seed in range(first, first + count):
        program = random_programs.with_sizes(random_growth.made(seed, size), dynamic)
        said = random_programs.compared(program)
        found[said if said in ("", "ill") else random_programs.reason_of(said)] += 1
    assert found["ill"] <= ILL * count, found
    assert count - found[""] - found["ill"] <= REFUSED * count, found


def test_a_reason_that_is_not_listed_fails():
    with pytest.raises(AssertionError, match="not listed"):
        random_programs.reason_of("compile: something else")


def test_a_wrong_program_is_found_and_made_short():
    programs = map(random_growth.made, range(20))  # the first call of others is eager
    program = next(each for each in programs if "step(" not in each.source.partition("n):")[2])
    wrong = program._replace(
        lines=(*program.lines, "model.seen += 1", "w = ad.ones(2) if ad.lazy else 0",
               "u = world.average.exp()",
               "with ad.no_grad(): model.level += len(str(type(x._data)))"),
        calls=program.calls[:1],
    )  # fmt: skip
    assert random_programs.fault_of(wrong)
    short = random_programs.shortened(wrong)
    assert random_programs.fault_of(short) and len(short.lines) == 1
