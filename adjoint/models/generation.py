"""Text, token by token: the cache of keys and values, and how the next token is chosen."""

from __future__ import annotations

import math
from typing import Any

from ..autograd.modes import no_grad
from ..core.argument_repr import argument_repr
from ..core.dtype import bool_, int64
from ..core.errors import InvalidArgument, ShapeError
from ..ops.create.creation import zeros
from ..ops.create.like import zeros_like
from ..ops.nn.softmax import softmax
from ..ops.random.random import multinomial
from ..ops.shape.concatenation import cat
from .pretrained import Pretrained


class KeyValueCache:
    """The keys and values of all tokens so far, so that each token is computed once.

    Shapes: (batch, heads, tokens so far, head size) for each layer; there is room for `capacity`
    tokens.
    Errors: ShapeError where they exceed it.

    >>> config = ad.models.GPT2Config(vocab_size=10, n_positions=8, n_embd=4, n_layer=1, n_head=2)
    >>> model, cache = ad.models.GPT2(config).eval(), ad.models.KeyValueCache(capacity=8)
    >>> for token in (1, 2, 3):
    ...     logits = model(ad.tensor([[token]]), cache=cache)
    >>> cache.length, logits.shape
    (3, adjoint.Size([1, 1, 10]))
    """

    _in_repr = ("length",)
    __repr__ = argument_repr

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.length = 0  # tokens that every layer has
        self._layers: list[tuple[Any, Any]] = []

    def extend(self, layer: int, key: Any, value: Any) -> tuple[Any, Any]:
        """Append a layer's keys and values of the new tokens; all of them so far.

        Errors: ShapeError where the capacity is exceeded.
        """
        end = self.length + key.shape[2]
        if end > self.capacity:
            raise ShapeError(f"KeyValueCache: {end} tokens, but there is room for {self.capacity}")
        if layer == len(self._layers):
            self._layers.append(tuple(self._room(x) for x in (key, value)))  # type: ignore[arg-type]
        with no_grad():
            for room, new in zip(self._layers[layer], (key, value), strict=True):
                room[:, :, self.length : end] = new
        keys, values = self._layers[layer]
        return keys[:, :, :end], values[:, :, :end]

    def _room(self, x: Any) -> Any:
        batch, heads, _, size = x.shape
        return zeros(batch, heads, self.capacity, size, dtype=x.dtype, device=x.device)

    def advance(self, count: int) -> None:
        """Say that every layer has `count` tokens more."""
        self.length += count


class Generative(Pretrained):
    """A model of the next token: its forward gives logits (batch, length, vocabulary)."""

    @no_grad()
    def generate(
        self,
        input_ids: Any,
        *,
        max_new_tokens: int,
        attention_mask: Any = None,
        do_sample: bool = False,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        eos_token_id: int | None = None,
        pad_token_id: int | None = None,
        generator: Any = None,
    ) -> Any:
        """Continue each row of tokens: the most probable token each time, or one drawn at random.

        With `do_sample`, tokens are drawn from the logits divided by `temperature`, of them the
        `top_k` most probable, of them the fewest that have probability `top_p` together. A row
        that has reached `eos_token_id` is filled with `pad_token_id`. Rows of unequal length are
        padded on the left, with zeros there in `attention_mask`.

        Shapes: input_ids (batch, length) -> (batch, length + new tokens).
        Errors: InvalidArgument for settings outside their range, or too many tokens.
        Source: https://huggingface.co/docs/transformers/main_classes/text_generation

        >>> config = ad.models.GPT2Config(
        ...     vocab_size=10, n_positions=8, n_embd=4, n_layer=1, n_head=2)
        >>> model = ad.models.GPT2(config).eval()
        >>> model.generate(ad.tensor([[1, 2]]), max_new_tokens=3).shape
        adjoint.Size([1, 5])
        """
        batch, length = input_ids.shape
        total = length + max_new_tokens
        if length < 1 or max_new_tokens < 1 or total > self.max_tokens:
            raise InvalidArgument(
                f"generate: {length} tokens and {max_new_tokens} more; 1 to {self.max_tokens} fit"
            )
        if attention_mask is not None:
            added = attention_mask.new_ones(batch, max_new_tokens)
            attention_mask = cat([attention_mask, added], 1)
        pad = eos_token_id if pad_token_id is None else pad_token_id
        done = zeros(batch, dtype=bool_, device=input_ids.device)
        cache = KeyValueCache(total)
        tokens = new = input_ids
        while tokens.shape[1] < total and not done.all():
            seen = None if attention_mask is None else attention_mask[:, : tokens.shape[1]]
            logits = self(new, seen, positions_of(seen, new.shape[1]), cache=cache)[:, -1]
            if do_sample:
                logits = filter_logits(logits, temperature, top_k, top_p)
                new = multinomial(softmax(logits, -1), 1, generator=generator)
            else:
                new = logits.argmax(-1, keepdim=True)
            if eos_token_id is not None:
                new = new.masked_fill(done[:, None], pad)
                done = done | (new[:, 0] == eos_token_id)
            tokens = cat([tokens, new.to(tokens.dtype)], 1)
        return tokens

    @property
    def max_tokens(self) -> int:
        """Number of positions that the model can tell apart."""
        raise NotImplementedError


def positions_of(attention_mask: Any, length: int) -> Any:
    """The positions of the last `length` tokens, padding not counted; None without a mask."""
    if attention_mask is None:
        return None
    return (attention_mask.to(int64).cumsum(-1) - 1).clamp(min=0)[:, -length:]


def filter_logits(
    logits: Any, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> Any:
    """Logits to draw from: divided by `temperature`; -inf where `top_k` or `top_p` cuts off.

    Shapes: (..., vocabulary), kept.
    Errors: InvalidArgument for settings outside their range.
    Source: Holtzman et al., 2020, for `top_p`: https://arxiv.org/abs/1904.09751

    >>> from adjoint.models.generation import filter_logits
    >>> filter_logits(ad.tensor([1., 3., 2.]), top_k=2)
    tensor([-inf, 3., 2.])
    """
    if not temperature > 0:
        raise InvalidArgument(f"temperature is {temperature}; above 0, or do_sample=False")
    logits = logits / temperature
    if top_k is not None:
        if top_k < 1:
            raise InvalidArgument(f"top_k is {top_k}; at least 1")
        least = logits.topk(min(top_k, logits.shape[-1]), -1).values[..., -1:]
        logits = logits.masked_fill(logits < least, -math.inf)
    if top_p is not None:
        if not 0 < top_p <= 1:
            raise InvalidArgument(f"top_p is {top_p}; above 0, at most 1")
        ordered, order = logits.sort(-1)
        tail = softmax(ordered, -1).cumsum(-1) <= 1 - top_p
        tail[..., -1] = False  # the most probable token is always kept
        cut = zeros_like(tail).scatter(-1, order, tail)
        logits = logits.masked_fill(cut, -math.inf)
    return logits
