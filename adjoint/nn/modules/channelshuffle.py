"""ChannelShuffle."""

from __future__ import annotations

from ...tensor import Tensor
from .. import functional as F  # noqa: N812 - the name everyone knows it by
from .module import Module

__all__ = ["ChannelShuffle"]


class ChannelShuffle(Module):
    """Channels of several groups interleaved (Zhang et al., 2018).

        y[n, j groups + g] = x[n, g (channels / groups) + j]

    Args:
        groups: Number of groups; it divides the channels.

    Shapes: (batch, channels, ...) -> the same.
    Errors: ShapeError for less than three dimensions and where `groups` does not divide the
    channels, and InvalidArgument for groups that are not positive, in the call.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ChannelShuffle.html

    >>> ad.nn.ChannelShuffle(2)(ad.arange(4.).reshape(1, 4, 1)).flatten()
    tensor([0., 2., 1., 3.])
    """

    _shown_as = "groups={groups}"

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        """The input with its channels in another order."""
        return F.channel_shuffle(input, self.groups)
