"""Attention: scaled dot products, and the multi-head form with its projections."""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

from ...core import dtype as dt
from ...core.errors import InvalidArgument, ShapeError
from ...eager.fused import fused
from ...eager.public import explaining
from ...ops.linalg.matmul import linear
from ...ops.nn.activation import softmax
from ...ops.shape.joining import cat
from ...ops.shape.sizes import hold_sizes
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
    """softmax(query key^T / sqrt(E) + mask) value.

    Shapes: query (..., L, E), key (..., S, E), value (..., S, Ev) -> (..., L, Ev). A bool mask is
    true where attention is allowed; a float mask is added. A row that may attend to nothing
    gives 0.
    Errors: InvalidArgument for a mask together with `is_causal`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html

    >>> q = ad.ones(1, 3, 4)
    >>> ad.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).shape
    adjoint.Size([1, 3, 4])
    """
    if is_causal and attn_mask is not None:
        raise InvalidArgument(
            "scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True"
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


@fused(native="attention.attention")
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
    """What several masks, true or -inf where attention is forbidden, say together: a mask as
    `attention` takes it.
    """
    if not masks:
        return None
    if all(mask.dtype is dt.bool_ for mask in masks):
        return ~functools.reduce(operator.or_, masks)
    return functools.reduce(operator.add, [_as_float_mask(mask, like) for mask in masks])


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
    """Project, attend in `num_heads` heads, project back; the output and the attention weights.

    Shapes: query (L, N, E), key and value (S, N, E), or without N; the weights are (N, L, S),
    averaged over the heads unless asked not to. Bool masks are true where attention is forbidden.
    Errors: ShapeError where sizes disagree; InvalidArgument for `is_causal` without a mask.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html

    >>> x, w = ad.ones(3, 1, 4), ad.ones(12, 4)
    >>> y, weights = ad.nn.functional.multi_head_attention_forward(
    ...     x, x, x, 4, 2, w, None, None, None, False, 0.0, ad.ones(4, 4), None)
    >>> y.shape, weights.shape
    (adjoint.Size([3, 1, 4]), adjoint.Size([1, 3, 3]))
    """
    name = "multi_head_attention_forward"
    batched = query.ndim == 3
    if not batched:
        query, key, value = (x.unsqueeze(1) for x in (query, key, value))
        if key_padding_mask is not None:
            key_padding_mask = key_padding_mask.unsqueeze(0)
    if is_causal and attn_mask is None:
        raise InvalidArgument(f"{name}: Need attn_mask if specifying the is_causal hint.")
    length, batch, width = query.shape
    if width != embed_dim_to_check:
        raise ShapeError(
            f"{name}: was expecting embedding dimension of {embed_dim_to_check}, but got {width}"
        )
    head = width // num_heads
    if head * num_heads != width:
        raise ShapeError(f"{name}: embed_dim {width} not divisible by num_heads {num_heads}")
    biases = (None, None, None) if in_proj_bias is None else in_proj_bias.chunk(3)
    weights = (
        (q_proj_weight, k_proj_weight, v_proj_weight)
        if use_separate_proj_weight
        else in_proj_weight.chunk(3)
    )
    q, k, v = (
        linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True)
    )
    if attn_mask is not None and attn_mask.ndim == 2:
        attn_mask = attn_mask.unsqueeze(0)
    extra = 0
    if bias_k is not None:
        k, v = (cat([x, b.repeat(1, batch, 1)]) for x, b in ((k, bias_k), (v, bias_v)))
        extra += 1

    def split(x: Any) -> Any:  # (steps, batch, width) -> (batch * heads, steps, head)
        return x.reshape(x.shape[0], batch * num_heads, head).transpose(0, 1)

    q = split(q)
    k = split(k) if static_k is None else static_k
    v = split(v) if static_v is None else static_v
    if add_zero_attn:
        k, v = (cat([x, x.new_zeros(x.shape[0], 1, head)], 1) for x in (k, v))
        extra += 1
    source = k.shape[1]
    if extra:  # the added keys may always be attended to

        def extended(mask: Any) -> Any:
            if mask is None:
                return None
            return cat([mask, mask.new_zeros(*mask.shape[:-1], extra)], -1)

        attn_mask, key_padding_mask = extended(attn_mask), extended(key_padding_mask)
    factor = 1 / math.sqrt(head)
    if key_padding_mask is not None:
        key_padding_mask = key_padding_mask.reshape(batch, 1, 1, source)
    if attn_mask is not None:  # (1 or batch, 1 or heads, steps, source)
        attn_mask = attn_mask.reshape(
            -1, num_heads if len(attn_mask) > 1 else 1, *attn_mask.shape[1:]
        )
    q, k, v = (x.reshape(batch, num_heads, *x.shape[1:]) for x in (q, k, v))
    if need_weights or (training and dropout_p):
        scores = (q * factor) @ k.transpose(-2, -1)
        for mask in (attn_mask, key_padding_mask):
            if mask is not None:
                scores = scores + _as_float_mask(mask, q)
        probabilities = softmax(scores, -1)
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
        shown = probabilities
        if average_attn_weights:
            shown = shown.mean(1)
        if not batched:
            shown = shown.squeeze(0)
    return (output if batched else output.squeeze(1)), shown
