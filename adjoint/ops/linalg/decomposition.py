"""Matrix decompositions by elimination and reflections: Cholesky, QR, LU; triangular systems."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.errors import DTypeError, LinalgError, ShapeError, Unsupported
from ...core.op import Op, Sample
from ...core.spec import Spec
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply
from ..samples import array, each_dtype
from .matrix_product import conj_transposed, matmul
from .matrix_samples import (
    NUMERIC,
    _diagonal,
    _embed,
    _real,
    general_samples,
    hermitian_samples,
    indefinite_minor,
    square_shapes,
    where_it_fails,
)
from .spectra import SVD as SVD
from .spectra import Eig as Eig
from .spectra import Eigh as Eigh


@dataclass(eq=False, repr=False)
class Cholesky(Op):
    """L (or U) with A = L L^H (or U^H U), of Hermitian positive definite A."""

    upper: bool = False
    library = "moves"
    core = (2,)

    def infer(self, a: Spec) -> Spec:
        """The input's spec."""
        return a

    def compute(self, xp: Any, a: Any) -> Any:
        """The backend's factorization of the triangle that is asked for."""
        if self.upper:
            a = xp.conj(xp.swapaxes(a, -1, -2))
        try:
            lower = xp.cholesky(a)
        except np.linalg.LinAlgError:
            where, matrix = where_it_fails(np.linalg.cholesky, a)
            raise LinalgError(
                f"linalg.cholesky: {where}The factorization could not be completed because the "
                f"input is not positive-definite (the leading minor of order "
                f"{indefinite_minor(matrix) or len(matrix)} is not positive-definite)."
            ) from None
        return xp.conj(xp.swapaxes(lower, -1, -2)) if self.upper else lower

    def gradient(self, g: Tensor, y: Tensor) -> tuple[Any, ...]:
        """An op of its own; of the upper factor, as of the lower one."""
        lower, gl = (conj_transposed(y), conj_transposed(g)) if self.upper else (y, g)
        return (apply(CholeskyGradient(), lower, gl),)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Positive definite; gradients are tested through a symmetric function of the input."""
        for label, shape in square_shapes():
            yield Sample(cls(), (hermitian_samples(shape),), label, gradients=False)
        for dtype in NUMERIC:
            inputs = (hermitian_samples((3, 3), dtype),)
            yield Sample(cls(True), inputs, f"upper-{dtype.name}", gradients=False)

    def reference(self, a: Any) -> Any:
        """Reference value from the LDL decomposition by elimination."""
        wide = a.astype(np.complex128 if a.dtype.kind == "c" else np.float64)
        result = np.zeros_like(wide)
        for index in np.ndindex(*a.shape[:-2]):
            rest = wide[index].copy()
            for j in range(a.shape[-1]):
                column = rest[:, j] / np.sqrt(rest[j, j])
                result[index][:, j] = column
                rest -= np.outer(column, column.conj())
        return np.conj(np.swapaxes(result, -1, -2)) if self.upper else result


class CholeskyGradient(Op):
    """The gradient G of A from that of its lower factor L, of both of which one triangle is read:
    G = L^-H S L^-1, where S is half the lower triangle of L^H gL, and that mirrored.

    Source: Murray, "Differentiation of the Cholesky decomposition", 2016.
    """

    library = "moves"
    needs = ("x1 x2 y", "x1")

    def infer(self, lower: Spec, g: Spec) -> Spec:
        """The spec of both."""
        if g != lower or lower.shape[-1:] != lower.shape[-2:-1]:
            raise ShapeError(f"{self.name}: {g.shape} is no gradient of a factor, {lower.shape}")
        return lower

    def compute(self, xp: Any, lower: Any, g: Any) -> Any:
        """The backend's, in blocks."""
        return xp.cholesky_gradient(lower, g)

    def batch(self, size: int, flags: Any, lower: Any, g: Any) -> Any:  # type: ignore[override]
        """The op itself, for operands with as many matrices."""
        both = zip((lower, g), flags, strict=True)
        return apply(self, *[x if flag else x.expand(size, *x._data.shape) for x, flag in both])

    def gradient(self, g: Tensor, x1: Tensor, x2: Any, y: Any) -> tuple[Any, ...]:
        """Cotangents through both factors L^-1, and through S."""
        solve = SolveTriangular(False, True, False)
        inner: Any = conj_transposed(apply(solve, x1, g))
        inner = conj_transposed(apply(solve, x1, inner))  # L^-1 g L^-H
        inner = (inner.tril() + conj_transposed(inner).tril(-1)) * 0.5

        def lower() -> Any:
            factors = matmul(g, conj_transposed(y)) + matmul(conj_transposed(g), y)
            factors = conj_transposed(apply(solve, x1, factors))
            full: Any = matmul(x2, conj_transposed(inner)) - factors
            return full.tril()

        return (lower, matmul(x1.tril(), inner))

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Factors with a positive diagonal; several blocks, for which some rows are left over."""
        for label, shape in square_shapes():
            yield Sample(cls(), (np.tril(general_samples(shape)), array(shape)), label)
        for dtype in NUMERIC:
            lower = np.tril(general_samples((3, 3), dtype))
            yield Sample(cls(), (lower, array((3, 3), dtype)), dtype.name)
        for n in (70, 250):
            lower = np.tril(array((n, n))) + n * np.eye(n)
            yield Sample(cls(), (lower, array((n, n))), f"big-{n}", gradients=False)

    def reference(self, lower: Any, g: Any) -> Any:
        """Reference value by the inverse of the factor."""
        lower = np.tril(lower)
        inner = np.tril(np.conj(np.swapaxes(lower, -1, -2)) @ g)
        inner = (inner + np.conj(np.swapaxes(np.tril(inner, -1), -1, -2))) / 2
        inverse = np.linalg.inv(lower)
        return np.conj(np.swapaxes(inverse, -1, -2)) @ inner @ inverse


@dataclass(eq=False, repr=False)
class SolveTriangular(Op):
    """X with A X = B (or X A = B), where A is triangular; its other triangle is not read."""

    upper: bool
    left: bool
    unitriangular: bool
    library = "moves"
    needs = ("x1 y", "x1")
    core = (2,)

    def infer(self, a: Spec, b: Spec) -> Spec:
        """B's shape, batches broadcast."""
        if a.dtype is not b.dtype:
            raise DTypeError(
                f"linalg.solve_triangular: expected both to have the same dtype, got {a.dtype} and "
                f"{b.dtype}; convert one with .to()"
            )
        n = b.shape[-2 if self.left else -1]
        if a.shape[-1] != a.shape[-2] or a.shape[-1] != n:
            raise ShapeError(
                f"linalg.solve_triangular: Incompatible shapes of A and B for the equation "
                f"{'AX = B' if self.left else 'XA = B'} ({a.shape[-2]}x{a.shape[-1]} and "
                f"{b.shape[-2]}x{b.shape[-1]})"
            )
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        return b.with_(shape=(*batch, *b.shape[-2:]))

    def compute(self, xp: Any, a: Any, b: Any) -> Any:
        """The backend's substitution; X A = B as A^T X^T = B^T."""
        if self.left:
            return xp.solve_triangular(a, b, self.upper, self.unitriangular)
        a, b = xp.swapaxes(a, -1, -2), xp.swapaxes(b, -1, -2)
        x = xp.solve_triangular(a, b, not self.upper, self.unitriangular)
        return xp.swapaxes(x, -1, -2)

    def gradient(self, g: Tensor, x1: Tensor, y: Any) -> tuple[Any, ...]:
        """The transposed system solved for g; A's is a product, in its triangle."""
        op = SolveTriangular(not self.upper, self.left, self.unitriangular)
        gb = apply(op, conj_transposed(x1), g)

        def matrix() -> Any:
            xh = conj_transposed(y)
            full: Any = matmul(-gb, xh) if self.left else matmul(xh, -gb)
            shift = int(self.unitriangular)
            return full.triu(shift) if self.upper else full.tril(-shift)

        return (matrix, gb)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Every triangle and side; batches that broadcast; one larger than a panel."""
        for upper in (False, True):
            for left in (False, True):
                for unit in (False, True):
                    op = cls(upper, left, unit)
                    b = (3, 2) if left else (2, 3)
                    yield Sample(op, (general_samples((3, 3)), array(b)), f"{upper}{left}{unit}")
        op = cls(True, True, False)
        for dtype in NUMERIC:
            yield Sample(op, (general_samples((2, 2), dtype), array((2, 1), dtype)), dtype.name)
        yield Sample(op, (general_samples((2, 2)), array((3, 2, 1))), "broadcast-a")
        yield Sample(op, (general_samples((3, 2, 2)), array((2, 1))), "broadcast-b")
        yield Sample(op, (np.zeros((0, 0)), np.zeros((0, 2))), "empty")
        big = general_samples((70, 70)) + 70 * np.eye(70)
        for upper in (False, True):
            op = cls(upper, True, False)
            yield Sample(op, (big, array((70, 2))), f"big-{upper}", gradients=False)

    def reference(self, a: Any, b: Any) -> Any:
        """Reference value by the inverse of the triangle."""
        a = np.triu(a) if self.upper else np.tril(a)
        if self.unitriangular:
            a = a - a * np.eye(a.shape[-1]) + np.eye(a.shape[-1])
        inverse = np.linalg.inv(a)
        return inverse @ b if self.left else b @ inverse


@dataclass(eq=False, repr=False)
class QR(Op):
    """Q with orthonormal columns and upper triangular R, A = Q R; A is square or tall."""

    complete: bool = False
    n_outputs = 2
    core = (2,)

    def infer(self, a: Spec) -> tuple[Spec, Spec]:
        """(m, n) gives (m, n) and (n, n), or (m, m) and (m, n)."""
        *batch, m, n = a.shape
        if m < n and not self.complete:
            raise ShapeError(f"qr: expected at least as many rows as columns, got {a.shape}")
        k = m if self.complete else n
        return a.with_(shape=(*batch, m, k)), a.with_(shape=(*batch, k, n))

    def compute(self, xp: Any, a: Any) -> Any:
        """The backend's Householder factorization."""
        return tuple(xp.linalg.qr(a, mode="complete" if self.complete else "reduced"))

    def gradient(self, g: Any, y: Any) -> tuple[Any, ...]:
        """Walter and Lehmann (2018), "Algorithmic differentiation of linear algebra functions"."""
        (gq, gr), (q, r) = g, y
        if q.shape[-1] != r.shape[-1]:
            raise Unsupported(
                "qr: The QR decomposition is not differentiable when mode='complete' and nrows > "
                "ncols; use mode='reduced'"
            )
        inner: Any = 0
        if gr is not None:
            inner = matmul(gr, conj_transposed(r))
        if gq is not None:
            inner = inner - matmul(conj_transposed(q), gq)
        inner = inner.triu()
        inner = inner + conj_transposed(inner) - _embed(_real(_diagonal(inner)))
        result: Any = matmul(q, inner)
        if gq is not None:
            result = result + gq
        return (apply(SolveTriangular(False, False, False), conj_transposed(r), result),)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Square, tall, batches, empty."""
        for label, shape in (*square_shapes(), ("tall", (4, 2)), ("no-columns", (3, 0))):
            gradients = label != "0x0"
            yield Sample(cls(), (array(shape),), label, gradients=gradients)
            yield Sample(cls(True), (array(shape),), f"complete-{label}", gradients=False)
        for dtype in NUMERIC:
            yield Sample(cls(), (array((4, 3), dtype),), dtype.name, gradients=dtype.category < 3)

    def reference(self, a: Any) -> Any:
        """Reference value by SciPy."""
        import scipy.linalg

        *batch, m, n = a.shape
        k = m if self.complete else n
        q, r = np.zeros((*batch, m, k), a.dtype), np.zeros((*batch, k, n), a.dtype)
        for i in np.ndindex(*batch):
            if n:
                mode = "full" if self.complete else "economic"
                q[i], r[i] = scipy.linalg.qr(a[i], mode=mode)
            else:
                q[i] = np.eye(m)[:, :k]
        return q, r


@dataclass(eq=False, repr=False)
class LUFactor(Op):
    """L and U packed into one matrix, and the row swaps (1-based), of A = P L U."""

    pivot: bool = True
    n_outputs = 2
    core = (2,)

    def infer(self, a: Spec) -> tuple[Spec, Spec]:
        """(m, n) gives (m, n) and (min(m, n),)."""
        *batch, m, n = a.shape
        return a, a.with_(shape=(*batch, min(m, n)), dtype=dt.int32)

    def compute(self, xp: Any, a: Any) -> Any:
        """The backend's elimination."""
        return xp.lu_factor(a, self.pivot)

    def gradient(self, g: Any, y: Any) -> tuple[Any, ...]:
        """L and U of a square matrix; the swaps are constants."""
        glu, (lu, pivots) = g[0], y
        if lu.shape[-1] != lu.shape[-2]:
            raise Unsupported(
                f"lu_factor: no gradient for matrices of {lu.shape[-2]} by {lu.shape[-1]}; factor "
                "the square part, or use qr"
            )
        unit = lu.tril(-1) + lu.new_ones((lu.shape[-1],)).diag()
        upper = lu.triu()
        inner = matmul(conj_transposed(unit), glu.tril(-1)).tril(-1)
        inner = inner + matmul(glu.triu(), conj_transposed(upper)).triu()
        inner = apply(SolveTriangular(True, True, True), conj_transposed(unit), inner)
        inner = apply(SolveTriangular(False, False, False), conj_transposed(upper), inner)
        return (apply(PermutedRows(), pivots, inner),)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Square, tall, wide, more than a panel."""
        for label, shape in (*square_shapes(), ("tall", (4, 2)), ("wide", (2, 4))):
            x = array(shape)
            yield Sample(cls(), (x,), label, gradients=shape[-1] == shape[-2])
        yield from each_dtype(cls(), NUMERIC, (3, 3))
        yield Sample(cls(), (array((70, 70)),), "big", gradients=False)
        yield Sample(cls(False), (general_samples((3, 3)),), "no-pivot", reference=False)

    def reference(self, a: Any) -> Any:
        """Reference value by SciPy."""
        import scipy.linalg

        *batch, m, n = a.shape
        lu, pivots = np.zeros(a.shape, a.dtype), np.zeros((*batch, min(m, n)), np.int64)
        for i in np.ndindex(*batch):
            if min(m, n):
                lu[i], found = scipy.linalg.lu_factor(a[i])
                pivots[i] = found[: min(m, n)] + 1
        return lu, pivots


@dataclass(eq=False, repr=False)
class PermutationMatrix(Op):
    """The matrix P of A = P L U from the row swaps."""

    rows: int
    dtype: dt.dtype
    core = (1,)

    def infer(self, pivots: Spec) -> Spec:
        """(rows, rows)."""
        shape = (*pivots.shape[:-1], self.rows, self.rows)
        return pivots.with_(shape=shape, dtype=self.dtype)

    def compute(self, xp: Any, pivots: Any) -> Any:
        """A one in each column, in the row that it came from."""
        rows = xp.pivots_to_rows(pivots, self.rows)
        return (rows[..., None, :] == xp.arange(self.rows)[:, None]).astype(self.dtype.numpy)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """One and a batch."""
        yield Sample(cls(3, dt.float64), (np.array([3, 3, 3], np.int32),))
        yield Sample(cls(3, dt.float32), (np.array([[2, 2], [1, 3]], np.int32),), "batch")

    def reference(self, pivots: Any) -> Any:
        """Reference value by multiplying swaps."""
        result = np.zeros((*pivots.shape[:-1], self.rows, self.rows))
        for index in np.ndindex(*pivots.shape[:-1]):
            p = np.eye(self.rows)
            for i, j in enumerate(pivots[index]):
                p[:, [i, j - 1]] = p[:, [j - 1, i]]
            result[index] = p
        return result


@dataclass(eq=False, repr=False)
class PermutedRows(Op):
    """P B, or P^T B where `back`, of the P of A = P L U that row swaps make up."""

    back: bool = False
    needs = ("", "x1")
    core = (1, 2)

    def infer(self, pivots: Spec, b: Spec) -> Spec:
        """B's shape, batches broadcast."""
        batch = np.broadcast_shapes(pivots.shape[:-1], b.shape[:-2])
        return b.with_(shape=(*batch, *b.shape[-2:]))

    def compute(self, xp: Any, pivots: Any, b: Any) -> Any:
        """The rows, taken from where they came from, or went to."""
        rows = xp.pivots_to_rows(pivots, b.shape[-2])
        if not self.back:
            rows = xp.argsort(rows, axis=-1)
        if b.ndim == 2 and rows.ndim == 1:
            return b[rows]
        batch = np.broadcast_shapes(rows.shape[:-1], b.shape[:-2])
        rows = xp.broadcast_to(rows, (*batch, rows.shape[-1]))
        return xp.take_along_axis(xp.broadcast_to(b, (*batch, *b.shape[-2:])), rows[..., None], -2)

    def gradient(self, g: Tensor, x1: Tensor) -> tuple[Any, ...]:
        """The rows put back."""
        return (None, apply(PermutedRows(not self.back), x1, g))

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """One, batches that broadcast, fewer swaps than rows, none."""
        several = np.array([[2, 2, 3], [3, 3, 3]], np.int32)
        for back in (False, True):
            op = cls(back)
            yield Sample(op, (several[1], array((3, 2))), f"{back}")
            yield Sample(op, (several, array((2, 3, 2))), f"batch-{back}")
            yield Sample(op, (several, array((3, 2))), f"pivots-{back}")
            yield Sample(op, (several[0], array((2, 3, 2))), f"right-{back}")
            yield Sample(op, (several[1, :2], array((4, 2), dt.complex64)), f"tall-{back}")
            yield Sample(op, (np.zeros(0, np.int32), np.zeros((0, 2))), f"empty-{back}")

    def reference(self, pivots: Any, b: Any) -> Any:
        """Reference value by the matrix."""
        p = PermutationMatrix(b.shape[-2], dt.float64).reference(pivots)
        return (np.swapaxes(p, -1, -2) if self.back else p) @ b
