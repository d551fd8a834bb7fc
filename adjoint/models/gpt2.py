"""GPT-2: a stack of decoder blocks with learned positions.

Source: Radford et al., 2019,
https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..nn import Dropout, Embedding, LayerNorm, Linear, Module, ModuleList, Parameter, init
from ..nn import functional as F  # noqa: N812 - PyTorch's convention
from ..ops.create.creation import empty, zeros
from ..ops.create.ranges import arange
from .generation import Generative, KeyValueCache
from .layers import activation, attend, causal_mask, split_heads
from .pretrained import Config, head_size


@dataclass(frozen=True, kw_only=True)
class GPT2Config(Config):
    """The sizes of a GPT-2; the defaults are the 124-million-parameter model's.

    Source: https://huggingface.co/docs/transformers/model_doc/gpt2

    >>> ad.models.GPT2Config(n_layer=6).n_embd
    768
    """

    model_type = "gpt2"
    fixed: ClassVar = {"add_cross_attention": False}

    vocab_size: int = 50257
    n_positions: int = 1024
    n_embd: int = 768
    n_layer: int = 12
    n_head: int = 12
    n_inner: int | None = None  # 4 * n_embd
    activation_function: str = "gelu_new"
    resid_pdrop: float = 0.1
    embd_pdrop: float = 0.1
    attn_pdrop: float = 0.1
    layer_norm_epsilon: float = 1e-5
    scale_attn_weights: bool = True
    scale_attn_by_inverse_layer_idx: bool = False
    tie_word_embeddings: bool = True


class Conv1D(Module):
    """A linear layer whose weight is (in, out), as GPT-2's files have it."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = Parameter(init.normal_(empty(in_features, out_features), std=0.02))
        self.bias = Parameter(zeros(out_features))

    def forward(self, x: Any) -> Any:
        """x weight + bias."""
        return x @ self.weight + self.bias


class GPT2Attention(Module):
    """Causal self-attention; queries, keys and values come from one projection."""

    def __init__(self, config: GPT2Config, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.head_size = head_size(config.n_embd, config.n_head, "GPT2")
        self.scale = self.head_size**-0.5 if config.scale_attn_weights else 1.0
        if config.scale_attn_by_inverse_layer_idx:
            self.scale /= layer + 1
        self.dropout = config.attn_pdrop
        self.c_attn = Conv1D(config.n_embd, 3 * config.n_embd)
        self.c_proj = Conv1D(config.n_embd, config.n_embd)

    def forward(self, x: Any, mask: Any, cache: KeyValueCache | None) -> Any:
        """(batch, length, width) -> the same."""
        query, key, value = (split_heads(p, self.head_size) for p in self.c_attn(x).chunk(3, -1))
        if cache is not None:
            key, value = cache.extend(self.layer, key, value)
        dropout = self.dropout if self.training else 0.0
        return self.c_proj(attend(query, key, value, mask, dropout, scale=self.scale))


class GPT2MLP(Module):
    """Two linear layers around an activation, applied to each token alone."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        inner = config.n_inner or 4 * config.n_embd
        self.c_fc = Conv1D(config.n_embd, inner)
        self.c_proj = Conv1D(inner, config.n_embd)
        self.activation = activation(config.activation_function)

    def forward(self, x: Any) -> Any:
        """(..., width) -> the same."""
        return self.c_proj(self.activation(self.c_fc(x)))


class GPT2Block(Module):
    """Attention, then the MLP; each reads a normalized copy and adds to the stream."""

    def __init__(self, config: GPT2Config, layer: int) -> None:
        super().__init__()
        self.ln_1 = LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.attn = GPT2Attention(config, layer)
        self.ln_2 = LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.mlp = GPT2MLP(config)
        self.dropout = Dropout(config.resid_pdrop)

    def forward(self, x: Any, mask: Any, cache: KeyValueCache | None) -> Any:
        """(batch, length, width) -> the same."""
        x = x + self.dropout(self.attn(self.ln_1(x), mask, cache))
        return x + self.dropout(self.mlp(self.ln_2(x)))


class GPT2Stack(Module):
    """Embeddings, blocks, and a last normalization."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.wte = Embedding(config.vocab_size, config.n_embd)
        self.wpe = Embedding(config.n_positions, config.n_embd)
        init.normal_(self.wte.weight, std=0.02)
        init.normal_(self.wpe.weight, std=0.02)
        self.drop = Dropout(config.embd_pdrop)
        self.h = ModuleList(GPT2Block(config, i) for i in range(config.n_layer))
        self.ln_f = LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)

    def forward(
        self,
        input_ids: Any,
        attention_mask: Any,
        position_ids: Any,
        token_type_ids: Any,
        cache: Any,
    ) -> Any:
        """(batch, length) token numbers -> (batch, length, width)."""
        length, past = input_ids.shape[1], 0 if cache is None else cache.length
        if position_ids is None:
            position_ids = arange(past, past + length, device=input_ids.device)
        x = self.wte(input_ids) + self.wpe(position_ids)
        if token_type_ids is not None:
            x = x + self.wte(token_type_ids)
        x = self.drop(x)
        mask = causal_mask(input_ids, past, attention_mask)
        for block in self.h:
            x = block(x, mask, cache)
        if cache is not None:
            cache.advance(length)
        return self.ln_f(x)


class GPT2(Generative):
    """GPT-2 with its language model head, whose weight is that of the token embedding.

    Shapes: input_ids (batch, length) -> logits (batch, length, vocab_size). `attention_mask` is 1
    for tokens and 0 for padding, the cached tokens included.
    Source: https://huggingface.co/docs/transformers/model_doc/gpt2

    >>> config = ad.models.GPT2Config(vocab_size=10, n_positions=8, n_embd=4, n_layer=1, n_head=2)
    >>> ad.models.GPT2(config)(ad.tensor([[1, 2, 3]])).shape
    adjoint.Size([1, 3, 10])
    """

    config_class = GPT2Config
    base = "transformer"
    heads = ("lm_head.",)
    ignored = (".attn.bias", ".attn.masked_bias")  # masks that old files hold
    architecture = "GPT2LMHeadModel"

    def __init__(self, config: GPT2Config) -> None:
        super().__init__(config)
        self.transformer = GPT2Stack(config)
        self.lm_head: Any = None
        if not config.tie_word_embeddings:
            self.lm_head = Linear(config.n_embd, config.vocab_size, bias=False)

    def forward(
        self,
        input_ids: Any,
        attention_mask: Any = None,
        position_ids: Any = None,
        token_type_ids: Any = None,
        cache: KeyValueCache | None = None,
    ) -> Any:
        """The logits of each next token."""
        x = self.transformer(input_ids, attention_mask, position_ids, token_type_ids, cache)
        head = self.transformer.wte if self.lm_head is None else self.lm_head
        return F.linear(x, head.weight)

    @property
    def max_tokens(self) -> int:
        """Number of positions that the model can tell apart."""
        return int(self.config.n_positions)
