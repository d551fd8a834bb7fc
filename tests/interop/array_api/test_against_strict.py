"""Every function beside array_api_strict's, on random arguments: values, dtypes, shapes, errors."""

from __future__ import annotations

import functools
import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import adjoint as ad

from ...sweep import few_or_many
from .conftest import namespace
from .recipes import ALL, RECIPES, Draw, DType, filled
from .test_data_types import PROMOTION
from .test_signatures import BINARY, TABLE, UNARY

strict = namespace("array_api_strict")
ours = namespace("adjoint")


@pytest.fixture(autouse=True)
def _their_default_dtype():
    ad.set_default_dtype(ad.float64)
    yield
    ad.set_default_dtype(ad.float32)


ERRORS = (TypeError, ValueError, IndexError, RuntimeError, OverflowError)  # of wrong arguments
UNCOMPARED = {"empty", "empty_like"}  # uninitialised: only shape and dtype are compared


def converted(value, xp):
    """Arguments of a recipe, as a namespace takes them."""
    if isinstance(value, np.ndarray):
        return xp.asarray(value.copy())
    if isinstance(value, DType):
        return getattr(xp, value.name)
    if isinstance(value, list) and value and isinstance(value[0], np.ndarray):
        return [converted(each, xp) for each in value]
    return value


def outcome(xp, name, args, kwargs):
    """What a call gives: its result, or that it is refused."""
    function = functools.reduce(getattr, name.split("."), xp)
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return function(
                *(converted(each, xp) for each in args),
                **{key: converted(each, xp) for key, each in kwargs.items()},
            )
    except ERRORS as error:
        return error


def assert_same(a, b, values=True, what=""):
    """Equal dtypes, shapes and nearly equal values, in nested tuples too."""
    if isinstance(b, ERRORS):
        assert isinstance(a, ERRORS), f"{what}: gave {a}, not the error {b!r}"
    elif isinstance(b, (tuple, list)):
        assert not isinstance(a, ERRORS), f"{what}: {a!r}, not {b}"
        assert len(a) == len(b), what
        for each, other in zip(a, b, strict=True):
            assert_same(each, other, values, what)
        assert getattr(a, "_fields", None) == getattr(b, "_fields", None)
    else:
        assert not isinstance(a, ERRORS), f"{what}: {a!r}, not {b}"
        assert a.dtype.name == str(np.asarray(b).dtype), f"{what}: {a.dtype}, not {b.dtype}"
        assert tuple(a.shape) == tuple(b.shape), f"{what}: {a.shape}, not {b.shape}"
        if values:
            single = a.dtype.name in ("float32", "complex64")
            tolerance = {"rtol": 2e-5, "atol": 2e-5} if single else {"rtol": 1e-9, "atol": 1e-9}
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), **tolerance, err_msg=what)


PRODUCTS = {  # of which array_api_strict promotes what the standard leaves undefined
    "matmul", "tensordot", "vecdot", "linalg.matmul", "linalg.tensordot", "linalg.vecdot",
    "linalg.cross", "linalg.outer", "searchsorted",
}  # fmt: skip


def compare(name, args, kwargs):
    expected = outcome(strict, name, args, kwargs)
    actual = outcome(ours, name, args, kwargs)
    pair = tuple(str(array.dtype) for array in args[:2] if isinstance(array, np.ndarray))
    if name in PRODUCTS and pair not in PROMOTION:
        assert isinstance(actual, ERRORS)
        return
    assert_same(actual, expected, name not in UNCOMPARED, f"{name}({args}, {kwargs})")


def test_every_function_is_compared():
    elementwise = {*UNARY.split(), *BINARY.split()}
    functions = {f"{extension}.{line.partition('(')[0]}".strip(".") for extension, line in TABLE}
    apart = {  # compared in files of their own
        "asarray", "from_dlpack", "__array_namespace_info__", "astype", "can_cast", "finfo",
        "iinfo", "isdtype", "result_type", "linalg.eigh", "linalg.qr", "linalg.svd",
    }  # fmt: skip
    assert functions - elementwise - apart == set(RECIPES)


@pytest.mark.parametrize("name", sorted(RECIPES))
@few_or_many("count", 4, 40)
def test_functions(name, count):
    @given(data=st.data())
    @settings(max_examples=count, deadline=None, derandomize=True, database=None)
    def check(data):
        args, kwargs = RECIPES[name](Draw(data.draw))
        compare(name, args, kwargs)

    check()


@pytest.mark.parametrize("name", UNARY.split())
def test_functions_of_one_array(name):
    rng = np.random.default_rng(0)
    for dtype, shape in itertools.product(ALL, [(3, 4), (), (0, 2)]):
        compare(name, (filled(shape, dtype, rng),), {})


@pytest.mark.parametrize("name", BINARY.split())
def test_functions_of_two_arrays(name):
    rng = np.random.default_rng(0)
    for first, second in itertools.product(ALL, ALL):
        x1, x2 = filled((3, 4), first, rng), filled((4,), second, rng)
        if name in (
            "floor_divide",
            "remainder",
            "pow",
            "bitwise_left_shift",
            "bitwise_right_shift",
        ):
            x1, x2 = np.abs(x1), np.abs(x2)  # the others are not specified
        if name in ("floor_divide", "remainder"):
            x2 = np.asarray(x2 + np.asarray(1, x2.dtype))
        compare(name, (x1, x2), {})


@pytest.mark.parametrize("name", BINARY.split())
@few_or_many("count", 3, 20)
def test_broadcasting_and_scalars(name, count):
    @given(data=st.data())
    @settings(max_examples=count, deadline=None, derandomize=True, database=None)
    def check(data):
        check_broadcasting_and_scalars(name, data)

    check()


def check_broadcasting_and_scalars(name, data):
    logical, bits = name.startswith("logical"), name.startswith("bitwise")
    dtypes = ["bool"] if logical else ["int16", "uint8", *([] if bits else ["float32", "float64"])]
    dtype = data.draw(st.sampled_from(dtypes))
    found = data.draw(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=4, max_side=3))
    rng = np.random.default_rng(1)
    x1, x2 = (filled(shape, dtype, rng) for shape in found.input_shapes)
    if not logical:  # no negative exponents and shifts, no divisors of 0: they are not specified
        x1, x2 = np.asarray(np.abs(x1)), np.asarray(np.abs(x2) + np.asarray(1, dtype))
    compare(name, (x1, x2), {})
    scalar = data.draw(st.sampled_from([True, 2, 1.5]))
    compare(name, (x1, scalar), {})
    compare(name, (scalar, x2), {})


@given(data=st.data())
@settings(max_examples=30, deadline=None, derandomize=True, database=None)
def test_decompositions_give_back_the_matrix(data):
    d = Draw(data.draw)
    x = d.matrices()
    array = ours.asarray(x)
    tolerance = 1e-4 if x.dtype.itemsize < 16 and x.dtype != np.float64 else 1e-9
    full = d.boolean()

    def check(product):
        assert product.dtype is array.dtype
        np.testing.assert_allclose(np.asarray(product), x, atol=tolerance)

    q, r = ours.linalg.qr(array, mode="complete" if full else "reduced")
    theirs = strict.linalg.qr(strict.asarray(x), mode="complete" if full else "reduced")
    assert [tuple(a.shape) for a in (q, r)] == [a.shape for a in theirs]
    check(ours.matmul(q, r))
    result = ours.linalg.svd(array, full_matrices=full)
    theirs = strict.linalg.svd(strict.asarray(x), full_matrices=full)
    assert result._fields == theirs._fields == ("U", "S", "Vh")
    assert [tuple(a.shape) for a in result] == [a.shape for a in theirs]
    k = min(x.shape[-2:])
    scaled = result.U[..., :k] * result.S[..., None, :]
    check(ours.matmul(scaled, result.Vh[..., :k, :]))
    symmetric = d.hermitian()
    values, vectors = found = ours.linalg.eigh(ours.asarray(symmetric))
    assert found._fields == ("eigenvalues", "eigenvectors")
    x, array = symmetric, ours.asarray(symmetric)
    tolerance = 1e-3 if x.dtype in (np.float32, np.complex64) else 1e-9
    adjoint = ours.conj(ours.matrix_transpose(vectors))
    check(ours.matmul(vectors * values[..., None, :], adjoint))
