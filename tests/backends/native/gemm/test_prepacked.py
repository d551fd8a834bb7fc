"""Products with constants in panels: every size of tile, all that follows, shared or not."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import adjoint as ad
from adjoint.backends.codegen import target
from adjoint.backends.native.gemm import prepacked
from adjoint.core import policy

if not prepacked.is_available():
    pytest.skip("no panels here", allow_module_level=True)

LANES = target.host().vector_bytes // 4
COLUMNS = prepacked.WIDTH * LANES
CLAMPED = prepacked.Epilogue(prepacked.CLIP, -0.5, 0.75)


def product(x, w, bias=None, added=None, epilogue=None):
    """The product, in the middle of memory that must stay as it is."""
    m, n = len(x), w.shape[1]
    whole = np.full((m + 2) * n, 7.0, np.float32)
    y = whole[n:-n].reshape(m, n)
    prepacked.call(x, prepacked.packed(w), y, bias, added, epilogue)()
    assert (whole[:n] == 7).all() and (whole[-n:] == 7).all()
    return y


def drawn(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    "n", [1, LANES - 1, LANES, LANES + 1, COLUMNS, COLUMNS + 1, 2 * COLUMNS + 5]
)
@pytest.mark.parametrize("k", [1, 2, 33])
def test_every_tile(n, k):
    """Rows from one to more than two of the tallest tiles."""
    w, bias = drawn(k, n), drawn(n)
    for m in range(1, 19):
        x, added = drawn(m, k), drawn(m, n)
        for has_bias, has_added, epilogue in itertools.product(
            (False, True), (False, True), (None, CLAMPED)
        ):
            found = product(
                x, w, bias if has_bias else None, added if has_added else None, epilogue
            )
            expected = x.astype(np.float64) @ w + bias * has_bias + added * has_added
            if epilogue:
                expected = expected.clip(-0.5, 0.75)
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", prepacked.KINDS)
def test_every_kind(kind):
    """The last columns of a panel, too."""
    x, w = drawn(5, 3), drawn(3, COLUMNS + LANES + 3)
    values = x.astype(np.float64) @ w
    t = ad.tensor(values)
    functional = ad.nn.functional
    expected = {
        "linear": lambda: t * 0.25, "leaky": lambda: functional.leaky_relu(t, 0.25),
        "gelu_tanh": lambda: functional.gelu(t, approximate="tanh"),
    }.get(kind) or (lambda: getattr(functional, kind)(t))  # fmt: skip
    found = product(x, w, epilogue=prepacked.Epilogue(kind, 0.25, 0.0))
    np.testing.assert_allclose(found, expected().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("sizes", [(1, 700, 999), (40, 64, 30), (130, 70, 2 * COLUMNS), (3, 9, 7)])
def test_threads_change_no_bit(sizes, monkeypatch):
    """Whether they share panels or rows."""
    m, k, n = sizes
    x, w, bias, added = drawn(m, k), drawn(k, n), drawn(n), drawn(m, n)
    monkeypatch.setattr(policy, "CONVOLUTION_GRAIN", 1)
    before = ad.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 5):
            ad.set_num_threads(threads)
            found.append(product(x, w, bias, added, CLAMPED).tobytes())
            found.append(product(x, w, bias, added, prepacked.Epilogue("tanh")).tobytes())
    finally:
        ad.set_num_threads(before)
    assert found[::2] == [found[0]] * 3 and found[1::2] == [found[1]] * 3


def test_rows_do_not_change_each_other():
    """A row's bits are the same in a product of one row and of many; NaN stays in its row."""
    x, w = drawn(23, 50), drawn(50, 70)
    whole = product(x, w)
    for i in (0, 7, 22):
        assert product(x[i : i + 1], w).tobytes() == whole[i].tobytes()
    x[4, 3] = np.nan
    found = product(x, w)
    assert np.isnan(found[4]).all()
    assert np.delete(found, 4, 0).tobytes() == np.delete(whole, 4, 0).tobytes()
