"""The components of a sparse tensor: indices, values, rows, numbers of dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.argument_errors import assert_tensor
from ...core.errors import InvalidArgument, LayoutError
from ...core.tensor_type import Tensor
from ...runtime.node import Version
from ...runtime.public import explaining
from ...runtime.tensors import wrap
from ..create.conversion import Sparse, sparse_coo, sparse_csc, sparse_csr, strided
from .entries import build, entries, is_sparse, merged
from .pattern import Pattern


def _coordinates(name: str, x: Any) -> Any:
    """The data of a tensor of layout sparse_coo."""
    assert_tensor(name, x)
    found = x._data.kept if is_sparse(x) else strided
    if found is not sparse_coo:
        raise LayoutError(
            f"{name}: expected sparse coordinate tensor layout but got {found.name}; use "
            "to_sparse() first"
        )
    return x._data


@explaining
def coalesce(self: Tensor) -> Tensor:
    """The tensor with the values of one place added up, in the order of the places; itself, where
    it is so.

    Errors: LayoutError for other layouts than sparse_coo.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.coalesce.html

    >>> ad.sparse_coo_tensor([[1, 0, 1]], [1., 2., 3.]).coalesce()
    tensor(indices=tensor([[0, 1]]),
           values=tensor([2., 4.]),
           size=(2,), nnz=2, layout=adjoint.sparse_coo)
    """
    data = _coordinates("coalesce", self)
    if data.pattern.is_merged:
        return self
    if data.pattern.count < 2:
        pattern = Pattern(data.pattern.indices, data.shape, True)
        return build(pattern, entries(self).clone())  # type: ignore[no-any-return]
    return merged(self)  # type: ignore[no-any-return]


@explaining
def is_coalesced(self: Tensor) -> bool:
    """Whether no place occurs twice, and they are in order, as `coalesce` leaves them.

    Errors: LayoutError for other layouts than sparse_coo.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.is_coalesced.html

    >>> ad.eye(2).to_sparse().is_coalesced()
    True
    """
    return bool(_coordinates("is_coalesced", self).pattern.is_merged)


@explaining
def _coalesced_(self: Tensor, coalesced: bool) -> Tensor:
    """Say in place that the values are coalesced, or that they are not.

    Errors: InvalidArgument where they are not; LayoutError for other layouts than sparse_coo.
    """
    data = _coordinates("_coalesced_", self)
    pattern = data.pattern
    if coalesced and not bool((np.diff(pattern.keys) > 0).all()):
        raise InvalidArgument(
            "_coalesced_: the indices are not in order, or not distinct; call coalesce()"
        )
    found = Pattern(pattern.indices, pattern.shape, bool(coalesced))
    found.is_merged = bool(coalesced)
    self._data = Sparse(found, data.values)
    return self


def _assert_merged(what: str, data: Any) -> None:
    if not data.pattern.is_merged:
        raise LayoutError(
            f"{what}: Cannot get {what} on an uncoalesced tensor, please call .coalesce() first, "
            f"or read _{what}()"
        )


@explaining
def indices(self: Tensor) -> Tensor:
    """The places of the values: (sparse dimensions, values). They cannot be written to.

    Errors: LayoutError for other layouts, and before `coalesce`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.indices.html

    >>> ad.eye(2).to_sparse().indices()
    tensor([[0, 1],
            [0, 1]])
    """
    data = _coordinates("indices", self)
    _assert_merged("indices", data)
    return wrap(data.pattern.indices)  # type: ignore[no-any-return]


@explaining
def _indices(self: Tensor) -> Tensor:
    """The places of the values, before `coalesce`, too."""
    return wrap(_coordinates("_indices", self).pattern.indices)  # type: ignore[no-any-return]


@explaining
def values(self: Tensor) -> Tensor:
    """The values, in the order of their places; gradients flow through them. They show the tensor's
    memory, and cannot be written to.

    Errors: LayoutError for dense tensors, and before `coalesce`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.values.html

    >>> ad.tensor([0., 2., 3.]).to_sparse().values()
    tensor([2., 3.])
    """
    if not is_sparse(self) or self._data.kept is sparse_coo:
        _assert_merged("values", _coordinates("values", self))
    found = entries(self)
    found._data = found._data.view()
    found._data.flags.writeable = False
    return found  # type: ignore[no-any-return]


@explaining
def _values(self: Tensor) -> Tensor:
    """The values without history, before `coalesce`, too; what is written there, the tensor has."""
    data = _coordinates("_values", self)
    if self._changes is None:
        self._changes = Version()
    return wrap(data.values, None, self._changes)  # type: ignore[no-any-return]


@explaining
def _nnz(self: Tensor) -> int:
    """Number of values."""
    if not is_sparse(self):
        raise _not_sparse("_nnz", self)
    return int(self._data.pattern.count)


def _not_sparse(name: str, x: Any) -> LayoutError:
    assert_tensor(name, x)
    return LayoutError(f"{name}: is for sparse tensors, got a dense one; use to_sparse() first")


@explaining
def sparse_dim(self: Tensor) -> int:
    """Number of sparse dimensions; 0 for dense tensors.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.sparse_dim.html

    >>> ad.ones(2, 3).to_sparse(1).sparse_dim()
    1
    """
    return int(self._data.pattern.sparse_dim) if is_sparse(self) else 0


@explaining
def dense_dim(self: Tensor) -> int:
    """Number of dense dimensions: those behind the sparse ones.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.dense_dim.html

    >>> ad.ones(2, 3).to_sparse(1).dense_dim()
    1
    """
    return self.ndim - sparse_dim(self)


def _rows(name: str, x: Any, kept: Any = sparse_csr) -> Pattern:
    if not is_sparse(x) or x._data.kept is not kept:
        found = x._data.kept.name if is_sparse(x) else "strided"
        line = "row" if kept is sparse_csr else "column"
        raise LayoutError(
            f"{name}: expected sparse {line} compressed tensor layout but got {found}; use "
            f"to_{kept.name}() first"
        )
    return x._data.pattern  # type: ignore[no-any-return]


@explaining
def crow_indices(self: Tensor) -> Tensor:
    """Offsets at which the values of each row begin, and end.

    Errors: LayoutError for other layouts than sparse_csr.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.crow_indices.html

    >>> ad.eye(2).to_sparse_csr().crow_indices()
    tensor([0, 1, 2])
    """
    return wrap(_rows("crow_indices", self).crow.copy())  # type: ignore[no-any-return]


@explaining
def col_indices(self: Tensor) -> Tensor:
    """The column of each value.

    Errors: LayoutError for other layouts than sparse_csr.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.col_indices.html

    >>> ad.eye(2).to_sparse_csr().col_indices()
    tensor([0, 1])
    """
    pattern = _rows("col_indices", self)
    return wrap(pattern.indices[1].astype(pattern.crow.dtype))  # type: ignore[no-any-return]


@explaining
def ccol_indices(self: Tensor) -> Tensor:
    """Offsets at which the values of each column begin, and end.

    Errors: LayoutError for other layouts than sparse_csc.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.ccol_indices.html

    >>> ad.eye(2).to_sparse_csc().ccol_indices()
    tensor([0, 1, 2])
    """
    found: Tensor = wrap(_rows("ccol_indices", self, sparse_csc).crow.copy())
    return found


@explaining
def row_indices(self: Tensor) -> Tensor:
    """The row of each value.

    Errors: LayoutError for other layouts than sparse_csc.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.row_indices.html

    >>> ad.eye(2).to_sparse_csc().row_indices()
    tensor([0, 1])
    """
    pattern = _rows("row_indices", self, sparse_csc)
    found: Tensor = wrap(pattern.indices[0].astype(pattern.crow.dtype))
    return found
