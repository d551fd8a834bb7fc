"""Many small matrices: routines factor and invert them, several in one vector; beside NumPy."""

import numpy as np
import pytest

import adjoint as ad
from adjoint.backends.native.gemm import small_systems
from tests.native import needs_native

from ....sweep import swept

pytestmark = needs_native

DTYPES = [np.float32, np.float64]
COUNTS = [2, 3, 8, 9, 17]
SIZES = [1, 2, 15, 64, *map(swept, (3, 4, 5, 7, 8, 16, 31, 33))]


@pytest.fixture
def made(monkeypatch):
    """The routines that were run, by name."""
    names = []
    compute = small_systems.compute

    def note(routine, *args, **kwargs):
        names.append(routine[0].__name__)
        return compute(routine, *args, **kwargs)

    monkeypatch.setattr(small_systems, "compute", note)
    return names


def drawn(count, n, dtype, seed=0):
    rng = np.random.default_rng([seed, count, n])
    return rng.standard_normal((count, n, n)).astype(dtype)


def definite(count, n, dtype):
    x = drawn(count, n, dtype)
    return x @ x.swapaxes(1, 2) + n * np.eye(n, dtype=dtype)


def assert_near(found, wanted, dtype):
    tolerance = 1e-3 if dtype == np.float32 else 1e-10
    assert found.dtype == dtype and found.shape == wanted.shape
    scale = np.abs(wanted).max((-1, -2), keepdims=True)
    np.testing.assert_allclose(found / scale, wanted / scale, 0, tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", SIZES)
def test_results_are_numpys(n, dtype, made):
    for count in COUNTS:
        if not small_systems.are_many(np.empty((count, n, n), dtype)):
            continue
        s, x = definite(count, n, dtype), drawn(count, n, dtype, 1)
        x += 3 * np.eye(n, dtype=dtype)[:, ::-1]  # rows are exchanged
        right = drawn(count, n, dtype, 2)[:, :, : max(n // 2, 1)]
        lower = ad.linalg.cholesky(ad.tensor(s)).numpy()
        assert_near(lower, np.linalg.cholesky(s.astype(np.float64)), dtype)
        assert not np.triu(lower, 1).any()
        wide = x.astype(np.float64)
        if np.linalg.cond(wide).max() < 1e4:
            assert_near(ad.linalg.inv(ad.tensor(x)).numpy(), np.linalg.inv(wide), dtype)
            wanted = np.linalg.solve(wide, right)
            assert_near(ad.linalg.solve(ad.tensor(x), ad.tensor(right)).numpy(), wanted, dtype)
    assert "_write_cholesky" in made


@pytest.mark.parametrize("dtype", DTYPES)
def test_layouts(dtype, made):
    s, x = definite(12, 6, dtype), drawn(12, 6, dtype) + 4 * np.eye(6, dtype=dtype)
    wide = x.astype(np.float64)
    for view in (
        lambda a: ad.tensor(a).mT, lambda a: ad.tensor(a.repeat(2, 0))[::2],
        lambda a: ad.tensor(a).reshape(3, 4, 6, 6),
        lambda a: ad.tensor(np.asfortranarray(a)),
    ):  # fmt: skip
        array = view(x).numpy()
        assert_near(ad.linalg.inv(view(x)).numpy(), np.linalg.inv(array.astype(np.float64)), dtype)
        lower = ad.linalg.cholesky(view(s)).numpy()
        assert_near(lower, np.linalg.cholesky(view(s).numpy().astype(np.float64)), dtype)
    upper = ad.linalg.cholesky(ad.tensor(s), upper=True).numpy()
    assert_near(upper, np.linalg.cholesky(s.astype(np.float64)).swapaxes(1, 2), dtype)
    right = drawn(12, 6, dtype, 3)
    found = ad.linalg.solve(ad.tensor(x), ad.tensor(right).mT).numpy()
    assert_near(found, np.linalg.solve(wide, right.swapaxes(1, 2)), dtype)
    vector = ad.linalg.solve(ad.tensor(x), ad.tensor(right[:, 0])).numpy()
    assert_near(vector[..., None], np.linalg.solve(wide, right[:, 0, :, None]), dtype)
    assert {"_write_inverse", "_write_cholesky", "_write_solution"} == set(made)


def test_only_one_triangle_is_read():
    s = definite(9, 5, np.float64)
    wanted = ad.linalg.cholesky(ad.tensor(s))
    dirty = np.tril(s) + np.triu(np.full((5, 5), np.nan), 1)
    assert ad.equal(ad.linalg.cholesky(ad.tensor(dirty)), wanted)


def message(function, *arrays):
    with pytest.raises(ad.linalg.LinAlgError) as caught:
        function(*map(ad.tensor, arrays))
    return str(caught.value)


@pytest.mark.parametrize("dtype", DTYPES)
def test_errors_are_those_of_numpys_way(dtype, monkeypatch):
    s = definite(20, 4, dtype)
    s[13, 2] = s[13, :, 2] = 0
    missing = definite(20, 4, dtype)
    missing[3, 1, 1] = np.nan
    right = drawn(20, 4, dtype)
    calls = [(ad.linalg.cholesky, s), (ad.linalg.inv, s), (ad.linalg.solve, s, right)]
    found = [message(*call) for call in calls for _ in range(4)]  # launched from the third on
    assert all("Batch element 13" in text for text in found)
    functions = ad.linalg.inv, ad.linalg.cholesky
    nans = [function(ad.tensor(missing)).numpy() for function in functions]
    monkeypatch.setattr("adjoint.core.policy.SMALL_ROWS", 0)
    assert found == [message(*call) for call in calls for _ in range(4)]
    for function, x in zip(functions, nans, strict=True):
        plain = function(ad.tensor(missing)).numpy()
        np.testing.assert_array_equal(np.isnan(x), np.isnan(plain))


def test_bits_depend_on_the_matrix_alone():
    x = drawn(50, 11, np.float64)
    s = definite(50, 11, np.float64)
    before = ad.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 4):
            ad.set_num_threads(threads)
            found.append([ad.linalg.inv(ad.tensor(x)), ad.linalg.cholesky(ad.tensor(s))])
    finally:
        ad.set_num_threads(before)
    for each in found[1:]:
        assert all(map(ad.equal, each, found[0]))
    part = ad.linalg.inv(ad.tensor(x[17:26].copy()))
    assert ad.equal(part, found[0][0][17:26])


def test_gradients_and_programs():
    s = ad.tensor(definite(9, 4, np.float64), requires_grad=True)
    right = ad.tensor(drawn(9, 4, np.float64), requires_grad=True)

    def f(s, right):
        symmetric = (s + s.mT) / 2
        lower = ad.linalg.cholesky(symmetric)
        return lower.sum() + (ad.linalg.solve(symmetric, right) @ ad.linalg.inv(s)).sum()

    assert ad.autograd.gradcheck(f, (s, right))
    assert ad.autograd.gradgradcheck(f, (s[:2].detach().requires_grad_(), right[:2].detach()))
    compiled = ad.compile(f)
    for _ in range(3):
        np.testing.assert_allclose(compiled(s, right).item(), f(s, right).item(), 1e-12)
    systems = {"cholesky", "inverse", "solve"}
    assert systems.isdisjoint(row.name for row in compiled.explain(s, right).host_calls)
    batched = ad.func.vmap(ad.linalg.inv)(s.detach())
    assert ad.equal(batched, ad.linalg.inv(s.detach()))
    with pytest.raises(ad.linalg.LinAlgError):
        compiled(ad.zeros(9, 4, 4).double(), right)
