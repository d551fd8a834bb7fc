"""Padding layers."""

from __future__ import annotations

from typing import Any

from ...core.errors import ShapeError
from .. import functional as F  # noqa: N812 - the name everyone knows it by
from .module import Module

__all__ = [
    "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d",
    "ConstantPad3d", "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d",
    "ReplicationPad2d", "ReplicationPad3d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
]  # fmt: skip


class _Pad(Module):
    """What all have in common: the widths, from the last dimension to the first."""

    _shown_as = "{padding}"

    rank: int
    mode: str

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = (padding,) * (2 * self.rank) if isinstance(padding, int) else tuple(padding)

    def forward(self, input: Any) -> Any:
        """The padded input."""
        return F.pad(input, self.padding, self.mode)


class _ReflectionPad(_Pad):
    mode = "reflect"


class _ReplicationPad(_Pad):
    mode = "replicate"


class _CircularPad(_Pad):
    mode = "circular"

    def forward(self, input: Any) -> Any:
        """The padded input."""
        if input.ndim not in (self.rank + 1, self.rank + 2):
            raise ShapeError(
                f"{self._get_name()}: expected {self.rank + 1}D or {self.rank + 2}D input (got "
                f"{input.ndim}D input of shape {tuple(input.shape)})"
            )
        return super().forward(input)


class _ConstantPad(_Pad):
    _shown_as = "padding={padding}, value={value}"
    mode = "constant"

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Any) -> Any:
        """The padded input."""
        return F.pad(input, self.padding, self.mode, self.value)


class _ZeroPad(_ConstantPad):
    _shown_as = "{padding}"

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)


class CircularPad1d(_CircularPad):
    """Signals padded with the values of the other end.

    Shapes: (batch, channels, length) or without batch.
    An int pads every side alike; otherwise pairs of widths, from the last dimension to the first.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.CircularPad1d.html

    >>> ad.nn.CircularPad1d(1)(ad.zeros(1, 2, 4)).shape
    adjoint.Size([1, 2, 6])
    """

    rank = 1


class CircularPad2d(_CircularPad):
    """Images padded with the values of the other end.

    Shapes: (batch, channels, height, width) or without batch.
    An int pads every side alike; otherwise pairs of widths, from the last dimension to the first.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.CircularPad2d.html

    >>> ad.nn.CircularPad2d(1)(ad.zeros(1, 2, 4, 4)).shape
    adjoint.Size([1, 2, 6, 6])
    """

    rank = 2


class CircularPad3d(_CircularPad):
    """Volumes padded with the values of the other end.

    Shapes: (batch, channels, depth, height, width) or without batch.
    An int pads every side alike; otherwise pairs of widths, from the last dimension to the first.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.CircularPad3d.html

    >>> ad.nn.CircularPad3d(1)(ad.zeros(1, 2, 4, 4, 4)).shape
    adjoint.Size([1, 2, 6, 6, 6])
    """

    rank = 3


class ConstantPad1d(_ConstantPad):
    """Signals padded with `value`.

    Shapes: (batch, channels, length) or without batch.
    An int pads every side alike; otherwise pairs of widths, from the last dimension to the first.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ConstantPad1d.html

    >>> ad.nn.ConstantPad1d(1, 3.5)(ad.zeros(1, 2, 4)).shape
    adjoint.Size([1, 2, 6])
    """

    rank = 1


class ConstantPad2d(_ConstantPad):
    """Images padded with `value`.

    Shapes: (batch, channels, height, width) or without batch.
    An int pads every side alike; otherwise pairs of widths, from the last dimension to the first.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ConstantPad2d.html

    >>> ad.nn.ConstantPad2d(1, 3.5)(ad.zeros(1, 2, 4, 4)).shape
    adjoint.Size([1, 2, 6, 6])
    """

    rank = 2


class ConstantPad3d(_ConstantPad):
    """Volumes padded with `value`.

    Shapes: (batch, channels, depth, height, width) or without batch.
    An int pads every side alike; otherwise pairs of widths, from the last dimension to the first.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ConstantPad3d.html

    >>> ad.nn.ConstantPad3d(1, 3.5)(ad.zeros(1, 2, 4, 4, 4)).shape
    adjoint.Size([1, 2, 6, 6, 6])
    """

    rank = 3


class ReflectionPad1d(_ReflectionPad):
    """Signals padded with the values reflected at the border, which is not repeated.

    Shapes: (batch, channels, length) or without batch.
    An int pads every side alike; otherwise pairs of widths, from the last dimension to the first.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ReflectionPad1d.html

    >>> ad.nn.ReflectionPad1d(1)(ad.zeros(1, 2, 4)).shape
    adjoint.Size([1, 2, 6])
    """

    rank = 1


class ReflectionPad2d(_ReflectionPad):
    """Images padded with the values reflected at the border, which is not repeated.

    Shapes: (batch, channels, height, width) or without batch.
    An int pads every side alike; otherwise pairs of widths, from the last dimension to the first.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ReflectionPad2d.html

    >>> ad.nn.ReflectionPad2d(1)(ad.zeros(1, 2, 4, 4)).shape
    adjoint.Size([1, 2, 6, 6])
    """

    rank = 2


class ReflectionPad3d(_ReflectionPad):
    """Volumes padded with the values reflected at the border, which is not repeated.

    Shapes: (batch, channels, depth, height, width) or without batch.
    An int pads every side alike; otherwise pairs of widths, from the last dimension to the first.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ReflectionPad3d.html

    >>> ad.nn.ReflectionPad3d(1)(ad.zeros(1, 2, 4, 4, 4)).shape
    adjoint.Size([1, 2, 6, 6, 6])
    """

    rank = 3


class ReplicationPad1d(_ReplicationPad):
    """Signals padded with the values of the border.

    Shapes: (batch, channels, length) or without batch.
    An int pads every side alike; otherwise pairs of widths, from the last dimension to the first.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ReplicationPad1d.html

    >>> ad.nn.ReplicationPad1d(1)(ad.zeros(1, 2, 4)).shape
    adjoint.Size([1, 2, 6])
    """

    rank = 1


class ReplicationPad2d(_ReplicationPad):
    """Images padded with the values of the border.

    Shapes: (batch, channels, height, width) or without batch.
    An int pads every side alike; otherwise pairs of widths, from the last dimension to the first.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ReplicationPad2d.html

    >>> ad.nn.ReplicationPad2d(1)(ad.zeros(1, 2, 4, 4)).shape
    adjoint.Size([1, 2, 6, 6])
    """

    rank = 2


class ReplicationPad3d(_ReplicationPad):
    """Volumes padded with the values of the border.

    Shapes: (batch, channels, depth, height, width) or without batch.
    An int pads every side alike; otherwise pairs of widths, from the last dimension to the first.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ReplicationPad3d.html

    >>> ad.nn.ReplicationPad3d(1)(ad.zeros(1, 2, 4, 4, 4)).shape
    adjoint.Size([1, 2, 6, 6, 6])
    """

    rank = 3


class ZeroPad1d(_ZeroPad):
    """Signals padded with zeros.

    Shapes: (batch, channels, length) or without batch.
    An int pads every side alike; otherwise pairs of widths, from the last dimension to the first.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ZeroPad1d.html

    >>> ad.nn.ZeroPad1d(1)(ad.zeros(1, 2, 4)).shape
    adjoint.Size([1, 2, 6])
    """

    rank = 1


class ZeroPad2d(_ZeroPad):
    """Images padded with zeros.

    Shapes: (batch, channels, height, width) or without batch.
    An int pads every side alike; otherwise pairs of widths, from the last dimension to the first.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ZeroPad2d.html

    >>> ad.nn.ZeroPad2d(1)(ad.zeros(1, 2, 4, 4)).shape
    adjoint.Size([1, 2, 6, 6])
    """

    rank = 2


class ZeroPad3d(_ZeroPad):
    """Volumes padded with zeros.

    Shapes: (batch, channels, depth, height, width) or without batch.
    An int pads every side alike; otherwise pairs of widths, from the last dimension to the first.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ZeroPad3d.html

    >>> ad.nn.ZeroPad3d(1)(ad.zeros(1, 2, 4, 4, 4)).shape
    adjoint.Size([1, 2, 6, 6, 6])
    """

    rank = 3
