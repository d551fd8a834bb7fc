"""BERT: a stack of encoder layers that look at both sides of every token.

Source: Devlin et al., 2019, https://arxiv.org/abs/1810.04805
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..nn import Dropout, Embedding, LayerNorm, Linear, Module, Parameter
from ..nn import functional as F  # noqa: N812 - PyTorch's convention
from ..ops.create.creation import zeros
from ..ops.create.like import zeros_like
from ..ops.create.ranges import arange
from .layers import Dense, Encoder, SelfAttention, padding_mask
from .pretrained import EncoderConfig, Pretrained


@dataclass(frozen=True, kw_only=True)
class BertConfig(EncoderConfig):
    """The sizes of a BERT; the defaults are those of BERT-base.

    Source: https://huggingface.co/docs/transformers/model_doc/bert

    >>> ad.models.BertConfig(num_hidden_layers=2).hidden_size
    768
    """

    model_type = "bert"
    fixed: ClassVar = {
        "is_decoder": False, "add_cross_attention": False, "position_embedding_type": "absolute",
        "tie_word_embeddings": True,
    }  # fmt: skip

    vocab_size: int = 30522
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    pad_token_id: int | None = 0
    classifier_dropout: float | None = None  # hidden_dropout_prob


class BertEmbeddings(Module):
    """Sum of the embeddings of tokens, their positions and their sentences."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.word_embeddings = Embedding(config.vocab_size, width, padding_idx=config.pad_token_id)
        self.position_embeddings = Embedding(config.max_position_embeddings, width)
        self.token_type_embeddings = Embedding(config.type_vocab_size, width)
        self.LayerNorm = LayerNorm(width, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, input_ids: Any, token_type_ids: Any, position_ids: Any) -> Any:
        """(batch, length) token numbers -> (batch, length, width)."""
        if token_type_ids is None:
            token_type_ids = zeros_like(input_ids)
        if position_ids is None:
            position_ids = arange(input_ids.shape[1], device=input_ids.device)
        x = self.word_embeddings(input_ids) + self.token_type_embeddings(token_type_ids)
        return self.dropout(self.LayerNorm(x + self.position_embeddings(position_ids)))


class BertOutput(Module):
    """The end of each half of a layer: a linear layer, added to the half's input, normalized."""

    def __init__(self, config: BertConfig, in_features: int) -> None:
        super().__init__()
        self.dense = Linear(in_features, config.hidden_size)
        self.LayerNorm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, x: Any, residual: Any) -> Any:
        """(..., in_features) and (..., width) -> (..., width)."""
        return self.LayerNorm(self.dropout(self.dense(x)) + residual)


class BertAttention(Module):
    """The first half of a layer."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.self = SelfAttention(config)
        self.output = BertOutput(config, config.hidden_size)

    def forward(self, x: Any, mask: Any) -> Any:
        """(batch, length, width) -> the same."""
        return self.output(self.self(x, mask), x)


class BertTransform(Dense):
    """A linear layer, an activation and a normalization."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config.hidden_size, config.hidden_size, config.hidden_act)
        self.LayerNorm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, x: Any) -> Any:
        """(..., width) -> the same."""
        return self.LayerNorm(super().forward(x))


class BertLayer(Module):
    """Attention, then two linear layers around an activation."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.attention = BertAttention(config)
        inner = config.intermediate_size
        self.intermediate = Dense(config.hidden_size, inner, config.hidden_act)
        self.output = BertOutput(config, inner)

    def forward(self, x: Any, mask: Any) -> Any:
        """(batch, length, width) -> the same."""
        x = self.attention(x, mask)
        return self.output(self.intermediate(x), x)


class Bert(Pretrained):
    """BERT without a head: the state of every token, and that of the whole text.

    Shapes: input_ids (batch, length) -> (batch, length, hidden_size) and (batch, hidden_size).
    `attention_mask` is 1 for tokens and 0 for padding; `token_type_ids` says which sentence.
    Source: https://huggingface.co/docs/transformers/model_doc/bert

    >>> config = ad.models.BertConfig(
    ...     vocab_size=10, hidden_size=4, num_hidden_layers=1, num_attention_heads=2,
    ...     intermediate_size=8)
    >>> states, pooled = ad.models.Bert(config)(ad.tensor([[1, 2, 3]]))
    >>> states.shape, pooled.shape
    (adjoint.Size([1, 3, 4]), adjoint.Size([1, 4]))
    """

    config_class = BertConfig
    base = "bert"
    heads = ("pooler.",)
    ignored = ("embeddings.position_ids",)  # a constant that old files hold
    architecture = "BertModel"

    def __init__(self, config: BertConfig, pooled: bool = True) -> None:
        super().__init__(config)
        self.embeddings = BertEmbeddings(config)
        self.encoder = Encoder(BertLayer(config) for _ in range(config.num_hidden_layers))
        width = config.hidden_size
        self.pooler = Dense(width, width, "tanh") if pooled else None

    def forward(
        self,
        input_ids: Any,
        attention_mask: Any = None,
        token_type_ids: Any = None,
        position_ids: Any = None,
    ) -> tuple[Any, Any]:
        """The tokens' states, and the pooled one (None without a pooler)."""
        x = self.embeddings(input_ids, token_type_ids, position_ids)
        x = self.encoder(x, padding_mask(attention_mask))
        return x, None if self.pooler is None else self.pooler(x[:, 0])


class BertPredictions(Module):
    """Masked-language-model head: logits of the token at each place. The last weight is that of the
    token embedding.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.transform = BertTransform(config)
        self.bias = Parameter(zeros(config.vocab_size))

    def forward(self, x: Any, embedding: Any) -> Any:
        """(..., width) -> (..., vocab_size)."""
        return F.linear(self.transform(x), embedding, self.bias)


class BertForMaskedLM(Pretrained):
    """BERT that fills in masked tokens.

    Shapes: input_ids (batch, length) -> logits (batch, length, vocab_size).
    Source: https://huggingface.co/docs/transformers/model_doc/bert

    >>> config = ad.models.BertConfig(
    ...     vocab_size=10, hidden_size=4, num_hidden_layers=1, num_attention_heads=2,
    ...     intermediate_size=8)
    >>> ad.models.BertForMaskedLM(config)(ad.tensor([[1, 2, 3]])).shape
    adjoint.Size([1, 3, 10])
    """

    config_class = BertConfig
    base = "bert"
    heads = ("cls.", "classifier.")
    ignored = ("embeddings.position_ids",)
    architecture = "BertForMaskedLM"

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.bert = Bert(config, pooled=False)
        self.cls = Module()
        self.cls.predictions = BertPredictions(config)

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """The logits of each token; takes what `Bert` does."""
        states, _ = self.bert(*inputs, **options)
        return self.cls.predictions(states, self.bert.embeddings.word_embeddings.weight)


class BertForSequenceClassification(Pretrained):
    """BERT that says which of `num_labels` classes a text belongs to.

    Shapes: input_ids (batch, length) -> logits (batch, num_labels).
    Source: https://huggingface.co/docs/transformers/model_doc/bert

    >>> config = ad.models.BertConfig(
    ...     vocab_size=10, hidden_size=4, num_hidden_layers=1, num_attention_heads=2,
    ...     intermediate_size=8, num_labels=3)
    >>> ad.models.BertForSequenceClassification(config)(ad.tensor([[1, 2, 3]])).shape
    adjoint.Size([1, 3])
    """

    config_class = BertConfig
    base = "bert"
    heads = ("classifier.", "bert.pooler.", "cls.")
    ignored = ("embeddings.position_ids",)
    architecture = "BertForSequenceClassification"

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.bert = Bert(config)
        rate = config.classifier_dropout
        self.dropout = Dropout(config.hidden_dropout_prob if rate is None else rate)
        self.classifier = Linear(config.hidden_size, config.num_labels)

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """The logits of each class; takes what `Bert` does."""
        _, pooled = self.bert(*inputs, **options)
        return self.classifier(self.dropout(pooled))
