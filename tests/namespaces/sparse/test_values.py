"""What sparse tensors give, beside PyTorch's."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch

import adjoint as ad

from .pairs import DTYPES, SHAPES, assert_same, dense_pair, matrix, pair

pytestmark = pytest.mark.filterwarnings("ignore:Sparse:UserWarning")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SHAPES)
def test_parts_and_conversions(name: str, dtype: str) -> None:
    a, b = pair(name, dtype)
    assert_same(a, b)
    assert (a._nnz(), a.sparse_dim(), a.dense_dim()) == (b._nnz(), b.sparse_dim(), b.dense_dim())
    assert (a.is_coalesced(), a.is_sparse, a.is_sparse_csr) == (b.is_coalesced(), True, False)
    assert a._indices().tolist() == b._indices().tolist()
    assert a._values().tolist() == b._values().tolist()
    c, d = a.coalesce(), b.coalesce()
    assert c.is_coalesced() and c.coalesce() is c
    assert c.indices().tolist() == d.indices().tolist()
    assert c.values().tolist() == d.values().tolist()
    assert_same(a.to_dense(), b.to_dense())
    if a.ndim == 2 and not a.dense_dim():
        assert_same(a.to_sparse_csr(), b.to_sparse_csr())
        x, y = a.to_sparse_csr(), b.to_sparse_csr()
        assert x.crow_indices().tolist() == y.crow_indices().tolist()
        assert x.col_indices().tolist() == y.col_indices().tolist()
        assert_same(x.to_sparse(), y.to_sparse())


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 3), (2, 0), (2, 3, 2)])
def test_from_dense(shape: tuple[int, ...]) -> None:
    a, b = dense_pair(*shape)
    a, b = a * (a > 0), b * (b > 0)
    assert_same(a.to_sparse(), b.to_sparse())
    for n in range(1, len(shape) + 1):
        x, y = a.to_sparse(n), b.to_sparse(n)
        assert_same(x, y)
        assert x.indices().tolist() == y.indices().tolist()
        assert x.values().tolist() == y.values().tolist()
    if len(shape) == 2:
        assert_same(a.to_sparse(layout=ad.sparse_csr), b.to_sparse(layout=torch.sparse_csr))


UNARY = (
    "neg", "abs", "sgn", "sign", "square", "sqrt", "expm1", "log1p", "sin", "tan", "asin", "atan",
    "sinh", "tanh", "asinh", "atanh", "floor", "ceil", "trunc", "round", "isnan", "isinf", "relu",
    "erf", "nan_to_num", "clone", "conj", "deg2rad", "signbit",
)  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("kind", ["ordered", "twice", "hybrid", "none", "csr"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_functions_that_keep_zero(name: str, kind: str) -> None:
    a, b = matrix() if kind == "csr" else pair(kind)
    try:
        y = getattr(b, name)()
    except (RuntimeError, NotImplementedError):
        y = getattr(b.to_dense(), name)().to_sparse()
        assert_same(getattr(a, name)(), y, layout=False)
    else:
        if name == "square" and kind == "twice":
            y = b.coalesce().square()
        assert_same(getattr(a, name)(), y)


def test_functions_of_duplicates_are_those_of_their_sum() -> None:
    a, _ = pair("twice")
    for name in ("square", "relu", "isnan", "abs"):
        full = getattr(a.to_dense(), name)()
        assert getattr(a, name)().to_dense().tolist() == full.tolist()
    whole = ad.sparse_coo_tensor([[0, 0]], [1.5, 1.5], (2,)).long()
    assert whole.to_dense().tolist() == [3, 0]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["ordered", "twice", "hybrid", "none", "empty", "csr"])
def test_arithmetic(kind: str, dtype: str) -> None:
    a, b = matrix(dtype) if kind == "csr" else pair(kind, dtype)
    c, d = dense_pair(*a.shape, dtype=dtype)
    for f in (
        lambda x, full: x * 2,
        lambda x, full: 2 * x,
        lambda x, full: x / 2,
        lambda x, full: -x,
        lambda x, full: x + x,
        lambda x, full: x - x * 3,
        lambda x, full: x * x,
        lambda x, full: full + x,
        lambda x, full: x.sum(),
        lambda x, full: x**2,
        lambda x, full: x.to(full.dtype) * full[:1, :1].sum(),
    ):
        try:
            expected = f(b, d)
        except (RuntimeError, NotImplementedError):
            expected = f(b.to_dense(), d)
            assert_same(f(a, c), expected, layout=False)
        else:
            assert_same(f(a, c), expected)
    assert_same(a * c, b.to_dense() * d, layout=False)


def test_sums_of_merged_tensors_are_merged() -> None:
    a, _ = pair("ordered", merged=True)
    other = ad.sparse_coo_tensor([[1, 0], [1, 2]], [7.0, 8.0], (2, 3), dtype=ad.float64).coalesce()
    assert (a + other).is_coalesced() and (a + other)._nnz() == 4
    uncoalesced, _ = pair("twice")
    assert (a + uncoalesced)._nnz() == 8


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["ordered", "twice", "none", "empty", "csr"])
def test_products(kind: str, dtype: str) -> None:
    a, b = matrix(dtype) if kind == "csr" else pair(kind, dtype)
    c, d = dense_pair(3, 4, dtype=dtype)
    e, f = dense_pair(5, a.shape[0], dtype=dtype)
    if kind == "csr" and dtype == "int64":  # which PyTorch lacks
        b = b.to_sparse()
    assert_same(a @ c, b @ d)
    assert_same(ad.sparse.mm(a, c), torch.sparse.mm(b, d))
    assert_same(a @ c[:, 0], b @ d[:, 0])
    assert_same(a.mv(c[:, 1]), b.mv(d[:, 1]))
    assert_same(e @ a, f @ b.to_dense())
    assert_same(ad.sparse.addmm(c[:1], a, c, beta=2, alpha=3), 2 * d[:1] + 3 * (b.to_dense() @ d))
    assert_same(ad.nn.functional.linear(c.t(), a), d.t() @ b.to_dense().t())
    assert_same(ad.nn.functional.linear(a, c.t(), c[0]), b.to_dense() @ d + d[0])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["ordered", "twice", "none", "empty"])
def test_products_of_two_sparse(kind: str, dtype: str) -> None:
    a, b = pair(kind, dtype)
    if dtype == "int64":  # which PyTorch lacks
        full = b.to_dense()
        assert_same(a @ a.t(), (full @ full.t()).to_sparse())
    else:
        assert_same(a @ a.t(), b @ b.t())
        assert_same(a.t() @ a, b.t() @ b)
    c, d = matrix(dtype)
    square, other = c.to_sparse().t().to_sparse_csr(), d.to_sparse().t().to_sparse_csr()
    assert_same(c @ square, c_product(d, other))


def c_product(a: Any, b: Any) -> Any:
    """By dense matrices: PyTorch's CSR product is not there for all dtypes."""
    return (a.to_dense() @ b.to_dense()).to_sparse_csr()


@pytest.mark.parametrize("kind", SHAPES)
def test_sums_over_dimensions(kind: str) -> None:
    a, b = pair(kind)
    for dim in (None, 0, -1, [0, a.ndim - 1]):
        if a.ndim == 1 and isinstance(dim, list):
            continue
        x = ad.sparse.sum(a) if dim is None else ad.sparse.sum(a, dim)
        full = b.to_dense()
        assert_same(x, full.sum() if dim is None else full.sum(dim), layout=False)
        if dim is not None and kind not in ("none", "empty"):
            assert_same(x, torch.sparse.sum(b, dim))
    assert_same(a.sum(0, keepdim=True), b.to_dense().sum(0, keepdim=True), layout=False)


@pytest.mark.parametrize("kind", ["ordered", "twice", "hybrid", "none", "line", "cube"])
def test_softmax(kind: str) -> None:
    a, b = pair(kind)
    for dim in range(a.ndim):
        assert_same(ad.sparse.softmax(a, dim), torch.sparse.softmax(b, dim))
        assert_same(ad.sparse.log_softmax(a, dim), torch.sparse.log_softmax(b, dim))
    with pytest.raises(RuntimeError, match="softmax"):
        ad.softmax(a, 0)


@pytest.mark.parametrize("kind", SHAPES)
def test_parts(kind: str) -> None:
    a, b = pair(kind)
    for dim in range(a.ndim):
        size = a.shape[dim]
        places = [size - 1, 0, size - 1] if size else []
        x = a.index_select(dim, ad.tensor(places, dtype=ad.int64))
        assert_same(x, b.index_select(dim, torch.tensor(places, dtype=torch.int64)))
        if size:
            assert_same(a.select(dim, size - 1), b.select(dim, size - 1))
    full = b.to_dense()
    assert_same(a[:1], full[:1], layout=False)
    assert_same(a[..., ::2], full[..., ::2], layout=False)
    if 0 not in a.shape:
        assert_same(a[(0,) * a.ndim], full[(0,) * a.ndim])
    if not a.dense_dim():
        order = tuple(reversed(range(a.ndim)))
        assert_same(a.permute(order), b.permute(order))
        assert_same(ad.cat([a, a]), torch.cat([b, b]))
    with pytest.raises(IndexError):
        a.index_select(0, ad.tensor([a.shape[0]]))


def test_masks() -> None:
    for kind in ("ordered", "twice", "hybrid", "none"):
        a, b = pair(kind)
        c, d = dense_pair(*a.shape)
        x, y = c.sparse_mask(a), d.sparse_mask(b)
        assert_same(x, y)
        assert x._values().tolist() == y._values().tolist()
        mask, other = a.coalesce(), b.coalesce()
        assert_same(a.sparse_mask(mask), b.sparse_mask(other))


def shown(x: Any) -> str:
    """As printed, on as many lines as there would be with PyTorch's shorter name."""
    return " ".join(repr(x).replace("adjoint.", "torch.").split())


@pytest.mark.parametrize("dtype", DTYPES)
def test_printing(dtype: str) -> None:
    for name in SHAPES:
        a, b = pair(name, dtype)
        assert shown(a) == shown(b)
    a, b = matrix(dtype)
    assert shown(a) == shown(b)
    if dtype == "float64":
        assert shown(pair("ordered", grad=True)[0]) == shown(pair("ordered", grad=True)[1])


def test_writes_in_place() -> None:
    a, b = pair("ordered")
    alias = a.detach()
    for name, argument in (("mul_", 2), ("div_", 4), ("neg_", None)):
        given = () if argument is None else (argument,)
        assert getattr(a, name)(*given) is a
        assert_same(a, getattr(b, name)(*given))
    assert alias.to_dense().tolist() == a.to_dense().tolist()
    assert_same(a.add_(a * 1), b.add_(b.clone()))
    assert_same(a.copy_(a * 3), b.copy_(b * 3))
    c, d = dense_pair(2, 3)
    assert_same(c.add_(a, alpha=2), d.add_(b, alpha=2))
    assert_same(a.zero_(), b.zero_())
    assert a._nnz() == 0
    for write in (lambda: a.add_(c), lambda: a.copy_(c), lambda: c.copy_(a), lambda: c.mul_(a)):
        before = c.tolist()
        with pytest.raises(RuntimeError, match="dense"):
            write()
        assert c.tolist() == before and a.is_sparse


def test_memory_is_its_own_and_is_watched() -> None:
    values, places = ad.tensor([1.0, 2.0]), ad.tensor([[0, 2]])
    x = ad.sparse_coo_tensor(places, values, (3,))
    values.zero_()
    places.zero_()
    assert x.to_dense().tolist() == [1, 0, 2]
    x._values().mul_(2)  # which it shares
    assert x.to_dense().tolist() == [2, 0, 4]
    for part in (x.coalesce().values(), x._indices()):
        with pytest.raises(RuntimeError, match="read-only"):
            part.add_(1)
    p = ad.ones(3, 1, requires_grad=True)
    a = ad.eye(3).to_sparse()
    y = (a @ p).sum()
    a._values().mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_copies() -> None:
    for x in (pair("twice")[0], matrix()[0], pair("ordered", grad=True)[0]):
        for made in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x), x.clone().detach()):
            assert made.layout is x.layout and made._nnz() == x._nnz()
            assert made.to_dense().tolist() == x.to_dense().tolist()
            assert not np.may_share_memory(made._data.values, x._data.values)
        assert copy.deepcopy(x).requires_grad == x.requires_grad
        assert x.data.layout is x.layout


def test_constructors_check() -> None:
    make, rows = ad.sparse_coo_tensor, ad.sparse_csr_tensor
    assert make((2, 3)).to_dense().tolist() == [[0.0] * 3] * 2
    assert tuple(make([[1, 2]], [1.0, 2.0]).shape) == (3,)
    assert make([[1]], ad.tensor(2.0)).to_dense().tolist() == [0, 2]
    assert make([[0, 1]], [1, 2], dtype=ad.float64, is_coalesced=True).is_coalesced()
    for wrong in (
        lambda: make([[5]], [1.0], (2,)),
        lambda: make([[-1]], [1.0], (2,)),
        lambda: make([[0, 1]], [1.0], (2,)),
        lambda: make([0], [1.0], (2,)),
        lambda: make([[0]], [1.0], (2, 3)),
        lambda: make([[0.5]], [1.0]),
        lambda: make([[1, 0]], [1.0, 2.0], is_coalesced=True),
        lambda: rows([0, 2, 1], [0, 1], [1.0, 2.0], (2, 2)),
        lambda: rows([0, 1, 1], [0, 1], [1.0, 2.0], (2, 2)),
        lambda: rows([0, 2], [1, 0], [1.0, 2.0], (1, 2)),
        lambda: rows([0, 2], [1, 1], [1.0, 2.0], (1, 2)),
        lambda: rows([0, 1], [2], [1.0], (1, 2)),
        lambda: rows([1, 1], [], [], (1, 2)),
    ):
        with pytest.raises(RuntimeError):
            wrong()
    assert rows(ad.tensor([0, 1], dtype=ad.int32), ad.tensor([0], dtype=ad.int32), [1.0]) \
        .crow_indices().dtype is ad.int32  # fmt: skip
    big = make([[10**11, 3]], [1.0, 2.0], (10**12,)).coalesce()
    assert big.indices().tolist() == [[3, 10**11]]


def test_contiguous_is_the_tensor_itself():
    x = ad.eye(3).to_sparse()
    assert x.contiguous() is x


def test_a_size_alone_makes_zeros():
    for x in (ad.sparse_coo_tensor(size=(2, 3)), ad.sparse_coo_tensor((2, 3))):
        assert x.to_dense().equal(ad.zeros(2, 3))
    with pytest.raises(TypeError, match="or a size"):
        ad.sparse_coo_tensor()


def test_legacy_types_make_and_name_sparse_tensors():
    indices, values = ad.tensor([[0, 1, 1], [2, 0, 2]]), ad.tensor([3.0, 4.0, 5.0])
    made = ad.sparse.FloatTensor(indices, values, ad.Size([2, 3]))
    assert made.to_dense().tolist() == [[0, 0, 3], [4, 0, 5]]
    assert ad.sparse.FloatTensor(indices, values).shape == (2, 3)
    assert ad.sparse.DoubleTensor(2, 3).dtype is ad.float64
    assert isinstance(made, ad.sparse.FloatTensor)
    assert not isinstance(made, ad.sparse.DoubleTensor)
    assert not isinstance(values, ad.sparse.FloatTensor)
    with pytest.raises(TypeError, match=r"expected values of adjoint.float64, got adjoint.float32"):
        ad.sparse.DoubleTensor(indices, values, (2, 3))
