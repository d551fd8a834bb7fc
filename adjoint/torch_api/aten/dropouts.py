"""Dropout at the top: of whole channels, in place, and with the mask that it drew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.errors import DTypeError, ShapeError
from ...nn import functional as F  # noqa: N812 - the name everyone knows it by
from ...nn.functional.dropout import assert_probability, drop
from ...ops.random.random import dropout_mask
from ...runtime.public import explaining
from ...tensor import Tensor


@explaining
def feature_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Dropout of whole channels: each of each sample is kept, or zeros.

    Shapes: (batch, channels, ...).
    Errors: InvalidArgument for a probability outside 0 to 1; ShapeError for fewer dimensions.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.dropout2d.html

    >>> ad.feature_dropout(ad.ones(1, 2, 2), 1.0, True)
    tensor([[[0., 0.],
             [0., 0.]]])
    """
    return _drop_channels(input, p, train, False)


def _drop_channels(input: Any, p: float, train: bool, inplace: bool) -> Any:
    assert_probability(p, "feature_dropout")
    if input.ndim < 2:
        raise ShapeError(
            "feature_dropout: Feature dropout requires at least 2 dimensions in the input, got "
            f"shape {tuple(input.shape)}"
        )
    return drop(input, p, train, inplace, (*input.shape[:2], *(1,) * (input.ndim - 2)))


def _in_place(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def writing(input: Tensor, p: float, train: bool) -> Any:
        return function(input, p, train, True)

    writing.__name__ = writing.__qualname__ = name
    writing.__doc__ = (
        f"`{name[:-1]}`, in place.\n\n    Errors: those of that function; AutogradError for a leaf "
        "that requires grad.\n"
        "    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.dropout.html\n"
    )
    return explaining(writing)


dropout_ = _in_place("dropout_", F.dropout)
alpha_dropout_ = _in_place("alpha_dropout_", F.alpha_dropout)
feature_alpha_dropout_ = _in_place("feature_alpha_dropout_", F.feature_alpha_dropout)
feature_dropout_ = _in_place("feature_dropout_", _drop_channels)


@explaining
def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Any, Any]:
    """Dropout, and the mask that it drew: True where an element is kept. None for `train` is True.

    Errors: InvalidArgument for a probability outside 0 to 1; DTypeError for integers.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.dropout.html

    >>> ad.native_dropout(ad.ones(2), 1.0, True)
    (tensor([0., 0.]), tensor([False, False]))
    """
    if input.dtype.category < 2:
        raise DTypeError(
            f"native_dropout: expected a floating point tensor, got {input.dtype}; use .float()"
        )
    assert_probability(p, "native_dropout")
    if train is False or not input.numel():
        return input.clone(), input.new_ones(input.shape, dtype="bool")
    mask = dropout_mask(input, p, scale=False)
    return input * (mask * (1 / (1 - p) if p < 1 else 0.0)), mask.bool()
