"""Tensor's own operators, attributes and conversions beside the standard's.

What differs is PyTorch's meaning and listed in docs/array_api.md, whose claims are tested here too.
"""

from __future__ import annotations

import inspect
import itertools
import math
import operator

import numpy as np
import pytest

import adjoint as ad

from ...sweep import one_in
from .special_cases import BINARY, VALUES
from .test_data_types import INTEGERS, NAMES, PROMOTION
from .test_special_cases import failures

xp = ad.array_api
PAIRS = list(itertools.product(VALUES, VALUES))
OPERATORS = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul,
    "divide": operator.truediv, "floor_divide": operator.floordiv, "remainder": operator.mod,
    "pow": operator.pow, "equal": operator.eq, "not_equal": operator.ne, "less": operator.lt,
    "less_equal": operator.le, "greater": operator.gt, "greater_equal": operator.ge,
    "bitwise_and": operator.and_, "bitwise_or": operator.or_, "bitwise_xor": operator.xor,
    "bitwise_left_shift": operator.lshift, "bitwise_right_shift": operator.rshift,
}  # fmt: skip
IN_PLACE = {
    "add": operator.iadd, "subtract": operator.isub, "multiply": operator.imul,
    "divide": operator.itruediv, "floor_divide": operator.ifloordiv, "remainder": operator.imod,
    "pow": operator.ipow, "bitwise_and": operator.iand, "bitwise_or": operator.ior,
    "bitwise_xor": operator.ixor, "bitwise_left_shift": operator.ilshift,
    "bitwise_right_shift": operator.irshift,
}  # fmt: skip


def values_for(name, dtype):
    """Operands for which the standard says what comes out."""
    if name in ("bitwise_left_shift", "bitwise_right_shift"):
        return [1, 5, 7], [0, 1, 2]
    if dtype == "bool":
        return [True, False, True], [True, True, False]
    return [3, 1, 2], [1, 2, 3]


def accepts(name, dtype):
    if name in ("equal", "not_equal"):
        return True
    if name.startswith("bitwise"):
        return dtype in INTEGERS or (dtype == "bool" and "shift" not in name)
    if name == "divide":
        return dtype in ("float32", "float64", "complex64", "complex128")
    if dtype.startswith("complex"):
        return name in ("add", "subtract", "multiply", "pow")
    return dtype != "bool"


@pytest.mark.parametrize("name", sorted(OPERATORS))
@pytest.mark.parametrize("dtype", one_in(3, NAMES))
def test_operators_are_the_functions(name, dtype):
    if not accepts(name, dtype):
        return
    left, right = (ad.tensor(v, dtype=getattr(ad, dtype)) for v in values_for(name, dtype))
    expected = getattr(xp, name)(left, right)
    found = OPERATORS[name](left, right)
    assert found.dtype is expected.dtype
    assert found.tolist() == expected.tolist()
    scalar = right[1].item()
    for result, wanted in (
        (OPERATORS[name](left, scalar), getattr(xp, name)(left, scalar)),
        (OPERATORS[name](scalar, right), getattr(xp, name)(scalar, right)),
    ):
        assert result.dtype is wanted.dtype
        assert result.tolist() == wanted.tolist()
    if name in IN_PLACE:
        target = left.clone()
        same = target
        target = IN_PLACE[name](target, right)
        assert target is same
        assert same.tolist() == expected.tolist()


@pytest.mark.parametrize(("a", "b"), sorted(PROMOTION))
def test_operators_promote_as_the_standard_for_equal_ranks(a, b):
    if a == "bool":
        return
    for shape in ((2,), ()):
        x, y = ad.ones(shape, dtype=getattr(ad, a)), ad.ones(shape, dtype=getattr(ad, b))
        expected = getattr(ad, PROMOTION[a, b])
        assert (x + y).dtype is (x * y).dtype is (x - y).dtype is expected


@pytest.mark.parametrize(
    "name", ["add", "subtract", "multiply", "divide", "floor_divide", "pow", "equal", "not_equal"]
)
def test_special_cases_of_operators(name):
    x1, x2 = (ad.tensor([pair[i] for pair in PAIRS], dtype=ad.float64) for i in (0, 1))
    outputs = OPERATORS[name](x1, x2).tolist()
    assert not failures(BINARY[name], PAIRS, outputs, 1e-9)


SIGNATURES = {
    "__array_namespace__": "(self, *, api_version=None)",
    "__dlpack__": "(self, *, stream=None, max_version=None, dl_device=None, copy=None)",
    "__dlpack_device__": "(self)",
    "to_device": "(self, device, /, *, stream=None)",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_arguments_of_methods(name):
    from .test_signatures import shape_of, signature_of

    wanted = shape_of(signature_of(f"method{SIGNATURES[name]}"))
    assert shape_of(inspect.signature(getattr(ad.Tensor, name))) == wanted


def test_attributes():
    x = ad.zeros(2, 3, 4)
    assert (x.ndim, x.shape, x.dtype) == (3, (2, 3, 4), ad.float32)
    assert x.mT.shape == (2, 4, 3)
    assert x.size == 24 and isinstance(x.size, int)
    assert x.size() == x.shape and x.size(-1) == x.size(dim=2) == ad.Tensor.size(x, 2) == 4
    assert np.size(x) == 24
    assert ad.zeros(2, 3).T.shape == (3, 2)
    assert x.device == ad.device("cpu")
    assert x.to_device("cpu") is x
    assert x.to_device(x.device, stream=None) is x


def test_conversions_to_python_numbers():
    assert complex(ad.tensor(1 + 2j)) == 1 + 2j
    assert complex(ad.tensor(3)) == 3
    assert float(ad.tensor(2.5)) == 2.5
    assert int(ad.tensor(-2.5)) == -2
    assert bool(ad.tensor(0.5)) is True
    assert operator.index(ad.tensor(3, dtype=ad.uint64)) == 3
    assert math.isnan(float(ad.tensor(math.nan)))
    with pytest.raises(TypeError):
        operator.index(ad.tensor(3.0))
    with pytest.raises(TypeError):
        float(ad.tensor(1j))


@pytest.mark.parametrize("dtype", [*NAMES, "float16", "bfloat16"])
def test_dlpack(dtype):
    x = ad.tensor([1, 0, 2], dtype=getattr(ad, dtype))
    assert x.__dlpack_device__() == (1, 0)
    shared = xp.from_dlpack(x)
    assert shared.dtype is x.dtype
    assert shared.data_ptr() == x.data_ptr()
    copied = xp.from_dlpack(x, copy=True)
    assert copied.data_ptr() != x.data_ptr()
    assert copied.tolist() == x.tolist()
    capsule = x.__dlpack__(max_version=(1, 0), dl_device=(1, 0), copy=None, stream=None)
    assert "dltensor" in repr(capsule)

    class Copied:
        __dlpack_device__ = x.__dlpack_device__

        def __dlpack__(self):
            return x.__dlpack__(copy=True)

    apart = ad.from_dlpack(Copied())
    assert apart.dtype is x.dtype
    assert apart.data_ptr() != x.data_ptr()
    if dtype != "bfloat16":
        assert np.from_dlpack(x).tolist() == x.tolist()
        assert not np.shares_memory(np.from_dlpack(x, copy=True), x.numpy())


def test_dlpack_errors():
    with pytest.raises(AttributeError):
        xp.from_dlpack(object())
    with pytest.raises(RuntimeError, match="detach"):
        np.from_dlpack(ad.ones(1, requires_grad=True))


# ---- asarray, whose inputs are of many kinds -----------------------------------------------------


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (True, "bool"), (3, "int64"), (2.5, "float32"), (1j, "complex64"),
        ([True, False], "bool"), ([[1, 2], [3, 4]], "int64"), ([1, 2.5], "float32"),
        ([True, 2], "int64"), ([1.5, 2j], "complex64"), ([[]], "float32"),
    ],
)  # fmt: skip
def test_asarray_of_python_values(value, dtype):
    x = xp.asarray(value)
    assert x.dtype is getattr(ad, dtype)
    assert x.shape == np.asarray(value).shape
    np.testing.assert_array_equal(np.asarray(x), np.asarray(value))
    for name in ("float64", "complex128"):
        if dtype != "complex64" or name == "complex128":
            assert xp.asarray(value, dtype=getattr(xp, name)).dtype is getattr(ad, name)


def test_asarray_copies_when_told_to():
    x = ad.ones(2)
    assert xp.asarray(x) is x
    assert xp.asarray(x, copy=False) is x
    assert xp.asarray(x, copy=True).data_ptr() != x.data_ptr()
    with pytest.raises(ValueError, match="copy"):
        xp.asarray(x, dtype=xp.float64, copy=False)
    with pytest.raises(ValueError, match="copy"):
        xp.asarray([1, 2], copy=False)
    array = np.arange(3)
    assert np.shares_memory(xp.asarray(array).numpy(), array)
    assert not np.shares_memory(xp.asarray(array, copy=True).numpy(), array)


def test_asarray_of_buffers():
    import array

    buffer = array.array("d", [1.0, 2.0])
    x = xp.asarray(buffer)
    assert x.dtype is ad.float64
    x[0] = 5.0
    assert buffer[0] == 5.0
    assert xp.asarray(memoryview(bytearray([1, 2]))).dtype is ad.uint8
    with pytest.raises(TypeError, match="drop a part"):
        xp.asarray(np.ones(2, complex), dtype=xp.float64)
    with pytest.raises((ValueError, OverflowError)):
        xp.asarray([2**64])


def test_full_takes_no_value_of_a_higher_kind():
    for dtype, value in ((xp.int32, 1.5), (xp.float32, 1j), (xp.bool, 2)):
        with pytest.raises(TypeError, match="does not fit"):
            xp.full((2,), value, dtype=dtype)


# ---- what is PyTorch's ---------------------------------------------------------------------------


def test_known_differences():
    x = ad.ones(2, dtype=ad.float32)
    assert (x + ad.tensor(1.0, dtype=ad.float64)).dtype is ad.float32  # the standard: float64
    assert xp.add(x, ad.tensor(1.0, dtype=ad.float64)).dtype is ad.float64
    assert math.copysign(1, (ad.tensor(-4.0) % 2).item()) == -1  # the standard: +0
    assert math.copysign(1, xp.remainder(ad.tensor(-4.0), 2).item()) == 1
    assert (ad.ones(2, dtype=ad.int64) + 1.5).dtype is ad.float32  # the standard: undefined
    with pytest.raises(TypeError):
        xp.add(ad.ones(2, dtype=ad.int64), 1.5)
