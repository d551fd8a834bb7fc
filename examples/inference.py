"""A network with batch normalization, trained, then frozen for inference.

A small residual network learns the digits. Frozen, it is a handful of steps: batch normalization is
multiplied into the convolutions, additions and ReLUs go along with them, and what lies between them
shares one arena. The frozen program gives the same answers; the figure is how many times as fast.

Expected: speedup at least 2
Run: python examples/inference.py
"""

import os
import statistics
import time

from sklearn.datasets import load_digits

import adjoint as ad
import adjoint.nn.functional as F
from adjoint import nn

SMOKE = bool(os.environ.get("ADJOINT_SMOKE"))
EPOCHS, ROUNDS = (1, 3) if SMOKE else (12, 200)


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(channels) for _ in range(2)])

    def forward(self, x):
        y = F.relu(self.norms[0](self.first(x)))
        return F.relu(x + self.norms[1](self.second(y)))


def network():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        Block(16), nn.MaxPool2d(2), Block(16), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Linear(64, 10),
    )  # fmt: skip


def train(model, x, y):
    optimizer = ad.optim.Adam(model.parameters(), lr=3e-3)
    model.train()
    for _ in range(EPOCHS):
        for chosen in ad.randperm(len(x)).split(64):
            optimizer.zero_grad()
            F.cross_entropy(model(x[chosen]), y[chosen]).backward()
            optimizer.step()
    return model.eval()


def seconds(function, x):
    """The median time of a call on one image after another."""
    times = []
    for i in range(ROUNDS):
        began = time.perf_counter()
        function(x[i % len(x) : i % len(x) + 1])
        times.append(time.perf_counter() - began)
    return statistics.median(times)


ad.manual_seed(0)
x, y = load_digits(return_X_y=True)
x, y = ad.from_numpy(x / 16).float().reshape(-1, 1, 8, 8), ad.from_numpy(y)
test = ad.arange(len(x)) % 5 == 0
model = train(network(), x[~test], y[~test])

program = ad.inference.freeze(model, x[:1])
print(program)
with ad.inference_mode():
    same = (program(x[test]).argmax(1) == model(x[test]).argmax(1)).all().item()
    right = (program(x[test]).argmax(1) == y[test]).float().mean().item()
    eager, frozen = seconds(model, x), seconds(program, x)
print(f"the same answers: {same}")
print(f"test accuracy: {right:.4f}")
print(f"one image: {eager * 1e6:.0f} us eagerly, {frozen * 1e6:.0f} us frozen")
print(f"speedup: {eager / frozen:.2f}")
