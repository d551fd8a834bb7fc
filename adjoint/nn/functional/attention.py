"""Attention: scaled dot products, and the multi-head form with its projections."""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

from ...core import dtype as dt
from ...core.errors import DTypeError, InvalidArgument, ShapeError
from ...ops.linalg.fully_connected import linear
from ...ops.nn.activation import softmax
from ...ops.shape.concatenation import cat
from ...ops.shape.sizes import hold_sizes
from ...runtime.fused import fused
from ...runtime.public import explaining
from ...tensor import Tensor
from .dropout import dropout

__all__ = ["multi_head_attention_forward", "scaled_dot_product_attention"]


@explaining
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Attention: for each query the mean of the values, weighed by how well their keys fit.

        y = softmax(query key^T scale + mask) value

    A row that may attend to nothing gives 0.

    Args:
        query: Queries.
        key: Keys.
        value: Values.
        attn_mask: Mask that broadcasts to (..., L, S): a bool one is true where attention is
            allowed, a float one is added. Default: None.
        dropout_p: Probability that a weight is dropped; 0 in evaluation. Default: 0.0.
        is_causal: Forbid attention to places behind the query's, too. Default: False.
        scale: Factor of the products. Default: None, 1 / sqrt(E).
        enable_gqa: Let several heads of queries share one of keys and values: their numbers, in
            dimension -3, may differ by a factor. Default: False.

    Shapes: query (..., L, E), key (..., S, E), value (..., S, Ev) -> (..., L, Ev).
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html

    >>> q = ad.ones(1, 3, 4)
    >>> ad.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).shape
    adjoint.Size([1, 3, 4])
    """
    if attn_mask is not None and attn_mask.dtype.category == 1:
        raise DTypeError(
            f"scaled_dot_product_attention: Expected attn_mask dtype to be bool or float, but got "
            f"{attn_mask.dtype}; integers would be added: convert with .bool()"
        )
    if query.ndim < 2 or key.ndim < 2 or value.ndim < 2:
        raise ShapeError(
            "scaled_dot_product_attention: Expected query, key and value to be at least 2 "
            f"dimensional, got shapes {tuple(query.shape)}, {tuple(key.shape)} and "
            f"{tuple(value.shape)}"
        )
    if scale is None:
        query = hold_sizes("scaled_dot_product_attention", query, dims=(-1,))
    if is_causal:
        query = hold_sizes("scaled_dot_product_attention", query, dims=(-2,))
        key = hold_sizes("scaled_dot_product_attention", key, dims=(-2,))
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    if enable_gqa and key.shape[-3] == value.shape[-3] and not dropout_p:
        return _grouped(query, key, value, attn_mask, is_causal, factor)
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    if not dropout_p:
        return attention(query, key, value, attn_mask, is_causal, factor)
    weights = _weights(query, key, attn_mask, is_causal, factor)
    return dropout(weights, dropout_p) @ value


@fused(native="attention.eager_attention")
def attention(query: Any, key: Any, value: Any, mask: Any, causal: bool, factor: float) -> Any:
    """Attention without dropout: natively in tiles, so that no matrix of all scores is stored."""
    return _weights(query, key, mask, causal, factor) @ value


def _weights(query: Any, key: Any, mask: Any, causal: bool, factor: float) -> Any:
    """How much each query attends to each key: not at all where it may attend to none."""
    scores = (query * factor) @ key.transpose(-2, -1)
    if causal:
        allowed = query.new_ones(query.shape[-2], key.shape[-2], dtype=dt.bool_).tril()
        scores = scores.masked_fill(~allowed, -math.inf)
    if mask is None:
        return softmax(scores, -1)
    if mask.dtype is dt.bool_:
        scores = scores.masked_fill(~mask, -math.inf)
        nothing = ~mask.any(-1, keepdim=True)
    else:
        scores = scores + mask
        nothing = (mask == -math.inf).all(-1, keepdim=True)
    # The softmax of nothing but -infinity would be NaN, and so would gradients through it.
    return softmax(scores.masked_fill(nothing, 0.0), -1).masked_fill(nothing, 0.0)


def _grouped(query: Any, key: Any, value: Any, mask: Any, causal: bool, factor: float) -> Any:
    """Attention where several heads of queries share one of keys and values, not copied."""
    heads = key.shape[-3]
    groups = (heads, query.shape[-3] // heads)
    if mask is not None and mask.ndim > 2:
        mask = mask.unsqueeze(-3) if mask.shape[-3] == 1 else mask.unflatten(-3, groups)
    key, value = key.unsqueeze(-3), value.unsqueeze(-3)
    y = attention(query.unflatten(-3, groups), key, value, mask, causal, factor)
    return y.flatten(-4, -3)


def _as_float_mask(mask: Any, like: Any) -> Any:
    """A mask to be added: -inf where a bool mask is true."""
    if mask is None or mask.dtype is not dt.bool_:
        return mask
    return like.new_zeros(mask.shape).masked_fill(mask, -math.inf)


def _joined(masks: list[Any], like: Any) -> Any:
    """Join masks, true or -inf where attention is forbidden, to one that `attention` takes."""
    if not masks:
        return None
    if all(mask.dtype is dt.bool_ for mask in masks):
        return ~functools.reduce(operator.or_, masks)
    return functools.reduce(operator.add, [_as_float_mask(mask, like) for mask in masks])


def _head_size(width: int, expected: int, heads: int) -> int:
    """Size of each of the heads that queries of some width are split into.

    Errors: ShapeError where that is not the expected width, or there is a rest.
    """
    name = "multi_head_attention_forward"
    if width != expected:
        raise ShapeError(
            f"{name}: was expecting embedding dimension of {expected}, but got {width}"
        )
    head = width // heads
    if head * heads != width:
        raise ShapeError(f"{name}: embed_dim {width} not divisible by num_heads {heads}")
    return head


def _in_heads(x: Tensor, batches: int, head: int) -> Tensor:
    """(steps, batch, width) as (batch * heads, steps, head)."""
    return x.reshape(x.shape[0], batches, head).transpose(0, 1)


def _with_more(mask: Tensor | None, extra: int) -> Tensor | None:
    """A mask, true or -inf where attention is forbidden, for more keys that are always allowed."""
    return None if mask is None else cat([mask, mask.new_zeros(*mask.shape[:-1], extra)], -1)


def _masks_of_scores(
    pairs: Tensor | None, keys: Tensor | None, sizes: tuple[int, int, int], extra: int
) -> tuple[Tensor | None, Tensor | None]:
    """The masks of pairs and of keys, as they broadcast to scores (batch, heads, steps, source).

    `sizes` are batch, heads and source, of which the last `extra` may always be attended to.
    """
    batch, heads, source = sizes
    if pairs is not None and pairs.ndim == 2:
        pairs = pairs.unsqueeze(0)
    if extra:
        pairs, keys = _with_more(pairs, extra), _with_more(keys, extra)
    if keys is not None:
        keys = keys.reshape(batch, 1, 1, source)
    if pairs is not None:  # (1 or batch, 1 or heads, steps, source)
        pairs = pairs.reshape(-1, heads if len(pairs) > 1 else 1, *pairs.shape[1:])
    return pairs, keys


def _probabilities(q: Tensor, k: Tensor, masks: tuple[Tensor | None, ...]) -> Tensor:
    """How much each query, already scaled, attends to each key: NaN where it may attend to none."""
    scores = q @ k.transpose(-2, -1)
    for mask in masks:
        if mask is not None:
            scores = scores + _as_float_mask(mask, q)
    return softmax(scores, -1)


@explaining
def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Any,
    in_proj_bias: Any,
    bias_k: Any,
    bias_v: Any,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Any,
    out_proj_bias: Any,
    training: bool = True,
    key_padding_mask: Any = None,
    need_weights: bool = True,
    attn_mask: Any = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Any = None,
    k_proj_weight: Any = None,
    v_proj_weight: Any = None,
    static_k: Any = None,
    static_v: Any = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Any, Any]:
    """Attention in several heads, with its projections; returns output and weights.

        q, k, v = query W_q^T + b_q, key W_k^T + b_k, value W_v^T + b_v, in num_heads parts
        head = softmax(q k^T / sqrt(E / num_heads) + mask) v, for each part
        output = (the heads side by side) W_o^T + b_o

    Args:
        query: Queries.
        key: Keys.
        value: Values.
        embed_dim_to_check: Size E of the queries.
        num_heads: Number of heads.
        in_proj_weight: W_q, W_k and W_v in one, (3 E, E).
        in_proj_bias: b_q, b_k and b_v in one, (3 E,), or None.
        bias_k: Key to add at the end, (1, 1, E), or None.
        bias_v: Value to add at the end, (1, 1, E), or None.
        add_zero_attn: Whether to add a key and value of zeros at the end.
        dropout_p: Probability that a weight is dropped, in training.
        out_proj_weight: W_o.
        out_proj_bias: b_o, or None.
        training: Whether to drop. Default: True.
        key_padding_mask: Mask of keys, (N, S): true, or -inf, where none may attend. Default: None.
        need_weights: Whether to return the weights; None in their place otherwise. Default: True.
        attn_mask: Mask of pairs, (L, S) or (N num_heads, L, S): true, or -inf, where attention is
            forbidden. Default: None.
        use_separate_proj_weight: Take q_proj_weight, k_proj_weight and v_proj_weight instead of
            in_proj_weight. Default: False.
        q_proj_weight: W_q, (E, E). Default: None.
        k_proj_weight: W_k, (E, kdim). Default: None.
        v_proj_weight: W_v, (E, vdim). Default: None.
        static_k: Keys in parts, (N num_heads, S, E / num_heads), in the place of the projected
            ones. Default: None.
        static_v: Values in parts, likewise. Default: None.
        average_attn_weights: Whether the weights are the mean over the heads. Default: True.
        is_causal: Hint that attn_mask is the causal one. Default: False.

    Shapes: query (L, N, E), key and value (S, N, E), or without N -> output like query, weights (N,
    L, S) or, of all heads, (N, num_heads, L, S).
    Errors: ShapeError where sizes disagree; InvalidArgument for `is_causal` without a mask.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html

    >>> x, w = ad.ones(3, 1, 4), ad.ones(12, 4)
    >>> y, weights = ad.nn.functional.multi_head_attention_forward(
    ...     x, x, x, 4, 2, w, None, None, None, False, 0.0, ad.ones(4, 4), None)
    >>> y.shape, weights.shape
    (adjoint.Size([3, 1, 4]), adjoint.Size([1, 3, 3]))
    """
    batched = query.ndim == 3
    if query.ndim not in (2, 3) or key.ndim != query.ndim or value.ndim != query.ndim:
        raise ShapeError(
            "multi_head_attention_forward: expected query, key and value of 3 dimensions, or of 2 "
            f"without batch, got shapes {tuple(query.shape)}, {tuple(key.shape)} and "
            f"{tuple(value.shape)}"
        )
    if not batched:
        query, key, value = (x.unsqueeze(1) for x in (query, key, value))
        if key_padding_mask is not None:
            key_padding_mask = key_padding_mask.unsqueeze(0)
    if is_causal and attn_mask is None:
        raise InvalidArgument(
            "multi_head_attention_forward: Need attn_mask if specifying the is_causal hint."
        )
    length, batch, width = query.shape
    head = _head_size(width, embed_dim_to_check, num_heads)
    biases = (None, None, None) if in_proj_bias is None else in_proj_bias.chunk(3)
    weights = (
        (q_proj_weight, k_proj_weight, v_proj_weight)
        if use_separate_proj_weight
        else in_proj_weight.chunk(3)
    )
    q, k, v = (
        linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True)
    )
    extra = 0  # keys that are added at the end
    if bias_k is not None:
        k, v = (cat([x, b.repeat(1, batch, 1)]) for x, b in ((k, bias_k), (v, bias_v)))
        extra += 1
    q = _in_heads(q, batch * num_heads, head)
    k = _in_heads(k, batch * num_heads, head) if static_k is None else static_k
    v = _in_heads(v, batch * num_heads, head) if static_v is None else static_v
    if add_zero_attn:
        k, v = (cat([x, x.new_zeros(x.shape[0], 1, head)], 1) for x in (k, v))
        extra += 1
    factor = 1 / math.sqrt(head)
    attn_mask, key_padding_mask = _masks_of_scores(
        attn_mask, key_padding_mask, (batch, num_heads, k.shape[1]), extra
    )
    q, k, v = (x.reshape(batch, num_heads, *x.shape[1:]) for x in (q, k, v))
    if need_weights or (training and dropout_p):
        probabilities = _probabilities(q * factor, k, (attn_mask, key_padding_mask))
        probabilities = dropout(probabilities, dropout_p, training)
        output = probabilities @ v
    else:
        causal = is_causal and not extra  # then the attention mask says the same
        masks = [None if causal else attn_mask, key_padding_mask]
        mask = _joined([m for m in masks if m is not None], q)
        output = attention(q, k, v, mask, causal, factor)
    output = output.permute(2, 0, 1, 3).reshape(length * batch, width)
    output = linear(output, out_proj_weight, out_proj_bias).reshape(length, batch, -1)
    shown = None
    if need_weights:
        shown = probabilities.mean(1) if average_attn_weights else probabilities
        if not batched:
            shown = shown.squeeze(0)
    return (output if batched else output.squeeze(1)), shown
