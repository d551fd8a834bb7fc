"""Algebra of sparse tensors: products, sums, softmax along rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.argument_errors import assert_tensor
from ...core.errors import DTypeError, InvalidArgument
from ...core.spec import normalize_axis
from ...core.tensor_type import Tensor
from ...runtime.public import explaining
from ...runtime.tensors import wrap
from ..create.conversion import refused
from ..nn.softmax import log_softmax as dense_log_softmax
from ..nn.softmax import softmax as dense_softmax
from .components import _coordinates, _not_sparse, _rows
from .entries import added, assert_eager, build, entries, is_sparse, merged
from .pattern import index, numbered
from .products import product, reduced_product, sampled_product
from .rules import with_entries

if TYPE_CHECKING:
    from ...ops.argument_types import Dims, DTypeLike, Number


@explaining
def mm(sparse: Tensor, dense: Tensor, reduce: str | None = None) -> Tensor:
    """The product of two matrices, one or both of which are sparse; a sparse operand's gradient has
    its places.

    `reduce`: how the products of a CSR matrix's entries with a dense matrix's rows are put
    together: "sum", "mean", "amax" or "amin", 0 for a row without entries. Of equal ones the first
    gets the gradient.

    Shapes: (n, k) and (k, m) give (n, m): dense, unless both are sparse.
    Errors: ShapeError for other shapes; DTypeError where the dtypes differ; InvalidArgument for
    another `reduce`, LayoutError for one with other layouts.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.sparse.mm.html

    >>> ad.sparse.mm(ad.eye(2).to_sparse(), ad.tensor([[1., 2.], [3., 4.]]))
    tensor([[1., 2.],
            [3., 4.]])
    """
    assert_tensor("sparse.mm", sparse)
    assert_tensor("sparse.mm", dense, "mat2")
    if reduce is not None:
        if reduce not in _REDUCTIONS:
            raise InvalidArgument(
                f"sparse.mm: reduce is one of sum, mean, amax, amin; got {reduce!r}"
            )
        _rows("sparse.mm(reduce)", sparse)
        if is_sparse(dense):
            raise refused("sparse.mm(reduce)", dense._data, "takes a dense matrix as its second")
        how = _REDUCTIONS[reduce]
        return reduced_product("sparse.mm(reduce)", sparse, dense, how)  # type: ignore[no-any-return]
    if not is_sparse(sparse) and not is_sparse(dense):
        return sparse.mm(dense)  # type: ignore[attr-defined,no-any-return]
    assert_eager("sparse.mm")
    return product("sparse.mm", sparse, dense)  # type: ignore[no-any-return]


_REDUCTIONS = {"sum": "sum", "mean": "mean", "amax": "amax", "amin": "amin"}
_REDUCTIONS |= {"max": "amax", "min": "amin"}  # not documented, and used


@explaining
def sampled_addmm(
    input: Tensor,
    mat1: Tensor,
    mat2: Tensor,
    *,
    beta: Number = 1.0,
    alpha: Number = 1.0,
    out: Tensor | None = None,
) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2) at the places of a CSR matrix `input`, which are all
    that is computed.

    Shapes: (n, m), (n, k) and (k, m), the latter two dense.
    Errors: LayoutError for other layouts; ShapeError for other shapes; DTypeError where the dtypes
    differ.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.sparse.sampled_addmm.html

    >>> x = ad.eye(2).to_sparse_csr()
    >>> ad.sparse.sampled_addmm(x, ad.ones(2, 3), ad.ones(3, 2)).values()
    tensor([4., 4.])
    """
    name = "sparse.sampled_addmm"
    for each, what in ((input, "input"), (mat1, "mat1"), (mat2, "mat2")):
        assert_tensor(name, each, what)
    pattern = _rows(name, input)
    if not input.dtype is mat1.dtype is mat2.dtype:
        raise DTypeError(
            f"{name}: expected all to have the same dtype, but got {input.dtype}, {mat1.dtype} and "
            f"{mat2.dtype}; convert with .to()"
        )
    found = sampled_product(name, pattern, mat1, mat2) * alpha
    if beta != 0:
        found = found + entries(input) * beta
    y = build(pattern, found)
    return y if out is None else out.copy_(y)  # type: ignore[attr-defined,no-any-return]


@explaining
def addmm(
    mat: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Number = 1.0, alpha: Number = 1.0
) -> Tensor:
    """beta * mat + alpha * (mat1 @ mat2), where `mat1` is sparse.

    Shapes: (n, k) and (k, m); `mat` broadcasts to (n, m).
    Errors: those of `mm`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.sparse.addmm.html

    >>> ad.sparse.addmm(ad.ones(2, 2), ad.eye(2).to_sparse(), ad.eye(2), alpha=2.0)
    tensor([[3., 1.],
            [1., 3.]])
    """
    found: Any = mm(mat1, mat2)
    if alpha != 1:
        found = found * alpha
    return mat * beta + found if beta != 1 else mat + found  # type: ignore[no-any-return,operator]


@explaining
def sum(input: Tensor, dim: Dims | None = None, dtype: DTypeLike | None = None) -> Tensor:
    """The sum of the elements over `dim` (an int, several, or all where None): a sparse tensor as
    long as a sparse dimension is left.

    Dtypes: bools and integers sum to int64; `dtype` converts first.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.sparse.sum.html

    >>> ad.sparse.sum(ad.tensor([[0., 2.], [0., 3.]]).to_sparse(), 0).to_dense()
    tensor([0., 5.])
    """
    assert_tensor("sparse.sum", input)
    if not is_sparse(input):
        raise _not_sparse("sparse.sum", input)
    return input.sum(dim, dtype=dtype)  # type: ignore[attr-defined,no-any-return]


@explaining
def softmax(input: Tensor, dim: int, *, dtype: DTypeLike | None = None) -> Tensor:
    """softmax over the values along `dim`; places without one count as minus infinity.

    Errors: LayoutError for other layouts than sparse_coo.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.sparse.softmax.html

    >>> ad.sparse.softmax(ad.tensor([[1., 1.], [0., 1.]]).to_sparse(), 1).to_dense()
    tensor([[0.5000, 0.5000],
            [0.0000, 1.0000]])
    """
    return _softmax("sparse.softmax", input, dim, dtype, False)


@explaining
def log_softmax(input: Tensor, dim: int, *, dtype: DTypeLike | None = None) -> Tensor:
    """The logarithm of `softmax`, at the places that there are.

    Errors: LayoutError for other layouts than sparse_coo.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.sparse.log_softmax.html

    >>> ad.sparse.log_softmax(ad.tensor([[0., 1.]]).to_sparse(), 1).values()
    tensor([0.])
    """
    return _softmax("sparse.log_softmax", input, dim, dtype, True)


def _softmax(name: str, x: Any, dim: int, dtype: Any, logarithm: bool) -> Any:
    _coordinates(name, x)
    x = merged(x if dtype is None else x.to(dtype))
    if not x.dtype.is_floating_point:
        raise DTypeError(f"{name}: not implemented for {x.dtype}; convert with .float()")
    pattern = x._data.pattern
    axis, n = normalize_axis(dim, x.ndim, name), pattern.sparse_dim
    found = entries(x)
    if axis >= n:
        function = dense_log_softmax if logarithm else dense_softmax
        return with_entries(x, function(found, axis - n + 1))
    others = [i for i in range(n) if i != axis]
    keys = numbered(pattern.indices[others], tuple(pattern.lead[i] for i in others))
    groups, group = np.unique(keys, return_inverse=True)
    group = group.reshape(-1)
    top = np.full((len(groups), *pattern.rest), -np.inf)
    array = found._data
    np.maximum.at(top, group, array.astype(np.float64))
    top = np.where(np.isfinite(top), top, 0)
    largest = wrap(top).to(x.dtype).index_select(0, index(group))
    shifted = found - largest
    powers = shifted.exp()
    totals = added(powers, group, len(groups)).index_select(0, index(group))
    return with_entries(x, shifted - totals.log() if logarithm else powers / totals)
