"""Dropout layers."""

from __future__ import annotations

from typing import Any

from ...core.errors import InvalidArgument
from .. import functional as F  # noqa: N812 - the name everyone knows it by
from .module import Module

__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]


class _Dropout(Module):
    _shown_as = "p={p}, inplace={inplace}"

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise InvalidArgument(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p = p
        self.inplace = inplace


class Dropout(_Dropout):
    """Zeros each element with probability p in training, and scales the rest by 1 / (1 - p).

    Shape: any that `functional.dropout` takes.
    Errors: InvalidArgument for a probability outside 0 to 1.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Dropout.html

    >>> ad.nn.Dropout(p=1.0)(ad.ones(2)).sum().item()
    0.0
    """

    def forward(self, input: Any) -> Any:
        """The input itself in evaluation mode."""
        return F.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_Dropout):
    """Zeros whole channels of signals with probability p in training.

    Shape: any that `functional.dropout1d` takes.
    Errors: InvalidArgument for a probability outside 0 to 1.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Dropout1d.html

    >>> ad.nn.Dropout1d(p=1.0)(ad.ones(1, 1, 2)).sum().item()
    0.0
    """

    def forward(self, input: Any) -> Any:
        """The input itself in evaluation mode."""
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_Dropout):
    """Zeros whole channels of images with probability p in training.

    Shape: any that `functional.dropout2d` takes.
    Errors: InvalidArgument for a probability outside 0 to 1.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Dropout2d.html

    >>> ad.nn.Dropout2d(p=1.0)(ad.ones(1, 1, 1, 2)).sum().item()
    0.0
    """

    def forward(self, input: Any) -> Any:
        """The input itself in evaluation mode."""
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_Dropout):
    """Zeros whole channels of volumes with probability p in training.

    Shape: any that `functional.dropout3d` takes.
    Errors: InvalidArgument for a probability outside 0 to 1.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Dropout3d.html

    >>> ad.nn.Dropout3d(p=1.0)(ad.ones(1, 1, 1, 1, 2)).sum().item()
    0.0
    """

    def forward(self, input: Any) -> Any:
        """The input itself in evaluation mode."""
        return F.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(_Dropout):
    """Dropout that keeps mean 0 and variance 1 behind SELU.

    Shape: any that `functional.alpha_dropout` takes.
    Errors: InvalidArgument for a probability outside 0 to 1.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.AlphaDropout.html

    >>> ad.nn.AlphaDropout(p=1.0)(ad.ones(2)).sum().item()
    0.0
    """

    def forward(self, input: Any) -> Any:
        """The input itself in evaluation mode."""
        return F.alpha_dropout(input, self.p, self.training, self.inplace)


class FeatureAlphaDropout(_Dropout):
    """Alpha dropout of whole channels.

    Shape: any that `functional.feature_alpha_dropout` takes.
    Errors: InvalidArgument for a probability outside 0 to 1.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.FeatureAlphaDropout.html

    >>> ad.nn.FeatureAlphaDropout(p=1.0)(ad.ones(1, 1, 2)).sum().item()
    0.0
    """

    def forward(self, input: Any) -> Any:
        """The input itself in evaluation mode."""
        return F.feature_alpha_dropout(input, self.p, self.training, self.inplace)
