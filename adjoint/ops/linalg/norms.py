"""`adjoint.linalg`'s norms, and the rank and condition measured with them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ...core import dtype as dt
from ...core.errors import DTypeError, InvalidArgument, ShapeError
from ...core.mode import MODE
from ...core.spec import normalize_axes, normalize_axis
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply
from ...runtime.lazy import concrete
from ...runtime.public import FUNCTIONS, explaining, with_out
from ..argument_dtypes import REALS, assert_dtypes
from ..promotion import cast, number
from ..reduce.statistics import Norm
from ..shape.sizes import hold_sizes
from .decomposition import LUFactor
from .matrix_samples import assert_matrices
from .solving import Inverse
from .spectra import SVD, Eigh

if TYPE_CHECKING:
    from ...ops.argument_types import Dims, Number


def _prepared(name: str, x: Tensor, dtype: dt.dtype | None) -> Tensor:
    if dtype is not None:
        to = dt.as_dtype(dtype)
        if to.category < 2 or (x.dtype.is_complex and not to.is_complex):
            raise DTypeError(f"{name}: dtype={to} must be floating point or complex, as {x.dtype}")
        x = cast(x, to)
    if x.dtype.category < 2:
        raise DTypeError(
            f"{name}: Expected a floating point or complex tensor as input. Got {x.dtype}; convert "
            "with .float()"
        )
    return x


@explaining
@with_out
def vector_norm(
    x: Tensor,
    ord: Number | str = 2,
    dim: Dims | None = None,
    keepdim: bool = False,
    *,
    dtype: dt.dtype | None = None,
) -> Tensor:
    """The `ord`-norm of the elements over `dim` (an int, several, or all where None).

    Dtypes: floating point and complex; the result is real; `dtype` converts first.
    Errors: DTypeError for integers; InvalidArgument where `ord` is no number.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.vector_norm.html

    >>> ad.linalg.vector_norm(ad.tensor([3., 4.]))
    tensor(5.)
    """
    if isinstance(ord, bool) or not isinstance(ord, (int, float)):
        raise InvalidArgument(f"linalg.vector_norm: ord must be a number, got {ord!r}")
    x = _prepared("linalg.vector_norm", x, dtype)
    op = Norm(
        normalize_axes(dim, x.ndim, "linalg.vector_norm"), bool(keepdim), number(ord, dt.float64)
    )
    if not x._data.size:
        op.infer(x.spec)
    return apply(op, x)


_MATRIX_ORDERS = ("fro", "nuc", math.inf, -math.inf, 1, -1, 2, -2)


@explaining
@with_out
def matrix_norm(
    A: Tensor,
    ord: Any = "fro",
    dim: Dims = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: dt.dtype | None = None,
) -> Tensor:
    """The norm of matrices: 'fro', 'nuc', or of the linear map for ord 1, 2, inf (-: the smallest).

    Shapes: `dim` names the two dimensions of the matrices; the others are batches.
    Dtypes: floating point and complex; the result is real; `dtype` converts first.
    Errors: InvalidArgument for another `ord`; ShapeError for a tensor of fewer dimensions.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.matrix_norm.html

    >>> ad.linalg.matrix_norm(ad.tensor([[1., 2.], [3., 4.]]), ord=1)
    tensor(6.)
    """
    name = "linalg.matrix_norm"
    if ord not in _MATRIX_ORDERS:
        raise InvalidArgument(f"{name}: Order {ord!r} not supported; use one of {_MATRIX_ORDERS}")
    if A.ndim < 2:
        raise ShapeError(
            f"{name}: The input tensor A must have at least 2 dimensions, got {tuple(A.shape)}"
        )
    if isinstance(dim, int) or len(dim) != 2:
        raise InvalidArgument(f"{name}: dim must be a 2-tuple, got {dim!r}")
    x = _prepared(name, A, dtype)
    rows, columns = (normalize_axis(d, x.ndim, name) for d in dim)
    if rows == columns:
        raise InvalidArgument(f"{name}: dims must be different, got {dim}")
    if ord == "fro":
        return vector_norm(x, 2, (rows, columns), keepdim)
    if ord in ("nuc", 2, -2):
        values = apply(SVD(), x.movedim((rows, columns), (-2, -1)))[1]
        if ord == "nuc":
            result = values.sum(-1)
        else:
            result = values.amax(-1) if ord == 2 else values.amin(-1)
    else:
        summed, kept = (rows, columns) if abs(ord) == 1 else (columns, rows)
        sums = vector_norm(x, 1, summed, keepdim=True)
        sums = sums.amax(kept, keepdim=True) if ord > 0 else sums.amin(kept, keepdim=True)
        result = sums.squeeze((rows, columns))
    if keepdim:
        for axis in sorted((rows, columns)):
            result = result.unsqueeze(axis)
    return result


@explaining
@with_out
def norm(
    A: Tensor,
    ord: Number | str | None = None,
    dim: Dims | None = None,
    keepdim: bool = False,
    *,
    dtype: dt.dtype | None = None,
) -> Tensor:
    """A vector norm over one dimension or all, a matrix norm where `ord` is given for two.

    Shapes: any where `ord` is None; else 1-d or 2-d tensors, or `dim` with one or two dimensions.
    Dtypes: floating point and complex; the result is real; `dtype` converts first.
    Errors: those of `vector_norm` and `matrix_norm`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.norm.html

    >>> a = ad.tensor([[1., 2.], [2., 4.]])
    >>> ad.linalg.norm(a), ad.linalg.norm(a, ord="nuc")
    (tensor(5.), tensor(5.))
    """
    if ord is None:
        return vector_norm(A, 2, dim, keepdim, dtype=dtype)
    if isinstance(dim, int):
        dim = (dim,)
    if dim is not None and len(dim) not in (1, 2):
        raise InvalidArgument(
            f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {dim}"
        )
    if dim is None and A.ndim not in (1, 2):
        raise ShapeError(
            f"linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got "
            f"{A.ndim}D"
        )
    if (dim is not None and len(dim) == 1) or (dim is None and A.ndim == 1):
        return vector_norm(A, ord, dim, keepdim, dtype=dtype)
    return matrix_norm(A, ord, (0, 1) if dim is None else dim, keepdim, dtype=dtype)


@with_out
def cond(A: Tensor, p: Number | None = None) -> Tensor:
    """The condition number: the norm of a matrix times that of its inverse (2-norm where None).

    Shapes: batches of matrices; square unless `p` is None, 2 or -2.
    Errors: LinalgError for a singular matrix is not raised: its condition number is inf.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.cond.html

    >>> ad.linalg.cond(ad.tensor([[4., 0.], [0., 2.]]))
    tensor(2.)
    """
    A = hold_sizes("cond", A)  # noqa: N806
    assert_matrices("linalg.cond", A, square=p not in (None, 2, -2))
    if p in (None, 2, -2):
        values = apply(SVD(), A)[1]
        top, bottom = values.narrow(-1, 0, 1), values.narrow(-1, values.shape[-1] - 1, 1)
        return (bottom / top if p == -2 else top / bottom).squeeze(-1)
    if not A._data.size:
        return A.new_zeros(A.shape[:-2], dtype=A.dtype.to_real())
    inverse, info = inverse_and_info(A)
    product = matrix_norm(A, p) * matrix_norm(inverse, p)
    return product.masked_fill(info != 0, math.inf)


def inverse_and_info(A: Tensor) -> tuple[Any, Any]:
    """The inverse, zeros where there is none, and 0 or the number of the zero pivot."""
    info = zero_pivot(apply(LUFactor(True), A.detach())[0])
    if not hasattr(MODE.get().executor, "note_check") and not concrete(info).any():
        return apply(Inverse(), A), info
    bad = (info != 0).unsqueeze(-1).unsqueeze(-1)
    eye = FUNCTIONS["eye"](A.shape[-1], dtype=A.dtype, device=A.device)
    return apply(Inverse(), FUNCTIONS["where"](bad, eye, A)).masked_fill(bad, 0), info


def zero_pivot(lu: Any) -> Any:
    """0, or the number of the first zero on the diagonal of U."""
    zero = lu.detach().diagonal(0, -2, -1) == 0
    if not zero._data.shape[-1]:
        return zero.new_zeros(zero.shape[:-1], dtype=dt.int32)
    place = cast(zero, dt.int32).argmax(-1) + 1
    return cast(FUNCTIONS["where"](zero.any(-1), place, 0), dt.int32)


@with_out
def matrix_rank(
    A: Tensor, tol: Any = None, *, atol: Any = None, rtol: Any = None, hermitian: bool = False
) -> Tensor:
    """Number of singular values larger than max(atol, rtol * the largest).

    Shapes: batches of matrices give int64 of the batch's shape; tolerances may be tensors.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.matrix_rank.html

    >>> ad.linalg.matrix_rank(ad.tensor([[1., 2.], [2., 4.]]))
    tensor(1)
    """
    A = hold_sizes("matrix_rank", A)  # noqa: N806
    assert_matrices("linalg.matrix_rank", A, square=hermitian)
    x = A.detach()
    if tol is not None:
        atol, rtol = tol, 0.0
    atol, rtol = tolerances("linalg.matrix_rank", x, atol, rtol)
    if not x._data.size:
        return A.new_zeros(A.shape[:-2], dtype=dt.int64)
    size = apply(Eigh(), x)[0].abs() if hermitian else apply(SVD(), x)[1]
    largest = size.amax(-1)
    bound = FUNCTIONS["maximum"](*(_as_tensor(t, largest) for t in (atol, largest * rtol)))
    return (size > bound.unsqueeze(-1)).sum(-1)


def _as_tensor(value: Any, like: Any) -> Any:
    return value if isinstance(value, TensorBase) else like.new_tensor(value)


def tolerances(name: str, x: Any, atol: Any, rtol: Any) -> tuple[Any, Any]:
    """PyTorch's defaults: rtol is eps * the larger size, unless a positive atol is given."""
    assert_dtypes(name, REALS, atol=atol, rtol=rtol)
    if rtol is None:
        positive = isinstance(atol, TensorBase) or (atol is not None and atol > 0)
        rtol = 0.0 if positive else dt.finfo(x.dtype).eps * max(x.shape[-2:])
    return (0.0 if atol is None else atol), rtol
