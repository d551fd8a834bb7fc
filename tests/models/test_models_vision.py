"""ResNet and MobileNetV2 beside torchvision's, or a twin in PyTorch where it is not installed."""

from __future__ import annotations

import io

import numpy as np
import pytest

import adjoint as ad
from adjoint import models

torch = pytest.importorskip("torch")
nn = torch.nn


class Block(nn.Module):
    """What torchvision calls BasicBlock."""

    def __init__(self, before, after, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.downsample = None
        if stride > 1 or before != after:
            shortcut = nn.Conv2d(before, after, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(after))

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        before = 64
        for i, after in enumerate((64, 128, 256, 512)):
            blocks = Block(before, after, 1 + (i > 0)), Block(after, after, 1)
            setattr(self, f"layer{i + 1}", nn.Sequential(*blocks))
            before = after
        self.fc = nn.Linear(512, num_classes)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


class Inverted(nn.Module):
    """What torchvision calls InvertedResidual."""

    def __init__(self, before, after, stride, widening):
        super().__init__()
        inner = before * widening
        layers = [] if widening == 1 else [filtered(before, inner, 1, 1, 1)]
        layers.append(filtered(inner, inner, 3, stride, inner))
        self.conv = nn.Sequential(
            *layers, nn.Conv2d(inner, after, 1, bias=False), nn.BatchNorm2d(after)
        )
        self.skips = stride == 1 and before == after

    def forward(self, x):
        return self.conv(x) + x if self.skips else self.conv(x)


def filtered(before, after, size, stride, groups):
    convolution = nn.Conv2d(before, after, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(after), nn.ReLU6())


class MobileNet(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        layers, before = [filtered(3, 32, 3, 2, 1)], 32
        table = "1 16 1 1, 6 24 2 2, 6 32 3 2, 6 64 4 2, 6 96 3 1, 6 160 3 2, 6 320 1 1"
        for row in table.split(", "):
            widening, after, count, stride = map(int, row.split())
            for i in range(count):
                layers.append(Inverted(before, after, stride if i == 0 else 1, widening))
                before = after
        self.features = nn.Sequential(*layers, filtered(320, 1280, 1, 1, 1))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, num_classes))

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


def reference(name):
    try:
        import torchvision
    except (ImportError, RuntimeError):  # not there, or built for another PyTorch
        return {"resnet18": ResNet18, "mobilenet_v2": MobileNet}[name](num_classes=10)
    return getattr(torchvision.models, name)(num_classes=10)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2"])
def test_the_same_state_dict_and_logits(name, dtype):
    torch.manual_seed(0)
    theirs = reference(name)
    x = np.random.default_rng(0).normal(size=(2, 3, 64, 64))
    theirs(torch.tensor(x, dtype=torch.float32))  # running statistics that are not 0 and 1
    theirs.eval().to(getattr(torch, dtype))
    file = io.BytesIO()
    torch.save(theirs.state_dict(), file)
    file.seek(0)
    ours = getattr(models, name)(num_classes=10).to(getattr(ad, dtype)).eval()
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict(ad.load(file))
    with torch.no_grad(), ad.no_grad():
        y = theirs(torch.tensor(x).to(getattr(torch, dtype))).numpy()
        found = ours(ad.tensor(x).to(getattr(ad, dtype))).numpy()
    assert found.dtype == y.dtype
    assert np.abs(found - y).max() < {"float32": 1e-4, "float64": 1e-10}[dtype] * np.abs(y).max()


def test_gradients_of_resnet():
    torch.manual_seed(0)
    theirs, ours = reference("resnet18").double(), models.resnet18(num_classes=10).double()
    ours.load_state_dict({k: ad.tensor(v.numpy().copy()) for k, v in theirs.state_dict().items()})
    x = np.random.default_rng(0).normal(size=(2, 3, 32, 32))
    theirs(torch.tensor(x)).square().sum().backward()
    ours(ad.tensor(x)).square().sum().backward()
    expected = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        gradient = expected[name].grad.numpy()
        np.testing.assert_allclose(
            parameter.grad.numpy(), gradient, rtol=0, atol=1e-8 * max(1, np.abs(gradient).max())
        )
