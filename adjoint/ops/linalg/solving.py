"""Linear systems: solve, inverse, pseudo-inverse, determinants."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.errors import DTypeError, LinalgError, ShapeError
from ...core.op import Op, Sample
from ...core.spec import Spec, broadcast_shapes
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply
from ..elementwise.namespace import conj
from ..samples import array, each_dtype
from .matrix_product import conj_transposed, matmul
from .matrix_samples import (
    NUMERIC,
    general_samples,
    hermitian_samples,
    square_shapes,
    where_it_fails,
)


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

    gufunc = "inv"
    library = "moves"
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
        """Reference value from the singular value decomposition."""
        u, s, vh = np.linalg.svd(a)
        return np.conj(np.swapaxes(vh, -1, -2)) @ (np.conj(np.swapaxes(u, -1, -2)) / s[..., None])


class InverseOrInfinite(Inverse):
    """The inverse; of a singular matrix, its cofactors over zero: infinite, or NaN."""

    def compute(self, xp: Any, a: Any) -> Any:
        """The backend's inverse, matrix by matrix where one has none."""
        try:
            return xp.linalg.inv(a)
        except np.linalg.LinAlgError:
            pass
        if a.ndim == 2:
            lu, pivots = xp.lu_factor(a, True)
            swaps = int(xp.asarray(pivots != xp.arange(1, len(a) + 1)).sum())
            zero = lu.diagonal().prod() * (-1) ** swaps  # of the determinant's sign
            cofactors = xp.conj(xp.swapaxes(COFACTORS.compute(xp, a), -1, -2))
            return cofactors / (zero * xp.ones_like(a))
        flat = a.reshape(-1, *a.shape[-2:])
        return xp.stack([self.compute(xp, each) for each in flat]).reshape(a.shape)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """As the inverse, and a batch in which one matrix is singular."""
        yield from _square_samples(cls)
        a = general_samples((2, 3, 3))
        a[1] = 0
        yield Sample(cls(), (a,), "singular", gradients=False)

    def reference(self, a: Any) -> Any:
        """Reference value from the singular value decomposition."""
        with np.errstate(all="ignore"):
            return super().reference(a)


class Solve(Op):
    """X with A X = B, of a square A and a matrix B."""

    gufunc = "solve"
    library = "moves"
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
        """Reference value by the inverse."""
        return np.linalg.inv(a) @ b


@dataclass(eq=False, repr=False)
class CholeskySolve(Op):
    """X with A X = B, from A's triangular factor, whose other triangle is not read. The factor has
    a whole gradient, as (L L^H)^-1 B has of any L.
    """

    upper: bool
    library = "moves"
    needs = ("x2", "x2 y")
    core = (2,)

    def infer(self, b: Spec, factor: Spec) -> Spec:
        """B's shape, batches broadcast."""
        if b.dtype is not factor.dtype:
            raise DTypeError(
                f"cholesky_solve: expected both to have the same dtype, got {b.dtype} and "
                f"{factor.dtype}; convert one with .to()"
            )
        if factor.shape[-1] != factor.shape[-2] or factor.shape[-1] != b.shape[-2]:
            raise ShapeError(
                f"cholesky_solve: Incompatible matrix sizes for cholesky_solve: the factor is "
                f"{factor.shape[-2]}x{factor.shape[-1]}, but the right-hand side has "
                f"{b.shape[-2]} rows"
            )
        batch = broadcast_shapes(b.shape[:-2], factor.shape[:-2], op="cholesky_solve")
        return b.with_(shape=(*batch, *b.shape[-2:]))

    def compute(self, xp: Any, b: Any, factor: Any) -> Any:
        """The backend's substitution, forward and back."""
        other = xp.conj(xp.swapaxes(factor, -1, -2))
        first, second = (other, factor) if self.upper else (factor, other)
        middle = xp.solve_triangular(first, b, False, False)
        return xp.solve_triangular(second, middle, True, False)

    def gradient(self, g: Tensor, x2: Tensor, y: Any) -> tuple[Any, ...]:
        """The system solved for g; minus the Hermitian part of that times X^H, twice, and L."""
        gb = apply(self, g, x2)

        def factor() -> Tensor:
            part = matmul(gb, conj_transposed(y))
            part = -(part + conj_transposed(part))
            return matmul(x2, part) if self.upper else matmul(part, x2)

        return (gb, factor)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Both triangles, every dtype, batches that broadcast both ways, none; gradients are tested
        beside those of solve.
        """
        for upper in (False, True):
            for dtype in NUMERIC:
                factor = np.tril(general_samples((3, 3), dtype))
                factor = factor.T if upper else factor
                label = f"{upper}-{dtype.name}"
                inputs = (array((3, 2), dtype), factor)
                yield Sample(cls(upper), inputs, label, gradients=False)
        one, several = np.tril(general_samples((2, 2))), np.tril(general_samples((3, 2, 2)))
        yield Sample(cls(False), (array((3, 2, 1)), one), "broadcast-factor", gradients=False)
        yield Sample(cls(False), (array((2, 1)), several), "broadcast-b", gradients=False)
        yield Sample(cls(False), (np.zeros((0, 2)), np.zeros((0, 0))), "empty", gradients=False)

    def reference(self, b: Any, factor: Any) -> Any:
        """Reference value by the inverse."""
        lower = np.conj(np.swapaxes(np.triu(factor), -1, -2)) if self.upper else np.tril(factor)
        return np.linalg.inv(lower @ np.conj(np.swapaxes(lower, -1, -2))) @ b


class Determinant(Op):
    """The determinant of a square matrix."""

    gufunc = "det"
    core = (2,)

    def infer(self, a: Spec) -> Spec:
        """A spec of one number per matrix."""
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


def _trace(x: Tensor) -> Tensor:
    """The traces, as matrices of one element."""
    return x.diagonal(0, -2, -1).sum(-1).unsqueeze(-1).unsqueeze(-1)


class Cofactors(Op):
    """The conjugate of the matrix of cofactors, conj(det A) A^-H, of singular matrices too."""

    core = (2,)

    def infer(self, a: Spec) -> Spec:
        """The input's spec."""
        return a

    def compute(self, xp: Any, a: Any) -> Any:
        """Cofactors by the inverse where that is accurate to half of the digits, so that there is
        one; else from the singular values: the product of all others in the place of each.
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

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """An op of its own, for singular matrices too."""
        return (apply(COFACTORS_GRADIENT, g, x),)

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


class CofactorsGradient(Op):
    """The gradient of A from that of its cofactors, of singular matrices too.

    Where A = U S V^H it is that at S, turned: the cofactors of S are products of all other singular
    values, and those of two places have products of all but two in their derivatives.
    """

    core = (2, 2)

    def infer(self, g: Spec, a: Spec) -> Spec:
        """The matrix's spec."""
        if g != a or a.shape[-1:] != a.shape[-2:-1]:
            raise ShapeError(f"{self.name}: {g.shape} is no gradient of cofactors of {a.shape}")
        return a

    def compute(self, xp: Any, g: Any, a: Any) -> Any:
        """All from the singular values."""
        n = a.shape[-1]
        if not a.size:
            return xp.zeros_like(a)
        u, s, vh = xp.linalg.svd(a)
        uh, v = (xp.conj(xp.swapaxes(x, -1, -2)) for x in (u, vh))
        turned = uh @ g @ v
        share = self._all_but_two(xp, s, n)
        eye = xp.eye(n, dtype=bool)
        sums = (share @ xp.where(eye, turned, 0).sum(-1)[..., None])[..., 0]
        inner = xp.where(eye, sums[..., None], -share * xp.swapaxes(turned, -1, -2))
        scale = (xp.linalg.det(u) * xp.linalg.det(vh))[..., None, None]
        return (xp.conj(scale) * (u @ xp.conj(inner) @ vh)).astype(a.dtype, copy=False)

    @staticmethod
    def _all_but_two(xp: Any, s: Any, n: int) -> Any:
        """The products of all of `s` but those of row and column; 0 on the diagonal. `s` falls, so
        that where one but the last three is zero, all are.
        """
        start = max(n - 3, 0)
        head, tail, index = s[..., :start], s[..., start:], xp.arange(n)
        divides = (index < start) & (s != 0)
        inverse = xp.where(divides, 1 / xp.where(divides, s, 1), xp.where(index < start, 0, 1))
        last = index[start:]
        kept = (last != index[:, None, None]) & (last != index[:, None])
        rest = xp.where(kept, tail[..., None, None, :], 1).prod(-1)
        whole = head.prod(-1)[..., None, None] * inverse[..., :, None] * inverse[..., None, :]
        return xp.where(xp.eye(n, dtype=bool), 0, whole * rest)

    def gradient(self, g: Tensor, x1: Tensor, x2: Tensor) -> tuple[Any, ...]:
        """The cotangent's is the op itself; A's is the third derivative of the determinant, where A
        is regular.
        """
        direct = apply(COFACTORS_GRADIENT, g, x2)

        def matrix() -> Tensor:
            inverse = conj_transposed(apply(INVERSE, x2))
            first, second = (
                matmul(conj_transposed(x1), inverse),
                matmul(conj_transposed(g), inverse),
            )
            one, two, both = _trace(first), _trace(second), matmul(first, second)
            inner = both + matmul(second, first) - one * second - two * first
            scale = conj(apply(Determinant(), x2)).unsqueeze(-1).unsqueeze(-1)
            return scale * ((one * two - _trace(both)) * inverse + matmul(inverse, inner))

        return (direct, matrix)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Regular and singular matrices, of one to five rows."""
        for n in (1, 2, 3, 5):
            yield Sample(cls(), (array((n, n)), general_samples((n, n))), f"{n}")
        for dtype in NUMERIC:
            yield Sample(cls(), (array((3, 3), dtype), general_samples((3, 3), dtype)), dtype.name)
        yield Sample(cls(), (array((2, 3, 3)), general_samples((2, 3, 3))), "batch")
        yield Sample(cls(), (np.zeros((0, 0)), np.zeros((0, 0))), "empty")
        for rank in range(5):
            x = array((5, rank), seed=1) @ array((rank, 5), seed=2)
            yield Sample(cls(), (array((5, 5)), x), f"rank-{rank}", gradients=False)

    def reference(self, g: Any, a: Any) -> Any:
        """Cofactors are linear in each element: differences are exact."""
        cofactors = Cofactors().reference
        result = np.zeros(a.shape, a.dtype)
        for *batch, i, j in np.ndindex(*a.shape):
            matrix = a[tuple(batch)]
            moved = matrix.copy()
            moved[i, j] += 1
            change = np.conj(cofactors(moved) - cofactors(matrix))
            result[(*batch, i, j)] = np.conj((g[tuple(batch)] * change).sum())
        return result


class SLogDet(Op):
    """The sign of the determinant and the logarithm of its absolute value."""

    n_outputs = 2
    gufunc = "slogdet"
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
        inverse = conj_transposed(apply(InverseOrInfinite(), x))
        return (scale.unsqueeze(-1).unsqueeze(-1) * inverse,)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Regular matrices of either sign, and a singular one."""
        yield from _square_samples(cls)
        yield Sample(cls(), (-general_samples((3, 3)),), "negative")
        yield Sample(cls(), (np.zeros((2, 2)),), "singular", gradients=False)

    def reference(self, a: Any) -> Any:
        """Reference value from the determinant."""
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
        """The pseudo-inverse from the eigenvalues or the singular values."""
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
        """Reference value by SciPy."""
        import scipy.linalg

        result = np.zeros((*a.shape[:-2], a.shape[-1], a.shape[-2]), a.dtype)
        for i in np.ndindex(*a.shape[:-2]):
            if a[i].size:
                result[i] = scipy.linalg.pinv(a[i], rtol=rtol)
        return result


INVERSE, COFACTORS, COFACTORS_GRADIENT = Inverse(), Cofactors(), CofactorsGradient()
