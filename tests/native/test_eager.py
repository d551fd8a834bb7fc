"""Launching on tensors in machine code is what `tape.launched` says."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import adjoint as ad
from adjoint.autograd import calls, tape
from adjoint.core import op as core_op
from adjoint.ops.arithmetic import ADDCMUL
from adjoint.ops.comparison import CLAMP
from adjoint.ops.joining import Cat
from adjoint.program import compute as core_compute
from adjoint.program import fused

pytest.importorskip("llvmlite", reason="llvmlite is not installed")

from adjoint.backends.native import eager

pytestmark = pytest.mark.skipif(
    core_compute.accelerate is None, reason="the native backend is switched off"
)


@pytest.fixture
def x():
    x = ad.arange(64.0).reshape(8, 8)
    for _ in range(4):
        ad.cat([x, x])
        ad.addcmul(x, x, x)
        ad.addcmul(x, x, x, value=0.5)
        ad.clamp(x, -0.0, 2.0)
        x.exp()
    eager.serve()
    assert core_op.launched is not tape.launched
    return x


def test_it_gives_what_python_gives(x):
    other = ad.ones(8, 8)
    for op, *inputs in (
        (Cat(0), x, other),
        (ADDCMUL, x, other, x, 1),
        (ADDCMUL, x, other, x, 1.0),
        (ADDCMUL, x, other, x, 0.5),
        (CLAMP, x, -0.0, 2.0),
        (Cat(0), ad.nn.Parameter(x), other),
        (Cat(0), x.t(), other),
    ):
        found, expected = core_op.launched(op, *inputs), tape.launched(op, *inputs)
        if expected is None:
            assert found is None
        else:
            assert type(found) is type(expected)
            assert found.equal(expected)
            assert found.requires_grad == expected.requires_grad
            assert (found._leaf, found._version, found._view) == (None, None, None)


@pytest.mark.parametrize(
    "inputs",
    [
        lambda x: (Cat(0), x, x, x),
        lambda x: (Cat(0), x, x.double()),
        lambda x: (Cat(0), x, x.int()),
        lambda x: (Cat(0), x, [1.0]),
        lambda x: (Cat(0), x, None),
        lambda x: (ADDCMUL, x, x, x, True),
        lambda x: (ADDCMUL, x, x, x, 0.0),
        lambda x: (CLAMP, x, 0.0, 2.0),
        lambda x: (Cat(0), x, object.__new__(ad.Tensor)),
        lambda x: (Cat(0),),
    ],
)
def test_it_refuses_what_was_not_launched(inputs, x):
    assert core_op.launched(*inputs(x)) is None


def test_it_refuses_where_something_watches(x, monkeypatch):
    with ad.lazy():
        assert core_op.launched(Cat(0), x, x) is None
    with ad.inference_mode():
        assert core_op.launched(Cat(0), x, x) is None
    with ad.lazy():
        lazy = x + 1
    assert core_op.launched(Cat(0), x, lazy) is None
    monkeypatch.setattr(core_compute, "accelerate", None)
    assert core_op.launched(Cat(0), x, x) is None


def test_gradients(x):
    leaf = x.clone().requires_grad_()
    y = core_op.launched(Cat(0), leaf, x)
    assert y.requires_grad
    y[:8].sum().backward()
    assert leaf.grad.equal(ad.ones(8, 8))
    with ad.no_grad():
        assert not core_op.launched(Cat(0), leaf, x).requires_grad


def test_an_error_of_a_launcher_is_raised(x, monkeypatch):
    def launch(*arrays):
        raise ValueError("as it happens")

    monkeypatch.setitem(core_compute.launchers, (id(ADDCMUL), (8, 8), (1,)), launch)
    with pytest.raises(ValueError, match="as it happens"):
        core_op.launched(ADDCMUL, x, ad.ones(1))


def test_no_reference_is_lost_or_kept(x):
    cases = [
        (Cat(0), x, x),
        (ADDCMUL, x, x, x, 0.5),
        (CLAMP, x, -0.0, 2.0),
        (Cat(0), x, None),
        (Cat(0), ad.nn.Parameter(x), x),
        (Cat(0), x, x.double()),
    ]
    cat = next(v for k, v in core_compute.launchers.items() if k == (id(Cat(0)), (8, 8), (8, 8)))
    watched = [x, x._data, x._data.dtype, cat, ad.Tensor, cases[0][0]]
    counts = []
    for _ in range(3):
        for case in cases:
            for _ in range(100):
                core_op.launched(*case)
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
        patch.setattr(fused, "launched", calls.launched)
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


def test_calls_that_cannot_be_known_are_not_launched(x):
    known = {}
    for args in (
        (x, [1]),
        (x, {}),
        ([x],),
        (),
        (None,),
        (x, 1, "a", None, (2, 0.0)),
        ([[x], (1,)],),
    ):
        assert fused.launched(known, args) is None
    assert known == {}
    op = ADDCMUL
    key = (x.shape, x._data.dtype, float, "-0.0", None)
    fused_known = {key: (lambda y: y + 1, op, False)}
    assert fused.launched(fused_known, (x, -0.0, None)).equal(x + 1)
    assert fused.launched(fused_known, (x, 0.0, None)) is None
    assert fused.launched(fused_known, (x, -0.0)) is None
    assert fused.launched({key: (lambda y: None, op, False)}, (x, -0.0, None)) is None
    counts = []
    for _ in range(3):
        for _ in range(100):
            fused.launched(fused_known, (x, -0.0, None))
            fused.launched(fused_known, (x, [1], -0.0, None))
            fused.launched(fused_known, (x, x, None))
        counts.append([sys.getrefcount(it) for it in (x, x._data, x._data.dtype, op)])
    assert np.ptp(counts[1:], axis=0).max() <= 2


@pytest.mark.parametrize("dtype", ad.core.dtype.ALL, ids=str)
def test_copies_in_place(dtype):
    source = ad.arange(12).reshape(3, 4).to(dtype)
    x = source.new_zeros(3, 4)
    for _ in range(3):
        count = x._version.count if x._version is not None else 0
        assert x.copy_(source) is x
        assert x.equal(source)
        assert x._version.count == count + 1
        assert x._version.changed_by == "copy_"
        assert x.zero_() is x
        assert x.equal(source.new_zeros(3, 4))
    assert core_op.copied(x, source, "copy_") is True
    assert core_op.copied(x, source.reshape(4, 3), "copy_") is False
    assert core_op.copied(x, source.reshape(4, 3).t(), "copy_") is False
    assert core_op.copied(x.t(), source.t(), "copy_") is False
    assert core_op.copied(x[:2], source[:2], "copy_") is False  # a view
    assert core_op.copied(x, 1, "copy_") is False
    assert core_op.copied(x, source[0], "copy_") is False
    other = ad.int32 if dtype is not ad.int32 else ad.int64
    assert core_op.copied(x, source.to(other), "copy_") is False
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
    array = np.zeros((8, 8), np.float32)
    fixed = ad.from_numpy(array)
    fixed.zero_()
    array.flags.writeable = False
    assert core_op.copied(fixed, source, "copy_") is False
    with ad.lazy():
        lazy = x + 1
    x.copy_(source * 5)
    assert lazy.equal(ad.full((8, 8), 2.0))


def test_numpys_functions_of_small_tensors(x):
    for a, b in ((ad.ones(3), ad.ones(3)), (ad.ones(2, 1), ad.ones(3)), (ad.ones(3), ad.arange(3))):
        assert (a + b).equal(ad.from_numpy(np.add(a.numpy(), b.numpy()).astype("f4")))
    dtypes = tape.plain_dtypes(np.add, "f")
    one = ad.ones(3)
    assert core_op.computed(np.add, dtypes, one, one).equal(one * 2)
    assert core_op.computed(np.add, dtypes, ad.ones(()), ad.ones(())) is None  # a scalar
    assert core_op.computed(np.add, dtypes, one, one.double()) is None
    assert core_op.computed(np.add, dtypes, one.int(), one.int()) is None
    assert core_op.computed(np.add, dtypes, one, 2) is None
    assert core_op.computed(np.add, dtypes, one, ad.ones(2)) is None
    assert core_op.computed(np.add, dtypes, one, ad.nn.Parameter(one)) is None
    with ad.no_grad():
        assert core_op.computed(np.add, dtypes, one, ad.nn.Parameter(one)).equal(one * 2)
    with pytest.raises(ad.ShapeError):
        ad.add(one, ad.ones(2))
    with pytest.raises(TypeError):
        core_op.computed(lambda y: None + y, dtypes, one)
    assert (one / ad.zeros(3)).isinf().all()  # and no warning
    counts = []
    for _ in range(3):
        for _ in range(100):
            core_op.computed(np.add, dtypes, one, one)
            core_op.computed(np.add, dtypes, one, ad.ones(2))
        counts.append([sys.getrefcount(it) for it in (one, one._data, np.add, one._data.dtype)])
    assert np.ptp(counts[1:], axis=0).max() <= 2
