"""Padding layers."""

from __future__ import annotations

from typing import Any

from ...core.errors import ShapeError
from ...tensor import Tensor
from .. import functional as F  # noqa: N812 - the name everyone knows it by
from .module import Module

__all__ = [
    "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d",
    "ConstantPad3d", "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d",
    "ReplicationPad2d", "ReplicationPad3d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
]  # fmt: skip


class _Pad(Module):
    """Base of paddings: the widths, from the last dimension to the first."""

    _shown_as = "{padding}"

    rank: int
    mode: str

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = (padding,) * (2 * self.rank) if isinstance(padding, int) else tuple(padding)

    def forward(self, input: Tensor) -> Tensor:
        """The padded input."""
        return F.pad(input, self.padding, self.mode)


class _ReflectionPad(_Pad):
    mode = "reflect"


class _ReplicationPad(_Pad):
    mode = "replicate"


class _CircularPad(_Pad):
    mode = "circular"

    def forward(self, input: Tensor) -> Tensor:
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

    def forward(self, input: Tensor) -> Tensor:
        """The padded input."""
        return F.pad(input, self.padding, self.mode, self.value)


class _ZeroPad(_ConstantPad):
    _shown_as = "{padding}"

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)


class CircularPad1d(_CircularPad):
    """Padding of signals with the values of the other end.

        y[i] = x[(i - before) mod size]

    Args:
        padding: Width on all sides, or a pair (before, after) for each dimension, from the last to
            the first. A negative one cuts.

    Shapes: (batch, channels, length) or without batch -> the same with each size larger by before +
    after.
    Errors: ShapeError for other ranks, and for padding wider than the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.CircularPad1d.html

    >>> ad.nn.CircularPad1d(1)(ad.zeros(1, 2, 4)).shape
    adjoint.Size([1, 2, 6])
    """

    rank = 1


class CircularPad2d(_CircularPad):
    """Padding of images with the values of the other end.

        y[i] = x[(i - before) mod size]

    Args:
        padding: Width on all sides, or a pair (before, after) for each dimension, from the last to
            the first. A negative one cuts.

    Shapes: (batch, channels, height, width) or without batch -> the same with each size larger by
    before + after.
    Errors: ShapeError for other ranks, and for padding wider than the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.CircularPad2d.html

    >>> ad.nn.CircularPad2d(1)(ad.zeros(1, 2, 4, 4)).shape
    adjoint.Size([1, 2, 6, 6])
    """

    rank = 2


class CircularPad3d(_CircularPad):
    """Padding of volumes with the values of the other end.

        y[i] = x[(i - before) mod size]

    Args:
        padding: Width on all sides, or a pair (before, after) for each dimension, from the last to
            the first. A negative one cuts.

    Shapes: (batch, channels, depth, height, width) or without batch -> the same with each size
    larger by before + after.
    Errors: ShapeError for other ranks, and for padding wider than the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.CircularPad3d.html

    >>> ad.nn.CircularPad3d(1)(ad.zeros(1, 2, 4, 4, 4)).shape
    adjoint.Size([1, 2, 6, 6, 6])
    """

    rank = 3


class ConstantPad1d(_ConstantPad):
    """Padding of signals with one value.

        y[i] = x[i - before] where x has that place, value elsewhere

    Args:
        padding: Width on all sides, or a pair (before, after) for each dimension, from the last to
            the first. A negative one cuts.
        value: Value of the padding.

    Shapes: (batch, channels, length) or without batch -> the same with each size larger by before +
    after.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ConstantPad1d.html

    >>> ad.nn.ConstantPad1d(1, 3.5)(ad.zeros(1, 2, 4)).shape
    adjoint.Size([1, 2, 6])
    """

    rank = 1


class ConstantPad2d(_ConstantPad):
    """Padding of images with one value.

        y[i] = x[i - before] where x has that place, value elsewhere

    Args:
        padding: Width on all sides, or a pair (before, after) for each dimension, from the last to
            the first. A negative one cuts.
        value: Value of the padding.

    Shapes: (batch, channels, height, width) or without batch -> the same with each size larger by
    before + after.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ConstantPad2d.html

    >>> ad.nn.ConstantPad2d(1, 3.5)(ad.zeros(1, 2, 4, 4)).shape
    adjoint.Size([1, 2, 6, 6])
    """

    rank = 2


class ConstantPad3d(_ConstantPad):
    """Padding of volumes with one value.

        y[i] = x[i - before] where x has that place, value elsewhere

    Args:
        padding: Width on all sides, or a pair (before, after) for each dimension, from the last to
            the first. A negative one cuts.
        value: Value of the padding.

    Shapes: (batch, channels, depth, height, width) or without batch -> the same with each size
    larger by before + after.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ConstantPad3d.html

    >>> ad.nn.ConstantPad3d(1, 3.5)(ad.zeros(1, 2, 4, 4, 4)).shape
    adjoint.Size([1, 2, 6, 6, 6])
    """

    rank = 3


class ReflectionPad1d(_ReflectionPad):
    """Padding of signals with the values reflected at the border.

        y[i] = x[|i - before|] at the first end, likewise at the other: the border is not repeated

    Args:
        padding: Width on all sides, or a pair (before, after) for each dimension, from the last to
            the first. A negative one cuts.

    Shapes: (batch, channels, length) or without batch -> the same with each size larger by before +
    after.
    Errors: ShapeError for padding that is not narrower than the input; Unsupported for other ranks.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ReflectionPad1d.html

    >>> ad.nn.ReflectionPad1d(1)(ad.zeros(1, 2, 4)).shape
    adjoint.Size([1, 2, 6])
    """

    rank = 1


class ReflectionPad2d(_ReflectionPad):
    """Padding of images with the values reflected at the border.

        y[i] = x[|i - before|] at the first end, likewise at the other: the border is not repeated

    Args:
        padding: Width on all sides, or a pair (before, after) for each dimension, from the last to
            the first. A negative one cuts.

    Shapes: (batch, channels, height, width) or without batch -> the same with each size larger by
    before + after.
    Errors: ShapeError for padding that is not narrower than the input; Unsupported for other ranks.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ReflectionPad2d.html

    >>> ad.nn.ReflectionPad2d(1)(ad.zeros(1, 2, 4, 4)).shape
    adjoint.Size([1, 2, 6, 6])
    """

    rank = 2


class ReflectionPad3d(_ReflectionPad):
    """Padding of volumes with the values reflected at the border.

        y[i] = x[|i - before|] at the first end, likewise at the other: the border is not repeated

    Args:
        padding: Width on all sides, or a pair (before, after) for each dimension, from the last to
            the first. A negative one cuts.

    Shapes: (batch, channels, depth, height, width) or without batch -> the same with each size
    larger by before + after.
    Errors: ShapeError for padding that is not narrower than the input; Unsupported for other ranks.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ReflectionPad3d.html

    >>> ad.nn.ReflectionPad3d(1)(ad.zeros(1, 2, 4, 4, 4)).shape
    adjoint.Size([1, 2, 6, 6, 6])
    """

    rank = 3


class ReplicationPad1d(_ReplicationPad):
    """Padding of signals with the value of the border.

        y[i] = x[clamp(i - before, 0, size - 1)]

    Args:
        padding: Width on all sides, or a pair (before, after) for each dimension, from the last to
            the first. A negative one cuts.

    Shapes: (batch, channels, length) or without batch -> the same with each size larger by before +
    after.
    Errors: Unsupported for other ranks.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ReplicationPad1d.html

    >>> ad.nn.ReplicationPad1d(1)(ad.zeros(1, 2, 4)).shape
    adjoint.Size([1, 2, 6])
    """

    rank = 1


class ReplicationPad2d(_ReplicationPad):
    """Padding of images with the value of the border.

        y[i] = x[clamp(i - before, 0, size - 1)]

    Args:
        padding: Width on all sides, or a pair (before, after) for each dimension, from the last to
            the first. A negative one cuts.

    Shapes: (batch, channels, height, width) or without batch -> the same with each size larger by
    before + after.
    Errors: Unsupported for other ranks.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ReplicationPad2d.html

    >>> ad.nn.ReplicationPad2d(1)(ad.zeros(1, 2, 4, 4)).shape
    adjoint.Size([1, 2, 6, 6])
    """

    rank = 2


class ReplicationPad3d(_ReplicationPad):
    """Padding of volumes with the value of the border.

        y[i] = x[clamp(i - before, 0, size - 1)]

    Args:
        padding: Width on all sides, or a pair (before, after) for each dimension, from the last to
            the first. A negative one cuts.

    Shapes: (batch, channels, depth, height, width) or without batch -> the same with each size
    larger by before + after.
    Errors: Unsupported for other ranks.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ReplicationPad3d.html

    >>> ad.nn.ReplicationPad3d(1)(ad.zeros(1, 2, 4, 4, 4)).shape
    adjoint.Size([1, 2, 6, 6, 6])
    """

    rank = 3


class ZeroPad1d(_ZeroPad):
    """Padding of signals with zeros.

        y[i] = x[i - before] where x has that place, 0 elsewhere

    Args:
        padding: Width on all sides, or a pair (before, after) for each dimension, from the last to
            the first. A negative one cuts.

    Shapes: (batch, channels, length) or without batch -> the same with each size larger by before +
    after.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ZeroPad1d.html

    >>> ad.nn.ZeroPad1d(1)(ad.zeros(1, 2, 4)).shape
    adjoint.Size([1, 2, 6])
    """

    rank = 1


class ZeroPad2d(_ZeroPad):
    """Padding of images with zeros.

        y[i] = x[i - before] where x has that place, 0 elsewhere

    Args:
        padding: Width on all sides, or a pair (before, after) for each dimension, from the last to
            the first. A negative one cuts.

    Shapes: (batch, channels, height, width) or without batch -> the same with each size larger by
    before + after.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ZeroPad2d.html

    >>> ad.nn.ZeroPad2d(1)(ad.zeros(1, 2, 4, 4)).shape
    adjoint.Size([1, 2, 6, 6])
    """

    rank = 2


class ZeroPad3d(_ZeroPad):
    """Padding of volumes with zeros.

        y[i] = x[i - before] where x has that place, 0 elsewhere

    Args:
        padding: Width on all sides, or a pair (before, after) for each dimension, from the last to
            the first. A negative one cuts.

    Shapes: (batch, channels, depth, height, width) or without batch -> the same with each size
    larger by before + after.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ZeroPad3d.html

    >>> ad.nn.ZeroPad3d(1)(ad.zeros(1, 2, 4, 4, 4)).shape
    adjoint.Size([1, 2, 6, 6, 6])
    """

    rank = 3
