"""A few eigenvalues at one end of the spectrum."""

from __future__ import annotations

from typing import Any

from ...core.errors import InvalidArgument, ShapeError, Unsupported
from ...core.tensor_type import Tensor
from ...runtime.public import explaining
from .linalg import solve_triangular
from .matrix_factors import cholesky, eigh
from .matrix_samples import assert_matrices


@explaining
def lobpcg(
    A: Tensor,
    k: int | None = None,
    B: Tensor | None = None,
    X: Tensor | None = None,
    n: int | None = None,
    iK: Tensor | None = None,
    niter: int | None = None,
    tol: float | None = None,
    largest: bool | None = None,
    method: str | None = None,
    tracker: Any = None,
    ortho_iparams: Any = None,
    ortho_fparams: Any = None,
    ortho_bparams: Any = None,
) -> tuple[Any, Any]:
    """The `k` largest eigenvalues (the smallest unless `largest`) and eigenvectors of A, symmetric,
    or of A x = lambda B x with a positive definite B.

    PyTorch's approaches them; here they are those of `linalg.eigh`, to the last digits: what says
    how to approach them (X, iK, niter, tol, method, the parameters of orthogonalization) is checked
    and not needed. A sparse A is made dense.

    Shapes: A and B (..., m, m); k at most m / 3, that of X unless given, else 1.
    Errors: InvalidArgument for a larger k; ShapeError for other shapes; Unsupported for a tracker.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.lobpcg.html

    >>> ad.lobpcg(ad.diag(ad.tensor([1., 2., 3.])), 1)[0]
    tensor([3.])
    """
    name = "lobpcg"
    if tracker is not None:
        raise Unsupported(f"{name}: there are no steps that a tracker could see; leave it out")
    if method not in (None, "basic", "ortho"):
        raise InvalidArgument(f"{name}: method must be 'basic' or 'ortho', got {method!r}")
    a: Any = A.to_dense()  # type: ignore[attr-defined]
    assert_matrices(name, a, square=True)
    rows = a.shape[-1]
    count = k if k is not None else X.shape[-1] if X is not None else 1
    wanted = n if n is not None else X.shape[-1] if X is not None else count
    if rows < 3 * wanted or not 0 < count <= wanted:
        raise InvalidArgument(
            f"LOBPCG algorithm is not applicable when the number of A rows (={rows}) is smaller "
            f"than 3 x the number of requested eigenpairs (={wanted})"
        )
    if X is not None and tuple(X.shape[-2:]) != (rows, wanted):
        raise ShapeError(f"{name}: X must be (..., {rows}, {wanted}), got {tuple(X.shape)}")
    lower: Any = None
    if B is not None:
        b: Any = B.to_dense()  # type: ignore[attr-defined]
        if tuple(b.shape) != tuple(a.shape):
            raise ShapeError(f"{name}: A has shape {tuple(a.shape)}, B {tuple(b.shape)}")
        lower = cholesky(b)
        half = solve_triangular(lower, a, upper=False)
        a = solve_triangular(lower, half.mT, upper=False)
    values, vectors = eigh(a)
    if largest is None or largest:
        values, vectors = values.flip(-1), vectors.flip(-1)
    values, vectors = values[..., :count], vectors[..., :count]
    if lower is not None:
        vectors = solve_triangular(lower.mT, vectors, upper=True)
    return values, vectors
