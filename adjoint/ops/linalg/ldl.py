"""The LDL factorization of symmetric matrices that need not be positive definite: LAPACK's, by
SciPy, which the first call imports. As in PyTorch nothing has a gradient.
"""

from __future__ import annotations

import importlib
import math
from typing import Any, NamedTuple

import numpy as np

from ...core.errors import (
    AutogradError,
    DTypeError,
    InvalidArgument,
    LinalgError,
    ShapeError,
    Unsupported,
)
from ...core.mode import MODE
from ...core.op import Op
from ...core.tensor_type import Tensor
from ...runtime.lazy import concrete
from ...runtime.public import with_out
from ...runtime.record import parents_of, record
from ...runtime.tensors import wrap
from ..return_types import return_type
from ..shape.sizes import is_of_graph
from .matrix_samples import assert_matrices


@return_type("linalg_ldl_factor")
class _Factor(NamedTuple):
    """The result of `linalg.ldl_factor`."""

    LD: Tensor
    pivots: Tensor


@return_type("linalg_ldl_factor_ex")
class _FactorEx(NamedTuple):
    """The result of `linalg.ldl_factor_ex`."""

    LD: Tensor
    pivots: Tensor
    info: Tensor


_KINDS = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}


def _lapack(name: str, routine: str, hermitian: bool, dtype: Any) -> Any:
    """LAPACK's routine for a dtype."""
    try:
        routines = importlib.import_module("scipy.linalg.lapack")
    except ImportError:
        raise Unsupported(
            f"{name}: is SciPy's, which is not installed: pip install scipy, or use lu_factor"
        ) from None
    letter = _KINDS[dtype.name]
    return getattr(routines, f"{letter}{'he' if hermitian and letter in 'cz' else 'sy'}{routine}")


class Underived(Op, abstract=True):
    """Node of a result that has no gradient, in PyTorch neither."""

    def __init__(self, said: str) -> None:
        self.said = said

    def gradient(self, g: Any) -> tuple[Any, ...]:
        """Refused: there is no gradient.

        Errors: AutogradError.
        """
        raise AutogradError(
            f"derivative for {self.said} is not implemented; linalg.solve and linalg.lu_factor have"
        )


def _arrays(name: str, *tensors: Any) -> list[Any]:
    if MODE.get().executor is not None or any(map(is_of_graph, tensors)):
        raise Unsupported(
            f"{name}: is computed eagerly alone, not where operations are recorded (lazy, Graph, "
            "compile) or transformed; use linalg.lu_factor there"
        )
    found = [concrete(x) for x in tensors]
    if any(type(each) is not np.ndarray for each in found):
        raise Unsupported(f"{name}: is computed on the host alone; use .cpu()")
    return found


def _given(name: str, array: Any, inputs: tuple[Any, ...]) -> Any:
    """A tensor of results that leads to `inputs`, of which no gradient can be asked."""
    y, mode = wrap(array), MODE.get()
    if mode.grad and any(x._node is not None for x in inputs):
        y._node = record(Underived(name), inputs, parents_of(inputs), y, mode)
    return y


@with_out
def ldl_factor_ex(A: Tensor, *, hermitian: bool = False, check_errors: bool = False) -> Any:
    """L and D of A = L D L^T (L D L^H if `hermitian`) in one matrix, LAPACK's pivots, and for each
    matrix 0, or the number of the first zero in D. The lower triangle of A is read.

    Shapes: (..., n, n) gives LD (..., n, n), pivots (..., n) and info (...).
    Errors: ShapeError, DTypeError for other matrices; LinalgError for a zero where `check_errors`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.ldl_factor_ex.html

    >>> ad.linalg.ldl_factor_ex(ad.tensor([[2., 1.], [1., 3.]])).LD
    tensor([[2.0000, 0.0000],
            [0.5000, 2.5000]])
    """
    return _factored("linalg.ldl_factor_ex", A, hermitian, check_errors)


@with_out
def ldl_factor(A: Tensor, *, hermitian: bool = False) -> Any:
    """`ldl_factor_ex` without info.

    Errors: ShapeError, DTypeError for other matrices; LinalgError for a zero in D.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.ldl_factor.html

    >>> ad.linalg.ldl_factor(ad.tensor([[2., 1.], [1., 3.]])).pivots
    tensor([1, 2], dtype=adjoint.int32)
    """
    found = _factored("linalg.ldl_factor", A, hermitian, True)
    return _Factor(found.LD, found.pivots)


def _factored(name: str, A: Any, hermitian: bool, check: bool) -> Any:
    assert_matrices(name, A, square=True)
    (a,) = _arrays(name, A)
    n = a.shape[-1]
    factor = _lapack(name, "trf", hermitian, A.dtype)
    flat = a.reshape(math.prod(a.shape[:-2]), n, n)
    factors, pivots = np.zeros_like(flat), np.zeros((len(flat), n), np.int32)
    info = np.zeros(len(flat), np.int32)
    for i, matrix in enumerate(flat if n else ()):
        found, pivots[i], info[i] = factor(matrix, lower=1)
        factors[i] = np.tril(found)
    if check and info.any():
        place = int(np.flatnonzero(info)[0])
        where = f"(Batch element {place}): " if a.ndim > 2 else ""
        raise LinalgError(
            f"{name}: {where}The diagonal element {info[place]} of D is zero; the factorization is "
            "complete, but cannot solve systems"
        )
    lead = a.shape[:-2]
    return _FactorEx(
        _given(name, factors.reshape(a.shape), (A,)),
        wrap(pivots.reshape(*lead, n)),
        wrap(info.reshape(lead)),
    )


@with_out
def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False) -> Any:
    """X with A X = B, from what `ldl_factor` gave for A.

    Shapes: LD (..., n, n), pivots (..., n) and B (..., n, k), whose batches broadcast.
    Errors: ShapeError for others; DTypeError for pivots that are no integers, or other dtypes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.ldl_solve.html

    >>> A = ad.tensor([[2., 1.], [1., 3.]])
    >>> ad.linalg.ldl_solve(*ad.linalg.ldl_factor(A), ad.tensor([[3.], [4.]]))
    tensor([[1.],
            [1.]])
    """
    name = "linalg.ldl_solve"
    assert_matrices(name, LD, square=True)
    assert_matrices(name, B)
    n = LD.shape[-1]
    if B.shape[-2] != n:
        raise ShapeError(
            f"{name}: Incompatible matrix sizes: each A matrix is {n} by {n} but each b matrix is "
            f"{B.shape[-2]} by {B.shape[-1]}"
        )
    if tuple(pivots.shape) != tuple(LD.shape[:-1]):
        raise ShapeError(
            f"{name}: Expected pivots of shape {tuple(LD.shape[:-1])}, got {tuple(pivots.shape)}"
        )
    if pivots.dtype.category != 1:
        raise DTypeError(f"{name}: Expected pivots to be integers. Got {pivots.dtype}")
    if LD.dtype is not B.dtype:
        raise DTypeError(f"{name}: LD has dtype {LD.dtype}, B {B.dtype}; convert one with .to()")
    ld, places, b = _arrays(name, LD, pivots, B)
    lead = np.broadcast_shapes(ld.shape[:-2], b.shape[:-2])
    solve = _lapack(name, "trs", hermitian, LD.dtype)
    count = math.prod(lead)
    lds = np.broadcast_to(ld, (*lead, n, n)).reshape(count, n, n)
    _assert_pivots(name, places)
    rows = np.broadcast_to(places, (*lead, n)).reshape(count, n).astype(np.int32)
    bs = np.broadcast_to(b, (*lead, *b.shape[-2:])).reshape(count, *b.shape[-2:])
    found = np.zeros_like(bs)
    for i in range(len(bs) if bs.size else 0):
        found[i], info = solve(lds[i], rows[i], bs[i], lower=1)
        if info:
            raise InvalidArgument(f"{name}: argument {-info} of LAPACK's routine is wrong")
    return _given(name, found.reshape(*lead, *b.shape[-2:]), (LD, B))


def _assert_pivots(name: str, pivots: Any) -> None:
    """Raise unless they are such as `ldl_factor` gives: LAPACK would swap rows beyond the memory.

    A block of one row has the number of a row, a block of two has two negative ones.
    """
    n = pivots.shape[-1]
    outside = (pivots == 0) | (pivots > n) | (pivots < -n)
    blocks = np.cumsum(pivots < 0, -1) % 2  # 1 within a block of two
    if outside.any() or np.any(blocks[..., -1:]) or np.any((pivots > 0) & (blocks == 1)):
        raise InvalidArgument(
            f"{name}: pivots must be as linalg.ldl_factor gives them: from 1 to {n}, or in pairs "
            f"from -{n} to -1"
        )
