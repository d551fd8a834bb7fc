"""Lookups by index: embedding, one_hot; and bilinear, distances."""

from __future__ import annotations

from typing import Any

from ...autograd.modes import no_grad
from ...core.dtype import int32, int64
from ...core.errors import DTypeError, InvalidArgument, Unsupported
from ...eager.fused import fused
from ...ops.elementwise.comparison import where
from ...ops.index.indexing import rows_at
from ...ops.linalg.contraction import einsum
from ...ops.shape.movement import broadcast_tensors
from ...tensor import Tensor

__all__ = ["bilinear", "cosine_similarity", "embedding", "pairwise_distance"]


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """The rows of `weight` at the indices `input`; the row `padding_idx` gets no gradient.

    With `max_norm` the rows that are looked up are first scaled, in place, to at most that norm.

    Shapes: (...) -> (..., features), weight (rows, features).
    Dtypes: `input` is int32 or int64.
    Errors: IndexingError for an index out of range; Unsupported for sparse gradients.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.embedding.html

    >>> ad.nn.functional.embedding(ad.tensor([1, 0]), ad.tensor([[1.], [2.]]))
    tensor([[2.],
            [1.]])
    """
    if input.dtype not in (int32, int64):
        raise DTypeError(
            f"embedding: Expected tensor for argument 'input' to have scalar types Long or Int, "
            f"but got {input.dtype}"
        )
    if sparse or scale_grad_by_freq:
        raise Unsupported(
            "embedding: sparse gradients and scale_grad_by_freq; use the default, False"
        )
    padding_idx = padding_row(padding_idx, weight.shape[0], "embedding: Padding_idx")
    if max_norm is not None:
        _bound_rows(weight, input.reshape(-1), max_norm, norm_type)
    found = rows_at(weight, input)
    if padding_idx is not None and weight.requires_grad:
        # The value stays, the gradient stops.
        padding = (input == padding_idx).unsqueeze(-1)
        found = where(padding, found.detach(), found)
    return found


def padding_row(padding_idx: int | None, rows: int, name: str) -> int | None:
    """The number of the row that gets no gradient, from the first on; None where there is none."""
    if padding_idx is None:
        return None
    if not -rows <= padding_idx < rows:
        raise InvalidArgument(f"{name} must be within num_embeddings={rows}, got {padding_idx}")
    return padding_idx % rows


def _bound_rows(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> None:
    with no_grad():
        used = indices.unique()
        rows = weight.index_select(0, used)
        norms = rows.norm(norm_type, 1, keepdim=True)
        factors = where(norms > max_norm, max_norm / (norms + 1e-7), 1.0)
        weight.index_copy_(0, used, (rows * factors).to(weight.dtype))


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x1^T weight x2 + bias, for each output feature.

    Shapes: (..., in1), (..., in2), weight (out, in1, in2) -> (..., out).
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.bilinear.html

    >>> ad.nn.functional.bilinear(ad.ones(1, 2), ad.ones(1, 3), ad.ones(1, 2, 3)).item()
    6.0
    """
    result = einsum("...i,oij,...j->...o", input1, weight, input2)
    return result if bias is None else result + bias


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between vectors along `dim`.

    Shapes: `x1` and `x2` broadcast; `dim` is reduced.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.cosine_similarity.html

    >>> x = ad.tensor([[3., 4.]])
    >>> round(ad.nn.functional.cosine_similarity(x, x).item(), 4)
    1.0
    """
    if x1.shape != x2.shape:
        x1, x2 = broadcast_tensors(x1, x2)  # `dim` counts dimensions of the result
    return _cosine(x1, x2, dim, eps)


@fused
def _cosine(x1: Any, x2: Any, dim: int, eps: float) -> Tensor:
    products = (x1 * x2).sum(dim)
    sizes = (x1 * x1).sum(dim).sqrt().clamp_min(eps) * (x2 * x2).sum(dim).sqrt().clamp_min(eps)
    return products / sizes


def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """The p-norm of x1 - x2 + eps along the last dimension.

    Shapes: `x1` and `x2` broadcast; the last dimension is reduced.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.pairwise_distance.html

    >>> round(ad.nn.functional.pairwise_distance(ad.zeros(1, 2), ad.ones(1, 2)).item(), 4)
    1.4142
    """
    difference: Any = x1 - x2 + eps
    return difference.norm(p, -1, keepdim=keepdim)
