"""Linear systems: solve, inverse, pseudo-inverse, determinants."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.errors import LinalgError, ShapeError
from ...core.op import Op, Sample
from ...core.spec import Spec, broadcast_shapes
from ...core.types import Tensor
from ...eager.dispatch import apply
from ..elementwise.namespace import conj
from ..samples import array, each_dtype
from .decomposition import (
    NUMERIC,
    general_samples,
    hermitian_samples,
    square_shapes,
    where_it_fails,
)
from .matmul import conj_transposed, matmul


def singular(name: str, xp: Any, a: Any) -> LinalgError:
    """The error for a batch in which a matrix is singular: it says which, and its zero pivot."""
    where, matrix = where_it_fails(np.linalg.inv, a)
    pivots = np.diagonal(xp.lu_factor(matrix, True)[0])
    zero = int(np.argmax(pivots == 0)) + 1
    done = "inversion could not be completed" if name.startswith("linalg.inv") else "solve failed"
    return LinalgError(
        f"{name}: {where}The diagonal element {zero} is zero, the {done} because the input matrix "
        "is singular; linalg.pinv and linalg.lstsq take such matrices"
    )


def _square_samples(cls: Any) -> Iterable[Sample]:
    """Matrices of every shape and dtype, far from singular."""
    for label, shape in square_shapes():
        yield Sample(cls(), (general_samples(shape),), label)
    for dtype in NUMERIC:
        yield Sample(cls(), (general_samples((3, 3), dtype),), dtype.name)


class Inverse(Op):
    """The inverse of a square matrix."""

    core = (2,)

    def infer(self, a: Spec) -> Spec:
        """The input's spec."""
        return a

    def compute(self, xp: Any, a: Any) -> Any:
        """The backend's inverse."""
        try:
            return xp.linalg.inv(a)
        except np.linalg.LinAlgError:
            raise singular("linalg.inv", xp, a) from None

    def gradient(self, g: Tensor, y: Tensor) -> tuple[Any, ...]:
        """-Y^H g Y^H."""
        yh = conj_transposed(y)
        return (-matmul(matmul(yh, g), yh),)

    samples = classmethod(_square_samples)

    def reference(self, a: Any) -> Any:
        """From the singular value decomposition."""
        u, s, vh = np.linalg.svd(a)
        return np.conj(np.swapaxes(vh, -1, -2)) @ (np.conj(np.swapaxes(u, -1, -2)) / s[..., None])


class Solve(Op):
    """X with A X = B, of a square A and a matrix B."""

    needs = ("x1 y", "x1")
    core = (2,)

    def infer(self, a: Spec, b: Spec) -> Spec:
        """B's shape, batches broadcast."""
        if a.shape[-1] != b.shape[-2]:
            raise ShapeError(
                f"linalg.solve: Incompatible shapes of A and B for the equation AX = B "
                f"({a.shape[-2]}x{a.shape[-1]} and {b.shape[-2]}x{b.shape[-1]})"
            )
        batch = broadcast_shapes(a.shape[:-2], b.shape[:-2], op="linalg.solve")
        return b.with_(shape=(*batch, *b.shape[-2:]))

    def compute(self, xp: Any, a: Any, b: Any) -> Any:
        """The backend's elimination."""
        if b.ndim == 1 or a.shape[-1] != b.shape[-2]:
            raise ValueError("shapes")  # infer says which
        try:
            return xp.linalg.solve(a, b)
        except np.linalg.LinAlgError:
            raise singular("linalg.solve", xp, a) from None

    def gradient(self, g: Tensor, x1: Tensor, y: Any) -> tuple[Any, ...]:
        """A^-H g for B, and minus that times X^H for A."""
        gb = apply(self, conj_transposed(x1), g)
        return (lambda: -matmul(gb, conj_transposed(y)), gb)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """One, batches that broadcast both ways, no columns."""
        for label, shape in square_shapes():
            yield Sample(cls(), (general_samples(shape), array((*shape[:-1], 2))), label)
        yield Sample(cls(), (general_samples((2, 2)), array((3, 2, 1))), "broadcast-a")
        yield Sample(cls(), (general_samples((3, 2, 2)), array((2, 1))), "broadcast-b")
        yield Sample(cls(), (general_samples((2, 2)), array((2, 0))), "no-columns")
        for dtype in NUMERIC:
            inputs = (general_samples((3, 3), dtype), array((3, 2), dtype))
            yield Sample(cls(), inputs, dtype.name)

    def reference(self, a: Any, b: Any) -> Any:
        """By the inverse."""
        return np.linalg.inv(a) @ b


class Determinant(Op):
    """The determinant of a square matrix."""

    core = (2,)

    def infer(self, a: Spec) -> Spec:
        """One number per matrix."""
        return a.with_(shape=a.shape[:-2])

    def compute(self, xp: Any, a: Any) -> Any:
        """The backend's determinant."""
        return xp.linalg.det(a)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """g times the conjugate cofactors, which singular matrices have too."""
        return (g.unsqueeze(-1).unsqueeze(-1) * apply(COFACTORS, x),)

    samples = classmethod(_square_samples)  # gradients of singular ones: with the cofactors

    def reference(self, a: Any) -> Any:
        """The product of the eigenvalues."""
        product = np.prod(np.linalg.eigvals(a), axis=-1)
        return product if a.dtype.kind == "c" else product.real


class Cofactors(Op):
    """The conjugate of the matrix of cofactors, conj(det A) A^-H, of singular matrices too."""

    core = (2,)

    def infer(self, a: Spec) -> Spec:
        """The input's spec."""
        return a

    def compute(self, xp: Any, a: Any) -> Any:
        """By the inverse where that is accurate to half of the digits, so that there is one; else
        from the singular values: the product of all others in the place of each.
        """
        inverse = self._inverse(xp, a)
        if inverse is not None:
            scale = xp.conj(xp.linalg.det(a))[..., None, None]
            return scale * xp.conj(xp.swapaxes(inverse, -1, -2))
        u, s, vh = xp.linalg.svd(a)
        n = s.shape[-1]
        others = xp.where(xp.eye(n, dtype=bool), 1, s[..., None, :]).prod(-1)
        scale = others * (xp.linalg.det(u) * xp.linalg.det(vh))[..., None]
        return ((u * xp.conj(scale)[..., None, :]) @ vh).astype(a.dtype, copy=False)

    def _inverse(self, xp: Any, a: Any) -> Any:
        """The inverses; None where one of the matrices is too near to a singular one."""
        if not a.size:
            return None
        try:
            inverse = xp.linalg.inv(a)
        except np.linalg.LinAlgError:
            return None
        first, second = (xp.abs(x).sum(-2).max(-1) for x in (a, inverse))
        accurate = first * second < np.finfo(a.dtype).eps ** -0.5
        return inverse if bool(accurate.all()) else None

    def gradient(self, g: Tensor, x: Tensor, y: Tensor) -> tuple[Any, ...]:
        """The derivative of conj(det A) A^-H, where A is regular."""
        inverse = conj_transposed(apply(INVERSE, x))
        scale = conj((g * conj(inverse)).sum((-2, -1)))
        product = matmul(matmul(y, conj_transposed(g)), inverse)
        return (scale.unsqueeze(-1).unsqueeze(-1) * y - product,)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Regular and singular matrices."""
        yield from _square_samples(cls)
        x = array((3, 3))
        x[0] = x[1] + x[2]
        yield Sample(cls(), (x,), "singular", gradients=False)
        yield Sample(cls(), (np.zeros((3, 3)),), "zero", gradients=False)

    def reference(self, a: Any) -> Any:
        """Minor by minor."""
        result = np.zeros(a.shape, a.dtype)
        for *batch, i, j in np.ndindex(*a.shape):
            rest = np.delete(np.delete(a[tuple(batch)], i, 0), j, 1)
            result[(*batch, i, j)] = (-1) ** (i + j) * np.linalg.det(rest)
        return np.conj(result)


class SLogDet(Op):
    """The sign of the determinant and the logarithm of its absolute value."""

    n_outputs = 2
    core = (2,)

    def infer(self, a: Spec) -> tuple[Spec, Spec]:
        """Two numbers per matrix; the logarithm is real."""
        one = a.with_(shape=a.shape[:-2])
        return one, one.with_(dtype=a.dtype.to_real())

    def compute(self, xp: Any, a: Any) -> Any:
        """The backend's factorization."""
        return tuple(xp.linalg.slogdet(a))

    def gradient(self, g: Any, x: Tensor, y: Any) -> tuple[Any, ...]:
        """A^-H times the logarithm's cotangent; a complex sign turns with the imaginary part."""
        gsign, scale = g
        if x.dtype.is_complex and gsign is not None:
            turn = (conj(gsign) * y[0]).imag * -1j
            scale = turn if scale is None else scale + turn
        if scale is None:
            return (None,)
        return (scale.unsqueeze(-1).unsqueeze(-1) * conj_transposed(apply(INVERSE, x)),)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Regular matrices of either sign, and a singular one."""
        yield from _square_samples(cls)
        yield Sample(cls(), (-general_samples((3, 3)),), "negative")
        yield Sample(cls(), (np.zeros((2, 2)),), "singular", gradients=False)

    def reference(self, a: Any) -> Any:
        """From the determinant."""
        found = np.linalg.det(a.astype(np.complex128 if a.dtype.kind == "c" else np.float64))
        size = np.abs(found)
        with np.errstate(divide="ignore"):
            return found / np.where(size == 0, 1, size), np.log(size)


@dataclass(eq=False, repr=False)
class PseudoInverse(Op):
    """The Moore-Penrose inverse; singular values up to max(atol, rtol * the largest) count as 0.
    Inputs: the matrix, atol and rtol (numbers or one per matrix).
    """

    hermitian: bool = False
    core = (2, 0)

    def infer(self, a: Spec, atol: Any, rtol: Any) -> Spec:
        """(m, n) gives (n, m)."""
        return a.with_(shape=(*a.shape[:-2], a.shape[-1], a.shape[-2]))

    def compute(self, xp: Any, a: Any, atol: Any, rtol: Any) -> Any:
        """From the eigenvalues or the singular values."""
        try:
            if self.hermitian:
                values, vectors = xp.linalg.eigh(a)
                u, s, vh = vectors, values, xp.conj(xp.swapaxes(vectors, -1, -2))
            else:
                u, s, vh = xp.linalg.svd(a, full_matrices=False)
        except np.linalg.LinAlgError:
            where, _ = where_it_fails(np.linalg.svd, a)
            raise LinalgError(
                f"linalg.pinv: {where}The algorithm failed to converge because the input matrix "
                "contains non-finite values."
            ) from None
        size = xp.abs(s)
        if s.shape[-1]:
            atol, rtol = (xp.asarray(t)[..., None] for t in (atol, rtol))
            keep = size > xp.maximum(atol, rtol * size.max(-1, keepdims=True))
            s = xp.where(keep, 1 / xp.where(keep, s, 1), 0)
        columns = xp.conj(xp.swapaxes(vh, -1, -2)) * s[..., None, :]
        return (columns @ xp.conj(xp.swapaxes(u, -1, -2))).astype(a.dtype, copy=False)

    def gradient(self, g: Tensor, x1: Tensor, y: Tensor) -> tuple[Any, ...]:
        """Golub and Pereyra (1973), for matrices of constant rank."""
        gh, yh = conj_transposed(g), conj_transposed(y)
        if x1.shape[-2] <= x1.shape[-1]:
            k = matmul(gh, y)
            ky = matmul(k, yh)
            result = ky - conj_transposed(matmul(y, k)) - matmul(matmul(x1, y), ky)
            return (result + matmul(matmul(yh, y), gh - matmul(k, x1)), None, None)
        k = matmul(y, gh)
        yk = matmul(yh, k)
        result = yk - conj_transposed(matmul(k, y)) - matmul(matmul(yk, y), x1)
        return (result + matmul(matmul(gh - matmul(x1, k), y), yh), None, None)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Every shape, rank deficient, Hermitian."""
        for label, shape in (*square_shapes(), ("tall", (4, 2)), ("wide", (2, 4))):
            yield Sample(cls(), (array(shape), 0.0, 1e-12), label)
        yield from each_dtype(cls(), NUMERIC, (3, 2), 0.0, 1e-5)
        x = array((4, 2)) @ array((2, 3))
        yield Sample(cls(), (x, 0.0, 1e-8), "deficient", gradients=False)
        x = hermitian_samples((3, 3))
        yield Sample(cls(True), (x, 0.0, 1e-8), "hermitian", gradients=False)

    def reference(self, a: Any, atol: Any, rtol: Any) -> Any:
        """By SciPy."""
        import scipy.linalg

        result = np.zeros((*a.shape[:-2], a.shape[-1], a.shape[-2]), a.dtype)
        for i in np.ndindex(*a.shape[:-2]):
            if a[i].size:
                result[i] = scipy.linalg.pinv(a[i], rtol=rtol)
        return result


INVERSE, COFACTORS = Inverse(), Cofactors()
