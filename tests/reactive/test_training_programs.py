"""Training programs inside `with graph.step():` log the numbers of eager execution, whatever is
reused of earlier steps, and a step leaves nothing behind that eager execution would not."""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import warnings

import numpy as np
import pytest

import adjoint as ad
from adjoint.core.errors import GraphError
from adjoint.core.tensor_base import TensorBase

from ..sweep import few_or_many, one_in, swept
from . import training_programs
from .training_programs import CHANGES, PROGRAMS

OURS = tuple(f"adjoint.{room}" for room in ("autograd", "core", "nn", "ops", "reactive", "tensor"))
OURS += tuple(f"adjoint.runtime.{name}" for name in ("cells", "chains", "lazy", "node", "saved"))
CACHED = "adjoint.core.arrays", "adjoint.core.elements"  # kept to compute with, in bounded caches


def is_ours(module: str) -> bool:
    """Whether what a module's classes make counts."""
    return module.startswith(OURS) and module not in CACHED


every_program = pytest.mark.parametrize("name", PROGRAMS)
some_steps = few_or_many("steps", 6, 20)
every_reuse = pytest.mark.parametrize(
    "reuse",
    [  # by default few steps look for what is known, too
        pytest.param(True, id="reuse", marks=pytest.mark.sweep),
        pytest.param(False, id="no_reuse"),
        pytest.param(None, id="default"),
    ],
)


@functools.cache
def eager(name, steps):
    """What a program logs without graphs."""
    return numbers(PROGRAMS[name](contextlib.nullcontext, steps))


def numbers(logged):
    """All that a program logged: a vector for each list of numbers, and for each array."""
    if isinstance(logged, list) and not all(isinstance(each, float) for each in logged):
        return [vector for each in logged for vector in numbers(each)]
    return [np.ravel(np.asarray(logged, np.float64))]


def assert_same(found, expected, tolerance=1e-6):
    """Differences are relative to the largest number of each vector."""
    assert [len(vector) for vector in found] == [len(vector) for vector in expected]
    for number, (a, b) in enumerate(zip(found, expected, strict=True)):
        size = np.abs(b).max(initial=0)
        np.testing.assert_allclose(a, b, 0, tolerance * size, err_msg=f"log number {number}")


# ---- the programs --------------------------------------------------------------------------------


@every_program
@some_steps
def test_the_programs_are_deterministic_and_learn_something(name, steps):
    again = numbers(PROGRAMS[name](contextlib.nullcontext, steps))
    assert_same(again, eager(name, steps), tolerance=0)
    assert all(np.isfinite(vector).all() for vector in again)
    assert len(set(again[0])) > 1


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_settings_shows_in_the_log(change):
    unchanged = training_programs.curriculum(lambda model: None)
    losses = numbers(training_programs.seeded(unchanged)(contextlib.nullcontext, 6))[0]
    changed = eager(f"curriculum_by_{change}", 6)[0]
    assert (losses[:3] == changed[:3]).all() and (losses[3:] != changed[3:]).all()


def test_other_numbers_are_noticed():
    assert_same([np.ones(3), np.zeros(2)], [np.ones(3), np.zeros(2)])
    for wrong in ([np.ones(3)], [np.ones(2), np.zeros(2)], [np.ones(3) + 2e-6, np.zeros(2)],
                  [np.ones(3), np.full(2, np.nan)], [np.ones(3), np.full(2, 1e-30)]):  # fmt: skip
        with pytest.raises(AssertionError):
            assert_same(wrong, [np.ones(3), np.zeros(2)])


# ---- in a graph ----------------------------------------------------------------------------------


@every_program
@some_steps
@every_reuse
def test_a_program_in_steps_of_a_graph_logs_the_numbers_of_eager_execution(name, steps, reuse):
    graph = ad.Graph()
    found = PROGRAMS[name](lambda: graph.step(reuse=reuse), steps)
    assert_same(numbers(found), eager(name, steps))
    graph.check_invariants()


@functools.cache
def eager_growth(name):
    return growth(PROGRAMS[name], contextlib.nullcontext)


def growth(program, block):
    """How many tensors, and how many of our objects in all, a program has more in the end than
    after a third of 90 steps (where it enters one block in each)."""
    samples, entered = [], itertools.count()

    def watched():
        if next(entered) % 30 == 0:
            gc.collect()
            ours = [x for x in gc.get_objects() if is_ours(str(type(x).__module__))]
            samples.append((sum(isinstance(x, TensorBase) for x in ours), len(ours)))
        return block()

    program(watched, 91)
    return np.subtract(samples[-1], samples[len(samples) // 3])


IN_BLOCKS = [name for name in PROGRAMS if name != "all_steps_in_one_block"]


@pytest.mark.parametrize(
    ("name", "reuse"),
    [
        *one_in(len(IN_BLOCKS), [(name, None) for name in IN_BLOCKS]),
        *[swept((name, True)) for name in IN_BLOCKS[::4]],
    ],
)
def test_no_step_leaves_anything_behind(name, reuse):
    """A tensor that the program keeps may have two more objects in a graph than it has eagerly.
    Over thousands of steps, `tests.reactive.soak` asks the same.
    """
    graph = ad.Graph()
    tensors, objects = eager_growth(name)
    found_tensors, found_objects = growth(PROGRAMS[name], lambda: graph.step(reuse=reuse))
    assert found_tensors <= tensors + 20
    noted = 1000 if reuse else 50  # what is known of values, for up to 2 * STEP_BLOCKS steps
    assert found_objects <= objects + 2 * tensors + noted


def test_what_a_step_leaves_behind_is_noticed():
    kept = []

    def leaking():
        kept.append(ad.ones(1))
        return contextlib.nullcontext()

    name = next(iter(PROGRAMS))
    tensors, objects = growth(PROGRAMS[name], leaking)
    assert np.subtract((tensors, objects), eager_growth(name)).tolist() == [60, 60]


# ---- in a living graph ---------------------------------------------------------------------------


@pytest.mark.sweep
@every_program
def test_a_living_graph_is_eager_or_says_that_it_is_not(name):
    graph, expected = ad.Graph(), eager(name, 6)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        try:
            logged = numbers(PROGRAMS[name](lambda: graph, 6))
        except GraphError as error:
            assert "record it again" in str(error)  # the way out
            return
    said = any(str(each.message).startswith("Graph: ") for each in found)
    if not said:
        assert_same(logged, expected)
