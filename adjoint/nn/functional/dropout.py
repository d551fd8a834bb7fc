"""Dropout in its forms."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ...core.argument_errors import MISTAKES, recovered
from ...core.errors import InvalidArgument, ShapeError
from ...core.keywords import concealing, unexpected
from ...core.overrides import ABSENT, FOLLOWED, concerns, overridden
from ...ops.argument_dtypes import FLOATING, assert_dtypes
from ...ops.create.allocation import finish
from ...ops.random.draws import MaskAt
from ...ops.random.generators import next_draw, torch_generator
from ...ops.random.random import dropout_mask
from ...runtime.dispatch import apply
from ...runtime.fused import fused, is_fusing
from ...runtime.public import explaining
from ...tensor import Tensor

__all__ = [
    "alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout",
]  # fmt: skip


def assert_probability(p: float, name: str) -> None:
    if not 0.0 <= p <= 1.0:
        raise InvalidArgument(f"{name}: dropout probability has to be between 0 and 1, but got {p}")


@concealing
def dropout(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, **others: Any
) -> Tensor:
    """Dropout: zeros at random places (Hinton et al., 2012).

        y = x mask / (1 - p), mask 0 with probability p and else 1

    Each element has a draw of its own.

    Args:
        input: Values.
        p: Probability that an element (or channel) is dropped, in [0, 1]. Default: 0.5.
        training: Whether to drop; otherwise the input is returned. Default: True.
        inplace: Write the result into the input. Default: False.

    Shapes: any; the result has the shape of the input.
    Errors: InvalidArgument for a probability outside 0 to 1.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.dropout.html

    >>> ad.nn.functional.dropout(ad.ones(2), p=1.0)
    tensor([0., 0.])
    """
    if others:
        raise unexpected(dropout, others)
    if FOLLOWED and concerns(input):
        said = overridden(dropout, (input,), {"p": p, "training": training, "inplace": inplace})
        if said is not ABSENT:
            return said
    if not 0.0 <= p <= 1.0:
        assert_probability(p, "dropout")
    if not training:
        return input
    try:
        return drop(input, p, training, inplace, tuple(input.shape))
    except MISTAKES as error:
        return recovered(error, dropout, dropout, (input,), {})


def drop(input: Tensor, p: float, training: bool, inplace: bool, shape: tuple[int, ...]) -> Tensor:
    if not training or p == 0 or not input.numel():
        return input
    assert_dtypes("dropout", FLOATING, input=input)
    if not inplace and shape == tuple(input.shape) and _draws_inside(input):
        return _dropped(input, *_state(), float(p))
    mask = dropout_mask(input, p, shape=shape)
    return input.mul_(mask) if inplace else input * mask


@fused
def _dropped(input: Any, seed: Any, draw: Any, p: float) -> Tensor:
    kept = apply(MaskAt(1.0 - p, tuple(input.shape)), seed, draw).to(input.dtype)
    return input * (kept * (1.0 / (1.0 - p)) if p < 1 else kept)


def _draws_inside(input: Tensor) -> bool:
    """Whether a kernel is to draw, by counters."""
    return is_fusing(input) and torch_generator(None, input.device) is None


def _state() -> tuple[Tensor, Tensor]:
    """Seed and number of a new draw, as inputs of a kernel that is there for all of them."""
    seed, draw = next_draw(None)
    return finish(np.array(seed, np.uint64)), finish(np.array(draw, np.uint64))


def _channels(
    channel: int, input: Tensor, p: float, training: bool, inplace: bool, name: str
) -> Tensor:
    """Dropout of all that lies behind the dimension `channel`."""
    assert_probability(p, name)
    if input.ndim <= channel:
        raise ShapeError(
            f"{name}: Feature dropout requires at least {channel + 1} dimensions in the input, got "
            f"shape {tuple(input.shape)}"
        )
    shape = (*input.shape[: channel + 1], *(1,) * (input.ndim - channel - 1))
    return drop(input, p, training, inplace, shape)


def _warn_of_rank(input: Tensor, rank: int, name: str) -> None:
    if input.ndim not in (rank + 1, rank + 2):
        warnings.warn(
            f"{name}: Received a {input.ndim}-D input, which is deprecated: it is for {rank} "
            "dimensions behind the channels. dropout does the same to an input without any",
            stacklevel=5,
        )


@explaining
def dropout1d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Dropout of whole channels of signals.

        y = x mask / (1 - p), mask 0 with probability p and else 1

    Each channel of each sample has a draw of its own.

    Args:
        input: Values.
        p: Probability that an element (or channel) is dropped, in [0, 1]. Default: 0.5.
        training: Whether to drop; otherwise the input is returned. Default: True.
        inplace: Write the result into the input. Default: False.

    Shapes: (batch, channels, length) or without batch.
    Errors: InvalidArgument for a probability outside [0, 1]; ShapeError for other ranks.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.dropout1d.html

    >>> ad.nn.functional.dropout1d(ad.ones(1, 1, 2), p=1.0)
    tensor([[[0., 0.]]])
    """
    if input.ndim not in (2, 3):
        raise ShapeError(
            f"dropout1d: Expected 2D or 3D input, but received shape {tuple(input.shape)}"
        )
    return _channels(input.ndim - 2, input, p, training, inplace, "dropout1d")


@explaining
def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Dropout of whole channels of images.

        y = x mask / (1 - p), mask 0 with probability p and else 1

    Each channel of each sample has a draw of its own.

    Args:
        input: Values.
        p: Probability that an element (or channel) is dropped, in [0, 1]. Default: 0.5.
        training: Whether to drop; otherwise the input is returned. Default: True.
        inplace: Write the result into the input. Default: False.

    Shapes: (batch, channels, height, width). With three dimensions they are (batch, channels,
        length), as in PyTorch, with a warning; with others what lies behind the channels, too.
    Errors: InvalidArgument for a probability outside [0, 1]; ShapeError for less than two
    dimensions.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.dropout2d.html

    >>> ad.nn.functional.dropout2d(ad.ones(1, 1, 1, 2), p=1.0)
    tensor([[[[0., 0.]]]])
    """
    _warn_of_rank(input, 2, "dropout2d")
    if input.ndim == 3:
        warnings.warn(
            "dropout2d: Received a 3D input, which is taken for (batch, channels, length); "
            "dropout1d says so",
            stacklevel=4,
        )
    return _channels(1, input, p, training, inplace, "dropout2d")


@explaining
def dropout3d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Dropout of whole channels of volumes.

        y = x mask / (1 - p), mask 0 with probability p and else 1

    Each channel of each sample has a draw of its own.

    Args:
        input: Values.
        p: Probability that an element (or channel) is dropped, in [0, 1]. Default: 0.5.
        training: Whether to drop; otherwise the input is returned. Default: True.
        inplace: Write the result into the input. Default: False.

    Shapes: (batch, channels, depth, height, width) or without batch, for which other ranks are
        taken, with a warning.
    Errors: InvalidArgument for a probability outside [0, 1]; ShapeError for a tensor without
    dimensions.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.dropout3d.html

    >>> ad.nn.functional.dropout3d(ad.ones(1, 1, 1, 1, 1), p=1.0).item()
    0.0
    """
    _warn_of_rank(input, 3, "dropout3d")
    return _channels(int(input.ndim == 5), input, p, training, inplace, "dropout3d")


_ALPHA = -1.7580993408473766  # -scale * alpha of selu: what it tends to


def _alpha(
    input: Tensor, p: float, training: bool, inplace: bool, shape: tuple[int, ...], name: str
) -> Tensor:
    assert_probability(p, name)
    if not training or p == 0 or not input.numel():
        return input
    assert_dtypes(name, FLOATING, input=input)
    if p == 1:
        result = input * 0
    elif shape == tuple(input.shape) and _draws_inside(input):
        result = _alpha_dropped(input, *_state(), float(p))
    else:
        result = _moved(input, dropout_mask(input, p, scale=False, shape=shape), p)
    return input.copy_(result) if inplace else result


@fused
def _alpha_dropped(input: Any, seed: Any, draw: Any, p: float) -> Tensor:
    keep = apply(MaskAt(1.0 - p, tuple(input.shape)), seed, draw).to(input.dtype)
    return _moved(input, keep, p)


def _moved(input: Any, keep: Any, p: float) -> Tensor:
    """`input` where it is kept, else what selu tends to; both so that the moments stay."""
    a = ((1 - p) * (1 + p * _ALPHA**2)) ** -0.5
    return input * (keep * a) + ((1 - keep) * (a * _ALPHA) - a * _ALPHA * p)


@explaining
def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Dropout that keeps mean 0 and variance 1 behind selu (Klambauer et al., 2017).

        y = a (x mask + (1 - mask) v) + b, mask 0 with probability p and else 1
        v = -1.7581, a = 1 / sqrt((1 - p) (1 + p v^2)), b = -a p v

    Args:
        input: Values.
        p: Probability that an element (or channel) is dropped, in [0, 1]. Default: 0.5.
        training: Whether to drop; otherwise the input is returned. Default: False.
        inplace: Write the result into the input. Default: False.

    Shape: any.
    Errors: InvalidArgument for a probability outside 0 to 1.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.alpha_dropout.html

    >>> ad.nn.functional.alpha_dropout(ad.ones(2), p=1.0, training=True)
    tensor([0., 0.])
    """
    return _alpha(input, p, training, inplace, tuple(input.shape), "alpha_dropout")


@explaining
def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Alpha dropout of whole channels.

        y = a (x mask + (1 - mask) v) + b, mask 0 with probability p and else 1
        v = -1.7581, a = 1 / sqrt((1 - p) (1 + p v^2)), b = -a p v

    Each channel of each sample has a draw of its own.

    Args:
        input: Values.
        p: Probability that an element (or channel) is dropped, in [0, 1]. Default: 0.5.
        training: Whether to drop; otherwise the input is returned. Default: False.
        inplace: Write the result into the input. Default: False.

    Shapes: (batch, channels, ...).
    Errors: InvalidArgument for a probability outside 0 to 1.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.feature_alpha_dropout.html

    >>> ad.nn.functional.feature_alpha_dropout(ad.ones(1, 2), p=1.0, training=True)
    tensor([[0., 0.]])
    """
    shape = (*input.shape[:2], *(1,) * (input.ndim - 2))
    return _alpha(input, p, training, inplace, shape, "feature_alpha_dropout")
