"""Products, factorizations and Fourier transforms."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ..numpy.factorization import wrong_pivots
from .array import Array, numpys
from .namespace import extra, fft, linalg
from .ufuncs import tensors


@extra
def matmul(x1: Any, x2: Any, out: Any = None) -> Array:
    """The matrix product."""
    a, b = tensors(x1, x2)
    try:
        if a.dtype is torch.bool:
            result = torch.matmul(a.float(), b.float()) != 0
        else:
            result = product(a, b)
    except RuntimeError as error:
        raise numpys(error) from None
    if out is None:
        return Array(result)
    out.tensor.copy_(result)
    return out


def product(a: Any, b: Any) -> Any:
    """The matrix product of two tensors of one dtype."""
    if has_products(a):
        return torch.matmul(a, b)
    rows, columns = a if a.ndim > 1 else a[None], b if b.ndim > 1 else b[:, None]
    batch = torch.broadcast_shapes(rows.shape[:-2], columns.shape[:-2])
    result = rows.new_zeros((*batch, rows.shape[-2], columns.shape[-1]))
    for column, row in zip(rows.unbind(-1), columns.unbind(-2), strict=True):
        result.addcmul_(column[..., :, None], row[..., None, :])
    if a.ndim == 1:
        result = result.squeeze(-2)
    return result.squeeze(-1) if b.ndim == 1 else result


def has_products(t: Any) -> bool:
    """Whether PyTorch multiplies matrices of this dtype here: integers on the CPU only."""
    return bool(t.is_floating_point() or t.is_complex() or t.device.type == "cpu")


@extra
def linear(rows: Array, w: Array, bias: Any) -> Array:
    """rows @ w.T, plus bias unless it is None."""
    if not has_products(rows.tensor):
        y = product(rows.tensor, w.tensor.mT if w.ndim > 1 else w.tensor)
        return Array(y if bias is None else y + bias.tensor)
    if bias is not None and bias.ndim != 1:
        return Array(torch.nn.functional.linear(rows.tensor, w.tensor) + bias.tensor)
    b = None if bias is None else bias.tensor
    return Array(torch.nn.functional.linear(rows.tensor, w.tensor, b))


# ---- factorizations ------------------------------------------------------------------------------


def _library(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add to `linalg`; failures are NumPy's, which operations explain."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except torch.linalg.LinAlgError as error:
            raise np.linalg.LinAlgError(str(error)) from None

    setattr(linalg, function.__name__, run)
    return run


@extra
@_library
def cholesky(a: Array) -> Array:
    """The lower factor."""
    return Array(torch.linalg.cholesky(a.tensor))


@_library
def qr(a: Array, mode: str = "reduced") -> tuple[Array, Array]:
    """Q and R, or ("raw") the reflectors, transposed, and their factors."""
    if mode == "raw":
        packed, tau = torch.geqrf(a.tensor)
        return Array(packed.mT), Array(tau)
    q, r = torch.linalg.qr(a.tensor, mode)
    return Array(q), Array(r)


@_library
def svd(a: Array, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """U, the singular values, V^H."""
    if not bool(torch.isfinite(a.tensor).all()):
        raise np.linalg.LinAlgError("SVD did not converge")
    return tuple(map(Array, torch.linalg.svd(a.tensor, full_matrices)))


@_library
def eigh(a: Array, UPLO: str = "L") -> tuple[Array, Array]:  # noqa: N803 - NumPy's name
    """Eigenvalues and eigenvectors of a Hermitian matrix, of which one triangle is read."""
    values, vectors = torch.linalg.eigh(a.tensor, UPLO)
    return Array(values), Array(vectors)


@_library
def eig(a: Array) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors."""
    if not bool(torch.isfinite(a.tensor).all()):
        raise np.linalg.LinAlgError("Array must not contain infs or NaNs")
    values, vectors = torch.linalg.eig(a.tensor)
    return Array(values), Array(vectors)


@_library
def inv(a: Array) -> Array:
    """The inverse."""
    return Array(torch.linalg.inv(a.tensor))


@_library
def solve(a: Array, b: Array) -> Array:
    """x with a @ x = b."""
    return Array(torch.linalg.solve(a.tensor, b.tensor))


@_library
def det(a: Array) -> Array:
    """The determinant."""
    return Array(torch.linalg.det(a.tensor))


@_library
def slogdet(a: Array) -> tuple[Array, Array]:
    """The sign of the determinant and the logarithm of its absolute value."""
    sign, logarithm = torch.linalg.slogdet(a.tensor)
    return Array(sign), Array(logarithm)


@extra
def lu_factor(a: Array, pivot: bool) -> tuple[Array, Array]:
    """L and U packed into one matrix, and the 1-based row that each row was swapped with."""
    t = a.tensor
    if pivot or t.device.type == "cuda":
        lu, pivots, _ = torch.linalg.lu_factor_ex(t, pivot=pivot)
        return Array(lu), Array(pivots)
    k = min(t.shape[-2:])
    lu = t.clone()
    for j in range(k):  # PyTorch has none without pivoting on the CPU
        divisor = lu[..., j, j, None]
        column = torch.where(divisor != 0, lu[..., j + 1 :, j] / divisor, lu[..., j + 1 :, j])
        lu[..., j + 1 :, j] = column
        lu[..., j + 1 :, j + 1 :] -= column[..., None] * lu[..., j, None, j + 1 :]
    pivots = torch.arange(1, k + 1, dtype=torch.int32).expand(*t.shape[:-2], k)
    return Array(lu), Array(pivots.contiguous())


@extra
def pivots_to_rows(pivots: Array, m: int) -> Array:
    """Where each row of the factored matrix came from."""
    *batch, k = pivots.shape
    flat = pivots.tensor.reshape(math.prod(batch), k).long() - 1
    if ((flat < 0) | (flat >= m)).any():
        raise wrong_pivots(m)
    rows = torch.arange(m, device=flat.device).repeat(flat.shape[0], 1)
    for i in range(k):
        at = flat[:, i, None]
        other = rows.gather(1, at)
        rows.scatter_(1, at, rows[:, i, None].clone())
        rows[:, i, None] = other
    return Array(rows.reshape(*batch, m))


@extra
def solve_triangular(a: Array, b: Array, upper: bool, unit: bool) -> Array:
    """x with a @ x = b, where only one triangle of `a` is read; without checks for zeros."""
    shape = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    left = a.tensor.expand(*shape, *a.shape[-2:])
    right = b.tensor.expand(*shape, *b.shape[-2:])
    x = torch.linalg.solve_triangular(left, right, upper=upper, unitriangular=unit)
    return Array(x.contiguous())


@extra
def cholesky_gradient(lower: Array, g: Array) -> Array:
    """The gradient of A from that of its lower factor (Murray, 2016)."""
    upper = lower.tensor.tril().mH
    inner = (upper @ g.tensor).tril()
    inner = (inner + inner.tril(-1).mH) * 0.5
    inner = torch.linalg.solve_triangular(upper, inner, upper=True)
    return Array(torch.linalg.solve_triangular(upper.mH, inner, upper=False, left=False))


# ---- Fourier transforms --------------------------------------------------------------------------


def _empty_like(name: str, x: Array, shape: tuple[int, ...]) -> Array:
    t = x.tensor
    kind = (
        t.real.dtype if name == "irfft" else (t.dtype if t.is_complex() else t.dtype.to_complex())
    )
    return Array(t.new_empty(shape, dtype=kind))


def _fourier(name: str) -> None:
    transform = getattr(torch.fft, name)
    if name.endswith("n"):

        def function(x: Array, s: Any = None, axes: Any = None, norm: Any = None) -> Array:
            if not x.size:  # of which PyTorch's libraries know nothing
                return _empty_like(name, x, x.shape)
            return Array(transform(x.tensor, s=s, dim=axes, norm=norm))
    else:

        def function(  # type: ignore[misc]
            x: Array, n: Any = None, axis: int = -1, norm: Any = None
        ) -> Array:
            if not x.size:
                length = n if n is not None else x.shape[axis]
                length = length // 2 + 1 if name == "rfft" else length
                return _empty_like(name, x, (*x.shape[:axis], length, *x.shape[axis:][1:]))
            return Array(transform(x.tensor, n=n, dim=axis, norm=norm))

    setattr(fft, name, function)


for _name in ("fft", "ifft", "rfft", "irfft", "fftn", "ifftn", "rfftn", "irfftn"):
    _fourier(_name)
