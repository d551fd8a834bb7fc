"""dtypes: PyTorch's promotion table over all pairs and kinds of operand, casts, limits."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest

import adjoint as ad
from adjoint.core import dtype as dt
from adjoint.ops.promotion import common_dtype

torch = pytest.importorskip("torch")

NAMES = [d.name for d in dt.ALL]
PAIRS = list(itertools.product(NAMES, NAMES))
NUMBERS = [True, 2, 2.5, 1 + 2j]


def theirs(name):
    return getattr(torch, name)


def same(ours, other):
    """There is no complex32 here: complex64 takes its place."""
    assert ours.name == str(other).removeprefix("torch.").replace("complex32", "complex64")


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_promotion_of_every_pair(a, b):
    same(ad.promote_types(dt.by_name(a), dt.by_name(b)), torch.promote_types(theirs(a), theirs(b)))


@pytest.mark.parametrize(("a", "b"), PAIRS)
@pytest.mark.filterwarnings("ignore:ComplexHalf support:UserWarning")
def test_operands_of_every_pair_and_rank(a, b):
    for shape1, shape2 in (((2,), (2,)), ((2,), ()), ((), (2,)), ((), ())):
        x1 = ad.ones(shape1, dtype=dt.by_name(a))
        x2 = ad.ones(shape2, dtype=dt.by_name(b))
        t1, t2 = torch.ones(shape1, dtype=theirs(a)), torch.ones(shape2, dtype=theirs(b))
        same(ad.result_type(x1, x2), torch.result_type(t1, t2))
        same((x1 * x2).dtype, (t1 * t2).dtype)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("number", NUMBERS, ids=str)
@pytest.mark.parametrize("default", ["float32", "float64"])
@pytest.mark.filterwarnings("ignore:ComplexHalf support:UserWarning")
def test_numbers_beside_tensors(name, number, default):
    ad.set_default_dtype(dt.by_name(default))
    torch.set_default_dtype(theirs(default))
    try:
        for shape in ((2,), ()):
            x, t = ad.ones(shape, dtype=dt.by_name(name)), torch.ones(shape, dtype=theirs(name))
            same(ad.result_type(x, number), torch.result_type(t, number))
            same((x * number).dtype, (t * number).dtype)
            same((number * x).dtype, (number * t).dtype)
    finally:
        ad.set_default_dtype(ad.float32)
        torch.set_default_dtype(torch.float32)


def test_three_operands_of_three_priorities():
    assert common_dtype((ad.ones(2, dtype=ad.int8), ad.tensor(1.0).double(), 2)) is ad.float64
    assert common_dtype((ad.ones(2, dtype=ad.float16), ad.tensor(1.0).double(), 2.5)) is ad.float16


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_can_cast(a, b):
    assert ad.can_cast(dt.by_name(a), dt.by_name(b)) == torch.can_cast(theirs(a), theirs(b))


@pytest.mark.parametrize(("a", "b"), PAIRS)
@pytest.mark.filterwarnings("ignore:Casting complex values:UserWarning")
@pytest.mark.filterwarnings("ignore:Casting complex")
def test_conversion_of_values(a, b):
    values = torch.tensor([[0.0, 1.0, 2.0], [3.5, 100.25, -7.75]])
    source = (values.abs() if a == "uint8" else values).to(theirs(a))
    x = ad.tensor(values.abs().tolist() if a == "uint8" else values.tolist()).to(dt.by_name(a))
    ours, other = x.to(dt.by_name(b)), source.to(theirs(b))
    same(ours.dtype, other.dtype)
    wide = other.to(torch.complex128).numpy()
    np.testing.assert_array_equal(ours.to(ad.complex128).numpy(), wide)


def test_complex_to_bool_is_true_where_any_part_is_not_zero():
    assert ad.tensor([0j, 1j, 1 + 0j]).bool().tolist() == [False, True, True]


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64", "complex64"])
def test_finfo(name):
    ours, other = ad.finfo(dt.by_name(name)), torch.finfo(theirs(name))
    for field in ("bits", "eps", "max", "min", "tiny", "smallest_normal"):
        assert getattr(ours, field) == getattr(other, field), field
    assert ours.resolution == pytest.approx(other.resolution, rel=1e-6)


@pytest.mark.parametrize("name", ["uint8", "int8", "int16", "int32", "int64"])
def test_iinfo(name):
    ours, other = ad.iinfo(dt.by_name(name)), torch.iinfo(theirs(name))
    assert (ours.bits, ours.min, ours.max) == (other.bits, other.min, other.max)


def test_limits_of_the_wrong_kind_are_refused():
    with pytest.raises(TypeError, match="use iinfo"):
        ad.finfo(ad.int32)
    with pytest.raises(TypeError, match="use finfo"):
        ad.iinfo(ad.float32)


@pytest.mark.parametrize("name", NAMES)
def test_facts(name):
    ours, other = dt.by_name(name), theirs(name)
    assert ours.itemsize == other.itemsize
    assert ours.is_floating_point == other.is_floating_point
    assert ours.is_complex == other.is_complex
    assert ours.is_signed == other.is_signed
    assert repr(ours) == str(other).replace("torch", "adjoint")
    same(ours.to_real(), other.to_real())
    assert pickle.loads(pickle.dumps(ours)) is ours


@pytest.mark.parametrize(
    "alias", ["bool", "int", "long", "short", "half", "float", "double", "cfloat", "cdouble"]
)
def test_aliases_at_top_level(alias):
    same(getattr(ad, alias), theirs(alias))


def test_default_dtype_decides_new_floats_and_complex_numbers():
    ad.set_default_dtype(ad.float64)
    try:
        assert ad.tensor(1.5).dtype is ad.float64
        assert ad.tensor(1j).dtype is ad.complex128
        assert ad.zeros(1).dtype is ad.arange(0.0, 1.0).dtype is ad.rand(1).dtype is ad.float64
        assert (ad.tensor([1]) / 2).dtype is ad.float64
    finally:
        ad.set_default_dtype(ad.float32)
    with pytest.raises(TypeError, match="floating-point"):
        ad.set_default_dtype(ad.int32)


def test_numpy_dtypes_and_names_are_understood():
    assert dt.as_dtype(np.float16) is ad.float16
    assert dt.as_dtype("float32") is ad.float32
    assert dt.as_dtype(int) is ad.int64
    with pytest.raises(TypeError):
        dt.as_dtype(object())


def test_float8_is_a_name_with_limits():
    kinds = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"]
    for name in kinds:
        ours, theirs = getattr(ad, name), getattr(torch, name)
        assert (ours.itemsize, ours.is_floating_point) == (theirs.itemsize, True)
        limits = ["max", "min", "tiny", "bits"]
        if name != "float8_e5m2fnuz":  # of which PyTorch says the eps of a bit more
            limits.append("eps")
        for limit in limits:
            assert getattr(ad.finfo(ours), limit) == getattr(torch.finfo(theirs), limit), limit
        assert pickle.loads(pickle.dumps(ours)) is ours
        for use in (
            lambda d: ad.ones(2, dtype=d), lambda d: ad.ones(2).to(d), lambda d: ad.ones(2).view(d),
            lambda d: ad.nn.Linear(1, 1).to(d), lambda d: ad.promote_types(d, ad.float32),
            ad.set_default_dtype,
        ):  # fmt: skip
            with pytest.raises(ad.DTypeError, match=name):
                use(ours)
    assert ad.get_default_dtype() is ad.float32
