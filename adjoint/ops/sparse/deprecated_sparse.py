"""Products of sparse tensors by their older names, copies of their parts, and changes of size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import AutogradError, LayoutError, ShapeError
from ...core.tensor_type import Tensor
from ...runtime.public import explaining, with_out
from ..create.conversion import Sparse, sparse_coo
from ..shape.concatenation import cat
from .entries import build, entries, is_sparse
from .pattern import Pattern, index
from .products import product
from .public_functions import METHODS as _METHODS
from .sparse_algebra import mm

if TYPE_CHECKING:
    from ...ops.argument_types import Dims, Number

spmm = dsmm = mm


def _assert_sparse_by_dense(name: str, sparse: Any, dense: Any) -> None:
    if not is_sparse(sparse) or sparse._data.kept is not sparse_coo:
        raise LayoutError(f"{name}: the first matrix is a sparse one (COO); use to_sparse()")
    if is_sparse(dense):
        raise LayoutError(f"{name}: expected 'mat2' to be dense; use sparse.mm, or to_dense()")


@explaining
def smm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of a sparse and a dense matrix as a sparse one: all columns of the rows that have
    entries.

    Shapes: (n, k) and (k, m) give (n, m).
    Errors: LayoutError for other layouts; ShapeError for other shapes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.smm.html

    >>> ad.smm(ad.tensor([[0., 2.], [0., 0.]]).to_sparse(), ad.eye(2)).to_dense()
    tensor([[0., 2.],
            [0., 0.]])
    """
    rows, found = _filled_rows("smm", input, mat2)
    return _all_columns(rows, found, (input.shape[0], mat2.shape[1]))


def _filled_rows(name: str, sparse: Any, dense: Any) -> tuple[Any, Any]:
    """The rows that have entries, and what the product has there."""
    _assert_sparse_by_dense(name, sparse, dense)
    whole = product(name, sparse, dense)
    rows = np.unique(sparse._data.pattern.indices[0])
    return rows, whole.index_select(0, index(rows))


def _all_columns(rows: Any, found: Any, shape: tuple[int, ...]) -> Any:
    columns = np.tile(np.arange(shape[1]), len(rows))
    pattern = Pattern(np.stack([np.repeat(rows, shape[1]), columns]), shape)
    pattern.is_merged = False  # as PyTorch has it
    return build(pattern, found.reshape(-1))


@explaining
def hspmm(mat1: Tensor, mat2: Tensor) -> Tensor:
    """The product of a sparse and a dense matrix as a tensor whose rows are sparse.

    Shapes: (n, k) and (k, m) give (n, m), of which the first dimension is sparse.
    Errors: LayoutError for other layouts; ShapeError for other shapes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.hspmm.html

    >>> ad.hspmm(ad.tensor([[0., 2.], [0., 0.]]).to_sparse(), ad.eye(2))
    tensor(indices=tensor([[0]]),
           values=tensor([[0., 2.]]),
           size=(2, 2), nnz=1, layout=adjoint.sparse_coo)
    """
    rows, found = _filled_rows("hspmm", mat1, mat2)
    return build(Pattern(rows[None], (mat1.shape[0], mat2.shape[1]), True), found)  # type: ignore[no-any-return]


hsmm = hspmm


@explaining
def sspaddmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2), where `input` and `mat1` are sparse, and so the result.

    Shapes: (n, k) and (k, m); `input` (n, m).
    Errors: LayoutError for other layouts; ShapeError for other shapes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.sspaddmm.html

    >>> x = ad.eye(2).to_sparse()
    >>> ad.sspaddmm(x, x, ad.ones(2, 2)).to_dense()
    tensor([[2., 1.],
            [1., 2.]])
    """
    if not is_sparse(input) or input._data.kept is not sparse_coo:
        raise LayoutError("sspaddmm: `input` is a sparse matrix (COO); use to_sparse()")
    rows, found = _filled_rows("sspaddmm", mat1, mat2)
    shape = (mat1.shape[0], mat2.shape[1])
    if tuple(input.shape) != shape:
        raise ShapeError(
            f"sspaddmm: input has shape {tuple(input.shape)}, the product of the matrices {shape}"
        )
    added = _all_columns(rows, found, shape)
    own, new = input._data.pattern, added._data.pattern
    pattern = Pattern(np.concatenate([own.indices, new.indices], 1), shape)
    pattern.is_merged = False
    values: Any = (entries(input) * beta, entries(added) * alpha)
    return build(pattern, cat(list(values)))  # type: ignore[no-any-return]


saddmm = sspaddmm


# ---- copies of parts -----------------------------------------------------------------------------


def _copying(name: str) -> Any:
    read: Any = _METHODS[name]

    def copy(input: Tensor) -> Any:
        return read(input).clone()

    copy.__name__ = copy.__qualname__ = f"{name}_copy"
    copy.__doc__ = (
        f"A copy of `Tensor.{name}()`.\n\n    Errors: those of that method.\n"
        f"    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.{name}.html\n"
    )
    return with_out(copy)


indices_copy, values_copy = _copying("indices"), _copying("values")
crow_indices_copy, col_indices_copy = _copying("crow_indices"), _copying("col_indices")
ccol_indices_copy, row_indices_copy = _copying("ccol_indices"), _copying("row_indices")


# ---- sizes ---------------------------------------------------------------------------------------


def _resized(name: str, x: Any, size: Any, sparse_dim: int, dense_dim: int, keep: bool) -> Any:
    if not is_sparse(x) or x._data.kept is not sparse_coo:
        raise LayoutError(f"{name}: is for sparse tensors (COO); resize_ is for dense ones")
    if x._node is not None:
        raise AutogradError(f"{name}: the tensor requires grad; detach() it first")
    size = tuple(int(n) for n in size)
    if sparse_dim + dense_dim != len(size) or min(sparse_dim, dense_dim) < 0:
        raise ShapeError(
            f"{name}: number of dimensions must be sparse_dim ({sparse_dim}) + dense_dim "
            f"({dense_dim}), but got {len(size)}"
        )
    pattern, values = x._data.pattern, x._data.values
    if keep and pattern.count:
        old = (pattern.sparse_dim, len(pattern.rest))
        shrinks = any(a > b for a, b in zip(pattern.shape, size, strict=False))
        if (sparse_dim, dense_dim) != old or shrinks:
            raise ShapeError(
                f"{name}: changing the numbers of dimensions, {old}, or shrinking the sizes, "
                f"{pattern.shape}, of a sparse tensor with entries is not supported, got {size}; "
                "make another one, or call sparse_resize_and_clear_"
            )
        more = [(0, 0)] + [
            (0, new - was) for new, was in zip(size[sparse_dim:], pattern.rest, strict=True)
        ]
        values, places = np.pad(values, more), pattern.indices
    else:
        values = np.zeros((0, *size[sparse_dim:]), values.dtype)
        places = np.zeros((sparse_dim, 0), np.int64)
    merged = pattern.is_merged or not places.shape[1]
    x._data = Sparse(Pattern(places, size, merged), values)
    if x._changes is not None:
        x._changes.bump(name)
    return x


@explaining
def sparse_resize_(self: Tensor, size: Dims, sparse_dim: int, dense_dim: int) -> Tensor:
    """Give a sparse tensor another size, in place; one that has entries can grow only.

    Errors: ShapeError otherwise; LayoutError for other layouts; AutogradError where it requires
    grad.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.sparse_resize_.html

    >>> ad.eye(2).to_sparse().sparse_resize_((3, 2), 2, 0).shape
    adjoint.Size([3, 2])
    """
    return _resized("sparse_resize_", self, size, sparse_dim, dense_dim, True)


@explaining
def sparse_resize_and_clear_(self: Tensor, size: Dims, sparse_dim: int, dense_dim: int) -> Tensor:
    """Give a sparse tensor another size, in place, without its entries.

    Errors: LayoutError for other layouts; AutogradError where it requires grad.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.sparse_resize_and_clear_.html

    >>> ad.eye(2).to_sparse().sparse_resize_and_clear_((3,), 1, 0).to_dense()
    tensor([0., 0., 0.])
    """
    return _resized("sparse_resize_and_clear_", self, size, sparse_dim, dense_dim, False)


@explaining
def resize_as_sparse_(self: Tensor, the_template: Tensor) -> Tensor:
    """`sparse_resize_` to the size of another one.

    Errors: those of that method; LayoutError where the other one is dense.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.sparse_resize_.html

    >>> ad.zeros(1, 1).to_sparse().resize_as_sparse_(ad.eye(2).to_sparse()).shape
    adjoint.Size([2, 2])
    """
    if not is_sparse(the_template):
        raise LayoutError("resize_as_sparse_: the template is dense; give a sparse tensor")
    pattern = the_template._data.pattern
    counts = pattern.sparse_dim, len(pattern.rest)
    return _resized("resize_as_sparse_", self, pattern.shape, *counts, True)


METHODS = {
    **_METHODS,
    **{
        each.__name__: each
        for each in (smm, sspaddmm, sparse_resize_, sparse_resize_and_clear_, resize_as_sparse_)
    },
}
