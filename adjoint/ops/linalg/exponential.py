"""The exponential of matrices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.op import Op, Sample
from ...core.spec import Spec
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply
from ...runtime.public import explaining, public
from ..promotion import cast
from ..shape.concatenation import cat
from .matrix_product import conj_transposed
from .matrix_samples import NUMERIC, assert_matrices, general_samples, square_shapes

_PADE = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0,
    129060195264000.0, 10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0, 40840800.0,
    960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
_NORM = 5.4  # up to which the approximant is exact to float64's precision


class MatrixExp(Op):
    """The exponential of a square matrix.

    Source: Higham, "The scaling and squaring method for the matrix exponential revisited", 2005.
    """

    core = (2,)

    def infer(self, a: Spec) -> Spec:
        """The input's spec."""
        return a

    def compute(self, xp: Any, a: Any) -> Any:
        """Scaling and squaring: each matrix is halved until its norm is small, and its exponential
        is squared as often.
        """
        size = xp.max(xp.abs(a).sum(-2), axis=-1, initial=0)
        size = xp.where((size > _NORM) & (size < np.inf), size, _NORM)
        halvings = xp.ceil(xp.log2(size / _NORM))
        x = a * (0.5**halvings)[..., None, None].astype(size.dtype)
        unit = xp.eye(a.shape[-1], dtype=a.dtype)
        x2 = x @ x
        x4 = x2 @ x2
        x6 = x4 @ x2
        b = _PADE
        odd = x6 @ (x6 * b[13] + x4 * b[11] + x2 * b[9])
        odd = x @ (odd + x6 * b[7] + x4 * b[5] + x2 * b[3] + unit * b[1])
        even = x6 @ (x6 * b[12] + x4 * b[10] + x2 * b[8])
        even = even + x6 * b[6] + x4 * b[4] + x2 * b[2] + unit * b[0]
        y = xp.linalg.solve(even - odd, even + odd)
        for k in range(int(xp.max(halvings, initial=0))):
            y = xp.where((halvings > k)[..., None, None], y @ y, y)
        return y

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """A corner of the exponential of twice the size, with A^H on its diagonal and g above it.

        Source: Al-Mohy and Higham, "Computing the Frechet derivative of the matrix exponential,
        with an application to condition number estimation", 2009.
        """
        n = x.shape[-1]
        xh = conj_transposed(x)
        rows = cat([xh, g], -1), cat([xh * 0, xh], -1)
        return (apply(MATRIX_EXP, cat(rows, -2))[..., :n, n:],)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Every shape and dtype; zero; small and large norms in a batch."""
        for label, shape in square_shapes():
            yield Sample(cls(), (general_samples(shape),), label)
        for dtype in NUMERIC:
            yield Sample(cls(), (general_samples((3, 3), dtype),), dtype.name)
        yield Sample(cls(), (np.zeros((3, 3)),), "zero")
        scales = np.array([0.01, 1, 6.0])[:, None, None]
        yield Sample(cls(), (general_samples((3, 2, 2)) * scales,), "norms")

    def reference(self, a: Any) -> Any:
        """Taylor's series of the matrix over 2^20, squared 20 times, with more digits."""
        wide = a.astype(np.clongdouble if a.dtype.kind == "c" else np.longdouble) / 2**20
        term = result = np.broadcast_to(np.eye(a.shape[-1], dtype=wide.dtype), a.shape)
        for k in range(1, 8):
            term = np.einsum("...ij,...jk->...ik", term, wide) / k
            result = result + term
        for _ in range(20):
            result = np.einsum("...ij,...jk->...ik", result, result)
        return result.astype(a.dtype)


MATRIX_EXP = MatrixExp()


@explaining
@public()
def matrix_exp(A: Tensor) -> Tensor:
    """The exponential of square matrices, by scaling and squaring (Higham, 2005).

    Shapes: (..., n, n).
    Dtypes: floating point and complex; float16 and bfloat16 are computed in float32.
    Errors: ShapeError for matrices that are not square.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.matrix_exp.html

    >>> ad.matrix_exp(ad.tensor([[0., 1.], [0., 0.]]))
    tensor([[1., 1.],
            [0., 1.]])
    """
    if isinstance(A, TensorBase) and A.dtype in dt.LOW_PRECISION:
        return cast(matrix_exp(cast(A, dt.float32)), A.dtype)
    assert_matrices("linalg.matrix_exp", A, square=True)
    return apply(MATRIX_EXP, A)
