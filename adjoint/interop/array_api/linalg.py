"""The extension `linalg`: decompositions, norms and solutions of stacks of matrices."""

from __future__ import annotations

from typing import Any

from ...core.dtype import dtype as DType  # noqa: N812 - a class, in spite of PyTorch's name
from ...core.errors import InvalidArgument, ShapeError
from ...core.spec import broadcast_shapes
from . import functions as ad
from .axes import tuple_of
from .data_types import ANY, FLOATING, NUMERIC, Array, checked, matrices, operands
from .linear_algebra import along_common_axis, matmul, matrix_transpose, tensordot, vecdot
from .statistical import accumulator

__all__ = [
    "cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "matmul", "matrix_norm",
    "matrix_power", "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve",
    "svd", "svdvals", "tensordot", "trace", "vecdot", "vector_norm",
]  # fmt: skip


# ---- decompositions ------------------------------------------------------------------------------


def cholesky(x: Array, /, *, upper: bool = False) -> Array:
    """The lower triangular L with x = L L^H of positive definite matrices, or U with x = U^H U.

    Shapes: (..., n, n).
    Errors: ShapeError for matrices that are not square; LinalgError where there is none.
    Source: https://data-apis.org/array-api/2024.12/extensions/generated/array_api.linalg.cholesky.html

    >>> xp = ad.array_api
    >>> xp.linalg.cholesky(xp.asarray([[4., 2.], [2., 5.]]))
    tensor([[2., 0.],
            [1., 2.]])
    """
    return ad.linalg.cholesky(matrices("cholesky", x), upper=upper)


def eigh(x: Array, /) -> Any:
    """The eigenvalues, ascending, and eigenvectors (columns) of symmetric or Hermitian matrices.

    Shapes: (..., n, n) gives (..., n) and (..., n, n).
    Errors: ShapeError for matrices that are not square.
    Source: https://data-apis.org/array-api/2024.12/extensions/generated/array_api.linalg.eigh.html

    >>> xp = ad.array_api
    >>> xp.linalg.eigh(xp.eye(2)).eigenvalues
    tensor([1., 1.])
    """
    return ad.linalg.eigh(matrices("eigh", x))


def eigvalsh(x: Array, /) -> Array:
    """The eigenvalues, ascending, of symmetric or Hermitian matrices.

    Shapes: (..., n, n) gives (..., n).
    Errors: ShapeError for matrices that are not square.
    Source: https://data-apis.org/array-api/2024.12/extensions/generated/array_api.linalg.eigvalsh.html

    >>> xp = ad.array_api
    >>> xp.linalg.eigvalsh(xp.eye(2))
    tensor([1., 1.])
    """
    return ad.linalg.eigvalsh(matrices("eigvalsh", x))


def qr(x: Array, /, *, mode: str = "reduced") -> Any:
    """Q with orthonormal columns and the upper triangular R with x = Q R.

    Shapes: (..., m, n) gives (..., m, k) and (..., k, n); k is min(m, n), or m where complete.
    Errors: InvalidArgument where `mode` is neither "reduced" nor "complete".
    Source: https://data-apis.org/array-api/2024.12/extensions/generated/array_api.linalg.qr.html

    >>> xp = ad.array_api
    >>> xp.linalg.qr(xp.ones((3, 2)), mode="complete").Q.shape
    adjoint.Size([3, 3])
    """
    if mode not in ("reduced", "complete"):
        raise InvalidArgument(f"qr: mode must be 'reduced' or 'complete', got {mode!r}")
    return ad.linalg.qr(matrices("qr", x), mode)


def svd(x: Array, /, *, full_matrices: bool = True) -> Any:
    """U, the singular values S (descending) and Vh with x = U diag(S) Vh.

    Shapes: (..., m, n) gives (..., m, m), (..., k) and (..., n, n) with k = min(m, n); (..., m, k)
    and (..., k, n) without `full_matrices`.
    Source: https://data-apis.org/array-api/2024.12/extensions/generated/array_api.linalg.svd.html

    >>> xp = ad.array_api
    >>> xp.linalg.svd(xp.eye(2)).S
    tensor([1., 1.])
    """
    return ad.linalg.svd(matrices("svd", x), full_matrices)


def svdvals(x: Array, /) -> Array:
    """The singular values, descending.

    Shapes: (..., m, n) gives (..., min(m, n)).
    Source: https://data-apis.org/array-api/2024.12/extensions/generated/array_api.linalg.svdvals.html

    >>> xp = ad.array_api
    >>> xp.linalg.svdvals(xp.eye(2))
    tensor([1., 1.])
    """
    return ad.linalg.svdvals(matrices("svdvals", x))


# ---- numbers of a matrix -------------------------------------------------------------------------


def det(x: Array, /) -> Array:
    """The determinants of square matrices.

    Shapes: (..., n, n) gives (...).
    Errors: ShapeError for matrices that are not square.
    Source: https://data-apis.org/array-api/2024.12/extensions/generated/array_api.linalg.det.html

    >>> xp = ad.array_api
    >>> xp.linalg.det(xp.asarray([[4., 2.], [2., 5.]]))
    tensor(16.)
    """
    return ad.linalg.det(matrices("det", x))


def slogdet(x: Array, /) -> Any:
    """The sign and the logarithm of the magnitude of the determinants.

    Shapes: (..., n, n) gives (...) twice.
    Errors: ShapeError for matrices that are not square.
    Source: https://data-apis.org/array-api/2024.12/extensions/generated/array_api.linalg.slogdet.html

    >>> xp = ad.array_api
    >>> xp.linalg.slogdet(xp.eye(2)).sign
    tensor(1.)
    """
    return ad.linalg.slogdet(matrices("slogdet", x))


def matrix_rank(x: Array, /, *, rtol: Any = None) -> Array:
    """Number of singular values greater than `rtol` times the greatest.

    Shapes: (..., m, n) gives (...). `rtol` broadcasts to that; max(m, n) eps where None.
    Source: https://data-apis.org/array-api/2024.12/extensions/generated/array_api.linalg.matrix_rank.html

    >>> xp = ad.array_api
    >>> xp.linalg.matrix_rank(xp.eye(2))
    tensor(2)
    """
    return ad.linalg.matrix_rank(matrices("matrix_rank", x), rtol=rtol)


def trace(x: Array, /, *, offset: int = 0, dtype: DType | None = None) -> Array:
    """The sums of the elements on a diagonal.

    Shapes: (..., m, n) gives (...).
    Dtypes: as those of `sum`.
    Source: https://data-apis.org/array-api/2024.12/extensions/generated/array_api.linalg.trace.html

    >>> xp = ad.array_api
    >>> xp.linalg.trace(xp.asarray([[4., 2.], [2., 5.]]))
    tensor(9.)
    """
    matrices("trace", x, NUMERIC)
    return diagonal(x, offset=offset).sum(-1, dtype=dtype or accumulator(x.dtype))


def matrix_norm(x: Array, /, *, keepdims: bool = False, ord: Any = "fro") -> Array:
    """A norm of each matrix: "fro", "nuc", 1, 2, inf, -1, -2 or -inf.

    Shapes: (..., m, n) gives (...).
    Source: https://data-apis.org/array-api/2024.12/extensions/generated/array_api.linalg.matrix_norm.html

    >>> xp = ad.array_api
    >>> xp.linalg.matrix_norm(xp.asarray([[3., 4.]]))
    tensor(5.)
    """
    ord = "fro" if ord is None else ord
    return ad.linalg.matrix_norm(matrices("matrix_norm", x), ord, (-2, -1), keepdims)


def diagonal(x: Array, /, *, offset: int = 0) -> Array:
    """The elements on a diagonal of each matrix.

    Shapes: (..., m, n) gives (..., length of the diagonal).
    Source: https://data-apis.org/array-api/2024.12/extensions/generated/array_api.linalg.diagonal.html

    >>> xp = ad.array_api
    >>> xp.linalg.diagonal(xp.asarray([[4., 2.], [2., 5.]]))
    tensor([4., 5.])
    """
    return ad.linalg.diagonal(matrices("diagonal", x, ANY), offset=offset)


# ---- inverses and solutions ----------------------------------------------------------------------


def inv(x: Array, /) -> Array:
    """The inverses of square matrices.

    Shapes: (..., n, n).
    Errors: ShapeError for matrices that are not square; LinalgError where there is none.
    Source: https://data-apis.org/array-api/2024.12/extensions/generated/array_api.linalg.inv.html

    >>> xp = ad.array_api
    >>> xp.linalg.inv(xp.asarray([[2., 0.], [0., 4.]]))
    tensor([[0.5000, 0.0000],
            [0.0000, 0.2500]])
    """
    return ad.linalg.inv(matrices("inv", x))


def pinv(x: Array, /, *, rtol: Any = None) -> Array:
    """The pseudo-inverses; singular values up to `rtol` times the greatest count as zeros.

    Shapes: (..., m, n) gives (..., n, m). `rtol` broadcasts to (...); max(m, n) eps where None.
    Source: https://data-apis.org/array-api/2024.12/extensions/generated/array_api.linalg.pinv.html

    >>> xp = ad.array_api
    >>> xp.linalg.pinv(xp.asarray([[2.], [0.]]))
    tensor([[0.5000, 0.0000]])
    """
    return ad.linalg.pinv(matrices("pinv", x), rtol=rtol)


def matrix_power(x: Array, n: int, /) -> Array:
    """The n-th powers of square matrices; of their inverses for a negative n.

    Shapes: (..., n, n).
    Errors: ShapeError for matrices that are not square; LinalgError where there is none.
    Source: https://data-apis.org/array-api/2024.12/extensions/generated/array_api.linalg.matrix_power.html

    >>> xp = ad.array_api
    >>> xp.linalg.matrix_power(xp.asarray([[1., 1.], [0., 1.]]), 3)
    tensor([[1., 3.],
            [0., 1.]])
    """
    return ad.linalg.matrix_power(matrices("matrix_power", x), n)


def solve(x1: Array, x2: Array, /) -> Array:
    """The solutions of x1 @ solution = x2.

    Shapes: x1 is (..., n, n), x2 is (..., n, k), or (n,) alone; stacks broadcast.
    Errors: ShapeError where the shapes do not fit; LinalgError for singular matrices.
    Source: https://data-apis.org/array-api/2024.12/extensions/generated/array_api.linalg.solve.html

    >>> xp = ad.array_api
    >>> xp.linalg.solve(xp.asarray([[2., 0.], [0., 4.]]), xp.asarray([2., 2.]))
    tensor([1.0000, 0.5000])
    """
    x1, x2 = operands("solve", FLOATING, matrices("solve", x1), x2)
    right = x2[:, None] if x2.ndim == 1 else x2
    batch = broadcast_shapes(x1.shape[:-2], right.shape[:-2], op="solve")
    x1, right = (ad.broadcast_to(a, (*batch, *a.shape[-2:])) for a in (x1, right))
    result = ad.linalg.solve(x1, right)
    return result[..., 0] if x2.ndim == 1 else result


# ---- vectors -------------------------------------------------------------------------------------


def cross(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
    """The cross products of vectors of three elements along an axis, counted from the last.

    Shapes: the other axes broadcast.
    Errors: ShapeError for vectors of another size.
    Source: https://data-apis.org/array-api/2024.12/extensions/generated/array_api.linalg.cross.html

    >>> xp = ad.array_api
    >>> xp.linalg.cross(xp.asarray([1, 0, 0]), xp.asarray([0, 1, 0]))
    tensor([0, 0, 1])
    """
    x1, x2 = operands("cross", NUMERIC, x1, x2)
    x1, x2 = along_common_axis("cross", x1, x2, axis)
    if x1.shape[-1] != 3:
        raise ShapeError(
            f"cross: needs vectors of 3 elements along axis {axis}, got {x1.shape[-1]}"
        )
    return ad.movedim(ad.linalg.cross(x1, x2), -1, axis)


def outer(x1: Array, x2: Array, /) -> Array:
    """The products of each element of one vector with each of the other.

    Shapes: (n,) and (m,) give (n, m).
    Errors: ShapeError for other ranks.
    Source: https://data-apis.org/array-api/2024.12/extensions/generated/array_api.linalg.outer.html

    >>> xp = ad.array_api
    >>> xp.linalg.outer(xp.asarray([1, 2]), xp.asarray([3, 4]))
    tensor([[3, 4],
            [6, 8]])
    """
    x1, x2 = operands("outer", NUMERIC, x1, x2)
    return ad.outer(x1, x2)


def vector_norm(
    x: Array, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False, ord: Any = 2
) -> Array:
    """The norm of order `ord` (any number, inf or -inf) over axes, of all elements for None.

    Errors: IndexingError for an axis that x does not have.
    Source: https://data-apis.org/array-api/2024.12/extensions/generated/array_api.linalg.vector_norm.html

    >>> xp = ad.array_api
    >>> xp.linalg.vector_norm(xp.asarray([3., 4.]))
    tensor(5.)
    """
    checked("vector_norm", x, FLOATING)
    axes = None if axis is None else tuple_of(axis)
    if axes == () or not x.ndim:  # over a new axis of size 1: each element is a vector
        return ad.linalg.vector_norm(x[None], ord, (0,))
    return ad.linalg.vector_norm(x, ord, axes, keepdims)
