"""Matrices kept by columns (CSC): what they are made of, beside dense ones and beside CSR."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch

import adjoint as ad
from adjoint.core.errors import InvalidArgument, LayoutError, ShapeError

SHAPES = [(0, 0), (0, 3), (3, 0), (1, 1), (1, 15), (15, 1), (7, 5), (40, 33)]
DTYPES = [ad.float32, ad.float64, ad.bfloat16, ad.complex64, ad.int64]


def matrix(shape, dtype=ad.float64, seed=0):
    rng = np.random.default_rng(seed)
    array = rng.integers(-4, 5, shape) * (rng.random(shape) < 0.4)
    return ad.tensor(array).to(dtype)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_there_and_back(shape, dtype):
    full = matrix(shape, dtype)
    x = full.to_sparse_csc()
    assert x.layout is ad.sparse_csc and x.to_sparse_csc() is x
    for y in (
        x, x.to_sparse_coo(), x.to_sparse_csr(), x.clone(), full.to_sparse_csr().to_sparse_csc(),
        full.to_sparse(layout=ad.sparse_csc), copy.deepcopy(x), pickle.loads(pickle.dumps(x)),
    ):  # fmt: skip
        assert ad.equal(y.to_dense(), full) and y.dtype is dtype
    rows = full.t().to_sparse_csr()
    assert x.ccol_indices().tolist() == rows.crow_indices().tolist()
    assert x.row_indices().tolist() == rows.col_indices().tolist()
    assert ad.equal(x.values(), rows.values())
    made = ad.sparse_csc_tensor(x.ccol_indices(), x.row_indices(), x.values(), shape)
    same = ad.sparse_compressed_tensor(
        x.ccol_indices(), x.row_indices(), x.values(), shape, layout=ad.sparse_csc
    )
    assert ad.equal(made.to_dense(), full) and ad.equal(same.to_dense(), full)
    assert x.t().layout is ad.sparse_csr and ad.equal(x.t().to_dense(), full.t())
    turned = full.to_sparse_csr().t()
    assert turned.layout is ad.sparse_csc and ad.equal(turned.to_dense(), full.t())
    assert ad.equal(x.t().t().to_dense(), full)


@pytest.mark.parametrize("shape", SHAPES)
def test_results_are_those_of_dense_matrices_and_stay_columns(shape):
    full, other = matrix(shape), matrix(shape, seed=1)
    x, y, z = full.to_sparse_csc(), other.to_sparse_csc(), full.to_sparse_csc()
    for found, expected in (
        (x + y, full + other), (x - y, full - other), (x * y, full * other), (x * z, full * full),
        (x + x, full + full), (x * 2, full * 2), (x * other, full * other), (x / 2, full / 2),
        (-x, -full), (x.abs(), full.abs()), (x.relu(), full.relu()), (x**2, full**2),
        (x.float().double(), full), (x.to(ad.int64).double(), full),
    ):  # fmt: skip
        assert found.layout is ad.sparse_csc
        assert ad.equal(found.to_dense(), expected)
    assert ad.equal(x + other, full + other)
    assert x.sum() == full.sum() and x.norm() == full.norm()
    for i in range(min(shape[0], 2)):
        assert ad.equal(x[i].to_dense(), full[i])


def test_products_of_every_pair_of_layouts():
    a, b = matrix((6, 4)), matrix((4, 5), seed=1)
    for first in (a.to_sparse_csc(), a.to_sparse_csr()):
        assert ad.equal(first @ b, a @ b)
        assert ad.equal(b.t() @ first.t(), (a @ b).t())
        for second in (b.to_sparse_csc(), b.to_sparse_csr()):
            assert ad.equal((first @ second).to_dense(), a @ b)
            assert (first @ second).layout is ad.sparse_csr


def test_gradients_are_at_the_places_and_of_columns():
    full, x2 = matrix((6, 4)), matrix((4, 3), seed=2)
    x = full.to_sparse_csc().requires_grad_()
    w = ad.arange(18, dtype=ad.float64).reshape(6, 3)
    ((x @ x2) * w).sum().backward()
    expected = (w @ x2.t()) * (full != 0)
    assert x.grad.layout is ad.sparse_csc and ad.equal(x.grad.to_dense(), expected)
    values = ad.tensor([1.0, 2.0, 3.0], requires_grad=True)
    made = ad.sparse_csc_tensor([0, 1, 3], [0, 0, 1], values, (2, 2))
    (made.t().to_dense() * ad.tensor([[2.0, 9.0], [3.0, 4.0]])).sum().backward()
    assert values.grad.tolist() == [2.0, 3.0, 4.0]
    leaf = full.clone().requires_grad_()
    (leaf.to_sparse_csc() * full).to_dense().sum().backward()
    assert ad.equal(leaf.grad, full)


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
def test_files(tmp_path):
    x = matrix((7, 5)).to_sparse_csc()
    theirs = torch.tensor(x.to_dense().numpy()).to_sparse_csc()
    ad.save({"x": x}, tmp_path / "ours.pt")
    torch.save({"x": theirs}, tmp_path / "theirs.pt")
    read = torch.load(tmp_path / "ours.pt", weights_only=True)["x"]
    assert torch.equal(read.ccol_indices(), theirs.ccol_indices())
    assert torch.equal(read.row_indices(), theirs.row_indices())
    assert torch.equal(read.values(), theirs.values())
    for name in ("ours.pt", "theirs.pt"):
        y = ad.load(tmp_path / name)["x"]
        assert y.layout is ad.sparse_csc and ad.equal(y.to_dense(), x.to_dense())
    assert str(x.float()) == str(theirs.float()).replace("torch.", "adjoint.")


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
@pytest.mark.parametrize("shape", [(4, 3, 2), (1, 15, 3, 2), (3, 4, 0), (0, 3, 2), (3, 0, 1)])
@pytest.mark.parametrize("layout", ["csr", "csc"])
def test_dense_dimensions(shape, layout):
    full = matrix(shape)
    to = f"to_sparse_{layout}"
    x = getattr(full, to)(dense_dim=len(shape) - 2)
    theirs = getattr(torch.tensor(full.numpy()), to)(dense_dim=len(shape) - 2)
    begins, others = ("crow_indices", "col_indices")
    if layout == "csc":
        begins, others = ("ccol_indices", "row_indices")
    assert x.dense_dim() == len(shape) - 2 and x.sparse_dim() == 2 and x.shape == shape
    for name in (begins, others, "values"):
        assert getattr(x, name)().tolist() == getattr(theirs, name)().tolist()
    parts = getattr(x, begins)(), getattr(x, others)(), x.values()
    made = getattr(ad, f"sparse_{layout}_tensor")(*parts, shape)
    for y in (x, made, x.clone(), x.to_sparse_coo(), x.to_sparse_csr(), x.to_sparse_csc()):
        assert ad.equal(y.to_dense(), full)
    for found, expected in ((x + x, full + full), (x * 2, full * 2), (x * x, full * full)):
        assert found.layout is x.layout and ad.equal(found.to_dense(), expected)
    turned = x.transpose(0, 1)
    assert turned.layout is not x.layout and ad.equal(turned.to_dense(), full.transpose(0, 1))
    with pytest.raises((LayoutError, ShapeError)):
        x @ full
    with pytest.raises(ShapeError, match="dense sizes"):
        getattr(ad, f"sparse_{layout}_tensor")(*parts, (*shape[:2], *shape[2:], 7))
    values = x.values().detach().clone().requires_grad_()
    getattr(ad, f"sparse_{layout}_tensor")(*parts[:2], values, shape).to_dense().sum().backward()
    assert ad.equal(values.grad, ad.ones_like(values))


def test_what_is_no_matrix_of_columns_is_refused():
    for error, begins, rows, size in (
        (InvalidArgument, [0, 1, 3], [0, 1, 0], (2, 2)),
        (InvalidArgument, [0, 1, 3], [0, 1, 1], None),
        (InvalidArgument, [0, 1, 3], [0, 0, 2], (2, 2)),
        (InvalidArgument, [1, 1, 3], [0, 0, 1], None),
        (ShapeError, [0, 1, 3], [0, 0, 1], (2, 3)), (ShapeError, [[0, 1, 3]], [0, 0, 1], (2, 2)),
    ):  # fmt: skip
        with pytest.raises(error, match=r"ccol_indices|row_indices|column|index 2"):
            ad.sparse_csc_tensor(begins, rows, [1.0, 2.0, 3.0], size)
    with pytest.raises(LayoutError, match="to_sparse_csc"):
        ad.eye(2).to_sparse_csr().ccol_indices()
    with pytest.raises(LayoutError, match="to_sparse_csr"):
        ad.eye(2).to_sparse_csc().crow_indices()


def test_a_coordinate_tensor_is_said_to_be_coalesced_only_where_it_is():
    x = ad.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0])
    assert not x.is_coalesced()
    assert x._coalesced_(True) is x and x.is_coalesced() and x.values().tolist() == [1.0, 2.0]
    assert not x._coalesced_(False).is_coalesced()
    with pytest.raises(InvalidArgument, match="coalesce"):
        ad.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0])._coalesced_(True)
