"""Factorizations: Cholesky, QR, singular values, eigenvalues, LU."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...core import dtype as dt
from ...core.argument_errors import assert_tensor
from ...core.errors import DTypeError, InvalidArgument, LinalgError, ShapeError
from ...core.mode import refuse_where
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply
from ...runtime.public import FUNCTIONS, public, with_out
from ..return_types import return_type
from ..shape.sizes import hold_sizes
from .decomposition import QR, Cholesky, LUFactor, PermutationMatrix, PermutedRows, SolveTriangular
from .matrix_product import matmul
from .matrix_samples import assert_matrices, indefinite_minor
from .norms import zero_pivot
from .spectra import SVD, Eig, Eigh

__all__ = ["cholesky", "lu_unpack", "qr", "svd"]


@return_type("linalg_svd")
class SVDResult(NamedTuple):
    """The result of `linalg.svd`."""

    U: Tensor
    S: Tensor
    Vh: Tensor


@return_type("svd")
class SVDOld(NamedTuple):
    """The result of `svd`."""

    U: Tensor
    S: Tensor
    V: Tensor


@return_type("linalg_qr")
class QRResult(NamedTuple):
    """The result of `linalg.qr`."""

    Q: Tensor
    R: Tensor


@return_type("qr")
class QROld(NamedTuple):
    """The result of `qr`."""

    Q: Tensor
    R: Tensor


@return_type("linalg_eigh")
class EighResult(NamedTuple):
    """The result of `linalg.eigh`."""

    eigenvalues: Tensor
    eigenvectors: Tensor


@return_type("linalg_eig")
class EigResult(NamedTuple):
    """The result of `linalg.eig`."""

    eigenvalues: Tensor
    eigenvectors: Tensor


@return_type("linalg_lu")
class LUResult(NamedTuple):
    """The result of `linalg.lu`."""

    P: Tensor
    L: Tensor
    U: Tensor


@return_type("linalg_lu_factor")
class LUFactorResult(NamedTuple):
    """The result of `linalg.lu_factor`."""

    LU: Tensor
    pivots: Tensor


@return_type("linalg_lu_factor_ex")
class LUFactorExResult(NamedTuple):
    """The result of `linalg.lu_factor_ex`."""

    LU: Tensor
    pivots: Tensor
    info: Tensor


@return_type("linalg_cholesky_ex")
class CholeskyExResult(NamedTuple):
    """The result of `linalg.cholesky_ex`."""

    L: Tensor
    info: Tensor


@public(out=True)
def cholesky(input: Tensor, upper: bool = False) -> Tensor:
    """L with input = L L^H, or U with U^H U where `upper`, of positive definite matrices.

    Shapes: (..., n, n).
    Dtypes: float32, float64 and complex.
    Errors: LinalgError for a matrix that is not positive definite, naming it.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.cholesky.html

    >>> ad.cholesky(ad.tensor([[4., 2.], [2., 5.]]))
    tensor([[2., 0.],
            [1., 2.]])
    """
    assert_matrices("linalg.cholesky", input, square=True)
    return apply(Cholesky(bool(upper)), input)


@with_out
def cholesky_ex(
    input: Tensor, *, upper: bool = False, check_errors: bool = False
) -> CholeskyExResult:
    """The Cholesky factors, and 0 or the order of the minor that is not positive definite.

    Errors: LinalgError for a matrix that is not positive definite, only where `check_errors`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.cholesky_ex.html

    >>> ad.linalg.cholesky_ex(ad.tensor([[-1.]])).info
    tensor(1, dtype=adjoint.int32)
    """
    input = hold_sizes("cholesky_ex", input)
    assert_matrices("linalg.cholesky_ex", input, square=True)
    info = input.new_zeros(input.shape[:-2], dtype=dt.int32)
    try:
        return CholeskyExResult(cholesky(input, upper), info)
    except LinalgError:
        if check_errors:
            raise
    found = np.zeros(input.shape[:-2], np.int32)
    matrices, n = input.detach(), input.shape[-1]
    for index in np.ndindex(*found.shape):
        try:
            cholesky(matrices[index], upper)
        except LinalgError:
            found[index] = indefinite_minor(matrices[index]._data) or n
    info = input.new_tensor(found, dtype=dt.int32)
    bad = (info != 0).unsqueeze(-1).unsqueeze(-1)
    eye = FUNCTIONS["eye"](n, dtype=input.dtype, device=input.device)
    factor = cholesky(FUNCTIONS["where"](bad, eye, input), upper)
    return CholeskyExResult(factor.masked_fill(bad, 0), info)


def _qr(name: str, A: Tensor, mode: str) -> tuple[Any, Any]:
    assert_matrices(name, A)
    A = hold_sizes("qr", A, dims=(-2, -1))  # noqa: N806
    if mode not in ("reduced", "complete", "r"):
        raise InvalidArgument(
            f"{name}: QR received unrecognized mode {mode!r}; use 'reduced', 'complete' or 'r'"
        )
    m, n = A.shape[-2:]
    if m >= n:
        q, r = apply(QR(mode == "complete"), A)
    else:  # the square part decides Q; the other columns of R follow
        q, r = apply(QR(), A.narrow(-1, 0, m))
        r = FUNCTIONS["cat"]([r, matmul(q.mH, A.narrow(-1, m, n - m))], -1)
    return (A.new_zeros((0,)) if mode == "r" else q), r


@with_out
def linalg_qr(A: Tensor, mode: str = "reduced") -> QRResult:
    """Q with orthonormal columns and upper triangular R, A = Q R.

    Shapes: (..., m, n) gives (..., m, k) and (..., k, n), k = min(m, n), or m where `mode` is
    'complete'; Q is empty where it is 'r'.
    Dtypes: float32, float64 and complex.
    Errors: InvalidArgument for another mode.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.qr.html

    >>> q, r = ad.linalg.qr(ad.tensor([[0., 2.], [3., 1.]]))
    >>> (q @ r).round(decimals=4).abs()
    tensor([[0., 2.],
            [3., 1.]])
    """
    return QRResult(*_qr("linalg.qr", A, mode))


@public(out=True)
def qr(input: Tensor, some: bool = True) -> QROld:
    """Q and R with input = Q R; see `linalg.qr`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.qr.html

    >>> ad.qr(ad.ones(3, 2)).R.shape
    adjoint.Size([2, 2])
    """
    return QROld(*_qr("qr", input, "reduced" if some else "complete"))


@with_out
def linalg_svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None) -> SVDResult:
    """U, S and V^H with A = U diag(S) V^H; S falls. `driver` is for CUDA, and ignored.

    Shapes: (..., m, n) gives (..., m, m), (..., k) and (..., n, n), k = min(m, n); (..., m, k) and
    (..., k, n) unless `full_matrices`.
    Dtypes: float32, float64 and complex; S is real.
    Errors: LinalgError where it does not converge.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.svd.html

    >>> ad.linalg.svd(ad.tensor([[3., 0.], [0., 4.]])).S
    tensor([4., 3.])
    """
    assert_matrices("linalg.svd", A)
    return SVDResult(*apply(SVD(bool(full_matrices)), A))


@public(out=True)
def svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> SVDOld:
    """U, S and V with input = U diag(S) V^H; `linalg.svd` returns V^H.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.svd.html

    >>> ad.svd(ad.tensor([[3., 0.], [0., 4.]])).S
    tensor([4., 3.])
    """
    assert_matrices("svd", input)
    u, s, vh = apply(SVD(not some), input)
    if not compute_uv:
        m, n = input.shape[-2:]
        batch = input.shape[:-2]
        return SVDOld(input.new_zeros((*batch, m, m)), s, input.new_zeros((*batch, n, n)))
    return SVDOld(u, s, vh.mH)


@with_out
def svdvals(A: Tensor, *, driver: str | None = None) -> Tensor:
    """The singular values, the largest first.

    Shapes: (..., m, n) gives (..., min(m, n)).
    Dtypes: float32, float64 and complex; the result is real.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.svdvals.html

    >>> ad.linalg.svdvals(ad.tensor([[3., 0.], [0., 4.]]))
    tensor([4., 3.])
    """
    assert_matrices("linalg.svdvals", A)
    return apply(SVD(), A)[1]


@with_out
def eigh(A: Tensor, UPLO: str = "L") -> EighResult:
    """Eigenvalues, ascending, and eigenvectors of Hermitian matrices; one triangle (UPLO) is read.

    Shapes: (..., n, n) gives (..., n) and (..., n, n).
    Dtypes: float32, float64 and complex; eigenvalues are real.
    Errors: InvalidArgument for another UPLO; LinalgError where it does not converge.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.eigh.html

    >>> ad.linalg.eigh(ad.tensor([[2., 0.], [0., 1.]])).eigenvalues
    tensor([1., 2.])
    """
    assert_matrices("linalg.eigh", A, square=True)
    if UPLO not in ("L", "U", "l", "u"):
        raise InvalidArgument(
            f"linalg.eigh: Expected UPLO argument to be 'L' or 'U', but got {UPLO!r}"
        )
    return EighResult(*apply(Eigh(UPLO.upper()), A))


@with_out
def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:
    """The eigenvalues of Hermitian matrices, ascending.

    Shapes: (..., n, n) gives (..., n).
    Dtypes: float32, float64 and complex; the result is real.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.eigvalsh.html

    >>> ad.linalg.eigvalsh(ad.tensor([[2., 0.], [0., 1.]]))
    tensor([1., 2.])
    """
    return eigh(A, UPLO).eigenvalues


@with_out
def eig(A: Tensor) -> EigResult:
    """The complex eigenvalues and eigenvectors of square matrices.

    Shapes: (..., n, n) gives (..., n) and (..., n, n).
    Dtypes: float32, float64 and complex; the results are complex.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.eig.html

    >>> ad.linalg.eig(ad.tensor([[2., 0.], [0., 1.]])).eigenvalues
    tensor([2.+0.j, 1.+0.j])
    """
    assert_matrices("linalg.eig", A, square=True)
    return EigResult(*apply(Eig(), A))


@with_out
def eigvals(A: Tensor) -> Tensor:
    """The complex eigenvalues of square matrices.

    Shapes: (..., n, n) gives (..., n).
    Dtypes: float32, float64 and complex; the result is complex.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.eigvals.html

    >>> ad.linalg.eigvals(ad.tensor([[2., 0.], [0., 1.]]))
    tensor([2.+0.j, 1.+0.j])
    """
    return eig(A).eigenvalues


@with_out
def lu_factor(A: Tensor, *, pivot: bool = True) -> LUFactorResult:
    """L and U packed into one matrix, and the row swaps (counted from 1), of A = P L U.

    Shapes: (..., m, n) gives (..., m, n) and int32 of (..., min(m, n)).
    Dtypes: float32, float64 and complex.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.lu_factor.html

    >>> ad.linalg.lu_factor(ad.tensor([[1., 2.], [2., 2.]])).pivots
    tensor([2, 2], dtype=adjoint.int32)
    """
    A = hold_sizes("lu_factor", A)  # noqa: N806
    assert_matrices("linalg.lu_factor", A)
    m, n = A.shape[-2:]
    if m == n or A._node is None:
        return LUFactorResult(*apply(LUFactor(bool(pivot)), A))
    # The gradient is known for square matrices: the other columns of U, or rows of L, follow.
    pivots = apply(LUFactor(bool(pivot)), A.detach())[1]
    k = min(m, n)
    rows = apply(PermutedRows(back=True), pivots, A)
    square = apply(LUFactor(False), rows.narrow(-2, 0, k).narrow(-1, 0, k))[0]
    if n > m:
        rest = apply(SolveTriangular(False, True, True), square, rows.narrow(-1, k, n - k))
    else:
        rest = apply(SolveTriangular(True, False, False), square, rows.narrow(-2, k, m - k))
    return LUFactorResult(FUNCTIONS["cat"]([square, rest], -1 if n > m else -2), pivots)


@with_out
def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> LUFactorExResult:
    """`lu_factor`, and 0 or the number of the first zero on U's diagonal.

    Errors: LinalgError where there is a zero, only where `check_errors`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.lu_factor_ex.html

    >>> ad.linalg.lu_factor_ex(ad.zeros(1, 1)).info
    tensor(1, dtype=adjoint.int32)
    """
    A = hold_sizes("lu_factor_ex", A)  # noqa: N806
    lu, pivots = lu_factor(A, pivot=pivot)
    info = zero_pivot(lu)
    if check_errors and info._data.size:
        refuse_where(
            (info != 0).any(),
            lambda: LinalgError(
                "linalg.lu_factor_ex: a number on the diagonal of U is zero and using it on "
                "lu_solve would result in a division by zero."
            ),
        )
    return LUFactorExResult(lu, pivots, info)


@with_out
def lu(A: Tensor, *, pivot: bool = True) -> LUResult:
    """P, L and U with A = P L U: a permutation, and unit lower and upper triangular matrices.

    Shapes: (..., m, n) gives (..., m, m), (..., m, k) and (..., k, n), k = min(m, n).
    Dtypes: float32, float64 and complex.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.lu.html

    >>> ad.linalg.lu(ad.tensor([[1., 2.], [2., 2.]])).U
    tensor([[2., 2.],
            [0., 1.]])
    """
    A = hold_sizes("lu", A, dims=(-2, -1))  # noqa: N806
    packed, pivots = lu_factor(A, pivot=pivot)
    return LUResult(*lu_unpack(packed, pivots))


@public(method="lu")
def _older_lu(A: Tensor, pivot: bool = True, get_infos: bool = False) -> Any:
    """The packed LU factors and pivots, and with `get_infos` where a factor is singular;
    `adjoint.linalg.lu_factor` is preferred.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.lu.html

    >>> ad.tensor([[2.]]).lu()[0]
    tensor([[2.]])
    """
    found = lu_factor_ex(A, pivot=pivot, check_errors=not get_infos)
    return tuple(found) if get_infos else tuple(found)[:2]


@public(method=False, out=True)
def lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Any, Any, Any]:
    """P, L and U from the results of `linalg.lu_factor`.

    Shapes: (..., m, n) gives (..., m, m), (..., m, k) and (..., k, n), k = min(m, n).
    Source: https://docs.pytorch.org/docs/stable/generated/torch.lu_unpack.html

    >>> ad.lu_unpack(*ad.linalg.lu_factor(ad.tensor([[2.]])))[2]
    tensor([[2.]])
    """
    if LU_data.ndim < 2:
        raise ShapeError(
            f"lu_unpack: expected LU_data of 2 or more dimensions, got {tuple(LU_data.shape)}"
        )
    LU_data = hold_sizes("lu_unpack", LU_data, dims=(-2, -1))  # noqa: N806
    _assert_pivots("lu_unpack", LU_pivots)
    m, n = LU_data.shape[-2:]
    k = min(m, n)
    if LU_pivots.shape != (*LU_data.shape[:-2], k):
        raise ShapeError(
            f"lu_unpack: expected pivots of shape {(*LU_data.shape[:-2], k)} for LU_data of shape "
            f"{tuple(LU_data.shape)}, got {tuple(LU_pivots.shape)}"
        )
    empty = LU_data.new_zeros((0,))
    p = apply(PermutationMatrix(m, LU_data.dtype), LU_pivots) if unpack_pivots else empty
    if not unpack_data:
        return p, empty, empty
    unit = FUNCTIONS["eye"](m, k, dtype=LU_data.dtype, device=LU_data.device)
    return p, LU_data.narrow(-1, 0, k).tril(-1) + unit, LU_data.narrow(-2, 0, k).triu()


def _assert_pivots(name: str, pivots: Any) -> None:
    """Refuse what numbers no rows."""
    assert_tensor(name, pivots, "pivots")
    if pivots.dtype.category != 1:
        raise DTypeError(
            f"{name}: pivots number rows, as linalg.lu_factor gives them, got {pivots.dtype}; "
            "convert them with .to(int32)"
        )
