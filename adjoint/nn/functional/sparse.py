"""Lookups by index: embedding, embedding_bag; and bilinear, distances."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...autograd.modes import no_grad
from ...core.argument_errors import assert_tensor
from ...core.dtype import finfo, float32, float64, int32, int64, promote_types
from ...core.errors import DTypeError, InvalidArgument, ShapeError, Unsupported
from ...core.keywords import concealing, unexpected
from ...core.mode import refuse_where
from ...core.overrides import ABSENT, FOLLOWED, concerns, overridden
from ...ops.argument_dtypes import FLOATING, INTEGERS, assert_dtypes
from ...ops.create.exchange import from_numpy
from ...ops.create.ranges import arange
from ...ops.elementwise.comparison import where
from ...ops.index.indexing import rows_at
from ...ops.linalg.contraction import einsum
from ...ops.reduce.sort import searchsorted
from ...ops.shape.movement import broadcast_tensors
from ...ops.shape.sizes import hold_sizes, hold_values
from ...runtime.fused import fused
from ...runtime.public import explaining, naming
from ...runtime.writes import values_of
from ...tensor import Tensor
from .checks import as_indices
from .normalization import wide

__all__ = [
    "bilinear", "cosine_similarity", "embedding", "embedding_bag", "pairwise_distance",
]  # fmt: skip


@concealing
def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
    **others: object,
) -> Tensor:
    """Rows of a matrix, looked up by indices.

        y[i] = weight[input[i]]

    Args:
        input: Indices.
        weight: Matrix of the vectors.
        padding_idx: Row that gets no gradient. Default: None.
        max_norm: Largest norm: vectors that are looked up are first scaled down to it, in place.
            Default: None, no bound.
        norm_type: Exponent of that norm. Default: 2.0.
        scale_grad_by_freq: Not supported: only False. Default: False.
        sparse: Whether the gradient of `weight` is a sparse tensor of the rows that were looked up.
            Default: False.

    Shapes: (...) -> (..., features), weight (rows, features).
    Dtypes: `input` is int32 or int64.
    Errors: IndexingError for an index out of range; InvalidArgument for a padding_idx out of range;
    DTypeError for indices that are no integers; Unsupported for `scale_grad_by_freq`, and for
    `sparse` where operations are recorded.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.embedding.html

    >>> ad.nn.functional.embedding(ad.tensor([1, 0]), ad.tensor([[1.], [2.]]))
    tensor([[2.],
            [1.]])
    """
    if others:
        raise unexpected(embedding, others)
    if FOLLOWED and concerns(input, weight):
        options = {
            "padding_idx": padding_idx, "max_norm": max_norm, "norm_type": norm_type,
            "scale_grad_by_freq": scale_grad_by_freq, "sparse": sparse,
        }  # fmt: skip
        said = overridden(embedding, (input, weight), options)
        if said is not ABSENT:
            return said
    try:
        fits = input.dtype in (int32, int64)
    except AttributeError:
        fits = False
    if not fits:
        assert_tensor("embedding", input)
        raise DTypeError(
            f"embedding: Expected tensor for argument 'input' to have scalar types Long or Int, "
            f"but got {input.dtype}"
        )
    if scale_grad_by_freq:
        raise Unsupported("embedding: scale_grad_by_freq; use the default, False")
    if padding_idx is not None and padding_idx < 0:
        weight = hold_sizes("embedding", weight, dims=(0,))
    padding_idx = padding_row(padding_idx, weight.shape[0], "embedding: Padding_idx")
    if max_norm is not None:
        bound_rows(weight, input.reshape(-1), max_norm, norm_type)
    if sparse:
        from ...ops.sparse.public_functions import rows_sparsely

        return rows_sparsely(weight, input, padding_idx)  # type: ignore[no-any-return]
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


def bound_rows(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> None:
    with no_grad():
        used = indices.unique()
        rows = weight.index_select(0, used)
        norms = rows.norm(norm_type, 1, keepdim=True)
        factors = where(norms > max_norm, max_norm / (norms + 1e-7), 1.0)
        weight.index_copy_(0, used, (rows * factors).to(weight.dtype))


@explaining
def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Mean, sum or maximum of the vectors of each bag of indices.

        y[b] = mean over i in bag b of weight[input[i]]

    Indices equal to padding_idx do not count. An empty bag gives zeros.

    Args:
        input: Indices.
        weight: Matrix of the vectors.
        offsets: Where in the row of indices each bag begins. Default: None.
        max_norm: Largest norm: vectors that are looked up are first scaled down to it, in place.
            Default: None, no bound.
        norm_type: Exponent of that norm. Default: 2.
        scale_grad_by_freq: Not supported: only False. Default: False.
        mode: What becomes of a bag's vectors: "mean", "sum" or "max". Default: "mean".
        sparse: Whether the gradient of the weight is a sparse tensor. Default: False.
        per_sample_weights: Factor of each index, for mode "sum". Default: None, ones.
        include_last_offset: Whether the offsets have the end of the last bag, too. Default: False.
        padding_idx: Index that stands for padding. Default: None.

    Shapes: input (bags, size), or (indices,) with offsets (bags,); weight (rows, features) ->
    (bags, features).
    Errors: ShapeError for other shapes; InvalidArgument for an unknown mode, and for "max" with
    `sparse`; Unsupported for `scale_grad_by_freq`, and for per_sample_weights in another mode than
    "sum".
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.embedding_bag.html

    >>> w = ad.tensor([[1.], [2.], [4.]])
    >>> ad.nn.functional.embedding_bag(ad.tensor([0, 1, 2]), w, ad.tensor([0, 2]), mode="sum")
    tensor([[3.],
            [4.]])
    """
    if weight.ndim != 2:
        raise ShapeError(f"embedding_bag: weight has to be a 2D Tensor, got {tuple(weight.shape)}")
    if mode not in ("sum", "mean", "max"):
        raise InvalidArgument(
            f"embedding_bag: mode has to be one of sum, mean or max, got {mode!r}"
        )
    assert_dtypes("embedding_bag", FLOATING, weight=weight)
    assert_dtypes("embedding_bag", INTEGERS, offsets=offsets)
    if scale_grad_by_freq:
        raise Unsupported("embedding_bag: scale_grad_by_freq; use the default, False")
    if sparse and mode == "max":
        raise InvalidArgument("embedding_bag: max mode does not support sparse weights")
    if per_sample_weights is not None:
        if mode != "sum":
            raise Unsupported(
                f"embedding_bag: per_sample_weights is only supported for mode='sum', got {mode!r}"
            )
        if tuple(per_sample_weights.shape) != tuple(input.shape):
            raise ShapeError(
                f"embedding_bag: per_sample_weights {tuple(per_sample_weights.shape)} must have "
                f"the same shape as the input {tuple(input.shape)}"
            )
        per_sample_weights = per_sample_weights.reshape(-1)
    input = hold_sizes("embedding_bag", input)
    weight = hold_sizes("embedding_bag", weight)
    bags, count = _bags(input, offsets, include_last_offset)
    indices = as_indices(input.reshape(-1), "embedding_bag", "input")
    if max_norm is not None:
        bound_rows(weight, indices, max_norm, norm_type)
    kept = None if padding_idx is None else indices != padding_idx % weight.shape[0]
    rows: Any
    if sparse:
        from ...ops.sparse.public_functions import rows_sparsely

        rows = rows_sparsely(weight, indices)
    else:
        rows = weight.index_select(0, indices)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    if mode == "max":
        return _largest(rows, bags, count, kept)
    if kept is not None:
        rows = where(kept.unsqueeze(-1), rows, 0.0)
    result = rows.new_zeros((count, weight.shape[1])).index_add(0, bags, rows)
    if mode == "mean":
        ones = bags.new_ones(bags.shape) if kept is None else kept.long()
        counts = bags.new_zeros((count,)).index_add(0, bags, ones).clamp(min=1)
        result = result / counts.unsqueeze(-1).to(result)
    return result


def _bags(input: Tensor, offsets: Tensor | None, include_last: bool) -> tuple[Tensor, int]:
    """The bag of each of the flattened indices, and how many bags there are."""
    if input.ndim == 2:
        if offsets is not None:
            raise InvalidArgument(
                "embedding_bag: if input is 2D, then offsets has to be None, as input is treated "
                "as a mini-batch of fixed length sequences"
            )
        count = input.shape[0]
        bags = arange(count, device=input.device).unsqueeze(-1).expand(input.shape).reshape(-1)
        return bags, count
    if input.ndim != 1 or offsets is None or offsets.ndim != 1:
        raise ShapeError(
            f"embedding_bag: input has to be 2D, or 1D with 1D offsets; got shape "
            f"{tuple(input.shape)} and offsets {None if offsets is None else tuple(offsets.shape)}"
        )
    starts = hold_sizes("embedding_bag", offsets)
    starts = starts[:-1] if include_last else starts
    count = starts.shape[0]
    if count:
        refuse_where(
            starts[0] != 0,
            lambda: InvalidArgument(
                "embedding_bag: offsets[0] has to be 0, i.e., the first sequence in the mini-batch "
                "has to start from position 0"
            ),
        )
    places = arange(input.shape[0], device=input.device)
    return searchsorted(starts.long(), places, right=True) - 1, count


def _largest(rows: Any, bags: Any, count: int, kept: Any) -> Any:
    """Each bag's maxima: its rows side by side, shorter bags filled with -inf. Only rows that are
    `kept`.
    """
    rows = hold_values("embedding_bag", rows, *(x for x in (bags, kept) if x is not None))
    bags = values_of(bags, followed=True)
    if kept is not None:
        chosen = np.flatnonzero(values_of(kept, followed=True))
        rows, bags = rows.index_select(0, from_numpy(chosen).to(rows.device)), bags[chosen]
    sizes = np.bincount(bags, minlength=count)
    longest = int(sizes.max(initial=0))
    if not longest:
        return rows.new_zeros((count, rows.shape[1])) + rows.sum(0)  # zeros with a history
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    order = np.argsort(bags, kind="stable")
    place = first[:, None] + np.arange(longest)
    filled = np.arange(longest) < sizes[:, None]
    index = order[np.where(filled, place, 0)]
    side = rows.index_select(0, from_numpy(index.reshape(-1).astype(np.int64)).to(rows.device))
    side = side.reshape(count, longest, rows.shape[1])
    side = side.masked_fill(from_numpy(~filled).to(rows.device).unsqueeze(-1), -math.inf)
    found = side.max(1)[0]
    return found.masked_fill(from_numpy(sizes == 0).to(rows.device).unsqueeze(-1), 0.0)


@naming
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Bilinear form of two inputs for each output feature.

        y[o] = x1^T weight[o] x2 + bias[o]

    Args:
        input1: First vectors.
        input2: Second vectors.
        weight: A matrix for each output.
        bias: Number added to each output. Default: None.

    Shapes: (..., in1), (..., in2), weight (out, in1, in2) -> (..., out).
    Errors: ShapeError for inputs of other sizes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.bilinear.html

    >>> ad.nn.functional.bilinear(ad.ones(1, 2), ad.ones(1, 3), ad.ones(1, 2, 3)).item()
    6.0
    """
    result = einsum("...i,oij,...j->...o", input1, weight, input2)
    return result if bias is None else result + bias


@explaining
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Cosine of the angle between vectors.

        y = x1 . x2 / (max(|x1|, eps) max(|x2|, eps))

    Args:
        x1: First vectors.
        x2: Second vectors.
        dim: Dimension of the vectors, which is reduced. Default: 1.
        eps: Least norm, so that nothing is divided by zero. Default: 1e-8.

    Shapes: `x1` and `x2` broadcast; `dim` is reduced.
    Errors: ShapeError where the shapes do not broadcast; IndexingError for a dim out of range.
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
    a, b = _precise(x1), _precise(x2)
    products = (a * b).sum(dim)
    sizes = _length(a, dim, eps) * _length(b, dim, eps)
    return (products / sizes).to(promote_types(x1.dtype, x2.dtype))


def _precise(x: Tensor) -> Tensor:
    """float32 as float64, which holds the squares of all its numbers."""
    return x.to(float64) if x.dtype is float32 else wide(x)


def _length(x: Tensor, dim: int, eps: float) -> Tensor:
    """The 2-norm, or `eps` where that is greater. It is bounded before the root, whose gradient at
    zero is infinite.
    """
    return (x * x).sum(dim).clamp_min(max(eps * eps, finfo(x.dtype).tiny)).sqrt()


@explaining
def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """Distance of vectors along the last dimension.

        y = p-norm of x1 - x2 + eps

    Args:
        x1: First vectors.
        x2: Second vectors.
        p: Exponent of the norm. Default: 2.0.
        eps: Number added to each difference, which keeps the gradient finite. Default: 1e-6.
        keepdim: Whether the reduced dimension stays, with size 1. Default: False.

    Shapes: `x1` and `x2` broadcast; the last dimension is reduced.
    Errors: ShapeError where the shapes do not broadcast.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.pairwise_distance.html

    >>> round(ad.nn.functional.pairwise_distance(ad.zeros(1, 2), ad.ones(1, 2)).item(), 4)
    1.4142
    """
    difference: Any = x1 - x2 + eps
    return difference.norm(p, -1, keepdim=keepdim)
