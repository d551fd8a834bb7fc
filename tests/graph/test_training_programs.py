"""Training programs inside `with graph.step():` log the numbers of eager execution, bit by bit or
nearly, with and without reuse of what earlier steps recorded; and no step leaves anything behind."""

from __future__ import annotations

import contextlib
import functools
import gc
import warnings

import numpy as np
import pytest

import adjoint as ad

from ..sweep import few_or_many
from .training_programs import PROGRAMS

REUSE = {"reuse": True, "no_reuse": False, "default": None}

every_program = pytest.mark.parametrize("name", PROGRAMS)
some_steps = few_or_many("steps", 6, 50)


@functools.lru_cache(maxsize=None)
def eager(name, steps):
    return PROGRAMS[name](contextlib.nullcontext, steps)


def in_graph(name, steps, reuse):
    graph = ad.Graph()
    found = PROGRAMS[name](lambda: graph.step(reuse=reuse), steps)
    graph.check_invariants()
    return found


def numbers(logged):
    """All that a program logged, as one vector for each list of numbers, and each array."""
    if isinstance(logged, list) and not all(isinstance(each, float) for each in logged):
        return [vector for each in logged for vector in numbers(each)]
    return [np.ravel(np.asarray(logged, np.float64))]


def assert_same(found, expected, tolerance):
    found, expected = numbers(found), numbers(expected)
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * np.abs(b).max(initial=0))
