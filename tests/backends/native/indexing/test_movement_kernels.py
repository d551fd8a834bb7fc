"""Machine code for indices and running sums, against NumPy on random shapes."""

from __future__ import annotations

import numpy as np
import pytest

import adjoint as ad

pytest.importorskip("llvmlite", reason="llvmlite is not installed")

from adjoint.backends.native.indexing import movement
from adjoint.backends.native.lowering import machine_routines
from adjoint.backends.native.runtime.pool import Pool

DTYPES = ["float32", "float64", "int64", "int32", "bool", "int8", "complex128", "complex64"]
NUMBERS = ["float32", "float64", "int32", "int64"]


def cases(seed, count=150):
    """Random shapes around an axis, and a generator."""
    for n in range(count):
        rng = np.random.default_rng([seed, n])
        ndim = int(rng.integers(1, 4))
        shape = tuple(int(k) for k in rng.integers(1, 70 if n % 3 else 6, ndim))
        yield rng, shape, int(rng.integers(ndim)), DTYPES[n % len(DTYPES)]


def array(rng, shape, dtype):
    return (rng.standard_normal(shape) * 50).astype(dtype)


def test_slices_are_taken():
    for rng, shape, axis, dtype in cases(1):
        x = array(rng, shape, dtype)
        n = shape[axis]
        index = rng.integers(-n, n, tuple(rng.integers(1, 9, int(rng.integers(1, 3)))))
        found = movement.take_along(x, index, axis)
        assert found.dtype == x.dtype
        np.testing.assert_array_equal(found, np.take(x, index, axis))


def test_elements_are_gathered():
    for rng, shape, axis, dtype in cases(2):
        x = array(rng, shape, dtype)
        like = (*shape[:axis], int(rng.integers(1, 40)), *shape[axis + 1 :])
        index = rng.integers(0, shape[axis], like)
        found = movement.gather(x, axis, index)
        np.testing.assert_array_equal(found, np.take_along_axis(x, index, axis))


def test_elements_are_scattered_in_order():
    for rng, shape, axis, dtype in cases(3):
        x = array(rng, shape, dtype)
        like = (*shape[:axis], int(rng.integers(1, 40)), *shape[axis + 1 :])
        index, src = rng.integers(0, shape[axis], like), array(rng, like, dtype)
        expected, found = x.copy(), x.copy()
        moved = [np.moveaxis(v, axis, 0) for v in (expected, index, src)]
        grid = np.ix_(*map(range, moved[0].shape[1:])) if len(shape) > 1 else ()
        for k in range(like[axis]):
            moved[0][(moved[1][k], *grid)] = moved[2][k]
        assert movement.place(x, axis, index, src, along=True, over=True) is None
        np.testing.assert_array_equal(x, expected)
        np.testing.assert_array_equal(movement.place(found, axis, index, src, along=True), expected)


def test_slices_are_placed_in_order():
    for rng, shape, axis, dtype in cases(8):
        x = array(rng, shape, dtype)
        index = rng.integers(-shape[axis], shape[axis], int(rng.integers(1, 60)))
        src = array(rng, (*shape[:axis], index.size, *shape[axis + 1 :]), dtype)
        expected, kept = x.copy(), x.copy()
        for k, each in enumerate(index):
            np.moveaxis(expected, axis, 0)[each] = np.moveaxis(src, axis, 0)[k]
        found = movement.place(x, axis, index, src, negative=True)
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(x, kept)
        one = src.reshape(-1)[0].item()
        np.moveaxis(expected, axis, 0)[index] = one
        np.testing.assert_array_equal(movement.place(x, axis, index, one, negative=True), expected)


def test_one_hot_rows():
    for rng, shape, _, _ in cases(9, 40):
        index = rng.integers(0, 20, shape)
        np.testing.assert_array_equal(movement.one_hot(index, 20), np.eye(20, dtype=int)[index])
        assert movement.one_hot(index, int(index.max())) is NotImplemented


@pytest.mark.parametrize("dtype", NUMBERS)
def test_elements_are_added_in_order(dtype):
    for rng, shape, axis, _ in cases(4, 60):
        x = array(rng, shape, dtype)
        like = (*shape[:axis], int(rng.integers(1, 40)), *shape[axis + 1 :])
        index, src = rng.integers(0, shape[axis], like), array(rng, like, dtype)
        expected, found = x.copy(), x.copy()
        moved = [np.moveaxis(v, axis, 0) for v in (expected, index, src)]
        grid = np.ix_(*map(range, moved[0].shape[1:])) if len(shape) > 1 else ()
        for k in range(like[axis]):
            moved[0][(moved[1][k], *grid)] += moved[2][k]
        np.testing.assert_array_equal(
            movement.place(found, axis, index, src, add=True, along=True), expected
        )
        assert movement.place(found, axis, index, src, add=True, along=True, over=True) is None
        np.testing.assert_array_equal(found, expected)
        zeros = movement.place(None, axis, index, src, add=True, along=True, shape=shape)
        base = np.zeros_like(x)
        movement.place(base, axis, index, src, add=True, along=True, over=True)
        np.testing.assert_array_equal(zeros, base)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_slices_are_added_in_order(dtype):
    for rng, shape, axis, _ in cases(5, 60):
        x = array(rng, shape, dtype)
        index = rng.integers(-shape[axis], shape[axis], int(rng.integers(1, 60)))
        src = array(rng, (*shape[:axis], index.size, *shape[axis + 1 :]), dtype)
        expected, found = np.moveaxis(x.copy(), axis, 0), x.copy()
        for k, place in enumerate(index):
            expected[place] += np.moveaxis(src, axis, 0)[k]
        options = {"add": True, "negative": True}
        np.testing.assert_array_equal(
            movement.place(found, axis, index, src, **options), np.moveaxis(expected, 0, axis)
        )
        assert movement.place(found, axis, index, src, **options, over=True) is None
        np.testing.assert_array_equal(found, np.moveaxis(expected, 0, axis))
        zeros = movement.place(None, axis, index, src, **options, shape=shape)
        base = np.zeros_like(x)
        movement.place(base, axis, index, src, **options, over=True)
        np.testing.assert_array_equal(zeros, base)


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("reverse", [False, True])
def test_sums_run_along_an_axis(dtype, reverse):
    for rng, shape, axis, _ in cases(6, 60):
        x = array(rng, shape, dtype)
        wide = x.astype(np.float64) if x.dtype.kind == "f" else x
        turned = np.flip(wide, axis) if reverse else wide
        sums = np.cumsum(turned, axis, dtype=wide.dtype)
        expected = (np.flip(sums, axis) if reverse else sums).astype(dtype)
        found = movement.accumulate_sum(x, axis, reverse)
        tolerance = {"float32": 1e-7, "float64": 1e-14}.get(dtype, 0)
        scale = tolerance * float(np.abs(x).astype(np.float64).sum())
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=scale)


@pytest.mark.parametrize("bad", [7, -1, 1 << 40])
def test_an_index_out_of_range_changes_nothing(bad):
    x = np.arange(70, dtype=np.float32).reshape(7, 10)
    index = np.zeros((7, 10), np.int64)
    index[5, 3] = bad
    src = np.ones_like(x)
    before = x.copy()
    assert movement.gather(x, 0, index) is NotImplemented
    rows = np.ones((10, 10), "f4")
    for add in (False, True):
        for over in (False, True):
            how = {"add": add, "over": over}
            assert movement.place(x, 0, index, src, along=True, **how) is NotImplemented
            assert movement.place(x, 0, index[5], rows, **how) is NotImplemented
            if bad != -1:  # which counts from the end
                found = movement.place(x, 0, index[5], rows, negative=True, **how)
                assert found is NotImplemented
        sums = movement.place(None, 0, index, src, add=True, along=True, shape=x.shape)
        assert sums is NotImplemented
    assert movement.take_along(x, index, 0, False) is NotImplemented
    if bad != -1:
        assert movement.take_along(x, index, 0) is NotImplemented
    np.testing.assert_array_equal(x, before)
    with pytest.raises(IndexError, match="out of bounds"):
        ad.gather(ad.from_numpy(x), 0, ad.from_numpy(index))


def test_results_do_not_depend_on_the_number_of_threads(monkeypatch):
    rng = np.random.default_rng(7)
    index, values = rng.integers(0, 50, 3000), array(rng, (3000, 130), "float32")
    results = []
    for threads in (1, 2, 4):
        with Pool(threads) as pool:
            monkeypatch.setattr(machine_routines, "default_pool", lambda pool=pool: pool)
            total = movement.place(None, 0, index, values, add=True, shape=(50, 130))
            sums = movement.accumulate_sum(values, 0, False)
            results.append((total, sums, movement.take_along(values, index, 0)))
    for others in results[1:]:
        for a, b in zip(results[0], others, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("size", [5, 400])
def test_the_gradient_of_an_embedding_is_the_sum_of_its_rows(size):
    tokens = ad.randint(0, size, (6, 9), generator=ad.Generator().manual_seed(1))
    table = ad.rand(size, 33, generator=ad.Generator().manual_seed(2)).requires_grad_()
    g = ad.rand(6, 9, 33, generator=ad.Generator().manual_seed(3))
    (found,) = ad.autograd.grad(ad.nn.functional.embedding(tokens, table), table, g)
    expected = np.zeros((size, 33), np.float32)
    np.add.at(expected, tokens.numpy().reshape(-1), g.numpy().reshape(-1, 33))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6, atol=1e-6)


CALLS = {
    "gather": lambda x, y, rows, places: ad.gather(x, 1, places),
    "take_along_dim": lambda x, y, rows, places: ad.take_along_dim(x, places, 1),
    "index_select": lambda x, y, rows, places: ad.index_select(x, 0, rows),
    "index": lambda x, y, rows, places: x[rows],
    "scatter": lambda x, y, rows, places: ad.scatter(x, 1, places, y),
    "scatter a number": lambda x, y, rows, places: ad.scatter(x, 1, places, 2.5),
    "scatter_add": lambda x, y, rows, places: ad.scatter_add(x, 1, places, y),
    "index_add": lambda x, y, rows, places: ad.index_add(x, 0, rows, y),
    "index_put": lambda x, y, rows, places: ad.index_put(x, (rows,), y),
    "index_fill": lambda x, y, rows, places: ad.index_fill(x, 0, rows, 7),
    "cumsum": lambda x, y, rows, places: ad.cumsum(x, 1) + rows[0] + places[0, 0],
}


@pytest.mark.parametrize("name", CALLS)
def test_what_comes_again_is_launched_with_the_same_result_and_errors(name, monkeypatch):
    call = CALLS[name]
    rng = np.random.default_rng(11)
    inputs = [rng.standard_normal((12, 9)).astype("f4") for _ in range(2)]
    inputs += [rng.permutation(12), rng.permuted(np.tile(np.arange(9), (12, 1)), axis=1)]
    tensors = [ad.from_numpy(each) for each in inputs]
    first = call(*tensors).numpy().copy()
    for _ in range(4):
        tensors = [ad.from_numpy(each.copy()) for each in inputs]
        np.testing.assert_array_equal(call(*tensors).numpy(), first)
    if name != "cumsum":
        with monkeypatch.context() as patch:
            patch.setattr(machine_routines, "computed", None)  # launched: nothing asks for it
            call(*tensors)
            tensors[0] = ad.from_numpy(inputs[0][::-1, ::-1].copy())
            call(*tensors)
        for bad in (12, -20, 1 << 40):
            wrong = [each.copy() for each in inputs]
            wrong[2][3] = wrong[3][5, 5] = bad
            before = wrong[0].copy()
            for _ in range(3):
                with pytest.raises(IndexError):
                    call(*map(ad.from_numpy, wrong))
            np.testing.assert_array_equal(wrong[0], before)


def test_methods_in_place_write_by_the_routine(monkeypatch):
    from adjoint.backends.native.lowering import large_arrays

    over = []

    def counted(*args, **options):
        over.append(options["over"])
        return movement.place(*args, **options)

    monkeypatch.setattr(large_arrays, "place", counted)
    x, index = ad.zeros(3, 5), ad.tensor([4, 0, 4])
    x[1].index_add_(0, index, ad.tensor([1.0, 2.0, 3.0]))
    x.index_put_((ad.tensor([0, 2, 0]),), ad.ones(3, 5), accumulate=True)
    assert over == [True, True]
    assert x.tolist() == [[2] * 5, [2, 0, 0, 0, 4], [1] * 5]
    with pytest.raises(ad.IndexingError, match="5"):
        x[1].index_add_(0, ad.tensor([0, 5]), ad.ones(2))
    with pytest.raises(ad.IndexingError, match="negative"):
        x[1].index_add_(0, ad.tensor([0, -1]), ad.ones(2))
    assert x[1].tolist() == [2, 0, 0, 0, 4]
