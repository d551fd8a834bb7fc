"""Public functions of sparse tensors: conversions, and what optimizers and embeddings ask of them;
those of `construction`, `components` and `sparse_algebra` are named here, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import InvalidArgument, LayoutError, ShapeError
from ...core.mode import MODE
from ...core.op import Op
from ...core.tensor_type import Tensor
from ...runtime.public import explaining
from ...runtime.record import parents_of, record
from ...runtime.tensors import wrap
from ..create.conversion import sparse_coo, sparse_csc, sparse_csr
from ..index.indexing import rows_at
from .components import _coalesced_, _indices, _nnz, _not_sparse, _values
from .components import ccol_indices as ccol_indices
from .components import coalesce as coalesce
from .components import col_indices as col_indices
from .components import crow_indices as crow_indices
from .components import dense_dim as dense_dim
from .components import indices as indices
from .components import is_coalesced as is_coalesced
from .components import row_indices as row_indices
from .components import sparse_dim as sparse_dim
from .components import values as values
from .construction import _refuse_layout, _refusing
from .construction import sparse_bsc_tensor as sparse_bsc_tensor
from .construction import sparse_bsr_tensor as sparse_bsr_tensor
from .construction import sparse_compressed_tensor as sparse_compressed_tensor
from .construction import sparse_coo_tensor as sparse_coo_tensor
from .construction import sparse_csc_tensor as sparse_csc_tensor
from .construction import sparse_csr_tensor as sparse_csr_tensor
from .entries import array_of, assert_eager, build, dense, entries, is_sparse, merged, sample
from .pattern import Pattern, index
from .sparse_algebra import addmm as addmm
from .sparse_algebra import log_softmax as log_softmax
from .sparse_algebra import mm as mm
from .sparse_algebra import sampled_addmm as sampled_addmm
from .sparse_algebra import softmax as softmax
from .sparse_algebra import sum as sum

if TYPE_CHECKING:
    from ...ops.argument_types import DTypeLike, Layout

# ---- conversions ---------------------------------------------------------------------------------


@explaining
def to_sparse(
    self: Tensor,
    sparse_dim: int | None = None,
    *,
    layout: Layout | None = None,
    blocksize: Any = None,
    dense_dim: int | None = None,
) -> Tensor:
    """The tensor as a sparse one, whose first `sparse_dim` dimensions (all unless given) are
    sparse; of `layout` sparse_coo, unless sparse_csr or sparse_csc is asked for.

    Errors: InvalidArgument for a number of dimensions that it has not; LayoutError for a layout
    that is not here.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.to_sparse.html

    >>> ad.tensor([[0., 2.], [0., 0.]]).to_sparse()
    tensor(indices=tensor([[0],
                           [1]]),
           values=tensor([2.]),
           size=(2, 2), nnz=1, layout=adjoint.sparse_coo)
    """
    if layout is sparse_csr:
        return to_sparse_csr(self, dense_dim)
    if layout is sparse_csc:
        return to_sparse_csc(self, dense_dim)
    if layout not in (None, sparse_coo) or blocksize is not None:
        _refuse_layout("to_sparse", layout)
    ndim = self.ndim
    n = ndim - (dense_dim or 0) if sparse_dim is None else sparse_dim
    if sparse_dim is None and dense_dim is None and is_sparse(self):
        n = self._data.pattern.sparse_dim
    if not (isinstance(n, int) and n <= ndim and (n > 0 or (n == 0 == ndim))):
        raise InvalidArgument(
            f"to_sparse: sparse_dim must be from 1 to {ndim}, the number of dimensions, got {n}"
        )
    if is_sparse(self):
        pattern: Pattern = self._data.pattern
        if n != pattern.sparse_dim:
            raise LayoutError(
                f"to_sparse: a sparse tensor keeps its {pattern.sparse_dim} sparse dimensions, got "
                f"{n}; use to_dense() first"
            )
        if pattern.layout is sparse_coo:
            return self
        return build(pattern.as_coordinates(), entries(self).clone())  # type: ignore[no-any-return]
    assert_eager("to_sparse")
    array = array_of("to_sparse", self)
    filled = array.astype(np.float32) != 0 if array.dtype.kind == "V" else array != 0
    if n < ndim:
        filled = filled.any(axis=tuple(range(n, ndim)))
    pattern = Pattern(np.stack(np.nonzero(filled)) if n else np.zeros((0, int(filled)), np.int64),
                      tuple(array.shape), True)  # fmt: skip
    return build(pattern, sample(self, pattern))  # type: ignore[no-any-return]


@explaining
def to_sparse_coo(self: Tensor) -> Tensor:
    """The tensor as a sparse one of layout sparse_coo.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.to_sparse_coo.html

    >>> ad.eye(2).to_sparse_csr().to_sparse_coo().layout
    adjoint.sparse_coo
    """
    return to_sparse(self)


@explaining
def to_sparse_csr(self: Tensor, dense_dim: int | None = None) -> Tensor:
    """The matrix as a sparse tensor of layout sparse_csr.

    Shapes: two dimensions, and `dense_dim` dense ones behind them.
    Errors: LayoutError for others.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.to_sparse_csr.html

    >>> ad.tensor([[0., 2.], [3., 0.]]).to_sparse_csr()
    tensor(crow_indices=tensor([0, 1, 2]),
           col_indices=tensor([1, 0]),
           values=tensor([2., 3.]), size=(2, 2), nnz=2, layout=adjoint.sparse_csr)
    """
    x: Tensor = _matrix("to_sparse_csr", self, dense_dim)
    if x._data.kept is not sparse_csr:
        x = merged(x)
        x = build(x._data.pattern.as_rows(), entries(x).clone())
    return x


@explaining
def to_sparse_csc(self: Tensor, dense_dim: int | None = None) -> Tensor:
    """The matrix as a sparse tensor of layout sparse_csc.

    Shapes: two dimensions, and `dense_dim` dense ones behind them.
    Errors: LayoutError for others.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.to_sparse_csc.html

    >>> ad.tensor([[0., 2.], [3., 0.]]).to_sparse_csc()
    tensor(ccol_indices=tensor([0, 1, 2]),
           row_indices=tensor([1, 0]),
           values=tensor([3., 2.]), size=(2, 2), nnz=2, layout=adjoint.sparse_csc)
    """
    x: Tensor = _matrix("to_sparse_csc", self, dense_dim)
    if x._data.kept is not sparse_csc:
        x = merged(x)
        pattern, order = x._data.pattern.as_columns()
        x = build(pattern, entries(x).index_select(0, index(order)))
    return x


def _matrix(name: str, x: Any, dense_dim: int | None) -> Any:
    """A sparse matrix, all of whose dimensions are sparse."""
    found: Any = x if is_sparse(x) else to_sparse(x, dense_dim=dense_dim)
    pattern = found._data.pattern
    if pattern.sparse_dim != 2 or dense_dim not in (None, len(pattern.rest)):
        raise LayoutError(
            f"{name}: is for matrices (batches are not here), got shape {tuple(x.shape)} with "
            f"{pattern.sparse_dim} sparse dimensions and {len(pattern.rest)} dense ones; use "
            "to_sparse(), or dense_dim="
        )
    return found


to_sparse_bsr = _refusing("to_sparse_bsr", "sparse_bsr")
to_sparse_bsc = _refusing("to_sparse_bsc", "sparse_bsc")


@explaining
def to_dense(
    self: Tensor, dtype: DTypeLike | None = None, *, masked_grad: bool | None = None
) -> Tensor:
    """The tensor with all its elements; itself, where it has them already. The gradient of a sparse
    tensor has its places alone.

    Errors: LayoutError for `masked_grad=False`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.to_dense.html

    >>> ad.sparse_coo_tensor([[0, 1], [2, 0]], [3., 4.], (2, 3)).to_dense()
    tensor([[0., 0., 3.],
            [4., 0., 0.]])
    """
    if is_sparse(self):
        if masked_grad is False:
            raise LayoutError(
                "to_dense: masked_grad=False, a gradient outside of the places that the tensor "
                "has, is not here; leave it out"
            )
        self = dense(self)
    return self if dtype is None else self.to(dtype)  # type: ignore[attr-defined,no-any-return]


for _function in (to_sparse_bsr, to_sparse_bsc):
    _function.__module__ = __name__  # where pickles find them


@explaining
def sparse_mask(self: Tensor, mask: Tensor) -> Tensor:
    """Elements of this tensor at the places of a sparse one, as a sparse tensor.

    Shapes: both of one shape.
    Errors: LayoutError where `mask` is dense; ShapeError where the shapes differ.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.sparse_mask.html

    >>> ad.ones(2, 2).sparse_mask(ad.eye(2).to_sparse()).to_dense()
    tensor([[1., 0.],
            [0., 1.]])
    """
    if not is_sparse(mask):
        raise _not_sparse("sparse_mask", mask)
    if self.shape != mask.shape:
        raise ShapeError(
            f"sparse_mask: the tensor's shape {tuple(self.shape)} and the mask's "
            f"{tuple(mask.shape)} differ"
        )
    found = sample(self, mask._data.pattern)
    if is_sparse(self) and found._data is self._data.values:
        found = found.clone()
    return build(mask._data.pattern, found)  # type: ignore[no-any-return]


METHODS = {
    f.__name__: f
    for f in (
        to_sparse, to_sparse_coo, to_sparse_csr, to_sparse_csc, to_sparse_bsr, to_sparse_bsc,
        to_dense, coalesce, is_coalesced, indices, _indices, values, _values, _nnz, sparse_dim,
        dense_dim, crow_indices, col_indices, ccol_indices, row_indices, sparse_mask, _coalesced_,
    )
}  # fmt: skip


# ---- what optimizers do with sparse gradients ----------------------------------------------------


def read_at(x: Any, g: Any) -> Any:
    """The elements of a dense tensor at the places of `g`."""
    return x[_at(g)]


def add_at(x: Any, g: Any, factor: float, values: Any = None) -> None:
    """Add the entries of `g`, or other `values` at its places, times `factor` to a dense tensor, in
    place: what is written is as much as there are of them.
    """
    values = entries(g) if values is None else values
    x.index_put_(_at(g), values if factor == 1 else values * factor, accumulate=True)


def _at(g: Any) -> Any:
    return tuple(wrap(row) for row in g._data.pattern.indices)


# ---- embeddings ----------------------------------------------------------------------------------


class Rows(Op, abstract=True):
    """The rows of a matrix at some indices, with a sparse gradient."""

    def __init__(self, places: Any, shape: tuple[int, ...], padding: int | None) -> None:
        self.places = places
        self.shape = shape
        self.padding = padding

    def gradient(self, g: Any) -> tuple[Any, ...]:
        """The rows of `g` at these indices, one entry for each, but for those of the padding."""
        places = self.places
        rows = g.reshape((len(places), *self.shape[1:]))
        if self.padding is not None:
            kept = np.flatnonzero(places != self.padding)
            if len(kept) < len(places):
                places, rows = places[kept], rows.index_select(0, index(kept))
        pattern = Pattern(places[None], self.shape)
        pattern.is_merged = False
        return (build(pattern, rows if rows is not g else rows.clone()),)


def rows_sparsely(weight: Any, places: Any, padding: int | None = None) -> Any:
    """The rows of `weight` at indices of any shape; its gradient is sparse."""
    name = "embedding(sparse=True)"
    assert_eager(name)
    array_of(name, weight)
    taken = array_of(name, places).reshape(-1).astype(np.int64)
    y = rows_at(weight.detach(), places)
    mode = MODE.get()
    if mode.grad and weight._node is not None:
        op = Rows(taken, tuple(weight.shape), padding)
        y._node = record(op, (weight,), parents_of((weight,)), y, mode)
    return y
