"""Reductions: accuracy, and results that do not depend on how the work is handed out."""

import ctypes
import math
import random
import threading

import numpy as np
import pytest

from adjoint.backends.codegen import Compiled, Kernel

KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


def reduction(op, axes, dtype="float32", rank=2):
    k = Kernel(rank)
    k.output(k.reduce(op, k.input(dtype), axes))
    return Compiled(k)


def threads(address, words, chunks):
    """Runs the chunks in random order on three threads."""
    order = list(range(chunks))
    random.Random(chunks).shuffle(order)

    def work(part):
        for chunk in part:
            KERNEL(address)(chunk, chunk + 1, words)

    workers = [threading.Thread(target=work, args=(order[k::3],)) for k in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("axes", [(0, 1), (0,), (1,)])
def test_sums_are_at_least_as_accurate_as_numpys(dtype, axes):
    rng = np.random.default_rng(0)
    for x in (
        rng.random((1000, 1111)),
        rng.standard_normal((300, 3001)) * 10 ** rng.uniform(-3, 3, 3001),
    ):
        x = x.astype(dtype)
        mine, peers = reduction("sum", axes, dtype)(x), x.sum(axes)
        rows = np.moveaxis(x, 0, 1) if axes == (0,) else x if axes == (1,) else x.reshape(1, -1)
        true = np.array([math.fsum(row.tolist()) for row in rows])
        unit = np.finfo(dtype).eps * np.abs(rows).sum(1, dtype=np.float64)
        mine_error = np.abs(np.asarray(mine, np.float64).ravel() - true) / unit
        peers_error = np.abs(np.asarray(peers, np.float64).ravel() - true) / unit
        assert mine_error.mean() <= max(peers_error.mean(), 0.5)
        assert mine_error.max() <= max(peers_error.max(), 0.5)


def test_sums_of_infinities_and_nan():
    x = np.ones((3, 200))
    x[0, 7] = np.inf
    x[1, 7], x[1, 150] = np.inf, -np.inf
    for dtype in ("float32", "float64"):
        for array, axis in ((x, 1), (np.ascontiguousarray(x.T), 0)):
            got = reduction("sum", (axis,), dtype)(array.astype(dtype))
            np.testing.assert_array_equal(got, [np.inf, np.nan, 200])


@pytest.mark.parametrize("op", ["max", "min"])
def test_nan_wins_wherever_it_is(op):
    for n in (1, 5, 16, 17, 64, 200):
        for at in {0, n // 2, n - 1}:
            x = np.arange(2 * n, dtype=np.float32).reshape(2, n)
            x[1, at] = np.nan
            wanted = getattr(np, op)(x, 1)
            np.testing.assert_array_equal(reduction(op, (1,))(x), wanted)
            np.testing.assert_array_equal(reduction(op, (0,))(np.ascontiguousarray(x.T)), wanted)


def test_reducing_nothing_gives_the_identity():
    x = np.zeros((3, 0), np.float32)
    identities = {"sum": 0, "prod": 1, "max": -np.inf, "min": np.inf}
    for op, identity in identities.items():
        assert reduction(op, (1,))(x).tolist() == [identity] * 3
        assert reduction(op, (0,))(x).shape == (0,)
        assert reduction(op, (0, 1))(x) == identity


LARGE = [
    ("sum", "float32"),
    ("sum", "int64"),
    ("max", "float64"),
    ("prod", "int32"),
    ("min", "uint8"),
]


@pytest.mark.parametrize(("op", "dtype"), LARGE)
@pytest.mark.parametrize("shape", [(3, 70_001), (70_001, 3), (2, 300, 333)])
def test_split_reductions_agree_and_do_not_depend_on_threads(op, dtype, shape):
    rng = np.random.default_rng(0)
    x = (rng.integers(-5, 6, shape) if dtype[0] != "u" else rng.integers(1, 200, shape)).astype(
        dtype
    )
    for axes in [(0,), (len(shape) - 1,), tuple(range(len(shape)))]:
        f = reduction(op, axes, dtype, len(shape))
        wanted = (
            getattr(np, op)(x, axes)
            if op not in ("sum", "prod")
            else getattr(np, op)(x, axes, dtype=dtype)
        )
        for y in (x, np.asfortranarray(x)):
            serial = f(y)
            np.testing.assert_array_equal(serial, wanted)
            np.testing.assert_array_equal(f(y, run=threads), serial)


def test_float_results_are_the_same_bits_for_any_threads_and_every_run():
    x = np.random.default_rng(0).standard_normal((700, 1500), dtype=np.float32)
    for axes in ((0,), (1,), (0, 1)):
        k = Kernel(rank=2)
        v = k.input("float32")
        k.output(k.mean(k.exp(v), axes=axes))
        k.output(k.exp(v) / k.sum(k.exp(v), axes=axes))
        k.output(k.sum(v * v, axes=axes))
        f = Compiled(k)
        first = f(x)
        for run in (None, threads, threads):
            for a, b in zip(first, f(x, run=run), strict=True):
                np.testing.assert_array_equal(a, b)


def test_split_kernels_finish_with_expressions_inputs_and_sizes():
    k = Kernel(rank=2)
    x, w, power = k.input("float32"), k.input("float32", axes=(1,)), k.scalar("float32")
    mean = k.mean(x, axes=(0,))
    square = k.mean(x * x, axes=(0,))
    k.output(k.sqrt(square - mean * mean) * w + power)
    k.output(k.index(1) + k.size((0,)))
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((50_000, 5), dtype=np.float32), np.float32([1, 2, 3, 4, 5])
    for y in (x, np.asfortranarray(x)):
        spread, numbers = Compiled(k)(y, w, scalars=(10,))
        np.testing.assert_allclose(spread, x.astype(float).std(0) * w + 10, rtol=1e-6)
        assert numbers.tolist() == [50_000, 50_001, 50_002, 50_003, 50_004]


def test_elementwise_kernels_on_threads():
    k = Kernel(rank=2)
    x, y = k.input("float32"), k.input("float32")
    k.output(x * y + x)
    a = np.random.default_rng(0).standard_normal((600, 700), dtype=np.float32)
    for x, y in (
        (a, a),
        (a, a[:1]),
        (a.T, a[:, :1].T),
        (a, np.asfortranarray(a)),
        (a[::2], a[::-2]),
    ):
        np.testing.assert_allclose(Compiled(k)(x, y, run=threads), x * y + x, rtol=1e-6)
