"""The memory format of convolutions' weights."""

from __future__ import annotations

from typing import Any

from ...core.errors import InvalidArgument
from ...ops.create.conversion import channels_last, channels_last_3d, contiguous_format
from ..modules import conv
from ..modules.module import Module

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]


def _convert(module: Any, kinds: Any, memory_format: Any, formats: Any) -> Any:
    if memory_format not in formats:
        raise InvalidArgument(
            f"convert_conv_weight_memory_format: one of {formats}, got {memory_format!r}"
        )
    for each in module.modules():
        if isinstance(each, kinds):
            each.weight.data = each.weight.detach().clone()
    return module


def convert_conv2d_weight_memory_format(module: Module, memory_format: Any) -> Any:
    """Lay out the weights of all Conv2d and ConvTranspose2d in a module in a memory format.

    Each weight gets memory of its own; the format is a hint, memory stays row-major. Its values
    are the same.

    Args:
        module: Module to change; it is returned.
        memory_format: `channels_last` or `contiguous_format`.

    Errors: InvalidArgument for another format.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.convert_conv2d_weight_memory_format.html

    >>> layer = ad.nn.Conv2d(2, 3, 2)
    >>> ad.nn.utils.convert_conv2d_weight_memory_format(layer, ad.channels_last) is layer
    True
    """
    kinds = (conv.Conv2d, conv.ConvTranspose2d)
    return _convert(module, kinds, memory_format, (channels_last, contiguous_format))


def convert_conv3d_weight_memory_format(module: Module, memory_format: Any) -> Any:
    """Lay out the weights of all Conv3d and ConvTranspose3d in a module in a memory format.

    Each weight gets memory of its own; the format is a hint, memory stays row-major. Its values
    are the same.

    Args:
        module: Module to change; it is returned.
        memory_format: `channels_last_3d` or `contiguous_format`.

    Errors: InvalidArgument for another format.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.convert_conv3d_weight_memory_format.html

    >>> layer = ad.nn.Conv3d(1, 1, 1)
    >>> ad.nn.utils.convert_conv3d_weight_memory_format(layer, ad.contiguous_format) is layer
    True
    """
    kinds = (conv.Conv3d, conv.ConvTranspose3d)
    return _convert(module, kinds, memory_format, (channels_last_3d, contiguous_format))
