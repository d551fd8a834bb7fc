"""Matrix decompositions: Cholesky, QR, LU, singular values, eigenvalues."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.errors import DTypeError, LinalgError, ShapeError, Unsupported
from ...core.mistakes import assert_tensor
from ...core.op import Op, Sample
from ...core.spec import Spec
from ...core.types import Tensor
from ...eager.dispatch import apply
from ..elementwise.namespace import conj
from ..samples import array, each_dtype
from .matmul import conj_transposed, matmul

NUMERIC = (dt.float64, dt.float32, dt.complex128, dt.complex64)


def assert_matrices(name: str, x: Any, square: bool = False) -> None:
    """Refuse what is not a batch of (square) matrices of a dtype that LAPACK knows."""
    assert_tensor(name, x)
    shape = x._data.shape
    if len(shape) < 2:
        raise ShapeError(
            f"{name}: The input tensor A must have at least 2 dimensions, got shape {shape}"
        )
    if square and shape[-1] != shape[-2]:
        raise ShapeError(
            f"{name}: A must be batches of square matrices, but they are {shape[-2]} by "
            f"{shape[-1]} matrices"
        )
    dtype = x.dtype
    if dtype.category < 2:
        raise DTypeError(
            f"{name}: Expected a floating point or complex tensor as input. Got {dtype}; convert "
            "with .float()"
        )
    if dtype in dt.LOW_PRECISION:
        raise DTypeError(
            f"{name}: Low precision dtypes not supported. Got {dtype}; convert with .float()"
        )


def where_it_fails(function: Callable[[Any], Any], x: Any) -> tuple[str, Any]:
    """A message part that names the first matrix of a batch on which `function` fails, and it."""
    for i, matrix in enumerate(x.reshape(-1, *x.shape[-2:])):
        try:
            function(matrix)
        except np.linalg.LinAlgError:
            return ("" if x.ndim == 2 else f"(Batch element {i}): "), matrix
    return "", x


def indefinite_minor(matrix: Any) -> int:
    """The order of the first leading minor that is not positive definite; 0 where all are."""

    def fails(order: int) -> bool:
        try:
            np.linalg.cholesky(matrix[:order, :order])
        except np.linalg.LinAlgError:
            return True
        return False

    orders = range(len(matrix) + 1)
    found = bisect.bisect_left(orders, True, key=fails)
    return found if found < len(orders) else 0


def hermitian_samples(shape: tuple[int, ...], dtype: dt.dtype = dt.float64) -> Any:
    """Positive definite matrices with well separated eigenvalues."""
    x = array(shape, dtype)
    n = shape[-1]
    product = x @ np.conj(np.swapaxes(x, -1, -2))
    return (product + np.diag(np.arange(1.0, n + 1))).astype(dtype.numpy)


def general_samples(shape: tuple[int, ...], dtype: dt.dtype = dt.float64) -> Any:
    """Matrices that are far from singular."""
    x = array(shape, dtype)
    return (x + 3 * np.eye(shape[-2], shape[-1]) * np.arange(1.0, shape[-1] + 1)).astype(
        dtype.numpy
    )


def square_shapes() -> Iterable[tuple[str, tuple[int, ...]]]:
    """One matrix, a batch, 1 by 1, empty ones."""
    yield "one", (3, 3)
    yield "batch", (2, 2, 2)
    yield "1x1", (1, 1)
    yield "0x0", (0, 0)
    yield "empty-batch", (0, 2, 2)


def _diagonal(x: Tensor) -> Any:
    return x.diagonal(0, -2, -1)


def _embed(x: Any) -> Any:
    return x.diag_embed()


def _skew(x: Any) -> Any:
    return x - conj_transposed(x)


def _unless_diagonal(x: Any, values: Any) -> Any:
    """x / values off the diagonal, 0 on it."""
    n = x.shape[-1]
    diagonal = x.new_ones((n,)).diag() if n else x.new_ones((0, 0))
    return x * (1 - diagonal) / (values + diagonal)


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
        """From the LDL decomposition by elimination."""
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
        """Both have as many matrices."""
        both = zip((lower, g), flags, strict=True)
        return apply(self, *[x if flag else x.expand(size, *x._data.shape) for x, flag in both])

    def gradient(self, g: Tensor, x1: Tensor, x2: Any, y: Any) -> tuple[Any, ...]:
        """Through both factors L^-1, and through S."""
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
        """By the inverse of the factor."""
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
        """By the inverse of the triangle."""
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
        """By SciPy."""
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


def _real(x: Any) -> Any:
    """The real part, in the same dtype."""
    return x.real.to(x.dtype) if x.dtype.is_complex else x


@dataclass(eq=False, repr=False)
class SVD(Op):
    """U, S, V^H with A = U diag(S) V^H; `full` completes U and V to square matrices."""

    full: bool = False
    n_outputs = 3
    core = (2,)

    def infer(self, a: Spec) -> tuple[Spec, ...]:
        """(m, n) gives (m, k), (k,) and (k, n), where k = min(m, n)."""
        *batch, m, n = a.shape
        k = min(m, n)
        u = (*batch, m, m if self.full else k)
        vh = (*batch, n if self.full else k, n)
        s = a.with_(shape=(*batch, k), dtype=a.dtype.to_real())
        return a.with_(shape=u), s, a.with_(shape=vh)

    def compute(self, xp: Any, a: Any) -> Any:
        """The backend's decomposition."""
        try:
            return tuple(xp.linalg.svd(a, full_matrices=self.full))
        except np.linalg.LinAlgError:
            where, _ = where_it_fails(np.linalg.svd, a)
            raise LinalgError(
                f"linalg.svd: {where}The algorithm failed to converge because the input matrix is "
                "ill-conditioned, has too many repeated singular values, or contains non-finite "
                "values."
            ) from None

    def gradient(self, g: Any, y: Any) -> tuple[Any, ...]:
        """Townsend (2016), "Differentiating the singular value decomposition"; extra columns of
        U and V are constants.
        """
        (gu, gs, gvh), (u, s, vh) = g, y
        m, n, k = u.shape[-2], vh.shape[-1], s.shape[-1]
        if self.full:
            u, vh = u.narrow(-1, 0, k), vh.narrow(-2, 0, k)
            gu = None if gu is None else gu.narrow(-1, 0, k)
            gvh = None if gvh is None else gvh.narrow(-2, 0, k)
        uh, v = conj_transposed(u), conj_transposed(vh)
        column, row = s.unsqueeze(-1), s.unsqueeze(-2)
        gap = row * row - column * column
        inner: Any = 0
        if gs is not None:
            inner = _embed(gs)
        if gu is not None:
            turn = _skew(matmul(uh, gu))
            inner = inner + _unless_diagonal(turn, gap) * row
            if turn.dtype.is_complex:
                inner = inner + _embed(_diagonal(turn) / (2 * s))
        if gvh is not None:
            inner = inner + column * _unless_diagonal(_skew(matmul(vh, conj_transposed(gvh))), gap)
        if inner.dtype is not u.dtype:
            inner = inner.to(u.dtype)
        result: Any = matmul(u, inner)
        if gu is not None and m > k:
            outside = gu / row
            result = result + outside - matmul(u, matmul(uh, outside))
        result = matmul(result, vh)
        if gvh is not None and n > k:
            outside = gvh / column
            result = result + matmul(u, outside - matmul(matmul(outside, v), vh))
        return (result,)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Square, tall, wide, batches, empty; the signs of U and V are LAPACK's."""
        for label, shape in (*square_shapes(), ("tall", (4, 2)), ("wide", (2, 4))):
            yield Sample(cls(), (array(shape),), label, reference=False)
            yield Sample(
                cls(True), (array(shape),), f"full-{label}", gradients=False, reference=False
            )
        for dtype in NUMERIC:
            x = array((3, 2), dtype)
            yield Sample(cls(), (x,), dtype.name, gradients=dtype.category < 3, reference=False)


@dataclass(eq=False, repr=False)
class Eigh(Op):
    """Eigenvalues, ascending, and eigenvectors of Hermitian A, of which one triangle is read."""

    uplo: str = "L"
    n_outputs = 2
    core = (2,)

    def infer(self, a: Spec) -> tuple[Spec, Spec]:
        """(n, n) gives (n,) and (n, n)."""
        return a.with_(shape=a.shape[:-1], dtype=a.dtype.to_real()), a

    def compute(self, xp: Any, a: Any) -> Any:
        """The backend's decomposition."""
        try:
            return tuple(xp.linalg.eigh(a, UPLO=self.uplo))
        except np.linalg.LinAlgError:
            where, _ = where_it_fails(np.linalg.eigh, a)
            raise LinalgError(
                f"linalg.eigh: {where}The algorithm failed to converge because the input matrix is "
                "ill-conditioned or has too many repeated eigenvalues."
            ) from None

    def gradient(self, g: Any, y: Any) -> tuple[Any, ...]:
        """Boeddeker et al. (2017), "On the computation of complex-valued gradients"."""
        (gl, gv), (values, vectors) = g, y
        adjoint = conj_transposed(vectors)
        if gv is None:
            return (matmul(vectors * gl.unsqueeze(-2), adjoint),)
        gap = values.unsqueeze(-2) - values.unsqueeze(-1)
        # Vectors only turn: the part of V^H gV that would stretch them is left out.
        inner: Any = _unless_diagonal(_skew(matmul(adjoint, gv)) * 0.5, gap)
        if gl is not None:
            inner = inner + _embed(gl)
        return (matmul(matmul(vectors, inner), adjoint),)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Hermitian; gradients are tested through a symmetric function of the input."""
        for label, shape in square_shapes():
            x = hermitian_samples(shape)
            yield Sample(cls(), (x,), label, gradients=False, reference=False)
        for dtype in NUMERIC:
            x = hermitian_samples((3, 3), dtype)
            yield Sample(cls("U"), (x,), dtype.name, gradients=False, reference=False)


class Eig(Op):
    """Complex eigenvalues, and eigenvectors of length 1, of a square matrix."""

    n_outputs = 2
    core = (2,)

    def infer(self, a: Spec) -> tuple[Spec, Spec]:
        """(n, n) gives (n,) and (n, n), complex."""
        dtype = a.dtype.to_complex()
        return a.with_(shape=a.shape[:-1], dtype=dtype), a.with_(dtype=dtype)

    def compute(self, xp: Any, a: Any) -> Any:
        """The backend's decomposition; NumPy gives real results where all are."""
        try:
            values, vectors = xp.linalg.eig(a)
        except np.linalg.LinAlgError as error:
            where, _ = where_it_fails(np.linalg.eig, a)
            raise LinalgError(f"linalg.eig: {where}{error}") from None
        dtype = np.result_type(a.dtype, np.complex64)
        return values.astype(dtype, copy=False), vectors.astype(dtype, copy=False)

    def gradient(self, g: Any, y: Any) -> tuple[Any, ...]:
        """Boeddeker et al. (2017), with the eigenvectors kept at length 1."""
        (gl, gv), (values, vectors) = g, y
        adjoint = conj_transposed(vectors)
        inner: Any = 0
        if gv is not None:
            turn = matmul(adjoint, gv)
            length = _real(_diagonal(turn)).unsqueeze(-2)
            gap = conj(values.unsqueeze(-2) - values.unsqueeze(-1))
            inner = _unless_diagonal(turn - matmul(adjoint, vectors) * length, gap)
        if gl is not None:
            inner = inner + _embed(gl)
        return (_solve(adjoint, matmul(inner, adjoint)),)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Matrices with distinct eigenvalues; gradients are tested on what no phase changes."""
        for label, shape in square_shapes():
            yield Sample(cls(), (general_samples(shape),), label, gradients=False, reference=False)
        for dtype in NUMERIC:
            x = general_samples((3, 3), dtype)
            yield Sample(cls(), (x,), dtype.name, gradients=False, reference=False)


def _solve(a: Any, b: Any) -> Any:
    from .solving import Solve  # which needs decompositions for its own functions

    return apply(Solve(), a, b)


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
        """By SciPy."""
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
        """By multiplying swaps."""
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
        """By the matrix."""
        p = PermutationMatrix(b.shape[-2], dt.float64).reference(pivots)
        return (np.swapaxes(p, -1, -2) if self.back else p) @ b
