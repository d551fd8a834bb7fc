"""Collectives that gradients pass through: on several ranks, against one process that has all the
ranks' tensors, and in a world of one.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest

import adjoint as ad
import adjoint.distributed as dist
from adjoint.distributed import functional
from tests.distributed.worlds import ENGINES


def given(rank, size):
    """What a rank has: a part for each rank."""
    parts = [ad.arange(3.0, dtype=ad.float64) * (rank + 1) - n for n in range(size)]
    return ad.stack(parts).requires_grad_()


def loss_of(found, rank):
    """Another loss on each rank."""
    return sum(((y + k + rank) ** 3).sum() for k, y in enumerate(found))


def check(rank, size, called, expected):
    """`called(x)` gives a rank's results; `expected(xs, rank)` the same of all ranks' tensors."""
    x = given(rank, size)
    (gradient,) = ad.autograd.grad(loss_of(called(x), rank), x)
    xs = [given(r, size) for r in range(size)]
    total = sum(loss_of(expected(xs, r), r) for r in range(size)) + 0 * sum(x.sum() for x in xs)
    np.testing.assert_allclose(gradient.numpy(), ad.autograd.grad(total, xs)[rank].numpy())


# ---- scenarios -----------------------------------------------------------------------------------


def on_gradients_of_sums(rank, size):
    check(rank, size, lambda x: [functional.all_reduce(x * 2)], lambda xs, r: [sum(xs) * 2])
    mean = functools.partial(functional.all_reduce, op=dist.ReduceOp.AVG)
    check(rank, size, lambda x: [mean(x)], lambda xs, r: [sum(xs) / size])
    largest = functional.all_reduce(given(rank, size), dist.ReduceOp.MAX)
    with pytest.raises(RuntimeError, match="all_reduce: has no gradient for"):
        largest.sum().backward()
    for root in range(size):
        check(
            rank, size, lambda x, root=root: [functional.reduce(x * 2, root)] if rank == root
            else [functional.reduce(x * 2, root) * 0],
            lambda xs, r, root=root: [sum(xs) * 2] if r == root else [sum(xs) * 0],
        )  # fmt: skip


def on_gradients_of_what_is_sent(rank, size):
    check(rank, size, lambda x: functional.all_gather(x[0]), lambda xs, r: [x[0] for x in xs])
    check(
        rank, size,
        lambda x: functional.all_to_all([ad.empty(3, dtype=x.dtype) for _ in x], list(x * 3)),
        lambda xs, r: [x[r] * 3 for x in xs],
    )  # fmt: skip
    check(
        rank, size,
        lambda x: [functional.reduce_scatter(ad.empty(3, dtype=x.dtype), list(x * 3))],
        lambda xs, r: [sum(x[r] * 3 for x in xs)],
    )  # fmt: skip
    for root in range(size):
        check(
            rank, size, lambda x, root=root: [functional.broadcast(x.exp(), root)],
            lambda xs, r, root=root: [xs[root].exp()],
        )  # fmt: skip


# ---- tests ---------------------------------------------------------------------------------------

SCENARIOS = [value for name, value in list(globals().items()) if name.startswith("on_")]


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("engine", ENGINES)
def test_scenario(engine, scenario, world):
    world.outcomes(scenario, engine)


def test_values_and_gradients_of_one_rank():
    x = ad.tensor([1.0, 2.0], requires_grad=True)
    dist.init_process_group()
    try:
        parts = [
            functional.all_reduce(x), *functional.all_gather(x), functional.broadcast(x, 0),
            functional.reduce(x, 0), functional.reduce_scatter(ad.empty(2), [x]),
            *functional.all_to_all([ad.empty(2)], [x]),
        ]  # fmt: skip
        assert [part.tolist() for part in parts] == [[1.0, 2.0]] * 6
        sum(parts).square().sum().backward()
        assert x.grad.tolist() == [72.0, 144.0]
        with pytest.raises(ValueError, match="one shape"):
            functional.all_to_all([ad.empty(3)], [x])
    finally:
        dist.destroy_process_group()
