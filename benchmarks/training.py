"""Whole training steps, the same program on both frameworks."""

from __future__ import annotations

import os

import torch

import adjoint as ad

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


def step(t: object, model: object, x: object, optimizer: object) -> object:
    """One training step as a function of no arguments."""
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
    for make in (small_mlp, mlp, cnn):
        row(make.__doc__.rstrip("."), compare(make(ad), make(torch), rounds=11, seconds=0.3))
