"""Gradients of sparse tensors, and sparse gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import adjoint as ad

from .pairs import SHAPES, assert_same, dense_pair, matrix, pair

pytestmark = pytest.mark.filterwarnings("ignore:Sparse:UserWarning")

OF_ONE: dict[str, Callable[[Any, Any, Any], Any]] = {
    "to_dense": lambda lib, x, d: x.to_dense() * d,
    "coalesce": lambda lib, x, d: x.coalesce().to_dense() * d,
    "values": lambda lib, x, d: x.coalesce().values() * 3,
    "mul": lambda lib, x, d: (x * 2).to_dense() * d,
    "div": lambda lib, x, d: (x / 4).to_dense() * d,
    "neg": lambda lib, x, d: (-x).to_dense() * d,
    "twice": lambda lib, x, d: (x + x).to_dense() * d,
    "sum": lambda lib, x, d: lib.sparse.sum(x),
    "sum0": lambda lib, x, d: lib.sparse.sum(x, 0).to_dense() * d[0],
    "times": lambda lib, x, d: (x * d).to_dense() * d,
    "clone": lambda lib, x, d: x.clone().to_dense() * d,
    "softmax": lambda lib, x, d: lib.sparse.softmax(x, 0).to_dense() * d,
}


@pytest.mark.parametrize("function", OF_ONE)
@pytest.mark.parametrize("kind", ["ordered", "twice", "hybrid"])
def test_of_one(kind: str, function: str) -> None:
    a, b = pair(kind, grad=True)
    c, d = dense_pair(*a.shape)
    OF_ONE[function](ad, a, c).sum().backward()
    OF_ONE[function](torch, b, d).sum().backward()
    # PyTorch's gradient may have entries of one place, each of which stands for all
    full = b.grad.to_dense() if function == "twice" or b.grad.is_coalesced() else _firsts(b.grad)
    np.testing.assert_allclose(a.grad.to_dense().numpy(), full.numpy(), atol=1e-12)
    assert a.grad.layout is ad.sparse_coo
    assert a.grad._indices().tolist() == a.detach().coalesce().indices().tolist()


def _firsts(g: Any) -> Any:
    full = torch.zeros(g.shape, dtype=g.dtype)
    for place, value in zip(g._indices().t().tolist(), g._values(), strict=True):
        full[tuple(place)] = value
    return full


@pytest.mark.parametrize("kind", ["ordered", "twice", "csr", "none"])
def test_of_products(kind: str) -> None:
    make = (lambda: matrix(grad=True)) if kind == "csr" else (lambda: pair(kind, grad=True))
    functions: dict[str, Callable[[Any, Any, Any], Any]] = {
        "@": lambda lib, x, d: x @ d,
        "mm": lambda lib, x, d: lib.sparse.mm(x, d) ** 2,
        "mv": lambda lib, x, d: x @ d[:, 0],
        "right": lambda lib, x, d: d.t()[:, :2] @ x,
        "linear": lambda lib, x, d: lib.nn.functional.linear(d.t(), x),
    }
    for function in functions.values():
        a, _ = make()
        c, d = dense_pair(3, 4, grad=True)
        function(ad, a, c).sum().backward()
        full = torch.tensor(a.detach().to_dense().numpy()).requires_grad_()
        function(torch, full, d).sum().backward()
        mask = torch.tensor((a.detach() * 0 + a.detach()).coalesce().to_dense().numpy() != 0) \
            if kind != "csr" else full.detach() != 0  # fmt: skip
        np.testing.assert_allclose(a.grad.to_dense().numpy(), (full.grad * mask).numpy())
        assert a.grad.layout is a.layout
        assert_same(c.grad, d.grad)


def test_of_a_sparse_product() -> None:
    for kind in ("ordered", "twice"):
        a, b = pair(kind, grad=True)
        c, d = pair("ordered", grad=True)
        ad.sparse.sum((a @ c.t()) * 2).backward()
        torch.sparse.sum(torch.sparse.mm(b, d.t()) * 2).backward()
        for x, y in ((a, b), (c, d)):
            mask = (x.detach().to_dense() != 0).numpy()
            expected = y.grad.to_dense().numpy() * mask
            np.testing.assert_allclose(x.grad.to_dense().numpy(), expected)


@pytest.mark.parametrize("kind", SHAPES)
def test_through_the_constructor(kind: str) -> None:
    indices, values, size = SHAPES[kind]
    array = np.array(values, np.float64)
    places = np.array(indices, np.int64).reshape(len(indices), -1)
    v = ad.tensor(array, requires_grad=True)
    w = torch.tensor(array, requires_grad=True)
    x = ad.sparse_coo_tensor(ad.tensor(places), v, size)
    y = torch.sparse_coo_tensor(torch.tensor(places), w, size)
    c, d = dense_pair(*size)
    (x.to_dense() ** 2 * c).sum().backward()
    (y.to_dense() ** 2 * d).sum().backward()
    assert_same(v.grad, w.grad)


def test_through_to_sparse_and_masks() -> None:
    a, b = dense_pair(3, 4, grad=True)
    mask, other = ad.eye(3, 4).to_sparse(), torch.eye(3, 4).to_sparse()
    (a.sparse_mask(mask.double()) * 3).to_dense().sum().backward()
    (b.sparse_mask(other.double()) * 3).to_dense().sum().backward()
    assert_same(a.grad, b.grad)
    a.grad = b.grad = None
    c, d = (a * (a > 0)).to_sparse() * 2, (b * (b > 0)).to_sparse() * 2
    c.to_dense().sum().backward()
    d.to_dense().sum().backward()
    assert_same(a.grad, b.grad)


def test_values_by_differences() -> None:
    places = ad.tensor([[1, 0, 1, 1], [2, 2, 0, 2]])
    d = ad.tensor(np.random.default_rng(0).standard_normal((3, 2)), requires_grad=True)
    for dtype in ("float64", "complex128"):
        turned = 1 + 0.5j if dtype == "complex128" else 1.0
        array = np.random.default_rng(1).standard_normal(4) * turned
        v = ad.tensor(array, requires_grad=True)

        def make(v: Any) -> Any:
            return ad.sparse_coo_tensor(places, v, (2, 3))

        x = (d.detach() * (turned - 0.25)).requires_grad_()
        for f in (
            lambda v, x: make(v) @ x,
            lambda v, x: (make(v) * x.t()).to_dense(),
            lambda v, x: (make(v) @ make(v).t()).to_dense(),
            lambda v, x: x.t() + make(v).sin(),
            lambda v, x: make(v)[1].to_dense() + make(v).t().sum(0).to_dense().sum() + x.sum(),
            lambda v, x: make(v).index_select(1, ad.tensor([2, 2, 0])).to_dense() * x[0, 0],
            lambda v, x: ad.cat([make(v), make(v)], 1).to_dense() * x[0, 0],
        ):
            assert ad.autograd.gradcheck(f, (v, x))
            assert ad.autograd.gradgradcheck(f, (v, x))


def test_accumulation_takes_every_order() -> None:
    g, d = pair("twice")[0], dense_pair(2, 3)[0]
    for first, second in ((g, g), (g, d), (d, g), (g, pair("ordered")[0])):
        p = ad.zeros(2, 3, dtype=ad.float64, requires_grad=True)
        expected = first.to_dense() + second.to_dense()
        for each in (first, second):
            p.backward(each.clone())
        assert p.grad.to_dense().allclose(expected)
        assert p.grad.is_sparse == (first.is_sparse and second.is_sparse)
        assert d.allclose(dense_pair(2, 3)[0]) and g._nnz() == 5
    p = ad.zeros(2, 3, dtype=ad.float64, requires_grad=True)
    p.backward(d)
    before = p.grad
    p.backward(g)
    assert p.grad is before


def test_hooks_and_retained_gradients() -> None:
    a, _ = pair("ordered", grad=True)
    seen = []
    a.register_hook(lambda g: seen.append(g.layout) or g * 2)
    b = a * 2
    b.retain_grad()
    with ad.autograd.detect_anomaly(check_nan=True):
        b.to_dense().sum().backward()
    assert seen == [ad.sparse_coo]
    assert a.grad._values().tolist() == [4.0] * 3 and b.grad._values().tolist() == [1.0] * 3
    nan = ad.sparse_coo_tensor([[0]], [float("nan")], (2,), requires_grad=True)
    with pytest.raises(RuntimeError, match="nan"), ad.autograd.detect_anomaly():
        (nan * nan).to_dense().sum().backward()


def _csr_pair(dtype: str = "float64") -> Any:
    """Rows of two entries, none, three of which two products are equal, and one."""
    array = np.array([[0, 2, 0, -1], [0, 0, 0, 0], [1, 1, 0, 3], [0, 0, -2, 0]]).astype(dtype)
    return (
        ad.tensor(array).to_sparse_csr().requires_grad_(),
        torch.tensor(array).to_sparse_csr().requires_grad_(),
    )


@pytest.mark.parametrize("how", ["sum", "mean", "amax", "amin"])
@pytest.mark.parametrize("width", [0, 1, 5])
def test_of_reductions_of_products(how: str, width: int) -> None:
    a, b = _csr_pair()
    c, d = dense_pair(4, width, grad=True)
    with ad.no_grad(), torch.no_grad():
        c[1], d[1] = c[0], d[0]  # equal products
    x, y = ad.sparse.mm(a, c, how), torch.sparse.mm(b, d, how)
    assert_same(x, y)
    (x**2).sum().backward()
    (y**2).sum().backward()
    assert_same(a.grad, b.grad)
    assert_same(c.grad, d.grad)


def test_of_reductions_with_nan_and_of_no_entries() -> None:
    a, b = _csr_pair("float32")
    for how in ("amax", "amin", "mean"):
        c, d = dense_pair(4, 3, dtype="float32")
        c[1, 0], d[1, 0] = float("nan"), float("nan")
        assert_same(ad.sparse.mm(a, c, how), torch.sparse.mm(b, d, how))
        none = ad.zeros(2, 4).to_sparse_csr()
        assert ad.sparse.mm(none, c, how).tolist() == [[0.0] * 3] * 2
        assert ad.sparse.mm(ad.zeros(0, 4).to_sparse_csr(), c, how).shape == (0, 3)
    many = (ad.arange(3000.0).reshape(60, 50) % 7 - 3).to_sparse_csr()
    wide = ad.arange(50 * 2000.0).reshape(50, 2000).sin()  # in several blocks
    every = many.to_dense()[:, :, None] * wide
    here = many.to_dense()[:, :, None] != 0
    expected = ad.where(here, every, -float("inf")).amax(1)
    assert ad.equal(ad.sparse.mm(many, wide, "amax"), expected)
    assert ad.equal(ad.sparse.mm(many, wide, "max"), expected)


def test_of_sampled_products() -> None:
    for inner in (0, 1, 3):
        a, b = _csr_pair()
        c, d = dense_pair(4, inner, grad=True)
        e, f = dense_pair(inner, 4, grad=True)
        for scale in ({}, {"beta": 0.5, "alpha": 2.0}, {"beta": 0}):
            x = ad.sparse.sampled_addmm(a, c, e, **scale)
            y = torch.sparse.sampled_addmm(b, d, f, **scale)
            assert_same(x, y)
        first = ad.autograd.grad((x.to_dense() ** 2).sum(), (c, e), create_graph=True)
        full = torch.autograd.grad(((d @ f)[b.detach().to_dense() != 0] ** 2).sum(), (d, f))
        for one, other in zip(first, full, strict=True):
            assert_same(one, other)
        x = ad.sparse.sampled_addmm(a, c, e, beta=0.5)
        x.values().sum().backward()
        assert a.grad.values().tolist() == [0.5] * 6
        out = ad.zeros(4, 4, dtype="float64").to_sparse_csr()
        with ad.no_grad():
            assert ad.sparse.sampled_addmm(a, c, e, out=out) is out
            assert_same(out, torch.sparse.sampled_addmm(b, d, f))


def test_what_reductions_and_sampled_products_refuse() -> None:
    a, _ = _csr_pair()
    c = ad.ones(4, 2, dtype="float64")
    with pytest.raises(ValueError, match="amax, amin; got 'prod'"):
        ad.sparse.mm(a, c, "prod")
    with pytest.raises(ad.LayoutError, match="sparse row compressed"):
        ad.sparse.mm(a.detach().to_sparse(), c, "mean")
    with pytest.raises(ad.LayoutError, match="dense matrix as its second"):
        ad.sparse.mm(a, a, "amin")
    with pytest.raises(ad.LayoutError, match="sparse row compressed"):
        ad.sparse.sampled_addmm(ad.ones(4, 4), c, c.t())
    with pytest.raises(ad.LayoutError, match="two dense matrices"):
        ad.sparse.sampled_addmm(a, a, a)
    with pytest.raises(ad.ShapeError, match="4x2 and 4x2"):
        ad.sparse.sampled_addmm(a, c, c)
    with pytest.raises(RuntimeError, match="same dtype"):
        ad.sparse.sampled_addmm(a, c.float(), c.t())
    with pytest.raises(ad.LayoutError, match="eagerly"), ad.lazy():
        ad.sparse.sampled_addmm(a, c, c.t())
