"""Public linear algebra: the functions of `adjoint.linalg`, and PyTorch's older names for them."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...core import dtype as dt
from ...core.errors import InvalidArgument, ShapeError, Unsupported
from ...core.mode import MODE
from ...core.spec import normalize_axis, prod
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply
from ...runtime.public import FUNCTIONS, explaining, public, with_out
from ..return_types import return_type
from ..shape.sizes import hold_sizes, is_of_graph
from . import contraction
from .contraction import *  # noqa: F403 - re-exported
from .decomposition import PermutedRows, SolveTriangular
from .exponential import matrix_exp
from .matmul import zeros_from
from .matrix_factors import _assert_pivots, cholesky, lu_unpack, qr, svd
from .matrix_factors import _older_lu as _older_lu  # which files name for Tensor.lu
from .matrix_factors import cholesky_ex as cholesky_ex
from .matrix_factors import eig as eig
from .matrix_factors import eigh as eigh
from .matrix_factors import eigvals as eigvals
from .matrix_factors import eigvalsh as eigvalsh
from .matrix_factors import linalg_qr as linalg_qr
from .matrix_factors import linalg_svd as linalg_svd
from .matrix_factors import lu as lu
from .matrix_factors import lu_factor as lu_factor
from .matrix_factors import lu_factor_ex as lu_factor_ex
from .matrix_factors import svdvals as svdvals
from .matrix_product import matmul
from .matrix_samples import assert_matrices
from .norms import inverse_and_info, tolerances
from .solving import CholeskySolve, Determinant, Inverse, PseudoInverse, SLogDet, Solve
from .spectra import SVD

__all__ = [
    "cholesky", "cholesky_inverse", "cholesky_solve", "det", "inverse", "logdet", "lu_solve",
    "lu_unpack", "matrix_exp", "matrix_power", "pinverse", "qr", "slogdet", "svd",
    "triangular_solve", *contraction.__all__,
]  # fmt: skip


@return_type("slogdet")
class SLogDetResult(NamedTuple):
    """The result of `slogdet`."""

    sign: Tensor
    logabsdet: Tensor


@return_type("linalg_inv_ex")
class InvExResult(NamedTuple):
    """The result of `linalg.inv_ex`."""

    inverse: Tensor
    info: Tensor


@return_type("linalg_solve_ex")
class SolveExResult(NamedTuple):
    """The result of `linalg.solve_ex`."""

    result: Tensor
    info: Tensor


@return_type("linalg_lstsq")
class LstsqResult(NamedTuple):
    """The result of `linalg.lstsq`."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


@return_type("triangular_solve")
class TriangularSolveResult(NamedTuple):
    """The result of `triangular_solve`."""

    solution: Tensor
    cloned_coefficient: Tensor


# ---- determinants and inverses -------------------------------------------------------------------


@public(out=True)
def det(A: Tensor) -> Tensor:
    """The determinants of square matrices.

    Shapes: (..., n, n) gives (...).
    Dtypes: float32, float64 and complex.
    Errors: ShapeError for matrices that are not square.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.det.html

    >>> ad.det(ad.tensor([[1., 2.], [3., 5.]])).round(decimals=4)
    tensor(-1.)
    """
    assert_matrices("linalg.det", A, square=True)
    return apply(Determinant(), A)


@public(out=True)
def slogdet(A: Tensor) -> SLogDetResult:
    """The signs of determinants and the logarithms of their absolute values.

    Shapes: (..., n, n) gives two of (...).
    Dtypes: float32, float64 and complex; the logarithm is real.
    Errors: ShapeError for matrices that are not square.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.slogdet.html

    >>> ad.slogdet(ad.tensor([[0., 1.], [1., 0.]])).sign
    tensor(-1.)
    """
    assert_matrices("linalg.slogdet", A, square=True)
    return SLogDetResult(*apply(SLogDet(), A))


@explaining
@public()
def logdet(input: Tensor) -> Tensor:
    """The logarithms of determinants: -inf for 0, NaN for negative ones.

    Shapes: (..., n, n) gives (...).
    Dtypes: float32, float64 and complex.
    Errors: ShapeError for matrices that are not square.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.logdet.html

    >>> ad.logdet(ad.tensor([[1., 0.], [0., 1.]]))
    tensor(0.)
    """
    assert_matrices("logdet", input, square=True)
    sign, size = apply(SLogDet(), input)
    return size + (sign if sign.dtype.is_complex else sign.detach()).log()


@with_out
def inv(A: Tensor) -> Tensor:
    """The inverses of square matrices.

    Shapes: (..., n, n).
    Dtypes: float32, float64 and complex.
    Errors: LinalgError for a singular matrix, naming it; ShapeError for one that is not square.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.inv.html

    >>> ad.linalg.inv(ad.tensor([[2., 0.], [0., 4.]]))
    tensor([[0.5000, 0.0000],
            [0.0000, 0.2500]])
    """
    assert_matrices("linalg.inv", A, square=True)
    return apply(Inverse(), A)


@public(out=True)
def inverse(input: Tensor) -> Tensor:
    """The inverses of square matrices; another name of `linalg.inv`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.inverse.html

    >>> ad.inverse(ad.tensor([[2.]]))
    tensor([[0.5000]])
    """
    return inv(input)


def _refuse_nodes(name: str, *tensors: Any) -> None:
    if any(map(is_of_graph, tensors)):
        raise Unsupported(
            f"linalg.{name}: what it returns depends on values, which a Graph may change; use "
            f"linalg.{name.removesuffix('_ex')}"
        )


@with_out
def inv_ex(A: Tensor, *, check_errors: bool = False) -> InvExResult:
    """The inverses, and 0 or the number of the zero pivot of a singular matrix.

    Shapes: (..., n, n) gives (..., n, n) and int32 of (...).
    Errors: LinalgError for a singular matrix, only where `check_errors`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.inv_ex.html

    >>> ad.linalg.inv_ex(ad.zeros(2, 2)).info
    tensor(1, dtype=adjoint.int32)
    """
    _refuse_nodes("inv_ex", A)
    assert_matrices("linalg.inv_ex", A, square=True)
    if check_errors:
        return InvExResult(inv(A), A.new_zeros(A.shape[:-2], dtype=dt.int32))
    return InvExResult(*inverse_and_info(A))


@with_out
def pinv(
    A: Tensor, rcond: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None
) -> Tensor:
    """The pseudo-inverses; singular values up to max(atol, rtol * the largest) count as 0.

    Shapes: (..., m, n) gives (..., n, m); tolerances may be tensors of the batch's shape.
    Dtypes: float32, float64 and complex.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.pinv.html

    >>> ad.linalg.pinv(ad.tensor([[2.], [0.]]))
    tensor([[0.5000, 0.0000]])
    """
    assert_matrices("linalg.pinv", A, square=hermitian)
    if rtol is None and rcond is not None:
        rtol = rcond
    atol, rtol = tolerances("linalg.pinv", A, atol, rtol)
    return apply(PseudoInverse(hermitian), A, atol, rtol)


@public()
def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """The pseudo-inverses; another name of `linalg.pinv`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.pinverse.html

    >>> ad.pinverse(ad.tensor([[2.], [0.]]))
    tensor([[0.5000, 0.0000]])
    """
    return pinv(input, rcond)


# ---- linear systems ------------------------------------------------------------------------------


@with_out
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """X with A X = B (X A = B unless `left`).

    Shapes: A (..., n, n); B (..., n, k), or vectors (..., n) beside A's batch, or (n,).
    Dtypes: float32, float64 and complex.
    Errors: LinalgError for a singular matrix, naming it; ShapeError where shapes do not fit.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.solve.html

    >>> ad.linalg.solve(ad.tensor([[2., 0.], [0., 4.]]), ad.tensor([2., 2.]))
    tensor([1.0000, 0.5000])
    """
    assert_matrices("linalg.solve", A, square=True)
    vector = B.ndim == 1 or (B.ndim + 1 == A.ndim and B.shape == A.shape[:-1])
    if vector and not left:
        raise InvalidArgument(
            "linalg.solve: Vector broadcasting of the left hand side is not supported for "
            "left=False; unsqueeze B to a matrix"
        )
    b = B.unsqueeze(-1) if vector else B
    if left:
        result: Tensor = apply(Solve(), A, b)
        return result.squeeze(-1) if vector else result
    result = apply(Solve(), A.mT, b.mT)
    return result.mT


@with_out
def solve_ex(
    A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False
) -> SolveExResult:
    """X with A X = B, and 0 or the number of a zero pivot, where the solution is zero.

    Errors: LinalgError for a singular matrix, only where `check_errors`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.solve_ex.html

    >>> ad.linalg.solve_ex(ad.zeros(1, 1), ad.ones(1)).info
    tensor(1, dtype=adjoint.int32)
    """
    _refuse_nodes("solve_ex", A)
    assert_matrices("linalg.solve_ex", A, square=True)
    _, info = inverse_and_info(A.detach())
    bad = info != 0
    captured = hasattr(MODE.get().executor, "note_check")
    if check_errors or not (captured or bool(bad.any())):
        return SolveExResult(solve(A, B, left=left), info)
    bad = bad.unsqueeze(-1).unsqueeze(-1)
    eye = FUNCTIONS["eye"](A.shape[-1], dtype=A.dtype, device=A.device)
    result = solve(FUNCTIONS["where"](bad, eye, A), B, left=left)
    while bad.ndim > result.ndim:
        bad = bad.squeeze(-1)
    return SolveExResult(result.masked_fill(bad, 0), info)


@with_out
def solve_triangular(
    A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """X with A X = B (X A = B unless `left`), of triangular A; its other triangle is not read.

    Shapes: A (..., n, n), B (..., n, k); batches broadcast.
    Dtypes: float32, float64 and complex.
    Errors: ShapeError where shapes do not fit. A zero on the diagonal gives inf, no error.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.solve_triangular.html

    >>> ad.linalg.solve_triangular(ad.tensor([[2., 9.], [1., 1.]]), ad.ones(2, 1), upper=False)
    tensor([[0.5000],
            [0.5000]])
    """
    assert_matrices("linalg.solve_triangular", A, square=True)
    assert_matrices("linalg.solve_triangular", B)
    return apply(SolveTriangular(bool(upper), bool(left), bool(unitriangular)), A, B)


@public(out=True)
def triangular_solve(
    input: Tensor,
    A: Tensor,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> TriangularSolveResult:
    """X with A X = input (A^T X = input where `transpose`), and a copy of A.

    See `linalg.solve_triangular`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.triangular_solve.html

    >>> ad.triangular_solve(ad.ones(1, 1), ad.tensor([[2.]])).solution
    tensor([[0.5000]])
    """
    matrix, side = (A.mT, not upper) if transpose else (A, upper)
    result = solve_triangular(matrix, input, upper=side, unitriangular=unitriangular)
    return TriangularSolveResult(result, A.clone())


@public(out=True)
def cholesky_solve(input: Tensor, input2: Tensor, upper: bool = False) -> Tensor:
    """X with A X = input, from A's Cholesky factor `input2`.

    Shapes: input (..., n, k), input2 (..., n, n).
    Dtypes: float32, float64 and complex.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.cholesky_solve.html

    >>> ad.cholesky_solve(ad.tensor([[8.]]), ad.tensor([[2.]]))
    tensor([[2.]])
    """
    assert_matrices("cholesky_solve", input2, square=True)
    assert_matrices("cholesky_solve", input)
    return apply(CholeskySolve(bool(upper)), input, input2)


@public(out=True)
def cholesky_inverse(input: Tensor, upper: bool = False) -> Tensor:
    """The inverse of A, from its Cholesky factor.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.cholesky_inverse.html

    >>> ad.cholesky_inverse(ad.tensor([[2.]]))
    tensor([[0.2500]])
    """
    eye = FUNCTIONS["eye"](input.shape[-1], dtype=input.dtype, device=input.device)
    return cholesky_solve(eye, input, upper)


@with_out
def lstsq(
    A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None
) -> LstsqResult:
    """X that minimises the norm of A X - B, of all such X the smallest.

    Singular values up to rcond times the largest count as 0. `driver` decides, as in PyTorch, what
    else is not empty: the rank (all but "gels"), the singular values ("gelsd", "gelss"), and the
    residuals (all but "gelsy", the default) of matrices of full rank with more rows than columns.

    Shapes: A (..., m, n), B (..., m, k) or vectors (..., m) beside A's batch.
    Dtypes: float32, float64 and complex.
    Errors: InvalidArgument for an unknown driver.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.lstsq.html

    >>> a = ad.tensor([[1., 0.], [1., 1.], [1., 2.]])
    >>> ad.linalg.lstsq(a, ad.tensor([[1.], [3.], [5.]])).solution.round(decimals=4)
    tensor([[1.],
            [2.]])
    """
    B = hold_sizes("lstsq", B, dims=(-2, -1))  # noqa: N806
    A = hold_sizes("lstsq", A, dims=(-2, -1))  # noqa: N806
    assert_matrices("linalg.lstsq", A)
    drivers = (None, "gelsy", "gels", "gelsd", "gelss")
    if driver not in drivers:
        raise InvalidArgument(
            f"linalg.lstsq: parameter `driver` should be one of {drivers[1:]}, got {driver!r}"
        )
    vector = B.ndim + 1 == A.ndim and B.shape == A.shape[:-1]
    b = B.unsqueeze(-1) if vector else B
    if b.ndim < 2 or b.shape[-2] != A.shape[-2]:
        raise ShapeError(
            f"linalg.lstsq: input.size(-2) should match other.size(-2), got {tuple(A.shape)} and "
            f"{tuple(B.shape)}"
        )
    rtol = tolerances("linalg.lstsq", A, None, rcond)[1]
    solution = matmul(apply(PseudoInverse(), A, 0.0, rtol), b)
    m, n = A.shape[-2:]
    values = apply(SVD(), A.detach())[1]
    rank = (values > values.narrow(-1, 0, 1) * rtol).sum(-1) if min(m, n) else values.sum(-1).long()
    none = A.new_zeros((0,), dtype=A.dtype.to_real())
    # Empty, but with a history: PyTorch's residuals require grad where A or B does.
    residuals = FUNCTIONS["cat"]((A.flatten()[:0], b.flatten()[:0])).real
    if driver not in (None, "gelsy") and m > n and bool((rank == n).all()):
        residuals = (matmul(A, solution) - b).abs().square().sum(-2)
    return LstsqResult(
        solution.squeeze(-1) if vector else solution,
        residuals,
        A.new_zeros((0,), dtype=dt.int64) if driver == "gels" else rank,
        values if driver in ("gelsd", "gelss") else none,
    )


# ---- decompositions ------------------------------------------------------------------------------


def _lu_solve(
    LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False
) -> Tensor:
    """X with A X = B (X A = B unless `left`; A^H where `adjoint`), from A's LU factorization.

    Shapes: LU (..., n, n), pivots (..., n), B (..., n, k).
    Errors: ShapeError for others; DTypeError for pivots that are no integers; InvalidArgument for
    those that are no rows.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.lu_solve.html

    >>> ad.linalg.lu_solve(*ad.linalg.lu_factor(ad.tensor([[2.]])), ad.tensor([[4.]]))
    tensor([[2.]])
    """
    _assert_pivots("lu_solve", pivots)
    assert_matrices("lu_solve", LU, square=True)
    assert_matrices("lu_solve", B)
    if pivots.shape != LU.shape[:-1]:
        raise ShapeError(
            f"lu_solve: expected pivots of shape {tuple(LU.shape[:-1])} for LU of shape "
            f"{tuple(LU.shape)}, got {tuple(pivots.shape)}"
        )
    n = LU.shape[-1]
    if B.shape[-2 if left else -1] != n:
        raise ShapeError(
            f"lu_solve: Incompatible shapes of A and B for the equation "
            f"{'AX = B' if left else 'XA = B'} ({n}x{n} and {B.shape[-2]}x{B.shape[-1]})"
        )
    if not left:  # X A = B is A^H X^H = B^H
        result: Any = _lu_solve(LU, pivots, B.mH, adjoint=not adjoint)
        return result.mH
    if adjoint:
        result = solve_triangular(LU.mH, B, upper=False)
        result = solve_triangular(LU.mH, result, upper=True, unitriangular=True)
        return apply(PermutedRows(), pivots, result)
    rows = apply(PermutedRows(back=True), pivots, B)
    result = solve_triangular(LU, rows, upper=False, unitriangular=True)
    return solve_triangular(LU, result, upper=True)


linalg_lu_solve = with_out(_lu_solve)
linalg_lu_solve.__name__ = linalg_lu_solve.__qualname__ = "lu_solve"


@public(out=True)
def lu_solve(input: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """X with A X = input, from A's LU factorization; see `linalg.lu_solve`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.lu_solve.html

    >>> ad.lu_solve(ad.tensor([[4.]]), *ad.linalg.lu_factor(ad.tensor([[2.]])))
    tensor([[2.]])
    """
    return _lu_solve(LU_data, LU_pivots, input)


# ---- functions of matrices -----------------------------------------------------------------------


@public(out=True)
def matrix_power(input: Tensor, n: int) -> Tensor:
    """Square matrices multiplied with themselves; the inverse's power for a negative n.

    Shapes: (..., k, k).
    Errors: ShapeError for matrices that are not square; LinalgError for singular ones and n < 0.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.matrix_power.html

    >>> ad.matrix_power(ad.tensor([[1., 1.], [0., 1.]]), 3)
    tensor([[1., 3.],
            [0., 1.]])
    """
    input = hold_sizes("matrix_power", input)
    if input.ndim < 2 or input.shape[-1] != input.shape[-2]:
        raise ShapeError(
            f"linalg.matrix_power: A must be batches of square matrices, but they are "
            f"{tuple(input.shape)}"
        )
    if n == 0:
        unit: Any = FUNCTIONS["eye"](input.shape[-1], dtype=input.dtype, device=input.device)
        return unit + zeros_from(input)
    square: Any = inv(input) if n < 0 else input
    result: Any = None
    n = abs(n)
    while True:
        if n & 1:
            result = square if result is None else matmul(result, square)
        n >>= 1
        if not n:
            return result.clone() if result is input else result
        square = matmul(square, square)


@with_out
def tensorinv(A: Tensor, ind: int = 2) -> Tensor:
    """The inverse for `tensordot`: of A as a map from its last dimensions to its first `ind`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.tensorinv.html

    >>> ad.linalg.tensorinv(ad.eye(6).reshape(2, 3, 6)).shape
    adjoint.Size([6, 2, 3])
    """
    if ind <= 0:
        raise InvalidArgument(f"linalg.tensorinv: expected a strictly positive ind, got {ind}")
    first, last = tuple(A.shape[:ind]), tuple(A.shape[ind:])
    if prod(first) != prod(last):
        raise ShapeError(
            f"linalg.tensorinv: Expected self to satisfy the requirement prod(self.shape[ind:]) == "
            f"prod(self.shape[:ind]), but got {prod(last)} != {prod(first)}"
        )
    return inv(A.reshape(prod(first), prod(last))).reshape((*last, *first))


@with_out
def tensorsolve(A: Tensor, B: Tensor, dims: tuple[int, ...] | list[int] | None = None) -> Tensor:
    """X with tensordot(A, X, X.ndim) = B; `dims` of A are moved to its end first.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.tensorsolve.html

    >>> ad.linalg.tensorsolve(ad.eye(6).reshape(2, 3, 6), ad.ones(2, 3)).shape
    adjoint.Size([6])
    """
    if dims is not None:
        axes = [normalize_axis(d, A.ndim, "linalg.tensorsolve") for d in dims]
        A = A.permute([i for i in range(A.ndim) if i not in axes] + axes)  # noqa: N806
    shape = tuple(A.shape[B.ndim :])
    if prod(shape) != prod(B.shape):
        raise ShapeError(
            f"linalg.tensorsolve: Expected self to satisfy the requirement prod(self.shape"
            f"[other.ndim:]) == prod(self.shape[:other.ndim]), but got {prod(shape)} != "
            f"{prod(B.shape)}"
        )
    return solve(A.reshape(-1, prod(shape)), B.reshape(-1)).reshape(shape)


@with_out
def linalg_cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """The vector product of 3-vectors along `dim`.

    Shapes: `input` and `other` broadcast; their size along `dim` is 3.
    Errors: ShapeError where the size along `dim` is not 3.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.cross.html

    >>> ad.linalg.cross(ad.tensor([1., 0., 0.]), ad.tensor([0., 1., 0.]))
    tensor([0., 0., 1.])
    """
    return contraction.cross(input, other, dim)


@explaining
def linalg_diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonals of matrices: `diagonal` with other defaults.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.diagonal.html

    >>> ad.linalg.diagonal(ad.tensor([[1, 2], [3, 4]]))
    tensor([1, 4])
    """
    return A.diagonal(offset, dim1, dim2)


@explaining
def vander(x: Tensor, N: int | None = None) -> Tensor:
    """The powers 0 ... N - 1 of the elements, in rows (N is the number of elements where None).

    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.vander.html

    >>> ad.linalg.vander(ad.tensor([2, 3]), N=3)
    tensor([[1, 2, 4],
            [1, 3, 9]])
    """
    x = hold_sizes("vander", x)
    if not x.ndim:
        x = x.unsqueeze(0)
    n = x.shape[-1] if N is None else N
    if n <= 1 and N is not None:
        raise InvalidArgument(f"linalg.vander: N must be greater than 1, got {N}")
    if x.dtype.category < 2:
        x = x.long()
    powers = [FUNCTIONS["ones_like"](x)]
    for _ in range(n - 1):
        powers.append(powers[-1] * x)
    return FUNCTIONS["stack"](powers, -1)
