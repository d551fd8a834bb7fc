"""adjoint.testing: comparisons accept and reject like PyTorch's, and op checks reject wrong ops."""

from __future__ import annotations

import math

import numpy as np
import pytest

import adjoint as ad
from adjoint.core.op import REGISTRY, Op, Sample
from adjoint.ops.elementwise.functions import Tanh
from adjoint.testing import assert_allclose, assert_close, check_op, make_tensor, samples

torch = pytest.importorskip("torch")

NAN, INF = math.nan, math.inf

COMPARISONS = {
    "equal": lambda t: ([t([1.0]), t([1.0])], {}),
    "within tolerance": lambda t: ([t([1.0]), t([1.0000001])], {}),
    "outside tolerance": lambda t: ([t([1.0]), t([1.00001])], {}),
    "one of two": lambda t: ([t([1.0, 2.0]), t([1.0, 4.0])], {}),
    "nan": lambda t: ([t([[1.0, 2.0]]), t([[1.0, NAN]])], {}),
    "nan is equal": lambda t: ([t([NAN]), t([NAN])], {"equal_nan": True}),
    "nan is not equal": lambda t: ([t([NAN]), t([NAN])], {}),
    "inf": lambda t: ([t([INF]), t([INF])], {}),
    "inf is not finite": lambda t: ([t([1.0, INF]), t([1.0, 3.0])], {}),
    "ints": lambda t: ([t([1, 2]), t([1, 4])], {}),
    "bools": lambda t: ([t([True]), t([False])], {}),
    "complex": lambda t: ([t([2j]), t([4j])], {}),
    "shapes": lambda t: ([t([1, 2]), t([1, 2, 3])], {}),
    "dtypes": lambda t: ([t([1, 2]), t([1.0, 2])], {}),
    "dtypes ignored": lambda t: ([t([1, 2]), t([1.0, 2])], {"check_dtype": False}),
    "0-d": lambda t: ([t(1.0), t(2.0)], {}),
    "empty": lambda t: ([t([]), t([])], {}),
    "exact": lambda t: ([t([1.0, 2.0]), t([1.0, 4.0])], {"rtol": 0, "atol": 0}),
    "wide": lambda t: ([t([1.0, 2.0]), t([1.0, 4.0])], {"rtol": 1, "atol": 0}),
    "only rtol": lambda t: ([t([1.0]), t([1.0])], {"rtol": 1}),
    "floats": lambda t: ([1.0, 2.0], {}),
    "close floats": lambda t: ([1.0, 1.0 + 1e-8], {}),
    "python ints": lambda t: ([1, 2], {}),
    "int and float": lambda t: ([1, 1.0], {}),
    "python bools": lambda t: ([True, False], {}),
    "none": lambda t: ([None, None], {}),
    "list": lambda t: ([[t(1.0), t(2.0)], [t(1.0), t(4.0)]], {}),
    "lengths": lambda t: ([[1], [1, 2]], {}),
    "mapping": lambda t: ([{"a": [t(1.0)]}, {"a": [t(2.0)]}], {}),
    "keys": lambda t: ([{"a": t(1.0)}, {"b": t(2.0)}], {}),
    "strings": lambda t: (["a", "a"], {}),
    "number and tensor": lambda t: ([t(1.0), 1.0], {}),
    "message": lambda t: ([t([1.0]), t([2.0])], {"msg": "mine"}),
    "message made": lambda t: ([t([1.0]), t([2.0])], {"msg": lambda m: "mine: " + m}),
}


def outcome(check, lib, case):
    arguments, options = COMPARISONS[case](lib.tensor)
    try:
        check(*arguments, **options)
    except (AssertionError, TypeError, ValueError) as error:
        kind = next(k for k in (AssertionError, TypeError, ValueError) if isinstance(error, k))
        text = str(error).replace("torch.", "").replace("adjoint.", "").replace("tensor.", "")
        return kind, text.removeprefix("assert_close: ")
    return None


@pytest.mark.parametrize("case", COMPARISONS)
def test_assert_close_like_pytorch(case):
    assert outcome(assert_close, ad, case) == outcome(torch.testing.assert_close, torch, case)


@pytest.mark.parametrize("lib", [ad, torch])
def test_an_array_is_compared_with_an_array(lib):
    array, close = np.ones(2, np.float32), lib.testing.assert_close
    close(array, array.copy())
    for one, other in ((lib.ones(2), array), (array, lib.ones(2)), ([array], [lib.ones(2)])):
        with pytest.raises(TypeError, match="No comparison pair was able to handle"):
            close(one, other)
    for one, other in ((None, lib.ones(1)), (lib.ones(1), None), (None, 1.0)):
        with pytest.raises(AssertionError, match="None mismatch"):
            close(one, other)


def test_the_older_comparison_takes_arrays():
    assert_allclose(ad.ones(2), np.ones(2))
    with pytest.raises(AssertionError, match="not close"):
        assert_allclose(ad.ones(2), [1.0, 1.1])


def test_strides_are_compared_on_request():
    a = ad.ones(2, 3)
    assert_close(a, ad.ones(3, 2).T)
    with pytest.raises(AssertionError, match=r"attribute 'stride\(\)'"):
        assert_close(a, ad.ones(3, 2).T, check_stride=True)


@pytest.mark.parametrize("name", ["bool", "uint8", "int16", "int64", "bfloat16", "float16",
                                  "float32", "float64", "complex64"])  # fmt: skip
def test_make_tensor_ranges(name):
    dtype = getattr(ad, name)
    x = make_tensor(50, 40, dtype=dtype)
    theirs = torch.testing.make_tensor(50, 40, dtype=getattr(torch, name), device="cpu")
    assert x.dtype is dtype and x.shape == (50, 40)
    real = np.asarray(x.float().numpy() if not dtype.is_complex else x.real.numpy(), np.float64)
    reference = theirs.real.double().numpy()
    assert abs(real.min() - reference.min()) < 1 and abs(real.max() - reference.max()) < 1


def test_make_tensor_options():
    x = make_tensor((3, 4), dtype=ad.float32, low=2, high=3, requires_grad=True, noncontiguous=True)
    assert x.requires_grad and x.is_leaf and not x.is_contiguous() and x.shape == (3, 4)
    assert bool((x >= 2).all()) and bool((x < 3).all())
    ones = make_tensor(500, dtype=ad.int64, low=0, high=2, exclude_zero=True)
    assert bool((ones == 1).all())
    assert make_tensor((), dtype=ad.float32).ndim == 0
    with pytest.raises(ValueError, match="must be less than"):
        make_tensor(3, dtype=ad.float32, low=3, high=3)
    with pytest.raises(ValueError, match="mutually exclusive"):
        make_tensor(3, dtype=ad.float32, noncontiguous=True, memory_format=ad.float32)


def test_samples_lists_every_op():
    listed = {op for op, _ in samples() if op.__module__.startswith("adjoint.")}
    assert listed == {op for name, op in REGISTRY.items() if name.startswith("adjoint.")}
    assert all(op is Tanh for op, _ in samples(Tanh))


# ---- check_op rejects ----------------------------------------------------------------------------


def make_op(**changes):
    """A right op (2x), with some of its parts replaced; not left in the registry."""
    parts = {
        "needs": "",
        "infer": lambda self, spec: spec,
        "compute": lambda self, xp, x: x * 2,
        "gradient": lambda self, g: (g * 2,),
        "reference": lambda self, x: x + x,
        "samples": classmethod(lambda cls: [Sample(cls(), (np.array([1.0, -2.0]),), "first")]),
    }
    return type("Twice", (Op,), parts | changes)


@pytest.fixture(autouse=True)
def registry():
    before = dict(REGISTRY)
    yield
    REGISTRY.clear()
    REGISTRY.update(before)


def test_check_op_accepts_a_right_op():
    assert check_op(make_op()) == 1
    assert check_op(Tanh) > 5


def changes_its_input(self, xp, x):
    x *= 2
    return x * 1


WRONG = {
    "value": ({"compute": lambda self, xp, x: x * 3}, "sample first: Tensor-likes are not close"),
    "dtype": (
        {"infer": lambda self, spec: spec.with_(dtype=ad.float32)},
        "sample first: infer says",
    ),
    "shape": ({"infer": lambda self, spec: spec.with_(shape=(3,))}, "sample first: infer says"),
    "gradient": ({"gradient": lambda self, g: (g * 3,)}, "sample first: gradcheck: Jacobian"),
    "second gradient": (
        {"gradient": lambda self, g: (g.detach() * 2,)},
        "sample first: gradcheck: ",
    ),
    "input changed": ({"compute": changes_its_input}, "sample first: compute changed input 0"),
    "no samples": ({"samples": classmethod(lambda cls: [])}, "has no samples"),
}


@pytest.mark.parametrize("name", WRONG)
def test_check_op_rejects(name):
    changes, message = WRONG[name]
    with pytest.raises((AssertionError, RuntimeError), match=message):
        check_op(make_op(**changes))


def test_check_op_needs_a_registered_op():
    class Hidden(Op, abstract=True):
        pass

    with pytest.raises(AssertionError, match="is not registered"):
        check_op(Hidden)
