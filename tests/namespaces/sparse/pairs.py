"""Sparse tensors of adjoint's and the same of PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import adjoint as ad

# (indices, values, size): in order; not in order, with duplicates; hybrid; no entries; no elements;
# one dimension; three.
SHAPES: dict[str, Any] = {
    "ordered": ([[0, 1, 1], [2, 0, 2]], [3.0, -4.0, 0.5], (2, 3)),
    "twice": ([[1, 0, 1, 1, 0], [2, 2, 0, 2, 2]], [0.5, 3.0, -4.0, 0.25, -1.0], (2, 3)),
    "hybrid": ([[2, 0, 2]], [[1.0, 0.5], [0.0, -3.0], [0.25, 4.0]], (3, 2)),
    "none": ([[], []], [], (2, 3)),
    "empty": ([[], []], [], (0, 3)),
    "line": ([[4, 1]], [1.0, -2.0], (6,)),
    "cube": ([[0, 1, 1], [1, 0, 1], [3, 2, 3]], [1.0, 2.0, -3.0], (2, 2, 4)),
}
DTYPES = ("float32", "float64", "complex128", "int64")


def pair(name: str, dtype: str = "float64", merged: bool = False, grad: bool = False) -> Any:
    """The tensor of that name, and PyTorch's."""
    indices, values, size = SHAPES[name]
    array = np.array(values).astype(dtype)
    if dtype.startswith("complex"):
        array = array * (1 + 0.5j)
    places = np.array(indices, np.int64).reshape(len(indices), -1)
    a = ad.sparse_coo_tensor(ad.tensor(places), ad.tensor(array), size)
    b = torch.sparse_coo_tensor(torch.tensor(places), torch.tensor(array), size)
    if merged:
        a, b = a.coalesce(), b.coalesce()
    if grad:
        a, b = a.requires_grad_(), b.requires_grad_()
    return a, b


def matrix(dtype: str = "float64", grad: bool = False) -> Any:
    """A CSR matrix, and PyTorch's."""
    a, b = pair("ordered", dtype, merged=True)
    a, b = a.to_sparse_csr(), b.to_sparse_csr()
    return (a.requires_grad_(), b.requires_grad_()) if grad else (a, b)


def dense_pair(*shape: int, dtype: str = "float64", grad: bool = False) -> Any:
    """A dense tensor, and PyTorch's."""
    array = np.random.default_rng(3).standard_normal(shape).astype(dtype)
    if dtype == "int64":
        array = np.arange(array.size).reshape(shape)
    a, b = ad.tensor(array), torch.tensor(array)
    return (a.requires_grad_(), b.requires_grad_()) if grad else (a, b)


def assert_same(a: Any, b: Any, layout: bool = True) -> None:
    """`a` has the layout, dtype, shape and elements of PyTorch's `b`."""
    if layout:
        assert str(a.layout).partition(".")[2] == str(b.layout).partition(".")[2], (a, b)
    assert tuple(a.shape) == tuple(b.shape)
    assert str(a.dtype).partition(".")[2] == str(b.dtype).partition(".")[2]
    full = a.detach().to_dense().numpy()
    np.testing.assert_allclose(full, b.detach().to_dense().numpy(), rtol=1e-6, atol=1e-9)
