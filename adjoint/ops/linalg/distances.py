"""Distances between the rows of matrices."""

from __future__ import annotations

from typing import Any

from ...core.errors import DTypeError, InvalidArgument, ShapeError
from ...core.tensor_type import Tensor
from ...runtime.public import explaining, public
from ..promotion import promote
from ..shape.sizes import hold_sizes
from ..shape.triangles import triu_indices
from .matrix_product import matmul
from .norms import vector_norm

__all__ = ["cdist", "pdist"]

_MODES = (
    "use_mm_for_euclid_dist_if_necessary",
    "use_mm_for_euclid_dist",
    "donot_use_mm_for_euclid_dist",
)


def _distance(difference: Any, p: float) -> Any:
    """The p-norm of the last dimension; its gradient at 0 is 0."""
    if not p:
        return (difference != 0).to(difference.dtype).sum(-1) + 0 * difference.sum(-1)
    if not difference.shape[-1]:
        return difference.sum(-1)
    return vector_norm(difference, p, -1)


def _assert_order(name: str, p: float, x: Tensor) -> None:
    if not p >= 0:
        raise InvalidArgument(f"{name}: only supports non-negative p values, got {p}")
    if not x.dtype.is_floating_point:
        raise DTypeError(f"{name}: only supports floating-point dtypes, got {x.dtype}")


@explaining
@public(method=False)
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str | None = None) -> Tensor:
    """The p-norm distances of all rows of `x1` from all rows of `x2`.

    Euclidean distances of many rows are computed by a matrix product, which is faster and, for
    rows close to one another, less precise; `compute_mode` "donot_use_mm_for_euclid_dist" avoids
    it.

    Shapes: x1 (..., P, M), x2 (..., R, M): (..., P, R); the other dimensions broadcast.
    Errors: ShapeError where the rows differ in length; InvalidArgument for a negative p.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.cdist.html

    >>> ad.cdist(ad.tensor([[0., 0.], [3., 0.]]), ad.tensor([[0., 4.]]))
    tensor([[4.],
            [5.]])
    """
    if x1.ndim < 2 or x2.ndim < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ShapeError(
            "cdist: both tensors need at least two dimensions and the same number of columns, got "
            f"shapes {tuple(x1.shape)} and {tuple(x2.shape)}"
        )
    if compute_mode not in (None, *_MODES):
        raise InvalidArgument(f"cdist: {compute_mode!r} is not a valid compute_mode: {_MODES}")
    _assert_order("cdist", p, x1)
    _assert_order("cdist", p, x2)
    a, b = promote("cdist", x1, x2)[1]
    many = max(x1.shape[-2], x2.shape[-2]) > 25
    product = compute_mode == _MODES[1] or (compute_mode in (None, _MODES[0]) and many)
    if p == 2 and product and x1.shape[-1]:
        squares = (a * a).sum(-1, keepdim=True) + (b * b).sum(-1).unsqueeze(-2)
        squares = (squares - 2 * matmul(a, b.mT)).clamp_min(0)
        near = squares == 0  # where the square root has no derivative
        return squares.masked_fill(near, 1).sqrt().masked_fill(near, 0)
    return _distance(a.unsqueeze(-2) - b.unsqueeze(-3), p)


@explaining
@public(method=False)
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """Distances of each row from those after it.

        y = (|x[i] - x[j]| for i < j), in the p-norm

    Args:
        input: Values.
        p: Exponent of the norm, at least 0. Default: 2.0.

    Shapes: (N, M): N (N - 1) / 2 distances, those of the first row first.
    Errors: ShapeError for a tensor that is not 2-d; InvalidArgument for a negative p.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.pdist.html

    >>> ad.pdist(ad.tensor([[0., 0.], [3., 4.], [0., 4.]]))
    tensor([5., 4., 3.])
    """
    input = hold_sizes("pdist", input)
    if input.ndim != 2:
        raise ShapeError(f"pdist: only supports 2D tensors, got: {input.ndim}D")
    _assert_order("pdist", p, input)
    rows, columns = triu_indices(len(input), len(input), 1)
    x: Any = input
    return _distance(x[rows] - x[columns], p)
