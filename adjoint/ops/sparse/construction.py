"""Construction of sparse tensors from indices and values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from ...core.device import CPU, as_device
from ...core.errors import DTypeError, InvalidArgument, InvalidType, LayoutError, ShapeError
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...runtime.public import explaining
from ..create.conversion import refused, sparse_csc, sparse_csr
from ..create.creation import tensor
from .entries import array_of, assert_eager, build, is_sparse
from .pattern import Pattern, assert_inside, numbered

if TYPE_CHECKING:
    from ...ops.argument_types import DeviceLike, DTypeLike, Layout


@explaining
def sparse_coo_tensor(
    indices: Any = None,
    values: Any = None,
    size: tuple[int, ...] | list[int] | None = None,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
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
        if size is None:
            raise InvalidType(f"{name}: give indices and values, or a size")
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
    size: tuple[int, ...] | list[int] | None = None,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Tensor:
    """The sparse matrix (CSR) with `values` in the columns `col_indices`, row by row: those of row
    i are number crow_indices[i] to crow_indices[i + 1].

    It has memory of its own; gradients flow to `values`. Indices are always checked: columns grow
    within a row.

    Shapes: `crow_indices` (rows + 1,), `col_indices` (entries,), `values` (entries, dense
    dimensions ...).
    Errors: InvalidArgument for indices that are none of such a matrix; ShapeError for other shapes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.sparse_csr_tensor.html

    >>> ad.sparse_csr_tensor([0, 1, 2], [2, 0], [3., 4.], (2, 3)).to_dense()
    tensor([[0., 0., 3.],
            [4., 0., 0.]])
    """
    given = _values_of(values, dtype)
    pattern = _compressed("sparse_csr_tensor", crow_indices, col_indices, given, size, device)
    return _made(pattern, given.clone(), requires_grad)


@explaining
def sparse_csc_tensor(
    ccol_indices: Any,
    row_indices: Any,
    values: Any,
    size: tuple[int, ...] | list[int] | None = None,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Tensor:
    """The sparse matrix (CSC) with `values` in the rows `row_indices`, column by column: those of
    column i are number ccol_indices[i] to ccol_indices[i + 1].

    It has memory of its own; gradients flow to `values`. Indices are always checked: rows grow
    within a column.

    Shapes: `ccol_indices` (columns + 1,), `row_indices` (entries,), `values` (entries, dense
    dimensions ...).
    Errors: InvalidArgument for indices that are none of such a matrix; ShapeError for other shapes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.sparse_csc_tensor.html

    >>> ad.sparse_csc_tensor([0, 1, 2], [2, 0], [3., 4.], (3, 2)).to_dense()
    tensor([[0., 4.],
            [0., 0.],
            [3., 0.]])
    """
    given = _values_of(values, dtype)
    turned = None if size is None else (*tuple(size)[1::-1], *tuple(size)[2:])
    pattern = _compressed("sparse_csc_tensor", ccol_indices, row_indices, given, turned, device)
    return _made(pattern.transposed(), given.clone(), requires_grad)


def _compressed(name: str, begins: Any, others: Any, given: Any, size: Any, device: Any) -> Pattern:
    """The pattern of CSR; for CSC that of the transposed matrix, and errors name its parts."""
    _assert_host(name, device)
    kind = _index_dtype(begins, others)
    crow, columns = _indices_of(name, begins), _indices_of(name, others)
    by_rows = name == "sparse_csr_tensor"
    begin, other = ("crow", "col") if by_rows else ("ccol", "row")
    line, layout = ("row", "csr") if by_rows else ("column", "csc")
    if crow.ndim != 1 or columns.ndim != 1 or not given.ndim or not len(crow):
        raise ShapeError(
            f"{name}: {begin}_indices {crow.shape} and {other}_indices {columns.shape} must have "
            f"one dimension each (batches are not here), {begin}_indices at least one element, and "
            f"values {tuple(given.shape)} one at least"
        )
    rest = tuple(given.shape[1:])
    if size is None:
        size = (len(crow) - 1, int(columns.max()) + 1 if len(columns) else 0, *rest)
    size = tuple(int(n) for n in size)
    alike = size[2:] == rest and len(columns) == given.shape[0]
    if len(size) != 2 + len(rest) or len(crow) != size[0] + 1 or not alike:
        raise ShapeError(
            f"{name}: a matrix of size {size if by_rows else (*size[1::-1], *size[2:])} has "
            f"{line}s + 1 {begin}_indices, as many values as {other}_indices, and values end with "
            f"its dense sizes; got {len(crow)}, {tuple(given.shape)} and {len(columns)}"
        )
    counts = np.diff(crow)
    if crow[0] != 0 or crow[-1] != len(columns) or bool((counts < 0).any()):
        raise InvalidArgument(
            f"{name}: {begin}_indices must begin with 0, never fall, and end with the number of "
            f"entries, {len(columns)}"
        )
    rows = np.repeat(np.arange(size[0]), counts)
    assert_inside(name, columns[None], size[1:2])
    indices = np.stack([rows, columns])
    if not bool((np.diff(numbered(indices, size[:2])) > 0).all()):
        raise InvalidArgument(
            f"{name}: {other}_indices must be sorted and distinct in each {line}; use "
            f"sparse_coo_tensor, coalesce() and to_sparse_{layout}()"
        )
    return Pattern(indices, size, True, sparse_csr, crow.astype(kind))


@explaining
def sparse_compressed_tensor(
    compressed_indices: Any,
    plain_indices: Any,
    values: Any,
    size: tuple[int, ...] | list[int] | None = None,
    *,
    dtype: DTypeLike | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Tensor:
    """`sparse_csr_tensor` or `sparse_csc_tensor`, as `layout` says.

    Errors: LayoutError for another layout.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.sparse_compressed_tensor.html

    >>> ad.sparse_compressed_tensor([0, 1], [0], [2.], layout=ad.sparse_csr).to_dense()
    tensor([[2.]])
    """
    if layout not in (sparse_csr, sparse_csc):
        _refuse_layout("sparse_compressed_tensor", layout)
    make = sparse_csr_tensor if layout is sparse_csr else sparse_csc_tensor
    return make(
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
        "sparse_coo, sparse_csr and sparse_csc are"
    )


def _refusing(name: str, layout: str) -> Any:
    def function(*args: Any, **kwargs: Any) -> NoReturn:
        _refuse_layout(name, layout)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"Refused: no tensors of layout {layout} are here; sparse_coo, sparse_csr and sparse_csc "
        "are.\n\n"
        "    Errors: LayoutError.\n"
        f"    Source: https://docs.pytorch.org/docs/stable/sparse.html\n"
    )
    return function


sparse_bsr_tensor = _refusing("sparse_bsr_tensor", "sparse_bsr")
sparse_bsc_tensor = _refusing("sparse_bsc_tensor", "sparse_bsc")
