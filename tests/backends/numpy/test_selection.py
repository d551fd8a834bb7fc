"""The NumPy backend's `where` gives the bits that NumPy's own gives."""

from __future__ import annotations

import numpy as np
import pytest

from adjoint.backends import numpy as backend

SPECIAL = [0.0, -0.0, 1.5, -2.5, np.inf, -np.inf, np.nan, 1e-310]
SHAPES = [
    ((40, 50), (40, 50), (40, 50)), ((40, 50), (), (40, 50)), ((40, 50), (40, 50), ()),
    ((40, 50), (), ()), ((40, 1), (50,), ()), ((50,), (40, 50), (40, 1)), ((), (40, 50), (50,)),
    ((3,), (3,), (3,)), ((0, 9), (1, 9), (9,)),
]  # fmt: skip


def values(shape, dtype, seed):
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return np.asarray(rng.choice(SPECIAL, shape)).astype(dtype)
    return np.asarray(rng.integers(0, 100, shape)).astype(dtype)


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize(
    "dtypes",
    [("f4", "f4"), ("f8", "f8"), ("i4", "i4"), ("i8", "i8"), ("u1", "u1"), ("f2", "f2"),
     ("f4", "f8"), ("i8", "f4"), ("c8", "c8"), ("?", "?")],
    ids=str,
)  # fmt: skip
def test_where_gives_numpys_bits(shapes, dtypes):
    condition = np.asarray(np.random.default_rng(0).random(shapes[0]) > 0.5)
    x1, x2 = values(shapes[1], dtypes[0], 1), values(shapes[2], dtypes[1], 2)
    before = x1.copy(), x2.copy()
    ours, expected = backend.where(condition, x1, x2), np.where(condition, x1, x2)
    assert ours.dtype == expected.dtype
    assert ours.shape == expected.shape
    assert ours.tobytes() == expected.tobytes()
    assert (x1.tobytes(), x2.tobytes()) == (before[0].tobytes(), before[1].tobytes())


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8"])
@pytest.mark.parametrize("number", [0, 3, -2])
def test_where_with_python_numbers(dtype, number):
    condition = np.arange(2000) % 3 == 0
    x = values((2000,), dtype, 3)
    for mine, other in (
        (backend.where(condition, x, number), np.where(condition, x, number)),
        (backend.where(condition, number, x), np.where(condition, number, x)),
    ):
        assert mine.dtype == other.dtype == np.dtype(dtype)
        assert mine.tobytes() == other.tobytes()


def test_where_on_strided_arrays():
    x = values((80, 100), "f4", 4)[::2, ::2]
    condition = (values((80, 100), "i4", 5) > 50)[::2, ::2]
    assert backend.where(condition, x, x.copy()[::-1]).tobytes() == (
        np.where(condition, x, x[::-1]).tobytes()
    )
