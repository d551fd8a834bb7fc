"""Maximum pooling by generated code: places kept from forward for backward."""

import gc

import numpy as np
import pytest

import adjoint as ad
from adjoint.backends.native.onednn import pooling_code, pooling_plans
from adjoint.backends.numpy import convolution as reference

pytestmark = pytest.mark.skipif(pooling_code.code() is None, reason="no code is generated here")


@pytest.fixture
def forwards(monkeypatch):
    """How often a forward kernel has run."""
    calls = []
    run = pooling_plans.Windows.forward

    def counted(self, x):
        calls.append(x.shape)
        return run(self, x)

    monkeypatch.setattr(pooling_plans.Windows, "forward", counted)
    return calls


def test_backward_uses_what_forward_found(forwards):
    x = ad.tensor(np.random.default_rng(0).standard_normal((2, 8, 20, 20), np.float32))
    x.requires_grad_()
    y = ad.nn.functional.max_pool2d(x, 3, 2, 1)
    (y * y).sum().backward()
    assert len(forwards) == 1
    data = x.detach().numpy()
    windows = ((3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1))
    value = reference.max_pool(data, *windows, (10, 10))
    expected = reference.max_pool_input(data, value, 2 * value, *windows)
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-6)


def test_places_live_as_long_as_the_result():
    gc.collect()
    before = len(pooling_plans._places)
    x = np.random.default_rng(0).standard_normal((4, 30, 30), np.float32)
    y = pooling_plans.max_pool(x, (2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1), (15, 15))
    assert len(pooling_plans._places) == before + 1
    del y
    assert len(pooling_plans._places) == before


def test_other_windows_over_the_same_result_are_searched_again(forwards):
    x = np.random.default_rng(0).standard_normal((4, 6, 6), np.float32)
    y = pooling_plans.max_pool(x, (2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1), (3, 3))
    other = ((1, 1), (2, 2), ((0, 0), (0, 0)), (1, 1))
    found = pooling_plans.max_pool_input(x, y, y, *other)
    assert len(forwards) == 2
    assert np.array_equal(found[:, ::2, ::2], y)
    assert np.count_nonzero(found) == np.count_nonzero(y)


@pytest.mark.parametrize("size", [(8, 8), (9, 9), (37, 70), (5, 3)])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding"), [(2, 2, 0), (3, 1, 1), (3, 2, 1), (2, 3, 0), (3, 3, 0)]
)
def test_ties_nan_and_infinities(size, kernel, stride, padding):
    r = np.random.default_rng(4)
    x = np.round(r.standard_normal((3, 5, *size))).astype(np.float32)
    x.flat[r.integers(0, x.size, 9)] = np.nan
    x.flat[r.integers(0, x.size, 40)] = -np.inf
    windows = ((kernel,) * 2, (stride,) * 2, ((padding, padding),) * 2, (1, 1))
    places = tuple((n + 2 * padding - kernel) // stride + 1 for n in size)
    y = pooling_plans.max_pool(x, *windows, places)
    assert np.array_equal(y, reference.max_pool(x, *windows, places), equal_nan=True)
    g = r.standard_normal(y.shape).astype(np.float32)
    expected = reference.max_pool_input(x, y, g, *windows)
    np.testing.assert_allclose(
        pooling_plans.max_pool_input(x, y, g, *windows), expected, 1e-4, 1e-5
    )
    np.testing.assert_allclose(
        pooling_plans.max_pool_input(x, y.copy(), g, *windows), expected, 1e-4, 1e-5
    )
