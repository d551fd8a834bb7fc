"""Whole training steps, the same program on both frameworks."""

from __future__ import annotations

import itertools
import os

import torch

import adjoint as ad

from .steps import gpt_model, resnet_model
from .timing import compare, header, row


def mlp(t: object) -> object:
    """784-256-256-10, batch 64, Adam."""
    nn = t.nn
    model = nn.Sequential(
        nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
    )
    return step(t, model, t.randn(64, 784), t.optim.Adam(model.parameters(), lr=1e-3))


def small_mlp(t: object) -> object:
    """64-32-10, batch 32, SGD: overhead dominates."""
    nn = t.nn
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    return step(t, model, t.randn(32, 64), t.optim.SGD(model.parameters(), lr=0.1))


def cnn(t: object) -> object:
    """Two convolutions on 1x28x28, batch 32, SGD with momentum."""
    nn = t.nn
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 10),
    )  # fmt: skip
    optimizer = t.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return step(t, model, t.randn(32, 1, 28, 28), optimizer)


def lstm(t: object) -> object:
    """LSTM 32-128, 50 steps, batch 32, Adam."""
    nn = t.nn

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(32, 128, batch_first=True)
            self.decoder = nn.Linear(128, 10)

        def forward(self, x: object) -> object:
            return self.decoder(self.lstm(x)[0][:, -1])

    model = Model()
    return step(t, model, t.randn(32, 50, 32), t.optim.Adam(model.parameters(), lr=1e-3))


def gpt(t: object) -> object:
    """GPT, 4 layers 128 wide, 12x64 tokens, AdamW."""
    words = 96
    model = gpt_model(t, words, length=64, width=128, heads=4, layers=4)
    x, target = t.randint(0, words, (12, 64)), t.randint(0, words, (12 * 64,))
    return step(t, model, x, t.optim.AdamW(model.parameters(), lr=1e-3), target)


def resnet(t: object) -> object:
    """ResNet, 3 stages of 16 to 64 channels, 32x3x32x32, SGD."""
    model = resnet_model(t)
    optimizer = t.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return step(t, model, t.randn(32, 3, 32, 32), optimizer)


def resnet18(t: object) -> object:
    """ResNet-18 on 4x3x160x160, SGD."""
    nn = t.nn

    class Block(nn.Module):
        def __init__(self, before: int, after: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
            self.norm1 = nn.BatchNorm2d(after)
            self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
            self.norm2 = nn.BatchNorm2d(after)
            self.relu = nn.ReLU(inplace=True)
            self.short = nn.Identity()
            if stride > 1:
                self.short = nn.Sequential(
                    nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
                )

        def forward(self, x: object) -> object:
            h = self.relu(self.norm1(self.conv1(x)))
            return self.relu(self.norm2(self.conv2(h)) + self.short(x))

    widths = (64, 64, 128, 256, 512)
    blocks = [
        block
        for before, after in itertools.pairwise(widths)
        for block in (Block(before, after, after // before), Block(after, after, 1))
    ]
    model = nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(512, 1000),
    )  # fmt: skip
    optimizer = t.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return step(t, model, t.randn(4, 3, 160, 160), optimizer)


def step(t: object, model: object, x: object, optimizer: object, target: object = None) -> object:
    """One training step as a function of no arguments."""
    if target is None:
        target = t.arange(x.shape[0]) % 10
    loss_function = t.nn.CrossEntropyLoss()

    def run() -> None:
        loss = loss_function(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return run


def main() -> None:
    """Print the table."""
    threads = os.cpu_count() or 1
    torch.set_num_threads(threads)
    header(f"Training steps (float32, {threads} threads)")
    for make in (small_mlp, mlp, cnn, lstm, gpt, resnet, resnet18):
        row(make.__doc__.rstrip("."), compare(make(ad), make(torch), rounds=11, seconds=0.3))
