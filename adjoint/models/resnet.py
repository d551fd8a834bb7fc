"""ResNet: convolutions whose blocks add to their input.

Source: He et al., 2015, https://arxiv.org/abs/1512.03385
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import nn


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions, and their input added."""

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample: Any = None
        if stride != 1 or in_channels != channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(in_channels, channels, 1, stride=stride, bias=False),
                nn.BatchNorm2d(channels),
            )

    def forward(self, x: Any) -> Any:
        """(batch, in_channels, h, w) -> (batch, channels, h / stride, w / stride)."""
        kept = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(x)) + kept)


class ResNet(nn.Module):
    """A ResNet of basic blocks, `blocks` of them at each of four resolutions.

    The parameters have the names that torchvision gives them.

    Shapes: (batch, 3, height, width) -> (batch, num_classes).
    Source: https://docs.pytorch.org/vision/stable/models/resnet.html

    >>> ad.models.ResNet([1, 1, 1, 1], num_classes=10).eval()(ad.ones(1, 3, 32, 32)).shape
    adjoint.Size([1, 10])
    """

    def __init__(self, blocks: Sequence[int], num_classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = _stage(64, 64, blocks[0], stride=1)
        self.layer2 = _stage(64, 128, blocks[1], stride=2)
        self.layer3 = _stage(128, 256, blocks[2], stride=2)
        self.layer4 = _stage(256, 512, blocks[3], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Any) -> Any:
        """The logits of each class."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)
        return self.fc(self.avgpool(x).flatten(1))


def _stage(in_channels: int, channels: int, count: int, stride: int) -> Any:
    first = BasicBlock(in_channels, channels, stride)
    return nn.Sequential(first, *(BasicBlock(channels, channels, 1) for _ in range(count - 1)))


def resnet18(num_classes: int = 1000) -> ResNet:
    """ResNet-18, with random weights.

    Source: https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.resnet18.html

    >>> sum(p.numel() for p in ad.models.resnet18().parameters())
    11689512
    """
    return ResNet([2, 2, 2, 2], num_classes)


def resnet34(num_classes: int = 1000) -> ResNet:
    """ResNet-34, with random weights.

    Source: https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.resnet34.html

    >>> sum(p.numel() for p in ad.models.resnet34().parameters())
    21797672
    """
    return ResNet([3, 4, 6, 3], num_classes)
