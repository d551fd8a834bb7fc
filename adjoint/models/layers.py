"""Layers that several of the models share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..core.dtype import bool_
from ..core.errors import Unsupported
from ..nn import Linear, Module, ModuleList
from ..nn import functional as F  # noqa: N812 - PyTorch's convention
from ..ops.create.creation import ones
from ..ops.elementwise.namespace import tanh
from ..ops.nn.activation import gelu, silu
from ..ops.nn.piecewise import relu
from .pretrained import head_size

_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "gelu": gelu,
    "gelu_new": lambda x: gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: gelu(x, approximate="tanh"),
    "quick_gelu": lambda x: x * (1.702 * x).sigmoid(),
    "relu": relu,
    "silu": silu,
    "swish": silu,
    "tanh": tanh,
}


def activation(name: str) -> Callable[[Any], Any]:
    """The function that a config calls `name`."""
    if name not in _ACTIVATIONS:
        raise Unsupported(f"activation {name!r}; known: {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


def split_heads(x: Any, size: int) -> Any:
    """(batch, length, heads * size) -> (batch, heads, length, size)."""
    batch, length, _ = x.shape
    return x.reshape(batch, length, -1, size).transpose(1, 2)


def attend(
    query: Any, key: Any, value: Any, mask: Any, dropout: float = 0.0, **options: Any
) -> Any:
    """Attention in heads, then the heads side by side again: (batch, length, heads * size).

    `mask` is true where a query may look at a key; "causal" for at all keys up to its own.
    """
    if isinstance(mask, str):
        options["is_causal"], mask = True, None
    heads = F.scaled_dot_product_attention(query, key, value, mask, dropout, **options)
    batch, _, length, _ = heads.shape
    return heads.transpose(1, 2).reshape(batch, length, -1)


def padding_mask(attention_mask: Any) -> Any:
    """The mask for `attend` out of one that is 1 for tokens and 0 for padding; None for none."""
    return None if attention_mask is None else attention_mask.bool()[:, None, None, :]


def causal_mask(input_ids: Any, past: int, attention_mask: Any) -> Any:
    """The mask for `attend` by which each token sees itself, the ones before, and the `past` cached
    ones, but no padding. `attention_mask` covers the cached tokens too.
    """
    length = input_ids.shape[1]
    if attention_mask is None:
        if past == 0:
            return "causal"
        if length == 1:
            return None
    seen = ones(length, past + length, dtype=bool_, device=input_ids.device).tril(past)
    return seen if attention_mask is None else seen & padding_mask(attention_mask)


# ---- what BERT and ViT have in common, under the names of their files ----------------------------


class SelfAttention(Module):
    """Attention of every token to every token that the mask lets it see."""

    def __init__(self, config: Any, bias: bool = True) -> None:
        super().__init__()
        width = config.hidden_size
        name = type(config).__name__.removesuffix("Config")
        self.head_size = head_size(width, config.num_attention_heads, name)
        self.dropout = config.attention_probs_dropout_prob
        self.query, self.key, self.value = (Linear(width, width, bias=bias) for _ in range(3))

    def forward(self, x: Any, mask: Any = None) -> Any:
        """(batch, length, width) -> the same."""
        query, key, value = (
            split_heads(project(x), self.head_size)
            for project in (self.query, self.key, self.value)
        )
        return attend(query, key, value, mask, self.dropout if self.training else 0.0)


class Dense(Module):
    """A linear layer under the name `dense`, and an activation where `act` names one."""

    def __init__(self, in_features: int, out_features: int, act: str | None = None) -> None:
        super().__init__()
        self.dense = Linear(in_features, out_features)
        self.activation = None if act is None else activation(act)

    def forward(self, x: Any) -> Any:
        """(..., in_features) -> (..., out_features)."""
        x = self.dense(x)
        return x if self.activation is None else self.activation(x)


class Encoder(Module):
    """Layers, one after the other."""

    def __init__(self, layers: Iterable[Module]) -> None:
        super().__init__()
        self.layer = ModuleList(layers)

    def forward(self, x: Any, *others: Any) -> Any:
        """(batch, length, width) -> the same; every layer gets what else there is."""
        for layer in self.layer:
            x = layer(x, *others)
        return x
