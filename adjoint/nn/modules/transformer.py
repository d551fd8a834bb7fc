"""The Transformer (Vaswani et al., 2017)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

from ...core.errors import InvalidArgument, ShapeError
from ...ops.create.creation import full
from ...tensor import Tensor
from .. import functional as F  # noqa: N812 - the name everyone knows it by
from .. import init
from .attention import MultiheadAttention
from .container import ModuleList
from .dropout import Dropout
from .linear import Linear
from .module import Module
from .normalization import LayerNorm

__all__ = [
    "Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder",
    "TransformerEncoderLayer",
]  # fmt: skip


def _get_activation_fn(activation: Any) -> Callable[[Any], Any]:
    if callable(activation):
        return activation
    found = {"relu": F.relu, "gelu": F.gelu}.get(activation)
    if found is None:
        raise InvalidArgument(f"Transformer: activation should be relu/gelu, not {activation}")
    return found


class _Layer(Module):
    """Base of encoder and decoder layers: the feed-forward block, and how blocks are joined."""

    attentions: tuple[str, ...]  # their names

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Any = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        options: dict[str, Any] = {"bias": bias, "device": device, "dtype": dtype}
        for name in self.attentions:
            attention = MultiheadAttention(
                d_model, nhead, dropout, batch_first=batch_first, **options
            )
            self.add_module(name, attention)
        self.linear1 = Linear(d_model, dim_feedforward, **options)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, **options)
        self.norm_first = norm_first
        for i in range(1, len(self.attentions) + 2):
            self.add_module(f"norm{i}", LayerNorm(d_model, eps=layer_norm_eps, **options))
        for i in range(1, len(self.attentions) + 2):
            self.add_module(f"dropout{i}", Dropout(dropout))
        self.activation = _get_activation_fn(activation)

    def _feed_forward(self, x: Any) -> Any:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))

    def _join(self, x: Any, number: int, block: Callable[[Any], Any]) -> Any:
        """Block `number` with its dropout, residual and normalisation before or after."""
        norm, dropout = getattr(self, f"norm{number}"), getattr(self, f"dropout{number}")
        if self.norm_first:
            return x + dropout(block(norm(x)))
        return norm(x + dropout(block(x)))


class TransformerEncoderLayer(_Layer):
    """Encoder layer of a transformer: self-attention and a feed-forward block.

        x = norm1(x + dropout(attention(x, x, x)))
        x = norm2(x + dropout(linear2(dropout(activation(linear1(x))))))

    With `norm_first`, x = x + dropout(block(norm(x))) for each block.

    Args:
        d_model: Size of each vector.
        nhead: Number of attention heads; it divides d_model.
        dim_feedforward: Size of the layer within the feed-forward block. Default: 2048.
        dropout: Probability of dropout, in training. Default: 0.1.
        activation: Activation of the feed-forward block: "relu", "gelu" or a function. Default:
            "relu".
        layer_norm_eps: Number added to the variance in layer normalization. Default: 1e-5.
        batch_first: Whether the batch is first, (batch, time, ...). Default: False.
        norm_first: Normalize before each block instead of behind it. Default: False.
        bias: Whether to add learned biases. Default: True.
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.

    Shapes: (time, batch, d_model), or batch first where asked -> the same.
    Errors: InvalidArgument for another activation; ShapeError where nhead does not divide d_model.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.TransformerEncoderLayer.html

    >>> ad.nn.TransformerEncoderLayer(8, 2, 16)(ad.zeros(5, 3, 8)).shape
    adjoint.Size([5, 3, 8])
    """

    attentions = ("self_attn",)

    def forward(
        self, src: Tensor, src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None, is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        """The encoded sequence."""

        def attend(x: Any) -> Any:
            return self.self_attn(
                x, x, x, attn_mask=src_mask, key_padding_mask=src_key_padding_mask,
                need_weights=False, is_causal=is_causal and src_mask is not None,
            )[0]  # fmt: skip

        return self._join(self._join(src, 1, attend), 2, self._feed_forward)


class TransformerDecoderLayer(_Layer):
    """Decoder layer of a transformer: two attentions and a feed-forward block.

        x = norm1(x + dropout(attention(x, x, x)))
        x = norm2(x + dropout(attention(x, memory, memory)))
        x = norm3(x + dropout(linear2(dropout(activation(linear1(x))))))

    With `norm_first`, x = x + dropout(block(norm(x))) for each block.

    Args:
        d_model: Size of each vector.
        nhead: Number of attention heads; it divides d_model.
        dim_feedforward: Size of the layer within the feed-forward block. Default: 2048.
        dropout: Probability of dropout, in training. Default: 0.1.
        activation: Activation of the feed-forward block: "relu", "gelu" or a function. Default:
            "relu".
        layer_norm_eps: Number added to the variance in layer normalization. Default: 1e-5.
        batch_first: Whether the batch is first, (batch, time, ...). Default: False.
        norm_first: Normalize before each block instead of behind it. Default: False.
        bias: Whether to add learned biases. Default: True.
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.

    Shapes: target (T, batch, d_model) and memory (S, batch, d_model), batch first where asked ->
    like the target.
    Errors: InvalidArgument for another activation; ShapeError where nhead does not divide d_model.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.TransformerDecoderLayer.html

    >>> ad.nn.TransformerDecoderLayer(8, 2, 16)(ad.zeros(5, 3, 8), ad.zeros(7, 3, 8)).shape
    adjoint.Size([5, 3, 8])
    """

    attentions = ("self_attn", "multihead_attn")

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """The decoded sequence."""

        def attend(x: Any) -> Any:
            return self.self_attn(
                x, x, x, attn_mask=tgt_mask, key_padding_mask=tgt_key_padding_mask,
                need_weights=False,
            )[0]  # fmt: skip

        def attend_memory(x: Any) -> Any:
            return self.multihead_attn(
                x, memory, memory, attn_mask=memory_mask,
                key_padding_mask=memory_key_padding_mask, need_weights=False,
            )[0]  # fmt: skip

        x = self._join(self._join(tgt, 1, attend), 2, attend_memory)
        return self._join(x, 3, self._feed_forward)


def _copies(layer: Module, count: int) -> ModuleList:
    return ModuleList([copy.deepcopy(layer) for _ in range(count)])


class TransformerEncoder(Module):
    """Stack of encoder layers.

        y = norm(layer_n(... layer_1(x)))

    Args:
        encoder_layer: Layer to copy.
        num_layers: Number of layers, copies of the given one.
        norm: Module for the last output. Default: None.
        enable_nested_tensor: Accepted for programs written for PyTorch; changes nothing. Default:
            True.
        mask_check: Accepted for programs written for PyTorch; changes nothing. Default: True.

    Shapes: those of the layer.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.TransformerEncoder.html

    >>> layer = ad.nn.TransformerEncoderLayer(8, 2, 16)
    >>> ad.nn.TransformerEncoder(layer, 2)(ad.zeros(5, 3, 8)).shape
    adjoint.Size([5, 3, 8])
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Any = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = _copies(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self, src: Tensor, mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None, is_causal: bool | None = None,
    ) -> Tensor:  # fmt: skip
        """The encoded sequence."""
        for layer in self.layers:
            src = layer(src, src_mask=mask, src_key_padding_mask=src_key_padding_mask)
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Module):
    """Stack of decoder layers, each of which sees the encoder's output.

        y = norm(layer_n(... layer_1(x, memory), memory))

    Args:
        decoder_layer: Layer to copy.
        num_layers: Number of layers, copies of the given one.
        norm: Module for the last output. Default: None.

    Shapes: those of the layer.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.TransformerDecoder.html

    >>> layer = ad.nn.TransformerDecoderLayer(8, 2, 16)
    >>> ad.nn.TransformerDecoder(layer, 2)(ad.zeros(5, 3, 8), ad.zeros(7, 3, 8)).shape
    adjoint.Size([5, 3, 8])
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Any = None) -> None:
        super().__init__()
        self.layers = _copies(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """The decoded sequence."""
        for layer in self.layers:
            tgt = layer(
                tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
            )  # fmt: skip
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """Transformer: an encoder and a decoder (Vaswani et al., 2017).

        y = decoder(tgt, encoder(src))

    Matrices start by Xavier's uniform distribution.

    Args:
        d_model: Size of each vector. Default: 512.
        nhead: Number of attention heads; it divides d_model. Default: 8.
        num_encoder_layers: Number of encoder layers. Default: 6.
        num_decoder_layers: Number of decoder layers. Default: 6.
        dim_feedforward: Size of the layer within the feed-forward block. Default: 2048.
        dropout: Probability of dropout, in training. Default: 0.1.
        activation: Activation of the feed-forward block: "relu", "gelu" or a function. Default:
            "relu".
        custom_encoder: Module in the place of the encoder. Default: None, a TransformerEncoder.
        custom_decoder: Module in the place of the decoder. Default: None, a TransformerDecoder.
        layer_norm_eps: Number added to the variance in layer normalization. Default: 1e-5.
        batch_first: Whether the batch is first, (batch, time, ...). Default: False.
        norm_first: Normalize before each block instead of behind it. Default: False.
        bias: Whether to add learned biases. Default: True.
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.

    Shapes: src (S, batch, d_model), tgt (T, batch, d_model), batch first where asked -> like tgt.
    Errors: InvalidArgument for another activation; ShapeError where nhead does not divide d_model
    and, in the call, where batch sizes or feature sizes differ.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Transformer.html

    >>> model = ad.nn.Transformer(8, 2, 1, 1, 16)
    >>> model(ad.zeros(5, 3, 8), ad.zeros(4, 3, 8)).shape
    adjoint.Size([4, 3, 8])
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Any = "relu",
        custom_encoder: Any = None,
        custom_decoder: Any = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        layer = (
            d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first,
            norm_first, bias, device, dtype,
        )  # fmt: skip
        options: dict[str, Any] = {"bias": bias, "device": device, "dtype": dtype}
        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*layer),
            num_encoder_layers,
            LayerNorm(d_model, eps=layer_norm_eps, **options),
        )
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*layer),
            num_decoder_layers,
            LayerNorm(d_model, eps=layer_norm_eps, **options),
        )
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """The decoded sequence."""
        batch = 0 if self.batch_first else 1
        if src.ndim == 3 and src.shape[batch] != tgt.shape[batch]:
            raise ShapeError(
                f"Transformer: the batch number of src and tgt must be equal, got "
                f"{tuple(src.shape)} and {tuple(tgt.shape)}"
            )
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise ShapeError(
                f"Transformer: the feature number of src and tgt must be equal to d_model "
                f"{self.d_model}, got {src.shape[-1]} and {tgt.shape[-1]}"
            )
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask)
        return self.decoder(
            tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
        )  # fmt: skip

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Any:
        """A mask that lets each step attend to itself and earlier ones: -inf above the diagonal.

        >>> ad.nn.Transformer.generate_square_subsequent_mask(2)
        tensor([[0., -inf],
                [0., 0.]])
        """
        return full((sz, sz), -math.inf, device=device, dtype=dtype).triu(1)
