"""ONNX's operators of language models: attention, rotations, linear attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....core.dtype import float32, from_numpy_dtype
from ....tensor import Tensor
from ..files import DTYPES
from .imported_node import F, ImportedNode, ad, host, operator, t

UNBOUNDED = -1


def _heads(n: ImportedNode, x: Tensor, count: Any) -> Any:
    """(batch, heads, length, size), also of (batch, length, heads * size)."""
    if x.ndim == 4:
        return x
    if x.ndim != 3 or not count or x.shape[2] % count:
        raise ValueError(f"{tuple(x.shape)} in {count} heads")
    return x.unflatten(2, (count, -1)).transpose(1, 2)


@operator("Attention", tensors=3)
def _(
    n: ImportedNode, query: Any, key: Any, value: Any, mask: Any = None, past_key: Any = None,
    past_value: Any = None, lengths: Any = None,
) -> Any:  # fmt: skip
    flat = query.ndim == 3
    query = _heads(n, query, n.get("q_num_heads"))
    key, value = (_heads(n, x, n.get("kv_num_heads")) for x in (key, value))
    before = 0
    if past_key is not None:
        before = past_key.shape[2]
        key, value = ad.cat([t(past_key), key], 2), ad.cat([t(past_value), value], 2)
    present = key, value
    bias = _bias(n, query, key, mask, before, lengths)
    if query.shape[1] % key.shape[1]:
        raise ValueError(f"{query.shape[1]} heads for {key.shape[1]}")
    if query.shape[1] != key.shape[1]:
        repeats = query.shape[1] // key.shape[1]
        key, value = (x.repeat_interleave(repeats, 1) for x in (key, value))
    scale = n.get("scale") or 1 / math.sqrt(query.shape[-1])
    plain = (
        not n.get("softcap", 0.0) and len(n.outputs) < 4 and "softmax_precision" not in n.attributes
    )
    if plain and bias is None:
        y, shown = F.scaled_dot_product_attention(query, key, value, scale=scale), None
    else:
        y, shown = _weighted(n, query, key, value, bias, scale)
    if flat:
        y = y.transpose(1, 2).flatten(2)
    return (y, *present, shown)[: max(len(n.outputs), 1)]


def _weighted(
    n: ImportedNode, query: Tensor, key: Tensor, value: Tensor, bias: Any, scale: float
) -> tuple[Any, Any]:
    """The result, and the scores or weights that the node shows."""
    root = math.sqrt(scale)
    scores = (query * root) @ (key.transpose(2, 3) * root)
    stages = [scores]
    cap = n.get("softcap", 0.0)
    scores = ad.tanh(scores / cap) * cap if cap else scores
    stages.append(scores)
    scores = scores if bias is None else scores + bias
    stages.append(scores)
    precision = DTYPES.get(n.get("softmax_precision"))
    wide = scores if precision is None else scores.to(from_numpy_dtype(precision))
    weights = F.softmax(wide, -1)
    if bias is not None:  # a row that may attend to nothing gives 0
        nothing = (bias == -math.inf).all(-1, keepdim=True)
        weights = weights.masked_fill(nothing, 0.0)
    weights = weights.to(query.dtype)
    stages.append(weights)
    return weights @ value, stages[n.get("qk_matmul_output_mode", 0)]


def _bias(n: ImportedNode, query: Tensor, key: Tensor, mask: Any, before: int, lengths: Any) -> Any:
    """The bias added to the scores: 0 or a mask's numbers where attention is allowed, else -inf."""
    rows, columns = query.shape[2], key.shape[2]
    left, right = n.get("left_window_size", UNBOUNDED), n.get("right_window_size", UNBOUNDED)
    if left < UNBOUNDED or right < UNBOUNDED:
        raise ValueError(f"a window of {left} and {right}")
    n.check_size([query.shape[0], query.shape[1], rows, columns])
    allowed: Any = None
    first = np.array([before])  # the position of each batch's first query among the keys
    if lengths is not None:
        if before:
            raise ValueError("lengths of keys beside past keys")
        count = host(lengths).reshape(-1)
        first = count - rows
        allowed = (np.arange(columns) < count[:, None])[:, None, None]
    ahead = np.arange(columns) - (first[:, None, None] + np.arange(rows)[:, None])
    if n.get("is_causal", 0):
        right = 0 if right == UNBOUNDED else min(right, 0)
    for within in (ahead <= right if right != UNBOUNDED else None,
                   -ahead <= left if left != UNBOUNDED else None):  # fmt: skip
        if within is not None:
            allowed = within[:, None] if allowed is None else allowed & within[:, None]
    bias = None
    if allowed is not None:
        bias = t(np.where(allowed, 0.0, -np.inf)).to(query.dtype)
    if mask is None:
        return bias
    mask = t(mask)
    if mask.dtype.name == "bool":
        mask = ad.where(mask, 0.0, -math.inf).to(query.dtype)
    if mask.shape[-1] < columns:
        mask = F.pad(mask, (0, columns - mask.shape[-1]), value=-math.inf)
    return mask if bias is None else bias + mask


@operator("RotaryEmbedding", tensors=3)
def _(n: ImportedNode, x: Any, cos: Any, sin: Any, places: Any = None) -> Any:
    whole = _heads(n, x, n.get("num_heads", 0))
    size = n.get("rotary_embedding_dim", 0) or whole.shape[-1]
    if places is not None:
        cos, sin = cos[t(places)], sin[t(places)]
    if cos.shape[-1] != size // 2 or sin.shape != cos.shape or size > whole.shape[-1]:
        raise ValueError(f"caches of {tuple(cos.shape)} for {size} of {tuple(whole.shape)}")
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    turned, kept = whole[..., :size], whole[..., size:]
    pairs = bool(n.get("interleaved", 0))
    parts = turned.unflatten(-1, (-1, 2)) if pairs else turned.unflatten(-1, (2, -1)).mT
    a, b = parts.unbind(-1)
    turned = ad.stack([cos * a - sin * b, sin * a + cos * b], -1 if pairs else -2).flatten(-2)
    y = ad.cat([turned, kept], -1)
    return y.transpose(1, 2).flatten(2) if x.ndim == 3 else y


@operator("SwiGLU", tensors=1)
def _(n: ImportedNode, a: Any, b: Any) -> Any:
    return a * ad.sigmoid(a * n.get("alpha", 1.0)) * t(b)


@operator("CausalConvWithState", tensors=2)
def _(n: ImportedNode, x: Any, weight: Any, bias: Any = None, past: Any = None) -> Any:
    size = weight.shape[2] - 1
    before = x.new_zeros(*x.shape[:2], size) if past is None else t(past)
    padded = ad.cat([before, x], 2)
    y = F.conv1d(padded, weight, None if bias is None else t(bias), groups=x.shape[1])
    activation = n.get("activation", "none")
    if activation not in ("none", "silu", "swish"):
        raise n.unsupported(f"activation {activation!r}")
    y = y if activation == "none" else F.silu(y)
    return y, padded.narrow(2, padded.shape[2] - size, size)


@operator("LinearAttention")
def _(
    n: ImportedNode,
    query: Any,
    key: Any,
    value: Any,
    past: Any = None,
    decay: Any = None,
    beta: Any = None,
) -> Any:
    """A state of key times value, read by each query (Katharopoulos and others, 2020); with decay,
    and with what the state says already taken off each value (Yang and others, 2024).
    """
    rule = n.get("update_rule", "gated_delta")
    if rule not in ("linear", "gated", "delta", "gated_delta"):
        raise n.unsupported(f"update_rule {rule!r}")
    if (decay is None) == ("gated" in rule) or (beta is None) == ("delta" in rule):
        raise ValueError(f"the inputs decay and beta do not fit update_rule {rule!r}")
    dtype = t(query).dtype
    heads, own = n.get("q_num_heads"), n.get("kv_num_heads")
    query = _heads(n, t(query).to(float32), heads)
    key, value = (_heads(n, t(x).to(float32), own) for x in (key, value))
    scale = n.get("scale", 0.0) or 1 / math.sqrt(query.shape[-1])
    batch, _, steps, size = key.shape
    state = key.new_zeros(batch, own, size, value.shape[-1]) if past is None else t(past)
    kept_as, state = (dtype if past is None else state.dtype), state.to(float32)
    gates = None if decay is None else ad.exp(_heads(n, t(decay).to(float32), own))
    rates = None if beta is None else t(beta).to(float32).transpose(1, 2).unsqueeze(-1)
    found = []
    for i in range(steps):
        k, v = key[:, :, i, :, None], value[:, :, i, None]
        if gates is not None:
            state = state * gates[:, :, i, :, None]
        if rates is not None:
            v = rates[:, :, i, None] * (v - (state * k).sum(2, keepdim=True))
        state = state + k * v
        seen = state if heads == own else state.repeat_interleave(heads // own, 1)
        found.append((query[:, :, i, None] @ seen).squeeze(2) * scale)
    y = ad.stack(found, 1).flatten(2)
    return y.to(dtype), state.to(kept_as)
