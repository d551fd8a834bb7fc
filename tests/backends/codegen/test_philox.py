"""Random numbers inside kernels are those of NumPy's Philox, wherever a position lies in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from adjoint.backends.codegen import Compiled, Kernel
from adjoint.core.errors import InvalidArgument

SEED, DRAW = 2**64 - 5, 77


def numbers(shape: tuple[int, ...]) -> Any:
    count = int(np.prod(shape))
    bits = np.random.Philox(key=SEED, counter=[0, 0, DRAW, 0])
    return bits.random_raw((count + 1) // 2).view(np.uint32)[:count].reshape(shape)


def kernel(rank: int, dtype: str) -> Compiled:
    k = Kernel(rank)
    x, seed, draw = k.input(dtype), k.input("uint64", ()), k.input("uint64", ())
    r = k.random(None, seed, draw)
    k.output(r)
    k.output(k.where(k.lt(r, 1 << 31), x * 2, 0.0), dtype)
    return Compiled(k)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize(
    "shape", [(1,), (7,), (64,), (1000,), (3, 5), (33, 17), (64, 65), (4, 5, 6)]
)
def test_numbers_are_numpys_for_any_layout(shape: tuple[int, ...], dtype: str) -> None:
    run = kernel(len(shape), dtype)
    expected = numbers(shape)
    state = np.array(SEED, np.uint64), np.array(DRAW, np.uint64)
    whole = np.ones(shape, dtype)
    wide = np.ones((*shape[:-1], 2 * shape[-1]), dtype)
    for x in (whole, np.ones(shape[::-1], dtype).T, wide[..., ::2], whole[::-1]):
        outs = np.empty(shape, np.uint32), np.empty(shape, dtype)
        run(x, *state, out=outs)
        np.testing.assert_array_equal(outs[0], expected)
        np.testing.assert_array_equal(outs[1], np.where(expected < 1 << 31, 2, 0))


def test_an_output_must_count_the_positions() -> None:
    state = np.array(SEED, np.uint64), np.array(DRAW, np.uint64)
    x = np.ones((4, 6), np.float32).T
    outs = np.empty((4, 6), np.uint32).T, np.empty((6, 4), np.float32)
    with pytest.raises(InvalidArgument, match="row-major"):
        kernel(2, "float32")(x, *state, out=outs)
