"""Llama: decoder blocks with rotary positions, gated layers and shared key-value heads.

Source: Touvron et al., 2023, https://arxiv.org/abs/2307.09288
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..core.dtype import float32, float64
from ..core.errors import InvalidArgument
from ..nn import Embedding, Linear, Module, ModuleList, Parameter
from ..nn import functional as F  # noqa: N812 - PyTorch's convention
from ..ops.create.creation import ones
from ..ops.create.ranges import arange
from .generation import Generative, KeyValueCache
from .layers import activation, attend, causal_mask, split_heads
from .pretrained import Config, head_size
from .rotary import Rotary, turn


@dataclass(frozen=True, kw_only=True)
class LlamaConfig(Config):
    """The sizes of a Llama; the defaults are those of Llama 2 with 7 billion parameters.

    `rope_parameters` says how rotary positions are computed: `rope_theta`, `rope_type` (default,
    linear, dynamic, llama3, yarn or longrope) and what that type needs.

    Source: https://huggingface.co/docs/transformers/model_doc/llama

    >>> ad.models.LlamaConfig(hidden_size=64, num_attention_heads=4).head_size
    16
    """

    model_type = "llama"
    fixed: ClassVar = {"pretraining_tp": 1}

    vocab_size: int = 32000
    hidden_size: int = 4096
    intermediate_size: int = 11008
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int | None = None  # num_attention_heads
    head_dim: int | None = None  # hidden_size / num_attention_heads
    hidden_act: str = "silu"
    max_position_embeddings: int = 2048
    rms_norm_eps: float = 1e-6
    rope_parameters: dict[str, Any] = field(default_factory=lambda: {"rope_theta": 10000.0})
    attention_bias: bool = False
    attention_dropout: float = 0.0
    mlp_bias: bool = False
    tie_word_embeddings: bool = False

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Any:
        """A config from the values in a config.json, of old ones too, which say rope_scaling."""
        rope = values.get("rope_parameters") or values.get("rope_scaling") or {}
        if isinstance(rope, dict):
            rope = {"rope_theta": values.get("rope_theta", 10000.0), **rope}
        return super().from_dict({**values, "rope_parameters": rope})

    @property
    def head_size(self) -> int:
        """The width of one attention head."""
        return self.head_dim or head_size(self.hidden_size, self.num_attention_heads, "Llama")


class LlamaRMSNorm(Module):
    """RMS normalization: each token divided by its root mean square, in float32 at least, and
    scaled.
    """

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = Parameter(ones(width))
        self.eps = eps

    def forward(self, x: Any) -> Any:
        """(..., width) -> the same."""
        wide = x if x.dtype is float64 else x.to(float32)
        normalized = wide * ((wide * wide).mean(-1, keepdim=True) + self.eps).rsqrt()
        return self.weight * normalized.to(x.dtype)


class LlamaAttention(Module):
    """Causal self-attention in which several query heads share a key-value head."""

    def __init__(self, config: LlamaConfig, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.dropout = config.attention_dropout
        self.head_size = config.head_size
        heads = config.num_attention_heads
        shared = config.num_key_value_heads or heads
        if heads % shared:
            raise InvalidArgument(f"Llama: {heads} query heads do not share {shared} evenly")
        width, bias = config.hidden_size, config.attention_bias
        self.q_proj = Linear(width, heads * self.head_size, bias=bias)
        self.k_proj = Linear(width, shared * self.head_size, bias=bias)
        self.v_proj = Linear(width, shared * self.head_size, bias=bias)
        self.o_proj = Linear(heads * self.head_size, width, bias=bias)

    def forward(
        self, x: Any, waves: tuple[Any, Any], mask: Any, cache: KeyValueCache | None
    ) -> Any:
        """(batch, length, width) -> the same."""
        query, key, value = (
            split_heads(project(x), self.head_size)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        query, key = turn(query, waves), turn(key, waves)
        if cache is not None:
            key, value = cache.extend(self.layer, key, value)
        dropout = self.dropout if self.training else 0.0
        return self.o_proj(attend(query, key, value, mask, dropout, enable_gqa=True))


class LlamaMLP(Module):
    """A linear layer, gated by the activation of another, and one back."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        width, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        self.gate_proj = Linear(width, inner, bias=bias)
        self.up_proj = Linear(width, inner, bias=bias)
        self.down_proj = Linear(inner, width, bias=bias)
        self.activation = activation(config.hidden_act)

    def forward(self, x: Any) -> Any:
        """(..., width) -> the same."""
        return self.down_proj(self.activation(self.gate_proj(x)) * self.up_proj(x))


class LlamaBlock(Module):
    """Attention, then the MLP; each reads a normalized copy and adds to the stream."""

    def __init__(self, config: LlamaConfig, layer: int) -> None:
        super().__init__()
        self.input_layernorm = LlamaRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = LlamaAttention(config, layer)
        self.post_attention_layernorm = LlamaRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = LlamaMLP(config)

    def forward(
        self, x: Any, waves: tuple[Any, Any], mask: Any, cache: KeyValueCache | None
    ) -> Any:
        """(batch, length, width) -> the same."""
        x = x + self.self_attn(self.input_layernorm(x), waves, mask, cache)
        return x + self.mlp(self.post_attention_layernorm(x))


class LlamaStack(Module):
    """The embedding, the blocks, and a last normalization."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.embed_tokens = Embedding(config.vocab_size, config.hidden_size)
        self.layers = ModuleList(LlamaBlock(config, i) for i in range(config.num_hidden_layers))
        self.norm = LlamaRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.rotary = Rotary(
            config.head_size, config.max_position_embeddings, config.rope_parameters
        )

    def forward(self, input_ids: Any, attention_mask: Any, position_ids: Any, cache: Any) -> Any:
        """(batch, length) token numbers -> (batch, length, width)."""
        length, past = input_ids.shape[1], 0 if cache is None else cache.length
        if position_ids is None:
            position_ids = arange(past, past + length, device=input_ids.device)
        x = self.embed_tokens(input_ids)
        waves = self.rotary.waves(position_ids, x.dtype)
        mask = causal_mask(input_ids, past, attention_mask)
        for block in self.layers:
            x = block(x, waves, mask, cache)
        if cache is not None:
            cache.advance(length)
        return self.norm(x)


class Llama(Generative):
    """Llama with its language model head.

    Shapes: input_ids (batch, length) -> logits (batch, length, vocab_size). `attention_mask` is 1
    for tokens and 0 for padding, the cached tokens included.
    Source: https://huggingface.co/docs/transformers/model_doc/llama

    >>> config = ad.models.LlamaConfig(
    ...     vocab_size=10, hidden_size=8, intermediate_size=16, num_hidden_layers=1,
    ...     num_attention_heads=2, num_key_value_heads=1)
    >>> ad.models.Llama(config)(ad.tensor([[1, 2, 3]])).shape
    adjoint.Size([1, 3, 10])
    """

    config_class = LlamaConfig
    base = "model"
    heads = ("lm_head.",)
    ignored = ("rotary_emb.inv_freq",)  # constants that old files hold
    architecture = "LlamaForCausalLM"

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config)
        self.model = LlamaStack(config)
        self.lm_head: Any = None
        if not config.tie_word_embeddings:
            self.lm_head = Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(
        self,
        input_ids: Any,
        attention_mask: Any = None,
        position_ids: Any = None,
        cache: KeyValueCache | None = None,
    ) -> Any:
        """The logits of each next token."""
        x = self.model(input_ids, attention_mask, position_ids, cache)
        head = self.model.embed_tokens if self.lm_head is None else self.lm_head
        return F.linear(x, head.weight)

    @property
    def max_tokens(self) -> int:
        """Number of tokens that fit: rotary positions have no end, so as many as memory holds."""
        return 2**31
