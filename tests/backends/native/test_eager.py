"""What was computed before is found by its signature, and launched."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import adjoint as ad
from adjoint.core import policy, sized_tables
from adjoint.core.arrays import signature
from adjoint.ir import compute as core_compute
from adjoint.ir import executable
from adjoint.ops.elementwise.arithmetic import ADDCMUL
from adjoint.ops.elementwise.comparison import CLAMP
from adjoint.ops.shape.concatenation import Cat
from adjoint.runtime import fused
from adjoint.runtime.call_cache import keep_call
from adjoint.runtime.dispatch import run_known
from adjoint.runtime.writes import copied

pytest.importorskip("llvmlite", reason="llvmlite is not installed")

pytestmark = pytest.mark.skipif(
    core_compute.accelerate is None, reason="the native backend is switched off"
)


@pytest.fixture
def x():
    x = ad.arange(64.0).reshape(8, 8)
    executable.forget()
    for _ in range(4):
        ad.cat([x, x])
        ad.cat([x.t(), x])
        ad.cat([ad.nn.Parameter(x), x])
        ad.addcmul(x, x, x)
        ad.addcmul(x, x, x, value=0.5)
        ad.clamp(x, -0.0, 2.0)
        x.exp()
    return x


def known(op, *inputs):
    """The executable of an op for such inputs."""
    key = signature(op, inputs, False, [])
    return None if key is None else executable.find(key)


def test_it_gives_what_the_op_gives(x):
    other = ad.ones(8, 8)
    for op, *inputs in (
        (Cat(0), x, other),
        (ADDCMUL, x, other, x, 1.0),
        (ADDCMUL, x, other, x, 0.5),
        (CLAMP, x, -0.0, 2.0),
        (Cat(0), ad.nn.Parameter(x), other),
        (Cat(0), x.t(), other),
    ):
        found = run_known(op, tuple(inputs))
        assert type(found) is ad.Tensor
        arrays = [i._data if isinstance(i, ad.Tensor) else i for i in inputs]
        assert found.equal(ad.from_numpy(op.compute(np, *arrays)))
        assert found.requires_grad == any(
            isinstance(i, ad.Tensor) and i.requires_grad for i in inputs
        )
        assert (found._leaf, found._changes, found._view) == (None, None, None)


@pytest.mark.parametrize(
    "inputs",
    [
        lambda x: (Cat(0), x, x, x),
        lambda x: (Cat(0), x, x.double()),
        lambda x: (Cat(0), x, x.int()),
        lambda x: (Cat(0), x, [1.0]),
        lambda x: (Cat(0), x, None),
        lambda x: (ADDCMUL, x, x, x, True),
        lambda x: (Cat(0), x, ad.core.tensor_base.TensorBase.__new__(ad.Tensor)),
        lambda x: (Cat(0),),
    ],
)
def test_it_refuses_what_was_not_launched(inputs, x):
    op, *given = inputs(x)
    assert run_known(op, tuple(given)) is None


def test_it_refuses_where_something_watches(x):
    with ad.lazy():
        assert run_known(Cat(0), (x, x)) is None
    with ad.inference_mode():
        assert run_known(Cat(0), (x, x)) is None
    with ad.lazy():
        lazy = x + 1
    assert run_known(Cat(0), (x, lazy)) is None
    assert run_known(Cat(0), (x, x)) is not None
    ad.backends.native.enable(False)
    try:
        assert run_known(Cat(0), (x, x)) is None
    finally:
        ad.backends.native.enable()


def test_gradients(x):
    leaf = x.clone().requires_grad_()
    y = run_known(Cat(0), (leaf, x))
    assert y.requires_grad
    y[:8].sum().backward()
    assert leaf.grad.equal(ad.ones(8, 8))
    with ad.no_grad():
        assert not run_known(Cat(0), (leaf, x)).requires_grad


def test_an_error_of_a_launcher_is_raised(x):
    def launch(*arrays):
        raise ValueError("as it happens")

    key = signature(ADDCMUL, (x, ad.ones(1)), False, [])
    executable.keep(key, executable.Executable(launch, ADDCMUL, ADDCMUL, True))
    with pytest.raises(ValueError, match="as it happens"):
        run_known(ADDCMUL, (x, ad.ones(1)))


def test_no_reference_is_lost_or_kept(x):
    cases = [
        (Cat(0), x, x),
        (ADDCMUL, x, x, x, 0.5),
        (CLAMP, x, -0.0, 2.0),
        (Cat(0), x, None),
        (Cat(0), ad.nn.Parameter(x), x),
        (Cat(0), x, x.double()),
    ]
    cat = known(Cat(0), x, x)
    watched = [x, x._data, x._data.dtype, cat, cat.launch, ad.Tensor, cases[0][0]]
    counts = []
    for _ in range(3):
        for op, *given in cases:
            for _ in range(100):
                run_known(op, tuple(given))
        counts.append([sys.getrefcount(it) for it in watched])
    assert np.ptp(counts[1:], axis=0).max() <= 2


def test_shapes_of_all_ranks(x):
    for shape in ((), (1,), (0, 3), (40, 1), (2, 3, 4, 5), (300, 1, 2)):
        y = ad.rand(shape)
        for _ in range(4):
            z = ad.addcmul(y, y, y)
        assert z.equal(y + y * y) or z.allclose(y + y * y)
        assert z.shape == y.shape


def test_calls_are_what_python_gives(monkeypatch):
    x = ad.arange(64.0).reshape(8, 8) / 9
    leaf = x.clone().requires_grad_()
    labels = ad.arange(8)
    functional = ad.nn.functional
    cases = [
        lambda x: functional.softmax(x, -1),
        lambda x: functional.elu(x, alpha=0.5),
        lambda x: functional.leaky_relu(x, -0.0),
        lambda x: functional.leaky_relu(x, 0.0),
        lambda x: functional.softplus(x, 2),
        lambda x: ad.cat([x, x], 1),
        lambda x: ad.cat((x, x), -1),
        lambda x: ad.stack([x, x.detach(), x]),
        lambda x: ad.index_put(x, (labels,), x),
        lambda x: ad.index_add(x, 0, labels, x),
        lambda x: ad.masked_fill(x, x > 1, 0.5),
        lambda x: functional.pad(x, (1, 2), value=3),
        lambda x: functional.pad(x, [1, 2]),
        lambda x: ad.nan_to_num(x, posinf=2.0),
        lambda x: x.argmax(-1).double(),
        lambda x: functional.cross_entropy(x, labels),
        lambda x: functional.cross_entropy(x, labels, None),
        lambda x: functional.layer_norm(x, (8,)),
        lambda x: functional.layer_norm(x, (8,), x[0].detach(), None),
    ]
    tensors = [x, x.double(), x.t(), leaf, ad.nn.Parameter(x), x.flip(0)[:, :]]
    for _ in range(4):
        found = [case(y) for case in cases for y in tensors]
    with monkeypatch.context() as patch:
        patch.setattr(fused, "run_known", lambda owner, args, by_gradient: None)
        expected = [case(y) for case in cases for y in tensors]
    for a, b in zip(found, expected, strict=True):
        assert a.spec == b.spec
        assert a.allclose(b, rtol=0, atol=0, equal_nan=True)
        assert a.requires_grad == b.requires_grad
        if a.requires_grad:
            g = [leaf for leaf in tensors if leaf.requires_grad]
            for one, other in zip(
                ad.autograd.grad(a.sum(), g, allow_unused=True),
                ad.autograd.grad(b.sum(), g, allow_unused=True),
                strict=True,
            ):
                assert (one is None) == (other is None)
                assert one is None or one.allclose(other)


def function(*args):
    """The owner of the calls below."""


def test_calls_that_cannot_be_known_are_not_launched(x):
    for args in (
        (x, {}),
        (x, 1j),
        (x, np.ones(3)),
        (x, np.float32(1)),
        (x, 1 << 64),
        (x, [[[[[[1]]]]]]),
        (x, object.__new__(type("Odd", (), {}))),
        (x,) * 1000,
        (ad.tensor(np.ones((1,) * 9)),),
        (x, lambda: None),
    ):
        assert signature(function, args, True, []) is None


def test_signatures_tell_apart_what_differs(x):
    leaf = ad.nn.Parameter(x)
    different = [
        (x,), (leaf,), (x.double(),), (x[:7],), (x.t(),), (x[::2],), (x.reshape(64),), (x, x),
        ([x],), ((x,),), ([x, x],), ([[x], x],), (x, None), (x, True), (x, 1), (x, 1.0), (x, -1),
        (x, 0), (x, 0.0), (x, -0.0), (x, False), (x, float("nan")), (x, "1"), (x, "a"), (x, (1,)),
        (x, [1]), (x, (1.0,)), (x, (1, None)), (x, ((1,), 1)), (x, slice(1)), (x, slice(0, 1)),
        (x, ...), (x, ad.float32), (x, ad.float64), (x, ad.device("cpu")), ((), x), (x, ()), (),
    ]  # fmt: skip
    keys = [signature(function, args, True, []) for args in different]
    assert None not in keys
    assert len(set(keys)) == len(keys)
    assert keys == [signature(function, args, True, []) for args in different]
    assert signature(ADDCMUL, (x,), True, []) != keys[0]
    assert signature(function, (leaf,), False, []) == keys[0]
    assert signature(function, (x.clone(),), True, []) == keys[0]
    arrays, tensors = [], []
    signature(function, ([leaf, x], 1, x), True, arrays, tensors)
    assert [t is u for t, u in zip(tensors, (leaf, x, x), strict=True)] == [True] * 3
    assert [a is t._data for a, t in zip(arrays, tensors, strict=True)] == [True] * 3


def test_known_calls(x):
    keep_call(function, (x, -0.0, None), lambda y: y + 1, ADDCMUL, False)
    assert run_known(function, (x, -0.0, None), True).equal(x + 1)
    assert run_known(function, (x, 0.0, None), True) is None
    assert run_known(function, (x, -0.0), True) is None
    keep_call(function, (x, 5), lambda y: None, ADDCMUL, False)
    assert run_known(function, (x, 5), True) is None
    counts = []
    for _ in range(3):
        for _ in range(100):
            run_known(function, (x, -0.0, None), True)
            run_known(function, (x, [1], -0.0, None), True)
            run_known(function, (x, x, None), True)
        counts.append([sys.getrefcount(it) for it in (x, x._data, x._data.dtype, ADDCMUL)])
    assert np.ptp(counts[1:], axis=0).max() <= 2


def test_the_cache_is_bounded_and_forgotten(x, monkeypatch):
    executable.forget()
    for n in range(20_000):
        keep_call(function, (x, n), lambda y: y, ADDCMUL, False)
        if n % 1000 == 0:
            run_known(function, (x, 0), True)  # in use: stays
    assert 0 < sum(executable.counts().values()) * policy.EXECUTABLE_BYTES <= sized_tables.limit()
    assert run_known(function, (x, 0), True) is not None
    assert run_known(function, (x, 1), True) is None
    executable.forget()
    assert executable.counts() == {}


@pytest.mark.filterwarnings("ignore:Casting complex values")
@pytest.mark.parametrize("dtype", ad.core.dtype.ALL, ids=str)
def test_copies_in_place(dtype):
    source = ad.arange(12).reshape(3, 4).to(dtype)
    x = source.new_zeros(3, 4)
    for _ in range(3):
        count = x._changes.count if x._changes is not None else 0
        assert x.copy_(source) is x
        assert x.equal(source)
        assert x._changes.count == count + 1
        assert x._changes.changed_by == "copy_"
        assert x.zero_() is x
        assert x.equal(source.new_zeros(3, 4))
    assert copied(x, source, "copy_") is True
    assert copied(x, source.reshape(4, 3), "copy_") is False
    assert copied(x, source.reshape(4, 3).t(), "copy_") is False
    assert copied(x.t(), source.t(), "copy_") is False
    assert copied(x[:2], source[:2], "copy_") is False  # a view
    assert copied(x, 1, "copy_") is False
    assert copied(x, source[0], "copy_") is False
    other = ad.int32 if dtype is not ad.int32 else ad.int64
    assert copied(x, source.to(other), "copy_") is False
    assert x.equal(source)


def test_copies_in_place_are_seen_and_refused():
    source = ad.ones(8, 8)
    x, leaf = ad.zeros(8, 8), ad.ones(8, 8).requires_grad_()
    x.zero_()
    view = x[1]
    x.copy_(source)
    assert view.equal(ad.ones(8))
    y = leaf * x
    x.copy_(source)
    with pytest.raises(ad.AutogradError, match="copy_"):
        y.sum().backward()
    with pytest.raises(ad.AutogradError):
        leaf.copy_(source)
    x.copy_(leaf)
    assert x.requires_grad
    x.detach_()
    with ad.inference_mode():
        inner = ad.zeros(8, 8)
    with pytest.raises(ad.AutogradError):
        inner.copy_(source)
    fixed = ad.zeros(8, 8)
    fixed.zero_()
    fixed._data.flags.writeable = False
    assert copied(fixed, source, "copy_") is False
    with ad.lazy():
        lazy = x + 1
    x.copy_(source * 5)
    assert lazy.equal(ad.full((8, 8), 2.0))


def test_functions_of_small_tensors(x):
    for a, b in ((ad.ones(3), ad.ones(3)), (ad.ones(2, 1), ad.ones(3)), (ad.ones(3), ad.arange(3))):
        for _ in range(3):
            assert (a + b).equal(ad.from_numpy(np.add(a.numpy(), b.numpy()).astype("f4")))
    one = ad.ones(3)
    for _ in range(3):
        assert (ad.ones(()) + ad.ones(())).shape == ()
        assert (one + one.double()).dtype is ad.float64
        assert (one.int() + one.int()).dtype is ad.int32
        assert (one.int() + 2).dtype is ad.int32
        assert (one.int() + 2.5).dtype is ad.float32
        assert (one + ad.nn.Parameter(one)).requires_grad
        with ad.no_grad():
            assert not (one + ad.nn.Parameter(one)).requires_grad
        with pytest.raises(ad.ShapeError):
            ad.add(one, ad.ones(2))
        assert (one / ad.zeros(3)).isinf().all()  # and no warning
        assert (one + ad.ones(0, 1)).shape == (0, 3)
    counts = []
    for _ in range(3):
        for _ in range(100):
            one + one
        counts.append([sys.getrefcount(it) for it in (one, one._data, one._data.dtype)])
    assert np.ptp(counts[1:], axis=0).max() <= 2
