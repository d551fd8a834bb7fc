"""Products of Householder reflections, and decompositions of matrices of low rank."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from ...core.errors import InvalidArgument, ShapeError
from ...core.op import Op, Sample
from ...core.spec import Spec
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply
from ...runtime.public import FUNCTIONS, explaining, public, with_out
from ..random.streams import draw_for, draw_normal
from ..samples import array
from ..shape.sizes import hold_sizes
from .matrix_factors import linalg_qr, linalg_svd
from .matrix_product import matmul
from .matrix_samples import assert_matrices

__all__ = ["geqrf", "orgqr", "ormqr", "pca_lowrank", "svd_lowrank"]


class Geqrf(Op):
    """R above the diagonal and the reflections that make up Q below it, with their scales."""

    n_outputs = 2
    differentiable = False
    core = (2,)

    def infer(self, spec: Spec) -> tuple[Spec, Spec]:
        """Specs of a matrix like the input, and of one scale per reflection."""
        return spec, spec.with_(shape=(*spec.shape[:-2], min(spec.shape[-2:])))

    def compute(self, xp: Any, x: Any) -> Any:
        """Reflections and scales by LAPACK."""
        k = min(x.shape[-2:])
        if not x.size:
            return x.copy(), xp.zeros((*x.shape[:-2], k), x.dtype)
        packed, tau = xp.linalg.qr(x, mode="raw")
        return xp.ascontiguousarray(xp.swapaxes(packed, -1, -2)), xp.ascontiguousarray(tau)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Tall, wide, batches, empty."""
        for shape in ((3, 3), (4, 2), (2, 4), (2, 3, 2), (3, 0), (0, 2, 2)):
            yield Sample(cls(), (array(shape),), str(shape))

    def reference(self, x: Any) -> Any:
        """SciPy's, matrix by matrix."""
        from scipy import linalg

        k = min(x.shape[-2:])
        packed, taus = np.zeros_like(x), np.zeros((*x.shape[:-2], k))
        if not x.size:
            return packed, taus
        for place in np.ndindex(*x.shape[:-2]):
            packed[place], taus[place] = linalg.qr(x[place], mode="raw")[0]
        return packed, taus


class GeqrfResult(NamedTuple):
    """The results of `geqrf`."""

    a: Any
    tau: Any


@public(out=True)
def geqrf(input: Tensor) -> Any:
    """The QR decomposition as LAPACK stores it: R on and above the diagonal, the reflections whose
    product is Q below it, and their scales tau.

    Shapes: (..., m, n): (..., m, n) and (..., min(m, n)).
    Source: https://docs.pytorch.org/docs/stable/generated/torch.geqrf.html

    >>> ad.geqrf(ad.tensor([[3., 0.], [4., 1.]])).tau[0]
    tensor(1.6000)
    """
    assert_matrices("geqrf", input)
    return GeqrfResult(*apply(Geqrf(), input))


def _reflections(name: str, A: Any, tau: Any) -> list[tuple[Any, Any]]:
    """Vector (a column) and scale of each reflection."""
    assert_matrices(name, A)
    m, n = A.shape[-2:]
    if tau.shape[-1] > min(m, n) or tau.shape[:-1] != A.shape[:-2]:
        raise ShapeError(
            f"{name}: input.shape[-1] must be greater than or equal to tau.shape[-1], got input "
            f"{tuple(A.shape)} and tau {tuple(tau.shape)}"
        )
    found = []
    for i in range(tau.shape[-1]):
        column = A[..., i : i + 1]
        one = column.new_ones((*column.shape[:-2], 1, 1))
        zeros = column.new_zeros((*column.shape[:-2], i, 1))
        vector = FUNCTIONS["cat"]([zeros, one, column[..., i + 1 :, :]], -2)
        found.append((vector, tau[..., i : i + 1].unsqueeze(-1)))
    return found


@with_out
def householder_product(A: Tensor, tau: Tensor) -> Tensor:
    """The first columns of the product of the reflections I - tau_i v_i v_i^H.

    v_i is column i of `A` below the diagonal, with 1 on it and 0 above: what `geqrf` gives.

    Shapes: A (..., m, n) with m >= n, tau (..., k) with k <= n: (..., m, n).
    Errors: ShapeError for other shapes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.householder_product.html

    >>> ad.linalg.householder_product(*ad.geqrf(ad.tensor([[3.], [4.]])))
    tensor([[-0.6000],
            [-0.8000]])
    """
    A = hold_sizes("householder_product", A)  # noqa: N806
    reflections = _reflections("linalg.householder_product", A, tau)
    m, n = A.shape[-2:]
    if n > m:
        raise ShapeError(
            "linalg.householder_product: input.shape[-2] must be greater than or equal to "
            f"input.shape[-1], got {tuple(A.shape)}"
        )
    product: Any = FUNCTIONS["eye"](m, n, dtype=A.dtype, device=A.device).expand(A.shape)
    for vector, scale in reversed(reflections):
        product = product - scale * matmul(vector, matmul(vector.mH, product))
    # Without reflections the product does not depend on A, and yet has a gradient: zero.
    return product if reflections else product + A.flatten()[:0].sum()


@public(out=True)
def orgqr(input: Tensor, input2: Tensor) -> Tensor:
    """The first columns of a product of reflections; another name of
    `adjoint.linalg.householder_product`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.orgqr.html

    >>> ad.orgqr(*ad.geqrf(ad.tensor([[3.], [4.]])))
    tensor([[-0.6000],
            [-0.8000]])
    """
    return householder_product(input, input2)


@public(out=True)
def ormqr(
    input: Tensor, input2: Tensor, input3: Tensor, left: bool = True, transpose: bool = False
) -> Tensor:
    """`input3` times the square matrix Q that the reflections `input` with the factors `input2`
    make up, from the left or the right.

    Shapes: input (..., mn, k), input2 (..., k), input3 (..., m, n); mn is m, or n where not `left`.
    Errors: ShapeError for other shapes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.ormqr.html

    >>> packed, tau = ad.geqrf(ad.tensor([[3.], [4.]]))
    >>> ad.ormqr(packed, tau, ad.tensor([[3.], [4.]]), transpose=True).round(decimals=4)
    tensor([[-5.],
            [ 0.]])
    """
    input = hold_sizes("ormqr", input)
    reflections = _reflections("ormqr", input, input2)
    # Q is H_1 ... H_k: from the left the last reflection comes first; transposed, conversely.
    forward = left == transpose
    result: Any = input3
    for vector, scale in reflections if forward else reversed(reflections):
        factor = scale.conj() if transpose else scale
        if left:
            result = result - factor * matmul(vector, matmul(vector.mH, result))
        else:
            result = result - matmul(matmul(result, vector), factor * vector.mH)
    return result


# ---- low rank ------------------------------------------------------------------------------------


def _basis(A: Any, q: int, niter: int) -> Any:
    """Orthonormal columns that nearly span those of A (Halko et al. 2009, algorithm 4.4)."""
    start = draw_for((A,), draw_normal, (A.shape[-1], q), A.dtype, None, A.device)
    Q: Any = linalg_qr(matmul(A, start)).Q  # noqa: N806
    for _ in range(niter):
        Q = linalg_qr(matmul(A.mH, Q)).Q  # noqa: N806
        Q = linalg_qr(matmul(A, Q)).Q  # noqa: N806
    return Q


@explaining
@public(method=False)
def svd_lowrank(
    A: Tensor, q: int | None = 6, niter: int | None = 2, M: Any = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The largest singular values and vectors of A (of A - M), about as many as `q`, by chance.

    A is nearly U diag(S) V^H; exactly, up to rounding, where its rank is at most `q`.

    Shapes: (..., m, n): (..., m, q), (..., q), (..., n, q).
    Source: https://docs.pytorch.org/docs/stable/generated/torch.svd_lowrank.html

    >>> ad.svd_lowrank(ad.ones(4, 4), q=1)[1].round(decimals=4)
    tensor([4.])
    """
    A = hold_sizes("svd_lowrank", A)  # noqa: N806
    x: Any = A if M is None else A - M.expand(A.shape)
    wide = x.shape[-2] < x.shape[-1]
    if wide:
        x = x.mH
    basis = _basis(x, 6 if q is None else q, 2 if niter is None else niter)
    left, values, right = linalg_svd(matmul(basis.mH, x), full_matrices=False)
    left, right = matmul(basis, left), right.mH
    return (right, values, left) if wide else (left, values, right)


@explaining
@public(method=False)
def pca_lowrank(
    A: Tensor, q: int | None = None, center: bool = True, niter: int = 2
) -> tuple[Tensor, Tensor, Tensor]:
    """Principal components of the rows of A: `svd_lowrank` of A less its mean row.

    Errors: InvalidArgument for a `q` or `niter` out of range.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.pca_lowrank.html

    >>> ad.pca_lowrank(ad.tensor([[1., 0.], [3., 0.]]), q=1)[1].round(decimals=4)
    tensor([1.4142])
    """
    A = hold_sizes("pca_lowrank", A)  # noqa: N806
    m, n = A.shape[-2:]
    if q is None:
        q = min(6, m, n)
    elif not 0 <= q <= min(m, n):
        raise InvalidArgument(
            f"pca_lowrank: q(={q}) must be non-negative integer and not greater than "
            f"min(m, n)={min(m, n)}"
        )
    if niter < 0:
        raise InvalidArgument(f"pca_lowrank: niter(={niter}) must be non-negative integer")
    x: Any = A - A.mean(-2, keepdim=True) if center else A
    return svd_lowrank(x, q, niter)
