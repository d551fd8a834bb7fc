"""Dropout layers."""

from __future__ import annotations

from ...core.errors import InvalidArgument
from ...tensor import Tensor
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
    """Dropout: zeros at random places in training (Hinton et al., 2012).

        y = x mask / (1 - p), mask 0 with probability p and else 1

    Each element has a draw of its own. In evaluation mode the input is returned.

    Args:
        p: Probability that an element (or channel) is dropped, in [0, 1]. Default: 0.5.
        inplace: Write the result into the input. Default: False.

    Shapes: any; the result has the shape of the input.
    Errors: InvalidArgument for a probability outside [0, 1].
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Dropout.html

    >>> ad.nn.Dropout(p=1.0)(ad.ones(2)).sum().item()
    0.0
    """

    def forward(self, input: Tensor) -> Tensor:
        """The input itself in evaluation mode."""
        return F.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_Dropout):
    """Dropout of whole channels of signals.

        y = x mask / (1 - p), mask 0 with probability p and else 1

    Each channel of each sample has a draw of its own. In evaluation mode the input is returned.

    Args:
        p: Probability that an element (or channel) is dropped, in [0, 1]. Default: 0.5.
        inplace: Write the result into the input. Default: False.

    Shapes: (batch, channels, length) or without batch; the result has the same.
    Errors: InvalidArgument for a probability outside [0, 1]; ShapeError for other ranks, in the
    call.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Dropout1d.html

    >>> ad.nn.Dropout1d(p=1.0)(ad.ones(1, 1, 2)).sum().item()
    0.0
    """

    def forward(self, input: Tensor) -> Tensor:
        """The input itself in evaluation mode."""
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_Dropout):
    """Dropout of whole channels of images.

        y = x mask / (1 - p), mask 0 with probability p and else 1

    Each channel of each sample has a draw of its own. In evaluation mode the input is returned.

    Args:
        p: Probability that an element (or channel) is dropped, in [0, 1]. Default: 0.5.
        inplace: Write the result into the input. Default: False.

    Shapes: (batch, channels, height, width); the result has the same. Inputs of other ranks are
    taken as `functional.dropout2d` takes them, with a warning.
    Errors: InvalidArgument for a probability outside [0, 1]; ShapeError for less than two
    dimensions, in the call.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Dropout2d.html

    >>> ad.nn.Dropout2d(p=1.0)(ad.ones(1, 1, 1, 2)).sum().item()
    0.0
    """

    def forward(self, input: Tensor) -> Tensor:
        """The input itself in evaluation mode."""
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_Dropout):
    """Dropout of whole channels of volumes.

        y = x mask / (1 - p), mask 0 with probability p and else 1

    Each channel of each sample has a draw of its own. In evaluation mode the input is returned.

    Args:
        p: Probability that an element (or channel) is dropped, in [0, 1]. Default: 0.5.
        inplace: Write the result into the input. Default: False.

    Shapes: (batch, channels, depth, height, width) or without batch; the result has the same.
    Inputs of other ranks are taken as `functional.dropout3d` takes them, with a warning.
    Errors: InvalidArgument for a probability outside [0, 1]; ShapeError for a tensor without
    dimensions, in the call.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Dropout3d.html

    >>> ad.nn.Dropout3d(p=1.0)(ad.ones(1, 1, 1, 1, 2)).sum().item()
    0.0
    """

    def forward(self, input: Tensor) -> Tensor:
        """The input itself in evaluation mode."""
        return F.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(_Dropout):
    """Dropout that keeps mean 0 and variance 1 behind SELU (Klambauer et al., 2017).

        y = a (x mask + (1 - mask) v) + b, mask 0 with probability p and else 1
        v = -1.7581, a = 1 / sqrt((1 - p) (1 + p v^2)), b = -a p v

    In evaluation mode the input is returned.

    Args:
        p: Probability that an element (or channel) is dropped, in [0, 1]. Default: 0.5.
        inplace: Write the result into the input. Default: False.

    Shapes: any; the result has the shape of the input.
    Errors: InvalidArgument for a probability outside 0 to 1.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.AlphaDropout.html

    >>> ad.nn.AlphaDropout(p=1.0)(ad.ones(2)).sum().item()
    0.0
    """

    def forward(self, input: Tensor) -> Tensor:
        """The input itself in evaluation mode."""
        return F.alpha_dropout(input, self.p, self.training, self.inplace)


class FeatureAlphaDropout(_Dropout):
    """Alpha dropout of whole channels.

        y = a (x mask + (1 - mask) v) + b, mask 0 with probability p and else 1
        v = -1.7581, a = 1 / sqrt((1 - p) (1 + p v^2)), b = -a p v

    Each channel of each sample has a draw of its own. In evaluation mode the input is returned.

    Args:
        p: Probability that an element (or channel) is dropped, in [0, 1]. Default: 0.5.
        inplace: Write the result into the input. Default: False.

    Shapes: (batch, channels, ...); the result has the same.
    Errors: InvalidArgument for a probability outside 0 to 1.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.FeatureAlphaDropout.html

    >>> ad.nn.FeatureAlphaDropout(p=1.0)(ad.ones(1, 1, 2)).sum().item()
    0.0
    """

    def forward(self, input: Tensor) -> Tensor:
        """The input itself in evaluation mode."""
        return F.feature_alpha_dropout(input, self.p, self.training, self.inplace)
