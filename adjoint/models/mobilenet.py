"""MobileNetV2: narrow blocks that widen, filter each channel alone, and narrow again.

Source: Sandler et al., 2018, https://arxiv.org/abs/1801.04381
"""

from __future__ import annotations

from typing import Any

from ..nn import BatchNorm2d, Conv2d, Dropout, Linear, Module, ReLU6, Sequential, init

# expansion, channels, blocks, stride of the first block
_STAGES = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
    (6, 320, 1, 1),
)  # fmt: skip


def _convolution(
    in_channels: int, channels: int, size: int, stride: int = 1, groups: int = 1
) -> Any:
    """A convolution, normalized and cut off at 0 and 6."""
    convolution = Conv2d(
        in_channels, channels, size, stride, padding=size // 2, groups=groups, bias=False
    )
    return Sequential(convolution, BatchNorm2d(channels), ReLU6(inplace=True))


class InvertedResidual(Module):
    """Widen, filter each channel alone, narrow; the input added where the shape is kept."""

    def __init__(self, in_channels: int, channels: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = in_channels * expansion
        self.adds = stride == 1 and in_channels == channels
        widening = [_convolution(in_channels, inner, 1)] if expansion != 1 else []
        self.conv = Sequential(
            *widening,
            _convolution(inner, inner, 3, stride, groups=inner),
            Conv2d(inner, channels, 1, bias=False),
            BatchNorm2d(channels),
        )

    def forward(self, x: Any) -> Any:
        """(batch, in_channels, h, w) -> (batch, channels, h / stride, w / stride)."""
        return x + self.conv(x) if self.adds else self.conv(x)


class MobileNetV2(Module):
    """MobileNetV2; `width_mult` scales the channels of every stage.

    The parameters have the names that torchvision gives them.

    Shapes: (batch, 3, height, width) -> (batch, num_classes).
    Source: https://docs.pytorch.org/vision/stable/models/mobilenetv2.html

    >>> ad.models.MobileNetV2(num_classes=10, width_mult=0.25).eval()(ad.ones(1, 3, 32, 32)).shape
    adjoint.Size([1, 10])
    """

    def __init__(
        self, num_classes: int = 1000, width_mult: float = 1.0, dropout: float = 0.2
    ) -> None:
        super().__init__()
        channels = _rounded(32 * width_mult)
        features = [_convolution(3, channels, 3, stride=2)]
        for expansion, wanted, count, stride in _STAGES:
            for number in range(count):
                before, channels = channels, _rounded(wanted * width_mult)
                step = stride if number == 0 else 1
                features.append(InvertedResidual(before, channels, step, expansion))
        last = _rounded(1280 * max(1.0, width_mult))
        features.append(_convolution(channels, last, 1))
        self.features = Sequential(*features)
        self.classifier = Sequential(Dropout(dropout), Linear(last, num_classes))
        self._reset()

    def _reset(self) -> None:
        for module in self.modules():
            if isinstance(module, Conv2d):
                init.kaiming_normal_(module.weight, mode="fan_out")
            elif isinstance(module, Linear):
                init.normal_(module.weight, 0, 0.01)
                init.zeros_(module.bias)

    def forward(self, x: Any) -> Any:
        """The logits of each class."""
        return self.classifier(self.features(x).mean((2, 3)))


def _rounded(channels: float) -> int:
    """The nearest multiple of 8, not more than a tenth below."""
    nearest = max(8, int(channels + 4) // 8 * 8)
    return nearest + 8 if nearest < 0.9 * channels else nearest


def mobilenet_v2(num_classes: int = 1000) -> MobileNetV2:
    """MobileNetV2, with random weights.

    Source: https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.mobilenet_v2.html

    >>> sum(p.numel() for p in ad.models.mobilenet_v2().parameters())
    3504872
    """
    return MobileNetV2(num_classes)
