"""Places of the largest and smallest elements by machine code, against NumPy's stable sort."""

from __future__ import annotations

import numpy as np
import pytest

import adjoint as ad

pytest.importorskip("llvmlite", reason="llvmlite is not installed")

from adjoint.backends.native.indexing.ranking import ranked
from adjoint.core.policy import RANK_MOST as MOST
from adjoint.core.policy import RANK_SORTED as SORTED


def rows(rng, dtype, ties):
    """Rows of special values among others, many of them equal where `ties`."""
    n = int(rng.integers(1, SORTED + 1)) if rng.integers(2) else int(rng.integers(1, 400))
    x = rng.standard_normal((int(rng.integers(1, 6)), n)) * 3
    x = (np.round(x) if ties else x * 1000).astype(dtype)
    specials = [np.nan, -np.nan, -0.0, 0.0, np.inf, -np.inf] if x.dtype.kind == "f" else []
    if x.dtype.kind == "i":
        specials = [np.iinfo(dtype).min, np.iinfo(dtype).max]
    for value in specials:
        x[rng.random(x.shape) < 0.04] = value
    return x


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("largest", [False, True])
def test_places_are_those_of_a_stable_sort(dtype, largest):
    computed = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        x = rows(rng, dtype, seed % 3 == 0)
        n = x.shape[1]
        k = int(rng.integers(1, min(n, MOST) + 1))
        found = ranked(x, 1, k, largest)
        if found is NotImplemented:  # a sort of long rows
            assert k > n // 4
            assert n > SORTED
            continue
        expected = np.argsort(x, 1, kind="stable")
        if largest:
            turned = np.argsort(np.flip(x, 1), 1, kind="stable")
            expected = n - 1 - np.flip(turned, 1)
        np.testing.assert_array_equal(found, expected[:, :k])
        computed += 1
    assert computed > 75


def test_what_comes_again_gives_the_same():
    x = ad.tensor(np.random.default_rng(1).standard_normal((9, 12)).astype("f4"))
    order = np.argsort(x.numpy(), 1, kind="stable")
    for _ in range(4):
        values, places = ad.sort(x)
        np.testing.assert_array_equal(places.numpy(), order)
        np.testing.assert_array_equal(values.numpy(), np.sort(x.numpy(), 1))
        values, places = ad.topk(x, 3, largest=False)
        np.testing.assert_array_equal(places.numpy(), order[:, :3])
        np.testing.assert_array_equal(values.numpy(), np.sort(x.numpy(), 1)[:, :3])
