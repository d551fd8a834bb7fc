"""ViT: an image as a row of patches, read by a stack of encoder layers.

Source: Dosovitskiy et al., 2021, https://arxiv.org/abs/2010.11929
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..core.errors import ShapeError
from ..nn import Conv2d, Dropout, LayerNorm, Linear, Module, Parameter
from ..nn import functional as F  # noqa: N812 - PyTorch's convention
from ..ops.create.creation import zeros
from ..ops.random.random import randn
from ..ops.shape.concatenation import cat
from .layers import Dense, Encoder, SelfAttention
from .pretrained import EncoderConfig, Pretrained


@dataclass(frozen=True, kw_only=True)
class ViTConfig(EncoderConfig):
    """The sizes of a ViT; the defaults are those of ViT-B/16.

    Source: https://huggingface.co/docs/transformers/model_doc/vit

    >>> ad.models.ViTConfig(patch_size=32).hidden_size
    768
    """

    model_type = "vit"

    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    image_size: int = 224
    patch_size: int = 16
    num_channels: int = 3
    qkv_bias: bool = True
    pooler_output_size: int | None = None  # hidden_size
    pooler_act: str = "tanh"

    def to_dict(self) -> dict[str, Any]:
        """The values of a config.json."""
        return {
            **super().to_dict(),
            "pooler_output_size": self.pooler_output_size or self.hidden_size,
        }


class ViTPatchEmbeddings(Module):
    """Embedding of each patch of the image as one vector."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        size = config.patch_size
        self.projection = Conv2d(config.num_channels, config.hidden_size, size, stride=size)

    def forward(self, image: Any) -> Any:
        """(batch, channels, height, width) -> (batch, patches, hidden_size)."""
        return self.projection(image).flatten(2).transpose(1, 2)


class ViTEmbeddings(Module):
    """Embeddings of the image: a class token, then the patches, plus their positions."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.config = config
        self.grid = config.image_size // config.patch_size
        self.cls_token = Parameter(randn(1, 1, config.hidden_size) * 0.02)
        self.patch_embeddings = ViTPatchEmbeddings(config)
        self.position_embeddings = Parameter(zeros(1, self.grid**2 + 1, config.hidden_size))
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, image: Any, interpolate_positions: bool) -> Any:
        """(batch, channels, height, width) -> (batch, 1 + patches, hidden_size)."""
        batch, _, height, width = image.shape
        positions = self.position_embeddings
        if interpolate_positions:
            size = self.config.patch_size
            positions = self._resized(height // size, width // size)
        elif (height, width) != (self.config.image_size,) * 2:
            raise ShapeError(
                f"ViT: an image of {height} x {width}, but positions for {self.config.image_size}; "
                "resize the image, or pass interpolate_positions=True"
            )
        patches = self.patch_embeddings(image)
        tokens = cat([self.cls_token.expand(batch, -1, -1), patches], 1)
        return self.dropout(tokens + positions)

    def _resized(self, rows: int, columns: int) -> Any:
        """The positions of a grid of another size, by bicubic interpolation."""
        if (rows, columns) == (self.grid, self.grid):
            return self.position_embeddings
        first, grid = self.position_embeddings[:, :1], self.position_embeddings[:, 1:]
        grid = grid.reshape(1, self.grid, self.grid, -1).permute(0, 3, 1, 2)
        grid = F.interpolate(grid, size=(rows, columns), mode="bicubic", align_corners=False)
        return cat([first, grid.flatten(2).transpose(1, 2)], 1)


class ViTAttention(Module):
    """Attention and its last linear layer."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.attention = SelfAttention(config, config.qkv_bias)
        self.output = Dense(config.hidden_size, config.hidden_size)

    def forward(self, x: Any) -> Any:
        """(batch, tokens, width) -> the same."""
        return self.output(self.attention(x))


class ViTLayer(Module):
    """Attention, then two linear layers; each reads a normalized copy and adds to the stream."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        width, inner = config.hidden_size, config.intermediate_size
        self.attention = ViTAttention(config)
        self.intermediate = Dense(width, inner, config.hidden_act)
        self.output = Dense(inner, width)
        self.layernorm_before = LayerNorm(width, eps=config.layer_norm_eps)
        self.layernorm_after = LayerNorm(width, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, x: Any) -> Any:
        """(batch, tokens, width) -> the same."""
        x = x + self.dropout(self.attention(self.layernorm_before(x)))
        return x + self.dropout(self.output(self.intermediate(self.layernorm_after(x))))


class ViT(Pretrained):
    """ViT without a head: the state of every patch, and that of the whole image.

    Shapes: images (batch, channels, height, width) -> (batch, 1 + patches, hidden_size) and
    (batch, pooler_output_size).
    Source: https://huggingface.co/docs/transformers/model_doc/vit

    >>> config = ad.models.ViTConfig(
    ...     hidden_size=4, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
    ...     image_size=4, patch_size=2)
    >>> states, pooled = ad.models.ViT(config)(ad.ones(1, 3, 4, 4))
    >>> states.shape, pooled.shape
    (adjoint.Size([1, 5, 4]), adjoint.Size([1, 4]))
    """

    config_class = ViTConfig
    base = "vit"
    heads = ("pooler.",)
    ignored = ("embeddings.mask_token",)
    architecture = "ViTModel"

    def __init__(self, config: ViTConfig, pooled: bool = True) -> None:
        super().__init__(config)
        self.embeddings = ViTEmbeddings(config)
        self.encoder = Encoder(ViTLayer(config) for _ in range(config.num_hidden_layers))
        self.layernorm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.pooler: Any = None
        if pooled:
            size = config.pooler_output_size or config.hidden_size
            self.pooler = Dense(config.hidden_size, size, config.pooler_act)

    def forward(self, image: Any, interpolate_positions: bool = False) -> tuple[Any, Any]:
        """The states, and the pooled one (None without a pooler)."""
        x = self.layernorm(self.encoder(self.embeddings(image, interpolate_positions)))
        return x, None if self.pooler is None else self.pooler(x[:, 0])


class ViTForImageClassification(Pretrained):
    """ViT that says which of `num_labels` classes an image belongs to.

    Shapes: images (batch, channels, height, width) -> logits (batch, num_labels).
    Source: https://huggingface.co/docs/transformers/model_doc/vit

    >>> config = ad.models.ViTConfig(
    ...     hidden_size=4, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
    ...     image_size=4, patch_size=2, num_labels=3)
    >>> ad.models.ViTForImageClassification(config)(ad.ones(1, 3, 4, 4)).shape
    adjoint.Size([1, 3])
    """

    config_class = ViTConfig
    base = "vit"
    heads = ("classifier.",)
    ignored = ("embeddings.mask_token",)
    architecture = "ViTForImageClassification"

    def __init__(self, config: ViTConfig) -> None:
        super().__init__(config)
        self.vit = ViT(config, pooled=False)
        self.classifier = Linear(config.hidden_size, config.num_labels)

    def forward(self, image: Any, interpolate_positions: bool = False) -> Any:
        """The logits of each class."""
        states, _ = self.vit(image, interpolate_positions)
        return self.classifier(states[:, 0])
