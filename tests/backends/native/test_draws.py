"""Random numbers of generated code are NumPy's, bit for bit."""

from __future__ import annotations

import itertools
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import adjoint as ad
from adjoint.backends import numpy as reference
from adjoint.backends.native.lowering import large_arrays
from adjoint.backends.native.random import random_code as draws_code
from adjoint.backends.native.random import random_draws, ziggurat
from adjoint.ir import compute
from adjoint.ops.random.draws import (
    Bernoulli,
    Exponential,
    Mask,
    Multinomial,
    Normal,
    Permutation,
    RandInt,
    Uniform,
)
from tests.native import needs_native

pytestmark = needs_native

STREAMS = [(0, 0), (5, 77), (2**64 - 5, 2**64 - 1)]
BUFFER = draws_code.BLOCKS * 8  # numbers of 32 bits
COUNTS = [1, 2, 15, 16, 17, 31, 63, BUFFER - 1, BUFFER, BUFFER + 1, 3 * BUFFER + 5, 4001]
REAL = list(
    itertools.product(["uniform", "normal", "exponential"], [np.dtype("f4"), np.dtype("f8")])
)


def both(name: str, *args: Any) -> tuple[Any, Any]:
    return getattr(random_draws, f"drawn_{name}")(*args), getattr(reference, f"drawn_{name}")(*args)


def assert_same_bits(found: Any, expected: Any) -> None:
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize(("name", "dtype"), REAL, ids=str)
def test_bits(name: str, dtype: Any) -> None:
    for count, stream in itertools.product(COUNTS, STREAMS):
        assert_same_bits(*both(name, *stream, (count,), dtype))
    assert_same_bits(*both(name, 1, 2, (3, 4, 5), dtype))
    assert_same_bits(*both(name, 1, 2, (), dtype))
    assert_same_bits(*both(name, 1, 2, (3, 0), dtype))


@pytest.mark.parametrize(("name", "dtype"), REAL, ids=str)
def test_a_million_numbers(name: str, dtype: Any) -> None:
    """So many that each layer, its wedge and the tail occur."""
    assert_same_bits(*both(name, 3, 4, (1_000_003,), dtype))


@pytest.mark.parametrize("off", [-1, 0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_shared_segments(dtype: str, off: int) -> None:
    assert_same_bits(*both("uniform", 1, 2, (8 * draws_code.SEGMENT + off,), np.dtype(dtype)))


@pytest.mark.parametrize("low", [0, -7, -(2**63)])
@pytest.mark.parametrize("count", [1, 2, 3, 1000, 2**31 + 1, 2**32 - 1, 2**32, 2**32 + 1, 2**40])
def test_integers(count: int, low: int) -> None:
    """Of 2**31 + 1 integers, almost half of the words are rejected."""
    for n, stream in itertools.product((1, 7, 8, 9, 5000), STREAMS):
        assert_same_bits(*both("integers", *stream, low, low + count, (n,)))


def test_permutations() -> None:
    for n, stream in itertools.product((0, *COUNTS, 300_000), STREAMS):
        assert_same_bits(*both("permutation", *stream, n))


@pytest.mark.parametrize("dtype", [*"?bhilefd", ad.bfloat16.numpy, "F", "D"], ids=str)
@pytest.mark.parametrize(("keep", "value"), [(0.0, 1.0), (0.3, 1 / 0.3), (1.0, 1.0)])
def test_masks(dtype: Any, keep: float, value: float) -> None:
    for count in (1, 17, BUFFER + 3, 8 * draws_code.SEGMENT + 1):
        assert_same_bits(*both("mask", 9, 8, keep, value, (count,), np.dtype(dtype)))


OPS = [
    Uniform(1, 2, (40, 50), ad.float16),
    Uniform(1, 2, (40, 50), ad.float64),
    Normal(1, 2, (40, 50), ad.float32),
    Normal(1, 2, (40, 50), ad.bfloat16),
    Normal(1, 2, (40, 50), ad.complex64),
    Normal(1, 2, (40, 50), ad.complex128),
    Exponential(1, 2, (40, 50), ad.float16),
    RandInt(1, 2, -3, 90, (2000,), ad.int64),
    RandInt(1, 2, 0, 2, (2000,), ad.bool_),
    Mask(1, 2, 0.6, 2.5, (2000,), ad.float32),
    Permutation(1, 2, 2000, ad.int64),
    Permutation(1, 2, 2000, ad.float32),
]
WITH_INPUTS = [
    (Bernoulli(1, 2), np.linspace(0, 1, 2000, dtype=np.float32)),
    (Multinomial(1, 2, 30, True), np.linspace(0, 1, 100).reshape(2, 50)),
    (Multinomial(1, 2, 30, False), np.linspace(0, 1, 100).reshape(2, 50)),
]


@pytest.mark.parametrize("op", OPS, ids=lambda op: f"{op.name}-{op.dtype}")
def test_ops(op: Any) -> None:
    expected = op.compute(reference)
    assert_same_bits(compute.compute(op, []), expected)
    assert_same_bits(op.compute(large_arrays), expected)


@pytest.mark.parametrize(("op", "x"), WITH_INPUTS, ids=lambda op: getattr(op, "name", ""))
def test_ops_with_inputs(op: Any, x: Any) -> None:
    assert_same_bits(compute.compute(op, [x]), op.compute(reference, x))


def test_what_was_drawn_before_is_drawn_without_an_op() -> None:
    compute.forget()
    numbers = ad.Generator().manual_seed(5)
    first = ad.randn(77, generator=numbers)
    assert list(compute.draws.fresh) == [(Normal, ((77,), ad.float32))]
    again = ad.randn(77, generator=numbers.manual_seed(5))
    assert_same_bits(again.numpy(), first.numpy())
    assert not np.array_equal(ad.randn(77, generator=numbers).numpy(), first.numpy())
    assert numbers.draws == 2
    with pytest.raises(TypeError, match=r"expected an adjoint\.Generator"):
        ad.randn(77, generator=5)
    for mode in (ad.inference_mode, ad.no_grad, ad.lazy):
        with mode():
            other = ad.randn(77, generator=numbers.manual_seed(5))
        assert other.is_inference() == (mode is ad.inference_mode)
        assert_same_bits(other.numpy(), first.numpy())
    wide = ad.randn(77, generator=numbers.manual_seed(5), requires_grad=True)
    assert wide.requires_grad
    assert wide.is_leaf


def test_small_and_narrow_draws_are_not_remembered() -> None:
    compute.forget()
    ad.randn(compute.SMALL)
    ad.randn(100, dtype=ad.float16)
    ad.randn(100, dtype=ad.complex64)
    ad.rand(100, dtype=ad.bfloat16)
    assert len(compute.draws) == 0


def test_draws_in_place_count_once() -> None:
    """Also the first time, when a method is captured to see whether it is a kernel."""
    for n in (5, 100, 50_000):
        for name, *args in (["normal_"], ["exponential_", 2.0], ["bernoulli_", 0.25], ["cauchy_"]):
            ad.manual_seed(1)
            x = ad.empty(n)
            getattr(x, name)(*args)
            assert ad.default_generator.draws == 1
            first = x.numpy().copy()
            ad.manual_seed(1)
            assert_same_bits(getattr(x, name)(*args).numpy(), first)


def test_threads_draw_at_once() -> None:
    count = 60_000  # the GIL is released
    expected = [reference.drawn_normal(1, k, (count,), np.float32) for k in range(8)]
    barrier = threading.Barrier(4)

    def draw(thread: int) -> list[Any]:
        barrier.wait()
        return [random_draws.drawn_normal(1, k, (count,), np.float32) for k in range(8)]

    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(draw, range(4)):
            for x, y in zip(found, expected, strict=True):
                assert_same_bits(x, y)


@pytest.mark.parametrize("kind", ["normal", "exponential"])
def test_tables_are_those_of_a_ziggurat(kind: str) -> None:
    def density(x: float) -> float:
        return math.exp(-0.5 * x * x if kind == "normal" else -x)

    for dtype, error in (("float64", 1e-13), ("float32", 1e-6)):
        found = ziggurat.tables(kind, dtype)
        edges = [w * 2.0**found.digits for w in found.widths]
        area = edges[0] * density(found.edge)
        for k in range(2, ziggurat.LAYERS):
            layer = edges[k] * (density(edges[k - 1]) - density(edges[k]))
            assert layer == pytest.approx(area, rel=100 * error)
            assert found.limits[k] == pytest.approx(
                edges[k - 1] / edges[k] * 2**found.digits, rel=error
            )
        assert found.limits[1] == 0
        assert found.limits[0] == pytest.approx(found.edge / edges[0] * 2**found.digits, rel=error)
        assert found.heights[0] == 1.0
        assert found.heights[1:] == pytest.approx([density(x) for x in edges[1:]], rel=10 * error)
