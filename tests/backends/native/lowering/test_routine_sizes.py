"""Routines for sizes that change: what an op hands to its routine is written down once a pattern,
and is what known sizes would give.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.ir import compute

from .test_sizes import SHAPES, pairs

pytest.importorskip("llvmlite", reason="llvmlite is not installed")

from adjoint.backends.codegen import plans
from adjoint.backends.native.lowering import routine_patterns

F = ad.nn.functional


def places(x: Any) -> Any:
    """A column for each element."""
    return ad.tensor(np.arange(x.numel()).reshape(x.shape) * 7 % x.shape[1])


def picked(x: Any) -> Any:
    """A row for each row."""
    return ad.tensor(np.arange(x.shape[0]) * 5 % x.shape[0])


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "gather": lambda x, y: ad.gather(x, 1, places(x)),
    "take_along_dim": lambda x, y: ad.take_along_dim(x, places(x), 1),
    "rows": lambda x, y: x[picked(x)],
    "index_select columns": lambda x, y: ad.index_select(x, 1, places(x)[0]),
    "scatter": lambda x, y: ad.scatter(x, 1, places(x), y),
    "scatter_add": lambda x, y: ad.scatter_add(x, 1, places(x), y),
    "index_add": lambda x, y: ad.index_add(x, 0, picked(x), y),
    "index_put": lambda x, y: ad.index_put(x, (picked(x),), y),
    "cat rows": lambda x, y: ad.cat([x, y], 0),
    "cat columns": lambda x, y: ad.cat([x, y], 1),
    "cat of eight": lambda x, y: ad.cat([x, y] * 4, 0),
    "cat of other sizes": lambda x, y: ad.cat([x, y[:1]], 0),
    "cat of a transposed one": lambda x, y: ad.cat([x.t(), y.t()], 0),
    "stack": lambda x, y: ad.stack([x, y]),
    "stack last": lambda x, y: ad.stack([x, y], -1),
    "flip": lambda x, y: x.flip(-1),
    "flip both": lambda x, y: x.flip(0, 1),
    "roll": lambda x, y: x.roll(3, -1),
    "repeat": lambda x, y: x.repeat(2, 1),
    "one_hot": lambda x, y: F.one_hot(picked(x), x.shape[0]),
    "cumsum rows": lambda x, y: x.cumsum(0),
    "cumsum columns": lambda x, y: x.cumsum(1),
    "topk": lambda x, y: x.topk(2, -1)[1],
}
ONE_PATTERN = ["gather", "cat rows", "stack", "flip", "repeat", "cumsum columns"]


@pytest.fixture(autouse=True)
def _nothing_is_known() -> None:
    compute.forget()


@pytest.mark.parametrize("name", CALLS)
def test_bits_do_not_depend_on_sizes_before(name: str) -> None:
    rng = np.random.default_rng(0)
    given = [
        [ad.tensor(rng.random(shape, np.float32)) for _ in range(2)]
        for shape in SHAPES
        if shape[1] > 1
    ]
    results = [CALLS[name](x, y).numpy() for x, y in given]
    for (x, y), result in zip(given, results, strict=True):
        compute.forget()
        alone = CALLS[name](x, y).numpy()
        assert alone.strides == result.strides and alone.tobytes() == result.tobytes()


def assert_nothing_is_traced(
    name: str, count: int, monkeypatch: pytest.MonkeyPatch, low: int, high: int
) -> None:
    """After three sizes, so many others find their routine by patterns that there are."""
    drawn = pairs(low, high)
    for x, y in itertools.islice(drawn, 3):
        CALLS[name](x, y)
    asked: list[Any] = []
    accelerate = compute.accelerate
    assert accelerate is not None
    monkeypatch.setattr(
        compute, "accelerate", lambda op, arrays: asked.append(op) or accelerate(op, arrays)
    )
    monkeypatch.setattr(routine_patterns, "RoutinePattern", None)
    for x, y in itertools.islice(drawn, count):
        CALLS[name](x, y)
    assert asked == []


@pytest.mark.parametrize("name", ONE_PATTERN)
def test_new_sizes_are_launched(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_nothing_is_traced(name, 6, monkeypatch, 20, 64)


@pytest.mark.sweep
@pytest.mark.parametrize("name", ONE_PATTERN)
def test_many_new_sizes_are_launched(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_nothing_is_traced(name, 200, monkeypatch, 20, 64)


def test_other_numbers_of_other_sizes() -> None:
    for n in range(5, 12):
        x = ad.zeros(n, 3)
        for value in (0.5, n / 8):
            assert F.pad(x, (1, 0), value=value)[:, 0].tolist() == [value] * n
            assert ad.scatter(x, 1, places(x)[:, :1], value).sum().item() == n * value
            assert F.leaky_relu(x - 1, value).tolist() == [[-value] * 3] * n


def test_indices_out_of_range_are_refused_for_each_size() -> None:
    for n in (8, 9, 10, 11):
        x = ad.ones(n, n)
        assert ad.gather(x, 1, places(x)).shape == (n, n)
        with pytest.raises(IndexError, match=str(n)):
            ad.gather(x, 1, ad.full((n, n), n))


def test_shapes_that_do_not_fit_are_refused_after_others() -> None:
    for n in (4, 5, 6, 7):
        assert ad.cat([ad.ones(n, 3), ad.ones(2, 3)]).shape == (n + 2, 3)
    with pytest.raises(RuntimeError, match="cat"):
        ad.cat([ad.ones(8, 3), ad.ones(2, 4)])


def test_row_major_plans_are_those_of_known_strides(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function of sizes gives the words that a plan of known sizes and strides has."""
    made: list[Any] = []
    init = plans.RowMajorPlan.__init__

    def noted(self: Any, compiled: Any, shapes: Any, space: Any) -> None:
        init(self, compiled, shapes, space)
        made.append((self, compiled))

    monkeypatch.setattr(plans.RowMajorPlan, "__init__", noted)
    for n in (30, 40, 50, 60):
        x = ad.rand(n, n + 1)
        for y in (x + x, x.sum(1), x.sum(0), x + x[:1], x.argmax(1)):
            assert y.shape
    assert made
    for plan, compiled in made:
        rank = compiled.kernel.rank
        for sizes in ((70, 80, 90)[:rank], (17, 33, 5)[:rank], (500, 300, 2)[:rank]):
            shapes = [tuple(sizes[a] for a in v.axes) for v in compiled.kernel.inputs]
            words = plan.run(*(n for shape in (*shapes, sizes) for n in shape))
            if words is None or plan.layout is None:
                continue
            arrays = [
                np.empty(shape, v.attr[1])
                for shape, v in zip(shapes, compiled.kernel.inputs, strict=True)
            ]
            known = compiled.bound(arrays, sizes)
            assert known.layout == plan.layout and known.chunks == words[0]
            assert known.head == plan.head(*words[2:])
