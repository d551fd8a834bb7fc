"""Spectra: singular values and eigenvalues, with their vectors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.errors import LinalgError
from ...core.op import Op, Sample
from ...core.spec import Spec
from ...runtime.dispatch import apply
from ..elementwise.namespace import conj
from ..samples import array
from .matrix_product import conj_transposed, matmul
from .matrix_samples import (
    NUMERIC,
    _diagonal,
    _embed,
    _real,
    _skew,
    _unless_diagonal,
    general_samples,
    hermitian_samples,
    square_shapes,
    where_it_fails,
)


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
