"""Embeddings in ATen's order of arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.dtype import float64
from ...core.errors import InvalidArgument
from ...nn import functional as F  # noqa: N812 - the name everyone knows it by
from ...nn.functional.sparse import bound_rows
from ...ops.create.exchange import from_numpy
from ...ops.shape.sizes import hold_values
from ...runtime.public import explaining
from ...tensor import Tensor

_BAGS = ("sum", "mean", "max")


@explaining
def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[Any, Any, Any, Any]:
    """`nn.functional.embedding_bag` (modes 0 sum, 1 mean, 2 max), with what its gradient would
    read in PyTorch: to which bag each index belongs (none for a sum that needs it not), how many
    count in each bag, and of a maximum which row each feature comes from.

    Errors: InvalidArgument for another mode, and those of that function.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.embedding_bag.html

    >>> w = ad.tensor([[1.], [2.], [4.]])
    >>> ad.embedding_bag(w, ad.tensor([0, 1, 2]), ad.tensor([0, 2]), mode=1)
    (tensor([[1.5000],
            [4.0000]]), tensor([0, 0, 1]), tensor([2, 1]), tensor([2, 1]))
    """
    if mode not in range(3):
        raise InvalidArgument(
            f"embedding_bag: `mode` must be 0, 1 or 2 for {', '.join(_BAGS)}, got {mode!r}"
        )
    found = F.embedding_bag(
        indices, weight, offsets, scale_grad_by_freq=scale_grad_by_freq, mode=_BAGS[mode],
        sparse=sparse, per_sample_weights=per_sample_weights,
        include_last_offset=include_last_offset, padding_idx=padding_idx,
    )  # fmt: skip
    places = indices.detach().cpu().numpy()
    starts = offsets.detach().cpu().numpy()
    starts = starts[:-1] if include_last_offset else starts
    bags = np.searchsorted(starts, np.arange(len(places)), side="right") - 1
    padding = None if padding_idx is None else padding_idx % weight.shape[0]
    counts = np.bincount(bags[places != padding], minlength=len(starts))
    kept = offsets.dtype

    def made(array: Any) -> Any:
        read = (indices, offsets, weight) if mode == 2 else (indices, offsets)
        counted = from_numpy(array.astype(np.int64)).to(weight.device, kept)
        return hold_values("embedding_bag", counted, *read)

    if mode == 0:
        none = made(np.zeros(len(starts)))
        needs = padding is not None or weight.dtype is float64  # PyTorch's quick way does without
        return found, made(bags if needs else bags[:0]), none, none.clone()
    sizes = made(counts)
    if mode == 1:
        return found, made(bags), sizes, sizes.clone()
    return found, made(bags), sizes, made(_largest(weight, places, bags, len(starts), padding))


def _largest(weight: Any, places: Any, bags: Any, count: int, padding: int | None) -> Any:
    """The row that is largest for each bag and feature, the first of equal ones; 0 where none."""
    rows = weight.detach().cpu()
    found = np.zeros((count, rows.shape[1]), np.int64)
    for bag in range(count):
        own = places[(bags == bag) & (places != padding)]
        if len(own):
            chosen = rows.index_select(0, from_numpy(own.astype(np.int64)))
            found[bag] = own[chosen.max(0)[1].numpy()]
    return found


@explaining
def embedding_renorm_(input: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """Scale the rows at `indices` down to the norm `max_norm`, in place, where theirs is higher.

    Shapes: input (rows, features); indices of any shape.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.embedding.html

    >>> ad.embedding_renorm_(ad.tensor([[3., 4.], [0., 1.]]), ad.tensor([0]), 1.0, 2.0)
    tensor([[0.6000, 0.8000],
            [0.0000, 1.0000]])
    """
    bound_rows(input, indices.reshape(-1), max_norm, norm_type)
    return input
