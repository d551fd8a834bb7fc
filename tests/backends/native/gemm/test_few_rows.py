"""Products of one to four rows, or of one column: the order of their sums, and what they read."""

import itertools

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import adjoint as ad
from adjoint.backends.codegen import target
from adjoint.backends.native.gemm import few_rows, gemm, products
from adjoint.backends.native.gemm.few_rows_code import MOST
from adjoint.core import policy

pytestmark = pytest.mark.skipif(gemm.address() is None, reason="no product is generated here")

DTYPES = ["float32", "float64"]
SIZES = [2, 15, 17, 63, 65, 300]


def _random(shape, dtype="float32", seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def _exact(a, b):
    return a.astype(np.longdouble) @ b.astype(np.longdouble)


def _ways(x):
    """Arrays of the same elements that lie otherwise: by columns, with gaps, backwards, between
    elements' places.
    """
    m, n = x.shape
    yield np.asfortranarray(x)
    gaps = np.zeros((m + 1, 2 * n + 3), x.dtype)
    gaps[:m, : 2 * n : 2] = x
    yield gaps[:m, : 2 * n : 2]
    wide = np.zeros((m, n + 5), x.dtype)
    wide[:, 2 : n + 2] = x
    yield wide[:, 2 : n + 2]
    yield x[::-1, ::-1].copy()[::-1, ::-1]
    odd = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    odd[...] = x
    yield odd


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m", range(1, MOST + 1))
def test_they_are_right_and_as_exact_as_sums_of_parts(dtype, m):
    for k, n in itertools.product(SIZES, [1, *SIZES]):
        a, b = _random((m, k), dtype), _random((k, n), dtype, 1)
        size = np.abs(a).astype(np.longdouble) @ np.abs(b)
        error = np.abs(products.matmul(a, b) - _exact(a, b)) / size
        # Terms of a class one by one, classes in pairs: far fewer roundings in a row than terms.
        assert error.max() <= (k / 8 + 8) * np.finfo(dtype).eps / 2
    for k, n in [(0, 5), (5, 0), (0, 1), (1, 5), (1, 1)]:
        a, b = np.ones((m, k), dtype), np.ones((k, n), dtype)
        assert np.array_equal(products.matmul(a, b), np.full((m, n), k, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_bits_do_not_depend_on_layouts_rows_or_threads(dtype):
    before = ad.get_num_threads()
    try:
        for k, n in [(17, 65), (300, 1), (65, 300), (700, 1100)]:
            a, b = _random((MOST, k), dtype), _random((k, n), dtype, 1)
            expected = products.matmul(a, b)
            for x, y in itertools.product([a, *_ways(a)], [b, *_ways(b)]):
                assert np.array_equal(products.matmul(x, y), expected)
            for threads in (1, 2, 3):
                ad.set_num_threads(threads)
                for rows in range(1, MOST + 1):
                    for y in (b, np.asfortranarray(b)):
                        assert np.array_equal(products.matmul(a[:rows], y), expected[:rows])
                if n > 1:
                    assert np.array_equal(products.matmul(b.T, a[:1].T), expected[:1].T)
                if few_rows.are_few(2, k, 1):
                    assert np.array_equal(products.matmul(a[:2], b[:, :1]), expected[:2, :1])
    finally:
        ad.set_num_threads(before)


@pytest.mark.parametrize("turned", [False, True])
def test_large_weights_are_cut_by_their_bytes(turned):
    k, n = 600, 5000
    size = k * n * 4
    assert few_rows.parts(1, k, n, 4, 1, 2) == min(4, size // policy.PRODUCT_PART_BYTES)
    assert few_rows.parts(1, 100, 100, 4, 1, 2) == 1
    a, b = _random((3, k)), _random((k, n), seed=1)
    b = np.asfortranarray(b) if turned else b
    np.testing.assert_allclose(products.matmul(a, b), _exact(a, b), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_not_finite_goes_through(dtype):
    for k, turned in itertools.product([2, 17, 65, 300], [False, True]):
        for value in (np.nan, np.inf, -np.inf):
            for place in {0, 1, k // 2, k - 1}:
                a, b = np.ones((2, k), dtype), np.ones((k, 19), dtype)
                a[1, place] = value
                b = np.asfortranarray(b) if turned else b
                y = products.matmul(a, b)
                assert np.array_equal(y[1], np.full(19, value, dtype), equal_nan=True)
                assert np.array_equal(y[0], np.full(19, k, dtype))
                b[place, 3] = value
                y = products.matmul(np.ones((1, k), dtype), b)
                assert np.array_equal(np.isfinite(y[0]), np.arange(19) != 3)


def test_expanded_operands():
    a, b = _random((1, 40)), _random((40, 30), seed=1)
    same = np.broadcast_to(a[:, :1], (1, 40))
    np.testing.assert_allclose(products.matmul(same, b), _exact(same, b), rtol=1e-5, atol=1e-5)
    for wide in (np.broadcast_to(b[:1], (40, 30)), np.broadcast_to(b[:, :1], (40, 30))):
        np.testing.assert_allclose(products.matmul(a, wide), _exact(a, wide), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("turned", [False, True])
def test_bias_parts_above_zero_and_addition(dtype, turned):
    k, n = 70, 37
    a, b, bias = _random((3, k), dtype), _random((k, n), dtype, 1), _random((n,), dtype)
    b = np.asfortranarray(b) if turned else b
    plain = products.matmul(a, b)
    assert np.array_equal(products.matmul(a, b, None, bias), plain + bias)
    plan = products.generated(a, b)
    to = plain.copy()
    adding = plan.adding()
    assert adding is not None  # a sum is complete before it is added
    adding.run(a, b, to)
    assert np.array_equal(to, plain + plain)
    plan.rectified().run(a, b, to)
    assert np.array_equal(to, np.maximum(plain, 0))
    column = products.matmul(b.T, a[:1].T, None, bias[:1])
    assert np.array_equal(column, plain[:1].T + bias[0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_batch_and_one_matrix_for_many_vectors(dtype):
    queries, keys = _random((3, 4, 1, 64), dtype), _random((3, 4, 90, 64), dtype, 1)
    scores = products.matmul(queries, keys.swapaxes(-1, -2))
    for i, j in np.ndindex(3, 4):
        alone = products.matmul(queries[i, j], keys[i, j].T)
        assert np.array_equal(scores[i, j], alone)
    for count in (1, 2, 4, 5, 40):
        a, vectors = _random((33, 65), dtype), _random((count, 65, 1), dtype, 1)
        y = products.matmul(a, vectors)
        assert y.shape == (count, 33, 1)
        np.testing.assert_allclose(y, _exact(a, vectors), rtol=1e-4, atol=1e-4)
        for other in (vectors.swapaxes(0, 1).copy().swapaxes(0, 1), vectors[::-1].copy()[::-1]):
            assert np.array_equal(products.matmul(a, other), y)
    assert products.matmul(a, vectors[:0]).shape == (0, 33, 1)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("shapes", [
    ((1, 100), (100, 70)), ((3, 100), (100, 70)), ((70, 100), (100, 1)), ((16, 16), (16, 1)),
    ((9, 70), (5, 70, 1)), ((9, 70), (2, 3, 70, 1)), ((4, 1, 64), (4, 64, 33)),
])  # fmt: skip
def test_compiled_functions_give_the_same_bits(dtype, shapes):
    for way in range(4):
        x, y = (ad.tensor(_random(shape, seed=n)).to(getattr(ad, dtype))
                for n, shape in enumerate(shapes))  # fmt: skip
        x = x.swapaxes(-1, -2).contiguous().swapaxes(-1, -2) if way & 1 else x
        y = y.swapaxes(-1, -2).contiguous().swapaxes(-1, -2) if way & 2 else y
        eager = [(x @ y).tolist() for _ in range(3)]  # the later ones as they were remembered
        compiled = ad.compile(lambda x, y: x @ y)
        assert [compiled(x, y).tolist() for _ in range(2)] + eager == eager[:1] * 5


@pytest.mark.skipif(not target.host().has("avx2"), reason="no x86-64")
@pytest.mark.parametrize("dtype", DTYPES)
def test_with_the_registers_of_avx2(dtype, monkeypatch):
    """Another number of lanes is another order, but the same one for all layouts and rows."""
    narrow = target.Target(target.host().triple, "haswell", "+avx,+avx2,+fma")
    symbol = f"haswell.few.{dtype}"
    element = {"float32": "float", "float64": "double"}[dtype]
    code = narrow.compile(gemm.gemm_code.text(narrow, element, symbol))
    addresses = target.load(code, f"{symbol}.gemm", f"{symbol}.chunks")
    monkeypatch.setattr(gemm, "_code", lambda dtype: gemm._GemmCode(*addresses))
    for k, n in itertools.product([2, 5, 8, 9, 17, 65, 300], [1, 2, 9, 65, 2100]):
        if not few_rows.are_few(1, k, n):
            continue
        a, b = _random((MOST, k), dtype), _random((k, n), dtype, 1)
        found = []
        for m, y in itertools.product(range(1, MOST + 1), [b, np.asfortranarray(b)]):
            found.append(np.empty((m, n), dtype))
            products.generated(a[:m], y).run(a[:m], y, found[-1])
        np.testing.assert_allclose(found[-1], _exact(a, b), rtol=1e-3, atol=1e-3)
        assert all(np.array_equal(c, found[-1][: len(c)]) for c in found)
