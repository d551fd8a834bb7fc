"""Multi-head attention (Vaswani et al., 2017)."""

from __future__ import annotations

from typing import Any

from ...core.errors import InvalidArgument, ShapeError
from ...ops.create.creation import empty
from ...tensor import Tensor
from .. import functional as F  # noqa: N812 - the name everyone knows it by
from .. import init
from ..parameter import Parameter
from .linear import Linear
from .module import Module

__all__ = ["MultiheadAttention"]


class NonDynamicallyQuantizableLinear(Linear):
    """Linear under the name that PyTorch gives it here."""


class MultiheadAttention(Module):
    """Attention in several heads (Vaswani et al., 2017).

        q, k, v = query W_q^T, key W_k^T, value W_v^T, in num_heads parts
        head = softmax(q k^T / sqrt(embed_dim / num_heads) + mask) v, for each part
        output = (the heads side by side) W_o^T

    `forward` takes key_padding_mask (N, S) and attn_mask (L, S) or (N num_heads, L, S), true or
    -inf where attention is forbidden.

    Args:
        embed_dim: Size of the queries and of the output, a multiple of num_heads.
        num_heads: Number of heads.
        dropout: Probability that a weight is dropped, in training. Default: 0.0.
        bias: Whether the projections have biases. Default: True.
        add_bias_kv: Whether to add a learned key and value at the end. Default: False.
        add_zero_attn: Whether to add a key and value of zeros at the end. Default: False.
        kdim: Size of the keys. Default: None, embed_dim.
        vdim: Size of the values. Default: None, embed_dim.
        batch_first: Whether the batch is first, (batch, time, ...). Default: False.
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.

    Shapes: query (L, N, embed_dim), key (S, N, kdim), value (S, N, vdim) -> output like query,
    weights (N, L, S); batch first where asked, or without N.
    Errors: InvalidArgument for sizes that are not positive; ShapeError where num_heads does not
    divide embed_dim.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html

    >>> x = ad.zeros(5, 3, 8)
    >>> y, weights = ad.nn.MultiheadAttention(8, 2)(x, x, x)
    >>> y.shape, weights.shape
    (adjoint.Size([5, 3, 8]), adjoint.Size([3, 5, 5]))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0:
            raise InvalidArgument(
                f"MultiheadAttention: embed_dim and num_heads must be greater than 0, got "
                f"{embed_dim} and {num_heads}"
            )
        if embed_dim % num_heads:
            raise ShapeError(
                f"MultiheadAttention: embed_dim must be divisible by num_heads, got {embed_dim} "
                f"and {num_heads}"
            )
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        self.add_zero_attn = add_zero_attn

        def parameter(name: str, size: tuple[int, ...] | None) -> None:
            made = None if size is None else Parameter(empty(size, device=device, dtype=dtype))
            self.register_parameter(name, made)

        same = self._qkv_same_embed_dim
        parameter("q_proj_weight", None if same else (embed_dim, embed_dim))
        parameter("k_proj_weight", None if same else (embed_dim, self.kdim))
        parameter("v_proj_weight", None if same else (embed_dim, self.vdim))
        parameter("in_proj_weight", (3 * embed_dim, embed_dim) if same else None)
        parameter("in_proj_bias", (3 * embed_dim,) if bias else None)
        self.out_proj = NonDynamicallyQuantizableLinear(
            embed_dim, embed_dim, bias=bias, device=device, dtype=dtype
        )
        parameter("bias_k", (1, 1, embed_dim) if add_bias_kv else None)
        parameter("bias_v", (1, 1, embed_dim) if add_bias_kv else None)
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight", "in_proj_weight"):
            weight = self._parameters[name]
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.constant_(self.in_proj_bias, 0.0)
            init.constant_(self.out_proj.bias, 0.0)
        for name in ("bias_k", "bias_v"):
            if self._parameters[name] is not None:
                init.xavier_normal_(self._parameters[name])

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Any]:
        """The attention output, and the weights (None unless `need_weights`)."""
        swap = self.batch_first and query.ndim == 3
        if swap:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        output, weights = F.multi_head_attention_forward(
            query, key, value, self.embed_dim, self.num_heads, self.in_proj_weight,
            self.in_proj_bias, self.bias_k, self.bias_v, self.add_zero_attn, self.dropout,
            self.out_proj.weight, self.out_proj.bias, training=self.training,
            key_padding_mask=key_padding_mask, need_weights=need_weights, attn_mask=attn_mask,
            use_separate_proj_weight=not self._qkv_same_embed_dim,
            q_proj_weight=self.q_proj_weight, k_proj_weight=self.k_proj_weight,
            v_proj_weight=self.v_proj_weight, average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )  # fmt: skip
        return (output.transpose(0, 1) if swap else output), weights
