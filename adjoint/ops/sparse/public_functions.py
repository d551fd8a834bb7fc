"""What users call: how sparse tensors are made and read, and the functions of `adjoint.sparse`."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from ...core.device import CPU, as_device
from ...core.errors import DTypeError, InvalidArgument, LayoutError, ShapeError
from ...core.mistakes import assert_tensor
from ...core.mode import MODE
from ...core.op import Op
from ...core.spec import normalize_axis
from ...core.tensor_base import TensorBase
from ...core.types import Tensor
from ...eager.public import explaining
from ...eager.record import parents_of, record
from ...eager.tensors import wrap
from ...graph.node import Version
from ..create.conversion import refused, sparse_coo, sparse_csr, strided
from ..create.creation import tensor
from ..index.indexing import rows_at
from ..nn.softmax import log_softmax as dense_log_softmax
from ..nn.softmax import softmax as dense_softmax
from .entries import added, array_of, assert_eager, build, dense, entries, is_sparse, merged, sample
from .pattern import Pattern, assert_inside, index, numbered
from .products import product, reduced_product, sampled_product
from .rules import with_entries

# ---- made from parts -----------------------------------------------------------------------------


@explaining
def sparse_coo_tensor(
    indices: Any,
    values: Any = None,
    size: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
) -> Tensor:
    """The sparse tensor (COO) that has `values` at `indices`, and zeros elsewhere; values of one
    place add up. With a size alone it has none.

    It has memory of its own; gradients flow to `values`. Indices are always checked.

    Shapes: `indices` (sparse dimensions, entries), `values` (entries, dense dimensions ...); `size`
    is the smallest that holds them unless given.
    Errors: InvalidArgument for an index out of range; ShapeError where the shapes do not fit.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.sparse_coo_tensor.html

    >>> ad.sparse_coo_tensor([[0, 1], [2, 0]], [3., 4.], (2, 3))
    tensor(indices=tensor([[0, 1],
                           [2, 0]]),
           values=tensor([3., 4.]),
           size=(2, 3), nnz=2, layout=adjoint.sparse_coo)
    """
    name = "sparse_coo_tensor"
    _assert_host(name, device)
    if values is None:
        size = indices if size is None else size
        indices = np.zeros((len(size), 0), np.int64)
        values = tensor([], dtype=dtype)
    found = _indices_of(name, indices)
    given = _values_of(values, dtype)
    if found.ndim != 2:
        raise ShapeError(
            f"{name}: indices must be sparse_dim x nnz, but got shape {tuple(found.shape)}"
        )
    count = found.shape[1]
    if not given.ndim:
        given = given.expand(count)
    if given.shape[0] != count:
        raise ShapeError(
            f"{name}: indices and values must have same nnz, but got nnz from indices: {count}, "
            f"nnz from values: {given.shape[0]}"
        )
    rest = tuple(given.shape[1:])
    if size is None:
        lead = tuple(int(row.max()) + 1 if count else 0 for row in found)
        size = (*lead, *rest)
    size = tuple(int(n) for n in size)
    n = len(found)
    if len(size) != n + len(rest) or size[n:] != rest:
        raise ShapeError(
            f"{name}: size {size} does not fit indices of {n} dimensions and values of shape "
            f"{tuple(given.shape)}: it begins with the {n} sparse sizes, and ends with {rest}"
        )
    assert_inside(name, found, size[:n])
    pattern = Pattern(found, size)
    if is_coalesced and not pattern.is_merged:
        if not bool((np.diff(pattern.keys) > 0).all()):
            raise InvalidArgument(
                f"{name}: is_coalesced=True, but the indices are not in order, or not distinct; "
                "leave it out, and call coalesce()"
            )
        pattern = Pattern(found, size, True)
    elif is_coalesced is None or not is_coalesced:
        pattern.is_merged = not count  # as PyTorch has it, whatever the indices
    return _made(pattern, given.clone(), requires_grad)


@explaining
def sparse_csr_tensor(
    crow_indices: Any,
    col_indices: Any,
    values: Any,
    size: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Tensor:
    """The sparse matrix (CSR) with `values` in the columns `col_indices`, row by row: those of row
    i are number crow_indices[i] to crow_indices[i + 1].

    It has memory of its own; gradients flow to `values`. Indices are always checked: columns grow
    within a row.

    Shapes: `crow_indices` (rows + 1,), `col_indices` and `values` (entries,).
    Errors: InvalidArgument for indices that are none of such a matrix; ShapeError for other shapes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.sparse_csr_tensor.html

    >>> ad.sparse_csr_tensor([0, 1, 2], [2, 0], [3., 4.], (2, 3)).to_dense()
    tensor([[0., 0., 3.],
            [4., 0., 0.]])
    """
    name = "sparse_csr_tensor"
    _assert_host(name, device)
    kind = _index_dtype(crow_indices, col_indices)
    crow, columns = _indices_of(name, crow_indices), _indices_of(name, col_indices)
    given = _values_of(values, dtype)
    if crow.ndim != 1 or columns.ndim != 1 or given.ndim != 1 or not len(crow):
        raise ShapeError(
            f"{name}: crow_indices {crow.shape}, col_indices {columns.shape} and values "
            f"{tuple(given.shape)} must have one dimension each (batches and dense dimensions are "
            "not here), crow_indices at least one element"
        )
    if size is None:
        size = (len(crow) - 1, int(columns.max()) + 1 if len(columns) else 0)
    size = tuple(int(n) for n in size)
    if len(size) != 2 or len(crow) != size[0] + 1 or len(columns) != given.shape[0]:
        raise ShapeError(
            f"{name}: a matrix of size {size} has rows + 1 crow_indices, and as many values as "
            f"col_indices; got {len(crow)}, {given.shape[0]} and {len(columns)}"
        )
    counts = np.diff(crow)
    if crow[0] != 0 or crow[-1] != len(columns) or bool((counts < 0).any()):
        raise InvalidArgument(
            f"{name}: crow_indices must begin with 0, never fall, and end with the number of "
            f"entries, {len(columns)}"
        )
    rows = np.repeat(np.arange(size[0]), counts)
    assert_inside(name, columns[None], size[1:])
    indices = np.stack([rows, columns])
    if not bool((np.diff(numbered(indices, size)) > 0).all()):
        raise InvalidArgument(
            f"{name}: col_indices must be sorted and distinct in each row; use sparse_coo_tensor, "
            "coalesce() and to_sparse_csr()"
        )
    pattern = Pattern(indices, size, True, sparse_csr, crow.astype(kind))
    return _made(pattern, given.clone(), requires_grad)


@explaining
def sparse_compressed_tensor(
    compressed_indices: Any,
    plain_indices: Any,
    values: Any,
    size: Any = None,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Tensor:
    """`sparse_csr_tensor`; `layout` must be that one.

    Errors: LayoutError for another layout.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.sparse_compressed_tensor.html

    >>> ad.sparse_compressed_tensor([0, 1], [0], [2.], layout=ad.sparse_csr).to_dense()
    tensor([[2.]])
    """
    if layout is not sparse_csr:
        _refuse_layout("sparse_compressed_tensor", layout)
    return sparse_csr_tensor(
        compressed_indices, plain_indices, values, size, dtype=dtype, device=device,
        requires_grad=requires_grad,
    )  # fmt: skip


def _made(pattern: Pattern, values: Any, requires_grad: bool) -> Any:
    y = build(pattern, values)
    return y.detach().requires_grad_() if requires_grad else y


def _assert_host(name: str, device: Any) -> None:
    if device is not None and as_device(device) is not CPU:
        raise LayoutError(f"{name}: sparse tensors are of the host's memory alone; device='cpu'")


def _values_of(values: Any, dtype: Any) -> Any:
    if isinstance(values, TensorBase):
        return values if dtype is None else values.to(dtype)  # type: ignore[attr-defined]
    return tensor(values, dtype=dtype)


def _index_dtype(*given: Any) -> Any:
    narrow = [x for x in given if str(getattr(x, "dtype", "")).endswith("int32")]
    return np.int32 if len(narrow) == len(given) else np.int64


def _indices_of(name: str, given: Any) -> Any:
    """Indices as an int64 array of their own."""
    assert_eager(name)
    if is_sparse(given):
        raise refused(name, given._data, "takes dense indices")
    array = array_of(name, given) if isinstance(given, TensorBase) else np.asarray(given)
    whole = array.dtype.kind in "iu" or not array.size
    if not whole and not (array.dtype.kind == "f" and bool((array == np.floor(array)).all())):
        raise DTypeError(f"{name}: indices must be integers, got {array.dtype}; use .long()")
    return array.astype(np.int64)


def _refuse_layout(name: str, layout: Any) -> NoReturn:
    raise LayoutError(
        f"{name}: no tensors of layout {getattr(layout, 'name', layout)} are here; "
        "sparse_coo and sparse_csr are"
    )


def _refusing(name: str, layout: str) -> Any:
    def function(*args: Any, **kwargs: Any) -> NoReturn:
        _refuse_layout(name, layout)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"Refused: no tensors of layout {layout} are here; sparse_coo and sparse_csr are.\n\n"
        "    Errors: LayoutError.\n"
        f"    Source: https://docs.pytorch.org/docs/stable/sparse.html\n"
    )
    return function


sparse_csc_tensor = _refusing("sparse_csc_tensor", "sparse_csc")
sparse_bsr_tensor = _refusing("sparse_bsr_tensor", "sparse_bsr")
sparse_bsc_tensor = _refusing("sparse_bsc_tensor", "sparse_bsc")


# ---- methods -------------------------------------------------------------------------------------


@explaining
def to_sparse(
    self: Tensor,
    sparse_dim: int | None = None,
    *,
    layout: Any = None,
    blocksize: Any = None,
    dense_dim: int | None = None,
) -> Tensor:
    """The same as a sparse tensor, whose first `sparse_dim` dimensions (all unless given) are
    sparse; of `layout` sparse_coo, unless sparse_csr is asked for.

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
    if layout not in (None, sparse_coo) or blocksize is not None:
        _refuse_layout("to_sparse", layout)
    ndim = self.ndim
    n = ndim - (dense_dim or 0) if sparse_dim is None else sparse_dim
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
    """The same as a sparse tensor of layout sparse_coo.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.to_sparse_coo.html

    >>> ad.eye(2).to_sparse_csr().to_sparse_coo().layout
    adjoint.sparse_coo
    """
    return to_sparse(self)


@explaining
def to_sparse_csr(self: Tensor, dense_dim: int | None = None) -> Tensor:
    """The same matrix as a sparse tensor of layout sparse_csr.

    Shapes: two dimensions.
    Errors: LayoutError for others.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.to_sparse_csr.html

    >>> ad.tensor([[0., 2.], [3., 0.]]).to_sparse_csr()
    tensor(crow_indices=tensor([0, 1, 2]),
           col_indices=tensor([1, 0]),
           values=tensor([2., 3.]), size=(2, 2), nnz=2, layout=adjoint.sparse_csr)
    """
    x: Any = self if is_sparse(self) else to_sparse(self)
    pattern = x._data.pattern
    if pattern.layout is sparse_csr:
        return x  # type: ignore[no-any-return]
    if pattern.sparse_dim != 2 or pattern.rest or dense_dim:
        raise LayoutError(
            f"to_sparse_csr: is for matrices (batches and dense dimensions are not here), got "
            f"shape {tuple(x.shape)} with {pattern.sparse_dim} sparse dimensions; use to_sparse()"
        )
    x = merged(x)
    return build(x._data.pattern.as_rows(), entries(x).clone())  # type: ignore[no-any-return]


to_sparse_csc = _refusing("to_sparse_csc", "sparse_csc")
to_sparse_bsr = _refusing("to_sparse_bsr", "sparse_bsr")
to_sparse_bsc = _refusing("to_sparse_bsc", "sparse_bsc")


@explaining
def to_dense(self: Tensor, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
    """The same with all its elements; itself, where it has them already. The gradient of a sparse
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
    """The same with the values of one place added up, in the order of the places; itself, where it
    is so.

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
    """How many values there are."""
    if not is_sparse(self):
        raise _not_sparse("_nnz", self)
    return int(self._data.pattern.count)


def _not_sparse(name: str, x: Any) -> LayoutError:
    assert_tensor(name, x)
    return LayoutError(f"{name}: is for sparse tensors, got a dense one; use to_sparse() first")


@explaining
def sparse_dim(self: Tensor) -> int:
    """How many dimensions are sparse; 0 for dense tensors.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.sparse_dim.html

    >>> ad.ones(2, 3).to_sparse(1).sparse_dim()
    1
    """
    return int(self._data.pattern.sparse_dim) if is_sparse(self) else 0


@explaining
def dense_dim(self: Tensor) -> int:
    """How many dimensions are dense: those behind the sparse ones.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.dense_dim.html

    >>> ad.ones(2, 3).to_sparse(1).dense_dim()
    1
    """
    return self.ndim - sparse_dim(self)


def _rows(name: str, x: Any) -> Pattern:
    if not is_sparse(x) or x._data.kept is not sparse_csr:
        found = x._data.kept.name if is_sparse(x) else "strided"
        raise LayoutError(
            f"{name}: expected sparse row compressed tensor layout but got {found}; use "
            "to_sparse_csr() first"
        )
    return x._data.pattern  # type: ignore[no-any-return]


@explaining
def crow_indices(self: Tensor) -> Tensor:
    """Where the values of each row begin, and end.

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


ccol_indices = _refusing("ccol_indices", "sparse_csc")
row_indices = _refusing("row_indices", "sparse_csc")


@explaining
def sparse_mask(self: Tensor, mask: Tensor) -> Tensor:
    """What this tensor has at the places of a sparse one, as a sparse tensor.

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
        dense_dim, crow_indices, col_indices, ccol_indices, row_indices, sparse_mask,
    )
}  # fmt: skip


# ---- adjoint.sparse ------------------------------------------------------------------------------


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
                f"sparse.mm: reduce is one of {', '.join(_REDUCTIONS)}; got {reduce!r}"
            )
        _rows("sparse.mm(reduce)", sparse)
        if is_sparse(dense):
            raise refused("sparse.mm(reduce)", dense._data, "takes a dense matrix as its second")
        return reduced_product("sparse.mm(reduce)", sparse, dense, reduce)  # type: ignore[no-any-return]
    if not is_sparse(sparse) and not is_sparse(dense):
        return sparse.mm(dense)  # type: ignore[attr-defined,no-any-return]
    assert_eager("sparse.mm")
    return product("sparse.mm", sparse, dense)  # type: ignore[no-any-return]


_REDUCTIONS = "sum", "mean", "amax", "amin"


@explaining
def sampled_addmm(
    input: Tensor,
    mat1: Tensor,
    mat2: Tensor,
    *,
    beta: Any = 1.0,
    alpha: Any = 1.0,
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
def addmm(mat: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1.0, alpha: Any = 1.0) -> Tensor:
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
def sum(input: Tensor, dim: Any = None, dtype: Any = None) -> Tensor:
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
def softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """softmax over the values along `dim`; places without one count as minus infinity.

    Errors: LayoutError for other layouts than sparse_coo.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.sparse.softmax.html

    >>> ad.sparse.softmax(ad.tensor([[1., 1.], [0., 1.]]).to_sparse(), 1).to_dense()
    tensor([[0.5000, 0.5000],
            [0.0000, 1.0000]])
    """
    return _softmax("sparse.softmax", input, dim, dtype, False)


@explaining
def log_softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
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
