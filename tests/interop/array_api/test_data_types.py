"""Promotion by the standard's tables, kinds, limits, conversion, inspection."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import adjoint as ad

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float32", "float64", "complex64", "complex128")
NAMES = ("bool", *INTEGERS, *FLOATS)

# The standard's tables: a row per dtype, a column per dtype in the same order; - is undefined.
TABLE = {
    INTEGERS: """
        int8  int16 int32 int64 int16  int32  int64  -
        int16 int16 int32 int64 int16  int32  int64  -
        int32 int32 int32 int64 int32  int32  int64  -
        int64 int64 int64 int64 int64  int64  int64  -
        int16 int16 int32 int64 uint8  uint16 uint32 uint64
        int32 int32 int32 int64 uint16 uint16 uint32 uint64
        int64 int64 int64 int64 uint32 uint32 uint32 uint64
        -     -     -     -     uint64 uint64 uint64 uint64
    """,
    FLOATS: """
        float32    float64    complex64  complex128
        float64    float64    complex128 complex128
        complex64  complex128 complex64  complex128
        complex128 complex128 complex128 complex128
    """,
    ("bool",): "bool",
}
PROMOTION = {
    pair: result
    for names, text in TABLE.items()
    for pair, result in zip(itertools.product(names, names), text.split(), strict=True)
    if result != "-"
}
ALL_PAIRS = list(itertools.product(NAMES, NAMES))
KINDS = {
    "bool": ("bool",),
    "signed integer": INTEGERS[:4],
    "unsigned integer": INTEGERS[4:],
    "integral": INTEGERS,
    "real floating": FLOATS[:2],
    "complex floating": FLOATS[2:],
    "numeric": INTEGERS + FLOATS,
}


def has_kinds_mixed(a, b):
    return not any({a, b} <= set(names) for names in TABLE)


@pytest.mark.parametrize(("a", "b"), ALL_PAIRS)
def test_promotion(xp, a, b):
    x, y = getattr(xp, a), getattr(xp, b)
    if (a, b) in PROMOTION:
        expected = getattr(xp, PROMOTION[a, b])
        assert xp.result_type(x, y) == expected
        for shapes in (((2,), (2,)), ((2,), ()), ((), (2,)), ((), ())):
            ones = [xp.ones(shape, dtype=d) for shape, d in zip(shapes, (x, y), strict=True)]
            assert xp.result_type(*ones) == xp.result_type(ones[0], y) == expected
            assert xp.stack([xp.ones(2, dtype=x), xp.ones(2, dtype=y)]).dtype == expected
            if a != "bool":
                assert (xp.add(*ones)).dtype == xp.multiply(*ones).dtype == expected
    elif xp.__name__ != "numpy":
        with pytest.raises(TypeError):
            xp.result_type(x, y)


@pytest.mark.parametrize(("a", "b"), ALL_PAIRS)
def test_can_cast(xp, a, b):
    if xp.__name__ == "numpy" and has_kinds_mixed(a, b):
        pytest.skip("NumPy casts between kinds")
    expected = PROMOTION.get((a, b)) == b
    assert xp.can_cast(getattr(xp, a), getattr(xp, b)) is expected
    if xp.__name__ != "numpy":
        assert xp.can_cast(xp.ones(2, dtype=getattr(xp, a)), getattr(xp, b)) is expected


SCALARS = {  # what a Python scalar makes of a dtype; of others nothing
    bool: (True, {"bool": "bool"}),
    int: (1, {name: name for name in INTEGERS + FLOATS}),
    float: (1.0, {name: name for name in FLOATS}),
    complex: (1j, {name: "complex128" if name in ("float64", "complex128") else "complex64"
                   for name in FLOATS}),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", list(SCALARS))
def test_promotion_of_python_scalars(xp, name, kind):
    value, results = SCALARS[kind]
    dtype = getattr(xp, name)
    if name in results:
        wanted = getattr(xp, results[name])
        x = xp.ones((2,), dtype=dtype)
        function = xp.logical_and if name == "bool" else xp.add
        assert xp.result_type(dtype, value) == xp.result_type(value, x) == wanted
        assert function(x, value).dtype == function(value, x).dtype == wanted
    elif xp.__name__ != "numpy":
        with pytest.raises(TypeError):
            xp.result_type(dtype, value)


def test_result_type_needs_an_array_or_dtype(ours):
    with pytest.raises(TypeError, match="at least one"):
        ours.result_type(1, 2.0)
    with pytest.raises(TypeError, match="at least one"):
        ours.add(1, 2)
    with pytest.raises(TypeError, match="str"):
        ours.result_type(ours.int8, "x")


def test_numpy_scalars_count_as_python_scalars(ours):
    assert ours.add(ours.ones(2), np.float64(1.5)).dtype is ours.float32
    assert ours.result_type(ours.int8, np.int64(3)) is ours.int8


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_isdtype(xp, name, kind):
    assert xp.isdtype(getattr(xp, name), kind) is (name in KINDS[kind])
    assert xp.isdtype(getattr(xp, name), (kind, xp.float32)) is (
        name in KINDS[kind] or name == "float32"
    )
    assert xp.isdtype(getattr(xp, name), xp.int8) is (name == "int8")


def test_isdtype_refuses_unknown_kinds_and_knows_the_narrow_floats(ours):
    with pytest.raises(ValueError, match="integers"):
        ours.isdtype(ours.int8, "integers")
    assert ours.isdtype(ad.bfloat16, "real floating")


@pytest.mark.parametrize("name", FLOATS)
def test_finfo(xp, name):
    real = {"complex64": "float32", "complex128": "float64"}.get(name, name)
    limits, numpy = xp.finfo(getattr(xp, name)), np.finfo(name)
    for field in ("bits", "eps", "max", "min", "smallest_normal"):
        assert getattr(limits, field) == float(getattr(numpy, field)), field
        if xp.__name__ != "numpy":
            assert type(getattr(limits, field)) is (int if field == "bits" else float)
    assert limits.dtype == getattr(xp, real)
    if xp.__name__ != "numpy":
        assert xp.finfo(xp.ones(2, dtype=getattr(xp, name))).bits == limits.bits


@pytest.mark.parametrize("name", INTEGERS)
def test_iinfo(xp, name):
    limits, numpy = xp.iinfo(getattr(xp, name)), np.iinfo(name)
    for field in ("bits", "max", "min"):
        assert getattr(limits, field) == getattr(numpy, field), field
    assert limits.dtype == getattr(xp, name)
    if xp.__name__ != "numpy":
        assert xp.iinfo(xp.ones(2, dtype=getattr(xp, name))).max == limits.max


@pytest.mark.parametrize(("a", "b"), ALL_PAIRS)
def test_astype(xp, a, b):
    values = [0, 1] if a == "bool" else [0, 1, 100]
    x = xp.asarray([v + 0j if a in FLOATS[2:] else v for v in values], dtype=None)
    x = xp.astype(x, getattr(xp, a))
    if a in FLOATS[2:] and b not in (*FLOATS[2:], "bool"):
        if xp.__name__ != "numpy":
            with pytest.raises(TypeError):
                xp.astype(x, getattr(xp, b))
        return
    if xp.__name__ == "array_api_strict" and a in FLOATS[2:] and b == "bool":
        pytest.skip("the standard says what complex numbers are as bool; array_api_strict refuses")
    y = xp.astype(x, getattr(xp, b))
    assert y.dtype == getattr(xp, b)
    expected = [bool(v) if b == "bool" else v for v in values]
    assert np.asarray(y).tolist() == expected
    assert y is not x
    assert (xp.astype(x, getattr(xp, b), copy=False) is x) is (a == b)


def test_inspection(xp):
    info = xp.__array_namespace_info__()
    assert info.capabilities()["boolean indexing"] is True
    assert info.capabilities()["data-dependent shapes"] is True
    assert info.capabilities()["max dimensions"] == 64
    assert info.default_device() in info.devices()
    defaults = info.default_dtypes()
    assert defaults["integral"] == xp.asarray(1).dtype == xp.arange(3).dtype
    assert defaults["real floating"] == xp.zeros(1).dtype == xp.asarray(1.0).dtype
    assert defaults["complex floating"] == xp.asarray(1j).dtype
    assert defaults["indexing"] == xp.argmax(xp.asarray([1, 2])).dtype
    assert info.dtypes() == {name: getattr(xp, name) for name in NAMES}
    for kind, names in KINDS.items():
        assert info.dtypes(kind=kind) == {name: getattr(xp, name) for name in names}
    both = info.dtypes(kind=("bool", "real floating"), device=info.default_device())
    assert set(both) == {"bool", "float32", "float64"}


def test_the_namespace_of_a_tensor(ours):
    x = ad.ones(2)
    for version in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
        assert x.__array_namespace__(api_version=version) is ours
    with pytest.raises(ValueError, match=r"2024\.12"):
        x.__array_namespace__(api_version="2031.12")


@pytest.mark.parametrize("name", ["uint16", "uint32", "uint64"])
def test_wide_unsigned_integers_in_the_rest_of_the_package(name, tmp_path):
    """PyTorch has these dtypes with few operations; here they have all."""
    dtype = getattr(ad, name)
    x = ad.tensor([3, 1, 2], dtype=dtype)
    assert repr(x) == f"tensor([3, 1, 2], dtype=adjoint.{name})"
    assert x.type() == f"adjoint.{name.replace('ui', 'UI')}Tensor"
    assert not x.is_signed()
    assert (x - 4).tolist()[1] == ad.iinfo(dtype).max - 2
    ad.save({"x": x}, tmp_path / "x.ckpt")
    assert ad.load(tmp_path / "x.ckpt")["x"].dtype is dtype
    assert ad.stack([x, x.flip(0)]).sort(0).values.tolist() == [[2, 1, 2], [3, 1, 3]]
    assert ad.from_numpy(x.numpy()).data_ptr() == x.data_ptr()
    with pytest.raises(ValueError, match="overflow"):
        ad.tensor([2**64], dtype=dtype)
