"""The soak of soak.py, a few rounds of it."""

import numpy as np
import pytest

from . import soak


@pytest.mark.sweep
def test_rounds_are_as_in_a_process_of_their_own():
    """After others, and beside a loader whose worker was killed."""
    found = [soak.round_of(number) for number in (1, 0, 2, 1)]
    assert found[0] == found[3] != found[2]
    assert soak.quiet(2) == found[2]


def test_what_grew_is_told():
    samples = [(100 + max(n - 20, 0), 50, 6, 1) for n in range(40)]
    before, after = soak.grown(samples)
    assert np.isclose(after[0] - before[0], 14.5) and before[1:] == after[1:] == (50, 6, 1)
