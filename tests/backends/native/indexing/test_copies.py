"""Arrays put together of parts of others by one routine, against NumPy on random shapes."""

from __future__ import annotations

import numpy as np
import pytest

import adjoint as ad

pytest.importorskip("llvmlite", reason="llvmlite is not installed")

from adjoint.backends.native.indexing import copies
from adjoint.backends.native.lowering import machine_routines

DTYPES = ["float32", "float64", "int16", "int8", "complex128", "bool", "complex64"]


def cases(seed, count=150):
    """Random shapes, some without elements, an axis, a dtype and a generator."""
    for n in range(count):
        rng = np.random.default_rng([seed, n])
        ndim = int(rng.integers(1, 5))
        most = (70, 40, 12, 8)[ndim - 1] if n % 2 else 5
        shape = tuple(int(k) for k in rng.integers(0 if n % 10 == 0 else 1, most, ndim))
        yield rng, shape, int(rng.integers(ndim)), DTYPES[n % len(DTYPES)]


def array(rng, shape, dtype):
    """Row-major, column-major, or every other element of a larger one."""
    x = (rng.standard_normal(shape) * 50).astype(dtype)
    kind = rng.integers(4)
    if kind == 0:
        return np.asfortranarray(x)
    if kind == 1:
        return np.repeat(x, 2, -1)[..., ::2]
    return x[::-1].copy()[::-1] if kind == 2 else x


def assert_is(found, expected):
    assert found.flags.c_contiguous
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_arrays_are_joined():
    for rng, shape, axis, dtype in cases(1):
        sizes = rng.integers(0, 7, int(rng.integers(1, 9)))
        xs = [array(rng, (*shape[:axis], int(n), *shape[axis + 1 :]), dtype) for n in sizes]
        assert_is(copies.concat(xs, axis), np.concatenate(xs, axis))


def test_arrays_are_stacked():
    for rng, shape, _, dtype in cases(2):
        xs = [array(rng, shape, dtype) for _ in range(int(rng.integers(1, 9)))]
        axis = int(rng.integers(len(shape) + 1))
        assert_is(copies.stack(xs, axis), np.stack(xs, axis))


def test_elements_are_reversed():
    for rng, shape, _, dtype in cases(3):
        x = array(rng, shape, dtype)
        axes = tuple(np.flatnonzero(rng.integers(0, 2, len(shape))))
        assert_is(copies.flip(x, axes), np.flip(x, axes).copy())


def test_elements_are_rolled():
    for rng, shape, axis, dtype in cases(4):
        x, shift = array(rng, shape, dtype), int(rng.integers(-9, 9))
        assert_is(copies.roll(x, shift, axis), np.roll(x, shift, axis))


def test_arrays_are_repeated():
    for rng, shape, _, dtype in cases(5):
        x = array(rng, shape, dtype)
        times = tuple(int(n) for n in rng.integers(0, 4, len(shape) + int(rng.integers(2))))
        assert_is(copies.tile(x, times), np.tile(x, times))


def test_arrays_get_a_frame():
    framed = 0
    for rng, shape, _, dtype in cases(6):
        x = array(rng, shape, dtype)
        widths = [(int(a), int(b)) for a, b in rng.integers(0, 3, (len(shape), 2))]
        expected = np.pad(x, widths, constant_values=1)
        found = copies.framed(x, tuple(before for before, _ in widths), expected.shape, 1)
        if found is not NotImplemented:
            assert_is(found, expected)
            framed += 1
    assert framed > 100


def test_arrays_without_dimensions():
    x = np.array(3, "f4")
    assert_is(copies.copied(x, "C"), x)
    assert_is(copies.stack([x, x], 0), np.stack([x, x]))
    assert_is(copies.tile(x, ()), x)
    assert_is(copies.tile(x, (2, 3)), np.tile(x, (2, 3)))
    assert_is(copies.flip(x, ()), x)


def test_arguments_are_those_of_numpy():
    x = np.arange(24.0).reshape(2, 3, 4)
    for axis in (-1, 1, 0):
        assert_is(copies.concat([x, x], axis), np.concatenate([x, x], axis))
        assert_is(copies.stack([x, x], axis), np.stack([x, x], axis))
        assert_is(copies.flip(x, axis), np.flip(x, axis).copy())
        assert_is(copies.roll(x, 2, axis), np.roll(x, 2, axis))
    assert_is(copies.concat([x, x]), np.concatenate([x, x]))
    assert_is(copies.flip(x), np.flip(x).copy())
    assert_is(copies.flip(x, (0, -1)), np.flip(x, (0, -1)).copy())
    assert_is(copies.roll(x, 5), np.roll(x, 5))
    assert_is(copies.roll(x, (1, 2), (0, 1)), np.roll(x, (1, 2), (0, 1)))
    for times in (2, (2, 1), (1, 2, 1, 2)):
        assert_is(copies.tile(x, times), np.tile(x, times))
    for axis in (3, -4):
        for function in (copies.concat, copies.stack):
            with pytest.raises(IndexError):
                function([x, x], axis + (function is copies.stack) * (1 if axis > 0 else -1))


@pytest.mark.parametrize("shape", [(300, 1000), (1, 250_000), (70_000, 3), (90, 60, 50)])
def test_long_blocks_are_cut(shape):
    x = np.random.default_rng(7).standard_normal(shape).astype("f4")
    last = len(shape) - 1
    assert_is(copies.concat([x, x, x], 0), np.concatenate([x, x, x], 0))
    assert_is(copies.concat([x, x], last), np.concatenate([x, x], last))
    assert_is(copies.stack([x, x], last + 1), np.stack([x, x], last + 1))
    assert_is(copies.flip(x, (0, last)), np.flip(x, (0, last)).copy())
    assert_is(copies.roll(x, 5, last), np.roll(x, 5, last))


@pytest.mark.parametrize("dtype", [*DTYPES, "int64"])
def test_copies_are_row_major(dtype, monkeypatch):
    turned = []
    general = copies._turned
    monkeypatch.setattr(copies, "_turned", lambda *a: turned.append(general(*a)) or turned[-1])
    for seed in range(60):
        rng = np.random.default_rng(seed)
        ndim = int(rng.integers(2, 5))
        shape = tuple(int(k) for k in rng.integers(1, (400, 40, 14)[ndim - 2], ndim))
        x = array(rng, shape, dtype).transpose(rng.permutation(ndim))
        found = copies.copied(x, "C")
        assert_is(found, x)
        assert not np.may_share_memory(found, x)
    assert any(each is not NotImplemented for each in turned) == (x.itemsize in (4, 8))
    assert copies.copied(np.ones((3, 4), dtype).T, "K") is NotImplemented


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [1, 7, 8, 9, 63, 40000])
def test_complex_numbers(dtype, size):
    rng = np.random.default_rng(size)
    real, imag = (rng.standard_normal(size).astype(dtype) for _ in range(2))
    real[0], imag[-1] = np.nan, -0.0
    found = copies.paired(real, imag)
    assert found.dtype == np.result_type(dtype, np.complex64)
    np.testing.assert_array_equal(found.view(dtype), np.stack([real, imag], -1).reshape(-1))
    assert copies.paired(real, imag[:0]) is NotImplemented
    assert copies.paired(real[::2], imag[::2]) is NotImplemented or size == 1
    assert copies.paired(real, imag.astype("float16")) is NotImplemented


CALLS = {
    "contiguous": lambda x, y: x.t().contiguous(),
    "cat": lambda x, y: ad.cat([x, y, x], 1),
    "stack": lambda x, y: ad.stack([x, y], -1),
    "flip": lambda x, y: ad.flip(x, 0),
    "roll": lambda x, y: ad.roll(x, 3, 1),
    "repeat": lambda x, y: x.repeat(2, 3),
    "pad": lambda x, y: ad.nn.functional.pad(x, (1, 2, 3, 0)),
    "complex": lambda x, y: ad.complex(x, y),
    "pad with a value": lambda x, y: ad.nn.functional.pad(x, (1, 2, 3, 0), value=1.5),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_comes_again_is_launched(name, monkeypatch):
    call = CALLS[name]
    rng = np.random.default_rng(11)
    arrays = [rng.standard_normal((12, 9)).astype("f4") for _ in range(2)]
    first = call(*map(ad.from_numpy, arrays)).numpy().copy()
    for _ in range(4):
        np.testing.assert_array_equal(call(*map(ad.from_numpy, arrays)).numpy(), first)
    columns = [np.asfortranarray(x) for x in arrays]  # which the launcher does not take
    np.testing.assert_array_equal(call(*map(ad.from_numpy, columns)).numpy(), first)
    for _ in range(2):
        call(*map(ad.from_numpy, arrays))
    monkeypatch.setattr(machine_routines, "computed", None)  # launched: nothing asks for it
    np.testing.assert_array_equal(call(*map(ad.from_numpy, arrays)).numpy(), first)
