"""Ranks that are killed at random moments: three an engine, in `make test-all`."""

from __future__ import annotations

import pytest

from tests.distributed.kills import LIMIT, kill_one
from tests.distributed.worlds import ENGINES


@pytest.mark.sweep
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(3))
def test_whenever_a_rank_is_killed_it_is_named_and_nothing_is_left(tmp_path, engine, seed):
    assert kill_one(tmp_path, engine, seed) < LIMIT / 2  # within 2 s where nothing else runs
